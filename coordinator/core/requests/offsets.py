"""Committed offsets: commit, fetch, delete. What concerns all of them is in `sweeps.py`."""

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from muster.coordinator.core.groups.forgetting import forget_ledger
from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.core_events import OffsetCommit, OffsetDelete, OffsetFetch
from muster.coordinator.core.model.core_records import OffsetDeleted, OffsetsStored
from muster.coordinator.core.model.effects import OffsetCommitReply, OffsetDeleteReply, OffsetFetchReply
from muster.coordinator.core.model.types import NO_TOPIC_ID, PositionChange, StoredOffset
from muster.coordinator.core.requests import audit_entries
from muster.coordinator.errors import ErrorCode

PartitionPlace: TypeAlias = tuple[str, int]
TopicId: TypeAlias = bytes
Catalog: TypeAlias = Mapping[str, int]
"""The number of partitions by topic."""

made = tuple.__new__
"""What a NamedTuple's own constructor does, without its argument names: a commit makes many of them."""


def commit_offsets(request: OffsetCommit, step: Step) -> None:
    """Keep the positions if the committer may still speak for the group."""
    group = step.state.groups.get(request.group_id)
    refused = KINDS[type(group)].may_commit(group, request, step)
    if not request.offsets:
        step.reply(request.request_id, OffsetCommitReply())
        return

    now_ms = step.now_ms
    expire_ms = None if request.retention_ms is None else now_ms + request.retention_ms
    # Kafka's record has a place for one of the two.
    topic_ids = step.state.topic_ids if expire_ms is None else {}
    kept: dict[tuple[str, int], StoredOffset] = {}
    of_topic, topic_id = "", topic_ids.get("", NO_TOPIC_ID)
    for place, position in request.offsets.items():
        if refused and place in refused:
            continue
        offset, leader_epoch, metadata = position
        if metadata and utf16_length(metadata) > step.limits.max_offset_metadata:
            refused[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        if place[0] is not of_topic:  # one string for all partitions of a topic
            of_topic = place[0]
            topic_id = topic_ids.get(of_topic, NO_TOPIC_ID)
        kept[place] = made(StoredOffset, (offset, leader_epoch, metadata, now_ms, expire_ms, topic_id))
    if kept:
        if request.operator:
            audit_entries.note_operator_commit(request, kept, step)
        step.keep(OffsetsStored(request.group_id, kept))
    step.reply(request.request_id, OffsetCommitReply(partitions=refused))


def utf16_length(text: str) -> int:
    """A string's length as Kafka counts it."""
    return len(text.encode("utf-16-le")) // 2


def fetch_offsets(request: OffsetFetch, step: Step) -> None:
    """Positions as committed; an unknown group or partition has none, which is not an error."""
    group = step.state.groups.get(request.group_id)
    stored = KINDS[type(group)].positions(group, request, step)
    wanted = request.partitions
    if wanted is None:
        found: dict[PartitionPlace, StoredOffset | None] = dict(without_deleted_topics(stored, step))
    else:
        found = dict(zip(wanted, map(stored.get, wanted), strict=True))
        if step.state.forgetting:
            there = without_deleted_topics({place: value for place, value in found.items() if value is not None}, step)
            found = {place: there.get(place) for place in found}
    refused: dict[PartitionPlace, ErrorCode] = {}
    if request.require_stable and step.state.pending:
        # Whoever reads on from here must not do so from before a transaction that may yet commit (KIP-447).
        unstable = step.state.pending.unstable(request.group_id)
        refused = {place: ErrorCode.UNSTABLE_OFFSET_COMMIT for place in found if place in unstable}
        found.update(dict.fromkeys(refused))
    step.reply(request.request_id, OffsetFetchReply(offsets=found, refused=refused))


def delete_offsets(request: OffsetDelete, step: Step) -> None:
    """Forget positions of topics that no member reads."""
    group_id_given(request.group_id)
    group = step.state.groups.get(request.group_id)
    subscribed = KINDS[type(group)].subscribed(group, request.group_id)
    stored = step.state.offsets.get(request.group_id, {})
    pending = step.state.pending.of_group(request.group_id)
    results: dict[tuple[str, int], ErrorCode] = {}
    gone: list[PositionChange] = []
    for topic, partition in request.partitions:
        if subscribed is None or topic in subscribed:
            results[topic, partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            continue
        if (topic, partition) in stored:
            gone.append(PositionChange(topic, partition, stored[topic, partition].offset, None))
        if (topic, partition) in stored or (topic, partition) in pending:
            step.keep(OffsetDeleted(request.group_id, topic, partition))
        results[topic, partition] = ErrorCode.NONE
    audit_entries.note_positions_changed(request.group_id, gone, request.operator, step)
    step.reply(request.request_id, OffsetDeleteReply(partitions=results))


def expire_ledgers(step: Step) -> None:
    """What is told of groups that have gone, deleted or from ZooKeeper, is kept as long as positions would be."""
    state = step.state
    for group_id in state.ledgers.keys() - state.groups.keys():
        last = state.ledgers[group_id].last
        if last is None or step.now_ms - step.past(last.ended_at_ms) >= step.limits.offsets_retention_ms:
            forget_ledger(group_id, step)


def is_of_deleted_topic(topic: str, value: StoredOffset, deleted_at_ms: int, step: Step) -> bool:
    """Whether a position is of a topic that was deleted then, and not of one made anew under its name."""
    if value.topic_id:
        return value.topic_id != step.state.topic_ids.get(topic)
    return step.past(value.commit_timestamp_ms) <= deleted_at_ms


def without_deleted_topics(
    stored: Mapping[PartitionPlace, StoredOffset], step: Step
) -> Mapping[PartitionPlace, StoredOffset]:
    """Without the positions of deleted topics that have still to be found."""
    gone = step.state.forgetting
    if not gone:
        return stored
    return {
        place: value
        for place, value in stored.items()
        if place[0] not in gone or not is_of_deleted_topic(place[0], value, gone[place[0]], step)
    }


def count_committed(offsets: Mapping[str, Mapping[PartitionPlace, StoredOffset]]) -> Counter[tuple[str, TopicId]]:
    """How many positions there are of each topic, by name and id."""
    return Counter((topic, value.topic_id) for stored in offsets.values() for (topic, _), value in stored.items())


def is_orphaned(topic: str, topic_id: TopicId, partitions: Catalog, topic_ids: Mapping[str, TopicId]) -> bool:
    """Whether a position is of a topic that is gone; one made anew under the same name is another."""
    return topic not in partitions or bool(topic_id and topic_id != topic_ids.get(topic, topic_id))
