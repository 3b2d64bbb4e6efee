"""The GroupCoordinator service: each method asks the shard that holds the group, through the driver. No transport here.

`RoutedGroupCoordinator` serves a node that is one of many: the node that has a group's shard coordinates it, and
FindCoordinator names other nodes. `GroupWatchers` keeps, for each watcher, the latest state and every rebalance up to
a bound. DescribeGroups, ListGroups and WatchGroup also show the group's progress by the node's own samples; of a
group that was not sampled nothing is said.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar
from uuid import uuid4

from muster.assignors.api import Assignment, Assignor, Snapshot
from muster.assignors.plugin_pool import Isolation
from muster.coordinator.core.kinds.central_kind import CENTRAL
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.edge import request_limits
from muster.coordinator.edge.cluster_view import GRPC, ClusterView, NodeAddress, coordinates_shard, leader_address
from muster.coordinator.edge.committed_offsets import (
    PartitionTuple,
    delete_existing,
    delete_in_slices,
    fetch_in_slices,
    merge_zookeeper_positions,
    partition_exists,
)
from muster.coordinator.edge.large_answers import (
    MAX_GROUPS_PER_TURN,
    GroupFilter,
    GroupLists,
    SharedAnswers,
    count_groups,
    merge_group_lists,
    weigh_consumer_group,
)
from muster.coordinator.edge.listener_base import UNRESTRICTED, TopicRightsSource
from muster.coordinator.edge.request_limits import error_sentence, name_operator
from muster.coordinator.errors import CoordinatorError, ErrorCode, NodeShuttingDown, Overloaded, TemporarilyUnknown
from muster.coordinator.observability.views.groups import idle_words
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.runtime.transaction_records import TRANSACTIONS_TOPIC
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import group_control, group_requests, group_responses
from muster.coordinator.server.services.assignment_simulation import AssignmentSimulator
from muster.coordinator.server.services.central_groups import CentralElection
from muster.coordinator.server.services.member_session import ServerSessions, read_to_end
from muster.coordinator.server.services.shared_session import MEMBERS_PER_STREAM, SharedSessionHandler
from muster.coordinator.server.services.zookeeper_registration import ZooKeeperGroups
from muster.long_work import LoopSlice, make_aside, slice_queue, work_through

if TYPE_CHECKING:
    from muster.coordinator.observability.history.group_history import GroupHistory


# Watchers
# --------

MAX_REBALANCES = 100
"""Rebalances kept for a watcher that does not read; older ones are counted as skipped."""


class GroupWatcher:
    """One watcher's unread notices.

    Mere changes of state coalesce: only the latest is kept. Notices of a rebalance (decided or settled) are kept in
    order; when there are too many the oldest go, and the next notice says how many.
    """

    def __init__(self, max_rebalances: int = MAX_REBALANCES) -> None:
        self._unread: deque[GroupChanged] = deque()
        self._max_rebalances = max_rebalances
        self._rebalances = 0
        self._skipped = 0
        self._closed = False
        self._nudged = False
        self._news = asyncio.Event()

    def put(self, notice: GroupChanged) -> None:
        if self._unread and not is_rebalance_notice(self._unread[-1]):
            self._unread.pop()
        self._unread.append(notice)
        if is_rebalance_notice(notice):
            self._rebalances += 1
            if self._rebalances > self._max_rebalances:
                self._drop_oldest()
        self._news.set()

    def nudge(self) -> None:
        """The group was looked at: how it gets on may be different."""
        self._nudged = True
        self._news.set()

    async def get(self) -> tuple[GroupChanged | None, int]:
        """Wait for the next notice; with it comes how many rebalances were skipped before it. None: a nudge.

        Raises NodeShuttingDown when the node shuts down and everything has been read.
        """
        while not self._unread:
            if self._closed:
                raise NodeShuttingDown
            if self._nudged:
                self._nudged = False
                return None, 0
            self._news.clear()
            await self._news.wait()
        notice = self._unread.popleft()
        self._rebalances -= is_rebalance_notice(notice)
        skipped, self._skipped = self._skipped, 0
        return notice, skipped

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def _drop_oldest(self) -> None:
        """The queue's head is a rebalance: only its last entry may be a mere change of state."""
        self._unread.popleft()
        self._rebalances -= 1
        self._skipped += 1


