"""A connection whose client has to show who it is before it is served."""

import asyncio
from math import inf
from typing import Any

from muster.coordinator.kafka.apis import SASL_AUTHENTICATE
from muster.coordinator.kafka.codec.emitting import Frame
from muster.coordinator.kafka.connections.connection import Connection
from muster.coordinator.kafka.connections.foresight import Refused
from muster.coordinator.kafka.connections.frames import HEAD, LENGTH_BYTES
from muster.coordinator.kafka.connections.login import Bare, Desk, Login
from muster.coordinator.kafka.connections.places import Slot
from muster.coordinator.kafka.dispatch import HangUp


class AskingConnection(Connection):
    """See `Connection`. Its client logs in at the `desk`."""

    _login: Login | None = None

    def __init__(self, desk: Desk, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._desk = desk

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._let_in:
            self._login = self._peer.login = Login(self._desk, self._peer, self._frames, self._drop)

    def data_received(self, data: bytes) -> None:
        if self._login is not None and not self._draining:
            try:
                self._login.heard(len(data))
            except HangUp as error:
                self._drop(str(error))
                return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._login is not None:
            self._login.gone()
        super().connection_lost(exc)

    def _foreseen(self) -> Refused | None:
        """Nothing is read of a request before the login but its key."""
        return super()._foreseen() if self._login is not None and self._login.known else None

    def _start(self, frame: Frame) -> None:
        if self._login is None:
            raise HangUp("it is not open")
        if self._login.raw:
            self._hear(self._login, frame)
            return
        self._login.admit(HEAD.unpack_from(frame)[0])
        super()._start(frame)

    def _hear(self, login: Login, frame: Frame) -> None:
        """A mechanism's words as Kafka 0.10 sent them: frames without headers."""
        form = self._dispatch.form(SASL_AUTHENTICATE, 0)
        assert form is not None, "it is served"
        slot = self._parked = Slot(len(frame), 0, form, self._begun_s)
        self._slots.append(slot)
        slot.task = self._loop.create_task(self._serve(slot, login.words, bytes(frame)))

    def _settle(self, login: Login) -> None:
        """Who is known without an end is served as if nobody had been asked."""
        self.__class__ = KnownConnection if login.known and login.identity.until_s == inf else AskingConnection
        if self._transport.get_extra_info("sslcontext") is None:
            self._transport.set_protocol(self)  # It keeps what it calls; under TLS it may not be told in mid-stream.

    def _answered(self, slot: Slot) -> None:
        if self._login is not None and slot.form.api.key == SASL_AUTHENTICATE:
            self._peer.cleared.clear()
            self._settle(self._login)
        if self._login is not None and self._login.over:
            self._draining = True
            self._backlog.clear()
        super()._answered(slot)

    def _fill(self, slot: Slot, response: Any) -> None:
        if not isinstance(response, Bare):
            super()._fill(slot, response)
            return
        slot.done = True
        slot.answer = [len(response.data).to_bytes(LENGTH_BYTES, "big"), response.data]
        self._made_bytes += LENGTH_BYTES + len(response.data)


class KnownConnection(AskingConnection):
    """The same, once there is nothing left to look at with each request."""

    data_received = Connection.data_received
    _start = Connection._start
    _fill = Connection._fill
