"""A connection through the node whose client shows its broker who it is, and is served here as whom the broker took in.

Before that only ApiVersions and SASL's requests are taken, in small frames and few bytes, as at the node's other doors:
what is answered here rests on the broker's yes, too.
"""

import asyncio
from typing import Any, Final

from muster.coordinator.kafka.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from muster.coordinator.kafka.codec.codec import decode, is_flexible
from muster.coordinator.kafka.codec.emitter import Frame, MalformedFrame
from muster.coordinator.kafka.connections.client import body_position
from muster.coordinator.kafka.connections.foresight import EarlyRefusal
from muster.coordinator.kafka.connections.frames import HEAD
from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka_backend.proxy.allowed_apis import TABLE, RequestRoute
from muster.coordinator.kafka_backend.proxy.beginnings import START
from muster.coordinator.kafka_backend.proxy.leg import BrokerConnection
from muster.coordinator.kafka_backend.proxy.passage import ProxyConnection
from muster.coordinator.kafka_backend.proxy.relaying import ClientLogin, RelayRules

NO_CLIENT_ID: Final = b"\xff\xff"
"""A null string, where a request's header names its client."""

APIS: Final = {TABLE[key][0].name: TABLE[key][0] for key in (SASL_HANDSHAKE, SASL_AUTHENTICATE)}


class LoginProxyConnection(ProxyConnection):
    __slots__ = ("_login", "_rules")

    def __init__(self, rules: RelayRules, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rules = rules
        self._login: ClientLogin | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._let_in:
            self._login = ClientLogin(self._rules, self._ask_broker, self._peer, self._frames, self)
            self._peer.login = self._login

    def connection_lost(self, exc: Exception | None) -> None:
        if self._login is not None:
            self._login.gone()
        super().connection_lost(exc)

    def settled(self) -> None:
        """See `Asked`. Until when a login holds is looked at with each request."""

    # -- what comes from the client -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            self._entered().heard(len(data))
        except HangUp as error:
            self._drop(str(error))
        else:
            super().data_received(data)

    def _begun(self, data: bytes, at: int) -> bool:
        login = self._entered()
        size, key, _, _ = START.unpack_from(data, at)
        if size > self._frames.limit:
            raise MalformedFrame(f"a frame of {size} bytes; expected at most {self._frames.limit}")
        passes = key in TABLE and TABLE[key][1] in (RequestRoute.PASS, RequestRoute.EDIT)
        if passes and not (self._backlog or self._parked is not None):  # else it is looked at again when its turn comes
            login.admit(key)
        return super()._begun(data, at)

    def _start(self, frame: Frame) -> None:
        login = self._entered()
        key, version, _ = HEAD.unpack_from(frame)
        login.admit(key)
        if key == SASL_AUTHENTICATE:
            login.relay.version = version
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            self._serve_here(frame)
        else:
            super()._start(frame)

    def _foreseen(self) -> EarlyRefusal | None:
        """Nothing is read of a request before the login but its key."""
        return super()._foreseen() if self._entered().known else None

    def _entered(self) -> ClientLogin:
        if self._login is None:
            raise HangUp("it is not open")
        return self._login

    # -- its broker ---------------------------------------------------------------------------------------------------

    async def _ask_broker(self, name: str, version: int, request: Any) -> Any:
        """See `relaying.Ask`. Raises HangUp, MalformedFrame."""
        header = NO_CLIENT_ID + (b"\0" if is_flexible(f"{name}Request", version) else b"")
        frame = await self._said(APIS[name], version, 0, header, request)
        return decode(f"{name}Response", version, frame, body_position(name, version, frame))[0]

    def leg_lost(self, leg: BrokerConnection, why: str) -> None:
        """With it goes the login, and with that the client's connection, however idle. Who is just being told that a
        login has failed hears that yet."""
        if leg is not self._leg:
            return
        self._leg = None
        if not (self._draining and self._slots and not leg.under_way):
            self._end(why)
