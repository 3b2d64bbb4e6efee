"""How the nodes' group assigns shards to nodes: the JSON of JoinGroup, the leader's plan, and the map for every member.

The nodes' group is a classic group of the upstream, of protocol type `muster` and protocol `muster-1`, static by
node id. Metadata and assignments are JSON. All members receive the same assignment: the whole map (KB-F1, KB-F2).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from muster.assignors.api import Member, Snapshot
from muster.assignors.builtin.sticky import CooperativeStickyAssignor
from muster.assignors.run import run

PROTOCOL_TYPE = "muster"
PROTOCOL = "muster-1"
VERSION = 1

MOST_BYTES = 1 << 20
"""Of a node's metadata, and of a map: far more than nodes have to say."""

SHARDS = "shards"
"""The one topic that the plan is about."""


class NodeBid(NamedTuple):
    """What one node says of itself in JoinGroup. `owned`: the shards it holds and has not let go of; none after its
    membership was lost. generation: of the map it has, -1: none. addresses: by door, `grpc` and `kafka`, host:port.
    draining: it wants no shard that another node can have; leaving: nor any other, for it ends."""

    node: int
    instance: str
    addresses: Mapping[str, str] = MappingProxyType({})
    owned: tuple[int, ...] = ()
    draining: bool = False
    generation: int = -1
    leaving: bool = False


class AssignedNode(NamedTuple):
    """A node in the map."""

    node: int
    instance: str
    addresses: Mapping[str, str] = MappingProxyType({})
    shards: tuple[int, ...] = ()
    draining: bool = False


class ShardAssignment(NamedTuple):
    """The whole map. A shard of nobody's is withheld until its old owner has let go of it."""

    shards: int = 0
    nodes: Mapping[int, AssignedNode] = MappingProxyType({})

    def owner_of(self, shard: int) -> AssignedNode | None:
        for node in self.nodes.values():
            if shard in node.shards:
                return node
        return None

    def of(self, node: int) -> frozenset[int]:
        return frozenset(self.nodes[node].shards) if node in self.nodes else frozenset()


def instance_id(node: int) -> str:
    """The group.instance.id of a node.

    >>> instance_id(2)
    'node-2'
    """
    return f"node-{node}"


def encode_bid(bid: NodeBid) -> bytes:
    said = {
        "version": VERSION,
        "node": bid.node,
        "instance": bid.instance,
        "addresses": dict(bid.addresses),
        "owned": list(bid.owned),
        "draining": bid.draining,
        "generation": bid.generation,
        "leaving": bid.leaving,
    }
    return json.dumps(said, separators=(",", ":")).encode()


def decode_bid(metadata: bytes) -> NodeBid:
    """What a node said. ValueError: what cannot be read, and where."""
    said = _object("a node's metadata", metadata)
    return NodeBid(
        _number(said, "node"),
        str(said.get("instance", "")),
        _addresses(said),
        tuple(sorted(_numbers(said, "owned"))),
        bool(said.get("draining", False)),
        _generation(said),
        bool(said.get("leaving", False)),
    )


def plan_assignment(bids: Mapping[str, bytes], shards: int) -> bytes:
    """The leader's plan: the map, for everybody. `bids`: each member's metadata, by member id.

    A draining node gets nothing while there is another one, and one that leaves nothing at all, nor one whose metadata
    cannot be read, nor the second that says it is the same node.
    A shard that another node still holds is nobody's in this round, whatever that one is: it moves in the next.
    """
    read: dict[str, NodeBid] = {}
    for member, metadata in sorted(bids.items()):
        try:
            bid = decode_bid(metadata)
        except ValueError:
            continue
        if all(bid.node != other.node for other in read.values()):
            read[member] = bid
    staying = [bid for bid in read.values() if not bid.leaving]
    takers = [
        Member(str(bid.node), (SHARDS,), {SHARDS: [shard for shard in bid.owned if shard < shards]}, 0)
        for bid in [bid for bid in staying if not bid.draining] or staying
    ]
    target: dict[int, Sequence[int]] = {}
    if takers and shards:
        wanted = run(CooperativeStickyAssignor(), Snapshot({SHARDS: shards}, takers), withhold=False)
        target = {int(node): share.get(SHARDS, ()) for node, share in wanted.members.items()}
    held: dict[int, set[int]] = {}
    for bid in read.values():
        for shard in bid.owned:
            held.setdefault(shard, set()).add(bid.node)
    nodes = {
        bid.node: AssignedNode(
            bid.node,
            bid.instance,
            bid.addresses,
            tuple(shard for shard in target.get(bid.node, ()) if not held.get(shard, set()) - {bid.node}),
            bid.draining,
        )
        for bid in read.values()
    }
    return encode_assignment(ShardAssignment(shards, nodes))


