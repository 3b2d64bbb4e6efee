"""A group's positions in a producer's transaction: AddOffsetsToTxn and TxnOffsetCommit (KIP-98, KIP-447).

The group takes part by its partition of `__consumer_offsets` (TX-G1). What a TxnOffsetCommit says is read the same way
wherever the group's log is; over a Kafka `kafka_backend/transaction_requests.py` does the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from muster.assignors.api import TopicPartition
from muster.coordinator.core.model.effects import TxnOffsetCommitReply
from muster.coordinator.core.model.events import TxnOffsetCommit
from muster.coordinator.core.model.types import Position
from muster.coordinator.edge.committed_offsets import partition_exists
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, HangUp, KafkaCall
from muster.coordinator.kafka.handlers.committed_offsets import answer_with_codes
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.transactions import (
    TransactionalProducerHandlers,
    TransactionGate,
    level_of,
    told_code,
)
from muster.coordinator.kafka.protocol import RAISES_EPOCH, check_length, check_optional_length
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from muster.coordinator.transactions.effects import AddPartitionsReply
from muster.coordinator.transactions.events import AddPartitions
from muster.coordinator.values import frozen_value
from muster.long_work import work_through

ANSWER: Final = "TxnOffsetCommitResponse"
COMMIT: Final = "TxnOffsetCommit"

LOADING_SINCE: Final = 2
"""The first version of TxnOffsetCommit whose clients take COORDINATOR_LOAD_IN_PROGRESS in their stride."""
MOST_COMMITTERS: Final = 10_000
"""Producers whose connections are remembered."""
ABORTABLE_SINCE: Final = 4
"""The first one whose clients know TRANSACTION_ABORTABLE."""

Codes: TypeAlias = Mapping[TopicPartition, int]


@frozen_value
class TransactionCommitResult:
    """Kafka's code, of every position that `partitions` does not name."""

    code: int = 0
    partitions: Codes = field(default_factory=dict)


class TransactionalOffsetHandlers:
    """Handlers of a node that keeps its groups in its own log. partitions: the catalog's counts. newest_connection:
    `transaction.newest.connection`."""

    def __init__(
        self,
        groups: GroupRequests,
        producers: TransactionalProducerHandlers,
        gate: TransactionGate,
        partitions: Callable[[], Mapping[str, int]],
        *,
        newest_connection: bool = True,
    ) -> None:
        self._groups = groups
        self._producers = producers
        self._commits = TransactionalCommits(groups, gate)
        self._partitions = partitions
        self._connections = CommitConnections() if newest_connection else None

    async def add_offsets_to_txn(self, request: Any, call: KafkaCall) -> Any:
        """The group's partition of `__consumer_offsets` joins the transaction."""
        place = GROUPS_TOPIC, self._groups.shard_of(request.group_id)

        def make(number: int) -> AddPartitions:
            return AddPartitions(
                number,
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                (place,),
                connection=call.peer.number,
            )

        reply = await self._producers.ask(request.transactional_id, make, AddPartitionsReply)
        return struct("AddOffsetsToTxnResponse")(error_code=told_code("AddOffsetsToTxn", reply.code, call.api_version))

    async def txn_offset_commit(self, request: Any, call: KafkaCall) -> Any:
        """Partitions that cannot be are refused one by one; the coordinator of the id is asked next, then the group.
        Raises HangUp."""
        level = level_of(COMMIT, call.api_version)
        if level < RAISES_EPOCH and self._connections is not None:
            self._connections.note(request.producer_id, request.producer_epoch, call.peer.number)
        rows, catalog = sum(len(topic.partitions) for topic in request.topics), self._partitions()
        kept, refused = await work_through(lambda: offsets_of(request, catalog), rows)
        committed = TransactionCommitResult(partitions=refused)
        if kept:
            told = await self._commit(request, kept, call.api_version, level)
            committed = await work_through(
                lambda: replace(told, partitions={**told.partitions, **refused}), len(refused)
            )
        return await encode_commit_answer(request, call, rows, committed)

    async def _commit(
        self, request: Any, kept: Mapping[TopicPartition, Position], version: int, level: int
    ) -> TransactionCommitResult:
        if not request.group_id:
            return TransactionCommitResult(ErrorCode.INVALID_GROUP_ID)
        try:
            event = event_of(request, self._groups.next_id(), kept)
        except CoordinatorError as refusal:
            return TransactionCommitResult(commit_code(refusal.code, version))
        named = replace(event, producer_id=request.producer_id, producer_epoch=request.producer_epoch)
        reply = await self._commits.commit(request.transactional_id, named, level)
        return TransactionCommitResult(commit_code(reply.code, version), reply.partitions)


