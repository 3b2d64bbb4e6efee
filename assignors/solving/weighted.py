"""Weights, limits, tiers, and moves that must pay: the engine of `lag-sticky` and of `uniform` with options.

Claims are kept, what is free goes heaviest first to the member with the least load for its capacity, and
then single moves off the heaviest members are made for as long as they pay. Ties fall by a seeded order of
the members, so that no name is favoured.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.assignors.data.axis import Ints
from muster.assignors.data.columns import NOBODY, Columns
from muster.assignors.options import STANDBY, UniformOptions

MAX_MOVES = 10_000  # voluntary moves of one decision
_ONE_BY_ONE = 20_000  # up to here each free partition is placed on its own


@dataclass(frozen=True, slots=True)
class Knobs:
    """When a move pays; the defaults move whatever makes the heaviest member lighter."""

    tolerance: float = 0.0
    min_gain: float = 0.0
    budget: int | None = None
    dampening: float = 1.0
    seed: int = 0
    prove: bool = True  # say what the moves gain
    frozen: NDArray[np.bool_] | None = None  # partitions that may not move
    calm: bool = False  # while free partitions are being placed, nothing owned moves


@dataclass(frozen=True, slots=True)
class Outcome:
    owner: NDArray[np.int32]
    note: str


class Placement:
    """The state of one decision; members are numbered as in `columns`."""

    def __init__(self, columns: Columns, weight: NDArray[np.float64], options: UniformOptions, knobs: Knobs) -> None:
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

    def decide(self) -> Outcome:
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
        return Outcome(self.owner, "; ".join(notes))

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
        fair = self._fair_loads(members)
        before = self._imbalance(members, fair)
        if before <= knobs.tolerance:
            return f"imbalance {_percent(before)} <= tolerance {_percent(knobs.tolerance)}: nothing moves"
        made = _Improver(self, members, fair).run()
        self.moved += len(made)
        gain = 1 - (1 + self._imbalance(members, fair)) / (1 + before)
        budget = "" if knobs.budget is None else f" <= budget {knobs.budget}"
        if gain < knobs.min_gain:
            for where, source in reversed(made):
                self.give(where, source)
            self.moved -= len(made)
            return f"gain {_percent(gain)} < {_percent(knobs.min_gain)}: nothing moves"
        moved = sum(int(self.columns.owner[where]) != NOBODY for where, _ in made)
        return f"gain {_percent(gain)} >= {_percent(knobs.min_gain)}, {counted(moved, 'move')}{budget}"

    def _fair_loads(self, members: NDArray[np.intp]) -> NDArray[np.float64]:
        """What each member should carry. A partition heavier than a fair load fills a member on its own;
        the others share the rest."""
        mine = np.flatnonzero(self.owner != NOBODY)
        giant = np.zeros(len(self.load))
        np.maximum.at(giant, self.owner[mine], self.weight[mine])
        left = float(self.load[members].sum())
        sharing = members
        while True:
            mean = left / float(self.capacity[sharing].sum())
            over = giant[sharing] > mean * self.capacity[sharing]
            if not over.any() or over.all():
                break
            left -= float(giant[sharing[over]].sum())
            sharing = sharing[~over]
        fair: NDArray[np.float64] = np.maximum(mean * self.capacity, giant)
        return fair

    def _imbalance(self, members: NDArray[np.intp], fair: NDArray[np.float64]) -> float:
        """How far the heaviest member is above its fair load, or the lightest below, whichever is more."""
        relative = ratio(self.load[members], fair[members])
        return max(float(relative.max()) - 1, 1 - float(relative.min()))

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


class _Improver:
    """Single moves, each off the member that is farthest above its fair load and can still shed."""

    def __init__(self, state: Placement, members: NDArray[np.intp], fair: NDArray[np.float64]) -> None:
        self.state, self.fair, self.members = state, fair, members
        self.allowance = np.maximum(state.load - fair, 0) * state.knobs.dampening
        if state.knobs.dampening == 1:
            self.allowance[:] = np.inf  # Undamped: whatever makes the heavier of two lighter.
        self.stuck = np.zeros(len(state.load), dtype=np.bool_)
        self.shed = np.zeros(len(state.load), dtype=np.bool_)
        order = np.argsort(state.owner, kind="stable")
        cuts = np.searchsorted(state.owner[order], np.arange(len(state.load) + 1))
        self.held = {m: order[cuts[m] : cuts[m + 1]] for m in members.tolist()}

    def run(self) -> list[tuple[int, int]]:
        """(partition, source) of every move, in order."""
        state, tolerance = self.state, self.state.knobs.tolerance
        budget = MAX_MOVES if state.knobs.budget is None else min(MAX_MOVES, state.knobs.budget)
        budget -= state.moved  # One budget for all tiers.
        made: list[tuple[int, int]] = []
        while len(made) < budget:
            relative = ratio(state.load[self.members], self.fair[self.members])
            starved = float(relative.min()) < 1 - tolerance
            relative[self.stuck[self.members]] = 0
            place = int(np.argmax(relative))
            if relative[place] <= (1 if starved else 1 + tolerance):
                break
            source = int(self.members[place])
            step = self._best(source)
            if step is None:
                self.stuck[source] = True
                continue
            where, target = step
            made.append((where, source))
            state.give(where, target)
            self.shed[source] = True
            self.allowance[source] -= state.weight[where]
            self.held[source] = self.held[source][self.held[source] != where]
            self.held[target] = np.append(self.held[target], where)
        return made

    def _best(self, source: int) -> tuple[int, int] | None:
        """The move off `source` that leaves the heavier of the two lightest."""
        state = self.state
        mine = self.held[source]
        mine = mine[~state.frozen[mine]]
        topics = state.columns.axis.topic_of[mine]
        best: tuple[float, int, int] | None = None
        for topic in [0] if state.columns.alike else np.unique(topics).tolist():
            takers = state.takers_of(topic)
            takers = takers[(state.count[takers] < state.limit) & (takers != source)]
            where = mine if state.columns.alike else mine[topics == topic]
            if len(takers) and len(where):
                found = self._lightest(source, where, takers)
                if found is not None and (best is None or found < best):
                    best = found
        return None if best is None else (best[1], best[2])

    def _lightest(self, source: int, where: Ints, takers: NDArray[np.intp]) -> tuple[float, int, int] | None:
        state = self.state
        target = int(takers[np.argmin(state.load[takers] / state.capacity[takers])])
        weight = state.weight[where]
        there = (state.load[target] + weight) / state.capacity[target]
        here = (state.load[source] - weight) / state.capacity[source]
        now = state.load[source] / state.capacity[source]
        # A rounding error in the last place must not look like a gain for ever.
        fits = (weight > 0) & (there < now * (1 - 1e-12))
        # Dampening must not stop everything where partitions are coarse: one may always go, a light one.
        damped = fits & (weight <= self.allowance[source])
        if not damped.any() and not self.shed[source] and fits.any():
            damped = fits & (weight == weight[fits].min())
        if not damped.any():
            return None
        height = np.where(damped, np.maximum(there, here), np.inf)
        place = int(np.argmin(height))
        return float(height[place]), int(where[place]), target


def seeded_order(members: tuple[str, ...], seed: int) -> NDArray[np.intp]:
    """Members in an order that depends on the seed and on nothing else about their names."""
    keys = [hashlib.blake2b(f"{seed}:{member}".encode("utf-8", "surrogatepass")).digest() for member in members]
    return np.array(sorted(range(len(members)), key=keys.__getitem__), dtype=np.intp)


def _names(columns: Columns) -> list[tuple[str, ...]]:
    instance = {member.id: member.instance_id for member in columns.snapshot.members}
    return [(word, inst) if (inst := instance[word]) is not None else (word,) for word in columns.members]


def _by_name(table: dict[str, float] | dict[str, int], names: tuple[str, ...], default: float) -> float:
    return next((table[name] for name in names if name in table), default)


def ratio(load: NDArray[np.float64], fair: NDArray[np.float64]) -> NDArray[np.float64]:
    """Loads in fair loads; a member that should carry nothing and does is exactly there."""
    return np.divide(load, fair, out=np.ones_like(load), where=fair > 0)


def counted(number: int, noun: str) -> str:
    """The number with its noun, in the singular or the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
