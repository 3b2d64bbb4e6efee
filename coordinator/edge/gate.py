"""What the doors for programs ask of whoever knows who a caller is: `server/security/gate.py`, where there is one."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from muster.coordinator.security.identity import Identity


class AsksWho(Protocol):
    """Everything on the node's loop."""

    def known(self, host: str, authorization: str) -> Identity | None:
        """Who has shown that before, and still is; without waiting."""

    def seen(self, authorization: str) -> bool:
        """Whether somebody has shown just that before, from any address, and was known; a guess, to prepare by."""

    async def identify(self, *, host: str, authorization: str, certificate: bytes | None, door: str) -> Identity:
        """`authorization`: such as `Bearer ...`, may be empty; `certificate`: the client's, as PEM.

        Raises NotAuthenticated.
        """

    def lasting(self, identity: Identity) -> AbstractAsyncContextManager[None]:
        """What runs in it is cancelled once the identity ends, which raises NotAuthenticated."""
