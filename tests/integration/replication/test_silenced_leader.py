"""CL-N4: a client that knows the cluster's id is not heard at the door between nodes. CL-L9: and a node that names a
leader epoch which no controller has told of silences nobody for good."""

import asyncio
import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.io.wire.node_api import client_id_of
from muster.coordinator.replication.io.wire.node_proof import CALLER, NONCE_BYTES, ProofExchange
from muster.coordinator.zookeeper.cluster import cluster_layout
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.kafka.client import KafkaClient
from tests.support.numbered_records import PARTITIONS, TOPIC, Numbered

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def peer_address(connect: str, node: int) -> tuple[str, int]:
    """Where other nodes reach it."""
    client = KazooClient(connect)
    client.start()
    try:
        endpoints = json.loads(client.get(f"/brokers/ids/{node}")[0])["muster"]["endpoints"]
    finally:
        client.stop()
        client.close()
    (address,) = (each.split("//")[1] for each in endpoints if each.startswith("REPLICATION"))
    host, _, port = address.rpartition(":")
    return host, int(port)


def shared_secret(connect: str) -> bytes:
    client = KazooClient(connect)
    client.start()
    try:
        return cluster_layout.read_secret(cluster_layout.SECRET, client.get(cluster_layout.SECRET)[0])
    finally:
        client.stop()
        client.close()


async def name_a_later_epoch(
    address: tuple[str, int], cluster_id: str, epoch: int, *, secret: bytes | None = None
) -> None:
    part = struct("OffsetForLeaderEpochRequest.topics.partitions")
    topic = struct("OffsetForLeaderEpochRequest.topics")
    rows = [part(partition=number, current_leader_epoch=epoch, leader_epoch=0) for number in range(PARTITIONS)]
    async with KafkaClient(*address, client_id=client_id_of(cluster_id, 9)) as client:
        assert await client.ask("ApiVersions", 3, client_software_name="a", client_software_version="1") is not None
        if secret is not None:
            first = await client.ask("ProveNode", 0, node_id=9, nonce=bytes(NONCE_BYTES))
            proof = ProofExchange(cluster_id, 9, bytes(NONCE_BYTES) + bytes(first.nonce)).proof(secret, CALLER)
            assert (await client.ask("ProveNode", 0, node_id=9, proof=proof)).error_code == 0
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
    address = peer_address(zookeeper, 2)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        asyncio.run(name_a_later_epoch(address, cluster_id, 1))
    asyncio.run(name_a_later_epoch(address, cluster_id, 1, secret=shared_secret(zookeeper)))
