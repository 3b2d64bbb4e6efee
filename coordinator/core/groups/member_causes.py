"""Causes that every kind of group shares: members that come back, leave, or are not heard; topics that changed.

A client's own text decides only where no fact does. A cause that was concluded names its evidence; a cause that no
fact tells is unknown, which is better than wrong (docs/design/explain.md).

A static member keeps its partitions while it restarts within its session, so no rebalance tells of it (KIP-345). Two
running processes with one instance id fence each other: the ledger names both, once in ten minutes.
"""

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from typing import Protocol

from muster.coordinator.core.groups.bookkeeping import amend_entry, audit_entry, keep_entry
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.member_history import (
    HOW_GONE,
    MAX_CONTESTED,
    MAX_SCANNED,
    NO_CONNECTION,
    READ_LATE_MS,
    DepartedMember,
    Disturbance,
    MemberHistory,
    Returned,
    SeenMember,
    describe_ms,
    find_disturbance,
    recent_disturbances,
)
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.events import (
    ConnectionClosed,
    ConsumerHeartbeat,
    FetchedAfterLeaving,
    InstanceIdUser,
    LedgerFact,
    Listen,
    TopicsChanged,
)
from muster.coordinator.core.model.ledger import (
    MAX_ALSO,
    Departure,
    OngoingRebalance,
    RebalanceTrigger,
    describe_member,
    trigger_by_member,
)
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Incarnation,
    LateFetch,
    MemberPlan,
    Outcome,
    RebalanceEntry,
    TopicChange,
    TopicChangeKind,
    WaitEnd,
)

# Members that come and go
# ------------------------

CAUSES_BY_REASON = (
    # What clients say (KIP-800 and the messages of the known clients), and the cause it stands for.
    ("poll timeout", Cause.POLL_TIMEOUT),
    ("scheduled delay", Cause.DELAY_OVER),
    ("revoke", Cause.REVOCATION_FOLLOW_UP),
    ("subscription", Cause.SUBSCRIPTION_CHANGED),
    ("metadata has changed", Cause.PARTITIONS_CHANGED),
    ("partitions changed", Cause.PARTITIONS_CHANGED),
    ("partition counts changed", Cause.PARTITIONS_CHANGED),
    ("coordinator", Cause.COORDINATOR_FAILOVER),
)

STILL_OPEN = "; its connection is still open"
"""Said of a member that left, as long as it is true: a client that stops closes its connection."""

NOTICE_MS = 300_000
"""How late a client may notice what happened to a topic: `metadata.max.age.ms`, as clients have it by default."""

MAX_LATE_PARTITIONS = 100
"""Partitions of one topic that an entry says were still fetched."""

MAX_NAMED = 5
"""Names that a sentence gives before it counts the rest."""


def cause_from_reason(reason: str, otherwise: Cause) -> Cause:
    """The cause a client's own reason stands for."""
    lowered = reason.lower()
    return next((cause for words, cause in CAUSES_BY_REASON if words in lowered), otherwise)


