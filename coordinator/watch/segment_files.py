"""Copies of a broker's `__consumer_offsets` segments, read in their order without a broker: a post-mortem's input."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter

from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.long_work import PieceSize
from muster.storage.records.batch import HEADER_SIZE, LENGTH_OVERHEAD

FOLDER = re.compile(r"^__consumer_offsets-(\d+)$")
SEGMENT = re.compile(r"^(\d{20})\.log$")

CHUNK_BYTES = 256 << 10
MAX_BATCH_BYTES = 64 << 20
"""More than any broker takes: a length beyond it is damage."""


class NoSegments(ValueError):
    """There is nothing to read; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """partition: of `__consumer_offsets`; base_offset: that of its first record."""

    path: Path
    partition: int
    base_offset: int
    size: int


def find_segments(paths: tuple[Path, ...]) -> list[SegmentFile]:
    """Segments below these paths, each partition's in order. A path is a file, a partition's folder, or one of such.

    Raises NoSegments.
    """
    files: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise NoSegments(
                f"{path} does not exist; expected a __consumer_offsets-N folder, a data directory or a .log file"
            )
        listed = sorted(path.glob("*.log")) or sorted(path.glob("__consumer_offsets-*/*.log"))
        for file in [path] if path.is_file() else [each for each in listed if SEGMENT.match(each.name)]:
            files[file.resolve()] = file
    if not files:
        named = ", ".join(map(str, paths))
        raise NoSegments(
            f"no segment lies in {named}; expected files such as __consumer_offsets-12/00000000000000000000.log"
        )
    partitions = number_folders({whole.parent for whole in files})
    found = [
        SegmentFile(file, partitions[whole.parent], first_offset(file), file.stat().st_size)
        for whole, file in files.items()
    ]
    return sorted(found, key=lambda each: (each.partition, each.base_offset, str(each.path)))


def number_folders(folders: set[Path]) -> dict[Path, int]:
    """The partition of each: by its name; one that is named otherwise gets a number of its own."""
    numbers = {folder: int(named[1]) for folder in folders if (named := FOLDER.match(folder.name))}
    free = count(max(numbers.values(), default=-1) + 1)
    return numbers | {folder: next(free) for folder in sorted(folders - numbers.keys())}


def first_offset(file: Path) -> int:
    """The base offset that a segment's name or else its first batch tells."""
    if segment := SEGMENT.match(file.name):
        return int(segment[1])
    with file.open("rb") as opened:
        return int.from_bytes(opened.read(8), "big", signed=True)


def read_segment(segment: SegmentFile, into: WatchedPartition, piece: PieceSize | None = None) -> Iterator[int]:
    """Feed one file's batches; yields how many bytes have been taken since. It ends where a batch is cut off.

    piece: how many are taken at once, where others have to have their turns in between."""
    with segment.path.open("rb") as file:
        left, held, missing = segment.size, b"", 0
        while missing <= min(left, MAX_BATCH_BYTES) and (chunk := file.read(max(missing, CHUNK_BYTES))):
            left = max(0, left - len(chunk))
            held += chunk
            at, began_s = 0, perf_counter()
            while taken := into.take_batches(memoryview(held)[at:], sys.maxsize if piece is None else piece.bytes):
                if piece is not None:
                    piece.note(taken, perf_counter() - began_s)
                at += taken
                yield taken
                began_s = perf_counter()
            held = held[at:]
            end = batch_end(held, 0)
            if end is None and len(held) >= HEADER_SIZE:
                break  # from here on nothing was written
            missing = max(0, (end or 0) - len(held))
    yield len(held)
    if any(held):
        into.skip("half a batch, or one that claims more bytes than its segment has, and the rest of that segment")


def batch_end(data: bytes | memoryview, at: int) -> int | None:
    """Where the batch ends that begins there; None: its header is not there as a whole, or nothing was written yet."""
    if len(data) - at < HEADER_SIZE:
        return None
    length = int.from_bytes(data[at + 8 : at + LENGTH_OVERHEAD], "big", signed=True)
    return at + length + LENGTH_OVERHEAD if length > 0 else None
