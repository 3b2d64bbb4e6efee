"""A model of a Kafka partition and of the transaction coordinator, as far as fencing by producer epochs rests on them.

What a broker does with a batch: epochs, sequences, the five latest batches of a producer, markers; what it forgets of
producers that write nothing; what a change of leader may take away; what the cleaner keeps. Codes are Kafka's numbers.
`tests/integration/kafka_backend/test_model_and_truth.py` asks a real broker the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    BatchResult,
    LogBatch,
    ProducerEpoch,
    ShardRecordRead,
)

NONE, OUT_OF_ORDER, OLD_EPOCH, TXN_STATE = 0, 45, 47, 48
REMEMBERED = 5

Pair = tuple[bytes, bytes | None]


@dataclass(slots=True)
class Known:
    """What a broker knows of a producer: its epoch, its latest batches (first, last sequence, offset), and where its
    open transaction begins."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    open_at: int | None = None
    at_ms: int = 0

    @property
    def last(self) -> int | None:
        return self.batches[-1][1] if self.batches else None

    @property
    def told(self) -> tuple[int, int, int]:
        """By DescribeProducers: epoch, last sequence, where its open transaction begins."""
        return self.epoch, -1 if self.last is None else self.last, -1 if self.open_at is None else self.open_at


@dataclass(slots=True)
class Stored:
    seen: LogBatch
    sequence: int
    at_ms: int


class Partition:
    """Batches by offset. committed: the high watermark, up to which readers see. added: ids of producers in whose open
    transaction it is."""

    def __init__(self, leader: int = 0, *, expiration_ms: int = 1 << 60) -> None:
        self.leader = leader
        self.expiration_ms = expiration_ms
        self.log: list[Stored] = []
        self.end = 0
        self.committed = 0
        self.producers: dict[int, Known] = {}
        self.added: set[int] = set()
        self.cleaned = 0

    # Writing.

    def append(
        self, producer: ProducerEpoch, sequence: int, pairs: Sequence[Pair], now_ms: int, *, transactional: bool = False
    ) -> BatchResult:
        """A batch as a client sends it."""
        self.expire(now_ms)
        known = self.producers.get(producer.id)
        last = sequence + len(pairs) - 1
        if known is not None:
            if producer.epoch < known.epoch:
                return BatchResult(OLD_EPOCH)
            if producer.epoch == known.epoch:
                for first, end, offset in known.batches:
                    if (first, end) == (sequence, last):
                        return BatchResult(NONE, offset)
                if known.last is not None and sequence != known.last + 1:
                    return BatchResult(OUT_OF_ORDER)
            elif sequence != 0:
                return BatchResult(OUT_OF_ORDER)
            if known.open_at is not None and not transactional:
                return BatchResult(TXN_STATE)
        if transactional and producer.id not in self.added:
            return BatchResult(TXN_STATE)
        offset = self.end
        records = [ShardRecordRead(key, value, offset + at) for at, (key, value) in enumerate(pairs)]
        self._store(Stored(LogBatch(offset, offset + len(pairs), producer, records, transactional), sequence, now_ms))
        return BatchResult(NONE, offset)

    def mark(self, producer: ProducerEpoch, now_ms: int, *, commits: bool) -> BatchResult:
        """The transaction coordinator's marker."""
        known = self.producers.get(producer.id)
        if known is not None and producer.epoch < known.epoch:
            return BatchResult(OLD_EPOCH)
        offset = self.end
        self.added.discard(producer.id)
        self._store(Stored(LogBatch(offset, offset + 1, producer, (), True, commits), -1, now_ms))
        return BatchResult(NONE, offset)

    def _store(self, stored: Stored) -> None:
        self.log.append(stored)
        self.end = stored.seen.next_offset
        self._learn(stored)

    def _learn(self, stored: Stored) -> None:
        seen = stored.seen
        known = self.producers.get(seen.producer.id)
        if known is None or known.epoch != seen.producer.epoch:
            open_at = known.open_at if known is not None else None
            known = self.producers[seen.producer.id] = Known(seen.producer.epoch, open_at=open_at)
        known.at_ms = stored.at_ms
        if seen.marker is not None:
            known.open_at = None
            return
        known.batches = [
            *known.batches[1 - REMEMBERED :],
            (stored.sequence, stored.sequence + seen.next_offset - seen.base_offset - 1, seen.base_offset),
        ]
        if seen.transactional and known.open_at is None:
            known.open_at = seen.base_offset

    def commit(self) -> None:
        """All in sync have it."""
        self.committed = self.end

    def expire(self, now_ms: int) -> None:
        """producer.id.expiration.ms: who has written nothing for as long is forgotten."""
        for producer_id, known in list(self.producers.items()):
            if known.open_at is None and now_ms - known.at_ms >= self.expiration_ms:
                del self.producers[producer_id]

    def elect(self, leader: int, *, kept: int | None = None) -> None:
        """Another broker leads; of what was not committed it has what lies below `kept`."""
        self.leader = leader
        upto = max(self.committed, self.end if kept is None else kept)
        cut = [stored for stored in self.log if stored.seen.next_offset <= upto]
        if len(cut) < len(self.log):
            self.log = cut
            self.end = max(self.committed, cut[-1].seen.next_offset if cut else 0)
            self.producers = {}
            for stored in self.log:
                self._learn(stored)
        self.commit()

    # Reading.

    def fetch(self, offset: int, most: int = 50) -> tuple[list[LogBatch], int]:
        """Batches from the offset on, and where to go on; what is not committed is not shown."""
        found = [s.seen for s in self.log if s.seen.next_offset > offset and s.seen.next_offset <= self.committed]
        if len(found) > most:
            return found[:most], found[most - 1].next_offset
        return found, max(offset, self.committed)

    # Cleaning.

    def clean(self, now_ms: int, lag_ms: int) -> int:
        """What the cleaner leaves of all that is older than the lag: the newest of each key; a batch keeps its header.
        How many records went. Tombstones go one cleaning later."""
        stable = min(
            (known.open_at for known in self.producers.values() if known.open_at is not None), default=self.end
        )
        newest: dict[bytes, int] = {}
        aborted = set(self._aborted())
        upto = 0
        for stored in self.log:
            seen = stored.seen
            if stored.at_ms > now_ms - lag_ms or seen.next_offset > min(stable, self.committed):
                break
            upto = seen.next_offset
            newest.update((r.key, r.offset) for r in seen.records if r.key is not None and r.offset not in aborted)
        gone = 0
        for stored in self.log:
            seen = stored.seen
            if seen.next_offset > upto:
                break
            left = [
                record
                for record in seen.records
                if record.key is not None
                and record.offset not in aborted
                and newest.get(record.key) == record.offset
                and (record.value is not None or seen.next_offset > self.cleaned)
            ]
            gone += len(seen.records) - len(left)
            stored.seen = seen._replace(records=left)
        self.cleaned = upto
        return gone

    def _aborted(self) -> Iterator[int]:
        waiting: dict[int, list[int]] = {}
        for stored in self.log:
            seen = stored.seen
            if seen.marker is not None:
                ended = waiting.pop(seen.producer.id, [])
                if not seen.marker:
                    yield from ended
            elif seen.transactional:
                waiting.setdefault(seen.producer.id, []).extend(record.offset for record in seen.records)


