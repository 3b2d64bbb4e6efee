"""Members that notice a change of topics before their coordinator reads of it: over a Kafka, clients may (EX-F4).

Their JoinGroup looks like a changed subscription, or like nothing at all. It is kept for a while, and what the ledger
tells of it, and of the partitions that went, is amended when the change is known.
"""

from dataclasses import replace

from muster.coordinator.core.classic.group import ClassicGroup, UnexplainedRejoin
from muster.coordinator.core.classic.rebalance_ledger import JoinDifference, trigger_of_followed_topics
from muster.coordinator.core.groups.bookkeeping import amend_entry
from muster.coordinator.core.groups.member_causes import changes_since
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import JoinGroup
from muster.coordinator.core.model.ledger import RebalanceTrigger, why_vanished
from muster.coordinator.core.model.types import GroupState, RebalanceEntry


def may_follow_topics(group: ClassicGroup, request: JoinGroup) -> bool:
    """Whether a member of a settled group joins again, and topics that nobody has read of yet may be why.

    One that was asked to give up partitions comes for that.
    """
    member = group.members.get(request.member_id)
    if member is None or group.state is not GroupState.STABLE:
        return False
    if any(withheld.holder == member.id for withheld in group.carried.values()):
        return False
    return member.protocols != request.protocols or member.id == group.acting_leader


def retell_rejoins(group: ClassicGroup, step: Step) -> None:
    """Topics have changed up to `topics_late_ms` ago: amend what was told of that time without knowing it."""
    late_ms = step.state.topics_late_ms
    ledger = step.state.ledgers.get(group.id)
    if not late_ms or ledger is None:
        return
    since_ms = step.now_ms - late_ms
    group.unexplained = [rejoin for rejoin in group.unexplained if rejoin.at_ms >= since_ms]
    for entry in reversed(list(ledger.entries.values())):
        if entry.ended_at_ms < since_ms:
            break
        amended = with_vanished(with_rejoin(entry, group, step), step)
        if amended is not entry:
            amend_entry(group, amended, step)
    retell_ongoing(group, step)


def retell_ongoing(group: ClassicGroup, step: Step) -> None:
    rebalance = group.rebalance
    if rebalance is None:
        return
    if trigger := take_retold(group, rebalance.trigger.culprit, rebalance.started_at_ms, step):
        rebalance.trigger = trigger


def with_rejoin(entry: RebalanceEntry, group: ClassicGroup, step: Step) -> RebalanceEntry:
    trigger = take_retold(group, entry.culprit, entry.started_at_ms, step)
    if trigger is None:
        return entry
    group.planned_at_ms = step.now_ms + 1  # the plan followed from the news
    return replace(
        entry,
        cause=trigger.cause,
        culprit="",
        culprit_client_id="",
        culprit_client_host="",
        detail=trigger.detail,
        certainty=trigger.certainty,
        evidence=trigger.evidence,
        topics=(*trigger.topics, *(change for change in entry.topics if change not in trigger.topics)),
    )


def take_retold(group: ClassicGroup, member_id: str, at_ms: int, step: Step) -> RebalanceTrigger | None:
    """What is known by now of the rejoin that began a rebalance at that time, once; None if that is nothing new."""
    for rejoin in group.unexplained:
        if (
            rejoin.member.id == member_id
            and rejoin.at_ms == at_ms
            and (trigger := trigger_by_news(group, rejoin, step))
        ):
            group.unexplained.remove(rejoin)
            rejoin.member.noticed_ms = step.now_ms
            return trigger
    return None


def trigger_by_news(group: ClassicGroup, rejoin: UnexplainedRejoin, step: Step) -> RebalanceTrigger | None:
    said = JoinDifference(topics_added=rejoin.topics_added, topics_removed=rejoin.topics_removed)
    read = (group.subscribed_topics or frozenset()) | rejoin.topics_added | rejoin.topics_removed
    news = changes_since(step.state, read, rejoin.at_ms)
    late = f", of which the coordinator read {step.now_ms - rejoin.at_ms} ms after"
    return trigger_of_followed_topics(rejoin.member, said, news, rejoin.reason, late)


def with_vanished(entry: RebalanceEntry, step: Step) -> RebalanceEntry:
    """Partitions that a plan gave to nobody have gone with their topic."""
    lost = {move.topic for move in entry.moves if move.source and not move.target}
    news = changes_since(step.state, lost, entry.ended_at_ms)
    if not news:
        return entry
    moves = tuple(
        replace(move, why=why_vanished((move.topic, move.partition), news) or move.why)
        if move.source and not move.target
        else move
        for move in entry.moves
    )
    if moves == entry.moves:
        return entry
    return replace(entry, moves=moves, topics=(*entry.topics, *(each for each in news if each not in entry.topics)))
