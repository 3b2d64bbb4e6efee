"""What a leader's answer must be before a follower's log takes it: batches as they were when they were written.

The leader has judged what producers sent, so that only damage is looked for here: frame, checksum, offsets, epochs.
Every checksum is looked at once, here.
"""

from crc32c import crc32c

from muster.storage.errors import CorruptMessage
from muster.storage.records.batch import ATTRIBUTES_AT, HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from muster.storage.records.scan import BatchHead, find_head_fault, read_head

_ANY_SIZE = 1 << 62


def whole_batches(view: memoryview) -> list[BatchHead]:
    """The whole batches at the front of an answer; half a one at its end is left out, for fetches cut there.

    CorruptMessage when any of them is damaged, when their order is not that of a log, or when there is none.
    """
    heads: list[BatchHead] = []
    at, total = 0, len(view)
    follows, epoch = -(1 << 63), -1
    while at + HEADER_SIZE <= total:
        fields = HEADER.unpack_from(view, at)
        why = find_head_fault(fields, _ANY_SIZE)
        end = at + fields[1] + LENGTH_OVERHEAD
        if not why and end > total:
            break
        why = why or _fault(fields, view[at:end], follows, epoch)
        if why:
            raise CorruptMessage(f"The leader's answer is damaged at byte {at} of {total}: {why}. Fetch it again.")
        heads.append(read_head(fields, at))
        follows, epoch, at = fields[0] + fields[6] + 1, fields[2], end
    if not heads:
        raise CorruptMessage(f"The leader's answer of {total} bytes holds no whole record batch. Fetch it again.")
    return heads


def _fault(fields: tuple[int, ...], batch: memoryview, follows: int, epoch: int) -> str | None:
    """Why these bytes are no batch that can come behind one that ends before `follows` and is of this epoch."""
    base, delta, count = fields[0], fields[6], fields[12]
    crc = crc32c(batch[ATTRIBUTES_AT:])
    if crc != fields[4]:
        return f"its checksum is {fields[4]}, its bytes give {crc}"
    if base < 0 or base < follows:
        return f"its base offset is {base}, expected {max(follows, 0)} or more"
    # Compaction takes records out of a batch and leaves its range of offsets.
    if not 0 <= count <= delta + 1:
        return f"it claims {count} records and last offset delta {delta}"
    if fields[2] < epoch:
        return f"its leader epoch {fields[2]} is below {epoch} of the batch before"
    return None