def name_few(names: Iterable[str]) -> str:
    """
    >>> name_few(["a", "b"]), name_few("abcdefg")
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    every = list(names)
    more = f" and {len(every) - MAX_NAMED} more" if len(every) > MAX_NAMED else ""
    return ", ".join(every[:MAX_NAMED]) + more


def describe_subscription(before: Set[str], after: Set[str], patterns: tuple[str, str] = ("", "")) -> str:
    """Which topics came and went, and by which pattern.

    >>> describe_subscription({"orders"}, {"clicks"}), describe_subscription(set(), set(), ("", "t.*"))
    ('changed its subscription: +clicks, -orders', 'changed its subscription: pattern none -> t.*')
    """
    words = [f"+{name}" for name in sorted(after - before)] + [f"-{name}" for name in sorted(before - after)]
    if patterns[0] != patterns[1]:
        words.append(f"pattern {patterns[0] or 'none'} -> {patterns[1] or 'none'}")
    return f"changed its subscription: {name_few(words)}" if words else "changed its subscription"


class ExplainedGroup(GroupData, Protocol):
    """A group of any kind that keeps the history of its members."""

    history: MemberHistory
    arrived_again: list[Incarnation]

    @property
    def ongoing_rebalance(self) -> OngoingRebalance | None:
        """The one under way, which has no entry yet."""

    def seen_members(self) -> Iterator[SeenMember]:
        """Its members, made one by one as they are asked for."""

    def unheard_members(self, since_ms: int) -> Iterator[SeenMember]:
        """Those of its first MAX_SCANNED members that were last heard then or before."""


# Topics
# ------


def take_topic_changes(event: TopicsChanged, step: Step) -> None:
    """Remember what happened to topics, before the catalog itself is replaced.

    One that brokers know again was never deleted.
    """
    state = step.state
    again = state.disowned_topics & (event.partitions.keys() - event.disowned)
    same = {topic for topic in again if event.ids.get(topic) == state.topic_ids.get(topic)}
    if same:
        changes = [each for each in state.topic_changes if each.topic not in same or each.after]
        state.topic_changes.clear()
        state.topic_changes.extend(changes)
    state.topic_changes.extend(replace(change, at_ms=step.now_ms) for change in event.changes)
    state.disowned_topics, state.topics_late_ms = event.disowned, event.late_ms


def changes_since(state: ShardState, topics: Iterable[str], since_ms: int) -> tuple[TopicChange, ...]:
    """What happened to these topics, oldest first. A deletion that a creation followed is one change."""
    wanted, found = frozenset(topics), dict[str, list[TopicChange]]()
    for change in state.topic_changes:
        if change.topic not in wanted or change.at_ms < since_ms:
            continue
        before = found.setdefault(change.topic, [])
        if before and before[-1].kind is TopicChangeKind.DELETED and change.kind is TopicChangeKind.MADE:
            gone = before.pop()
            change = replace(change, kind=TopicChangeKind.REMADE, before=gone.before, by=change.by or gone.by)
        before.append(change)
    if not found:
        return ()
    return tuple(sorted((each for changes in found.values() for each in changes), key=lambda each: each.at_ms))


def describe_change(change: TopicChange) -> str:
    by = f" by {change.by}" if change.by else ""
    match change.kind:
        case TopicChangeKind.MADE:
            return f"topic {change.topic} was created with {change.after} partitions{by}"
        case TopicChangeKind.GREW:
            return f"topic {change.topic} grew from {change.before} to {change.after} partitions{by}"
        case TopicChangeKind.DELETED:
            return f"topic {change.topic} was deleted{by}"
        case TopicChangeKind.REMADE:
            return f"topic {change.topic} was deleted and created again with {change.after} partitions{by}"


def describe_changes(changes: tuple[TopicChange, ...]) -> str:
    more = f", and {len(changes) - MAX_NAMED} topics more" if len(changes) > MAX_NAMED else ""
    return ", ".join(map(describe_change, changes[:MAX_NAMED])) + more


# A newcomer
# ----------


def trigger_of_newcomer(group: ExplainedGroup, member: SeenMember, reason: str, step: Step) -> RebalanceTrigger:
    """A member id that the group did not have: a new member, or one that is back under another id.

    Amends what the ledger says about how the former one went, if that looks different now.
    """
    returned = group.history.find_return(member, group.seen_members(), step.now_ms)
    if returned is None:
        returned = find_given_up(group, member, step)
    if returned is None:
        return trigger_by_member(Cause.MEMBER_JOINED, member, "joined", reason)
    former = returned.former
    group.history.succeed(former.id, member.id)
    if former.id != member.id:
        note_incarnation(group, member, former, step)
    away = describe_ms(max(0, step.now_ms - former.heard_ms))
    disturbance = disturbance_since(former.heard_ms, step)
    if disturbance is not None and former.end in (WaitEnd.EXPIRED, WaitEnd.JOINED):
        return trigger_of_disturbance(member, former, disturbance, step)
    if returned.same_process and former.end is WaitEnd.LEFT:
        amend_leave(group, former, f"left without closing and came back {away} later", step)
        was = f" (was {former.id})" if former.id != member.id else ""
        what = f"is back {away} after it left, by the connection that it had never closed{was}"
        return replace(
            trigger_by_member(Cause.MEMBER_JOINED, member, what, reason),
            certainty=Certainty.INFERRED,
            evidence="it came by the same connection as its LeaveGroup",
        )
    if returned.same_process:
        how = "its session expired" if former.end is WaitEnd.EXPIRED else f"its old id {HOW_GONE[former.end]}"
        what = f"is back under a new id, {away} after it was last heard (was {former.id}; {how})"
        evidence = "it came by the connection of its old id: the process was not stopped"
        if former.id == member.id:
            what = f"is back under its id, {away} after it was last heard ({how})"
            evidence = "it has the id that it drew when it started: the process was not stopped"
        return replace(
            trigger_by_member(Cause.MEMBER_RESTARTED, member, what, reason),
            certainty=Certainty.INFERRED,
            evidence=evidence,
        )
    return trigger_of_restart(member, returned, away, reason)


def trigger_of_restart(member: SeenMember, returned: Returned, away: str, reason: str) -> RebalanceTrigger:
    former = returned.former
    if former.end is WaitEnd.JOINED and returned.closed_ms is not None:
        what = f"restarted: it is back under a new id {away} after its old one was last heard (was {former.id})"
        gone = "is closed" if former.connection > NO_CONNECTION else "broke off"
        evidence = f"same client id and host, and the connection of the old id {gone}"
    else:
        how = {WaitEnd.LEFT: "left", WaitEnd.EXPIRED: "was last heard, and then expired"}.get(former.end, "went")
        what = f"is back {away} after it {how} (was {former.id})"
        evidence = "same group.instance.id" if former.instance_id else "same client id and host"
    trigger = trigger_by_member(Cause.MEMBER_RESTARTED, member, what, reason)
    return replace(trigger, certainty=Certainty.INFERRED, evidence=evidence)


def disturbance_since(heard_ms: int, step: Step, late_ms: int = READ_LATE_MS) -> Disturbance | None:
    """What kept this coordinator from hearing a member that it last heard then; see `find_disturbance`."""
    state = step.state
    if not (state.stalls or state.takeovers or state.loaded_at_ms):
        return None
    return find_disturbance(
        state.stalls.values(), state.takeovers.values(), state.loaded_at_ms, heard_ms, step.now_ms, late_ms
    )


def disturbed_until(step: Step) -> int | None:
    """Members that were last heard then or before may not have been heard for a disturbance; None: there was none."""
    state = step.state
    recent = recent_disturbances(state.stalls.values(), state.takeovers.values(), state.loaded_at_ms, step.now_ms)
    return max((each.ended_ms for each in recent), default=None)


def find_given_up(group: ExplainedGroup, member: SeenMember, step: Step) -> Returned | None:
    """A member that counts, and has not been heard since the node stood still or took over, gave up on its own.

    One that was heard since, if only once, is another member with the same names.
    """
    until_ms = disturbed_until(step)
    if until_ms is None:
        return None
    for each in group.unheard_members(until_ms):
        if group.history.may_be(each, member):
            former = group.history.note_gone(each, WaitEnd.JOINED, step.now_ms)
            return Returned(former, same_process=False, closed_ms=group.history.closed_ms(each))
    return None


def trigger_of_disturbance(
    member: SeenMember, former: DepartedMember, disturbance: Disturbance, step: Step
) -> RebalanceTrigger:
    cause = Cause.COORDINATOR_FAILOVER if disturbance.takeover else Cause.NODE_STALLED
    since = describe_ms(max(0, step.now_ms - disturbance.ended_ms))
    trigger = trigger_by_member(cause, member, f"gave up waiting and came back under a new id (was {former.id})")
    return RebalanceTrigger(
        cause,
        detail=f"{disturbance.detail}, and that ended {since} before: {trigger.detail}",
        certainty=Certainty.INFERRED,
        evidence=f"{disturbance.detail}, and its old id was not heard since",
    )


def note_incarnation(group: ExplainedGroup, member: SeenMember, former: DepartedMember, step: Step) -> None:
    """For the rebalance that this join begins, or is part of."""
    away_ms = max(0, step.now_ms - former.heard_ms)
    group.arrived_again.append(Incarnation(member.id, former.id, away_ms, HOW_GONE[former.end]))


def take_incarnations(group: ExplainedGroup) -> None:
    """Newcomers that are former members belong to the rebalance that they begin, or come into."""
    if group.arrived_again and (rebalance := group.ongoing_rebalance) is not None:
        for incarnation in group.arrived_again:
            rebalance.returned(incarnation)
        group.arrived_again.clear()


def amend_leave(group: ExplainedGroup, former: DepartedMember, what: str, step: Step) -> None:
    """A member that seemed to leave for good had only stopped polling."""

    def amended(cause: Cause, detail: str) -> tuple[Cause, str]:
        said = detail.replace(STILL_OPEN, "").replace(" left", f" {what}", 1)
        return cause, f"{said}: typical of max.poll.interval.ms exceeded"

    evidence = "it left, kept its connection open, and joined again by it"
    rebalance = group.ongoing_rebalance
    if rebalance is not None and rebalance.trigger.culprit == former.id:
        if rebalance.trigger.cause is Cause.MEMBER_LEFT:
            cause, detail = amended(Cause.POLL_TIMEOUT, rebalance.trigger.detail)
            rebalance.trigger = replace(
                rebalance.trigger, cause=cause, detail=detail, certainty=Certainty.INFERRED, evidence=evidence
            )
        return
    entry = amend_target(group, former.id, step)
    if entry is not None:
        cause, detail = amended(Cause.POLL_TIMEOUT, entry.detail)
        amend_entry(
            group,
            replace(entry, cause=cause, detail=detail, certainty=Certainty.INFERRED, evidence=evidence),
            step,
        )


MAX_DEFERRED = 20
"""Events of a group that wait to be explained."""


def explain_later(event: LedgerFact, step: Step) -> None:
    """What only the ledger has to know waits for a timer, which does not fire while the log has no room.

    A heartbeat that is refused and a connection that closes leave no record in their own step: a shard without room
    would keep back all answers of the group until the record is written.
    """
    waiting = step.state.explanations.setdefault(event.group_id, [])
    if len(waiting) < MAX_DEFERRED:
        waiting.append(event)
        step.arm(("explain", event.group_id), 1)


def note_connection_closed(group: ExplainedGroup, event: ConnectionClosed, step: Step) -> None:
    group.history.note_closed(event.connection, step.now_ms)
    left = (each for each in group.history.former.values() if each.end is WaitEnd.LEFT)
    if any(each.connection == event.connection for each in left):
        explain_later(event, step)


def amend_closed(group: ExplainedGroup, connection: int, step: Step) -> None:
    """A member that left had only not closed its connection yet: it does not come back."""
    for former in group.history.former.values():
        if former.connection != connection or former.end is not WaitEnd.LEFT:
            continue
        entry = amend_target(group, former.id, step)
        if entry is not None and STILL_OPEN in entry.detail:
            amend_entry(group, replace(entry, detail=entry.detail.replace(STILL_OPEN, "")), step)


def amend_late_fetch(group: ExplainedGroup, event: FetchedAfterLeaving, step: Step) -> None:
    """A member went, and its client still fetches what it had. Nothing is said where it may be another client."""
    former = group.history.former.get(event.member_id)
    ledger = step.state.ledgers.get(group.id)
    entry = ledger.entries.get(event.number) if ledger is not None else None
    if entry is None or former is None or former.successor or former.end not in (WaitEnd.LEFT, WaitEnd.EXPIRED):
        return
    if disturbance_since(former.gone_ms, step) is not None:
        return  # the node may have read what was sent long before
    same = former.connection not in (NO_CONNECTION, *group.history.closed) and event.connection == former.connection
    if may_be_another(group, former, event.connection, same):
        return
    certainty = Certainty.RECORDED if same else Certainty.INFERRED
    told = {(each.member_id, each.topic): each for each in entry.late_fetches}
    for topic in sorted({topic for topic, _ in event.partitions}):
        known = told.pop((former.id, topic), None)
        numbers = {number for name, number in event.partitions if name == topic}
        told[former.id, topic] = LateFetch(
            former.id,
            topic,
            tuple(sorted(numbers.union(known.partitions if known else ()))[:MAX_LATE_PARTITIONS]),
            step.now_ms - former.gone_ms,
            min(certainty, known.certainty) if known else certainty,
        )
    amend_entry(group, replace(entry, late_fetches=tuple(told.values())[-MAX_ALSO:]), step)


def may_be_another(group: ExplainedGroup, former: DepartedMember, connection: int, same: bool) -> bool:
    """Whether a fetch may be that of a member that is there; of a group too large to look through, by names it may.

    same: it came by the connection of the one that went.
    """
    names = (former.client_id, former.client_host)
    for scanned, member in enumerate(group.seen_members()):
        if connection == member.connection != NO_CONNECTION:
            return True
        if not same and (scanned == MAX_SCANNED or (member.client_id, member.client_host) == names):
            return True
    return False


def amend_target(group: ExplainedGroup, member_id: str, step: Step) -> RebalanceEntry | None:
    """The newest entry that this member's leaving began."""
    ledger = step.state.ledgers.get(group.id)
    entries = ledger.entries if ledger is not None else {}
    for entry in (entries[number] for number in sorted(entries, reverse=True)):
        if entry.culprit == member_id and entry.cause is Cause.MEMBER_LEFT:
            return entry
    return None


