"""Why a classic group rebalances, from facts, and its ledger: every rebalance gets one entry, whatever becomes of it.

Facts are what a JoinGroup changed, who a newcomer is, and what happened to topics. A client's own text decides only
where no fact does. A cause that was concluded names its evidence; a cause that no fact tells is unknown, which is
better than wrong (docs/design/explain.md). When a plan takes effect, every member's share is kept, and sent to each
member that has asked for it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from muster.assignors.data.consumer_protocol import Subscription
from muster.coordinator.core.classic import group as classic_group
from muster.coordinator.core.classic.group import ClassicGroup, ClassicMember, UnexplainedRejoin
from muster.coordinator.core.groups.bookkeeping import (
    keep_entry,
    keep_settlement,
    ledger_entry_begun,
    newest_plan_entry,
    snapshot_within_limit,
)
from muster.coordinator.core.groups.member_causes import (
    NOTICE_MS,
    cause_from_reason,
    changes_since,
    describe_changes,
    disturbance_since,
    leave_sentence,
    name_few,
    take_incarnations,
)
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import SyncReply
from muster.coordinator.core.model.ledger import (
    AT_ONCE_MS,
    Departure,
    OngoingRebalance,
    PlanBefore,
    PlanDiff,
    RebalanceChange,
    RebalanceSettling,
    RebalanceTrigger,
    WithheldPartition,
    diff_plans,
    trigger_by_member,
    waits_of,
)
from muster.coordinator.core.model.plan import (
    CONSUMER,
    Plan,
    assignment_of,
    assignments_of,
    owned_by_each,
    rebuilt_snapshot_json,
    subscription_of,
)
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    GroupState,
    MemberPlan,
    Outcome,
    PhaseWait,
    Protocol,
    RebalanceEntry,
    RebalancePhase,
    TopicChange,
    TopicChangeKind,
    WaitEnd,
)

# Entries
# -------


def begin_rebalance(group: ClassicGroup, trigger: RebalanceTrigger, arriving: ClassicMember | None, step: Step) -> None:
    """A rebalance starts. One that had not got its plan yet ends here and leaves its own entry."""
    late = [] if group.settling is None else group.settling.late
    close_settling(group, step)
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
    if group.pending_joins:
        rebalance.awaited |= {member_id: client_of_pending(member_id) for member_id in group.pending_joins}
    if group.arrived_again:
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
ASSIGNMENT: Final = attrgetter("assignment")
INSTANCE_ID: Final = attrgetter("group_instance_id")
MEMBER_ID: Final = attrgetter("member_id")
NO_WAITS: tuple[PhaseWait, ...] = ()


def record_decision(group: ClassicGroup, given: PlanProvenance, step: Step) -> None:
    """The plan is there; the one before it is still the stored one."""
    rebalance = group.rebalance
    assert rebalance is not None
    leader = group.acting_leader
    planners = (leader,) if leader else ()
    length_ms, waits = step.now_ms - rebalance.joined_at_ms, NO_WAITS
    if leader in group.members and length_ms > AT_ONCE_MS:
        ends = {leader: (WaitEnd.JOINED, step.now_ms)}
        waits = waits_of({leader: group.members[leader].client_id}, ends, rebalance.joined_at_ms, step.now_ms)
    rebalance.phases.append(RebalancePhase("plan", length_ms, planners, waits))
    last, plan = last_plan(group), current_plan(group)
    if step.state.topic_changes:
        note_topic_changes(group, last, step)
    said = group.members.subscriptions(group.protocol_name)
    still_held = dict(zip(group.members, owned_by_each(said), strict=True))
    if group.planner.assignor:
        still_held.update(classic_group.shares_of_absent(group))
    before = PlanBefore(last, still_held, group.carried, given.delayed)
    diff = diff_plans(before, plan, rebalance)
    group.carried = diff.withheld
    entry = write_entry(group, rebalance, Outcome.COMPLETED, group.protocol_name, diff, step, given, plan)
    group.settling = RebalanceSettling(entry.number, diff.gaps)
    group.rebalance = None
    group.restored = False
    group.planned_at_ms = step.now_ms


def note_topic_changes(group: ClassicGroup, last: Plan, step: Step) -> None:
    """What happened since the last plan to topics that are, or were, read: the plan's moves follow from it, too.

    The last plan may have given out a topic that was gone, because not every member had noticed.
    """
    rebalance = group.rebalance
    assert rebalance is not None
    subscribed = group.subscribed_topics or frozenset()
    dropped = set[str]().union(*last.values()) - subscribed
    first = rebalance.phases[0].name == INITIAL_DELAY
    since_ms = rebalance.started_at_ms if first else group.planned_at_ms  # before, no member waited for a topic
    told = step.state.topic_changes[-1].at_ms >= since_ms
    changes = changes_since(step.state, subscribed | dropped, since_ms) if told else ()
    if dropped:
        earlier = changes_since(step.state, dropped - {each.topic for each in changes}, step.now_ms - NOTICE_MS)
        changes += tuple(each for each in earlier if each.kind is TopicChangeKind.DELETED)
    if changes:
        rebalance.topics = (*rebalance.topics, *(each for each in changes if each not in rebalance.topics))


def abandon_rebalance(group: ClassicGroup, step: Step) -> None:
    """The group turns into one of another kind; a generation that never got its plan leaves its entry."""
    close_settling(group, step)
    unfinished, group.rebalance = group.rebalance, None
    if unfinished is not None and group.generation > unfinished.previous_generation:
        write_entry(group, unfinished, Outcome.SUPERSEDED, group.protocol_name, PlanDiff((), (), {}), step)


def close_settling(group: ClassicGroup, step: Step) -> None:
    """Complete the last entry, if it is not complete."""
    settling, group.settling = group.settling, None
    if settling is not None:
        keep_settlement(group, settling.settlement(step.now_ms), step)


def write_entry(
    group: ClassicGroup,
    rebalance: OngoingRebalance,
    outcome: Outcome,
    protocol_name: str | None,
    diff: PlanDiff,
    step: Step,
    given: PlanProvenance = NO_PROVENANCE,
    plan: Plan | None = None,
) -> RebalanceEntry:
    """Keep the entry. `plan`: what has been decided, if something has."""
    if rebalance.trigger.cause is Cause.MEMBER_LEFT:
        rebalance.trigger = leave_sentence(group, rebalance.trigger)
    completed = outcome is Outcome.COMPLETED
    snapshot_json, source = chosen_snapshot(group, given, step) if completed else ("", "")
    change = RebalanceChange(
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol_name="" if protocol_name is None else given.assignor or group.planner.assignor or protocol_name,
        moves=diff.moves,
        members=() if plan is None else member_plans(group, rebalance, plan),
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
    said = group.members.subscriptions(group.protocol_name)
    members = zip(group.members, map(INSTANCE_ID, group.members.values()), said, strict=True)
    rebuilt = rebuilt_snapshot_json(group.protocol_name or "", members, step.state.partitions)
    return ("", "") if rebuilt is None else snapshot_within_limit(rebuilt, "coordinator", step)


def member_plans(group: ClassicGroup, rebalance: OngoingRebalance, plan: Plan) -> tuple[MemberPlan, ...]:
    return tuple(
        [
            MemberPlan(
                member_id=member.id,
                client_id=member.client_id,
                client_host=member.client_host,
                group_instance_id=member.group_instance_id,
                assigned=tuple(sorted(plan[member.id].items())),
                joined_at_ms=rebalance.arrivals.get(member.id, -1),
            )
            for member in group.members.values()
        ]
    )


def current_plan(group: ClassicGroup) -> Plan:
    shares = assignments_of(list(map(ASSIGNMENT, group.members.values())))
    return dict(zip(group.members, shares, strict=True))


def last_plan(group: ClassicGroup) -> Plan:
    """The plan of the last completed generation."""
    if group.stored is None:
        return {}
    members = group.stored.members
    return dict(zip(map(MEMBER_ID, members), assignments_of(list(map(ASSIGNMENT, members))), strict=True))


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
    """A member is told its share: its partitions are owned from here on."""
    step.reply(
        request_id,
        SyncReply(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment),
    )
    if group.settling is not None:
        group.settling.fetched.setdefault(member.id, step.now_ms)


def disarm_when_complete(group: ClassicGroup, step: Step) -> None:
    """Everyone has asked for its share: nobody is waited for any more, and none of them insists on a leader."""
    if not group.pending_syncs:
        if group.insisting:
            group.insisting -= {member.client for member in group.members.values()}
        step.disarm(group.sync_timer)
        if group.state is GroupState.STABLE:
            close_settling(group, step)


# Causes
# ------

# A member joins again
# --------------------


MAY_FOLLOW_TOPICS = frozenset({Cause.SUBSCRIPTION_CHANGED, Cause.PARTITIONS_CHANGED})
"""Causes of a JoinGroup that a change of topics may be behind, which is not known yet."""

MAX_UNEXPLAINED = 3


@dataclass(frozen=True, slots=True)
class JoinDifference:
    """What a member's JoinGroup says that it did not say before."""

    topics_added: frozenset[str] = frozenset()
    topics_removed: frozenset[str] = frozenset()
    protocols_added: tuple[str, ...] = ()
    protocols_removed: tuple[str, ...] = ()
    reordered: bool = False
    owned_less: frozenset[tuple[str, int]] = frozenset()
    """Partitions that it owned and does not own any more."""
    owned_more: frozenset[tuple[str, int]] = frozenset()
    rack: str = ""
    """Its new rack, if that changed."""
    user_data: bool = False
    readable: bool = True
    """Both can be parsed."""


