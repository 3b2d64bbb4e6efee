"""Heartbeats on a Session stream, on which the coordinator can notify members without being asked.

The stream is optional: while it is not open the member heartbeats by calls, and a node that does not offer streams is
polled for good. Members of one process share one stream for each node and identity. The connection is that of the
client that came first; when that client is closed, the stream keeps the connection until its last member has left.
Members on different event loops share nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import grpc

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.methods import SESSION, SHARED_SESSION
from muster.client.calls.transport import Transport, is_refusal, now_ms
from muster.client.errors import ClientError, TransportRefused, Unreachable
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_member import ConsumerMemberMachine
from muster.client.members.coordinator_link import Backoff
from muster.client.members.member_types import MemberSettings, MembershipState
from muster.client.membership.member_calls import ConsumerCalls, read_cause
from muster.client.twins import BackgroundTasks
from muster.coordinator.core.model.types import HEARTBEATS_IN_SESSION, Cause
from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

# Streams shared by the members of a process
# ------------------------------------------

FORGET_S: Final = 300.0
"""How long a node that has refused a shared stream is not asked for one again: it does not know them, and may be
replaced by a newer one, or one of the members said or was to hear what the other side takes from nobody."""
MOST_IN_FRAME: Final = 256
MOST_FRAME_BYTES: Final = 1 << 20
"""What members say at the same moment goes as one frame, up to this; a larger message goes alone."""

STATUSES: Final = {code.value[0]: code for code in grpc.StatusCode}
IDENTITY_REFUSALS: Final = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})
"""About the identity that all on a stream show, and so the same on streams of their own."""

log = logging.getLogger("muster.client")

SharedCall: TypeAlias = "grpc.aio.StreamStreamCall[pb.SharedSessionRequest, pb.SharedSessionResponse]"


class SessionCall(Protocol):
    """A member's stream, shared or its own. Iterated, it raises AioRpcError where it ends with an error."""

    def __aiter__(self) -> AsyncIterator[pb.SessionResponse]: ...

    async def write(self, request: pb.SessionRequest) -> None:
        """Raises InvalidStateError when it has ended."""

    async def done_writing(self) -> None:
        """End it in good order: the other side ends it then."""

    def cancel(self) -> bool:
        """Break it off."""

    def done(self) -> bool: ...


class SharedStreams:
    """The shared streams of one event loop."""

    def __init__(self) -> None:
        self._open: dict[Hashable, SharedSessionStream] = {}
        self._without: dict[Hashable, float] = {}

    def line(self, transport: Transport, address: str, members: int) -> SessionCall:
        """A stream for one member. `members`: how many one stream may carry, as the node has told; 0: its own only."""
        key = (address, transport.config.security, transport.config.receive_message_max_bytes)
        now_s = asyncio.get_running_loop().time()
        if members < 1 or self._without.get(key, now_s) > now_s:
            return transport.converse(SESSION, address)
        self._without.pop(key, None)
        stream = self._open.get(key)
        if stream is None or not stream.takes:
            call: SharedCall = transport.converse(SHARED_SESSION, address)
            stream = self._open[key] = SharedSessionStream(call, members, self, key)
            transport.lend(address, stream.inherit)
        return stream.enter()

    def ended(self, key: Hashable, stream: "SharedSessionStream", *, refused: bool) -> None:
        """`refused`: as a whole, so that nobody knows whom of its members that was about."""
        if self._open.get(key) is stream:
            del self._open[key]
        if refused:
            self._without[key] = asyncio.get_running_loop().time() + FORGET_S


STREAMS: "WeakKeyDictionary[asyncio.AbstractEventLoop, SharedStreams]" = WeakKeyDictionary()


def shared_streams() -> SharedStreams:
    """Those of the running loop."""
    return STREAMS.setdefault(asyncio.get_running_loop(), SharedStreams())


