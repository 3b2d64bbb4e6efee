"""Lag-sticky: even lag, but a partition moves only when it pays; with the engine that `uniform` with options uses, too.

Claims are kept, what is free goes heaviest first to the member with the least load for its capacity, and then moves
off the heaviest members are made, one after the other, for as long as each makes the heavier of two members lighter
and pays. Where no single partition can go, two may change places. What is fair is judged again when a partition moves
that fills a member on its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from muster.assignors.api import Assignment, RebalanceProtocol, Snapshot
from muster.assignors.data.columns import NOBODY, Ints, SnapshotColumns
from muster.assignors.options import STANDBY, LagStickyOptions, UniformOptions, read_options

# Moves off the heaviest members
# ------------------------------

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
    """Who has what, in the middle of a decision (`Placement`); members are numbered as in `columns`."""

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

    def describe_farthest(self, names: Sequence[str]) -> str:
        """What the imbalance is measured against: a partition cannot be split, so fair is not the mean."""
        away = np.abs(relative_load(self.state.load[self.members], self.fair[self.members]) - 1)
        member = int(self.members[int(away.argmax())])
        load, fair = float(self.state.load[member]), float(self.fair[member])
        return f"{names[member]}, farthest from its fair load, carries {load:.6g} of {fair:.6g}"

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


# Weights, limits, tiers
# ----------------------

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
        self._keep_owners(self._within_limit(mine, held[mine]))
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

    def _keep_owners(self, where: Ints) -> None:
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
            within = f"imbalance {_percent(before)} <= tolerance {_percent(knobs.tolerance)}: nothing moves"
            return f"{within}; {improver.describe_farthest(self.columns.members)}"
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


# The assignor
# ------------


class LagStickyAssignor:
    """Keep what members have, give free partitions to whoever has the least lag to read, and move others
    only when the heaviest member becomes lighter by at least `min.gain`, within the budget.

    Members may have a capacity, a priority or a limit. The assignment carries the proof in its note.

    >>> from muster.assignors.api import Member
    >>> members = [Member("a", ("t",), {"t": [0, 1, 2]}, 1), Member("b", ("t",), {"t": [3]}, 1)]
    >>> group = Snapshot({"t": 4}, members, lags={"t": [500, 400, 300, 100]}, options={"move.budget": 3})
    >>> answer = LagStickyAssignor().assign(group)
    >>> answer.to_dict(), answer.note
    ({'a': {'t': [0, 1]}, 'b': {'t': [2, 3]}}, 'gain 25 % >= 5 %, 1 move <= budget 3')
    """

    name = "lag-sticky"
    options = (
        *("member.capacity", "max.partitions.per.member", "member.priority", "member.standby"),
        *("imbalance.tolerance", "min.gain", "move.budget", "dampening", "cooldown.ms", "now.ms", "moved.at.ms"),
        *("base.lag", "seed"),
    )
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Assignment:
        options = read_options(self.name, LagStickyOptions, snapshot.options)
        columns = snapshot.columns
        knobs = MoveThresholds(
            tolerance=options.tolerance,
            min_gain=options.min_gain,
            budget=options.move_budget,
            dampening=options.dampening,
            seed=options.seed,
            frozen=cooling_partitions(columns, options),
            # The second round of a cooperative hand-over must not start a third one.
            calm=True,
        )
        weight = columns.lags.astype(np.float64) + options.base_lag
        outcome = Placement(columns, weight, options, knobs).decide()
        return Assignment(columns.table(outcome.owner), note=outcome.note)


def cooling_partitions(columns: SnapshotColumns, options: LagStickyOptions) -> NDArray[np.bool_] | None:
    """Partitions that moved too recently to move again."""
    if not options.moved_at_ms:
        return None
    mask = np.zeros(columns.axis.size, dtype=np.bool_)
    for topic, moved in options.moved_at_ms.items():
        place = columns.axis.place.get(topic)
        for partition, at_ms in moved.items():
            inside = place is not None and partition.isascii() and partition.isdecimal()
            if place is None or not inside or int(partition) >= int(columns.axis.counts[place]):
                continue  # The topic may have shrunk or gone since.
            if options.now_ms - at_ms < options.cooldown_ms:
                mask[int(columns.axis.base[place]) + int(partition)] = True
    return mask
