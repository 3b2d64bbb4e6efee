"""One client's connection: frames in, answers out in the order of the requests, and a limit on everything between."""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, cast

import structlog

from muster.coordinator.kafka.apis import API_VERSIONS, UNSUPPORTED_VERSION
from muster.coordinator.kafka.codec.codec import MalformedFrame, struct
from muster.coordinator.kafka.codec.decoding import Decoder, TooMany
from muster.coordinator.kafka.codec.emitting import Buffer, Frame
from muster.coordinator.kafka.connections.frames import LENGTH_BYTES, Frames
from muster.coordinator.kafka.connections.shared import Shared
from muster.coordinator.kafka.dispatch import Dispatch, Form, HangUp, KafkaCall, Later, Peer, Written, ranges

HEAD = Struct(">hhi")
"""How every request begins: API key, version, correlation id."""

ANSWER = Struct(">ii")
"""How every answer begins: its length, the correlation id."""

TAGGED_ANSWER = Struct(">iib")
"""The same in flexible versions: no tagged fields."""

KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer whose machine is gone is noticed after a minute and a half, though no byte of its connection is due."""

TURN = 64
"""Requests of one connection that are begun before others have their turn."""

LONGEST_KEPT = 1_024
"""Bytes of a request's header that are kept for comparison with the next ones, one for each form of request."""

LARGE = 1 << 15
"""Answers of this size are handed on as they are; smaller ones leave as one piece."""

log = structlog.get_logger("muster.kafka")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may take. Sizes in bytes, times in milliseconds."""

    max_frame: int
    max_in_flight: int
    """Requests taken in and not answered."""
    max_in_flight_bytes: int
    """Their bytes; one frame of any allowed size is always let in."""
    max_unsent_bytes: int
    """Above this many bytes of answers that have not left, none of its requests is begun."""
    max_idle_ms: int


class Slot:
    """A request's place in the order of answers."""

    __slots__ = ("answer", "correlation", "done", "form", "size", "task")

    def __init__(self, size: int, correlation: int, form: Form) -> None:
        self.size = size
        self.correlation = correlation
        self.form = form
        self.done = False
        self.answer: list[Buffer] = []
        self.task: asyncio.Task[None] | Later | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request's header said behind the correlation id, and what it means to a handler."""

    header: bytes
    call: KafkaCall
    read: Decoder


