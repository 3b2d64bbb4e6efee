"""Moves off the heaviest members, one after the other, for as long as each makes the heavier of two members lighter.

Where no single partition can go, two may change places. What is fair is judged anew when a partition moves that fills a
member on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from muster.assignors.data.axis import Ints
from muster.assignors.data.columns import NOBODY, SnapshotColumns

Floats = NDArray[np.float64]

MAX_MOVES = 10_000  # voluntary moves of one decision
SWAP_PAYS = 0.01
"""Two moves for one step: a swap makes the heavier of two members lighter by at least this share, or by `min.gain`."""
SWAP_PARTNERS = 8
"""A swap is looked for with so many of the lightest members."""
_ROUNDING = 1 - 1e-12  # An error in the last place must not look like a gain for ever.


@dataclass(frozen=True, slots=True)
class MoveThresholds:
    """When a move pays; the defaults move whatever makes the heaviest member lighter."""

    tolerance: float = 0.0
    min_gain: float = 0.0
    budget: int | None = None
    dampening: float = 1.0
    seed: int = 0
    prove: bool = True  # say what the moves gain
    frozen: NDArray[np.bool_] | None = None  # partitions that may not move
    calm: bool = False  # while free partitions are being placed, nothing owned moves


class PlacementView(Protocol):
    """Who has what, in the middle of a decision (`weighted.Placement`); members are numbered as in `columns`."""

    columns: SnapshotColumns
    knobs: MoveThresholds
    weight: Floats
    capacity: Floats
    load: Floats
    owner: NDArray[np.int32]
    count: NDArray[np.int64]
    limit: int
    frozen: NDArray[np.bool_]
    moved: int

    def takers_of(self, topic: int) -> NDArray[np.intp]:
        """Who may be given a partition of the topic."""

    def give(self, where: int, member: int) -> None:
        """The partition is that member's now."""


def heaviest_partitions(state: PlacementView) -> Floats:
    """The heaviest partition of each member."""
    owned = np.flatnonzero(state.owner != NOBODY)
    out = np.zeros(len(state.load))
    np.maximum.at(out, state.owner[owned], state.weight[owned])
    return out


def fair_loads(load: Floats, capacity: Floats, giant: Floats, members: NDArray[np.intp]) -> Floats:
    """What each member should carry. A partition heavier than a fair load (`giant`: each member's heaviest) fills a
    member on its own; the others share the rest."""
    left = float(load[members].sum())
    sharing = members
    while True:
        mean = left / float(capacity[sharing].sum())
        over = giant[sharing] > mean * capacity[sharing]
        if not over.any() or over.all():
            break
        left -= float(giant[sharing[over]].sum())
        sharing = sharing[~over]
    fair: Floats = np.maximum(mean * capacity, giant)
    return fair


def relative_load(load: Floats, fair: Floats) -> Floats:
    """Loads in fair loads; a member that should carry nothing and does is exactly there."""
    return np.divide(load, fair, out=np.ones_like(load), where=fair > 0)


