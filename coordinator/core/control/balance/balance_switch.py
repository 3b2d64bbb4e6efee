"""Turns a group's balance on and off by its settings, and passes its events on to the evaluation.

Where balance is off nothing is done, and numpy and the evaluation are not imported.
"""

from typing import TYPE_CHECKING, Any

from muster.coordinator.core.control.balance import group_balance
from muster.coordinator.core.control.balance.group_balance import why_balance_cannot_act
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import BalanceGoesOn, LoadMeasured, Planned
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.types import TimerKey
from muster.coordinator.core.settings.assignor_choice import ASSIGNOR, check_said_once
from muster.coordinator.core.settings.setting import (
    Check,
    GroupScope,
    Setting,
    SettingsChange,
    accept_any_value,
    invalid_setting,
)
from muster.coordinator.core.settings.shapes import ACT, FIELDS, BalanceRules

if TYPE_CHECKING:
    from muster.coordinator.core.control.balance.evaluation import OngoingBalance


BALANCE_TIMER = "balance"


def balance_timer(group_id: str) -> TimerKey:
    return (BALANCE_TIMER, group_id)


def apply_balance_settings(group_id: str, step: Step) -> None:
    """Begin, go on by other rules, or end. Rules that stay as they were interrupt nothing."""
    rules, balancing = group_balance.balance_rules_of(group_id, step.state), step.state.balancing.get(group_id)
    if not rules.on:
        if balancing is not None:
            del step.state.balancing[group_id]
            step.disarm(balance_timer(group_id))
        group_balance.forget_balance(group_id, step)
    elif balancing is None or balancing.rules != rules:
        begin_balance(group_id, step)


def begin_balance(group_id: str, step: Step) -> None:
    from muster.coordinator.core.control.balance.evaluation import fresh_balance

    step.state.balancing[group_id] = balancing = fresh_balance(group_id, step)
    step.arm(balance_timer(group_id), balancing.rules.sample_ms)


def load_balance(step: Step) -> None:
    """The shard has been replayed: loads are measured anew, moves are remembered."""
    for group_id in step.state.settings:
        if group_balance.balance_rules_of(group_id, step.state).on:
            begin_balance(group_id, step)


def take_sample_due(group_id: str, step: Step) -> None:
    """It is time for a sample."""
    balancing = step.state.balancing.get(group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance.evaluation import request_measurement

        step.arm(balance_timer(group_id), balancing.rules.sample_ms)
        request_measurement(group_id, balancing, step)


def take_measured(event: LoadMeasured, step: Step) -> None:
    balancing = step.state.balancing.get(event.group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance import evaluation

        evaluation.take_measurement(event, balancing, step)


def continue_evaluation(event: BalanceGoesOn, step: Step) -> None:
    balancing = step.state.balancing.get(event.group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance import evaluation

        evaluation.go_on_from(event, balancing, step)


def take_balance_plan(event: Planned, step: Step) -> bool:
    """Whether the plan was asked for here: then it is of no group's own."""
    balancing: OngoingBalance | None = step.state.balancing.get(event.group_id)
    if balancing is None or not balancing.asked or event.epoch != balancing.asked:
        return False
    from muster.coordinator.core.control.balance import evaluation

    evaluation.take_balance_result(event, balancing, step)
    return True


# Settings
# --------


def check_may_act(value: str, change: SettingsChange) -> None:
    """Only where single partitions can be moved, and by the coordinator."""
    if value != ACT:
        return
    plans_itself = change.kind.plans_itself(change.group) and ASSIGNOR.name not in change.after
    if why := why_balance_cannot_act(change.group, plans_itself):
        raise invalid_setting(f"balance cannot be {ACT!r}: {why}")


def apply_balance_change(change: SettingsChange, trigger: RebalanceTrigger) -> None:
    apply_balance_settings(change.group_id, change.step)


def balance_setting(name: str, meaning: str, check: Check = accept_any_value) -> Setting[Any]:
    field, shape = FIELDS[name]
    return Setting(
        name,
        shape,
        getattr(BalanceRules(), field),
        GroupScope.PLANNED,
        meaning,
        check,
        check_said_once,
        apply_balance_change,
    )


SETTINGS = (
    balance_setting(
        "balance",
        "Whether load is measured and kept even: watch records what it would move, act moves it.",
        check_may_act,
    ),
    balance_setting(
        "balance.min.gain", "The share by which the heaviest member's load must fall before anything moves."
    ),
    balance_setting(
        "balance.rounds", "How many evaluations in a row must find that a plan pays off before it is carried out."
    ),
    balance_setting("balance.cooldown.ms", "How long a partition that has moved stays where it is, in milliseconds."),
    balance_setting("balance.move.budget", "The most partitions that move at a time; 0 moves all that pay off."),
    balance_setting("balance.sample.ms", "The time between two measurements of the group's load, in milliseconds."),
    balance_setting(
        "balance.drain.target.ms", "Waiting records count as load to be read within this many milliseconds."
    ),
)
