"""Shards of groups are moved by `muster cluster reassign` while a node stands still and all are killed."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_commands import PATIENCE_S, muster, told, until_status
from tests.support.cluster_nodes import SHARDS, ClusterNodes, running_cluster
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SHARD = "__consumer_offsets"
FEW = 8
"""Elections of one shard: of its leader's death, of the new controller, of the end of its move, and back."""


def rows(cluster: ClusterNodes, node: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = told(cluster, "cluster", "partitions", "--topic", SHARD, node=node)
    return found


def epochs(cluster: ClusterNodes, node: int) -> list[int]:
    return [row["leader_epoch"] for row in rows(cluster, node)]


def reassign(cluster: ClusterNodes, replicas: str, node: int) -> None:
    asked = muster(cluster, "cluster", "reassign", *(f"{SHARD}:{each}={replicas}" for each in range(SHARDS)), node=node)
    assert asked.returncode == 0, asked.stderr + cluster.log_tail()


def until_kept_by(cluster: ClusterNodes, replicas: set[int], node: int) -> None:
    patience = Patience(PATIENCE_S)
    while any(set(row["replicas"]) != replicas or set(row["isr"]) != replicas for row in rows(cluster, node)):
        assert patience.lasts(), (rows(cluster, node), cluster.log_tail())
        time.sleep(0.1)


def test_shards_that_are_moved_arrive_though_a_node_stands_still_and_all_are_killed(
    zookeeper: str, tmp_path: Path
) -> None:
    """Who is the controller then has never heard of any of them: it elects each leader anew, once."""
    with running_cluster(tmp_path, zookeeper, settings={"zookeeper.session.timeout.ms": "10000"}) as cluster:
        until_status(cluster, nodes=3, up=3, offline=0, under_replicated=0)
        one = cluster.controller()
        two, late = (each for each in (1, 2, 3) if each != one)
        reassign(cluster, f"{one},{two}", one)
        until_kept_by(cluster, {one, two}, one)
        before = epochs(cluster, one)

        cluster.freeze(late)  # its session lasts: it may be asked for, and cannot join
        reassign(cluster, f"{late},{one},{two}", one)
        for number in (late, one, two):
            cluster.nodes[number].kill()
        cluster.frozen.clear()
        for number in (one, two, late):
            cluster.nodes[number].start()

        until_kept_by(cluster, {late, one, two}, one)
        assert max(now - then for then, now in zip(before, epochs(cluster, one), strict=True)) <= FEW
