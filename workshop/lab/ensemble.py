"""A model of a ZooKeeper ensemble: one order of writes, servers that lag, sessions, ephemerals, one-shot watches.

What a client is promised is what ZooKeeper promises: writes are linear, a session sees its own writes and never goes
back in time, a watch comes once and before the client can read what changed. What it is not promised, it does not get:
a read may be older than what another session has read already.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol


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
            session.tell(what)


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

    def tell(self, what: str) -> None:
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
