"""Ends of logs that are led elsewhere: who is asked, how often, and what is told meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.assignors.api import TopicPartition
from muster.coordinator.replication.io import remote_log_ends
from muster.coordinator.replication.io.remote_log_ends import EARLIEST, LATEST, LogEndCache, LogSpan, RemoteLogEnds
from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID
from muster.storage.errors import NotKnownYet, UnknownTopicOrPartition
from tests.fakes.memory_files import MemoryFiles
from tests.support.cluster_image import ALL, ME, ThreeNodes, led
from tests.support.turns import turns_of_others
from tests.unit.storage.logs import T0, batch, open_broker

HERE, THERE, ALSO = ("t", 0), ("t", 1), ("u", 4)


def leader_of(place: TopicPartition) -> int:
    return {THERE: 8, ALSO: 9}.get(place, NO_NODE_ID)


def told(cache: LogEndCache, place: TopicPartition, span: LogSpan, now_ms: int) -> None:
    cache.store_offsets(EARLIEST, {place: span.start}, now_ms)
    cache.store_offsets(LATEST, {place: span.end}, now_ms)


def test_what_is_asked_about_is_asked_for_of_its_leader_and_told_from_then_on() -> None:
    cache = LogEndCache()
    assert cache.request_span(THERE, 0) is None
    assert cache.request_span(ALSO, 0) is None
    assert cache.request_span(("nobody's", 0), 0) is None
    due = cache.due(leader_of, 1)
    assert due == {8: ([THERE], [THERE]), 9: ([ALSO], [ALSO])}
    told(cache, THERE, LogSpan(3, 70), 2)
    assert cache.request_span(THERE, 3) == LogSpan(3, 70)
    assert cache.request_span(ALSO, 3) is None


def test_ends_are_asked_for_again_and_again_and_starts_now_and_then() -> None:
    cache = LogEndCache()
    cache.request_span(THERE, 0)
    told(cache, THERE, LogSpan(3, 70), 0)
    assert cache.due(leader_of, remote_log_ends.PERIOD_MS) == {8: ([THERE], [])}
    assert cache.due(leader_of, remote_log_ends.STARTS_EVERY_MS) == {8: ([THERE], [THERE])}
    cache.request_span(ALSO, 0)
    assert cache.due(leader_of, 1, everything=False) == {9: ([ALSO], [ALSO])}, "only what is not known is asked sooner"


def test_an_old_answer_is_none_and_what_nobody_asks_about_is_forgotten() -> None:
    cache = LogEndCache()
    cache.request_span(THERE, 0)
    told(cache, THERE, LogSpan(3, 70), 0)
    assert cache.request_span(THERE, remote_log_ends.STALE_MS - 1) == LogSpan(3, 70)
    assert cache.request_span(THERE, remote_log_ends.STALE_MS) is None
    assert cache.due(leader_of, remote_log_ends.STALE_MS + remote_log_ends.FORGET_MS - 1)
    assert not cache.due(leader_of, remote_log_ends.STALE_MS + remote_log_ends.FORGET_MS)
    assert not cache
    told(
        cache, THERE, LogSpan(3, 70), remote_log_ends.STALE_MS + remote_log_ends.FORGET_MS
    )  # An answer that comes after that.
    assert not cache


def test_so_many_are_kept_and_very_many_are_asked_for_less_often() -> None:
    cache = LogEndCache(most=3)
    for number in range(5):
        cache.request_span(("t", number), 0)
    assert len(cache) == 3
    assert cache.period_ms == remote_log_ends.PERIOD_MS
    many = LogEndCache()
    for number in range(3 * remote_log_ends.A_SECOND):
        many.request_span(("t", number), 0)
    assert many.period_ms == 3_000


def test_a_start_never_lies_behind_the_end_of_a_moment_before() -> None:
    cache = LogEndCache()
    cache.request_span(THERE, 0)
    told(cache, THERE, LogSpan(80, 70), 0)
    assert cache.request_span(THERE, 0) == LogSpan(70, 70)


class Leaders:
    """Answer what they are told to; `None`: not in time."""

    def __init__(self) -> None:
        self.spans: dict[TopicPartition, LogSpan] = {}
        self.away: set[int] = set()
        self.asked: list[tuple[int, int, int]] = []
        """(node, timestamp, partitions)"""

    async def __call__(
        self, node: int, places: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, int]:
        self.asked.append((node, timestamp, len(places)))
        await asyncio.sleep(0)
        if node in self.away:
            return {}
        return {
            place: self.spans[place].start if timestamp == EARLIEST else self.spans[place].end
            for place in places
            if place in self.spans
        }


def play(
    story: Callable[[RemoteLogEnds, Leaders], Awaitable[None]], leader: Callable[[TopicPartition], int] = leader_of
) -> None:
    async def run() -> None:
        leaders, failures, now_ms = Leaders(), list[BaseException](), 0

        def clock() -> int:
            nonlocal now_ms
            now_ms += 1
            return now_ms

        elsewhere = RemoteLogEnds(leader, leaders, clock, failures.append, soon_s=0, patience_s=5)
        elsewhere.start()
        try:
            async with asyncio.timeout(20):
                await story(elsewhere, leaders)
        finally:
            await elsewhere.stop()
        assert failures == []

    asyncio.run(run())


def test_whoever_waits_hears_what_the_leaders_say() -> None:
    async def story(elsewhere: RemoteLogEnds, leaders: Leaders) -> None:
        leaders.spans = {THERE: LogSpan(3, 70), ALSO: LogSpan(0, 9)}
        assert leaders.asked == [], "nobody asks about anything"
        assert elsewhere.spans([THERE, ALSO]) == [None, None]
        assert elsewhere.untried
        await elsewhere.known()
        assert elsewhere.spans([THERE, ALSO]) == [LogSpan(3, 70), LogSpan(0, 9)]
        assert not elsewhere.untried
        assert sorted(leaders.asked[:4]) == [(8, EARLIEST, 1), (8, LATEST, 1), (9, EARLIEST, 1), (9, LATEST, 1)]

    play(story)


def test_a_leader_that_is_away_holds_up_nobody_else() -> None:
    async def story(elsewhere: RemoteLogEnds, leaders: Leaders) -> None:
        leaders.spans, leaders.away = {THERE: LogSpan(3, 70), ALSO: LogSpan(0, 9)}, {9}
        elsewhere.spans([THERE, ALSO, ("nobody's", 1)])
        await elsewhere.known()
        assert elsewhere.spans([THERE, ALSO]) == [LogSpan(3, 70), None]
        with pytest.raises(NotKnownYet, match="u-4 ends is not known here yet") as refusal:
            elsewhere.span(ALSO)
        leaders.away.clear()
        await asyncio.to_thread(refusal.value.wait)
        assert elsewhere.span(ALSO) == LogSpan(0, 9)

    play(story)


def test_nobody_waits_a_second_time_for_a_leader_that_did_not_answer() -> None:
    async def story(elsewhere: RemoteLogEnds, leaders: Leaders) -> None:
        leaders.away = {9}
        elsewhere.spans([ALSO, ("nobody's", 1)])
        assert elsewhere.untried
        await elsewhere.known()
        assert elsewhere.spans([ALSO, ("nobody's", 1)]) == [None, None]
        assert not elsewhere.untried

    play(story)


def test_what_is_forgotten_is_not_untried_for_good() -> None:
    cache = LogEndCache()
    cache.request_span(THERE, 0)
    assert cache.wanted() == [THERE]
    assert not cache.due(leader_of, remote_log_ends.FORGET_MS)
    assert not cache.untried
    cache.tried([THERE])
    assert not cache.untried
    cache.request_span(THERE, 0)
    cache.tried(cache.wanted())
    assert (cache.wanted(), cache.untried) == ([], False)


def test_of_many_partitions_so_many_are_in_one_question() -> None:
    async def story(elsewhere: RemoteLogEnds, leaders: Leaders) -> None:
        places = [("t", number) for number in range(remote_log_ends.AT_ONCE + 1)]
        leaders.spans = dict.fromkeys(places, LogSpan(0, 1))
        elsewhere.spans(places)
        await elsewhere.known()
        assert set(elsewhere.spans(places)) == {LogSpan(0, 1)}
        assert leaders.asked[:4] == [
            (8, timestamp, count) for timestamp in (EARLIEST, LATEST) for count in (remote_log_ends.AT_ONCE, 1)
        ]

    play(story, lambda place: 8)


def test_many_partitions_are_looked_through_in_slices_and_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_log_ends, "LOOKED_AT_ONCE", 10)

    async def story() -> None:
        elsewhere = RemoteLogEnds(lambda place: 8, Leaders(), lambda: 0, lambda why: None)
        places = [("t", number) for number in range(35)]
        elsewhere.spans(places)
        looked: list[int] = []
        due = elsewhere._cache.due

        def counted(*about: Any, among: Sequence[TopicPartition], **how: Any) -> Any:
            looked.append(len(among))
            return due(*about, among=among, **how)

        monkeypatch.setattr(elsewhere._cache, "due", counted)
        assert await turns_of_others(elsewhere._due(0, everything=True)) >= 2
        assert looked == [10, 10, 10, 5]
        assert await elsewhere._due(0, everything=True) == {8: (places, places)}

    asyncio.run(story())


def test_what_is_forgotten_while_a_round_is_made_is_asked_of_nobody() -> None:
    cache = LogEndCache()
    cache.request_span(THERE, 0)
    places = cache.places()
    assert cache.due(leader_of, remote_log_ends.FORGET_MS, among=places) == {}
    assert cache.due(leader_of, 0, among=places) == {}


def test_a_copy_in_sync_is_measured_here_and_any_other_partition_elsewhere() -> None:
    """Partition 0 has a copy in sync here, 1 one that is not, 2 none at all."""
    cluster = ThreeNodes()
    cluster.topics(t={0: led(8), 1: led(8, isr=[8, 9]), 2: led(9, replicas=[8, 9])})
    disk = open_broker(MemoryFiles())
    disk.create_topic("t", 2)
    disk.append("t", 0, batch(b"a", b"b"), T0)
    disk.flush()
    side = SimpleNamespace(image=cluster.image, replicas=SimpleNamespace(me=ME, led={}))
    side.on_learned = side.on_moved = lambda listener: None
    broker, places = ReplicatedLog(disk, cast(Any, side)), [("t", number) for number in range(3)]
    assert (broker.ends(places), broker.ahead) == ([2, 0, -1], None)
    with pytest.raises(UnknownTopicOrPartition):
        broker.high_watermark("t", 2)

    async def story(elsewhere: RemoteLogEnds, leaders: Leaders) -> None:
        leaders.spans = {("t", 1): LogSpan(3, 70), ("t", 2): LogSpan(5, 9), ("t", 0): LogSpan(100, 100)}
        broker.asks_elsewhere(elsewhere)
        assert broker.ends(places) == [2, -1, -1]
        with pytest.raises(NotKnownYet):
            broker.start_offset("t", 1)
        assert broker.ahead is not None
        await broker.ahead(places)
        assert (broker.starts(places), broker.ends(places)) == ([0, 3, 5], [2, 70, 9])
        assert [(broker.start_offset(*place), broker.high_watermark(*place)) for place in places] == [
            (0, 2),
            (3, 70),
            (5, 9),
        ]

    play(story, lambda place: ALL[1])
    disk.close()
