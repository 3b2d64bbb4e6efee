"""Records on their way out: partitioned, collected into batches, and numbered.

Keyed records are partitioned by Kafka's default (murmur2), so that producers in any language agree. One queue of
batches per partition, bounded by buffer.memory; used from the application's thread and the sender's loop. Batches are
numbered, so that a batch that is sent twice is written once (KIP-98, KIP-360). A node assigns the producer id. If it
is unknown whether a batch was written, or a log has lost count, the partition continues under the next epoch from 0,
so the log refuses the old batch should it arrive after all; other partitions keep their epoch.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from muster.client.calls.methods import INIT_PRODUCER_ID
from muster.client.calls.transport import Transport
from muster.client.config import ProducerConfig
from muster.client.errors import BufferFull, refusal
from muster.client.types import OnDelivery, TopicPartition
from muster.storage.rpc.v1 import broker_service_pb2 as pb

# Partitioner
# -----------

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, with Kafka's seed; unsigned.

    >>> murmur2(b"21") == (-973932308) % 2**32
    True
    """
    length = len(data)
    hashed = SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = hashed * MULTIPLIER & MASK ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15


def choose_partition(key: bytes, partitions: int) -> int:
    """Kafka's toPositive(murmur2(key)) % partitions.

    >>> choose_partition(b"21", 1000)
    340
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


# Sequence numbers (KIP-98, KIP-360)
# ----------------------------------

MAX_SEQUENCE: Final = 0x7FFFFFFF
LAST_CLIENT_EPOCH: Final = 0x7FFE
"""The last epoch that a producer writes under; one more is kept for markers (KIP-360)."""


class NumberedOwnership(NamedTuple):
    """Under which id a batch is numbered, and in how many-th life of it."""

    producer_id: int
    epoch: int


class BatchNumbers(Protocol):
    """Who numbers batches: a producer for itself, its transaction, or the fence of a partition's owner."""

    transactional_id: str | None
    """Of the transaction that the batches belong to."""
    renews: bool
    """Whether a log that has lost count gets the batch under another ownership; otherwise the batch fails."""

    async def claim(self, places: Sequence[TopicPartition]) -> None:
        """Before batches go to these. Raises Unreachable, or a retriable Refused, when it is to be tried again."""

    def ownership_of(self, place: TopicPartition) -> NumberedOwnership | None:
        """What the next batch for this log is numbered under; None before it is claimed."""

    def next_sequence(self, place: TopicPartition) -> int:
        """The number of the next record for this log."""

    def wrote(self, place: TopicPartition, records: int) -> None: ...

    def doubt(self, place: TopicPartition) -> None:
        """Nobody knows whether a batch was written: what comes next is counted anew."""


class SequenceCount:
    """How many records were written to each log under the id that counts there."""

    transactional_id: str | None = None
    renews = True

    def __init__(self) -> None:
        self._written: dict[TopicPartition, int] = {}

    def next_sequence(self, place: TopicPartition) -> int:
        return self._written.get(place, 0)

    def wrote(self, place: TopicPartition, records: int) -> None:
        self._written[place] = (self._written.get(place, 0) + records) & MAX_SEQUENCE


