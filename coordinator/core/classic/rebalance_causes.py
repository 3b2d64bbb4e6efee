"""Why a classic group rebalances, from facts: what a JoinGroup changed, who a newcomer is, what happened to topics.

A client's own text decides only where no fact does. A cause that was concluded names its evidence; a cause that no
fact tells is unknown, which is better than wrong (docs/design/explain.md).
"""

from dataclasses import dataclass, replace

from muster.assignors.data.consumer_protocol import Subscription, parse_subscription
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.groups.member_causes import (
    NOTICE_MS,
    cause_from_reason,
    changes_since,
    describe_changes,
    disturbance_since,
    name_few,
)
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.ledger import RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Protocol,
    TopicChange,
    TopicChangeKind,
)

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
    trigger = cause_of_rejoin(group, member, protocols, reason, step)
    if trigger.topics:
        member.noticed_ms = step.now_ms
    return trigger


def cause_of_rejoin(
    group: ClassicGroup, member: ClassicMember, protocols: tuple[Protocol, ...], reason: str, step: Step
) -> RebalanceTrigger:
    said = compare_joins(member.protocols, protocols, group.protocol_name or "")
    by_topics = topics_that_changed(group, member, said, step)
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
        return RebalanceTrigger(
            Cause.PARTITIONS_CHANGED,
            f"{describe_changes(by_topics)}; {trigger.detail}",
            client_reason=reason,
            certainty=Certainty.INFERRED,
            evidence=f"{describe_changes(by_topics)} before the member, which reads it, joined again",
            topics=by_topics,
        )
    if said.rack:
        return trigger_by_member(changed_cause(member), member, f"is in another rack now: {said.rack}", reason)
    if trigger := trigger_after_stall(group, member, reason, step):
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
        what = f"follows with its subscription: {name_few(words)}"
        trigger = trigger_by_member(Cause.PARTITIONS_CHANGED, member, what, reason)
        return RebalanceTrigger(
            Cause.PARTITIONS_CHANGED,
            f"{describe_changes(by_topics)}; {trigger.detail}",
            client_reason=reason,
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


def trigger_after_stall(group: ClassicGroup, member: ClassicMember, reason: str, step: Step) -> RebalanceTrigger | None:
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
    if member.id != group.leader or group.remote or said != JoinDifference():
        return None
    planned = {topic for each in group.members.values() for topic in assignment_of(each.assignment)}
    left_out = sorted(
        topic for topic in (group.subscribed_topics or frozenset()) - planned if step.state.partitions.get(topic)
    )
    if not left_out:
        return None
    names = name_few(left_out)
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


def topics_that_changed(
    group: ClassicGroup, member: ClassicMember, said: JoinDifference, step: Step
) -> tuple[TopicChange, ...]:
    """What happened to topics that the group, or now this member, reads: since the last plan.

    Each client notices a change by itself, when it reads metadata again, and may have come to the last plan without it.
    So changes before that plan count, too, that this member has not followed yet: of the topics by which its
    subscription differs, or, if it says nothing else, of all that it reads.
    """
    differing = said.topics_added | said.topics_removed
    read = (group.subscribed_topics or frozenset()) | differing
    recent = changes_since(step.state, read, group.planned_at_ms)
    if recent and not differing:
        return recent
    known = {change.topic for change in recent}
    since_ms = max(step.now_ms - NOTICE_MS, member.noticed_ms + 1)
    return recent + changes_since(step.state, (differing or read) - known, since_ms)
