"""Committed offsets: commit, fetch, delete, expire."""

from collections.abc import Mapping
from typing import assert_never

from coordinator.core.central import positions as central_positions
from coordinator.core.classic.checks import group_id_given, known_member, not_dead, same_generation
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.consumer import positions
from coordinator.core.effects import OffsetCommitReply, OffsetDeleteReply, OffsetFetchReply
from coordinator.core.events import OffsetCommit, OffsetDelete, OffsetFetch
from coordinator.core.plan import CONSUMER
from coordinator.core.records import DelayForgotten, GroupDeleted, OffsetDeleted, OffsetsStored, RebalanceForgotten
from coordinator.core.state import Step
from coordinator.core.types import NO_TOPIC_ID, GroupState, StoredOffset
from coordinator.errors import CoordinatorError, ErrorCode

made = tuple.__new__
"""What a NamedTuple's own constructor does, without its argument names: a commit makes many of them."""


def commit_offsets(request: OffsetCommit, step: Step) -> None:
    """Keep the positions if the committer may still speak for the group."""
    refused = may_commit_to(request, step)
    if not request.offsets:
        step.reply(request.request_id, OffsetCommitReply())
        return

    now_ms = step.now_ms
    expire_ms = None if request.retention_ms is None else now_ms + request.retention_ms
    # Kafka's record has a place for one of the two.
    topic_ids = step.state.topic_ids if expire_ms is None else {}
    kept: dict[tuple[str, int], StoredOffset] = {}
    of_topic, rest = "", (now_ms, expire_ms, topic_ids.get("", NO_TOPIC_ID))
    for place, position in request.offsets.items():
        if refused and place in refused:
            continue
        if position.metadata and utf16_length(position.metadata) > step.limits.max_offset_metadata:
            refused[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        if place[0] is not of_topic:  # one string for all partitions of a topic
            of_topic = place[0]
            rest = (now_ms, expire_ms, topic_ids.get(of_topic, NO_TOPIC_ID))
        kept[place] = made(StoredOffset, position + rest)
    if kept:
        step.keep(OffsetsStored(request.group_id, kept))
    step.reply(request.request_id, OffsetCommitReply(partitions=refused))


def utf16_length(text: str) -> int:
    """A string's length as Kafka counts it."""
    return len(text.encode("utf-16-le")) // 2


def may_commit_to(request: OffsetCommit, step: Step) -> dict[tuple[str, int], ErrorCode]:
    """The partitions that this committer may not speak for; raises when there is none it may."""
    if (central_group := step.state.central_groups.get(request.group_id)) is not None:
        central_positions.may_commit(central_group, request)
        return {}
    consumer_group = step.state.consumer_groups.get(request.group_id)
    group = step.state.groups.get(request.group_id)
    if consumer_group is not None:
        return positions.may_commit(consumer_group, request, step)
    if group is None:
        may_open_simple_group(request)
    else:
        may_commit(group, request, step)
    return {}


def may_open_simple_group(request: OffsetCommit) -> None:
    if request.generation < 0:
        return
    if request.missing_group_code_is_illegal_generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id!r}; join first")
    raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}; join first")


def may_commit(group: ClassicGroup, request: OffsetCommit, step: Step) -> None:
    not_dead(group)
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return
    if request.generation < 0 and not request.member_id and request.group_instance_id is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group.id!r} has active members: a commit without member id is only taken while it is empty",
        )
    member = known_member(group, request.member_id, request.group_instance_id)
    same_generation(group, member, request.generation)
    match group.state:
        case GroupState.STABLE | GroupState.PREPARING_REBALANCE:
            # Members commit what they have done before they rejoin: the generation is still the old one.
            member.last_seen_ms = step.now_ms
            step.arm(group.session_timer(member.id), member.session_timeout_ms)

        case GroupState.COMPLETING_REBALANCE:
            raise CoordinatorError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"group {group.id!r} is between two plans; fetch the new one (SyncGroup), then commit",
            )

        case GroupState.EMPTY | GroupState.DEAD:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

        case _:
            assert_never(group.state)


def fetch_offsets(request: OffsetFetch, step: Step) -> None:
    """Positions as committed; an unknown group or partition has none, which is not an error."""
    group = step.state.groups.get(request.group_id)
    if consumer_group := step.state.consumer_groups.get(request.group_id):
        positions.may_fetch(consumer_group, request)
    stored = {} if group is not None and group.state is GroupState.DEAD else kept_offsets(step, request.group_id)
    if request.partitions is None:
        step.reply(request.request_id, OffsetFetchReply(offsets=dict(sorted(stored.items()))))
        return
    step.reply(request.request_id, OffsetFetchReply(offsets={tp: stored.get(tp) for tp in request.partitions}))


