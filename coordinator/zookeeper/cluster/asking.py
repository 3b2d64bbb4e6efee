"""What any node leaves in ZooKeeper for the controller: what an operator asks for, and which nodes are drained."""

import asyncio

from muster.coordinator.zookeeper import paths
from muster.coordinator.zookeeper.cluster import layout
from muster.coordinator.zookeeper.connect import Fired, Session
from muster.coordinator.zookeeper.errors import ConnectionLost, NodeExists


async def leave(session: Session, path: str, body: bytes, deadline_s: float) -> bool:
    """Put it there when what somebody left before has been taken; False if it still lies there at this moment of the
    loop's clock. One whose answer is lost counts as left: what comes of it will show. Raises SessionExpired."""
    while True:
        try:
            await session.create(path, body)
        except NodeExists:
            taken = asyncio.Event()

            def fired(it: Fired, taken: asyncio.Event = taken) -> None:
                taken.set()

            if await session.exists(path, fired):
                try:
                    async with asyncio.timeout_at(deadline_s):
                        await taken.wait()
                except TimeoutError:
                    return False
        except ConnectionLost:
            return True
        else:
            return True


async def drained_nodes(session: Session) -> frozenset[int]:
    """Raises ConnectionLost, SessionExpired."""
    names = await session.children(layout.DRAINED) or ()
    return frozenset(int(name) for name in names if paths.is_decimal(name))


async def set_drained(session: Session, node_id: int, *, on: bool) -> None:
    """Whether a node is to lead nothing, for every controller from now on. Raises ConnectionLost, SessionExpired."""
    if on:
        await session.ensure(layout.drained(node_id))
    else:
        await session.delete(layout.drained(node_id))
