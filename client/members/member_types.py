"""Values and states that all member machines share.

Times are milliseconds of the caller's own clock. `MOVES` lists the legal moves of a classic member; members of
KIP-848 groups and of central groups use the same states with tables of their own. The other tables say in which
states a member heartbeats or rebalances, and what the coordinator's refusals mean for it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from muster.assignors.api import TopicPartition
from muster.coordinator.errors import ErrorCode

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


# States and legal moves
# ----------------------


class MembershipState(Enum):
    """Where a member stands."""

    IDLE = "idle"
    RELEASING = "waits for callbacks before it joins"
    JOINING = "wants to join, or waits for the join phase to end"
    PLANNING = "leads, and waits for its own plan"
    SYNCING = "waits for its share"
    ADOPTING = "waits for callbacks before it takes its share"
    STABLE = "has its share"
    EXPIRED = "its application stopped polling"
    CLOSING = "waits for callbacks before it leaves"
    CLOSED = "closed"
    FAILED = "refused for good"


WORKING = frozenset(
    {
        MembershipState.RELEASING,
        MembershipState.JOINING,
        MembershipState.PLANNING,
        MembershipState.SYNCING,
        MembershipState.ADOPTING,
        MembershipState.STABLE,
        MembershipState.EXPIRED,
    }
)
MOVES: dict[MembershipState, frozenset[MembershipState]] = {
    MembershipState.IDLE: frozenset({MembershipState.JOINING, MembershipState.CLOSED}),
    MembershipState.RELEASING: frozenset(
        {MembershipState.JOINING, MembershipState.EXPIRED, MembershipState.CLOSING, MembershipState.FAILED}
    ),
    MembershipState.JOINING: WORKING - {MembershipState.STABLE, MembershipState.ADOPTING}
    | {MembershipState.CLOSING, MembershipState.FAILED},
    MembershipState.PLANNING: frozenset(
        {
            MembershipState.JOINING,
            MembershipState.RELEASING,
            MembershipState.SYNCING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.SYNCING: WORKING - {MembershipState.PLANNING} | {MembershipState.CLOSING, MembershipState.FAILED},
    MembershipState.ADOPTING: frozenset(
        {
            MembershipState.JOINING,
            MembershipState.RELEASING,
            MembershipState.STABLE,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.STABLE: frozenset(
        {
            MembershipState.JOINING,
            MembershipState.RELEASING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.EXPIRED: frozenset({MembershipState.JOINING, MembershipState.RELEASING, MembershipState.CLOSING}),
    MembershipState.CLOSING: frozenset({MembershipState.CLOSED}),
    MembershipState.FAILED: frozenset({MembershipState.CLOSED}),
    MembershipState.CLOSED: frozenset(),
}
REBALANCING = frozenset(
    {MembershipState.RELEASING, MembershipState.JOINING, MembershipState.PLANNING, MembershipState.SYNCING}
)
HEARTBEATING = frozenset(
    {
        MembershipState.RELEASING,
        MembershipState.PLANNING,
        MembershipState.SYNCING,
        MembershipState.ADOPTING,
        MembershipState.STABLE,
        MembershipState.CLOSING,
    }
)
"""Not while joining: the coordinator then knows that the member is alive, because it holds its request."""

FIND_COORDINATOR_AGAIN = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
RETRY_LATER = FIND_COORDINATOR_AGAIN | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS}
MEMBERSHIP_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