def delete_offsets(request: OffsetDelete, step: Step) -> None:
    """Forget positions of topics that no member reads."""
    group_id_given(request.group_id)
    subscribed = subscription_of(request.group_id, step)
    stored = kept_offsets(step, request.group_id)
    results: dict[tuple[str, int], ErrorCode] = {}
    for topic, partition in request.partitions:
        if subscribed is None or topic in subscribed:
            results[topic, partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            continue
        if (topic, partition) in stored:
            step.keep(OffsetDeleted(request.group_id, topic, partition))
        results[topic, partition] = ErrorCode.NONE
    step.reply(request.request_id, OffsetDeleteReply(partitions=results))


def kept_offsets(step: Step, group_id: str) -> Mapping[tuple[str, int], StoredOffset]:
    return step.state.offsets.get(group_id, {})


def subscription_of(group_id: str, step: Step) -> frozenset[str] | None:
    """The topics whose positions may not be deleted: those that a member reads. None: all, for it cannot be known."""
    if central_group := step.state.central_groups.get(group_id):
        return central_group.subscribed_topics()
    if consumer_group := step.state.consumer_groups.get(group_id):
        return consumer_group.subscribed_topics()
    group = step.state.groups.get(group_id)
    if group is None or group.state is GroupState.DEAD:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if group.members and group.protocol_type != CONSUMER:
        raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP, f"group {group.id!r} has members; stop them first")
    return group.subscribed_topics if group.members else frozenset()


def is_subscribed(group: ClassicGroup, topic: str) -> bool:
    """A subscription that cannot be read counts as one to everything."""
    return group.subscribed_topics is None or topic in group.subscribed_topics


def expire(step: Step) -> None:
    """Drop offsets past their retention, and empty groups with none left."""
    for group in list(step.state.groups.values()):
        for topic, partition in [tp for tp, value in group.offsets.items() if expired(group, tp[0], value, step)]:
            step.keep(OffsetDeleted(group.id, topic, partition))
        if not group.offsets and group.state is GroupState.EMPTY and not group.pending_joins:
            delete_group_records(group, step)
    positions.expire(step)
    central_positions.expire(step)
    expire_ledgers(step)
    step.arm(("retention",), step.limits.offsets_retention_check_ms)


def expire_ledgers(step: Step) -> None:
    """What is told of groups that have gone from ZooKeeper is kept as long as their positions would be."""
    state = step.state
    for group_id in state.ledgers.keys() - state.groups.keys() - state.consumer_groups.keys():
        if group_id in state.central_groups or group_id in state.observed:
            continue
        newest = state.ledgers[group_id].newest
        if newest is None or step.now_ms - newest.ended_at_ms >= step.limits.offsets_retention_ms:
            forget_ledger(group_id, step)


def forget_ledger(group_id: str, step: Step) -> None:
    """Let go of all that is told of a group."""
    ledger = step.state.ledgers.get(group_id)
    if ledger is None:
        return
    if ledger.delay is not None:
        step.keep(DelayForgotten(group_id))
    for number in sorted(ledger.entries.keys() | ledger.settlements.keys()):
        step.keep(RebalanceForgotten(group_id, number))


def expired(group: ClassicGroup, topic: str, value: StoredOffset, step: Step) -> bool:
    since_ms = value.commit_timestamp_ms
    if group.protocol_type:
        if group.state is GroupState.EMPTY:
            if group.state_timestamp_ms is not None:
                since_ms = group.state_timestamp_ms
        elif group.protocol_type != CONSUMER or group.state is not GroupState.STABLE or is_subscribed(group, topic):
            return False
    if value.expire_timestamp_ms is not None:
        return step.now_ms >= value.expire_timestamp_ms
    return step.now_ms - step.past(since_ms) >= step.limits.offsets_retention_ms


def forget_topics(topics: tuple[str, ...], step: Step) -> None:
    """A deleted topic takes its positions with it, in every group."""
    gone = set(topics)
    for group_id, offsets in list(step.state.offsets.items()):
        for topic, partition in [tp for tp in offsets if tp[0] in gone]:
            step.keep(OffsetDeleted(group_id, topic, partition))


def forget_orphans(step: Step) -> None:
    """Positions of topics that went while nobody listened go, too; one made anew under the same name is another."""
    known, topic_ids = step.state.partitions, step.state.topic_ids
    for group_id, offsets in list(step.state.offsets.items()):
        orphans = [
            place
            for place, value in offsets.items()
            if place[0] not in known or (value.topic_id and value.topic_id != topic_ids.get(place[0], value.topic_id))
        ]
        for topic, partition in orphans:
            step.keep(OffsetDeleted(group_id, topic, partition))


def delete_group_records(group: ClassicGroup, step: Step) -> None:
    """Tombstones for the group and all that belongs to it, its ledger included."""
    for topic, partition in list(group.offsets):
        step.keep(OffsetDeleted(group.id, topic, partition))
    forget_ledger(group.id, step)
    for member_id in group.pending_joins:
        step.disarm(group.session_timer(member_id))
    step.keep(GroupDeleted(group.id))
    group.become(GroupState.DEAD, step.now_ms)
    step.announce(group)
