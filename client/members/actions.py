"""Actions: what a member machine asks its driver to do.

The driver performs them in order. Callbacks run one after another, never two at a time.
"""

from dataclasses import dataclass
from typing import TypeAlias

from muster.client.members.member_types import GroupMember, OfferedProtocol, Partitions
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    token: int


@dataclass(frozen=True, slots=True)
class SendJoin:
    token: int
    member_id: str
    protocols: tuple[OfferedProtocol, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SendSync:
    token: int
    member_id: str
    generation: int
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...] = ()
    snapshot: bytes = b""
    leader_state: str = ""
    scheduled_delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    token: int
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class SendConsumerHeartbeat:
    """ConsumerGroupHeartbeat; epoch 0 joins. None (and timeout -1) stands for what has not changed since last time."""

    token: int
    member_id: str
    epoch: int
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    ready: Partitions | None = None


@dataclass(frozen=True, slots=True)
class LeaveConsumerGroup:
    """Nobody waits for the answer. Epoch -1 is for good, -2 for a while (a static member)."""

    member_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SendLeave:
    """Nobody waits for the answer."""

    member_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """The answer of this request is not wanted any more: cancel the call."""

    token: int


@dataclass(frozen=True, slots=True)
class MakePlan:
    """This member leads: answer with `Planned`, or `PlanFailed`, that has the same `question`."""

    generation: int
    protocol_name: str
    members: tuple[GroupMember, ...]
    completed_generation: int = -1
    """The last one in which this member took its share."""
    leader_state: str = ""
    """What the leader before it knew (KIP-415)."""
    scheduled_delay_ms: int | None = None
    """How much is left of the delay that was running then; None: none was."""
    question: int = 0
    """Tells it from an earlier one of the same generation: a coordinator that could not write it down counts anew."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the application to let go of these in good order (it may still commit), then answer `Revoked`."""

    token: int
    partitions: Partitions
    cause: Cause
    detail: str
    rebalance_number: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Lost:
    """These may already belong to somebody else; commits would be refused. Answer `Revoked`."""

    token: int
    partitions: Partitions
    cause: Cause
    detail: str
    rebalance_number: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Assign:
    """`added` is new, `partitions` is everything owned from now on; with an eager protocol both are the same."""

    added: Partitions
    partitions: Partitions
    cause: Cause
    detail: str
    rebalance_number: int
    generation: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """These will be this member's as soon as others let go of them. Nothing is waited for."""

    partitions: Partitions
    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True)
class HandoffReady:
    """Of what is being revoked: whoever gets these is ready for them."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Fail:
    """The membership is over and joining again cannot help."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing more will be asked."""


@dataclass(frozen=True, slots=True)
class WakeMemberAt:
    """Send `TimerExpired` at this time; replaces an earlier wish."""

    at_ms: int


Action: TypeAlias = (
    FindCoordinator
    | SendJoin
    | SendSync
    | SendHeartbeat
    | SendConsumerHeartbeat
    | SendLeave
    | LeaveConsumerGroup
    | Abandon
    | MakePlan
    | Prepare
    | HandoffReady
    | Revoke
    | Lost
    | Assign
    | Fail
    | Closed
    | WakeMemberAt
)
