"""What is held of groups, when their shard has been replayed."""

from dataclasses import replace

from muster.coordinator.core.control.holds import standing
from muster.coordinator.core.control.holds.correction import cells, cells_of
from muster.coordinator.core.control.holds.values import HoldsEnded, HoldsStored
from muster.coordinator.core.entries import keep_beside
from muster.coordinator.core.groups.kinds import KINDS
from muster.coordinator.core.ledger import Trigger
from muster.coordinator.core.state import Step
from muster.coordinator.core.types import Cause, Outcome


def load(step: Step) -> None:
    """Groups have been loaded: nothing waits that its former owner has, and all ends are watched."""
    for holds in list(step.state.holds.values()):
        if holds.shares:
            back_with_their_owners(holds, step)
    standing.load(step)


def lost(tombstone: HoldsEnded, step: Step) -> None:
    """The record of what was held cannot be read: nobody knows what the last plan kept for whom, or until when.

    Nothing else would call for another plan, so it is over now; the ledger tells, for another crash may come first.
    """
    group = step.state.logged(tombstone.group_id)
    if group is not None:
        trigger = Trigger(Cause.THAW, "what was held of the group is lost: its record in the log is damaged")
        keep_beside(group, Outcome.HELD, trigger, step)
        KINDS[type(group)].replan(group, trigger, step)
    step.keep(tombstone)


def back_with_their_owners(holds: HoldsStored, step: Step) -> None:
    """A classic member that goes during a rebalance leaves no record but its share. If a crash takes the rebalance the
    member is in the group again, with all that it had: nobody may be its heir. It may even live."""
    group = step.state.logged(holds.group_id)
    if group is None:
        return
    had = set(cells(KINDS[type(group)].situation(group, step).had))
    waiting = tuple(
        share for share in holds.shares if not any((share.member_id, cell) in had for cell in cells_of(share))
    )
    if waiting != holds.shares:
        standing.keep(replace(holds, shares=waiting), step)
