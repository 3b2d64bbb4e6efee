"""Why a classic group rebalances, from facts: what a JoinGroup changed, who a newcomer is, what happened to topics.

A client's own text decides only where no fact does. A cause that was concluded names its evidence; a cause that no
fact tells is unknown, which is better than wrong (docs/design/explain.md).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from muster.assignors.data.consumer_protocol import Subscription, parse_subscription
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.groups.bookkeeping import amend_entry
from muster.coordinator.core.groups.member_history import (
    HOW_GONE,
    DepartedMember,
    Disturbance,
    Returned,
    find_disturbance,
)
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.ledger import RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Incarnation,
    Protocol,
    RebalanceEntry,
    TopicChange,
    TopicChangeKind,
    WaitEnd,
)

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


def ago(ms: int) -> str:
    """
    >>> ago(420), ago(12_340)
    ('420 ms', '12.3 s')
    """
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1000:.1f} s"


# A member joins again
# --------------------


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


def compare_joins(before: tuple[Protocol, ...], now: tuple[Protocol, ...], protocol_name: str) -> JoinDifference:
    """Field by field, by the blob of the group's protocol if both have it, else of the first they share."""
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
    return replace(
        difference,
        topics_added=frozenset(other.topics) - frozenset(one.topics),
        topics_removed=frozenset(one.topics) - frozenset(other.topics),
        owned_less=owned - owns,
        owned_more=owns - owned,
        rack=(other.rack or "none") if other.rack != one.rack else "",
        user_data=bool(shared) and one.user_data != other.user_data,
    )


def parsed(metadata: bytes | None) -> Subscription | None:
    if metadata is None:
        return None
    try:
        return parse_subscription(metadata)
    except ValueError:
        return None


def owned_cells(subscription: Subscription) -> frozenset[tuple[str, int]]:
    return frozenset((topic, p) for topic, partitions in subscription.owned.items() for p in partitions)


def trigger_of_rejoin(
    group: ClassicGroup, member: ClassicMember, protocols: tuple[Protocol, ...], reason: str, step: Step
) -> RebalanceTrigger:
    """A member of a settled group joined again, and that calls for a plan. `protocols`: what it offers now."""
    said = compare_joins(member.protocols, protocols, group.protocol_name or "")
    by_topics = topics_that_changed(group, said, step)
    if group.restored:
        return trigger_after_reload(group, member, reason, by_topics, step)
    if said.protocols_added or said.protocols_removed or said.reordered:
        return trigger_of_offer(group, member, said, reason)
    if said.topics_added or said.topics_removed:
        return trigger_of_topics(group, member, said, by_topics, reason)
    if trigger := trigger_of_release(group, member, protocols, said, reason):
        return trigger
    if by_topics:
        trigger = trigger_by_member(Cause.PARTITIONS_CHANGED, member, "joined again after topics changed", reason)
        return replace(
            trigger,
            detail=f"{describe_changes(by_topics)}; {trigger.detail}",
            certainty=Certainty.INFERRED,
            evidence=f"{describe_changes(by_topics)} before the member, which reads it, joined again",
            topics=by_topics,
        )
    if said.rack:
        return trigger_by_member(changed_cause(member), member, f"is in another rack now: {said.rack}", reason)
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


def roll_out(group: ClassicGroup, member: ClassicMember, name: str) -> str:
    others = [each for each in group.members.values() if each.id != member.id]
    count = 1 + sum(name in each.offer for each in others)
    return f"; {count} of {len(others) + 1} members offer {name} now"


