"""SASL login of a connection, and re-authentication for as long as it lasts (KIP-43, KIP-152, KIP-368).

Before the login a connection accepts only ApiVersions, SaslHandshake and SaslAuthenticate, in small frames and few
bytes; anything else ends it, and so does the setup timeout. The client never learns what was wrong with a login: the
answer is always the same and takes as long. `SaslConnection` is a `ServerConnection` that logs its client in first;
once the identity has no expiry, requests are no longer inspected.

Imported only by listeners that authenticate.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from muster.coordinator.kafka.codec.codec import Frame
from muster.coordinator.kafka.connections.connection import EarlyRefusal, ServerConnection
from muster.coordinator.kafka.connections.received_requests import (
    HEAD,
    LENGTH_BYTES,
    SHORTEST,
    FrameBuffer,
    RequestSlot,
)
from muster.coordinator.kafka.dispatch import ClientPeer, HangUp
from muster.coordinator.kafka.protocol import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from muster.coordinator.security.access_model import ANONYMOUS, Identity
from muster.coordinator.security.login import (
    MOST_BYTES_BEFORE_LOGIN,
    MOST_REQUESTS_BEFORE_LOGIN,
    LoginFailed,
    LoginWork,
    SaslChallenge,
    SaslMechanism,
    SaslSuccess,
)

BEFORE_LOGIN: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
NONE: Final = 0
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
SASL_AUTHENTICATION_FAILED: Final = 58
FAILED: Final = "authentication failed"
"""All that is told of it."""
LEAST_BETWEEN_S: Final = 1.0
"""Who is logged in shows that again at most so often, as in Kafka."""


class LoginQueueFull(Exception):
    """So many logins wait for their passwords to be hashed that this one is not begun."""


class LoginService(Protocol):
    """Whoever knows who may log in: one for all connections of a listener."""

    @property
    def mechanisms(self) -> Sequence[str]: ...

    @property
    def max_frame(self) -> int: ...

    @property
    def setup_s(self) -> float: ...

    @property
    def delay_s(self) -> float: ...

    def begin_exchange(self, mechanism: str) -> SaslMechanism:
        """A conversation of one of the mechanisms."""

    async def offers(self, mechanism: str) -> int:
        """Kafka's code for whether one of the mechanisms, which is allowed here, can be begun."""

    async def perform(self, mechanism: SaslMechanism, work: LoginWork) -> SaslChallenge | SaslSuccess:
        """What it comes to, off the loop. Raises LoginFailed, Busy."""

    def identity(self, success: SaslSuccess, mechanism: str, host: str) -> Identity:
        """Who that is, and until when it may be believed. Raises LoginFailed for who has gone meanwhile."""

    def failed(self, host: str, mechanism: str, why: str) -> None: ...

    def came(self, login: "SaslLogin") -> None:
        """It is told (`ended`) when its user goes."""

    def left(self, login: "SaslLogin") -> None: ...


class LoginConnection(Protocol):
    """The connection of somebody who logs in."""

    def cut(self, why: str) -> None:
        """End it."""

    def drain(self) -> None:
        """End it once what is under way is answered."""

    def settled(self) -> None:
        """Who it is, is known, or known anew."""


class SaslAnswer(NamedTuple):
    """To SaslAuthenticate."""

    code: int
    message: str | None
    data: bytes
    lifetime_ms: int


