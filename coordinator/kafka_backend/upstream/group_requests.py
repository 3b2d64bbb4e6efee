"""Requests about the upstream's own groups: their members, their committed offsets, and membership in a classic group.

The caller of `UpstreamMembership` decides by the codes of the answers. Heartbeats have a connection of their own:
the broker holds JoinGroup and SyncGroup until other members have come, and with them everything sent behind them on
the same connection. Nor does a heartbeat wait behind anything else that this node sends.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from muster.assignors.api import TopicPartition
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.connection import ASK, BEAT, LOOK_PURPOSE, MEMBER
from muster.coordinator.kafka_backend.upstream.protocol import WAIT_FOR_COORDINATOR, Unspoken, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream_client import GROUP, PAUSE_S, Upstream

# Groups that the upstream coordinates itself
# -------------------------------------------

LOOK: Final = "look"
"""The purpose of connections for questions that may take their time."""

AT_ONCE: Final = 100
"""Groups in one question."""

POSITIONS_AT_ONCE: Final = 2_000
"""Positions in one commit: brokers bound its record batch by the size of a message."""

UNKNOWN_TOPIC: Final = 3
GROUP_NOT_FOUND: Final = 69
TRIES: Final = 25
BY_STATES: Final = 4
"""The version of ListGroups that takes states."""
CONSUMER: Final = "consumer"
"""The type of KIP-848 groups, and the protocol type of consumers' classic ones."""


class ListedUpstreamGroup(NamedTuple):
    """state, kind: "" where the broker is too old to tell. kind: "classic", "consumer" (KIP-848), "share", ..."""

    group: str
    protocol_type: str
    state: str
    kind: str


class UpstreamMember(NamedTuple):
    id: str
    client_id: str
    host: str


class DescribedUpstreamGroup(NamedTuple):
    state: str
    members: Sequence[UpstreamMember]


NOBODY_THERE: Final = DescribedUpstreamGroup("Dead", ())


class UpstreamOffset(NamedTuple):
    """What a group has committed of a partition. leader_epoch: -1: not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


async def list_groups(upstream: Upstream, broker: int) -> list[ListedUpstreamGroup]:
    """The groups that this broker coordinates, as far as we may see them. Raises UpstreamError."""
    answer = await upstream.ask_broker(broker, "ListGroups", struct("ListGroupsRequest")(), purpose=LOOK)
    if answer.error_code:
        raise UpstreamRefused(f"asking broker {broker} which groups it has", answer.error_code)
    return [
        ListedUpstreamGroup(each.group_id, each.protocol_type, each.group_state, each.group_type)
        for each in answer.groups
    ]


class ListedGroups(NamedTuple):
    """code: Kafka's; throttle_ms: how long the broker asks to be left alone."""

    groups: Sequence[ListedUpstreamGroup]
    throttle_ms: int
    code: int = 0


async def list_groups_in(upstream: Upstream, broker: int, states: Sequence[str]) -> ListedGroups:
    """The groups that this broker coordinates and that are in one of these states, by Kafka's names; none: in any.
    Raises UpstreamError; it is Unspoken where the broker cannot ask by states (KIP-518, Kafka 2.6)."""
    line = await upstream.lines.to(upstream.address_of(broker), LOOK)
    if states and line.versions.get("ListGroups", 0) < BY_STATES:
        raise Unspoken(f"broker {broker} does not list groups by their states: it does not speak ListGroups 4")
    request = struct("ListGroupsRequest")(states_filter=list(states))
    answer = await upstream.ask_broker(broker, "ListGroups", request, purpose=LOOK)
    groups = [
        ListedUpstreamGroup(each.group_id, each.protocol_type, each.group_state, each.group_type)
        for each in answer.groups
    ]
    return ListedGroups(groups, answer.throttle_time_ms, answer.error_code)