# A member goes
# -------------


def describe_connection(group: ExplainedGroup, member: SeenMember, step: Step) -> str:
    """What its connection tells about a member that is not heard: a crash closes it, a frozen process does not."""
    closed_ms = group.history.closed_ms(member)
    if closed_ms is not None:
        how = "connection was closed" if member.connection > NO_CONNECTION else "connection broke off"
        return f"; its {how} {describe_ms(max(0, step.now_ms - closed_ms))} before"
    if group.history.is_open(member.connection):
        return "; its connection is still open, so the process or the network hangs"
    return ""


def trigger_of_expiry(group: ExplainedGroup, member: SeenMember, step: Step) -> RebalanceTrigger:
    """Its session is over. An id that has come back under another one is not to blame for it."""
    silent_ms = step.now_ms - member.last_seen_ms
    what = f"was not heard of for {silent_ms} ms (session timeout {member.session_timeout_ms} ms)"
    known = group.history.former.get(member.id)
    if known is not None and known.successor:
        kept = f"its old id was kept until its session of {member.session_timeout_ms} ms was over"
        what = f"had come back as {known.successor}; {kept}"
        disturbance = disturbance_since(member.last_seen_ms, step)
        if disturbance is None:
            return trigger_by_member(Cause.SESSION_EXPIRED, member, what)
        cause = Cause.COORDINATOR_FAILOVER if disturbance.takeover else Cause.NODE_STALLED
        evidence = f"{disturbance.detail}, and its successor joined after that"
        detail = trigger_by_member(cause, member, what).detail
        return RebalanceTrigger(cause, detail, certainty=Certainty.INFERRED, evidence=evidence)
    trigger = trigger_by_member(Cause.SESSION_EXPIRED, member, what)
    return replace(trigger, detail=f"{trigger.detail}{describe_connection(group, member, step)}")


