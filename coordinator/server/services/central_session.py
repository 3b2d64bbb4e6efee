"""The stream of one member of a central group. No transport here, and nothing is decided.

It is opened under one reign: the election that made this node the coordinator. When that is over, nothing that the
member says reaches its group any more, and no order the member; what was on its way is told by its epoch.

What the member says is asked of its shard, one message after the other; a question for orders is always open there, and
what it brings is written. The next orders are asked for when the last ones are on their way.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import CentralReply
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.edge import shape
from muster.coordinator.edge.shape import MalformedGroupRequest
from muster.coordinator.edge.words import error_sentence
from muster.coordinator.errors import CallRefusal, ErrorCode, NodeShuttingDown
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.driver.drive import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import answers, central_words

NO_ELECTION = 0
"""The epoch of a node that shares no ZooKeeper: it coordinates its central groups, and nobody else does."""
RESIGNED = "this node coordinates central groups no longer; find who does"
UNWRITTEN_LIMIT = 8
"""Responses that may wait to be written; for a member that reads slowly, its shard keeps the latest order of a kind."""


class CentralSession:
    """One stream, from the registration to its end."""

    def __init__(
        self,
        driver: EngineDriver,
        shard: int,
        registration: pb.RegisterConsumer,
        call: RpcCall,
        *,
        epoch: int,
        reigning: Callable[[], int | None],
        rights: Callable[[], Rights] = lambda: None,
    ) -> None:
        self._rights = rights
        self.group_id = registration.group_id
        self.member_id = registration.member_id
        self.stream = 0
        """The request id of the registration; 0 while there is none that was taken."""
        self.left = False
        """The member has deregistered, or the group knows already that it is gone."""
        self._driver = driver
        self._epoch = epoch
        self._reigning = reigning
        self.shard = self._shard = shard
        self._first = registration
        self._peer_host, self._software = call.peer_host, call.client_software
        self._unwritten: asyncio.Queue[pb.SessionResponse] = asyncio.Queue(UNWRITTEN_LIMIT)
        self._last: pb.SessionResponse | None = None
        self._failure: Exception | None = None
        self._over = asyncio.Event()
        self._sequence = 0
        self._leaving = False

    async def responses(self, requests: AsyncIterator[pb.SessionRequest]) -> AsyncGenerator[pb.SessionResponse, None]:
        """Register, then write what there is to say until the end."""
        refused = await self._register(self._first)
        if refused is not None:
            yield self._numbered(refused)
            return
        tasks = [asyncio.create_task(self._read(requests)), asyncio.create_task(self._hear())]
        try:
            yield self._numbered(self._registered())
            while (response := await self._next()) is not None:
                yield self._numbered(response)
            if self._failure is not None:
                raise self._failure
            if self._last is not None:
                yield self._numbered(self._last)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def end(self, reason: str) -> None:
        """Say so, and end the stream."""
        self._finish(pb.SessionResponse(drain=pb.SessionDrain(reason=reason)))

    async def _register(self, request: pb.RegisterConsumer) -> pb.SessionResponse | None:
        """The answer to a refusal; None when the member was taken in."""
        event = central_words.parse_registration(
            request,
            self._driver.next_id(),
            client_host=self._peer_host,
            client_software=self._software,
            stream=self.stream,
            rights=self._rights(),
        )
        first = not self.stream
        # From here on the shard may know the member, whether or not its answer is still wanted.
        self.stream = self.stream or event.request_id
        reply = await self._driver.ask(self._shard, event, CentralReply)
        if not reply.code:
            return None
        if first:
            self.stream = 0
        return build_registered(reply)

    async def _next(self) -> pb.SessionResponse | None:
        """The next response; None at the end. What waits when the end comes is still written."""
        over = asyncio.ensure_future(self._over.wait())
        ready = asyncio.ensure_future(self._unwritten.get())
        try:
            await asyncio.wait([over, ready], return_when=asyncio.FIRST_COMPLETED)
            return ready.result() if ready.done() else None
        finally:
            over.cancel()
            ready.cancel()

    async def _read(self, requests: AsyncIterator[pb.SessionRequest]) -> None:
        try:
            async for request in requests:
                if not await self._take(request):
                    return
            self._over.set()
        except NodeShuttingDown as error:
            self.end(str(error))
        except Exception as error:
            self._failure = error
            self._over.set()

    async def _take(self, request: pb.SessionRequest) -> bool:
        """Whether the stream goes on."""
        kind = request.WhichOneof("request")
        if self._deposed():
            return False
        if kind == "register_consumer":
            return await self._change_subscription(request.register_consumer)
        event = self._event(request)
        self._leaving = kind == "deregister"
        reply = await self._driver.ask(self._shard, event, CentralReply)
        if self._leaving:
            self.left = True
            self._over.set()
            return False
        if reply.code:
            self._refused(reply)
        return not reply.code

    def _event(self, request: pb.SessionRequest) -> events.CentralRequest:
        who = (self._driver.next_id(), self.group_id, self.member_id, self.stream)
        match request.WhichOneof("request"):
            case "ping_answered":
                ping = request.ping_answered
                return events.PingAnswered(*who, ping.number, central_words.parse_consumed_offsets(ping.offsets))
            case "fetcher_stopped":
                stopped = request.fetcher_stopped
                return events.FetcherStopped(
                    *who, stopped.number, central_words.parse_consumed_offsets(stopped.offsets)
                )
            case "fetcher_started":
                return events.FetcherStarted(*who, request.fetcher_started.number)
            case "deregister":
                leave = request.deregister
                reason = shape.check_reason("deregister.reason", leave.reason)
                return events.Deregister(*who, central_words.parse_consumed_offsets(leave.offsets), reason)
            case other:
                raise MalformedGroupRequest(
                    f"request is {other or 'empty'}; expected ping_answered, fetcher_stopped, fetcher_started, "
                    "deregister or register_consumer, for this stream belongs to a member of a central group"
                )

    async def _change_subscription(self, request: pb.RegisterConsumer) -> bool:
        for field, own in (("group_id", self.group_id), ("member_id", self.member_id)):
            if (said := getattr(request, field)) != own:
                raise MalformedGroupRequest(f"{field} is {said!r}; this stream belongs to {own!r}")
        refused = await self._register(request)
        await self._unwritten.put(refused or self._registered())
        return True

    def _registered(self) -> pb.SessionResponse:
        return build_registered(CentralReply(), self._epoch)

    def _deposed(self) -> bool:
        """Whether the reign is over; then so is the stream."""
        if self._reigning() == self._epoch:
            return False
        self.end(RESIGNED)
        return True

    async def _hear(self) -> None:
        """Ask for orders, again and again."""
        try:
            while True:
                event = events.AwaitOrders(self._driver.next_id(), self.group_id, self.member_id, self.stream)
                reply = await self._driver.ask(self._shard, event, CentralReply)
                if self._leaving or self._deposed():
                    return
                if reply.code:
                    self._refused(reply)
                    return
                for given in reply.orders:
                    await self._unwritten.put(central_words.build_order(given, reply.answered, self._epoch))
        except NodeShuttingDown as error:
            self.end(str(error))
        except CallRefusal as error:
            self._failure = error
            self._over.set()

    def _refused(self, reply: CentralReply) -> None:
        if reply.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            # The group's coordinator moved or was reloaded; the member finds it again.
            self.end(error_sentence(reply.code, reply.message))
            return
        self.left = True
        fenced = pb.SessionFenced(
            error_code=answers.to_error_code(reply.code), error_message=error_sentence(reply.code, reply.message)
        )
        self._finish(pb.SessionResponse(fenced=fenced))

    def _finish(self, last: pb.SessionResponse) -> None:
        self._last = self._last or last
        self._over.set()

    def _numbered(self, response: pb.SessionResponse) -> pb.SessionResponse:
        self._sequence += 1
        response.sequence_number = self._sequence
        return response


def build_registered(reply: CentralReply, epoch: int = NO_ELECTION) -> pb.SessionResponse:
    return pb.SessionResponse(
        registered=pb.ConsumerRegistered(
            error_code=answers.to_error_code(reply.code),
            error_message=error_sentence(reply.code, reply.message),
            coordinator_epoch=epoch,
        )
    )
