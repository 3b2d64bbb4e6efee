"""AlterPartition requests that wait for a write (CL-C8)."""

from collections import deque
from dataclasses import dataclass, field

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.alter_isr import altered_state, check_alter_partition
from muster.coordinator.replication.protocol.controller.book import NO_LIMIT
from muster.coordinator.replication.protocol.controller.effects import AlterPartitionResult, IsrResult
from muster.coordinator.replication.protocol.controller.events import AlterPartitionRequested, IsrItem
from muster.coordinator.replication.protocol.controller.reign import ControllerTerm
from muster.coordinator.replication.protocol.controller.writes import MAX_STATES, WriteDraft
from muster.coordinator.replication.protocol.facts import NO_EPOCH, PartitionState, TopicPartition

MAX_WAITING = 1_000
"""Requests; the next hears REQUEST_TIMED_OUT, and its leader asks again."""

SHARE = MAX_STATES // 2
"""Of a write: leaders that ask do not keep those who have none waiting."""


def settles_doubt(item: IsrItem, sender: int, state: PartitionState) -> bool:
    """Whether a leader that asks for what is so already does so to end a doubt. A question of its that was not answered
    may be on its way still, and be done after a later one was refused; in another partition epoch it is void."""
    return sender == state.leader and item.partition_epoch == state.partition_epoch


@dataclass(slots=True)
class PendingAlterPartition:
    request: AlterPartitionRequested
    results: list[IsrResult | None]
    open: int


@dataclass(slots=True)
class AlterPartitionQueue:
    reign: ControllerTerm
    queue: deque[tuple[PendingAlterPartition, int]] = field(default_factory=deque)
    """Items to be decided, in their order."""
    waiting: dict[int, PendingAlterPartition] = field(default_factory=dict)
    """By request."""

    def ask(self, event: AlterPartitionRequested) -> None:
        if self._is_stale(event):
            self.reign.answer(event.request, AlterPartitionResult(ErrorCode.STALE_BROKER_EPOCH))
        elif len(self.waiting) >= MAX_WAITING:
            self.reign.answer(event.request, AlterPartitionResult(ErrorCode.REQUEST_TIMED_OUT))
        elif not event.items:
            self.reign.answer(event.request, AlterPartitionResult(ErrorCode.NONE))
        else:
            ask = self.waiting[event.request] = PendingAlterPartition(
                event, [None] * len(event.items), len(event.items)
            )
            self.queue.extend((ask, index) for index in range(len(event.items)))

    def _is_stale(self, event: AlterPartitionRequested) -> bool:
        node = self.reign.book.nodes.live.get(event.node)
        return node is None or node.epoch != event.node_epoch

    def decide(self, draft: WriteDraft) -> None:
        later: list[tuple[PendingAlterPartition, int]] = []
        most = min(MAX_STATES, draft.size + SHARE)
        while self.queue:
            ask, index = self.queue[0]
            item = ask.request.items[index]
            unit = self.reign.book.unit_at(item.topic_id, item.partition)
            if unit is not None and not draft.has_room(unit, most):
                break
            self.queue.popleft()
            if ask.request.request not in self.waiting:
                continue
            if self._is_stale(ask.request):
                del self.waiting[ask.request.request]
                self.reign.answer(ask.request.request, AlterPartitionResult(ErrorCode.STALE_BROKER_EPOCH))
            elif unit is None:
                self._result(ask, index, ErrorCode.UNKNOWN_TOPIC_ID)
            elif unit in draft.states:
                later.append((ask, index))
            else:
                self._one(ask, index, item, unit, draft)
        self.queue.extendleft(reversed(later))

    def _one(
        self, ask: PendingAlterPartition, index: int, item: IsrItem, unit: TopicPartition, draft: WriteDraft
    ) -> None:
        book = self.reign.book
        state, assignment = book.states[unit], book.assignment(unit)
        assert assignment is not None
        standing = book.standing(unit, assignment, state)
        code = check_alter_partition(item, ask.request.node, state, standing, book.nodes.live)
        if code is not ErrorCode.NONE:
            self._result(ask, index, code)
            return
        wanted = altered_state(item, state, standing)
        if set(wanted.isr) == set(state.isr) and not settles_doubt(item, ask.request.node, state):
            self._result(ask, index, ErrorCode.NONE, state)
            return
        if set(altered_state(item, state, standing._replace(lowest=NO_LIMIT)).elr) != set(wanted.elr):
            # Who leaves has all that is committed, if the leader goes by what is set; it asks again when it does.
            self._result(ask, index, ErrorCode.NOT_CONTROLLER)
            return
        draft.put(unit, state, wanted, book.second.get(unit, NO_EPOCH))
        draft.back.append(lambda: self.queue.appendleft((ask, index)))
        draft.after.append(lambda: self._result(ask, index, ErrorCode.NONE, wanted))
        if assignment.adding or assignment.removing or standing.stopping:
            # Who joined may be the one whom others wait for, to go.
            draft.after.append(lambda: self.reign.look_at((unit,), "reassigned"))

    def _result(
        self, ask: PendingAlterPartition, index: int, code: ErrorCode, state: PartitionState | None = None
    ) -> None:
        item = ask.request.items[index]
        ask.results[index] = IsrResult(item.topic_id, item.partition, code, state)
        ask.open -= 1
        if not ask.open and self.waiting.pop(ask.request.request, None) is not None:
            results = tuple(each for each in ask.results if each is not None)
            self.reign.answer(ask.request.request, AlterPartitionResult(ErrorCode.NONE, results))

    def end(self) -> None:
        """The reign is over."""
        for request in self.waiting:
            self.reign.answer(request, AlterPartitionResult(ErrorCode.NOT_CONTROLLER))
        self.waiting.clear()
        self.queue.clear()
