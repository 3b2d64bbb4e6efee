"""AlterPartition requests that wait for a write (CL-C8)."""

from collections import deque
from dataclasses import dataclass, field

from muster.coordinator.cluster.controller.alter_isr import altered, check
from muster.coordinator.cluster.controller.book import NO_LIMIT
from muster.coordinator.cluster.controller.effects import IsrAltered, IsrResult
from muster.coordinator.cluster.controller.events import AlterIsr, IsrItem
from muster.coordinator.cluster.controller.reign import Reign
from muster.coordinator.cluster.controller.writes import MOST_STATES, Draft
from muster.coordinator.cluster.facts import NO_EPOCH, State, TopicPartition
from muster.coordinator.errors import ErrorCode

MOST_WAITING = 1_000
"""Requests; the next hears REQUEST_TIMED_OUT, and its leader asks again."""

SHARE = MOST_STATES // 2
"""Of a write: leaders that ask do not keep those who have none waiting."""


def settles(item: IsrItem, sender: int, state: State) -> bool:
    """Whether a leader that asks for what is so already does so to end a doubt. A question of its that was not answered
    may be on its way still, and be done after a later one was refused; in another partition epoch it is void."""
    return sender == state.leader and item.partition_epoch == state.partition_epoch


@dataclass(slots=True)
class Ask:
    request: AlterIsr
    results: list[IsrResult | None]
    open: int


@dataclass(slots=True)
class Asks:
    reign: Reign
    queue: deque[tuple[Ask, int]] = field(default_factory=deque)
    """Items to be decided, in their order."""
    waiting: dict[int, Ask] = field(default_factory=dict)
    """By request."""

    def ask(self, event: AlterIsr) -> None:
        if self._is_stale(event):
            self.reign.answer(event.request, IsrAltered(ErrorCode.STALE_BROKER_EPOCH))
        elif len(self.waiting) >= MOST_WAITING:
            self.reign.answer(event.request, IsrAltered(ErrorCode.REQUEST_TIMED_OUT))
        elif not event.items:
            self.reign.answer(event.request, IsrAltered(ErrorCode.NONE))
        else:
            ask = self.waiting[event.request] = Ask(event, [None] * len(event.items), len(event.items))
            self.queue.extend((ask, index) for index in range(len(event.items)))

    def _is_stale(self, event: AlterIsr) -> bool:
        node = self.reign.book.nodes.live.get(event.node)
        return node is None or node.epoch != event.node_epoch

    def decide(self, draft: Draft) -> None:
        later: list[tuple[Ask, int]] = []
        most = min(MOST_STATES, draft.size + SHARE)
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
                self.reign.answer(ask.request.request, IsrAltered(ErrorCode.STALE_BROKER_EPOCH))
            elif unit is None:
                self._result(ask, index, ErrorCode.UNKNOWN_TOPIC_ID)
            elif unit in draft.states:
                later.append((ask, index))
            else:
                self._one(ask, index, item, unit, draft)
        self.queue.extendleft(reversed(later))

    def _one(self, ask: Ask, index: int, item: IsrItem, unit: TopicPartition, draft: Draft) -> None:
        book = self.reign.book
        state, assignment = book.states[unit], book.assignment(unit)
        assert assignment is not None
        standing = book.standing(unit, assignment, state)
        code = check(item, ask.request.node, state, standing, book.nodes.live)
        if code is not ErrorCode.NONE:
            self._result(ask, index, code)
            return
        wanted = altered(item, state, standing)
        if set(wanted.isr) == set(state.isr) and not settles(item, ask.request.node, state):
            self._result(ask, index, ErrorCode.NONE, state)
            return
        if set(altered(item, state, standing._replace(lowest=NO_LIMIT)).elr) != set(wanted.elr):
            # Who leaves has all that is committed, if the leader goes by what is set; it asks again when it does.
            self._result(ask, index, ErrorCode.NOT_CONTROLLER)
            return
        draft.put(unit, state, wanted, book.second.get(unit, NO_EPOCH))
        draft.back.append(lambda: self.queue.appendleft((ask, index)))
        draft.after.append(lambda: self._result(ask, index, ErrorCode.NONE, wanted))
        if assignment.adding or assignment.removing or standing.stopping:
            # Who joined may be the one whom others wait for, to go.
            draft.after.append(lambda: self.reign.look_at((unit,), "reassigned"))

    def _result(self, ask: Ask, index: int, code: ErrorCode, state: State | None = None) -> None:
        item = ask.request.items[index]
        ask.results[index] = IsrResult(item.topic_id, item.partition, code, state)
        ask.open -= 1
        if not ask.open and self.waiting.pop(ask.request.request, None) is not None:
            results = tuple(each for each in ask.results if each is not None)
            self.reign.answer(ask.request.request, IsrAltered(ErrorCode.NONE, results))

    def end(self) -> None:
        """The reign is over."""
        for request in self.waiting:
            self.reign.answer(request, IsrAltered(ErrorCode.NOT_CONTROLLER))
        self.waiting.clear()
        self.queue.clear()
