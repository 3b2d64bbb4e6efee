"""AddOffsetsToTxn and TxnOffsetCommit for groups of Muster's, and what operators see of transactions that stay open.

AddOffsetsToTxn puts the shard's partition of the state topic into the client's transaction (KB-E1). A
TxnOffsetCommit is judged by the core, written to the log, and answered (KB-E2, KB-E3); once begun it comes to its
end, whether or not its client still waits. The condition `transactions-open` reports offsets that wait for a marker
for more than a minute.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import structlog

from muster.assignors.api import TopicPartition
from muster.coordinator.core.groups.state import PendingPositions
from muster.coordinator.core.model.effects import TxnOffsetCommitReply, TxnWriteOverReply
from muster.coordinator.core.model.events import TxnOffsetCommit, TxnWriteOver
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.transactional_offsets import (
    TransactionCommitResult,
    encode_commit_answer,
    event_of,
    offsets_of,
)
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch, TransactionalClient
from muster.coordinator.kafka_backend.transaction_log import ClientTransactions
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError, describe_code
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import Conditions
from muster.long_work import work_through

# One TxnOffsetCommit, from permission to answer
# ----------------------------------------------

NOT_AVAILABLE: Final = 15

AGAIN_S: Final = 0.05
"""After so long a shard whose inbox was full is told again."""

CODES: Final[Mapping[int, int]] = {0: 0, 10: 28, 16: 16, 47: 47, 48: 48, 90: 90}
"""What a client is told of what a broker says of a write (INVALID_COMMIT_OFFSET_SIZE for MESSAGE_TOO_LARGE); of all
else COORDINATOR_NOT_AVAILABLE (KB-E3)."""

NO_RIGHT: Final = frozenset({29, 53})
"""Muster's own login may not write to the state topic, or not in clients' names (KB-E7)."""

log = structlog.get_logger("muster.engine")


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
        allowed = await self._groups.ask_group(event.group_id, lambda: event, TxnOffsetCommitReply)
        if allowed.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            await self._over(event)  # it took too long: it may have been allowed, and nobody has heard so
        if allowed.code or not allowed.kept:
            return TransactionCommitResult(allowed.code, allowed.partitions)
        try:
            code = await self._written(event.group_id, client, allowed.kept)
        except (Exception, asyncio.CancelledError):
            await self._over(event)
            raise
        over = await self._over(event)
        return TransactionCommitResult(code or over.code, allowed.partitions)

    async def _written(
        self, group_id: str, client: TransactionalClient, kept: Mapping[TopicPartition, StoredOffset]
    ) -> int:
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
            told = await self._groups.ask_group(
                event.group_id,
                lambda: TxnWriteOver(self._groups.next_id(), event.group_id, event.request_id),
                TxnWriteOverReply,
            )
            if told.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return told
            await asyncio.sleep(AGAIN_S)


# The Kafka APIs
# --------------

UNKNOWN_TOPIC: Final = 3
GROUP_AUTHORIZATION_FAILED: Final = 30


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
            code = await record_requests.add_partition_to_transaction(
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
        kept, refused = await work_through(lambda: offsets_of(request, catalog), rows)
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


# Open transactions, for operators
# --------------------------------

HANGS_MS: Final = 60_000
"""`transaction.timeout.ms` of Kafka's clients where nobody sets it: by then the others have ended."""

NAMED: Final = 3

OPEN: Final = "transactions-open"


class PendingTransaction(NamedTuple):
    """What waits of one producer and group. since_ms: when the first of it was committed."""

    producer_id: int
    group: str
    positions: int
    since_ms: int


def pending_transactions(pending: PendingPositions) -> Iterator[PendingTransaction]:
    for producer_id, groups in pending.of.items():
        for group, waiting in groups.items():
            place = next(iter(waiting.values), None)  # the oldest: what is written anew keeps its place
            if place is not None:
                since_ms = waiting.of_place(place)[0].value.commit_timestamp_ms
                yield PendingTransaction(producer_id, group, len(waiting.values), since_ms)


def pending_transactions_of(engine: Engine, shards: Iterable[int]) -> list[PendingTransaction]:
    """Of these shards, the oldest first."""
    cores = (engine.core(shard) for shard in shards)
    found = [each for core in cores if isinstance(core, Shard) for each in pending_transactions(core.state.pending)]
    return sorted(found, key=lambda each: each.since_ms)


def report_open_transactions(conditions: Conditions, found: list[PendingTransaction], now_ms: int) -> None:
    hanging = [each for each in found if now_ms - each.since_ms >= HANGS_MS]
    if hanging:
        conditions.report(OPEN, open_transactions_sentence(hanging, now_ms))
    else:
        conditions.clear(OPEN)


def open_transactions_sentence(hanging: list[PendingTransaction], now_ms: int) -> str:
    """
    >>> open_transactions_sentence([PendingTransaction(1005, "orders", 3, 0)], 90_000).partition(";")[0]
    "transactions of clients wait for their end: producer id 1005 with 3 positions of group 'orders' for 90 s"
    """
    named = ", ".join(
        f"producer id {each.producer_id} with {each.positions} positions of group {each.group!r} for "
        f"{(now_ms - each.since_ms) // 1_000} s"
        for each in hanging[:NAMED]
    )
    more = f" and {len(hanging) - NAMED} more" if len(hanging) > NAMED else ""
    return (
        f"transactions of clients wait for their end: {named}{more}; until then members that want stable positions "
        "wait, too. Kafka ends each after its transaction.timeout.ms; "
        "`kafka-transactions.sh find-hanging` and `abort`, "
        "asked at the brokers themselves, are for those that it does not"
    )
