"""Performs what is written in clients' names (KB-E2, KB-E3), and tells the core what its log has of their
transactions."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, NamedTuple

from muster.coordinator.core.model.txn_events import Place, TxnOffsetsWritten
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.edge.positions import run_off_loop_if_large
from muster.coordinator.kafka_backend.following import TransactionFollower
from muster.coordinator.kafka_backend.owner import LogOwner
from muster.coordinator.kafka_backend.positions import ended_event, entries, pending_events
from muster.coordinator.kafka_backend.shard_ownership import effects as ef
from muster.coordinator.kafka_backend.shard_ownership import events as ev
from muster.coordinator.kafka_backend.shard_ownership.facts import MeasuredRecords, TransactionalClient
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.kafka_backend.upstream import producers, records
from muster.coordinator.kafka_backend.upstream.errors import WAIT_FOR_LEADER
from muster.coordinator.kafka_backend.upstream.lines import CLIENTS
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.kafka_backend.writing import encode_batches

NOT_COORDINATOR: Final = 16


class ClientWriteResult(NamedTuple):
    """Of one write: Kafka's code; 0: it is in the log, and waits for its marker."""

    code: int


class ClientWriteInFlight(NamedTuple):
    """What was given to be written, and who waits for it."""

    shard: int
    client: TransactionalClient
    group_id: str
    kept: Mapping[Place, StoredOffset]
    outcome: "asyncio.Future[ClientWriteResult]"


class ClientTransactions:
    """Of all shards of a node; in the thread of the loop."""

    def __init__(
        self, owner: LogOwner, upstream: Upstream, log: StateLog, topic: str, wall_ms: Callable[[], int]
    ) -> None:
        self._owner = owner
        self._upstream = upstream
        self._log = log
        self._topic = topic
        self._wall_ms = wall_ms
        self._tokens = count(1)
        self._waiting: dict[int, ClientWriteInFlight] = {}
        self.following = TransactionFollower(owner, upstream, topic)

    async def append(
        self, shard: int, client: TransactionalClient, group_id: str, kept: Mapping[Place, StoredOffset]
    ) -> ClientWriteResult:
        """Write these positions, which the core has allowed, in the client's name. Where they come into the log the
        core knows of it before whoever waits here."""
        if not self._owner.takes(shard):
            return ClientWriteResult(NOT_COORDINATOR)
        outcome: asyncio.Future[ClientWriteResult] = asyncio.get_running_loop().create_future()
        token = next(self._tokens)
        self._waiting[token] = ClientWriteInFlight(shard, client, group_id, kept, outcome)
        try:
            made = await run_off_loop_if_large(lambda: MeasuredRecords(entries(group_id, kept)), len(kept))
        except BaseException:
            self._waiting.pop(token, None)
            raise
        if token in self._waiting:  # else the shard has gone meanwhile, and with it what the core has allowed
            self._owner.step(ev.AppendClientOffsets(shard, token, client, made, made.size))
        return await outcome

    def gone(self, shard: int) -> None:
        """The shard is served no more: who waits is told to look for its coordinator anew."""
        self.following.gone(shard)
        for token, each in list(self._waiting.items()):
            if each.shard == shard:
                self._over(token, NOT_COORDINATOR)

    def _over(self, token: int, code: int) -> ClientWriteInFlight | None:
        written = self._waiting.pop(token, None)
        if written is not None and not written.outcome.done():
            written.outcome.set_result(ClientWriteResult(code))
        return written

    # -- what is to be done -------------------------------------------------------------------------------------------

    def write(self, effect: ef.WriteClientBatch) -> None:
        async def ask() -> None:
            shard, batch = effect.shard, effect.batch
            leader, place = await self._owner.leader(shard), (self._topic, shard)
            sent = {place: (await encode_batches((batch,), self._wall_ms()))[shard]}
            told = await records.produce(
                self._upstream,
                leader,
                sent,
                effect.timeout_ms,
                batch.transactional_id,
                purpose=CLIENTS[batch.producer.id % len(CLIENTS)],
            )
            code, offset, *_ = told[place]
            self._upstream.count("Produce", code)
            if code in WAIT_FOR_LEADER:
                await self._owner.refresh_leaders()
            self._owner.step(ev.ClientBatchAnswered(shard, effect.request, code, offset))

        self._owner.ask(effect.shard, effect.request, ask())

    def ask_producer(self, effect: ef.DescribeProducer) -> None:
        async def ask() -> None:
            shard = effect.shard
            leader = await self._owner.leader(shard)
            told = await producers.describe_producer(self._upstream, leader, self._topic, shard, effect.producer_id)
            await self._owner.told("DescribeProducers", told.code)
            self._owner.step(ev.ProducerDescribed(shard, effect.request, *told))

        self._owner.ask(effect.shard, effect.request, ask())

    def outcome(self, effect: ef.ClientWriteOutcome) -> None:
        written = self._over(effect.token, effect.code)
        if written is not None and not effect.code:
            client, group_id, kept = written.client, written.group_id, written.kept
            event = TxnOffsetsWritten(*client.producer, group_id, kept, effect.offset)
            self._owner.submit(effect.shard, event)

    def waits(self, effect: ef.TransactionPending) -> None:
        for event in pending_events(effect):
            self._owner.submit(effect.shard, event)

    def ended(self, effect: ef.TransactionEnded) -> None:
        event = ended_event(effect)
        self._owner.submit(effect.shard, event)
        if event.counts and self._log.on_positions is not None:
            self._log.on_positions(effect.shard, {group for group, _, _ in event.counts})