async def describe_groups(
    upstream: Upstream, broker: int, groups: Sequence[ListedUpstreamGroup]
) -> dict[str, DescribedUpstreamGroup]:
    """Who is in these groups (at most AT_ONCE), which this broker coordinates; without those that it tells nothing of.
    Raises UpstreamError."""
    found: dict[str, DescribedUpstreamGroup] = {}
    if classic := [each.group for each in groups if each.kind != CONSUMER]:
        answer = await upstream.ask_broker(
            broker, "DescribeGroups", struct("DescribeGroupsRequest")(groups=classic), purpose=LOOK
        )
        for one in answer.groups:
            if not one.error_code:
                found[one.group_id] = DescribedUpstreamGroup(one.group_state, members_of(one.members))
    if modern := [each.group for each in groups if each.kind == CONSUMER]:
        request = struct("ConsumerGroupDescribeRequest")(group_ids=modern)
        for one in (await upstream.ask_broker(broker, "ConsumerGroupDescribe", request, purpose=LOOK)).groups:
            if not one.error_code:
                found[one.group_id] = DescribedUpstreamGroup(one.group_state, members_of(one.members))
    return found


def members_of(told: Sequence[Any]) -> list[UpstreamMember]:
    return [UpstreamMember(one.member_id, one.client_id, one.client_host) for one in told]


GROUP_RESOURCE: Final = 32
"""DescribeConfigs' type of groups (Kafka 3.8)."""

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"


async def fetch_session_timeouts(upstream: Upstream, broker: int, groups: Sequence[str]) -> dict[str, int]:
    """The session timeouts in ms of these KIP-848 groups (at most AT_ONCE), their own or else the broker's; without
    those that it does not tell, which may be all: it is too old, or this client may not ask. Raises UpstreamError."""
    resources = [
        struct("DescribeConfigsRequest.resources")(
            resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=[SESSION_TIMEOUT]
        )
        for group in groups
    ]
    request = struct("DescribeConfigsRequest")(resources=resources)
    answer = await upstream.ask_broker(broker, "DescribeConfigs", request, purpose=LOOK)
    return {
        result.resource_name: int(config.value)
        for result in answer.results
        if not result.error_code
        for config in result.configs
        if config.name == SESSION_TIMEOUT and (config.value or "").isascii() and (config.value or "").isdigit()
    }


async def fetch_assignments(upstream: Upstream, group: str) -> dict[UpstreamMember, bytes]:
    """What each member of a classic group was given, as bytes. Raises UpstreamError."""
    asked = struct("DescribeGroupsRequest")(groups=[group])
    [one] = (
        await ask_coordinator_of(upstream, group, "DescribeGroups", asked, lambda answer: answer.groups[0].error_code)
    ).groups
    if one.error_code and one.error_code != GROUP_NOT_FOUND:
        raise UpstreamRefused(f"asking who is in the group {group}", one.error_code)
    return {
        member: bytes(told.member_assignment) for member, told in zip(members_of(one.members), one.members, strict=True)
    }


async def describe_group(upstream: Upstream, group: str) -> DescribedUpstreamGroup:
    """Who is in one group; Dead, and nobody in it, where there is none. Raises UpstreamError."""
    asked: object = struct("DescribeGroupsRequest")(groups=[group])
    [one] = (
        await ask_coordinator_of(upstream, group, "DescribeGroups", asked, lambda answer: answer.groups[0].error_code)
    ).groups
    if one.error_code in (0, GROUP_NOT_FOUND) and one.group_state in ("", "Dead"):
        # So are KIP-848 groups to this question.
        asked = struct("ConsumerGroupDescribeRequest")(group_ids=[group])
        try:
            answer = await ask_coordinator_of(
                upstream, group, "ConsumerGroupDescribe", asked, lambda answer: answer.groups[0].error_code
            )
        except Unspoken:
            return NOBODY_THERE
        [one] = answer.groups
    if one.error_code == GROUP_NOT_FOUND:
        return NOBODY_THERE
    if one.error_code:
        raise UpstreamRefused(f"asking who is in the group {group}", one.error_code)
    return DescribedUpstreamGroup(one.group_state, members_of(one.members))


