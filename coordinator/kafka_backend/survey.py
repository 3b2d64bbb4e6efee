"""How a Muster over a Kafka stands, as that Kafka tells it: `muster engine status`. No node is asked."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import (
    AssignedNode,
    ShardAssignment,
    decode_assignment,
)
from muster.coordinator.kafka_backend.upstream import groups, records
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.records import EARLIEST, TopicPartition
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.kafka_backend.upstream.view import NO_LEADER


class SurveyedShard(NamedTuple):
    """owner: a node; NOBODY. leader: the broker of its partition. records: between the ends of its log, those that were
    replaced since among them; -1: not known."""

    number: int
    owner: int
    leader: int
    records: int = -1


class BackendSurvey(NamedTuple):
    """nodes: as dealt; hosts: from where each is a member, by node id, none for one that is not there now."""

    cluster_id: str
    brokers: Mapping[int, str]
    controller: int
    topic: str
    nodes: Sequence[AssignedNode]
    hosts: Mapping[int, str]
    shards: Sequence[SurveyedShard]

    @property
    def unowned(self) -> list[int]:
        return [shard.number for shard in self.shards if shard.owner == NO_LEADER]

    @property
    def leaderless(self) -> list[int]:
        return [shard.number for shard in self.shards if shard.leader == NO_LEADER]


async def survey_backend(upstream: Upstream, cluster: str, topic: str) -> BackendSurvey:
    """Raises UpstreamError, also where there is no state topic."""
    view = await upstream.refresh([topic])
    seen = view.topics.get(topic)
    if seen is None or seen.code:
        raise UpstreamRefused(f"asking for the topic {topic}", 3 if seen is None else seen.code)
    members = await groups.fetch_assignments(upstream, f"{cluster}.nodes")
    deal, hosts = assignment_of(members)
    lengths = await lengths_of(upstream, [(topic, part) for part in seen.parts])
    shards = [
        SurveyedShard(part, owner_of(deal, part), view.leader(topic, part), lengths.get((topic, part), -1))
        for part in sorted(seen.parts)
    ]
    brokers = {number: f"{host}:{port}" for number, (host, port) in sorted(upstream.view.brokers.items())}
    nodes = sorted(deal.nodes.values(), key=lambda node: node.node)
    return BackendSurvey(view.cluster_id, brokers, view.controller, topic, nodes, hosts, shards)


def assignment_of(members: Mapping[groups.UpstreamMember, bytes]) -> tuple[ShardAssignment, dict[int, str]]:
    """The map that members have, which is the same for all of them, and from where they are there."""
    deal, hosts = ShardAssignment(), {}
    for member, assignment in members.items():
        try:
            read = decode_assignment(assignment)
        except ValueError:
            continue  # a group of that name that is not of this program
        deal = read if len(read.nodes) > len(deal.nodes) else deal
        # Its member id begins with its instance id: Kafka makes it so for static members.
        node = next((node for node in read.nodes if member.id.startswith(f"node-{node}-")), None)
        if node is not None:
            hosts[node] = member.host
    return deal, hosts


def owner_of(deal: ShardAssignment, shard: int) -> int:
    node = deal.owner_of(shard)
    return NO_LEADER if node is None else node.node


async def lengths_of(upstream: Upstream, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """How many offsets these logs span, as far as their leaders answer."""
    led: dict[int, list[TopicPartition]] = {}
    for place in places:
        led.setdefault(upstream.view.leader(*place), []).append(place)
    led.pop(NO_LEADER, None)
    found: dict[TopicPartition, int] = {}
    for leader, some in led.items():
        try:
            starts = await records.list_offsets(upstream, leader, some, EARLIEST)
            ends = await records.list_offsets(upstream, leader, some)
        except UpstreamError:
            continue
        for place, end in ends.items():
            if not end.code and not starts[place].code:
                found[place] = end.offset - starts[place].offset
    return found
