"""Offsets, leader epoch and arrival time for the batches of one append, without copying their records."""

import struct
from typing import NamedTuple

from crc32c import crc32c

from muster.storage.files import Buffer
from muster.storage.records.batch import ATTRIBUTES_AT, CONTROL_BIT, HEADER, LOG_APPEND_TIME_BIT, MAGIC_AT, BatchView
from muster.storage.records.markers import TransactionMarker, read_marker
from muster.storage.records.scan import BatchHead, read_head
from muster.storage.records.validation import Fields

OUTSIDE_CRC = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35


class Stamped(NamedTuple):
    """Ready to be written: the buffers in order, their bytes together, and what the log notes of each batch."""

    buffers: list[Buffer]
    size: int
    heads: list[BatchHead]
    next_offset: int
    produced: bool
    """Whether any batch comes from an idempotent producer."""
    given: memoryview | None = None
    """Of a follower: what the leader sent, in which the heads have their positions. Then there is one buffer only."""

    def markers(self) -> dict[BatchHead, TransactionMarker]:
        """What the control batches among them say."""
        if not self.produced:
            return {}
        whole = self.given
        behind = (
            self.buffers[1::2] if whole is None else [whole[head.position + MAGIC_AT : head.end] for head in self.heads]
        )
        return {
            head: marker
            for head, batch in zip(self.heads, behind, strict=True)
            if head.attributes & CONTROL_BIT and (marker := _marker(head, batch))
        }


def _marker(head: BatchHead, behind_magic: Buffer) -> TransactionMarker | None:
    whole = memoryview(bytes(MAGIC_AT) + bytes(behind_magic))
    return read_marker(BatchView._make((*HEADER.unpack_from(whole), head.position, whole)))


def stamp_batches(
    batches: list[tuple[Fields, memoryview]], offset: int, epoch: int, append_time_ms: int = -1
) -> Stamped:
    """Number the batches from `offset`; base offset and epoch lie outside the checksum, so it stays.

    With an append time the largest timestamp changes, and the checksum with it.
    """
    buffers: list[Buffer] = []
    heads: list[BatchHead] = []
    total = 0
    produced = False
    for fields, data in batches:
        size = len(data)
        if append_time_ms >= 0:
            fields, data = _with_append_time(fields, data, append_time_ms)
        buffers.append(OUTSIDE_CRC.pack(offset, fields[1], epoch))
        buffers.append(data[MAGIC_AT:])
        heads.append(read_head((offset, fields[1], epoch, *fields[3:]), total))
        offset += fields[6] + 1
        total += size
        produced = produced or fields[9] >= 0
    return Stamped(buffers, total, heads, offset, produced)


def _with_append_time(fields: Fields, data: memoryview, append_time_ms: int) -> tuple[Fields, memoryview]:
    changed = bytearray(data)
    _ATTRIBUTES.pack_into(changed, ATTRIBUTES_AT, fields[5] | LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(changed, _MAX_TIMESTAMP_AT, append_time_ms)
    crc = crc32c(memoryview(changed)[ATTRIBUTES_AT:])
    _CRC.pack_into(changed, 17, crc)
    marked = (*fields[:4], crc, fields[5] | LOG_APPEND_TIME_BIT, *fields[6:8], append_time_ms, *fields[9:])
    return marked, memoryview(changed)


def keep_stamps(sent: memoryview, heads: list[BatchHead]) -> Stamped:
    """Some of a follower's batches, side by side in what was sent: offsets, epochs and times as the leader set them."""
    first, last = heads[0], heads[-1]
    piece = sent[first.position : last.end]
    produced = any(head.producer_id >= 0 for head in heads)
    return Stamped([piece], len(piece), heads, last.last_offset + 1, produced, sent)
