"""TxnOffsetCommit and what follows it: who may, what is pending, and what a marker makes of it (KIP-98, KIP-447)."""

from muster.coordinator.core.classic.checks import check_generation, check_not_dead, require_member
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.kind import RefusedPositions
from muster.coordinator.core.groups.pending import TopicPartition
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.core_events import OffsetCommit
from muster.coordinator.core.model.core_records import OffsetsStored
from muster.coordinator.core.model.txn_events import TxnEnded, TxnOffsetCommit, TxnOffsetsWritten, TxnWriteOver
from muster.coordinator.core.model.txn_replies import TxnOffsetCommitReply, TxnWriteOverReply
from muster.coordinator.core.model.types import NO_TOPIC_ID, GroupState, StoredOffset
from muster.coordinator.core.requests import sweeps
from muster.coordinator.core.requests.offsets import utf16_length
from muster.coordinator.errors import CoordinatorError, ErrorCode

MOST_PENDING = 100_000
"""Positions of one shard that may wait for markers."""

STALE = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}
"""TxnOffsetCommit knows the second one only, before its v6."""


def allow_transactional_commit(request: TxnOffsetCommit, step: Step) -> None:
    """Allow what may be, and take it for unstable: it may be in the log before its writer hears so."""
    group_id_given(request.group_id)
    state, now_ms = step.state, step.now_ms
    refused = check_may_commit(request, step)
    if state.pending and len(state.pending) + len(request.offsets) > MOST_PENDING:
        raise CoordinatorError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"{len(state.pending)} positions of this shard wait for their transactions to end, and {MOST_PENDING} may; "
            f"try again when some have ended",
        )
    kept: dict[TopicPartition, StoredOffset] = {}
    for place, (offset, leader_epoch, metadata) in request.offsets.items():
        if place in refused:
            continue
        if metadata and utf16_length(metadata) > step.limits.max_offset_metadata:
            refused[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        topic_id = state.topic_ids.get(place[0], NO_TOPIC_ID)
        kept[place] = StoredOffset(offset, leader_epoch, metadata, now_ms, None, topic_id)
    if kept:
        state.pending.writing[request.request_id] = (request.group_id, frozenset(kept))
    step.reply(request.request_id, TxnOffsetCommitReply(partitions=refused, kept=kept))


def check_may_commit(request: TxnOffsetCommit, step: Step) -> RefusedPositions:
    """As for a plain commit, but that nothing need be said of oneself, and that a rebalance is no reason to refuse."""
    group = step.state.logged(request.group_id)
    nobody = request.generation < 0 and not request.member_id and request.group_instance_id is None
    if isinstance(group, ClassicGroup):
        check_not_dead(group)
        if not nobody and (request.generation >= 0 or group.state is not GroupState.EMPTY):
            member = require_member(group, request.member_id, request.group_instance_id)
            check_generation(group, member, request.generation)
        return {}
    if isinstance(group, ConsumerGroup) and nobody:
        return {}
    plain = OffsetCommit(
        request.request_id,
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation,
        request.offsets,
        missing_group_code_is_illegal_generation=group is None,
    )
    try:
        refused = KINDS[type(group)].may_commit(group, plain, step)
    except CoordinatorError as refusal:
        raise CoordinatorError(STALE.get(refusal.code, refusal.code), refusal.message) from None
    return {place: STALE.get(code, code) for place, code in refused.items()}


def take_written(event: TxnOffsetsWritten, step: Step) -> None:
    step.state.pending.written(event.producer_id, event.group_id, event.offsets, event.at)


def finish_write(event: TxnWriteOver, step: Step) -> None:
    step.state.pending.writing.pop(event.of, None)
    step.reply(event.request_id, TxnWriteOverReply())


def take_transaction_end(event: TxnEnded, step: Step) -> None:
    """The log has it already: nothing is written. Positions of topics that went meanwhile go after them."""
    state = step.state
    waiting = state.pending.ended(event.producer_id, event.at)
    if not event.committed:
        return
    topics: set[str] = set()
    for group_id, offsets in waiting.items():
        counting = {
            place: each for place, each in offsets.items() if event.counts is None or (group_id, *place) in event.counts
        }
        if counting:
            state.pending.overtaken(group_id, {place: each.at for place, each in counting.items()})
            step.learn(OffsetsStored(group_id, {place: each.value for place, each in counting.items()}))
            topics.update(topic for topic, _ in counting)
    gone = [topic for topic in topics if topic not in state.partitions] if state.catalog_known else []
    if gone:
        sweeps.start_forgetting(dict.fromkeys(gone, step.now_ms), step)
