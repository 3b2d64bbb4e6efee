"""Kafka's kafka-transactions.sh at three nodes: it finds what hangs at the leaders, aborts it there, and ends an id."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.test_cli_node import Prompt
from tests.integration.replication.test_operators_transactions import NAMES, STRANGER, leave_open
from tests.interop.test_interop_transactions_tool import kafka_says
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.zookeeper.servers import zookeeper, zookeeper_server

__all__ = ["zookeeper", "zookeeper_server"]

pytestmark = pytest.mark.timeout(600)

SETTINGS = {"transaction.partition.verification.enable": "false", "transaction.state.log.num.partitions": "4"}
FIND = ("find-hanging", "--topic", "orders", "--max-transaction-timeout", "0")


@pytest.fixture
def classpath() -> str:
    found = os.environ.get("KAFKA_BROKER_CLASSPATH")
    if shutil.which("java") is None or not found:
        pytest.skip("it takes java, and KAFKA_BROKER_CLASSPATH with the jars of org.apache.kafka:kafka_2.13:4.1.1")
    return found


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper, settings=SETTINGS) as running:
        yield running


def column(rows: list[list[str]], name: str) -> list[str]:
    place = rows[0].index(name)
    return [row[place] for row in rows[1:]]


def test_the_tool_ends_what_hangs_at_its_leaders_and_terminates_ids_at_their_coordinators(
    cluster: ClusterNodes, classpath: str
) -> None:
    addresses = [node.kafka_address for node in cluster.nodes.values()]
    muster = Prompt(cluster.nodes[1].address)
    assert muster("topics", "create", "orders", "--partitions", "3", "--replication-factor", "3").code == 0
    asyncio.run(leave_open(addresses, "orders"))

    def tool(*words: str) -> list[list[str]]:
        return kafka_says(classpath, addresses[0], *words)

    listed = tool("list")
    assert sorted(column(listed, "TransactionalId")) == list(NAMES)
    assert len(set(column(listed, "Coordinator"))) > 1
    for name in NAMES:
        described = tool("describe", "--transactional-id", name)
        assert column(described, "TransactionState") == ["Ongoing"]
        assert column(described, "TopicPartitions") == ["orders-0"]
    hanging = tool(*FIND)
    assert sorted(column(hanging, "Partition")) == ["0", "1", "2"]
    assert set(column(hanging, "ProducerId")) == {str(STRANGER[0])}
    by_node = [tool("find-hanging", "--broker-id", str(node), "--max-transaction-timeout", "0") for node in (1, 2, 3)]
    for rows in by_node:
        assert sorted(column(rows, "Partition")) == ["0", "1", "2"], "each node has a copy of each, and answers for it"
    for number in ("0", "1", "2"):
        tool("abort", "--topic", "orders", "--partition", number, "--start-offset", "0")
    assert column(tool(*FIND), "Partition") == []
    for name in NAMES:
        tool("forceTerminateTransaction", "--transactionalId", name)
        (state,) = column(tool("describe", "--transactional-id", name), "TransactionState")
        assert state in {"CompleteAbort", "PrepareAbort", "Empty"}
    assert muster.json("transactions", "list", "--state", "Ongoing") == []
    producers = tool("describe-producers", "--topic", "orders", "--partition", "0")
    assert set(column(producers, "CurrentTransactionStartOffset")) == {"None"}
