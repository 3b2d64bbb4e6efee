"""Writes what happens to a classic group to the ledger: every rebalance gets one entry, whatever becomes of it.

When a plan takes effect, every member's share is kept, and sent to each member that has asked for it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from muster.coordinator.core.classic import group as classic_group
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.groups.bookkeeping import (
    keep_entry,
    keep_settlement,
    ledger_entry_begun,
    newest_plan_entry,
    snapshot_within_limit,
)
from muster.coordinator.core.groups.member_causes import NOTICE_MS, changes_since, leave_sentence, take_incarnations
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import SyncReply
from muster.coordinator.core.model.ledger import (
    Departure,
    OngoingRebalance,
    PlanBefore,
    PlanDiff,
    RebalanceChange,
    RebalanceSettling,
    RebalanceTrigger,
    WithheldPartition,
    diff_plans,
    waits_of,
)
from muster.coordinator.core.model.plan import CONSUMER, Plan, assignment_of, owned_of, rebuilt_snapshot
from muster.coordinator.core.model.types import (
    GroupState,
    MemberPlan,
    Outcome,
    RebalanceEntry,
    RebalancePhase,
    TopicChangeKind,
    WaitEnd,
)


def begin_rebalance(group: ClassicGroup, trigger: RebalanceTrigger, arriving: ClassicMember | None, step: Step) -> None:
    """A rebalance starts. One that had not got its plan yet ends here and leaves its own entry."""
    late = close_settling(group, step)
    unfinished = group.rebalance
    if unfinished is not None:
        write_entry(group, unfinished, Outcome.SUPERSEDED, group.protocol_name, PlanDiff((), (), {}), step)
    group.rebalance = rebalance = ledger_entry_begun(group.id, trigger, group.generation, step)
    # Whoever never fetched its share never owned it: the settlement counts up to now, this rebalance goes on.
    rebalance.released.update(dict.fromkeys(late, step.now_ms))
    if unfinished is not None:
        # Whoever let go in the round that failed has been without its partitions since then.
        rebalance.released.update(unfinished.released)
        rebalance.gone.update(unfinished.gone)
    for member_id, departure in group.departures.items():
        rebalance.left(member_id, departure, step.now_ms)
    group.departures.clear()
    rebalance.awaited = {member.id: member.client_id for member in group.members.values() if member is not arriving}
    rebalance.awaited |= {member_id: client_of_pending(member_id) for member_id in group.pending_joins}
    take_incarnations(group)
    if arriving is not None:
        note_arrival(group, arriving, step)


INITIAL_DELAY = "initial delay"
"""The phase that gives the members of a group that was empty time to meet (`group.initial.rebalance.delay.ms`)."""

PENDING_ID = re.compile(r"^(?P<client>.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""An id that a newcomer was given and has not come back with: its client id, and a UUID."""


def client_of_pending(member_id: str) -> str:
    match = PENDING_ID.match(member_id)
    return match["client"] if match else member_id


