"""Session streams: one per member, on which the coordinator speaks first (pushed membership). No transport here.

A stream carries the member's heartbeats and their answers. Between two heartbeats a `Listen` is parked at the group's
shard, and what it returns is pushed. What waits to be written is never more than one answer, one push and the
farewell. The member says once who it is; every later heartbeat on the stream that leaves it out means the same
member.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import cast

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.effects import CentralReply
from muster.coordinator.core.model.events import StreamClosed
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.edge import request_limits
from muster.coordinator.edge.listener_base import UNRESTRICTED, TopicRightsSource
from muster.coordinator.edge.request_limits import MalformedGroupRequest, error_sentence
from muster.coordinator.errors import CallRefusal, ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import group_requests, group_responses
from muster.coordinator.server.services.central_groups import NO_ELECTION, RESIGNED, CentralSession, build_registered

# The member's identity
# ---------------------


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    group_id: str
    member_id: str
    group_instance_id: str | None

    def sign(self, request: pb.HeartbeatRequest | pb.ConsumerGroupHeartbeatRequest) -> None:
        """Fill in what the heartbeat leaves out; MalformedRequest when it speaks for somebody else."""
        for field, own in (("group_id", self.group_id), ("member_id", self.member_id)):
            said = getattr(request, field)
            if said and said != own:
                raise MalformedGroupRequest(
                    f"{field} is {request_limits.quote_value(said)}; this session belongs to "
                    f"{request_limits.quote_value(own)}"
                )
        request.group_id, request.member_id = self.group_id, self.member_id
        if self.group_instance_id is not None:
            request.group_instance_id = self.group_instance_id


async def read_greeting(requests: AsyncIterator[pb.SessionRequest]) -> SessionIdentity | pb.RegisterConsumer:
    """The stream's first message: a hello, or the registration of a central group's member, who says all in it."""
    first = await anext(requests, None)
    kind = first.WhichOneof("request") if first is not None else None
    if first is not None and kind == "register_consumer":
        return first.register_consumer
    if first is None or kind != "hello":
        raise MalformedGroupRequest(
            "hello is missing; expected it, or register_consumer, as the first message of a session"
        )
    hello = first.hello
    return SessionIdentity(
        request_limits.check_filled_name("hello.group_id", hello.group_id),
        request_limits.check_filled_name("hello.member_id", hello.member_id),
        request_limits.check_instance_id(
            "hello.group_instance_id", hello.HasField("group_instance_id"), hello.group_instance_id
        ),
    )


NO_NEWS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Not about the member: its next heartbeat finds out what became of the group's coordinator."""


ALL_WELL = pb.HeartbeatResponse()

HELLO_MS = 10_000
"""A stream that says nothing for so long is nobody's."""

BREAK_HEARD_S = 0.02
"""Of a call that broke off the requests end, and right after that it is cancelled: it is one event of the transport."""

MOVED = "this node does not coordinate the group any more, or cannot now; find who does"

MOST_SILENT = 1_000
"""Streams that may be open before they have said whose they are: a second's worth of members, all at once."""


