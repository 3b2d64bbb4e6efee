"""What is wrong with a node's part in its cluster is told by its health, and over when it is over."""

from typing import cast

from structlog.testing import capture_logs

from muster.coordinator.replication.io.wire.node_proof import NodeProofs
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage, NodeView, TopicPartition
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.cluster_backend.cluster_description import DOUBTED_S, UPGRADE_MS, ClusterConditions


class Replicas:
    def __init__(self) -> None:
        self.offline: dict[TopicPartition, tuple[bytes, str]] = {}
        self.corrupt: set[TopicPartition] = set()

    def corrupt_halves(self, unit: TopicPartition) -> set[TopicPartition]:
        return self.corrupt


class Given:
    def __init__(self, *nodes: NodeView) -> None:
        self.now_ms = 1_000
        self.image = ClusterImage(nodes={node.id: node for node in nodes})
        self.proofs = NodeProofs("c", b"s" * 32, lambda: self.image, lambda: self.now_ms / 1_000)
        self.replicas = Replicas()
        self.conditions = Conditions(lambda: self.now_ms)
        self._carried = ClusterConditions(self.conditions, cast(NodeReplicas, self.replicas), self.proofs)

    def told(self, after_ms: int = 0) -> dict[str, str]:
        self.now_ms += after_ms
        self._carried.carry()
        return {each.name: each.sentence for each in self.conditions.current()}


def test_a_node_of_an_earlier_version_is_told_of_once_an_upgrade_should_be_over() -> None:
    given = Given(NodeView(1, 10, proves=True), NodeView(2, 20))
    with capture_logs() as lines:
        assert given.told() == given.told(UPGRADE_MS - 1) == {}
        found = given.told(1)
        given.image.nodes[2] = NodeView(2, 21, proves=True)
        assert given.told() == {}
    assert list(found) == ["node-unproven:2"]
    assert found["node-unproven:2"].startswith("node 2 cannot prove that it belongs to this cluster")
    assert [line["event"] for line in lines] == [
        "the listener between nodes is open",
        "the listener between nodes answers nobody but nodes that prove it",
    ]


def test_a_node_with_another_secret_is_named_until_it_is_believed() -> None:
    given = Given(NodeView(1, 10, proves=True), NodeView(2, 20, proves=True))
    given.proofs.doubt(2, "10.0.0.2", "it has another secret")
    assert given.told() == {
        "node-unproven:2": "node 2, or who calls itself so at 10.0.0.2: it has another secret",
    }
    assert given.told(int(DOUBTED_S * 1_000) + 1) == {}


def test_copies_that_are_offline_are_named_with_their_reasons() -> None:
    given = Given(NodeView(1, 10, proves=True))
    given.replicas.offline = {TopicPartition("t", number): (b"", "no room") for number in range(7)}
    sentence = given.told()["copies-offline"]
    assert sentence.startswith("7 of this node's replicas are offline, so that others must lead: t-0 (no room); t-1")
    assert sentence.endswith("t-4 (no room); and 2 more")
    given.replicas.offline = {TopicPartition("t", 0): (b"", "it is damaged.")}
    given.replicas.corrupt = {TopicPartition("t", 0)}
    assert "it is damaged. It is copied anew from its leader once" in given.told()["copies-offline"]
    given.replicas.offline = {}
    assert given.told() == {}
