"""`muster cluster drain` over somebody's Kafka: a node says by itself, in the nodes' group, that it wants no shards."""

from typing import Final, Protocol

from muster.coordinator.edge.cluster import GRPC, ClusterView
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.rpc.v1 import cluster_service_pb2 as cluster_pb
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services.answers import to_error_code

PATIENCE_MS: Final = 60_000
MOST_PATIENCE_MS: Final = 600_000
CALLS: Final = frozenset({"DrainNode"})
"""Of the Cluster service, what a node offers that is one of many over a Kafka."""


class CanDrain(Protocol):
    """`NodesGroup`, as far as it is asked here."""

    deal: ShardAssignment

    def drain(self) -> None: ...

    def undrain(self) -> None: ...

    async def drained(self, patience_s: float) -> frozenset[int]: ...


class DrainService:
    """Answered for the node itself; for another one with where that is."""

    def __init__(self, nodes: CanDrain, cluster: ClusterView, state_topic: str) -> None:
        self._nodes = nodes
        self._cluster = cluster
        self._topic = state_topic

    async def drain_node(self, request: cluster_pb.DrainNodeRequest, call: RpcCall) -> cluster_pb.DrainNodeResponse:
        """Answered once others have what the node had."""
        refusal = self._refusal(request.node_id, undrain=request.undrain)
        if refusal is not None:
            return refusal
        if request.undrain:
            self._nodes.undrain()
            return cluster_pb.DrainNodeResponse()
        self._nodes.drain()
        patience_ms = request.timeout_ms if request.timeout_ms > 0 else PATIENCE_MS
        left = await self._nodes.drained(min(patience_ms, MOST_PATIENCE_MS) / 1_000)
        answer = cluster_pb.DrainNodeResponse()
        for shard in sorted(left):
            answer.still_leads.add(topic=self._topic, partition=shard)
        return answer

    def _refusal(self, node: int, *, undrain: bool) -> cluster_pb.DrainNodeResponse | None:
        if node != self._cluster.me:
            return self._of_another(node)
        takers = [each.node for each in self._nodes.deal.nodes.values() if each.node != node and not each.draining]
        if takers or undrain:
            return None
        return cluster_pb.DrainNodeResponse(
            error_code=to_error_code(ErrorCode.INVALID_REQUEST),
            error_message=f"node {node} is the only one that takes shards, and would keep them; start another "
            "node first",
        )

    def _of_another(self, node: int) -> cluster_pb.DrainNodeResponse:
        known = {each.node_id: f"{each.host}:{each.port}" for each in self._cluster.nodes(GRPC)}
        if node in known:
            return cluster_pb.DrainNodeResponse(
                error_code=to_error_code(ErrorCode.NOT_COORDINATOR),
                error_message=f"node {node} drains itself; ask it, at {known[node]}",
            )
        return cluster_pb.DrainNodeResponse(
            error_code=to_error_code(ErrorCode.RESOURCE_NOT_FOUND),
            error_message=f"node {node} is not known; expected one of {sorted(known)}",
        )