NO_DIFFERENCE: Final = JoinDifference()


def compare_joins(before: tuple[Protocol, ...], now: tuple[Protocol, ...], protocol_name: str) -> JoinDifference:
    """Field by field, by the blob of the group's protocol if both have it, else of the first they share.

    A member that says nothing new has NO_DIFFERENCE itself, which is asked for again and again.
    """
    if before == now:
        blob = next((each.metadata for each in now if each.name == protocol_name), now[0].metadata if now else None)
        return NO_DIFFERENCE if parsed(blob) is not None else replace(NO_DIFFERENCE, readable=False)
    old, new = {each.name: each.metadata for each in before}, {each.name: each.metadata for each in now}
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name in old if name not in new)
    reordered = not added and not removed and list(old) != list(new)
    shared = protocol_name if protocol_name in old and protocol_name in new else next((n for n in new if n in old), "")
    difference = JoinDifference(protocols_added=added, protocols_removed=removed, reordered=reordered)
    one = parsed(old.get(shared) if shared else next(iter(old.values()), None))
    other = parsed(new.get(shared) if shared else next(iter(new.values()), None))
    if one is None or other is None:
        return replace(difference, readable=False)
    owned, owns = owned_cells(one), owned_cells(other)
    found = replace(
        difference,
        topics_added=frozenset(other.topics) - frozenset(one.topics),
        topics_removed=frozenset(one.topics) - frozenset(other.topics),
        owned_less=owned - owns,
        owned_more=owns - owned,
        rack=(other.rack or "none") if other.rack != one.rack else "",
        user_data=bool(shared) and one.user_data != other.user_data,
    )
    return NO_DIFFERENCE if found == NO_DIFFERENCE else found


