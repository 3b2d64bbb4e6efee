"""Where the rest of a shard comes in to a group's balance. Where it is off nothing is done, and nothing is imported."""

from typing import TYPE_CHECKING

from muster.coordinator.core.control.balance import memory
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.balance_events import BalanceGoesOn
from muster.coordinator.core.model.core_events import LoadMeasured, Planned
from muster.coordinator.core.model.types import TimerKey

if TYPE_CHECKING:
    from muster.coordinator.core.control.balance.ongoing import OngoingBalance

BALANCE_TIMER = "balance"


def balance_timer(group_id: str) -> TimerKey:
    return (BALANCE_TIMER, group_id)


def apply_balance_settings(group_id: str, step: Step) -> None:
    """Begin, go on by other rules, or end. Rules that stay as they were interrupt nothing."""
    rules, balancing = memory.balance_rules_of(group_id, step.state), step.state.balancing.get(group_id)
    if not rules.on:
        if balancing is not None:
            del step.state.balancing[group_id]
            step.disarm(balance_timer(group_id))
        memory.forget_balance(group_id, step)
    elif balancing is None or balancing.rules != rules:
        begin_balance(group_id, step)


def begin_balance(group_id: str, step: Step) -> None:
    from muster.coordinator.core.control.balance.evaluating import fresh_balance

    step.state.balancing[group_id] = balancing = fresh_balance(group_id, step)
    step.arm(balance_timer(group_id), balancing.rules.sample_ms)


def load_balance(step: Step) -> None:
    """The shard has been replayed: loads are measured anew, moves are remembered."""
    for group_id in step.state.settings:
        if memory.balance_rules_of(group_id, step.state).on:
            begin_balance(group_id, step)


def take_sample_due(group_id: str, step: Step) -> None:
    """It is time for a sample."""
    balancing = step.state.balancing.get(group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance.evaluating import request_measurement

        step.arm(balance_timer(group_id), balancing.rules.sample_ms)
        request_measurement(group_id, balancing, step)


def take_measured(event: LoadMeasured, step: Step) -> None:
    balancing = step.state.balancing.get(event.group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance import evaluating

        evaluating.take_measurement(event, balancing, step)


def continue_evaluation(event: BalanceGoesOn, step: Step) -> None:
    balancing = step.state.balancing.get(event.group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance import evaluating

        evaluating.go_on_from(event, balancing, step)


def take_balance_plan(event: Planned, step: Step) -> bool:
    """Whether the plan was asked for here: then it is of no group's own."""
    balancing: OngoingBalance | None = step.state.balancing.get(event.group_id)
    if balancing is None or not balancing.asked or event.epoch != balancing.asked:
        return False
    from muster.coordinator.core.control.balance import evaluating

    evaluating.take_balance_result(event, balancing, step)
    return True