async def ask_coordinator_of(
    upstream: Upstream, group: str, api: str, request: object, code_of: Callable[[Any], int]
) -> Any:
    """Ask the group's coordinator, and again while it moves or loads, or is made: that of a new cluster's first group.
    Raises UpstreamError."""
    tries = 0
    while True:
        tries += 1
        try:
            answer = await upstream.ask_coordinator(GROUP, group, api, request, purpose=LOOK)
        except UpstreamRefused as error:
            if error.code not in WAIT_FOR_COORDINATOR or tries == TRIES:
                raise
        else:
            if code_of(answer) not in WAIT_FOR_COORDINATOR or tries == TRIES:
                return answer
            upstream.coordinator_moved(GROUP, group)
        await asyncio.sleep(PAUSE_S)


async def fetch_offsets(upstream: Upstream, group: str) -> dict[TopicPartition, UpstreamOffset]:
    """All that a group has committed there, without what open transactions have. Raises UpstreamError, also while one
    is open: what it will come to is not known."""
    asked = struct("OffsetFetchRequest.groups")(group_id=group, topics=None)
    request = struct("OffsetFetchRequest")(groups=[asked], require_stable=True)
    [told] = (
        await ask_coordinator_of(upstream, group, "OffsetFetch", request, lambda answer: answer.groups[0].error_code)
    ).groups
    if told.error_code:
        raise UpstreamRefused(f"asking what the group {group} has committed", told.error_code)
    found: dict[TopicPartition, UpstreamOffset] = {}
    for topic in told.topics:
        for part in topic.partitions:
            if part.error_code:
                raise UpstreamRefused(
                    f"asking what {group} has committed of {topic.name}-{part.partition_index}", part.error_code
                )
            if part.committed_offset >= 0:
                found[topic.name, part.partition_index] = UpstreamOffset(
                    part.committed_offset, part.committed_leader_epoch, part.metadata or ""
                )
    return found


async def commit_offsets(
    upstream: Upstream, group: str, kept: Mapping[TopicPartition, UpstreamOffset]
) -> dict[TopicPartition, int]:
    """Commit these for a group without members (generation -1): Kafka's code for each that was refused. Raises
    UpstreamError."""
    refused: dict[TopicPartition, int] = {}
    places = sorted(kept)
    for begin in range(0, len(places), POSITIONS_AT_ONCE):
        topics: dict[str, list[object]] = {}
        for topic, partition in places[begin : begin + POSITIONS_AT_ONCE]:
            offset, epoch, metadata = kept[topic, partition]
            part = struct("OffsetCommitRequest.topics.partitions")(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, []).append(part)
        request = struct("OffsetCommitRequest")(
            group_id=group,
            member_id="",
            topics=[
                struct("OffsetCommitRequest.topics")(name=name, partitions=parts) for name, parts in topics.items()
            ],
        )
        answer = await ask_coordinator_of(upstream, group, "OffsetCommit", request, first_code)
        for told in answer.topics:
            for each in told.partitions:
                if each.error_code:
                    refused[told.name, each.partition_index] = each.error_code
    return refused


def first_code(answer: Any) -> int:
    """Of a commit: a coordinator that moves says so of every partition."""
    return next((part.error_code for topic in answer.topics for part in topic.partitions), 0)


# The requests of one member of a classic group
# ---------------------------------------------

EXTRA_WAIT_S: Final = 5.0
"""How much longer than the rebalance timeout a JoinGroup is waited for."""


PREPARING_REBALANCE: Final = "PreparingRebalance"
"""A state of a group, as its coordinator names it."""


class FellowNode(NamedTuple):
    """A member, as its group's coordinator tells of it. metadata: empty while the group is not stable."""

    instance: str
    host: str
    metadata: bytes


