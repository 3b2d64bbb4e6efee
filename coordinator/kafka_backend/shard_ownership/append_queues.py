"""What shards write, batch after batch, and in which requests the batches leave (KB-A1 to KB-A4).

Each shard has a queue. Its first batch is sealed (numbered, its records chosen) when it is due, and stays as it is
until Kafka reports its outcome: after an unknown outcome the same bytes are sent again under the same sequence, so
that they are in the log once. What arrives meanwhile waits, and leaves together (group commit). Batches of shards
that one broker leads leave in one request, and one request per broker is in flight, so that a slow broker delays
its own shards only.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import FindLeaders, Produce, ShardEffect
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    BatchResult,
    MeasuredRecords,
    NewRecord,
    ProducerEpoch,
    RetryReason,
    ShardBatch,
)

MAX_SEQUENCE = 2**31 - 1

RECORD_BYTES = 32
"""What a record takes in a batch beside its key and its value, at most."""

NONE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE = 0, 10, 18
OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER = 45, 46, 59
LEFT_OUT = RetryReason(0, "the answer leaves it out")
DONE = frozenset({NONE, DUPLICATE})
FENCED = frozenset({47, 90, 120})
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, TRANSACTION_ABORTABLE."""
ACQUIRE_AGAIN = frozenset({OUT_OF_ORDER, UNKNOWN_PRODUCER})
NEVER_FITS = frozenset({MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE})


class AppendLimits(NamedTuple):
    """batch_bytes: `max.message.bytes` less a tenth (KB-S1). request_bytes: of one Produce request; a batch that is
    larger leaves alone. unacked_bytes: of one shard (KB-A3)."""

    batch_bytes: int = 8_388_608 - 838_860
    request_bytes: int = 32 << 20
    unacked_bytes: int = 8_388_608
    delivery_timeout_ms: int = 30_000
    request_timeout_ms: int = 5_000
    retry_ms: int = 50
    retry_most_ms: int = 1_000


def back_off_ms(limits: AppendLimits, tries: int) -> int:
    """How long to wait after so many failures in a row.

    >>> [back_off_ms(AppendLimits(), tries) for tries in (1, 2, 3, 20)]
    [50, 100, 200, 1000]
    """
    return min(limits.retry_ms << min(tries - 1, 16), limits.retry_most_ms)


class AppendFailure(Enum):
    """Why a shard cannot go on writing."""

    FENCED = "another owner has begun"
    ANEW = "the broker and this node disagree on what was written"
    LATE = "nothing was acknowledged for engine.kafka.delivery.timeout.ms"
    TOO_LARGE = "the state topic's max.message.bytes is smaller than the node takes it for"


class BatchAcknowledged(NamedTuple):
    """A batch is acknowledged. offset: of its first record; start: where the log begins; -1: not told."""

    batch: ShardBatch
    offset: int
    start: int = -1


class AppendsBroken(NamedTuple):
    """Nothing of the shard can be acknowledged any more under this producer."""

    shard: int
    why: AppendFailure
    code: int = 0


AppendOutcome: TypeAlias = BatchAcknowledged | AppendsBroken


class QueuedAppend(NamedTuple):
    records: Sequence[NewRecord]
    size: int
    position: int
    alone: bool


class AppendQueue:
    """Of one shard. sequence: of the next batch. since_ms: when the first batch was sealed. again_ms: not before.
    trouble: why its first batch is sent again."""

    __slots__ = (
        "again_ms",
        "flight",
        "producer",
        "sequence",
        "shard",
        "since_ms",
        "tries",
        "trouble",
        "unacked",
        "waiting",
        "way",
    )

    def __init__(self, shard: int, producer: ProducerEpoch) -> None:
        self.shard = shard
        self.producer = producer
        self.sequence = 0
        self.waiting: deque[QueuedAppend] = deque()
        self.flight: ShardBatch | None = None
        self.way = False
        self.since_ms = 0
        self.again_ms = 0
        self.tries = 0
        self.trouble: RetryReason | None = None
        self.unacked = 0

    def seal(self, most: int, now_ms: int) -> None:
        """The first batch takes what waits, as far as it fits."""
        first = self.waiting.popleft()
        records: list[NewRecord] = list(first.records)
        size, position = first.size, first.position
        while self.waiting and not (first.alone or self.waiting[0].alone) and size + self.waiting[0].size <= most:
            more = self.waiting.popleft()
            records += more.records
            size, position = size + more.size, more.position
        self.flight = ShardBatch(self.shard, self.producer, self.sequence, records, size, position)
        self.sequence = (self.sequence + len(records)) & MAX_SEQUENCE
        self.since_ms, self.again_ms, self.tries = now_ms, now_ms, 0


