"""How fast this node copies and is copied from, as set for it at ZooKeeper while it runs (CL-A9)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from muster.coordinator.replication.io.background_tasks import SupervisedTasks
from muster.coordinator.replication.protocol.facts import parse_number
from muster.coordinator.replication.protocol.throttle import NO_LIMIT
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, ZooKeeperSession

RETRY_S: Final = 0.1
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"

log = structlog.get_logger("muster.replication")


def parse_rates(configs: Mapping[str, str], own: tuple[int, int]) -> tuple[int, int]:
    """(leader's, follower's) in bytes a second; what is not set, or is no such number, is as the node has it itself.

    >>> parse_rates({"leader.replication.throttled.rate": "1000", "x": "1"}, (7, 8))
    (1000, 8)
    >>> parse_rates({LEADER_RATE: "1" * 5_000, FOLLOWER_RATE: "-1"}, (7, 8))
    (7, 8)
    """
    leader, follower = (
        rate if (rate := parse_number(configs.get(name, ""))) is not None and 0 <= rate <= NO_LIMIT else default
        for name, default in zip((LEADER_RATE, FOLLOWER_RATE), own, strict=True)
    )
    return leader, follower


class ReplicationRates:
    """Looks at `/config/brokers/[id]`, and again whenever that changes. tell(leader, follower): bytes a second."""

    def __init__(
        self, session: ZooKeeperSession, node_id: int, own: tuple[int, int], tell: Callable[[int, int], None]
    ) -> None:
        """own: by the node's own settings."""
        self._session = session
        self._path = cluster_layout.broker_config_path(node_id)
        self._own = own
        self._tell = tell
        self._stale = asyncio.Event()
        self._tasks = SupervisedTasks(
            lambda why: log.error("rates of the node are read no more", error=repr(why), exc_info=why)
        )

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
                self._tell(*parse_rates(await self._read(), self._own))
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
            return {} if found is None else cluster_layout.read_config(self._path, found.data)
        except MalformedZnode as error:
            log.warning("settings of the node not read", why=str(error))
            return {}

    def _fired(self, fired: WatchEvent) -> None:
        self._stale.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._stale.set()
