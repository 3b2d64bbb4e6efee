"""Rebuild what a log knows of its producers: from the newest snapshot that can be trusted, and the batches after it."""

import logging

from crc32c import crc32c

from muster.storage.errors import CorruptMessage, DataDirectoryError
from muster.storage.files import read_file
from muster.storage.logs.control import read_marker
from muster.storage.logs.producers_state import ProducerState
from muster.storage.logs.segment import Segment, segment_path
from muster.storage.logs.segment_list import read_whole_batch
from muster.storage.logs.txn_index import AbortedEntry, unpack_aborted
from muster.storage.records.batch import CONTROL_BIT
from muster.storage.records.scan import BatchFault, walk_headers

logger = logging.getLogger("muster.storage")


def load_producers(segments: list[Segment]) -> ProducerState:
    """The state at the log's end: from the newest snapshot that can be trusted, and the batches after it."""
    state = ProducerState()
    first = len(segments)
    while first > 0:
        segment = segments[first - 1]
        known = _snapshot_after(segment) if _load_aborted(segment) else None
        if known is not None:
            state = known
            break
        first -= 1
    for segment in segments[first:]:
        if segment.producers:
            replay_producers(segment, state)
    state.undecided.clear()  # All that is in the log now has been flushed.
    return state


def _load_aborted(segment: Segment) -> bool:
    """Take the aborted index over if it is the one that was written; whether that went well."""
    if segment.summary is None:
        return not segment.producers
    if segment.summary.txn_crc:
        data = segment.read_side(".txnindex")
        if crc32c(data) != segment.summary.txn_crc:
            return False
        segment.aborted = unpack_aborted(data)
    return True


def _snapshot_after(segment: Segment) -> ProducerState | None:
    """The producers at the segment's end; None when that takes a replay."""
    if segment.summary is None:
        return None
    if not segment.summary.snapshot_crc:
        return ProducerState()
    path = segment_path(segment.directory, segment.next_offset, ".snapshot")
    try:
        data = read_file(segment.files, path)
        if crc32c(data) == segment.summary.snapshot_crc:
            return ProducerState.restore(data, path)
    except (OSError, DataDirectoryError) as error:
        logger.warning("%s: %s", path, error)
    return None


def replay_producers(segment: Segment, state: ProducerState) -> None:
    """Tell `state` of every batch in the segment, and the segment of the transactions aborted in it."""
    segment.aborted = []
    try:
        for head in walk_headers(segment.file(), 0, segment.size):
            if head.producer_id < 0:
                continue
            marker = read_marker(read_whole_batch(segment, head)) if head.attributes & CONTROL_BIT else None
            done = state.note(head, marker)
            if done and done.aborted:
                segment.aborted.append(AbortedEntry(*done[:3], state.stable_after(done)))
    except (BatchFault, CorruptMessage) as fault:
        # Reading there will say so too; what is known of the producers up to here stays true.
        logger.error("The producers of %s are known in part only: %s", segment.path(), fault)
