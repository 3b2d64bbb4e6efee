"""A consumer's state of each partition that it owns: positions, leader epochs, and records that wait to be handed
over.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from muster.client.types import Message, TopicPartition
from muster.storage.errors import CorruptMessage
from muster.storage.records.batch import read_batches
from muster.storage.types import Record

UNKNOWN_EPOCH: Final = -1
REMEMBERED_EPOCHS: Final = 32


@dataclass(slots=True)
class FetchedChunk:
    """Fetched bytes, decoded piece by piece. `next_offset` is where to go on once they are used up; `decoded_to` is
    the offset after the last record that was decoded."""

    records: Iterator[Record]
    next_offset: int
    size: int
    decoded_to: int


@dataclass(slots=True)
class LeaderEpochHistory:
    """Under which leader epochs the records before an offset were written, as far as they were read."""

    _since: list[int] = field(default_factory=list)
    _epochs: list[int] = field(default_factory=list)
    _end: int = 0
    """Nothing was read from here on."""

    def before(self, offset: int) -> int:
        """The epoch of the record before this offset; UNKNOWN_EPOCH where it was not read.

        >>> history = LeaderEpochHistory()
        >>> history.read(10, 12, 3)
        >>> history.read(12, 20, 5)
        >>> [history.before(offset) for offset in (10, 11, 12, 13, 20, 21)]
        [-1, 3, 3, 5, 5, -1]
        """
        if offset > self._end:
            return UNKNOWN_EPOCH
        at = bisect_right(self._since, offset - 1)
        return self._epochs[at - 1] if at else UNKNOWN_EPOCH

    def read(self, offset: int, end: int, epoch: int) -> None:
        """From this offset on, which is above those before, up to `end`."""
        self._end = end
        if epoch >= 0 and (not self._epochs or epoch != self._epochs[-1]):
            self._since.append(offset)
            self._epochs.append(epoch)
            del self._since[:-REMEMBERED_EPOCHS], self._epochs[:-REMEMBERED_EPOCHS]

    def restart_at(self, offset: int, epoch: int) -> None:
        """Nothing was read but the record before this offset, under this epoch."""
        self._since, self._epochs = ([offset - 1], [epoch]) if epoch >= 0 else ([], [])
        self._end = offset


@dataclass(slots=True, eq=False)
class ConsumedPartition:
    """Where one owned partition stands. `epoch` changes whenever records fetched before are void."""

    tp: TopicPartition
    position: int | None = None
    fetch_offset: int | None = None
    stored: int | None = None
    committed: int | None = None
    paused: bool = False
    revoking: bool = False
    stuck: bool = False
    """Reading on would fail again, and the application has been told; it has to seek."""
    reset: bool = False
    """The log does not hold the committed offset: go where auto.offset.reset says instead."""
    epoch: int = 0
    chunk: FetchedChunk | None = None
    high_watermark: int = -1
    log_start: int = -1
    history: LeaderEpochHistory | None = None
    """Of leader epochs; None where one node has everything, and nobody asks."""

    def move_to(self, offset: int | None) -> None:
        """Read from here on next; None asks for the committed or reset position again."""
        if self.history is not None:
            self.begin_history(offset, self.history.before(offset) if offset is not None else UNKNOWN_EPOCH)
        self.position = self.fetch_offset = offset
        self.chunk = None
        self.stuck = False
        self.epoch += 1

    def pass_over(self, offset: int, *, also_stored: bool) -> None:
        """Go on to this offset, before which there is no record for this reader. `also_stored`: that counts as done."""
        if also_stored and self.stored is not None and self.stored == self.position:
            self.stored = offset
        self.position = offset

    def begin_history(self, offset: int | None, leader_epoch: int) -> None:
        """Nothing is known of the records before but the epoch of the last."""
        self.history = LeaderEpochHistory()
        if offset is not None:
            self.history.restart_at(offset, leader_epoch)

    def epoch_before(self, offset: int) -> int:
        return UNKNOWN_EPOCH if self.history is None else self.history.before(offset)

    @property
    def fetchable(self) -> bool:
        return self.fetch_offset is not None and self.chunk is None and not (self.paused or self.revoking or self.stuck)


class ReadyRecord(NamedTuple):
    """A record on its way to the application, void when the partition moved to another epoch.

    Without a message: offsets up to `next_offset` that hold no record for this reader.
    """

    state: ConsumedPartition
    epoch: int
    message: Message | None
    next_offset: int = -1


def find_batch_end(data: memoryview, offset: int, history: LeaderEpochHistory | None = None) -> int:
    """The offset after the last whole batch: records may be missing at its end (compaction), it still counts."""
    end = offset
    try:
        for batch in read_batches(data):
            if history is not None and batch.next_offset > end:
                history.read(max(batch.base_offset, offset), batch.next_offset, batch.leader_epoch)
            end = max(end, batch.next_offset)
    except CorruptMessage:
        # Decoding will meet the same bytes and say more.
        pass
    return end