class ServerSession:
    """One member's stream."""

    def __init__(
        self,
        driver: EngineDriver,
        shard: int,
        identity: SessionIdentity,
        peer_host: str,
        software: str,
        rights: Callable[[], Rights] = lambda: None,
        number: int = 0,
    ) -> None:
        self.identity = identity
        self.number = number
        self._rights = rights
        self.finished = False
        """The member has closed its side in good order, or was told that this is the end."""
        self._driver = driver
        self.shard = self._shard = shard
        self._peer_host = peer_host
        self._software = software
        self._sequence = 0
        self._answer: pb.SessionResponse | None = None
        self._push: pb.SessionResponse | None = None
        self._farewell: str | None = None
        self._failure: Exception | None = None
        self._unacknowledged: int | None = None  # the sequence number of a pushed assignment
        self._listening: events.Listen | None = None  # not over before what it brought has been acknowledged
        self._listener: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def responses(self, welcome: pb.SessionWelcome) -> AsyncIterator[pb.SessionResponse]:
        """What is to be written, until the end. A push goes first: an answer may rest on it."""
        yield self._numbered(pb.SessionResponse(welcome=welcome))
        while not self.finished:
            if self._push is not None:
                push, self._push = self._push, None
                yield self._numbered(push)
            elif self._answer is not None:
                answer, self._answer = self._answer, None
                self._room.set()
                yield self._numbered(answer)
            elif self._failure is not None:
                raise self._failure
            elif self._farewell is not None:
                self.finished = True
                yield self._numbered(pb.SessionResponse(drain=pb.SessionDrain(reason=self._farewell)))
            else:
                self._news.clear()
                await self._news.wait()

    async def read(self, requests: AsyncIterator[pb.SessionRequest]) -> None:
        """Take the member's heartbeats, one after the other; no further one before the last answer is on its way."""
        try:
            async for request in requests:
                await self._room.wait()
                self._acknowledge(request.acknowledged)
                await self._handle_request(request)
            self.finished = True
        except Exception as error:
            self._failure = error
        self._news.set()

    def end(self, reason: str) -> None:
        """Say so, and end the stream."""
        self._farewell = reason
        self._news.set()

    async def stop(self, reading: "asyncio.Task[None]") -> None:
        tasks = [task for task in (reading, self._listener) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _numbered(self, response: pb.SessionResponse) -> pb.SessionResponse:
        self._sequence += 1
        response.sequence_number = self._sequence
        if response.WhichOneof("event") == "consumer_group_heartbeat" and not response.request_number:
            self._unacknowledged = self._sequence
        return response

    def _acknowledge(self, sequence: int) -> None:
        if self._unacknowledged is not None and sequence >= self._unacknowledged:
            self._unacknowledged = None
            self._listening = None

    async def _handle_request(self, request: pb.SessionRequest) -> None:
        match request.WhichOneof("request"):
            case "heartbeat":
                await self._heartbeat(request.heartbeat, request.request_number)
            case "consumer_group_heartbeat":
                await self._consumer_heartbeat(request.consumer_group_heartbeat, request.request_number)
            case "hello":
                raise MalformedGroupRequest("hello was sent twice; expected heartbeats after the first message")
            case _:
                raise MalformedGroupRequest("request is empty; expected heartbeat or consumer_group_heartbeat")

    async def _heartbeat(self, request: pb.HeartbeatRequest, number: int) -> None:
        self.identity.sign(request)
        if self._beat_fast_path(request):
            if number:
                self._put_answer(pb.SessionResponse(request_number=number, heartbeat=ALL_WELL))
            self._listen(request.generation_id)
            return
        event = group_requests.parse_heartbeat(request, self._driver.next_id(), self._rights())
        reply = await self._driver.ask_shard(self._shard, event, effects.HeartbeatReply)
        if number:
            self._put_answer(
                pb.SessionResponse(request_number=number, heartbeat=group_responses.build_heartbeat_response(reply))
            )
        elif reply.code not in NO_NEWS:
            self._put_push(build_push(event.generation, effects.PushReply(reply.code, reply.message)))
        if reply.code is ErrorCode.NONE:
            self._listen(event.generation)

    def _beat_fast_path(self, request: pb.HeartbeatRequest) -> bool:
        """Whether it was heard the short way: so it is of nearly all to whom nothing happens."""
        return not request.HasField("group_instance_id") and self._driver.beat(
            self._shard, request.group_id, request.member_id, request.generation_id, self._rights()
        )

    async def _consumer_heartbeat(self, request: pb.ConsumerGroupHeartbeatRequest, number: int) -> None:
        self.identity.sign(request)
        listening = self._listening.request_id if self._listening is not None else None
        heartbeat = group_requests.parse_consumer_heartbeat(
            request,
            self._driver.next_id(),
            client_host=self._peer_host,
            client_software=self._software,
            rights=self._rights(),
            connection=self.number,
        )
        event = events.SessionHeartbeat(self._driver.next_id(), heartbeat, listening)
        reply = await self._driver.ask_shard(self._shard, event, effects.PushReply)
        if reply.crossed:
            return  # The member hears what was pushed, and speaks again.
        self._listening = None
        told_now = reply.consumer or effects.ConsumerHeartbeatReply(reply.code, reply.message)
        answer = group_responses.build_consumer_heartbeat_response(told_now)
        self._put_answer(pb.SessionResponse(request_number=number, consumer_group_heartbeat=answer))
        if told_now.code is ErrorCode.NONE and told_now.member_epoch > 0:
            self._listen(told_now.member_epoch, consumer=True)

    def _listen(self, generation: int, *, consumer: bool = False) -> None:
        """Park the question of what comes next, in place of an earlier one."""
        before = self._listening
        if before is not None and (before.generation, before.consumer) == (generation, consumer):
            return
        event = events.Listen(
            self._driver.next_id(),
            self.identity.group_id,
            self.identity.member_id,
            self.identity.group_instance_id,
            generation,
            consumer,
        )
        self._listening = event
        self._listener = asyncio.create_task(self._hear(event))

    async def _hear(self, event: events.Listen) -> None:
        try:
            word = await self._driver.ask_shard(self._shard, event, effects.PushReply)
        except CallRefusal:
            word = effects.PushReply()
        except Exception as error:  # the member, which hears nothing more here, comes again
            self._failure = error
            self._news.set()
            return
        if word.code in NO_NEWS and word.consumer is None:
            if self._listening is event:
                self._listening = None
            return
        if not event.consumer and self._listening is event:
            self._listening = None
        self._put_push(build_push(event.generation, word))

    def _put_answer(self, response: pb.SessionResponse) -> None:
        assert self._answer is None, "the next heartbeat is read when the last answer is on its way"
        self._answer = response
        self._room.clear()
        self._news.set()

    def _put_push(self, response: pb.SessionResponse) -> None:
        """The latest word replaces one that was not written yet."""
        self._push = response
        self._news.set()


class ServerSessions:
    """All session streams of a node, one for each member at most, and those that have not said whose they are."""

    def __init__(
        self,
        driver: EngineDriver,
        *,
        shards: int,
        limit: int,
        grace_ms: int,
        central_epoch: Callable[[], int | None] = lambda: NO_ELECTION,
        hello_ms: int = HELLO_MS,
        most_silent: int = MOST_SILENT,
        rights_of: TopicRightsSource = UNRESTRICTED,
    ) -> None:
        self._rights_of = rights_of
        self._hello_ms = hello_ms
        self._most_silent = most_silent
        self._silent = 0
        self._driver = driver
        self._central_epoch = central_epoch
        self._shards = shards
        self._limit = limit
        self._grace_ms = grace_ms
        self._open: dict[tuple[str, str], ServerSession] = {}
        self._central: set[CentralSession] = set()
        self._count = 0
        self._numbers = count(-1, -1)
        self._closed = False

    def __len__(self) -> int:
        return self._count + self._silent

    def next_number(self) -> int:
        """For a stream, or a call by which a member joins, where groups count it as a connection."""
        return next(self._numbers)

    def end_central(self) -> None:
        """Send the members of central groups away: this node does not coordinate them any more."""
        for stream in list(self._central):
            stream.end(RESIGNED)

    def end_shard(self, shard: int) -> None:
        """Send the members of a shard's groups away: another node coordinates them, or this one cannot now."""
        streams: list[ServerSession | CentralSession] = [*self._open.values(), *self._central]
        for stream in streams:
            if stream.shard == shard:
                stream.end(MOVED)

    def close(self) -> None:
        """Tell every member that the node stops; nobody is taken in any more."""
        self._closed = True
        streams: list[ServerSession | CentralSession] = [*self._open.values(), *self._central]
        for stream in streams:
            stream.end(str(NodeShuttingDown()))

    async def serve(
        self, requests: AsyncIterator[pb.SessionRequest], call: RpcCall
    ) -> AsyncIterator[pb.SessionResponse]:
        """One stream from hello to its end. Raises Overloaded when there are too many, MalformedRequest as it says."""
        identity = await self._greeted(requests)
        if self._closed:
            raise NodeShuttingDown
        if self._count >= self._limit:
            raise Overloaded(f"{self._count} sessions are open, as many as this node keeps; heartbeat by calls instead")
        self._count += 1
        try:
            async with aclosing(self._serve_known(identity, requests, call)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._count -= 1

    async def _greeted(self, requests: AsyncIterator[pb.SessionRequest]) -> SessionIdentity | pb.RegisterConsumer:
        """Whose stream it is, once it says so."""
        if self._silent >= self._most_silent:
            raise Overloaded(f"{self._silent} sessions are open that have not said whose they are; try again shortly")
        self._silent += 1
        try:
            async with asyncio.timeout(self._hello_ms / 1000):
                return await read_greeting(requests)
        except TimeoutError:
            raise MalformedGroupRequest(
                f"hello did not come within {self._hello_ms} ms; send it, or register_consumer, first on a session"
            ) from None
        finally:
            self._silent -= 1

    async def _serve_known(
        self, identity: SessionIdentity | pb.RegisterConsumer, requests: AsyncIterator[pb.SessionRequest], call: RpcCall
    ) -> AsyncGenerator[pb.SessionResponse, None]:
        if isinstance(identity, pb.RegisterConsumer):
            async with aclosing(self._serve_central(identity, requests, call)) as responses:
                async for response in responses:
                    yield response
            return
        shard = partition_for(identity.group_id, self._shards)
        rights = partial(self._rights_of.of, call.identity)
        number = self.next_number()
        session = ServerSession(self._driver, shard, identity, call.peer_host, call.client_software, rights, number)
        self._enter(session)
        reading = asyncio.create_task(session.read(requests))
        orderly = False
        try:
            async for response in session.responses(await self._welcome(shard, identity, number)):
                yield response
            # Of a call that broke off the requests end as well, as if the member had closed its side.
            orderly = not call.cancelled()
        finally:
            replaced = self._leave(session)
            if not orderly and not replaced:
                # Suspect, not dead: it may be on its way back already.
                self._driver.submit_event(
                    shard, events.StreamLost(identity.group_id, identity.member_id, self._grace_ms, number)
                )
            await session.stop(reading)

    async def _welcome(self, shard: int, identity: SessionIdentity, number: int) -> pb.SessionWelcome:
        hello = events.Hello(self._driver.next_id(), identity.group_id, identity.member_id, number)
        reply = await self._driver.ask_shard(shard, hello, effects.HelloReply)
        return pb.SessionWelcome(reconnect_grace_ms=self._grace_ms, heartbeat_interval_ms=reply.heartbeat_interval_ms)

    async def _serve_central(
        self, registration: pb.RegisterConsumer, requests: AsyncIterator[pb.SessionRequest], call: RpcCall
    ) -> AsyncGenerator[pb.SessionResponse, None]:
        """The stream of a member of a central group. Which of two streams counts, its group decides."""
        epoch, heard = self._central_epoch(), registration.coordinator_epoch
        if epoch is None or NO_ELECTION < epoch < heard:
            why = "another node is elected for central groups, or none is yet; find the coordinator again"
            yield build_registered(CentralReply(ErrorCode.NOT_COORDINATOR, why))
            return
        shard = partition_for(registration.group_id, self._shards)
        rights = partial(self._rights_of.of, call.identity)
        session = CentralSession(
            self._driver, shard, registration, call, epoch=epoch, elected_epoch=self._central_epoch, rights=rights
        )
        self._central.add(session)
        try:
            async with aclosing(session.responses(requests)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._central.discard(session)
            if session.stream and not session.left:
                self._driver.submit_event(shard, StreamClosed(session.group_id, session.member_id, session.stream))

    def _enter(self, session: ServerSession) -> None:
        key = (session.identity.group_id, session.identity.member_id)
        if (earlier := self._open.get(key)) is not None:
            earlier.end("another session of the same member was opened")
        self._open[key] = session

    def _leave(self, session: ServerSession) -> bool:
        """Whether the member lives on in another stream."""
        key = (session.identity.group_id, session.identity.member_id)
        if self._open.get(key) is not session:
            return True
        del self._open[key]
        return False


async def read_to_end(requests: AsyncIterator[pb.SessionRequest]) -> AsyncIterator[pb.SessionRequest]:
    """The requests of a call. Once they end it is known whether the member closed its side, or the call broke off."""
    async for request in requests:
        yield request
    await asyncio.sleep(BREAK_HEARD_S)


def build_push(generation: int, word: effects.PushReply) -> pb.SessionResponse:
    """The push that says this."""
    if word.consumer is not None and word.code is ErrorCode.NONE:
        return pb.SessionResponse(
            consumer_group_heartbeat=group_responses.build_consumer_heartbeat_response(word.consumer)
        )
    code, why = group_responses.to_error_code(word.code), error_sentence(word.code, word.message)
    if word.code is ErrorCode.REBALANCE_IN_PROGRESS:
        return pb.SessionResponse(
            rebalance=pb.SessionRebalance(
                generation_id=generation,
                error_code=code,
                error_message=why,
                cause=cast(ledger_pb2.RebalanceCause, word.cause),
                cause_detail=word.cause_detail,
            )
        )
    return pb.SessionResponse(fenced=pb.SessionFenced(generation_id=generation, error_code=code, error_message=why))
