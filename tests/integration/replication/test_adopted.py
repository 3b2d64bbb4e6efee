"""From one node to many (CL-A10) at a real ZooKeeper: what a node had by itself is the cluster's, with all its
records."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from muster.coordinator.edge.cluster_view import wall_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin.topic_adoption import ADOPTING
from muster.coordinator.replication.protocol.cluster_metadata import LEDGER, OFFSETS, TopicPartition
from muster.coordinator.zookeeper.errors import ForeignTopics
from muster.storage.broker.broker import Broker
from muster.storage.broker.fetches import FetchLimits
from muster.storage.config import LogSettings
from muster.storage.errors import StorageError
from muster.storage.records.batch import decode_records
from muster.storage.topics.catalog import format_id
from tests.integration.conftest import Run
from tests.integration.replication.test_administered import SOON, Administered
from tests.integration.replication.test_joining import SHARDS
from tests.unit.storage.logs import batch

pytestmark = pytest.mark.integration

CLUSTER = "c9vPX0gkTYG0pVvlwLZ_sQ"
ORDERS = TopicPartition("orders", 1)
FIVE = 5


def alone(directory: Path, node: int, *topics: str) -> dict[str, bytes]:
    """A node on its own that had these, with a record in the second partition of each, in leader epoch 5; their ids."""
    broker = Broker(directory, LogSettings(), node_id=node, cluster_id=CLUSTER)
    for name in topics:
        broker.create_topic(name, 2, {"flush.ms": "77"})
        log = broker.log(name, 1)
        log.leader_epoch = FIVE
        broker.append(name, 1, batch(name.encode(), at=wall_ms()), wall_ms())
    for name in (OFFSETS, LEDGER):
        broker.create_topic(name, SHARDS, internal=True)
    ids = {name: topic.id for name, topic in broker.topics().items()}
    broker.close()
    return ids


async def values(node: Administered, place: TopicPartition) -> list[bytes | None]:
    (found,) = await node.joined.requests.fetch([(*place, 0, 1 << 20)], FetchLimits(1, 1 << 20, False), 5_000)
    assert not isinstance(found, StorageError), found
    return [record.value for record in decode_records(found.records, 0)]


def test_what_one_node_had_is_the_clusters(zookeeper: str, tmp_path: Path, run: Run) -> None:
    ids = alone(tmp_path / "1", 1, "orders", "paid")
    alone(tmp_path / "3", 3, "others")
    small = {**SOON, "offsets.topic.replication.factor": "1"}

    async def story() -> None:
        async with AsyncExitStack() as stack:
            one, two, three = (Administered(node, zookeeper, tmp_path / str(node), **small) for node in (1, 2, 3))
            for node in (one, two, three):
                stack.push_async_callback(node.stop)
            await one.start()
            await one.shows(lambda: all(view.leader == 1 for _, view in one.image.partitions()))
            assert {name: view.topic_id for name, view in one.image.topics.items() if name in ids} == ids
            assert one.image.topics["orders"].configs == {"flush.ms": "77"}
            assert (one.view(ORDERS).replicas, one.view(ORDERS).isr) == ((1,), (1,))
            assert one.view(ORDERS).leader_epoch > FIVE
            assert await one.joined.session.get(ADOPTING) is None
            assert await values(one, ORDERS) == [b"orders"]

            # It is one of many now: another gets copies, and may lead.
            await two.start()
            await two.shows(lambda: ORDERS.topic in two.image.topics)
            shard = TopicPartition(OFFSETS, 1)
            assert await two.admin.reassign({ORDERS: (2, 1), shard: (2, 1)}) == {
                ORDERS: ErrorCode.NONE,
                shard: ErrorCode.NONE,
            }
            await two.shows(lambda: set(two.view(ORDERS).isr) == {1, 2} == set(two.view(shard).isr))
            assert await two.admin.elect([ORDERS]) == {ORDERS: ErrorCode.NONE}
            assert await values(two, ORDERS) == [b"orders"]

            # Who has others of its own is no part of it.
            with pytest.raises(ForeignTopics, match=r"does not know: __consumer_offsets, __rebalances"):
                await three.start()

            # Started again, it is what it was: nothing is published twice.
            await one.stop()
            again = Administered(1, zookeeper, tmp_path / "1", **small)
            stack.push_async_callback(again.stop)
            await again.start()
            assert format_id(again.image.topics["paid"].topic_id) == format_id(ids["paid"])
            await again.shows(lambda: set(again.view(ORDERS).isr) == {1, 2})

    run(story)