class SharedSessionStream:
    """One stream to one node."""

    def __init__(self, call: SharedCall, most: int, streams: SharedStreams, key: Hashable) -> None:
        self._call = call
        self._most = most
        self._streams = streams
        self._key = key
        self._places: dict[int, StreamPlace] = {}
        self._last_number = -1
        self._closing = False
        self._unwritten: deque[pb.MemberRequest] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._inherited: grpc.aio.Channel | None = None
        self.opened_ms = now_ms()
        self._background = BackgroundTasks()
        self._reading = self._background.start(self._read())

    @property
    def takes(self) -> bool:
        """Whether there is room for one member more."""
        return not self._closing and len(self._places) < self._most

    def enter(self) -> "StreamPlace":
        self._last_number += 1
        place = self._places[self._last_number] = StreamPlace(self, self._last_number)
        return place

    def inherit(self, channel: grpc.aio.Channel) -> bool:
        """Whether it takes the connection over from a client that has no use for it any more."""
        if self._reading.done() or not self._places:
            return False
        self._inherited = channel
        return True

    def say(self, word: pb.MemberRequest) -> None:
        """With whatever else is said in this turn of the loop."""
        self._unwritten.append(word)
        if self._writing is None:
            self._writing = self._background.start(self._write())

    def leave(self, place: "StreamPlace") -> None:
        """In good order: the node says that it has heard it, and ends the stream after the last one."""
        self._closing |= len(self._places) == 1
        self.say(pb.MemberRequest(member=place.number, leaves=pb.MemberLeaves()))

    def distrust(self) -> None:
        """Somebody was not answered on it: nobody else comes on it."""
        self._closing = True

    def break_off(self, place: "StreamPlace") -> None:
        """The member has given its session up; with the last one the stream goes."""
        del self._places[place.number]
        if self._places:
            self.say(pb.MemberRequest(member=place.number, leaves=pb.MemberLeaves(broken=True)))
        else:
            self._closing = True
            self._call.cancel()

    async def _write(self) -> None:
        try:
            while self._unwritten:
                await self._call.write(self._frame())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            self._unwritten.clear()  # Who reads hears of the end, and tells everybody.
        except Exception:
            self._unwritten.clear()
            self._call.cancel()
            raise
        finally:
            self._writing = None

    def _frame(self) -> pb.SharedSessionRequest:
        frame, size = pb.SharedSessionRequest(), 0
        while self._unwritten and len(frame.requests) < MOST_IN_FRAME:
            size += self._unwritten[0].ByteSize()
            if frame.requests and size > MOST_FRAME_BYTES:
                break
            frame.requests.append(self._unwritten.popleft())
        return frame

    async def _read(self) -> None:
        error: grpc.aio.AioRpcError | None = None
        try:
            async for frame in self._call:
                for heard in frame.responses:
                    self._hear(heard)
        except grpc.aio.AioRpcError as failed:
            error = failed
        except (asyncio.CancelledError, asyncio.InvalidStateError):
            error = build_rpc_error(grpc.StatusCode.CANCELLED, "the stream was broken off")
        finally:
            self._closing = True
            refused = error is not None and is_stream_refused(error)
            if refused and error is not None and error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                log.warning("a session stream of %d members was refused: %s", len(self._places), error.details())
            self._streams.ended(self._key, self, refused=refused)
            for place in self._places.values():
                place.refused = refused
                place.end(error)
            self._places = {}
            if self._inherited is not None:
                await self._inherited.close()

    def _hear(self, heard: pb.MemberResponse) -> None:
        place = self._places.get(heard.member)
        if place is None:
            return  # It was broken off, and this crossed it.
        if heard.WhichOneof("heard") == "response":
            place.hear(heard.response)
            return
        del self._places[heard.member]
        status = STATUSES.get(heard.ended.status, grpc.StatusCode.UNKNOWN)
        place.end(None if status is grpc.StatusCode.OK else build_rpc_error(status, heard.ended.message))


class StreamPlace:
    """One member's place on a shared stream: a `SessionCall`."""

    def __init__(self, stream: SharedSessionStream, number: int) -> None:
        self.number = number
        self.refused = False
        """With all others: on a stream of its own it hears whether that is about itself."""
        self._stream = stream
        self._ended = False
        self._error: grpc.aio.AioRpcError | None = None
        self._unread: deque[pb.SessionResponse] = deque()
        self._news = asyncio.Event()

    @property
    def in_step_ms(self) -> int:
        """When heartbeats of an interval's length are to fall, so that those of all members go as one frame."""
        return self._stream.opened_ms

    async def __aiter__(self) -> AsyncIterator[pb.SessionResponse]:
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._ended:
                break
            self._news.clear()
            await self._news.wait()
        if self._error is not None:
            raise self._error

    async def write(self, request: pb.SessionRequest) -> None:
        if self._ended:
            raise asyncio.InvalidStateError("the session has ended")
        self._stream.say(pb.MemberRequest(member=self.number, request=request))

    async def done_writing(self) -> None:
        if not self._ended:
            self._stream.leave(self)

    def cancel(self) -> bool:
        if self._ended:
            return False
        self._stream.break_off(self)
        self.end(build_rpc_error(grpc.StatusCode.CANCELLED, "the member broke its session off"))
        return True

    def distrust(self) -> None:
        self._stream.distrust()

    def done(self) -> bool:
        return self._ended

    def hear(self, response: pb.SessionResponse) -> None:
        """Whoever reads takes it in the next turn of the loop, so what waits here is what came in one."""
        self._unread.append(response)
        self._news.set()

    def end(self, error: grpc.aio.AioRpcError | None) -> None:
        self._ended = True
        self._error = error
        self._news.set()


