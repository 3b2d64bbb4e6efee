"""What the partitions of one group carry, as arrays, and whether a plan makes the heaviest member lighter by enough.

A mean is exponentially weighted by the time between two samples. `PartitionLoads` takes a group in pieces, each of
one moment, and also gives what the last sample alone showed: a mean remembers a burst for longer than the burst
lasted.

The judgement is pure, and the same for a group of a coordinator and for a trace that is replayed
(`muster pipeline backtest`). A `BalanceProblem` keeps its arrays as long as the group stays the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.assignors.api import JsonValue, Snapshot
from muster.assignors.data.columns import SnapshotColumns
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.types import PartitionMove
from muster.coordinator.core.settings.shapes import BalanceRules

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HALF_LIFE_SAMPLES = 5
UNKNOWN = -1
"""The end of a log that is away, or the position of a partition where nothing is committed."""


@dataclass(frozen=True, slots=True)
class LoadRates:
    """One row a partition: records a second written and read, and records that wait."""

    produced: Floats
    consumed: Floats
    lag: Floats

    @property
    def pace(self) -> Floats:
        """Records a second that come in or are read, whichever is more."""
        return np.maximum(self.produced, self.consumed)

    def records(self, drain_ms: int) -> Floats:
        """A partition's load, as the records to be read of it in `drain_ms`: what comes in or is read meanwhile, and
        what waits already. Divided by that time it is `max(produce rate, consume rate) + lag / drain target`.

        >>> LoadRates(np.array([2.0]), np.array([3.0]), np.array([600.0])).records(300_000).tolist()
        [1500.0]
        """
        return self.pace * (drain_ms / 1000) + self.lag


class PartitionLoads:
    """Of the partitions of these topics, which lie on one axis in the order of `counts`.

    A partition without a commit has nothing that waits: nobody knows where its reader will begin. One whose log or
    position went back (made anew, offsets reset) tells no rate at that look, and starts from there.
    """

    def __init__(self, counts: Mapping[str, int], sample_ms: int, former: "PartitionLoads | None" = None) -> None:
        """`former`: what was known when there were other partitions; what is left of them is known still."""
        self.counts = dict(counts)
        self.samples: int = 0 if former is None else former.samples
        """How many were taken whole."""
        self._half_life_ms = HALF_LIFE_SAMPLES * sample_ms
        self._base: dict[str, int] = {}
        size = 0
        for topic, count in self.counts.items():
            self._base[topic] = size
            size += count
        self._ends = np.full(size, UNKNOWN, dtype=np.int64)
        self._committed = np.full(size, UNKNOWN, dtype=np.int64)
        self._seen_ms = np.full(size, UNKNOWN, dtype=np.int64)
        # NaN: not known yet; the first figure is the mean.
        self._mean = LoadRates(*(np.full(size, np.nan) for _ in range(3)))
        self._last = LoadRates(*(np.full(size, np.nan) for _ in range(3)))
        self._records: dict[tuple[str, int], Floats] = {}
        if former is not None:
            self._inherit(former)

    def _inherit(self, former: "PartitionLoads") -> None:
        for topic, count in self.counts.items():
            start, old, both = self._base[topic], former._base.get(topic, 0), min(count, former.counts.get(topic, 0))
            for mine, theirs in zip(self._columns, former._columns, strict=True):
                mine[start : start + both] = theirs[old : old + both]

    @property
    def _columns(self) -> "tuple[NDArray[Any], ...]":
        return self._ends, self._committed, self._seen_ms, *load_columns(self._mean), *load_columns(self._last)

    def __len__(self) -> int:
        return len(self._ends)

    def record_positions(
        self, topic: str, first: int, ends: Sequence[int], committed: Sequence[int], at_ms: int
    ) -> None:
        """Partitions of one topic from `first` on, as they were at that moment. Strangers and the surplus are left."""
        if topic not in self._base or not 0 <= first < self.counts[topic]:
            return
        self._records.clear()
        count = min(len(ends), self.counts[topic] - first)
        here = slice(self._base[topic] + first, self._base[topic] + first + count)
        new_ends = np.asarray(ends[:count], dtype=np.int64)
        new_committed = np.asarray(committed[:count], dtype=np.int64)
        elapsed_ms = np.where(self._seen_ms[here] == UNKNOWN, 0, at_ms - self._seen_ms[here])
        keep = 0.5 ** (np.maximum(elapsed_ms, 0) / self._half_life_ms)
        seen = (
            rate_between(self._ends[here], new_ends, elapsed_ms),
            rate_between(self._committed[here], new_committed, elapsed_ms),
            np.where(
                new_ends == UNKNOWN,
                np.nan,
                np.where(new_committed == UNKNOWN, 0, np.maximum(new_ends - new_committed, 0)),
            ),
        )
        for mean, last, now in zip(load_columns(self._mean), load_columns(self._last), seen, strict=True):
            last[here] = now
            known = ~np.isnan(now)
            blended = np.where(np.isnan(mean[here]), now, keep * mean[here] + (1 - keep) * now)
            mean[here] = np.where(known, blended, mean[here])
        self._ends[here], self._committed[here], self._seen_ms[here] = new_ends, new_committed, at_ms

    def taken(self) -> None:
        """The sample is whole."""
        self.samples += 1

    @property
    def rated(self) -> bool:
        """Whether there has been time for a rate: one sample tells none."""
        return self.samples > 1

    def mean(self) -> LoadRates:
        """Smoothed; what is not known counts as nothing."""
        return LoadRates(*(np.nan_to_num(column) for column in load_columns(self._mean)))

    def last(self) -> LoadRates:
        """Of the last sample alone; where it could tell nothing, the mean stands in."""
        return LoadRates(
            *(
                np.where(np.isnan(now), np.nan_to_num(mean), now)
                for now, mean in zip(load_columns(self._last), load_columns(self._mean), strict=True)
            )
        )

    def mean_records(self, drain_ms: int) -> Floats:
        """`mean().records(drain_ms)`, worked out once for each sample."""
        return self._once("mean", drain_ms, self.mean)

    def last_records(self, drain_ms: int) -> Floats:
        """`last().records(drain_ms)`, worked out once for each sample."""
        return self._once("last", drain_ms, self.last)

    def _once(self, which: str, drain_ms: int, make: Callable[[], LoadRates]) -> Floats:
        found = self._records.get((which, drain_ms))
        if found is None:
            found = self._records[which, drain_ms] = make().records(drain_ms)
        return found

    def counted(self, drain_ms: int, behind: bool) -> Floats:
        """What each partition counts as, in records: by its means, but by the last sample alone while a member falls
        behind (`does_member_fall_behind`). The means keep calm what harms nobody; where records pile up, each sample
        that passes before they believe it costs a sample's worth of what is too much."""
        return self.last_records(drain_ms) if behind else self.mean_records(drain_ms)

    def growth(self) -> tuple[Floats, Floats]:
        """Records a second that were written in the last sample, and by how many more than were read; nothing where
        either is not known: a reader that never committed does not fall behind, it is not seen."""
        written, read = self._last.produced, self._last.consumed
        known = ~np.isnan(written) & ~np.isnan(read)
        return np.where(known, written, 0.0), np.where(known, written - read, 0.0)

    def by_topic(self, column: Floats) -> dict[str, Floats]:
        """A column of this axis, topic by topic."""
        return {topic: column[start : start + self.counts[topic]] for topic, start in self._base.items()}

    def whole(self, column: Floats, counts: Mapping[str, int]) -> dict[str, list[int]]:
        """A column as whole numbers, for these partitions; one that was never looked at counts as the mean of all."""
        mean = round(float(column.mean())) if len(column) else 0
        rows = self.by_topic(column)
        known = {
            topic: rows[topic][:count].round().astype(int).tolist() if topic in rows else []
            for topic, count in counts.items()
        }
        return {topic: known[topic] + [mean] * (count - len(known[topic])) for topic, count in counts.items()}


