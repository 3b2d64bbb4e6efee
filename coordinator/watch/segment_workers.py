"""Large copies of segments, read by several processes: each reads whole partitions, and sends what is in them.

A worker gets what it is to read as JSON on its standard input, and sends `SegmentNews`, pickled, on its standard
output. It sends no more than is read of it, and ends when nobody reads any more. Of a group it sends what is known
last, and as many rebalances as a ledger keeps.
"""

import asyncio
import gc
import json
import os
import pickle
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, NamedTuple, TypeVar

from muster.coordinator.core.model.records import (
    GroupDeleted,
    GroupRecord,
    GroupStored,
    RebalanceDecided,
    Record,
    TopicId,
)
from muster.coordinator.core.model.types import RebalanceEntry
from muster.coordinator.watch.segment_files import SegmentFile, read_segment
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.coordinator.watch.watched_positions import PositionRow

T = TypeVar("T")

LEAST_BYTES: Final = 128 << 20
"""What is smaller is read by the node itself, before a worker has started."""

MOST_WORKERS: Final = 8
FACTS_AT_ONCE: Final = 200
POSITIONS_AT_ONCE: Final = 500
"""100,000 in one piece kept the node's loop for 74 ms."""

REPORT_BYTES: Final = 1 << 20
"""So often a worker says how far it is."""

FRAME: Final = Struct(">I")
MAX_FRAME_BYTES: Final = 256 << 20


class SegmentNews(NamedTuple):
    """read: bytes since the last news. facts: of groups of this partition, all of which has been read; likewise
    positions. records: with the last news, how many the partition had."""

    partition: int
    read: int
    facts: tuple[Record, ...] = ()
    positions: tuple[PositionRow, ...] = ()
    records: int | None = None


class WorkerFailed(Exception):
    """A worker ended before it was done; the message says why."""


@dataclass(frozen=True, slots=True)
class SegmentWork:
    """What one worker reads. most_entries: rebalances that a ledger keeps of a group; the others as of a
    WatchedPartition."""

    segments: tuple[SegmentFile, ...]
    since_ms: int | None
    most_entries: int

    def to_json(self) -> str:
        files = [(str(each.path), each.partition, each.base_offset, each.size) for each in self.segments]
        return json.dumps({"segments": files, "since_ms": self.since_ms, "most_entries": self.most_entries})

    @classmethod
    def from_json(cls, text: str) -> "SegmentWork":
        given = json.loads(text)
        files = tuple(SegmentFile(Path(path), *numbers) for path, *numbers in given["segments"])
        return cls(files, given["since_ms"], given["most_entries"])


def share_segments(segments: Sequence[SegmentFile], processors: int) -> list[list[SegmentFile]]:
    """Whole partitions for each of several workers, about as many bytes for one as for another, small ones first: their
    groups are known soon. Empty: they are so few or so small that workers do not pay."""
    sizes: dict[int, int] = {}
    for each in segments:
        sizes[each.partition] = sizes.get(each.partition, 0) + each.size
    count = min(processors, MOST_WORKERS, len(sizes))
    if count < 2 or sum(sizes.values()) < LEAST_BYTES:
        return []
    shares: list[list[list[SegmentFile]]] = [[] for _ in range(count)]
    loads = [0] * count
    for partition in sorted(sizes, key=lambda number: (-sizes[number], number)):
        least = loads.index(min(loads))
        loads[least] += sizes[partition]
        shares[least].append([each for each in segments if each.partition == partition])
    return [[each for partition in reversed(share) for each in partition] for share in shares]


def usable_processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# In the node
# -----------


async def read_by_worker(work: SegmentWork, take: Callable[[SegmentNews], Awaitable[None]]) -> None:
    """Have a process read it; `take` gets its news. Cancelled, it ends the process. Raises WorkerFailed."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster.coordinator.watch.segment_workers",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(work.to_json().encode())
        worker.stdin.close()
        while news := await read_news(worker.stdout):
            await take(news)
            await asyncio.sleep(0)
        if code := await worker.wait():
            raise WorkerFailed(f"a process that read copies of segments ended with {code}; see what it wrote")
    finally:
        if worker.returncode is None:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()


async def read_news(stream: asyncio.StreamReader) -> SegmentNews | None:
    """The next; None: it has sent all. Raises WorkerFailed."""
    try:
        (size,) = FRAME.unpack(await stream.readexactly(FRAME.size))
        if size > MAX_FRAME_BYTES:
            raise WorkerFailed(f"a worker sent {size} bytes at once, more than {MAX_FRAME_BYTES}")
        fields = pickle.loads(await stream.readexactly(size))  # our own child sent it
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise WorkerFailed("a worker ended in the middle of what it sent") from error
        return None
    return SegmentNews(*fields)


# In a worker
# -----------


class NewestFacts:
    """A sink that keeps what matters after all has been read: of a classic group the last record."""

    def __init__(self, most_entries: int) -> None:
        self._most = most_entries
        self._count = 0
        self._facts: dict[str | int, Record] = {}
        """By group, or, where each record counts, by number."""
        self._entries: dict[str, deque[RebalanceEntry]] = {}

    def take_fact(self, fact: GroupRecord) -> None:
        self._count += 1
        key = fact.group_id if isinstance(fact, GroupStored | GroupDeleted) else self._count
        self._facts.pop(key, None)
        self._facts[key] = fact

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        self._entries.setdefault(group_id, deque(maxlen=self._most)).append(entry)

    def facts(self) -> Iterator[Record]:
        yield from self._facts.values()
        for group_id, entries in self._entries.items():
            yield from (RebalanceDecided(group_id, entry) for entry in entries)


def read_work(work: SegmentWork) -> Iterator[SegmentNews]:
    """One partition after the other."""
    names: dict[TopicId, str] = {}
    for partition, segments in groupby(work.segments, key=lambda each: each.partition):
        sink = NewestFacts(work.most_entries)
        watched = WatchedPartition(sink, names, since_ms=work.since_ms)
        read = 0
        for segment in segments:
            for size in read_segment(segment, watched):
                read += size
                if read >= REPORT_BYTES:
                    yield SegmentNews(partition, read)
                    read = 0
        watched.tell_past()
        yield SegmentNews(partition, read)
        for some in batched(sink.facts(), FACTS_AT_ONCE):
            yield SegmentNews(partition, 0, some)
        for rows in batched(watched.positions.copies(), POSITIONS_AT_ONCE):
            yield SegmentNews(partition, 0, (), rows)
        yield SegmentNews(partition, 0, (), (), watched.records)


def batched(given: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    left = iter(given)
    while some := tuple(islice(left, size)):
        yield some


def send_news(news: Iterable[SegmentNews], out: BinaryIO) -> None:
    for each in news:
        data = pickle.dumps(tuple(each), protocol=pickle.HIGHEST_PROTOCOL)
        out.write(FRAME.pack(len(data)) + data)
        out.flush()


def main() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    with suppress(BrokenPipeError, KeyboardInterrupt):  # nobody wants it any more
        send_news(read_work(SegmentWork.from_json(sys.stdin.read())), sys.stdout.buffer)
    os._exit(0)  # without a second attempt at what could not be written


if __name__ == "__main__":
    main()
