"""Nodes over three brokers: one is killed, one frozen, and their shards wait for the next leader with all there is."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.workshop.bench.cluster_servers import NODES, KafkaTrio, start_trio
from tests.interop.kafka_broker import until_open
from tests.support.kafka_backend.processes import LONG_MS, three

MORE = """broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.min.session.timeout.ms=1000
transaction.state.log.num.partitions=2
"""
SESSION_MS = 6_000


@pytest.fixture
def brokers(kafka_classpath: str, tmp_path: Path) -> Iterator[KafkaTrio]:
    if not os.environ.get("MUSTER_ENGINE"):
        pytest.skip("three brokers take minutes to start on two cores; `make engine` runs it")
    made = KafkaTrio(tmp_path, kafka_classpath, MORE)
    try:
        start_trio(made, NODES)
        for node in NODES:
            log = tmp_path / f"broker{node}" / "broker.log"
            until_open(int(made.addresses[node].rpartition(":")[2]), made.running[node], log)
        yield made
    finally:
        made.stop()


def test_one_broker_is_killed_and_one_frozen_and_nothing_acknowledged_is_lost(brokers: KafkaTrio) -> None:
    async def story() -> None:
        async with three(brokers.addresses[1], "brokers", SESSION_MS, copies=3) as nodes:
            brokers.signal(1, signal.SIGKILL)
            await nodes.clients.more()
            await asyncio.to_thread(brokers.ended, 1)
            brokers.start(1)
            await nodes.share(2, 2, 2)
            await nodes.clients.more()
            brokers.signal(2, signal.SIGSTOP)
            await nodes.clients.more()
            brokers.signal(2, signal.SIGCONT)
            await nodes.share(2, 2, 2)

    asyncio.run(story())


def test_under_min_isr_what_writes_waits_and_all_is_there_when_copies_are_in_sync_again(brokers: KafkaTrio) -> None:
    """Two copies, both wanted: with one broker frozen two of three shards can write nothing."""

    async def story() -> None:
        async with three(brokers.addresses[1], "isr", LONG_MS, copies=2) as nodes:
            brokers.signal(3, signal.SIGSTOP)
            waits = asyncio.ensure_future(nodes.clients.more(50))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(10):
                    await asyncio.shield(waits)
            brokers.signal(3, signal.SIGCONT)
            await waits
            await nodes.share(2, 2, 2)

    asyncio.run(story())
