"""Session streams that members of one process share: one for each node, and for each identity that they show.

To a member its `StreamPlace` looks like a stream of its own. The connection is that of the client that came first; when
that client is closed before the others, the stream keeps the connection until the last of them has gone. Everything
belongs to one event loop: members that run on different loops share nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Hashable
from typing import Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import grpc

from muster.client.calls.methods import SESSION, SHARED_SESSION
from muster.client.calls.transport import Transport, is_refusal, now_ms
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

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
        self._seats: dict[int, StreamPlace] = {}
        self._last_number = -1
        self._closing = False
        self._unwritten: deque[pb.MemberRequest] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._inherited: grpc.aio.Channel | None = None
        self.opened_ms = now_ms()
        self._reading = asyncio.create_task(self._read())

    @property
    def takes(self) -> bool:
        """Whether there is room for one member more."""
        return not self._closing and len(self._seats) < self._most

    def enter(self) -> "StreamPlace":
        self._last_number += 1
        seat = self._seats[self._last_number] = StreamPlace(self, self._last_number)
        return seat

    def inherit(self, channel: grpc.aio.Channel) -> bool:
        """Whether it takes the connection over from a client that has no use for it any more."""
        if self._reading.done() or not self._seats:
            return False
        self._inherited = channel
        return True

    def say(self, word: pb.MemberRequest) -> None:
        """With whatever else is said in this turn of the loop."""
        self._unwritten.append(word)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    def leave(self, seat: "StreamPlace") -> None:
        """In good order: the node says that it has heard it, and ends the stream after the last one."""
        self._closing |= len(self._seats) == 1
        self.say(pb.MemberRequest(member=seat.number, leaves=pb.MemberLeaves()))

    def distrust(self) -> None:
        """Somebody was not answered on it: nobody else comes on it."""
        self._closing = True

    def break_off(self, seat: "StreamPlace") -> None:
        """The member has given its session up; with the last one the stream goes."""
        del self._seats[seat.number]
        if self._seats:
            self.say(pb.MemberRequest(member=seat.number, leaves=pb.MemberLeaves(broken=True)))
        else:
            self._closing = True
            self._call.cancel()

    async def _write(self) -> None:
        try:
            while self._unwritten:
                await self._call.write(self._frame())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            self._unwritten.clear()  # Who reads hears of the end, and tells everybody.
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
                log.warning("a session stream of %d members was refused: %s", len(self._seats), error.details())
            self._streams.ended(self._key, self, refused=refused)
            for seat in self._seats.values():
                seat.refused = refused
                seat.end(error)
            self._seats = {}
            if self._inherited is not None:
                await self._inherited.close()

    def _hear(self, heard: pb.MemberResponse) -> None:
        seat = self._seats.get(heard.member)
        if seat is None:
            return  # It was broken off, and this crossed it.
        if heard.WhichOneof("heard") == "response":
            seat.hear(heard.response)
            return
        del self._seats[heard.member]
        status = STATUSES.get(heard.ended.status, grpc.StatusCode.UNKNOWN)
        seat.end(None if status is grpc.StatusCode.OK else build_rpc_error(status, heard.ended.message))


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
