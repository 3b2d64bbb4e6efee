"""KB-T5: where logs end, asked of their leaders: how often, how long, and what is told while one does not answer."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from muster.coordinator.kafka_backend.upstream import topic_watch as module
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.topic_watch import (
    FRESH_MS,
    SILENT_MS,
    STARTS_MS,
    UpstreamLogEnds,
    UpstreamTopics,
    partitions_of,
)
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.ports import LastKnownExtent, LogFailed, LogNotReady
from tests.fakes.upstream_broker import HANG_UP, SILENCE, UpstreamBroker
from tests.fakes.upstream_catalog import Told, UpstreamCatalog

PLACES = partitions_of({"orders": 4})
LATEST, EARLIEST = -1, -2


class Scene:
    """Partitions 0 and 2 of `orders` are led by broker 1, the others by 2."""

    def __init__(self, upstream: Upstream, brokers: UpstreamCatalog) -> None:
        self.upstream, self.brokers = upstream, brokers
        self.now = 1_000
        self.topics = UpstreamTopics(upstream, now_ms=lambda: self.now)
        self.ends = UpstreamLogEnds(upstream, self.topics, now_ms=lambda: self.now, patience_ms=10_000)

    def asked(self, broker: int, timestamp: int = LATEST) -> list[list[int]]:
        """The partitions of each question."""
        return [
            [part.partition_index for topic in request.topics for part in topic.partitions]
            for request in self.brokers.brokers[broker].of("ListOffsets")
            if request.topics[0].partitions[0].timestamp == timestamp
        ]

    async def span(self, partition: int) -> tuple[int, int]:
        """As somebody in a thread asks for it."""
        try:
            return self.ends.span("orders", partition)
        except LogNotReady as not_yet:
            await asyncio.to_thread(not_yet.wait)
            return self.ends.span("orders", partition)


def run(story: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with AsyncExitStack() as stack:
            made = {number: await stack.enter_async_context(UpstreamBroker()) for number in (1, 2)}
            told = UpstreamCatalog(made)
            orders = Told(b"orders", 4)
            orders.leaders = [1, 2, 1, 2]
            told.all_know(orders=orders)
            told.ends = {("orders", part): (part, 100 + part) for part in range(4)}
            upstream = Upstream(UpstreamAddress((made[1].address,), connect_s=5, answer_s=30))
            scene = Scene(upstream, told)
            try:
                await scene.topics.refresh_topics()
                await story(scene)
            finally:
                await scene.topics.stop()
                upstream.close()

    asyncio.run(whole())


def test_one_question_for_each_leader_about_all_that_a_plan_wants() -> None:
    async def story(scene: Scene) -> None:
        assert await asyncio.to_thread(scene.ends.measured, PLACES) == [(0, 100), (1, 101), (2, 102), (3, 103)]
        assert (scene.asked(1), scene.asked(2)) == ([[0, 2]], [[1, 3]])
        assert (scene.asked(1, EARLIEST), scene.asked(2, EARLIEST)) == ([[0, 2]], [[1, 3]])

    run(story)


def test_what_was_asked_within_a_second_is_not_asked_again_and_where_logs_begin_seldom() -> None:
    async def story(scene: Scene) -> None:
        await scene.ends.ahead(PLACES)
        scene.now += FRESH_MS
        await scene.ends.ahead(PLACES)
        assert len(scene.asked(1)) == 1
        scene.now += 1
        scene.brokers.ends["orders", 0] = (50, 200)
        await scene.ends.ahead(PLACES)
        assert (len(scene.asked(1)), len(scene.asked(1, EARLIEST))) == (2, 1)
        assert (scene.ends.ends(PLACES), scene.ends.starts(PLACES)) == ([200, 101, 102, 103], [0, 1, 2, 3])
        scene.now += STARTS_MS
        await scene.ends.ahead(PLACES)
        assert scene.ends.starts(PLACES)[0] == 50

    run(story)


def test_who_asks_meanwhile_waits_for_the_same_answer() -> None:
    async def story(scene: Scene) -> None:
        await asyncio.gather(*(scene.ends.ahead(PLACES) for _ in range(5)))
        assert (len(scene.asked(1)), scene.ends.ends(PLACES)) == (1, [100, 101, 102, 103])

    run(story)


def test_t5_a_leader_that_does_not_answer_leaves_its_last_known_ends_and_says_so() -> None:
    async def story(scene: Scene) -> None:
        await scene.ends.ahead(PLACES)
        scene.now += 60_000
        scene.brokers.brokers[2].answers["ListOffsets"] = lambda request: HANG_UP
        scene.brokers.ends["orders", 0] = (0, 500)
        told = await asyncio.to_thread(scene.ends.measured, PLACES)
        assert told == [(0, 500), (1, 101), (2, 102), (3, 103)]
        assert [isinstance(each, LastKnownExtent) for each in told] == [False, True, False, True]
        assert isinstance(await scene.span(1), LastKnownExtent)

    run(story)


def test_t5_a_leader_that_does_not_answer_is_left_alone_for_a_while() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.brokers[2].answers["ListOffsets"] = lambda request: HANG_UP
        await scene.ends.ahead(PLACES)
        for _ in range(3):
            scene.now += FRESH_MS + 1
            await scene.ends.ahead(PLACES)
        assert (len(scene.asked(1)), len(scene.brokers.brokers[2].of("ListOffsets"))) == (4, 1)
        scene.now += SILENT_MS
        await scene.ends.ahead(PLACES)
        assert len(scene.brokers.brokers[2].of("ListOffsets")) == 2

    run(story)


def test_t5_what_nobody_has_ever_said_is_not_known() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.brokers[2].answers["ListOffsets"] = lambda request: HANG_UP
        assert await asyncio.to_thread(scene.ends.measured, PLACES) == [(0, 100), None, (2, 102), None]
        assert scene.ends.ends(PLACES) == [100, -1, 102, -1]
        with pytest.raises(LogFailed, match="where orders-1 ends is not known"):
            await scene.span(1)
        assert await scene.span(0) == (0, 100)

    run(story)


def test_t5_a_question_takes_no_longer_than_it_may() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.brokers[2].answers["ListOffsets"] = lambda request: SILENCE
        hasty = UpstreamLogEnds(scene.upstream, scene.topics, now_ms=lambda: scene.now, patience_ms=20)
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(hasty.measured, PLACES[1:2]) == [None]
            await hasty.ahead(PLACES[3:])
        assert len(scene.brokers.brokers[2].of("ListOffsets")) == 1, "it is silent for a while"

    run(story)


def test_a_leader_that_moved_is_asked_in_its_new_place() -> None:
    async def story(scene: Scene) -> None:
        for known in scene.brokers.knows.values():
            known["orders"].leaders = [2, 2, 2, 2]
        assert await asyncio.to_thread(scene.ends.measured, PLACES) == [(0, 100), (1, 101), (2, 102), (3, 103)]
        assert scene.asked(2) == [[1, 3], [0, 2]]

    run(story)


def test_a_partition_that_nobody_leads_is_not_waited_for() -> None:
    async def story(scene: Scene) -> None:
        for known in scene.brokers.knows.values():
            known["orders"].leaders = [-1, 2, 1, 2]
        await scene.topics.refresh_topics()
        assert await asyncio.to_thread(scene.ends.measured, PLACES) == [None, (1, 101), (2, 102), (3, 103)]

    run(story)


def test_what_is_kept_in_mind_is_bounded_and_a_topic_that_went_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)

    async def story(scene: Scene) -> None:
        await scene.ends.ahead(PLACES[:2])
        await scene.ends.ahead(PLACES[2:])
        assert scene.ends.ends(PLACES) == [-1, 101, 102, 103]
        scene.ends.forget(["orders"])
        assert scene.ends.ends(PLACES) == [-1] * 4

    run(story)
