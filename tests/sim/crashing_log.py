"""A `GroupLog` in memory that forgets what was not flushed when its machine dies, and fails when told to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from coordinator.runtime.ports import KeyValue, LogFailed
from tests.sim.faults import CALM, Faults
from tests.sim.watch import Watch
from tests.sim.world import World

GROUPS, LEDGER = "groups", "ledger"


@dataclass(slots=True)
class Part:
    """One partition of one internal topic: batches, of which the first `durable` are safe."""

    batches: list[tuple[KeyValue, ...]] = field(default_factory=list)
    durable: int = 0
    next_offset: int = 0

    def append(self, records: Sequence[KeyValue]) -> None:
        stamped = tuple(KeyValue(record.key, record.value, self.next_offset + at) for at, record in enumerate(records))
        self.next_offset += len(records)
        self.batches.append(stamped)

    @property
    def unflushed(self) -> int:
        return len(self.batches) - self.durable

    def lose_tail(self, keep: int) -> None:
        """A torn batch fails its checksum, so batches are lost whole."""
        del self.batches[self.durable + keep :]
        self.durable = len(self.batches)

    def compact(self) -> None:
        """Keep the newest record of each key among those that are safe; tombstones may go once they are alone."""
        safe = self.batches[: self.durable]
        newest = {record.key: record.offset for batch in safe for record in batch}
        thinned = (tuple(record for record in batch if newest[record.key] == record.offset) for batch in safe)
        kept = [batch for batch in thinned if batch]
        self.batches[: self.durable] = kept
        self.durable = len(kept)


class CrashingLog:
    """Shard by shard the two internal topics. `flush` covers what `mark` saw, as a flush that takes its time does."""

    def __init__(self, world: World, shards: int, watch: Watch) -> None:
        self.world = world
        self.watch = watch
        self.faults: Faults = CALM
        self.parts = {(shard, topic): Part() for shard in range(shards) for topic in (LEDGER, GROUPS)}
        self.shards = shards
        self.unread: set[int] = set()
        """Shards whose ledger could not be read to its end when they were loaded."""
        self._marks: dict[int, dict[str, int]] = {}

    def append(self, shard: int, groups: Sequence[KeyValue], ledger: Sequence[KeyValue], now_ms: int) -> None:
        fails = self.world.chance(self.faults.append_fails)
        if fails and self.world.chance(0.5):
            self.world.census["appends failed before anything was written"] += 1
            raise LogFailed("no space left on the simulated disk")
        if ledger:
            self.parts[shard, LEDGER].append(ledger)
        if fails:
            self.world.census["appends failed half way"] += 1
            raise LogFailed("the simulated disk broke between two topics")
        if groups:
            self.parts[shard, GROUPS].append(groups)
        self.watch.appended(shard, groups, ledger)

    def mark(self, shards: Sequence[int]) -> None:
        """A flush begins: this is what it will cover."""
        self._marks = {
            shard: {topic: len(self.parts[shard, topic].batches) for topic in (GROUPS, LEDGER)} for shard in shards
        }

    def flush(self, shards: Sequence[int]) -> None:
        if self.world.chance(self.faults.flush_fails):
            self.world.census["flushes failed"] += 1
            failed = [shard for shard in shards if self.world.chance(0.6)]
            for shard in shards:
                if shard not in failed:
                    self._keep(shard)
            raise LogFailed("the simulated disk cannot flush", failed or None)
        for shard in shards:
            self._keep(shard)

    def _keep(self, shard: int) -> None:
        for topic, length in self._marks[shard].items():
            part = self.parts[shard, topic]
            part.durable = max(part.durable, min(length, len(part.batches)))

    def ends(self, shard: int) -> tuple[int, int]:
        """Where the shard's two topics end, flushed or not."""
        groups, ledger = self.parts[shard, GROUPS], self.parts[shard, LEDGER]
        return end(groups.batches, len(groups.batches)), end(ledger.batches, len(ledger.batches))

    def safe_ends(self, shard: int) -> tuple[int, int]:
        """How much of them would survive a loss of power."""
        groups, ledger = self.parts[shard, GROUPS], self.parts[shard, LEDGER]
        return end(groups.batches, groups.durable), end(ledger.batches, ledger.durable)

    def read_groups(self, shard: int) -> Iterator[KeyValue]:
        return self._read(shard, GROUPS)

    def read_ledger(self, shard: int) -> Iterator[KeyValue]:
        self.unread.add(shard)
        yield from self._read(shard, LEDGER)
        self.unread.discard(shard)

    def _read(self, shard: int, topic: str) -> Iterator[KeyValue]:
        if self.world.chance(self.faults.read_fails):
            self.world.census["reads failed"] += 1
            raise LogFailed("the simulated disk cannot be read")
        for batch in list(self.parts[shard, topic].batches):
            yield from batch

    def lose_unflushed(self) -> None:
        """The machine dies: of what was not flushed, some beginning has reached the disk by chance, or nothing."""
        for (_, topic), part in sorted(self.parts.items()):
            if part.unflushed:
                self.world.census[f"power lost between append and flush ({topic})"] += 1
                part.lose_tail(self.world.between(0, part.unflushed))

    def compact(self) -> None:
        """Never while a flush is under way: `mark` counts batches."""
        for _, part in sorted(self.parts.items()):
            part.compact()


def end(batches: Sequence[tuple[KeyValue, ...]], count: int) -> int:
    """The offset after the first `count` batches."""
    return batches[count - 1][-1].offset + 1 if count else 0
