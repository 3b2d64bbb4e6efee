"""Where a member can stand; for a classic one also which moves are legal, and what refusals mean."""

from enum import Enum

from muster.coordinator.errors import ErrorCode


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