def trigger_of_topics(
    group: ClassicGroup,
    member: ClassicMember,
    said: JoinDifference,
    by_topics: tuple[TopicChange, ...],
    reason: str,
) -> RebalanceTrigger:
    """It reads other topics: because topics were made or deleted since, or because it wants to."""
    words = [f"+{name}" for name in sorted(said.topics_added)] + [f"-{name}" for name in sorted(said.topics_removed)]
    differing = said.topics_added | said.topics_removed
    explained = {change.topic for change in by_topics if change.kind is not TopicChangeKind.GREW}
    if differing <= explained:
        trigger = trigger_by_member(Cause.PARTITIONS_CHANGED, member, f"reads {name_few(words)}", reason)
        return replace(
            trigger,
            detail=f"{describe_changes(by_topics)}; {trigger.detail}",
            certainty=Certainty.INFERRED,
            evidence=f"{describe_changes(by_topics)} before the member, by a pattern or a list that names it, "
            f"joined again with {name_few(words)}",
            topics=by_topics,
        )
    trigger = trigger_by_member(
        Cause.SUBSCRIPTION_CHANGED, member, f"changed its subscription: {name_few(words)}", reason
    )
    return replace(trigger, topics=tuple(change for change in by_topics if change.topic in differing))


def trigger_of_release(
    group: ClassicGroup,
    member: ClassicMember,
    protocols: tuple[Protocol, ...],
    said: JoinDifference,
    reason: str,
) -> RebalanceTrigger | None:
    """The second round of a cooperative rebalance: it was asked to give partitions up, and comes without them."""
    asked = {tp for tp, withheld in group.carried.items() if withheld.holder == member.id and withheld.since_ms is None}
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


def trigger_after_reload(
    group: ClassicGroup, member: ClassicMember, reason: str, by_topics: tuple[TopicChange, ...], step: Step
) -> RebalanceTrigger:
    """Only the selected protocol is on record, so after a reload an unchanged member may look changed."""
    trigger = trigger_by_member(
        cause_from_reason(reason, Cause.COORDINATOR_FAILOVER),
        member,
        "rejoined after the coordinator was reloaded",
        reason,
    )
    return replace(
        trigger,
        certainty=Certainty.INFERRED,
        evidence="it is the first rebalance since the group was loaded, and only the chosen assignor's part of a "
        "subscription is on record",
        topics=by_topics,
    )


def trigger_of_unexplained_rejoin(
    group: ClassicGroup, member: ClassicMember, said: JoinDifference, reason: str
) -> RebalanceTrigger:
    """No fact says why: the client's own words, if it sent any."""
    leads = member.id == group.leader
    what = "rejoined as leader" if leads and said == JoinDifference() else "rejoined"
    otherwise = Cause.LEADER_REJOINED if leads else changed_cause(member)
    if reason:
        trigger = trigger_by_member(cause_from_reason(reason, otherwise), member, what, reason)
        return replace(trigger, certainty=Certainty.INFERRED, evidence=f'the client\'s own words: "{reason}"')
    if not said.readable:
        trigger = trigger_by_member(otherwise, member, "rejoined with other metadata, which is not a consumer's")
    elif said.owned_less or said.owned_more:
        cells = [f"+{t}-{p}" for t, p in sorted(said.owned_more)] + [f"-{t}-{p}" for t, p in sorted(said.owned_less)]
        trigger = trigger_by_member(otherwise, member, f"rejoined, owning other partitions: {name_few(cells)}")
    elif said.user_data:
        trigger = trigger_by_member(otherwise, member, "rejoined with other user data for the assignor")
    else:
        trigger = trigger_by_member(otherwise, member, f"{what} without a change and without a reason")
    return replace(trigger, certainty=Certainty.UNKNOWN)


# Topics
# ------


def topics_that_changed(group: ClassicGroup, said: JoinDifference, step: Step) -> tuple[TopicChange, ...]:
    """What happened, since the last plan, to topics that the group, or now this member, reads."""
    read = (group.subscribed_topics or frozenset()) | said.topics_added | said.topics_removed
    return changes_since(step.state, read, group.planned_at_ms)


def changes_since(state: ShardState, topics: Iterable[str], since_ms: int) -> tuple[TopicChange, ...]:
    wanted = frozenset(topics)
    return tuple(change for change in state.topic_changes if change.topic in wanted and change.at_ms >= since_ms)


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


