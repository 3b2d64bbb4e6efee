"""What session streams ask of a shard: who opens one, who listens on it, whose broke (pushed membership)."""

from muster.coordinator.core.model.types import RequestId
from muster.coordinator.core.model.value import frozen_value


@frozen_value
class Listen:
    """A member's session stream asks to be told, once, what a heartbeat of this generation (or epoch) would hear.

    Answered as soon as that is something new; at most one of each member is parked.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    consumer: bool = False
    """Whether the member speaks KIP-848: then `generation` is its member epoch."""


@frozen_value
class Hello:
    """A member opens a session stream: how seldom may it say that it lives, now that it is told of everything?"""

    request_id: RequestId
    group_id: str
    member_id: str


@frozen_value
class StreamLost:
    """A member's session stream broke: unless it is heard of again, its session ends after `grace_ms` at the latest."""

    group_id: str
    member_id: str
    grace_ms: int


@frozen_value
class TookOver:
    """This node has taken the shard over in that leader epoch, and answers from now on. See `Takeover`."""

    shard: int
    epoch: int
    moved_from: int
    moved_to: int
    cause: str
    last_heard_ms: int
    elected_ms: int


@frozen_value
class CutFound:
    """An unclean election, which began that leader epoch, has cost the shard so many records, as is known by now."""

    shard: int
    epoch: int
    records: int


@frozen_value
class HeldBack:
    """For `for_ms` from now nothing that a member says is read, because of a quota: so it is not silent."""

    group_id: str
    member_id: str
    for_ms: int
