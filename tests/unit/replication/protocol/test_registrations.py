"""What the controller makes of registrations that it sees, and of who shut down for the one before it (CL-C3, CL-C7,
CL-A7)."""

from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterNode,
    ClusterNodeStatus,
    ClusterState,
    NodeView,
)
from muster.coordinator.replication.protocol.controller.controller_state import NodeRegistry


def node(number: int, epoch: int) -> ClusterNode:
    return ClusterNode(number, epoch, f"directory-{number}")


def test_a_registration_that_was_out_of_sight_counts_again_and_an_older_one_does_not() -> None:
    nodes = NodeRegistry()
    nodes.load_registrations({1: node(1, 5)}, None)
    assert nodes.seen({}).gone == {1: "node 1's session expired"}
    assert nodes.seen({1: node(1, 4)}).coming == []
    assert nodes.seen({1: node(1, 5)}).coming == [node(1, 5)]
    assert nodes.seen({1: node(1, 5)}).coming == [], "it waits already"


def test_who_shut_down_for_the_controller_before_goes_on_to_shut_down() -> None:
    image = ClusterImage()
    views = (
        NodeView(1, 5, ClusterNodeStatus.SHUTTING_DOWN),
        NodeView(2, 6),
        NodeView(3, 6, ClusterNodeStatus.SHUTTING_DOWN),
    )
    image.apply(ClusterState(epoch=1, sequence=1, full=True, nodes=views))
    nodes = NodeRegistry()
    nodes.load_registrations({1: node(1, 5), 2: node(2, 6), 3: node(3, 7)}, image)
    assert (nodes.stops, nodes.leaving) == ({1}, {1})
    assert set(nodes.unsure) == {3}, "another life of it, of which nothing is known"
    assert nodes.seen({2: node(2, 6), 3: node(3, 7)}).gone == {1: "node 1 shut down"}
    assert (nodes.stops, nodes.leaving) == (set(), set())
