"""What a node's side is told of ZooKeeper and of the controller, by whoever stands between them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.fetch_desk import ControllerDesk
from muster.coordinator.replication.protocol.controller.effects import AlterPartitionResult, ShutdownResult
from muster.coordinator.replication.protocol.image import ClusterState


class CurrentController(NamedTuple):
    """Who holds `/controller`, as last seen, and where it is reached."""

    node: int
    address: Address


class ControllerSide(NamedTuple):
    """What the node's other half, the one at ZooKeeper, is to this one.

    controller: who it is, as last seen; None: nobody. node_epoch: of this node's registration, NO_EPOCH while it has
    none. register_anew: that one counts no more. broke: a node did not answer, and may be looked at (CL-C9). desk:
    answers what is asked of the controller. in_touch: whether ZooKeeper is; session_ms: how long its sessions are.
    heard: the controller has said how the cluster stands.
    """

    controller: Callable[[], CurrentController | None]
    node_epoch: Callable[[], int]
    register_anew: Callable[[], None]
    broke: Callable[[int], None]
    desk: ControllerDesk
    in_touch: Callable[[], bool] = lambda: True
    session_ms: int = 6_000
    heard: Callable[[], None] = lambda: None


class NoControllerDesk:
    """The desk of a node that is not the controller."""

    async def alter_partition(self, node: Any, items: Any) -> AlterPartitionResult:
        return AlterPartitionResult(ErrorCode.NOT_CONTROLLER)

    async def controlled_shutdown(self, node: Any) -> ShutdownResult:
        return ShutdownResult(ErrorCode.NOT_CONTROLLER)

    async def cluster_state(self, node: Any, known: Any, offline: Any, max_wait_ms: int) -> ClusterState:
        return ClusterState(ErrorCode.NOT_CONTROLLER)
