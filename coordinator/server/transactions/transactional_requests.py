"""Transactions in the requests of gRPC's other services: a group's positions, and records.

The gate is that of Kafka's listener: the coordinator of an id is asked before a log takes the first records of its
transaction (TX-L3, TX-L4). Every request is of level 2, so partitions join by it.
"""

import asyncio
from collections.abc import Sequence

from muster.coordinator.core.model.effects import TxnOffsetCommitReply
from muster.coordinator.core.model.events import TxnOffsetCommit
from muster.coordinator.edge.request_limits import error_sentence
from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.kafka.handlers.group_requests import GroupDriver, GroupRequests
from muster.coordinator.kafka.handlers.transaction_markers import (
    STORAGE_FAILED,
    make_requested_markers,
    newest_coordinator_epoch,
)
from muster.coordinator.kafka.handlers.transactional_offsets import TransactionalCommits
from muster.coordinator.kafka.handlers.transactions import TransactionGate, TransactionService
from muster.coordinator.kafka.protocol import RAISES_EPOCH
from muster.storage.broker.requests import Batches, Guards, LogRequests
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.service.broker_service import MarkerResult
from muster.storage.types import Appended, TopicPartition

PRODUCE_VERSION = 12
"""The version of Kafka's Produce whose rules gRPC's has."""


class RpcGroupTransactions:
    """What the GroupCoordinator service asks of the node's transactional ids."""

    def __init__(self, service: TransactionService, groups: GroupRequests, gate: TransactionGate) -> None:
        self._service = service
        self._commits = TransactionalCommits(groups, gate)

    async def prepare(self) -> None:
        await self._service.prepare()

    def shard_of(self, transactional_id: str) -> int:
        return self._service.shard_of(transactional_id)

    async def commit(self, transactional_id: str, event: TxnOffsetCommit) -> TxnOffsetCommitReply:
        """A fenced producer is told so with INVALID_PRODUCER_EPOCH, as by Kafka's TxnOffsetCommit 5."""
        reply = await self._commits.commit(transactional_id, event, RAISES_EPOCH)
        if reply.code is ErrorCode.PRODUCER_FENCED:
            return TxnOffsetCommitReply(ErrorCode.INVALID_PRODUCER_EPOCH, reply.message)
        return reply


class RpcRecordTransactions:
    """What the Broker service asks of the node's transactional ids."""

    def __init__(
        self, gate: TransactionGate, requests: LogRequests, groups: GroupDriver, *, max_timeout_ms: int
    ) -> None:
        """max_timeout_ms: `transaction.max.timeout.ms`, for whoever asks for the node's settings."""
        self.max_timeout_ms = max_timeout_ms
        self._gate = gate
        self._requests = requests
        self._markers = make_requested_markers(requests, groups)

    async def produce(
        self, transactional_id: str, parts: Sequence[Batches], acks: int, timeout_ms: int
    ) -> list[Appended | StorageError]:
        """Append records of a transaction; the gate is asked for those that begin it in their log."""
        if self._gate.is_open(parts):
            return await self._requests.produce(parts, acks, timeout_ms)

        def begin(let_in: Sequence[Batches], guards: Guards) -> "list[asyncio.Future[Appended]]":
            return self._requests.begin_produce(let_in, acks, timeout_ms, guards)

        return await self._gate.append_first(transactional_id, parts, PRODUCE_VERSION, begin)

    async def write_markers(
        self, marker: MarkerToWrite, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, MarkerResult]:
        """A coordinator epoch that nobody has had yet would shut the true coordinator out (TX-C17)."""
        newest = newest_coordinator_epoch(self._requests.broker)
        if marker.coordinator_epoch > newest:
            why = f"coordinator_epoch is {marker.coordinator_epoch}; no coordinator has had a higher one than {newest}"
            return dict.fromkeys(places, (ErrorCode.INVALID_REQUEST, why))
        (written,) = await self._markers.write([(marker, tuple(places))])
        return {place: (code, describe_marker_code(code)) for place, code in written.items()}


def describe_marker_code(code: int) -> str:
    """A sentence on what became of a marker; empty for one that is durable."""
    if code == STORAGE_FAILED:
        return "the log could not take the marker in; the node's log says why"
    return error_sentence(error_code_of(code))
