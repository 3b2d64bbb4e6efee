"""Many clients end their transactions at once, as after a takeover: each broker is asked for all of them."""

import asyncio

from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch, TransactionalClient
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import UpstreamBroker
from tests.support.kafka_backend.over_kafka import OverKafka

MANY = 400


def test_each_is_written_and_none_of_them_is_in_doubt() -> None:
    """What one connection has no room for waits for it. It failed, as if it were not known what had become of it."""
    failed: list[ev.RequestWithoutAnswer] = []

    async def story() -> None:
        async with UpstreamBroker() as broker:
            topic = StateTopic(broker, "muster.state", 1)
            topic.configs["min.insync.replicas"] = "1"
            broker.answers["DescribeProducers"] = lambda request: struct("DescribeProducersResponse")()
            async with OverKafka(f"127.0.0.1:{broker.address.port}", "muster", 1) as node:
                await node.all_served()
                step = node.owning.step

                def watched(event: ev.ShardEvent) -> None:
                    if isinstance(event, ev.RequestWithoutAnswer):
                        failed.append(event)
                    step(event)

                node.owning.step = watched  # type: ignore[method-assign]
                outcomes = await asyncio.gather(
                    *(
                        node.owning.transactions.append(
                            0,
                            TransactionalClient(f"app-{number}", ProducerEpoch(5_000 + number, 0)),
                            "g",
                            {("t", 0): StoredOffset(number, -1, "", 0)},
                        )
                        for number in range(MANY)
                    )
                )
                assert {outcome.code for outcome in outcomes} == {0}

    asyncio.run(story())
    assert failed == []
