"""Copies of a broker's `__consumer_offsets` segments, read in their order without a broker: a post-mortem's input."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.storage.errors import StorageError
from muster.storage.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT, view_at

FOLDER = re.compile(r"^__consumer_offsets-(\d+)$")
SEGMENT = re.compile(r"^(\d{20})\.log$")

CHUNK_BYTES = 256 << 10
MAX_BATCH_BYTES = 256 << 20
"""More than any broker takes: a length beyond it is damage."""


class NoSegments(ValueError):
    """There is nothing to read; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """partition: of `__consumer_offsets`; base_offset: that of its first record, by the file's name."""

    path: Path
    partition: int
    base_offset: int
    size: int


def find_segments(paths: tuple[Path, ...]) -> list[SegmentFile]:
    """Segments below these paths, each partition's in order. A path is a file, a partition's folder, or one of such.

    Raises NoSegments.
    """
    found: dict[Path, SegmentFile] = {}
    for path in paths:
        if not path.exists():
            raise NoSegments(
                f"{path} does not exist; expected a __consumer_offsets-N folder, a data directory or a .log file"
            )
        files = (
            [path] if path.is_file() else sorted(path.glob("*.log")) or sorted(path.glob("__consumer_offsets-*/*.log"))
        )
        for file in files:
            segment, folder = SEGMENT.match(file.name), FOLDER.match(file.resolve().parent.name)
            if segment is None and path != file:
                continue
            base_offset = int(segment[1]) if segment else 0
            found[file.resolve()] = SegmentFile(file, int(folder[1]) if folder else 0, base_offset, file.stat().st_size)
    if not found:
        named = ", ".join(map(str, paths))
        raise NoSegments(
            f"no segment lies in {named}; expected files such as __consumer_offsets-12/00000000000000000000.log"
        )
    return sorted(found.values(), key=lambda each: (each.partition, each.base_offset, str(each.path)))


def read_segment(segment: SegmentFile, into: WatchedPartition) -> Iterator[int]:
    """Feed one file's batches; yields how many bytes have been read since. It ends where a batch is cut off."""
    with segment.path.open("rb") as file:
        held = b""
        while chunk := file.read(CHUNK_BYTES):
            data = memoryview(held + chunk)
            at = 0
            while (end := batch_end(data, at)) is not None and end <= len(data):
                if data[at + MAGIC_AT] != MAGIC:
                    into.skipped["batch of a format before version 2"] += 1
                else:
                    try:
                        batch = view_at(data, at, at)
                    except StorageError as error:
                        into.skipped[f"damaged batch: {error}"] += 1
                        batch = None
                    if batch is not None:
                        into.take_batch(batch)
                at = end
            held = bytes(data[at:])
            yield len(chunk)
            if end is not None and end - at > MAX_BATCH_BYTES:
                into.skipped[f"{segment.path.name}: a batch that claims {end - at} bytes; the rest is not read"] += 1
                return
        if any(held):
            into.skipped[f"{segment.path.name}: half a batch at its end"] += 1


def batch_end(data: memoryview, at: int) -> int | None:
    """Where the batch ends that begins there; None: its header is not there as a whole, or nothing was written yet."""
    if len(data) - at < HEADER_SIZE:
        return None
    length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    return at + length + LENGTH_OVERHEAD if length > 0 else None
