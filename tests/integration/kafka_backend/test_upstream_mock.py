"""The upstream client against three brokers of librdkafka's mock cluster, which was not written here."""

import asyncio

from confluent_kafka import Producer

from muster.coordinator.config import parse_address
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.connection import pause_s
from muster.coordinator.kafka_backend.upstream.protocol import Unreached, UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.storage.records.batch import encode_batch

TOPIC = "muster.state"
PARTITIONS = 4
TRIES = 50


def test_three_brokers_by_their_leaders() -> None:
    owner = Producer({"test.mock.num.brokers": 3})
    found = owner.list_topics(timeout=10)
    servers = tuple(parse_address(f"{each.host}:{each.port}") for each in found.brokers.values())
    assert len(servers) == 3
    owner.list_topics(TOPIC, timeout=10)  # the mock makes a topic that is asked for

    async def led(upstream: Upstream) -> dict[int, list[int]]:
        for _ in range(TRIES):
            view = await upstream.refresh([TOPIC])
            parts = view.topics[TOPIC].parts if TOPIC in view.topics else {}
            if len(parts) >= PARTITIONS:
                leaders: dict[int, list[int]] = {}
                for index in range(PARTITIONS):
                    leaders.setdefault(upstream.leader(TOPIC, index), []).append(index)
                return leaders
            await asyncio.sleep(pause_s(1))
        raise Unreached("the mock has no leaders")

    async def story() -> None:
        upstream = Upstream(UpstreamAddress(servers[:1], connect_s=10, answer_s=10))
        leaders = await led(upstream)
        assert len(upstream.view.brokers) == 3
        given = await record_requests.init_producer(upstream, "muster.shard-0")
        assert given.code == 0
        for broker, parts in leaders.items():
            batches = {
                (TOPIC, part): encode_batch(
                    [(0, b"k%d" % part, b"v", ())],
                    producer_id=given.producer_id,
                    producer_epoch=given.epoch,
                    base_sequence=0,
                )
                for part in parts
            }
            told = await record_requests.produce(upstream, broker, batches, 5_000)
            assert {(place, each.code, each.offset) for place, each in told.items()} == {
                ((TOPIC, part), 0, 0) for part in parts
            }
        for part in range(PARTITIONS):
            read = [
                record
                async for some in record_requests.read_log(upstream, TOPIC, part, 0, 1, deadline_s=10)
                for batch in some
                for record in batch.records()
            ]
            assert [record.key for record in read] == [b"k%d" % part]
            ends = await record_requests.list_offsets(upstream, upstream.leader(TOPIC, part), [(TOPIC, part)])
            assert ends[TOPIC, part].offset == 1
        upstream.close()

    asyncio.run(story())
