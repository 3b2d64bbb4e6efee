"""What is set for topics is text, of clients and of whoever writes to ZooKeeper: none of it ends a node."""

import pytest

from muster.coordinator.replication.io.admin.node_configs import LEADER_RATE, apply_config_changes
from muster.coordinator.replication.protocol.cluster_metadata import (
    MIN_ISR,
    ClusterImage,
    ClusterState,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas, ReplicaSettings
from muster.coordinator.server.cluster_backend.cluster_description import ClusterStanding
from muster.storage.config import LogSettings
from muster.storage.errors import InvalidConfig
from tests.sim.replication.disk import Disk

ME, OTHER = 1, 2
PLACE = TopicPartition("orders", 0)


def image_with(text: str) -> tuple[ClusterImage, NodeReplicas]:
    image, replicas = ClusterImage(), NodeReplicas(ME, Disk("d"), ReplicaSettings(min_isr=2), 0)
    replicas.registered(10)
    view = PartitionView(ME, 3, 3, (ME, OTHER), (), (ME, OTHER))
    topic = TopicView(b"i" * 16, "orders", {MIN_ISR: text}, {0: view})
    nodes = (NodeView(ME, 10), NodeView(OTHER, 20))
    changes = image.apply(ClusterState(epoch=1, sequence=1, full=True, nodes=nodes, topics=(topic,)))
    assert changes is not None
    replicas.learn(image, changes, 0)
    return image, replicas


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1", 1),
        (" 1", 1),
        ("+1", 1),
        ("0", 1),
        ("-7", 1),
        ("9", 2),
        ("two", 2),
        ("0" * 5_000 + "1", 2),
        ("9" * 5_000, 2),
    ],
)
def test_min_insync_replicas_is_one_number_for_all_of_a_node_whatever_is_written(text: str, wanted: int) -> None:
    image, replicas = image_with(text)
    assert replicas.leaders[PLACE].in_sync.min_size == wanted
    assert min(ControllerSettings(min_isr=2).min_isr_of({MIN_ISR: text}), 2) == wanted
    [row] = ClusterStanding.of(image, min_isr=2).partitions
    assert row.min_isr == wanted


@pytest.mark.parametrize("text", [" 1", "+1", "0" * 5_000 + "1"])
def test_the_doors_take_such_words(text: str) -> None:
    assert LogSettings().for_topic({MIN_ISR: text}).min_insync_replicas == 1


def test_a_rate_without_end_is_refused_as_any_other_that_is_none() -> None:
    with pytest.raises(InvalidConfig, match=f"'{LEADER_RATE}' is '1"):
        apply_config_changes({}, {LEADER_RATE: "1" * 5_000})
