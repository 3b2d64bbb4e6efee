"""The freeze of a classic group is over: everybody is called back, and the door opens."""

from muster.coordinator.core.classic import again, door, join
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import JoinReply
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.errors import CoordinatorError


def call_back_after_freeze(group: ClassicGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """Whoever plans for it. Those who waited join this very round."""
    again.end_standing_plan(group, trigger, step)
    for request in door.release_newcomers(group, step):
        try:
            join.join_group(group, request, step)
        except CoordinatorError as refusal:
            step.reply(request.request_id, JoinReply(refusal.code, refusal.message))
