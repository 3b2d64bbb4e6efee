"""Advice on members that read much more than others: plans that look at loads, or keys that spread better."""

from collections.abc import Iterator
from typing import Final

from muster.coordinator.observability.advice.load_replay import (
    BALANCE,
    LAG,
    LAG_STICKY,
    LoadPlan,
    LoadReplay,
    member_loads,
    replay_loads,
)
from muster.coordinator.observability.advice.model import LEAST_SHARE, Advice, GroupRecord, Saving
from muster.coordinator.observability.doctor.model import seconds
from muster.coordinator.observability.read_model.groups import TopicPartition
from muster.coordinator.observability.views.formatting import plural

OF_HEAVIEST: Final = "of what the heaviest member reads"
OF_RECORDS: Final = "of all records"

SKEWED: Final = 1.5
"""Below so many times the mean, the heaviest member is none."""
BUSY_READER: Final = 10.0
"""Records a second: who reads less than that is not busy."""
BEHIND_S: Final = 10.0
"""A member that is so many seconds of its own reading behind does not keep up."""


def advise_on_skew(record: GroupRecord) -> Iterator[Advice]:
    """One member reads much more than the others and falls behind: by a plan that looks at loads it would not have."""
    replay = replay_loads(record)
    if replay.ratio < SKEWED or replay.heaviest < BUSY_READER or not falls_behind(record, replay):
        return
    hot = hot_partition(replay)
    best = min(replay.plans.values(), key=lambda plan: (plan.heaviest, plan.moves), default=None)
    share = 1 - best.heaviest / replay.heaviest if best is not None else 0.0
    if best is not None and share >= LEAST_SHARE:
        yield spread_loads(record, replay, best, share)
    if hot is not None:
        yield spread_keys(record, replay, *hot)


def falls_behind(record: GroupRecord, replay: LoadReplay) -> bool:
    """Whether the member that reads most has much to read still. Where nobody knows how long logs are, it may."""
    group, newest = record.group, replay.stretches[0]
    loads = member_loads(newest.judged, newest.owners, newest.members)
    who = min(loads, key=lambda member: (-loads[member], member))
    mine = [group.positions.get(TopicPartition(*tp)) for tp, owner in newest.owners.items() if owner == who]
    known = [position for position in mine if position is not None and position.end_known]
    if not known:
        return not any(position.end_known for position in group.positions.values())
    return sum(position.lag for position in known) >= BEHIND_S * loads[who] / newest.half_s


def hot_partition(replay: LoadReplay) -> tuple[TopicPartition, float] | None:
    """A partition of which more is read than a member should have in all, and its share of all records."""
    newest = replay.stretches[0]
    total = sum(newest.judged.values())
    tp = min(newest.judged, key=lambda each: (-newest.judged[each], each))
    load = newest.judged[tp]
    return (TopicPartition(*tp), load / total) if load >= SKEWED * total / len(newest.members) else None


def spread_loads(record: GroupRecord, replay: LoadReplay, best: LoadPlan, share: float) -> Advice:
    command = f"muster groups set {record.group.id}"
    settings: tuple[str, ...] = {
        LAG: (f"{command} assignor=lag",),
        LAG_STICKY: (f"{command} assignor=lag-sticky",),
        BALANCE: (f"{command} assignor=lag-sticky balance=act",),
    }[best.name]
    how = "The coordinator plans then, whatever the clients offer. `muster groups unset` ends it."
    if record.watched or record.group.description.watched:
        settings = (f"muster engine adopt {record.group.id}", *settings)
        how = (
            "Kafka's assignors do not look at loads. Muster does once it coordinates the group: stop the group, adopt "
            "it, point its clients at Muster, and set its assignor."
        )
    return Advice(
        kind="skew",
        sentence=f"Plan by load: the heaviest member read {replay.heaviest:,.0f} records a second, {replay.ratio:.1f} "
        f"times the mean; by {best.name} it would have been {best.heaviest:,.0f}, with {plural(best.moves, 'move')}.",
        settings=settings,
        how=how,
        saves=Saving(share=round(share, 4), of=OF_HEAVIEST),
        proof=(*describe_members(record, replay), *describe_plans(replay), describe_basis(record, replay)),
    )


def spread_keys(record: GroupRecord, replay: LoadReplay, tp: TopicPartition, share: float) -> Advice:
    members = len(replay.stretches[0].members)
    return Advice(
        kind="hot-partition",
        sentence=f"Spread the keys of {tp.topic}-{tp.partition}: {share:.0%} of all records that the group reads are "
        f"in it, and no assignor can share it among {plural(members, 'member')}.",
        settings=(),
        how="Look for one key that many records have, or for records without a key that stick to a partition. More "
        "partitions help only where the records have many keys.",
        saves=Saving(share=round(share - 1 / members, 4), of=OF_RECORDS),
        proof=(*describe_members(record, replay), describe_basis(record, replay)),
    )


def describe_members(record: GroupRecord, replay: LoadReplay) -> Iterator[str]:
    """The heaviest, and what each reads."""
    newest = replay.stretches[0]
    loads = member_loads(newest.judged, newest.owners, newest.members)
    for member in sorted(loads, key=lambda each: (-loads[each], each))[:5]:
        mine = [tp for tp, owner in newest.owners.items() if owner == member]
        first = max(mine, key=lambda tp: (newest.judged.get(tp, 0.0), tp))
        rate, most = loads[member] / newest.half_s, newest.judged.get(first, 0.0) / newest.half_s
        yield (
            f"{record.names[member]}: {plural(len(mine), 'partition')}, {rate:,.1f} records a second, "
            f"{most:,.1f} of them of {first[0]}-{first[1]}"
        )


def describe_plans(replay: LoadReplay) -> Iterator[str]:
    for plan in replay.plans.values():
        yield (
            f"{plan.name}: the heaviest member would have read {plan.heaviest:,.0f} records a second, "
            f"{plan.heaviest / replay.mean:.1f} times the mean, after {plural(plan.moves, 'move')}"
        )


def describe_basis(record: GroupRecord, replay: LoadReplay) -> str:
    length = sum(stretch.to_ms - stretch.from_ms for stretch in replay.stretches)
    known = any(position.end_known for position in record.group.positions.values())
    behind = "" if known else "; whether it keeps up is not known, for nobody knows here where logs end"
    return (
        f"planned by what was read in the first half of {plural(len(replay.stretches), 'time')} without a rebalance, "
        f"{seconds(length // 1000 * 1000)} in all, and judged by the second{behind}"
    )
