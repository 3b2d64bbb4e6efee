"""What an elected controller sees in ZooKeeper, told to it as events, in the order in which it was read.

Nodes are looked at by a task of their own: how soon a failover begins is how soon they are read.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from muster.coordinator.replication.protocol.controller import effects, events
from muster.coordinator.replication.protocol.facts import ClusterNode
from muster.coordinator.zookeeper.cluster.admin import AdminRequestWatch, ConfigChangeWatch, DrainedNodeWatch
from muster.coordinator.zookeeper.cluster.reading import (
    ClusterTopicsWatch,
    NodeWatch,
    ReportUnreadable,
    read_states,
    read_stored_version,
)
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession

RETRY_S: Final = 0.1
TIDY_S: Final = 60.0
"""How often changes of settings are looked through for those that are too old, if nothing else happens."""

log = structlog.get_logger("muster.replication")


class ControllerWatch:
    """Of one reign: nothing is known before. `run` ends with it, by cancelling."""

    def __init__(
        self,
        session: ZooKeeperSession,
        feed: Callable[[events.ControllerEvent], None],
        warn: ReportUnreadable,
        wall_ms: Callable[[], int],
    ) -> None:
        self._session = session
        self._feed = feed
        self._warn = warn
        self._nodes_stale, self._stale = asyncio.Event(), asyncio.Event()
        self._nodes = NodeWatch(session, self._nodes_stale.set, warn)
        self._topics = ClusterTopicsWatch(session, self._stale.set, warn)
        self._changes = ConfigChangeWatch(session, self._stale.set, warn, wall_ms)
        self._drained = DrainedNodeWatch(session, self._stale.set)
        self._markers = AdminRequestWatch(session, self._stale.set, warn)
        self._removals: list[effects.RemoveMarker] = []
        self._states_wanted = False
        self.nodes: dict[int, ClusterNode] = {}
        """As last read."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._again_and_again(self._nodes_stale, self._look_at_nodes))
            tasks.create_task(self._again_and_again(self._stale, self._look_at_the_rest))

    def read_states(self) -> None:
        """All topics and states are wanted; they come as events."""
        self._states_wanted = True
        self._stale.set()

    def remove(self, wanted: effects.RemoveMarker) -> None:
        self._removals.append(wanted)
        self._stale.set()

    async def _again_and_again(self, stale: asyncio.Event, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await self._session.connected()
            stale.clear()
            try:
                await look()
            except ZooKeeperError as error:
                log.debug("the controller does not see how the cluster stands", why=str(error))
                stale.set()
                await asyncio.sleep(RETRY_S)
            try:
                async with asyncio.timeout(TIDY_S):
                    await stale.wait()
            except TimeoutError:
                pass

    async def _look_at_nodes(self) -> None:
        self.nodes = await self._nodes.read()
        self._feed(events.NodesRead(self.nodes))

    async def _look_at_the_rest(self) -> None:
        if (drained := await self._drained.read()) is not None:
            self._feed(drained)
        for kind, name in await self._changes.read():
            if kind == "topics":
                self._topics.suspect(name)
        if self._states_wanted:
            await self._read_states()
        seen = await self._topics.read()
        if seen.complete or seen.topics or seen.gone:
            self._feed(seen)
        while self._removals:
            wanted = self._removals[0]
            if wanted.marker is effects.AdminMarker.DELETE:
                # Not asked for again where the answer is lost: those that are there are read anew, and another by then.
                self._removals.pop(0)
                await self._markers.remove(wanted)
            else:
                await self._markers.remove(wanted)
                self._removals.pop(0)
        for event in await self._markers.read():
            self._feed(event)

    async def _read_states(self) -> None:
        version = await read_stored_version(self._session, self._warn)
        self._topics.suspect_all()
        seen = await self._topics.read()
        self._feed(seen)
        states, broken = await read_states(self._session, seen.topics, self._warn)
        self._states_wanted = False
        self._feed(events.StatesRead(states, version, broken))
