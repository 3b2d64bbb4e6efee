"""What a log remembers across a restart: its leader epochs and a summary of each segment.

Leader epochs (KIP-101) say which epoch wrote which part of a log: (epoch, start offset), both rising; they lie in
`leader-epoch-checkpoint`. `segments-checkpoint` keeps what a start would otherwise find out by reading the files.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from muster.storage.errors import DataDirectoryError
from muster.storage.files import Files, read_lines, write_lines

# Leader epochs (KIP-101)
# -----------------------

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """The epochs of one log, oldest first. The list is replaced, never changed: any thread may look something up.

    The last entry may start where the log ends: an epoch that was led and in which nothing was written, or not yet.
    """

    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._settle(list(entries))

    def _settle(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records from `start_offset` on are of this epoch; whether that is news. Later claims that conflict go."""
        if epoch < 0 or (self.entries and self.latest == epoch):
            return False
        kept = list(self.entries)
        while kept and (kept[-1][0] > epoch or kept[-1][1] >= start_offset):
            kept.pop()
        if not kept or kept[-1][0] < epoch:
            kept.append((epoch, start_offset))
        self._settle(kept)
        return True

    def copy(self) -> "LeaderEpochs":
        return LeaderEpochs(self.entries)

    def at(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 where that is unknown.

        >>> LeaderEpochs([(0, 0), (2, 10)]).at(9)
        0
        """
        entries = self.entries
        place = bisect_right(entries, offset, key=_start)
        return entries[place - 1][0] if place else -1

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the asked one; (-1, -1) when that is unknown.

        >>> LeaderEpochs([(0, 0), (2, 10)]).end_offset(1, 15)
        (0, 10)
        """
        entries = self.entries
        if not entries or epoch < 0 or epoch > entries[-1][0]:
            return UNDEFINED
        if epoch == entries[-1][0]:
            return epoch, log_end
        place = bisect_right(entries, (epoch, 1 << 62))
        if place == 0:
            return epoch, entries[0][1]
        return entries[place - 1][0], entries[place][1]

    def cut_end(self, end_offset: int) -> bool:
        """Forget what begins at or past the log's new end, as a cut does; whether there was any."""
        return self._keep(bisect_left(self.entries, end_offset, key=_start))

    def cut_past(self, end_offset: int) -> bool:
        """Forget what begins past the log's end, as a start does that finds less; whether there was any."""
        return self._keep(bisect_right(self.entries, end_offset, key=_start))

    def _keep(self, count: int) -> bool:
        if count == len(self.entries):
            return False
        self._settle(self.entries[:count])
        return True

    def cut_start(self, start_offset: int) -> None:
        """The log begins later now: of what lay before, the newest epoch stays, moved up."""
        before = bisect_right(self.entries, start_offset, key=_start)
        if before > 1 or (before and self.entries[0][1] < start_offset):
            self._settle([(self.entries[before - 1][0], start_offset), *self.entries[before:]])


def _start(entry: tuple[int, int]) -> int:
    return entry[1]


# What is written down
# --------------------

SUMMARIES = "segments-checkpoint"
EPOCHS = "leader-epoch-checkpoint"

logger = logging.getLogger("muster.storage")


@dataclass(frozen=True, slots=True)
class Summary:
    """What the log remembers of a segment across a restart: one line of `segments-checkpoint`."""

    base_offset: int
    next_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    index_crc: int
    times_crc: int
    txn_crc: int
    """Checksum of the aborted index; 0 when no transaction of the segment was aborted."""
    snapshot_crc: int
    """Checksum of the producer snapshot at `next_offset`; 0 when no producer was known there."""
    producers: bool

    def to_line(self) -> tuple[str, ...]:
        return tuple(str(int(getattr(self, name))) for name in self.__slots__)

    @classmethod
    def from_line(cls, line: tuple[str, ...]) -> "Summary":
        base, following, size, first, largest, largest_at, *crcs, producers = map(int, line)
        index_crc, times_crc, txn_crc, snapshot_crc = crcs
        return cls(
            base, following, size, first, largest, largest_at,
            index_crc, times_crc, txn_crc, snapshot_crc, producers == 1,
        )  # fmt: skip


_FIELDS = len(Summary.__slots__)


def save_summaries(files: Files, directory: str, summaries: Iterable[Summary], *, sync: bool = True) -> None:
    lines = [summary.to_line() for summary in sorted(summaries, key=lambda summary: summary.base_offset)]
    write_lines(files, f"{directory}/{SUMMARIES}", lines, _FIELDS, sync=sync)


def load_summaries(files: Files, directory: str) -> dict[int, Summary]:
    """What a former process wrote down; nothing when it is missing or damaged, as it can all be had by a scan."""
    try:
        lines = read_lines(files, f"{directory}/{SUMMARIES}", _FIELDS)
    except DataDirectoryError as error:
        logger.warning("%s The segments of %s are scanned instead.", error, directory)
        return {}
    return {summary.base_offset: summary for summary in map(Summary.from_line, lines)}


def save_epochs(files: Files, directory: str, epochs: LeaderEpochs) -> None:
    lines = [(str(epoch), str(start)) for epoch, start in epochs.entries]
    write_lines(files, f"{directory}/{EPOCHS}", lines, 2)


def load_epochs(files: Files, directory: str) -> LeaderEpochs | None:
    """The epochs as written down; None when the file is damaged. Without a file no epoch but 0 was ever seen."""
    try:
        lines = read_lines(files, f"{directory}/{EPOCHS}", 2)
    except DataDirectoryError as error:
        logger.warning("%s The epochs of %s are read from the log instead.", error, directory)
        return None
    return LeaderEpochs((int(epoch), int(start)) for epoch, start in lines)
