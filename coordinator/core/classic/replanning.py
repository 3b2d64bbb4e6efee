"""When a group that the coordinator plans gets a new plan, other than by members that join and leave.

Reasons are changes of topics, rights and settings, the end of an override, a reload, and withheld partitions.

A member that was called to release a partition and does not join the round that hands it out is removed after
`handoff.timeout.ms`; other members of the round have their rebalance timeout.

A client that does not fetch its share from a coordinator that plans by a setting gets its leader back. One generation
without it may be an accident; after two in a row spoilt by the same client, the setting is suspended until it is set
again, and the ledger names client and version.
"""

from dataclasses import replace

from muster.assignors.data.values import TOLD_BESIDE
from muster.coordinator.core.classic import server_side_assignment
from muster.coordinator.core.classic.early_rejoins import retell_rejoins
from muster.coordinator.core.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicPlanner,
    describe_client,
    handoff_timeout_ms,
    have_options_changed,
    suspension_reason,
)
from muster.coordinator.core.classic.rebalance import (
    covers_topics,
    maybe_complete_join,
    prepare_rebalance,
    remove_member,
)
from muster.coordinator.core.groups.bookkeeping import newest_plan_entry
from muster.coordinator.core.groups.member_causes import changes_since, describe_changes
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import Planned
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.rights import (
    Rights,
    RightsAnew,
    describe_rights_change,
    readable_topics,
    refreshed_rights,
)
from muster.coordinator.core.model.shadow_scoring import AssignorCandidate
from muster.coordinator.core.model.types import Cause, GroupState, Outcome, RebalanceEntry, WaitEnd
from muster.coordinator.core.settings.assignor_choice import ASSIGNOR, chosen_assignor

TURNED_CLASSIC = RebalanceTrigger(
    Cause.COORDINATOR_FAILOVER, "the group had turned classic, and was not assigned anew yet"
)

CALL_FOR_A_PLAN = frozenset({Cause.THAW, Cause.DEPLOY_OVER, Cause.DRAINED, Cause.PIN_CHANGED})
"""Causes under which the ledger tells of what is held, and a rebalance of its own follows."""

TOLD = 5
"""Partitions that a sentence names."""


def retry_plan(group: ClassicGroup, step: Step) -> None:
    """The assignor failed, and no earlier plan fitted: call everybody back and try once more."""
    assert group.state is GroupState.COMPLETING_REBALANCE
    prepare_rebalance(group, RebalanceTrigger(Cause.ASSIGNOR_FAILED, f"{group.plan_error}; tried again"), step)


def replan_after_load(group: ClassicGroup, step: Step) -> None:
    """What had called for another plan may have died with the process, and nobody who is left would call for it again.

    Settings may have changed, topics grown, the plan's input may not be on record, or the group has only just turned
    classic: the target that it came with still counts on those who went.
    """
    if not group.is_in(GroupState.STABLE):
        return
    if group.remote and group.carried:
        server_side_assignment.await_release(group, step)
    if replan_after_downgrade(group, step) and step.state.extensions.protects_members(group.id, step.state):
        plan_kept_after_downgrade(group, step)
        return
    was = group.planner
    if not is_still_set(was, group, step):
        group.planner = server_side_assignment.planner_of(group, step)
    if is_planned_otherwise(group, was, step):
        call_back_for(
            group, was, RebalanceTrigger(Cause.OPERATOR, "settings were changed before the node went down"), step
        )
    elif (word := unheeded_trigger(group, step)) is not None:
        prepare_rebalance(
            group, RebalanceTrigger(word.cause, f"{word.detail}, before the node went down", word.culprit), step
        )
    elif step.state.catalog_known:
        rewatch_after_load(group, step)


def is_still_set(was: ClassicPlanner, group: ClassicGroup, step: Step) -> bool:
    """The setting that made the last plan is there: what its members asked for beside it nobody knows any more."""
    wanted = chosen_assignor(step.state, group.id)
    return was.by_setting and wanted == was.assignor and not suspension_reason(step.state, group.id)


