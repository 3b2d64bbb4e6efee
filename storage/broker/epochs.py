"""What a reader knows of a log's leader, and of what it has read, against the log itself (KIP-320, KIP-595).

Both doors ask before they read. What is not told, -1, is not looked at.
"""

from typing import NamedTuple

from muster.storage.broker.broker import Broker
from muster.storage.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutsideLog,
    StorageError,
    UnknownLeaderEpoch,
)
from muster.storage.logs.log import Log

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
    otherwise: StorageError | None = None
    try:
        ours = broker.log(topic, partition).leader_epoch
    except NotLeaderOrFollower as error:
        if error.leader_epoch < 0:
            return error
        # As in Kafka: who is behind, the client or this node, counts before who leads.
        ours, otherwise = error.leader_epoch, error
    except StorageError as error:
        return error
    where = f"{topic}-{partition} has leader epoch {ours}, the request says {epoch}"
    if epoch < ours:
        return FencedLeaderEpoch(f"{where}. Look the leader up again.", *broker.leader_of(topic, partition))
    if epoch > ours:
        return UnknownLeaderEpoch(f"{where}. Try again later.")
    return otherwise


def check_history(
    broker: Broker, topic: str, partition: int, fetch_offset: int, last_epoch: int
) -> StorageError | Divergence | None:
    """Where the reader's log parts from this one, by the epoch of the last record that it has; None if nowhere."""
    try:
        log = broker.log(topic, partition)
    except StorageError as error:
        return error
    common, end = end_of_epoch(log, last_epoch)
    if common < 0:
        return OffsetOutsideLog(
            f"{topic}-{partition} does not know leader epoch {last_epoch}; its own is {log.leader_epoch}. Begin anew."
        )
    if common == last_epoch and end >= fetch_offset:
        return None
    return Divergence(common, end, log.high_watermark, log.last_stable_offset, log.start_offset)


def end_of_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """(epoch, end offset) of the largest leader epoch of a log that is not above this one; (-1, -1) if unknown."""
    if not log.epochs.entries and epoch == log.leader_epoch:  # nothing was written yet
        return epoch, log.end_offset
    return log.epochs.end_offset(epoch, log.end_offset)
