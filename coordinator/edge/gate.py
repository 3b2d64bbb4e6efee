"""What the doors for programs ask of whoever knows who a caller is: `server/security/gate.py`, where there is one."""

from collections.abc import Container
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from muster.coordinator.security.identity import Identity


class Authenticator(Protocol):
    """Everything on the node's loop."""

    @property
    def seen(self) -> Container[str]:
        """What somebody has shown before, from any address, and was known by; a guess, to prepare by."""

    def known(self, host: str, authorization: str) -> Identity | None:
        """Who has shown that before, and still is; without waiting."""

    async def identify(self, *, host: str, authorization: str, certificate: bytes | None, door: str) -> Identity:
        """`authorization`: such as `Bearer ...`, may be empty; `certificate`: the client's, as PEM.

        Raises NotAuthenticated.
        """

    def lasting(self, identity: Identity) -> AbstractAsyncContextManager[None]:
        """What runs in it is cancelled once the identity ends, which raises NotAuthenticated."""
