"""What of a cluster is measured, by the node that leads it."""

from typing import Any, cast

import pytest

from muster.coordinator.observability.metrics.instruments import ClusterFigures, LedPartitionFigures
from muster.coordinator.replication.io.election_ledger import ElectionCounts
from muster.coordinator.replication.protocol.cluster_metadata import ImageChanges, PartitionChange, TopicPartition
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.server.cluster_backend import cluster_description
from muster.coordinator.server.cluster_backend.cluster_description import ClusterMetricsSource
from tests.support.operated import Given, view

ORDERS = TopicPartition("orders", 0)


class Node1:
    """What is looked at of its replicas."""

    me = 1

    def __init__(self) -> None:
        self.leaders = {ORDERS: None, TopicPartition("orders", 3): None}
        self.copies: dict[Any, Any] = {}


def figures_of(given: Given, *, controller: bool) -> ClusterMetricsSource:
    counted = ElectionCounts(elections=5, unclean=1, took_ms=2_500, undone=13)
    return ClusterMetricsSource(given.image, cast(NodeReplicas, Node1()), counted, lambda: controller, min_isr=2)


def test_a_leader_tells_of_what_it_leads_and_the_controller_of_what_nobody_does() -> None:
    given = Given()
    assert figures_of(given, controller=True).figures() == ClusterFigures(
        under_replicated=1, offline=1, controllers=1, elections=5, elections_s=2.5, unclean=1, undone=13
    )
    assert figures_of(given, controller=False).figures().offline == 0
    given.hears({"orders": {0: view(1, (1,)), 3: view(1, (1, 2))}})
    later = figures_of(given, controller=False).figures()
    assert (later.under_replicated, later.under_min_isr) == (2, 1)


def test_each_partition_is_told_of_by_its_leader() -> None:
    assert figures_of(Given(), controller=True).led("orders", range(4)) == [
        LedPartitionFigures(True, 3, 2),
        None,
        None,
        LedPartitionFigures(True, 3, 2),
    ]


def test_who_falls_out_of_sync_and_comes_back_is_counted_by_the_leader() -> None:
    figures = figures_of(Given(), controller=False)
    whole, short = view(1, (1, 2, 3)), view(1, (1, 3))
    others = view(2, (2, 3))
    elected = whole._replace(leader_epoch=8)
    for before, after in ((whole, short), (short, whole), (short, elected), (None, short), (whole, others)):
        figures.learned(ImageChanges(partitions=[PartitionChange(ORDERS, before, after)]))
    assert (figures.figures().isr_shrinks, figures.figures().isr_expands) == (1, 1)


def test_nothing_is_made_for_partitions_that_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted on the loop, with each look at the metrics after a change: of 10,000 partitions that took 40 ms."""
    given, looked = Given(), []
    given.hears({"orders": {number: view(1, (1, 2, 3)) for number in range(4, 1_000)}})
    made = cluster_description.describe_partition

    def seen(topic: str, number: int, *more: Any) -> cluster_description.ImagePartition:
        looked.append(number)
        return made(topic, number, *more)

    monkeypatch.setattr(cluster_description, "describe_partition", seen)
    assert figures_of(given, controller=True).figures().under_replicated == 1
    assert looked == [0, 3]
