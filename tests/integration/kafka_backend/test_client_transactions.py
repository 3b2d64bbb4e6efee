"""Records that a client's transaction put into the state topic, on a real broker: markers decide (KB-S4, KB-S5)."""

import asyncio

import pytest
from confluent_kafka import Producer

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.state_log_io import log_batches_of
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.support.kafka_backend.over_kafka import OverKafka

PATIENCE_S = 30
WAIT_MS = 500


async def position(node: OverKafka) -> tuple[bytes, bytes]:
    """Key and value of the only position in the log."""
    async for batches in record_requests.read_log(node.upstream, node.topic, 0, 0, 2, deadline_s=10):
        for batch in batches:
            for record in batch.records():
                if (record.key or b"")[:1] == b"\0":
                    assert record.key is not None
                    assert record.value is not None
                    return record.key, record.value
    raise AssertionError("there is none")


def begun(kafka: str, cluster: str, key: bytes, value: bytes) -> Producer:
    """A transaction with one record, which is in the log."""
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"{cluster}.app"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(f"{cluster}.state", key=key, value=value, partition=0)
    producer.flush(PATIENCE_S)
    return producer


async def marked(upstream: Upstream, topic: str) -> None:
    """Kafka's coordinator answers who ends a transaction before its marker is in the log: wait until it is."""
    await upstream.refresh([topic])
    place, offset = (topic, 0), 0
    async with asyncio.timeout(PATIENCE_S):
        while True:
            told = await record_requests.fetch(upstream, upstream.leader(*place), {place: offset}, max_wait_ms=WAIT_MS)
            for batch in log_batches_of(told[place].batches):
                if batch.marker is not None:
                    return
                offset = batch.next_offset


@pytest.mark.parametrize(("ends", "expected"), [("commit", 11), ("abort", 1)])
def test_what_a_client_committed_counts_and_what_it_aborted_does_not(kafka: str, ends: str, expected: int) -> None:
    async def story() -> None:
        cluster = f"txn-{ends}"
        async with OverKafka(kafka, cluster, 1) as node:
            await node.all_served()
            assert await node.commit("g", 1) is ErrorCode.NONE
            key, value = await position(node)
            later = value.replace((1).to_bytes(8, "big"), (11).to_bytes(8, "big"), 1)
            assert later != value
        producer = await asyncio.to_thread(begun, kafka, cluster, key, later)
        async with OverKafka(kafka, cluster, 1, instance="two") as node:
            await node.all_served()
            assert await node.committed("g") == 1, "what is open is not to be seen"
            assert len(node.served[0].pending) == 1
            assert await node.commit("h", 5) is ErrorCode.NONE, "and delays nobody (S5)"
        await asyncio.to_thread(
            producer.commit_transaction if ends == "commit" else producer.abort_transaction, PATIENCE_S
        )
        upstream = Upstream(node.upstream.reach)
        await marked(upstream, node.topic)
        upstream.close()
        async with OverKafka(kafka, cluster, 1, instance="three") as node:
            await node.all_served()
            assert (await node.committed("g"), await node.committed("h")) == (expected, 5)
            assert (node.served[0].pending, node.served[0].fenced_records) == ((), 0)

    asyncio.run(story())
