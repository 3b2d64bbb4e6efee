"""How fast this node copies and is copied from, as set for it at ZooKeeper while it runs (CL-A9)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from muster.coordinator.cluster.facts import number_in
from muster.coordinator.cluster.replicas.throttle import NO_LIMIT
from muster.coordinator.replication.tasks import Tasks
from muster.coordinator.zookeeper.cluster import layout
from muster.coordinator.zookeeper.connect import Fired, Session, SessionState
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError

RETRY_S: Final = 0.1
LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"

log = structlog.get_logger("muster.replication")


def rates_in(configs: Mapping[str, str], own: tuple[int, int]) -> tuple[int, int]:
    """(leader's, follower's) in bytes a second; what is not set, or is no such number, is as the node has it itself.

    >>> rates_in({"leader.replication.throttled.rate": "1000", "x": "1"}, (7, 8))
    (1000, 8)
    >>> rates_in({LEADER: "1" * 5_000, FOLLOWER: "-1"}, (7, 8))
    (7, 8)
    """
    leader, follower = (
        rate if (rate := number_in(configs.get(name, ""))) is not None and 0 <= rate <= NO_LIMIT else default
        for name, default in zip((LEADER, FOLLOWER), own, strict=True)
    )
    return leader, follower


class Rates:
    """Looks at `/config/brokers/[id]`, and again whenever that changes. tell(leader, follower): bytes a second."""

    def __init__(self, session: Session, node_id: int, own: tuple[int, int], tell: Callable[[int, int], None]) -> None:
        """own: by the node's own settings."""
        self._session = session
        self._path = layout.config_broker(node_id)
        self._own = own
        self._tell = tell
        self._stale = asyncio.Event()
        self._tasks = Tasks(lambda why: log.error("rates of the node are read no more", error=repr(why), exc_info=why))

    def start(self) -> None:
        self._session.on_state(self._session_changed)
        self._tasks.start(self._keep())

    async def stop(self) -> None:
        self._tasks.stop()
        await self._tasks.ended()

    async def _keep(self) -> None:
        while True:
            await self._session.connected()
            self._stale.clear()
            try:
                self._tell(*rates_in(await self._read(), self._own))
            except ZooKeeperError as error:
                log.debug("rates of the node not read", why=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                await self._stale.wait()

    async def _read(self) -> Mapping[str, str]:
        """A watch on what is not there fires when it is made."""
        if not await self._session.exists(self._path, self._fired):
            return {}
        found = await self._session.get(self._path)
        try:
            return {} if found is None else layout.read_config(self._path, found.data)
        except MalformedZnode as error:
            log.warning("settings of the node not read", why=str(error))
            return {}

    def _fired(self, fired: Fired) -> None:
        self._stale.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._stale.set()
