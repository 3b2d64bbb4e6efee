"""Whether what this node tells of the cluster is how it stands, or how it stood when the controller was last heard; and
whether all nodes go by sessions of one length, by which they are told apart from those that are gone."""

from collections.abc import Callable
from typing import NamedTuple

import structlog

from muster.coordinator.replication.protocol.image import ClusterImage, ImageChanges
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

log = structlog.get_logger("muster.cluster")


class ControllerHeard(NamedTuple):
    """ms_ago: when the controller last said how the cluster stands. cut_off: why that is so long ago that others may
    count this node as gone, a sentence; "" while it is not."""

    ms_ago: int = 0
    cut_off: str = ""


class ControllerContact:
    """now_ms: a monotonic clock. controller: its node id and where it is reached, as last seen; None: there is none."""

    def __init__(
        self,
        session: ZooKeeperSession,
        now_ms: Callable[[], int],
        controller: Callable[[], tuple[int, tuple[str, int]] | None],
    ) -> None:
        self._session = session
        self._now_ms = now_ms
        self._controller = controller
        self._heard_ms = now_ms()

    def heard(self) -> None:
        """The controller has answered a poll."""
        self._heard_ms = self._now_ms()

    def look(self) -> ControllerHeard:
        ms_ago = max(0, self._now_ms() - self._heard_ms)
        if ms_ago < self._session.session_timeout_ms:
            return ControllerHeard(ms_ago)
        return ControllerHeard(
            ms_ago,
            f"this node is not in the cluster: it has heard nothing from the controller for {ms_ago / 1000:.0f} s, "
            f"{self._why()}; what it tells is as of then. Ask another node",
        )

    def _why(self) -> str:
        if self._session.state is not SessionState.CONNECTED:
            return f"and ZooKeeper at {self._session.connect} is out of its reach"
        controller = self._controller()
        if controller is None:
            return "and as far as ZooKeeper says there is no controller"
        node, (host, port) = controller
        return f"and the controller, node {node} at {host}:{port}, does not answer it"


class SessionLengths:
    """Told of each change of the image; the log has a line when the lengths differ, or differ otherwise than before."""

    def __init__(self, image: ClusterImage, warn: Callable[..., object] = log.warning) -> None:
        self._image = image
        self._warn = warn
        self._told: dict[int, int] = {}

    def learned(self, changes: ImageChanges) -> None:
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
