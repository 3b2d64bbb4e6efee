"""What a node that is not the controller answers to those that take it for one."""

from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import ClusterState
from muster.coordinator.replication.protocol.controller.events_and_effects import AlterPartitionResult, ShutdownResult


class NoControllerDesk:
    """The desk of a node that is not the controller."""

    async def alter_partition(self, node: Any, items: Any) -> AlterPartitionResult:
        return AlterPartitionResult(ErrorCode.NOT_CONTROLLER)

    async def controlled_shutdown(self, node: Any) -> ShutdownResult:
        return ShutdownResult(ErrorCode.NOT_CONTROLLER)

    async def cluster_state(self, node: Any, known: Any, offline: Any, max_wait_ms: int) -> ClusterState:
        return ClusterState(ErrorCode.NOT_CONTROLLER)
