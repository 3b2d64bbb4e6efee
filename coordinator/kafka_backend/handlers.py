"""AddOffsetsToTxn and TxnOffsetCommit for groups of ours, as APIs of Kafka's door (KB-E1, KB-E2)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog

from muster.coordinator.core.model.txn_events import TxnOffsetCommit
from muster.coordinator.core.model.types import Position
from muster.coordinator.edge.catalog import partition_exists
from muster.coordinator.edge.positions import run_off_loop_if_large
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall
from muster.coordinator.kafka.handlers.committed_offsets import answer_with_codes
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.request_limits import check_length, check_optional_length
from muster.coordinator.kafka_backend.committing import (
    NO_RIGHT,
    NOT_AVAILABLE,
    TransactionCommitResult,
    TransactionCommits,
)
from muster.coordinator.kafka_backend.shard_ownership.facts import ProducerEpoch, TransactionalClient
from muster.coordinator.kafka_backend.upstream import producers
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError, describe_code
from muster.coordinator.kafka_backend.upstream.upstream import Upstream

ANSWER: Final = "TxnOffsetCommitResponse"
UNKNOWN_TOPIC: Final = 3
GROUP_AUTHORIZATION_FAILED: Final = 30

log = structlog.get_logger("muster.engine")


class TransactionHandlers:
    """Of the ports of one kind: `committing` asks their groups, which on a broker's port are nobody's. state_topic: the
    partition of it that has a group's shard goes into the client's transaction."""

    def __init__(
        self,
        groups: GroupRequests,
        committing: TransactionCommits,
        upstream: Upstream,
        state_topic: str,
        partitions: Callable[[], Mapping[str, int]],
    ) -> None:
        self._groups = groups
        self._committing = committing
        self._upstream = upstream
        self._state_topic = state_topic
        self._partitions = partitions

    async def add_offsets_to_txn(self, request: Any, call: KafkaCall) -> Any:
        place = self._state_topic, self._groups.shard_of(request.group_id)
        producer = request.producer_id, request.producer_epoch
        try:
            code = await producers.add_partition_to_transaction(
                self._upstream, request.transactional_id, producer, place, call.peer.stands_for
            )
        except UpstreamError as error:
            log.debug("a transaction's coordinator cannot be asked", why=str(error))
            code = NOT_AVAILABLE
        if code in NO_RIGHT:
            log.warning(
                f"the upstream says {describe_code(code)} where positions are to go into a client's transaction; "
                "`muster "
                "engine acls` prints what Muster's login has to be allowed",
                group=request.group_id,
                transactional_id=request.transactional_id,
            )
            code = GROUP_AUTHORIZATION_FAILED
        return struct("AddOffsetsToTxnResponse")(error_code=NOT_AVAILABLE if code == UNKNOWN_TOPIC else code)

    async def txn_offset_commit(self, request: Any, call: KafkaCall) -> Any:
        """Partitions that cannot be are refused one by one; the core judges the rest. What is read and made of very
        many is so in threads."""
        rows, catalog = sum(len(topic.partitions) for topic in request.topics), self._partitions()
        kept, refused = await run_off_loop_if_large(lambda: offsets_of(request, catalog), rows)
        try:
            event = event_of(request, self._groups.next_id(), kept)
        except CoordinatorError as refusal:
            return await encode_commit_answer(request, call, rows, TransactionCommitResult(refusal.code))
        if refused and not event.offsets:
            return await encode_commit_answer(request, call, rows, TransactionCommitResult(partitions=refused))
        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        committed = await self._committing.commit(event, TransactionalClient(request.transactional_id, producer))
        return await encode_commit_answer(
            request, call, rows, replace(committed, partitions={**committed.partitions, **refused})
        )


def offsets_of(
    request: Any, catalog: Mapping[str, int]
) -> tuple[dict[tuple[str, int], Position], dict[tuple[str, int], int]]:
    """What can be committed; and what cannot be, with codes."""
    kept: dict[tuple[str, int], Position] = {}
    refused: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            if not partition_exists(catalog, *place):
                refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif each.committed_offset < 0:
                refused[place] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            else:
                epoch = max(each.committed_leader_epoch, -1)
                kept[place] = (each.committed_offset, epoch, each.committed_metadata or "")
    return kept, refused


def event_of(request: Any, request_id: int, positions: Mapping[tuple[str, int], Position]) -> TxnOffsetCommit:
    """Raises CoordinatorError for a name that is too long."""
    return TxnOffsetCommit(
        request_id,
        check_length("group_id", request.group_id),
        check_length("member_id", request.member_id),
        check_optional_length("group_instance_id", request.group_instance_id),
        request.generation_id,
        positions,
    )


async def encode_commit_answer(
    request: Any, call: KafkaCall, rows: int, committed: TransactionCommitResult
) -> EncodedAnswer:
    """A row for each of the request's, of which there are so many."""
    told = partial(answer_with_codes, ANSWER, request.topics, committed.partitions, committed.code)
    return await run_off_loop_if_large(lambda: EncodedAnswer(encode(ANSWER, call.api_version, told())), rows)
