"""Nodes that ask what is new (CL-N1, CL-C7, CL-C9): who is answered, who waits, who has to register anew."""

from dataclasses import dataclass, field

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.events import ImagePolled, OfflineReplica
from muster.coordinator.replication.protocol.controller.metadata_publisher import ParkedPoll
from muster.coordinator.replication.protocol.controller.reign import ControllerTerm
from muster.coordinator.replication.protocol.facts import NO_EPOCH
from muster.coordinator.replication.protocol.image import ClusterNodeStatus, ClusterState, ImageVersion, NodeView

NOT_ADMITTED = ClusterState(ErrorCode.STALE_BROKER_EPOCH)
"""CL-C7: the registration has not been taken in: it waited as long as it said it would, and asks again."""


@dataclass(slots=True)
class ImagePolls:
    """offline: by node, what it said last of logs that it cannot use. told: up to where parked polls were looked at."""

    reign: ControllerTerm
    offline: dict[int, tuple[OfflineReplica, ...]] = field(default_factory=dict)
    told: tuple[ImageVersion, int] = (ImageVersion(), 0)
    wake_ms: int | None = None
    """When the first parked poll has waited long enough, or earlier."""

    def poll(self, event: ImagePolled, ready: bool) -> int | None:
        """Answers a poll, or parks it. Returns the sequence that the node has applied, where that is of this reign."""
        teller = self.reign.book.teller
        if (old := teller.waiting.pop(event.node, None)) is not None:
            # It asks anew, for its connection broke: nobody hears this.
            self.reign.answer(old.request, teller.nothing(old.known))
        if not ready or not self.may_hear(event.node, event.node_epoch):
            if ready and self._is_over(event.node, event.node_epoch):
                self.reign.answer(event.request, self._over(event.node, event.node_epoch))
            else:
                self._park(event)
            return None
        if event.offline or event.node in self.offline:
            self._offline(event)
        if event.known == teller.known:
            self._park(event)
        else:
            self.reign.answer(event.request, teller.answer(event.known))
            if event.known.epoch != teller.known.epoch:
                return None
        book = self.reign.book
        book.applied[event.node] = event.known.sequence
        teller.heard = min(book.applied.get(each, NO_EPOCH) for each in book.nodes.live)
        return event.known.sequence

    def may_hear(self, node_id: int, node_epoch: int) -> bool:
        """CL-C7: only who has been taken in, in this life, and leads nothing by a former one."""
        if self.reign.silent:
            return False
        nodes = self.reign.book.nodes
        node = nodes.live.get(node_id)
        return node is not None and node.epoch == node_epoch and node_id not in nodes.unsure

    def _is_over(self, node_id: int, node_epoch: int) -> bool:
        """A registration that was fenced, or is not the last one. A later one than the last has not been seen yet."""
        nodes = self.reign.book.nodes
        fenced = nodes.fenced.get(node_id) == node_epoch
        return fenced or node_epoch < nodes.highest.get(node_id, NO_EPOCH)

    def _over(self, node_id: int, node_epoch: int) -> ClusterState:
        gone = NodeView(node_id, node_epoch, ClusterNodeStatus.GONE)
        return ClusterState(ErrorCode.STALE_BROKER_EPOCH, self.reign.book.teller.node, nodes=(gone,))

    def _park(self, event: ImagePolled) -> None:
        until_ms = self.reign.now_ms + max(0, event.max_wait_ms)
        waiting = ParkedPoll(event.request, event.node_epoch, event.known, until_ms)
        self.reign.book.teller.waiting[event.node] = waiting
        if self.wake_ms is None or until_ms < self.wake_ms:
            self.wake_ms = until_ms

    def _offline(self, event: ImagePolled) -> None:
        """CL-F9: logs that a node cannot use, all of them each time."""
        if event.offline == self.offline.get(event.node, ()):
            return
        book = self.reign.book
        found = (book.unit_at(each.topic_id, each.partition) for each in event.offline)
        units = frozenset(unit for unit in found if unit is not None)
        before = book.nodes.offline.get(event.node, frozenset())
        if units:
            book.nodes.offline[event.node] = units
        else:
            book.nodes.offline.pop(event.node, None)
        self.offline[event.node] = event.offline
        self.reign.look_at(sorted(units - before), f"log offline on node {event.node}")
        self.reign.look_at(sorted(before - units), f"log back on node {event.node}")

    def gone(self, node_id: int) -> None:
        """A node's life is over. What its next one asks may wait here already."""
        self.offline.pop(node_id, None)
        waiting = self.reign.book.teller.waiting.get(node_id)
        if waiting is not None and self._is_over(node_id, waiting.node_epoch):
            del self.reign.book.teller.waiting[node_id]
            self.reign.answer(waiting.request, self._over(node_id, waiting.node_epoch))

    def tell(self, ready: bool) -> None:
        """Answers parked polls, where there is something new or they have waited long enough."""
        book = self.reign.book
        now = (book.teller.known, len(book.nodes.live) - len(book.nodes.unsure) + (not self.reign.silent))
        due = self.wake_ms is not None and self.wake_ms <= self.reign.now_ms
        if now == self.told and not due:
            return
        self.told = now
        for node_id, waiting in list(book.teller.waiting.items()):
            hears = ready and self.may_hear(node_id, waiting.node_epoch)
            if hears and waiting.known != book.teller.known:
                answer = book.teller.answer(waiting.known)
            elif waiting.until_ms > self.reign.now_ms:
                continue
            else:
                answer = book.teller.nothing(waiting.known) if hears or not ready else NOT_ADMITTED
            del book.teller.waiting[node_id]
            self.reign.answer(waiting.request, answer)
        self.wake_ms = min((each.until_ms for each in book.teller.waiting.values()), default=None)

    def end(self) -> None:
        """The reign is over."""
        for waiting in self.reign.book.teller.waiting.values():
            self.reign.answer(waiting.request, ClusterState(ErrorCode.NOT_CONTROLLER))
        self.reign.book.teller.waiting.clear()