def trigger_of_newcomer(group: ClassicGroup, member: ClassicMember, reason: str, step: Step) -> RebalanceTrigger:
    """A member id that the group did not have: a new member, or one that is back under another id.

    Amends what the ledger says about how the former one went, if that looks different now.
    """
    trigger = trigger_by_member(Cause.MEMBER_JOINED, member, "joined", reason)
    returned = group.history.find_return(
        member, member.group_instance_id, [m for m in group.members.values() if m.id != member.id], step.now_ms
    )
    if returned is None:
        returned = find_given_up(group, member, step)
    if returned is None:
        return trigger
    former = returned.former
    group.history.succeed(former.id, member.id)
    note_incarnation(group, member, former, step)
    away = ago(max(0, step.now_ms - former.heard_ms))
    disturbance = find_disturbance(
        step.state.stalls.values(), step.state.takeovers.values(), former.heard_ms, step.now_ms
    )
    if disturbance is not None and former.end in (WaitEnd.EXPIRED, WaitEnd.JOINED):
        return trigger_of_disturbance(member, former, disturbance, step)
    if returned.same_process and former.end is WaitEnd.LEFT:
        amend_leave(group, former, f"left without closing and came back {away} later", step)
        what = f"is back {away} after it left, by the connection that it had never closed (was {former.id})"
        return replace(
            trigger_by_member(Cause.MEMBER_JOINED, member, what, reason),
            certainty=Certainty.INFERRED,
            evidence="it came by the same connection as its LeaveGroup",
        )
    if returned.same_process:
        how = "its session expired" if former.end is WaitEnd.EXPIRED else f"its old id {HOW_GONE[former.end]}"
        what = f"is back under a new id, {away} after it was last heard (was {former.id}; {how})"
        return replace(
            trigger_by_member(Cause.MEMBER_RESTARTED, member, what, reason),
            certainty=Certainty.INFERRED,
            evidence="it came by the connection of its old id: the process was not stopped",
        )
    return trigger_of_restart(member, returned, away, reason)


def trigger_of_restart(member: ClassicMember, returned: Returned, away: str, reason: str) -> RebalanceTrigger:
    former = returned.former
    if former.end is WaitEnd.JOINED and returned.closed_ms is not None:
        what = f"restarted: it is back under a new id {away} after its old one was last heard (was {former.id})"
        evidence = "same client id and host, and the connection of the old id is closed"
    else:
        how = {WaitEnd.LEFT: "left", WaitEnd.EXPIRED: "was last heard, and then expired"}.get(former.end, "went")
        what = f"is back {away} after it {how} (was {former.id})"
        evidence = "same group.instance.id" if former.instance_id else "same client id and host"
    trigger = trigger_by_member(Cause.MEMBER_RESTARTED, member, what, reason)
    return replace(trigger, certainty=Certainty.INFERRED, evidence=evidence)


def find_given_up(group: ClassicGroup, member: ClassicMember, step: Step) -> Returned | None:
    """A member that counts, and has not been heard since the node stood still or took over, gave up on its own."""
    for each in group.members.values():
        if each.id == member.id or (each.client_id, each.client_host) != (member.client_id, member.client_host):
            continue
        known = group.history.former.get(each.id)
        if known is not None and known.successor:
            continue
        stalls, takeovers = step.state.stalls.values(), step.state.takeovers.values()
        if find_disturbance(stalls, takeovers, each.last_seen_ms, step.now_ms) is not None:
            group.history.note_gone(each, each.group_instance_id, WaitEnd.JOINED, step.now_ms)
            former = group.history.former[each.id]
            return Returned(former, same_process=False, closed_ms=group.history.closed.get(each.connection))
    return None


def trigger_of_disturbance(
    member: ClassicMember, former: DepartedMember, disturbance: Disturbance, step: Step
) -> RebalanceTrigger:
    cause = Cause.COORDINATOR_FAILOVER if disturbance.takeover else Cause.NODE_STALLED
    since = ago(max(0, step.now_ms - disturbance.ended_ms))
    trigger = trigger_by_member(cause, member, f"gave up waiting and came back under a new id (was {former.id})")
    return replace(
        trigger,
        detail=f"{disturbance.detail}, until {since} before: {trigger.detail}",
        certainty=Certainty.INFERRED,
        evidence=f"{disturbance.detail}, and its old id was not heard since",
    )


