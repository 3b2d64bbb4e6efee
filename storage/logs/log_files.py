"""What a log does to its files: it rolls, cuts and seals segments, and undoes a write that failed.

Whoever changes which segments the log consists of holds `log.reshaping`; a segment that readers may still be at is
replaced, never changed. A log that is not to be trusted (a failed flush, a file that is gone, a write that could not be
undone) is fenced: one sentence, which producers, readers and health checks get alike.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from muster.storage.errors import LogFenced, StorageError
from muster.storage.files import File, Files
from muster.storage.logs.log_metadata import LeaderEpochs, save_epochs, save_summaries
from muster.storage.logs.producer_state import ProducerState, load_producers
from muster.storage.logs.segment import Segment, SegmentList, segment_path
from muster.storage.logs.stamp import Stamped
from muster.storage.records.scan import BatchFault, Order, walk_checked
from muster.storage.settings_text import os_error_remedy

if TYPE_CHECKING:
    from muster.storage.logs.log import Log

logger = logging.getLogger("muster.storage")


def roll_segment(log: "Log", base: int, now_ms: int) -> None:
    """Seal the active segment and begin the next one at `base`; all records so far are durable then.

    That the next segment's file stays in the directory, and what is written down of the last one, is left to
    `finish_roll`, which the next flush does first: nothing in the new segment counts before. A crash without it costs
    the next start a scan of the last segment.
    """
    finish_roll(log)
    log.flush()
    log.check_place()
    sealed = log.segment_list.active
    fresh = Segment(log.files, log.directory, base, log.opened, log.settings.index_interval_bytes)
    fresh.gaps = log.holes
    try:
        owed = write_side_files(log, sealed, sync=False)
        fresh.start(now_ms)
    except OSError as error:
        refusal = StorageError(
            f"Could not begin a new segment in {log.directory}: {error.strerror or error}. The records are not "
            f"in the log; {os_error_remedy(error)}, then send them again."
        )
        log.troubles.refused(log.partition, refusal, error)
        raise refusal from error
    log.owed = owed  # before the new segment can be seen, and flushed
    log.segment_list = SegmentList((*log.segment_list.all, fresh))
    sealed.active = False
    sealed.gaps = log.settings.compacted or base != log.end_offset
    if base != log.end_offset:
        finish_roll(log)  # a follower's log ends where its files say so
    log.end_offset = base
    log.durable_offset = max(log.durable_offset, base)


def finish_roll(log: "Log") -> None:
    """Flush what the last roll wrote besides records: the directory, files beside the sealed segment. Any thread.

    Without the directory nothing in the new segment counts; the files are known by their checksums, and only save time.
    """
    if log.owed is None:
        return
    with log.reshaping:
        owed = log.owed
        if owed is None or log.retired:
            return
        try:
            log.files.sync_dir(log.directory)
        except OSError as error:
            # A second try may be told that all is well, although the entry was lost.
            raise log.fence(f"Could not flush {log.directory}: {error.strerror or error}") from error
        log.owed = None
        try:
            for path in owed:
                sync_if_there(log.files, path)
            save_summaries(log.files, log.directory, log.summaries.values())
        except OSError as error:
            why = StorageError(
                f"Could not flush what is kept beside the segments of {log.directory}: {error.strerror or error}. "
                f"Nothing is lost; {os_error_remedy(error)}, or the next start may have to scan them."
            )
            logger.warning("%s", why)
            log.troubles.refused(log.partition, why, error)


def truncate_active(log: "Log", active: Segment, position: int) -> None:
    """Make `active` the last segment and end it at a batch's start; producers are as they were there.

    A segment of its own takes the place of `active`: who reads that one finds it as it was.
    """
    active.file().truncate(position)
    active.file().sync()
    log.files.sync_dir(log.directory)
    shorter = Segment(log.files, log.directory, active.base_offset, log.opened, log.settings.index_interval_bytes)
    shorter.created_ms, shorter.gaps, shorter.active = active.created_ms, active.gaps, True
    rescan_segment(shorter, position)
    log.opened.forget(active)
    kept = [segment for segment in log.segments if segment.base_offset < active.base_offset]
    kept.append(shorter)
    log.producers = load_producers(kept, log.told_high_watermark)
    log.segment_list = SegmentList(kept)
    log.end_offset = log.durable_offset = shorter.next_offset


def restart_empty_at(log: "Log", offset: int) -> None:
    """Give up every segment and go on with an empty one at `offset`."""
    old = log.segments
    fresh = Segment(log.files, log.directory, offset, log.opened, log.settings.index_interval_bytes)
    fresh.gaps = log.holes
    remove_newest_first(log, old)
    fresh.start(old[-1].created_ms)
    log.files.sync_dir(log.directory)
    log.summaries.clear()
    log.producers = ProducerState()
    log.segment_list = SegmentList([fresh])
    log.end_offset = log.durable_offset = offset


def remove_newest_first(log: "Log", segments: Sequence[Segment]) -> None:
    """Remove the files of segments that readers may still be at, so that a crash leaves no hole in the log."""
    for segment in reversed(segments):
        segment.file()
        segment.pinned = True
        log.files.remove(segment.path())
        log.files.sync_dir(log.directory)
        log.summaries.pop(segment.base_offset, None)
        log.opened.forget(segment)


def save_begun_epochs(log: "Log") -> None:
    """Write down what has begun since the epochs were written last, before records of it count as flushed. Any thread.

    Nobody waits for that to lead or to follow: whoever led an epoch that left no record begins another one at the
    same offset. Where records of it survive a crash that this has not, they say themselves whose they are.
    """
    with log.reshaping:
        if not log.retired and log.epochs is not log.kept_epochs:
            replace_epochs(log, log.epochs)


def replace_epochs(log: "Log", epochs: LeaderEpochs) -> None:
    """Write leader epochs down that are to be the log's; before it is as they say."""
    try:
        save_epochs(log.files, log.directory, epochs)
    except OSError as error:
        refusal = StorageError(
            f"Could not write the leader epochs of {log.directory} down: {error.strerror or error}. Nothing in the "
            f"log was changed; {os_error_remedy(error)}, then try again."
        )
        log.troubles.refused(log.partition, refusal, error)
        raise refusal from error
    log.kept_epochs = epochs