class GroupWatchers:
    """All watchers of a node, by group."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.by_group: dict[str, set[GroupWatcher]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._count >= self._limit

    def add(self, group_id: str) -> GroupWatcher:
        watcher = GroupWatcher()
        self.by_group.setdefault(group_id, set()).add(watcher)
        self._count += 1
        return watcher

    def remove(self, group_id: str, watcher: GroupWatcher) -> None:
        watchers = self.by_group[group_id]
        watchers.remove(watcher)
        self._count -= 1
        if not watchers:
            del self.by_group[group_id]

    def close(self) -> None:
        """End every watch once it has read what is there."""
        for watchers in self.by_group.values():
            for watcher in watchers:
                watcher.close()

    def publish(self, notice: GroupChanged) -> None:
        for watcher in self.by_group.get(notice.group_id, ()):
            watcher.put(notice)

    def looked_at(self, group_id: str) -> None:
        """A sample of the group was taken."""
        for watcher in self.by_group.get(group_id, ()):
            watcher.nudge()


def is_rebalance_notice(notice: GroupChanged) -> bool:
    return notice.entry is not None


# Progress of groups
# ------------------

ProgressTarget: TypeAlias = pb.DescribedGroup | pb.ListedGroup | pb.WatchGroupResponse


AskedReply = TypeVar("AskedReply", bound=effects.Reply)


async def add_progress(groups: Iterable[ProgressTarget], history: "GroupHistory | None") -> None:
    """Fill in what has been seen of them; of what has not, nothing is said. Others have their turns in between."""
    if history is None:
        return
    breath = LoopSlice()
    for group in groups:
        if (found := build_progress(history, group.group_id)) is not None:
            group.progress.CopyFrom(found)
        await breath.yield_if_used()


async def add_sampled_commits(answer: pb.OffsetFetchResponse, history: "GroupHistory", group_id: str) -> None:
    """Positions as samples have seen them, and how many were committed; others have their turns in between."""
    breath = LoopSlice()
    for topic in answer.topics:
        for row in topic.partitions:
            times_ms, offsets = history.positions(group_id, (topic.name, row.partition_index))
            if times_ms:
                row.trail.CopyFrom(pb.CommitTrail(times_ms=times_ms, offsets=offsets))
            await breath.yield_if_used()
    counted = history.commits(group_id)
    if counted is not None:
        answer.traffic.records, answer.traffic.from_ms, answer.traffic.to_ms = counted


def build_progress(history: "GroupHistory", group_id: str) -> pb.GroupProgress | None:
    seen_ms = history.seen_ms(group_id)
    if seen_ms is None:
        return None
    health = history.last_health(group_id)
    reason = health.reason
    if health.idle_since_ms is not None:
        reason = idle_words(health.idle_since_ms, health.total_lag, health.growth, seen_ms)
    return pb.GroupProgress(
        sampled_ms=seen_ms,
        lag=health.total_lag,
        trend=history.trend(group_id),
        eta_seconds=history.eta_s(group_id),
        health=health.status.name,
        reason=reason,
        idle_since_ms=health.idle_since_ms,
        trend_window_ms=history.trend_window_ms(group_id),
    )


def progress_changed(before: pb.GroupProgress, now: pb.GroupProgress | None) -> bool:
    """Whether anything but the time of the look is different."""
    if now is None:
        return before.sampled_ms != 0
    as_of_before = pb.GroupProgress()
    as_of_before.CopyFrom(now)
    as_of_before.sampled_ms = before.sampled_ms
    return as_of_before != before


NO_TRANSACTIONS: Final = (
    "this node coordinates no transactional ids: Kafka's brokers do that for the topics that it serves. Write with a "
    "transactional producer of Kafka's own clients, through this node's Kafka listener if it is to commit offsets of "
    "groups that this node coordinates; kafka-transactions.sh shows and ends transactions there"
)


class GroupTransactions(Protocol):
    """The transactional ids of a node, as far as groups and their members have to do with them."""

    async def prepare(self) -> None:
        """Be ready to coordinate ids. Raises CoordinatorError."""

    def shard_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that holds it."""

    async def commit(self, transactional_id: str, event: events.TxnOffsetCommit) -> effects.TxnOffsetCommitReply:
        """Positions that count when the transaction is committed."""


LogSpan: TypeAlias = Callable[[str, int], tuple[int, int]]
"""(log start, high watermark) of an existing partition. Raises LogFailed when its log is away or damaged."""


