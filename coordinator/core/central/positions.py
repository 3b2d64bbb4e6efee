"""Offsets of central groups: the coordinator commits what members report, and takes explicit commits beside it."""

from collections.abc import Sequence

from muster.coordinator.core.central.group import CentralGroup, CentralMember
from muster.coordinator.core.groups.facts import fences_hold
from muster.coordinator.core.groups.forgetting import forget_belongings, forget_unread
from muster.coordinator.core.groups.kind import RefusedPositions
from muster.coordinator.core.groups.owners import owners_by_partition
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import OffsetCommit
from muster.coordinator.core.model.core_records import OffsetStored
from muster.coordinator.core.model.events import Offsets
from muster.coordinator.core.model.fences_events import ClaimFence
from muster.coordinator.core.model.records import CentralDeleted
from muster.coordinator.core.model.types import NO_TOPIC_ID, StoredOffset
from muster.coordinator.errors import CoordinatorError, ErrorCode


def keep_positions(group: CentralGroup, member: CentralMember, offsets: Offsets, step: Step) -> None:
    """Commit what has changed, as far as the member may fetch it: what it says of anything else is of no account."""
    share = group.owned.get(member.id, {}) if member.may_fetch else {}
    stored = step.state.offsets.get(group.id, {})
    for topic, partition, position in offsets:
        before = stored.get((topic, partition))
        of_topic = step.state.topic_ids.get(topic, NO_TOPIC_ID)
        known = before is not None and (before.offset, before.topic_id) == (position.offset, of_topic)
        if known or partition not in share.get(topic, ()):
            continue
        value = StoredOffset(position.offset, position.leader_epoch, position.metadata, step.now_ms, None, of_topic)
        step.keep(OffsetStored(group.id, topic, partition, value))


def check_may_commit(group: CentralGroup, request: OffsetCommit, step: Step) -> RefusedPositions:
    """A commit by OffsetCommit: by a member under the generation that holds, or by anybody while nobody is there."""
    if request.generation < 0 and not group.members:
        return {}
    if request.member_id not in group.members:
        what = f"no member {request.member_id!r}" if request.member_id else "members: only they may commit now"
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has {what}")
    if request.generation != group.generation:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {request.generation} is not generation {group.generation} of group {group.id!r}",
        )
    own = group.owned.get(request.member_id, {})
    strange = [place for place in request.offsets if place[1] not in own.get(place[0], ())]
    return dict.fromkeys(owned_by_others(group, strange), ErrorCode.STALE_MEMBER_EPOCH) if strange else {}


def owned_by_others(group: CentralGroup, places: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those that somebody has; what nobody has may be committed by any member."""
    owners = owners_by_partition(group.owned)
    return [(topic, partition) for topic, partition in places if partition in owners.get(topic, {})]


def owns_partition(group: CentralGroup, request: ClaimFence, step: Step) -> bool:
    return request.member_id in group.members and request.partition in group.owned.get(request.member_id, {}).get(
        request.topic, ()
    )


def expire_positions(group: CentralGroup, step: Step) -> None:
    """Drop what nobody reads and nobody has committed for the retention time, then the group if it has nothing left."""
    forget_unread(group.id, group.subscribed_topics() if group.members else frozenset(), step)
    if not group.members and not step.state.offsets.get(group.id) and not fences_hold(group.id, step):
        delete_records(group, step)


def delete_records(group: CentralGroup, step: Step) -> None:
    """Tombstones for an empty group and all that belongs to it, its ledger included."""
    forget_belongings(group.id, step)
    step.keep(CentralDeleted(group.id))
