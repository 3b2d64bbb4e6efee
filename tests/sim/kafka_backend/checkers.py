"""What has to hold, after each step."""

from collections.abc import Callable
from typing import Any

from muster.coordinator.kafka_backend.shard_ownership.shard_log import ShardReplay
from tests.sim.kafka_backend.node import Node, Store


class Violation(AssertionError):
    """A rule is broken."""


class Check:
    def __init__(self, world: Any) -> None:
        self.world = world
        self.acked: dict[tuple[int, bytes], int] = {}

    def fail(self, rule: str, what: str) -> None:
        raise Violation(f"{rule}: {what}")

    def step(self) -> None:
        """9: no two nodes may answer for one shard."""
        holders: dict[int, int] = {}
        for node in self.world.nodes.values():
            if not node.alive or not node.shards.has_lease(node.now_ms):
                continue
            for shard in node.shards.served():
                if shard in holders:
                    self.fail("9 one coordinator", f"nodes {[holders[shard], node.id]} both answer for shard {shard}")
                holders[shard] = node.id

    def wrote(self, shard: int, key: bytes, value: int) -> None:
        self.acked[shard, key] = max(value, self.acked.get((shard, key), 0))

    def read(self, shard: int, key: bytes, value: int, at_least: int) -> None:
        """10: what was acknowledged is read by all who ask later."""
        if value < at_least:
            self.fail("10 monotone", f"shard {shard}, key {key!r}: {value} is read, and {at_least} was acknowledged")

    def serves(self, node: Node, shard: int, position: int) -> None:
        """1: whoever begins to serve has all that was acknowledged, and of transactions what their markers say. A node
        that wakes late may go on to its last stage without a lease: nobody hears of it."""
        if not node.shards.may_answer(shard, node.now_ms):
            return
        state = node.stores[shard].state
        for (where, key), value in self.acked.items():
            if where == shard and state.get(key, 0) < value:
                self.fail(
                    "1 acked never lost", f"node {node.id}, shard {shard}: {key!r} is {state.get(key)}, not {value}"
                )
        self._log_says(node.id, shard, state, position)

    def told(self, record: Any) -> tuple[bytes, int]:
        """What a client's record says."""
        return record.key, int(record.value)

    def has(self, shard: int, producer_id: int, key: bytes, value: int) -> None:
        """KB-E3: what was acknowledged to a client is in its transaction when that commits."""
        said = key, value
        for stored in reversed(self.world.partitions[shard].log):
            if stored.seen.producer.id == producer_id and said in map(self.told, stored.seen.records):
                return
            if stored.seen.producer.id == producer_id and stored.seen.marker is not None:
                break
        self.fail("1 acked never lost", f"shard {shard}: {said} was acknowledged, and is in no transaction")

    def settled(self, node: Node, shard: int) -> None:
        """The owner has what the log says, once all it wrote is acknowledged."""
        store = node.stores[shard]
        self._log_says(node.id, shard, store.state, unstable=store.unstable)

    def _log_says(
        self,
        node: int,
        shard: int,
        state: dict[bytes, int],
        upto: int | None = None,
        unstable: Callable[[bytes], bool] = lambda key: False,
    ) -> None:
        """By a reading of its own: markers, and who may write, as the world knows them to be."""
        truth = self.world.truth(shard, upto if upto is not None else 1 << 62)
        for key in truth.keys() | state.keys():
            if unstable(key):
                continue  # what its marker says is not read yet, or is not there
            if truth.get(key) != state.get(key):
                self.fail(
                    "state", f"node {node}, shard {shard}: {key!r} is {state.get(key)}; the log says {truth.get(key)}"
                )

    def end(self, served: bool) -> None:
        """14, and the log once more: a cleaned log says what the whole one did."""
        if not served:
            self.fail("14 liveness", f"not every shard is served: {self.world.where()}")
        for node in self.world.nodes.values():
            for shard, store in node.stores.items():
                if node.alive and node.shards.may_answer(shard, node.now_ms) and store.pending:
                    self.fail("E4", f"node {node.id}, shard {shard}: {store.pending} waits, and all has ended")
        for shard in range(self.world.shards):
            replay, store = ShardReplay(), Store()
            for record in replay.take_all(self.world.partitions[shard].fetch(0, 1 << 30)[0]):
                assert record.key is not None
                if record.value is None:
                    store.state.pop(record.key, None)
                else:
                    store.state[record.key] = int(record.value)
            for (where, key), value in self.acked.items():
                if where == shard and store.state.get(key, 0) < value:
                    self.fail(
                        "1 acked never lost",
                        f"the log of shard {shard} has {store.state.get(key)} of {key!r}, not {value}",
                    )
