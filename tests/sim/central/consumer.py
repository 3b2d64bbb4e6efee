"""A process with a member of a central group: the real machine on a clock of its own, and a slow application."""

from collections import deque
from collections.abc import Callable
from typing import Any

from muster.client.members import actions as act
from muster.client.members import central_events as ce
from muster.client.members import events as ev
from muster.client.members.central_member import CentralMemberMachine
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.member_types import MemberSettings, MembershipState
from muster.coordinator.core.model import events as central
from muster.coordinator.core.model.effects import NOTHING_COMMITTED, StartFetcher
from muster.coordinator.core.model.types import CommittedOffset
from tests.sim.central.node import LATENCY_MS, CentralNode, Connection, NodeEnd
from tests.sim.clock import Clock
from tests.sim.world import World

Machine = Callable[[MemberSettings, str, RequestedSubscription], CentralMemberMachine]
READ_EVERY_MS = 150


class CentralConsumer:
    def __init__(
        self, world: World, node: CentralNode, name: str, settings: MemberSettings, clock: Clock, machine: Machine
    ) -> None:
        self.world = world
        self.node = node
        self.name = name
        self.settings = settings
        self.clock = clock
        self.machine = machine(settings, name, RequestedSubscription(("t", "u"), "", "range"))
        self.dead = self.frozen = False
        self.slow = False
        self.positions: dict[tuple[str, int], int] = {}
        self.letting_go: set[tuple[str, int]] = set()
        self.line: Connection | None = None
        self._callbacks: deque[act.Revoke | act.Lost | act.Assign] = deque()
        self._running: act.Revoke | act.Lost | None = None
        self._last: dict[tuple[str, int], int] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake_at_ms = -1
        self._registering: int | None = None
        self.tell(ev.Start())
        self._read()

    @property
    def closed(self) -> bool:
        return self.machine.state is MembershipState.CLOSED

    @property
    def works_on(self) -> set[tuple[str, int]]:
        """What this process may touch right now: what it fetches, and, while its lease runs, what it is letting go of.

        A callback that goes on for longer than that cannot be stopped; what it commits is refused.
        """
        if self.dead or self.frozen:
            return set()
        return self.machine.owned | (set() if self.machine.lease_end_ms is None else self.letting_go)

    @property
    def settled(self) -> bool:
        return self.machine.state is MembershipState.STABLE and not self._callbacks and self._running is None

    # Fate

    def kill(self) -> None:
        self.world.trace(f"{self.name} killed")
        self.dead = True
        if self.line is not None:
            self.line.hang_up(member=True)

    def close(self) -> None:
        self.world.trace(f"{self.name} closes")
        self.slow = False
        self.later(lambda: self.tell(ev.Close()))

    def freeze(self, for_ms: int) -> None:
        self.world.trace(f"{self.name} frozen for {for_ms}ms")
        self.frozen = True
        self.world.after(for_ms, self._thaw)

    def _thaw(self) -> None:
        self.frozen = False
        # The timer that is overdue comes before whatever has arrived meanwhile.
        self.tell(ev.TimerExpired())
        while self._inbox and not self.frozen:
            self._inbox.popleft()()
        self._serve()

    def later(self, action: Callable[[], None]) -> None:
        if self.dead:
            return
        if self.frozen:
            self._inbox.append(action)
        else:
            action()

    # The machine

    def tell(self, event: ce.CentralEvent) -> None:
        if self.dead or self.closed:
            return
        for action in self.machine.step(event, self.clock.now_ms):
            self._perform(action)

    def _perform(self, action: ce.CentralAction) -> None:
        match action:
            case act.FindCoordinator():
                self._find(action.token)
            case ce.RegisterMember():
                self._register(action)
            case ce.AnswerPing(number):
                self._say(central.PingAnswered, number, self._offsets())
            case ce.AnswerStopped(number):
                self._say(central.FetcherStopped, number, self._final())
            case ce.AnswerStarted(number):
                self._say(central.FetcherStarted, number)
            case ce.SendDeregister(reason):
                offsets = self._final()
                self._up(lambda n, stream: central.Deregister(n, "g", self.name, stream, offsets, reason))
                self._drop_line()
            case ce.CloseStream() | act.Abandon():
                if isinstance(action, ce.CloseStream) or action.token == self._registering:
                    self._drop_line()
            case act.WakeMemberAt():
                self._wake_at(action.at_ms)
            case act.Revoke() | act.Lost() | act.Assign():
                if isinstance(action, act.Revoke):
                    self.letting_go |= set(action.partitions)
                self._callbacks.append(action)
                self._serve()
            case act.Fail():
                self.world.violated("member", f"{self.name} failed for good: {action.message}")
            case ce.LogNotice():
                self.world.census["failures reported"] += 1
            case act.Closed():
                self.letting_go.clear()

    def _wake_at(self, at_ms: int) -> None:
        self._wake_at_ms = at_ms

        def tick() -> None:
            if self._wake_at_ms == at_ms:
                self.tell(ev.TimerExpired())

        self.world.at(self.clock.world_ms(at_ms), lambda: self.later(tick))

    def _find(self, token: int) -> None:
        def found() -> None:
            up = self.node.engine is not None
            self.tell(ev.CoordinatorFound(token) if up else ev.RequestFailed(token, True, "nobody there"))

        self.world.after(self.world.between(2, 2 * LATENCY_MS), lambda: self.later(found))

    # The stream

    def _register(self, action: ce.RegisterMember) -> None:
        assert not action.again
        self._drop_line()
        line = self.line = Connection(self.world)
        end = NodeEnd(self.node, line)
        end.member_id = self.name
        line.at_member = lambda message: self.later(lambda: self._hear(line, message))
        line.member_ends = lambda: self.later(lambda: self._ended(line, ev.RequestFailed(action.token, True, "broke")))
        self._registering = action.token
        offsets = self._offsets() if action.owned else ()
        self._up(
            lambda number, stream: central.RegisterConsumer(
                number, "g", self.name, self.name, "host", self.settings.session_timeout_ms, action.topics,
                action.regex, action.assignor, action.generation, action.owned, offsets, stream
            )
        )  # fmt: skip
        self.world.after(
            self.settings.session_timeout_ms, lambda: self.later(lambda: self._registration_late(line, action.token))
        )

    def _registration_late(self, line: Connection, token: int) -> None:
        if self.line is line and self._registering == token:
            self._ended(line, ev.RequestFailed(token, True, "no answer"))

    def _hear(self, line: Connection, message: Any) -> None:
        if self.line is not line:
            return
        kind, *rest = message
        if kind == "registered":
            code, text = rest
            token, self._registering = self._registering, None
            assert token is not None
            if code:
                self._drop_line()
            self.tell(ce.MemberRegistered(token, code, text))
        elif kind == "order":
            order, answered = rest
            before = set(self.machine.owned)
            self.tell(ce.OrderReceived(order, answered))
            if isinstance(order, StartFetcher):
                self._begin_at(order, set(self.machine.owned) - before)
        else:
            code, text = rest
            self.line = None
            self.tell(ce.StreamEnded(code, text))

    def _ended(self, line: Connection, failed: ev.RequestFailed) -> None:
        if self.line is not line:
            return
        self._drop_line()
        if self._registering is not None:
            self._registering = None
            self.tell(failed)
        else:
            self.tell(ce.StreamEnded())

    def _drop_line(self) -> None:
        line, self.line = self.line, None
        if line is not None:
            line.hang_up(member=True)

    def _say(self, kind: Any, number: int, offsets: central.Offsets | None = None) -> None:
        rest = () if offsets is None else (offsets,)
        self._up(lambda n, stream: kind(n, "g", self.name, stream, number, *rest))

    def _up(self, said: Callable[[int, int], Any]) -> None:
        if self.line is not None:
            self.line.up(said)

    # The application

    def _begin_at(self, order: StartFetcher, taken: set[tuple[str, int]]) -> None:
        """What it has taken begins where the order says. An order of long ago, read late, is not obeyed."""
        for topic, partition, offset in order.partitions:
            tp = (topic, partition)
            if tp not in taken:
                continue
            acked = self.node.acked.get(tp, NOTHING_COMMITTED)
            if offset < acked:
                self.world.violated(
                    "offsets", f"{self.name} is to begin {tp} at {offset}, not at {acked} as acknowledged"
                )
            self.positions[tp] = 0 if offset == NOTHING_COMMITTED else offset

    def _read(self) -> None:
        if self.dead or self.closed:
            return
        if not self.frozen:
            for tp in sorted(self.machine.owned):
                self.positions[tp] = self.positions.get(tp, 0) + self.world.between(0, 3)
        self.world.after(READ_EVERY_MS, self._read)

    def _offsets(self) -> central.Offsets:
        return tuple((*tp, CommittedOffset(self.positions[tp])) for tp in sorted(self.machine.owned))

    def _final(self) -> central.Offsets:
        last, self._last = self._last, {}
        return tuple((*tp, CommittedOffset(offset)) for tp, offset in sorted(last.items()))

    def _serve(self) -> None:
        """One callback after the other; letting go takes its time, now and then more than any timeout."""
        if self._running is not None or self.frozen or self.dead:
            return
        while self._callbacks and isinstance(self._callbacks[0], act.Assign):
            self._callbacks.popleft()
        if not self._callbacks:
            return
        callback = self._callbacks.popleft()
        assert not isinstance(callback, act.Assign)
        self._running = callback
        takes_ms = self.world.between(1, 300)
        if self.slow or self.world.chance(0.03):
            takes_ms += self.world.between(0, 2 * self.settings.session_timeout_ms)
            self.world.census["slow callbacks"] += 1

        def done() -> None:
            self._running = None
            if isinstance(callback, act.Revoke):
                self._last = {tp: self.positions.get(tp, 0) for tp in callback.partitions}
            self.letting_go -= set(callback.partitions)
            self.tell(ev.Revoked(callback.token))
            self._serve()

        self.world.after(takes_ms, lambda: self.later(done))