def parsed(metadata: bytes | None) -> Subscription | None:
    if metadata is None:
        return None
    try:
        return subscription_of(metadata)
    except ValueError:
        return None


def owned_cells(subscription: Subscription) -> frozenset[tuple[str, int]]:
    return frozenset((topic, p) for topic, partitions in subscription.owned.items() for p in partitions)


def trigger_of_rejoin(
    group: ClassicGroup, member: ClassicMember, protocols: tuple[Protocol, ...], reason: str, step: Step
) -> RebalanceTrigger:
    """A member of a settled group joined again, and that calls for a plan. `protocols`: what it offers now."""
    said = compare_joins(member.protocols, protocols, group.protocol_name or "")
    trigger = cause_of_rejoin(group, member, protocols, said, reason, step)
    if trigger.topics:
        member.noticed_ms = step.now_ms
    elif not group.restored and (trigger.cause in MAY_FOLLOW_TOPICS or trigger.certainty is Certainty.UNKNOWN):
        rejoin = UnexplainedRejoin(member, said.topics_added, said.topics_removed, reason, step.now_ms)
        group.unexplained = [*group.unexplained[1 - MAX_UNEXPLAINED :], rejoin]
    return trigger


def cause_of_rejoin(
    group: ClassicGroup,
    member: ClassicMember,
    protocols: tuple[Protocol, ...],
    said: JoinDifference,
    reason: str,
    step: Step,
) -> RebalanceTrigger:
    by_topics = topics_that_changed(group, member, said, step)
    if group.restored:
        return trigger_after_reload(member, reason, by_topics)
    if said.protocols_added or said.protocols_removed or said.reordered:
        return trigger_of_offer(group, member, said, reason)
    if said.topics_added or said.topics_removed:
        return trigger_of_topics(member, said, by_topics, reason)
    if trigger := trigger_of_release(group, member, protocols, said, reason):
        return trigger
    if trigger := trigger_of_followed_topics(member, said, by_topics, reason):
        return trigger
    if said.rack:
        return trigger_by_member(changed_cause(member), member, f"is in another rack now: {said.rack}", reason)
    if trigger := trigger_after_stall(member, reason, step):
        return trigger
    if trigger := trigger_of_incomplete_plan(group, member, said, reason, step):
        return trigger
    return trigger_of_unexplained_rejoin(group, member, said, reason)


