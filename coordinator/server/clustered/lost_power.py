"""A node whose machine lost power while it held logs that are flushed loosely registers as one that may lack records
(CL-Z4), in each of its lives until the cluster reckons with it: here that is seen, and the next life is like any
other."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from muster.coordinator.cluster.controller.nodes import is_reckoned_with
from muster.coordinator.cluster.facts import Node
from muster.coordinator.cluster.image import Changes
from muster.coordinator.replication.side import ClusterSide
from muster.storage.broker.broker import Broker

log: Final = structlog.get_logger("muster.cluster")


class LostPower:
    """node: as it registers; its epoch is not looked at. is_loose: whether a topic is flushed loosely, by what it
    sets."""

    def __init__(
        self,
        broker: Broker,
        side: ClusterSide,
        node: Callable[[], Node],
        is_loose: Callable[[Mapping[str, str]], bool],
    ) -> None:
        self._broker = broker
        self._side = side
        self._node = node
        self._is_loose = is_loose

    def look(self, changes: Changes) -> None:
        """The image is another. Once it shows that, it is written down, in a small file, on the loop."""
        node = replace(self._node(), epoch=self._side.replicas.node_epoch)
        if node.unclean and is_reckoned_with(node, self._side.image, self._is_loose):
            self._broker.forget_unclean()
            log.info(
                "the cluster reckons with what this node lost with its machine's power; it counts as any other now"
            )
