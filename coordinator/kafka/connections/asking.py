"""A connection whose client has to show who it is before it is served."""

import asyncio
from math import inf
from typing import Any

from muster.coordinator.kafka.apis import SASL_AUTHENTICATE
from muster.coordinator.kafka.codec.emitter import Frame
from muster.coordinator.kafka.connections.connection import ServerConnection
from muster.coordinator.kafka.connections.foresight import EarlyRefusal
from muster.coordinator.kafka.connections.frames import HEAD, LENGTH_BYTES
from muster.coordinator.kafka.connections.login import LoginService, SaslLogin
from muster.coordinator.kafka.connections.places import RequestSlot
from muster.coordinator.kafka.dispatch import HangUp


class SaslConnection(ServerConnection):
    """See `ServerConnection`. Its client logs in at the `desk`; who is known without an end is served as at any
    other.
    """

    __slots__ = ("_desk", "_login")

    def __init__(self, desk: LoginService, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._desk = desk
        self._login: SaslLogin | None = None
        self._asks = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._let_in:
            self._login = self._peer.login = SaslLogin(self._desk, self._peer, self._frames, self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._login is not None:
            self._login.gone()
        self._asks = None
        super().connection_lost(exc)

    def heard(self, size: int) -> None:
        """See `Asks`."""
        if self._login is not None:
            self._login.heard(size)

    def takes(self, frame: Frame) -> bool:
        """See `Asks`."""
        if self._login is None:
            raise HangUp("it is not open")
        if self._login.raw:
            self._hear(self._login, frame)
            return True
        self._login.admit(HEAD.unpack_from(frame)[0])
        return False

    def settled(self) -> None:
        """Who is known without an end need not be looked at with each request any more."""
        self._asks = None if self._peer.identity.until_s == inf else self

    def _foreseen(self) -> EarlyRefusal | None:
        """Nothing is read of a request before the login but its key."""
        return super()._foreseen() if self._login is not None and self._login.known else None

    def _hear(self, login: SaslLogin, frame: Frame) -> None:
        """A mechanism's words as Kafka 0.10 sent them: frames without headers."""
        form = self._dispatch.form(SASL_AUTHENTICATE, 0)
        assert form is not None, "it is served"
        slot = self._parked = RequestSlot(len(frame), 0, form, self._begun_s)
        self._slots.append(slot)
        slot.task = self._loop.create_task(self._reply(slot, login, bytes(frame)))

    async def _reply(self, slot: RequestSlot, login: SaslLogin, words: bytes) -> None:
        """Without a header, as it was asked."""
        try:
            answer = await login.words(words)
        except Exception as error:
            self._failed(slot, error)
            return
        slot.done = True
        slot.answer = [len(answer).to_bytes(LENGTH_BYTES, "big"), answer]
        self._made_bytes += LENGTH_BYTES + len(answer)
        self._answered(slot)
