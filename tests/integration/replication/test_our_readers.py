"""Who else reads of three real nodes, one of which is killed: a task of Spark, and a consumer of the ZooKeeper era."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import Admin, Consumer, Producer
from muster.client.config import ClientConfig, load
from muster.spark.fetch import read_ranges
from muster.spark.planning import FetchSettings, OffsetRange
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS, EACH = 3, 200
PATIENCE_S = 60.0


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper) as running:
        with Admin(bootstrap_servers=running.address) as admin:
            admin.create_topic("t", PARTITIONS, replication_factor=3)
        fill(running)
        yield running


def fill(cluster: ClusterNodes) -> None:
    """EACH records into every partition."""
    with Producer(bootstrap_servers=cluster.address, batch_size=2_000) as producer:
        for number in range(PARTITIONS * EACH):
            producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
        producer.flush(PATIENCE_S)


def test_a_task_of_spark_reads_on_when_a_leader_dies(cluster: ClusterNodes) -> None:
    """CL-K7: in the middle of its ranges, of which some are led by the node that dies."""
    config = load(ClientConfig, {"bootstrap.servers": cluster.nodes[1].address}, {})
    settings = FetchSettings(
        connection=config.connection,
        columns=("partition", "offset"),
        rows=50,
        patience_ms=60_000,
        max_bytes=3_000,
        max_partition_bytes=1_000,
        committed=False,
        fail_on_data_loss=True,
    )
    ranges = [OffsetRange("t", number, 0, EACH) for number in range(PARTITIONS)]
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    killed = False
    for batch in read_ranges(settings, ranges):
        for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True):
            found[partition].append(offset)
        if not killed:
            cluster.nodes[2].kill()
            killed = True
    assert found == {number: list(range(EACH)) for number in range(PARTITIONS)}


def test_a_consumer_of_the_zookeeper_era_reads_from_all_leaders(cluster: ClusterNodes, zookeeper: str) -> None:
    """It finds the nodes by their registrations; they share a cluster, so a topic may be led by several."""
    read: set[tuple[int, int]] = set()
    with Consumer(
        group_protocol="zookeeper", zookeeper_connect=zookeeper, group_id="era", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["t"])

        def until(count: int) -> None:
            patience = Patience(PATIENCE_S)
            while len(read) < count:
                assert patience.lasts(), f"{len(read)} of {count}; {cluster.log_tail()}"
                read.update((message.partition, message.offset) for message in consumer.consume(500, 0.1))

        until(PARTITIONS * EACH)
        cluster.nodes[1].kill()
        fill(cluster)
        until(2 * PARTITIONS * EACH)
