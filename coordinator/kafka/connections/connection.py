"""One client's connection: frames in, answers out in the order of the requests, and a limit on everything in between.

Connections of one listener share an account of the answers that clients have not read. Above
`kafka.max.unsent.bytes` the connection whose client has been silent longest is cut. A client that exceeds a quota is
held back: nothing is read from its connection for a while, requests in flight are still answered.

A large request is judged by its first bytes: one that lists more elements than are allowed is refused before the
rest has arrived. Nothing of the rest is kept or copied, so such a request costs only the reading from its socket.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, cast

import structlog

from muster.coordinator.edge.overload import LogThrottle, RefusedRequestMemory
from muster.coordinator.edge.request_limits import LARGE_BYTES
from muster.coordinator.kafka.codec.codec import Buffer, Frame, MalformedFrame, RequestTooLong, decoder_of, struct
from muster.coordinator.kafka.connections.received_requests import (
    ANSWER,
    HEAD,
    LENGTH_BYTES,
    TAGGED_ANSWER,
    ConnectionLimits,
    DecodedHeader,
    FrameBuffer,
    RepeatedRequest,
    RequestInspector,
    RequestSlot,
    keep_alive,
)
from muster.coordinator.kafka.dispatch import (
    ClientPeer,
    DeferredAnswer,
    Dispatcher,
    EncodedAnswer,
    HangUp,
    KafkaCall,
    ServedVersion,
    version_ranges,
)
from muster.coordinator.kafka.protocol import API_VERSIONS, HEARTBEAT, PRODUCE, READ_ONLY_APIS, UNSUPPORTED_VERSION
from muster.coordinator.security.access_model import ANONYMOUS, UNAUTHENTICATED, Identity
from muster.long_work import run_in_request_thread

if TYPE_CHECKING:
    from muster.coordinator.kafka.connections.quota_enforcement import ChargedConnection, ConnectionCharges


# State shared by a listener's connections
# ----------------------------------------

REFUSAL_LOG_INTERVAL_S = 10.0
"""Of requests of one host that list too much, one in so many seconds is told."""

DEFAULT_UNREAD_BYTES = 256 << 20
"""The default of `kafka.max.unsent.bytes`."""

LARGE_READS_AT_ONCE = 4
"""Large read-only requests, of all connections of a listener, that are read and answered at the same time. What fifty
clients name at once, and what is found for it, would be more objects than a garbage collection, during which the
node stands still, looks through in a tenth of a second."""

log = structlog.get_logger("muster.kafka")

UNKNOWN_IDENTITY = Identity(ANONYMOUS, "nobody")
"""Whom a certificate names that is nobody's by the rules of the node."""


class UnreadHolder(Protocol):
    """A connection with answers that its client has not read."""

    def unread(self) -> int:
        """Their bytes, as they are at this moment."""

    @property
    def moved_at(self) -> float:
        """When its client last read some of them, or they were made; by the event loop's clock."""

    def cut(self, why: str) -> None:
        """End it."""


