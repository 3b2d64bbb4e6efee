"""KB-T1 to KB-T4 against brokers: what is told of topics, when one is gone, and what a bad answer costs."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.edge.background_tasks import TASK_FAILURES, TaskFailures
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import ASK_AGAIN_MS
from muster.coordinator.kafka_backend.upstream import topic_requests
from muster.coordinator.kafka_backend.upstream.protocol import Unreached, UpstreamAddress
from muster.coordinator.kafka_backend.upstream.topic_watch import MOST_LATE_MS, UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker
from tests.fakes.upstream_catalog import Told, UpstreamCatalog

GONE_AFTER = 60_000
ORDERS, OTHER = Told(b"orders", 4), Told(b"other", 1)
PATIENCE_S = 10


class Scene:
    """Topics over fake brokers; `told` has every change, `now` is the node's clock."""

    def __init__(self, upstream: Upstream, brokers: UpstreamCatalog) -> None:
        self.upstream, self.brokers = upstream, brokers
        self.now = 1_000
        self.told: list[TopicsChanged] = []
        self.troubles: list[str] = []
        self.news = asyncio.Event()
        self.topics = UpstreamTopics(
            upstream,
            now_ms=lambda: self.now,
            refresh_ms=10,
            gone_after_ms=GONE_AFTER,
            private=("muster.state",),
            on_trouble=self._troubled,
        )
        self.topics.on_change(self._changed)

    def _changed(self, event: TopicsChanged) -> None:
        self.told.append(event)
        self.news.set()

    def _troubled(self, sentence: str) -> None:
        self.troubles.append(sentence)
        self.news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self.news.clear()
                await self.news.wait()

    async def later(self, ms: int) -> None:
        self.now += ms
        await self.topics.refresh_topics()


def run(story: Callable[[Scene], Coroutine[Any, Any, None]], brokers: int = 2) -> None:
    async def whole() -> None:
        async with AsyncExitStack() as stack:
            made = {number: await stack.enter_async_context(UpstreamBroker()) for number in range(1, brokers + 1)}
            told = UpstreamCatalog(made)
            told.all_know(orders=ORDERS, other=OTHER)
            upstream = Upstream(UpstreamAddress((made[1].address,), connect_s=5, answer_s=5))
            scene, failures = Scene(upstream, told), TaskFailures()
            TASK_FAILURES.set(failures)
            try:
                await scene.topics.refresh_topics()
                await story(scene)
                assert not failures.counts
            finally:
                await scene.topics.stop()
                upstream.close()

    asyncio.run(whole())


def test_t1_t2_counts_and_kafkas_own_ids() -> None:
    async def story(scene: Scene) -> None:
        assert dict(scene.topics.partitions()) == {"orders": 4, "other": 1}
        assert dict(scene.topics.ids()) == {"orders": ORDERS.id, "other": OTHER.id}
        assert scene.told == [scene.topics.event()]
        assert (scene.topics.leader("orders", 3), scene.topics.leader("orders", 4)) == (1, -1)

    run(story)


def test_t1_a_change_is_told_once() -> None:
    async def story(scene: Scene) -> None:
        await scene.topics.refresh_topics()
        scene.brokers.all_know(orders=Told(b"orders", 6), new=Told(b"new", 1))
        for _ in range(3):
            await scene.topics.refresh_topics()
        assert len(scene.told) == 2
        assert dict(scene.told[1].partitions) == {"orders": 6, "other": 1, "new": 1}
        assert scene.told[1].deleted == ()

    run(story)


def test_t1_it_looks_by_itself_and_at_once_when_somebody_wants_it() -> None:
    async def story(scene: Scene) -> None:
        scene.topics.start()
        scene.brokers.all_know(new=Told(b"new", 1))
        await scene.until(lambda: "new" in scene.topics.partitions())

    run(story)


