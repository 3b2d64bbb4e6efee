"""Many members on one stream (SharedSession): each has a session of its own, and no member knows of the others.

The handler that serves a member's own stream, with all the middleware before it, serves each of these members too; to
it a `SharedStreamCall` is a call. So a member's rights, limits and end are what they are on a stream of its own, and
nothing is decided here. The end of the stream is the end of every member on it; an error in one member's session is
reported under its number, and the others go on.

A client that does not read is not read either, as on any stream: its unwritten frames and bytes are bounded.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final
from uuid import uuid4

import structlog

from muster.coordinator.edge import request_limits
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.errors import (
    CallDenied,
    NodeShuttingDown,
    NotAuthenticated,
    Overloaded,
    SubjectNotFound,
    TemporarilyUnknown,
)
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import Identity
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services.member_session import HELLO_MS, MOST_SILENT

Serve = Callable[[AsyncIterator[pb.SessionRequest], RpcCall], Any]
"""Serves one member's stream."""

MEMBERS_PER_STREAM: Final = 256
"""As many as a connection has calls by default (`grpc.max.streams.per.connection`)."""
MOST_UNHEARD: Final = 16
"""Messages of one member that may wait for its shard; a member has one or two on the way."""
MOST_AT_ONCE: Final = 1_000
"""Messages in one frame of the client."""
MOST_UNWRITTEN: Final = 512
MOST_UNWRITTEN_BYTES: Final = 1 << 20
"""Of what all members of a stream are to hear; a frame has no more, unless one message alone is larger."""

FIRST_WORDS: Final = ("hello", "register_consumer")

STATUSES: Final[Mapping[type[Exception], int]] = {
    MalformedGroupRequest: 3,
    SubjectNotFound: 5,
    CallDenied: 7,
    Overloaded: 8,
    NodeShuttingDown: 14,
    TemporarilyUnknown: 14,
    NotAuthenticated: 16,
}
"""The numbers of gRPC's statuses, as a stream of its own would end."""
INTERNAL: Final = 13

log = structlog.get_logger("muster.grpc")


class SharedSessionHandler:
    """The handler of SharedSession over `serve`, which serves one member."""

    def __init__(self, serve: Serve, *, hello_ms: int = HELLO_MS, most_silent: int = MOST_SILENT) -> None:
        self.serve = serve
        self._hello_ms = hello_ms
        self._most_silent = most_silent
        self._silent = 0

    def over(self, serve: Serve) -> "SharedSessionHandler":
        """The same, where something stands before each member's stream."""
        return SharedSessionHandler(serve, hello_ms=self._hello_ms, most_silent=self._most_silent)

    def __call__(
        self, requests: AsyncIterator[pb.SharedSessionRequest], call: RpcCall
    ) -> AsyncGenerator[pb.SharedSessionResponse, None]:
        return SharedMemberStream(self.serve, call).responses(self._greeted(requests))

    async def _greeted(
        self, requests: AsyncIterator[pb.SharedSessionRequest]
    ) -> AsyncIterator[pb.SharedSessionRequest]:
        """The requests, from the first that has a member's word on. Raises MalformedRequest when that does not come,
        Overloaded where many wait for theirs."""
        if self._silent >= self._most_silent:
            raise Overloaded(f"{self._silent} shared sessions are open on which nobody spoke; try again shortly")
        self._silent += 1
        try:
            async with asyncio.timeout(self._hello_ms / 1000):
                first = await anext(requests, None)
                while first is not None and not first.requests:
                    first = await anext(requests, None)
        except TimeoutError:
            raise MalformedGroupRequest(
                f"no member came within {self._hello_ms} ms; send a member's hello first on a shared session"
            ) from None
        finally:
            self._silent -= 1
        if first is None:
            return
        yield first
        async for request in requests:
            yield request