class ListenerState:
    """One per listener, on its event loop. `max_unread` bounds the answers of all connections together, in bytes."""

    def __init__(self, max_unread: int = DEFAULT_UNREAD_BYTES) -> None:
        self.leftovers = RefusedRequestMemory()
        self.large_reads = asyncio.Semaphore(LARGE_READS_AT_ONCE)
        self.identity_of: Callable[[Any, str], Identity | None] | None = None
        """By a handshake and an address, where connections begin with one."""
        self._max_unread = max_unread
        self._held: dict[UnreadHolder, int] = {}
        self._unread = 0
        self._excesses = LogThrottle(REFUSAL_LOG_INTERVAL_S)
        self.charges: ConnectionCharges | None = None
        """Set where quotas are kept."""

    def identify_peer(self, transport: asyncio.BaseTransport, host: str) -> Identity:
        """Who speaks on a connection that was just made; `UNKNOWN_IDENTITY` is not let in, which has been told."""
        if self.identity_of is None:
            return UNAUTHENTICATED
        return self.identity_of(transport.get_extra_info("ssl_object"), host) or UNKNOWN_IDENTITY

    @property
    def unread(self) -> int:
        """Bytes of answers that have not left, as far as is known."""
        return self._unread

    def note_unread(self, holder: UnreadHolder, size: int) -> None:
        """Take note of what a connection's client has not read. Above the limit, the one that stands longest is cut."""
        self._note(holder, size)
        if self._unread <= self._max_unread:
            return
        for each in tuple(self._held):
            self._note(each, each.unread())
        while self._unread > self._max_unread and self._held:
            slowest = min(self._held, key=lambda one: one.moved_at)
            left, together = self._held[slowest], self._unread
            self._note(slowest, 0)
            slowest.cut(
                f"it leaves {left} bytes of answers unread, all clients together {together}, "
                f"of which {self._max_unread} are kept (kafka.max.unsent.bytes)"
            )

    def record_refusal(self, host: str, why: str, size: int) -> None:
        """A request was refused for what it lists."""
        self.leftovers.refused(size)
        untold = self._excesses.count_suppressed(host, asyncio.get_running_loop().time())
        if untold is not None:
            log.info("request refused", peer=host, why=why, untold=untold)

    def _note(self, holder: UnreadHolder, size: int) -> None:
        before = self._held.get(holder, 0)
        self._unread += size - before
        if size:
            self._held[holder] = size
        elif before:
            del self._held[holder]


# Holding back a connection
# -------------------------


class ReadThrottle:
    """A part of `Connection`, which looks at `_payer` and `_held`."""

    __slots__ = ("_held", "_loop", "_payer", "_resting", "_shared", "_transport")

    _transport: asyncio.Transport
    _shared: ListenerState
    _payer: "ChargedConnection | None"
    """None: nothing is charged, nobody looks."""
    _held: bool
    _resting: bool
    _loop: asyncio.AbstractEventLoop

    def charge(self) -> None:
        """Look anew whether requests are charged for: quotas may be set, or gone."""
        charges = self._shared.charges
        if charges is None or self._held:
            return
        if self._payer is None or not charges.quotas.rates:
            self._payer = charges.payer(self)

    def hold(self, wait_s: float) -> None:
        """Read nothing for so long: connections come too fast."""
        self._resting = True
        self._throttle()
        self._loop.call_later(wait_s, self._rested)

    def hold_back(self) -> None:
        """Nothing more is read or begun until `release`."""
        self._held = True
        self._throttle()

    def release(self) -> None:
        self._held = False
        self.charge()
        self._resume_reading()

    def abort(self) -> None:
        self._transport.abort()

    def fileno(self) -> int:
        return int(self._transport.get_extra_info("socket").fileno())

    def _rest(self) -> None:
        """Others have their turn before more is read: by itself the loop would read on for megabytes."""
        if not self._resting:
            self._resting = True
            self._loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._throttle()

    def _throttle(self) -> None:
        raise NotImplementedError

    def _resume_reading(self) -> None:
        raise NotImplementedError


# Unread answers
# --------------


class UnreadAnswers(ReadThrottle):
    """A part of `Connection`, which says in `_made_bytes` how much is made and not given to the transport."""

    __slots__ = ("_made_bytes", "_moved_at", "_peer", "_unread")

    _peer: ClientPeer
    _made_bytes: int
    _unread: int
    _moved_at: float

    @property
    def moved_at(self) -> float:
        return self._moved_at

    def cut(self, why: str) -> None:
        """Close this connection, and nothing else."""
        raise NotImplementedError

    def unread(self) -> int:
        """Bytes of answers that have not left."""
        left = self._made_bytes + self._transport.get_write_buffer_size()
        if left < self._unread:
            self._moved_at = self._loop.time()
        self._unread = left
        return left

    def _weigh(self) -> None:
        """Tell how much is unread, if that has changed: of a client that reads it is nothing, before as after."""
        before = self._unread
        if self._peer.eof.done() or not (before or self._made_bytes or self._transport.get_write_buffer_size()):
            return
        if self.unread() != before:
            if not before:
                self._moved_at = self._loop.time()
            self._shared.note_unread(self, self._unread)


# Early refusal of large requests
# -------------------------------

INSPECTED_BYTES = 1 << 14
"""Bytes of a large frame that are looked at. They hold most requests' first lists, and no more than some 10,000 entries
are made of them."""