class Improver:
    """Each step is off the member that is farthest above its fair load and can still shed."""

    def __init__(self, state: PlacementView, members: NDArray[np.intp]) -> None:
        self.state, self.members = state, members
        self.giant = heaviest_partitions(state)
        self._judge()
        self.allowance = np.maximum(state.load - self.fair, 0) * state.knobs.dampening
        if state.knobs.dampening == 1:
            self.allowance[:] = np.inf  # Undamped: whatever makes the heavier of two lighter.
        self.stuck = np.zeros(len(state.load), dtype=np.bool_)
        self.shed = np.zeros(len(state.load), dtype=np.bool_)

    def imbalance(self) -> float:
        """How far the heaviest member is above its fair load, or the lightest below, whichever is more."""
        self._judge()
        relative = relative_load(self.state.load[self.members], self.fair[self.members])
        return max(float(relative.max()) - 1, 1 - float(relative.min()))

    def _judge(self) -> None:
        state = self.state
        self.fair = fair_loads(state.load, state.capacity, self.giant, self.members)
        self.fills = float((self.fair / state.capacity)[self.members].min())  # Above it a partition fills a member.

    def _gather(self) -> None:
        """What each member holds, by member."""
        state = self.state
        order = np.argsort(state.owner, kind="stable")
        cuts = np.searchsorted(state.owner[order], np.arange(len(state.load) + 1))
        self.held = {m: order[cuts[m] : cuts[m + 1]] for m in self.members.tolist()}
        self.swaps = bool(len(order)) and bool((state.weight != state.weight[0]).any())

    def run(self) -> list[tuple[int, int]]:
        """(partition, source) of every move, in order."""
        state, tolerance = self.state, self.state.knobs.tolerance
        self._gather()
        budget = MAX_MOVES if state.knobs.budget is None else min(MAX_MOVES, state.knobs.budget)
        budget -= state.moved  # One budget for all tiers.
        made: list[tuple[int, int]] = []
        while len(made) < budget:
            relative = relative_load(state.load[self.members], self.fair[self.members])
            starved = float(relative.min()) < 1 - tolerance
            relative[self.stuck[self.members]] = 0
            place = int(np.argmax(relative))
            if relative[place] <= (1 if starved else 1 + tolerance):
                break
            source = int(self.members[place])
            heavy = relative[place] > 1 + tolerance
            step = self._best(source)
            if step is not None:
                made.append(self._move(step[0], source, step[1]))
            elif heavy and len(made) + 2 <= budget and (pair := self._swap(source)) is not None:
                mine, theirs, target = pair
                made += [self._move(mine, source, target), self._move(theirs, target, source)]
            else:
                self.stuck[source] = True
                continue
            self.shed[source] = True
        return made

    def _move(self, where: int, source: int, target: int) -> tuple[int, int]:
        state, weight = self.state, float(self.state.weight[where])
        state.give(where, target)
        self.allowance[source] -= weight
        self.held[source] = self.held[source][self.held[source] != where]
        self.held[target] = np.append(self.held[target], where)
        self.giant[target] = max(self.giant[target], weight)
        if weight >= self.giant[source]:
            self.giant[source] = state.weight[self.held[source]].max(initial=0.0)
        if weight > self.fills * float(min(state.capacity[source], state.capacity[target])):
            self._judge()
        return where, source

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
        fits = (weight > 0) & (there < state.load[source] / state.capacity[source] * _ROUNDING)
        # Dampening must not stop everything where partitions are coarse: one may always go, a light one.
        damped = fits & (weight <= self.allowance[source])
        if not damped.any() and not self.shed[source] and fits.any():
            damped = fits & (weight == weight[fits].min())
        if not damped.any():
            return None
        height = np.where(damped, np.maximum(there, here), np.inf)
        place = int(np.argmin(height))
        return float(height[place]), int(where[place]), target

    def _swap(self, source: int) -> tuple[int, int, int] | None:
        """(partition of `source`, partition of the other, the other): the pair that leaves the heavier of the two
        lightest, with the first of the lightest members with whom it pays."""
        if not self.swaps:
            return None
        state = self.state
        others = self.members[self.members != source]
        # At best both carry the same for their capacity.
        even = (state.load[source] + state.load[others]) / (state.capacity[source] + state.capacity[others])
        others = others[even <= self._pays_below(source)]
        relative = state.load[others] / state.capacity[others]
        for target in others[np.argsort(relative, kind="stable")[:SWAP_PARTNERS]].tolist():
            mine, theirs = self._may_go(source, target), self._may_go(target, source)
            if len(mine) and len(theirs):
                pair = self._best_pair(source, target, mine, theirs)
                if pair is not None:
                    return *pair, target
        return None

    def _may_go(self, source: int, target: int) -> Ints:
        """What `source` holds, is free to move, and `target` subscribes to."""
        state = self.state
        held = self.held[source]
        mine: Ints = held[~state.frozen[held]]
        if state.columns.alike:
            return mine
        subscription = state.columns.subscriptions[int(state.columns.subscription_of[target])]
        read: Ints = mine[np.isin(state.columns.axis.topic_of[mine], subscription)]
        return read

    def _best_pair(self, source: int, target: int, mine: Ints, theirs: Ints) -> tuple[int, int] | None:
        state = self.state
        here, there = float(state.load[source]), float(state.load[target])
        strong, weak = float(state.capacity[source]), float(state.capacity[target])
        ideal = (here * weak - there * strong) / (strong + weak)  # So much less here, and both are even.
        theirs = theirs[np.argsort(state.weight[theirs], kind="stable")]
        weight, given = state.weight[mine], state.weight[theirs]
        at = np.searchsorted(given, weight - ideal)
        best: tuple[float, int, int] | None = None
        for near in (np.maximum(at - 1, 0), np.minimum(at, len(given) - 1)):
            less = weight - given[near]
            height = np.maximum((here - less) / strong, (there + less) / weak)
            height[(less <= 0) | (less > self.allowance[source])] = np.inf
            place = int(np.argmin(height))
            found = float(height[place]), int(mine[place]), int(theirs[near[place]])
            if best is None or found < best:
                best = found
        if best is None or best[0] > self._pays_below(source):
            return None
        return best[1], best[2]

    def _pays_below(self, source: int) -> float:
        """A swap off the member pays where the heavier of the two carries no more than this for its capacity."""
        state = self.state
        return float(state.load[source] / state.capacity[source]) * (1 - max(state.knobs.min_gain, SWAP_PAYS))
