"""What a node of the simulated cluster does for clients' transactions, and what of a shard it keeps."""

from collections.abc import Callable
from typing import Any

from muster.coordinator.core.groups.state import PendingPositions, WaitingPositions
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.node_shards import NodeShards
from muster.coordinator.kafka_backend.shard_ownership.shard_log import TransactionalClient

GROUP = "g"
POLL_MS = 100
REQUEST_MS = 1_000
"""After so long the edge takes a request for lost."""


def position_of(key: bytes, value: int) -> dict[tuple[str, int], StoredOffset]:
    """A key of the simulated log is a topic of one partition, its value the position there."""
    return {(key.decode(), 0): StoredOffset(value, -1, "", 0)}


class Store:
    """What a shard keeps, and who waits for it: (position, what to say)."""

    def __init__(self) -> None:
        self.state: dict[bytes, int] = {}
        self.serving = False
        self.position = 0
        self.released = 0
        self.held: list[tuple[int, Callable[[], None], Callable[[], None]]] = []
        self.pending = PendingPositions()
        self.tokens: dict[int, tuple[TransactionalClient, bytes, int, Callable[[int], None]]] = {}
        """What is being written in clients' names."""

    def unstable(self, key: bytes) -> bool:
        return (key.decode(), 0) in self.pending.unstable(GROUP)


class ForClients:
    """Mixed into `Node`."""

    world: Any
    stores: dict[int, Store]
    shards: NodeShards
    later: Callable[[float, Callable[[], None]], None]
    own: Callable[[Any], None]
    _call: Callable[[Any, Callable[[], Any]], None]
    _tokens = 0

    def _write_txn(self, effect: fx.WriteClientBatch) -> None:
        """As any request of a shard, but that its answer comes when it is copied."""
        shard, request = effect.shard, effect.request
        done = [False]

        def told(event: Any) -> None:
            if not done[0]:
                done[0] = True
                self.own(event)

        def arrive() -> None:
            self.world.brokers.write_txn(
                effect,
                lambda acked: self.world.back(
                    self, lambda: told(ev.ClientBatchAnswered(shard, request, acked.code, acked.offset))
                ),
            )

        self.later(REQUEST_MS, lambda: told(ev.RequestWithoutAnswer(shard, request, "lost")))
        self.world.forth(self, arrive)

    def _ask_producer(self, effect: fx.DescribeProducer) -> None:
        def at_kafka() -> ev.ProducerDescribed:
            known = self.world.partitions[effect.shard].producers.get(effect.producer_id)
            code = self.world.away(effect.shard)
            return ev.ProducerDescribed(effect.shard, effect.request, code, *(() if known is None else known.told))

        self._call(effect, at_kafka)

    def _follow(self, effect: fx.FollowLog) -> None:
        """A long poll."""
        partition = self.world.partitions[effect.shard]

        def arrive() -> None:
            if partition.fetch(effect.offset)[0]:
                answer()
            else:
                self.world.later(POLL_MS, answer)

        def answer() -> None:
            code = self.world.away(effect.shard)
            batches, end = partition.fetch(effect.offset)
            event = ev.LogFetched(effect.shard, effect.request, code, () if code else batches, end)
            self.world.back(self, lambda: self.own(event))

        self.later(REQUEST_MS, lambda: self.own(ev.RequestWithoutAnswer(effect.shard, effect.request, "lost")))
        self.world.forth(self, arrive)

    # What clients' transactions have of it: as the core does it.

    def ask_txn(
        self, shard: int, client: TransactionalClient, key: bytes, value: int, said: Callable[[int], None]
    ) -> None:
        """TxnOffsetCommit."""
        store = self.stores[shard]
        if not self.shards.takes(shard) or not store.serving:
            said(16)
            return
        if not self.shards.has_room(shard):
            said(14)
            return
        self._tokens += 1
        store.pending.writing[self._tokens] = GROUP, frozenset({(key.decode(), 0)})
        store.tokens[self._tokens] = client, key, value, said
        record = (key, b"%d" % value, None)
        self.own(ev.AppendClientOffsets(shard, self._tokens, client, [record], len(key) + len(record[1])))

    def _txn_outcome(self, effect: fx.ClientWriteOutcome) -> None:
        """The answer waits for all that was decided until now: see `TxnWriteOver`."""
        store, token = self.stores[effect.shard], effect.token
        client, key, value, said = store.tokens.pop(token)
        self.world.census[f"txn write {effect.code}"] += 1
        if not effect.code:
            store.pending.written(client.producer.id, GROUP, position_of(key, value), effect.offset)
        store.pending.writing.pop(token)
        store.held.append((store.position, lambda: said(effect.code), lambda: said(16)))

    def _waits(self, effect: fx.TransactionPending) -> None:
        store = self.stores[effect.shard]
        self.world.census["waits at load"] += 1
        for record in effect.records:
            assert record.key is not None
            offsets = position_of(record.key, int(record.value or b""))
            store.pending.written(effect.producer_id, GROUP, offsets, record.offset)

    def _ended(self, effect: fx.TransactionEnded) -> None:
        store = self.stores[effect.shard]
        self.world.census["txn ends"] += 1
        self.ends(store, effect)

    def ends(self, store: Store, effect: fx.TransactionEnded) -> None:
        counts = {(record.key or b"").decode() for record in effect.records}
        waiting = store.pending.ended(effect.producer.id, effect.offset).get(GROUP, WaitingPositions())
        for place, value in waiting.values.items():
            if place[0] in counts:
                store.state[place[0].encode()] = value.offset
                store.pending.overtaken(GROUP, {place: waiting.at[place]})
