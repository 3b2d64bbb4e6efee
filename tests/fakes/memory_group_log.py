"""A group log in memory that forgets what was not flushed when it crashes, and fails when told to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from muster.coordinator.core.model.records import TxnMarked
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.ports import (
    Entry,
    KeyValue,
    LogDamage,
    LogFailed,
    Read,
    TxnBatchRead,
    TxnMarkerFound,
    TxnProducer,
)


@dataclass
class MemoryPartition:
    """Batches in order; the first `durable` of them survive a crash for certain."""

    batches: list[tuple[Read, ...]] = field(default_factory=list)
    durable: int = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1][-1].offset + 1 if self.batches else 0

    def append(self, records: Sequence[Entry]) -> None:
        self.batches.append(self.placed(records))

    def append_in_transaction(self, producer: TxnProducer, records: Sequence[Entry]) -> None:
        self.batches.append((TxnBatchRead(producer, self.placed(records)),))

    def append_marker(self, marker: TxnMarked) -> None:
        producer = TxnProducer(marker.producer_id, marker.epoch)
        self.batches.append((TxnMarkerFound(producer, marker.commit, self.end_offset),))

    def placed(self, records: Sequence[Entry]) -> tuple[KeyValue, ...]:
        start = self.end_offset
        return tuple(KeyValue(key, value, start + at) for at, (key, value, _) in enumerate(records))

    def epoch_of(self, producer_id: int) -> int:
        """The last epoch that it has here; -1: it is not known."""
        found = (item.producer for batch in self.batches for item in batch if not isinstance(item, KeyValue))
        return max((producer.epoch for producer in found if producer.id == producer_id), default=-1)

    def read(self) -> Iterator[Read]:
        return iter([item for batch in self.batches for item in batch])


def nothing_more(unflushed: int) -> int:
    """The harshest crash: no batch survives that was not flushed."""
    return 0


class MemoryGroupLog:
    """`muster.coordinator.runtime.ports.GroupLog` for tests and the simulator.

    Calls are counted from 1 since the log was made. `failing_appends`, `failing_flushes` and `failing_reads` hold the
    numbers of the calls that raise LogFailed; a failing call keeps nothing. `broken_shards` fail every flush.
    A log that is `full` takes no append. Of producers an epoch before their last one is refused, and nothing else.
    """

    def __init__(self, shards: int) -> None:
        self.groups = [MemoryPartition() for _ in range(shards)]
        self.ledger = [MemoryPartition() for _ in range(shards)]
        self.appends = 0
        self.flushes = 0
        self.reads = 0
        self.failing_appends: set[int] = set()
        self.failing_flushes: set[int] = set()
        self.failing_reads: set[int] = set()
        self.broken_shards: set[int] = set()
        self.full = False

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        self._count_append()
        for partition, records in ((self.ledger[shard], ledger), (self.groups[shard], groups)):
            if records:
                partition.append(records)

    def append_in_transaction(
        self, shard: int, producer: TxnProducer, groups: Sequence[Entry], guard: object | None, now_ms: int
    ) -> None:
        self._count_append()
        self.groups[shard].append_in_transaction(producer, groups)

    def append_marker(self, shard: int, marker: TxnMarked, now_ms: int) -> None:
        self._count_append()
        self.groups[shard].append_marker(marker)

    def transaction_refusal(self, shard: int, producer: TxnProducer, guard: object | None) -> ErrorCode:
        late = producer.epoch < self.groups[shard].epoch_of(producer.id)
        return ErrorCode.INVALID_PRODUCER_EPOCH if late else ErrorCode.NONE

    def marker_refusal(self, shard: int, marker: TxnMarked) -> ErrorCode:
        return self.transaction_refusal(shard, TxnProducer(marker.producer_id, marker.epoch), None)

    def _count_append(self) -> None:
        self.appends += 1
        if self.full:
            raise LogFailed("no space left", no_room=True)
        if self.appends in self.failing_appends:
            raise LogFailed(f"append {self.appends} was told to fail")

    def flush(self, shards: Sequence[int]) -> None:
        self.flushes += 1
        if self.flushes in self.failing_flushes:
            raise LogFailed(f"flush {self.flushes} was told to fail")
        for shard in set(shards) - self.broken_shards:
            for partition in (self.groups[shard], self.ledger[shard]):
                partition.durable = len(partition.batches)
        if broken := self.broken_shards & set(shards):
            raise LogFailed(f"shards {sorted(broken)} cannot be flushed", broken)

    def read_groups(self, shard: int) -> Iterator[Read]:
        self.reads += 1
        if self.reads in self.failing_reads:
            raise LogFailed(f"read {self.reads} was told to fail")
        return self.groups[shard].read()

    def read_ledger(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        return (item for item in self.ledger[shard].read() if isinstance(item, KeyValue))

    def crash(self, survivors: Callable[[int], int] = nothing_more) -> None:
        """The machine stops. Of each partition's unflushed batches the first `survivors(count)` live on by luck."""
        for partition in (*self.groups, *self.ledger):
            kept = partition.durable + survivors(len(partition.batches) - partition.durable)
            del partition.batches[kept:]
            partition.durable = len(partition.batches)
