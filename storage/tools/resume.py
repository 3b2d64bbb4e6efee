"""Which parts of a file of batches make no sense, and where it makes sense again. Reads only."""

from collections.abc import Iterator
from typing import NamedTuple

from muster.storage.files import File
from muster.storage.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT
from muster.storage.records.scan import BatchFault, BatchHead, Order, find_head_fault, walk_checked

_CHUNK = 1 << 20


class UnreadableGap(NamedTuple):
    """`size` bytes from `position` on that are no batches. Those before it end at `first_offset` (exclusive)."""

    position: int
    size: int
    first_offset: int
    next_offset: int | None
    """Where intact batches go on, in this file or the next; None: nowhere."""
    leader_epoch: int
    """One that a batch in this place may have."""
    why: str


def find_gaps(file: File, order: Order, ends_at: int | None) -> Iterator[UnreadableGap]:
    """The parts of a segment's file that cannot be read; `order` follows, to the file's end.

    `ends_at` is the offset at which the next segment begins, if there is one.
    """
    position, size = 0, file.size()
    while position < size:
        try:
            for head in walk_checked(file, position, size, order):
                position = head.end
        except BatchFault as fault:
            found = find_intact_after(file, fault.position, order, ends_at)
            first_offset, goes_on = order.next_offset, found.base_offset if found else ends_at
            epoch = found.leader_epoch if found and order.leader_epoch < 0 else max(order.leader_epoch, 0)
            position = found.position if found else size
            yield UnreadableGap(fault.position, position - fault.position, first_offset, goes_on, epoch, fault.why)
            if goes_on is not None:
                order.next_offset = goes_on


def find_intact_after(file: File, position: int, order: Order, ends_at: int | None) -> BatchHead | None:
    """The first intact batch behind the damaged one at `position`; None when there is none in this file.

    `order` is where the batches before had come to. A value may have batches in it, as a dump of a log has: so a place
    that the damaged header does not name counts only where another batch, or the file's end, follows on.
    """
    size = file.size()
    header = file.read(HEADER_SIZE, position)
    if len(header) == HEADER_SIZE:
        fields = HEADER.unpack(header)
        named = position + fields[1] + LENGTH_OVERHEAD
        if not find_head_fault(fields, size - position) and (found := _batch_at(file, named, size, order, ends_at)):
            return found
    for at in _magic_bytes(file, position + 1, size):
        found = _batch_at(file, at, size, order, ends_at)
        if found and (found.end == size or _batch_at(file, found.end, size, _behind(order, found), ends_at)):
            return found
    return None


def _behind(order: Order, head: BatchHead) -> Order:
    return Order(order.first_offset, head.last_offset + 1, order.gaps, head.leader_epoch)


def _batch_at(file: File, position: int, size: int, order: Order, ends_at: int | None) -> BatchHead | None:
    """The batch that begins there, if it is whole and may follow."""
    header = file.read(HEADER_SIZE, position)
    if len(header) < HEADER_SIZE or (base := HEADER.unpack(header)[0]) < order.next_offset:
        return None
    own = Order(order.first_offset, base, leader_epoch=order.leader_epoch)
    try:
        head = next(walk_checked(file, position, size, own))
    except BatchFault:
        return None
    return head if ends_at is None or head.last_offset < ends_at else None


def _magic_bytes(file: File, start: int, size: int) -> Iterator[int]:
    """Places at which a header may begin: their magic is right."""
    for origin in range(start + MAGIC_AT, size, _CHUNK):
        chunk = file.read(min(_CHUNK, size - origin), origin)
        at = chunk.find(MAGIC)
        while at >= 0:
            yield origin + at - MAGIC_AT
            at = chunk.find(MAGIC, at + 1)
