"""Offsets of central groups: the coordinator commits what members report, and takes explicit commits beside it."""

from coordinator.core.central.events import Offsets
from coordinator.core.central.group import CentralGroup, CentralMember
from coordinator.core.central.records import CentralDeleted
from coordinator.core.consumer.positions import expired
from coordinator.core.events import OffsetCommit
from coordinator.core.records import DelayForgotten, OffsetDeleted, OffsetStored, RebalanceForgotten
from coordinator.core.state import Step
from coordinator.core.types import NO_TOPIC_ID, StoredOffset
from coordinator.errors import CoordinatorError, ErrorCode


def keep(group: CentralGroup, member: CentralMember, offsets: Offsets, step: Step) -> None:
    """Commit what has changed, as far as the member may fetch it: what it says of anything else is of no account."""
    share = group.owned.get(member.id, {}) if member.may_fetch else {}
    stored = step.state.offsets.get(group.id, {})
    for topic, partition, position in offsets:
        before = stored.get((topic, partition))
        if partition not in share.get(topic, ()) or (before is not None and before.offset == position.offset):
            continue
        of_topic = step.state.topic_ids.get(topic, NO_TOPIC_ID)
        value = StoredOffset(position.offset, position.leader_epoch, position.metadata, step.now_ms, None, of_topic)
        step.keep(OffsetStored(group.id, topic, partition, value))


def may_commit(group: CentralGroup, request: OffsetCommit) -> None:
    """A commit by OffsetCommit: by a member under the generation that holds, or by anybody while nobody is there."""
    if request.generation < 0 and not group.members:
        return
    if request.member_id not in group.members:
        what = f"no member {request.member_id!r}" if request.member_id else "members: only they may commit now"
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has {what}")
    if request.generation != group.generation:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {request.generation} is not generation {group.generation} of group {group.id!r}",
        )


def expire(step: Step) -> None:
    """Drop what nobody reads and nobody has committed for the retention time, then groups that have nothing left."""
    for group in list(step.state.central_groups.values()):
        read = group.subscribed_topics() if group.members else frozenset()
        stored = step.state.offsets.get(group.id, {})
        for topic, partition in [tp for tp, value in stored.items() if tp[0] not in read and expired(value, step)]:
            step.keep(OffsetDeleted(group.id, topic, partition))
        if not group.members and not step.state.offsets.get(group.id):
            delete_records(group, step)


def delete_records(group: CentralGroup, step: Step) -> None:
    """Tombstones for an empty group and all that belongs to it, its ledger included."""
    for topic, partition in list(step.state.offsets.get(group.id, ())):
        step.keep(OffsetDeleted(group.id, topic, partition))
    ledger = step.state.ledgers.get(group.id)
    if ledger is not None and ledger.delay is not None:
        step.keep(DelayForgotten(group.id))
    for number in list(ledger.entries) if ledger else []:
        step.keep(RebalanceForgotten(group.id, number))
    step.keep(CentralDeleted(group.id))
