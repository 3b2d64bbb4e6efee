"""Copies of segments that several processes read say what one process reads of them."""

import asyncio
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from muster.coordinator.core.model.records import (
    GroupDeleted,
    GroupStored,
    MemberRecord,
    RebalanceDecided,
    Record,
)
from muster.coordinator.watch import segment_workers
from muster.coordinator.watch.segment_files import SegmentFile, find_segments, read_segment
from muster.coordinator.watch.segment_workers import (
    FRAME,
    MAX_FRAME_BYTES,
    NewestFacts,
    SegmentNews,
    SegmentWork,
    WorkerFailed,
    read_by_worker,
    read_news,
    read_work,
    share_segments,
)
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.coordinator.watch.watched_positions import WatchedPositions
from tests.support.watched_batches import NOW_MS, batch, committed, facts

MEMBER = MemberRecord("m1", None, "c", "/h", 60_000, 10_000, b"", b"")


def write_partition(folder: Path, partition: int, generations: int) -> None:
    group = GroupStored(f"g{partition}", "consumer", 1, "range", "m1", NOW_MS, (MEMBER,))
    written = [
        record
        for each in range(1, generations + 1)
        for record in (*facts(replace(group, generation=each)), committed(group.group_id, each % 3, each))
    ]
    written += facts(replace(group, group_id="gone"), GroupDeleted("gone"))
    place = folder / f"__consumer_offsets-{partition}"
    place.mkdir()
    (place / f"{0:020}.log").write_bytes(b"".join(batch([record], at) for at, record in enumerate(written)))


@pytest.fixture
def segments(tmp_path: Path) -> list[SegmentFile]:
    for partition in range(3):
        write_partition(tmp_path, partition, 5 + partition)
    return find_segments((tmp_path,))


def check_what_was_told(told: list[Record]) -> None:
    stored = {fact.group_id: fact.generation for fact in told if isinstance(fact, GroupStored)}
    assert stored == {"g0": 5, "g1": 6, "g2": 7}
    assert len([fact for fact in told if isinstance(fact, GroupStored)]) == 3
    decided = [(fact.group_id, fact.entry.generation) for fact in told if isinstance(fact, RebalanceDecided)]
    assert sorted(decided) == [("g0", 3), ("g0", 4), ("g0", 5), ("g1", 4), ("g1", 5), ("g1", 6), *last_of_g2()]


def last_of_g2() -> list[tuple[str, int]]:
    return [("g2", 5), ("g2", 6), ("g2", 7)]


def test_a_worker_tells_of_a_group_what_is_known_last_and_as_many_rebalances_as_are_kept(
    segments: list[SegmentFile],
) -> None:
    news = list(read_work(SegmentWork(tuple(segments), None, 3)))
    check_what_was_told([fact for each in news for fact in each.facts])
    assert sum(each.read for each in news) == sum(each.size for each in segments)


def test_a_process_sends_it(segments: list[SegmentFile]) -> None:
    heard: list[SegmentNews] = []

    async def take(news: SegmentNews) -> None:
        heard.append(news)

    asyncio.run(read_by_worker(SegmentWork(tuple(segments), None, 3), take))
    check_what_was_told([fact for each in heard for fact in each.facts])
    assert {each.partition: each.records for each in heard if each.records is not None} == {0: 12, 1: 14, 2: 16}
    assert Counter(each.partition for each in heard for _ in each.positions) == {0: 3, 1: 3, 2: 3}
    assert {each.partition for each in heard} == {0, 1, 2}


def test_positions_that_a_process_sends_are_as_it_read_them(
    segments: list[SegmentFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_workers, "POSITIONS_AT_ONCE", 2)
    of_first = tuple(each for each in segments if each.partition == 0)
    read = WatchedPartition(NewestFacts(3), {})
    for segment in of_first:
        list(read_segment(segment, read))
    parts = [each.positions for each in read_work(SegmentWork(of_first, None, 3)) if each.positions]
    assert [len(part) for part in parts] == [2, 1]
    adopted = WatchedPositions()
    for part in pickle.loads(pickle.dumps(parts)):
        for position in part:
            adopted.adopt(position)
    assert list(adopted.copies()) == list(read.positions.copies())
    assert [adopted.trail_of(row) for row in adopted.rows.values()] == [
        read.positions.trail_of(row) for row in read.positions.rows.values()
    ]
    assert adopted.take(9) == read.positions.take(9)


def test_a_process_that_fails_is_told(segments: list[SegmentFile]) -> None:
    gone = replace(segments[0], path=segments[0].path.with_name("gone.log"))
    with pytest.raises(WorkerFailed, match="ended with 1"):
        asyncio.run(read_by_worker(SegmentWork((gone,), None, 3), AsyncMock()))


@pytest.mark.parametrize(
    ("sent", "said"), [(FRAME.pack(MAX_FRAME_BYTES + 1), "more than"), (FRAME.pack(10) + b"x", "in the middle")]
)
def test_what_no_worker_sends_is_refused(sent: bytes, said: str) -> None:
    async def read() -> None:
        stream = asyncio.StreamReader()
        stream.feed_data(sent)
        stream.feed_eof()
        await read_news(stream)

    with pytest.raises(WorkerFailed, match=said):
        asyncio.run(read())


def test_partitions_are_shared_out_whole_and_evenly(
    segments: list[SegmentFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert share_segments(segments, 2) == []
    monkeypatch.setattr(segment_workers, "LEAST_BYTES", 1)
    assert share_segments(segments, 1) == []
    assert share_segments(segments[:1], 4) == []
    some = [
        replace(segments[0], partition=partition, size=size) for partition, size in ((0, 9), (1, 4), (1, 4), (2, 2))
    ]
    first, second = share_segments(some, 2)
    assert [each.partition for each in first] == [0]
    assert [each.partition for each in second] == [2, 1, 1], "small ones are known soon"
    assert len(share_segments(segments, 64)) == 3
