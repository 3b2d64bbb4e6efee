"""CL-A2: which nodes get the replicas of a topic, as Kafka places them, racks in turn."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.coordinator.errors import CoordinatorError, ErrorCode


class NodeRack(NamedTuple):
    """A node, and its rack; None where it names none."""

    node: int
    rack: str | None = None


def place_replicas(
    nodes: Iterable[NodeRack], partitions: int, factor: int, *, start: int = 0, shift: int = 0, first: int = 0
) -> tuple[tuple[int, ...], ...]:
    """The replicas of each partition, first the one that is to lead.

    start, shift: drawn by the caller, so that topics do not all begin at one node. first: number of the first partition
    that is placed, where a topic gets more of them. Raises INVALID_REPLICATION_FACTOR (38).

    >>> place_replicas(map(NodeRack, range(5)), 7, 3)
    ((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1), (0, 2, 3), (1, 3, 4))
    >>> place_replicas([NodeRack(0, "a"), NodeRack(1, "b"), NodeRack(2, "a"), NodeRack(3, "b")], 5, 2)[4]
    (0, 3)
    """
    ring = alternate_racks(nodes)
    if not 0 < factor <= len(ring):
        raise CoordinatorError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: it must be at least 1 and at most the {len(ring)} nodes that are live",
        )
    placed = []
    for partition in range(first, first + partitions):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        placed.append(replicas_from(ring, (partition + start) % len(ring), shift, factor))
    return tuple(placed)


def replicas_from(ring: Sequence[NodeRack], leader: int, shift: int, factor: int) -> tuple[int, ...]:
    """The node at index `leader`, and those that follow it, `shift` further. One in a rack that has a replica already
    is passed over while there is a rack that has none."""
    racks = {each.rack for each in ring}
    found = [ring[leader]]
    for step in range(2 * len(ring)):
        if len(found) == factor:
            break
        each = ring[(leader + 1 + (shift + step) % (len(ring) - 1)) % len(ring)]
        used = {other.rack for other in found}
        if each not in found and (each.rack not in used or len(used) == len(racks)):
            found.append(each)
    return tuple(each.node for each in found)


def alternate_racks(nodes: Iterable[NodeRack]) -> list[NodeRack]:
    """Nodes by id, from each rack in turn.

    >>> [each.node for each in alternate_racks([NodeRack(3, "b"), NodeRack(1, "a"), NodeRack(2, "a"), NodeRack(0,
    ... "b")])]
    [1, 0, 2, 3]
    """
    racks: dict[str, list[NodeRack]] = {}
    for each in sorted(nodes):
        racks.setdefault(each.rack or "", []).append(each)
    depth = max(map(len, racks.values()), default=0)
    return [racks[name][turn] for turn in range(depth) for name in sorted(racks) if turn < len(racks[name])]


def check_assignment(assignment: Mapping[int, Sequence[int]], nodes: Iterable[int], *, first: int = 0) -> None:
    """Whether an assignment that was given can be: partitions first, first + 1, ...; nodes that are there, each once;
    as many for each partition. Raises INVALID_REPLICA_ASSIGNMENT (39)."""
    if problem := assignment_error(assignment, set(nodes), first):
        raise CoordinatorError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def assignment_error(assignment: Mapping[int, Sequence[int]], nodes: set[int], first: int) -> str:
    if sorted(assignment) != list(range(first, first + len(assignment))):
        return f"partitions {sorted(assignment)[:20]}: they must be {first}, {first + 1}, ... without a gap"
    lengths = {len(ids) for ids in assignment.values()}
    for partition, ids in assignment.items():
        if not ids:
            return f"partition {partition}: it must have one replica at least"
        if len(set(ids)) != len(ids):
            return f"partition {partition}: replicas {list(ids)} name a node twice"
        if unknown := sorted(set(ids) - nodes):
            return f"partition {partition}: node {unknown[0]} is not there; there are {sorted(nodes)[:20]}"
    if len(lengths) > 1:
        return f"partitions have {sorted(lengths)} replicas: each must have as many as the others"
    return ""
