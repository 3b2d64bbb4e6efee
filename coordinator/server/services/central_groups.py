"""Central groups at a node: the election of their coordinator, and the streams of their members.

Among nodes that share a ZooKeeper one is elected; a node without ZooKeeper is the coordinator from the start. Groups
live in their node's own log: an elected node brings back its own groups, and members that another node had are
assigned again from nothing.

A member's stream is opened under one term of the coordinator: the election that made this node the coordinator. When
that term is over, nothing that the member says reaches its group any more and no order reaches the member; what was
on its way is recognized by its epoch. The member's messages go to its shard one after the other; a question for
orders is always open there, and the next orders are asked for when the last ones are on their way. The stream decides
nothing: it translates between protobuf and core events and checks shape only.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import NamedTuple, assert_never, cast

import structlog

from muster.coordinator.config import Address
from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import (
    NOTHING_COMMITTED,
    CentralReply,
    GroupChanged,
    Order,
    Ping,
    RebalanceFailed,
    StartFetcher,
    StopFetcher,
)
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Cause, CommittedOffset, RequestId
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge import request_limits
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.edge.request_limits import MalformedGroupRequest, error_sentence
from muster.coordinator.errors import ErrorCode, NodeShuttingDown
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import group_responses
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.central_groups import (
    CentralGroupPublisher,
    NeighbourWatch,
    PublishedCentralGroup,
    explain_takeover,
)
from muster.coordinator.zookeeper.election import ElectedTerm, ElectionCandidate
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

# Election
# --------

TAKEOVER = "central-takeover"
"""The condition of a node whose central groups another one would take over without what they need."""
COMMIT_EVERY_S = 2.0
"""How often positions that have changed are written to ZooKeeper."""

log = structlog.get_logger("muster.zookeeper")


class CentralCoordinator(NamedTuple):
    node_id: int
    host: str
    port: int


class CentralElection:
    """A node's candidacy. `cores` are its shards as they are now; `on_resigned` sends its members away. What a
    take-over by another node would cost is a condition for as long as one is there."""

    def __init__(
        self,
        session: ZooKeeperSession,
        node_id: int,
        address: Callable[[], Address],
        cores: Callable[[], Iterable[Shard]],
        on_resigned: Callable[[], None],
        conditions: Conditions,
    ) -> None:
        self._session = session
        self._conditions = conditions
        self._neighbours = NeighbourWatch(session, node_id)
        self._told_of: tuple[int, ...] = ()
        self._cores = cores
        self._on_resigned = on_resigned
        self._owners = CentralGroupPublisher(session)
        self._publishing = RestartedTask("positions of central groups", self._publish_now_and_then)
        self._election = ElectionCandidate(
            session,
            layout.CENTRAL_COORDINATOR,
            lambda: layout.coordinator_json(node_id, *address()),
            epoch_path=layout.CENTRAL_EPOCH,
            on_elected=self._elected,
            on_resigned=self._resigned,
        )

    @property
    def elected(self) -> bool:
        return self._election.term is not None

    @property
    def epoch(self) -> int | None:
        """That of this node's term; None while it has none."""
        term = self._election.term
        return None if term is None else term.epoch

    def start(self) -> None:
        self._owners.start()
        self._election.start()
        self._publishing.start()

    async def stop(self) -> None:
        await self._publishing.stop()
        await self._owners.stop()
        await self._election.stop()

    async def coordinator(self) -> CentralCoordinator | None:
        """The node that is elected; None while there is none, or ZooKeeper cannot say: see `why_nobody`."""
        if not self._in_touch:
            return None  # a question would wait until ZooKeeper is back
        try:
            body = await self._election.holder()
        except ZooKeeperError as error:
            log.warning("the coordinator of central groups cannot be read", why=str(error))
            return None
        return None if body is None else CentralCoordinator(*layout.read_coordinator(layout.CENTRAL_COORDINATOR, body))

    def why_nobody(self) -> str:
        """What members are told who find no coordinator."""
        if self._in_touch:
            return "no node is elected to coordinate central groups yet"
        return (
            f"no coordinator is elected: ZooKeeper at {self._session.connect} cannot be reached from this node; "
            "central groups go on once it can"
        )

    @property
    def _in_touch(self) -> bool:
        return self._session.state is SessionState.CONNECTED

    def noticed(self, notice: GroupChanged) -> None:
        """Something has become durable."""
        if self.elected and notice.entry is not None:
            self._publish()

    def _elected(self, term: ElectedTerm) -> None:
        log.info("this node coordinates central groups", epoch=term.epoch)
        self._publish()

    def _resigned(self) -> None:
        log.info("this node no longer coordinates central groups")
        self._on_resigned()

    async def _publish_now_and_then(self) -> None:
        while True:
            self._warn_of_takeover(await self._neighbours.read())
            await asyncio.sleep(COMMIT_EVERY_S)
            if self.elected:
                self._publish()

    def _warn_of_takeover(self, neighbours: tuple[int, ...]) -> None:
        """Before it happens: at the start in the log, and as a condition once there are groups to take over."""
        if neighbours and neighbours != self._told_of:
            why = "each has its own log, so central groups that one takes over lose their topics and positions"
            log.warning("other nodes on this ensemble share no log with this one", nodes=neighbours, why=why)
        self._told_of = neighbours
        groups = {
            group.id: {topic for share in group.owned.values() for topic in share}
            | {topic for topic, _ in core.state.offsets.get(group.id, {})}
            for core in (self._cores() if self.elected and neighbours else ())
            for group in core.central_groups.values()
        }
        if groups:
            self._conditions.report(TAKEOVER, explain_takeover(groups, neighbours), warning=True)
        else:
            self._conditions.clear(TAKEOVER)

    def _publish(self) -> None:
        groups = {}
        for core in self._cores():
            for group in core.central_groups.values():
                owners = {
                    (topic, number): member
                    for member, share in group.owned.items()
                    for topic, numbers in share.items()
                    for number in numbers
                }
                kept = core.state.offsets.get(group.id, {})
                groups[group.id] = PublishedCentralGroup(owners, {tp: value.offset for tp, value in kept.items()})
        self._owners.publish(groups)