class CommitConnections:
    """By which connection each producer of level 0 has committed positions last (TX-C12). At most so many are
    remembered; those that have been silent for the longest are forgotten first."""

    def __init__(self, most: int = MOST_COMMITTERS) -> None:
        self._most = most
        self._newest: dict[tuple[int, int], int] = {}

    def note(self, producer_id: int, epoch: int, connection: int) -> None:
        """A request has come by this connection. Raises HangUp if it was overtaken by another one."""
        newest = self._newest.pop((producer_id, epoch), 0)
        self._newest[producer_id, epoch] = max(newest, connection)
        if connection < newest:
            raise HangUp(
                f"positions of producer {producer_id} epoch {epoch} were overtaken by those of a newer connection"
            )
        if len(self._newest) > self._most:
            del self._newest[next(iter(self._newest))]


class TransactionalCommits:
    """Positions in a transaction, of whichever listener: the coordinator of the id agrees first, then the group."""

    def __init__(self, groups: GroupRequests, gate: TransactionGate) -> None:
        self._groups = groups
        self._gate = gate

    async def commit(self, transactional_id: str, event: TxnOffsetCommit, level: int) -> TxnOffsetCommitReply:
        """What became of it. At level 2 the group's partition joins the transaction by this.

        A guard that no marker has ended, and that the log does not know, is of an earlier leader epoch (TX-N6): nothing
        is wrong with the transaction, and the producer asks again.
        """
        place = GROUPS_TOPIC, self._groups.shard_of(event.group_id)
        producer = event.producer_id, event.producer_epoch
        try:
            leave = await self._gate.ask_for(transactional_id, *producer, place, level)
        except CoordinatorError as refusal:
            return TxnOffsetCommitReply(refusal.code, refusal.message)
        guarded = replace(event, guard=leave.guard)
        try:
            reply = await self._groups.ask_group(event.group_id, lambda: guarded, TxnOffsetCommitReply)
            code = ErrorCode(await leave.settle())
        finally:
            self._gate.drop(place, leave.guard)
        if code:
            return TxnOffsetCommitReply(code)
        if reply.code is ErrorCode.INVALID_TXN_STATE and leave.guard is not None and not leave.guard.ended:
            return TxnOffsetCommitReply(
                ErrorCode.NOT_COORDINATOR,
                f"the log of group {event.group_id!r} has a new leader epoch since the coordinator of transactional id "
                f"{transactional_id!r} was asked; find the group's coordinator again, and send the positions to it",
            )
        return reply


def commit_code(code: int, version: int) -> int:
    """What a client of this version of TxnOffsetCommit is told."""
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED else code


def offsets_of(
    request: Any, catalog: Mapping[str, int]
) -> tuple[dict[TopicPartition, Position], dict[TopicPartition, int]]:
    """What can be committed; and what cannot be, with codes."""
    kept: dict[TopicPartition, Position] = {}
    refused: dict[TopicPartition, int] = {}
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


def event_of(request: Any, request_id: int, positions: Mapping[TopicPartition, Position]) -> TxnOffsetCommit:
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
    return await work_through(lambda: EncodedAnswer(encode(ANSWER, call.api_version, told())), rows)
