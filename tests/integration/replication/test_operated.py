"""`muster cluster` against three real nodes: how they stand, a drain, a kill and what the ledger tells of it."""

import time
from pathlib import Path

import pytest

from tests.support.cluster_commands import PATIENCE_S, muster, told, until_status
from tests.support.cluster_nodes import running_cluster
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_an_operator_s_day(zookeeper: str, tmp_path: Path) -> None:
    with running_cluster(tmp_path, zookeeper) as cluster:
        made = muster(cluster, "topics", "create", "orders", "--partitions", "6", "--replication-factor", "2")
        assert made.returncode == 0, made.stderr + cluster.log_tail()
        until_status(cluster, nodes=3, up=3, offline=0, under_min_isr=0, under_replicated=0)
        assert muster(cluster, "health", node=2).returncode == 0

        rows = told(cluster, "cluster", "partitions", "--topic", "orders")
        assert [len(row["isr"]) for row in rows] == [2] * 6
        described = told(cluster, "topics", "describe", "orders")["partitions"]
        copied = [{name: row[name] for name in ("leader", "replicas", "isr", "elr", "offline")} for row in described]
        assert copied == [{name: row[name] for name in copied[0]} for row in rows]
        nodes = told(cluster, "cluster", "nodes")
        assert [(row["state"], row["leads"] > 0) for row in nodes] == [("live", True)] * 3

        drained = muster(cluster, "cluster", "drain", "2", node=3)
        assert drained.stderr == "node 2 is drained: it leads nothing\n", cluster.log_tail()
        assert [(row["state"], row["leads"] > 0) for row in told(cluster, "cluster", "nodes")] == [
            ("live", True),
            ("drained", False),
            ("live", True),
        ]
        assert muster(cluster, "cluster", "undrain", "2").returncode == 0
        elected = muster(cluster, "cluster", "elect", "--all")
        assert elected.returncode == 0, elected.stderr
        assert told(cluster, "cluster", "nodes")[1]["leads"] > 0
        elections = told(cluster, "cluster", "explain", "--limit", "500")
        assert {"drained", "preferred"} <= {row["cause"] for row in elections}

        cluster.nodes[1].kill()
        cluster.until_session_is_over(1)
        until_status(cluster, node=2, up=2, offline=0)
        wanting = told(cluster, "cluster", "partitions", "--under-replicated", node=2)
        assert {1} == {gone for row in wanting for gone in row["offline"]}
        below = muster(cluster, "health", node=2)
        assert below.returncode == 4
        assert "no records with acks=all" in below.stderr, "two copies, and one of them is gone"
        patience = Patience(PATIENCE_S)
        while (last := told(cluster, "cluster", "explain", "--limit", "1", node=2)[0])["from"] != 1:
            assert patience.lasts(), (last, cluster.log_tail())
            time.sleep(0.1)
        assert last["clean"] == "isr"
        assert last["cause"] in ("node 1's session expired", "node 1 evicted"), last

        cluster.nodes[1].start()
        until_status(cluster, node=2, up=3, under_replicated=0)
        spread = muster(cluster, "cluster", "spread", "--topic", "orders", "--replication-factor", "3", "--execute")
        assert spread.returncode == 0, spread.stderr
        patience = Patience(PATIENCE_S)
        while [len(row["isr"]) for row in told(cluster, "cluster", "partitions", "--topic", "orders")] != [3] * 6:
            assert patience.lasts(), cluster.log_tail()
            time.sleep(0.1)