# Messages on a stream
# --------------------

NOT_FETCHING = -1
NO_EPOCH = -1


def parse_registration(
    request: pb.RegisterConsumer,
    request_id: RequestId,
    *,
    client_host: str,
    client_software: str,
    stream: int,
    rights: Rights = None,
) -> events.RegisterConsumer:
    """`stream` is that of the registration before, on the same stream; 0 for the first."""
    request_limits.check_at_most("topics", len(request.topics), request_limits.MAX_TOPICS)
    owned = tuple(
        (
            request_limits.check_filled_name("owned.topic", row.topic),
            request_limits.check_at_least("owned.partitions", partition, 0),
        )
        for row in request.owned
        for partition in row.partitions
    )
    request_limits.check_at_most("owned", len(owned), request_limits.MAX_PARTITIONS)
    return events.RegisterConsumer(
        request_id=request_id,
        group_id=request_limits.check_name("group_id", request.group_id),
        member_id=request_limits.check_name("member_id", request.member_id),
        client_id=request_limits.check_name("client_id", request.client_id),
        client_host=client_host,
        client_software=client_software,
        rack_id=request_limits.check_name("rack_id", request.rack_id) or None,
        session_timeout_ms=request_limits.check_at_least("session_timeout_ms", request.session_timeout_ms, 0),
        topics=tuple(request_limits.check_filled_name("topics", topic) for topic in request.topics),
        regex=request.regex,
        assignor=request_limits.check_filled_name("assignor", request.assignor),
        generation=request.generation_id if request.HasField("generation_id") else NOT_FETCHING,
        owned=owned,
        offsets=parse_consumed_offsets(request.offsets),
        stream=stream,
        rights=rights,
    )


def parse_consumed_offsets(rows: Iterable[pb.ConsumedOffset]) -> events.Offsets:
    offsets = tuple(
        (
            request_limits.check_filled_name("offsets.topic", row.topic),
            request_limits.check_at_least("offsets.partition", row.partition, 0),
            CommittedOffset(
                request_limits.check_at_least("offsets.offset", row.offset, 0),
                row.leader_epoch if row.HasField("leader_epoch") else NO_EPOCH,
            ),
        )
        for row in rows
    )
    request_limits.check_at_most("offsets", len(offsets), request_limits.MAX_PARTITIONS)
    return offsets


def build_order(given: Order, answered: int, epoch: int) -> pb.SessionResponse:
    """`answered`: the highest number that has been heard back; `epoch`: that of the term under which it is given."""
    out = pb.CentralOrder(number=given.number, answered=answered, coordinator_epoch=epoch)
    match given:
        case Ping():
            out.ping.SetInParent()
        case StopFetcher():
            out.stop_fetcher.cause = build_cause(given.cause)
            out.stop_fetcher.cause_detail = given.cause_detail
            out.stop_fetcher.rebalance_number = given.rebalance_number
        case StartFetcher():
            out.start_fetcher.CopyFrom(build_start(given))
        case RebalanceFailed():
            out.rebalance_failed.detail = given.detail
        case _:
            assert_never(given)
    return pb.SessionResponse(order=out)


def build_start(given: StartFetcher) -> pb.StartFetcher:
    return pb.StartFetcher(
        generation_id=given.generation,
        partitions=[
            pb.StartPartition(topic=topic, partition=partition, offset=None if offset == NOTHING_COMMITTED else offset)
            for topic, partition, offset in given.partitions
        ],
        cause=build_cause(given.cause),
        cause_detail=given.cause_detail,
        rebalance_number=given.rebalance_number,
    )


