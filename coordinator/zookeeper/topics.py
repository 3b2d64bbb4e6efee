"""The topics in `/brokers/topics`, each read once, and again when its watch says that it changed."""

from collections.abc import Callable

import structlog

from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer import gather_bounded
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.session import WatchEvent, ZooKeeperSession

ReplicaAssignment = dict[int, tuple[int, ...]]
"""Partition -> the ids of its replicas."""

log = structlog.get_logger("muster.zookeeper")


class TopicsWatch:
    """`changed` is called, on the loop, when `read` would give something else."""

    def __init__(self, session: ZooKeeperSession, changed: Callable[[], None]) -> None:
        self._session = session
        self._changed = changed
        self._known: dict[str, ReplicaAssignment | None] = {}
        self._suspect: set[str] = set()
        self.made: dict[str, int] = {}
        """topic -> the transaction that made it: one that was deleted and made again has another"""

    async def read(self) -> dict[str, ReplicaAssignment]:
        """All topics that can be read; the others are left out with a warning. Raises ZooKeeper's weather."""
        names = await self._session.children(layout.BROKER_TOPICS, self._list_fired) or []
        for name in self._known.keys() - set(names):
            del self._known[name]
            self.made.pop(name, None)
            self._suspect.discard(name)
        await gather_bounded(
            [name for name in names if name not in self._known or name in self._suspect], self._read_one
        )
        return {name: assignment for name, assignment in self._known.items() if assignment is not None}

    async def _read_one(self, name: str) -> None:
        path = layout.topic_path(name)
        self._suspect.discard(name)
        try:
            znode = await self._session.get(path, self._topic_fired)
        except ZooKeeperError:
            self._suspect.add(name)
            raise
        if znode is None:
            self._known.pop(name, None)  # gone meanwhile: the watch on the list says so
            return
        self.made[name] = znode.made
        try:
            self._known[name] = layout.read_topic(path, znode.data)
        except MalformedZnode as error:
            log.warning("a topic is left out", why=str(error))
            self._known[name] = None

    # kazoo tells watches apart by what they call, so these are methods.

    def _list_fired(self, fired: WatchEvent) -> None:
        self._note(fired)

    def _topic_fired(self, fired: WatchEvent) -> None:
        self._suspect.add(fired.path.rpartition("/")[2])
        self._note(fired)

    def _note(self, fired: WatchEvent) -> None:
        if fired.kind == "session":
            self._suspect.update(self._known)  # every watch went with the connection
        self._changed()
