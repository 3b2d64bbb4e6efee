"""What a page fetches from the node before it is rendered: a few calls for each group, in slices."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import Message

from muster.coordinator.observability.read_model.group_mapper import (
    map_canary,
    map_group,
    map_holds,
    map_lags,
    map_listing,
)
from muster.coordinator.observability.read_model.groups import (
    Canary,
    GroupDescription,
    GroupHolds,
    GroupListing,
    PartitionLag,
    TopicPartition,
)
from muster.coordinator.observability.views.ledger import is_rebalance
from muster.coordinator.rpc.v1 import cluster_service_pb2 as cluster_pb
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1.errors_pb2 import ErrorCode
from muster.coordinator.rpc.v1.ledger_pb2 import CoordinatorMove, NodeStall, Rebalance
from muster.coordinator.web.http.node_port import CallNotOffered, HttpRefusal, NodePort
from muster.coordinator.web.pages.assignment_map import PartitionOwnership
from muster.long_work import iterate_in_turns, make_aside, run_in_answer_thread, sort_in_runs
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb

AT_ONCE: Final = 500
"""Partitions of one call."""
NO_SUCH_GROUP: Final = 69
NO_RIGHT: Final = (29, 30, 31, 53)
STATUS: Final = {NO_SUCH_GROUP: 404, **dict.fromkeys(NO_RIGHT, 403)}
DEAD = "Dead"
SHOWN_REBALANCES: Final = 50
FIRST_LIMITS: Final = (1, 10, 0)
"""How many entries are asked for until a rebalance is among them; 0 is all."""

Answer = TypeVar("Answer", bound=Message)
Place = tuple[str, int]


class GroupHeadcount(NamedTuple):
    """What a list shows of a group beside its figures: its state and how many members it has."""

    state: str
    members: int


class TopicSetting(NamedTuple):
    """`is_own`: set for the topic; else it is the node's."""

    name: str
    value: str
    is_own: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class GroupPageData:
    """One group, as the node answered."""

    group: GroupDescription
    kind: str
    history: Sequence[Rebalance]
    """Newest first."""
    stalls: Sequence[NodeStall] = ()
    moves: Sequence[CoordinatorMove] = ()
    """Of the group's coordinator, in a cluster."""
    positions: Mapping[TopicPartition, PartitionLag] = field(default_factory=dict)
    version: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    suspended: str = ""
    """Why the setting `assignor` does not count until it is set again."""
    holds: GroupHolds = field(default_factory=GroupHolds)
    canary: Canary | None = None

    def holdings(self, rates: Mapping[Place, float] | None = None) -> list[PartitionOwnership]:
        """Every partition that the group owns or is subscribed to; of a group without members, that it has read.

        A position in a topic that no member wants any more is no partition without an owner.
        """
        owners = self.group.owners()
        rates = rates or {}
        topics = wanted_topics(self.group)
        return [
            PartitionOwnership(
                *tp,
                owners.get(tp, ""),
                self.positions[tp].lag if tp in self.positions and self.positions[tp].end_known else None,
                rates.get(tp),
            )
            for tp in sorted({*owners, *self.positions})
            if tp in owners or tp.topic in topics or not self.group.members
        ]

    @property
    def lag(self) -> int:
        return sum(position.lag for position in self.positions.values())

    @property
    def lag_known(self) -> bool:
        """Of copies of segments nobody knows it."""
        return not self.positions or any(position.end_known for position in self.positions.values())