def changed_cause(member: ClassicMember) -> Cause:
    static_member = member.group_instance_id is not None
    return Cause.STATIC_MEMBER_METADATA_CHANGED if static_member else Cause.MEMBER_METADATA_CHANGED


def trigger_of_offer(group: ClassicGroup, member: ClassicMember, said: JoinDifference, reason: str) -> RebalanceTrigger:
    """It offers other assignors: how far a roll-out has come is part of the answer."""
    if said.reordered:
        what = "prefers its assignors in another order"
    else:
        words = [f"+{name}" for name in said.protocols_added] + [f"-{name}" for name in said.protocols_removed]
        what = f"offers other assignors: {name_few(words)}"
    trigger = trigger_by_member(Cause.PROTOCOLS_CHANGED, member, what, reason)
    if not said.protocols_added:
        return trigger
    return replace(trigger, detail=f"{trigger.detail}{roll_out(group, member, said.protocols_added[0])}")


def with_roll_out(group: ClassicGroup, member: ClassicMember, trigger: RebalanceTrigger) -> RebalanceTrigger:
    """A member that is back under a new id may offer other assignors: that is how they are rolled out."""
    if not group.arrived_again:
        return trigger
    mine = [each for each in group.arrived_again if each.member_id == member.id]
    former = group.history.former.get(mine[-1].previous_id) if mine else None
    if former is None or not former.offer:
        return trigger
    offer = tuple(protocol.name for protocol in member.protocols)
    added, removed = [n for n in offer if n not in former.offer], [n for n in former.offer if n not in offer]
    if not added and not removed:
        return trigger
    words = [f"+{name}" for name in added] + [f"-{name}" for name in removed]
    progress = roll_out(group, member, added[0]) if added else ""
    return replace(trigger, detail=f"{trigger.detail}; it offers other assignors: {name_few(words)}{progress}")


def roll_out(group: ClassicGroup, member: ClassicMember, name: str) -> str:
    others = [each for each in group.members.values() if each.id != member.id]
    count = 1 + sum(name in each.offer for each in others)
    return f"; {count} of {len(others) + 1} members offer {name} now"