def test_t1_a_name_that_is_not_known_is_looked_for_soon() -> None:
    async def story(scene: Scene) -> None:
        seldom = UpstreamTopics(scene.upstream, now_ms=lambda: scene.now, refresh_ms=86_400_000)
        seldom.on_change(scene._changed)
        await seldom.refresh_topics()
        seldom.start()
        try:
            scene.brokers.all_know(late=Told(b"late", 1))
            seldom.wanted(["orders", "late"])
            await scene.until(lambda: "late" in seldom.partitions())
            scene.brokers.all_know(made=Told(b"made", 1))
            seldom.wanted(["orders"])  # which is known: no reason to look
            seldom.look_soon()
            await scene.until(lambda: "made" in seldom.partitions())
        finally:
            await seldom.stop()

    run(story)


def test_t3_internal_topics_match_no_pattern() -> None:
    async def story(scene: Scene) -> None:
        state, offsets = Told(b"state", 50), Told(b"offsets", 50, internal=True)
        scene.brokers.all_know(**{"muster.state": state, "__consumer_offsets": offsets})
        await scene.topics.refresh_topics()
        assert scene.topics.partitions()["muster.state"] == 50
        assert "muster.state" not in scene.topics.ids()
        assert scene.topics.ids()["__consumer_offsets"] == offsets.id, "its name says it, as on the bundled log"
        assert scene.topics.internal == {"muster.state", "__consumer_offsets"}

    run(story)


def test_t4_a_shorter_answer_takes_nothing_away() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.hidden.add("orders")  # rights to see it were taken away
        await scene.topics.refresh_topics()
        for _ in range(40):
            await scene.later(ASK_AGAIN_MS)
        assert scene.topics.partitions()["orders"] == 4
        assert len(scene.told) == 1
        assert scene.topics.unseen() == {"orders": 40 * ASK_AGAIN_MS}
        scene.brokers.hidden.clear()
        await scene.topics.refresh_topics()
        assert (scene.topics.unseen(), len(scene.told)) == ({}, 1)

    run(story)


def test_t4_gone_when_two_brokers_a_good_while_apart_know_neither_name_nor_id() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.all_forget("orders")
        await scene.topics.refresh_topics()
        assert scene.topics.unseen() == {"orders": 0}
        await scene.later(GONE_AFTER - 1)
        assert "orders" in scene.topics.partitions()
        await scene.later(1)
        assert "orders" not in scene.topics.partitions()
        assert [event.deleted for event in scene.told] == [(), (), ("orders",)]
        by_id = [
            [number for request in broker.of("Metadata") for each in request.topics or () if any(each.topic_id)]
            for number, broker in scene.brokers.brokers.items()
        ]
        assert all(by_id), "both were asked, by the id too"

    run(story)


def test_t4_that_a_broker_knows_a_topic_no_more_is_told_at_once_and_taken_back() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.all_forget("orders")
        await scene.topics.refresh_topics()
        assert scene.told[-1].disowned == {"orders"}
        assert scene.told[-1].partitions["orders"] == 4
        await scene.topics.refresh_topics()
        scene.brokers.all_know(orders=ORDERS)
        await scene.topics.refresh_topics()
        assert [event.disowned for event in scene.told] == [set(), {"orders"}, set()]
        assert scene.topics.event().disowned == set()

    run(story)


def test_t1_how_long_ago_a_change_may_have_happened_is_told() -> None:
    """A broker may have been behind when it was asked last: the look before that one counts."""

    async def story(scene: Scene) -> None:
        await scene.later(1_000)
        await scene.later(2_000)
        scene.brokers.all_know(new=Told(b"new", 1))
        await scene.later(4_000)
        await scene.later(60_000)
        scene.brokers.all_know(orders=Told(b"orders", 6))
        await scene.later(60_000)
        assert [event.late_ms for event in scene.told] == [0, 6_000, MOST_LATE_MS]

    run(story)


def test_t4_one_of_two_brokers_says_that_twice_and_the_other_nothing() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.all_forget("orders")
        await scene.topics.refresh_topics()
        for broker in scene.brokers.brokers.values():
            answer = broker.answers["Metadata"]
            broker.answers["Metadata"] = lambda request, answer=answer: HANG_UP if request.topics else answer(request)
        await scene.later(GONE_AFTER)
        await scene.later(GONE_AFTER)
        assert "orders" in scene.topics.partitions()

    run(story)


