"""Where a KIP-848 member can stand, which moves are legal, and what the coordinator's refusals mean for it."""

from muster.coordinator.errors import ErrorCode
from muster.coordinator.member.states import State

MOVES: dict[State, frozenset[State]] = {
    State.IDLE: frozenset({State.JOINING, State.CLOSED}),
    State.JOINING: frozenset({State.STABLE, State.EXPIRED, State.CLOSING, State.FAILED}),
    State.STABLE: frozenset(
        {State.ADOPTING, State.RELEASING, State.JOINING, State.EXPIRED, State.CLOSING, State.FAILED}
    ),
    State.ADOPTING: frozenset(
        {State.STABLE, State.RELEASING, State.JOINING, State.EXPIRED, State.CLOSING, State.FAILED}
    ),
    State.RELEASING: frozenset({State.JOINING, State.EXPIRED, State.CLOSING, State.FAILED}),
    State.EXPIRED: frozenset({State.JOINING, State.RELEASING, State.CLOSING}),
    State.CLOSING: frozenset({State.CLOSED}),
    State.FAILED: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}
"""The states are those of the classic member; nobody plans here, and there is no share to wait for."""

MEMBER = frozenset({State.STABLE, State.ADOPTING, State.CLOSING})
"""Where heartbeats go out under an epoch. A joining member sends them under epoch 0."""

WORKING = frozenset({State.JOINING, State.RELEASING, State.STABLE, State.ADOPTING})

FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""The group went on without this member: everything is lost. Refusing a join, GROUP_ID_NOT_FOUND is final instead."""

TRY_AGAIN = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})