def trigger_of_topics(
    member: ClassicMember, said: JoinDifference, by_topics: tuple[TopicChange, ...], reason: str
) -> RebalanceTrigger:
    """It reads other topics: because topics were made or deleted since, or because it wants to."""
    if trigger := trigger_of_followed_topics(member, said, by_topics, reason):
        return trigger
    what = f"changed its subscription: {name_few(words_of_topics(said))}"
    trigger = trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, what, reason)
    differing = said.topics_added | said.topics_removed
    return replace(trigger, topics=tuple(change for change in by_topics if change.topic in differing))


def words_of_topics(said: JoinDifference) -> list[str]:
    return [f"+{name}" for name in sorted(said.topics_added)] + [f"-{name}" for name in sorted(said.topics_removed)]


def trigger_of_followed_topics(
    member: ClassicMember, said: JoinDifference, by_topics: tuple[TopicChange, ...], reason: str, late: str = ""
) -> RebalanceTrigger | None:
    """A member joined again because of these changes of topics; None if they do not explain it.

    late: says how long after it the changes became known, if that was after it.
    """
    if not by_topics:
        return None
    explained = {change.topic for change in by_topics if change.kind is not TopicChangeKind.GREW}
    if not said.topics_added | said.topics_removed <= explained:
        return None
    what, evidence = "joined again after topics changed", "the member, which reads it, joined again"
    if words := words_of_topics(said):
        what = f"follows with its subscription: {name_few(words)}"
        evidence = f"the member, by a pattern or a list that names it, joined again with {name_few(words)}"
    trigger = trigger_by_member(Cause.PARTITIONS_CHANGED, member, what, reason)
    return RebalanceTrigger(
        Cause.PARTITIONS_CHANGED,
        f"{describe_changes(by_topics)}; {trigger.detail}",
        client_reason=reason,
        certainty=Certainty.INFERRED,
        evidence=f"{describe_changes(by_topics)}{late or ' before'} {evidence}",
        topics=by_topics,
    )


def trigger_of_release(
    group: ClassicGroup,
    member: ClassicMember,
    protocols: tuple[Protocol, ...],
    said: JoinDifference,
    reason: str,
) -> RebalanceTrigger | None:
    """The second round of a cooperative rebalance: it was asked to give partitions up, and comes without them."""
    if not group.carried and not said.owned_less:
        return None
    asked = {tp for tp, withheld in group.carried.items() if withheld.holder == member.id and withheld.since_ms is None}
    if given_away := said.owned_less and said.owned_less & shares_of_others(group, member):
        names = name_few(f"{topic}-{partition}" for topic, partition in sorted(given_away))
        what = f"gave up {names}, which the last plan had given to others before"
        return trigger_by_member(Cause.REVOCATION_FOLLOW_UP, member, what, reason)
    if not asked:
        return None
    metadata = next((each.metadata for each in protocols if each.name == group.protocol_name), None)
    subscription = parsed(metadata)
    if subscription is None:
        return None
    gave_up = asked - owned_cells(subscription)
    if not gave_up:
        return None
    names = name_few(f"{topic}-{partition}" for topic, partition in sorted(gave_up))
    what = f"gave up {names}, as the last plan asked it to"
    return trigger_by_member(Cause.REVOCATION_FOLLOW_UP, member, what, reason)


def shares_of_others(group: ClassicGroup, member: ClassicMember) -> set[tuple[str, int]]:
    others = (assignment_of(each.assignment) for each in group.members.values() if each.id != member.id)
    return {(topic, partition) for share in others for topic, partitions in share.items() for partition in partitions}


def trigger_after_reload(member: ClassicMember, reason: str, by_topics: tuple[TopicChange, ...]) -> RebalanceTrigger:
    """Only the selected protocol is on record, so after a reload an unchanged member may look changed."""
    cause = cause_from_reason(reason, Cause.COORDINATOR_FAILOVER)
    if cause is Cause.PARTITIONS_CHANGED and not by_topics:
        cause = Cause.COORDINATOR_FAILOVER  # Java says so of metadata that it had to read again
    trigger = trigger_by_member(cause, member, "rejoined after the coordinator was reloaded", reason)
    return replace(
        trigger,
        certainty=Certainty.INFERRED,
        evidence="it is the first rebalance since the group was loaded, and only the chosen assignor's part of a "
        "subscription is on record",
        topics=by_topics,
    )


