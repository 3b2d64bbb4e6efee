"""What members of central groups say. Each message is answered, so that a stream carries one at a time.

`stream` is the request id of the registration that opened the stream; what comes from an older one is refused.
"""

from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import CommittedOffset, RequestId

Offsets: TypeAlias = tuple[tuple[str, int, CommittedOffset], ...]
NEW_STREAM = 0


@dataclass(frozen=True, slots=True)
class RegisterConsumer:
    """Join, come back, or (on an open stream) change the subscription.

    `generation` and `owned` say what the member is still fetching, -1 and nothing when it is not; `offsets` how far.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    regex: str
    assignor: str
    generation: int = -1
    owned: tuple[tuple[str, int], ...] = ()
    offsets: Offsets = ()
    stream: int = NEW_STREAM
    client_software: str = ""
    rack_id: str | None = None
    rights: Rights = None


@dataclass(frozen=True, slots=True)
class AwaitOrders:
    """The stream is ready to carry the next orders; answered when there are any."""

    request_id: RequestId
    group_id: str
    member_id: str
    stream: int


@dataclass(frozen=True, slots=True)
class PingAnswered:
    request_id: RequestId
    group_id: str
    member_id: str
    stream: int
    number: int
    offsets: Offsets = ()


@dataclass(frozen=True, slots=True)
class FetcherStopped:
    request_id: RequestId
    group_id: str
    member_id: str
    stream: int
    number: int
    offsets: Offsets = ()


@dataclass(frozen=True, slots=True)
class FetcherStarted:
    request_id: RequestId
    group_id: str
    member_id: str
    stream: int
    number: int


@dataclass(frozen=True, slots=True)
class Deregister:
    """The member leaves for good; it has stopped fetching."""

    request_id: RequestId
    group_id: str
    member_id: str
    stream: int
    offsets: Offsets = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The stream is gone, and its member has not deregistered: it may be dead, or on its way back."""

    group_id: str
    member_id: str
    stream: int


CentralRequest: TypeAlias = RegisterConsumer | AwaitOrders | PingAnswered | FetcherStopped | FetcherStarted | Deregister
