"""A model of one partition's log: records with the epoch they were written in, what of them a loss of power leaves.

It has what `storage` has under the names that the machines of `coordinator.replication.protocol` speak of, and nothing
of files. A kill takes nothing that was written; a loss of power takes what was not flushed, and may leave any part of
that.
"""

from collections.abc import Sequence
from typing import NamedTuple

UNDEFINED = (-1, -1)


class Entry(NamedTuple):
    """A record: the leader epoch of its batch, and what it says."""

    epoch: int
    value: object


class LogModel:
    """records[i] has the offset start + i. kept_end: how far it is flushed. epochs: the checkpoint, (epoch, start
    offset), both rising; it is flushed before the records that it speaks of, and an epoch without records does not
    outlive a process."""

    __slots__ = ("checkpointed_high_watermark", "epochs", "kept_end", "records", "start")

    def __init__(self) -> None:
        self.start = 0
        self.records: list[Entry] = []
        self.kept_end = 0
        self.epochs: list[tuple[int, int]] = []
        self.checkpointed_high_watermark = 0

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def last_epoch(self) -> int:
        """Of the last record, -1 in an empty log."""
        return self.records[-1].epoch if self.records else -1

    def become_leader(self, epoch: int) -> None:
        """CL-L1: the checkpoint knows the epoch before anything is appended in it, even if nothing ever is."""
        self._assign(epoch, self.end)

    def append(self, epoch: int, values: Sequence[object]) -> None:
        """As the leader: numbered from the end on."""
        self._assign(epoch, self.end)
        self.records += [Entry(epoch, value) for value in values]

    def append_as_follower(self, at: int, entries: Sequence[Entry]) -> None:
        """As the leader numbered them; they have to begin at the end."""
        assert at == self.end, f"records from {at} on cannot follow {self.end}"
        for offset, entry in enumerate(entries, at):
            self._assign(entry.epoch, offset)
            self.records.append(entry)

    def flush(self) -> int:
        self.kept_end = self.end
        return self.end

    def read(self, offset: int, most: int) -> list[Entry]:
        """Up to the end, whatever is committed."""
        return self.records[offset - self.start : offset - self.start + most]

    def at(self, offset: int) -> Entry | None:
        """None where the log does not have it."""
        return self.records[offset - self.start] if self.start <= offset < self.end else None

    def epoch_at(self, offset: int) -> int:
        return self.records[offset - self.start].epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the asked one; (-1, -1) where that is not known."""
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1][0]:
            return UNDEFINED
        if epoch == self.epochs[-1][0]:
            return epoch, self.end
        if epoch < self.epochs[0][0]:
            return epoch, self.epochs[0][1]
        place = max(i for i, (known, _) in enumerate(self.epochs) if known <= epoch)
        return self.epochs[place][0], self.epochs[place + 1][1]

    def cut(self, end: int) -> None:
        """Nothing is left from `end` on; the cut is flushed."""
        self._lose(end)
        self.kept_end = self.end
        self.checkpointed_high_watermark = min(self.checkpointed_high_watermark, self.end)

    def begin_at(self, offset: int) -> None:
        """Drop all, and begin there."""
        self.records, self.epochs = [], []
        self.start = self.kept_end = self.checkpointed_high_watermark = offset

    def move_start(self, offset: int) -> None:
        """Retention, or DeleteRecords: what lies below goes."""
        offset = min(offset, self.end)
        if offset <= self.start:
            return
        del self.records[: offset - self.start]
        self.start = offset
        self.kept_end = max(self.kept_end, offset)
        before = [entry for entry in self.epochs if entry[1] <= offset]
        if before:
            self.epochs = [(before[-1][0], offset), *self.epochs[len(before) :]]

    def lose_power(self, left: int) -> None:
        """What was not flushed is gone, but for its first `left` records, which happened to reach the disk."""
        self._lose(min(self.kept_end + left, self.end))
        self.kept_end = self.end
        self.checkpointed_high_watermark = min(self.checkpointed_high_watermark, self.end)

    def forget_empty_epochs(self) -> None:
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    def _assign(self, epoch: int, offset: int) -> None:
        """Records from the offset on are of this epoch. Of a later epoch nothing was written, then; of the same one
        something was, where it is known to have begun before."""
        if self.epochs and self.epochs[-1][0] == epoch:
            return
        self.epochs = [entry for entry in self.epochs if entry[0] <= epoch and entry[1] < offset]
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, offset))

    def _lose(self, end: int) -> None:
        del self.records[max(0, end - self.start) :]
        self.kept_end = min(self.kept_end, self.end)
        self.forget_empty_epochs()