def note_incarnation(group: ClassicGroup, member: ClassicMember, former: DepartedMember, step: Step) -> None:
    """For the rebalance that this join begins, or is part of."""
    away_ms = max(0, step.now_ms - former.heard_ms)
    group.arrived_again.append(Incarnation(member.id, former.id, away_ms, HOW_GONE[former.end]))


def amend_leave(group: ClassicGroup, former: DepartedMember, what: str, step: Step) -> None:
    """A member that seemed to leave for good had only stopped polling."""

    def amended(cause: Cause, detail: str) -> tuple[Cause, str]:
        said = detail.replace(STILL_OPEN, "").replace(" left", f" {what}", 1)
        return cause, f"{said}: typical of max.poll.interval.ms exceeded"

    evidence = "it left, kept its connection open, and joined again by it"
    rebalance = group.rebalance
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


def note_connection_closed(group: ClassicGroup, connection: int, step: Step) -> None:
    """Whoever left by it had only not closed it yet: it does not come back."""
    group.history.note_closed(connection, step.now_ms)
    for former in group.history.former.values():
        if former.connection != connection or former.end is not WaitEnd.LEFT:
            continue
        entry = amend_target(group, former.id, step)
        if entry is not None and STILL_OPEN in entry.detail:
            amend_entry(group, replace(entry, detail=entry.detail.replace(STILL_OPEN, "")), step)


def amend_target(group: ClassicGroup, member_id: str, step: Step) -> RebalanceEntry | None:
    """The newest entry that this member's leaving began."""
    ledger = step.state.ledgers.get(group.id)
    entries = ledger.entries if ledger is not None else {}
    for entry in (entries[number] for number in sorted(entries, reverse=True)):
        if entry.culprit == member_id and entry.cause is Cause.MEMBER_LEFT:
            return entry
    return None


# A member goes
# -------------


def describe_connection(group: ClassicGroup, member: ClassicMember, step: Step) -> str:
    """What its connection tells about a member that is not heard: a crash closes it, a frozen process does not."""
    closed_ms = group.history.closed.get(member.connection)
    if closed_ms is not None:
        return f"; its connection was closed {ago(max(0, step.now_ms - closed_ms))} before"
    if group.history.is_open(member.connection):
        return "; its connection is still open, so the process or the network hangs"
    return ""


def trigger_of_expiry(group: ClassicGroup, member: ClassicMember, step: Step) -> RebalanceTrigger:
    """Its session is over. An id that has come back under another one is not to blame for it."""
    silent_ms = step.now_ms - member.last_seen_ms
    what = f"was not heard of for {silent_ms} ms (session timeout {member.session_timeout_ms} ms)"
    known = group.history.former.get(member.id)
    if known is not None and known.successor:
        what = f"expired after {silent_ms} ms: it had come back as {known.successor}"
        disturbance = find_disturbance(
            step.state.stalls.values(), step.state.takeovers.values(), member.last_seen_ms, step.now_ms
        )
        cause = Cause.MEMBER_RESTARTED
        if disturbance is not None:
            cause = Cause.COORDINATOR_FAILOVER if disturbance.takeover else Cause.NODE_STALLED
        trigger = trigger_by_member(cause, member, what)
        return replace(
            trigger, certainty=Certainty.INFERRED, evidence="a member with its client id and host had joined before"
        )
    trigger = trigger_by_member(Cause.SESSION_EXPIRED, member, what)
    return replace(trigger, detail=f"{trigger.detail}{describe_connection(group, member, step)}")


def leave_sentence(group: ClassicGroup, trigger: RebalanceTrigger) -> RebalanceTrigger:
    """As the entry is written: whether the connection that it left by is still open."""
    former = group.history.former.get(trigger.culprit)
    if trigger.cause is not Cause.MEMBER_LEFT or former is None or STILL_OPEN in trigger.detail:
        return trigger
    if former.end is WaitEnd.LEFT and group.history.is_open(former.connection):
        return replace(trigger, detail=f"{trigger.detail}{STILL_OPEN}")
    return trigger
