"""Collects records into batches, one line per partition. Used from the application's thread and the sender's loop."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.client.callbacks import OnDelivery
from muster.client.config import ProducerConfig
from muster.client.errors import BufferFull
from muster.client.records.numbering import NumberedOwnership
from muster.client.types import TopicPartition

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

    def take(
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

    def split(self, batch: PendingBatch) -> tuple[PendingBatch, PendingBatch]:
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
