"""A `GroupLog` in memory that forgets what was not flushed when its machine dies, and fails when told to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from muster.coordinator.runtime.kafka_records import (
    CONSUMER_KINDS,
    CURRENT,
    GROUP_EPOCH,
    GROUP_KEY,
    MEMBER,
    OFFSET_KEY_WRITTEN,
    REGEX,
    TARGET,
    TARGET_EPOCH,
)
from muster.coordinator.runtime.own_records import (
    BALANCE_KEY,
    CANARY_KEY,
    DELAY_KEY,
    FENCE_KEY,
    HOLDS_KEY,
    PROBE_KEY,
    SETTINGS_KEY,
)
from muster.coordinator.runtime.ports import Entry, KeyValue, LogDamage, LogFailed, LogWithoutTransactions
from muster.coordinator.runtime.record_fields import INT16, FieldReader
from tests.sim.faults import CALM, Faults
from tests.sim.node.room import Room
from tests.sim.watch import Watch
from tests.sim.world import World

GROUPS, LEDGER = "groups", "ledger"

NO_ROOM = "the simulated disk is full"

RECORD_KINDS = {
    INT16.pack(OFFSET_KEY_WRITTEN): "a position",
    INT16.pack(GROUP_KEY): "a classic group",
    INT16.pack(GROUP_EPOCH): "an epoch",
    INT16.pack(MEMBER): "a member",
    INT16.pack(TARGET_EPOCH): "a target's epoch",
    INT16.pack(TARGET): "a member's target",
    INT16.pack(CURRENT): "a member's share",
    INT16.pack(REGEX): "a pattern",
    INT16.pack(DELAY_KEY): "a delay",
    INT16.pack(SETTINGS_KEY): "settings",
    INT16.pack(HOLDS_KEY): "what is held",
    INT16.pack(CANARY_KEY): "a canary",
    INT16.pack(BALANCE_KEY): "moves of balance",
    INT16.pack(FENCE_KEY): "a fence",
}
"""By how their keys begin: those that the simulation writes."""

GROUP_BYTES = 50_000
"""What a group may have as one record, by the settings."""

RECORD_BYTES = 2 * GROUP_BYTES
"""What the log takes as one record; a real one takes four times a group's."""


@dataclass(slots=True)
class Part:
    """One partition of one internal topic: batches, of which the first `durable` are safe."""

    batches: list[tuple[KeyValue, ...]] = field(default_factory=list)
    durable: int = 0
    next_offset: int = 0
    unreadable: set[int] = field(default_factory=set)
    """Offsets of records in batches that cannot be read any more."""
    senseless: set[int] = field(default_factory=set)
    """Offsets of records that can be read, and whose values say nothing."""

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


