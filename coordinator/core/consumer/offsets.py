"""Committed offsets of KIP-848 groups: who may commit and fetch, and what expires."""

from collections.abc import Mapping

from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember
from muster.coordinator.core.consumer.members import delete_records
from muster.coordinator.core.groups.bookkeeping import fences_hold, forget_unread
from muster.coordinator.core.groups.kind import Positions, RefusedPositions
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import ClaimFence, OffsetCommit, OffsetFetch
from muster.coordinator.core.model.records import TopicId
from muster.coordinator.errors import CoordinatorError, ErrorCode

NO_OWNERS: Mapping[int, str] = {}


def check_may_commit(group: ConsumerGroup, request: OffsetCommit, step: Step) -> RefusedPositions:
    """Partitions for which the epoch is too old. One that the member has had since then may still be committed."""
    epoch = request.generation
    if epoch < 0 and not group.members:
        return {}
    member = committing_member(group, request.member_id)
    if member.classic is None and request.missing_group_code_is_illegal_generation:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"member {member.id!r} speaks the consumer protocol; it has to commit with OffsetCommit v9 or newer",
        )
    if epoch > member.epoch:
        raise is_stale(member, epoch)
    if epoch == member.epoch:
        return partitions_given_on(group, member, request, step)
    # KIP-1251: the epoch went on while the commit was under way; that alone is no reason to refuse it.
    ids = step.state.topic_ids
    asked = request.offsets
    refused = [tp for tp in asked if not has_had_since(member, ids.get(tp[0]), tp[1], epoch)]
    if len(refused) == len(asked):
        raise is_stale(member, epoch)
    return dict.fromkeys(refused, is_stale(member, epoch).code)


def partitions_given_on(
    group: ConsumerGroup, member: ConsumerMember, request: OffsetCommit, step: Step
) -> RefusedPositions:
    """Partitions that are another member's by now, though the epoch is right: what was done since belongs to it.

    Of classic members the generation says enough: they are given a new one before anything of theirs is given on.
    """
    if not group.may_have_given(member.id):
        return {}
    owners, ids, own = group.owners, step.state.topic_ids, member.id
    refused: RefusedPositions = {}
    of_topic, row = "", NO_OWNERS
    for place in request.offsets:
        if place[0] is not of_topic:
            of_topic = place[0]
            row = owners.get(ids.get(of_topic, b""), NO_OWNERS)
        if row.get(place[1], own) != own:
            refused[place] = ErrorCode.STALE_MEMBER_EPOCH
    if group.progress.taken:
        refused |= partitions_taken_from(group, member, request, step)
    if not refused or member.classic is not None:
        return {}
    if len(refused) == len(request.offsets):
        topic, partition = next(iter(refused))
        owner = group.owner(ids[topic], partition)
        whose = "is taken from it" if owner is None else f"belongs to member {owner!r}"
        raise CoordinatorError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"{topic}-{partition} was given on by member {member.id!r}, and {whose}; commit only what is owned",
        )
    return refused


def partitions_taken_from(
    group: ConsumerGroup, member: ConsumerMember, request: OffsetCommit, step: Step
) -> RefusedPositions:
    """What the member was too slow to let go of, and nobody has yet."""
    taken, ids = group.progress.taken, step.state.topic_ids
    return {
        (topic, partition): ErrorCode.STALE_MEMBER_EPOCH
        for topic, partition in request.offsets
        if taken.get((ids.get(topic, b""), partition)) == member.id
    }


def committing_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        what = f"no member {member_id!r}" if member_id else "active members: only they may commit while it is not empty"
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has {what}")
    return member


def has_had_since(member: ConsumerMember, topic: TopicId | None, partition: int, epoch: int) -> bool:
    """The partition has been this member's without a break since that epoch, pending revocation included."""
    if topic is None:
        return False
    for held in (member.assigned, member.revoking):
        assigned_at = held.get(topic, {}).get(partition)
        if assigned_at is not None:
            return assigned_at <= epoch
    return False


def owns_partition(group: ConsumerGroup, request: ClaimFence, step: Step) -> bool:
    """Pending revocation included: until it has let go, nobody else has it. The epochs of a classic member's partitions
    may be those of its group's conversion.
    """
    member = group.members.get(request.member_id)
    topic = step.state.topic_ids.get(request.topic)
    if member is None or topic is None:
        return False
    generation = member.epoch if member.classic is not None else request.generation
    return has_had_since(member, topic, request.partition, generation)


def is_stale(member: ConsumerMember, epoch: int) -> CoordinatorError:
    if member.classic is not None:
        return CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION, f"generation {epoch} is not generation {member.epoch} of member {member.id!r}"
        )
    return CoordinatorError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"epoch {epoch} is not epoch {member.epoch} of member {member.id!r}; heartbeat, then commit with the new epoch",
    )


def fetch_positions(group: ConsumerGroup, request: OffsetFetch, step: Step) -> Positions:
    """A member that says who it is must say so rightly; everybody else may read."""
    if request.member_id or request.member_epoch >= 0:
        member = committing_member(group, request.member_id or "")
        if member.epoch != request.member_epoch:
            raise is_stale(member, request.member_epoch)
    return step.state.offsets.get(group.id, {})


def expire_positions(group: ConsumerGroup, step: Step) -> None:
    """Drop what nobody reads and nobody has committed for the retention time, then the group if it has nothing left."""
    forget_unread(group.id, group.subscribed_topics(), step)
    if not group.members and not step.state.offsets.get(group.id) and not fences_hold(group.id, step):
        delete_records(group, step)
