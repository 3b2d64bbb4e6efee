"""KB-T1 to KB-T6 against brokers that were not written here: librdkafka's mock cluster of three, and a real one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from muster.coordinator.config import parse_address
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamLogEnds, UpstreamTopics, partitions_of
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.server.driver.clock import NodeClock

PATIENCE_S = 60
GONE_AFTER_MS = 1_000


class Seen:
    """Topics that are looked at, with every change told of."""

    def __init__(self, topics: UpstreamTopics, ends: UpstreamLogEnds) -> None:
        self.topics, self.ends = topics, ends
        self.told: list[TopicsChanged] = []
        self.bugs: list[BaseException] = []
        self._news = asyncio.Event()
        topics.on_change(self._changed)

    def _changed(self, event: TopicsChanged) -> None:
        self.told.append(event)
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def over(servers: str) -> AsyncIterator[Seen]:
    upstream = Upstream(
        UpstreamAddress(tuple(parse_address(each) for each in servers.split(",")), connect_s=10, answer_s=10)
    )
    clock = NodeClock()
    topics = UpstreamTopics(upstream, now_ms=clock.now_ms, refresh_ms=100, gone_after_ms=GONE_AFTER_MS)
    seen = Seen(topics, UpstreamLogEnds(upstream, topics, now_ms=clock.now_ms, patience_ms=10_000))
    try:
        await topics.refresh_topics()
        topics.start()
        yield seen
    finally:
        await topics.stop()
        upstream.close()


def test_on_the_mock_cluster_of_three() -> None:
    owner = Producer({"test.mock.num.brokers": 3})
    found = owner.list_topics(timeout=10)
    servers = ",".join(f"{each.host}:{each.port}" for each in found.brokers.values())
    owner.list_topics("orders", timeout=10)  # the mock makes a topic that is asked for

    async def story() -> None:
        async with over(servers) as seen:
            await seen.until(lambda: "orders" in seen.topics.partitions())
            count = seen.topics.partitions()["orders"]
            leaders = {seen.topics.leader("orders", part) for part in range(count)}
            assert count == 4
            assert leaders <= found.brokers.keys()
            for part in range(count):
                for _ in range(part):
                    owner.produce("orders", b"v", partition=part)
            assert await asyncio.to_thread(owner.flush, 10) == 0
            assert await asyncio.to_thread(seen.ends.measured, partitions_of({"orders": count})) == [
                (0, part) for part in range(count)
            ]

    asyncio.run(story())


def test_on_a_real_broker_made_widened_deleted_and_made_anew(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    producer = Producer({"bootstrap.servers": kafka})

    async def done(futures: dict[str, object]) -> None:
        for future in futures.values():
            await asyncio.to_thread(future.result, PATIENCE_S)  # type: ignore[attr-defined]

    async def story() -> None:
        async with over(kafka) as seen:
            await done(admin.create_topics([NewTopic("seen.orders", 2, 1)]))
            await seen.until(lambda: seen.topics.partitions().get("seen.orders") == 2)
            first = seen.topics.ids()["seen.orders"]
            described = admin.list_topics("seen.orders", timeout=10)
            assert len(described.topics["seen.orders"].partitions) == 2
            await done(admin.create_partitions([NewPartitions("seen.orders", 3)]))
            await seen.until(lambda: seen.topics.partitions().get("seen.orders") == 3)
            assert seen.topics.ids()["seen.orders"] == first
            for _ in range(7):
                producer.produce("seen.orders", b"v", partition=2)
            assert await asyncio.to_thread(producer.flush, 30) == 0
            spans = await asyncio.to_thread(seen.ends.measured, partitions_of({"seen.orders": 3}))
            assert spans == [(0, 0), (0, 0), (0, 7)]
            # Deleted: it stays for as long as it takes to be sure of it, and goes then.
            await done(admin.delete_topics(["seen.orders"]))
            seen.topics.look_soon()
            await seen.until(lambda: "seen.orders" not in seen.topics.partitions())
            assert seen.told[-1].deleted == ("seen.orders",)
            # Made anew: another id.
            await done(admin.create_topics([NewTopic("seen.orders", 1, 1)]))
            await seen.until(lambda: "seen.orders" in seen.topics.partitions())
            assert seen.topics.ids()["seen.orders"] not in (first, bytes(16))
            assert seen.topics.unseen() == {}

    asyncio.run(story())


def test_on_a_real_broker_deleted_and_made_anew_between_two_looks(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})

    async def story() -> None:
        async with over(kafka) as seen:
            admin.create_topics([NewTopic("seen.anew", 2, 1)])["seen.anew"].result(PATIENCE_S)
            await seen.until(lambda: "seen.anew" in seen.topics.partitions())
            # The loop stands still meanwhile: no look comes in between.
            admin.delete_topics(["seen.anew"])["seen.anew"].result(PATIENCE_S)
            for _ in range(50):
                [made] = admin.create_topics([NewTopic("seen.anew", 1, 1)]).values()
                if made.exception(PATIENCE_S) is None:
                    break
            await seen.until(lambda: seen.topics.partitions()["seen.anew"] == 1)
            assert [event.deleted for event in seen.told if event.deleted] == [("seen.anew",)]

    asyncio.run(story())