class Connection(asyncio.Protocol):
    """Serves `dispatch` to one client. `on_open` may refuse it (False); `on_close` hears of all that were let in.

    `shared` is what it has in common with the other connections of its node.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        limits: ConnectionLimits,
        on_open: "Callable[[Connection], bool]",
        on_close: "Callable[[Connection], None]",
        shared: Shared | None = None,
    ) -> None:
        self._shared = shared or Shared()
        self._dispatch = dispatch
        self._limits = limits
        self._on_open = on_open
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(limits.max_frame)
        self._backlog: deque[Frame] = deque()
        self._slots: deque[Slot] = deque()
        self._callers: dict[Form, Caller] = {}
        self._bytes = 0
        self._made_bytes = 0
        self._unread = 0
        self._moved_at = 0.0
        self._parked: Slot | None = None
        self._choked = False
        self._paused = False
        self._advance_due = False
        self._draining = False
        self._let_in = False
        self._active_at = self._loop.time()
        self.fault = ""
        """Why the node cut this client off; empty if it did not."""

    @property
    def peer(self) -> Peer:
        return self._peer

    @property
    def in_flight(self) -> int:
        """Requests taken in and not answered."""
        return len(self._slots) + len(self._backlog)

    @property
    def in_flight_bytes(self) -> int:
        """Their bytes, and those of a frame that has not come whole."""
        return self._bytes + self._frames.held

    @property
    def choked(self) -> bool:
        """Whether the client leaves so much unread that none of its requests is begun."""
        return self._choked

    @property
    def moved_at(self) -> float:
        return self._moved_at

    def unread(self) -> int:
        """Bytes of answers that have not left."""
        left = self._made_bytes + self._transport.get_write_buffer_size()
        if left < self._unread:
            self._moved_at = self._loop.time()
        self._unread = left
        return left

    def cut(self, why: str) -> None:
        self._drop(why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._peer = Peer(str(name[0]) if name else "", self._loop.create_future())
        keep_alive(transport.get_extra_info("socket"))
        self._transport.set_write_buffer_limits(high=self._limits.max_unsent_bytes)
        self._let_in = self._on_open(self)
        if not self._let_in:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._draining:
            return
        self._active_at = self._loop.time()
        try:
            frames = self._frames.feed(data)
        except MalformedFrame as error:
            self._drop(str(error))
            return
        for frame in frames:
            self._bytes += len(frame)
            self._backlog.append(frame)
        self._advance()

    def eof_received(self) -> bool:
        """No client of Kafka closes one half only: it is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Requests under way are forgotten. What they did stands, and members stay until their session ends."""
        self._draining = True
        self._backlog.clear()
        for slot in self._slots:
            if slot.task is not None:
                slot.task.cancel()
        if not self._peer.eof.done():
            self._peer.eof.set_result(None)
        if self._unread:
            self._unread = 0
            self._shared.holds(self, 0)
        if self._let_in:
            self._on_close(self)

    def pause_writing(self) -> None:
        self._choked = True

    def resume_writing(self) -> None:
        self._choked = False
        self._active_at = self._loop.time()
        self._weigh()
        self._advance()

    def drain(self) -> None:
        """Take no further requests; close once those under way are answered."""
        self._draining = True
        self._backlog.clear()
        self._close_if_drained()

    def abort(self) -> None:
        self._transport.abort()

    def reap(self, now_s: float) -> None:
        """Close the connection if nothing moved on it for too long: nothing is under way, or no answer is read."""
        resting = self._choked or not (self._slots or self._backlog)
        if resting and (now_s - self._active_at) * 1000 > self._limits.max_idle_ms:
            log.info("idle connection closed", peer=self._peer.host)
            self._transport.abort()

    def _advance(self) -> None:
        """Begin what may begin, send what may be sent, and read on or stop reading."""
        self._advance_due = False
        for _ in range(TURN):
            if not self._may_begin():
                break
            self._begin(self._backlog.popleft())
        self._send()
        if self._may_begin():
            self._loop.call_soon(self._advance)  # other connections first
        self._throttle()

    def _may_begin(self) -> bool:
        room = not self._choked and self._made_bytes <= self._limits.max_unsent_bytes
        return room and bool(self._backlog) and self._parked is None

    def _begin(self, frame: Frame) -> None:
        try:
            self._start(frame)
        except (MalformedFrame, HangUp) as error:
            self._drop(str(error))
        except Exception as error:
            log.error("request failed", peer=self._peer.host, exc_info=error)
            self._drop("its request could not be answered")

    def _start(self, frame: Frame) -> None:
        key, version, correlation = HEAD.unpack_from(frame)
        form = self._dispatch.form(key, version)
        if form is None:
            self._unsupported(key, version, correlation, len(frame))
            return
        caller = self._callers.get(form)
        if caller is None or not frame.startswith(caller.header, HEAD.size):
            caller = self._meet(form, frame)
        # Kafka passes over what lies behind a request. librdkafka leaves bytes there when it asks for all topics.
        slot = Slot(len(frame), correlation, form)
        try:
            request, _ = caller.read(frame, HEAD.size + len(caller.header))
        except TooMany as excess:
            self._refuse(slot, str(excess))
            return
        self._slots.append(slot)
        if form.immediate is not None:
            response = form.immediate(request, caller.call)
            if isinstance(response, Later):
                slot.task = response
                if form.api.parks:
                    self._parked = slot
                response.then(partial(self._came, slot, response))
                return
            if response is not None or form.handler is None:
                self._fill(slot, response)
                return
        assert form.handler is not None, f"{form.api.name} is answered neither now nor later"
        if form.api.parks:
            self._parked = slot
        slot.task = self._loop.create_task(self._serve(slot, form.handler(request, caller.call)))

    def _refuse(self, slot: Slot, why: str) -> None:
        """Say so in the answer if it has a place for that."""
        response = slot.form.refusal(why)
        if response is None:
            raise HangUp(why)
        self._shared.excess(self._peer.host, why, slot.size)
        self._slots.append(slot)
        self._fill(slot, response)

    def _meet(self, form: Form, frame: Frame) -> "Caller":
        """Read a request's header. The next ones mostly say the same, whatever their correlation id."""
        header, end = form.read_header(frame, 0)
        call = KafkaCall(form.version, header.client_id, self._peer)
        caller = Caller(bytes(frame[HEAD.size : end]), call, form.reader())
        if len(caller.header) <= LONGEST_KEPT:
            self._callers[form] = caller
        return caller

    def _unsupported(self, key: int, version: int, correlation: int, size: int) -> None:
        """KIP-511: ApiVersions of an unknown version is answered in version 0, so that the client comes again.

        For any other there is no form of answer that its client would understand.
        """
        form = self._dispatch.form(API_VERSIONS, 0)
        if key != API_VERSIONS or form is None:
            self._drop(f"API {key} version {version} is not served here")
            return
        slot = Slot(size, correlation, form)
        self._slots.append(slot)
        self._fill(slot, struct("ApiVersionsResponse")(error_code=UNSUPPORTED_VERSION, api_keys=ranges()))

    async def _serve(self, slot: Slot, answering: Awaitable[Any]) -> None:
        try:
            self._fill(slot, await answering)
        except Exception as error:
            self._failed(slot, error)
            return
        self._answered(slot)

    def _came(self, slot: Slot, later: Later) -> None:
        try:
            self._fill(slot, later.respond())
        except Exception as error:
            self._failed(slot, error)
            return
        self._answered(slot)

    def _answered(self, slot: Slot) -> None:
        """Go on. What one flush or one plan answers on this connection leaves together."""
        if slot is self._parked:
            self._parked = None
        self._active_at = self._loop.time()
        if not self._advance_due:
            self._advance_due = True
            self._loop.call_soon(self._advance)

    def _failed(self, slot: Slot, error: Exception) -> None:
        if isinstance(error, HangUp):
            self._drop(str(error))
            return
        log.error("handler failed", api=slot.form.api.name, peer=self._peer.host, exc_info=error)
        self._drop("its request could not be answered")

    def _fill(self, slot: Slot, response: Any) -> None:
        """The answer's bytes, with header."""
        slot.done = True
        if response is None:
            return
        body = response.body if isinstance(response, Written) else slot.form.write(response)
        size = sum(map(len, body))
        if slot.form.tagged:
            head = TAGGED_ANSWER.pack(size + LENGTH_BYTES + 1, slot.correlation, 0)
        else:
            head = ANSWER.pack(size + LENGTH_BYTES, slot.correlation)
        slot.answer = [head, *body]
        self._made_bytes += len(head) + size

    def _send(self) -> None:
        """Send the answers that are due."""
        out: list[Buffer] = []
        while self._slots and self._slots[0].done:
            slot = self._slots.popleft()
            self._bytes -= slot.size
            out += slot.answer
        self._made_bytes -= sum(map(len, out))
        if out and not self._transport.is_closing():
            if max(map(len, out)) < LARGE:
                self._transport.write(b"".join(out))
            else:
                self._transport.writelines(out)
        if out or self._made_bytes:
            self._weigh()
        self._close_if_drained()

    def _weigh(self) -> None:
        """Tell how much is unread, if that has changed: of a client that reads it is nothing, before as after."""
        before = self._unread
        if self._peer.eof.done():
            return
        if self.unread() != before:
            if not before:
                self._moved_at = self._loop.time()
            self._shared.holds(self, self._unread)

    def _throttle(self) -> None:
        """Read on only while there is room; with an unfinished frame there always is, or it could never be finished."""
        full = self.in_flight >= self._limits.max_in_flight or (
            self.in_flight_bytes > self._limits.max_in_flight_bytes and self.in_flight > 0
        )
        stop = full or (self._choked and self.in_flight > 0)
        if stop != self._paused and not self._transport.is_closing():
            self._paused = stop
            (self._transport.pause_reading if stop else self._transport.resume_reading)()

    def _close_if_drained(self) -> None:
        if self._draining and not self._slots:
            self._transport.close()

    def _drop(self, why: str) -> None:
        """Close this connection, and nothing else."""
        self.fault = why
        self._shared.leftovers.refused(self.in_flight_bytes)
        self._draining = True
        self._backlog.clear()
        self._transport.abort()


def keep_alive(sock: socket.socket | None) -> None:
    """Let the kernel find out about peers that are gone without a word."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
