"""What a consumer of the ZooKeeper era is set to do, and what it reads of its group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from muster.client.members.types import TopicPartition

ClaimedShare: TypeAlias = dict[TopicPartition, int]
"""Partition -> the number of the stream that reads it."""

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"


@dataclass(frozen=True, slots=True)
class GroupRegistration:
    """What a member's node in `ids` says: topic -> streams, or one expression -> streams with a list pattern."""

    subscription: Mapping[str, int]
    pattern: str = STATIC


def build_registration(topics: Iterable[str], regex: str, black_list: bool, streams: int) -> GroupRegistration:
    """Topics by name, or one expression. Raises ValueError for both at once: a registration has one pattern.

    >>> build_registration(("b", "a"), "", False, 1)
    GroupRegistration(subscription={'a': 1, 'b': 1}, pattern='static')
    """
    names = sorted(set(topics))
    if names and regex:
        raise ValueError(
            f"a consumer of the ZooKeeper era subscribes by names or by patterns, not by both: {', '.join(names)} and "
            f"{regex!r}; give one kind"
        )
    if regex:
        return GroupRegistration({regex: streams}, BLACK_LIST if black_list else WHITE_LIST)
    return GroupRegistration(dict.fromkeys(names, streams))


@dataclass(frozen=True, slots=True)
class ConsumerGroupView:
    """Everything that an assignment depends on, as one member read it: it may be older than what another one read."""

    members: Mapping[str, GroupRegistration] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Partition counts of the topics that members subscribe to; of all topics when one of them has a pattern."""
    brokers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ZookeeperMemberSettings:
    """How this consumer takes part. `rebalance_retries` are attempts after the first one."""

    group_id: str
    strategy: str = "range"
    rebalance_retries: int = 4
    rebalance_backoff_ms: int = 2_000
    session_timeout_ms: int = 6_000
    exclude_internal_topics: bool = True
    streams: int = 1

    @property
    def patience_ms(self) -> int:
        """How long a rebalance waits for somebody else's claim to go, all retries together."""
        return self.rebalance_retries * self.rebalance_backoff_ms


class ZookeeperSession(Enum):
    """The session with ZooKeeper: in touch, out of touch but alive, or over."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class ZookeeperStrategy(Enum):
    """`partition.assignment.strategy` of that era."""

    RANGE = "range"
    ROUNDROBIN = "roundrobin"


def check_retry_time(settings: ZookeeperMemberSettings) -> str:
    """What to say at start-up about retries that a dead owner outlives, with the arithmetic; "" when there is room.

    A member that dies leaves its owner nodes behind until its session ends. A rebalance that gives up before that
    fails for a reason that would have gone away by itself.

    >>> check_retry_time(ZookeeperMemberSettings("g", rebalance_retries=4, rebalance_backoff_ms=1000))
    'rebalance.max.retries=4 x rebalance.backoff.ms=1000 = 4000 ms is shorter than \
zookeeper.session.timeout.ms=6000: the claims of a dead member outlive every attempt, and rebalances fail after it; \
raise one of the two until there is more than 9000 ms'
    >>> check_retry_time(ZookeeperMemberSettings("g", rebalance_retries=5))
    ''
    """
    timeout_ms = settings.session_timeout_ms
    ample_ms = timeout_ms * 3 // 2
    if settings.patience_ms >= ample_ms:
        return ""
    product = (
        f"rebalance.max.retries={settings.rebalance_retries} x rebalance.backoff.ms={settings.rebalance_backoff_ms}"
        f" = {settings.patience_ms} ms"
    )
    session = f"zookeeper.session.timeout.ms={timeout_ms}"
    if settings.patience_ms < timeout_ms:
        return (
            f"{product} is shorter than {session}: the claims of a dead member outlive every attempt, and rebalances "
            f"fail after it; raise one of the two until there is more than {ample_ms} ms"
        )
    return (
        f"{product} is near {session}: ZooKeeper may take half as long again to end a session, and then a rebalance "
        f"after a death fails; raise one of the two until there is more than {ample_ms} ms"
    )