def departure_of_expired(group: ExplainedGroup, member_id: str, last_seen_ms: int) -> Departure:
    """Why its partitions have no owner: an id that has come back under another one was given up, not lost."""
    known = group.history.former.get(member_id)
    came_back = known is not None and bool(known.successor)
    why = "its owner had come back under another id" if came_back else "its owner's session expired"
    return Departure(why, last_seen_ms, WaitEnd.EXPIRED)


def leave_sentence(group: ExplainedGroup, trigger: RebalanceTrigger) -> RebalanceTrigger:
    """As the entry is written: whether the connection that it left by is still open."""
    former = group.history.former.get(trigger.culprit)
    if trigger.cause is not Cause.MEMBER_LEFT or former is None or STILL_OPEN in trigger.detail:
        return trigger
    if former.end is WaitEnd.LEFT and group.history.is_open(former.connection):
        return replace(trigger, detail=f"{trigger.detail}{STILL_OPEN}")
    return trigger


# Group instance ids
# ------------------

REPEATED_MS = 10 * 60_000
"""Within that time the ledger tells of one member's restarts, or of one contested instance id, in one entry."""


def record_calm_restart(
    group: ExplainedGroup, member: SeenMember, plan: MemberPlan, incarnation: Incarnation, step: Step
) -> None:
    """An entry for a restart that moved nothing. Restarts that follow each other soon share the newest entry."""
    kept = sum(len(partitions) for _, partitions in plan.assigned)
    last = last_restart(group, member, step)
    told = (*(last.incarnations if last is not None else ()), incarnation)[-MAX_ALSO:]
    again = f", {len(told)} times in a row," if len(told) > 1 else ""
    detail = (
        f"{describe_member(member)} restarted in {describe_ms(incarnation.away_ms)}{again} and kept its {kept} "
        f"{'partition' if kept == 1 else 'partitions'}"
    )
    entry = member_changed_entry(group, member, plan, Cause.STATIC_MEMBER_REPLACED, detail, step)
    entry = replace(entry, incarnations=told)
    if last is not None:
        amend_entry(group, replace(entry, number=last.number, started_at_ms=last.started_at_ms), step)
        return
    keep_entry(group.id, entry, step)
    step.announce(group, entry=entry)