def rewatch_after_load(group: ClassicGroup, step: Step) -> None:
    last = newest_plan_entry(group, step)
    if group.remote:
        compare_partition_counts(group, step)
    elif last is None:
        return
    elif last.generation == group.generation and ("plan", ()) in planners_in_entry(last):
        trigger = RebalanceTrigger(
            Cause.COORDINATOR_FAILOVER, "the coordinator made the last plan; what it was made from is lost"
        )
        prepare_rebalance(group, trigger, step)
    elif replan_after_downgrade(group, step) and not covers_topics(group, step):
        prepare_rebalance(group, TURNED_CLASSIC, step)


def replan_after_lost_setting(group: ClassicGroup, step: Step) -> None:
    """If the ledger does not tell who made the last plan either, it may be one that nobody leads, or watches for."""
    last = newest_plan_entry(group, step)
    told = last is not None and last.generation == group.generation
    if group.is_in(GroupState.STABLE) and not group.remote and not told:
        prepare_rebalance(group, RebalanceTrigger(Cause.COORDINATOR_FAILOVER, "who made the last plan is lost"), step)


def unheeded_trigger(group: ClassicGroup, step: Step) -> RebalanceEntry | None:
    """The newest word of an operator, or of time, that called for a plan and got none: its rebalance died half way."""
    ledger, last = step.state.ledgers.get(group.id), newest_plan_entry(group, step)
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


def replan_after_downgrade(group: ClassicGroup, step: Step) -> bool:
    """The group had been a KIP-848 group, and no generation has been completed since."""
    last = newest_plan_entry(group, step)
    return last is not None and "assign" in dict(planners_in_entry(last))


def plan_kept_after_downgrade(group: ClassicGroup, step: Step) -> None:
    """It had turned classic while nobody could lose anything: the coordinator goes on, as before the crash."""
    last = newest_plan_entry(group, step)
    name = chosen_assignor(step.state, group.id) or (last.protocol_name if last is not None else "")
    group.planner = ClassicPlanner(name, by_setting=True)
    prepare_rebalance(group, TURNED_CLASSIC, step)


def planners_in_entry(entry: RebalanceEntry) -> list[tuple[str, tuple[str, ...]]]:
    """The phases of a rebalance, and whom each waited for: a "plan" that waited for nobody was made here, and so was a
    target ("assign")."""
    return [(phase.name, phase.waited_for) for phase in entry.phases]


def take_planned_again(group: ClassicGroup, event: Planned, step: Step) -> None:
    """A plan that was put off is there. Topics that grew while it was made are not in it, and were passed over then."""
    server_side_assignment.take_planned(group, event, step)
    topics_changed(group, step)


def take_topics(group: ClassicGroup, step: Step) -> None:
    """The catalog has changed."""
    retell_rejoins(group, step)
    topics_changed(group, step)


def topics_changed(group: ClassicGroup, step: Step) -> None:
    """Nobody leads such a group, so nobody else watches what it reads."""
    if group.remote and group.is_in(GroupState.STABLE):
        compare_partition_counts(group, step)


def compare_partition_counts(group: ClassicGroup, step: Step) -> None:
    """Call everybody back if the plan was made from other partition counts than there are."""
    if counts := changed_counts(group, step):
        read = group.planned_topics.keys() | (group.subscribed_topics or frozenset())
        changes = changes_since(step.state, read, group.planned_at_ms)
        detail = describe_changes(changes) if changes else f"partition counts changed: {counts}"
        prepare_rebalance(group, RebalanceTrigger(Cause.PARTITIONS_CHANGED, detail, topics=changes), step)


def rights_changed(group: ClassicGroup, event: RightsAnew, step: Step) -> None:
    """Call everybody back where the plan was made for what somebody may read no longer, or might have more now.

    Who has only said that it lives since the log was read is called back, too: whether it is concerned, it alone says.
    """
    triggers = []
    for member in group.members.values():
        before, member.rights = member.rights, refreshed_rights(member.rights, event)
        if group.remote and before is None:
            what = "has to say what it may read: that has changed since the coordinator was reloaded, perhaps"
            triggers.append(trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, what))
        if before is member.rights or not group.remote:
            continue
        topics = frozenset(server_side_assignment.assignor_member(member, group.protocol_name).topics)
        was, now = readable_topics(before, topics), readable_topics(member.rights, topics)
        if was != now:
            triggers.append(trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, describe_rights_change(was, now)))
    if triggers and group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, triggers[0], step)


