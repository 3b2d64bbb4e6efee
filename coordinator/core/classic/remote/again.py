"""When a group that is assigned on the coordinator gets a new plan, other than by its members coming and going."""

from muster.coordinator.core.classic import history
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.rebalance import prepare_rebalance
from muster.coordinator.core.classic.static import covers_topics
from muster.coordinator.core.ledger import Trigger
from muster.coordinator.core.state import Step
from muster.coordinator.core.types import Cause, GroupState, RebalanceEntry


def retry(group: ClassicGroup, step: Step) -> None:
    """The assignor failed, and no earlier plan fitted: call everybody back and try once more."""
    assert group.state is GroupState.COMPLETING_REBALANCE
    prepare_rebalance(group, Trigger(Cause.ASSIGNOR_FAILED, f"{group.plan_error}; tried again"), step)


def loaded(group: ClassicGroup, step: Step) -> None:
    """What had called for another plan may have died with the process, and nobody who is left would call for it again.

    Topics may have grown, the plan's input may not be on record, or the group has only just turned classic: the target
    that it came with still counts on those who went.
    """
    if not (group.is_in(GroupState.STABLE) and step.state.catalog_known):
        return
    last = history.newest_plan(group, step)
    if group.remote:
        compare(group, step)
    elif last is None:
        return
    elif last.generation == group.generation and ("plan", ()) in planners(last):
        trigger = Trigger(
            Cause.COORDINATOR_FAILOVER, "the coordinator made the last plan; what it was made from is lost"
        )
        prepare_rebalance(group, trigger, step)
    elif "assign" in dict(planners(last)) and not covers_topics(group, step):
        trigger = Trigger(Cause.COORDINATOR_FAILOVER, "the group had turned classic, and was not assigned anew yet")
        prepare_rebalance(group, trigger, step)


def planners(entry: RebalanceEntry) -> list[tuple[str, tuple[str, ...]]]:
    """The phases of a rebalance, and whom each waited for: a "plan" that waited for nobody was made here, and so was a
    target ("assign")."""
    return [(phase.name, phase.waited_for) for phase in entry.phases]


def topics_changed(group: ClassicGroup, step: Step) -> None:
    """Nobody leads such a group, so nobody else watches what it reads."""
    if group.remote and group.is_in(GroupState.STABLE):
        compare(group, step)


def compare(group: ClassicGroup, step: Step) -> None:
    """Call everybody back if the plan was made from other partition counts than there are."""
    if changes := changed_counts(group, step):
        prepare_rebalance(group, Trigger(Cause.PARTITIONS_CHANGED, f"partition counts changed: {changes}"), step)


def settings_changed(group: ClassicGroup, trigger: Trigger, step: Step) -> None:
    """What was planned without the change is void. While members are still awaited it counts when they are there."""
    if group.remote and group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, trigger, step)


def changed_counts(group: ClassicGroup, step: Step) -> str:
    before, now = group.planned_topics, step.state.partitions
    wanted = before.keys() | (group.subscribed_topics or frozenset())
    return ", ".join(
        f"{topic} {before.get(topic, 0)} -> {now.get(topic, 0)}"
        for topic in sorted(wanted)
        if before.get(topic, 0) != now.get(topic, 0)
    )
