"""CL-L9: whoever names a leader epoch that no controller has told of, at the door between nodes, silences nobody for
good."""

import asyncio
import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.io.wire.node_api import client_id_of
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.kafka.client import KafkaClient
from tests.support.numbered_records import PARTITIONS, TOPIC, Numbered

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def peer_address(connect: str, node: int) -> tuple[str, int]:
    """Where other nodes reach it."""
    client = KazooClient(connect)
    client.start()
    try:
        endpoints = json.loads(client.get(f"/brokers/ids/{node}")[0])["endpoints"]
    finally:
        client.stop()
        client.close()
    (address,) = (each.split("//")[1] for each in endpoints if each.startswith("REPLICATION"))
    host, _, port = address.rpartition(":")
    return host, int(port)


async def name_a_later_epoch(address: tuple[str, int], cluster_id: str, epoch: int) -> None:
    part = struct("OffsetForLeaderEpochRequest.topics.partitions")
    topic = struct("OffsetForLeaderEpochRequest.topics")
    rows = [part(partition=number, current_leader_epoch=epoch, leader_epoch=0) for number in range(PARTITIONS)]
    async with KafkaClient(*address, client_id=client_id_of(cluster_id, 9)) as client:
        assert await client.ask("ApiVersions", 3, client_software_name="a", client_software_version="1") is not None
        asked = [topic(topic=TOPIC, partitions=rows)]
        assert await client.ask("OffsetForLeaderEpoch", 4, replica_id=9, topics=asked) is not None


def test_an_epoch_that_never_was_costs_a_pause(zookeeper: str, tmp_path: Path) -> None:
    with running_cluster(tmp_path, zookeeper) as cluster:
        work = Numbered(cluster, replicas=(2, 3, 1))
        work.send(60)
        silence(cluster, zookeeper, work)
        work.send(60)
        work.until_in_sync()
        work.check()


def silence(cluster: ClusterNodes, zookeeper: str, work: Numbered) -> None:
    cluster_id = work.admin.describe_cluster().result(30).cluster_id
    assert work.leaders() == {2}
    asyncio.run(name_a_later_epoch(peer_address(zookeeper, 2), cluster_id, 1))