@dataclass(frozen=True, slots=True)
class Identity:
    producer: ProducerEpoch
    at_ms: int


class TransactionCoordinator:
    """Who has which producer id. An epoch above most_epoch is not given out: the next id is, from epoch 0."""

    def __init__(self, *, most_epoch: int = 32_766, expiration_ms: int = 1 << 60) -> None:
        self.most_epoch = most_epoch
        self.expiration_ms = expiration_ms
        self._identities: dict[str, Identity] = {}
        self._next_id = 7

    def init_producer(self, transactional_id: str, now_ms: int) -> ProducerEpoch:
        """InitProducerId: the epoch rises by one; nothing tells the partitions."""
        identity = self._identities.get(transactional_id)
        if (
            identity is None
            or identity.producer.epoch >= self.most_epoch
            or now_ms - identity.at_ms >= self.expiration_ms
        ):
            producer = ProducerEpoch(self._next_id, 0)
            self._next_id += 1
        else:
            producer = ProducerEpoch(identity.producer.id, identity.producer.epoch + 1)
        self._identities[transactional_id] = Identity(producer, now_ms)
        return producer

    def forget(self, transactional_id: str) -> None:
        """transactional.id.expiration.ms is over."""
        self._identities.pop(transactional_id, None)

    def aged(self, transactional_id: str, by_ms: int) -> None:
        identity = self._identities[transactional_id]
        self._identities[transactional_id] = replace(identity, at_ms=identity.at_ms - by_ms)
