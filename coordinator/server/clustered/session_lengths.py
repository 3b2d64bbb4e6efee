"""Says it where nodes of a cluster have sessions of different lengths: it costs time at each takeover."""

from collections.abc import Callable

import structlog

from muster.coordinator.cluster.image import Changes, Image

log = structlog.get_logger("muster.cluster")


class SessionLengths:
    """Told of each change of the image; the log has a line when the lengths differ, or differ otherwise than before."""

    def __init__(self, image: Image, warn: Callable[..., object] = log.warning) -> None:
        self._image = image
        self._warn = warn
        self._told: dict[int, int] = {}

    def learned(self, changes: Changes) -> None:
        if not changes.nodes:
            return
        lengths = {node.id: node.session_ms for node in self._image.live() if node.session_ms}
        differ = len(set(lengths.values())) > 1
        if differ and lengths != self._told:
            each = ", ".join(f"node {node} has {ms}" for node, ms in sorted(lengths.items()))
            self._warn(
                "zookeeper.session.timeout.ms is not the same at all nodes: a takeover waits for the longest; set it "
                "to one value, one node after the other",
                lengths=each,
                as_granted_by="ZooKeeper, which bounds it to 2 to 20 of its ticks",
            )
        self._told = lengths if differ else {}
