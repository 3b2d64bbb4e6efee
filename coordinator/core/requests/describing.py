"""What is told of a group's balance, its canary and its fences to whoever describes it. Nothing is decided here."""

from typing import Final

from muster.coordinator.core.control.balance import memory
from muster.coordinator.core.control.trials.canary import canary_reply
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.controls import NO_CONTROLS, BalanceView, Controls
from muster.coordinator.core.settings.rules import ACT

MOST_FENCES: Final = 20
"""So many are told one by one."""


def describe_controls(group_id: str, step: Step) -> Controls:
    """What there is of it in this group."""
    state = step.state
    canary = state.canaries.get(group_id)
    fences = state.fences.get(group_id, {})
    runs = canary is not None and canary.runs
    if not runs and not fences and group_id not in state.balancing:
        return NO_CONTROLS
    newest = [fence for fence, _ in zip(reversed(fences.values()), range(MOST_FENCES), strict=False)]
    return Controls(
        canary_reply(canary) if runs else None, describe_balance(group_id, step), len(fences), tuple(newest)
    )


def describe_balance(group_id: str, step: Step) -> BalanceView | None:
    balancing = step.state.balancing.get(group_id)
    if balancing is None:
        return None
    rules = balancing.rules
    return BalanceView(
        rules.mode,
        why_balance_idle(group_id, step),
        balancing.heaviest,
        balancing.ratio,
        balancing.patience.rounds,
        rules.rounds,
        memory.count_resting(group_id, rules, step),
    )


def why_balance_idle(group_id: str, step: Step) -> str:
    """Why a balance that is on does not measure, judge, or move anything now; empty: it does."""
    balancing = step.state.balancing[group_id]
    group = step.state.logged(group_id)
    if balancing.refused:
        return balancing.refused
    if group is None or not group.members:
        return "nobody is in the group"
    from muster.coordinator.core.control.balance.resting import why_balance_cannot_act, why_balance_rests

    if why := why_balance_rests(group, step):
        return why
    if balancing.loads is None or not balancing.loads.rated:
        return "loads are known after two samples"
    return why_balance_cannot_act(group, KINDS[type(group)].plans_itself(group)) if balancing.rules.mode == ACT else ""
