"""What any node leaves in ZooKeeper for the controller: what an operator asks for, and which nodes are drained."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.errors import ConnectionLost, NodeExists
from muster.coordinator.zookeeper.session import WatchEvent, ZooKeeperSession

AskedResult = TypeVar("AskedResult")

GRACE_S: Final = 1.0
"""For who looks at the deadline itself."""


async def within_deadline(
    session: ZooKeeperSession, deadline_s: float, ask: Callable[[], Awaitable[AskedResult]]
) -> AskedResult:
    """What comes of asking, which has its end soon after this moment of the loop's clock: a session that is out of
    touch neither answers nor fails, and what it was asked then is done when it is back, whoever has given up by then.
    So it is asked nothing before it is in touch. Raises ConnectionLost, and what `ask` raises."""
    try:
        async with asyncio.timeout_at(deadline_s):
            await session.connected()
        async with asyncio.timeout_at(deadline_s + GRACE_S):
            return await ask()
    except TimeoutError as error:
        raise ConnectionLost("it is out of reach") from error


async def leave_request(session: ZooKeeperSession, path: str, body: bytes, deadline_s: float) -> bool:
    """Put it there when what somebody left before has been taken; False if it still lies there at this moment of the
    loop's clock. One whose answer is lost counts as left: what comes of it will show. Raises SessionExpired."""
    while True:
        try:
            await session.create(path, body)
        except NodeExists:
            taken = asyncio.Event()

            def fired(it: WatchEvent, taken: asyncio.Event = taken) -> None:
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


async def drained_nodes(session: ZooKeeperSession) -> frozenset[int]:
    """Raises ConnectionLost, SessionExpired."""
    names = await session.children(cluster_layout.DRAINED) or ()
    return frozenset(int(name) for name in names if paths.is_decimal(name))


async def set_drained(session: ZooKeeperSession, node_id: int, *, on: bool) -> None:
    """Whether a node is to lead nothing, for every controller from now on. Raises ConnectionLost, SessionExpired."""
    if on:
        await session.ensure(cluster_layout.drained_path(node_id))
    else:
        await session.delete(cluster_layout.drained_path(node_id))