def encode_assignment(assignment: ShardAssignment) -> bytes:
    said = {
        "version": VERSION,
        "shards": assignment.shards,
        "nodes": [
            {
                "node": node.node,
                "instance": node.instance,
                "addresses": dict(node.addresses),
                "shards": list(node.shards),
                "draining": node.draining,
            }
            for node in assignment.nodes.values()
        ],
    }
    return json.dumps(said, separators=(",", ":")).encode()


def decode_assignment(assignment: bytes) -> ShardAssignment:
    """The map in a SyncGroup answer; an empty one is a map of nothing. ValueError: what cannot be read, and where."""
    if not assignment:
        return ShardAssignment()
    said = _object("the map of shards", assignment)
    nodes: dict[int, AssignedNode] = {}
    taken: dict[int, int] = {}
    told = said.get("nodes", [])
    if not isinstance(told, list):
        raise ValueError(f"the map of shards: nodes is {str(told)[:80]}; a list expected")
    for each in told:
        if not isinstance(each, dict):
            raise ValueError(f"the map of shards: nodes holds {each!r}; an object expected")
        node = _number(each, "node")
        shards = tuple(sorted(_numbers(each, "shards")))
        for shard in shards:
            if taken.setdefault(shard, node) != node:
                raise ValueError(f"the map of shards gives shard {shard} to nodes {taken[shard]} and {node}")
        nodes[node] = AssignedNode(
            node, str(each.get("instance", "")), _addresses(each), shards, bool(each.get("draining", False))
        )
    return ShardAssignment(_number(said, "shards"), nodes)


AGAIN_MS = 200


def joins_again_ms(assignment: ShardAssignment, bid: NodeBid) -> int:
    """How long after it took its share a node has to join once more; 0: it need not.

    Kafka answers a static member that came back with the map there is, and asks nobody (KIP-345). The others would keep
    its old addresses; and where it, or all of them, ended between two rounds, what the first round had withheld would
    be nobody's for good. So a process that the map does not know joins again. Its `generation` is another one by then:
    only a member that says something new begins a round.
    """
    mine = assignment.nodes.get(bid.node)
    if mine is not None and (mine.instance, dict(mine.addresses), mine.draining) == (
        bid.instance,
        dict(bid.addresses),
        bid.draining,
    ):
        return 0
    return AGAIN_MS


def _object(what: str, text: bytes) -> dict[str, Any]:
    if len(text) > MOST_BYTES:
        raise ValueError(f"{what} has {len(text)} bytes; at most {MOST_BYTES} are read")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not JSON: {error}") from None
    if not isinstance(said, dict):
        raise ValueError(f"{what} is {type(said).__name__}; an object expected")
    return said


def _number(said: Mapping[str, Any], name: str) -> int:
    number = said.get(name)
    if type(number) is not int or number < 0:
        raise ValueError(f"{name} is {number!r}; a number of 0 or more expected")
    return number


def _generation(said: Mapping[str, Any]) -> int:
    number = said.get("generation", -1)
    if type(number) is not int:
        raise ValueError(f"generation is {str(number)[:80]}; a number expected")
    return number


def _numbers(said: Mapping[str, Any], name: str) -> Iterable[int]:
    numbers = said.get(name, ())
    if not isinstance(numbers, list | tuple) or any(type(each) is not int or each < 0 for each in numbers):
        raise ValueError(f"{name} is {str(numbers)[:80]}; a list of numbers of 0 or more expected")
    return set(numbers)


def _addresses(said: Mapping[str, Any]) -> Mapping[str, str]:
    addresses = said.get("addresses", {})
    if not isinstance(addresses, dict):
        raise ValueError(f"addresses is {str(addresses)[:80]}; an object expected")
    return {str(door): str(address) for door, address in addresses.items()}
