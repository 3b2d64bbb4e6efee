"""One node in virtual time: the real engine over a log in memory, with a network and a disk that take their time.

The clock is the only source of time and of chance in a run: what is scheduled happens in order of time, then of
scheduling. The node counts every message that crosses the network in either direction.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from random import Random

from muster.coordinator.core.model.effects import CentralReply, Ping, PushReply, Reply
from muster.coordinator.core.model.events import AwaitOrders, Forget, Listen, Request, StreamClosed, TopicsChanged
from muster.coordinator.core.model.types import Limits, RequestId
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.ports import Entry, KeyValue, LogWithoutTransactions
from muster.coordinator.runtime.stepper import FlushJob

# Virtual time
# ------------

ScheduledAction = Callable[[], None]

MAX_EVENTS = 20_000_000
"""A run that needs more goes in circles."""


class VirtualClock:
    """What is scheduled happens in order of time, then of scheduling. Nothing else may ask for the time or draw."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_ms = 0
        self._queue: list[tuple[int, int, ScheduledAction]] = []
        self._scheduled = 0

    def at(self, at_ms: int, action: ScheduledAction) -> None:
        self._scheduled += 1
        heappush(self._queue, (max(at_ms, self.now_ms), self._scheduled, action))

    def after(self, delay_ms: int, action: ScheduledAction) -> None:
        self.at(self.now_ms + delay_ms, action)

    def run(self, until_ms: int) -> None:
        """Let time pass. Raises RuntimeError when it does not."""
        events = 0
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, action = heappop(self._queue)
            events += 1
            if events > MAX_EVENTS:
                raise RuntimeError(
                    f"{MAX_EVENTS} events before {until_ms} ms of virtual time; something goes in circles"
                )
            action()
        self.now_ms = until_ms


# The node
# --------

SHARD = 0
FLUSH_MS = 2
NETWORK_MS = (1, 3)
"""One way."""

OnReply = Callable[[Reply], None]


class MemoryGroupLog(LogWithoutTransactions):
    """A `GroupLog` for a node that lives for one run: nothing of it is ever read back."""

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None: ...

    def flush(self, shards: Sequence[int]) -> None: ...

    def read_groups(self, shard: int) -> Iterator[KeyValue]:
        return iter(())

    def read_ledger(self, shard: int) -> Iterator[KeyValue]:
        return iter(())


@dataclass(slots=True)
class SimulatedConnection:
    """One worker's way to the node: what is sent later arrives later, in both directions."""

    up_ms: int = 0
    down_ms: int = 0


class SimulatedCall:
    """One request under way. `over`: nobody waits for its answer any more.

    `listens`: its answer is a word of the coordinator that the member did not ask for; `silent`: it stays at the node.
    """

    def __init__(
        self, connection: SimulatedConnection, on_reply: OnReply, *, listens: bool, silent: bool = False
    ) -> None:
        self.connection = connection
        self.listens = listens
        self.silent = silent
        self.on_reply = on_reply
        self.over = False
        self.request_id: RequestId = 0


