"""How often positions are committed and where they stood over time: counted, sampled, bounded."""

import asyncio
from collections.abc import Iterable

import pytest

from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.observability.read_model.commit_history import CommitHistory, count_commits
from muster.coordinator.observability.read_model.group_mapper import map_commits
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.record_fields import plain_string
from muster.coordinator.watch.watched_commits import WatchedCommits
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.coordinator.watch.watched_positions import (
    SAMPLES,
    PositionSamples,
    WatchedPositions,
    row_of,
)
from tests.support.watched_batches import NOW_MS, Heard, batch, committed, position_key, position_value


def read(records: Iterable[bytes]) -> WatchedPartition:
    watched = WatchedPartition(Heard(), {})
    for each in records:
        assert watched.take_batches(each) == len(each)
    return watched


def commits_of(watched: dict[int, WatchedPartition], group: str, places: Iterable[int], count: int) -> CommitHistory:
    """As a node answers for these partitions of `t`."""
    answer = pb.OffsetFetchResponse()
    topic = answer.topics.add(name="t")
    taken = {
        (of, number): stored
        for each in watched.values()
        for of, _, number, stored in each.take_positions(10**9)
        if stored is not None
    }
    for place in places:
        stored = taken[group, place]
        topic.partitions.add(
            partition_index=place, committed_offset=stored.offset, commit_timestamp_ms=stored.commit_timestamp_ms
        )
    asyncio.run(WatchedCommits(lambda: watched, lambda: count).add_to(answer, group))
    return map_commits(answer)


def test_commits_are_counted_and_sampled_over_the_whole_time() -> None:
    """A group that commits each of 20 records a second, of each of two partitions, for five minutes."""
    stream = [
        batch([committed("g", place, tick, NOW_MS + tick * 50) for place in (0, 1)], 2 * tick) for tick in range(6_000)
    ]
    other = [batch([committed("else", 0, 1, NOW_MS)], 12_000 + number) for number in range(1_000)]
    found = commits_of({7: read([*stream, *other])}, "g", (0, 1), count=50)
    assert found.traffic is not None
    assert found.traffic.rate == pytest.approx(40, rel=0.02)
    assert (found.traffic.kept_in, found.traffic.own, found.traffic.partition_records) == (
        "__consumer_offsets-7",
        12_000,
        13_000,
    )
    assert found.traffic.topic_records == 0, "one of 50 partitions was read"
    for trail in found.trails.values():
        assert 5 <= len(trail.samples) <= SAMPLES + 1
        assert trail.samples[0] == (NOW_MS, 0, 1)
        assert trail.samples[-1] == (NOW_MS + 5_999 * 50, 5_999, 6_000)
        begin, end = trail.at(NOW_MS + 60_000), trail.at(NOW_MS + 240_000)
        assert begin is not None
        assert end is not None
        assert end[0] - begin[0] == pytest.approx(3_600, abs=1)


def test_what_is_plain_and_what_is_not_are_counted_alike() -> None:
    plain, odd = WatchedPositions(), read([])
    value = position_value(StoredOffset(3, 0, "", NOW_MS, None))
    key = position_key("g")
    row = plain.add(key)
    for step in range(5):
        plain.note(key, row, value, NOW_MS + step * 20_000)
    odd.take_batches(batch([committed("g", 0, 3, NOW_MS + step * 20_000, version=2) for step in range(5)]))
    at = row_of(odd.positions, plain_string("g"), ("t", 0))
    assert plain.trail_of(row) == odd.positions.trail_of(at)
    assert plain.trail_of(row)[0] == 5


def test_a_position_that_was_deleted_begins_anew() -> None:
    positions = WatchedPositions()
    row = positions.add(position_key("g"))
    value = position_value(StoredOffset(3, 0, "", NOW_MS, None))
    positions.note(position_key("g"), row, value, NOW_MS)
    positions.delete(position_key("g"))
    assert positions.add(position_key("h")) == row
    assert positions.trail_of(row) == (0, [])


def test_samples_are_bounded_however_long_it_goes_on() -> None:
    samples = PositionSamples(most=2)
    place, _ = samples.begin(), samples.begin()
    assert samples.begin() == -1, "there is no room for a third"
    due_ms = 0
    for at_ms in range(0, 86_400_000, 5_000):
        if at_ms >= due_ms:
            due_ms = samples.take(place, at_ms, at_ms // 10, at_ms // 5_000)
    kept = samples.samples_of(place)
    assert SAMPLES // 2 <= len(kept) <= SAMPLES
    assert kept[0].at_ms == 0
    assert kept[-1].at_ms > 43_200_000, "the newest half of the day is there, too"
    assert all(each.offset == each.at_ms // 10 for each in kept)


def test_a_position_s_samples_take_192_bytes() -> None:
    samples = PositionSamples()
    for _ in range(100):
        samples.begin()
    numbers = samples._numbers
    assert len(numbers) * numbers.itemsize == 100 * SAMPLES * 3 * 8


def test_positions_beyond_the_limit_are_counted_and_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = WatchedPositions()
    monkeypatch.setattr(positions, "_samples", PositionSamples(most=1))
    value = position_value(StoredOffset(3, 0, "", NOW_MS, None))
    for name in ("a", "b"):
        row = positions.add(position_key(name))
        for step in range(3):
            positions.note(position_key(name), row, value, NOW_MS + step * 20_000)
    assert [len(positions.trail_of(row)[1]) for row in (0, 1)] == [3, 0]
    assert [positions.trail_of(row)[0] for row in (0, 1)] == [3, 3]


def test_what_compaction_has_left_of_a_position_does_not_slow_its_rate() -> None:
    """One record of a day ago, and then ten minutes of 10 commits a second."""
    day_ago = batch([committed("g", 0, 0, NOW_MS - 86_400_000)])
    lately = [batch([committed("g", 0, tick, NOW_MS + tick * 100)], 1 + tick) for tick in range(6_000)]
    found = commits_of({0: read([day_ago, *lately])}, "g", (0,), count=1)
    assert found.traffic is not None
    assert found.traffic.rate == pytest.approx(10, rel=0.05)
    assert found.traffic.topic_records == 6_001


def test_nothing_is_counted_of_who_committed_once() -> None:
    assert count_commits([]) == (0, 0, 0)
    found = commits_of({0: read([batch([committed("g")])])}, "g", (0,), count=1)
    assert found.traffic is not None
    assert found.traffic.rate == 0
