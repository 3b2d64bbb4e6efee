"""A worker of the ZooKeeper era in virtual time, and a model of the ensemble that it talks to.

The model promises what ZooKeeper promises: writes are linear, a session sees its own writes and never goes back in
time, a watch fires once and before the client can read what changed. What ZooKeeper does not promise, the model does
not give: a read may be older than what another session has read already.

A worker has its own session and no coordinator: it pings, performs what its machine asks for, and is notified by
watches. Requests are counted with their answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

from muster.assignors.api import TopicPartition
from muster.client.members import zookeeper_events as zk
from muster.client.members.member_types import Partitions
from muster.client.members.zookeeper_assignment import ConsumerGroupView, GroupRegistration, ZookeeperSession
from muster.client.members.zookeeper_member import ZookeeperMemberMachine
from muster.workshop.lab.simulated_node import FLUSH_MS, NETWORK_MS, VirtualClock
from muster.workshop.lab.simulated_worker import RunAccount, SimulatedWorker, SteadyLoad

# The ensemble
# ------------


class VirtualTime(Protocol):
    """What the ensemble lives in."""

    rng: Random
    now_ms: int

    def after(self, delay_ms: int, action: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelZnode:
    """`owner` is the session it lives by, 0 for ever."""

    data: object
    owner: int
    number: int
    """Of the transaction that made it."""


@dataclass(frozen=True, slots=True)
class ModelTransaction:
    """One transaction: a node made, replaced or (None) deleted."""

    path: str
    node: ModelZnode | None


Watch = tuple["ModelSession", str]


class EnsembleServer:
    """Applies the changes in order, some time after they were decided."""

    def __init__(self, ensemble: "EnsembleModel") -> None:
        self.ensemble = ensemble
        self.applied = 0
        self.tree: dict[str, ModelZnode] = {}
        self.watches: dict[str, list[Watch]] = {}
        """Path (of a node, or with a / at the end of what is below it) -> who wants to be told, once."""

    def catch_up(self, number: int) -> None:
        while self.applied < number:
            change = self.ensemble.changes[self.applied]
            self.applied += 1
            listed = (change.node is None) or change.path not in self.tree
            if change.node is None:
                self.tree.pop(change.path, None)
            else:
                self.tree[change.path] = change.node
            self._fire(change.path)
            if listed:
                self._fire(change.path.rpartition("/")[0] + "/")

    def children(self, path: str) -> list[str]:
        return sorted(each[len(path) + 1 :] for each in self.tree if each.rpartition("/")[0] == path)

    def watch(self, path: str, session: "ModelSession", what: str) -> None:
        if (session, what) not in (waiting := self.watches.setdefault(path, [])):
            waiting.append((session, what))

    def _fire(self, path: str) -> None:
        for session, what in self.watches.pop(path, ()):
            session.deliver_notice(what)


@dataclass(eq=False)
class ModelSession:
    """One client's session. `heard` gets watches; `alive` is the ensemble's word, which the client may not know yet."""

    id: int
    timeout_ms: int
    server: EnsembleServer
    heard: Callable[[str], None]
    alive: bool = True
    linked: bool = True
    last_seen_ms: int = 0
    seen: int = 0
    ready_ms: int = 0
    """Nothing of this session is answered before what was asked earlier."""

    def deliver_notice(self, what: str) -> None:
        if self.linked and self.alive:
            self.heard(what)


@dataclass
class EnsembleModel:
    """The leader's tree is the truth; clients read from the server their session is with."""

    time: VirtualTime
    max_lag_ms: int
    """How far a server may be behind the leader."""
    size: int = 3
    changes: list[ModelTransaction] = field(default_factory=list)
    tree: dict[str, ModelZnode] = field(default_factory=dict)
    sessions: dict[int, ModelSession] = field(default_factory=dict)
    expired: int = 0

    def __post_init__(self) -> None:
        self.servers = [EnsembleServer(self) for _ in range(self.size)]

    # Sessions

    def connect(self, timeout_ms: int, heard: Callable[[str], None]) -> ModelSession:
        session = ModelSession(len(self.sessions) + 1, timeout_ms, self.time.rng.choice(self.servers), heard)
        self.sessions[session.id] = session
        session.last_seen_ms = self.time.now_ms
        self._watch_over(session)
        return session

    def touch(self, session: ModelSession) -> None:
        if session.alive:
            session.last_seen_ms = self.time.now_ms

    def move(self, session: ModelSession) -> None:
        """It reconnects to another server, which has to have seen what the client has seen."""
        session.server = self.time.rng.choice(self.servers)
        session.server.catch_up(session.seen)

    def unlink(self, session: ModelSession) -> None:
        """The connection breaks: its watches are gone."""
        session.linked = False
        for server in self.servers:
            for path in server.watches:
                server.watches[path] = [watch for watch in server.watches[path] if watch[0] is not session]

    def end(self, session: ModelSession) -> None:
        if not session.alive:
            return
        session.alive = False
        for path in sorted(path for path, node in self.tree.items() if node.owner == session.id):
            self._decide(path, None)

    def _watch_over(self, session: ModelSession) -> None:
        def look() -> None:
            silent_ms = self.time.now_ms - session.last_seen_ms
            if not session.alive:
                return
            if silent_ms >= session.timeout_ms:
                self.expired += 1
                self.end(session)
            else:
                self.time.after(session.timeout_ms - silent_ms, look)

        self.time.after(session.timeout_ms, look)

    # Writes: decided at once, seen by others when their server gets there

    def create(self, session: ModelSession, path: str, data: object, *, ephemeral: bool) -> ModelZnode | None:
        """None when it was made, else the node that is there already."""
        if (there := self.tree.get(path)) is not None:
            return there
        self._decide(path, ModelZnode(data, session.id if ephemeral else 0, len(self.changes) + 1))
        self._saw_own(session)
        return None

    def plant(self, path: str, data: object) -> None:
        """Everybody has seen it already: how the world is when a run begins."""
        node = self.tree[path] = ModelZnode(data, 0, len(self.changes) + 1)
        self.changes.append(ModelTransaction(path, node))
        for server in self.servers:
            server.catch_up(len(self.changes))

    def put(self, path: str, data: object) -> None:
        self._decide(path, ModelZnode(data, 0, len(self.changes) + 1))

    def delete(self, session: ModelSession, path: str) -> None:
        if path in self.tree:
            self._decide(path, None)
        self._saw_own(session)

    def sync(self, session: ModelSession) -> None:
        self._saw_own(session)

    def read(self, session: ModelSession) -> EnsembleServer:
        """The server to read from, noting how much of the world the session has seen by that."""
        session.seen = max(session.seen, session.server.applied)
        return session.server

    def _decide(self, path: str, node: ModelZnode | None) -> None:
        self.changes.append(ModelTransaction(path, node))
        number = len(self.changes)
        if node is None:
            self.tree.pop(path, None)
        else:
            self.tree[path] = node
        for server in self.servers:
            self.time.after(self.time.rng.randint(0, self.max_lag_ms), partial(server.catch_up, number))

    def _saw_own(self, session: ModelSession) -> None:
        session.server.catch_up(len(self.changes))
        session.seen = len(self.changes)