def trigger_after_stall(member: ClassicMember, reason: str, step: Step) -> RebalanceTrigger | None:
    """The node stood still, and a client that got no answer meanwhile joins again under the id that it has."""
    disturbance = disturbance_since(member.last_seen_ms, step)
    if disturbance is None or disturbance.takeover:
        return None
    trigger = trigger_by_member(
        Cause.NODE_STALLED, member, f"joined again under its id after {disturbance.detail}", reason
    )
    return replace(
        trigger,
        culprit="",
        client_id="",
        client_host="",
        certainty=Certainty.INFERRED,
        evidence=f"{disturbance.detail}, it had not been heard since, and it says nothing new",
    )


def trigger_of_incomplete_plan(
    group: ClassicGroup, member: ClassicMember, said: JoinDifference, reason: str, step: Step
) -> RebalanceTrigger | None:
    """A leader plans with what its client knows of topics: one that it did not know yet waits for another round."""
    if member.id != group.leader or group.planner.assignor or said is not NO_DIFFERENCE:
        return None
    left_out = set(filter(step.state.partitions.get, group.subscribed_topics or ()))
    for each in group.members.values():
        if not left_out:
            return None
        left_out.difference_update(assignment_of(each.assignment))
    if not left_out:
        return None
    names = name_few(sorted(left_out))
    trigger = trigger_by_member(
        Cause.LEADER_REJOINED, member, f"rejoined as leader; its last plan had left out {names}", reason
    )
    return replace(
        trigger,
        certainty=Certainty.INFERRED,
        evidence=f"{names}: members read it, and the plan that the leader made gave none of its partitions to anybody",
    )


def trigger_of_unexplained_rejoin(
    group: ClassicGroup, member: ClassicMember, said: JoinDifference, reason: str
) -> RebalanceTrigger:
    """No fact says why: the client's own words, if it sent any."""
    leads = member.id == group.leader
    what = "rejoined as leader" if leads and said is NO_DIFFERENCE else "rejoined"
    otherwise = Cause.LEADER_REJOINED if leads else changed_cause(member)
    if reason:
        trigger = trigger_by_member(cause_from_reason(reason, otherwise), member, what, reason)
        return replace(trigger, certainty=Certainty.INFERRED, evidence=f'the client\'s own words: "{reason}"')
    if not said.readable:
        what = "rejoined with other metadata, which is not a consumer's"
    elif said.owned_less or said.owned_more:
        cells = [f"+{t}-{p}" for t, p in sorted(said.owned_more)] + [f"-{t}-{p}" for t, p in sorted(said.owned_less)]
        what = f"rejoined, owning other partitions: {name_few(cells)}"
    elif said.user_data:
        what = "rejoined with other user data for the assignor"
    else:
        what = f"{what} without a change and without a reason"
    return trigger_by_member(otherwise, member, what, certainty=Certainty.UNKNOWN)


# Topics
# ------


def topics_that_changed(
    group: ClassicGroup, member: ClassicMember, said: JoinDifference, step: Step
) -> tuple[TopicChange, ...]:
    """What happened to topics that the group, or now this member, reads: since the last plan.

    Each client notices a change by itself, when it reads metadata again, and may have come to the last plan without it.
    So changes before that plan count, too, that this member has not followed yet: of the topics by which its
    subscription differs, or, if it says nothing else, of all that it reads.
    """
    if not step.state.topic_changes:
        return ()
    differing = said.topics_added | said.topics_removed
    read = (group.subscribed_topics or frozenset()) | differing
    recent = changes_since(step.state, read, group.planned_at_ms)
    if recent and not differing:
        return recent
    known = {change.topic for change in recent}
    since_ms = max(step.now_ms - NOTICE_MS, member.noticed_ms + 1)
    return recent + changes_since(step.state, (differing or read) - known, since_ms)