class CrashingLog(LogWithoutTransactions):
    """Shard by shard the two internal topics. `flush` covers what `mark` saw, as a flush that takes its time does."""

    def __init__(self, world: World, shards: int, watch: Watch) -> None:
        self.world = world
        self.watch = watch
        self.faults: Faults = CALM
        self.parts = {(shard, topic): Part() for shard in range(shards) for topic in (LEDGER, GROUPS)}
        self.shards = shards
        self.unread: set[int] = set()
        """Shards whose ledger could not be read to its end when they were loaded."""
        self.fenced: set[int] = set()
        """Shards whose log takes and gives nothing until it is opened anew."""
        self.refused: set[int] = set()
        """Shards that it has refused something since they were loaded: they may fall for that."""
        self.refused_ms: dict[int, int] = {}
        """When it did so last."""
        self.harmed: set[str | None] = set()
        """Groups of whose newest records one said nothing when they were read."""
        self.room = Room(world)
        self.starved: set[int] = set()
        """Shards for whose last append there was no room."""
        self._marks: dict[int, dict[str, int]] = {}

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        self._append(shard, [*map(KeyValue._make, groups)], [*map(KeyValue._make, ledger)])

    def _append(self, shard: int, groups: Sequence[KeyValue], ledger: Sequence[KeyValue]) -> None:
        largest = max((len(record.key) + len(record.value or b"") for record in (*groups, *ledger)), default=0)
        if largest > RECORD_BYTES:
            raise LogFailed(f"a record of {largest} bytes; the simulated log takes {RECORD_BYTES}")
        fails = self.world.chance(self.faults.append_fails)
        if fails and self.world.chance(0.5):
            self.world.census["appends failed before anything was written"] += 1
            raise self._refusal(shard, "the simulated disk takes nothing")
        if not self.room.takes(ledger):
            self.world.census["explanations that found no room"] += len(ledger)
            self.watch.unexplained(shard, ledger)
            ledger = ()
        if ledger:
            self.parts[shard, LEDGER].append(ledger)
        if fails:
            self.world.census["appends failed half way"] += 1
            raise self._refusal(shard, "the simulated disk broke between two topics")
        if shard in self.fenced:
            raise self._refusal(shard, "the simulated log is fenced")
        if not self.room.takes(groups):
            self.world.census["appends that found no room"] += 1
            self.starved.add(shard)
            raise self._refusal(shard, NO_ROOM, no_room=True)
        if groups:
            self.parts[shard, GROUPS].append(groups)
        self.starved.discard(shard)
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
            for shard in failed or shards:
                self._refusal(shard, "")
                if self.world.chance(self.faults.fence):
                    self.world.census["logs fenced"] += 1
                    self.world.trace(f"the log of shard {shard} is fenced")
                    self.fenced.add(shard)
            raise LogFailed("the simulated disk cannot flush", failed or None)
        for shard in shards:
            if shard not in self.fenced:
                self._keep(shard)
        if fenced := self.fenced.intersection(shards):
            for shard in fenced:
                self._refusal(shard, "")
            raise LogFailed("the simulated log is fenced", sorted(fenced))

    def _refusal(self, shard: int, why: str, *, no_room: bool = False) -> LogFailed:
        self.refused.add(shard)
        self.refused_ms[shard] = self.world.now_ms
        return LogFailed(why, no_room=no_room)

    def reopen(self) -> None:
        """A new process opens what is there. What a failed flush left behind is there by chance."""
        for shard in sorted(self.fenced):
            part = self.parts[shard, GROUPS]
            part.lose_tail(self.world.between(0, part.unflushed))
        self.fenced.clear()
        self.refused.clear()
        self.starved.clear()

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
        part = self.parts[shard, GROUPS]
        if part.batches and self.world.chance(self.faults.harm):
            self._harm(part)
        newest = {record.key: record for batch in part.batches for record in batch}
        harmed = {whose(record) for record in newest.values() if record.offset in part.senseless}
        self.harmed |= harmed
        self.world.census["groups whose records are damaged"] += len(harmed)
        return self._read(shard, GROUPS)

    def read_ledger(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        self.unread.add(shard)
        part = self.parts[shard, LEDGER]
        if part.batches and self.world.chance(self.faults.damage):
            self._spoil(part)
        for record in self._read(shard, LEDGER):
            if record.offset in part.unreadable:
                yield LogDamage(record.offset, "its checksum is wrong", record.offset + 1)
            else:
                yield record
        self.unread.discard(shard)

    def _harm(self, part: Part) -> None:
        """The value of one record says nothing from now on: its end is missing, or how it begins is noise.

        Of each key only the newest counts, and of each kind of record one is as likely as of another.
        """
        newest = {record.key: (at, record) for at, batch in enumerate(part.batches) for record in batch}
        kinds: dict[bytes, list[tuple[int, KeyValue]]] = {}
        for at, record in newest.values():
            if record.value and whose(record) is not None:
                kinds.setdefault(record.key[:2], []).append((at, record))
        if not kinds:
            return
        kind = self.world.rng.choice(sorted(kinds))
        at, record = self.world.rng.choice(kinds[kind])
        assert record.value
        noise = (b"", record.value[: self.world.between(1, len(record.value)) - 1], b"\x7f" + record.value[1:])
        spoilt = record._replace(value=self.world.rng.choice(noise))
        self.world.census[f"records of groups that say nothing: {RECORD_KINDS[kind]}"] += 1
        self.world.census["records of KIP-848 groups that say nothing"] += INT16.unpack(kind)[0] in CONSUMER_KINDS
        self.world.trace(f"the record at offset {record.offset} of {whose(record)} says nothing: {record.key!r}")
        part.batches[at] = tuple(spoilt if each is record else each for each in part.batches[at])
        part.senseless.add(record.offset)

    def _spoil(self, part: Part) -> None:
        """One batch cannot be read any more, or the value of one of its records says nothing."""
        at = self.world.between(0, len(part.batches) - 1)
        batch = part.batches[at]
        if self.world.chance(0.5):
            self.world.census["parts of a ledger that cannot be read"] += 1
            part.unreadable.update(record.offset for record in batch)
        else:
            self.world.census["records of a ledger that say nothing"] += 1
            spoilt = self.world.between(0, len(batch) - 1)
            value = b"\xff" + (batch[spoilt].value or b"")[1:]
            part.batches[at] = (*batch[:spoilt], batch[spoilt]._replace(value=value), *batch[spoilt + 1 :])

    def _read(self, shard: int, topic: str) -> Iterator[KeyValue]:
        if topic == GROUPS and shard in self.fenced:
            raise self._refusal(shard, "the simulated log is fenced")
        if self.world.chance(self.faults.read_fails):
            self.world.census["reads failed"] += 1
            raise self._refusal(shard, "the simulated disk cannot be read")
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


def whose(record: KeyValue) -> str | None:
    """Which group's record it is; None of the log's own."""
    key = FieldReader(record.key)
    kind = key.int16()
    return None if kind == PROBE_KEY else key.string()


def end(batches: Sequence[tuple[KeyValue, ...]], count: int) -> int:
    """The offset after the first `count` batches."""
    return batches[count - 1][-1].offset + 1 if count else 0
