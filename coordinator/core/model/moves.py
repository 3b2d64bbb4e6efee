"""What a new plan moves: which partitions change their owner and why, how long each is free, and what is withheld."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.coordinator.core.model.ledger import OngoingRebalance, OwnershipGap, TopicPartition
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.types import PartitionMove


@dataclass(frozen=True, slots=True)
class WithheldPartition:
    """A partition that a cooperative plan gave to nobody: who had it, and since when it is free.

    `since_ms` is None while its holder had not let go of it.
    """

    holder: str
    since_ms: int | None = None
    gone: str = ""
    """Why its holder is no longer there, when the group waited for it to come back (KIP-415)."""


NEVER_HELD = WithheldPartition("")


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """What a plan changes, and what it withholds for a later round."""

    moves: tuple[PartitionMove, ...]
    gaps: tuple[OwnershipGap, ...]
    withheld: dict[TopicPartition, WithheldPartition]


@dataclass(frozen=True, slots=True)
class PlanBefore:
    """How things stood: the last plan, what members reported to hold, and what an earlier round withheld."""

    plan: Plan
    still_held: Mapping[str, Mapping[str, frozenset[int]]]
    carried: Mapping[TopicPartition, WithheldPartition]
    delayed: bool = False
    """The new plan keeps what lost its owner for it to come back (KIP-415)."""


def diff_plans(before: PlanBefore, target: Plan, rebalance: OngoingRebalance) -> PlanDiff:
    """Compare two plans partition by partition; cells that did not change are only counted."""
    moves: list[PartitionMove] = []
    kept: dict[tuple[str, int | None], int] = {}
    moved: dict[tuple[str, int | None], list[TopicPartition]] = {}
    withheld: dict[TopicPartition, WithheldPartition] = {}

    for member, topic, partitions in unchanged_cells(before.plan, target):
        let_go = partitions - before.still_held.get(member, {}).get(topic, frozenset())
        if let_go:
            key = (member, since_when_let_go(member, rebalance))
            kept[key] = kept.get(key, 0) + len(let_go)

    old_owner, new_owner = owners_of_changed_cells(before.plan, target)
    for tp in sorted(old_owner.keys() | new_owner.keys() | before.carried.keys()):
        source, owner = old_owner.get(tp, ""), new_owner.get(tp, "")
        earlier = before.carried.get(tp, NEVER_HELD)
        holder = source or earlier.holder
        still_held = tp[1] in before.still_held.get(holder, {}).get(tp[0], frozenset())
        free_since = None if still_held else since_when_free(holder, earlier, rebalance)
        if not owner:
            if still_held or (not source and holder in target):
                withheld[tp] = WithheldPartition(holder, free_since)
            elif before.delayed and holder:
                withheld[tp] = WithheldPartition(holder, free_since, rebalance.gone.get(holder, earlier.gone))
            if source:
                why = why_unowned(rebalance.gone.get(source, ""), still_held, not target, before.delayed)
                moves.append(PartitionMove(*tp, source, "", -1, why))
            continue
        if source == owner and still_held:
            continue
        if source == owner:
            kept[owner, free_since] = kept.get((owner, free_since), 0) + 1
            continue
        why = (
            "its old owner had not let go"
            if still_held
            else why_moved(earlier, source, owner in before.plan, rebalance)
        )
        moves.append(PartitionMove(*tp, holder, owner, -1, why))
        moved.setdefault((owner, free_since), []).append(tp)
    return PlanDiff(tuple(moves), ownership_gaps(kept, moved), withheld)


def unchanged_cells(before: Plan, target: Plan) -> Iterable[tuple[str, str, frozenset[int]]]:
    for member, topics in before.items():
        for topic, partitions in topics.items():
            if partitions and target.get(member, {}).get(topic) == partitions:
                yield member, topic, frozenset(partitions)


def owners_of_changed_cells(before: Plan, target: Plan) -> tuple[dict[TopicPartition, str], dict[TopicPartition, str]]:
    def owners(plan: Plan, other: Plan) -> dict[TopicPartition, str]:
        return {
            (topic, partition): member
            for member, topics in plan.items()
            for topic, partitions in topics.items()
            if other.get(member, {}).get(topic) != partitions
            for partition in partitions
        }

    return owners(before, target), owners(target, before)


def since_when_free(holder: str, earlier: WithheldPartition, rebalance: OngoingRebalance) -> int:
    """A partition that was free already when an earlier round withheld it is free since then."""
    if earlier.since_ms is not None and holder == earlier.holder:
        return earlier.since_ms
    return since_when_let_go(holder, rebalance)


def since_when_let_go(member: str, rebalance: OngoingRebalance) -> int:
    return rebalance.released.get(member, rebalance.started_at_ms)


def why_unowned(gone: str, still_held: bool, nobody_left: bool, delayed: bool) -> str:
    if still_held and not gone:
        return "withheld until its owner has let go (cooperative)"
    if gone and delayed and not nobody_left:
        return f"{gone}; kept for it to come back while the delay runs"
    reasons = [gone] if gone else []
    return "; ".join([*reasons, "nobody is left to own it" if nobody_left else "the plan gives it to nobody"])


def why_moved(earlier: WithheldPartition, source: str, owner_stayed: bool, rebalance: OngoingRebalance) -> str:
    holder = source or earlier.holder
    if not holder:
        return "nobody owned it"
    if not source and earlier.gone:
        return f"{earlier.gone}; it was not waited for any longer"
    if holder in rebalance.gone:
        return rebalance.gone[holder]
    if not source:
        return "released in the round before"
    return "balance" if owner_stayed else "balance: its new owner joined"


def ownership_gaps(
    kept: Mapping[tuple[str, int | None], int], moved: Mapping[tuple[str, int | None], list[TopicPartition]]
) -> tuple[OwnershipGap, ...]:
    return tuple(
        OwnershipGap(
            target=member,
            since_ms=free_since,
            count=kept.get((member, free_since), 0) + len(moved.get((member, free_since), ())),
            moved=tuple(moved.get((member, free_since), ())),
        )
        for member, free_since in sorted(kept.keys() | moved.keys(), key=lambda key: (key[0], key[1] or 0))
    )
