"""Nodes with sessions of different lengths: the node's log has it, once."""

from typing import Any

from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterNodeStatus,
    ClusterState,
    ImageChanges,
    NodeView,
)
from muster.coordinator.server.cluster_backend.cluster_description import SessionLengths


def test_the_log_says_which_node_has_what_once_for_each_difference() -> None:
    image, told = ClusterImage(), list[str]()
    lengths = SessionLengths(image, lambda event, **more: told.append(more["lengths"]))

    def hears(*nodes: NodeView) -> None:
        state = ClusterState(epoch=1, sequence=image.known.sequence + 1, full=image.known.epoch < 0, nodes=nodes)
        changes: Any = image.apply(state)
        assert isinstance(changes, ImageChanges)
        lengths.learned(changes)

    hears(NodeView(1, 10, session_ms=6_000), NodeView(2, 20, session_ms=6_000), NodeView(3, 30))
    assert not told, "one that does not say is an older version"
    hears(NodeView(2, 21, session_ms=9_000))
    hears(NodeView(3, 31))
    assert told == ["node 1 has 6000, node 2 has 9000"]
    hears(NodeView(2, 21, ClusterNodeStatus.GONE))
    hears(NodeView(2, 22, session_ms=9_000))
    assert len(told) == 2
