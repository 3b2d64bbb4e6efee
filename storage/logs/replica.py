"""A log of a cluster: what its leader does before the first append, and how a follower takes what it is sent.

Which node leads, which follow and how far records are committed is decided elsewhere; a log of a node by itself needs
none of this. The leader has judged what producers sent, so a follower looks for damage only: frame, checksum, offsets,
epochs. Every checksum is verified once, here.
"""

from collections.abc import Iterator

from crc32c import crc32c

from muster.storage.errors import CorruptMessage, FencedLeaderEpoch, StorageError, UnexpectedAppendOffset
from muster.storage.files import Buffer
from muster.storage.logs.log import Log
from muster.storage.logs.log_files import restart_empty_at
from muster.storage.logs.log_reads import fetch_to_end, report_damage
from muster.storage.logs.stamp import keep_stamps
from muster.storage.logs.transactions import PendingGuards
from muster.storage.records.batch import ATTRIBUTES_AT, HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from muster.storage.records.scan import BatchHead, find_head_fault, read_head
from muster.storage.types import Appended, AppendOrigin, Fetched

# What a leader sends
# -------------------

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


# Leading and following
# ---------------------

_MOST_OFFSETS = 0x7FFFFFFF
"""Of a segment, and so of one write."""


def start_leading(log: Log, epoch: int) -> None:
    """Number records under this epoch from now on.

    That it begins at the log's end is known once this returns, be there ever a record of it or not: followers with
    records of a former epoch that reach further are told where that one ended. It is on disk with the first of its
    records that is flushed. The high watermark stays what is known. Guards of an earlier epoch are void: coordinators
    are asked again (TX-L3). FencedLeaderEpoch when a newer epoch has been seen.
    """
    if log.failure:
        raise log.failure
    if epoch < log.leader_epoch:
        raise FencedLeaderEpoch(
            f"Leader epoch {epoch} is older than {log.leader_epoch}, which has written to the log already."
        )
    epochs = log.epochs.copy()
    if epochs.assign(epoch, log.end_offset):
        log.epochs = epochs
    log.leader_epoch = epoch
    log.following = False
    with log.lock:
        log.producers.guards = PendingGuards()


def start_following(log: Log) -> None:
    """Another node leads: what the log begins with is for it to say, and retention its work."""
    log.following = True


def last_leader_epoch(log: Log) -> int:
    """The leader epoch of the last record, be it still there or not; -1 if there never was one.

    An epoch in which nothing was written does not count.
    """
    return log.epochs.at(log.end_offset - 1)


def end_offset_for_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """(epoch, end offset) of the largest epoch not above `epoch`, for a follower to truncate to (KIP-101, KIP-279).

    (-1, -1) when that cannot be said.
    """
    return log.epochs.end_offset(epoch, log.end_offset)


def fetch_as_replica(log: Log, offset: int, max_bytes: int, *, min_one: bool = True) -> Fetched:
    """Batches for a follower: as `Log.fetch` gives them, yet up to the log's end."""
    return report_damage(fetch_to_end, log, offset, max_bytes, min_one)


# -- a follower ---------------------------------------------------------------------------------------------


def append_as_follower(log: Log, batches: Buffer, now_ms: int) -> Appended:
    """Write what the leader answered a fetch from the log's end with: its whole batches, numbered by the leader.

    CorruptMessage when any of it is damaged, UnexpectedAppendOffset when it does not begin at the log's end: nothing is
    written then. A StorageError in the middle leaves a beginning of it. Durable after the next flush.
    """
    if log.failure:
        raise log.failure
    view = memoryview(batches)
    heads = whole_batches(view)
    _check_follows_on(log, heads[0])
    _begin_epochs(log, heads)
    for run in _runs(log, heads):
        first = run[0].base_offset
        if first > log.end_offset and not log.holes:
            # So that within the segment that is written to a missing offset still shows damage.
            log.roll(now_ms, first)
        log.write(keep_stamps(view, run), now_ms, origin=AppendOrigin.REPLICATION)
    log.leader_epoch = max(log.leader_epoch, heads[-1].leader_epoch)
    return Appended(heads[0].base_offset, heads[-1].last_offset, -1, log.start_offset)


def _check_follows_on(log: Log, first: BatchHead) -> None:
    end = log.end_offset
    if first.base_offset < end and first.last_offset >= end == log.start_offset and not log.size:
        # The log's start, told by the leader, lies within this batch: it comes whole or not at all.
        with log.cuts.cutting():
            restart_empty_at(log, first.base_offset)
        return
    before = last_leader_epoch(log)
    if first.base_offset < end or first.leader_epoch < before:
        raise UnexpectedAppendOffset(
            f"A batch from the leader begins at offset {first.base_offset} with leader epoch {first.leader_epoch}; "
            f"expected {end} or more, and epoch {before} or above. Fetch again from the log's end."
        )


def _begin_epochs(log: Log, heads: list[BatchHead]) -> None:
    """Know which epochs begin in these batches, before the batches."""
    latest = log.epochs.latest
    if heads[0].leader_epoch == latest == heads[-1].leader_epoch:
        return
    epochs = log.epochs.copy()
    news = [epochs.assign(head.leader_epoch, head.base_offset) for head in heads]
    if True in news:
        log.epochs = epochs


def _runs(log: Log, heads: list[BatchHead]) -> Iterator[list[BatchHead]]:
    """The batches in portions that one write can take: within one segment, and without a hole where none may be."""
    run: list[BatchHead] = []
    size = 0
    for head in heads:
        if run and (
            size + head.size > log.settings.segment_bytes
            or (head.base_offset > run[-1].last_offset + 1 and not log.holes)
            or head.last_offset - run[0].base_offset >= _MOST_OFFSETS
            or len(run) >= log.most_entries
        ):
            yield run
            run, size = [], 0
        run.append(head)
        size += head.size
    yield run


def advance_start(log: Log, offset: int) -> None:
    """The leader's log begins at `offset` now: give up what lies before. What is below it is committed.

    On disk with the next checkpoint; a start that is older is told anew by the leader.
    """
    if offset > max(log.start_offset, log.end_offset):
        raise StorageError(
            f"The leader's log of {log.partition[0]}-{log.partition[1]} begins at offset {offset}, behind the end "
            f"{log.end_offset} of this one. Begin there anew."
        )
    if log.move_start(offset):
        log.tell_high_watermark(offset)
