"""Which nodes get the replicas of a partition: of a new topic, and of an existing one after a change of nodes.

New topics (CL-A2) alternate racks. `spread_replicas` moves as little as it takes after a node was added, before one
is removed, or where one node had everything. Even means: of each topic, and of all topics together, no node has two
replicas more than another, and none is the preferred leader of two partitions more. A replica moves only where that
makes the cluster more even; which of a partition's replicas comes first costs nothing to change, and is changed
last.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition

# New topics (CL-A2)
# ------------------


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


# Spreading replicas that exist over all nodes
# --------------------------------------------

SpreadPlan: TypeAlias = dict[TopicPartition, list[int]]


def spread_replicas(
    assigned: Mapping[TopicPartition, Sequence[int]], nodes: Iterable[NodeRack], *, factor: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """The units that need other replicas, or the same in another order, with these replicas.

    nodes: who is to have replicas; those of others move. factor: how many each unit gets; None: as many as it has, for
    nobody loses one unasked while a node is down. Replicas of a unit are in as many racks as there are. Raises
    INVALID_REPLICATION_FACTOR (38).

    >>> places = {TopicPartition("orders", number): (1,) for number in range(3)}
    >>> for unit, replicas in spread_replicas(places, [NodeRack(1), NodeRack(2), NodeRack(3)]).items():
    ...     print(unit, replicas)
    orders-0 (2,)
    orders-1 (3,)
    """
    racks = {each.node: each.rack for each in nodes}
    if not 0 < (factor or 1) <= len(racks):
        raise CoordinatorError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: it must be at least 1 and at most the {len(racks)} nodes that take replicas",
        )
    most = max(assigned, key=lambda unit: len(assigned[unit]), default=None)
    if factor is None and most is not None and len(assigned[most]) > len(racks):
        raise CoordinatorError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{most} has {len(assigned[most])} replicas, and {len(racks)} nodes are up that would take them: nodes "
            "that are down count for none; wait until they are back, or say how many replicas there are to be",
        )
    return _Spread(racks, assigned, factor).changed()


class _Spread:
    def __init__(
        self,
        racks: Mapping[int, str | None],
        assigned: Mapping[TopicPartition, Sequence[int]],
        factor: int | None,
    ) -> None:
        self._racks = racks
        self._before = {unit: tuple(assigned[unit]) for unit in sorted(assigned)}
        self._plan: SpreadPlan = {
            unit: [each for each in replicas if each in racks] for unit, replicas in self._before.items()
        }
        self._all = Counter(dict.fromkeys(racks, 0))
        self._of: dict[str, Counter[int]] = {unit.topic: Counter(dict.fromkeys(racks, 0)) for unit in self._plan}
        for unit, replicas in self._plan.items():
            self._count(unit, replicas, 1)
        for unit, before in self._before.items():
            self._fit(unit, min(len(before) if factor is None else factor, len(racks)))

    def changed(self) -> dict[TopicPartition, tuple[int, ...]]:
        by_topic: dict[str, list[TopicPartition]] = {}
        for unit in self._plan:
            by_topic.setdefault(unit.topic, []).append(unit)
        for topic, units in by_topic.items():
            self._even_out(units, self._of[topic], lambda unit, over, under: True)
        self._even_out(
            list(self._plan),
            self._all,
            lambda unit, over, under: self._of[unit.topic][over] > self._of[unit.topic][under],
        )
        self._even_firsts(by_topic)
        return {
            unit: tuple(self._plan[unit]) for unit, before in self._before.items() if self._plan[unit] != list(before)
        }

    def _count(self, unit: TopicPartition, replicas: Iterable[int], by: int) -> None:
        for each in replicas:
            self._all[each] += by
            self._of[unit.topic][each] += by

    def _burden(self, unit: TopicPartition, node: int) -> tuple[int, int, int]:
        return self._of[unit.topic][node], self._all[node], node

    def _fit(self, unit: TopicPartition, wanted: int) -> None:
        """As many replicas as are wanted: the first is the last to go."""
        replicas = self._plan[unit]
        while len(replicas) > wanted:
            gone = max(
                replicas[1:], key=lambda node: (-self._diversity(replicas, without=node), *self._burden(unit, node))
            )
            replicas.remove(gone)
            self._count(unit, [gone], -1)
        while len(replicas) < wanted:
            free = [node for node in self._racks if node not in replicas]
            come = min(free, key=lambda node: (-self._diversity([*replicas, node]), *self._burden(unit, node)))
            replicas.append(come)
            self._count(unit, [come], 1)
        self._use_all_racks(unit)

    def _use_all_racks(self, unit: TopicPartition) -> None:
        replicas = self._plan[unit]
        while self._diversity(replicas) < min(len(replicas), self._diversity(self._racks)):
            used = Counter(self._racks[node] for node in replicas)
            crowded = [node for node in replicas if used[self._racks[node]] > 1]
            gone = max(crowded, key=lambda node: self._burden(unit, node))
            free = [node for node, rack in self._racks.items() if rack not in used]
            come = min(free, key=lambda node: self._burden(unit, node))
            replicas[replicas.index(gone)] = come
            self._count(unit, [gone], -1)
            self._count(unit, [come], 1)

    def _diversity(self, replicas: Iterable[int], without: int | None = None) -> int:
        """In how many racks they are."""
        return len({self._racks[node] for node in replicas if node != without})

    def _even_out(
        self, units: Sequence[TopicPartition], load: Counter[int], may: Callable[[TopicPartition, int, int], bool]
    ) -> None:
        """Move replicas from who has most to who has least, until nobody has two more than another, or racks forbid
        the rest."""
        while (move := self._next_move(units, load, may)) is not None:
            unit, over, under = move
            replicas = self._plan[unit]
            replicas[replicas.index(over)] = under
            self._count(unit, [over], -1)
            self._count(unit, [under], 1)

    def _next_move(
        self, units: Sequence[TopicPartition], load: Counter[int], may: Callable[[TopicPartition, int, int], bool]
    ) -> tuple[TopicPartition, int, int] | None:
        for over in sorted(load, key=lambda node: (-load[node], -self._all[node], node)):
            for under in sorted(load, key=lambda node: (load[node], self._all[node], node)):
                if load[over] - load[under] < 2:
                    break
                for unit in units:
                    replicas = self._plan[unit]
                    if over in replicas and under not in replicas and may(unit, over, under):
                        after = [under if each == over else each for each in replicas]
                        if self._diversity(after) >= self._diversity(replicas):
                            return unit, over, under
        return None

    def _even_firsts(self, by_topic: Mapping[str, list[TopicPartition]]) -> None:
        every = Counter(dict.fromkeys(self._racks, 0))
        every.update(replicas[0] for replicas in self._plan.values() if replicas)
        for units in by_topic.values():
            firsts = Counter(dict.fromkeys(self._racks, 0))
            firsts.update(self._plan[unit][0] for unit in units if self._plan[unit])
            while (path := self._path(units, firsts, every)) is not None:
                for unit, to in path:
                    replicas = self._plan[unit]
                    for counter in (firsts, every):
                        counter[replicas[0]] -= 1
                        counter[to] += 1
                    replicas.remove(to)
                    replicas.insert(0, to)

    def _path(
        self, units: Sequence[TopicPartition], firsts: Counter[int], every: Counter[int]
    ) -> list[tuple[TopicPartition, int]] | None:
        """Who hands the lead of which partition to whom, from one who is first of too many to one who is first of too
        few. Where a topic cannot be more even than it is, all topics together may."""
        for over in sorted(firsts, key=lambda node: (-firsts[node], -every[node], node)):
            reached: dict[int, list[tuple[TopicPartition, int]]] = {over: []}
            queue = deque([over])
            while queue:
                node = queue.popleft()
                apart = firsts[over] - firsts[node]
                if apart >= 2 or (apart == 1 and every[over] - every[node] >= 2):
                    return reached[node]
                for unit in units:
                    replicas = self._plan[unit]
                    if replicas and replicas[0] == node:
                        for to in replicas[1:]:
                            if to not in reached:
                                reached[to] = [*reached[node], (unit, to)]
                                queue.append(to)
        return None