def take_said_rights(group: ClassicGroup, member: ClassicMember, rights: Rights, step: Step) -> None:
    """A heartbeat has said what its member may: of whoever has not been heard since the log was read it is news."""
    what = server_side_assignment.take_rights(group, member, rights, step.state)
    if what and group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, what), step)


def settings_changed(group: ClassicGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """What was planned without the change is void. While members are still awaited it counts when they are there."""
    if not group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        return
    was, group.planner = group.planner, server_side_assignment.planner_of(group, step)
    if is_planned_otherwise(group, was, step):
        call_back_for(group, was, trigger, step)


def is_planned_otherwise(group: ClassicGroup, was: ClassicPlanner, step: Step) -> bool:
    """Whether the plan at hand was made by another than would make it now, or with other options."""
    if not group.planner.same(was):
        return True
    return bool(group.remote) and have_options_changed(group.planned_options, group.id, step.state)


def is_planned_by(group: ClassicGroup, candidate: AssignorCandidate, step: Step) -> bool:
    """Whether an operator's setting has it make the plans already, with these options."""
    asked = {name: value for name, value in group.planned_options.items() if name not in TOLD_BESIDE}
    same = group.planner.by_setting and group.planner.assignor == candidate.name
    return same and bool(group.remote) and asked == dict(candidate.options)


def call_back_for(group: ClassicGroup, was: ClassicPlanner, trigger: RebalanceTrigger, step: Step) -> None:
    """Call everybody back, saying who plans from now on."""
    now = planner_name(group.planner)
    detail = f"{now} plans anew" if group.planner.same(was) else f"{now} plans from now on, not {planner_name(was)}"
    prepare_rebalance(group, replace(trigger, cause=Cause.ASSIGNOR_CHANGED, detail=f"{detail}: {trigger.detail}"), step)


def planner_name(planner: ClassicPlanner) -> str:
    return f"the coordinator by {planner.assignor}" if planner.assignor else "a member"


def start_follow_up_round(group: ClassicGroup, step: Step) -> None:
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
    prepare_rebalance(group, RebalanceTrigger(Cause.REVOCATION_FOLLOW_UP, detail), step)


def end_standing_plan(group: ClassicGroup, trigger: RebalanceTrigger, step: Step) -> None:
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


# Overdue members
# ---------------


def remove_overdue_members(group: ClassicGroup, step: Step) -> None:
    """The deadline of this round is over for them."""
    timeout_ms = handoff_timeout_ms(step.state, group.id)
    for holder in list(dict.fromkeys(withheld.holder for withheld in group.carried.values())):
        member = group.members.get(holder)
        if group.state is not GroupState.PREPARING_REBALANCE or member is None or member.joining:
            continue
        held = ", ".join(f"{t}-{p}" for (t, p), withheld in sorted(group.carried.items()) if withheld.holder == holder)
        what = f"did not let go of {held} within {timeout_ms} ms (handoff.timeout.ms)"
        departure = Departure(
            "its owner did not let go of it within the handoff timeout", member.last_seen_ms, WaitEnd.EXPIRED
        )
        trigger = trigger_by_member(Cause.HANDOFF_TIMEOUT, member, what)
        if group.rebalance is not None:
            # What began the round is told beside what now decides it.
            group.rebalance.note(group.rebalance.trigger, group.rebalance.started_at_ms)
            group.rebalance.trigger = trigger
        remove_member(group, member, departure, step)
        maybe_complete_join(group, step)


# Clients that insist on a leader
# -------------------------------


def suspend_for_insisting_client(
    group: ClassicGroup, late: list[ClassicMember], trigger: RebalanceTrigger, step: Step
) -> RebalanceTrigger:
    """These did not fetch their shares in time. Gives back the trigger of the rebalance that follows.

    A member comes again under another id. What others planned without it meanwhile forgives it nothing: only a
    generation in which it was, and fetched its share, does.
    """
    if not group.planner.by_setting:
        return trigger
    again = next((member for member in late if member.client in group.insisting), None)
    group.insisting = frozenset(member.client for member in late)
    stored = step.state.settings.get(group.id)
    if again is None or stored is None:
        return trigger
    why = f"{describe_client(again)} did not fetch its share of two plans in a row that the coordinator made"
    group.insisting = frozenset()
    step.keep(replace(stored, suspended=why))
    return replace(trigger, detail=f"{trigger.detail}; {ASSIGNOR.name} is suspended until it is set again: {why}")
