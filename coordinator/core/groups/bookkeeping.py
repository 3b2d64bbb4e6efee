"""Keeps a group's entries in the ledger, whatever its kind, and forgets everything that belongs to a group id.

A rebalance begins, is decided and settles; an audit entry stands for what an operator did. Belongings are positions,
ledger entries, fences, and what extensions keep (overrides, the canary). A group is kept as long after a fence claim
as after a commit, since a former owner may still be running.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.kind import FactApplier
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.ledger import OngoingRebalance, RebalanceTrigger, entry_with_settlement
from muster.coordinator.core.model.plan import shorten_entry, shorten_settlement
from muster.coordinator.core.model.records import (
    DelayForgotten,
    FenceForgotten,
    FenceStored,
    OffsetDeleted,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    RebalanceShadowed,
    ShadowsForgotten,
)
from muster.coordinator.core.model.types import Cause, Outcome, RebalanceEntry, Settlement, StoredOffset
from muster.coordinator.errors import CoordinatorError, ErrorCode


def next_number(group_id: str, step: Step) -> int:
    ledger = step.state.ledgers.get(group_id)
    return max(ledger.next_number if ledger else 1, step.state.numbers_passed + 1)


def audit_entry(group_id: str, outcome: Outcome, operator: str, detail: str, step: Step) -> RebalanceEntry:
    """An entry beside those of rebalances: an operator did something, nothing was planned, nobody moved."""
    group = step.state.logged(group_id)
    generation, under_way = (0, 0) if group is None else (group.generation, group.under_way)
    return RebalanceEntry(
        # A rebalance that is under way has its number already, and is written when it ends.
        number=max(next_number(group_id, step), under_way + 1),
        previous_generation=generation,
        generation=generation,
        protocol_type="",
        protocol_name="",
        cause=Cause.OPERATOR,
        culprit=operator,
        culprit_client_id="",
        culprit_client_host="",
        detail=detail,
        client_reason="",
        outcome=outcome,
        started_at_ms=step.now_ms,
        ended_at_ms=step.now_ms,
    )


def ledger_entry_begun(
    group_id: str, trigger: RebalanceTrigger, previous_generation: int, step: Step
) -> OngoingRebalance:
    return OngoingRebalance(next_number(group_id, step), trigger, previous_generation, step.now_ms)


def newest_plan_entry(group: GroupData, step: Step) -> RebalanceEntry | None:
    """The entry of the plan that holds. The log may have lost the generation of a newer one: nobody was told of it."""
    ledger = step.state.ledgers.get(group.id)
    plans = ledger.entries.values() if ledger else ()
    kept = [entry for entry in plans if entry.outcome is Outcome.COMPLETED and entry.generation <= group.generation]
    return max(kept, key=lambda entry: entry.number, default=None)


def keep_entry(group_id: str, entry: RebalanceEntry, step: Step, listed_bytes: int | None = None) -> None:
    """Keep the entry, and let the oldest go when the ledger is full. listed_bytes: as in `shorten_entry`."""
    limits = step.state.limits
    step.keep(RebalanceDecided(group_id, shorten_entry(entry, limits.max_group_bytes, listed_bytes)))
    step.state.extensions.plan_recorded(group_id, entry, step)
    for number in step.state.ledgers[group_id].surplus(limits.ledger_max_entries, limits.ledger_max_bytes):
        forget_entry(group_id, number, step)
    step.state.extensions.entry_kept(group_id, entry, step)


def amend_entry(group: GroupData, entry: RebalanceEntry, step: Step) -> None:
    """Replace an entry that is kept by one that says more: later facts have told what it was.

    What became known after its plan, and its shadows' scores, are kept again: a decided entry begins without them.
    """
    ledger = step.state.ledgers[group.id]
    settlement, scores = ledger.settlements.get(entry.number), ledger.shadows.get(entry.number)
    step.keep(RebalanceDecided(group.id, shorten_entry(entry, step.limits.max_group_bytes), amends=True))
    if settlement is not None:
        step.keep(RebalanceSettled(group.id, settlement))
    if scores is not None:
        step.keep(RebalanceShadowed(group.id, entry.number, scores))
    step.announce(group, entry=entry_with_settlement(step.state.ledgers[group.id], entry.number))


def forget_entry(group_id: str, number: int, step: Step) -> None:
    """Tombstones for an entry and for what is told beside it."""
    if number in step.state.ledgers[group_id].shadows:
        step.keep(ShadowsForgotten(group_id, number))
    step.keep(RebalanceForgotten(group_id, number))


def keep_settlement(
    group: GroupData,
    settlement: Settlement,
    step: Step,
    settled: tuple[RebalanceEntry, RebalanceEntry] | None = None,
) -> None:
    """Complete an entry, if it is still kept. settled: it, and what it has become, where that was made before."""
    step.state.extensions.plan_settled(group.id, step)
    ledger = step.state.ledgers.get(group.id)
    entry = ledger.entries.get(settlement.number) if ledger else None
    if entry is not None:
        step.keep(RebalanceSettled(group.id, shorten_settlement(settlement, step.state.limits.max_group_bytes)))
        if settled is not None and settled[0] is entry and entry.number not in step.state.ledgers[group.id].shadows:
            step.announce(group, entry=settled[1])
        else:
            step.announce(group, entry=entry_with_settlement(step.state.ledgers[group.id], entry.number))


def snapshot_within_limit(snapshot_json: str, source: str, step: Step) -> tuple[str, str]:
    """The snapshot and where it is from; one over the limit is left out, and that is said instead."""
    size, limit = len(snapshot_json.encode()), step.state.limits.ledger_max_snapshot_bytes
    if size > limit:
        return "", f"left out: {size} bytes are more than group.ledger.max.snapshot.bytes ({limit})"
    return snapshot_json, source


def keep_audit_entry(group: GroupData, outcome: Outcome, trigger: RebalanceTrigger, step: Step) -> int:
    """Keep an entry beside those of rebalances, which says why by a trigger. Returns its number."""
    entry = replace(
        audit_entry(group.id, outcome, trigger.culprit, trigger.detail, step),
        cause=trigger.cause,
        culprit_client_id=trigger.client_id,
        culprit_client_host=trigger.client_host,
        client_reason=trigger.client_reason,
    )
    keep_entry(group.id, entry, step)
    step.announce(group, entry=entry)
    return entry.number


# Fences
# ------


def keep_fence(state: ShardState, record: FenceStored) -> None:
    fences = state.fences.setdefault(record.group_id, {})
    fences.pop((record.topic, record.partition), None)  # in the order of their last claims
    fences[record.topic, record.partition] = record
    state.fence_ids.update((record.producer_id, *record.former))


def forget_fence(state: ShardState, record: FenceForgotten) -> None:
    fences = state.fences.get(record.group_id, {})
    gone = fences.pop((record.topic, record.partition), None)
    if gone is not None:
        state.fence_ids.difference_update((gone.producer_id, *gone.former))
    if not fences:
        state.fences.pop(record.group_id, None)


FENCE_FACTS: Mapping[type[Any], FactApplier] = {FenceStored: keep_fence, FenceForgotten: forget_fence}


def forget_fences(group_id: str, step: Step) -> None:
    """The group goes, and its fences with it."""
    for topic, partition in list(step.state.fences.get(group_id, ())):
        step.keep(FenceForgotten(group_id, topic, partition))


def fences_hold(group_id: str, step: Step) -> bool:
    """Whether a former owner may still be about: a group is kept as long after a claim as after a commit."""
    fences = step.state.fences.get(group_id, {})
    return any(
        step.now_ms - step.past(fence.claimed_at_ms) < step.limits.offsets_retention_ms for fence in fences.values()
    )


def is_held(group_id: str, step: Step) -> bool:
    """Whether a group without members and positions is kept: for a former owner, or for a transaction (TX-G6)."""
    return bool(step.state.pending.of_group(group_id)) or fences_hold(group_id, step)


# Forgetting a group
# ------------------


def check_nobody_in(group: GroupData) -> None:
    """Only a group that everybody has left may be deleted."""
    if group.members:
        raise CoordinatorError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.id!r} is {group.state.value} with {len(group.members)} members; stop them first",
        )


def forget_belongings(group_id: str, step: Step) -> None:
    """Tombstones for all that belongs to the group; its own come after them. What waits for a transaction goes, too."""
    stored = step.state.offsets.get(group_id, {})
    for topic, partition in [*stored, *(step.state.pending.of_group(group_id) - stored.keys())]:
        step.keep(OffsetDeleted(group_id, topic, partition))
    forget_fences(group_id, step)
    step.state.extensions.group_forgotten(group_id, step)
    step.state.explanations.pop(group_id, None)
    step.disarm(("explain", group_id))
    forget_ledger(group_id, step)


def forget_ledger(group_id: str, step: Step) -> None:
    """Let go of all that is told of a group."""
    ledger = step.state.ledgers.get(group_id)
    if ledger is None:
        return
    if ledger.delay is not None:
        step.keep(DelayForgotten(group_id))
    for number in sorted(ledger.entries.keys() | ledger.settlements.keys() | ledger.shadows.keys()):
        forget_entry(group_id, number, step)


def forget_unread(group_id: str, read: frozenset[str], step: Step) -> None:
    """Drop positions, of those looked at, that nobody reads and nobody has committed for the retention time."""
    for topic, partition in [
        tp for tp, value in step.positions(group_id) if tp[0] not in read and expired(value, step)
    ]:
        step.keep(OffsetDeleted(group_id, topic, partition))


def expired(value: StoredOffset, step: Step, since_ms: int | None = None) -> bool:
    """Whether its own time is over, or the retention time since it was committed, or since then."""
    if value.expire_timestamp_ms is not None:
        return step.now_ms >= value.expire_timestamp_ms
    past_ms = step.past(value.commit_timestamp_ms if since_ms is None else since_ms)
    return step.now_ms - past_ms >= step.limits.offsets_retention_ms
