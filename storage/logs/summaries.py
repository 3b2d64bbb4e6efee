"""`segments-checkpoint`: what a log remembers of its segments across a restart."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from muster.storage.checkpoint import read_lines, write_lines
from muster.storage.errors import DataDirectoryError
from muster.storage.files import Files
from muster.storage.logs.epochs import LeaderEpochs

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
