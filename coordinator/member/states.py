"""Where a member can stand; for a classic one also which moves are legal, and what refusals mean."""

from enum import Enum

from muster.coordinator.errors import ErrorCode


class State(Enum):
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
    {State.RELEASING, State.JOINING, State.PLANNING, State.SYNCING, State.ADOPTING, State.STABLE, State.EXPIRED}
)
MOVES: dict[State, frozenset[State]] = {
    State.IDLE: frozenset({State.JOINING, State.CLOSED}),
    State.RELEASING: frozenset({State.JOINING, State.EXPIRED, State.CLOSING, State.FAILED}),
    State.JOINING: WORKING - {State.STABLE, State.ADOPTING} | {State.CLOSING, State.FAILED},
    State.PLANNING: frozenset(
        {State.JOINING, State.RELEASING, State.SYNCING, State.EXPIRED, State.CLOSING, State.FAILED}
    ),
    State.SYNCING: WORKING - {State.PLANNING} | {State.CLOSING, State.FAILED},
    State.ADOPTING: frozenset(
        {State.JOINING, State.RELEASING, State.STABLE, State.EXPIRED, State.CLOSING, State.FAILED}
    ),
    State.STABLE: frozenset({State.JOINING, State.RELEASING, State.EXPIRED, State.CLOSING, State.FAILED}),
    State.EXPIRED: frozenset({State.JOINING, State.RELEASING, State.CLOSING}),
    State.CLOSING: frozenset({State.CLOSED}),
    State.FAILED: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}
REBALANCING = frozenset({State.RELEASING, State.JOINING, State.PLANNING, State.SYNCING})
HEARTBEATING = frozenset({State.RELEASING, State.PLANNING, State.SYNCING, State.ADOPTING, State.STABLE, State.CLOSING})
"""Not while joining: the coordinator then knows that the member is alive, because it holds its request."""

LOOK_AGAIN = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
COME_BACK = LOOK_AGAIN | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS}
FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