def seal_last_segment(log: "Log", segment: Segment, *, sync: bool = True) -> None:
    """Write down what a restart needs to know of the last segment, all of it flushed.

    Each file is known by its checksum, so without `sync` a crash costs the next start a scan and nothing else.
    """
    write_side_files(log, segment, sync=sync)
    save_summaries(log.files, log.directory, log.summaries.values(), sync=sync)


def write_side_files(log: "Log", segment: Segment, *, sync: bool) -> list[str]:
    """Write the files beside a segment, and note what they are; their paths, some of which may have no file."""
    snapshot = log.producers.snapshot() if log.producers.producers else b""
    if snapshot:
        segment.write_side(".snapshot", snapshot, segment.next_offset, sync=sync)
    log.summaries[segment.base_offset] = segment.seal(crc32c(snapshot) if snapshot else 0, sync=sync)
    beside = [segment.path(suffix) for suffix in (".index", ".timeindex", ".txnindex")]
    return [*beside, segment_path(log.directory, segment.next_offset, ".snapshot")]


def sync_if_there(files: Files, path: str) -> None:
    """Flush a file that retention, a compaction or a truncation may have taken away."""
    try:
        file = files.open(path, writable=False)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def is_segment_full(log: "Log", stamped: Stamped, now_ms: int) -> bool:
    """Whether the batches belong into a new segment, by size, offsets, age or index."""
    active = log.segment_list.active
    if not active.size:
        return False
    if active.size + stamped.size > log.settings.segment_bytes:
        return True
    if stamped.next_offset - active.base_offset > 0x7FFFFFFF:
        return True
    since = active.first_timestamp
    age = stamped.heads[0].max_timestamp - since if since >= 0 else now_ms - active.created_ms
    if age > log.settings.segment_ms:
        return True
    # Room for an entry per batch of this append, so that the index is never full half-way.
    return active.entries + len(stamped.heads) > log.most_entries


def open_active(active: Segment) -> File:
    """The segment's open file. Without a descriptor for it nothing was tried, so the log is as sound as before."""
    try:
        return active.file()
    except OSError as error:
        raise StorageError(
            f"Could not open {active.path()}: {error.strerror or error}. Nothing was written or flushed; where the "
            "system is out of descriptors, raise its limit (ulimit -n) or lower log.max.open.files, then send again."
        ) from error


def undo_failed_write(log: "Log", active: Segment, error: OSError, size: int) -> StorageError:
    """Cut off what may have been written in part of `size` bytes; if even that fails, take no more appends."""
    refusal = StorageError(
        f"Could not write to {active.path()}: {error.strerror or error}. The records are not in the log; "
        f"{os_error_remedy(error)}, then send them again."
    )
    log.troubles.refused(log.partition, refusal, error, size)
    try:
        active.file().truncate(active.size)
    except OSError as again:
        why = again.strerror or again
        log.fence(f"Could not cut what was written in part off {active.path()}: {why}")
    return refusal


def rescan_segment(segment: Segment, size: int, order: Order | None = None) -> BatchFault | None:
    """Note every intact batch of the segment; the fault that ended the walk, if one did.

    Who brings the `order` finds in it what the last batch left there.
    """
    segment.restart()
    order = order or Order(segment.base_offset, segment.base_offset, segment.gaps)
    try:
        for head in walk_checked(segment.file(), 0, size, order):
            segment.note(head.last_offset, head.max_timestamp, head.size)
            segment.producers |= head.producer_id >= 0
    except BatchFault as fault:
        return fault
    return None


# When a log is not to be trusted
# -------------------------------


def fence_log(log: "Log", why: str) -> StorageError:
    """The log takes no more appends; what its producers hear from now on."""
    log.failure = LogFenced(f"{why}. The log takes no appends until the node is restarted and has checked it.")
    logger.error("%s", log.failure)
    log.troubles.fenced(log.partition, log.failure)
    return log.failure


def check_active_file(log: "Log") -> None:
    """Raises LogFenced if the log's file has been removed or replaced."""
    cuts = log.cuts.seen
    active = log.segment_list.active
    if log.failure or open_active(active).is_at(active.path()):
        return
    # Whoever rolls, truncates or removes the log has good reason.
    if active is log.segment_list.active and log.cuts.none_since(cuts) and not log.retired:
        raise fence_log(
            log,
            f"{active.path()} has been removed or replaced while the node uses it: its records are not in the data "
            "directory any more",
        )
