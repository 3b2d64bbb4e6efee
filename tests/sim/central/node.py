"""A node with central groups on the virtual clock: the real engine over a log that forgets, and the streams' ends."""

from collections import deque
from collections.abc import Callable
from typing import Any

from muster.coordinator.core.model import events as central
from muster.coordinator.core.model.effects import CentralReply, Reply
from muster.coordinator.core.model.events import Forget, TopicsChanged
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine, EngineOptions
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.sim.checkers.lateness import WhoSentInTimeIsNotExpired
from tests.sim.node.ears import Ears
from tests.sim.node.node import MakeEngine, MakeShard, WatchedShard
from tests.sim.world import World

FLUSH_MS = 20
LATENCY_MS = 40
KEEPALIVE_MS = 15_000
"""When each end of a connection that carries nothing any more has found out, at the latest."""


class Connection:
    """In order both ways, until it is cut: then nothing arrives any more, and each end finds out in its own time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.carries = True
        self.at_node: Callable[[Any], None] = lambda _: None
        self.at_member: Callable[[Any], None] = lambda _: None
        self.node_ends: Callable[[], None] = lambda: None
        """What the node does when the member's end is gone, and the other way round."""
        self.member_ends: Callable[[], None] = lambda: None
        self.withheld_until_ms = 0
        """Nothing that was sent to the node so far, or is, arrives before."""
        self._arrivals = {True: 0, False: 0}

    def up(self, message: Any) -> None:
        self._send(True, lambda: self.at_node(message))

    def down(self, message: Any) -> None:
        self._send(False, lambda: self.at_member(message))

    def hang_up(self, *, member: bool) -> None:
        """One end closes; the other hears of it unless the line is cut."""
        self._send(member, lambda: self.node_ends() if member else self.member_ends())

    def cut(self) -> None:
        if not self.carries:
            return
        self.carries = False
        self.world.census["lines cut"] += 1
        self.world.after(self.world.between(1, KEEPALIVE_MS), lambda: self.node_ends())
        self.world.after(self.world.between(1, KEEPALIVE_MS), lambda: self.member_ends())

    def _send(self, up: bool, arrive: Callable[[], None]) -> None:
        if not self.carries:
            return
        at_ms = self.world.now_ms + self.world.between(1, LATENCY_MS)
        if up:
            at_ms = max(at_ms, self.withheld_until_ms)
        self._arrivals[up] = max(self._arrivals[up], at_ms)
        self.world.at(self._arrivals[up], lambda: arrive() if self.carries else None)


