"""One TxnOffsetCommit, from its group's leave to its answer (KB-E2, KB-E3)."""

import asyncio
from collections.abc import Mapping
from dataclasses import field
from typing import Final, TypeAlias

import structlog

from muster.coordinator.core.model.txn_events import Place, TxnOffsetCommit, TxnWriteOver
from muster.coordinator.core.model.txn_replies import TxnOffsetCommitReply, TxnWriteOverReply
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.model.value import frozen_value
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka_backend.shard_ownership.facts import TransactionalClient
from muster.coordinator.kafka_backend.transactions_writing import ClientTransactions
from muster.coordinator.kafka_backend.upstream.errors import describe_code

NOT_AVAILABLE: Final = 15

AGAIN_S: Final = 0.05
"""After so long a shard whose inbox was full is told again."""

CODES: Final[Mapping[int, int]] = {0: 0, 10: 28, 16: 16, 47: 47, 48: 48, 90: 90}
"""What a client is told of what a broker says of a write (INVALID_COMMIT_OFFSET_SIZE for MESSAGE_TOO_LARGE); of all
else COORDINATOR_NOT_AVAILABLE (KB-E3)."""

NO_RIGHT: Final = frozenset({29, 53})
"""Muster's own login may not write to the state topic, or not in clients' names (KB-E7)."""

Codes: TypeAlias = Mapping[Place, int]

log = structlog.get_logger("muster.engine")


@frozen_value
class TransactionCommitResult:
    """Kafka's code, of every position that `partitions` does not name."""

    code: int = 0
    partitions: Codes = field(default_factory=dict)


class TransactionCommits:
    """Of one door. Once begun a commit comes to its end, whether or not its client is there to hear."""

    def __init__(self, groups: GroupRequests, transactions: ClientTransactions) -> None:
        self._groups = groups
        self._transactions = transactions
        self._tasks: set[asyncio.Task[TransactionCommitResult]] = set()

    async def commit(self, event: TxnOffsetCommit, client: TransactionalClient) -> TransactionCommitResult:
        task = asyncio.get_running_loop().create_task(self._commit(event, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _commit(self, event: TxnOffsetCommit, client: TransactionalClient) -> TransactionCommitResult:
        allowed = await self._groups.ask(event.group_id, lambda: event, TxnOffsetCommitReply)
        if allowed.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            await self._over(event)  # it took too long: it may have been allowed, and nobody has heard so
        if allowed.code or not allowed.kept:
            return TransactionCommitResult(allowed.code, allowed.partitions)
        try:
            code = await self._written(event.group_id, client, allowed.kept)
        finally:
            over = await self._over(event)
        return TransactionCommitResult(code or over.code, allowed.partitions)

    async def _written(self, group_id: str, client: TransactionalClient, kept: Mapping[Place, StoredOffset]) -> int:
        shard = self._groups.shard_of(group_id)
        (code,) = await self._transactions.append(shard, client, group_id, kept)
        if code in NO_RIGHT:
            log.warning(
                f"the upstream says {describe_code(code)} of positions in a client's transaction; `muster engine acls` "
                "prints what Muster's login has to be allowed",
                group=group_id,
                transactional_id=client.transactional_id,
            )
        return CODES.get(code, NOT_AVAILABLE)

    async def _over(self, event: TxnOffsetCommit) -> TxnWriteOverReply:
        """The answer comes once all that was decided so far is in the log, and only from whom the shard is yet. Asked
        until the shard has heard it: what was allowed would be unstable for as long as it is served."""
        while True:
            told = await self._groups.ask(
                event.group_id,
                lambda: TxnWriteOver(self._groups.next_id(), event.group_id, event.request_id),
                TxnWriteOverReply,
            )
            if told.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return told
            await asyncio.sleep(AGAIN_S)
