"""The asyncio twins do the same."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from muster.client import RebalanceEvent, TopicPartition, aio
from muster.client.twins import shared_loop
from tests.support.client_stories import PATIENCE_S, fill
from tests.support.node import NodeProcess, running_node
from tests.support.pace import pace

pytestmark = pytest.mark.integration


def on_the_loop(story: Coroutine[Any, Any, None]) -> None:
    """On the loop that the synchronous clients use: one loop per process."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S * pace()):
            await story

    shared_loop().run(bounded())


def test_the_asyncio_twins_do_the_same(node: NodeProcess) -> None:
    async def story() -> None:
        told: list[str] = []

        async def assigned(
            consumer: aio.AsyncConsumer, partitions: list[TopicPartition], event: RebalanceEvent
        ) -> None:
            await asyncio.sleep(0)
            told.append(f"{event.kind} {len(partitions)}")

        async def revoked(consumer: aio.AsyncConsumer, partitions: list[TopicPartition]) -> None:
            await consumer.commit()
            told.append(f"revoked {len(partitions)}")

        async with aio.AsyncAdmin(bootstrap_servers=node.address) as admin:
            await admin.create_topic("aio", 2)
            async with aio.AsyncProducer(bootstrap_servers=node.address) as producer:
                sent = [await producer.send("aio", f"{number}", key="k") for number in range(20)]
                assert [(await future).offset for future in sent] == list(range(20))
            async with aio.AsyncConsumer(
                bootstrap_servers=node.address, group_id="aio", auto_offset_reset="earliest", enable_auto_commit=False
            ) as consumer:
                await consumer.subscribe("aio", assigned, revoked)
                values = []
                async for message in consumer:
                    values.append(int(message.value or b"-1"))
                    if len(values) == 20:
                        break
                assert values == list(range(20))
                assert consumer.fencing_token(("aio", 0)).generation == 1
            assert told == ["assigned 2", "revoked 2"]
            assert sum(offset.offset for offset in (await admin.group_offsets("aio")).values()) == 20

    on_the_loop(story())


def test_the_asyncio_worker_runs_until_it_is_closed(node: NodeProcess) -> None:
    async def story() -> None:
        events: list[str] = []
        worker = aio.AsyncWorker(bootstrap_servers=node.address, group_id="aio-worker")

        async def gained(worker: aio.AsyncWorker, resource: TopicPartition) -> None:
            events.append(f"gained {resource.topic}")
            if len(events) == 2:
                closing.append(asyncio.create_task(worker.close()))

        closing: list[asyncio.Task[None]] = []
        await worker.join(resources=["a", "b"], on_gain=gained, on_lose=lambda _, tp: events.append(f"lost {tp.topic}"))
        await worker.run()
        await asyncio.gather(*closing)
        assert events == ["gained a", "gained b", "lost a", "lost b"]

    on_the_loop(story())


def test_polling_without_waiting_still_lets_an_asyncio_consumer_work(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 1)

    async def story() -> None:
        async with aio.AsyncConsumer(
            bootstrap_servers=node.address, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.subscribe(topic)
            while await consumer.poll(0) is None:
                pass

    on_the_loop(story())


def test_clients_of_one_process_do_not_share_what_a_connection_may_have_under_way(tmp_path: Path) -> None:
    async def story() -> None:
        servers = {"bootstrap_servers": node.address}
        async with aio.AsyncAdmin(**servers) as first, aio.AsyncAdmin(**servers) as second:
            await first.create_topic("apart", 1)
            watching = asyncio.create_task(anext(first.watch("apart")))  # takes the one place of its connection
            assert "apart" in await second.list_topics()
            watching.cancel()

    with running_node(tmp_path / "data", {"grpc.max.streams.per.connection": "1"}) as node:
        on_the_loop(story())
