"""The follower's side of a log: records as the leader numbered them, and finding where the two part ways."""

from muster.storage.disk.files import Buffer
from muster.storage.errors import FencedLeaderEpoch, UnexpectedAppendOffset
from muster.storage.logs.log import Log
from muster.storage.logs.stamp import as_given
from muster.storage.records.validation import split
from muster.storage.types import Appended


def become_leader(log: Log, epoch: int) -> None:
    """Number records under this epoch from now on; FencedLeaderEpoch when a newer one has been seen."""
    if epoch < log.leader_epoch:
        raise FencedLeaderEpoch(
            f"Leader epoch {epoch} is older than {log.leader_epoch}, which has written to the log already."
        )
    log.leader_epoch = epoch
    log.follow(None)


def append_as_follower(log: Log, batches: Buffer, now_ms: int) -> Appended:
    """Write batches with the offsets that the leader gave them.

    UnexpectedAppendOffset when they begin before the log's end. Where the leader's compaction left a hole, a new
    segment begins, so that within the active one every missing offset still shows damage.
    """
    if log.failure:
        raise log.failure
    stamped = as_given(split(memoryview(batches), log.settings, trusted=True, numbered=True))
    expected = log.end_offset
    for head in stamped.heads:
        if head.base_offset < expected or (head.base_offset > expected and head is not stamped.heads[0]):
            raise UnexpectedAppendOffset(
                f"A batch from the leader begins at offset {head.base_offset}; expected {expected}. "
                "Fetch again from the log's end."
            )
        expected = head.last_offset + 1
    first = stamped.heads[0].base_offset
    if first > log.end_offset:
        log.roll(now_ms, first)
    log.write(stamped, now_ms, check=False)
    log.leader_epoch = max(log.leader_epoch, stamped.heads[-1].leader_epoch)
    return Appended(first, stamped.next_offset - 1, -1, log.start_offset)


def end_offset_for_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """(epoch, end offset) of the largest epoch not above `epoch`, for a follower to truncate to (KIP-101, KIP-279)."""
    return log.epochs.end_offset(epoch, log.end_offset)
