"""What concerns every position of a shard, or of a large group, goes a slice at a time: others have turns in between.

A slice is a step like any other: what it decides is whole, and a crash after it leaves what the next life goes on with.
What is left comes back as an event (`Effects.chores`), which the runtime steps in a later turn.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.core_events import (
    ConsumerHeartbeat,
    DeleteGroup,
    ExpireOffsets,
    ForgetOffsets,
    JoinGroup,
    Loaded,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TopicsChanged,
)
from muster.coordinator.core.model.core_records import OffsetDeleted
from muster.coordinator.core.model.events import RegisterConsumer
from muster.coordinator.core.model.txn_events import TxnOffsetCommit
from muster.coordinator.core.requests import audit_entries, offsets
from muster.coordinator.errors import CoordinatorError, ErrorCode

PartitionPlace: TypeAlias = tuple[str, int]

MADE_ANEW = -1
"""As the time when a topic went: before any commit, so that only the topic's id says which positions go."""

OPENING = (JoinGroup, ConsumerHeartbeat, RegisterConsumer, OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit)
"""What must not come between the parts of a deletion: it would meet half a group."""


class SweepSlice:
    """So many positions of the groups as one step may look at, and what is left of them.

    What is left is told once, by where it begins: to hand on a shorter list for each group would copy the whole list
    as often.
    """

    def __init__(self, event: ExpireOffsets | ForgetOffsets) -> None:
        self.groups = event.groups
        self.places = event.places
        self.begin = event.begin

    def taken(self, step: Step) -> Iterator[tuple[str, tuple[PartitionPlace, ...]]]:
        room, done = step.limits.slice_positions, 0
        while room > 0 and done < len(self.groups):
            group_id = self.groups[done]
            places = tuple(step.state.offsets.get(group_id, ())) if self.places is None else self.places
            now = places[self.begin : self.begin + room]
            room -= len(now) + 1
            if self.begin + len(now) < len(places):
                self.places, self.begin = places, self.begin + len(now)
            else:
                self.places, self.begin = None, 0
                done += 1
            yield group_id, now
        self.groups = self.groups[done:]


def look_for_expired(step: Step) -> None:
    """Retention is due: look at every group, whatever its kind."""
    state = step.state
    step.out.chores.append(ExpireOffsets(tuple(state.groups)))


def expire_slice(event: ExpireOffsets, step: Step) -> None:
    """A slice of it. The next look is due when this one is over."""
    portion = SweepSlice(event)
    for group_id, places in portion.taken(step):
        if group_id not in step.state.going and not step.state.pending.of_group(group_id):
            step.looked_at = places
            group = step.state.groups.get(group_id)
            KINDS[type(group)].expire(group, step)
    if portion.groups:
        step.out.chores.append(ExpireOffsets(portion.groups, portion.places, portion.begin))
    else:
        offsets.expire_ledgers(step)
        step.arm(("retention",), step.limits.offsets_retention_check_ms)


def forget_topics(event: TopicsChanged, step: Step) -> None:
    """Deleted topics take their positions with them, in every group; what is still there until then is told nobody."""
    if event.deleted and step.state.offsets:
        start_forgetting(dict.fromkeys(event.deleted, step.now_ms), step)


def forget_orphan_slice(event: Loaded, step: Step) -> None:
    """So do topics that went while nobody listened. Of one made anew since then, positions without an id stay."""
    state = step.state
    start_forgetting(
        {
            topic: MADE_ANEW if topic in state.partitions else step.now_ms
            for topic, topic_id in event.topics
            if offsets.is_orphaned(topic, topic_id, state.partitions, state.topic_ids)
        },
        step,
    )


def start_forgetting(topics: Mapping[str, int], step: Step) -> None:
    """Look for positions of these topics, beside those that are looked for; each with the time when it went."""
    state = step.state
    begun = bool(state.forgetting)
    state.forgetting = {**state.forgetting, **topics}
    if state.forgetting and not begun:
        step.out.chores.append(topics_being_forgotten(state))


def topics_being_forgotten(state: ShardState) -> ForgetOffsets:
    return ForgetOffsets(tuple(state.offsets), dict(state.forgetting))


def forget_slice(event: ForgetOffsets, step: Step) -> None:
    """A slice of the positions is looked through for topics that have gone."""
    state, gone = step.state, event.topics
    portion = SweepSlice(event)
    for group_id, places in portion.taken(step):
        stored = state.offsets.get(group_id, {})
        for topic, partition in places:
            value = stored.get((topic, partition)) if topic in gone else None
            if value is not None and offsets.is_of_deleted_topic(topic, value, gone[topic], step):
                step.keep(OffsetDeleted(group_id, topic, partition))
    if portion.groups:
        step.out.chores.append(ForgetOffsets(portion.groups, gone, portion.places, portion.begin))
        return
    # More may have gone meanwhile, some of them again.
    state.forgetting = {topic: at_ms for topic, at_ms in state.forgetting.items() if gone.get(topic) != at_ms}
    if state.forgetting:
        step.out.chores.append(topics_being_forgotten(state))


def delete_in_part(event: DeleteGroup, step: Step) -> bool:
    """Let go of as many positions of a large empty group as one step may. False: the rest of it may go at once."""
    state, group_id = step.state, event.group_id
    stored, most = state.offsets.get(group_id, {}), step.limits.slice_positions
    group = state.groups.get(group_id)
    if len(stored) <= most or group is None or group.logged is not group or group.members:
        return False
    if group_id not in state.going:
        state.going[group_id] = audit_entries.lost_positions(stored)
    for topic, partition in list(islice(stored, most)):
        step.keep(OffsetDeleted(group_id, topic, partition))
    step.out.chores.append(event)
    return True


def check_not_being_deleted(event: object, state: ShardState) -> None:
    """Nobody comes into a group that is being deleted. Raises CoordinatorError."""
    if isinstance(event, OPENING) and event.group_id in state.going:
        raise CoordinatorError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {event.group_id!r} is being deleted; try again shortly"
        )