class ProducerNumbering(SequenceCount):
    """One producer's ids. Lives on the sender's loop."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self._transport = transport
        self._current: NumberedOwnership | None = None
        self._of: dict[TopicPartition, NumberedOwnership] = {}
        self._turn = asyncio.Lock()

    async def claim(self, places: Iterable[TopicPartition]) -> None:
        async with self._turn:
            for place in places:
                if place not in self._of:
                    if self._current is None:
                        self._current = await self._fetch_producer_id()
                    self._of[place] = self._current

    def ownership_of(self, place: TopicPartition) -> NumberedOwnership | None:
        return self._of.get(place)

    def doubt(self, place: TopicPartition) -> None:
        """The next epoch needs no node: no other producer has this id. After the last one another id is asked for."""
        ownership = self._of.pop(place, None)
        self._written.pop(place, None)
        if ownership is not None and ownership.epoch < LAST_CLIENT_EPOCH:
            self._of[place] = NumberedOwnership(ownership.producer_id, ownership.epoch + 1)
        else:
            self._current = None

    async def _fetch_producer_id(self) -> NumberedOwnership:
        answer = await self._transport.call(
            INIT_PRODUCER_ID,
            pb.InitProducerIdRequest(),
            doing="asking for a producer id",
            timeout_ms=self._transport.leaders.look_ms,
        )
        if answer.error_code:
            raise refusal(answer.error_code, pb.ErrorCode.Name(answer.error_code), answer.error_message)
        return NumberedOwnership(answer.producer_id, answer.producer_epoch)


class TransactionNumbering(SequenceCount):
    """The open transaction's producer id and epoch, from 0 in each log. Lives on the sender's loop."""

    renews = False

    def __init__(self, transactional_id: str) -> None:
        super().__init__()
        self.transactional_id = transactional_id
        self.ownership: NumberedOwnership | None = None

    def own(self, ownership: NumberedOwnership) -> None:
        """Of the next transaction."""
        if ownership != self.ownership:
            self.ownership = ownership
            self._written.clear()

    async def claim(self, places: Sequence[TopicPartition]) -> None:
        """Nothing to do: the first batch adds its partition to the transaction."""

    def ownership_of(self, place: TopicPartition) -> NumberedOwnership | None:
        """One for all logs."""
        return self.ownership

    def doubt(self, place: TopicPartition) -> None:
        """Nothing to do: a batch that was given up fails its transaction, and the next one has another epoch."""


# Batches
# -------

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

RECORD_OVERHEAD = 32
"""What a record costs beside its key, value and headers; a little more than the format needs."""


def steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass(slots=True, eq=False)
class PendingBatch:
    """Records of one partition that will travel together, and who wants to hear of each."""

    tp: TopicPartition
    created_ms: int
    records: list[tuple[int, bytes | None, bytes | None, Headers]] = field(default_factory=list)
    listeners: list[tuple[int, OnDelivery]] = field(default_factory=list)
    size: int = 0
    closed: bool = False
    encoded: bytes | None = None
    """As it goes over the wire, once it has been sent."""
    ownership: NumberedOwnership | None = None
    """Under which it was numbered, if it was."""
    in_doubt: bool = False
    """It may have been written by an attempt that brought no answer, or the answer that it is not replicated."""

    def halves(self) -> "tuple[PendingBatch, PendingBatch]":
        """The same records in two batches, in order. There must be two records at least."""
        middle = len(self.records) // 2
        size = self.size * middle // len(self.records)
        first = PendingBatch(self.tp, self.created_ms, self.records[:middle], [], size, True)
        second = PendingBatch(self.tp, self.created_ms, self.records[middle:], [], self.size - size, True)
        for place, listener in self.listeners:
            half, before = (first, 0) if place < middle else (second, middle)
            half.listeners.append((place - before, listener))
        return first, second


class Accumulator:
    """Bounded by buffer.memory: room comes back when a batch is delivered or given up."""

    def __init__(self, config: ProducerConfig, wake_sender: Callable[[], None]) -> None:
        self._config = config
        self._wake_sender = wake_sender
        self._lines: dict[TopicPartition, deque[PendingBatch]] = {}
        self._room = threading.Condition()
        self.on_room: Callable[[], None] | None = None
        """Called whenever room came back, on the sender's loop."""
        self.admit: Callable[[], None] | None = None
        """Called before a record is put into a batch, which the sender cannot take before; raises to refuse it."""
        self._used = 0
        self._batches = 0
        self._flushing = 0
        self._reported = 0
        self._sticky: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        """Batches not yet delivered."""
        return self._batches

    @property
    def used(self) -> int:
        return self._used

    def add(
        self,
        tp: TopicPartition,
        record: tuple[int, bytes | None, bytes | None, Headers],
        size: int,
        on_delivery: OnDelivery | None,
        block_s: float,
    ) -> None:
        """Put a record into its partition's batch; BufferFull when no room came within `block_s` seconds."""
        with self._room:
            if self._used + size > self._config.buffer_memory:
                self._wait_for_room(size, block_s)
            if self.admit is not None:
                self.admit()
            self._used += size
            line = self._lines.get(tp)
            if line is None:
                line = self._lines[tp] = deque()
            batch = line[-1] if line else None
            if batch is None or batch.closed or batch.size + size > self._config.batch_size:
                if batch is not None:
                    batch.closed = True
                batch = PendingBatch(tp, steady_ms())
                line.append(batch)
                self._batches += 1
                wake = True
            else:
                wake = False
            if on_delivery is not None:
                batch.listeners.append((len(batch.records), on_delivery))
            batch.records.append(record)
            batch.size += size
        if wake:
            self._wake_sender()

    def has_room(self, size: int) -> bool:
        with self._room:
            return self._used + size <= self._config.buffer_memory

    def sticky_partition(self, topic: str, partitions: int) -> int:
        """Where a record without a key goes: one partition until its batch is full, then the next (KIP-480)."""
        with self._room:
            chosen = self._sticky.get(topic, 0) % partitions
            line = self._lines.get(TopicPartition(topic, chosen))
            batch = line[-1] if line else None
            if batch is not None and (batch.closed or batch.size >= self._config.batch_size // 2):
                chosen = (chosen + 1) % partitions
            self._sticky[topic] = chosen
            return chosen

    def take_batches(
        self, busy: set[TopicPartition], held: Callable[[TopicPartition], bool] | None = None
    ) -> tuple[list[PendingBatch], int | None]:
        """Batches to send now, at most one per partition, none of `busy` or `held` ones; and when to look again."""
        now, due, next_ms = steady_ms(), [], None
        with self._room:
            for tp, line in self._lines.items():
                if not line or tp in busy or (held is not None and held(tp)):
                    continue
                batch = line[0]
                ready_ms = batch.created_ms + self._config.linger_ms
                if batch.closed or self._flushing or len(line) > 1 or now >= ready_ms:
                    batch.closed = True
                    due.append(line.popleft())
                else:
                    next_ms = ready_ms if next_ms is None else min(next_ms, ready_ms)
            for batch in due:
                if not self._lines[batch.tp]:
                    del self._lines[batch.tp]
        return due, next_ms

    def split_batch(self, batch: PendingBatch) -> tuple[PendingBatch, PendingBatch]:
        """Two batches in place of one that is too large."""
        with self._room:
            self._batches += 1
        return batch.halves()

    def settled(self, batch: PendingBatch) -> None:
        """Delivered or given up: its room is free again."""
        with self._room:
            self._used -= batch.size
            self._batches -= 1
            self._reported += len(batch.records)
            self._room.notify_all()
        if self.on_room is not None:
            self.on_room()

    @property
    def news(self) -> bool:
        """Whether records were delivered or given up since `reported` was asked, or none are on their way."""
        return self._reported > 0 or not self._batches

    def reported(self) -> int:
        """How many records were delivered or given up since this was asked last."""
        with self._room:
            count, self._reported = self._reported, 0
        return count

    def wait_for_news(self, timeout_s: float) -> None:
        with self._room:
            self._room.wait_for(lambda: self.news, timeout_s)

    def wait_until_empty(self, timeout_s: float | None) -> bool:
        """Whether everything was delivered or given up in time; meanwhile nothing lingers."""
        self.begin_flush()
        try:
            with self._room:
                return self._room.wait_for(lambda: self._batches == 0, timeout_s)
        finally:
            self.end_flush()

    def begin_flush(self) -> None:
        with self._room:
            self._flushing += 1
        self._wake_sender()

    def end_flush(self) -> None:
        with self._room:
            self._flushing -= 1

    def _wait_for_room(self, size: int, block_s: float) -> None:
        limit = self._config.buffer_memory
        if not self._room.wait_for(lambda: self._used + size <= limit, block_s):
            raise BufferFull(
                f"no room for a record of {size} bytes within {int(block_s * 1000)} ms: {self._used} of {limit} bytes "
                "wait for delivery; is the node reachable? buffer.memory and max.block.ms set the limits"
            )
