"""What a reader knows of a log's leader, and of what it has read, against the log itself (KIP-320, KIP-595).

Both doors ask before they read. What is not told, -1, is not looked at.
"""

from typing import NamedTuple

from muster.storage.broker.broker import Broker
from muster.storage.errors import FencedLeaderEpoch, OffsetOutOfRange, StorageError, UnknownLeaderEpoch

NOT_TOLD = -1


class Divergence(NamedTuple):
    """The reader has records that this log has not: where the last epoch that both know ends (KIP-595)."""

    epoch: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def check_epoch(broker: Broker, topic: str, partition: int, epoch: int) -> StorageError | None:
    """The refusal of a client that knows an older or a newer leader epoch than the log; -1 knows none."""
    if epoch < 0:
        return None
    try:
        ours = broker.log(topic, partition).leader_epoch
    except StorageError as error:
        return error
    where = f"{topic}-{partition} has leader epoch {ours}, the request says {epoch}"
    if epoch < ours:
        return FencedLeaderEpoch(f"{where}. Look the leader up again.")
    if epoch > ours:
        return UnknownLeaderEpoch(f"{where}. Try again later.")
    return None


def check_history(
    broker: Broker, topic: str, partition: int, fetch_offset: int, last_epoch: int
) -> StorageError | Divergence | None:
    """Where the reader's log parts from this one, by the epoch of the last record that it has; None if nowhere."""
    try:
        log = broker.log(topic, partition)
    except StorageError as error:
        return error
    if not log.epochs.entries and last_epoch == log.leader_epoch:  # nothing was written yet
        common, end = last_epoch, log.end_offset
    else:
        common, end = log.epochs.end_offset(last_epoch, log.end_offset)
    if common < 0:
        return OffsetOutOfRange(
            f"{topic}-{partition} does not know leader epoch {last_epoch}; its own is {log.leader_epoch}. Begin anew."
        )
    if common == last_epoch and end >= fetch_offset:
        return None
    return Divergence(common, end, log.high_watermark, log.last_stable_offset, log.start_offset)