class SharedStreamCall:
    """One member's place on the stream: the call of which its session knows."""

    def __init__(self, number: int, call: RpcCall) -> None:
        self.number = number
        self.failure: Exception | None = None
        """Why it is ended from outside."""
        self.task: asyncio.Task[None] | None = None
        self._call = call
        self._broken = False
        self._ended = False
        self._unheard: deque[pb.SessionRequest] = deque()
        self._waiting: asyncio.Future[None] | None = None

    @property
    def peer_host(self) -> str:
        return self._call.peer_host

    @property
    def client_software(self) -> str:
        return self._call.client_software

    @property
    def identity(self) -> Identity:
        return self._call.identity

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._call.metadata

    def cancelled(self) -> bool:
        return self._broken or self._call.cancelled()

    def enqueue_request(self, request: pb.SessionRequest) -> None:
        """What the member says. Too much at once ends its session."""
        if self._ended:
            return
        if len(self._unheard) >= MOST_UNHEARD:
            self.fail(Overloaded(f"{MOST_UNHEARD} messages of this member wait to be heard; send heartbeats by calls"))
            return
        self._unheard.append(request)
        self._stir()

    def end(self, *, broken: bool) -> None:
        """The member says nothing more. What it said first counts: who has left has left in good order."""
        self._broken |= broken and not self._ended
        self._ended = True
        self._stir()

    def fail(self, failure: Exception) -> None:
        """End its session, whatever that waits for."""
        if self.failure is None and self.task is not None:
            self.failure = failure
            self.task.cancel()

    async def requests(self) -> AsyncIterator[pb.SessionRequest]:
        while self._unheard or not self._ended:
            if self._unheard:
                yield self._unheard.popleft()
            else:
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting

    def _stir(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class SharedMemberStream:
    """One stream, from the first member that comes to the last that goes."""

    def __init__(self, serve: Serve, call: RpcCall) -> None:
        self._serve = serve
        self._call = call
        self._streams: dict[int, SharedStreamCall] = {}
        self._highest = -1
        self._begun = False
        """Somebody has said something."""
        self._unwritten: deque[pb.MemberResponse] = deque()
        self._unwritten_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False
        self._failure: Exception | None = None

    async def responses(
        self, requests: AsyncIterator[pb.SharedSessionRequest]
    ) -> AsyncGenerator[pb.SharedSessionResponse, None]:
        """What is to be written, until nobody is left. Raises what is wrong with the stream itself."""
        reading = asyncio.create_task(self._read(requests))
        try:
            while self._failure is None:
                if self._unwritten:
                    yield self._frame()
                elif not self._streams and (self._ended or self._begun):
                    return
                else:
                    self._news.clear()
                    await self._news.wait()
            raise self._failure
        finally:
            tasks = [reading, *(stream.task for stream in self._streams.values() if stream.task is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[pb.SharedSessionRequest]) -> None:
        try:
            async for frame in requests:
                if len(frame.requests) > MOST_AT_ONCE:
                    raise MalformedGroupRequest(
                        f"requests has {len(frame.requests)} entries; at most {MOST_AT_ONCE} are accepted at once"
                    )
                self._begun |= bool(frame.requests)
                for said in frame.requests:
                    self._hear(said)
                if not self._streams:
                    self._news.set()
                await self._room.wait()
        except Exception as error:
            self._failure = error
        self._ended = True
        for stream in self._streams.values():
            stream.end(broken=True)
        self._news.set()

    def _hear(self, said: pb.MemberRequest) -> None:
        stream = self._streams.get(said.member)
        if stream is None:
            if said.member <= self._highest:
                if said.member < 0 or said.request.WhichOneof("request") in FIRST_WORDS:
                    self._put(
                        build_member_end(
                            said.member, MalformedGroupRequest(clear_member_above(said.member, self._highest))
                        )
                    )
                return  # Anything else has crossed the end of that session.
            self._highest = said.member
            if len(self._streams) >= MEMBERS_PER_STREAM:
                full = f"{len(self._streams)} members are on this stream, as many as one carries; open another one"
                self._put(build_member_end(said.member, Overloaded(full)))
                return
            stream = self._streams[said.member] = SharedStreamCall(said.member, self._call)
            stream.task = asyncio.create_task(self._attend(stream))
            stream.task.add_done_callback(partial(self._over, stream))
        match said.WhichOneof("said"):
            case "request":
                stream.enqueue_request(said.request)
            case "leaves":
                stream.end(broken=said.leaves.broken)
            case _:
                stream.fail(MalformedGroupRequest("the member says nothing; expected request or leaves"))

    async def _attend(self, stream: SharedStreamCall) -> None:
        """Serve one member until its session ends."""
        async with aclosing(self._serve(stream.requests(), stream)) as responses:
            async for response in responses:
                self._put(pb.MemberResponse(member=stream.number, response=response))
                await self._room.wait()

    def _over(self, stream: SharedStreamCall, task: "asyncio.Task[None]") -> None:
        """Say how a member's session ended, unless the whole stream does."""
        if task.cancelled() and stream.failure is None:
            return
        failure = stream.failure if task.cancelled() else task.exception()
        del self._streams[stream.number]
        self._put(build_member_end(stream.number, failure))

    def _put(self, response: pb.MemberResponse) -> None:
        self._unwritten.append(response)
        self._unwritten_bytes += response.ByteSize()
        if not self._has_room:
            self._room.clear()
        self._news.set()

    def _frame(self) -> pb.SharedSessionResponse:
        """What there is to be said at this moment, as far as it goes into one frame."""
        frame, size = pb.SharedSessionResponse(), 0
        while self._unwritten and (not size or size + self._unwritten[0].ByteSize() <= MOST_UNWRITTEN_BYTES):
            response = self._unwritten.popleft()
            size += response.ByteSize()
            frame.responses.append(response)
        self._unwritten_bytes -= size
        if self._has_room:
            self._room.set()
        return frame

    @property
    def _has_room(self) -> bool:
        return len(self._unwritten) < MOST_UNWRITTEN and self._unwritten_bytes < MOST_UNWRITTEN_BYTES


def clear_member_above(member: int, highest: int) -> str:
    return (
        f"member is {member}; expected a number above {highest}, the highest on this stream so far: each session has "
        "one of its own"
    )


def build_member_end(member: int, failure: BaseException | None) -> pb.MemberResponse:
    """How the member's session ended. What nobody expected is in the node's log, by a reference."""
    if failure is None:
        return pb.MemberResponse(member=member, ended=pb.MemberEnded())
    for kind, status in STATUSES.items():
        if isinstance(failure, kind):
            return pb.MemberResponse(member=member, ended=pb.MemberEnded(status=status, message=str(failure)))
    reference = uuid4().hex[:12]
    log.error("handler failed", method="SharedSession", reference=reference, exc_info=failure)
    return pb.MemberResponse(
        member=member, ended=pb.MemberEnded(status=INTERNAL, message=request_limits.describe_failure(reference))
    )
