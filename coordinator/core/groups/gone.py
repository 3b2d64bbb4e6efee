"""A canary's group is gone: so is the canary. Apart from the rest of it, which knows the kinds of groups."""

from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.trial_records import CanaryForgotten
from muster.coordinator.core.model.types import TimerKey

CANARY_TIMER = "canary"


def canary_timer(group_id: str) -> TimerKey:
    """Fires when the canary's time is over."""
    return (CANARY_TIMER, group_id)


def forget_canary(group_id: str, step: Step) -> None:
    """Nothing is left that it could be tried on."""
    if group_id in step.state.canaries:
        step.disarm(canary_timer(group_id))
        step.state.lag_over.pop(group_id, None)
        step.keep(CanaryForgotten(group_id))
