"""A cluster of three nodes, the third of which is gone, behind the service by which operators ask about it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.election_ledger import ElectionReport
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterNodeStatus,
    ClusterState,
    NodeEndpoint,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.server.cluster_backend.cluster_service import ClusterService
from muster.coordinator.zookeeper.errors import ZooKeeperError


def view(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3), **more: Any) -> PartitionView:
    return PartitionView(leader, 7, 12, isr, more.pop("elr", ()), replicas, **more)


class Given:
    """Notes what is asked, and answers what a test put in; `service` is asked."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.asked: list[Any] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.code = ErrorCode.NONE
        self.drains: frozenset[int] | None = frozenset()
        self.here = True
        self.told: list[ElectionReport] = []
        self.sequence = 0
        orders = {
            0: view(1, (1, 2)),
            1: view(2, (2,), elr=(1,)),
            2: view(-1, (3,)),
            3: view(1, (1, 2), (1, 2, 4), adding=(4,)),
        }
        nodes = (
            NodeView(
                1, 50, rack="a", endpoints=(NodeEndpoint("GRPC", "one", 9090), NodeEndpoint("REPLICATION", "one", 9190))
            ),
            NodeView(2, 51, endpoints=(NodeEndpoint("GRPC", "two", 9090),)),
            NodeView(3, 40, ClusterNodeStatus.GONE),
        )
        self.hears({"orders": orders}, nodes)
        self.service = ClusterService("c1", self.image, self, self, self, min_isr=2, applied=lambda: {1: 17, 2: 16})

    def hears(self, topics: Mapping[str, Mapping[int, PartitionView]], nodes: Iterable[NodeView] = ()) -> None:
        self.sequence += 1
        views = tuple(TopicView(name.encode().ljust(16), name, {}, parts) for name, parts in topics.items())
        told = ClusterState(ErrorCode.NONE, 1, 4, self.sequence, self.sequence == 1, tuple(nodes), views)
        assert self.image.apply(told) is not None

    async def elect(self, places: Any, unclean: bool = False, timeout_ms: int = 0) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(("elect", places, unclean, timeout_ms))
        return self.codes

    async def reassign(self, wanted: Any, timeout_ms: int = 0) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(("reassign", wanted, timeout_ms))
        return self.codes

    def reassignments(self, places: Any = None) -> dict[TopicPartition, object]:
        self.asked.append(("reassignments", places))
        return {TopicPartition("orders", 3): None}

    async def drain(self, node: int, on: bool = True) -> ErrorCode:
        self.asked.append(("drain", node, on))
        return self.code

    async def drained(self) -> frozenset[int]:
        if self.drains is None:
            raise ZooKeeperError("away")
        return self.drains

    async def explain(self, limit: int, topic: str = "") -> list[ElectionReport]:
        self.asked.append(("explain", limit, topic))
        return self.told

    async def until(self, shown: Callable[[], bool], deadline_s: float) -> bool:
        if not shown():
            self.hears({"orders": {0: view(2, (1, 2)), 3: view(2, (1, 2))}})
        return shown()
