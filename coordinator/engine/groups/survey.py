"""How a Muster over a Kafka stands, as that Kafka tells it: `muster engine status`. No node is asked."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster.coordinator.engine.upstream import groups, records
from muster.coordinator.engine.upstream.errors import Refused, UpstreamError
from muster.coordinator.engine.upstream.records import EARLIEST, Place
from muster.coordinator.engine.upstream.upstream import Upstream
from muster.coordinator.engine.upstream.view import NOBODY
from muster.coordinator.ownership.deal import Deal, NodeDealt, decode_deal


class Shard(NamedTuple):
    """owner: a node; NOBODY. leader: the broker of its partition. records: between the ends of its log, those that were
    replaced since among them; -1: not known."""

    number: int
    owner: int
    leader: int
    records: int = -1


class Survey(NamedTuple):
    """nodes: as dealt; hosts: from where each is a member, by node id, none for one that is not there now."""

    cluster_id: str
    brokers: Mapping[int, str]
    controller: int
    topic: str
    nodes: Sequence[NodeDealt]
    hosts: Mapping[int, str]
    shards: Sequence[Shard]

    @property
    def unowned(self) -> list[int]:
        return [shard.number for shard in self.shards if shard.owner == NOBODY]

    @property
    def leaderless(self) -> list[int]:
        return [shard.number for shard in self.shards if shard.leader == NOBODY]


async def survey(upstream: Upstream, cluster: str, topic: str) -> Survey:
    """Raises UpstreamError, also where there is no state topic."""
    view = await upstream.refresh([topic])
    seen = view.topics.get(topic)
    if seen is None or seen.code:
        raise Refused(f"asking for the topic {topic}", 3 if seen is None else seen.code)
    members = await groups.assignments(upstream, f"{cluster}.nodes")
    deal, hosts = dealt(members)
    lengths = await lengths_of(upstream, [(topic, part) for part in seen.parts])
    shards = [
        Shard(part, owner_of(deal, part), view.leader(topic, part), lengths.get((topic, part), -1))
        for part in sorted(seen.parts)
    ]
    brokers = {number: f"{host}:{port}" for number, (host, port) in sorted(upstream.view.brokers.items())}
    nodes = sorted(deal.nodes.values(), key=lambda node: node.node)
    return Survey(view.cluster_id, brokers, view.controller, topic, nodes, hosts, shards)


def dealt(members: Mapping[groups.Member, bytes]) -> tuple[Deal, dict[int, str]]:
    """The map that members have, which is the same for all of them, and from where they are there."""
    deal, hosts = Deal(), {}
    for member, assignment in members.items():
        try:
            read = decode_deal(assignment)
        except ValueError:
            continue  # a group of that name that is not of this program
        deal = read if len(read.nodes) > len(deal.nodes) else deal
        # Its member id begins with its instance id: Kafka makes it so for static members.
        node = next((node for node in read.nodes if member.id.startswith(f"node-{node}-")), None)
        if node is not None:
            hosts[node] = member.host
    return deal, hosts


def owner_of(deal: Deal, shard: int) -> int:
    node = deal.owner_of(shard)
    return NOBODY if node is None else node.node


async def lengths_of(upstream: Upstream, places: Sequence[Place]) -> dict[Place, int]:
    """How many offsets these logs span, as far as their leaders answer."""
    led: dict[int, list[Place]] = {}
    for place in places:
        led.setdefault(upstream.view.leader(*place), []).append(place)
    led.pop(NOBODY, None)
    found: dict[Place, int] = {}
    for leader, some in led.items():
        try:
            starts = await records.ends(upstream, leader, some, EARLIEST)
            ends = await records.ends(upstream, leader, some)
        except UpstreamError:
            continue
        for place, end in ends.items():
            if not end.code and not starts[place].code:
                found[place] = end.offset - starts[place].offset
    return found
