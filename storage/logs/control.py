"""Control batches: the markers that end a transaction (KIP-98)."""

import struct
from typing import Final

from muster.storage.errors import CorruptMessage
from muster.storage.logs.producers_state import TransactionMarker
from muster.storage.records.batch import BatchView, encode_batch

ABORT: Final = 0
COMMIT: Final = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


def encode_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """A control batch of 78 bytes that commits or aborts the producer's open transaction."""
    key = _KEY.pack(0, COMMIT if commit else ABORT)
    return encode_batch(
        [(timestamp_ms, key, _VALUE.pack(0, coordinator_epoch), ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


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