class AppendQueues:
    """Of all shards of a node. What is asked of the edge comes from `pump`."""

    def __init__(self, limits: AppendLimits) -> None:
        self._limits = limits
        self._queues: dict[int, AppendQueue] = {}
        self._writing: dict[int, AppendQueue] = {}
        """Those with something that is not acknowledged: a node has more shards than write at a moment."""
        self._leaders: dict[int, int] = {}
        self._busy: dict[int, tuple[int, tuple[ShardBatch, ...]]] = {}
        self._number = 0
        self._asked: int | None = None
        self._ask_ms: int | None = None
        self._ask_tries = 0

    # Shards.

    def open(self, shard: int, producer: ProducerEpoch) -> None:
        """The shard writes as this producer from here on, from sequence 0; what another one had to write is over."""
        self.close(shard)
        self._queues[shard] = AppendQueue(shard, producer)

    def close(self, shard: int) -> None:
        """Nothing of the shard is written any more; what is under way may yet be."""
        self._queues.pop(shard, None)
        self._writing.pop(shard, None)

    def append(
        self, shard: int, records: Sequence[NewRecord], size: int, position: int = 0, *, alone: bool = False
    ) -> None:
        """size: of keys and values. alone: not in a batch with others. Too much for one batch leaves as several, in
        order, and its position counts with the last (KB-S1)."""
        queue = self._writing[shard] = self._queues[shard]
        whole = size + RECORD_BYTES * len(records)
        parts = [(records, whole)] if whole <= self._limits.batch_bytes else list(self._parts(records))
        before = queue.waiting[-1].position if queue.waiting else queue.flight.position if queue.flight else 0
        for at, (part, bytes_) in enumerate(parts):
            last = at == len(parts) - 1
            queue.waiting.append(QueuedAppend(part, bytes_, max(position, before) if last else before, alone))
            queue.unacked += bytes_

    def is_empty(self, shard: int) -> bool:
        """Whether all is acknowledged."""
        return shard not in self._writing

    def has_room(self, shard: int, beside: int = 0) -> bool:
        """KB-A3: whether more may be decided for the shard. beside: bytes that are under way elsewhere."""
        queue = self._queues.get(shard)
        return queue is None or queue.unacked + beside < self._limits.unacked_bytes

    def unacked(self, shard: int) -> int:
        """Bytes."""
        queue = self._queues.get(shard)
        return queue.unacked if queue else 0

    def trouble(self, shard: int) -> RetryReason | None:
        """Why its first batch is sent again."""
        queue = self._queues.get(shard)
        return None if queue is None else queue.trouble

    def tried_since(self, shard: int) -> int | None:
        """When its first batch was made; None: there is none."""
        queue = self._queues.get(shard)
        return queue.since_ms if queue is not None and queue.flight is not None else None

    def _parts(self, records: Sequence[NewRecord]) -> Iterator[tuple[Sequence[NewRecord], int]]:
        """With what each part takes."""
        most = self._limits.batch_bytes
        start = at = size = 0
        for end, own in split_records(records, most):
            if size + own > most and at > start:
                yield records[start:at], size
                start, size = at, 0
            at, size = end, size + own
        yield records[start:], size

    # What is heard.

    def led(self, request: int, leaders: Mapping[int, int], now_ms: int) -> None:
        """Metadata came. What it has no leader for is asked again, later."""
        if request != self._asked:
            return
        self._asked = None
        self._leaders = {shard: broker for shard, broker in leaders.items() if broker >= 0}
        if all(shard in self._leaders for shard in self._queues):
            self._ask_tries = 0
        else:
            self._ask_again(now_ms)

    def produced(
        self, broker: int, request: int, results: Mapping[int, BatchResult], now_ms: int
    ) -> list[AppendOutcome]:
        outcomes: list[AppendOutcome] = []
        for queue, batch in self._ended(broker, request):
            result = results.get(batch.shard)
            if result is None:
                self._again(queue, LEFT_OUT, now_ms)
            elif result.code in DONE:
                queue.flight = queue.trouble = None
                queue.unacked -= batch.size
                if not queue.waiting:
                    del self._writing[batch.shard]
                outcomes.append(BatchAcknowledged(batch, result.offset, result.start))
            elif (why := _failure_of(result.code)) is not None:
                outcomes.append(AppendsBroken(batch.shard, why, result.code))
            else:
                self._again(queue, RetryReason(result.code), now_ms)
        return outcomes

    def lost(self, broker: int, request: int, detail: str, now_ms: int) -> None:
        for queue, _ in self._ended(broker, request):
            self._again(queue, RetryReason(0, detail), now_ms)

    def _ended(self, broker: int, request: int) -> list[tuple[AppendQueue, ShardBatch]]:
        """The queues whose first batch was in that request, and still is the first."""
        if self._busy.get(broker, (0, ()))[0] != request:
            return []
        _, batches = self._busy.pop(broker)
        mine = [(self._queues.get(batch.shard), batch) for batch in batches]
        ended = [(queue, batch) for queue, batch in mine if queue is not None and queue.flight is batch]
        for queue, _ in ended:
            queue.way = False
        return ended

    def _again(self, queue: AppendQueue, trouble: RetryReason, now_ms: int) -> None:
        """KB-A2: the same bytes, once it is known who leads."""
        queue.tries += 1
        queue.trouble = trouble
        queue.again_ms = now_ms + back_off_ms(self._limits, queue.tries)
        if self._ask_ms is None:
            self._ask_ms = now_ms

    def _ask_again(self, now_ms: int) -> None:
        self._ask_tries += 1
        self._ask_ms = now_ms + back_off_ms(self._limits, self._ask_tries)

    # What is done.

    def late(self, now_ms: int) -> list[AppendsBroken]:
        """KB-A4: shards whose first batch was tried for too long."""
        most = self._limits.delivery_timeout_ms
        return [
            AppendsBroken(queue.shard, AppendFailure.LATE)
            for queue in self._writing.values()
            if queue.flight is not None and now_ms - queue.since_ms >= most
        ]

    def pump(self, now_ms: int) -> list[ShardEffect]:
        """What may leave now; only while the lease holds (KB-F7)."""
        out: list[ShardEffect] = []
        ready: dict[int, list[AppendQueue]] = {}
        for queue in self._writing.values():
            if queue.flight is None:
                queue.seal(self._limits.batch_bytes, now_ms)
            if queue.way or queue.again_ms > now_ms:
                continue
            broker = self._leaders.get(queue.shard)
            if broker is not None:
                ready.setdefault(broker, []).append(queue)
            elif self._asked is None and self._ask_ms is None:
                self._ask_ms = now_ms
        if self._ask_ms is not None and self._ask_ms <= now_ms and self._asked is None:
            self._number += 1
            self._asked, self._ask_ms = self._number, None
            out.append(FindLeaders(self._number))
        if self._asked is None:
            for broker, queues in ready.items():
                if broker not in self._busy:
                    out.append(self._produce(broker, queues))
        else:
            # Who failed waits for the answer; nobody else does.
            for broker, queues in ready.items():
                fresh = [queue for queue in queues if not queue.tries]
                if fresh and broker not in self._busy:
                    out.append(self._produce(broker, fresh))
        return out

    def _produce(self, broker: int, queues: list[AppendQueue]) -> Produce:
        """Who has waited longest goes first."""
        queues.sort(key=lambda queue: queue.since_ms)
        chosen: list[ShardBatch] = []
        size = 0
        for queue in queues:
            assert queue.flight is not None
            size += queue.flight.size
            if chosen and size > self._limits.request_bytes:
                break
            queue.way = True
            chosen.append(queue.flight)
        self._number += 1
        self._busy[broker] = self._number, tuple(chosen)
        return Produce(broker, self._number, tuple(chosen), self._limits.request_timeout_ms)

    def wish(self) -> int | None:
        """When to look again, at the latest."""
        wanted = [] if self._ask_ms is None else [self._ask_ms]
        for queue in self._writing.values():
            if queue.flight is not None:
                wanted.append(queue.since_ms + self._limits.delivery_timeout_ms)
                if not queue.way and queue.tries:
                    wanted.append(queue.again_ms)
        return min(wanted, default=None)


def split_records(records: Sequence[NewRecord], most: int) -> Iterator[tuple[int, int]]:
    """Where the list may be parted, and what each piece takes: its portions where it is measured, else its records; of
    a portion that takes more than `most`, these as well."""
    if not isinstance(records, MeasuredRecords):
        yield from ((at + 1, _size(record)) for at, record in enumerate(records))
        return
    start = before = 0
    for end, size in records.marks:
        own = size - before + RECORD_BYTES * (end - start)
        if own <= most:
            yield end, own
        else:
            yield from ((at + 1, _size(records[at])) for at in range(start, end))
        start, before = end, size


def _size(record: NewRecord) -> int:
    return len(record[0]) + len(record[1] or b"") + RECORD_BYTES


def _failure_of(code: int) -> AppendFailure | None:
    """What cannot be tried again; None: it can."""
    if code in FENCED:
        return AppendFailure.FENCED
    if code in ACQUIRE_AGAIN:
        return AppendFailure.ANEW
    return AppendFailure.TOO_LARGE if code in NEVER_FITS else None
