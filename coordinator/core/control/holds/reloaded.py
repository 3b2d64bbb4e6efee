"""What is held of groups, when their shard has been replayed."""

from dataclasses import replace

from muster.coordinator.core.control.holds import standing
from muster.coordinator.core.control.holds.correction import cells, cells_of
from muster.coordinator.core.control.holds.values import HoldsStored
from muster.coordinator.core.groups.kinds import KINDS
from muster.coordinator.core.state import Step


def load(step: Step) -> None:
    """Groups have been loaded: nothing waits that its former owner has, and all ends are watched."""
    for holds in list(step.state.holds.values()):
        if holds.shares:
            back_with_their_owners(holds, step)
    standing.load(step)


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
