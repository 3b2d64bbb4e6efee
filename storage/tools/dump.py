"""What lies in a log file, batch by batch, as plain dicts ready for JSON. Reads only."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from muster.storage.compression import CODECS
from muster.storage.errors import CorruptMessage, StorageError
from muster.storage.files import File, Files, RealFiles
from muster.storage.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    SMALLEST_RECORD,
    BatchView,
    decode_batch,
    read_message,
    read_varint,
    record_bytes,
    unwrap_message,
    view_at,
)
from muster.storage.records.markers import ABORT, COMMIT
from muster.storage.types import Record

# Longer keys and values are shown by length, digest and beginning.
_WHOLE_BYTES = 4096
_HEAD_BYTES = 32
_CONTROL_TYPES = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)

Row = dict[str, Any]


def dump_file(path: str, *, records: bool = False, files: Files | None = None) -> Iterator[Row]:
    """One dict per batch, named as in Kafka's header, plus `file`.

    `error` says where the walk cannot go on, `records_error` why a batch's records cannot be read; both are
    damage. OSError when the file cannot be opened.
    """
    file = (files or RealFiles()).open(path, writable=False)
    position, size = 0, file.size()
    try:
        while position < size:
            row, position = _row(file, position, size, records)
            yield {"file": path, **row}
    finally:
        file.close()


def is_damaged(row: Row) -> bool:
    """Whether a row of `dump_file` tells of something wrong."""
    return "error" in row or "records_error" in row or row.get("crc_ok") is False


def _row(file: File, position: int, size: int, records: bool) -> tuple[Row, int]:
    head = file.read(HEADER_SIZE, position)
    left = size - position
    if len(head) <= MAGIC_AT:
        return {"position": position, "error": f"{left} bytes are left, too few for a batch"}, size
    length = int.from_bytes(head[8:12], "big", signed=True) + LENGTH_OVERHEAD
    if length > left:
        return {"position": position, "error": f"a batch claims {length} bytes where {left} are left"}, size
    try:
        data = memoryview(file.read(max(length, 0), position))
        if head[MAGIC_AT] < MAGIC:
            return _legacy_row(data, position, records), position + length
        batch = view_at(data, 0, position)
    except StorageError as error:
        return {"position": position, "error": str(error)}, size
    if batch is None:
        return {"position": position, "error": f"a batch claims {length} bytes, fewer than its header"}, size
    return _batch_row(batch, records), position + length


def _batch_row(batch: BatchView, records: bool) -> Row:
    codec = batch.attributes & CODEC_MASK
    row: Row = {
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "crc": batch.crc,
        "crc_ok": batch.crc_ok,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "next_offset": batch.next_offset,
        "partition_leader_epoch": batch.leader_epoch,
        "timestamp_type": "LogAppendTime" if batch.log_append_time else "CreateTime",
        "max_timestamp": batch.max_timestamp,
        "base_timestamp": batch.base_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "transactional": batch.transactional,
        "control": batch.control,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "count": batch.count,
    }
    if codec < len(CODECS):
        row["compression"] = CODECS[codec]
    else:
        row["compression_error"] = f"codec {codec} is unknown"
    try:
        found = decode_batch(batch)
    except StorageError as error:
        found = _before_the_error(batch) if records else []
        row["records_error"] = str(error)
    if records:
        row["records"] = [
            _record_row(record, size, batch)
            for record, size in zip(found, _record_sizes(batch, len(found)), strict=True)
        ]
    return row


def _before_the_error(batch: BatchView) -> list[Record]:
    """The records in front of the one that cannot be read."""
    try:
        data = record_bytes(batch)
    except StorageError:
        return []
    plain = batch._replace(attributes=batch.attributes & ~CODEC_MASK)

    def leading(count: int) -> list[Record] | None:
        size = sum(_record_sizes(batch, count)) if count else 0
        try:
            return decode_batch(plain._replace(count=count, data=memoryview(bytes(HEADER_SIZE) + data[:size])))
        except StorageError:
            return None

    # Whatever number the header claims.
    most = min(batch.count, len(data) // SMALLEST_RECORD)
    good = bisect_left(range(1, most + 1), 1, key=lambda count: int(leading(count) is None))
    return leading(good) or []


def _record_sizes(batch: BatchView, count: int) -> Iterator[int]:
    """The bytes of the first `count` records, their length fields included."""
    if not count:
        return
    data, at = record_bytes(batch), 0
    for _ in range(count):
        try:
            length, start = read_varint(data, at)
        except (IndexError, CorruptMessage):
            return
        yield start + length - at
        at = start + max(length, 0)


def _record_row(record: Record, size: int, batch: BatchView) -> Row:
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = (batch.base_sequence + record.offset - batch.base_offset) & 0x7FFFFFFF
    row: Row = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "sequence": sequence,
        "size": size,
        "key": bytes_as_text(record.key),
        "value": bytes_as_text(record.value),
        "headers": [[name, bytes_as_text(value)] for name, value in record.headers],
    }
    if batch.control and record.key is not None and len(record.key) >= 4:
        kind = int.from_bytes(record.key[2:4], "big")
        row["control_type"] = _CONTROL_TYPES[kind] if kind < len(_CONTROL_TYPES) else "UNKNOWN"
        if kind in (ABORT, COMMIT) and record.value and len(record.value) >= 6:
            row["coordinator_epoch"] = int.from_bytes(record.value[2:6], "big", signed=True)
    return row


def _legacy_row(data: memoryview, position: int, records: bool) -> Row:
    message = read_message(data, 0)
    if message is None:
        return {"position": position, "error": "a message ends too early"}
    offset, size, magic, attributes, timestamp, _, _ = message
    codec = attributes & CODEC_MASK
    stamped = "LogAppendTime" if attributes & LOG_APPEND_TIME_BIT else "CreateTime"
    row: Row = {
        "position": position,
        "size": size,
        "magic": magic,
        "crc": int.from_bytes(data[12:16], "big"),
        "crc_ok": True,
        "last_offset": offset,
        "next_offset": offset + 1,
        "partition_leader_epoch": -1,
        "compression": CODECS[codec] if codec < len(CODECS) else "unknown",
        "timestamp_type": stamped if magic else "NoTimestampType",
        "max_timestamp": timestamp,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "transactional": False,
        "control": False,
        "delete_horizon_ms": None,
        "count": None,
    }
    try:
        found = unwrap_message(message)
    except StorageError as error:
        return {**row, "records_error": str(error)}
    row["base_offset"] = found[0].offset
    if records:
        row["records"] = [_legacy_record_row(record, magic) for record in found]
    return row


def _legacy_record_row(record: Record, magic: int) -> Row:
    head = 34 if magic else 26
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "sequence": -1,
        "size": head + len(record.key or b"") + len(record.value or b""),
        "key": bytes_as_text(record.key),
        "value": bytes_as_text(record.value),
        "headers": [],
    }


def bytes_as_text(value: bytes | None) -> Any:
    """Hexadecimal digits; long ones as length, SHA-256 and beginning."""
    if value is None:
        return None
    if len(value) > _WHOLE_BYTES:
        digest = hashlib.sha256(value).hexdigest()
        return {"len": len(value), "sha256": digest, "head": value[:_HEAD_BYTES].hex()}
    return value.hex()
