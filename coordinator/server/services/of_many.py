"""The GroupCoordinator service of a node that is one of many: a group is coordinated by the node that has its shard."""

import asyncio
from typing import Any, Final

from muster.coordinator.core.model import effects
from muster.coordinator.edge import shape
from muster.coordinator.edge.cluster import GRPC, ClusterView, coordinates_shard
from muster.coordinator.errors import ErrorCode, NodeShuttingDown, TemporarilyUnknown
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import answers
from muster.coordinator.server.services.groups import GroupCoordinator
from muster.coordinator.server.services.shared_session import MEMBERS_PER_STREAM
from muster.coordinator.server.services.watch import GroupWatcher

LOOK_S: Final = 1.0
"""How often it is looked whether a group that is watched is coordinated here still."""


class RoutedGroupCoordinator(GroupCoordinator):
    """As its base; FindCoordinator names other nodes, too.

    Takes what its base takes, and who is where; `cut_off` is what is told while this node does not hear of the others.
    """

    def __init__(self, cluster: ClusterView, *args: Any, cut_off: str, **given: Any) -> None:
        super().__init__(*args, **given)
        self._cluster = cluster
        self._cut_off = cut_off
        self.look_s = LOOK_S

    async def find_coordinator(self, request: pb.FindCoordinatorRequest, call: RpcCall) -> pb.FindCoordinatorResponse:
        shard = self._shard_of(shape.check_name("key", request.key))
        if self._cluster.cut_off:
            raise TemporarilyUnknown(self._cut_off)
        node = self._cluster.coordinator(shard, GRPC)
        if node is None:
            return pb.FindCoordinatorResponse(
                error_code=answers.to_error_code(ErrorCode.COORDINATOR_NOT_AVAILABLE),
                error_message=f"nobody coordinates shard {shard} of the groups right now; ask again",
                node_id=-1,
                partition=shard,
                in_cluster=True,
            )
        return pb.FindCoordinatorResponse(
            node_id=node.node_id,
            host=node.host,
            port=node.port,
            partition=shard,
            in_cluster=True,
            members_per_stream=MEMBERS_PER_STREAM,
        )

    async def list_groups(self, request: pb.ListGroupsRequest, call: RpcCall) -> pb.ListGroupsResponse:
        """This node's groups, which are not all."""
        answer = await super().list_groups(request, call)
        answer.in_cluster = True
        return answer

    async def _next(self, watcher: GroupWatcher, told: pb.WatchGroupResponse) -> pb.WatchGroupResponse:
        """A group that moves to another node has no more notices here: its watcher is sent after it."""
        waiting = asyncio.ensure_future(super()._next(watcher, told))
        try:
            while not (await asyncio.wait([waiting], timeout=self.look_s))[0]:
                self._coordinates(told.group_id)
            return await waiting
        finally:
            waiting.cancel()

    async def _current(self, group_id: str) -> effects.GroupChanged:
        self._coordinates(group_id)
        return await super()._current(group_id)

    def _coordinates(self, group_id: str) -> None:
        """Raises Draining, at which clients look for the coordinator."""
        if not coordinates_shard(self._cluster, self._shard_of(group_id)):
            raise NodeShuttingDown(f"this node does not coordinate group '{group_id}'; find the coordinator again")