# The registry of consumers
# -------------------------

IDS, OWNERS, TOPICS, BROKERS = "/ids", "/owners", "/topics", "/brokers"


def owner_path(tp: TopicPartition) -> str:
    return f"{OWNERS}/{tp[0]}/{tp[1]}"


class ModelConsumerRegistry:
    """One consumer. `requests` counts what crossed the network, each with its answer."""

    def __init__(self, ensemble: EnsembleModel, name: str) -> None:
        self.ensemble = ensemble
        self.name = name
        self.requests = 0
        self._registrations = 0
        self._ids: list[str] = []

    def perform(
        self,
        session: ModelSession,
        action: zk.CreateRegistration | zk.ReadGroup | zk.ReleaseOwners | zk.ClaimOwners | zk.WithdrawConsumer,
    ) -> zk.ZookeeperAnswer:
        match action:
            case zk.CreateRegistration():
                return self._register(session, action)
            case zk.ReadGroup():
                return self._read(session, action)
            case zk.ClaimOwners():
                return self._claim(session, action)
            case zk.ReleaseOwners():
                self._give_back(session, action.partitions)
                return zk.OwnersReleased(action.token)
            case zk.WithdrawConsumer():
                self._give_back(session, action.partitions)
                self._unregister(session)
                return zk.ConsumerWithdrawn(action.token)

    def _register(self, session: ModelSession, action: zk.CreateRegistration) -> zk.ZookeeperAnswer:
        self._unregister(session)
        self._registrations += 1
        consumer_id = f"{self.name}.{self._registrations}"
        self._ids.append(consumer_id)
        self.requests += 1
        self.ensemble.create(session, f"{IDS}/{consumer_id}", action.registration, ephemeral=True)
        return zk.ConsumerRegistered(action.token, consumer_id)

    def _read(self, session: ModelSession, action: zk.ReadGroup) -> zk.ZookeeperAnswer:
        if action.afresh:
            self.requests += 1
            self.ensemble.sync(session)
        server = self.ensemble.read(session)
        server.watch(f"{IDS}/", session, "members")
        server.watch(f"{BROKERS}/", session, "brokers")
        members = {each: registration(server.tree[f"{IDS}/{each}"]) for each in server.children(IDS)}
        topics = sorted({topic for each in members.values() for topic in each.subscription})
        counts: dict[str, int] = {}
        for topic in topics:
            server.watch(f"{TOPICS}/{topic}", session, "partitions")
            if (node := server.tree.get(f"{TOPICS}/{topic}")) is not None:
                counts[topic] = int(str(node.data))
        self.requests += 2 + len(members) + len(topics)
        brokers = tuple(int(each) for each in server.children(BROKERS))
        return zk.GroupRead(action.token, ConsumerGroupView(members, counts, brokers))

    def _claim(self, session: ModelSession, action: zk.ClaimOwners) -> zk.ZookeeperAnswer:
        conflicts: dict[TopicPartition, str] = {}
        newest = 0
        for tp in sorted(action.share):
            path = owner_path(tp)
            there = self.ensemble.create(session, path, action.consumer_id, ephemeral=True)
            # Whoever meets a node asks whose it is.
            self.requests += 1 if there is None else 2
            node: ModelZnode = there or self.ensemble.tree[path]
            if node.owner != session.id:
                conflicts[tp] = str(node.data)
            else:
                newest = max(newest, node.number)
        return zk.OwnersClaimed(action.token, conflicts, newest)

    def _give_back(self, session: ModelSession, partitions: Partitions) -> None:
        for tp in partitions:
            self.requests += 1
            if self._is_own(session, owner_path(tp)):
                self.requests += 1
                self.ensemble.delete(session, owner_path(tp))

    def _unregister(self, session: ModelSession) -> None:
        for consumer_id in self._ids:
            self.requests += 1
            if self._is_own(session, f"{IDS}/{consumer_id}"):
                self.requests += 1
                self.ensemble.delete(session, f"{IDS}/{consumer_id}")
        self._ids.clear()

    def _is_own(self, session: ModelSession, path: str) -> bool:
        node = self.ensemble.tree.get(path)
        return node is not None and node.owner == session.id


