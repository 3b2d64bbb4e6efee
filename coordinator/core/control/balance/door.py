"""Where the rest of a shard comes in to a group's balance. Where it is off nothing is done, and nothing is imported."""

from typing import TYPE_CHECKING

from muster.coordinator.core.control.balance import memory
from muster.coordinator.core.control.balance.events import BalanceGoesOn
from muster.coordinator.core.events import LoadMeasured, Planned
from muster.coordinator.core.state import Step
from muster.coordinator.core.types import TimerKey

if TYPE_CHECKING:
    from muster.coordinator.core.control.balance.ongoing import Balancing

TIMER = "balance"


def timer(group_id: str) -> TimerKey:
    return (TIMER, group_id)


def settings_changed(group_id: str, step: Step) -> None:
    """Begin, go on by other rules, or end. Rules that stay as they were interrupt nothing."""
    rules, balancing = memory.rules_for(group_id, step.state), step.state.balancing.get(group_id)
    if not rules.on:
        if balancing is not None:
            del step.state.balancing[group_id]
            step.disarm(timer(group_id))
        memory.forget(group_id, step)
    elif balancing is None or balancing.rules != rules:
        begin(group_id, step)


def begin(group_id: str, step: Step) -> None:
    from muster.coordinator.core.control.balance.evaluating import fresh

    step.state.balancing[group_id] = balancing = fresh(group_id, step)
    step.arm(timer(group_id), balancing.rules.sample_ms)


def loaded(step: Step) -> None:
    """The shard has been replayed: loads are measured anew, moves are remembered."""
    for group_id in step.state.settings:
        if memory.rules_for(group_id, step.state).on:
            begin(group_id, step)


def due(group_id: str, step: Step) -> None:
    """It is time for a sample."""
    balancing = step.state.balancing.get(group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance.evaluating import measure

        step.arm(timer(group_id), balancing.rules.sample_ms)
        measure(group_id, balancing, step)


def measured(event: LoadMeasured, step: Step) -> None:
    balancing = step.state.balancing.get(event.group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance import evaluating

        evaluating.measured(event, balancing, step)


def goes_on(event: BalanceGoesOn, step: Step) -> None:
    balancing = step.state.balancing.get(event.group_id)
    if balancing is not None:
        from muster.coordinator.core.control.balance import evaluating

        evaluating.goes_on(event, balancing, step)


def planned(event: Planned, step: Step) -> bool:
    """Whether the plan was asked for here: then it is of no group's own."""
    balancing: Balancing | None = step.state.balancing.get(event.group_id)
    if balancing is None or not balancing.asked or event.epoch != balancing.asked:
        return False
    from muster.coordinator.core.control.balance import evaluating

    evaluating.planned(event, balancing, step)
    return True
