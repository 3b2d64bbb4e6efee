"""GroupCoordinator: each method asks the shard that holds the group, by way of the driver. No transport here."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from muster.assignors.plugin_pool import Isolation
from muster.coordinator.core.kinds.views import CENTRAL
from muster.coordinator.core.model import core_events, effects
from muster.coordinator.edge import shape
from muster.coordinator.edge.catalog import partition_exists
from muster.coordinator.edge.elsewhere import merge_zookeeper_positions
from muster.coordinator.edge.listing import merge_group_lists
from muster.coordinator.edge.positions import (
    PartitionTuple,
    delete_existing,
    delete_in_slices,
    fetch_in_slices,
    run_off_loop_if_large,
)
from muster.coordinator.edge.rights import UNRESTRICTED, TopicRightsSource
from muster.coordinator.edge.words import error_sentence, name_operator
from muster.coordinator.errors import CoordinatorError, ErrorCode, Overloaded
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.conditions import Conditions
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.driver.drive import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import (
    answers,
    answers_consumer,
    committed,
    controls,
    translate,
    translate_consumer,
)
from muster.coordinator.server.services.assignment_simulation import AssignmentSimulator
from muster.coordinator.server.services.central_election import CentralElection
from muster.coordinator.server.services.observed import ZooKeeperGroups
from muster.coordinator.server.services.progress import add_progress, build_progress, progress_changed
from muster.coordinator.server.services.session import ServerSessions, read_to_end
from muster.coordinator.server.services.shared_session import MEMBERS_PER_STREAM, SharedSessionHandler
from muster.coordinator.server.services.watch import GroupWatcher, GroupWatchers

if TYPE_CHECKING:
    from muster.coordinator.observability.history.history import GroupHistory

LogSpan: TypeAlias = Callable[[str, int], tuple[int, int]]
"""(log start, high watermark) of an existing partition. Raises LogFailed when its log is away or damaged."""


@dataclass(frozen=True, slots=True)
class ClientEndpoint:
    """Where clients reach this node."""

    node_id: int
    host: str
    port: int


class GroupCoordinator:
    """The handlers.

    `snapshot_bytes` bounds what one ExplainGroup carries of assignors' inputs, `endpoint` is what FindCoordinator
    answers, `partitions` gives the catalog's partition counts, `log_span` where a partition's log begins and ends,
    `conditions` what is wrong with the node, `resources` what its process has (called in a thread), `plugins` the
    classes of assignors that it offers by their names, `observed` the groups of a ZooKeeper, if there is one, `central`
    who is elected there for central groups, `rights_of` what a member may read.
    """

    def __init__(
        self,
        driver: EngineDriver,
        watchers: GroupWatchers,
        sessions: ServerSessions,
        *,
        shards: int,
        snapshot_bytes: int,
        endpoint: Callable[[], ClientEndpoint],
        partitions: Callable[[], Mapping[str, int]],
        log_span: LogSpan,
        conditions: Conditions,
        resources: Callable[[], pb.NodeResources],
        isolation: Isolation,
        assignor_deadline_ms: int,
        plugins: Mapping[str, str],
        observed: ZooKeeperGroups | None = None,
        central: CentralElection | None = None,
        history: "GroupHistory | None" = None,
        rights_of: TopicRightsSource = UNRESTRICTED,
    ) -> None:
        self._rights_of = rights_of
        self._driver = driver
        self._watchers = watchers
        self._sessions = sessions
        self._sharing = SharedSessionHandler(lambda requests, call: sessions.serve(requests, call))
        self._shards = shards
        self._snapshot_bytes = snapshot_bytes
        self._endpoint = endpoint
        self._partitions = partitions
        self._log_span = log_span
        self._conditions = conditions
        self._resources = resources
        self._observed = observed
        self._central = central
        self._history = history
        self._simulator = AssignmentSimulator(
            driver,
            shard_of=self._shard_of,
            partitions=partitions,
            spans=self._log_spans,
            decide=lambda assignor, snapshot, withhold: isolation.run(
                assignor, snapshot, assignor_deadline_ms, withhold=withhold, remedy="raise group.assignor.deadline.ms"
            ),
            plugins=plugins,
            elsewhere=None if observed is None else observed.positions,
        )

    async def find_coordinator(self, request: pb.FindCoordinatorRequest, call: RpcCall) -> pb.FindCoordinatorResponse:
        endpoint = self._endpoint()
        if request.group_protocol == CENTRAL and self._central is not None and not self._central.elected:
            elected = await self._central.coordinator()
            if elected is None:
                code = answers.to_error_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return pb.FindCoordinatorResponse(error_code=code, error_message=self._central.why_nobody())
            endpoint = ClientEndpoint(*elected)
        return pb.FindCoordinatorResponse(
            node_id=endpoint.node_id,
            host=endpoint.host,
            port=endpoint.port,
            partition=self._shard_of(shape.check_name("key", request.key)),
            members_per_stream=MEMBERS_PER_STREAM,
        )

    async def join_group(self, request: pb.JoinGroupRequest, call: RpcCall) -> pb.JoinGroupResponse:
        event = translate.parse_join_group(
            request,
            self._driver.next_id(),
            fresh_id=str(uuid4()),
            client_host=call.peer_host,
            client_software=call.client_software,
            rights=self._rights_of.of(call.identity),
        )
        return answers.build_join_response(
            await self._driver.ask(self._shard_of(event.group_id), event, effects.JoinReply)
        )

    async def sync_group(self, request: pb.SyncGroupRequest, call: RpcCall) -> pb.SyncGroupResponse:
        event = translate.parse_sync_group(request, self._driver.next_id())
        return answers.build_sync_response(
            await self._driver.ask(self._shard_of(event.group_id), event, effects.SyncReply)
        )

    def heartbeat_well(self, request: pb.HeartbeatRequest, call: RpcCall) -> bool:
        """The usual one takes the short way: no event, no turn, no future (docs/performance.md)."""
        group_id, who, rights_of = request.group_id, call.identity, self._rights_of
        rights = who.told.rights if who.told.moment is rights_of.moment else rights_of.of(who)
        return not request.HasField("group_instance_id") and self._driver.beat(
            self._shard_of(group_id), group_id, request.member_id, request.generation_id, rights
        )

    async def heartbeat(self, request: pb.HeartbeatRequest, call: RpcCall) -> pb.HeartbeatResponse:
        if self.heartbeat_well(request, call):
            return pb.HeartbeatResponse()
        event = translate.parse_heartbeat(request, self._driver.next_id(), self._rights_of.of(call.identity))
        shard = self._shard_of(event.group_id)
        return answers.build_heartbeat_response(await self._driver.ask(shard, event, effects.HeartbeatReply))

    async def consumer_group_heartbeat(
        self, request: pb.ConsumerGroupHeartbeatRequest, call: RpcCall
    ) -> pb.ConsumerGroupHeartbeatResponse:
        event = translate_consumer.parse_consumer_heartbeat(
            request,
            self._driver.next_id(),
            client_host=call.peer_host,
            client_software=call.client_software,
            rights=self._rights_of.of(call.identity),
        )
        shard = self._shard_of(event.group_id)
        return answers_consumer.build_consumer_heartbeat_response(
            await self._driver.ask(shard, event, effects.ConsumerHeartbeatReply)
        )

    async def consumer_group_describe(
        self, request: pb.ConsumerGroupDescribeRequest, call: RpcCall
    ) -> pb.ConsumerGroupDescribeResponse:
        names = translate.parse_group_ids("group_ids", request.group_ids)
        questions = [
            (self._shard_of(group_id), core_events.DescribeConsumerGroup(self._driver.next_id(), group_id))
            for group_id in names
        ]
        replies = await self._driver.ask_all(questions, effects.DescribeConsumerReply)
        groups = [answers_consumer.build_described_consumer_group(*pair) for pair in zip(names, replies, strict=True)]
        return pb.ConsumerGroupDescribeResponse(groups=groups)

    async def leave_group(self, request: pb.LeaveGroupRequest, call: RpcCall) -> pb.LeaveGroupResponse:
        event = translate.parse_leave_group(request, self._driver.next_id())
        return answers.build_leave_response(
            await self._driver.ask(self._shard_of(event.group_id), event, effects.LeaveReply)
        )

    async def remove_members(self, request: pb.RemoveMembersRequest, call: RpcCall) -> pb.RemoveMembersResponse:
        event = translate.parse_remove_members(request, self._driver.next_id(), client_host=call.peer_host)
        return answers.build_remove_members_response(
            await self._driver.ask(self._shard_of(event.group_id), event, effects.LeaveReply)
        )

    async def offset_commit(self, request: pb.OffsetCommitRequest, call: RpcCall) -> pb.OffsetCommitResponse:
        """Partitions that the catalog does not know are refused one by one; the core judges the rest, all at once.

        Very many are read, and answered, beside the loop. Calls have no order among them: whoever wants one commits
        again when the commit before is answered.
        """
        rows = translate.count_partitions(request.topics)
        read = partial(translate.parse_offset_commit, request, self._driver.next_id(), client_host=call.peer_host)
        event = await run_off_loop_if_large(read, rows)
        catalog = self._partitions()
        unknown = committed.find_unknown_partitions(event, catalog)
        reply = effects.OffsetCommitReply()
        if len(unknown) < len(event.offsets) or not event.offsets:
            reply = await self._commit(committed.keep_known_partitions(event, unknown), request.include_zookeeper)
        return await run_off_loop_if_large(
            partial(committed.build_checked_commit_response, event, unknown, reply, catalog), rows
        )

    async def offset_fetch(self, request: pb.OffsetFetchRequest, call: RpcCall) -> pb.OffsetFetchResponse:
        """Very many positions slice by slice, each with its log's span at that moment: no lag is less than nothing."""
        event = await run_off_loop_if_large(
            partial(translate.parse_offset_fetch, request, self._driver.next_id()),
            translate.count_partitions(request.topics),
        )
        shard = self._shard_of(event.group_id)
        if request.all_topics and request.include_log_offsets:
            everything = await self._driver.ask(shard, event, effects.OffsetFetchReply)
            if everything.code:
                return answers.build_offset_fetch_response(everything)
            named = translate.list_named_partitions(request.topics)
            elsewhere = await self._places_in_zookeeper(event.group_id) if request.include_zookeeper else ()
            event = replace(event, partitions=tuple({*everything.offsets, *named, *elsewhere}))
        spans: dict[tuple[str, int], tuple[int, int]] = {}

        async def ask(places: PartitionTuple | None) -> effects.OffsetFetchReply:
            part = replace(event, request_id=self._driver.next_id(), partitions=places)
            if not request.include_log_offsets:
                return await self._driver.ask(shard, part, effects.OffsetFetchReply)
            reply, seen = await self._driver.ask_and_look(
                shard, part, effects.OffsetFetchReply, lambda: self._log_spans(places or ())
            )
            spans.update(seen)
            return reply

        reply = await fetch_in_slices(event.partitions, ask)
        there: frozenset[tuple[str, int]] = frozenset()
        if request.include_zookeeper and self._observed is not None and self._observed.knows(event.group_id):
            reply, there = await self._with_positions(self._observed, event.group_id, reply, request.all_topics)
        make = partial(answers.build_offset_fetch_response, reply, spans, sort=request.all_topics, in_zookeeper=there)
        return await run_off_loop_if_large(make, len(reply.offsets))

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

    async def _commit(self, event: core_events.OffsetCommit, include_zookeeper: bool) -> effects.OffsetCommitReply:
        """To the log; a tool's commit also to where a group of the ZooKeeper era looks for it, or only there."""
        shard = self._shard_of(event.group_id)
        if include_zookeeper and self._observed is not None and self._observed.knows(event.group_id):
            everything = core_events.OffsetFetch(self._driver.next_id(), event.group_id, None)
            kept = await self._driver.ask(shard, everything, effects.OffsetFetchReply)
            positions = {tp: offset for tp, (offset, _, _) in event.offsets.items()}
            written = await self._observed.set_positions(event.group_id, positions)
            if written.code or not kept.offsets:
                return written
        return await self._driver.ask(shard, event, effects.OffsetCommitReply)

    async def offset_delete(self, request: pb.OffsetDeleteRequest, call: RpcCall) -> pb.OffsetDeleteResponse:
        """Partitions that do not exist are refused for themselves; a group in ZooKeeper may know others."""
        event = translate.parse_offset_delete(request, self._driver.next_id(), client_host=call.peer_host)
        if self._observed is not None and self._observed.knows(event.group_id):
            reply = await delete_in_slices(event.partitions, partial(self._deleted, event))
            if reply.code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                reply = await self._observed.delete_positions(event.group_id, event.partitions)
        else:
            reply = await delete_existing(self._partitions(), event.partitions, partial(self._deleted, event))
        return await run_off_loop_if_large(lambda: answers.build_offset_delete_response(reply), len(reply.partitions))

    async def _deleted(self, event: core_events.OffsetDelete, places: PartitionTuple) -> effects.OffsetDeleteReply:
        part = replace(event, request_id=self._driver.next_id(), partitions=places)
        return await self._driver.ask(self._shard_of(event.group_id), part, effects.OffsetDeleteReply)

    async def list_groups(self, request: pb.ListGroupsRequest, call: RpcCall) -> pb.ListGroupsResponse:
        """All shards' groups; shards that moved away are left out, another failure becomes the answer's code."""
        if request.with_settings:
            return await self._with_settings()
        template = translate.parse_list_groups(request, self._driver.next_id())
        questions = [(shard, replace(template, request_id=self._driver.next_id())) for shard in range(self._shards)]
        replies = await self._driver.ask_all(questions, effects.ListReply)
        failed, found = merge_group_lists(replies)
        groups = [answers.build_listed_group(group) for group in found]
        await add_progress(groups, self._history)
        return pb.ListGroupsResponse(
            error_code=answers.to_error_code(failed.code if failed else ErrorCode.NONE),
            error_message=error_sentence(failed.code, failed.message) if failed else "",
            groups=groups,
        )

    async def _with_settings(self) -> pb.ListGroupsResponse:
        questions = [(shard, core_events.ListSettings(self._driver.next_id())) for shard in range(self._shards)]
        replies = await self._driver.ask_all(questions, effects.ListSettingsReply)
        told = [reply for reply in replies if reply.code is not ErrorCode.NOT_COORDINATOR]
        failed = next((reply for reply in told if reply.code is not ErrorCode.NONE), None)
        return pb.ListGroupsResponse(
            error_code=answers.to_error_code(failed.code if failed else ErrorCode.NONE),
            error_message=error_sentence(failed.code, failed.message) if failed else "",
            groups=[pb.ListedGroup(group_id=group) for reply in told for group in reply.group_ids],
        )

    async def describe_groups(self, request: pb.DescribeGroupsRequest, call: RpcCall) -> pb.DescribeGroupsResponse:
        names = translate.parse_group_ids("groups", request.groups)
        questions = [
            (self._shard_of(group_id), core_events.DescribeGroup(self._driver.next_id(), group_id))
            for group_id in names
        ]
        replies = await self._driver.ask_all(questions, effects.DescribeReply)
        groups = [controls.build_controlled_group(*pair) for pair in zip(names, replies, strict=True)]
        answers.add_refused_commits(groups, self._driver.refused_commits)
        answers.add_takeovers(groups, self._driver.taken_over)
        await add_progress(groups, self._history)
        return pb.DescribeGroupsResponse(groups=groups)

    async def delete_groups(self, request: pb.DeleteGroupsRequest, call: RpcCall) -> pb.DeleteGroupsResponse:
        names = translate.parse_group_ids("groups_names", request.groups_names)
        by = name_operator(call.peer_host, shape.check_reason("reason", request.reason))
        there_too = self._observed is not None
        questions = [
            (self._shard_of(group_id), core_events.DeleteGroup(self._driver.next_id(), group_id, there_too, by))
            for group_id in names
        ]
        replies = await self._driver.ask_all(questions, effects.DeleteReply)
        if self._observed is not None:
            replies = [await self._deleted_there_too(*pair) for pair in zip(names, replies, strict=True)]
        results = [answers.build_deleted_group(*pair) for pair in zip(names, replies, strict=True)]
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
        event = core_events.DescribeSettings(self._driver.next_id(), shape.check_name("group_id", request.group_id))
        reply = await self._driver.ask(self._shard_of(event.group_id), event, effects.SettingsReply)
        return answers.build_described_settings(reply)

    async def alter_group_settings(
        self, request: pb.AlterGroupSettingsRequest, call: RpcCall
    ) -> pb.AlterGroupSettingsResponse:
        event = translate.parse_alter_settings(request, self._driver.next_id(), client_host=call.peer_host)
        reply = await self._driver.ask(self._shard_of(event.group_id), event, effects.SettingsReply)
        return answers.build_altered_settings(reply)

    async def explain_group(self, request: pb.ExplainGroupRequest, call: RpcCall) -> pb.ExplainGroupResponse:
        event = translate.parse_explain_group(request, self._driver.next_id())
        reply = await self._driver.ask(self._shard_of(event.group_id), event, effects.ExplainReply)
        return answers.build_explanation(
            event.group_id, reply, with_snapshots=request.include_snapshots, room=self._snapshot_bytes
        )

    async def watch_group(self, request: pb.WatchGroupRequest, call: RpcCall) -> AsyncIterator[pb.WatchGroupResponse]:
        """The group as it is now, then every change; a group that is not there yet is "Dead".

        How it gets on is told with each, and a sample that finds it otherwise is a change as well.
        """
        group_id = shape.check_name("group_id", request.group_id)
        if self._watchers.full:
            raise Overloaded(f"{len(self._watchers)} watchers are open, as many as this node keeps; close some first")
        watcher = self._watchers.add(group_id)
        try:
            told = answers.build_watch_response(await self._current(group_id), skipped=0)
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
                return answers.build_watch_response(notice, skipped)
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
        conditions = [answers.build_condition(condition) for condition in self._conditions.current()]
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
        event = core_events.DescribeGroup(self._driver.next_id(), group_id)
        reply = await self._driver.ask(self._shard_of(group_id), event, effects.DescribeReply)
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
