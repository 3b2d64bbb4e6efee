"""Rules on ownership: unowned partitions, idle members, mixed assignors, and skewed shares.

Skew is judged by count of partitions, by lag, and by rate.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from muster.coordinator.observability.doctor.model import (
    DoctorFacts,
    ExaminedGroup,
    RuleCase,
    Severity,
    member_name,
    number_entries,
    partition_name,
    some,
)
from muster.coordinator.observability.read_model.groups import MemberDescription, TopicPartition
from muster.coordinator.observability.views.formatting import plural

# Ownership
# ---------

COOPERATIVE = "cooperative-sticky"
RESUME = "It is meant so until that ends: `muster groups describe G` says when, `muster groups resume G` ends it now."


def unowned(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """In a stable group, no member owns some partitions of a subscribed topic."""
    if not group.stable or not group.members:
        return
    nobodys: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in group.free(facts.partitions):
        nobodys[tp.topic].append(tp)
    for topic, readers in group.by_topic().items():
        if free := nobodys[topic]:
            waiting = sum(group.positions[tp].lag for tp in free if tp in group.positions)
            yield RuleCase(
                f"nobody owns {plural(len(free), 'partition')} of {topic}, although the group is stable",
                (
                    some([partition_name(tp) for tp in free]),
                    f"waiting there: {plural(waiting, 'record')}" if waiting else "no position there has a lag",
                    explain_unowned(group, topic, readers),
                ),
                RESUME if group.held else "",
                Severity.WARNING if group.held else None,
            )


def explain_unowned(group: ExaminedGroup, topic: str, readers: list[MemberDescription]) -> str:
    """The reason, as far as it can be seen from outside."""
    newest = next(iter(group.rebalances), None)
    entry = f"; see {number_entries([newest])}" if newest is not None else ""
    if group.held:
        return f"an operator holds the group: {some(group.held)}{entry}"
    subscribed = sum(topic in member.topics for member in readers)
    if subscribed < len(group.members):
        return f"{subscribed} of {len(group.members)} members subscribe to {topic}{entry}"
    planner = "its leader" if group.description.leader else "the coordinator"
    return f"{planner} planned with {group.assignor or 'an unknown assignor'}, which left them out{entry}"


def abandoned(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The group has committed offsets and lag in a topic that none of its members reads any more."""
    if not group.members:
        return
    read = group.by_topic()
    behind: dict[str, int] = defaultdict(int)
    for tp, position in group.positions.items():
        if tp.topic not in read and position.committed is not None:
            behind[tp.topic] += position.lag
    for topic, lag in behind.items():
        if lag:
            yield RuleCase(
                f"nobody in the group reads {topic}, in which it has positions",
                (
                    f"{plural(lag, 'record')} behind, and growing with all that is written",
                    f"subscriptions of its {plural(len(group.members), 'member')}: {some(sorted(read))}",
                ),
            )


def idle_members(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """There are more members than partitions, so some members have none."""
    if not group.stable:
        return
    members = group.working
    idle = [member for member in members if not member.assignment]
    topics = sorted(group.by_topic())
    partitions = sum(facts.partitions.get(topic, 0) for topic in topics)
    if idle and partitions and len(members) > partitions:
        yield RuleCase(
            f"nothing to do for {plural(len(idle), 'member')} of {len(members)}",
            (
                f"{some(topics)}: {plural(partitions, 'partition')} for {len(members)} members",
                f"without any: {some([member_name(member) for member in idle])}",
            ),
        )


def mixed_offers(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Classic members offer different assignors, so the preferences of some members have no effect."""
    offers = {member.member_id: member.offered_assignors for member in group.members if member.offered_assignors}
    if group.type != "classic" or len(offers) < 2:
        return
    common = frozenset.intersection(*(frozenset(names) for names in offers.values()))
    wished: dict[str, list[MemberDescription]] = defaultdict(list)
    for member in group.members:
        if member.offered_assignors and member.offered_assignors[0] not in common:
            wished[member.offered_assignors[0]].append(member)
    for name, members in wished.items():
        without = [m for m in group.members if m.offered_assignors and name not in m.offered_assignors]
        eager = " and stops everybody at each rebalance" if name == COOPERATIVE else ""
        runs = group.assignor or "another"
        yield RuleCase(
            f"preferred by {plural(len(members), 'member')}: {name}, but the group runs {runs}{eager}",
            (
                f"not offered by {plural(len(without), 'member')}: {some([member_name(m) for m in without])}",
                f"offered by all: {some(sorted(common)) or 'nothing'}",
            ),
        )


def kept_out(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The group's setting `assignor` has no effect: a member leads."""
    if group.description.kept_out:
        yield RuleCase(
            "the group is planned by a member, not by the assignor that is set", (group.description.kept_out,)
        )


# Skew
# ----

COUNT_APART = 2
"""Within one topic that all read, more than this is no rounding."""
LAG_TIMES = 3.0
LEAST_LAG = 1_000
RATE_TIMES = 3.0
LEAST_RATE = 10.0
"""Records a second."""


def skewed_by_count(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Members with the same subscription have very different numbers of partitions."""
    if not group.stable or len(group.working) < 2:
        return
    if len({frozenset(member.topics) for member in group.working}) > 1:
        return  # who reads other topics has other shares
    most, least = extremes(group, lambda member: len(member.assignment))
    many, few = len(most.assignment), len(least.assignment)
    if many - few > COUNT_APART and many > 2 * max(few, 1):
        yield RuleCase(
            f"{member_name(most)} has {plural(many, 'partition')}, {member_name(least)} has {few}",
            (
                f"{count_owned(group)} partitions for {len(group.working)} members that subscribe to the same topics",
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

    def rate(member: MemberDescription) -> float:
        both = (tp for tp in member.assignment if tp in group.positions and tp in group.earlier)
        written = sum(group.positions[tp].log_end - group.earlier[tp].log_end for tp in both)
        return written * 1000 / group.apart_ms

    yield from above_the_mean(group, rate, RATE_TIMES, LEAST_RATE, "records/s to read")


def above_the_mean(
    group: ExaminedGroup, of: Callable[[MemberDescription], float], times: float, least: float, what: str
) -> Iterator[RuleCase]:
    """`times` the mean of the others, and at least `least`."""
    if not group.stable or len(group.working) < 2:
        return
    most, _ = extremes(group, of)
    others = [of(member) for member in group.working if member is not most]
    mean, top = sum(others) / len(others), of(most)
    if top >= least and top > times * mean:
        yield RuleCase(
            f"{member_name(most)} has {top:,.0f} {what}, the others {mean:,.0f} on average",
            (
                f"it has {plural(len(most.assignment), 'partition')} of {count_owned(group)}",
                f"assignor: {group.assignor or 'unknown'}",
            ),
        )


def count_owned(group: ExaminedGroup) -> int:
    return sum(len(member.assignment) for member in group.members)


def extremes(
    group: ExaminedGroup, of: Callable[[MemberDescription], float]
) -> tuple[MemberDescription, MemberDescription]:
    """Who has most and least of those that are to have something; ties go to the smaller id."""
    ordered = sorted(group.working, key=lambda member: (-of(member), member.member_id))
    return ordered[0], ordered[-1]
