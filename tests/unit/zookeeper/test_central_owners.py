"""What ZooKeeper shows of a central group is the latest that was published, whenever that was."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.central_groups import CentralGroupPublisher, PublishedCentralGroup
from muster.coordinator.zookeeper.errors import NodeExists
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession
from tests.support.pace import pace

PATIENCE_S = 10
PLACE = layout.owner_path("g", "t", 0)


class Tree:
    """As much of a session as is needed here. `meanwhile` runs once, while the owner's first znode is being made."""

    def __init__(self, meanwhile: Callable[["Tree"], None]) -> None:
        self.id = 1
        self.znodes: dict[str, bytes] = {}
        self.ephemeral: set[str] = set()
        self.changed = asyncio.Event()
        self.listeners: list[Callable[[SessionState], None]] = []
        self._meanwhile: Callable[[Tree], None] | None = meanwhile

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        self.listeners.append(listener)

    async def connected(self) -> None:
        pass

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        if path in self.znodes:
            raise NodeExists(path)
        self.znodes[path] = data
        if ephemeral:
            self.ephemeral.add(path)
        if path == PLACE and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile(self)
        self.changed.set()

    async def get(self, path: str) -> Any:
        return None

    async def delete(self, path: str) -> bool:
        return self.znodes.pop(path, None) is not None

    def begin_another_session(self) -> None:
        self.id += 1
        for path in self.ephemeral:
            self.znodes.pop(path, None)
        for listener in self.listeners:
            listener(SessionState.CONNECTED)


def owned_by(member: str) -> dict[str, PublishedCentralGroup]:
    return {"g": PublishedCentralGroup({("t", 0): member})}


def shown_after(meanwhile: Callable[[Tree, CentralGroupPublisher], None], expected: bytes) -> None:
    """Publish the first owner, and wait until the expected one is shown."""

    async def story() -> None:
        tree = Tree(lambda tree: meanwhile(tree, owners))
        owners = CentralGroupPublisher(cast(ZooKeeperSession, tree))
        owners.start()
        owners.publish(owned_by("first"))
        async with asyncio.timeout(PATIENCE_S * pace()):
            while tree.znodes.get(PLACE) != expected:
                tree.changed.clear()
                await tree.changed.wait()
        await owners.stop()

    asyncio.run(story())


def test_what_is_published_during_a_write_is_written_next() -> None:
    shown_after(lambda _, owners: owners.publish(owned_by("second")), layout.owner_text("second", 0))


def test_owners_that_went_with_the_session_during_a_write_are_written_again() -> None:
    """The znode is made, and gone before the write is over."""
    shown_after(lambda tree, _: tree.begin_another_session(), layout.owner_text("first", 0))