@dataclass(frozen=True, slots=True)
class ClientEndpoint:
    """Where clients reach this node."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRules:
    """How assignors are run with which somebody simulates. plugins: the classes of those that are offered, by names."""

    isolation: Isolation
    deadline_ms: int
    plugins: Mapping[str, str]

    def decide(self, assignor: Assignor, snapshot: Snapshot, withhold: bool) -> Assignment:
        """What it assigns. Raises AssignorError."""
        remedy = "raise group.assignor.deadline.ms"
        return self.isolation.run(assignor, snapshot, self.deadline_ms, withhold=withhold, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupServiceContext:
    """The node around the GroupCoordinator service.

    `endpoint` is what FindCoordinator answers, `partitions` gives the catalog's partition counts, `log_span` where a
    partition's log begins and ends, `snapshot_bytes` bounds what one ExplainGroup carries of assignors' inputs,
    `conditions` says what is wrong with the node, `resources` what its process has (called in a thread), `observed`
    are the groups of a ZooKeeper, if there is one, `central` who is elected there for central groups, `rights_of` what
    a member may read, `transactions` the transactional ids that the node coordinates, if it does that.
    """

    driver: EngineDriver
    watchers: GroupWatchers
    sessions: ServerSessions
    shards: int
    endpoint: Callable[[], ClientEndpoint]
    partitions: Callable[[], Mapping[str, int]]
    log_span: LogSpan
    simulations: SimulationRules
    snapshot_bytes: int
    conditions: Conditions
    resources: Callable[[], pb.NodeResources]
    observed: ZooKeeperGroups | None = None
    central: CentralElection | None = None
    history: "GroupHistory | None" = None
    rights_of: TopicRightsSource = UNRESTRICTED
    transactions: GroupTransactions | None = None


class GroupCoordinator:
    """The handlers."""

    def __init__(self, context: GroupServiceContext) -> None:
        sessions, observed = context.sessions, context.observed
        self._rights_of = context.rights_of
        self._driver = context.driver
        self._watchers = context.watchers
        self._sessions = sessions
        self._sharing = SharedSessionHandler(lambda requests, call: sessions.serve(requests, call))
        self._shards = context.shards
        self._snapshot_bytes = context.snapshot_bytes
        self._endpoint = context.endpoint
        self._partitions = context.partitions
        self._log_span = context.log_span
        self._conditions = context.conditions
        self._resources = context.resources
        self._observed = observed
        self._central = context.central
        self._history = context.history
        self._transactions = context.transactions
        self._lists = GroupLists(self._list_shard, self._shards)
        self._listed: SharedAnswers[GroupFilter, pb.ListGroupsResponse] = SharedAnswers()
        self._simulator = AssignmentSimulator(
            context.driver,
            shard_of=self._shard_of,
            partitions=context.partitions,
            spans=self._log_spans,
            decide=context.simulations.decide,
            plugins=context.simulations.plugins,
            elsewhere=None if observed is None else observed.positions,
        )

    async def find_coordinator(self, request: pb.FindCoordinatorRequest, call: RpcCall) -> pb.FindCoordinatorResponse:
        if request.key_type not in request_limits.GROUP_KEYS:
            return await self._find_of_transactions(request)
        endpoint = self._endpoint()
        if request.group_protocol == CENTRAL and self._central is not None and not self._central.elected:
            elected = await self._central.coordinator()
            if elected is None:
                code = group_responses.to_error_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return pb.FindCoordinatorResponse(error_code=code, error_message=self._central.why_nobody())
            endpoint = ClientEndpoint(*elected)
        return pb.FindCoordinatorResponse(
            node_id=endpoint.node_id,
            host=endpoint.host,
            port=endpoint.port,
            partition=self._shard_of(request_limits.check_name("key", request.key)),
            members_per_stream=MEMBERS_PER_STREAM,
        )

    async def _find_of_transactions(self, request: pb.FindCoordinatorRequest) -> pb.FindCoordinatorResponse:
        """Of a transactional id."""
        try:
            if request.key_type != request_limits.TRANSACTION_KEY:
                raise CoordinatorError(
                    ErrorCode.INVALID_REQUEST,
                    f"key_type is {request.key_type!r}; expected 'group', 'transaction', or nothing for a group",
                )
            if self._transactions is None:
                raise CoordinatorError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
            await self._transactions.prepare()
        except CoordinatorError as refusal:
            code = group_responses.to_error_code(refusal.code)
            return pb.FindCoordinatorResponse(error_code=code, error_message=refusal.message, node_id=-1, port=-1)
        return self._coordinator_of_shard(self._transactions.shard_of(request.key))

    def _coordinator_of_shard(self, shard: int) -> pb.FindCoordinatorResponse:
        """Of transactional ids: this node, if it is the only one."""
        endpoint = self._endpoint()
        return pb.FindCoordinatorResponse(
            node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port, partition=shard
        )

    async def join_group(self, request: pb.JoinGroupRequest, call: RpcCall) -> pb.JoinGroupResponse:
        """Until the member has a session stream, the call stands for its connection."""
        number = self._sessions.next_number()
        event = group_requests.parse_join_group(
            request,
            self._driver.next_id(),
            fresh_id=str(uuid4()),
            client_host=call.peer_host,
            client_software=call.client_software,
            rights=self._rights_of.of(call.identity),
            connection=number,
        )
        shard = self._shard_of(event.group_id)
        try:
            reply = await self._driver.ask_shard(shard, event, effects.JoinReply)
        except asyncio.CancelledError:
            self._driver.submit_event(shard, events.ConnectionClosed(event.group_id, number))
            raise
        return group_responses.build_join_response(reply)

    async def sync_group(self, request: pb.SyncGroupRequest, call: RpcCall) -> pb.SyncGroupResponse:
        event = group_requests.parse_sync_group(request, self._driver.next_id())
        return group_responses.build_sync_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.SyncReply)
        )

    def heartbeat_fast_path(self, request: pb.HeartbeatRequest, call: RpcCall) -> bool:
        """The usual one takes the short way: no event, no turn, no future (docs/performance.md)."""
        group_id, who, rights_of = request.group_id, call.identity, self._rights_of
        rights = who.told.rights if who.told.moment is rights_of.moment else rights_of.of(who)
        return not request.HasField("group_instance_id") and self._driver.beat(
            self._shard_of(group_id), group_id, request.member_id, request.generation_id, rights
        )

    async def heartbeat(self, request: pb.HeartbeatRequest, call: RpcCall) -> pb.HeartbeatResponse:
        if self.heartbeat_fast_path(request, call):
            return pb.HeartbeatResponse()
        event = group_requests.parse_heartbeat(request, self._driver.next_id(), self._rights_of.of(call.identity))
        shard = self._shard_of(event.group_id)
        return group_responses.build_heartbeat_response(
            await self._driver.ask_shard(shard, event, effects.HeartbeatReply)
        )

    async def consumer_group_heartbeat(
        self, request: pb.ConsumerGroupHeartbeatRequest, call: RpcCall
    ) -> pb.ConsumerGroupHeartbeatResponse:
        event = group_requests.parse_consumer_heartbeat(
            request,
            self._driver.next_id(),
            client_host=call.peer_host,
            client_software=call.client_software,
            rights=self._rights_of.of(call.identity),
        )
        shard = self._shard_of(event.group_id)
        return group_responses.build_consumer_heartbeat_response(
            await self._driver.ask_shard(shard, event, effects.ConsumerHeartbeatReply)
        )

    async def consumer_group_describe(
        self, request: pb.ConsumerGroupDescribeRequest, call: RpcCall
    ) -> pb.ConsumerGroupDescribeResponse:
        names = group_requests.parse_group_ids("group_ids", request.group_ids)
        answer, breath = pb.ConsumerGroupDescribeResponse(), LoopSlice()
        async for group_id, reply in self._ask_each(names, events.DescribeConsumerGroup, effects.DescribeConsumerReply):
            build = partial(group_responses.build_described_consumer_group, group_id, reply)
            answer.groups.append(await make_aside(build, weigh_consumer_group(reply)))
            await breath.yield_if_used()
        return answer

    async def leave_group(self, request: pb.LeaveGroupRequest, call: RpcCall) -> pb.LeaveGroupResponse:
        event = group_requests.parse_leave_group(request, self._driver.next_id())
        return group_responses.build_leave_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.LeaveReply)
        )

    async def remove_members(self, request: pb.RemoveMembersRequest, call: RpcCall) -> pb.RemoveMembersResponse:
        event = group_requests.parse_remove_members(request, self._driver.next_id(), client_host=call.peer_host)
        return group_responses.build_remove_members_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.LeaveReply)
        )

    async def offset_commit(self, request: pb.OffsetCommitRequest, call: RpcCall) -> pb.OffsetCommitResponse:
        """Partitions that the catalog does not know are refused one by one; the core judges the rest, all at once.

        Very many are read, and answered, beside the loop. Calls have no order among them: whoever wants one commits
        again when the commit before is answered.
        """
        rows = group_requests.count_partitions(request.topics)
        read = partial(group_requests.parse_offset_commit, request, self._driver.next_id(), client_host=call.peer_host)
        event = await work_through(read, rows)
        catalog = self._partitions()
        separate = partial(group_responses.separate_unknown_partitions, event, catalog)
        known, unknown = await work_through(separate, rows)
        reply = effects.OffsetCommitReply()
        if known.offsets or not event.offsets:
            reply = await self._commit(known, request.include_zookeeper)
        return await work_through(
            partial(group_responses.build_checked_commit_response, event, unknown, reply, catalog), rows
        )

    async def offset_fetch(self, request: pb.OffsetFetchRequest, call: RpcCall) -> pb.OffsetFetchResponse:
        """Very many positions slice by slice, each with its log's span at that moment: no lag is less than nothing."""
        event = await work_through(
            partial(group_requests.parse_offset_fetch, request, self._driver.next_id()),
            group_requests.count_partitions(request.topics),
        )
        shard = self._shard_of(event.group_id)
        if request.all_topics and request.include_log_offsets:
            everything = await self._driver.ask_shard(shard, event, effects.OffsetFetchReply)
            if everything.code:
                return group_responses.build_offset_fetch_response(everything)
            named = group_requests.list_named_partitions(request.topics)
            elsewhere = await self._places_in_zookeeper(event.group_id) if request.include_zookeeper else ()
            event = replace(event, partitions=tuple({*everything.offsets, *named, *elsewhere}))
        spans: dict[tuple[str, int], tuple[int, int]] = {}

        async def ask(places: PartitionTuple | None) -> effects.OffsetFetchReply:
            part = replace(event, request_id=self._driver.next_id(), partitions=places)
            if not request.include_log_offsets:
                return await self._driver.ask_shard(shard, part, effects.OffsetFetchReply)
            reply, seen = await self._driver.ask_and_look(
                shard, part, effects.OffsetFetchReply, lambda: self._log_spans(places or ())
            )
            spans.update(seen)
            return reply

        reply = await fetch_in_slices(event.partitions, ask)
        there: frozenset[tuple[str, int]] = frozenset()
        if request.include_zookeeper and self._observed is not None and self._observed.knows(event.group_id):
            reply, there = await self._with_positions(self._observed, event.group_id, reply, request.all_topics)
        make = partial(
            group_responses.build_offset_fetch_response, reply, spans, sort=request.all_topics, in_zookeeper=there
        )
        aside = make_aside if request.all_topics else work_through
        answer = await aside(make, len(reply.offsets))
        if request.include_commits and not reply.code:
            await self.add_commits(answer, event.group_id)
        return answer

    async def add_commits(self, answer: pb.OffsetFetchResponse, group_id: str) -> None:
        """Fill in how positions moved, as samples have seen it."""
        if self._history is not None:
            await add_sampled_commits(answer, self._history, group_id)

    async def _places_in_zookeeper(self, group_id: str) -> PartitionTuple:
        """Where the group has positions there; nowhere while it is away, of which the answer tells."""
        if self._observed is None or not self._observed.knows(group_id):
            return ()
        with suppress(CoordinatorError):
            return tuple(await self._observed.positions(group_id))
        return ()

    async def _with_positions(
        self, observed: ZooKeeperGroups, group_id: str, reply: effects.OffsetFetchReply, everything: bool
    ) -> tuple[effects.OffsetFetchReply, frozenset[tuple[str, int]]]:
        """With what the group keeps in ZooKeeper, and where that is what counts."""
        try:
            positions = await observed.positions(group_id)
        except CoordinatorError as error:
            return effects.OffsetFetchReply(error.code, error.message), frozenset()
        both = merge_zookeeper_positions(reply, positions, everything=everything)
        return both, frozenset(tp for tp in positions if both.offsets.get(tp) is not reply.offsets.get(tp))

    async def _commit(self, event: events.OffsetCommit, include_zookeeper: bool) -> effects.OffsetCommitReply:
        """To the log; a tool's commit also to where a group of the ZooKeeper era looks for it, or only there."""
        shard = self._shard_of(event.group_id)
        if include_zookeeper and self._observed is not None and self._observed.knows(event.group_id):
            everything = events.OffsetFetch(self._driver.next_id(), event.group_id, None)
            kept = await self._driver.ask_shard(shard, everything, effects.OffsetFetchReply)
            positions = {tp: offset for tp, (offset, _, _) in event.offsets.items()}
            written = await self._observed.set_positions(event.group_id, positions)
            if written.code or not kept.offsets:
                return written
        return await self._driver.ask_shard(shard, event, effects.OffsetCommitReply)

    async def txn_offset_commit(self, request: pb.TxnOffsetCommitRequest, call: RpcCall) -> pb.TxnOffsetCommitResponse:
        """As `offset_commit`, but that the coordinator of the transactional id is asked before the group is."""
        rows = group_requests.count_partitions(request.topics)
        event = await work_through(
            partial(group_requests.parse_txn_offset_commit, request, self._driver.next_id()), rows
        )
        catalog = self._partitions()
        separate = partial(group_responses.separate_unknown_partitions, event, catalog)
        known, unknown = await work_through(separate, rows)
        reply = effects.TxnOffsetCommitReply()
        if known.offsets or not event.offsets:
            reply = await self._commit_in_transaction(request.transactional_id, known)
        return await work_through(
            partial(group_responses.build_txn_commit_response, event, unknown, reply, catalog), rows
        )

    async def _commit_in_transaction(
        self, transactional_id: str, event: events.TxnOffsetCommit
    ) -> effects.TxnOffsetCommitReply:
        if self._transactions is None:
            return effects.TxnOffsetCommitReply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
        if not event.group_id:
            return effects.TxnOffsetCommitReply(ErrorCode.INVALID_GROUP_ID)
        return await self._transactions.commit(transactional_id, event)

    async def offset_delete(self, request: pb.OffsetDeleteRequest, call: RpcCall) -> pb.OffsetDeleteResponse:
        """Partitions that do not exist are refused for themselves; a group in ZooKeeper may know others."""
        event = group_requests.parse_offset_delete(request, self._driver.next_id(), client_host=call.peer_host)
        if self._observed is not None and self._observed.knows(event.group_id):
            reply = await delete_in_slices(event.partitions, partial(self._deleted, event))
            if reply.code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                reply = await self._observed.delete_positions(event.group_id, event.partitions)
        else:
            reply = await delete_existing(self._partitions(), event.partitions, partial(self._deleted, event))
        return await work_through(lambda: group_responses.build_offset_delete_response(reply), len(reply.partitions))

    async def _deleted(self, event: events.OffsetDelete, places: PartitionTuple) -> effects.OffsetDeleteReply:
        part = replace(event, request_id=self._driver.next_id(), partitions=places)
        return await self._driver.ask_shard(self._shard_of(event.group_id), part, effects.OffsetDeleteReply)

    async def list_groups(self, request: pb.ListGroupsRequest, call: RpcCall) -> pb.ListGroupsResponse:
        """All shards' groups; shards that moved away are left out, another failure becomes the answer's code."""
        if request.with_settings:
            return await self._with_settings()
        asked = group_requests.parse_list_groups(request, self._driver.next_id())
        wanted = GroupFilter(asked.states, asked.types)
        return await self._listed.get(wanted, partial(self._list_all, wanted))

    async def _list_all(self, wanted: GroupFilter) -> pb.ListGroupsResponse:
        """For all who ask at once: nobody may change it."""
        replies = await self._lists.get(wanted)
        failed, found = await make_aside(lambda: merge_group_lists(replies), count_groups(replies))
        answer = pb.ListGroupsResponse(
            error_code=group_responses.to_error_code(failed.code if failed else ErrorCode.NONE),
            error_message=error_sentence(failed.code, failed.message) if failed else "",
        )
        breath = LoopSlice()
        for group in found:
            answer.groups.append(group_responses.build_listed_group(group))
            await breath.yield_if_used()
        await add_progress(answer.groups, self._history)
        return answer

    async def _list_shard(self, shard: int, wanted: GroupFilter) -> effects.ListReply:
        return await self._driver.ask_shard(
            shard, events.ListGroups(self._driver.next_id(), *wanted), effects.ListReply
        )

    async def _with_settings(self) -> pb.ListGroupsResponse:
        questions = [(shard, events.ListSettings(self._driver.next_id())) for shard in range(self._shards)]
        replies = await self._driver.ask_all(questions, effects.ListSettingsReply)
        told = [reply for reply in replies if reply.code is not ErrorCode.NOT_COORDINATOR]
        failed = next((reply for reply in told if reply.code is not ErrorCode.NONE), None)
        return pb.ListGroupsResponse(
            error_code=group_responses.to_error_code(failed.code if failed else ErrorCode.NONE),
            error_message=error_sentence(failed.code, failed.message) if failed else "",
            groups=[pb.ListedGroup(group_id=group) for reply in told for group in reply.group_ids],
        )

    async def describe_groups(self, request: pb.DescribeGroupsRequest, call: RpcCall) -> pb.DescribeGroupsResponse:
        names = group_requests.parse_group_ids("groups", request.groups)
        answer, breath = pb.DescribeGroupsResponse(), LoopSlice()
        async for group_id, reply in self._ask_each(names, events.DescribeGroup, effects.DescribeReply):
            group = await make_aside(partial(group_control.build_controlled_group, group_id, reply), len(reply.members))
            group_responses.add_refused_commits([group], self._driver.refused_commits)
            group_responses.add_takeovers([group], self._driver.taken_over)
            answer.groups.append(group)
            await breath.yield_if_used()
        await add_progress(answer.groups, self._history)
        return answer

    async def _ask_each(
        self, names: Sequence[str], make: Callable[[int, str], events.Request], wanted: type[AskedReply]
    ) -> AsyncIterator[tuple[str, AskedReply]]:
        """Each group's reply to the event that `make` makes of a request id and the group, one caller's slice in each
        turn."""
        for begin in range(0, len(names), MAX_GROUPS_PER_TURN):
            await slice_queue().wait()
            some = names[begin : begin + MAX_GROUPS_PER_TURN]
            questions = [(self._shard_of(group_id), make(self._driver.next_id(), group_id)) for group_id in some]
            for pair in zip(some, await self._driver.ask_all(questions, wanted), strict=True):
                yield pair

    async def delete_groups(self, request: pb.DeleteGroupsRequest, call: RpcCall) -> pb.DeleteGroupsResponse:
        names = group_requests.parse_group_ids("groups_names", request.groups_names)
        by = name_operator(call.peer_host, request_limits.check_reason("reason", request.reason))
        there_too = self._observed is not None
        questions = [
            (self._shard_of(group_id), events.DeleteGroup(self._driver.next_id(), group_id, there_too, by))
            for group_id in names
        ]
        replies = await self._driver.ask_all(questions, effects.DeleteReply)
        if self._observed is not None:
            replies = [await self._deleted_there_too(*pair) for pair in zip(names, replies, strict=True)]
        results = [group_responses.build_deleted_group(*pair) for pair in zip(names, replies, strict=True)]
        return pb.DeleteGroupsResponse(results=results)

    async def _deleted_there_too(self, group_id: str, reply: effects.DeleteReply) -> effects.DeleteReply:
        """The log has let the group go, or never had it: now ZooKeeper."""
        known = self._observed is not None and self._observed.knows(group_id)
        if self._observed is None or not known or reply.code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return reply
        return await self._observed.delete(group_id)

    async def describe_group_settings(
        self, request: pb.DescribeGroupSettingsRequest, call: RpcCall
    ) -> pb.DescribeGroupSettingsResponse:
        event = events.DescribeSettings(self._driver.next_id(), request_limits.check_name("group_id", request.group_id))
        reply = await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.SettingsReply)
        return group_responses.build_described_settings(reply)

    async def alter_group_settings(
        self, request: pb.AlterGroupSettingsRequest, call: RpcCall
    ) -> pb.AlterGroupSettingsResponse:
        event = group_requests.parse_alter_settings(request, self._driver.next_id(), client_host=call.peer_host)
        reply = await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.SettingsReply)
        return group_responses.build_altered_settings(reply)

    async def explain_group(self, request: pb.ExplainGroupRequest, call: RpcCall) -> pb.ExplainGroupResponse:
        event = group_requests.parse_explain_group(request, self._driver.next_id())
        reply = await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.ExplainReply)
        make = partial(
            group_responses.build_explanation,
            event.group_id,
            reply,
            with_snapshots=request.include_snapshots,
            room=self._snapshot_bytes,
        )
        return await make_aside(make, sum(len(each.members) + len(each.moves) for each in reply.entries))

    async def watch_group(self, request: pb.WatchGroupRequest, call: RpcCall) -> AsyncIterator[pb.WatchGroupResponse]:
        """The group as it is now, then every change; a group that is not there yet is "Dead".

        How it gets on is told with each, and a sample that finds it otherwise is a change as well.
        """
        group_id = request_limits.check_name("group_id", request.group_id)
        if self._watchers.full:
            raise Overloaded(f"{len(self._watchers)} watchers are open, as many as this node keeps; close some first")
        watcher = self._watchers.add(group_id)
        try:
            told = group_responses.build_watch_response(await self._current(group_id), skipped=0)
            while True:
                await add_progress([told], self._history)
                yield told
                told = await self._next(watcher, told)
        finally:
            self._watchers.remove(group_id, watcher)

    async def _next(self, watcher: GroupWatcher, told: pb.WatchGroupResponse) -> pb.WatchGroupResponse:
        """What is to be told after this: a notice, or the same state, when the group gets on in another way by now."""
        while True:
            notice, skipped = await watcher.get()
            if notice is not None:
                return group_responses.build_watch_response(notice, skipped)
            if self._history is not None and progress_changed(
                told.progress, build_progress(self._history, told.group_id)
            ):
                return pb.WatchGroupResponse(
                    group_id=told.group_id, group_state=told.group_state, generation_id=told.generation_id
                )

    async def simulate_assignment(
        self, request: pb.SimulateAssignmentRequest, call: RpcCall
    ) -> pb.SimulateAssignmentResponse:
        return await self._simulator.simulate(request, call)

    async def describe_node(self, request: pb.DescribeNodeRequest, call: RpcCall) -> pb.DescribeNodeResponse:
        conditions = [group_responses.build_condition(condition) for condition in self._conditions.current()]
        resources = await asyncio.to_thread(self._resources)
        return pb.DescribeNodeResponse(
            node_id=self._endpoint().node_id,
            conditions=conditions,
            now_ms=self._conditions.now_ms(),
            resources=resources,
        )

    def session(self, requests: AsyncIterator[pb.SessionRequest], call: RpcCall) -> AsyncIterator[pb.SessionResponse]:
        return self._sessions.serve(read_to_end(requests), call)

    @property
    def shared_session(self) -> SharedSessionHandler:
        return self._sharing

    async def _current(self, group_id: str) -> effects.GroupChanged:
        event = events.DescribeGroup(self._driver.next_id(), group_id)
        reply = await self._driver.ask_shard(self._shard_of(group_id), event, effects.DescribeReply)
        return effects.GroupChanged(group_id, reply.state, reply.generation)

    def _shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self._shards)

    def _log_spans(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """Of those that can be told; one that is damaged hides none of the others."""
        counts = self._partitions()
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        for tp in partitions:
            if partition_exists(counts, *tp):
                with suppress(LogFailed):
                    spans[tp] = self._log_span(*tp)
        return spans


# One of many nodes
# -----------------

LOOK_S: Final = 1.0
"""How often it is looked whether a group that is watched is coordinated here still."""


def name_coordinator(node: NodeAddress | None, shard: int, of: str) -> pb.FindCoordinatorResponse:
    """Of a shard in a cluster; COORDINATOR_NOT_AVAILABLE where nobody leads it."""
    if node is None:
        return pb.FindCoordinatorResponse(
            error_code=group_responses.to_error_code(ErrorCode.COORDINATOR_NOT_AVAILABLE),
            error_message=f"nobody coordinates shard {shard} of the {of} right now; ask again",
            node_id=-1,
            partition=shard,
            in_cluster=True,
        )
    return pb.FindCoordinatorResponse(
        node_id=node.node_id, host=node.host, port=node.port, partition=shard, in_cluster=True
    )


class RoutedGroupCoordinator(GroupCoordinator):
    """As its base; FindCoordinator names other nodes, too.

    `cluster` says who is where; `cut_off` is what is told while this node does not hear of the others.
    """

    def __init__(self, cluster: ClusterView, context: GroupServiceContext, *, cut_off: str) -> None:
        super().__init__(context)
        self._cluster = cluster
        self._cut_off = cut_off
        self.look_s = LOOK_S

    async def find_coordinator(self, request: pb.FindCoordinatorRequest, call: RpcCall) -> pb.FindCoordinatorResponse:
        if request.key_type not in request_limits.GROUP_KEYS:
            return await self._find_of_transactions(request)
        shard = self._shard_of(request_limits.check_name("key", request.key))
        if self._cluster.cut_off:
            raise TemporarilyUnknown(self._cut_off)
        node = self._cluster.coordinator(shard, GRPC)
        answer = name_coordinator(node, shard, "groups")
        if node is not None:
            answer.members_per_stream = MEMBERS_PER_STREAM
        return answer

    def _coordinator_of_shard(self, shard: int) -> pb.FindCoordinatorResponse:
        if self._cluster.cut_off:
            raise TemporarilyUnknown(self._cut_off)
        return name_coordinator(
            leader_address(self._cluster, TRANSACTIONS_TOPIC, shard, GRPC), shard, "transactional ids"
        )

    async def _list_all(self, wanted: GroupFilter) -> pb.ListGroupsResponse:
        """This node's groups, which are not all."""
        answer = await super()._list_all(wanted)
        answer.in_cluster = True
        return answer

    async def _with_settings(self) -> pb.ListGroupsResponse:
        answer = await super()._with_settings()
        answer.in_cluster = True
        return answer

    async def _next(self, watcher: GroupWatcher, told: pb.WatchGroupResponse) -> pb.WatchGroupResponse:
        """A group that moves to another node has no more notices here: its watcher is sent after it."""
        waiting = asyncio.ensure_future(super()._next(watcher, told))
        try:
            while not (await asyncio.wait([waiting], timeout=self.look_s))[0]:
                self._coordinates(told.group_id)
            return await waiting
        finally:
            waiting.cancel()

    async def _current(self, group_id: str) -> effects.GroupChanged:
        self._coordinates(group_id)
        return await super()._current(group_id)

    def _coordinates(self, group_id: str) -> None:
        """Raises NodeShuttingDown, at which clients look for the coordinator."""
        if not coordinates_shard(self._cluster, self._shard_of(group_id)):
            raise NodeShuttingDown(f"this node does not coordinate group '{group_id}'; find the coordinator again")
