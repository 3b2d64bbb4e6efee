"""What members read while the group was at rest, and what plans that look at loads would have made of it.

Each time between two rebalances is one *stretch*. Its first half is what a plan would have known; by its second half
the plan is judged, as is what the group really had (EX-A7). So nothing is planned by what was still to come.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from muster.assignors.api import AssignorError, Member, Snapshot, TopicPartition
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.assignors.tools.what_if import owner_of
from muster.coordinator.core.settings.shapes import BalanceRules
from muster.coordinator.observability.advice.model import GroupRecord
from muster.coordinator.observability.advice.rounds import Owners
from muster.coordinator.observability.read_model import groups as read_model

LAG, LAG_STICKY, BALANCE = "lag", "lag-sticky", "balance"
PLANS: Final = (LAG, LAG_STICKY, BALANCE)

LEAST_STRETCH_MS: Final = 60_000
"""A shorter one tells no rate."""
MOST_STRETCHES: Final = 20
"""The newest are planned again."""
MOST_PLANNED: Final = 50_000
"""Partitions of all stretches together."""
KNOWN_SHARE: Final = 0.9
"""Of the partitions that members own, so many have to be known by their positions."""


@dataclass(frozen=True)
class LoadStretch:
    """A time in which nothing changed hands. `learned` and `judged`: records that were read of each partition in the
    first and in the second half."""

    from_ms: int
    to_ms: int
    owners: Owners
    members: tuple[str, ...]
    learned: Mapping[TopicPartition, float]
    judged: Mapping[TopicPartition, float]

    @property
    def half_s(self) -> float:
        return (self.to_ms - self.from_ms) / 2000

    def heaviest(self, owners: Owners) -> float:
        """Records a second of the member that read most in the second half, if they had been shared out so."""
        return max(member_loads(self.judged, owners, self.members).values(), default=0.0) / self.half_s

    @cached_property
    def mean(self) -> float:
        return sum(self.judged.values()) / self.half_s / len(self.members)


def member_loads(loads: Mapping[TopicPartition, float], owners: Owners, members: Iterable[str]) -> dict[str, float]:
    found = dict.fromkeys(members, 0.0)
    for tp, load in loads.items():
        if (owner := owners.get(tp)) in found:
            found[owner] += load
    return found


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What one way of planning would have made of all stretches: the mean of their heaviest members, and its moves."""

    name: str
    heaviest: float
    moves: int


@dataclass(frozen=True)
class LoadReplay:
    """`heaviest` and `mean`: records a second of the heaviest member and of all, the means over the stretches."""

    stretches: tuple[LoadStretch, ...] = ()
    heaviest: float = 0.0
    mean: float = 0.0
    plans: Mapping[str, LoadPlan] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.heaviest / self.mean if self.mean else 1.0


def replay_loads(record: GroupRecord) -> LoadReplay:
    """Nothing where positions are not known over time, or no stretch was long enough."""
    stretches = tuple(read_stretches(record))
    if not stretches:
        return LoadReplay()
    plans = {}
    for name in PLANS:
        made = [plan_stretch(record, stretch, name) for stretch in stretches]
        if all(owners is not None for owners in made):
            done = [(stretch, owners) for stretch, owners in zip(stretches, made, strict=True) if owners is not None]
            moves = sum(
                sum(stretch.owners.get(tp) != owner for tp, owner in owners.items()) for stretch, owners in done
            )
            plans[name] = LoadPlan(name, mean_of([s.heaviest(owners) for s, owners in done], stretches), moves)
    real = mean_of([stretch.heaviest(stretch.owners) for stretch in stretches], stretches)
    return LoadReplay(stretches, real, mean_of([stretch.mean for stretch in stretches], stretches), plans)


def mean_of(values: Iterable[float], stretches: Iterable[LoadStretch]) -> float:
    """Weighted by how long each stretch was."""
    lengths = [stretch.half_s for stretch in stretches]
    return sum(value * length for value, length in zip(values, lengths, strict=True)) / sum(lengths)


# Stretches
# ---------


def read_stretches(record: GroupRecord) -> Iterator[LoadStretch]:
    """Newest first, as far back as positions are known."""
    trails = record.group.commits.trails
    end_ms = max((trail.samples[-1].at_ms for trail in trails.values() if trail.samples), default=0)
    begin_ms = min((trail.samples[0].at_ms for trail in trails.values() if trail.samples), default=0)
    planned = found = 0
    for owners, from_ms, to_ms in times_at_rest(record, end_ms):
        if to_ms <= begin_ms:
            return
        stretch = read_stretch(record, owners, from_ms, to_ms)
        if stretch is None:
            continue
        planned, found = planned + len(stretch.owners), found + 1
        if found > 1 and (planned > MOST_PLANNED or found > MOST_STRETCHES):
            return
        yield stretch