class PageQueries:
    """The calls of the pages."""

    def __init__(self, asks: NodePort) -> None:
        self._asks = asks

    async def call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        found = await self._asks.call(method, request)
        if not isinstance(found, answer):
            raise TypeError(f"{method} answered {type(found).__name__}; expected {answer.__name__}")
        return found

    async def cluster(self) -> cluster_pb.DescribeClusterResponse | None:
        """All nodes, as this one knows them; None where it is on its own, or whoever asks may not know."""
        if self._asks.leads() is None or not self._asks.sees_node():
            return None
        request = cluster_pb.DescribeClusterRequest()
        try:
            answer = await self.call("DescribeCluster", request, cluster_pb.DescribeClusterResponse)
        except CallNotOffered:
            return None  # its nodes have no copies to tell of
        return None if answer.error_code else answer

    async def groups(self) -> Sequence[GroupListing]:
        answer = await self.call("ListGroups", group_pb.ListGroupsRequest(), group_pb.ListGroupsResponse)
        found = [map_listing(group) async for group in iterate_in_turns(answer.groups)]
        return await make_aside(lambda: sort_in_runs(found, lambda group: group.group_id), len(found))

    async def headcounts(self, group_ids: Iterable[str]) -> dict[str, GroupHeadcount]:
        """Those that are there, one call each: a large group's turn is its own."""
        found = {}
        for group_id in group_ids:
            request = group_pb.DescribeGroupsRequest(groups=[group_id])
            answer = await self.call("DescribeGroups", request, group_pb.DescribeGroupsResponse)
            for group in answer.groups:
                if not group.error_code and group.group_state != DEAD:
                    found[group_id] = GroupHeadcount(group.group_state, len(group.members))
            await asyncio.sleep(0)
        return found

    async def history(self, group_id: str, limit: int) -> group_pb.ExplainGroupResponse:
        """Newest first; empty for a group that the ledger does not know."""
        request = group_pb.ExplainGroupRequest(group_id=group_id, limit=limit)
        answer = await self.call("ExplainGroup", request, group_pb.ExplainGroupResponse)
        if answer.error_code not in (0, NO_SUCH_GROUP):
            raise code_refusal(answer.error_code, answer.error_message)
        return answer

    async def last_rebalance(self, group_id: str) -> Rebalance | None:
        """The newest entry that is one. What operators did beside may stand before it: then more entries are asked."""
        for limit in FIRST_LIMITS:
            entries = (await self.history(group_id, limit)).rebalances
            if found := next(filter(is_rebalance, entries), None):
                return found
            if limit and len(entries) < limit:
                break
        return None

    async def group(self, group_id: str) -> GroupPageData:
        """Everything of one group; refused when there is none."""
        kinds = {each.group_id: each.group_type for each in await self.groups()}
        request = group_pb.DescribeGroupsRequest(groups=[group_id])
        answer = await self.call("DescribeGroups", request, group_pb.DescribeGroupsResponse)
        found = answer.groups[0]
        if found.error_code:
            raise code_refusal(found.error_code, found.error_message)
        if found.group_state == DEAD:
            raise HttpRefusal(404, "GROUP_ID_NOT_FOUND", f"there is no group {group_id!r} on this node")
        explained = await self.history(group_id, SHOWN_REBALANCES)
        group = await run_in_answer_thread(partial(map_group, found, self._asks.node().address))
        positions = await self.positions(group)
        settings = await self.settings(group_id)
        return GroupPageData(
            group=group,
            kind=kinds.get(group_id, ""),
            history=explained.rebalances,
            stalls=explained.stalls,
            moves=explained.moves,
            positions=positions,
            version=settings.version,
            settings=dict(sorted(settings.settings.items())),
            suspended=settings.suspended,
            holds=await self.describe_holds(group_id),
            canary=await self.canary(group_id),
        )

    async def canary(self, group_id: str) -> Canary | None:
        """The group's last trial of an assignor, if it ever had one."""
        request = control_pb.DescribeCanaryRequest(group_id=group_id)
        answer = await self.call("DescribeCanary", request, control_pb.DescribeCanaryResponse)
        if answer.error_code:
            raise code_refusal(answer.error_code, answer.error_message)
        return map_canary(answer.canary) if answer.HasField("canary") else None

    async def describe_holds(self, group_id: str) -> GroupHolds:
        """What operators hold of the group."""
        request = control_pb.DescribeHoldsRequest(group_id=group_id)
        answer = await self.call("DescribeHolds", request, control_pb.DescribeHoldsResponse)
        if answer.error_code:
            raise code_refusal(answer.error_code, answer.error_message)
        return map_holds(answer.holds)

    async def positions(self, group: GroupDescription) -> dict[TopicPartition, PartitionLag]:
        group_id, owners = group.group_id, group.owners()
        committed = await self.call(
            "OffsetFetch", group_pb.OffsetFetchRequest(group_id=group_id, all_topics=True), group_pb.OffsetFetchResponse
        )
        sizes = await self.sizes(wanted_topics(group))
        ordered = await run_in_answer_thread(partial(places_of, owners, committed, sizes))
        answers = []
        for at in range(0, len(ordered), AT_ONCE):
            request = group_pb.OffsetFetchRequest(group_id=group_id, include_log_offsets=True)
            for topic, numbers in by_topic(ordered[at : at + AT_ONCE]).items():
                request.topics.add(name=topic, partition_indexes=numbers)
            answers.append(await self.call("OffsetFetch", request, group_pb.OffsetFetchResponse))
            await asyncio.sleep(0)
        return await run_in_answer_thread(partial(map_lags, answers, owners))

    async def sizes(self, topics: Iterable[str] | None = None) -> dict[str, int]:
        """Partitions by topic; None asks for all but internal ones. Topics that do not exist are left out."""
        wanted = None if topics is None else sorted(topics)
        if wanted == []:
            return {}
        request = log_pb.MetadataRequest(topics=wanted, all_topics=wanted is None)
        answer = await self.call("Metadata", request, log_pb.MetadataResponse)
        return {topic.name: len(topic.partitions) for topic in answer.topics if not topic.error_code}

    async def ends(self, sizes: Mapping[str, int], timestamp: int) -> dict[Place, int]:
        """-2 asks where each log begins, -1 where it ends."""
        places = places_in(sizes)
        found: dict[Place, int] = {}
        for at in range(0, len(places), AT_ONCE):
            request = log_pb.ListOffsetsRequest()
            for topic, numbers in by_topic(places[at : at + AT_ONCE]).items():
                line = request.topics.add(name=topic)
                for number in numbers:
                    line.partitions.add(partition_index=number, timestamp=timestamp)
            answer = await self.call("ListOffsets", request, log_pb.ListOffsetsResponse)
            for result in answer.topics:
                found.update(
                    {(result.name, row.partition_index): row.offset for row in result.partitions if not row.error_code}
                )
            await asyncio.sleep(0)
        return found

    async def log_bytes(self, sizes: Mapping[str, int]) -> dict[Place, int]:
        """What each partition's log takes on disk."""
        places = places_in(sizes)
        found: dict[Place, int] = {}
        for at in range(0, len(places), AT_ONCE):
            some = places[at : at + AT_ONCE]
            found.update(zip(some, self._asks.log_bytes(some), strict=True))
            await asyncio.sleep(0)
        return found

    async def topic_settings(self, topic: str) -> list[TopicSetting]:
        """Those that differ from the node's first; none for a caller that may not see them."""
        request = log_pb.DescribeConfigsRequest(topics=[topic])
        answer = await self.call("DescribeConfigs", request, log_pb.DescribeConfigsResponse)
        found = [
            TopicSetting(entry.name, entry.value, not entry.is_default, entry.documentation)
            for result in answer.results
            if not result.error_code
            for entry in result.configs
        ]
        return sorted(found, key=lambda setting: (not setting.is_own, setting.name))

    async def settings(self, group_id: str) -> group_pb.DescribeGroupSettingsResponse:
        request = group_pb.DescribeGroupSettingsRequest(group_id=group_id)
        return await self.call("DescribeGroupSettings", request, group_pb.DescribeGroupSettingsResponse)

    async def resources(self) -> group_pb.NodeResources:
        answer = await self.call("DescribeNode", group_pb.DescribeNodeRequest(), group_pb.DescribeNodeResponse)
        return answer.resources

    async def simulate(
        self, group_id: str, assignors: Sequence[str], add: Sequence[str], remove: Sequence[str]
    ) -> group_pb.SimulateAssignmentResponse:
        request = group_pb.SimulateAssignmentRequest(
            group_id=group_id, assignors=assignors, add_members=add, remove_members=remove
        )
        return await self.call("SimulateAssignment", request, group_pb.SimulateAssignmentResponse)


def code_refusal(code: ErrorCode, message: str) -> HttpRefusal:
    name = ErrorCode.Name(code).removeprefix("ERROR_CODE_")
    return HttpRefusal(STATUS.get(code, 503), name, message or name)


def wanted_topics(group: GroupDescription) -> set[str]:
    """The topics that its members subscribe to."""
    return {topic for member in group.members for topic in member.topics}


def places_in(sizes: Mapping[str, int]) -> list[Place]:
    """
    >>> places_in({"b": 1, "a": 2})
    [('a', 0), ('a', 1), ('b', 0)]
    """
    return [(topic, number) for topic, size in sorted(sizes.items()) for number in range(size)]


def places_of(owned: Iterable[Place], committed: group_pb.OffsetFetchResponse, sizes: Mapping[str, int]) -> list[Place]:
    """Every partition that is owned, has a position, or is one of these topics'."""
    places = set(owned)
    places.update((topic.name, row.partition_index) for topic in committed.topics for row in topic.partitions)
    places.update((topic, number) for topic, size in sizes.items() for number in range(size))
    return sorted(places)


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found
