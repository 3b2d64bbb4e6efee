"""One process with one member: the real `ClassicMember` with an application, on the virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coordinator.core import effects, events
from coordinator.core.types import MemberIdentity, Protocol
from coordinator.member import actions as act
from coordinator.member import events as ev
from coordinator.member.classic import ClassicMember, State
from coordinator.member.subscription import Subscriber
from coordinator.member.types import GroupMember, Leaving, MemberSettings
from tests.sim.application import Application
from tests.sim.network import Answer, Call, Network
from tests.sim.planner import Planner
from tests.sim.watch import Watch
from tests.sim.world import World

REQUEST_TIMEOUT_MS = 8_000
JOIN_GRACE_MS = 5_000
"""A join may take the whole rebalance timeout, and a little more."""
METADATA_MS = 5_000
"""How often a member looks at the partition counts."""
MAX_SPINS = 20
"""How often a member may be woken at one and the same time; one that thaws has some catching up to do."""

MakeMember = Callable[[MemberSettings, Subscriber], ClassicMember]


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


class Process:
    """An operating system process: it can stand still, die, or be cut off. `name` is its client id."""

    def __init__(
        self,
        world: World,
        network: Network,
        watch: Watch,
        name: str,
        settings: MemberSettings,
        subscriber: Subscriber,
        habits: Habits,
        make_member: MakeMember = ClassicMember,
    ) -> None:
        self.world = world
        self.network = network
        self.watch = watch
        self.name = name
        self.settings = settings
        self.habits = habits
        self.subscriber = subscriber
        self.member = make_member(settings, subscriber)
        self.alive = True
        self.app = Application(self)
        self.planner = Planner(self)
        self._calls: dict[int, Call] = {}
        self._others: list[Call] = []
        self._backlog: list[Callable[[], None]] = []
        self._frozen_until_ms = 0
        self._wake_at_ms: int | None = None
        self._stalls = 0
        self._ticked = (0, 0)
        """When it was last woken, and how often at that time."""

    @property
    def cooperative(self) -> bool:
        return self.subscriber.protocol.value == "cooperative"

    def start(self) -> None:
        self.tell(ev.Start())
        self.app.start()
        self._look_at_topics()

    # What happens to it

    def crash(self) -> None:
        """Gone without a word."""
        if self.alive:
            self.world.census["members crashed"] += 1
            self._end()

    def close(self, leaving: Leaving) -> None:
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

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.world.census["subscriptions changed"] += 1
        self.tell(ev.SubscriptionChanged(topics))

    def _poll_expired(self, stall: int) -> None:
        if stall == self._stalls and self.app.stalled:
            self.world.census["poll timeouts"] += 1
            self.tell(ev.PollExpired())

    def _polls_again(self, stall: int) -> None:
        if stall == self._stalls:
            self.app.wake()
            self.tell(ev.Polled())

    # The machine

    def tell(self, event: ev.Event) -> None:
        """Step the member and perform what it asks for, in order."""
        if not self.alive:
            return
        self.watch.told(self, event)
        for action in self.member.step(event, self.world.now_ms):
            self.watch.acted(self, action)
            if self.alive:
                self._perform(action)

    def _perform(self, action: act.Action) -> None:
        match action:
            case act.FindCoordinator():
                self._find(action.token)
            case act.SendJoin():
                timeout_ms = self.settings.rebalance_timeout_ms + JOIN_GRACE_MS
                self._ask(action.token, self._join(action), timeout_ms, join_answered)
            case act.SendSync():
                timeout_ms = self.settings.rebalance_timeout_ms + JOIN_GRACE_MS
                self._ask(action.token, self._sync(action), timeout_ms, sync_answered)
            case act.SendHeartbeat():
                self._ask(action.token, self._heartbeat(action), REQUEST_TIMEOUT_MS, heartbeat_answered)
            case act.SendLeave():
                self.ask(self._leave(action), lambda _: None)
            case act.Abandon():
                if call := self._calls.pop(action.token, None):
                    self.network.abandon(call)
            case act.Plan():
                self.planner.plan(action)
            case act.Revoke() | act.Lost() | act.Assign():
                self.app.call_back(action)
            case act.WakeAt():
                self._wake_at(action.at_ms)
            case act.Fail():
                self.world.census[f"members refused for good: {action.code.name}"] += 1
                self.tell(ev.Close(Leaving.REMAIN))
            case act.Closed():
                self._end()

    def _wake_at(self, at_ms: int) -> None:
        self._wake_at_ms = at_ms
        self.world.at(at_ms, lambda: self.later(lambda: self._tick(at_ms)))

    def _tick(self, at_ms: int) -> None:
        if at_ms == self._wake_at_ms:
            self._wake_at_ms = None
            self._count_spins()
            self.tell(ev.Tick())

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
        for call in [*self._calls.values(), *self._others]:
            self.network.abandon(call)

    def _look_at_topics(self) -> None:
        if not self.alive:
            return
        if self.network.node.up and not self.network.lost(self.name):
            counts = dict(self.network.node.topics)
            self.later(lambda: self.tell(ev.TopicsChanged(counts)))
        self.world.after(METADATA_MS, self._look_at_topics)

    # Calls

    def ask(self, request: events.Request, on_answer: Callable[[Answer], None]) -> None:
        """A call that the member's machine does not know of."""
        self._others = [call for call in self._others if not call.over]
        hear = self._hear(on_answer)
        self._others.append(self.network.call(self.name, request, REQUEST_TIMEOUT_MS, hear))

    def _ask(
        self, token: int, request: events.Request, timeout_ms: int, translate: Callable[[int, Any], ev.Event]
    ) -> None:
        def answered(answer: Answer) -> None:
            self._calls.pop(token, None)
            failed = ev.RequestFailed(token, retriable=True, detail="no answer")
            self.tell(failed if answer is None else translate(token, answer))

        self._calls[token] = self.network.call(self.name, request, timeout_ms, self._hear(answered))

    def _hear(self, on_answer: Callable[[Answer], None]) -> Callable[[Answer], None]:
        return lambda answer: self.later(lambda: on_answer(answer))

    def _find(self, token: int) -> None:
        """Lookup is a call of its own, without a group behind it."""

        def found() -> None:
            there = self.network.node.up and not self.network.lost(self.name)
            failed = ev.RequestFailed(token, retriable=True, detail="nobody there")
            self.later(lambda: self.tell(ev.CoordinatorFound(token) if there else failed))

        self.world.after(self.network.delay_ms() + self.network.delay_ms(), found)

    def _join(self, action: act.SendJoin) -> events.JoinGroup:
        settings = self.settings
        return events.JoinGroup(
            request_id=0,
            group_id=settings.group_id,
            member_id=action.member_id,
            group_instance_id=settings.group_instance_id,
            client_id=self.name,
            client_host="host",
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            protocol_type=settings.protocol_type,
            protocols=tuple(Protocol(offer.name, offer.metadata) for offer in action.protocols),
            fresh_id="",
            reason=action.reason,
        )

    def _sync(self, action: act.SendSync) -> events.SyncGroup:
        return events.SyncGroup(
            request_id=0,
            group_id=self.settings.group_id,
            member_id=action.member_id,
            group_instance_id=self.settings.group_instance_id,
            generation=action.generation,
            protocol_type=self.settings.protocol_type,
            protocol_name=action.protocol_name,
            assignments=action.assignments,
            snapshot=action.snapshot,
        )

    def _heartbeat(self, action: act.SendHeartbeat) -> events.Heartbeat:
        instance_id = self.settings.group_instance_id
        return events.Heartbeat(0, self.settings.group_id, action.member_id, instance_id, action.generation)

    def _leave(self, action: act.SendLeave) -> events.LeaveGroup:
        who = MemberIdentity(action.member_id, self.settings.group_instance_id, action.reason)
        return events.LeaveGroup(0, self.settings.group_id, (who,))

    def __repr__(self) -> str:
        return f"{self.name} ({self.member.member_id or 'no member id'}, {self.member.state.name})"


def settled(process: Process) -> bool:
    """Its member has its share and its application has heard of it."""
    return process.member.state is State.STABLE and process.app.idle


def join_answered(token: int, reply: effects.JoinReply) -> ev.JoinAnswered:
    return ev.JoinAnswered(
        token=token,
        code=reply.code,
        message=reply.message,
        generation=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(GroupMember(m.member_id, m.group_instance_id, m.metadata) for m in reply.members),
        cause=reply.cause,
        cause_detail=reply.cause_detail,
        rebalance_number=reply.rebalance_number,
    )


def sync_answered(token: int, reply: effects.SyncReply) -> ev.SyncAnswered:
    return ev.SyncAnswered(token, reply.code, reply.message, reply.assignment)


def heartbeat_answered(token: int, reply: effects.HeartbeatReply) -> ev.HeartbeatAnswered:
    return ev.HeartbeatAnswered(token, reply.code, reply.message)
