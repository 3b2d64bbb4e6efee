"""When a group that is assigned on the coordinator gets a new plan, other than by its members coming and going."""

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.rebalance import prepare_rebalance
from coordinator.core.ledger import Trigger
from coordinator.core.state import Step
from coordinator.core.types import Cause, GroupState


def retry(group: ClassicGroup, step: Step) -> None:
    """The assignor failed, and no earlier plan fitted: call everybody back and try once more."""
    assert group.state is GroupState.COMPLETING_REBALANCE
    prepare_rebalance(group, Trigger(Cause.ASSIGNOR_FAILED, f"{group.plan_error}; tried again"), step)


def topics_changed(step: Step) -> None:
    """Nobody leads these groups, so nobody else watches what they read."""
    for group in list(step.state.groups.values()):
        if not (group.remote and group.is_in(GroupState.STABLE)):
            continue
        changes = changed_counts(group, step)
        if changes:
            prepare_rebalance(group, Trigger(Cause.PARTITIONS_CHANGED, f"partition counts changed: {changes}"), step)


def changed_counts(group: ClassicGroup, step: Step) -> str:
    before, now = group.planned_topics, step.state.partitions
    wanted = before.keys() | (group.subscribed_topics or frozenset())
    return ", ".join(
        f"{topic} {before.get(topic, 0)} -> {now.get(topic, 0)}"
        for topic in sorted(wanted)
        if before.get(topic, 0) != now.get(topic, 0)
    )