@dataclass(frozen=True, slots=True)
class EarlyRefusal:
    """A request of which nothing is kept."""

    form: ServedVersion
    correlation: int
    why: str


def refuse_early(dispatch: Dispatcher, frames: FrameBuffer) -> EarlyRefusal | None:
    """The refusal of the frame that is coming in, which is given up then. None: its first bytes do not decide.

    Each frame is looked at once.
    """
    part, size = frames.unfinished
    if frames.looked or len(part) < INSPECTED_BYTES or size <= LARGE_BYTES:
        return None
    frames.looked = True
    refused = early_refusal(dispatch, bytes(part[:INSPECTED_BYTES]), size)
    if refused is not None:
        frames.give_up()
    return refused


def early_refusal(dispatch: Dispatcher, begin: bytes, size: int) -> EarlyRefusal | None:
    """Of the frame of `size` bytes that begins so."""
    key, version, correlation = HEAD.unpack_from(begin)
    form = dispatch.form(key, version)
    if form is None:
        return None
    try:
        _, position = form.read_header(begin, 0)
        decoder_of(f"{form.api.name}Request", version)(begin, position, size)
    except RequestTooLong as excess:
        return EarlyRefusal(form, correlation, str(excess))
    except MalformedFrame:
        return None
    return None


# The connection
# --------------

MAX_BYTES_PER_TURN = 1 << 18
"""Of a request of which more than this is to come, in bytes, one piece is read in a turn."""

TURN = 64
"""Requests of one connection that are begun before others have their turn."""

MAX_REPEATED_REQUEST_BYTES = 1_024
"""Bytes of a request's header that are kept for comparison with the next ones, one for each form of request; and of a
heartbeat."""

LARGE = 1 << 15
"""Answers of this size are handed on as they are; smaller ones leave as one piece."""


def is_produce(frame: Frame | EarlyRefusal) -> bool:
    return not isinstance(frame, EarlyRefusal) and HEAD.unpack_from(frame)[0] == PRODUCE


