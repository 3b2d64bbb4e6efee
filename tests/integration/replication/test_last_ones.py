"""Who is left when others are gone: what it refuses, who leads in its place, and that an empty disk is not taken for it
(CL-T6, CL-T8)."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID
from tests.integration.replication.test_records_on_the_wire import Asker
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.kafka.rights import one
from tests.support.node import MUSTER
from tests.support.numbered_records import PARTITIONS, PATIENCE_S, TOPIC, Numbered
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper) as running:
        yield running


def leaders(work: Numbered) -> set[int]:
    found = work.admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
    return {each.leader for each in found.values()}


def by_eligible(cluster: ClusterNodes) -> list[tuple[int, int]]:
    """Who led before, and who does now, of each election of an eligible replica, as node 3 knows the ledger."""
    command = [MUSTER, "cluster", "explain", "--topic", TOPIC, "-o", "json"]
    command += ["--bootstrap", cluster.nodes[3].address]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S).stdout)
    return [(each["from"], each["to"]) for each in found if each["clean"] == "elr"]


def committed(node: Asker) -> int:
    """Kafka's code for a position that nobody's member commits."""
    part = one("OffsetCommitRequest.topics.partitions", partition_index=0, committed_offset=1)
    rows = [one("OffsetCommitRequest.topics", name=TOPIC, partitions=[part])]
    answer = asyncio.run(node.ask("OffsetCommit", 8, group_id="g", topics=rows))
    code: int = answer.topics[0].partitions[0].error_code
    return code


def until_one_is_left(cluster: ClusterNodes) -> Numbered:
    """Node 1: the only one in sync; node 3 left last, and has all that was acknowledged."""
    work = Numbered(cluster)
    work.send(600)
    cluster.nodes[2].kill()
    work.send(600)
    cluster.nodes[3].kill()
    work.until_in_sync(1)
    return work


def test_the_last_one_promises_nothing_and_who_has_all_leads_in_its_place(cluster: ClusterNodes) -> None:
    """CL-T6: 19 and 15; then the last one in sync stays away, and the eligible one leads (ELR)."""
    work, left = until_one_is_left(cluster), Asker(cluster.nodes[1].kafka_address)
    code, _ = asyncio.run(left.produced(b"nobody"))
    assert code == ErrorCode.NOT_ENOUGH_REPLICAS
    until(lambda: committed(left) == ErrorCode.COORDINATOR_NOT_AVAILABLE, cluster.log_tail)
    cluster.nodes[1].kill()
    cluster.nodes[3].start()
    until(lambda: leaders(work) == {3}, cluster.log_tail)
    cluster.nodes[2].start()
    work.send(600)
    two = [Asker(cluster.nodes[number].kafka_address) for number in (2, 3)]
    until(lambda: ErrorCode.NONE in map(committed, two), cluster.log_tail)
    until(lambda: by_eligible(cluster) == [(1, 3)] * PARTITIONS, lambda: f"the ledger has {by_eligible(cluster)}")
    cluster.nodes[1].start()
    work.send(PARTITIONS)
    work.until_in_sync()
    work.check()


def test_an_empty_disk_under_the_id_of_the_last_one_in_sync_leads_nothing(cluster: ClusterNodes) -> None:
    """CL-T8: it is alone, and in sync by ZooKeeper's word; who has the records leads once it is there."""
    work = until_one_is_left(cluster)
    cluster.nodes[1].kill()
    shutil.rmtree(cluster.nodes[1].data)
    cluster.until_session_is_over(1)  # until then its id is the former disk's (CL-Z3)
    cluster.nodes[1].start()
    until(lambda: leaders(work) == {-1}, cluster.log_tail)
    cluster.nodes[3].start()
    until(lambda: leaders(work) == {3}, cluster.log_tail)
    cluster.nodes[2].start()
    work.send(600)
    work.until_in_sync()
    # Had it led before node 3 did, these were elected in its place.
    until(
        lambda: by_eligible(cluster) == [(NO_NODE_ID, 3)] * PARTITIONS, lambda: f"the ledger has {by_eligible(cluster)}"
    )
    work.check()
