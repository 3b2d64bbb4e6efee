"""Where a KIP-848 member can stand, which moves are legal, and what the coordinator's refusals mean for it."""

from muster.client.members.states import MembershipState
from muster.coordinator.errors import ErrorCode

MOVES: dict[MembershipState, frozenset[MembershipState]] = {
    MembershipState.IDLE: frozenset({MembershipState.JOINING, MembershipState.CLOSED}),
    MembershipState.JOINING: frozenset(
        {MembershipState.STABLE, MembershipState.EXPIRED, MembershipState.CLOSING, MembershipState.FAILED}
    ),
    MembershipState.STABLE: frozenset(
        {
            MembershipState.ADOPTING,
            MembershipState.RELEASING,
            MembershipState.JOINING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.ADOPTING: frozenset(
        {
            MembershipState.STABLE,
            MembershipState.RELEASING,
            MembershipState.JOINING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.RELEASING: frozenset(
        {MembershipState.JOINING, MembershipState.EXPIRED, MembershipState.CLOSING, MembershipState.FAILED}
    ),
    MembershipState.EXPIRED: frozenset({MembershipState.JOINING, MembershipState.RELEASING, MembershipState.CLOSING}),
    MembershipState.CLOSING: frozenset({MembershipState.CLOSED}),
    MembershipState.FAILED: frozenset({MembershipState.CLOSED}),
    MembershipState.CLOSED: frozenset(),
}
"""The states are those of the classic member; nobody plans here, and there is no share to wait for."""

HEARTBEATING_UNDER_EPOCH = frozenset({MembershipState.STABLE, MembershipState.ADOPTING, MembershipState.CLOSING})
"""Where heartbeats go out under an epoch. A joining member sends them under epoch 0."""

WORKING = frozenset(
    {MembershipState.JOINING, MembershipState.RELEASING, MembershipState.STABLE, MembershipState.ADOPTING}
)

FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""The group went on without this member: everything is lost. Refusing a join, GROUP_ID_NOT_FOUND is final instead."""

TRY_AGAIN = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})
