"""One process with one member: the real machine of its protocol and an application, on the virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.classic_member import MembershipState
from muster.client.members.member_types import LeavePolicy, MemberSettings
from muster.coordinator.core.model import events
from tests.sim.clock import Clock
from tests.sim.faults import REQUEST_TIMEOUT_MS
from tests.sim.members.application import Application
from tests.sim.members.part import Machine, Part
from tests.sim.members.session import Session
from tests.sim.network import Answer, Call, Network
from tests.sim.watch import Watch

METADATA_MS = 5_000
"""How often a member looks at the partition counts."""
MAX_SPINS = 20
"""How often a member may be woken at one and the same time; one that thaws has some catching up to do."""

MakePart = Callable[["Process"], Part]


@dataclass(frozen=True, slots=True)
class Habits:
    """What makes one application differ from the next. Times in ms."""

    commit_every_ms: int = 2_000
    callback_ms: int = 50
    """A callback takes up to this long."""
    slow_callback: float = 0.0
    """How often a callback takes longer than any timeout."""
    late_commits: float = 0.0
    """How often a commit leaves with an identity that may be over by then."""
    plan_ms: int = 100
    commits: bool = True
    """Workers that share named resources have nothing to commit."""
    pushed: bool = False
    """It opens a session stream."""


class Process:
    """An operating system process: it can stand still, die, or be cut off. `name` is its client id."""

    def __init__(
        self,
        watch: Watch,
        network: Network,
        clock: Clock,
        name: str,
        settings: MemberSettings,
        habits: Habits,
        make_part: MakePart,
    ) -> None:
        self.world = network.world
        self.network = network
        self.watch = watch
        self.clock = clock
        self.name = name
        self.settings = settings
        self.habits = habits
        self.alive = True
        self.part = make_part(self)
        self.app = Application(self)
        self.session = Session(self) if habits.pushed else None
        self._calls: dict[int, Call] = {}
        self._others: list[Call] = []
        self._backlog: list[Callable[[], None]] = []
        self._frozen_until_ms = 0
        self._wake_at_ms: int | None = None
        self._stalls = 0
        self._ticked = (0, 0)
        """When it was last woken, and how often at that time."""

    @property
    def member(self) -> Machine:
        return self.part.member

    @property
    def consumer(self) -> bool:
        return self.part.consumer

    @property
    def cooperative(self) -> bool:
        return self.part.cooperative

    def start(self) -> None:
        self.tell(ev.Start())
        self.app.start()
        if not self.part.named:
            self._look_at_topics()

    # What happens to it

    def crash(self) -> None:
        """Gone without a word."""
        if self.alive:
            self.world.census["members crashed"] += 1
            self._end()

    def close(self, leaving: LeavePolicy) -> None:
        """Shut down in good order; ends by itself."""
        if self.alive:
            self.world.census[f"members closed ({leaving.value})"] += 1
            self.app.wake()
            self.tell(ev.Close(leaving))

    def freeze(self, for_ms: int) -> None:
        """Nothing in the process runs for a while. Timers and answers come late, in the order they came."""
        self.world.census["members paused"] += 1
        if for_ms > self.settings.session_timeout_ms:
            self.world.census["members paused beyond their session"] += 1
        self._frozen_until_ms = max(self._frozen_until_ms, self.world.now_ms + for_ms)
        self.world.at(self._frozen_until_ms, self._thaw)

    def thaw(self) -> None:
        """Whatever held it up is over."""
        self._frozen_until_ms = self.world.now_ms
        self._thaw()
        self._polls_again(self._stalls)

    def stall(self, for_ms: int) -> None:
        """The application does not poll; past the poll interval the member gives up its place."""
        self.app.stall(for_ms)
        self._stalls += 1
        stall, interval_ms = self._stalls, self.settings.rebalance_timeout_ms
        if for_ms > interval_ms:
            self.world.after(interval_ms, lambda: self.later(lambda: self._poll_expired(stall)))
        self.world.after(for_ms, lambda: self.later(lambda: self._polls_again(stall)))

    def subscribe(self, topics: tuple[str, ...], regex: str = "") -> None:
        self.world.census["subscriptions changed"] += 1
        self.part.regex = regex
        self.tell(ev.SubscriptionChanged(topics, regex))

    def _poll_expired(self, stall: int) -> None:
        if stall == self._stalls and self.app.stalled:
            self.world.census["poll timeouts"] += 1
            self.tell(ev.PollExpired())

    def _polls_again(self, stall: int) -> None:
        if stall == self._stalls:
            self.app.wake()
            self.tell(ev.PollResumed())

    # The machine

    def tell(self, event: ev.ClassicEvent | ev.ConsumerEvent) -> None:
        """Step the member and perform what it asks for, in order."""
        if not self.alive:
            return
        self.watch.told(self, event)
        for action in self.member.step(event, self.clock.now_ms):
            self.watch.acted(self, action)
            if self.alive:
                self._perform(action)
        if self.session is not None and self.alive:
            self.session.look()

    def _perform(self, action: act.Action) -> None:
        match action:
            case act.FindCoordinator():
                self._find(action.token)
            case act.SendHeartbeat() | act.SendConsumerHeartbeat() if self.session is not None and self.session.is_open:
                self.session.heartbeat(action)
            case act.SendJoin() | act.SendSync() | act.SendHeartbeat() | act.SendConsumerHeartbeat():
                self._ask(action.token, action)
            case act.SendLeave() | act.LeaveConsumerGroup():
                self.ask(self.part.farewell(action), lambda _: None)
            case act.Abandon():
                if call := self._calls.pop(action.token, None):
                    self.network.abandon(call)
                elif self.session is not None:
                    self.session.abandon(action.token)
            case act.MakePlan():
                self.part.planner.plan(action)
            case act.Revoke() | act.Lost() | act.Assign():
                self.app.call_back(action)
            case act.WakeMemberAt():
                self._wake_at(action.at_ms)
            case act.Fail():
                self.world.census[f"members refused for good: {action.code.name}"] += 1
                self.tell(ev.Close(LeavePolicy.REMAIN))
            case act.Closed():
                self._end()

    def _wake_at(self, at_ms: int) -> None:
        self._wake_at_ms = at_ms
        self.world.at(self.clock.world_ms(at_ms), lambda: self.later(lambda: self._tick(at_ms)))

    def _tick(self, at_ms: int) -> None:
        if at_ms == self._wake_at_ms:
            self._wake_at_ms = None
            self._count_spins()
            self.tell(ev.TimerExpired())

    def _count_spins(self) -> None:
        at_ms, ticks = self._ticked
        self._ticked = (self.world.now_ms, ticks + 1 if at_ms == self.world.now_ms else 1)
        if self._ticked[1] > MAX_SPINS:
            self.world.violated("client", f"{self} wants to be woken at once, again and again")

    def later(self, action: Callable[[], None]) -> None:
        """Do it now, or as soon as the process runs again."""
        if not self.alive:
            return
        if self.world.now_ms < self._frozen_until_ms:
            self._backlog.append(action)
        else:
            action()

    def _thaw(self) -> None:
        if self.world.now_ms < self._frozen_until_ms:
            return
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.later(action)

    def _end(self) -> None:
        self.alive = False
        self.app.end()
        self.watch.gone(self)
        if self.session is not None:
            self.session.end()
        for call in [*self._calls.values(), *self._others]:
            self.network.abandon(call)

    def _look_at_topics(self) -> None:
        if not self.alive:
            return
        if self.network.node.up and not self.network.lost(self.name):
            counts = dict(self.network.node.topics)
            self.later(lambda: self.tell(ev.PartitionCountsChanged(counts)))
        self.world.after(METADATA_MS, self._look_at_topics)

    # Calls

    def ask(self, request: events.Request, on_answer: Callable[[Answer], None]) -> None:
        """A call that the member's machine does not know of."""
        self._others = [call for call in self._others if not call.over]
        hear = self._hear(on_answer)
        self._others.append(self.network.call(self.name, request, REQUEST_TIMEOUT_MS, hear))

    def _ask(self, token: int, action: act.Action) -> None:
        question = self.part.question(action)

        def answered(answer: Answer) -> None:
            self._calls.pop(token, None)
            failed = ev.RequestFailed(token, retriable=True, detail="no answer")
            self.tell(failed if answer is None else question.translate(token, answer))

        self._calls[token] = self.network.call(self.name, question.request, question.timeout_ms, self._hear(answered))

    def _hear(self, on_answer: Callable[[Answer], None]) -> Callable[[Answer], None]:
        return lambda answer: self.later(lambda: on_answer(answer))

    def _find(self, token: int) -> None:
        """Lookup is a call of its own, without a group behind it."""

        def found() -> None:
            there = self.network.node.up and not self.network.lost(self.name)
            failed = ev.RequestFailed(token, retriable=True, detail="nobody there")
            self.later(lambda: self.tell(ev.CoordinatorFound(token) if there else failed))

        self.world.after(self.network.delay_ms() + self.network.delay_ms(), found)

    def __repr__(self) -> str:
        return f"{self.name} ({self.member.member_id or 'no member id'}, {self.member.state.name})"


def settled(process: Process) -> bool:
    """Its member has its share and its application has heard of it."""
    return process.member.state is MembershipState.STABLE and process.app.idle