class SimulatedNode:
    """Counts every message that crosses the network in either direction."""

    def __init__(self, clock: VirtualClock, topics: Mapping[str, int], limits: Limits) -> None:
        self.clock = clock
        self.topics = dict(topics)
        self.messages = 0
        self.pushes = 0
        """Words to members that they had not asked for."""
        self.engine = Engine(MemoryGroupLog(), 1, limits, options=EngineOptions(on_bug=raise_bug))
        ids = {name: name.encode().ljust(16, b"\0")[:16] for name in topics}
        self.ids = ids
        self.engine.submit_all(TopicsChanged(self.topics, (), ids))
        self.engine.load(clock.now_ms)
        self._calls: dict[RequestId, SimulatedCall] = {}
        self._last_id = 0
        self._turn_at_ms: int | None = None
        self._flushing = False
        self._turn_by(clock.now_ms)

    @property
    def rebalances(self) -> int:
        return self.engine.metrics.rebalances.total()

    def call(self, connection: SimulatedConnection, request: Request, on_reply: OnReply) -> SimulatedCall:
        """Send a request; `on_reply` hears its answer, if one ever comes."""
        call = SimulatedCall(connection, on_reply, listens=isinstance(request, Listen | AwaitOrders))
        self.messages += 1
        connection.up_ms = max(connection.up_ms, self.clock.now_ms + self._way_ms())
        self.clock.at(connection.up_ms, lambda: self._arrive(request, call))
        return call

    def say(self, connection: SimulatedConnection, request: Request) -> None:
        """Send what a stream carries; that it was taken is no message of its own."""
        self.messages += 1
        connection.up_ms = max(connection.up_ms, self.clock.now_ms + self._way_ms())
        call = SimulatedCall(connection, lambda _: None, listens=False, silent=True)
        self.clock.at(connection.up_ms, lambda: self._arrive(request, call))

    def close_connection(self, connection: SimulatedConnection, event: StreamClosed) -> None:
        """The connection is closed, after what was sent on it."""
        connection.up_ms = max(connection.up_ms, self.clock.now_ms + self._way_ms())

        def closed() -> None:
            self.engine.submit(SHARD, event)
            self._turn_by(self.clock.now_ms)

        self.clock.at(connection.up_ms, closed)

    def park(self, connection: SimulatedConnection, request: Request, on_reply: OnReply) -> SimulatedCall:
        """A request that the node's end of a connection makes by itself: it crosses no network, its answer does."""
        call = SimulatedCall(connection, on_reply, listens=isinstance(request, Listen | AwaitOrders))
        self._arrive(request, call)
        return call

    def abandon(self, call: SimulatedCall) -> None:
        """The caller is gone or does not care; the node learns of it."""
        if not call.over:
            call.over = True
            self.clock.after(self._way_ms(), lambda: self._forget(call))

    def next_id(self) -> RequestId:
        self._last_id += 1
        return self._last_id

    def _way_ms(self) -> int:
        return self.clock.rng.randint(*NETWORK_MS)

    def _arrive(self, request: Request, call: SimulatedCall) -> None:
        if call.over:
            return
        call.request_id = self.next_id()
        self._calls[call.request_id] = call
        accepted = self.engine.submit(SHARD, replace(request, request_id=call.request_id))
        assert accepted, "the inbox is emptied every turn"
        self._turn_by(self.clock.now_ms)

    def _forget(self, call: SimulatedCall) -> None:
        if self._calls.pop(call.request_id, None) is not None:
            self.engine.submit(SHARD, Forget(GROUP, call.request_id))
            self._turn_by(self.clock.now_ms)

    def _turn_by(self, at_ms: int) -> None:
        if self._turn_at_ms is None or at_ms < self._turn_at_ms:
            self._turn_at_ms = at_ms
            self.clock.at(at_ms, lambda: self._turn(at_ms))

    def _turn(self, at_ms: int) -> None:
        if at_ms == self._turn_at_ms:
            self._turn_at_ms = None
            self.engine.turn(self.clock.now_ms)
            self._after_engine()

    def _after_engine(self) -> None:
        job = None if self._flushing else self.engine.flush_job()
        if job is not None:
            self._flushing = True
            flushing = job
            self.clock.after(FLUSH_MS, lambda: self._flushed(flushing))
        released = self.engine.take_released()
        assert not released.work, "a lab's groups are small enough to be planned at once"
        for request_id, reply in released.replies:
            self._answer(request_id, reply)
        if self.engine.pending:
            self._turn_by(self.clock.now_ms)
        if (deadline_ms := self.engine.next_deadline_ms) is not None:
            self._turn_by(max(deadline_ms, self.clock.now_ms + 1))

    def _flushed(self, job: FlushJob) -> None:
        job.run()
        self._flushing = False
        self.engine.flushed(job)
        self._after_engine()

    def _answer(self, request_id: RequestId, reply: Reply) -> None:
        call = self._calls.pop(request_id, None)
        if call is not None and not call.over and not call.silent:
            self.messages += 1
            self.pushes += call.listens and is_message(reply)
            connection = call.connection
            connection.down_ms = max(connection.down_ms, self.clock.now_ms + self._way_ms())
            self.clock.at(connection.down_ms, lambda: deliver_reply(call, reply))


GROUP = "lab"


def deliver_reply(call: SimulatedCall, reply: Reply) -> None:
    if not call.over:
        call.over = True
        call.on_reply(reply)


def is_message(reply: Reply) -> bool:
    """A listener that is replaced by the next one hears only that; a ping asks for a sign of life and says nothing."""
    if isinstance(reply, CentralReply):
        return not all(isinstance(order, Ping) for order in reply.orders)
    return isinstance(reply, PushReply) and (bool(reply.code) or reply.consumer is not None)


def raise_bug(event: str, error: Exception) -> None:
    raise AssertionError(f"a rule of the coordinator broke at {event}") from error