def times_at_rest(record: GroupRecord, end_ms: int) -> Iterator[tuple[Owners, int, int]]:
    """Who owned what, from when to when, newest first. A group that has not rebalanced at all was always as it is."""
    to_ms, group = end_ms, record.group
    if group.stable and group.owners():
        newest_ms = max((int(entry.ended_at_ms) for entry in group.rebalances), default=record.since_ms)
        yield {(tp.topic, tp.partition): owner for tp, owner in group.owners().items()}, newest_ms, end_ms
        to_ms = min((int(each.entry.started_at_ms) for each in record.rounds[-1:]), default=0)
    rounds = record.rounds[:-1] if to_ms != end_ms else record.rounds
    for each in reversed(rounds):
        yield each.after, int(each.entry.ended_at_ms), to_ms
        to_ms = int(each.entry.started_at_ms)


def read_stretch(record: GroupRecord, owners: Owners, from_ms: int, to_ms: int) -> LoadStretch | None:
    """None where it was too short, only one member was there, or too little is known of it."""
    trails = record.group.commits.trails
    known = {tp: trail for tp in owners if (trail := trails.get(read_model.TopicPartition(*tp))) is not None}
    begins = [trail.samples[0].at_ms for trail in known.values() if trail.samples]
    from_ms = max(from_ms, min(begins, default=to_ms))
    members = tuple(sorted(set(owners.values())))
    if to_ms - from_ms < LEAST_STRETCH_MS or len(members) < 2:
        return None
    middle_ms = (from_ms + to_ms) // 2
    learned, judged = {}, {}
    for tp, trail in known.items():
        first, second = trail.records_between(from_ms, middle_ms), trail.records_between(middle_ms, to_ms)
        if second is not None:
            learned[tp], judged[tp] = first or 0.0, second
    if len(judged) < KNOWN_SHARE * len(owners) or not any(judged.values()):
        return None
    return LoadStretch(from_ms, to_ms, owners, members, learned, judged)


# Plans
# -----


def plan_stretch(record: GroupRecord, stretch: LoadStretch, name: str) -> Owners | None:
    """Who would have had what in the second half. None: the assignor makes no plan of it."""
    topics = subscribed_topics(record, stretch)
    counts: dict[str, int] = {}
    for topic, partition in stretch.owners:
        counts[topic] = max(counts.get(topic, 0), partition + 1, record.facts.partitions.get(topic, 0))
    # Whole numbers: a thousandth of a record is fine enough, and a group that reads little is planned, too.
    loads = {
        topic: [round(stretch.learned.get((topic, at), 0.0) * 1000) for at in range(count)]
        for topic, count in counts.items()
    }
    owned: dict[str, dict[str, list[int]]] = {member: {} for member in stretch.members}
    for (topic, partition), owner in sorted(stretch.owners.items()):
        owned[owner].setdefault(topic, []).append(partition)
    members = [Member(member, topics[member], owned[member], 1) for member in stretch.members]
    rules = BalanceRules()
    options = {"min.gain": rules.min_gain} if name == BALANCE else {}
    snapshot = Snapshot(counts, members, loads, options=options)
    try:
        plan = owner_of(run(resolve(LAG if name == LAG else LAG_STICKY), snapshot, withhold=False).to_dict())
    except (AssignorError, ValueError):
        return None
    made = {tp: owner for tp, owner in plan.items() if tp in stretch.owners}
    if name == BALANCE:
        before, after = (
            max(member_loads(stretch.learned, owners, stretch.members).values()) for owners in (stretch.owners, made)
        )
        if not before or 1 - after / before < rules.min_gain:
            return dict(stretch.owners)
    return made


def subscribed_topics(record: GroupRecord, stretch: LoadStretch) -> dict[str, tuple[str, ...]]:
    """As members are described now; one that is gone may have had what any of them had."""
    everything = tuple(sorted({topic for topic, _ in stretch.owners}))
    known = {member.member_id: tuple(member.topics) for member in record.members if member.topics}
    return {member: tuple(t for t in known.get(member, everything) if t in everything) for member in stretch.members}
