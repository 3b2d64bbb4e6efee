"""Walk a file of batches from front to back: headers only, or with every checksum.

Both walks also hold what the checksum does not cover: magic, offsets that follow on, epochs that never fall.
Memory stays flat whatever the size of file or batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from muster.storage.files import File
from muster.storage.records.batch import ATTRIBUTES_AT, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

_CHUNK = 1 << 20
_HEADERS_CHUNK = 64 << 10
_NO_EPOCH = -1


class BatchHead(NamedTuple):
    """A batch's place in the file and the header fields that the log needs."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]
    attributes: int

    @property
    def end(self) -> int:
        return self.position + self.size


class BatchFault(Exception):
    """No intact batch starts at `position`; batches up to there are good."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"byte {position}: {why}")
        self.position = position
        self.why = why


@dataclass(slots=True)
class Order:
    """What the next batch's uncovered fields must agree with; moves on with every batch taken."""

    first_offset: int
    next_offset: int
    gaps: bool = False
    """Whether offsets may be missing, as after compaction."""
    leader_epoch: int = _NO_EPOCH

    def fault(self, fields: tuple[int, ...]) -> str | None:
        """Why a header cannot come next, or None when it can; then it is taken."""
        base_offset, _, epoch, _, _, _, delta = fields[:7]
        if base_offset != self.next_offset and (not self.gaps or base_offset < self.next_offset):
            return f"its base offset is {base_offset}, expected {self.next_offset}{' or more' * self.gaps}"
        if delta < 0 or base_offset + delta - self.first_offset > 0x7FFFFFFF:
            return f"its last offset delta is {delta}, which does not fit the segment"
        if epoch < self.leader_epoch:
            return f"its leader epoch {epoch} is below {self.leader_epoch} of an earlier batch"
        self.leader_epoch = epoch
        self.next_offset = base_offset + delta + 1
        return None


def find_head_fault(fields: tuple[int, ...], left: int) -> str | None:
    """Why these header fields cannot start a batch that ends within `left` bytes."""
    if fields[1] < HEADER_SIZE - LENGTH_OVERHEAD:
        return f"its length is {fields[1]}, expected at least {HEADER_SIZE - LENGTH_OVERHEAD}"
    if fields[3] != MAGIC:
        return f"its magic is {fields[3]}, expected {MAGIC}"
    if fields[1] + LENGTH_OVERHEAD > left:
        return f"it claims {fields[1] + LENGTH_OVERHEAD} bytes where {left} are left"
    return None


def read_head(fields: tuple[int, ...], position: int) -> BatchHead:
    base_offset = fields[0]
    return BatchHead(
        position,
        fields[1] + LENGTH_OVERHEAD,
        base_offset,
        base_offset + fields[6],
        fields[8],
        fields[2],
        fields[9],
        fields[10],
        fields[11],
        fields[12],
        fields[5],
    )


def walk_headers(file: File, start: int, end: int, order: Order | None = None) -> Iterator[BatchHead]:
    """The batches of [start, end) by their headers. Raises BatchFault where they stop making sense."""
    position = start
    chunk = memoryview(b"")
    origin = start
    while position < end:
        at = position - origin
        if at + HEADER_SIZE > len(chunk):
            # Big batches are jumped over with one small read each; small ones come many to a chunk.
            jumped = at > 2 * len(chunk)
            wanted = HEADER_SIZE if jumped else _HEADERS_CHUNK
            chunk = memoryview(file.read(min(wanted, end - position), position))
            origin, at = position, 0
            if len(chunk) < HEADER_SIZE:
                raise BatchFault(position, f"{len(chunk)} bytes are left, too few for a batch")
        fields = HEADER.unpack_from(chunk, at)
        why = find_head_fault(fields, end - position) or (order and order.fault(fields))
        if why:
            raise BatchFault(position, why)
        yield read_head(fields, position)
        position += fields[1] + LENGTH_OVERHEAD


def walk_checked(file: File, start: int, end: int, order: Order) -> Iterator[BatchHead]:
    """The batches of [start, end), each with its checksum checked. Raises BatchFault at the first bad one."""
    buffer = memoryview(bytearray(min(_CHUNK, max(end - start, HEADER_SIZE))))
    position = start
    at = filled = 0
    unpack = HEADER.unpack_from
    while position < end:
        if filled - at < HEADER_SIZE:
            filled, at = file.read_into(buffer[: min(len(buffer), end - position)], position), 0
            if filled < HEADER_SIZE:
                raise BatchFault(position, f"{filled} bytes are left, too few for a batch")
        fields = unpack(buffer, at)
        why = find_head_fault(fields, end - position)
        if why:
            raise BatchFault(position, why)
        size = fields[1] + LENGTH_OVERHEAD
        if at + size > filled and at and size <= len(buffer):
            filled, at = file.read_into(buffer[: min(len(buffer), end - position)], position), 0
        if at + size <= filled:
            crc = crc32c(buffer[at + ATTRIBUTES_AT : at + size])
            at += size
        else:
            crc = _long_crc(file, position, size, buffer)
            at = filled = 0
        why = f"its checksum is {fields[4]}, its bytes give {crc}" if crc != fields[4] else order.fault(fields)
        if why:
            raise BatchFault(position, why)
        yield read_head(fields, position)
        position += size


def _long_crc(file: File, position: int, size: int, buffer: memoryview) -> int:
    """The checksum of a batch larger than the buffer."""
    crc = 0
    at = position + ATTRIBUTES_AT
    end = position + size
    while at < end:
        filled = file.read_into(buffer[: min(len(buffer), end - at)], at)
        if not filled:
            return -1
        crc = crc32c(buffer[:filled], crc)
        at += filled
    return crc


def check_view(view: memoryview, position: int, order: Order) -> tuple[int, BatchFault | None]:
    """Check the whole batches in `view`, which lies at `position`: where the last good one ends, and why there."""
    at = 0
    while at + HEADER_SIZE <= len(view):
        fields = HEADER.unpack_from(view, at)
        why = find_head_fault(fields, 1 << 62)
        if why:
            return position + at, BatchFault(position + at, why)
        size = fields[1] + LENGTH_OVERHEAD
        if at + size > len(view):
            break
        crc = crc32c(view[at + ATTRIBUTES_AT : at + size])
        why = f"its checksum is {fields[4]}, its bytes give {crc}" if crc != fields[4] else order.fault(fields)
        if why:
            return position + at, BatchFault(position + at, why)
        at += size
    return position + at, None
