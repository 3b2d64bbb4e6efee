"""Weights, limits, tiers, and moves that must pay: the engine of `lag-sticky` and of `uniform` with options.

Claims are kept, what is free goes heaviest first to the member with the least load for its capacity, and
then moves off the heaviest members are made for as long as they pay (`improving`). Ties fall by a seeded order of
the members, so that no name is favoured.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.assignors.builtin.improving import Improver, MoveThresholds
from muster.assignors.data.axis import Ints
from muster.assignors.data.columns import NOBODY, SnapshotColumns
from muster.assignors.options import STANDBY, UniformOptions

_ONE_BY_ONE = 20_000  # up to here each free partition is placed on its own


@dataclass(frozen=True, slots=True)
class PlacementOutcome:
    owner: NDArray[np.int32]
    note: str


class Placement:
    """The state of one decision; members are numbered as in `columns`."""

    def __init__(
        self, columns: SnapshotColumns, weight: NDArray[np.float64], options: UniformOptions, knobs: MoveThresholds
    ) -> None:
        members = len(columns.members)
        self.columns, self.weight, self.knobs = columns, weight, knobs
        self.limit = options.limit if options.limit is not None else columns.axis.size + 1
        names = _names(columns)
        self.capacity = np.array([_by_name(options.capacity, who, 1.0) for who in names])
        standby = set(options.standby)
        self.tier = np.array(
            [STANDBY if standby & set(who) else int(_by_name(options.priority, who, 0)) for who in names],
            dtype=np.int64,
        )
        self.order = seeded_order(columns.members, knobs.seed)
        self.load = np.zeros(members)
        self.count = np.zeros(members, dtype=np.int64)
        self.owner = np.full(columns.axis.size, NOBODY, dtype=np.int32)
        self.moved = 0
        self.placed = False  # whether anything without an owner has found one
        self._takers: dict[int, NDArray[np.intp]] = {}

    def decide(self) -> PlacementOutcome:
        reads = np.zeros(len(self.columns.members), dtype=np.bool_)
        reads[self.columns.readers] = True
        notes: list[str] = []
        for tier in np.unique(self.tier[reads])[::-1].tolist():
            serving = reads & (self.tier == tier)
            self._serve(serving)
            note = self._improve(serving)
            # A member that shed something may have room again for what found none in its tier; left to a lower tier,
            # it would be moved back in the next round.
            self._place(np.flatnonzero(self.owner == NOBODY))
            if note and self.knobs.prove and tier == int(self.tier[reads].max()):
                notes.append(note)
        if (self.owner == NOBODY).any():
            self._make_room()
        if left := int((self.owner == NOBODY).sum()):
            notes.append(f"{counted(left, 'partition')} without a place: all subscribers have {self.limit}, the limit")
        return PlacementOutcome(self.owner, "; ".join(notes))

    def _serve(self, serving: NDArray[np.bool_]) -> None:
        """Keep what members of this tier own, then give them whatever is still free."""
        held = self.columns.owner
        mine = np.flatnonzero((self.owner == NOBODY) & (held != NOBODY))
        mine = mine[serving[held[mine]]]
        self._take(self._within_limit(mine, held[mine]))
        self._takers.clear()
        self._serving = serving
        free = np.flatnonzero(self.owner == NOBODY)
        self._place(free)
        self.placed = self.placed or bool((self.owner[free] != NOBODY).any())
        held_up = self.knobs.calm and self.placed
        self.frozen = held != NOBODY if held_up else np.zeros(len(held), dtype=np.bool_)
        if self.knobs.frozen is not None:
            self.frozen |= self.knobs.frozen

    def _place(self, free: Ints) -> None:
        if len(free) <= _ONE_BY_ONE:
            self._place_one_by_one(free)
        elif self.columns.alike:
            self._place_in_rounds(free, self.takers_of(0))
        else:
            cuts = np.searchsorted(free, self.columns.axis.base)
            width = np.diff(self.columns.takers[0])
            for topic in np.argsort(width, kind="stable").tolist():  # scarce topics first
                self._place_in_rounds(free[cuts[topic] : cuts[topic + 1]], self.takers_of(topic))

    def _within_limit(self, where: Ints, who: NDArray[np.int32]) -> Ints:
        """Of each member's claims as many as it may have, from the front."""
        if self.limit > self.columns.axis.size:
            return where
        order = np.argsort(who, kind="stable")
        ends = np.cumsum(np.bincount(who, minlength=len(self.capacity)))
        first = np.concatenate(([0], ends[:-1]))
        rank = np.arange(len(who)) - first[who[order]]
        return where[order[rank < self.limit]]

    def _take(self, where: Ints) -> None:
        who = self.columns.owner[where]
        self.owner[where] = who
        self.load += np.bincount(who, weights=self.weight[where], minlength=len(self.load))
        self.count += np.bincount(who, minlength=len(self.count))

    def takers_of(self, topic: int) -> NDArray[np.intp]:
        """Serving subscribers of a topic, in the seeded order."""
        if topic not in self._takers:
            start, member = self.columns.takers
            mask = np.zeros(len(self.capacity), dtype=np.bool_)
            mask[member[start[topic] : start[topic + 1]]] = True
            mask &= self._serving
            self._takers[topic] = self.order[mask[self.order]]
        return self._takers[topic]

    def _place_one_by_one(self, free: Ints) -> None:
        topics = self.columns.axis.topic_of[free]
        width = np.diff(self.columns.takers[0])[topics]
        order = np.lexsort((free, width, -self.weight[free]))
        rows = zip(free[order].tolist(), topics[order].tolist(), strict=True)
        for where, topic in rows:
            takers = self.takers_of(0 if self.columns.alike else topic)
            takers = takers[self.count[takers] < self.limit]
            if len(takers):
                after = (self.load[takers] + self.weight[where]) / self.capacity[takers]
                self.give(where, int(takers[np.argmin(after)]))

    def _place_in_rounds(self, free: Ints, takers: NDArray[np.intp]) -> None:
        """Many at once: each round the heaviest left go to the quarter of the takers with the least load."""
        heaviest = free[np.argsort(-self.weight[free], kind="stable")]
        begin = 0
        while begin < len(heaviest):
            room = takers[self.count[takers] < self.limit]
            if not len(room):
                return
            least = np.argsort(self.load[room] / self.capacity[room], kind="stable")
            chosen = room[least[: max(1, len(room) // 4)]]
            dealt = heaviest[begin : begin + len(chosen)]
            chosen = chosen[: len(dealt)]
            self.owner[dealt] = chosen
            self.load[chosen] += self.weight[dealt]
            self.count[chosen] += 1
            begin += len(dealt)

    def give(self, where: int, member: int) -> None:
        before = int(self.owner[where])
        if before != NOBODY:
            self.load[before] -= self.weight[where]
            self.count[before] -= 1
        self.owner[where] = member
        self.load[member] += self.weight[where]
        self.count[member] += 1

    def _improve(self, serving: NDArray[np.bool_]) -> str:
        """Move off the heaviest members while it pays; the answer is the proof, in one line."""
        members = np.flatnonzero(serving)
        if len(members) < 2 or not float(self.load[members].sum()):
            return ""
        knobs = self.knobs
        improver = Improver(self, members)
        before, heaviest = improver.imbalance(), self._heaviest(members)
        if before <= knobs.tolerance:
            return f"imbalance {_percent(before)} <= tolerance {_percent(knobs.tolerance)}: nothing moves"
        made = improver.run()
        self.moved += len(made)
        # Either counts: the heaviest member is lighter, or, where one partition fills it, the others are nearer to
        # fair. The first alone would leave a newcomer with nothing, the second two giants with one member: whoever
        # takes one has more than its fair share then.
        lighter = 1 - self._heaviest(members) / heaviest
        gain = max(lighter, 1 - (1 + improver.imbalance()) / (1 + before))
        budget = "" if knobs.budget is None else f" <= budget {knobs.budget}"
        if gain < knobs.min_gain:
            for where, source in reversed(made):
                self.give(where, source)
            self.moved -= len(made)
            return f"gain {_percent(gain)} < {_percent(knobs.min_gain)}: nothing moves"
        held = self.columns.owner
        moved = len({where for where, _ in made if int(held[where]) not in (NOBODY, int(self.owner[where]))})
        return f"gain {_percent(gain)} >= {_percent(knobs.min_gain)}, {counted(moved, 'move')}{budget}"

    def _heaviest(self, members: NDArray[np.intp]) -> float:
        """What the heaviest member carries for its capacity."""
        return float((self.load[members] / self.capacity[members]).max())

    def _make_room(self) -> None:
        """Where all subscribers are full, pass partitions along a chain until someone has room."""
        self._serving = np.ones(len(self.capacity), dtype=np.bool_)
        self._takers.clear()
        for where in np.flatnonzero(self.owner == NOBODY).tolist():
            if not (self.count < self.limit).any():
                return
            for partition, member in self._chain(where):
                self.give(partition, member)

    def _chain(self, where: int) -> list[tuple[int, int]]:
        """(partition, new owner) from the end with room to `where`; empty when no chain exists."""
        topic_of = self.columns.axis.topic_of
        came: dict[int, tuple[int, int]] = {}  # member -> (partition given to it, who gave it)
        seen: set[int] = set()
        queue = [(where, NOBODY)]
        for partition, giver in queue:
            if int(topic_of[partition]) in seen:
                continue
            seen.add(int(topic_of[partition]))
            for member in self.takers_of(int(topic_of[partition])).tolist():
                if member in came:
                    continue
                came[member] = (partition, giver)
                if self.count[member] < self.limit:
                    chain = []
                    while member != NOBODY:
                        partition, giver = came[member]
                        chain.append((partition, member))
                        member = giver
                    return chain
                owned = np.flatnonzero(self.owner == member)
                firsts = owned[np.unique(topic_of[owned], return_index=True)[1]]
                queue.extend((first, member) for first in firsts.tolist())
        return []


def seeded_order(members: tuple[str, ...], seed: int) -> NDArray[np.intp]:
    """Members in an order that depends on the seed and on nothing else about their names."""
    keys = [hashlib.blake2b(f"{seed}:{member}".encode("utf-8", "surrogatepass")).digest() for member in members]
    return np.array(sorted(range(len(members)), key=keys.__getitem__), dtype=np.intp)


def _names(columns: SnapshotColumns) -> list[tuple[str, ...]]:
    instance = {member.id: member.instance_id for member in columns.snapshot.members}
    return [(word, inst) if (inst := instance[word]) is not None else (word,) for word in columns.members]


def _by_name(table: dict[str, float] | dict[str, int], names: tuple[str, ...], default: float) -> float:
    return next((table[name] for name in names if name in table), default)


def counted(number: int, noun: str) -> str:
    """The number with its noun, in the singular or the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
