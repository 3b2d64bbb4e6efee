"""A ZooKeeper of one page, on a virtual clock: znodes with versions and owners, and lines to it that can be cut."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from muster.coordinator.zookeeper.errors import BadVersion, ConnectionLost, NodeExists, NoNode
from muster.coordinator.zookeeper.session import SessionState, StateListener, Watch, WatchEvent, Znode

SESSION_S = 6.0
PLACE, COUNTER = "/place", "/epoch"


class Clock(selectors.DefaultSelector):
    """Waits for nothing: what would be waited is added to the clock."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits, and nothing will happen any more")
        if not ready:
            self.now_s += timeout or 0
        return ready


def on_virtual_time(story: Coroutine[Any, Any, None]) -> None:
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now_s  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(story)


class Server:
    """Znodes with versions and owners; transactions that check, create, set and delete, one after the other. What one
    of these changes fires the watches there; `nodes` may be changed directly, and then none fires."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self._watches: dict[str, list[Watch]] = {}

    def watch(self, path: str, watch: Watch) -> None:
        """Once: the next change there calls it."""
        self._watches.setdefault(path, []).append(watch)

    def apply(self, steps: list[tuple[Any, ...]]) -> None:
        nodes = dict(self.nodes)
        for verb, path, *rest in steps:
            if verb == "create":
                if path in nodes:
                    raise NodeExists(path)
                nodes[path] = Znode(rest[0], 0, rest[1], 0, 0)
                continue
            if path not in nodes:
                raise NoNode(path)
            if rest[-1] not in (-1, nodes[path].version):
                raise BadVersion(path)
            if verb == "set":
                nodes[path] = nodes[path]._replace(data=rest[0], version=nodes[path].version + 1)
            elif verb == "delete":
                del nodes[path]
        before, self.nodes = self.nodes, nodes
        for verb, path, *_ in steps:
            if before.get(path) != nodes.get(path):
                kind: Any = {"create": "created", "set": "changed", "delete": "deleted"}[verb]
                for watch in self._watches.pop(path, ()):
                    asyncio.get_running_loop().call_soon(watch, WatchEvent(kind, path))


class Line:
    """One session with the server. A line that is cut loses questions, and says so `noticed_after_s` later."""

    def __init__(self, server: Server, number: int) -> None:
        self.id = number
        self.session_timeout_ms = int(SESSION_S * 1000)
        self.state = SessionState.CONNECTED
        self.cut = False
        self._server = server
        self._in_touch = asyncio.Event()
        self._in_touch.set()
        self._listeners: list[StateListener] = []
        self._steps: list[tuple[Any, ...]] = []

    def on_state(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    async def connected(self) -> None:
        await self._in_touch.wait()

    def become(self, state: SessionState) -> None:
        self.state = state
        if state is SessionState.CONNECTED:
            self.cut = False
            self._in_touch.set()
        else:
            self._in_touch.clear()
        for listener in self._listeners:
            listener(state)

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        await self._trip()
        if watch is not None:
            self._server.watch(path, watch)
        return self._server.nodes.get(path)

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        return await self.get(path, watch) is not None

    async def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        await self._trip()
        self._server.apply([("create", path, data, self.id if ephemeral else 0)])

    async def ensure(self, path: str) -> None:
        await self._trip()

    async def delete(self, path: str) -> None:
        await self._trip()
        self._server.apply([("delete", path, -1)])

    async def commit(self, build: Callable[[Any], object]) -> None:
        transaction = Transaction(self.id)
        build(transaction)
        await self._trip()
        self._server.apply(transaction.steps)

    async def _trip(self) -> None:
        await asyncio.sleep(0.01)
        if self.cut:
            await asyncio.sleep(4)  # two thirds of a session: what kazoo takes to notice
            raise ConnectionLost("the line is cut")


class Transaction:
    def __init__(self, session: int) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self._session = session

    def check(self, path: str, version: int) -> None:
        self.steps.append(("check", path, version))

    def create(self, path: str, data: bytes, ephemeral: bool) -> None:
        self.steps.append(("create", path, data, self._session))

    def delete(self, path: str, version: int = -1) -> None:
        self.steps.append(("delete", path, version))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self.steps.append(("set", path, data, version))
