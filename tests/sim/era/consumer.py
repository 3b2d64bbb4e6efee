"""A process with a consumer of the ZooKeeper era: the real machine, a modelled session, an application that commits."""

from collections import deque
from collections.abc import Callable

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members import zookeeper_events as zk
from muster.client.members.zookeeper_assignment import GroupRegistration, ZookeeperMemberSettings, ZookeeperSession
from muster.client.members.zookeeper_member import ZookeeperMemberMachine
from muster.workshop.lab.zookeeper_worker import IDS, EnsembleModel, ModelConsumerRegistry, ModelSession, owner_path
from tests.sim.world import World

OFFSETS = "/offsets"
COMMIT_EVERY_MS = 700
LATENCY_MS = 30


class EraConsumer:
    """`machine` may be a broken one. `freeze`, `cut` and `kill` are what a scheduler does to a process."""

    def __init__(
        self,
        world: World,
        ensemble: EnsembleModel,
        name: str,
        machine: Callable[[ZookeeperMemberSettings, GroupRegistration], ZookeeperMemberMachine],
        settings: ZookeeperMemberSettings,
        topics: tuple[str, ...],
    ) -> None:
        self.world = world
        self.ensemble = ensemble
        self.name = name
        self.settings = settings
        self.machine = machine(settings, GroupRegistration(dict.fromkeys(topics, 1)))
        self.registry = ModelConsumerRegistry(ensemble, name)
        self.session: ModelSession | None = None
        self.frozen = self.dead = False
        self.callbacks: deque[act.Revoke | act.Lost | act.Assign] = deque()
        self.gave_up = 0
        self.refused = 0
        self._inbox: deque[zk.ZookeeperEvent] = deque()
        self._busy = False
        self._hear(ev.Start())
        self._connect()
        self._ping()
        self._commit_now_and_then()

    # Fate

    def freeze(self, for_ms: int) -> None:
        self.world.trace(f"{self.name} frozen for {for_ms}ms")
        self.frozen = True
        self.world.after(for_ms, self._thaw)

    def cut(self, for_ms: int) -> None:
        session = self.session
        if session is None or not session.linked:
            return
        self.world.trace(f"{self.name} cut off for {for_ms}ms")
        self.ensemble.unlink(session)
        self._hear(zk.SessionChanged(ZookeeperSession.SUSPENDED))
        self._hear(zk.WatchFired("session"))
        self.world.after(for_ms, lambda: self._reconnect(session))

    def kill(self) -> None:
        self.world.trace(f"{self.name} killed")
        self.dead = True

    def close(self) -> None:
        self.world.trace(f"{self.name} closes")
        self._hear(ev.Close())

    def _thaw(self) -> None:
        self.frozen = False
        while self._inbox and not self.frozen:
            self._step(self._inbox.popleft())
        session = self.session
        if session is not None and session.linked and not session.alive:
            self.ensemble.unlink(session)
            self._hear(zk.SessionChanged(ZookeeperSession.SUSPENDED))
            self._reconnect(session)
        self._serve_application()

    # The session

    def _connect(self) -> None:
        def told(what: str) -> None:
            self.world.after(self.world.between(1, LATENCY_MS), lambda: self._hear(zk.WatchFired(what)))

        self.session = self.ensemble.connect(self.settings.session_timeout_ms, told)
        self._hear(zk.SessionChanged(ZookeeperSession.CONNECTED))

    def _reconnect(self, session: ModelSession) -> None:
        if self.dead or session is not self.session:
            return
        if self.frozen:
            self.world.after(50, lambda: self._reconnect(session))
            return
        if session.alive:
            session.linked = True
            self.ensemble.touch(session)
            self.ensemble.move(session)
            self._hear(zk.SessionChanged(ZookeeperSession.CONNECTED))
        else:
            self._hear(zk.SessionChanged(ZookeeperSession.LOST))
            self._connect()

    def _ping(self) -> None:
        session = self.session
        if self.dead:
            return
        if session is not None and session.linked and not self.frozen:
            if session.alive:
                self.ensemble.touch(session)
            else:
                self._thaw()  # the server hangs up
        self.world.after(self.settings.session_timeout_ms // 3, self._ping)

    # The machine

    def _hear(self, event: zk.ZookeeperEvent) -> None:
        if self.frozen:
            self._inbox.append(event)
        elif not self.dead:
            self._step(event)

    def _step(self, event: zk.ZookeeperEvent) -> None:
        for action in self.machine.step(event, self.world.now_ms):
            self._perform(action)

    def _perform(self, action: zk.ZookeeperAction) -> None:
        match action:
            case (
                zk.CreateRegistration() | zk.ReadGroup() | zk.ReleaseOwners() | zk.ClaimOwners() | zk.WithdrawConsumer()
            ):
                self._ask(action.token, lambda s: self.registry.perform(s, action))
            case zk.RebalanceGivenUp():
                self.gave_up += 1
                self.world.trace(f"{self.name} gave up: {action.message}")
            case act.WakeMemberAt():
                self.world.at(action.at_ms, lambda: self._hear(ev.TimerExpired()))
            case act.Revoke() | act.Lost() | act.Assign():
                self.world.trace(f"{self.name} {type(action).__name__} {action.partitions}")
                self.callbacks.append(action)
                self._serve_application()
            case act.Closed():
                if self.session is not None:
                    session = self.session
                    self.world.after(LATENCY_MS * 3, lambda: self.ensemble.end(session))
            case act.Abandon():
                pass  # What was asked is done all the same; the machine does not wait for it any more.
            case act.Fail():
                self.world.violated("era", f"{self.name} failed for good: {action.message}")

    def _ask(self, token: int, work: Callable[[ModelSession], zk.ZookeeperEvent]) -> None:
        """There and back, in the order of the session; no answer when the connection breaks in between."""
        session = self.session
        assert session is not None
        if not session.linked:
            self.world.after(1, lambda: self._hear(ev.RequestFailed(token, True, "connection lost")))
            return
        session.ready_ms = max(session.ready_ms, self.world.now_ms + self.world.between(1, LATENCY_MS))

        def arrive() -> None:
            answered = session.linked and session.alive
            answer: zk.ZookeeperEvent = work(session) if answered else ev.RequestFailed(token, True, "connection lost")
            if answered and self.world.chance(0.01):
                # It took effect; only the answer is lost.
                answer = ev.RequestFailed(token, True, "connection lost")
            self.world.after(self.world.between(1, LATENCY_MS), lambda: self._hear(answer))

        self.world.at(session.ready_ms, arrive)

    # The application

    def _serve_application(self) -> None:
        """One callback after the other; letting go takes its time, and ends with a commit."""
        if self._busy or not self.callbacks or self.frozen or self.dead:
            return
        callback = self.callbacks.popleft()
        if isinstance(callback, act.Assign):
            self._serve_application()
            return
        self._busy = True

        def done() -> None:
            if self.frozen:
                self.world.after(50, done)
                return
            self._busy = False
            self._hear(ev.Revoked(callback.token))
            self._serve_application()

        if isinstance(callback, act.Revoke):
            self._commit(set(callback.partitions))
        self.world.after(self.world.between(1, 300), done)

    def _commit_now_and_then(self) -> None:
        if self.dead or self.machine.state.name == "CLOSED":
            return
        if not self.frozen:
            self._commit(set(self.machine.owned))
        self.world.after(COMMIT_EVERY_MS, self._commit_now_and_then)

    def _commit(self, partitions: set[tuple[str, int]]) -> None:
        """As the client's store does it: what it holds, under its registration."""
        session, machine = self.session, self.machine
        held = sorted(partitions & machine.nodes)
        if session is None or not session.linked or machine.generation < 0 or not held:
            return
        consumer_id = machine.consumer_id
        session.ready_ms = max(session.ready_ms, self.world.now_ms + self.world.between(1, LATENCY_MS))

        def arrive() -> None:
            if not session.linked or not session.alive or f"{IDS}/{consumer_id}" not in self.ensemble.tree:
                self.refused += 1
                return
            for tp in held:
                self.check_commit(session, tp)
                self.ensemble.put(f"{OFFSETS}/{tp[0]}/{tp[1]}", self.world.now_ms)

        self.world.at(session.ready_ms, arrive)

    def check_commit(self, session: ModelSession, tp: tuple[str, int]) -> None:
        node = self.ensemble.tree.get(owner_path(tp))
        if node is None or node.owner != session.id:
            self.world.violated("commits", f"{self.name} committed {tp}, which is {node.data if node else 'nobody'}'s")
