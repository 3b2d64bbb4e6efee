"""Nodes over one model of Kafka, without a network: effects are performed at once, but for what a story holds back."""

from collections.abc import Iterable
from typing import Any

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings
from muster.coordinator.kafka_backend.shard_ownership.node_shards import NodeShards
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import AssignedNode, ShardAssignment
from muster.coordinator.kafka_backend.shard_ownership.shard_log import BatchResult, TransactionalClient
from tests.fakes.kafka_partition import Partition, TransactionCoordinator

SESSION = 10_000


class Kafka:
    def __init__(self, shards: int = 1) -> None:
        self.partitions = [Partition() for _ in range(shards)]
        self.starts = [0] * shards
        """Where the logs begin."""
        self.transactions = TransactionCoordinator()
        self.now_ms = 1_000


class OwningNode:
    """`seen`: every effect, in order. hold: kinds of effects that are kept back in `held`, to be performed by hand."""

    def __init__(self, kafka: Kafka, node: int, *, instance: str = "", limits: AppendLimits | None = None) -> None:
        self.kafka, self.id = kafka, node
        self.shards = NodeShards(OwnershipSettings(node, instance or f"{node}/1", limits=limits or AppendLimits()))
        self.seen: list[Any] = []
        self.hold: set[type] = set()
        self.held: list[Any] = []
        self.state: dict[bytes, bytes] = {}
        self.codes: dict[type, int] = {}
        self.position = 0
        self.tokens = 0

    def tell(self, *events: ev.ShardEvent) -> None:
        for event in events:
            for effect in self.shards.step(event, self.kafka.now_ms):
                self.seen.append(effect)
                if type(effect) in self.hold:
                    self.held.append(effect)
                else:
                    self.perform(effect)

    def assign_shards(self, shards: Iterable[int] = (0,), *, nodes: Iterable[AssignedNode] = ()) -> None:
        """The nodes' group says that it has these; its SyncGroup was sent just now."""
        mine = tuple(shards)
        known = {self.id: AssignedNode(self.id, "", shards=mine)} | {node.node: node for node in nodes}
        self.tell(
            ev.Synced(self.kafka.now_ms),
            ev.ShardsAssigned(frozenset(mine), ShardAssignment(len(self.kafka.partitions), known)),
        )

    def passes(self, ms: int, *, beats: bool = True) -> None:
        """Time goes by, in steps; a heartbeat with each, where it beats."""
        until_ms = self.kafka.now_ms + ms
        while self.kafka.now_ms < until_ms:
            self.kafka.now_ms = min(until_ms, self.kafka.now_ms + 500)
            self.tell(ev.LeaseHeartbeatAnswered(self.kafka.now_ms, 0) if beats else ev.ShardsTick())

    def writes(self, key: bytes, value: bytes, shard: int = 0) -> int:
        self.position += 1
        self.state[key] = value
        self.tell(ev.TurnDecided([ev.ShardAppend(shard, [(key, value, None)], len(key) + len(value), self.position)]))
        return self.position

    def commits(self, client: TransactionalClient, key: bytes, value: bytes, shard: int = 0) -> int:
        """Positions in a client's transaction: the token."""
        self.tokens += 1
        self.tell(ev.AppendClientOffsets(shard, self.tokens, client, [(key, value, None)], len(key) + len(value)))
        return self.tokens

    def releases(self) -> None:
        """What was held back, and what follows from it."""
        held, self.held, self.hold = self.held, [], set()
        for effect in held:
            self.perform(effect)

    def of(self, kind: type) -> list[Any]:
        return [effect for effect in self.seen if isinstance(effect, kind)]

    @property
    def serves(self) -> bool:
        return self.shards.takes(0)

    def perform(self, effect: Any) -> None:
        kafka, code = self.kafka, self.codes.get(type(effect), 0)
        if isinstance(effect, fx.InitProducer):
            producer = kafka.transactions.init_producer(f"shard-{effect.shard}", kafka.now_ms)
            self.tell(ev.ProducerInitialized(effect.shard, effect.request, code, producer))
        elif isinstance(effect, fx.FindLogEnd):
            self.tell(ev.LogEndFound(effect.shard, effect.request, code, kafka.partitions[effect.shard].committed))
        elif isinstance(effect, fx.FetchLog):
            start = kafka.starts[effect.shard]
            batches, end = kafka.partitions[effect.shard].fetch(effect.offset, 3)
            code = code or int(effect.offset < start)
            self.tell(ev.LogFetched(effect.shard, effect.request, code, () if code else batches, end, start))
        elif isinstance(effect, fx.ApplyRecords):
            self.state = {} if effect.first else self.state
            for record in effect.records:
                assert record.key is not None
                if record.value is None:
                    self.state.pop(record.key, None)
                else:
                    self.state[record.key] = record.value
        elif isinstance(effect, fx.FinishLoad):
            self.tell(ev.LoadFinished(effect.shard, effect.request))
        elif isinstance(effect, fx.FindLeaders):
            leaders = {shard: partition.leader for shard, partition in enumerate(kafka.partitions)}
            self.tell(ev.LeadersFound(effect.request, leaders))
        elif isinstance(effect, fx.Produce):
            self.tell(ev.BatchesProduced(effect.broker, effect.request, self.produce(effect, code)))
        elif isinstance(effect, fx.UnloadShard):
            self.state, self.position = {}, 0
        else:
            self.perform_for_clients(effect, code)

    def perform_for_clients(self, effect: Any, code: int) -> None:
        kafka = self.kafka
        if isinstance(effect, fx.WriteClientBatch):
            self.write(effect, code)
        elif isinstance(effect, fx.DescribeProducer):
            known = kafka.partitions[effect.shard].producers.get(effect.producer_id)
            told = () if known is None else known.told
            self.tell(ev.ProducerDescribed(effect.shard, effect.request, code, *told))
        elif isinstance(effect, fx.FollowLog):
            batches, end = kafka.partitions[effect.shard].fetch(effect.offset, 3)
            self.tell(ev.LogFetched(effect.shard, effect.request, code, batches, end))
        elif isinstance(effect, fx.TransactionEnded):
            for record in effect.records:
                assert record.key is not None
                assert record.value is not None
                self.state[record.key] = record.value

    def write(self, effect: fx.WriteClientBatch, code: int = 0) -> None:
        batch, partition = effect.batch, self.kafka.partitions[effect.shard]
        pairs = [(key, value) for key, value, _ in batch.records]
        acked = BatchResult(code)
        if not code:
            acked = partition.append(
                batch.producer, batch.sequence, pairs, self.kafka.now_ms, transactional=bool(batch.transactional_id)
            )
            partition.commit()
        self.tell(ev.ClientBatchAnswered(effect.shard, effect.request, acked.code, acked.offset))

    def produce(self, effect: fx.Produce, code: int = 0) -> dict[int, BatchResult]:
        """What the brokers make of it."""
        results = {}
        for batch in effect.batches:
            partition = self.kafka.partitions[batch.shard]
            if code or partition.leader != effect.broker:
                results[batch.shard] = BatchResult(code or 6)
                continue
            pairs = [(key, value) for key, value, _ in batch.records]
            result = partition.append(batch.producer, batch.sequence, pairs, self.kafka.now_ms)
            results[batch.shard] = result._replace(start=self.kafka.starts[batch.shard])
            partition.commit()
        return results