class CentralNode:
    """`committed` hears of every offset that a member has been told is kept."""

    def __init__(
        self, world: World, limits: Limits, topics: dict[str, int], make_shard: MakeShard, make_engine: MakeEngine
    ) -> None:
        self.world = world
        self.limits = limits
        self.topics = topics
        self.make_shard = make_shard
        self.make_engine = make_engine
        self.watch = WhoSentInTimeIsNotExpired(world)
        self.ears = Ears(world, self)
        self.log = MemoryGroupLog(1)
        self.engine: Engine | None = None
        self.life = 0
        self.acked: dict[tuple[str, int], int] = {}
        self._hear: dict[int, Callable[[Reply], None]] = {}
        self._next_id = 0
        self._turn_due = False
        self._flushing = False
        self.start()

    @property
    def shard(self) -> Shard | None:
        core = self.engine.core(0) if self.engine is not None else None
        return core.shard if isinstance(core, WatchedShard) else None

    @property
    def up(self) -> bool:
        return self.engine is not None

    def start(self) -> None:
        if self.engine is not None:
            return
        self.life += 1
        self.engine = self.make_engine(self.log, 1, self.limits, self._shard, EngineOptions(on_bug=self._bug))
        self.engine.submit_all(self._catalog())
        self.engine.load(self.world.now_ms)
        self.wake()

    def crash(self) -> None:
        """Whatever was not flushed may be gone; all lines break."""
        if self.engine is None:
            return
        self.world.trace("the node crashes")
        self.world.census["node crashes"] += 1
        self.engine = None
        self.life += 1
        self._flushing = False
        self._hear.clear()
        self.log.crash(lambda unflushed: self.world.between(0, unflushed))
        self.watch.crashed()
        self.ears.crashed()

    def stood_still(self, stalled_ms: int) -> None:
        if self.engine is not None:
            self.engine.stood_still(stalled_ms, self.world.now_ms)

    def grow(self, topic: str) -> None:
        self.topics[topic] += 1
        self.ears.hear(self._tell_topics)

    def _tell_topics(self) -> None:
        if self.engine is not None:
            self.engine.submit_all(self._catalog())
            self.wake()

    def ask(self, make: Callable[[int], Any], hear: Callable[[Reply], None]) -> int:
        assert self.engine is not None
        self._next_id += 1
        event = make(self._next_id)
        self._hear[self._next_id] = hear
        self.engine.submit(0, event)
        self.wake()
        return self._next_id

    def tell(self, event: central.StreamClosed) -> None:
        if self.engine is not None:
            self.engine.submit(0, event)
            self.wake()

    def forget(self, request_id: int) -> None:
        if self._hear.pop(request_id, None) is not None and self.engine is not None:
            self.engine.submit(0, Forget("g", request_id))
            self.wake()

    def _catalog(self) -> TopicsChanged:
        return TopicsChanged(dict(self.topics), ids={topic: topic.encode().ljust(16) for topic in self.topics})

    def _bug(self, event: str, error: Exception) -> None:
        self.world.violated("node", f"a bug broke the shard: {error!r} at {event}")

    def _shard(self, limits: Limits, index: int) -> WatchedShard:
        return WatchedShard(self.make_shard(limits, index), self)

    def wake(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.world.at(max(self.world.now_ms, self.ears.deaf_until_ms), self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self.ears.deaf:
            self.wake()
        elif self.engine is not None:
            self.ears.check()
            self.engine.turn(self.world.now_ms)
            self._advance(self.engine)

    def _advance(self, engine: Engine) -> None:
        for request_id, reply in engine.take_released().replies:
            if (hear := self._hear.pop(request_id, None)) is not None:
                hear(reply)
        if not self._flushing and (job := engine.flush_job()) is not None:
            self._flushing = True

            def flushed() -> None:
                if self.engine is engine:
                    self._flushing = False
                    job.run()
                    engine.flushed(job, self.world.now_ms)
                    self._advance(engine)

            self.world.after(self.world.between(1, FLUSH_MS), lambda: self.ears.hear(flushed))
        if engine.pending:
            self.wake()
        elif (due_ms := engine.next_deadline_ms) is not None:
            self.world.at(due_ms, lambda: self.wake() if self.engine is engine else None)


class NodeEnd:
    """The node's end of one stream, as `muster.coordinator.server.services.central_groups` keeps it."""

    def __init__(self, node: CentralNode, line: Connection) -> None:
        self.node = node
        self.line = line
        self.life = node.life
        self.stream = 0
        self.over = False
        self.member_id = ""
        self._inbox: deque[Any] = deque()
        self._busy = 0
        self._parked = 0
        line.at_node = self._lands
        line.node_ends = lambda: node.ears.hear(self._line_gone)

    @property
    def _gone(self) -> bool:
        return self.over or self.life != self.node.life or self.node.engine is None

    def _lands(self, message: Any) -> None:
        if not self._gone:
            self.node.watch.arrived(message, message(0, self.stream))
        self.node.ears.hear(lambda: self._arrived(message))

    def _arrived(self, message: Any) -> None:
        if self.life != self.node.life or self.node.engine is None:
            self.line.hang_up(member=False)  # the machine answers for a process that is no more
            return
        self._inbox.append(message)
        self._next()
        self._drop_unread()

    def _next(self) -> None:
        if self._gone or self._busy or not self._inbox:
            return
        said = self._inbox.popleft()
        offsets = {(topic, partition): at.offset for topic, partition, at in getattr(said(0, 0), "offsets", ())}
        self._busy = self.node.ask(
            lambda number: said(number, self.stream), lambda reply: self._answered(offsets, reply)
        )
        self.node.watch.taken(said, self._busy)

    def _answered(self, offsets: dict[tuple[str, int], int], reply: Reply) -> None:
        request, self._busy = self._busy, 0
        assert isinstance(reply, CentralReply)
        if self._gone:
            return
        if not self.stream:
            self.line.down(("registered", reply.code, reply.message))
            if reply.code:
                self._end()
                return
            self.stream = request
            self._await()
        elif reply.code:
            self._refused(reply)
            return
        for tp, offset in offsets.items():
            self.node.acked[tp] = max(offset, self.node.acked.get(tp, offset))
        self._next()

    def _await(self) -> None:
        stream = self.stream
        self._parked = self.node.ask(
            lambda number: central.AwaitOrders(number, "g", self.member_id, stream), self._heard
        )

    def _heard(self, reply: Reply) -> None:
        self._parked = 0
        assert isinstance(reply, CentralReply)
        if self._gone:
            return
        if reply.code:
            self._refused(reply)
            return
        for order in reply.orders:
            self.line.down(("order", order, reply.answered))
        self._await()

    def _refused(self, reply: CentralReply) -> None:
        fenced = reply.code is ErrorCode.UNKNOWN_MEMBER_ID
        self.line.down(("over", reply.code if fenced else ErrorCode.NONE, reply.message))
        self.stream = 0 if fenced else self.stream
        self._end()

    def _line_gone(self) -> None:
        if not self._gone:
            self._end()

    def _end(self) -> None:
        self.over = True
        self._drop_unread()
        for request in (self._busy, self._parked):
            self.node.forget(request)
        if self.stream:
            self.node.tell(central.StreamClosed("g", self.member_id, self.stream))
        self.line.hang_up(member=False)

    def _drop_unread(self) -> None:
        """What comes to a stream that is over is nobody's word."""
        while self.over and self._inbox:
            self.node.watch.taken(self._inbox.popleft(), 0)