def load_columns(carried: LoadRates) -> tuple[Floats, Floats, Floats]:
    return carried.produced, carried.consumed, carried.lag


def rate_between(before: Ints, now: Ints, elapsed_ms: Ints) -> Floats:
    """Records a second between two looks; NaN where there was none before, or it went back."""
    known = (before != UNKNOWN) & (now >= before) & (elapsed_ms > 0)
    out = np.full(len(now), np.nan)
    np.divide((now - before) * 1000.0, elapsed_ms, out=out, where=known)
    return out


# Does a plan pay?
# ----------------

Owners = NDArray[np.int32]
"""By partition: the number of its member, -1 for nobody."""

Names = tuple[str, ...]
"""By which options may name a member: its id, and its group.instance.id where it has one."""


@dataclass(frozen=True, slots=True)
class MemberBurdens:
    """What members carry for their capacity, by one plan and one set of loads. In records (`LoadRates.records`)."""

    heaviest: float
    mean: float
    who: int
    """The number of the heaviest member."""

    @property
    def ratio(self) -> float:
        """Heaviest over mean; 1 where nobody carries anything."""
        return self.heaviest / self.mean if self.mean else 1.0

    @property
    def most_to_gain(self) -> float:
        """No plan makes the heaviest member lighter by a larger share than this."""
        return 1 - self.mean / self.heaviest if self.heaviest else 0.0


def member_burdens(owner: Owners, load: Floats, capacity: Floats) -> MemberBurdens:
    """
    >>> member_burdens(np.array([0, 0, 1], dtype=np.int32), np.array([3.0, 1.0, 2.0]), np.ones(2))
    MemberBurdens(heaviest=4.0, mean=3.0, who=0)
    """
    owned = owner >= 0
    carried = np.bincount(owner[owned], weights=load[owned], minlength=len(capacity)) / capacity
    who = int(np.argmax(carried))
    return MemberBurdens(float(carried[who]), float(load[owned].sum() / capacity.sum()), who)


BEHIND = 0.05
"""A member that reads so much less than is written for it cannot keep up; below that it is noise."""


