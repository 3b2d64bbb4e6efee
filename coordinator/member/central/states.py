"""Where a member of a central group can stand, which moves are legal, and what refusals mean for it."""

from muster.coordinator.errors import ErrorCode
from muster.coordinator.member.states import State

MOVES: dict[State, frozenset[State]] = {
    State.IDLE: frozenset({State.JOINING, State.CLOSED}),
    State.JOINING: frozenset({State.STABLE, State.RELEASING, State.EXPIRED, State.CLOSING, State.FAILED}),
    State.STABLE: frozenset(
        {State.ADOPTING, State.JOINING, State.RELEASING, State.EXPIRED, State.CLOSING, State.FAILED}
    ),
    State.ADOPTING: frozenset({State.STABLE, State.RELEASING, State.EXPIRED, State.CLOSING, State.FAILED}),
    State.RELEASING: frozenset({State.JOINING, State.EXPIRED, State.CLOSING, State.FAILED}),
    State.EXPIRED: frozenset({State.JOINING, State.RELEASING, State.CLOSING}),
    State.CLOSING: frozenset({State.CLOSED}),
    State.FAILED: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}
"""From each state to those it may become. docs/protocol/central.md is drawn from this table."""

MEANINGS: dict[State, str] = {
    State.IDLE: "not started",
    State.JOINING: "looks for the coordinator, or registers; fetches on while its lease runs",
    State.STABLE: "registered",
    State.ADOPTING: "registered; was told to stop, and its application is letting go",
    State.RELEASING: "lets go before it registers again",
    State.EXPIRED: "its application stopped polling",
    State.CLOSING: "lets go before it leaves",
    State.FAILED: "refused for good",
    State.CLOSED: "closed",
}

REGISTERED = frozenset({State.STABLE, State.ADOPTING})
WORKING = frozenset({State.JOINING, State.STABLE, State.ADOPTING, State.RELEASING})

OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The group went on without this member: what it fetches may be somebody else's."""

TRY_AGAIN = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNRELEASED_INSTANCE_ID})
"""An old stream of this very member may still be open on the other side; it will be given up."""
