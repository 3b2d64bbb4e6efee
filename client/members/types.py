"""Small values that the member's events, actions and state share. Times are milliseconds of the edge's own clock."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
Partitions: TypeAlias = tuple[TopicPartition, ...]
"""Ascending."""

NO_GENERATION = -1
MAX_REASON = 255
"""KIP-800: a client cuts its reason to this many characters."""


class RequestKind(Enum):
    """What an answer belongs to. A member has at most one of each under way."""

    FIND = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    RELEASE = "the callbacks"
    """Not a request: revoked or lost partitions that the application is being told about."""


class LeavePolicy(Enum):
    """What a closing member does about its membership (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves; a static one stays until its session is over, so that it can come back."""
    LEAVE = "leave"
    REMAIN = "remain"


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How this member takes part. `rebalance_timeout_ms` is max.poll.interval.ms in a consumer."""

    group_id: str
    client_id: str = ""
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    protocol_type: str = "consumer"
    remote_assignor: str = ""
    """The assignor that the coordinator shall run; empty: the group's leader makes the plan."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One line of the list that only the leader gets."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class OfferedProtocol:
    """One assignor this member is ready to use, with its subscription as the other members will read it."""

    name: str
    metadata: bytes