def does_member_fall_behind(owner: Owners, written: Floats, growth: Floats, members: int) -> bool:
    """Whether any member read less in the last sample than was written for it. `written`, `growth`: by partition, as
    `Loads.growth` tells them.

    >>> owner = np.array([0, 0, 1], dtype=np.int32)
    >>> does_member_fall_behind(owner, np.array([5.0, 5.0, 9.0]), np.array([1.0, -1.0, 2.0]), 2)
    True
    """
    owned = owner >= 0
    asked = np.bincount(owner[owned], weights=written[owned], minlength=members)
    left = np.bincount(owner[owned], weights=growth[owned], minlength=members)
    return bool((left > BEHIND * asked).any())


def heaviest_gain(before: MemberBurdens, after: MemberBurdens) -> float:
    """By which share the heaviest member becomes lighter, whoever it is then."""
    return 1 - after.heaviest / before.heaviest if before.heaviest else 0.0


def is_worth_moving(
    moves: NDArray[np.bool_],
    resting: NDArray[np.bool_],
    before: Sequence[MemberBurdens],
    after: Sequence[MemberBurdens],
    rules: BalanceRules,
) -> bool:
    """Whether moves may be made, and pay: by each way of looking at the loads the heaviest member becomes lighter by
    enough. `moves`, `resting`: which partitions the plan would move, and which have moved too recently to move again.
    """
    if not moves.any() or (moves & resting).any() or (rules.move_budget and int(moves.sum()) > rules.move_budget):
        return False
    return all(heaviest_gain(was, becomes) >= rules.min_gain for was, becomes in zip(before, after, strict=True))


def capacities(names: Sequence[Names], options: Mapping[str, JsonValue]) -> Floats:
    """Of each member, as `member.capacity` of the assignor's options states it; 1 where it says nothing."""
    stated = options.get("member.capacity")
    table = {}
    if isinstance(stated, Mapping):
        table = {name: float(share) for name, share in stated.items() if isinstance(share, int | float)}
    return np.array([next((table[name] for name in who if name in table), 1.0) for who in names])


@dataclass(slots=True)
class PaidRounds:
    """Evaluations in a row that would have paid, in a group that was the same all the while."""

    rounds: int = 0
    since_ms: int = 0
    """When the first of them was."""
    same: object = field(default=None)

    def paid(self, same: object, now_ms: int) -> int:
        """One more that pays; `same` stands for all that has to be as it was at the one before. Returns how many."""
        if same != self.same or not self.rounds:
            self.rounds, self.since_ms, self.same = 0, now_ms, same
        self.rounds += 1
        return self.rounds

    def over(self) -> None:
        """It would not have paid, or could not be told: the count begins anew."""
        self.rounds = 0


# The problem
# -----------


@dataclass(frozen=True, slots=True)
class BalanceProblem:
    """A group at rest. `same` stands for all that it was made from; rows are in the order of the snapshot's columns."""

    same: tuple[object, ...]
    snapshot: Snapshot
    """Without loads."""
    columns: SnapshotColumns
    capacity: Floats

    @property
    def owner(self) -> Owners:
        return self.columns.owner

    def loads(self, loads: PartitionLoads, column: Floats) -> Floats:
        """A column of the group's loads in the order of this problem."""
        rows = loads.by_topic(column)
        return np.concatenate([rows[topic] for topic in self.columns.axis.topics] or [np.zeros(0)])

    def mask(self, moved: Iterable[tuple[str, int]]) -> NDArray[np.bool_]:
        """Which rows are named."""
        axis = self.columns.axis
        out = np.zeros(axis.size, dtype=np.bool_)
        for topic, partition in moved:
            place = axis.place.get(topic)
            if place is not None and partition < int(axis.counts[place]):
                out[int(axis.base[place]) + partition] = True
        return out

    def owners_by(self, plan: Plan) -> Owners:
        """Who has what by a plan for this problem."""
        axis = self.columns.axis
        out = np.full(axis.size, -1, dtype=np.int32)
        for number, member in enumerate(self.columns.members):
            for topic, partitions in plan.get(member, {}).items():
                out[int(axis.base[axis.place[topic]]) + np.asarray(partitions, dtype=np.int64)] = number
        return out

    def moves_to(self, after: Owners) -> tuple[PartitionMove, ...]:
        """What would move; nobody waits for any of it."""
        axis, members = self.columns.axis, self.columns.members
        out: list[PartitionMove] = []
        for row in np.flatnonzero(after != self.owner).tolist():
            topic = int(axis.topic_of[row])
            source, target = (members[who] if who >= 0 else "" for who in (int(self.owner[row]), int(after[row])))
            out.append(PartitionMove(axis.topics[topic], row - int(axis.base[topic]), source, target, -1, "balance"))
        return tuple(out)


def problem_of(snapshot: Snapshot, same: tuple[object, ...], options: Mapping[str, JsonValue]) -> BalanceProblem:
    columns = snapshot.columns
    instance = {member.id: member.instance_id for member in snapshot.members}
    names: list[Names] = [(word, who) if (who := instance[word]) is not None else (word,) for word in columns.members]
    return BalanceProblem(same, snapshot, columns, capacities(names, options))