def test_t4_of_the_only_broker_its_own_word_counts_twice() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.all_forget("orders")
        await scene.topics.refresh_topics()
        await scene.later(GONE_AFTER - 1)
        assert "orders" in scene.topics.partitions()
        await scene.later(1)
        assert "orders" not in scene.topics.partitions()

    run(story, brokers=1)


def test_t4_a_broker_that_is_behind_takes_nothing_away_and_what_it_leaves_out_is_asked_for_again() -> None:
    async def story(scene: Scene) -> None:
        del scene.brokers.knows[1]["orders"]
        for _ in range(3):
            await scene.later(GONE_AFTER)
        assert "orders" in scene.topics.partitions()
        del scene.brokers.knows[2]["orders"]  # now it is gone; the whole answers are as they were
        for _ in range(4):
            await scene.later(GONE_AFTER)
        assert "orders" not in scene.topics.partitions()

    run(story)


def test_t4_the_same_name_with_another_id_is_gone_and_created_at_once() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.all_know(orders=Told(b"anew", 2))
        await scene.topics.refresh_topics()
        assert (scene.told[1].deleted, scene.told[1].partitions["orders"]) == (("orders",), 2)
        assert scene.topics.ids()["orders"].startswith(b"anew")

    run(story)


def test_a_topic_that_cannot_be_told_of_is_no_topic_less() -> None:
    async def story(scene: Scene) -> None:
        scene.brokers.all_know(orders=Told(b"orders", 4, code=5))
        await scene.topics.refresh_topics()
        await scene.later(2 * GONE_AFTER)
        assert scene.topics.partitions()["orders"] == 4

    run(story)


def test_an_upstream_that_does_not_answer_is_told_of_once_and_asked_again() -> None:
    async def story(scene: Scene) -> None:
        answers = [broker.answers["Metadata"] for broker in scene.brokers.brokers.values()]
        for broker in scene.brokers.brokers.values():
            broker.answers["Metadata"] = lambda request: HANG_UP
        with pytest.raises(Unreached):
            await scene.topics.refresh_topics()
        scene.topics.start()
        await scene.until(lambda: bool(scene.troubles))
        assert scene.troubles[0].startswith("the upstream does not tell of its topics: no broker of the upstream")
        for broker, answer in zip(scene.brokers.brokers.values(), answers, strict=True):
            broker.answers["Metadata"] = answer
        await scene.until(lambda: scene.troubles[-1] == "")
        assert len(scene.told) == 1, "nothing went with it"

    run(story)


def test_the_same_answer_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    decode = topic_requests.decode
    monkeypatch.setattr(topic_requests, "decode", lambda name, *rest: (read.append(name), decode(name, *rest))[1])

    async def story(scene: Scene) -> None:
        before = len(read)
        await scene.topics.refresh_topics()
        await scene.topics.refresh_topics()
        assert len(read) == before

    run(story)


def test_a_large_answer_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Any] = []
    to_thread = asyncio.to_thread

    async def seen(work: Any, *rest: Any) -> Any:
        threads.append(work)
        return await to_thread(work, *rest)

    monkeypatch.setattr(topic_requests, "LARGE_BYTES", 100)
    monkeypatch.setattr(asyncio, "to_thread", seen)

    async def story(scene: Scene) -> None:
        assert threads == [topic_requests.decode_catalog]
        assert scene.topics.partitions()["orders"] == 4

    run(story)


def test_what_is_no_answer_ends_the_connection_and_takes_nothing_away() -> None:
    async def story(scene: Scene) -> None:
        for broker in scene.brokers.brokers.values():
            broker.answers["Metadata"] = lambda request: b"\0" * 4 + b"\0" + b"\xff" * 9
        with pytest.raises(Unreached):
            await scene.topics.refresh_topics()
        assert scene.topics.partitions()["orders"] == 4

    run(story)
