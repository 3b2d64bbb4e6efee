"""Events: what a member machine is given.

`token` repeats the token of the action that is being answered; a machine ignores an answer whose token is not the
newest of its kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from muster.client.members.member_types import GroupMember, LeavePolicy, Partitions
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Start:
    """Begin to take part in the group."""


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    token: int


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    token: int
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[GroupMember, ...] = ()
    cause: Cause = Cause.UNSPECIFIED
    cause_detail: str = ""
    rebalance_number: int = 0
    leader_state: str = ""
    scheduled_delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    token: int
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class ClassicHeartbeatAnswered:
    token: int
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    cause: Cause = Cause.UNSPECIFIED
    cause_detail: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswered:
    """`assignment` None means: as before. An empty one means: nothing."""

    token: int
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    epoch: int = -1
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    cause: Cause = Cause.UNSPECIFIED
    cause_detail: str = ""
    revoke_within_ms: int = 0
    """When what this takes away is taken; 0: nobody said."""
    coming: Partitions | None = None
    """What it is to have as soon as others let go of it; None: nothing."""
    heirs_ready: Partitions = ()
    """Of what it lets go of, that whose next owner is ready."""
    session_timeout_ms: int = 0
    """How long the coordinator waits for a member that says nothing; 0: nobody said."""


@dataclass(frozen=True, slots=True)
class PartitionsPrepared:
    """The application has prepared for these, of those that `Prepare` named."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class HeartbeatPushed:
    """What a heartbeat under `generation` would be told, said without being asked: a session stream is open."""

    code: ErrorCode
    message: str
    generation: int
    cause: Cause = Cause.UNSPECIFIED
    cause_detail: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatPushed:
    """The same for a member of a KIP-848 group; `answer.token` means nothing."""

    answer: ConsumerHeartbeatAnswered


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """Heartbeats go by a session stream from here on; by the next one the coordinator learns to whom it may speak.

    `heartbeat_interval_ms` is what it said of how often they are wanted; 0: nothing. `in_step_ms`: a moment at which
    others beat on the same stream, and an interval later again: whoever is in step costs a frame together with them.
    """

    heartbeat_interval_ms: int = 0
    in_step_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SessionLost:
    """They go by calls again, as often as the member's own settings say: nobody tells it of a rebalance by itself."""


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """A commit made under `generation` was refused; what that says of the membership counts like a heartbeat's word."""

    code: ErrorCode
    message: str
    generation: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No answer came: the transport failed. `retriable` False means that trying again cannot help."""

    token: int
    retriable: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The leader's plan for `generation`: each member's assignment blob, made from these partition counts."""

    generation: int
    assignments: tuple[tuple[str, bytes], ...]
    snapshot: bytes = b""
    partition_counts: Mapping[str, int] | None = None
    leader_state: str = ""
    """What the next leader has to know (KIP-415)."""
    scheduled_delay_ms: int = 0
    """How long the group waits for whoever is lost."""
    question: int = 0
    """That of the `Plan` which this answers."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The leader could not learn what a plan needs (not: its assignor failed). It will be asked again."""

    generation: int
    detail: str
    question: int = 0
    """That of the `Plan` which this answers."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """The application has let go: its callbacks ran and its commits are through."""

    token: int


@dataclass(frozen=True, slots=True)
class PartitionCountsChanged:
    """The partition counts as they are now. Only a leader acts on it."""

    partition_counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SubscriptionChanged:
    """`regex` is for the group's protocol to resolve, where it can (KIP-848, ZooKeeper); empty for none.

    With `black_list` every topic is meant that `regex` does not match (ZooKeeper alone).
    """

    topics: tuple[str, ...]
    regex: str = ""
    black_list: bool = False


@dataclass(frozen=True, slots=True)
class PollExpired:
    """The application has not polled for max.poll.interval.ms."""


@dataclass(frozen=True, slots=True)
class PollResumed:
    """The application polls again after `PollExpired`."""


@dataclass(frozen=True, slots=True)
class TimerExpired:
    """The time of the last `WakeMemberAt` has come. An early or extra tick does no harm."""


@dataclass(frozen=True, slots=True)
class Close:
    leaving: LeavePolicy = LeavePolicy.DEFAULT


ClassicAnswer: TypeAlias = (
    CoordinatorFound | JoinAnswered | SyncAnswered | ClassicHeartbeatAnswered | RequestFailed | Revoked
)
CommonEvent: TypeAlias = (
    Start
    | CommitRefused
    | PartitionCountsChanged
    | SubscriptionChanged
    | PollExpired
    | PollResumed
    | TimerExpired
    | Close
)
"""What happens to every kind of member."""

ClassicEvent: TypeAlias = (
    ClassicAnswer | CommonEvent | PlanMade | PlanFailed | HeartbeatPushed | SessionOpened | SessionLost
)
ConsumerEvent: TypeAlias = (
    CommonEvent
    | CoordinatorFound
    | ConsumerHeartbeatAnswered
    | RequestFailed
    | Revoked
    | ConsumerHeartbeatPushed
    | SessionOpened
    | SessionLost
    | PartitionsPrepared
)
