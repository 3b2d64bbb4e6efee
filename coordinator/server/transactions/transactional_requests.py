"""Transactions in the requests of gRPC's other services: a group's positions, and records.

The gate is that of Kafka's listener: the coordinator of an id is asked before a log takes the first records of its
transaction (TX-L3, TX-L4). Every request is of level 2, so partitions join by it.
"""

from collections.abc import Sequence

from muster.coordinator.core.model.effects import TxnOffsetCommitReply
from muster.coordinator.core.model.events import TxnOffsetCommit
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.transactional_offsets import TransactionalCommits
from muster.coordinator.kafka.handlers.transactions import TransactionGate, TransactionService
from muster.coordinator.kafka.protocol import RAISES_EPOCH
from muster.coordinator.runtime.shards import partition_for
from muster.storage.broker.requests import Batches, Guards
from muster.storage.errors import StorageError
from muster.storage.types import TopicPartition

PRODUCE_VERSION = 12
"""The version of Kafka's Produce whose rules gRPC's has."""


class RpcGroupTransactions:
    """What the GroupCoordinator service asks of the node's transactional ids. shards: how many hold them."""

    def __init__(
        self, service: TransactionService, groups: GroupRequests, gate: TransactionGate, *, shards: int
    ) -> None:
        self._service = service
        self._commits = TransactionalCommits(groups, gate)
        self._shards = shards

    async def prepare(self) -> None:
        await self._service.prepare()

    def shard_of(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self._shards)

    async def commit(self, transactional_id: str, event: TxnOffsetCommit) -> TxnOffsetCommitReply:
        """A fenced producer is told so with INVALID_PRODUCER_EPOCH, as by Kafka's TxnOffsetCommit 5."""
        reply = await self._commits.commit(transactional_id, event, RAISES_EPOCH)
        if reply.code is ErrorCode.PRODUCER_FENCED:
            return TxnOffsetCommitReply(ErrorCode.INVALID_PRODUCER_EPOCH, reply.message)
        return reply


class RpcRecordTransactions:
    """What the Broker service asks of the node's transactional ids."""

    def __init__(self, gate: TransactionGate) -> None:
        self._gate = gate

    async def admit(
        self, transactional_id: str, parts: Sequence[Batches]
    ) -> tuple[Guards, dict[TopicPartition, StorageError]]:
        """Leave for those that begin a transaction in their log, and why others may not."""
        if self._gate.is_open(parts):
            return {}, {}
        return await self._gate.ask(transactional_id, parts, PRODUCE_VERSION)

    def drop(self, guards: Guards) -> None:
        self._gate.drop_all(guards)
