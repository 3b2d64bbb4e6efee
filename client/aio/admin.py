"""The admin client for asyncio: topics, groups, offsets, and why a group rebalanced.

In a cluster each node coordinates its own groups, so lists and descriptions are gathered from all nodes; a node that
goes down meanwhile is asked again elsewhere. Protobuf answers become the values of `muster.client.described`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from grpc_health.v1 import health_pb2

from muster.assignors.api import JsonValue, Snapshot
from muster.client.aio.cluster_admin import AccountCalls, AclCalls, ClusterCalls, QuotaCalls
from muster.client.aio.group_control import CanaryCalls, GroupControlCalls
from muster.client.aio.transaction_admin import TransactionAdminCalls
from muster.client.calls import methods
from muster.client.calls.coordinator_search import ELSEWHERE, check_code
from muster.client.calls.group_calls import GroupCalls, check_group_id
from muster.client.calls.topic_calls import PartitionCounts, delete_records, list_offsets
from muster.client.calls.transport import CallRetry, Transport
from muster.client.config import ClientConfig, load
from muster.client.described import (
    FailedLogins,
    GroupDescription,
    GroupListing,
    GroupSettings,
    NodeCondition,
    NodeStatus,
    PartitionLag,
    TopicDescription,
)
from muster.client.errors import Refused, TransportRefused, UnknownTopic, Unreachable, refusal
from muster.client.members.subscription import group_by_topic
from muster.client.types import IsolationLevel, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from muster.coordinator.observability.read_model.commit_history import CommitHistory
from muster.coordinator.observability.read_model.group_mapper import map_group, map_listing, optional_field
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1.ledger_pb2 import CoordinatorMove, NodeStall, Rebalance
from muster.storage.rpc.v1 import broker_service_pb2 as pb

if TYPE_CHECKING:
    from muster.client.membership.zookeeper_offsets import MovedOffset


# Values from protobuf
# --------------------


def read_node_status(answer: group_pb.DescribeNodeResponse) -> NodeStatus:
    conditions = tuple(
        NodeCondition(c.name, c.sentence, c.since_ms, c.count, c.impairs, c.warning) for c in answer.conditions
    )
    if not answer.HasField("resources"):
        return NodeStatus(answer.now_ms or None, conditions)
    has = answer.resources
    return NodeStatus(
        answer.now_ms,
        conditions,
        optional_field(has, "open_descriptors"),
        optional_field(has, "descriptor_limit"),
        optional_field(has, "resident_bytes"),
        optional_field(has, "memory_bytes"),
        optional_field(has, "disk_free_bytes"),
        optional_field(has, "disk_total_bytes"),
        has.loop_late_ms,
        has.stalls,
        has.stalled_ms,
        has.started_at_ms,
        tuple(FailedLogins(each.door, each.address, each.count, each.why) for each in has.failed_logins),
    )


def read_group_settings(
    answer: group_pb.DescribeGroupSettingsResponse | group_pb.AlterGroupSettingsResponse,
) -> GroupSettings:
    values, defaults = (
        {name: json.loads(text) for name, text in sorted(told.items())} for told in (answer.settings, answer.defaults)
    )
    return GroupSettings(answer.version, values, defaults, answer.suspended)


# Calls to all coordinators
# -------------------------

DESCRIBED_AT_ONCE: Final = 100
"""Groups in one DescribeGroups: their answer has to fit into a message."""


async def list_all_groups(
    transport: Transport, request: group_pb.ListGroupsRequest, missing: Callable[[str], None] | None = None
) -> Iterable[GroupListing]:
    """Of the node that is asked, or of all nodes of its cluster: asked anew while one of them goes down. `missing`
    hears why those of some shards, or of a node that nobody reaches from here, are not among them; without it that is
    raised."""
    doing = "listing groups"
    answer = await transport.retried(methods.LIST_GROUPS, request, doing=doing)
    if not answer.in_cluster:
        check_complete(answer, transport.bootstrap, missing)
        return map(map_listing, answer.groups)
    answers = await list_at_all_nodes(transport, request, doing, missing)
    for node, answer in answers.items():
        check_complete(answer, node, missing)
    # One that moved meanwhile may have been told twice.
    return {group.group_id: map_listing(group) for answer in answers.values() for group in answer.groups}.values()


async def list_at_all_nodes(
    transport: Transport, request: group_pb.ListGroupsRequest, doing: str, missing: Callable[[str], None] | None
) -> dict[str, group_pb.ListGroupsResponse]:
    """By node. One that is cut off from here, and not from the others, stays one of the cluster."""
    patience = CallRetry(transport)
    while True:
        try:
            answers, away = await call_all_nodes(transport, request, doing)
        except Unreachable as error:
            if not await patience.another_try(error):
                raise error.after(patience.waited_ms) from None
            continue
        if not away or not await patience.another_try(next(iter(away.values()))):
            break
    for node, unreachable in away.items():
        if missing is None:
            raise unreachable.after(patience.waited_ms) from unreachable
        missing(f"those of {node}, which is one of the cluster and cannot be reached from here")
    return answers


async def call_all_nodes(
    transport: Transport, request: group_pb.ListGroupsRequest, doing: str
) -> tuple[dict[str, group_pb.ListGroupsResponse], dict[str, Unreachable]]:
    """What each node answers, and who is not reached. Raises Unreachable where nobody says which nodes there are."""
    nodes = await transport.leaders.all_nodes()
    away: dict[str, Unreachable] = {}

    async def ask(node: str) -> group_pb.ListGroupsResponse | None:
        try:
            return await transport.call(methods.LIST_GROUPS, request, doing=doing, address=node)
        except Unreachable as error:
            away[node] = error
            return None

    answers = await asyncio.gather(*map(ask, nodes))
    return {node: answer for node, answer in zip(nodes, answers, strict=True) if answer is not None}, away


def check_complete(answer: group_pb.ListGroupsResponse, node: str, missing: Callable[[str], None] | None) -> None:
    """An answer with a code has the groups of those shards that could be asked."""
    try:
        check_code(answer.error_code, answer.error_message)
    except Refused as refused:
        if missing is None:
            raise
        missing(f"some of {node}: {refused}")


async def describe_all_groups(transport: Transport, names: Sequence[str]) -> list[GroupDescription]:
    """Those that are there, in the order given. In a cluster what one node does not coordinate is asked of all."""
    found: dict[str, GroupDescription] = {}
    for start in range(0, len(names), DESCRIBED_AT_ONCE):
        request = group_pb.DescribeGroupsRequest(groups=names[start : start + DESCRIBED_AT_ONCE])
        answer = await transport.retried(methods.DESCRIBE_GROUPS, request, doing="describing groups")
        check_code(answer.error_code, "")
        found |= read_existing_groups(answer, transport.bootstrap)
        elsewhere = [group.group_id for group in answer.groups if group.error_code in ELSEWHERE]
        if elsewhere:
            found |= await describe_at_all_nodes(transport, group_pb.DescribeGroupsRequest(groups=elsewhere))
    return [found[name] for name in names if name in found]


async def describe_at_all_nodes(
    transport: Transport, request: group_pb.DescribeGroupsRequest
) -> dict[str, GroupDescription]:
    nodes = await transport.leaders.all_nodes()
    answers = await asyncio.gather(
        *(transport.call(methods.DESCRIBE_GROUPS, request, doing="describing groups", address=node) for node in nodes),
        return_exceptions=True,
    )
    found: dict[str, GroupDescription] = {}
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, Unreachable):
            continue  # A node that goes down: its groups have no coordinator right now.
        if isinstance(answer, BaseException):
            raise answer
        found |= read_existing_groups(answer, node)
    return found


def read_existing_groups(answer: group_pb.DescribeGroupsResponse, address: str) -> dict[str, GroupDescription]:
    groups = (group for group in answer.groups if not group.error_code and group.group_state != "Dead")
    return {group.group_id: map_group(group, address) for group in groups}


async def delete_all_groups(transport: Transport, names: Sequence[str], reason: str) -> None:
    """The first refusal is raised after all were tried."""
    request = group_pb.DeleteGroupsRequest(groups_names=names, reason=reason)
    answer = await transport.call(methods.DELETE_GROUPS, request, doing="deleting groups")
    results = list(answer.results)
    for place, result in enumerate(results):
        if result.error_code in ELSEWHERE:
            results[place] = await delete_group(transport, result.group_id, reason)
    for result in results:
        check_code(result.error_code, result.error_message, result.group_id)


async def delete_group(transport: Transport, group: str, reason: str) -> group_pb.DeletedGroup:
    async def attempt(address: str) -> group_pb.DeletedGroup:
        request = group_pb.DeleteGroupsRequest(groups_names=[group], reason=reason)
        answer = await transport.call(
            methods.DELETE_GROUPS, request, doing=f"deleting group {group!r}", address=address
        )
        result = answer.results[0]
        if result.error_code in ELSEWHERE:
            check_code(result.error_code, result.error_message, group)
        return result

    return await GroupCalls(transport, group).patiently(attempt)


async def watch_at_coordinator(transport: Transport, calls: GroupCalls) -> AsyncIterator[group_pb.WatchGroupResponse]:
    """What the group's coordinator tells of it, whichever node that is; without a cluster until the stream breaks."""

    async def known(address: str) -> str:
        return address

    doing = f"watching group {calls.group_id!r}"
    address, patience = await calls.coordinator(), CallRetry(transport)
    while True:
        request = group_pb.WatchGroupRequest(group_id=calls.group_id)
        try:
            async for change in transport.stream(methods.WATCH_GROUP, request, doing=doing, address=address):
                patience = CallRetry(transport)
                yield change
            return
        except Unreachable as error:
            if not transport.leaders.shared or not await patience.another_try(error):
                raise
        calls.forget_coordinator()
        address = await calls.patiently(known)


