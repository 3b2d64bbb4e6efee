"""KEDA's scaler at a node that is one of many: whichever it asks, the group's coordinator answers."""

from typing import Any, Final

from muster.coordinator.edge.cluster import FORWARDED_HEADER, GRPC, ClusterView, OtherNodes
from muster.coordinator.observability.scaler.scaler_service import ExternalScaler
from muster.coordinator.observability.scaler.trigger_metadata import parse_metadata
from muster.coordinator.rpc.v1 import externalscaler_service_pb2 as pb
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.rpc_dispatch import RpcCall

SERVICE: Final = "/externalscaler.ExternalScaler/"


class ClusterScaler(ExternalScaler):
    """As its base. What another node was asked comes back as it answers, its refusals as well; what comes from another
    node is answered here, or refused: two that do not agree on who coordinates do not send it to and fro."""

    def __init__(self, cluster: ClusterView, shards: int, *args: Any) -> None:
        super().__init__(*args)
        self._cluster = cluster
        self._shards = shards

    async def is_active(self, request: pb.ScaledObjectRef, call: RpcCall) -> pb.IsActiveResponse:  # type: ignore[override]
        if (there := self._elsewhere(request, call)) is None:
            return await super().is_active(request, call)
        elsewhere, node = there
        return await elsewhere.forwarded(node, f"{SERVICE}IsActive", request, pb.IsActiveResponse)

    async def get_metrics(self, request: pb.GetMetricsRequest, call: RpcCall) -> pb.GetMetricsResponse:  # type: ignore[override]
        if (there := self._elsewhere(request.scaledObjectRef, call)) is None:
            return await super().get_metrics(request, call)
        elsewhere, node = there
        return await elsewhere.forwarded(node, f"{SERVICE}GetMetrics", request, pb.GetMetricsResponse)

    def _elsewhere(self, request: pb.ScaledObjectRef, call: RpcCall) -> tuple[OtherNodes, int] | None:
        """Whom to ask in place of this node. Raises BadMetadata."""
        elsewhere = self._cluster.elsewhere
        shard = partition_for(parse_metadata(dict(request.scalerMetadata)).group, self._shards)
        node = self._cluster.coordinator(shard, GRPC)
        if elsewhere is None or node is None or node.node_id == self._cluster.me or FORWARDED_HEADER in call.metadata:
            return None
        return elsewhere, node.node_id
