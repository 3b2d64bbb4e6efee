"""One shard's place in the engine: its core while it has one, who waits for an answer, and what is held back."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

from muster.coordinator.core.model.core_events import Event, Request
from muster.coordinator.core.model.core_records import Record
from muster.coordinator.core.model.effects import Effects, GroupChanged, Reply
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import RequestId, TimerKey
from muster.coordinator.core.model.value import frozen_value
from muster.coordinator.runtime.drafts import AppendDraft
from muster.coordinator.runtime.loader import LoadReport

FIRST_PAUSE_MS = 100
LONGEST_PAUSE_MS = 10_000
CALM_MS = 60_000
"""A shard that went this long without failing starts over with an immediate reload."""


Replies: TypeAlias = Sequence[tuple[RequestId, Reply]]
Notices: TypeAlias = Sequence[GroupChanged]


def not_served_sentence(shard: int, why: str) -> str:
    """What is told of a shard that failed: in the node's log, by its health, to whoever asks for one of its groups."""
    return f"the groups of shard {shard} are not served: {why}; the shard is loaded again after a pause"


class ShardCore(Protocol):
    """What the engine runs: `muster.coordinator.core.shard.Shard`, or a test's stand-in."""

    @property
    def deadlines(self) -> Mapping[TimerKey, int]:
        """When each timer is due, ms; kept here and nowhere else. A step says of which it made, moved or cancelled."""

    def writes_nothing(self, event: Event) -> bool:
        """Whether a request can be told in advance to leave no record."""

    def knows(self, group_id: str, member_id: str | None) -> bool:
        """Whether there is such a group, and such a member in it (None: whoever). Names in requests are anybody's."""

    def step(self, event: Event, now_ms: int) -> Effects:
        """Take one event. An exception is a bug: the shard is dropped and replayed."""

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        """Take a heartbeat that pushes a session's deadline back and does nothing else; False: it has to be stepped."""

    def apply(self, record: Record) -> None:
        """Take in one fact of the log."""

    def committed_to(self) -> Mapping[tuple[str, bytes], int]:
        """How many positions there are of each topic, by name and id. May take its time."""


class ShardStatus(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """Dropped; it is loaded again, at once or after a pause."""
    UNLOADED = "unloaded"
    """Given up on request; only `load_shard` brings it back."""


@frozen_value
class HeldAnswers:
    """What one step wants to say once the first `position` appends of its shard are durable."""

    position: int
    replies: Replies
    notices: Notices


@dataclass(slots=True)
class ShardSlot:
    index: int
    status: ShardStatus = ShardStatus.LOADING
    core: ShardCore | None = None
    life: int = 0
    """Counts the drops: events queued in an earlier life have been answered and are void."""
    unanswered: dict[RequestId, Request] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    """What this turn decided and has not appended yet; behind a draft, what later turns did."""
    draft: AppendDraft | None = None
    """What an earlier turn decided, and what is so long that its append is still being made."""
    held: deque[HeldAnswers] = field(default_factory=deque)
    patient: set[TimerKey] = field(default_factory=set)
    """Timers that came due while their members' answers were held back."""
    appended: int = 0
    """Counts appends, and replays: what a replay read may not be durable either."""
    durable: int = 0
    why: str = ""
    """Why it failed the last time."""
    failures: int = 0
    failed_at_ms: int | None = None
    report: LoadReport = field(default_factory=LoadReport)

    @property
    def position(self) -> int:
        """How many appends must be durable before anything stepped now may be told."""
        return self.appended + (self.draft is not None) + bool(self.records)

    def held_back(self) -> set[tuple[str, ...]]:
        """Whose answers are held back, as (group, member): what they said next may wait behind these, unheard."""
        asked = (self.unanswered.get(request_id) for held in self.held for request_id, _ in held.replies)
        return {(str(getattr(each, "group_id", "")), str(getattr(each, "member_id", ""))) for each in asked if each}

    def pause_ms(self, now_ms: int) -> int:
        """How long to wait before the next load; doubles while failures follow each other."""
        calm = self.failed_at_ms is None or now_ms - self.failed_at_ms > CALM_MS
        self.failures = 1 if calm else self.failures + 1
        self.failed_at_ms = now_ms
        if self.failures == 1:
            return 0
        return min(FIRST_PAUSE_MS << min(self.failures - 2, 16), LONGEST_PAUSE_MS)
