"""What is held of groups, when their shard has been replayed."""

from dataclasses import replace

from muster.coordinator.core.control.overrides import standing
from muster.coordinator.core.groups.entries import keep_audit_entry
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.correction import partition_owner_map, partition_set
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.types import Cause, Outcome
from muster.coordinator.core.model.values import HoldsEnded, HoldsStored


def load_overrides(step: Step) -> None:
    """Groups have been loaded: nothing waits that its former owner has, and all ends are watched."""
    for holds in list(step.state.holds.values()):
        if holds.shares:
            without_returned_shares(holds, step)
    standing.rewatch_overrides(step)


def take_lost_overrides(tombstone: HoldsEnded, step: Step) -> None:
    """The record of what was held cannot be read: nobody knows what the last plan kept for whom, or until when.

    Nothing else would call for another plan, so it is over now; the ledger tells, for another crash may come first.
    """
    group = step.state.logged(tombstone.group_id)
    if group is not None:
        trigger = RebalanceTrigger(Cause.THAW, "what was held of the group is lost: its record in the log is damaged")
        keep_audit_entry(group, Outcome.HELD, trigger, step)
        KINDS[type(group)].replan(group, trigger, step)
    step.keep(tombstone)


def without_returned_shares(holds: HoldsStored, step: Step) -> None:
    """A classic member that goes during a rebalance leaves no record but its share. If a crash takes the rebalance the
    member is in the group again, with all that it had: nobody may be its heir. It may even live."""
    group = step.state.logged(holds.group_id)
    if group is None:
        return
    had = set(partition_owner_map(KINDS[type(group)].situation(group, step).had))
    waiting = tuple(
        share for share in holds.shares if not any((share.member_id, cell) in had for cell in partition_set(share))
    )
    if waiting != holds.shares:
        standing.keep_overrides(replace(holds, shares=waiting), step)