def note_trigger(group: ClassicGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """Something more happened while a rebalance was under way; without one there is nothing to add to."""
    if group.rebalance is not None:
        group.rebalance.note(trigger, step.now_ms)
        take_incarnations(group)


def note_arrival(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """A member has (re)joined; from here on it owns only what it says it still holds."""
    if group.rebalance is not None:
        group.rebalance.arrived(member.id, step.now_ms)


def note_departure(group: ClassicGroup, member_id: str, departure: Departure, step: Step) -> None:
    """A member is gone, for good or replaced."""
    if group.rebalance is not None:
        group.rebalance.left(member_id, departure, step.now_ms)
    else:
        group.departures[member_id] = departure


def rename_member(group: ClassicGroup, old_id: str, new_id: str) -> None:
    """A static member goes on under a new id, its partitions with it."""
    for tp, withheld in group.carried.items():
        if withheld.holder == old_id:
            group.carried[tp] = replace(withheld, holder=new_id)
    if group.settling is not None:
        group.settling.renamed(old_id, new_id)


def restore_withheld(group: ClassicGroup, step: Step) -> None:
    """What the last plan withheld is still waited for after a reload; the ledger remembers from whom."""
    ledger, last = step.state.ledgers.get(group.id), newest_plan_entry(group, step)
    if ledger is None or last is None:
        return
    delayed = ledger.delay is not None and ledger.delay.until_ms is not None
    for move in last.moves:
        if not move.target and move.source in group.members:
            group.carried[move.topic, move.partition] = WithheldPartition(move.source)
        elif not move.target and delayed:
            since_ms = step.past(last.started_at_ms)
            group.carried[move.topic, move.partition] = WithheldPartition(move.source, since_ms, "its owner went")


def end_join_phase(group: ClassicGroup, step: Step) -> None:
    """The join phase is over."""
    rebalance = group.rebalance
    assert rebalance is not None
    rebalance.joined_at_ms = step.now_ms
    length_ms = step.now_ms - rebalance.started_at_ms
    if group.previous_state is GroupState.EMPTY:
        # Nobody was waited for: a group that was empty gives its members time to meet.
        rebalance.phases.append(RebalancePhase(INITIAL_DELAY, length_ms))
        return
    waits = rebalance.waits(rebalance.started_at_ms, step.now_ms)
    rebalance.phases.append(RebalancePhase("join", length_ms, tuple(wait.member_id for wait in waits), waits))


def record_emptied(group: ClassicGroup, step: Step) -> None:
    """The rebalance ends with nobody left."""
    rebalance = group.rebalance
    assert rebalance is not None
    diff = diff_plans(PlanBefore(last_plan(group), {}, group.carried), {}, rebalance)
    group.carried = {}
    write_entry(group, rebalance, Outcome.EMPTIED, None, diff, step)
    group.rebalance = None


@dataclass(frozen=True, slots=True)
class PlanProvenance:
    """What whoever made a plan says it was made from. `delayed`: it keeps what is lost for its owner (KIP-415).
    `assignor`: what the coordinator ran; empty where a member made the plan by the protocol that members voted for.
    """

    snapshot_json: str = ""
    source: str = "leader"
    delayed: bool = False
    assignor: str = ""


NO_PROVENANCE = PlanProvenance()


def record_decision(group: ClassicGroup, given: PlanProvenance, step: Step) -> None:
    """The plan is there; the one before it is still the stored one."""
    rebalance = group.rebalance
    assert rebalance is not None
    planners = (group.acting_leader,) if group.acting_leader else ()
    length_ms = step.now_ms - rebalance.joined_at_ms
    clients = {member_id: group.members[member_id].client_id for member_id in planners if member_id in group.members}
    ends = dict.fromkeys(clients, (WaitEnd.JOINED, step.now_ms))
    waits = waits_of(clients, ends, rebalance.joined_at_ms, step.now_ms)
    rebalance.phases.append(RebalancePhase("plan", length_ms, planners, waits))
    note_topic_changes(group, step)
    said = {member.id: owned_of(member.metadata(group.protocol_name)) for member in group.members.values()}
    still_held: dict[str, Mapping[str, frozenset[int]]] = {**said, **classic_group.shares_of_absent(group)}
    before = PlanBefore(last_plan(group), still_held, group.carried, given.delayed)
    diff = diff_plans(before, current_plan(group), rebalance)
    group.carried = diff.withheld
    entry = write_entry(group, rebalance, Outcome.COMPLETED, group.protocol_name, diff, step, given)
    group.settling = RebalanceSettling(entry.number, diff.gaps)
    group.rebalance = None
    group.restored = False
    group.planned_at_ms = step.now_ms


def note_topic_changes(group: ClassicGroup, step: Step) -> None:
    """What happened since the last plan to topics that are, or were, read: the plan's moves follow from it, too.

    The last plan may have given out a topic that was gone, because not every member had noticed.
    """
    rebalance = group.rebalance
    assert rebalance is not None
    subscribed = group.subscribed_topics or frozenset()
    dropped = {topic for share in last_plan(group).values() for topic in share} - subscribed
    read = subscribed | dropped
    first = any(phase.name == INITIAL_DELAY for phase in rebalance.phases)
    since_ms = rebalance.started_at_ms if first else group.planned_at_ms  # before, no member waited for a topic
    changes = changes_since(step.state, read, since_ms)
    earlier = changes_since(step.state, dropped - {each.topic for each in changes}, step.now_ms - NOTICE_MS)
    changes += tuple(each for each in earlier if each.kind is TopicChangeKind.DELETED)
    rebalance.topics = (*rebalance.topics, *(each for each in changes if each not in rebalance.topics))


def abandon_rebalance(group: ClassicGroup, step: Step) -> None:
    """The group turns into one of another kind; a generation that never got its plan leaves its entry."""
    close_settling(group, step)
    unfinished, group.rebalance = group.rebalance, None
    if unfinished is not None and group.generation > unfinished.previous_generation:
        write_entry(group, unfinished, Outcome.SUPERSEDED, group.protocol_name, PlanDiff((), (), {}), step)


def note_fetched_share(group: ClassicGroup, member_id: str, step: Step) -> None:
    """A member has been told its share: its partitions are owned from here on."""
    settling = group.settling
    if settling is None or member_id in settling.fetched:
        return
    settling.fetched[member_id] = step.now_ms


def close_settling(group: ClassicGroup, step: Step) -> list[str]:
    """Complete the last entry. Returns the members that have not fetched what it gave them."""
    settling = group.settling
    if settling is None:
        return []
    group.settling = None
    keep_settlement(group, settling.settlement(step.now_ms), step)
    return settling.late


def write_entry(
    group: ClassicGroup,
    rebalance: OngoingRebalance,
    outcome: Outcome,
    protocol_name: str | None,
    diff: PlanDiff,
    step: Step,
    given: PlanProvenance = NO_PROVENANCE,
) -> RebalanceEntry:
    """Keep the entry."""
    rebalance.trigger = leave_sentence(group, rebalance.trigger)
    completed = outcome is Outcome.COMPLETED
    snapshot_json, source = chosen_snapshot(group, given, step) if completed else ("", "")
    change = RebalanceChange(
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol_name="" if protocol_name is None else given.assignor or group.remote or protocol_name,
        moves=diff.moves,
        members=member_plans(group, rebalance) if completed else (),
        snapshot_json=snapshot_json,
        snapshot_source=source,
    )
    entry = rebalance.entry(outcome, step.now_ms, change)
    keep_entry(group.id, entry, step)
    step.announce(group, entry=entry)
    return entry


def chosen_snapshot(group: ClassicGroup, given: PlanProvenance, step: Step) -> tuple[str, str]:
    """What the plan's maker says it used, else what the coordinator can rebuild. (json, source)"""
    if given.snapshot_json:
        return snapshot_within_limit(given.snapshot_json, given.source, step)
    if group.protocol_type != CONSUMER:
        return "", ""
    subscriptions = {
        member.id: (member.group_instance_id, member.metadata(group.protocol_name)) for member in group.members.values()
    }
    rebuilt = rebuilt_snapshot(group.protocol_name or "", subscriptions, step.state.partitions)
    return ("", "") if rebuilt is None else snapshot_within_limit(rebuilt.to_json(), "coordinator", step)


def member_plans(group: ClassicGroup, rebalance: OngoingRebalance) -> tuple[MemberPlan, ...]:
    return tuple(
        MemberPlan(
            member_id=member.id,
            client_id=member.client_id,
            client_host=member.client_host,
            group_instance_id=member.group_instance_id,
            assigned=tuple(sorted(assignment_of(member.assignment).items())),
            joined_at_ms=rebalance.arrivals.get(member.id, -1),
        )
        for member in group.members.values()
    )


def current_plan(group: ClassicGroup) -> Plan:
    return {member.id: assignment_of(member.assignment) for member in group.members.values()}


def last_plan(group: ClassicGroup) -> Plan:
    """The plan of the last completed generation."""
    if group.stored is None:
        return {}
    return {member.member_id: assignment_of(member.assignment) for member in group.stored.members}


# A plan takes effect
# -------------------


def accept_plan(group: ClassicGroup, shares: Mapping[str, bytes], snapshot: PlanProvenance, step: Step) -> None:
    """Members that the plan forgot get nothing; those it invented are ignored."""
    for member in group.members.values():
        member.assignment = shares.get(member.id, b"")
    group.become(GroupState.STABLE, step.now_ms)
    record_decision(group, snapshot, step)
    step.keep(group.record(step.now_ms))
    for member in group.members.values():
        if member.sync_request is not None:
            answer_sync(group, member, member.sync_request, step)
            step.arm(group.session_timer(member.id), member.session_timeout_ms)
            member.sync_request = None


def answer_sync(group: ClassicGroup, member: ClassicMember, request_id: int, step: Step) -> None:
    step.reply(
        request_id,
        SyncReply(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment),
    )
    note_fetched_share(group, member.id, step)


def disarm_when_complete(group: ClassicGroup, step: Step) -> None:
    """Everyone has asked for its share: nobody is waited for any more, and none of them insists on a leader."""
    if not group.pending_syncs:
        if group.insisting:
            group.insisting -= {member.client for member in group.members.values()}
        step.disarm(group.sync_timer)
        if group.state is GroupState.STABLE:
            close_settling(group, step)