def build_cause(of: Cause) -> ledger_pb2.RebalanceCause:
    return cast(ledger_pb2.RebalanceCause, of)


# Members' streams
# ----------------

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
        elected_epoch: Callable[[], int | None],
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
        self._elected_epoch = elected_epoch
        self.shard = self._shard = shard
        self._first = registration
        self._peer_host, self._software = call.peer_host, call.client_software
        self._unwritten: asyncio.Queue[pb.SessionResponse | None] = asyncio.Queue(UNWRITTEN_LIMIT)
        self._last: pb.SessionResponse | None = None
        self._failure: Exception | None = None
        self._over = False
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
        event = parse_registration(
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
        reply = await self._driver.ask_shard(self._shard, event, CentralReply)
        if not reply.code:
            return None
        if first:
            self.stream = 0
        return build_registered(reply)

    async def _next(self) -> pb.SessionResponse | None:
        """The next response; None at the end. What waits when the end comes is still written."""
        if self._over and self._unwritten.empty():
            return None
        return await self._unwritten.get()

    def _end(self) -> None:
        """Nothing more is to be said than what waits already."""
        self._over = True
        if self._unwritten.empty():
            self._unwritten.put_nowait(None)  # whoever waits for the next one hears of it

    async def _read(self, requests: AsyncIterator[pb.SessionRequest]) -> None:
        try:
            async for request in requests:
                if not await self._handle_request(request):
                    return
            self._end()
        except NodeShuttingDown as error:
            self.end(str(error))
        except Exception as error:
            self._failure = error
            self._end()

    async def _handle_request(self, request: pb.SessionRequest) -> bool:
        """Whether the stream goes on."""
        kind = request.WhichOneof("request")
        if self._deposed():
            return False
        if kind == "register_consumer":
            return await self._change_subscription(request.register_consumer)
        event = self._event(request)
        self._leaving = kind == "deregister"
        reply = await self._driver.ask_shard(self._shard, event, CentralReply)
        if self._leaving:
            self.left = True
            self._end()
            return False
        if reply.code:
            self._refused(reply)
        return not reply.code

    def _event(self, request: pb.SessionRequest) -> events.CentralRequest:
        who = (self._driver.next_id(), self.group_id, self.member_id, self.stream)
        match request.WhichOneof("request"):
            case "ping_answered":
                ping = request.ping_answered
                return events.PingAnswered(*who, ping.number, parse_consumed_offsets(ping.offsets))
            case "fetcher_stopped":
                stopped = request.fetcher_stopped
                return events.FetcherStopped(*who, stopped.number, parse_consumed_offsets(stopped.offsets))
            case "fetcher_started":
                return events.FetcherStarted(*who, request.fetcher_started.number)
            case "deregister":
                leave = request.deregister
                reason = request_limits.check_reason("deregister.reason", leave.reason)
                return events.Deregister(*who, parse_consumed_offsets(leave.offsets), reason)
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
        """Whether the term is over; then so is the stream."""
        if self._elected_epoch() == self._epoch:
            return False
        self.end(RESIGNED)
        return True

    async def _hear(self) -> None:
        """Ask for orders, again and again."""
        try:
            while True:
                event = events.AwaitOrders(self._driver.next_id(), self.group_id, self.member_id, self.stream)
                reply = await self._driver.ask_shard(self._shard, event, CentralReply)
                if self._leaving or self._deposed():
                    return
                if reply.code:
                    self._refused(reply)
                    return
                for given in reply.orders:
                    await self._unwritten.put(build_order(given, reply.answered, self._epoch))
        except NodeShuttingDown as error:
            self.end(str(error))
        except Exception as error:
            self._failure = error
            self._end()

    def _refused(self, reply: CentralReply) -> None:
        if reply.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            # The group's coordinator moved or was reloaded; the member finds it again.
            self.end(error_sentence(reply.code, reply.message))
            return
        self.left = True
        fenced = pb.SessionFenced(
            error_code=group_responses.to_error_code(reply.code),
            error_message=error_sentence(reply.code, reply.message),
        )
        self._finish(pb.SessionResponse(fenced=fenced))

    def _finish(self, last: pb.SessionResponse) -> None:
        self._last = self._last or last
        self._end()

    def _numbered(self, response: pb.SessionResponse) -> pb.SessionResponse:
        self._sequence += 1
        response.sequence_number = self._sequence
        return response


def build_registered(reply: CentralReply, epoch: int = NO_ELECTION) -> pb.SessionResponse:
    return pb.SessionResponse(
        registered=pb.ConsumerRegistered(
            error_code=group_responses.to_error_code(reply.code),
            error_message=error_sentence(reply.code, reply.message),
            coordinator_epoch=epoch,
        )
    )
