"""Settings of a node that change while it runs, in `/config/brokers/[id]`: replication rates (CL-A9)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.replication.protocol.cluster_metadata import parse_number
from muster.coordinator.replication.protocol.replica_fetch import NO_LIMIT
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.cluster_writes import StoredConfigs, fetch_configs, put_configs
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, ZooKeeperSession
from muster.storage.errors import InvalidConfig, RequestTimedOut, StorageError

# Replication rates, as set while the node runs (CL-A9)
# -----------------------------------------------------

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
        self._keeping = RestartedTask("replication rates", self._keep)

    def start(self) -> None:
        self._session.on_state(self._session_changed)
        self._keeping.start()

    async def stop(self) -> None:
        await self._keeping.stop()

    async def _keep(self) -> None:
        while True:
            await self._session.connected()
            self._stale.clear()
            try:
                self._tell(*parse_rates(await self._read(), self._own))
            except ZooKeeperError as error:
                log.debug("throttle rates of the node not read", why=str(error))
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

    def _fired(self, fired: WatchEvent) -> None:
        self._stale.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._stale.set()


# Reading and changing them
# -------------------------

DYNAMIC: Final = frozenset({LEADER_RATE, FOLLOWER_RATE})
BROKERS: Final = "brokers"
MOST_TRIES: Final = 100

ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""From what is set to what changes; None unsets."""


def apply_config_changes(given: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """What is set afterwards. Raises InvalidConfig.

    >>> apply_config_changes({LEADER_RATE: "5", FOLLOWER_RATE: "6"}, {LEADER_RATE: "7", FOLLOWER_RATE: None})
    {'leader.replication.throttled.rate': '7'}
    """
    for name, value in changes.items():
        if name not in DYNAMIC and value is not None:
            raise InvalidConfig(
                f"'{name}' cannot be set while the node runs; expected one of {', '.join(sorted(DYNAMIC))}. Change the "
                "others in its properties file and start it again."
            )
        if value is not None and not ((rate := parse_number(value)) is not None and 0 <= rate <= NO_LIMIT):
            raise InvalidConfig(f"'{name}' is {value[:50]!r}; expected bytes a second, 0 to {NO_LIMIT}.")
    return {name: value for name, value in {**given, **changes}.items() if value is not None}


async def read_node_configs(session: ZooKeeperSession, node_id: int) -> Mapping[str, str]:
    """What is set for a node. Raises StorageError."""
    return (await read_config_znode(session, node_id)).values


async def alter_node_configs(
    session: ZooKeeperSession, node_id: int, asked: ConfigChange, *, validate_only: bool = False
) -> None:
    """Set it, or only say whether that would go well; the node hears of it at once. Raises StorageError."""
    for _ in range(MOST_TRIES):
        before = await read_config_znode(session, node_id)
        after = apply_config_changes(before.values, asked(before.values))
        if validate_only or after == before.values:
            return
        try:
            if await put_configs(session, BROKERS, str(node_id), StoredConfigs(after, before.version)):
                return
        except ZooKeeperError as error:
            raise zookeeper_silent(error) from error
    raise RequestTimedOut(f"Settings of node {node_id} were changed by others {MOST_TRIES} times meanwhile. Try again.")


async def read_config_znode(session: ZooKeeperSession, node_id: int) -> StoredConfigs:
    try:
        return await fetch_configs(session, BROKERS, str(node_id))
    except MalformedZnode as error:
        raise StorageError(str(error)) from error
    except ZooKeeperError as error:
        raise zookeeper_silent(error) from error


def zookeeper_silent(error: ZooKeeperError) -> RequestTimedOut:
    return RequestTimedOut(f"ZooKeeper did not answer: {error}. Look before you ask again.")