# The client
# ----------

GROUP_ID_NOT_FOUND = 69


class AdminConfig(ClientConfig):
    kind: ClassVar[str] = "admin client"


class AsyncAdmin(
    GroupControlCalls, CanaryCalls, AclCalls, QuotaCalls, AccountCalls, ClusterCalls, TransactionAdminCalls
):
    """Everything an operator may ask or change. Refusals are typed errors that name the topic or group."""

    def __init__(self, config: Mapping[str, Any] | None = None, **properties: Any) -> None:
        self._transport = Transport(load(AdminConfig, config, properties))
        self._catalog = PartitionCounts(self._transport, self._transport.config)

    async def conditions(self) -> list[NodeCondition]:
        """Return what is wrong with the node at the moment; empty when nothing is, or the node is too old to report
        it.
        """
        return list((await self.node_status()).conditions)

    async def node_status(self) -> NodeStatus:
        """Return the state of the node: its clock, conditions and process figures. An old node reports few of them."""
        try:
            answer = await self._transport.retried(
                methods.DESCRIBE_NODE, group_pb.DescribeNodeRequest(), doing="asking what is wrong"
            )
        except TransportRefused as error:
            if error.status == "UNIMPLEMENTED":
                return NodeStatus(None, ())
            raise
        return read_node_status(answer)

    async def zookeeper_away(self) -> bool:
        """Return whether the node cannot reach its ZooKeeper: what it reports of groups there is then outdated."""
        request = health_pb2.HealthCheckRequest(service="zookeeper")
        try:
            answer = await self._transport.retried(methods.HEALTH, request, doing="asking whether ZooKeeper is there")
        except TransportRefused as error:
            if error.status == "NOT_FOUND":  # it works without
                return False
            raise
        away: bool = answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        return away

    # Topics

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        *,
        replication_factor: int | None = None,
    ) -> TopicDescription:
        """TopicExists when there is one of that name already. replication_factor: on how many nodes each partition is
        kept; None: the node's default.replication.factor."""
        request = pb.CreateTopicsRequest(validate_only=validate_only)
        request.topics.add(
            name=name, num_partitions=partitions, configs=configs or {}, replication_factor=replication_factor
        )
        answer = await self._transport.call(methods.CREATE_TOPICS, request, doing=f"creating topic {name!r}")
        result = check_single_result(answer.topics)
        self._catalog.forget(name)
        return TopicDescription(result.name, result.num_partitions, result.topic_id.hex(), False, dict(configs or {}))

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics. Raises UnknownTopic for the first that does not exist; the others are deleted."""
        request = pb.DeleteTopicsRequest(topic_names=list(names))
        answer = await self._transport.call(methods.DELETE_TOPICS, request, doing="deleting topics")
        raise_first_refusal(answer.topics)

    async def create_partitions(self, name: str, total: int) -> int:
        """Grow a topic to `total` partitions; keys go to other partitions from then on."""
        request = pb.CreatePartitionsRequest()
        request.topics.add(name=name, count=total)
        doing = f"adding partitions to {name!r}"
        answer = await self._transport.call(methods.CREATE_PARTITIONS, request, doing=doing)
        self._catalog.forget(name)
        return check_single_result(answer.results).num_partitions

    async def list_topics(self, include_internal: bool = False) -> dict[str, int]:
        """Return partition counts by name."""
        return dict(sorted((await self._catalog.fetch_all(include_internal)).items()))

    async def describe_topic(self, name: str) -> TopicDescription:
        """Describe a topic with every setting that applies to it."""
        metadata = await self._transport.retried(
            methods.METADATA, pb.MetadataRequest(topics=[name]), doing=f"looking up topic {name!r}"
        )
        for topic in metadata.topics:
            if topic.error_code:
                raise build_topic_refusal(topic.error_code, topic.error_message, name)
            configs = await self.describe_configs(name)
            return TopicDescription(name, len(topic.partitions), topic.topic_id.hex(), topic.is_internal, configs)
        raise UnknownTopic(3, "UNKNOWN_TOPIC_OR_PARTITION", f"there is no topic {name!r}")

    async def alter_topic(
        self, name: str, configs: Mapping[str, str], unset: Iterable[str] = (), validate_only: bool = False
    ) -> None:
        """Change settings of a topic, and reset those in `unset` to the node's. Other settings stay."""
        request = pb.AlterConfigsRequest(validate_only=validate_only)
        request.topics.add(topic=name, configs=configs, unset=unset)
        answer = await self._transport.call(methods.ALTER_CONFIGS, request, doing=f"changing settings of {name!r}")
        for result in answer.results:
            if result.error_code:
                raise build_topic_refusal(result.error_code, result.error_message, name)

    async def describe_configs(self, topic: str) -> dict[str, str]:
        """Return the effective settings of a topic, by the dotted names of Kafka's topic configs."""
        return await self._settings(pb.DescribeConfigsRequest(topics=[topic]), topic)

    async def describe_node(self) -> dict[str, str]:
        """Return the settings of the node, by their dotted names."""
        return await self._settings(pb.DescribeConfigsRequest(), "the node")

    async def _settings(self, request: pb.DescribeConfigsRequest, about: str) -> dict[str, str]:
        doing = f"reading the settings of {about!r}"
        answer = await self._transport.retried(methods.DESCRIBE_CONFIGS, request, doing=doing)
        for result in answer.results:
            if result.error_code:
                raise build_topic_refusal(result.error_code, result.error_message, about)
        return {entry.name: entry.value for result in answer.results for entry in result.configs}

    async def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Delete records below each offset (-1: all); return the new first offsets."""
        return await delete_records(self._transport, {TopicPartition(*tp): offset for tp, offset in before.items()})

    async def list_offsets(
        self,
        times: Mapping[tuple[str, int], int],
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the first offset at or after each time; -1 is the end, -2 the beginning.

        With read_committed, the end is the last stable offset, and nothing at or after it is found.
        """
        return await list_offsets(
            self._transport,
            {TopicPartition(*tp): at for tp, at in times.items()},
            committed=isolation_level == "read_committed",
        )

    # Groups

    async def list_groups(
        self, states: Sequence[str] = (), types: Sequence[str] = (), missing: Callable[[str], None] | None = None
    ) -> list[GroupListing]:
        """List the groups of all nodes; only those in one of `states` and of one of `types`, where given.

        When a node cannot report some groups, that is raised; with `missing`, it is passed to that as a sentence, and
        the others are returned.
        """
        request = group_pb.ListGroupsRequest(states_filter=states, types_filter=types)
        return sorted(await list_all_groups(self._transport, request, missing), key=lambda group: group.group_id)

    async def describe_group(self, group: str) -> GroupDescription:
        """Describe one group; raises GroupNotFound."""
        calls = GroupCalls(self._transport, group)

        async def attempt(address: str) -> GroupDescription:
            answer = await self._transport.call(
                methods.DESCRIBE_GROUPS,
                group_pb.DescribeGroupsRequest(groups=[group]),
                doing=f"describing group {group!r}",
                address=address,
            )
            check_code(answer.error_code, "", group)
            found = answer.groups[0]
            check_code(found.error_code, found.error_message, group)
            if found.group_state == "Dead":
                check_code(GROUP_ID_NOT_FOUND, "there is no such group", group)
            return map_group(found, address)

        return await calls.patiently(attempt)

    async def describe_groups(self, groups: Iterable[str]) -> list[GroupDescription]:
        """Describe the groups that exist, in the order given, a hundred per call."""
        return await describe_all_groups(self._transport, list(groups))

    async def delete_groups(self, groups: Iterable[str], reason: str = "") -> None:
        """Delete groups. The first GroupNotEmpty or GroupNotFound is raised after all were tried. The ledger keeps
        `reason`.
        """
        names = list(groups)
        for name in names:
            check_group_id(name)
        await delete_all_groups(self._transport, names, reason)

    async def remove_members(
        self, group: str, members: Iterable[str] | None = None, instances: Iterable[str] | None = None, reason: str = ""
    ) -> list[str]:
        """Remove members by id or by instance id, or all members when neither is given; return those removed."""
        request = group_pb.RemoveMembersRequest(group_id=group, reason=reason)
        for member_id in members or ():
            request.members.add(member_id=member_id, reason=reason)
        for instance in instances or ():
            request.members.add(group_instance_id=instance, reason=reason)
        calls = GroupCalls(self._transport, group)
        answer = await calls.once(methods.REMOVE_MEMBERS, request, f"removing members of {group!r}")
        for result in answer.members:
            check_code(result.error_code, result.error_message, result.member_id or result.group_instance_id)
        return [result.member_id or result.group_instance_id for result in answer.members]

    async def group_settings(self, group: str) -> GroupSettings:
        """Return the settings of a group; an unknown group has nothing set."""
        request = group_pb.DescribeGroupSettingsRequest(group_id=group)
        calls = GroupCalls(self._transport, group)
        answer = await calls.once(methods.DESCRIBE_GROUP_SETTINGS, request, f"looking at the settings of {group!r}")
        return read_group_settings(answer)

    async def alter_group_settings(
        self,
        group: str,
        set: Mapping[str, JsonValue] | None = None,
        unset: Iterable[str] = (),
        *,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> GroupSettings:
        """Change settings, all or none; with `expected_version`, only if they are still at that version.

        Returns the settings as they are then, or would be. Raises Refused, which names the setting.
        """
        request = group_pb.AlterGroupSettingsRequest(
            group_id=group,
            set={name: json.dumps(value) for name, value in (set or {}).items()},
            unset=tuple(unset),
            expected_version=expected_version,
            validate_only=validate_only,
            reason=reason,
        )
        calls = GroupCalls(self._transport, group)
        answer = await calls.once(methods.ALTER_GROUP_SETTINGS, request, f"changing the settings of {group!r}")
        return read_group_settings(answer)

    # Offsets

    async def group_offsets(
        self, group: str, *, include_zookeeper: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return everything the group has committed; without ZooKeeper, what it has committed to the log."""
        found = await GroupCalls(self._transport, group).committed(
            None, include_zookeeper=include_zookeeper, require_stable=False
        )
        return {tp: offset for tp, offset in sorted(found.items()) if offset is not None}

    async def alter_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], reason: str = ""
    ) -> None:
        """Set positions of a group without members; a group with members refuses. The ledger keeps the reason."""
        given = {
            TopicPartition(*tp): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for tp, offset in offsets.items()
        }
        await GroupCalls(self._transport, group).commit(given, None, include_zookeeper=True, reason=reason)

    async def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]], reason: str = "") -> None:
        """Delete positions of topics that no member of the group is subscribed to. The ledger keeps the reason."""
        request = group_pb.OffsetDeleteRequest(group_id=group, reason=reason)
        for topic, numbers in group_by_topic(list(partitions)).items():
            request.topics.add(name=topic, partition_indexes=numbers)
        calls = GroupCalls(self._transport, group)
        answer = await calls.once(methods.OFFSET_DELETE, request, f"deleting offsets of {group!r}")
        for topic_result in answer.topics:
            for result in topic_result.partitions:
                check_code(result.error_code, result.error_message, f"{topic_result.name}-{result.partition_index}")

    async def migrate_offsets(
        self, group: str, to: Literal["kafka", "zookeeper"], zookeeper: str, dry_run: bool = False
    ) -> list["MovedOffset"]:
        """Copy the positions that the other store has and this one lacks; `zookeeper` is the connect string.

        Raises GroupNotEmpty while any member does not commit to both.
        """
        from muster.client.membership.zookeeper_offsets import migrate_offsets

        patience_ms = self._transport.config.default_api_timeout_ms
        calls = GroupCalls(self._transport, group)
        return await migrate_offsets(self.describe_group, calls, zookeeper, to, timeout_ms=patience_ms, dry_run=dry_run)

    async def group_lag(
        self, group: str, *, include_zookeeper: bool = True, description: GroupDescription | None = None
    ) -> list[PartitionLag]:
        """Return the lag of the group, for every partition that it reads or has committed.

        Pass a description to save a call for one. Refused when the group keeps positions in a ZooKeeper that is away,
        unless these are left out.
        """
        owners = description.owners() if description is not None else await self._owners(group)
        calls = GroupCalls(self._transport, group, coordinator=description.coordinator if description else None)
        positions = await calls.positions(owners, committed=True, include_zookeeper=include_zookeeper)
        return [
            PartitionLag(tp, at.committed, at.log_start, at.log_end, at.lag(), owners.get(tp, ""), at.committed_at_ms)
            for tp, at in sorted(positions.items())
        ]

    async def commit_history(self, group: str, *, coordinator: str | None = None) -> CommitHistory:
        """Return how the group's positions moved and how often they are committed, as far as its node knows.

        Pass a known coordinator (HOST:PORT, as a description has it) to save a call for it.
        """
        return await GroupCalls(self._transport, group, coordinator=coordinator).commit_history()

    async def _owners(self, group: str) -> dict[TopicPartition, str]:
        try:
            return (await self.describe_group(group)).owners()
        except Refused as error:
            if error.code == GROUP_ID_NOT_FOUND:
                return {}
            raise

    # Why

    async def explain(
        self,
        group: str,
        limit: int = 0,
        generation: int = 0,
        include_snapshots: bool = False,
        *,
        coordinator: str | None = None,
    ) -> list[Rebalance]:
        """Return the ledger's entries of the group's rebalances, newest first; 0 means all, and any.

        Pass a known coordinator (HOST:PORT, as a description has it) to save a call for it.
        """
        request = group_pb.ExplainGroupRequest(
            group_id=group, limit=limit, generation_id=generation, include_snapshots=include_snapshots
        )
        return list((await self._explained(request, coordinator)).rebalances)

    async def stalls(self, group: str, limit: int = 0) -> list[NodeStall]:
        """Return the stalls of the group's node since the first of its last rebalances, newest first."""
        return list((await self._explained(group_pb.ExplainGroupRequest(group_id=group, limit=limit))).stalls)

    async def moves(self, group: str, limit: int = 0) -> list[CoordinatorMove]:
        """Return the nodes that took the group over since the first of its last rebalances, newest first."""
        return list((await self._explained(group_pb.ExplainGroupRequest(group_id=group, limit=limit))).moves)

    async def _explained(
        self, request: group_pb.ExplainGroupRequest, coordinator: str | None = None
    ) -> group_pb.ExplainGroupResponse:
        group = request.group_id

        async def attempt(address: str) -> group_pb.ExplainGroupResponse:
            doing = f"explaining group {group!r}"
            answer = await self._transport.call(methods.EXPLAIN_GROUP, request, doing=doing, address=address)
            check_code(answer.error_code, answer.error_message, group)
            return answer

        return await GroupCalls(self._transport, group, coordinator=coordinator).patiently(attempt)

    async def live_snapshot(self, group: str, reset: str = "") -> Snapshot:
        """Return the group as an assignor would see it now: members, ownership, lags, options. It must be stable.

        `reset`: latest or earliest, for partitions without a commit; empty: as the coordinator counts them, from the
        log's start.
        """
        request = group_pb.SimulateAssignmentRequest(group_id=group, auto_offset_reset=reset)

        async def attempt(address: str) -> Snapshot:
            doing = f"looking at group {group!r}"
            answer = await self._transport.call(methods.SIMULATE_ASSIGNMENT, request, doing=doing, address=address)
            check_code(answer.error_code, answer.error_message, group)
            return Snapshot.from_json(answer.snapshot_json)

        return await GroupCalls(self._transport, group).patiently(attempt)

    async def watch(self, group: str) -> AsyncIterator[group_pb.WatchGroupResponse]:
        """Yield every change of state, generation and plan as it becomes durable, until the caller stops iterating."""
        async for change in watch_at_coordinator(self._transport, GroupCalls(self._transport, group)):
            yield change

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def build_topic_refusal(code: pb.ErrorCode, message: str, about: str) -> Refused:
    return refusal(code, pb.ErrorCode.Name(code), message, about)


def raise_first_refusal(results: Iterable[pb.TopicResult]) -> None:
    for result in results:
        if result.error_code:
            raise build_topic_refusal(result.error_code, result.error_message, result.name)


def check_single_result(results: Sequence[pb.TopicResult]) -> pb.TopicResult:
    raise_first_refusal(results)
    return results[0]
