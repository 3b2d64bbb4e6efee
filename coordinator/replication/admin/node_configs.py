"""What is set for a node while it runs, in `/config/brokers/[id]` (CL-A9): rates at which it copies and is copied
from."""

from collections.abc import Callable, Mapping
from typing import Final

from muster.coordinator.cluster.facts import number_in
from muster.coordinator.cluster.replicas.throttle import NO_LIMIT
from muster.coordinator.replication.copies.rates import FOLLOWER, LEADER
from muster.coordinator.zookeeper.cluster.changing import Configs, put_configs, read_configs
from muster.coordinator.zookeeper.connect import Session
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.storage.errors import InvalidConfig, RequestTimedOut, StorageError

DYNAMIC: Final = frozenset({LEADER, FOLLOWER})
BROKERS: Final = "brokers"
MOST_TRIES: Final = 100

Changed = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""From what is set to what changes; None unsets."""


def changed(given: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """What is set afterwards. Raises InvalidConfig.

    >>> changed({LEADER: "5", FOLLOWER: "6"}, {LEADER: "7", FOLLOWER: None})
    {'leader.replication.throttled.rate': '7'}
    """
    for name, value in changes.items():
        if name not in DYNAMIC and value is not None:
            raise InvalidConfig(
                f"'{name}' cannot be set while the node runs; expected one of {', '.join(sorted(DYNAMIC))}. Change the "
                "others in its properties file and start it again."
            )
        if value is not None and not ((rate := number_in(value)) is not None and 0 <= rate <= NO_LIMIT):
            raise InvalidConfig(f"'{name}' is {value[:50]!r}; expected bytes a second, 0 to {NO_LIMIT}.")
    return {name: value for name, value in {**given, **changes}.items() if value is not None}


async def node_configs(session: Session, node_id: int) -> Mapping[str, str]:
    """What is set for a node. Raises StorageError."""
    return (await read(session, node_id)).values


async def set_node_configs(session: Session, node_id: int, asked: Changed, *, validate_only: bool = False) -> None:
    """Set it, or only say whether that would go well; the node hears of it at once. Raises StorageError."""
    for _ in range(MOST_TRIES):
        before = await read(session, node_id)
        after = changed(before.values, asked(before.values))
        if validate_only or after == before.values:
            return
        try:
            if await put_configs(session, BROKERS, str(node_id), Configs(after, before.version)):
                return
        except ZooKeeperError as error:
            raise not_answered(error) from error
    raise RequestTimedOut(f"Settings of node {node_id} were changed by others {MOST_TRIES} times meanwhile. Try again.")


async def read(session: Session, node_id: int) -> Configs:
    try:
        return await read_configs(session, BROKERS, str(node_id))
    except MalformedZnode as error:
        raise StorageError(str(error)) from error
    except ZooKeeperError as error:
        raise not_answered(error) from error


def not_answered(error: ZooKeeperError) -> RequestTimedOut:
    return RequestTimedOut(f"ZooKeeper did not answer: {error}. Look before you ask again.")
