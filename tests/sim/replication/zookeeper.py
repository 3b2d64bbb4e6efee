"""A model of ZooKeeper: an ensemble of servers that apply the same transactions, each at its own pace.

What a client may rest on is what it may rest on in the real one: writes are in one order, and each either happens whole
or not at all; a client sees its own writes, and never an older state than it has seen; a watch fires once, before the
client can read what it fired for; an ephemeral znode goes with its session, when ZooKeeper's clock says so. What it may
not rest on happens here: an answer gets lost after the deed, a read shows what was, a session ends unnoticed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.sim.replication.network import Broken, Host, Network
from tests.sim.world import World

NAME = "zookeeper"
PING_SHARE = 3
"""A client is heard of this often in a session timeout."""
LOOK_AGAIN_MS = 50


class Znode(NamedTuple):
    data: Any
    version: int
    czxid: int
    owner: int = 0
    """The session of an ephemeral one."""


class Create(NamedTuple):
    path: str
    data: Any
    ephemeral: bool = False


class Put(NamedTuple):
    path: str
    data: Any
    version: int = -1


class Delete(NamedTuple):
    path: str
    version: int = -1


class Check(NamedTuple):
    path: str
    version: int


Operation = Create | Put | Delete | Check


class NodeExists(Exception): ...


class NoNode(Exception): ...


class BadVersion(Exception): ...


class ConnectionLoss(Exception):
    """No answer: it may have been done, or be done yet."""


class SessionExpired(Exception): ...


@dataclass(slots=True)
class Tree:
    """The znodes as of a transaction. Names below a path are found by their prefix: trees are small here."""

    nodes: dict[str, Znode] = field(default_factory=dict)
    zxid: int = 0

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted({each[len(prefix) :].split("/")[0] for each in self.nodes if each.startswith(prefix)})

    def check(self, operations: Sequence[Operation], session: int) -> dict[str, Znode | None]:
        """What the operations would change, one after the other; raises if one of them cannot be."""
        changed: dict[str, Znode | None] = {}
        for each in operations:
            now = changed[each.path] if each.path in changed else self.nodes.get(each.path)
            if isinstance(each, Create):
                if now is not None:
                    raise NodeExists(each.path)
                changed[each.path] = Znode(each.data, 0, self.zxid + 1, session if each.ephemeral else 0)
                continue
            if now is None:
                raise NoNode(each.path)
            if each.version not in (-1, now.version):
                raise BadVersion(each.path)
            if isinstance(each, Put):
                changed[each.path] = now._replace(data=each.data, version=now.version + 1)
            elif isinstance(each, Delete):
                changed[each.path] = None
        return changed

    def apply(self, changed: dict[str, Znode | None]) -> None:
        self.zxid += 1
        for path, znode in changed.items():
            if znode is None:
                del self.nodes[path]
            else:
                self.nodes[path] = znode


@dataclass(slots=True)
class Server:
    tree: Tree = field(default_factory=Tree)
    watches: dict[tuple[str, str], dict[int, Callable[[str], None]]] = field(default_factory=dict)
    """("data" or "children", path) -> by session, what to call."""

    def apply(self, changed: dict[str, Znode | None]) -> None:
        touched = {("data", path) for path in changed}
        for path, znode in changed.items():
            if (znode is None) != (path not in self.tree.nodes):
                parent = path
                while parent:
                    parent = parent.rpartition("/")[0]
                    touched.add(("children", parent or "/"))
        self.tree.apply(changed)
        for key in sorted(touched):
            for fired in self.watches.pop(key, {}).values():
                fired(key[1])


@dataclass(slots=True)
class Session:
    id: int
    heard_ms: int
    server: int


class Ensemble:
    """Three servers. `away`: without a quorum nothing is answered, and no session ends."""

    def __init__(self, world: World, network: Network, timeout_ms: int, lag_ms: int = 150) -> None:
        self.world = world
        self.timeout_ms = timeout_ms
        self.lag_ms = lag_ms
        self.away = False
        self.committed = Tree()
        self.servers = [Server() for _ in range(3)]
        self.sessions: dict[int, Session] = {}
        self.history: list[dict[str, Znode | None]] = []
        self.ended: set[int] = set()
        self._made = 0
        network.add(Host(NAME, self._serve, lambda: not self.away))
        world.after(timeout_ms // 4, self._look)

    def leave(self) -> None:
        self.away = True

    def come_back(self) -> None:
        """A new leader of the ensemble gives every session its whole timeout."""
        self.away = False
        for session in self.sessions.values():
            session.heard_ms = self.world.now_ms

    def new_session(self) -> int:
        self._made += 1
        server = self.world.between(0, len(self.servers) - 1)
        self.sessions[self._made] = Session(self._made, self.world.now_ms, server)
        return self._made

    def _serve(self, asker: str, request: Any, reply: Callable[[Any], None]) -> None:
        if self.away:
            return
        kind, session_id, body = request
        if kind == "connect":
            reply(self.new_session() if session_id == 0 or session_id not in self.sessions else session_id)
            return
        session = self.sessions.get(session_id)
        if session is None:
            reply(SessionExpired())
            return
        session.heard_ms = self.world.now_ms
        try:
            reply(self._do(session, kind, body))
        except (NodeExists, NoNode, BadVersion) as error:
            reply(error)

    def _do(self, session: Session, kind: str, body: Any) -> Any:
        server = self.servers[session.server]
        if kind == "reconnect":
            session.server = self.world.between(0, len(self.servers) - 1)
            self._catch_up(session.server, body)  # never an older state than the client has seen
            return None
        if kind == "multi":
            changed = self.committed.check(body, session.id)
            self._commit(changed)
            self._catch_up(session.server, self.committed.zxid)
            return [changed.get(each.path) for each in body], self.committed.zxid
        if kind == "sync":
            self._catch_up(session.server, self.committed.zxid)
            return None, server.tree.zxid
        path, fired = body
        if fired is not None and kind in ("get", "children"):
            key = ("data" if kind == "get" else "children", path)
            server.watches.setdefault(key, {})[session.id] = fired
        found = server.tree.nodes.get(path) if kind == "get" else server.tree.children(path)
        return found, server.tree.zxid

    def _commit(self, changed: dict[str, Znode | None]) -> None:
        self.committed.apply(changed)
        self.history.append(changed)
        zxid = self.committed.zxid
        for number in range(len(self.servers)):
            self.world.after(self.world.between(0, self.lag_ms), lambda number=number: self._catch_up(number, zxid))

    def _catch_up(self, number: int, zxid: int) -> None:
        server = self.servers[number]
        while server.tree.zxid < zxid:
            server.apply(self.history[server.tree.zxid])

    def _look(self) -> None:
        """End the sessions that were not heard of in time."""
        self.world.after(self.timeout_ms // 4, self._look)
        if self.away:
            return
        for session in list(self.sessions.values()):
            if self.world.now_ms - session.heard_ms > self.timeout_ms:
                self.close(session.id)

    def close(self, session_id: int) -> None:
        """The session is over, and with it what it had made to go with it."""
        if self.sessions.pop(session_id, None) is None:
            return
        self.ended.add(session_id)
        gone = [path for path, znode in self.committed.nodes.items() if znode.owner == session_id]
        self.world.trace(f"zookeeper: session {session_id} ends, with {gone}")
        if gone:
            self._commit(dict.fromkeys(gone))


class Client:
    """One process' connection: requests in order, one session after the other.

    do: performs an action of its process (which may be frozen, or dead by then). on_change is called with "connected"
    (watches are gone: read anew), "broken", "lost".
    """

    def __init__(
        self,
        ensemble: Ensemble,
        network: Network,
        name: str,
        on_change: Callable[[str], None],
        do: Callable[[Callable[[], None]], None],
    ) -> None:
        self.ensemble = ensemble
        self.session = 0
        self.connected = False
        self._network = network
        self._world = ensemble.world
        self._name = name
        self._on_change = on_change
        self._do = do
        self._zxid = 0
        self._watching = 0
        self._closed = False
        self._patience_ms = ensemble.timeout_ms * 2 // 3

    def start(self) -> None:
        self._ask("connect", None, self._connected)

    def close(self) -> None:
        """Say good-bye: the session ends at once, if ZooKeeper hears it."""
        self._closed = True
        session, self.session, self.connected = self.session, 0, False
        if session and not self.ensemble.away and (self._name, NAME) not in self._network.cut:
            self.ensemble.close(session)

    def get(self, path: str, then: Callable[[Any], None], watch: Callable[[str], None] | None = None) -> None:
        """Gives a Znode or None, or an exception."""
        self._read("get", path, then, watch)

    def children(self, path: str, then: Callable[[Any], None], watch: Callable[[str], None] | None = None) -> None:
        self._read("children", path, then, watch)

    def sync(self, then: Callable[[Any], None]) -> None:
        self._request("sync", (), then)

    def multi(self, operations: Sequence[Operation], then: Callable[[Any], None]) -> None:
        """Gives the znodes that came of them, or an exception."""
        self._request("multi", tuple(operations), then)

    def _read(self, kind: str, path: str, then: Callable[[Any], None], watch: Callable[[str], None] | None) -> None:
        fired = None
        if watch is not None:
            watching, session = self._watching, self.session

            def fired(where: str) -> None:
                def tell() -> None:
                    if self._watching == watching and self.session == session:
                        self._do(lambda: watch(where))

                self._deliver(tell, lambda: self._watching == watching and self.session == session)

        self._request(kind, (path, fired), then)

    def _deliver(self, tell: Callable[[], None], lasts: Callable[[], bool]) -> None:
        """What a server says unasked comes whole, though late, or its connection breaks: a cut that is mended before
        anybody has noticed it takes nothing away."""
        if (NAME, self._name) not in self._network.cut:
            self._world.after(self._world.between(1, self._network.slow_ms), tell)
        elif lasts():
            self._world.after(LOOK_AGAIN_MS, lambda: self._deliver(tell, lasts))

    def _request(self, kind: str, body: Any, then: Callable[[Any], None]) -> None:
        if not self.connected:
            self._world.after(1, lambda: self._do(lambda: then(ConnectionLoss())))
            return
        session = self.session

        def answered(outcome: Any) -> None:
            if isinstance(outcome, Broken):
                self._broke(session)
                then(ConnectionLoss())
            elif isinstance(outcome, SessionExpired):
                self._lost(session)
                then(outcome)
            elif isinstance(outcome, Exception):
                then(outcome)
            else:
                found, self._zxid = outcome[0], max(self._zxid, outcome[1])
                then(found)

        self._ask(kind, body, answered)

    def _ask(self, kind: str, body: Any, answered: Callable[[Any], None]) -> None:
        self._network.ask(
            self._name,
            NAME,
            (kind, self.session, body),
            lambda outcome: self._do(lambda: answered(outcome)),
            patience_ms=self._patience_ms,
            by="zookeeper",
        )

    def _connected(self, outcome: Any) -> None:
        if self._closed:
            return
        if isinstance(outcome, Broken):
            self._world.after(100, lambda: self._do(self.start) if not self._closed else None)
            return
        if self.session and outcome != self.session:
            self._watching += 1
            self.session = 0
            self._on_change("lost")
        self.session = outcome
        self.connected = True
        self._watching += 1
        self._ask("reconnect", self._zxid, lambda _: None)
        self._on_change("connected")
        self._ping(self.session, self._watching)

    def _ping(self, session: int, watching: int) -> None:
        if self.session != session or not self.connected or self._watching != watching:
            return

        def answered(outcome: Any) -> None:
            if isinstance(outcome, Broken):
                self._broke(session)
            elif isinstance(outcome, SessionExpired):
                self._lost(session)

        self._ask("sync" if self._world.chance(0.1) else "get", ("/", None), answered)
        wait_ms = self.ensemble.timeout_ms // PING_SHARE
        self._world.after(wait_ms, lambda: self._do(lambda: self._ping(session, watching)))

    def _broke(self, session: int) -> None:
        if self.session != session or not self.connected:
            return
        self.connected = False
        self._watching += 1
        self._on_change("broken")
        self._world.after(self._world.between(10, 200), lambda: self._do(self.start) if not self._closed else None)

    def _lost(self, session: int) -> None:
        if self.session != session:
            return
        self.session, self.connected = 0, False
        self._watching += 1
        self._on_change("lost")
        self._world.after(self._world.between(10, 200), lambda: self._do(self.start) if not self._closed else None)
