"""Where groups are coordinated in a cluster: with the leader of their shard."""

from collections.abc import Callable
from typing import Any

from muster.coordinator.edge.cluster import KAFKA, ClusterView
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka.handlers.classic_membership import MembershipHandlers
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint


class ClusterMembers(MembershipHandlers):
    """As its base; FindCoordinator names other nodes, too."""

    def __init__(self, groups: GroupRequests, endpoint: Callable[[], AdvertisedEndpoint], cluster: ClusterView) -> None:
        super().__init__(groups, endpoint)
        self._cluster = cluster

    def _of_group(self, group_id: str) -> dict[str, Any]:
        if self._cluster.cut_off:
            raise HangUp("who coordinates may be known to all nodes but this one; another one is to be asked")
        shard = self._groups.shard_of(group_id)
        node = self._cluster.coordinator(shard, KAFKA)
        if node is None:
            why = f"nobody coordinates shard {shard} of the groups right now; ask again"
            return {"node_id": -1, "port": -1, "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "error_message": why}
        return {"node_id": node.node_id, "host": node.host, "port": node.port, "error_message": ""}
