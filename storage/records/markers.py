"""Control batches that end a producer's transaction (KIP-98), and the filter of readers of committed records.

A marker commits or aborts what its producer wrote before it. A log keeps aborted records; a fetch of committed records
names the aborted transactions that overlap its answer, and the reader drops their batches.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from muster.storage.errors import CorruptMessage
from muster.storage.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchView,
    checksum_error,
    frame_records,
    seal_batch,
)

# Markers
# -------

ABORT: Final = 0
COMMIT: Final = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class TransactionMarker(NamedTuple):
    """What a control batch says."""

    aborted: bool
    coordinator_epoch: int


MARKER_BYTES: Final = 78
MARKER_ATTRIBUTES: Final = TRANSACTIONAL_BIT | CONTROL_BIT


def encode_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """A control batch of 78 bytes that commits or aborts the producer's open transaction."""
    return seal_marker(TransactionMarker(not commit, coordinator_epoch), producer_id, producer_epoch, timestamp_ms)


def seal_marker(
    marker: TransactionMarker,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The same at this offset of a log."""
    stamp = (base_offset, leader_epoch, MARKER_ATTRIBUTES, 0, timestamp_ms, timestamp_ms)
    return seal_batch(stamp, (producer_id, producer_epoch, -1), 1, marker_record(marker))


@lru_cache(maxsize=64)
def marker_record(marker: TransactionMarker) -> bytes:
    """The one record in a control batch. A coordinator writes the same ones as long as it is in charge."""
    key = _KEY.pack(0, ABORT if marker.aborted else COMMIT)
    return b"".join(frame_records([(key, _VALUE.pack(0, marker.coordinator_epoch), ())], (b"\0",)))


def read_marker(batch: BatchView) -> TransactionMarker | None:
    """What a control batch says of a transaction; None for kinds that mean nothing here (KRaft's, newer ones)."""
    records = batch.records()
    if not records or records[0].key is None or len(records[0].key) < _KEY.size:
        raise CorruptMessage(f"The control batch at offset {batch.base_offset} holds no control record.")
    _, kind = _KEY.unpack_from(records[0].key)
    if kind not in (ABORT, COMMIT):
        return None
    value = records[0].value or b""
    if len(value) < _VALUE.size:
        raise CorruptMessage(f"The marker at offset {batch.base_offset} holds no coordinator epoch.")
    return TransactionMarker(kind == ABORT, _VALUE.unpack_from(value)[1])


# The reader's filter
# -------------------


class NamedTransaction(Protocol):
    """An aborted transaction as a fetch names it."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


def build_aborted_filter(named: Sequence[NamedTransaction]) -> Callable[[BatchView], bool] | None:
    """The filter for one fetch, which named these; None, which costs nothing, where it named none."""
    if not named:
        return None
    return AbortedTransactionFilter((each.producer_id, each.first_offset) for each in named).drops


class AbortedTransactionFilter:
    """Recognises the batches of aborted transactions among those of one fetch (TX-R2).

    `aborted`: producer id and first offset of each transaction that the fetch named. A producer's transactional
    batches are dropped from that offset on, until its ABORT marker. Every fetch needs a filter of its own: the next
    one names what overlaps it, and compaction may have removed the marker meanwhile.
    """

    __slots__ = ("_coming", "_dropping")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        # Latest first, so that the next one is popped from the end.
        self._coming = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
        self._dropping: set[int] = set()

    def drops(self, batch: BatchView) -> bool:
        """Whether the batch holds data of an aborted transaction. To be asked about all batches of the fetch, in order.

        Of control batches only the producer's header is looked at, unless it is one whose transaction is dropped.
        Raises CorruptMessage for such a marker that cannot be read.
        """
        coming, dropping = self._coming, self._dropping
        while coming and coming[-1][0] <= batch.last_offset:
            dropping.add(coming.pop()[1])
        if batch.producer_id not in dropping:
            return False
        if not batch.control:
            return batch.transactional
        if batch.count:  # the cleaner leaves a bare header of a producer's last batch, which is no marker any more
            if not batch.crc_ok:
                raise checksum_error(batch)
            marker = read_marker(batch)
            if marker is not None and marker.aborted:
                dropping.discard(batch.producer_id)
        return False