def registration(node: ModelZnode) -> GroupRegistration:
    assert isinstance(node.data, GroupRegistration), "only consumers register"
    return node.data


# The worker
# ----------

LAG_MS = 5
"""How far a server of the ensemble may be behind: they stand side by side."""


class ZookeeperRebalances:
    """What all such workers of a run share. `rebalances` begin when the first one leaves its rest, and end together."""

    def __init__(self, clock: VirtualClock, topics: Mapping[str, int]) -> None:
        self.ensemble = EnsembleModel(clock, LAG_MS)
        self.messages = 0
        self.notifications = 0
        self.rebalances = 0
        self._restless: set[str] = set()
        for topic, count in topics.items():
            self.ensemble.plant(f"{TOPICS}/{topic}", count)
        self.ensemble.plant(f"{BROKERS}/1", "")
        self.offsets: dict[TopicPartition, int] = {}

    def note(self, worker: str, rebalancing: bool) -> None:
        if rebalancing:
            self.rebalances += not self._restless
            self._restless.add(worker)
        else:
            self._restless.discard(worker)


class ZookeeperWorker(SimulatedWorker):
    """Pings its session, performs what its machine asks for, and is told by watches."""

    def __init__(
        self,
        clock: VirtualClock,
        era: ZookeeperRebalances,
        account: RunAccount,
        labour: SteadyLoad,
        name: str,
        machine: ZookeeperMemberMachine,
    ) -> None:
        super().__init__(clock, account, labour, name, machine)
        self._machine = machine
        self._era = era
        self._registry = ModelConsumerRegistry(era.ensemble, name)
        self._session: ModelSession | None = None

    def started(self) -> None:
        session = self._era.ensemble.connect(self._machine.settings.session_timeout_ms, self._deliver_notice)
        self._session = session
        self._era.messages += 2
        self.handle_event(zk.SessionChanged(ZookeeperSession.CONNECTED))
        self._ping(session)

    def stepped(self) -> None:
        self._era.note(self.name, self.alive and self._machine.rebalancing)

    def hang_up(self) -> None:
        """A worker that closed says goodbye; one that crashed is given up with its session."""
        self._era.note(self.name, False)
        session = self._session
        if session is not None and self._machine.state.name == "CLOSED":
            # After what it asked last.
            self._send(lambda: self._era.ensemble.end(session), lambda: None)

    def perform_action(self, action: Any) -> None:
        if isinstance(action, zk.RebalanceGivenUp):
            return  # The next watch starts it anew; until then its partitions are counted as nobody's.
        session = self._session
        assert session is not None, "nothing is asked before the session"
        before = self._registry.requests
        answers: list[zk.ZookeeperAnswer] = []

        def arrive() -> None:
            answers.append(self._registry.perform(session, action))
            self._era.messages += 2 * (self._registry.requests - before)

        self._send(arrive, lambda: self.handle_event(answers[0]))

    def send_commit(self, positions: Mapping[TopicPartition, int], done: Callable[[], None]) -> None:
        def arrive() -> None:
            self._era.offsets.update(positions)
            self._era.messages += 2

        self._send(arrive, done)

    def fetch_positions(
        self, partitions: Sequence[TopicPartition], then: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None:
        found: dict[TopicPartition, int] = {}

        def arrive() -> None:
            found.update({tp: self._era.offsets[tp] for tp in partitions if tp in self._era.offsets})
            self._era.messages += 2 * len(partitions)

        self._send(arrive, lambda: then(found))

    def _send(self, arrive: Callable[[], None], answered: Callable[[], None]) -> None:
        """There, to disk, and back; in the order of the session."""
        session = self._session
        assert session is not None, "nothing is sent before the session"
        session.ready_ms = max(session.ready_ms, self._clock.now_ms + self._way_ms() + FLUSH_MS)

        def act() -> None:
            arrive()
            self._clock.after(self._way_ms(), answered)

        self._clock.at(session.ready_ms, act)

    def _deliver_notice(self, what: str) -> None:
        self._era.messages += 1
        self._era.notifications += 1
        self._clock.after(self._way_ms(), lambda: self.handle_event(zk.WatchFired(what)))

    def _ping(self, session: ModelSession) -> None:
        if self.alive:
            self._era.messages += 2
            self._era.ensemble.touch(session)
            self._clock.after(session.timeout_ms // 3, lambda: self._ping(session))

    def _way_ms(self) -> int:
        return self._clock.rng.randint(*NETWORK_MS)
