"""CL-A7: a node that stops, or is drained, is to lead nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.effects import ShutdownResult
from muster.coordinator.replication.protocol.controller.events import RequestId, ShutdownRequested
from muster.coordinator.replication.protocol.controller.moves import LeaderMove, LeaderMoves, next_leader
from muster.coordinator.replication.protocol.controller.reign import ControllerTerm
from muster.coordinator.replication.protocol.facts import NO_NODE_ID, TopicPartition


class StoppingNode(NamedTuple):
    """A node that waits to hear that it leads nothing."""

    request: RequestId
    until_ms: int


@dataclass(slots=True)
class ControlledShutdowns:
    reign: ControllerTerm
    moves: LeaderMoves
    waiting: dict[int, StoppingNode] = field(default_factory=dict)

    def ask(self, event: ShutdownRequested) -> None:
        """ControlledShutdown: nobody is elected there from now on, in this life of the node."""
        book = self.reign.book
        node = book.nodes.live.get(event.node)
        if node is None or node.epoch != event.node_epoch:
            self.reign.answer(event.request, ShutdownResult(ErrorCode.STALE_BROKER_EPOCH))
            return
        self._answer(event.node)
        if event.node not in book.nodes.stopping:
            book.nodes.stop(event.node)
            book.teller.stage_node(book.nodes.view(event.node))
            self.reign.look_at(book.holds.get(event.node, ()), f"node {event.node} shut down")
        self._move_all(event.node, "shut down")
        until_ms = self.reign.now_ms + book.settings.shutdown_wait_ms
        self.waiting[event.node] = StoppingNode(event.request, until_ms)

    def drain(self, node_ids: frozenset[int]) -> None:
        """The first half of it, for nodes that stay: they go on as followers."""
        book = self.reign.book
        no_more = book.nodes.drained - node_ids
        book.nodes.drain(node_ids)
        for node_id in sorted(no_more):
            self.reign.look_at(book.holds.get(node_id, ()), "")
        self.move_drained()

    def move_drained(self) -> None:
        """What drained nodes lead goes to others, as far as these can."""
        for node_id in sorted(self.reign.book.nodes.drained):
            self._move_all(node_id, "drained")

    def written(self, units: Iterable[TopicPartition]) -> None:
        """Who is to lead nothing may have come to lead some of these, for nobody else could, or they were on their way
        to it when it was drained: they go as soon as another can take over."""
        book = self.reign.book
        for unit in units if book.nodes.leaving else ():
            leader, assignment = book.leader(unit), book.assignment(unit)
            if leader not in book.nodes.leaving or assignment is None or unit in self.moves.wanted.get(leader, ()):
                continue
            if next_leader(book.states[unit], book.standing(unit, assignment, book.states[unit])) != NO_NODE_ID:
                cause = "shut down" if leader in book.nodes.stops else "drained"
                self.moves.want(unit, LeaderMove(NO_NODE_ID, cause, self.reign.now_ms))

    def _move_all(self, node: int, cause: str) -> None:
        for unit in list(self.reign.book.leads.get(node, ())):
            self.moves.want(unit, LeaderMove(NO_NODE_ID, cause, self.reign.now_ms))

    def gone(self, node: int) -> None:
        if (stopping := self.waiting.pop(node, None)) is not None:
            self.reign.answer(stopping.request, ShutdownResult(ErrorCode.STALE_BROKER_EPOCH))

    @property
    def wake_ms(self) -> int | None:
        return min((stopping.until_ms for stopping in self.waiting.values()), default=None)

    def tell(self) -> None:
        """Answers those that lead nothing more, that can be helped no further, or have waited long enough."""
        for node, stopping in list(self.waiting.items()):
            leads = self.reign.book.leads.get(node)
            if not leads or not self.moves.under_way(node) or stopping.until_ms <= self.reign.now_ms:
                self._answer(node)

    def _answer(self, node: int) -> None:
        if (stopping := self.waiting.pop(node, None)) is not None:
            remaining = tuple(self.reign.book.leads.get(node, ()))
            self.reign.answer(stopping.request, ShutdownResult(ErrorCode.NONE, remaining))
