"""A client's producer, which commits positions in transactions: one after another, in epoch after epoch (KB-E1 to
KB-E5)."""

from collections.abc import Callable
from typing import Any, Final

from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch, TransactionalClient

FIRST_ID: Final = 1_000
KEYS: Final = 3
TRIES: Final = 6
FENCED: Final = (47, 48, 90)
PATIENCE_MS: Final = 2_500


class Transactional:
    """Kafka's transaction coordinator is never away here: its markers are there at once."""

    def __init__(self, world: Any, number: int) -> None:
        self.world = world
        self.producer = ProducerEpoch(FIRST_ID + number, 0)
        self.number = 0
        self.shard = 0
        self._wrote: tuple[bytes, int] = b"", 0

    @property
    def partition(self) -> Any:
        return self.world.partitions[self.shard]

    def begins(self) -> None:
        """AddOffsetsToTxn, then TxnOffsetCommit; now and then a plain commit of the same positions comes between."""
        world = self.world
        if world.now_ms > world.duration_ms - 5 * world.session_ms:
            return
        self.number += 1
        self.shard = world.random.randrange(world.shards)
        self.partition.added.add(self.producer.id)
        world.values["txn"] += 1
        self._wrote = b"txn-%d" % world.random.randrange(KEYS), world.values["txn"]
        self._commits(self.number, TRIES)
        if world.random.random() < 0.4:
            world.later(world.random.uniform(0, 30), self._plainly)
        if world.random.random() < 0.1:
            world.later(world.random.uniform(1, 12), lambda number=self.number: self._dies(number))

    def closes(self) -> None:
        """The run comes to its end: what is still under way does before, so that whatever waits then waits wrongly."""
        if self.producer.id in self.partition.added:
            self._dies(self.number)

    def _commits(self, number: int, tries: int) -> None:
        """Asked of the owner, or whoever was it; without an answer, or where it moved, again, while the transaction is
        not over (seed 70304: an attempt for one that was asked for the next one's positions)."""
        if number != self.number:
            return
        world, done = self.world, [False]
        node = world._owner(self.shard)

        def said(code: int) -> None:
            if done[0] or number != self.number:
                return
            done[0] = True
            world.census[f"txn commit {code}"] += 1
            if code == 0:
                self._ends_later(number)
            elif code in FENCED or tries == 0:
                self._over(commits=False)
            else:
                world.later(world.random.uniform(20, 400), lambda: self._commits(number, tries - 1))

        if node is not None:
            wrote = self._wrote
            world.later(world.random.uniform(0.2, 3), lambda: self._asks(node, *wrote, said))
        world.later(PATIENCE_MS, lambda: said(15))

    def _asks(self, node: Any, key: bytes, value: int, said: Callable[[int], None]) -> None:
        client = TransactionalClient(f"app-{self.producer.id}", self.producer)
        told = lambda code: self.world.later(1, lambda: said(code))  # noqa: E731
        node.run(lambda: node.ask_txn(self.shard, client, key, value, told))

    def _ends_later(self, number: int) -> None:
        world = self.world

        def ends() -> None:
            if number == self.number:
                self._over(commits=world.random.random() < 0.7)

        if world.random.random() < 0.1:
            world.later(
                world.random.uniform(3_000, 9_000), lambda: self._dies(number)
            )  # it hangs: nobody ends it but Kafka
        else:
            world.later(world.random.choice((1, 1, 20, 400)), ends)

    def _dies(self, number: int) -> None:
        """Its time is over, or another took its place: the epoch rises, and with it goes the abort."""
        if number != self.number:
            return
        self.producer = ProducerEpoch(self.producer.id, self.producer.epoch + 1)
        self._over(commits=False)

    def _over(self, *, commits: bool) -> None:
        world = self.world
        if not commits and world.random.random() < 0.3:
            self.producer = ProducerEpoch(self.producer.id, self.producer.epoch + 1)
        world.census["txn committed" if commits else "txn aborted"] += 1
        self.number += 1
        if commits:
            self.world.check.has(self.shard, self.producer.id, *self._wrote)
        self.partition.mark(self.producer, world.whole_ms, commits=commits)
        self.partition.committed = max(self.partition.committed, self.partition.end)
        world.later(world.random.expovariate(1 / 300), self.begins)

    def _plainly(self) -> None:
        world, (key, _) = self.world, self._wrote
        world.values["txn"] += 1
        value, node = world.values["txn"], world._owner(self.shard)
        if node is not None:
            node.run(lambda: node.ask(self.shard, key, value, lambda seen, code: None))
