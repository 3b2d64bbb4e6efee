"""Keeps a group's entries in the ledger, whatever its kind: a rebalance begins, is decided, and settles."""

from dataclasses import replace

from muster.coordinator.core.control.balance import memory as balance
from muster.coordinator.core.control.overrides import standing
from muster.coordinator.core.control.trials import shadow
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.bounds import shorten_entry, shorten_settlement
from muster.coordinator.core.model.core_records import (
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    ShadowsForgotten,
)
from muster.coordinator.core.model.ledger import OngoingRebalance, RebalanceTrigger, entry_with_settlement
from muster.coordinator.core.model.types import Cause, Outcome, RebalanceEntry, Settlement


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


def keep_entry(group_id: str, entry: RebalanceEntry, step: Step) -> None:
    """Keep the entry, and let the oldest go when the ledger is full."""
    step.keep(RebalanceDecided(group_id, shorten_entry(entry, step.limits.max_group_bytes)))
    balance.note_rebalance(group_id, entry, step)
    for number in step.state.ledgers[group_id].surplus(step.limits.ledger_max_entries, step.limits.ledger_max_bytes):
        forget_entry(group_id, number, step)
    shadow.score_with_shadows(group_id, entry, step)


def forget_entry(group_id: str, number: int, step: Step) -> None:
    """Tombstones for an entry and for what is told beside it."""
    if number in step.state.ledgers[group_id].shadows:
        step.keep(ShadowsForgotten(group_id, number))
    step.keep(RebalanceForgotten(group_id, number))


def keep_settlement(group: GroupData, settlement: Settlement, step: Step) -> None:
    """Complete an entry, if it is still kept."""
    standing.note_settled(group.id, step)
    ledger = step.state.ledgers.get(group.id)
    entry = ledger.entries.get(settlement.number) if ledger else None
    if entry is not None:
        step.keep(RebalanceSettled(group.id, shorten_settlement(settlement, step.limits.max_group_bytes)))
        step.announce(group, entry=entry_with_settlement(step.state.ledgers[group.id], entry.number))


def snapshot_within_limit(snapshot_json: str, source: str, step: Step) -> tuple[str, str]:
    """The snapshot and where it is from; one over the limit is left out, and that is said instead."""
    size, limit = len(snapshot_json.encode()), step.limits.ledger_max_snapshot_bytes
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