class SaslLogin:
    """Of one connection."""

    def __init__(self, desk: LoginService, peer: ClientPeer, frames: FrameBuffer, connection: LoginConnection) -> None:
        self._loop = asyncio.get_running_loop()
        self._desk = desk
        self._peer = peer
        self._frames = frames
        self._most = frames.limit
        self._connection = connection
        self._chosen = ""
        self._talk: SaslMechanism | None = None
        self._bytes = 0
        self._requests = 0
        self._again_s = -inf
        self.known = False
        """Whether the client has shown who it is."""
        self.raw = False
        """Whether what comes next are the words of a mechanism without a request around them (SaslHandshake v0)."""
        frames.limit = min(frames.limit, desk.max_frame)
        peer.identity = Identity(ANONYMOUS, peer.host)
        self._late = self._loop.call_later(desk.setup_s, self._too_late)

    @property
    def identity(self) -> Identity:
        return self._peer.identity

    @property
    def mechanisms(self) -> Sequence[str]:
        return self._desk.mechanisms

    def heard(self, size: int) -> None:
        """So many bytes came. Raises HangUp."""
        if self.known:
            return
        self._bytes += size
        if self._bytes > MOST_BYTES_BEFORE_LOGIN:
            raise HangUp(f"it sent {self._bytes} bytes without a login; expected at most {MOST_BYTES_BEFORE_LOGIN}")

    def admit(self, key: int) -> None:
        """A request of this API is to be begun. Raises HangUp where that cannot be."""
        if self.known:
            if self._peer.identity.until_s <= self._loop.time() and key not in BEFORE_LOGIN:
                raise HangUp("its login is over, and it did not show again who it is (connections.max.reauth.ms)")
            return
        self._requests += 1
        if key not in BEFORE_LOGIN:
            raise HangUp(f"API {key} was asked for before the login; expected ApiVersions or one of SASL's")
        if self._requests > MOST_REQUESTS_BEFORE_LOGIN:
            raise HangUp(f"it sent more than {MOST_REQUESTS_BEFORE_LOGIN} requests without a login")

    def handshake(self, mechanism: str, version: int) -> int:
        """The mechanism is chosen; the code of the answer. Raises HangUp."""
        if self._talk is not None:
            raise HangUp("SaslHandshake was sent in the middle of a login")
        if self.known:
            if version == 0 or self._loop.time() - self._again_s < LEAST_BETWEEN_S:
                return ILLEGAL_SASL_STATE
            if mechanism != self._chosen:
                self._connection.drain()
                return ILLEGAL_SASL_STATE
        elif mechanism not in self._desk.mechanisms:
            self._connection.drain()
            self._desk.failed(self._peer.host, mechanism[:50], "mechanism")
            return UNSUPPORTED_SASL_MECHANISM
        self._chosen = mechanism
        self._talk = self._desk.begin_exchange(mechanism)
        if version == 0:
            self.raw = True
            self._frames.shortest = 1
        return NONE

    async def begin_exchange(self, mechanism: str, version: int) -> int:
        """`handshake`, and whether who decides has the mechanism. Raises HangUp."""
        code = self.handshake(mechanism, version)
        if code == NONE and (code := await self._desk.offers(mechanism)) != NONE:
            self._talk, self.raw = None, False
            if not self.known:
                self._connection.drain()
        return code

    async def authenticate(self, data: bytes) -> SaslAnswer:
        """The client's next words. Raises HangUp."""
        if self._talk is None:
            self._connection.drain()
            return SaslAnswer(ILLEGAL_SASL_STATE, "SaslAuthenticate comes after SaslHandshake", b"", 0)
        try:
            step = self._talk.evaluate(data)
            if isinstance(step, LoginWork):
                step = await self._desk.perform(self._talk, step)
            if isinstance(step, SaslChallenge):
                return SaslAnswer(NONE, None, step.data, 0)
            return self._succeeded(step)
        except LoginFailed as failure:
            why = str(failure)
        except LoginQueueFull:
            raise HangUp("too many logins wait for their passwords to be hashed") from None
        return await self._failed(why)

    async def words(self, data: bytes) -> bytes:
        """The same without a request around it: there is no answer that would say that it was wrong."""
        answer = await self.authenticate(data)
        if answer.code:
            raise HangUp("a login failed")
        return answer.data

    def ended(self, why: str) -> None:
        """Whoever it is may be here no longer."""
        self._connection.cut(why)

    def ends_earlier(self, by_s: float) -> None:
        """By so much than it was told."""
        self._peer.identity = replace(self._peer.identity, until_s=self._peer.identity.until_s - by_s)

    def gone(self) -> None:
        """The connection is at its end."""
        self._late.cancel()
        if self.known:
            self._desk.left(self)

    def _succeeded(self, success: SaslSuccess) -> SaslAnswer:
        identity = self._desk.identity(success, self._chosen, self._peer.host)
        if self.known and identity.principal != self._peer.identity.principal:
            raise LoginFailed("another's name")
        lifetime_ms = 0
        if identity.until_s != inf:
            lifetime_ms = int((identity.until_s - self._loop.time()) * 1000)
            if lifetime_ms <= 0:
                raise LoginFailed("ended")
        self._talk, self.raw = None, False
        self._frames.limit, self._frames.shortest = self._most, SHORTEST
        self._late.cancel()
        self._again_s = self._loop.time()
        self._peer.identity = identity
        if not self.known:
            self.known = True
            self._desk.came(self)
        self._connection.settled()
        return SaslAnswer(NONE, None, success.data, lifetime_ms)

    async def _failed(self, why: str) -> SaslAnswer:
        """After a while, by which nobody else is held up."""
        self._talk = None
        self._connection.drain()
        self._desk.failed(self._peer.host, self._chosen, why)
        await asyncio.sleep(self._desk.delay_s)
        return SaslAnswer(SASL_AUTHENTICATION_FAILED, FAILED, b"", 0)

    def _too_late(self) -> None:
        self._connection.cut(f"no login within {self._desk.setup_s:g} s (connection.setup.timeout.ms)")


# Connections that authenticate
# -----------------------------


class SaslWordsConnection(ServerConnection):
    """See `ServerConnection`. Takes a mechanism's words as Kafka 0.10 sent them, after version 0 of SaslHandshake:
    frames without headers."""

    __slots__ = ()

    def _hear(self, login: SaslLogin, frame: Frame) -> None:
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
        self._resume_reading(slot)


class SaslConnection(SaslWordsConnection):
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
