"""Events and actions that only members of central groups have.

Everything else is in `events` and `actions`.
"""

from dataclasses import dataclass
from typing import TypeAlias

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import Partitions
from muster.coordinator.core.model.effects import Order
from muster.coordinator.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class MemberRegistered:
    """What came of a `RegisterMember`. A refusal ends the stream."""

    token: int
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    coordinator_epoch: int = 0
    """The election that made the node the coordinator, ascending; 0: there is none."""


@dataclass(frozen=True, slots=True)
class OrderReceived:
    """An order came. `answered`: the highest number of which the coordinator has heard the answer."""

    order: Order
    answered: int
    coordinator_epoch: int = 0
    """The election under which it was given; 0: there is none."""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream on which the member is registered is over; with a code: the group goes on without it."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class RegisterMember:
    """Open a stream and register on it; `again`: say so on the stream that is open."""

    token: int
    member_id: str
    topics: tuple[str, ...]
    regex: str
    assignor: str
    generation: int
    owned: Partitions
    again: bool = False
    coordinator_epoch: int = 0
    """The highest that the member has heard of."""


@dataclass(frozen=True, slots=True)
class AnswerPing:
    """With the consumed offsets."""

    number: int


@dataclass(frozen=True, slots=True)
class AnswerStopped:
    """With the offsets at which the application has let go."""

    number: int


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    number: int


@dataclass(frozen=True, slots=True)
class SendDeregister:
    """Leave for good, with the last offsets; nobody waits for the answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class CloseStream:
    """The stream is of no use any more."""


@dataclass(frozen=True, slots=True)
class LogNotice:
    """Something that the application's owner should read in the log."""

    detail: str


CentralAction: TypeAlias = (
    act.FindCoordinator
    | act.Abandon
    | act.Revoke
    | act.Lost
    | act.Assign
    | act.Fail
    | act.Closed
    | act.WakeMemberAt
    | RegisterMember
    | AnswerPing
    | AnswerStopped
    | AnswerStarted
    | SendDeregister
    | CloseStream
    | LogNotice
)
CentralAnswer: TypeAlias = ev.CoordinatorFound | MemberRegistered | ev.RequestFailed | ev.Revoked
CentralEvent: TypeAlias = ev.CommonEvent | CentralAnswer | OrderReceived | StreamEnded