class ServerConnection(UnreadAnswers, asyncio.Protocol):
    """Serves `dispatch` to one client. `on_open` may refuse it (False); `on_close` hears of all that were let in.

    `shared` is what it has in common with the other connections of its node.
    """

    # Of more than thirty attributes without slots CPython 3.11 finds each by a search, which heartbeats feel.
    __slots__ = ("_active_at", "_advance_due", "_asks", "_backlog", "_begun_s", "_bytes", "_callers", "_choked",
                 "_dispatch", "_draining", "_frames", "_gone", "_let_in", "_limits", "_metered", "_on_close",
                 "_on_open", "_parked", "_paused", "_same", "_slots", "fault")  # fmt: skip

    def __init__(
        self,
        dispatch: Dispatcher,
        limits: ConnectionLimits,
        on_open: "Callable[[ServerConnection], bool]",
        on_close: "Callable[[ServerConnection], None]",
        shared: ListenerState | None = None,
    ) -> None:
        self._shared = shared or ListenerState()
        self._payer = None
        self._held = False
        self._asks: RequestInspector | None = None
        self._dispatch = dispatch
        self._metered = dispatch.instruments is not None
        self._begun_s = 0.0
        self._limits = limits
        self._on_open = on_open
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._frames = FrameBuffer(limits.max_frame)
        self._backlog: deque[Frame | EarlyRefusal] = deque()
        self._slots: deque[RequestSlot] = deque()
        self._callers: dict[ServedVersion, DecodedHeader] = {}
        self._same: RepeatedRequest | None = None
        self._bytes = 0
        self._made_bytes = 0
        self._unread = 0
        self._moved_at = 0.0
        self._parked: RequestSlot | None = None
        self._choked = False
        self._paused = False
        self._resting = False
        self._advance_due = False
        self._draining = False
        self._gone = False
        self._let_in = False
        self._active_at = self._loop.time()
        self.fault = ""
        """Why the node cut this client off; empty if it did not."""

    @property
    def peer(self) -> ClientPeer:
        return self._peer

    @property
    def in_flight(self) -> int:
        """Requests taken in and not answered."""
        return len(self._slots) + len(self._backlog)

    @property
    def in_flight_bytes(self) -> int:
        """Their bytes, and those of a frame that has not come whole."""
        return self._bytes + len(self._frames.part)

    @property
    def choked(self) -> bool:
        """Whether the client leaves so much unread that none of its requests is begun."""
        return self._choked

    def cut(self, why: str) -> None:
        self._drop(why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._peer = ClientPeer(str(name[0]) if name else "", self._loop.create_future())
        self._peer.identity = self._shared.identify_peer(transport, self._peer.host)
        keep_alive(transport.get_extra_info("socket"))
        # Nothing is told after that: with more left than nothing, it would be counted as unread for good.
        self._transport.set_write_buffer_limits(high=self._limits.max_unsent_bytes, low=0)
        self._let_in = self._on_open(self)
        self.charge()
        if not self._let_in:
            (self._transport.pause_reading if self._held else self._transport.abort)()

    def data_received(self, data: bytes) -> None:
        if self._draining:
            return
        self._active_at = self._loop.time()
        try:
            if self._asks is not None:
                self._asks.heard(len(data))
            frames = self._frames.feed(data)
        except (MalformedFrame, HangUp) as error:
            self._drop(str(error))
            return
        for frame in frames:
            self._bytes += len(frame)
            self._backlog.append(frame)
        if self._frames.need or self._frames.unwanted:
            if (refused := self._foreseen()) is not None:
                self._backlog.append(refused)
            if self._frames.missing > MAX_BYTES_PER_TURN:
                self._rest()
        self._advance()

    def _foreseen(self) -> EarlyRefusal | None:
        return refuse_early(self._dispatch, self._frames)

    def eof_received(self) -> bool:
        """No client of Kafka closes one half only: it is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Requests under way are forgotten. What they did stands, and members stay until their session ends.

        Not so records: who wants no answer (acks=0) may hang up once they are sent, and they are appended, as in Kafka
        (KAFKA-3703). The connection counts as one until then.
        """
        self._draining = True
        self._backlog = deque(() if self.fault else filter(is_produce, self._backlog))
        self._keep_slots(lambda slot: not self.fault and slot.form.api.key == PRODUCE)
        if not self._peer.eof.done():
            self._peer.eof.set_result(None)
        if self._unread:
            self._unread = 0
            self._shared.note_unread(self, 0)
        self._gone, self._choked = True, False
        self._advance()

    def _keep_slots(self, wanted: Callable[[RequestSlot], bool]) -> None:
        """Those of them that go on; nobody reads an answer any more."""
        kept = deque[RequestSlot]()
        for slot in self._slots:
            if slot.task is not None and not slot.done and wanted(slot):
                kept.append(slot)
                continue
            if slot is self._parked:
                self._parked = None
            if slot.task is not None:
                slot.task.cancel()
        self._slots, self._made_bytes = kept, 0

    def _forget_if_done(self) -> None:
        """The client is gone; is everything of it?"""
        if self._let_in and not self._slots and not self._backlog:
            self._let_in = False
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

    def reap(self, now_s: float, late_s: float = 0.0) -> None:
        """Close the connection if nothing moved on it for too long: nothing is under way, or no answer is read.

        For `late_s` of that time nobody here could have heard it, which is not the client's fault.
        """
        self._active_at = min(now_s, self._active_at + late_s)
        resting = self._choked or not (self._slots or self._backlog or self._held)
        if resting and (now_s - self._active_at) * 1000 > self._limits.max_idle_ms:
            log.info("idle connection closed", peer=self._peer.host)
            self._transport.abort()

    def _advance(self) -> None:
        """Begin what may begin, send what may be sent, and read on or stop reading."""
        self._advance_due = False
        if self._metered:
            self._begun_s = perf_counter()
        begun = 0
        while self._backlog and begun < TURN and self._may_begin():
            begun += 1
            frame = self._backlog.popleft()
            self._begin_request(frame) if self._payer is None else self._payer.begin_request(
                self._begin_request, frame, self._slots
            )
        if self._slots and (self._slots[0].done or self._made_bytes):
            self._send()
        if self._draining:
            self._close_if_drained()
        if self._gone:
            self._forget_if_done()
        if self._backlog and self._may_begin():
            self._loop.call_soon(self._advance)  # other connections first
        if self._slots or self._backlog or self._paused or self._resting or self._held:
            self._throttle()

    def _may_begin(self) -> bool:
        room = not self._choked and self._made_bytes <= self._limits.max_unsent_bytes
        return room and bool(self._backlog) and self._parked is None and not self._held

    def _begin_request(self, frame: Frame | EarlyRefusal) -> None:
        try:
            if isinstance(frame, EarlyRefusal):
                slot = RequestSlot(0, frame.correlation, frame.form, self._begun_s)
                self._slots.append(slot)
                self._refuse(slot, frame.why)
            else:
                self._start(frame)
        except (MalformedFrame, HangUp) as error:
            self._drop(str(error))
        except Exception as error:
            log.error("request failed", peer=self._peer.host, exc_info=error)
            self._drop("its request could not be answered")

    def _start(self, frame: Frame) -> None:
        if self._asks is not None and self._asks.takes(frame):
            return
        key, version, correlation = HEAD.unpack_from(frame)
        same = self._same
        if same is not None and len(frame) == same.size and frame.endswith(same.said) and frame.startswith(same.kind):
            slot = RequestSlot(same.size, correlation, same.form, self._begun_s)
            self._slots.append(slot)
            self._answer(slot, same.caller, same.request)
            return
        form = self._dispatch.forms.get((key, version)) or self._dispatch.form(key, version)
        if form is None:
            self._unsupported(key, version, correlation, len(frame))
            return
        caller = self._callers.get(form)
        if caller is None or not frame.startswith(caller.header, HEAD.size):
            caller = self._meet(form, frame)
        # Kafka passes over what lies behind a request. librdkafka leaves bytes there when it asks for all topics.
        slot = RequestSlot(len(frame), correlation, form, self._begun_s)
        if len(frame) > LARGE_BYTES and not caller.brief(frame, HEAD.size + len(caller.header)):
            self._slots.append(slot)
            self._parked = slot
            start = self._start_large_read if form.api.name in READ_ONLY_APIS else self._start_large
            slot.task = self._loop.create_task(start(slot, caller, frame))
            return
        try:
            request, _ = caller.read(frame, HEAD.size + len(caller.header))
        except RequestTooLong as excess:
            self._slots.append(slot)
            self._refuse(slot, str(excess))
            return
        if key == HEARTBEAT and len(frame) <= MAX_REPEATED_REQUEST_BYTES:
            self._same = RepeatedRequest(frame, form, caller, request)
        self._slots.append(slot)
        self._answer(slot, caller, request)

    async def _start_large_read(self, slot: RequestSlot, caller: DecodedHeader, frame: Frame) -> None:
        """A large read-only request waits for its place, and has it until its answer is in bytes."""
        async with self._shared.large_reads:
            await self._start_large(slot, caller, frame)
            if isinstance(slot.task, asyncio.Task) and slot.task is not asyncio.current_task():
                await asyncio.wait([slot.task])

    async def _start_large(self, slot: RequestSlot, caller: DecodedHeader, frame: Frame) -> None:
        """A request that may list much is read in a thread; those behind it wait."""
        try:
            begin = HEAD.size + len(caller.header)
            request, _ = await run_in_request_thread(partial(caller.read, frame, begin))
            self._parked = None
            self._answer(slot, caller, request)
        except RequestTooLong as excess:
            self._parked = None
            try:
                self._refuse(slot, str(excess))
            except HangUp as error:
                self._drop(str(error))
        except MalformedFrame as error:
            self._drop(str(error))
        except Exception as error:
            self._failed(slot, error)
        self._resume_reading()

    def _answer(self, slot: RequestSlot, caller: DecodedHeader, request: Any) -> None:
        """At once, later, or by a task of its own."""
        form = slot.form
        if self._payer is not None:
            self._payer.asked(slot, caller.call, request)
        if form.immediate is not None:
            response = form.immediate(request, caller.call)
            if isinstance(response, DeferredAnswer):
                slot.task = response
                if form.api.parks:
                    self._parked = slot
                response.then(partial(self._came, slot, response))
                return
            if response is not None or form.handler is None:
                self._fill(slot, response)
                return
        assert form.handler is not None, f"{form.api.name} is answered neither now nor later"
        if form.api.parks or form.api.parks_long:
            self._parked = slot
        slot.task = self._loop.create_task(self._serve(slot, form.handler, request, caller.call))

    def _refuse(self, slot: RequestSlot, why: str) -> None:
        """Say so in the answer if it has a place for that."""
        response = slot.form.refusal(why)
        if response is None:
            raise HangUp(why)
        self._shared.record_refusal(self._peer.host, why, slot.size)
        self._fill(slot, response)

    def _meet(self, form: ServedVersion, frame: Frame) -> "DecodedHeader":
        """Read a request's header. The next ones mostly say the same, whatever their correlation id."""
        header, end = form.read_header(frame, 0)
        call = KafkaCall(form.version, header.client_id, self._peer)
        caller = DecodedHeader(bytes(frame[HEAD.size : end]), call, form.reader())
        if len(caller.header) <= MAX_REPEATED_REQUEST_BYTES:
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
        slot = RequestSlot(size, correlation, form, self._begun_s)
        self._slots.append(slot)
        served = version_ranges(self._dispatch.apis)
        self._fill(slot, struct("ApiVersionsResponse")(error_code=UNSUPPORTED_VERSION, api_keys=served))

    async def _serve(self, slot: RequestSlot, handler: Callable[..., Awaitable[Any]], *asked: Any) -> None:
        try:
            answering = handler(*asked)
            self._fill(slot, await (answering if self._payer is None else self._payer.timed(slot, answering)))
        except Exception as error:
            self._failed(slot, error)
            return
        self._resume_reading(slot)

    def _came(self, slot: RequestSlot, later: DeferredAnswer) -> None:
        if self._payer is not None:
            self._payer.enter()
        try:
            self._fill(slot, later.respond())
        except Exception as error:
            self._failed(slot, error)
            return
        self._resume_reading(slot)

    def _resume_reading(self, answered: RequestSlot | None = None) -> None:
        """Go on, with this request answered. What one flush or one plan answers on this connection leaves together."""
        if answered is self._parked:
            self._parked = None
        self._active_at = self._loop.time()
        if not self._advance_due:
            self._advance_due = True
            self._loop.call_soon(self._advance)

    def _failed(self, slot: RequestSlot, error: Exception) -> None:
        if isinstance(error, HangUp):
            self._drop(str(error))
            return
        log.error("handler failed", api=slot.form.api.name, peer=self._peer.host, exc_info=error)
        self._drop("its request could not be answered")

    def _fill(self, slot: RequestSlot, response: Any) -> None:
        """The answer's bytes, with header."""
        slot.done = True
        if response is None:
            body = []
        elif isinstance(response, EncodedAnswer):
            body = response.body
        else:
            body = slot.form.write(response)
            if self._metered and slot.form.coded:
                slot.code = response.error_code
        if self._payer is not None:
            body = self._payer.charged(slot, body)
        if response is None:
            return
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
        now_s = perf_counter() if self._metered else 0.0
        while self._slots and self._slots[0].done:
            slot = self._slots.popleft()
            self._bytes -= slot.size
            out += slot.answer
            meter = slot.form.meter
            if meter is not None:
                meter.answered(now_s - slot.began_s, slot.code)
        self._made_bytes -= sum(map(len, out))
        if out and not self._transport.is_closing():
            if max(map(len, out)) < LARGE:
                self._transport.write(b"".join(out))
            else:
                self._transport.writelines(out)
        if out or self._made_bytes:
            self._weigh()

    def _throttle(self) -> None:
        """Read on only while there is room; with an unfinished frame there always is, or it could never be finished."""
        stop, taken = self._resting or self._held, len(self._slots) + len(self._backlog)
        if taken and not stop:
            full = (
                taken >= self._limits.max_in_flight
                or self._bytes + len(self._frames.part) > self._limits.max_in_flight_bytes
            )
            stop = full or self._choked
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
        if self._gone:
            self._keep_slots(lambda slot: False)
            self._forget_if_done()
        self._transport.abort()
