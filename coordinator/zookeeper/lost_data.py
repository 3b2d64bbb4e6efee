"""Finds out that ZooKeeper has lost what it knew of the cluster while nodes run.

Servers refuse the session of a node that has seen later changes than they have. So a node whose ZooKeeper was emptied,
or restored from an older copy, sees no more than that it cannot connect. `LostDataCheck` then asks with a session of
its own. Where the node is still connected (znodes were deleted by hand), it looks whether the cluster's id is there.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.errors import MalformedZnode, MissingChroot, ZooKeeperError
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

LOST_DATA: Final = "zookeeper-lost-data"
"""The condition of a node whose ZooKeeper has."""

CHECK_S = 5.0

CONFIRM_S: Final = 5.0
"""For the node's own session to connect after another one was let in: kazoo tries again each second at least."""

LATE_S: Final = 1.0
"""A wait that took so much longer shows that the process stood still: nothing is known then."""


class LostData(NamedTuple):
    """What is wrong. in_touch: the node's own session is connected all the same."""

    sentence: str
    in_touch: bool
    foreign: bool = False
    """There is another cluster now."""
    refused: bool = False
    """Another session was let in, and found everything: whether this node's is refused has yet to be seen."""


class LostDataCheck:
    """Looks every few seconds. `found` is called with what is wrong, or None where all is there, on each look that
    shows either; while no server answers nothing is known."""

    def __init__(
        self, session: ZooKeeperSession, cluster_id: Callable[[], str], found: Callable[[LostData | None], None]
    ) -> None:
        self._session = session
        self._cluster_id = cluster_id
        self._found = found
        self._away_since_s: float | None = None
        """By the loop's time; None: it is connected."""
        self._checking = RestartedTask("look whether ZooKeeper has lost its data", self._check_again_and_again)

    def start(self) -> None:
        self._note_state(self._session.state)
        self._session.on_state(self._note_state)
        self._checking.start()

    async def stop(self) -> None:
        await self._checking.stop()

    async def _check_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self._check()
            except ZooKeeperError:
                continue  # nothing answers: that is told elsewhere

    def _note_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = asyncio.get_running_loop().time()

    async def _check(self) -> None:
        if self._away_since_s is None:
            self._found(await self._look(self._session))
            return
        away_s = asyncio.get_running_loop().time() - self._away_since_s
        if away_s <= self._session.session_timeout_ms / 1000:
            return
        found = await self._ask_anew()
        if found.refused and not await self._stays_away():
            return
        self._found(found._replace(in_touch=False))

    async def _stays_away(self) -> bool:
        """Whether the node's own session is not let in where another one just was. A process that stood still, or
        waited between two tries, has yet to connect."""
        began_s = asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_S):
                await self._session.connected()
                return False
        waited_s = asyncio.get_running_loop().time() - began_s
        return self._away_since_s is not None and waited_s <= CONFIRM_S + LATE_S

    async def _ask_anew(self) -> LostData:
        """With a session that has seen nothing: it is let in where any is."""
        where = f"ZooKeeper at {self._session.connect}"
        probe = ZooKeeperSession(
            self._session.connect,
            session_timeout_ms=self._session.session_timeout_ms,
            connection_timeout_ms=self._session.connection_timeout_ms,
        )
        try:
            await probe.open(make_chroot=False)
            older = (
                f"{where} lets others in, but not this node, which has seen later changes than it knows of: it was "
                "restored from an older copy"
            )
            return await self._look(probe) or LostData(older, in_touch=False, refused=True)
        except MissingChroot:
            return LostData(f"{where} answers, but its chroot is gone: it has lost its data", in_touch=False)
        finally:
            await probe.close()

    async def _look(self, session: ZooKeeperSession) -> LostData | None:
        """What is wrong with the cluster's id; None where it is there."""
        where, own = f"ZooKeeper at {self._session.connect}", self._cluster_id()
        znode = await session.get(layout.CLUSTER_ID)
        if znode is None:
            gone = f"{where} answers, but knows no cluster ({layout.CLUSTER_ID}): it has lost its data"
            return LostData(gone, in_touch=True)
        try:
            known = layout.read_cluster_id(layout.CLUSTER_ID, znode.data)
        except MalformedZnode as error:
            return LostData(str(error), in_touch=True, foreign=True)
        if known == own:
            return None
        return LostData(f"{where} knows cluster {known}, and this node is of {own}", in_touch=True, foreign=True)
