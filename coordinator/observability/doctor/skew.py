"""One member has much more to do than the others: by count of partitions, by lag, by rate."""

from collections.abc import Callable, Iterator

from muster.coordinator.observability.doctor.facts import DoctorFacts, ExaminedGroup, ExaminedMember
from muster.coordinator.observability.doctor.finding import RuleCase
from muster.coordinator.observability.views.formatting import plural

COUNT_APART = 2
"""Within one topic that all read, more than this is no rounding."""
LAG_TIMES = 3.0
LEAST_LAG = 1_000
RATE_TIMES = 3.0
LEAST_RATE = 10.0
"""Records a second."""


def skewed_by_count(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Members that subscribe to the same have very different numbers of partitions."""
    if not group.stable or len(group.working) < 2:
        return
    if len({member.topics for member in group.working}) > 1:
        return  # who reads other topics has other shares
    most, least = extremes(group, lambda member: len(member.owned))
    many, few = len(most.owned), len(least.owned)
    if many - few > COUNT_APART and many > 2 * max(few, 1):
        yield RuleCase(
            f"{most.name} has {plural(many, 'partition')}, {least.name} has {few}",
            (
                f"{sum(len(m.owned) for m in group.members)} partitions for {len(group.working)} members that "
                "subscribe to the same topics",
                f"assignor: {group.assignor or 'unknown'}",
            ),
        )


def skewed_by_lag(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """One member has three times the mean lag of the members, and more than a thousand records."""
    yield from above_the_mean(group, lambda member: float(group.lag_of(member)), LAG_TIMES, LEAST_LAG, "records behind")


def skewed_by_rate(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The partitions of one member are written at three times the mean rate."""
    if not group.earlier or group.apart_ms <= 0:
        return

    def rate(member: ExaminedMember) -> float:
        both = (tp for tp in member.owned if tp in group.positions and tp in group.earlier)
        written = sum(group.positions[tp].log_end - group.earlier[tp].log_end for tp in both)
        return written * 1000 / group.apart_ms

    yield from above_the_mean(group, rate, RATE_TIMES, LEAST_RATE, "records/s to read")


def above_the_mean(
    group: ExaminedGroup, of: Callable[[ExaminedMember], float], times: float, least: float, what: str
) -> Iterator[RuleCase]:
    """`times` the mean of the others, and at least `least`."""
    if not group.stable or len(group.working) < 2:
        return
    most, _ = extremes(group, of)
    others = [of(member) for member in group.working if member is not most]
    mean, top = sum(others) / len(others), of(most)
    if top >= least and top > times * mean:
        yield RuleCase(
            f"{most.name} has {top:,.0f} {what}, the others {mean:,.0f} on average",
            (
                f"it has {plural(len(most.owned), 'partition')} of {sum(len(m.owned) for m in group.members)}",
                f"assignor: {group.assignor or 'unknown'}",
            ),
        )


def extremes(group: ExaminedGroup, of: Callable[[ExaminedMember], float]) -> tuple[ExaminedMember, ExaminedMember]:
    """Who has most and least of those that are to have something; ties go to the smaller id."""
    ordered = sorted(group.working, key=lambda member: (-of(member), member.id))
    return ordered[0], ordered[-1]