def build_rpc_error(status: grpc.StatusCode, why: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), why)


def is_stream_refused(error: grpc.aio.AioRpcError) -> bool:
    """Whether a stream was refused as a whole, or may have been: with INTERNAL gRPC also tells of a frame that it finds
    too large to be sent."""
    refused = is_refusal(error) or error.code() is grpc.StatusCode.INTERNAL
    return refused and error.code() not in IDENTITY_REFUSALS


# One member's session
# --------------------

MAX_BACKOFF_MS = 10_000
"""Between attempts to open the stream: meanwhile the member polls, so there is no hurry."""
LAST_WORDS_S = 1.0
"""How long a stream that is closed in good order may take to end."""


class NotShared(Exception):
    """The node knows streams of one member only, or takes what is on one from none of its members."""


class SessionStream:
    """Keeps one stream open for the member it follows.

    `opened` is called when heartbeats can go up, with the milliseconds between two of them (0: nothing is said of it),
    and the moment that others on the stream keep step with (None: the stream is the member's own);
    `lost` when they have to go by calls again; `heard` gets what was pushed. Lives on one loop.
    """

    def __init__(
        self,
        transport: Transport,
        calls: GroupCalls,
        settings: MemberSettings,
        *,
        opened: Callable[[int, int | None], None],
        lost: Callable[[], None],
        heard: Callable[[pb.SessionResponse], None],
        background: BackgroundTasks,
    ) -> None:
        self._background = background
        self._transport = transport
        self._calls = calls
        self._settings = settings
        self._opened = opened
        self._lost = lost
        self._heard = heard
        self._member_id = ""
        self._task: asyncio.Task[None] | None = None
        self._call: SessionCall | None = None
        self._writing = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[pb.SessionResponse]] = {}
        self._last_number = 0
        self._acknowledged = 0
        self._offered = True
        self._backoff = Backoff(settings.retry_backoff_ms, MAX_BACKOFF_MS)

    @property
    def is_open(self) -> bool:
        return self._call is not None

    def follow(self, member_id: str) -> None:
        """Keep a stream open for this member; empty closes the one there is, in good order."""
        if member_id == self._member_id:
            return
        self._member_id = member_id
        before, self._task = self._task, None
        if before is not None or (member_id and self._offered):
            self._task = self._background.start(self._change(before, member_id))

    async def send_heartbeat(self, request: pb.SessionRequest, timeout_ms: int) -> pb.SessionResponse:
        """Send a heartbeat up the open stream and return its answer. Raises Unreachable when the stream breaks."""
        self._last_number += 1
        number = self._last_number
        future: asyncio.Future[pb.SessionResponse] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        request.request_number = number
        try:
            await self.say(request)
            return await asyncio.wait_for(future, timeout_ms / 1000)
        except TimeoutError:
            self._break_off()
            raise self._broken(timeout_ms) from None
        finally:
            self._waiting.pop(number, None)

    async def say(self, request: pb.SessionRequest) -> None:
        """Send without waiting for an answer. Raises Unreachable when there is no stream."""
        request.acknowledged = self._acknowledged
        async with self._writing:
            if self._call is None:
                raise self._broken(0)
            try:
                await self._call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                raise self._broken(0) from None

    async def close(self) -> None:
        """Close the stream in good order."""
        self.follow("")
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _change(self, before: asyncio.Task[None] | None, member_id: str) -> None:
        if before is not None:
            await self._finish(before)
        if member_id and self._offered:
            await self._keep_open(member_id)

    async def _finish(self, task: asyncio.Task[None]) -> None:
        """To break the stream off would look like a crash, so the other side is asked to end it."""
        call = self._call
        if call is not None and not call.done():
            try:
                await call.done_writing()
                await asyncio.wait([task], timeout=LAST_WORDS_S)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                log.debug("the session of %r was broken already", self._settings.group_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _keep_open(self, member_id: str) -> None:
        while self._member_id == member_id:
            try:
                await self._converse(member_id)
            except NotShared:
                continue
            except TransportRefused as error:
                # An older node, or a limit of rights: the member polls and is none the worse for it.
                log.info("%s; heartbeats go by calls", error)
                self._offered = False
                return
            except ClientError as error:
                log.info("%s; heartbeats go by calls meanwhile", error)
            if self._member_id != member_id:
                return
            await asyncio.sleep(self._backoff.next_ms() / 1000)

    async def _converse(self, member_id: str) -> None:
        """One stream, from hello to its end."""
        address = await self._calls.coordinator()
        call = shared_streams().line(self._transport, address, self._calls.members_per_stream)
        hello = pb.SessionHello(
            group_id=self._settings.group_id,
            member_id=member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        try:
            await call.write(pb.SessionRequest(hello=hello))
            async for response in call:
                self._handle_response(response, call)
        except grpc.aio.AioRpcError as error:
            if isinstance(call, StreamPlace) and call.refused:
                raise NotShared from None
            raise self._transport.translated(error, address, f"session of {self._settings.group_id!r}", 0) from None
        except asyncio.InvalidStateError:
            raise Unreachable(address, 0, f"session of {self._settings.group_id!r}") from None
        except asyncio.CancelledError:
            # So gRPC tells of a call that was broken off as well; this task ends only if it is cancelled itself.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Unreachable(address, 0, f"session of {self._settings.group_id!r}") from None
        finally:
            if self._call is call:
                self._over()
            if not call.done():
                call.cancel()

    def _break_off(self) -> None:
        """An answer is missing: whatever carries the stream may be dead, and nobody else is to come on it."""
        if isinstance(self._call, StreamPlace):
            self._call.distrust()
        if self._call is not None:
            self._call.cancel()

    def _handle_response(self, response: pb.SessionResponse, call: SessionCall) -> None:
        self._acknowledged = response.sequence_number
        if response.HasField("welcome"):
            self._backoff.reset()
            self._call = call
            self._opened(
                response.welcome.heartbeat_interval_ms, call.in_step_ms if isinstance(call, StreamPlace) else None
            )
        elif not response.request_number:
            self._heard(response)
        elif (future := self._waiting.get(response.request_number)) is not None and not future.done():
            future.set_result(response)

    def _over(self) -> None:
        """Whoever waits for an answer asks again by a call."""
        self._call = None
        self._acknowledged = 0
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._broken(0))
        self._lost()

    def _broken(self, waited_ms: int) -> Unreachable:
        return Unreachable(self._transport.bootstrap, waited_ms, f"session of group {self._settings.group_id!r}")


# Between the stream and the machine
# ----------------------------------


class ProtocolMachine(Protocol):
    """What the driver and its owner know of a member, whichever protocol it speaks."""

    state: MembershipState
    member_id: str
    generation: int
    is_leader: bool
    owned: set[tuple[str, int]]

    @property
    def awaited_release(self) -> int | None: ...

    def step(self, event: Any, now_ms: int) -> list[act.Action]: ...


class SessionHeartbeats:
    """Opens the stream once the member has joined, and turns what comes down into the machine's events."""

    def __init__(
        self,
        transport: Transport,
        calls: GroupCalls,
        settings: MemberSettings,
        consumer: ConsumerCalls,
        machine: ProtocolMachine,
        send: Callable[[ev.ClassicEvent | ev.ConsumerEvent], None],
        crashed: Callable[[Exception], None],
    ) -> None:
        """crashed: hears of a mistake of the program that has ended the stream."""
        self._settings = settings
        self._background = BackgroundTasks(crashed)
        self._consumer = consumer
        self._machine = machine
        self._send = send
        # A stream that has died without a word is found out in time to be heard of by a call.
        self._timeout_ms = min(
            transport.config.request_timeout_ms, settings.session_timeout_ms // HEARTBEATS_IN_SESSION
        )
        self._leaders = transport.leaders
        self._session = SessionStream(
            transport,
            calls,
            settings,
            opened=self._opened,
            lost=self._lost,
            heard=self._heard,
            background=self._background,
        )
        self._generation = -1
        self._saying: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._session.is_open

    def follow_member(self) -> None:
        """After every step of the machine: whom to follow, and under which generation to listen."""
        machine = self._machine
        self._session.follow(machine.member_id if machine.generation >= 0 else "")
        if self.is_open and machine.generation != self._generation and not isinstance(machine, ConsumerMemberMachine):
            self._listen()

    async def heartbeat(
        self, action: act.SendHeartbeat | act.SendConsumerHeartbeat
    ) -> ev.ClassicHeartbeatAnswered | ev.ConsumerHeartbeatAnswered:
        """By the open stream. Raises Unreachable when it breaks."""
        if isinstance(action, act.SendConsumerHeartbeat):
            request = pb.SessionRequest(consumer_group_heartbeat=self._consumer.request(action))
            answer = await self._session.send_heartbeat(request, self._patience_ms)
            return self._consumer.answered(action.token, answer.consumer_group_heartbeat)
        request = pb.SessionRequest(heartbeat=self._alive(action.generation))
        answer = await self._session.send_heartbeat(request, self._patience_ms)
        said = answer.heartbeat
        return ev.ClassicHeartbeatAnswered(
            action.token, error_code_of(said.error_code), said.error_message, read_cause(said.cause), said.cause_detail
        )

    @property
    def _patience_ms(self) -> int:
        settings = self._settings
        by_call_ms = self._leaders.heartbeat_ms(settings.session_timeout_ms, settings.heartbeat_interval_ms)
        return min(self._timeout_ms, by_call_ms)

    async def close(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            await asyncio.gather(self._saying, return_exceptions=True)
        await self._session.close()

    def _alive(self, generation: int) -> pb.HeartbeatRequest:
        """Who it is has been said at the beginning."""
        return pb.HeartbeatRequest(generation_id=generation)

    def _opened(self, heartbeat_interval_ms: int, in_step_ms: int | None) -> None:
        self._send(ev.SessionOpened(heartbeat_interval_ms, in_step_ms))
        if not isinstance(self._machine, ConsumerMemberMachine) and self._machine.generation >= 0:
            self._listen()

    def _lost(self) -> None:
        self._send(ev.SessionLost())
        if self._leaders.shared and self._machine.generation >= 0:
            # Who broke it off may be dead, and somebody else the coordinator: that is found out at once.
            self._report_failure(ErrorCode.NOT_COORDINATOR, "the stream broke", self._machine.generation)

    def _listen(self) -> None:
        """A heartbeat that wants no answer: from here on the coordinator speaks first."""
        self._generation = self._machine.generation
        if self._saying is not None:
            self._saying.cancel()
        self._saying = self._background.start(self._say(self._generation))

    async def _say(self, generation: int) -> None:
        try:
            await self._session.say(pb.SessionRequest(heartbeat=self._alive(generation)))
        except Unreachable as error:
            log.debug("%s", error)  # the next stream begins with the same

    def _heard(self, response: pb.SessionResponse) -> None:
        match response.WhichOneof("event"):
            case "consumer_group_heartbeat":
                self._send(ev.ConsumerHeartbeatPushed(self._consumer.answered(0, response.consumer_group_heartbeat)))
            case "rebalance":
                word = response.rebalance
                code = error_code_of(word.error_code)
                self._report_failure(
                    code, word.error_message, word.generation_id, read_cause(word.cause), word.cause_detail
                )
            case "fenced":
                lost = response.fenced
                self._report_failure(error_code_of(lost.error_code), lost.error_message, lost.generation_id)
            case "drain":
                self._report_failure(ErrorCode.NOT_COORDINATOR, response.drain.reason, self._machine.generation)
            case other:
                log.debug("the session of %r brought %s, which this client does not know", self._settings, other)

    def _report_failure(
        self, code: ErrorCode, message: str, generation: int, cause: Cause = Cause.UNSPECIFIED, detail: str = ""
    ) -> None:
        if isinstance(self._machine, ConsumerMemberMachine):
            self._send(ev.ConsumerHeartbeatPushed(ev.ConsumerHeartbeatAnswered(0, code, message)))
        else:
            self._send(ev.HeartbeatPushed(code, message, generation, cause, detail))
