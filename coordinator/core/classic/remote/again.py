"""When a group that is assigned on the coordinator gets a new plan, other than by its members coming and going."""

from dataclasses import replace

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import Member
from muster.coordinator.core.classic.rebalance import prepare_rebalance
from muster.coordinator.core.classic.remote import plans, restricted
from muster.coordinator.core.classic.static import covers_topics
from muster.coordinator.core.control.assigning import Planner, options_differ, suspended
from muster.coordinator.core.control.holds.standing import resting
from muster.coordinator.core.control.who import wanted_assignor
from muster.coordinator.core.entries import newest_plan
from muster.coordinator.core.events import Planned
from muster.coordinator.core.ledger import Trigger, by_member
from muster.coordinator.core.rights import Rights, RightsAnew, anew, change, readable
from muster.coordinator.core.state import Step
from muster.coordinator.core.types import Cause, GroupState, Outcome, RebalanceEntry

TURNED_CLASSIC = Trigger(Cause.COORDINATOR_FAILOVER, "the group had turned classic, and was not assigned anew yet")

CALL_FOR_A_PLAN = frozenset({Cause.THAW, Cause.DEPLOY_OVER, Cause.DRAINED, Cause.PIN_CHANGED})
"""Causes under which the ledger tells of what is held, and a rebalance of its own follows."""

TOLD = 5
"""Partitions that a sentence names."""


def retry(group: ClassicGroup, step: Step) -> None:
    """The assignor failed, and no earlier plan fitted: call everybody back and try once more."""
    assert group.state is GroupState.COMPLETING_REBALANCE
    prepare_rebalance(group, Trigger(Cause.ASSIGNOR_FAILED, f"{group.plan_error}; tried again"), step)


def loaded(group: ClassicGroup, step: Step) -> None:
    """What had called for another plan may have died with the process, and nobody who is left would call for it again.

    Settings may have changed, topics grown, the plan's input may not be on record, or the group has only just turned
    classic: the target that it came with still counts on those who went.
    """
    if not group.is_in(GroupState.STABLE):
        return
    if group.remote and group.carried:
        plans.await_release(group, step)
    if turned_classic(group, step) and resting(step.state, group.id):
        planned_on(group, step)
        return
    was = group.planner
    if not still_set(was, group, step):
        group.planner = plans.planner_of(group, step)
    if planned_otherwise(group, was, step):
        called_for(group, was, Trigger(Cause.OPERATOR, "settings were changed before the node went down"), step)
    elif (word := unheeded(group, step)) is not None:
        prepare_rebalance(group, Trigger(word.cause, f"{word.detail}, before the node went down", word.culprit), step)
    elif step.state.catalog_known:
        watched_again(group, step)


def still_set(was: Planner, group: ClassicGroup, step: Step) -> bool:
    """The setting that made the last plan is there: what its members asked for beside it nobody knows any more."""
    wanted = wanted_assignor(step.state, group.id)
    return was.by_setting and wanted == was.assignor and not suspended(step.state, group.id)


def watched_again(group: ClassicGroup, step: Step) -> None:
    last = newest_plan(group, step)
    if group.remote:
        compare(group, step)
    elif last is None:
        return
    elif last.generation == group.generation and ("plan", ()) in planners(last):
        trigger = Trigger(
            Cause.COORDINATOR_FAILOVER, "the coordinator made the last plan; what it was made from is lost"
        )
        prepare_rebalance(group, trigger, step)
    elif turned_classic(group, step) and not covers_topics(group, step):
        prepare_rebalance(group, TURNED_CLASSIC, step)


def word_lost(group: ClassicGroup, step: Step) -> None:
    """If the ledger does not tell who made the last plan either, it may be one that nobody leads, or watches for."""
    last = newest_plan(group, step)
    told = last is not None and last.generation == group.generation
    if group.is_in(GroupState.STABLE) and not group.remote and not told:
        prepare_rebalance(group, Trigger(Cause.COORDINATOR_FAILOVER, "who made the last plan is lost"), step)


def unheeded(group: ClassicGroup, step: Step) -> RebalanceEntry | None:
    """The newest word of an operator, or of time, that called for a plan and got none: its rebalance died half way."""
    ledger, last = step.state.ledgers.get(group.id), newest_plan(group, step)
    if ledger is None or last is None:
        return None
    words = [
        entry
        for entry in ledger.entries.values()
        if entry.outcome is Outcome.HELD
        and entry.cause in CALL_FOR_A_PLAN
        and entry.number > last.number
        and entry.generation == group.generation
        and entry.ended_at_ms > last.ended_at_ms
    ]
    return max(words, key=lambda entry: entry.number, default=None)


def turned_classic(group: ClassicGroup, step: Step) -> bool:
    """The group had been a KIP-848 group, and no generation has been completed since."""
    last = newest_plan(group, step)
    return last is not None and "assign" in dict(planners(last))


def planned_on(group: ClassicGroup, step: Step) -> None:
    """It had turned classic while nobody could lose anything: the coordinator goes on, as before the crash."""
    last = newest_plan(group, step)
    name = wanted_assignor(step.state, group.id) or (last.protocol_name if last is not None else "")
    group.planner = Planner(name, by_setting=True)
    prepare_rebalance(group, TURNED_CLASSIC, step)


