"""Asks the owners of groups what Kafka's tools may ask of any node: what is set for them, and for which (KB-X12)."""

from typing import Any, Final

import grpc

from muster.coordinator.edge.cluster import ClusterView
from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.rpc.v1.coordinator_service_pb2 import ListGroupsRequest, ListGroupsResponse
from muster.coordinator.server.cluster_backend.asking import GROUPS, PATIENCE_S, PeerChannels, PeerGroupClient

LIST: Final = f"{GROUPS}ListGroups"


class GroupOwnersClient(PeerGroupClient):
    """By their gRPC doors, as what this node's own certificate says it is."""

    def __init__(self, cluster: ClusterView, channels: PeerChannels) -> None:
        super().__init__(cluster, channels, None)

    async def with_settings(self, node: int) -> tuple[ErrorCode, tuple[str, ...]]:
        channel = self._channels.to(node)
        if channel is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, ()
        call: Any = channel.unary_unary(LIST, ListGroupsRequest.SerializeToString, ListGroupsResponse.FromString)
        try:
            said: ListGroupsResponse = await call(ListGroupsRequest(with_settings=True), timeout=PATIENCE_S)
        except grpc.aio.AioRpcError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, ()
        return error_code_of(int(said.error_code)), tuple(group.group_id for group in said.groups)