def last_restart(group: ExplainedGroup, member: SeenMember, step: Step) -> RebalanceEntry | None:
    """The group's newest entry, if it tells of a recent restart of the same member."""
    ledger = step.state.ledgers.get(group.id)
    last = ledger.last if ledger is not None else None
    if last is None or last.outcome is not Outcome.MEMBER_CHANGED or last.cause is not Cause.STATIC_MEMBER_REPLACED:
        return None
    same = member.instance_id in {each.group_instance_id for each in last.members}
    return last if same and step.now_ms - step.past(last.ended_at_ms) < REPEATED_MS else None


def record_contested_instance_id(
    group: ExplainedGroup, holder: SeenMember, plan: MemberPlan, other: str, step: Step, evidence: str = ""
) -> None:
    """Two running processes have one group instance id. other: the one that does not hold it, in words. evidence: of
    its running, if it was not heard."""
    if holder.connection in group.history.closed:
        return  # its process is gone, and the other one waits for its place
    instance_id = holder.instance_id
    since_ms = group.history.contested.get(instance_id)
    if not other or (since_ms is not None and step.now_ms - since_ms < REPEATED_MS):
        return
    group.history.contested[instance_id] = step.now_ms
    while len(group.history.contested) > MAX_CONTESTED:
        del group.history.contested[next(iter(group.history.contested))]
    detail = (
        f"two processes use group.instance.id {instance_id}: {describe_member(holder)} has it, and {other} is still "
        "running; give each process an instance id of its own"
    )
    entry = member_changed_entry(group, holder, plan, Cause.INSTANCE_ID_SHARED, detail, step)
    if evidence:
        entry = replace(entry, certainty=Certainty.INFERRED, evidence=evidence)
    keep_entry(group.id, entry, step)
    step.announce(group, entry=entry)