class UpstreamMembership:
    """answer_s: within which heartbeats, and all that is not held on purpose, are answered; without an answer by then
    the coordinator is looked for anew."""

    def __init__(
        self, upstream: Upstream, group: str, instance: str, protocol_type: str, *, answer_s: float | None = None
    ) -> None:
        self._upstream = upstream
        self._group = group
        self._instance = instance
        self._protocol_type = protocol_type
        self._answer_s = answer_s

    async def join(
        self, member_id: str, session_ms: int, rebalance_ms: int, protocols: Mapping[str, bytes], reason: str = ""
    ) -> Any:
        """A JoinGroupResponse. Raises UpstreamError, as all of them."""
        told = [struct("JoinGroupRequest.protocols")(name=name, metadata=data) for name, data in protocols.items()]
        request = struct("JoinGroupRequest")(
            group_id=self._group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=self._instance,
            protocol_type=self._protocol_type,
            protocols=told,
            reason=reason or None,
        )
        return await self._ask_coordinator("JoinGroup", request, MEMBER, rebalance_ms / 1000 + EXTRA_WAIT_S)

    async def sync(
        self, member_id: str, generation: int, protocol: str, assignments: Mapping[str, bytes], rebalance_ms: int
    ) -> Any:
        """A SyncGroupResponse. assignments: the leader's, by member id; others have none."""
        told = [
            struct("SyncGroupRequest.assignments")(member_id=member, assignment=data)
            for member, data in assignments.items()
        ]
        request = struct("SyncGroupRequest")(
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self._instance,
            protocol_type=self._protocol_type,
            protocol_name=protocol,
            assignments=told,
        )
        return await self._ask_coordinator("SyncGroup", request, MEMBER, rebalance_ms / 1000 + EXTRA_WAIT_S)

    async def heartbeat(self, member_id: str, generation: int) -> int:
        """Kafka's code."""
        request = struct("HeartbeatRequest")(
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self._instance,
        )
        return int((await self._ask_coordinator("Heartbeat", request, BEAT)).error_code)

    async def fellows(self) -> list[FellowNode]:
        """All members, this one included. Raises UpstreamError."""
        return [
            FellowNode(each.group_instance_id or "", each.client_host, bytes(each.member_metadata))
            for group in await self._described(ASK)
            for each in group.members
        ]

    async def is_rebalancing(self) -> bool:
        """Whether all members have to join again. Raises UpstreamError."""
        return any(group.group_state == PREPARING_REBALANCE for group in await self._described(LOOK_PURPOSE))

    async def _described(self, purpose: str) -> Sequence[Any]:
        request = struct("DescribeGroupsRequest")(groups=[self._group])
        groups: Sequence[Any] = (await self._ask_coordinator("DescribeGroups", request, purpose)).groups
        for group in groups:
            if group.error_code:
                raise UpstreamRefused(f"asking who is in the group {self._group}", group.error_code)
        return groups

    def hang_up(self) -> None:
        """Nobody waits for the answer of a JoinGroup or SyncGroup any more: the next one is not to wait behind it."""
        self._upstream.lines.hang_up(MEMBER)

    async def leave(self, member_id: str, reason: str = "") -> int:
        """Kafka's code. With the member id beside the instance id: by the instance id alone a process that wakes late
        would put out the one that has taken its place; so it hears FENCED_INSTANCE_ID (82)."""
        member = struct("LeaveGroupRequest.members")(
            member_id=member_id, group_instance_id=self._instance, reason=reason or None
        )
        request = struct("LeaveGroupRequest")(group_id=self._group, members=[member])
        answer = await self._ask_coordinator("LeaveGroup", request)
        codes = [answer.error_code, *(each.error_code for each in answer.members)]
        return next((int(code) for code in codes if code), 0)

    async def _ask_coordinator(self, api: str, request: object, purpose: str = ASK, waits_s: float = 0.0) -> Any:
        return await self._upstream.ask_coordinator(
            GROUP, self._group, api, request, purpose=purpose, waits_s=waits_s, within_s=self._answer_s
        )
