"""A node whose machine lost power while it held logs that are flushed loosely registers as one that may lack records
(CL-Z4), in each of its lives until the cluster reckons with it: here that is seen, and the next life is like any
other."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.protocol.controller.nodes import is_power_loss_settled
from muster.coordinator.replication.protocol.facts import ClusterNode
from muster.coordinator.replication.protocol.image import ImageChanges
from muster.storage.broker.broker import Broker

power_loss_log: Final = structlog.get_logger("muster.cluster")


class PowerLossMark:
    """node: as it registers; its epoch is not looked at. is_loose: whether a topic is flushed loosely, by what it
    sets."""

    def __init__(
        self,
        broker: Broker,
        side: ReplicaManager,
        node: Callable[[], ClusterNode],
        is_loose: Callable[[Mapping[str, str]], bool],
    ) -> None:
        self._broker = broker
        self._side = side
        self._node = node
        self._is_loose = is_loose

    def look(self, changes: ImageChanges) -> None:
        """The image is another. Once it shows that, it is written down, in a small file, on the loop."""
        node = replace(self._node(), epoch=self._side.replicas.node_epoch)
        if node.unclean and is_power_loss_settled(node, self._side.image, self._is_loose):
            self._broker.forget_unclean()
            power_loss_log.info(
                "the cluster reckons with what this node lost with its machine's power; it counts as any other now"
            )