def planners(entry: RebalanceEntry) -> list[tuple[str, tuple[str, ...]]]:
    """The phases of a rebalance, and whom each waited for: a "plan" that waited for nobody was made here, and so was a
    target ("assign")."""
    return [(phase.name, phase.waited_for) for phase in entry.phases]


def planned(group: ClassicGroup, event: Planned, step: Step) -> None:
    """A plan that was put off is there. Topics that grew while it was made are not in it, and were passed over then."""
    plans.planned(group, event, step)
    topics_changed(group, step)


def topics_changed(group: ClassicGroup, step: Step) -> None:
    """Nobody leads such a group, so nobody else watches what it reads."""
    if group.remote and group.is_in(GroupState.STABLE):
        compare(group, step)


def compare(group: ClassicGroup, step: Step) -> None:
    """Call everybody back if the plan was made from other partition counts than there are."""
    if changes := changed_counts(group, step):
        prepare_rebalance(group, Trigger(Cause.PARTITIONS_CHANGED, f"partition counts changed: {changes}"), step)


def rights_changed(group: ClassicGroup, event: RightsAnew, step: Step) -> None:
    """Call everybody back where the plan was made for what somebody may read no longer, or might have more now.

    Who has only said that it lives since the log was read is called back, too: whether it is concerned, it alone says.
    """
    triggers = []
    for member in group.members.values():
        before, member.rights = member.rights, anew(member.rights, event)
        if group.remote and before is None:
            what = "has to say what it may read: that has changed since the coordinator was reloaded, perhaps"
            triggers.append(by_member(Cause.SUBSCRIPTION_CHANGED, member, what))
        if before is member.rights or not group.remote:
            continue
        topics = frozenset(plans.read_member(member, group.protocol_name).topics)
        was, now = readable(before, topics), readable(member.rights, topics)
        if was != now:
            triggers.append(by_member(Cause.SUBSCRIPTION_CHANGED, member, change(was, now)))
    if triggers and group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, triggers[0], step)


def rights_said(group: ClassicGroup, member: Member, rights: Rights, step: Step) -> None:
    """A heartbeat has said what its member may: of whoever has not been heard since the log was read it is news."""
    what = restricted.heard(group, member, rights, step.state)
    if what and group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, by_member(Cause.SUBSCRIPTION_CHANGED, member, what), step)


def settings_changed(group: ClassicGroup, trigger: Trigger, step: Step) -> None:
    """What was planned without the change is void. While members are still awaited it counts when they are there."""
    if not group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        return
    was, group.planner = group.planner, plans.planner_of(group, step)
    if planned_otherwise(group, was, step):
        called_for(group, was, trigger, step)


def planned_otherwise(group: ClassicGroup, was: Planner, step: Step) -> bool:
    """Whether the plan at hand was made by another than would make it now, or with other options."""
    if not group.planner.same(was):
        return True
    return bool(group.remote) and options_differ(group.planned_options, group.id, step.state)


def called_for(group: ClassicGroup, was: Planner, trigger: Trigger, step: Step) -> None:
    """Call everybody back, saying who plans from now on."""
    now = planner_name(group.planner)
    detail = f"{now} plans anew" if group.planner.same(was) else f"{now} plans from now on, not {planner_name(was)}"
    prepare_rebalance(group, replace(trigger, cause=Cause.ASSIGNOR_CHANGED, detail=f"{detail}: {trigger.detail}"), step)


def planner_name(planner: Planner) -> str:
    return f"the coordinator by {planner.assignor}" if planner.assignor else "a member"


def follow_up(group: ClassicGroup, step: Step) -> None:
    """What a plan withheld has to be given out, and nobody who let go of it has called for that.

    Whoever has not fetched its share by the same moment goes first: else each round would give it time for the next,
    and what is withheld for its sake would wait for ever.
    """
    if step.state.deadlines.get(group.sync_timer, step.now_ms + 1) <= step.now_ms:
        step.arm(group.follow_timer, 1)
        return
    waiting = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(group.carried)[:TOLD])
    more = f" and {len(group.carried) - TOLD} more" if len(group.carried) > TOLD else ""
    detail = f"{waiting}{more} wait for whoever let go of them to join again; nobody has within the handoff timeout"
    prepare_rebalance(group, Trigger(Cause.REVOCATION_FOLLOW_UP, detail), step)


def ended(group: ClassicGroup, trigger: Trigger, step: Step) -> None:
    """An operator's word ends what stands: everybody is called back, whoever plans."""
    if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, trigger, step)


def changed_counts(group: ClassicGroup, step: Step) -> str:
    before, now = group.planned_topics, step.state.partitions
    wanted = before.keys() | (group.subscribed_topics or frozenset())
    return ", ".join(
        f"{topic} {before.get(topic, 0)} -> {now.get(topic, 0)}"
        for topic in sorted(wanted)
        if before.get(topic, 0) != now.get(topic, 0)
    )
