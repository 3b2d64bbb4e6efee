"""Whoever was told to let go of a partition and does not join the round that gives it out is taken out for that alone.

Others in the same round have their rebalance timeout, as ever: `handoff.timeout.ms` is for those whom all wait for.
"""

from muster.coordinator.core.classic.assigning import handoff_timeout_ms
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.rebalance import maybe_complete_join, remove_member
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.ledger import Departure, trigger_by_member
from muster.coordinator.core.model.types import Cause, GroupState


def remove_overdue_members(group: ClassicGroup, step: Step) -> None:
    """The deadline of this round is over for them."""
    timeout_ms = handoff_timeout_ms(step.state, group.id)
    for holder in list(dict.fromkeys(withheld.holder for withheld in group.carried.values())):
        member = group.members.get(holder)
        if group.state is not GroupState.PREPARING_REBALANCE or member is None or member.joining:
            continue
        held = ", ".join(f"{t}-{p}" for (t, p), withheld in sorted(group.carried.items()) if withheld.holder == holder)
        what = f"did not let go of {held} within {timeout_ms} ms (handoff.timeout.ms)"
        departure = Departure("its owner did not let go of it within the handoff timeout", member.last_seen_ms)
        trigger = trigger_by_member(Cause.HANDOFF_TIMEOUT, member, what)
        if group.rebalance is not None:
            # What began the round is told beside what now decides it.
            group.rebalance.also.append(group.rebalance.trigger.detail)
            group.rebalance.trigger = trigger
        remove_member(group, member, departure, step)
        maybe_complete_join(group, step)
