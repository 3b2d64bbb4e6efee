"""Which records a compacted log keeps, and the batches that carry them. Pure.

The last value of each key stays. Base and last offset, sequences and flags of a batch stay, so that neither readers
nor the producers' state can tell; a batch whose records have all gone stays as a bare header where its offset or
sequence is still needed. Tombstones and markers get a delete horizon at the first cleaning and go after it.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import md5
from typing import NamedTuple

from muster.storage.logs.producers_state import TransactionMarker
from muster.storage.logs.txn_index import AbortedEntry
from muster.storage.records.batch import BatchView, encode_batch, seal_batch
from muster.storage.records.body import NewRecord
from muster.storage.types import Record

# What a dict entry of a digest and an offset takes, about.
_BYTES_PER_KEY = 180
_TRANSACTION_AND_TIME_BITS = 0x38
_DIGEST_BYTES = 16


class OffsetMap:
    """The last offset of each key in the part of a log that has not been cleaned."""

    def __init__(self, memory_bytes: int) -> None:
        self._limit = max(1, memory_bytes // _BYTES_PER_KEY)
        self._offsets: dict[bytes, int] = {}
        self.latest = -1

    @property
    def full(self) -> bool:
        return len(self._offsets) >= self._limit

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_digest(key)] = offset

    def is_latest(self, record: Record) -> bool:
        """Whether no later record of the same key is known."""
        if record.offset > self.latest:
            return True
        return record.key is not None and record.offset >= self._offsets.get(_digest(record.key), -1)


def _digest(key: bytes) -> bytes:
    """The key itself only where it is shorter than any digest: a key of 16 bytes could be a longer one's."""
    return key if len(key) < _DIGEST_BYTES else md5(key, usedforsecurity=False).digest()


class CleanedTransactions:
    """Follows the transactions through a cleaning: whose data was aborted, and which markers still matter."""

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        # producer -> the aborted transaction and whether data of it was seen
        self._aborted: dict[int, tuple[AbortedEntry, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedEntry] = []
        """Aborted transactions of which data or marker is still in the log."""

    def discard_data(self, batch: BatchView) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._reach(batch.last_offset)
        if not batch.transactional:
            return False
        known = self._aborted.get(batch.producer_id)
        if known is None:
            self._committed.add(batch.producer_id)
            return False
        self._aborted[batch.producer_id] = known[0], True
        return True

    def discard_marker(self, batch: BatchView, marker: TransactionMarker | None) -> bool:
        """Whether nothing of the transaction that the marker ends is left before it."""
        self._reach(batch.last_offset)
        if marker is None:
            return False
        if not marker.aborted:
            if batch.producer_id in self._committed:
                self._committed.discard(batch.producer_id)
                return False
            return True
        known = self._aborted.pop(batch.producer_id, None)
        if known and known[1]:
            self.kept.append(known[0])
            return False
        return True

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, (entry, False))


class BatchVerdict(NamedTuple):
    """What becomes of a batch before its records are looked at."""

    drop_records: bool = False
    keep_empty: bool = False
    """Without records a bare header stays."""
    needs_horizon: bool = False
    """A marker of which nothing else is left: its own time begins to run."""


class CleaningRules:
    """The rules of one cleaning round over `[log start, offsets.latest]`."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        last_of_producers: Mapping[int, tuple[int | None, int]],
        now_ms: int,
    ) -> None:
        self.offsets = offsets
        self.transactions = transactions
        self.now_ms = now_ms
        self._last = last_of_producers

    def judge(self, batch: BatchView, marker: TransactionMarker | None) -> BatchVerdict:
        if batch.control:
            obsolete = self.transactions.discard_marker(batch, marker)
            horizon = batch.delete_horizon_ms
            drop = obsolete and horizon is not None and horizon <= self.now_ms
        else:
            obsolete = drop = self.transactions.discard_data(batch)
        last_of_round = batch.next_offset == self.offsets.latest + 1
        return BatchVerdict(drop, self._last_of_producer(batch) or last_of_round, obsolete and batch.control)

    def _last_of_producer(self, batch: BatchView) -> bool:
        """The producer's state hangs on this batch: its last sequence, or with no data its epoch."""
        known = self._last.get(batch.producer_id)
        if batch.producer_id < 0 or known is None:
            return False
        last_offset, epoch = known
        if last_offset is not None:
            return batch.last_offset == last_offset
        return batch.control and batch.producer_epoch == epoch

    def keeps(self, batch: BatchView, record: Record) -> bool:
        if batch.control or record.offset > self.offsets.latest:
            return True
        if record.key is None or not self.offsets.is_latest(record):
            return False
        horizon = batch.delete_horizon_ms
        return record.value is not None or horizon is None or self.now_ms < horizon


def filter_batch(
    batch: BatchView,
    verdict: BatchVerdict,
    keeps: Callable[[Record], bool],
    now_ms: int,
    delete_retention_ms: int,
) -> bytes | memoryview | None:
    """The batch with only the records that are kept; the very same bytes where nothing changes; None: it goes."""
    if batch.lost:
        return batch.data  # Whoever reads the log from its start must hear of it.
    records = batch.records()
    kept = [] if verdict.drop_records else [record for record in records if keeps(record)]
    if not kept:
        return _bare_header(batch) if verdict.keep_empty else None
    tombstones = any(record.value is None for record in kept)
    horizon = batch.delete_horizon_ms
    begins = (tombstones or verdict.needs_horizon) and horizon is None
    if len(kept) == len(records) and not begins:
        return batch.data
    return encode_batch(
        [_unplaced(record) for record in kept],
        base_offset=batch.base_offset,
        codec=batch.codec,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.transactional,
        control=batch.control,
        log_append_time_ms=batch.max_timestamp if batch.log_append_time else None,
        delete_horizon_ms=now_ms + delete_retention_ms if begins else horizon,
        offset_deltas=[record.offset - batch.base_offset for record in kept],
        last_offset_delta=batch.last_offset_delta,
    )


def _unplaced(record: Record) -> NewRecord:
    return record.timestamp_ms, record.key, record.value, record.headers


def _bare_header(batch: BatchView) -> bytes:
    attributes = batch.attributes & _TRANSACTION_AND_TIME_BITS
    delta = batch.last_offset_delta
    return seal_batch(
        (batch.base_offset, batch.leader_epoch, attributes, delta, -1, batch.max_timestamp),
        (batch.producer_id, batch.producer_epoch, batch.base_sequence),
        0,
        b"",
    )
