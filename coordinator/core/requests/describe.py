"""Read-only views of groups: describe, list, explain, and what balance, canary and fences say of a group."""

from dataclasses import replace
from typing import Final

from muster.coordinator.core.control.balance import group_balance
from muster.coordinator.core.control.trials.canary import canary_reply
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import NO_CONTROLS, BalanceView, Controls, ExplainReply, ListReply
from muster.coordinator.core.model.events import DescribeConsumerGroup, DescribeGroup, ExplainGroup, ListGroups
from muster.coordinator.core.model.ledger import GroupLedger, entry_with_settlement
from muster.coordinator.core.model.types import Stall, Takeover
from muster.coordinator.core.settings.shapes import ACT
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Balance, canary and fences
# --------------------------

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
        group_balance.count_resting(group_id, rules, step),
    )


def why_balance_idle(group_id: str, step: Step) -> str:
    """Why a balance that is on does not measure, judge, or move anything now; empty: it does."""
    balancing = step.state.balancing[group_id]
    group = step.state.logged(group_id)
    if balancing.refused:
        return balancing.refused
    if group is None or not group.members:
        return "nobody is in the group"
    if why := group_balance.why_balance_rests(group, step):
        return why
    if balancing.loads is None or not balancing.loads.rated:
        return "loads are known after two samples"
    if balancing.rules.mode != ACT:
        return ""
    return group_balance.why_balance_cannot_act(group, KINDS[type(group)].plans_itself(group))


def describe_group(request: DescribeGroup, step: Step) -> None:
    """The group as any client may look at it, whatever its kind."""
    group = step.state.groups.get(request.group_id)
    view = KINDS[type(group)].view(group, request.group_id, step)
    step.out.rows += len(view.members)
    step.reply(request.request_id, replace(view, controls=describe_controls(request.group_id, step)))


def describe_consumer_group(request: DescribeConsumerGroup, step: Step) -> None:
    """Epochs, and for each member what it has and what it is to have."""
    group = step.state.groups.get(request.group_id)
    view = KINDS[type(group)].epochs(group, request.group_id, step)
    step.out.rows += len(view.members)
    step.reply(request.request_id, view)


def list_groups(request: ListGroups, step: Step) -> None:
    """The groups of this shard that pass both filters: by name if they are few, in slices if they are many."""
    groups, most = step.state.groups, step.limits.slice_positions
    names = tuple(groups) if request.rest is None else request.rest
    states = {state.lower() for state in request.states}
    types = {group_type.lower() for group_type in request.types}
    here = [group for name in names[:most] if (group := groups.get(name)) is not None]
    listed = [line for group in here for line in KINDS[type(group)].listed(group)]
    passed = [
        group
        for group in sorted(listed, key=lambda group: group.group_id)
        if (not states or group.state.lower() in states) and (not types or group.group_type in types)
    ]
    found = (*request.found, *passed)
    if len(names) > most:
        step.out.chores.append(replace(request, rest=names[most:], found=found))
    else:
        step.reply(request.request_id, ListReply(groups=found))


def explain_group(request: ExplainGroup, step: Step) -> None:
    """The group's rebalances, newest first. The ledger outlives the group's members, not the group."""
    ledger = step.state.ledgers.get(request.group_id)
    if ledger is None:
        if request.group_id not in step.state.groups:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
        step.reply(request.request_id, ExplainReply())
        return
    entries = [
        entry_with_settlement(ledger, number)
        for number, entry in sorted(ledger.entries.items(), reverse=True)
        if request.generation in (0, entry.generation)
    ]
    shown = tuple(entries[: request.limit or None])
    since_ms = shown[-1].started_at_ms if shown else step.now_ms
    stalls, takeovers = stalls_since(since_ms, ledger, step), takeovers_since(since_ms, ledger, step)
    step.reply(request.request_id, ExplainReply(entries=shown, stalls=stalls, takeovers=takeovers))


def takeovers_since(since_ms: int, ledger: GroupLedger, step: Step) -> tuple[Takeover, ...]:
    """Which nodes took the shard over since then while the group had members, newest first."""
    takeovers = sorted(step.state.takeovers.values(), key=lambda takeover: -takeover.epoch)
    return tuple(each for each in takeovers if each.serving_ms >= since_ms and ledger.had_members(each.serving_ms))


def stalls_since(since_ms: int, ledger: GroupLedger, step: Step) -> tuple[Stall, ...]:
    """When the node stood still since then and the group had members whose deadlines moved by it, newest first."""
    stalls = reversed(step.state.stalls.values())
    return tuple(stall for stall in stalls if stall.ended_at_ms >= since_ms and ledger.had_members(stall.ended_at_ms))
