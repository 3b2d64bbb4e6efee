"""Where a member of a central group can stand, which moves are legal, and what refusals mean for it."""

from muster.client.members.states import MembershipState
from muster.coordinator.errors import ErrorCode

MOVES: dict[MembershipState, frozenset[MembershipState]] = {
    MembershipState.IDLE: frozenset({MembershipState.JOINING, MembershipState.CLOSED}),
    MembershipState.JOINING: frozenset(
        {
            MembershipState.STABLE,
            MembershipState.RELEASING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.STABLE: frozenset(
        {
            MembershipState.ADOPTING,
            MembershipState.JOINING,
            MembershipState.RELEASING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.ADOPTING: frozenset(
        {
            MembershipState.STABLE,
            MembershipState.RELEASING,
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
"""From each state to those it may become. docs/protocol/central.md is drawn from this table."""

MEANINGS: dict[MembershipState, str] = {
    MembershipState.IDLE: "not started",
    MembershipState.JOINING: "looks for the coordinator, or registers; fetches on while its lease runs",
    MembershipState.STABLE: "registered",
    MembershipState.ADOPTING: "registered; was told to stop, and its application is letting go",
    MembershipState.RELEASING: "lets go before it registers again",
    MembershipState.EXPIRED: "its application stopped polling",
    MembershipState.CLOSING: "lets go before it leaves",
    MembershipState.FAILED: "refused for good",
    MembershipState.CLOSED: "closed",
}

REGISTERED = frozenset({MembershipState.STABLE, MembershipState.ADOPTING})
WORKING = frozenset(
    {MembershipState.JOINING, MembershipState.STABLE, MembershipState.ADOPTING, MembershipState.RELEASING}
)

OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The group went on without this member: what it fetches may be somebody else's."""

TRY_AGAIN = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNRELEASED_INSTANCE_ID})
"""An old stream of this very member may still be open on the other side; it will be given up."""
