"""What is set for a node while it runs, in `/config/brokers/[id]` (CL-A9): rates at which it copies and is copied
from."""

from collections.abc import Callable, Mapping
from typing import Final

from muster.coordinator.replication.io.admin.rates import FOLLOWER_RATE, LEADER_RATE
from muster.coordinator.replication.protocol.facts import parse_number
from muster.coordinator.replication.protocol.throttle import NO_LIMIT
from muster.coordinator.zookeeper.cluster.changing import StoredConfigs, fetch_configs, put_configs
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.storage.errors import InvalidConfig, RequestTimedOut, StorageError

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