def member_changed_entry(
    group: ExplainedGroup, member: SeenMember, plan: MemberPlan, cause: Cause, detail: str, step: Step
) -> RebalanceEntry:
    """An entry about one member that moved nothing. plan: what the member keeps."""
    return replace(
        audit_entry(group.id, Outcome.MEMBER_CHANGED, member.id, detail, step),
        cause=cause,
        certainty=Certainty.RECORDED,
        culprit_client_id=member.client_id,
        culprit_client_host=member.client_host,
        protocol_type=CONSUMER,
        members=(plan,),
    )


def describe_refused(group: ExplainedGroup, event: InstanceIdUser) -> str:
    """The process that was refused: a member that was fenced, or one that asks to join; empty: nobody knows."""
    if described := describe_former(group, event.member_id):
        return described
    if isinstance(event, ConsumerHeartbeat):
        software = f", {event.client_software}" if event.client_software else ""
        return f"member {event.member_id} ({event.client_id or 'no client id'}{software} at {event.client_host})"
    return ""


def evidence_of_refused(event: InstanceIdUser) -> str:
    """How it is known that the process runs; empty: it was heard."""
    return "its session stream was open when it was told that it is fenced" if isinstance(event, Listen) else ""


def describe_former(group: ExplainedGroup, member_id: str) -> str:
    """A member that has gone; empty: nobody knows it any more."""
    former = group.history.former.get(member_id)
    if former is None:
        return ""
    software = f", {former.software}" if former.software else ""
    return f"member {former.id} ({former.client_id or 'no client id'}{software} at {former.client_host})"
