"""A core that fits on a page: enough behaviour to see what the engine does with effects, and a bug on demand."""

from muster.coordinator.core.model.effects import (
    Effects,
    GroupChanged,
    HeartbeatReply,
    JoinReply,
    OffsetCommitReply,
    OffsetFetchReply,
)
from muster.coordinator.core.model.events import (
    DeleteGroup,
    Event,
    Forget,
    Heartbeat,
    JoinGroup,
    Loaded,
    OffsetCommit,
    OffsetFetch,
    StoodStill,
    TimerFired,
    TopicsChanged,
)
from muster.coordinator.core.model.records import OffsetsStored, OffsetStored, RebalanceDecided, Record
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import (
    Cause,
    CommittedOffset,
    Limits,
    Outcome,
    Protocol,
    RebalanceEntry,
    StoredOffset,
    TimerKey,
)

JOIN_WAIT_MS = 1_000
SESSION_MS = 5_000


class TinyShard:
    """Keeps offsets, parks joins until their timer answers them together, and breaks over DeleteGroup.

    It takes no interest in Unload: whoever is parked then is the engine's business.
    """

    def __init__(self, limits: Limits, index: int) -> None:
        self.index = index
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.parked: dict[str, list[int]] = {}
        self.rounds: dict[str, int] = {}
        self.seen: list[Event] = []
        self.deadlines: dict[TimerKey, int] = {}
        self.rows_of_a_fetch = 0
        """How long a reply to a fetch is said to be."""
        self.rows_of_a_timer = 0
        """As how many rows of a reply a fired timer counts."""

    def apply(self, record: Record) -> None:
        match record:
            case OffsetStored(group_id, topic, partition, value):
                self.offsets[group_id, topic, partition] = value.offset
            case OffsetsStored(group_id, offsets):
                self.offsets |= {(group_id, *place): value.offset for place, value in offsets.items()}
            case RebalanceDecided(group_id, entry):
                self.rounds[group_id] = entry.number

    def committed_to(self) -> dict[tuple[str, bytes], int]:
        return {}

    def step(self, event: Event, now_ms: int) -> Effects:
        self.seen.append(event)
        out = Effects()
        match event:
            case Heartbeat():
                self.arm(("session", event.group_id, event.member_id), now_ms + SESSION_MS, out)
                out.reply(event.request_id, HeartbeatReply())
            case OffsetCommit():
                self.commit(event, now_ms, out)
            case OffsetFetch(request_id, group_id):
                out.reply(request_id, OffsetFetchReply(offsets=self.fetch(group_id)))
                out.rows = self.rows_of_a_fetch
            case JoinGroup():
                self.parked.setdefault(event.group_id, []).append(event.request_id)
                self.arm(("join", event.group_id), now_ms + JOIN_WAIT_MS, out)
            case TimerFired(key, _):
                del self.deadlines[key]
                out.rows = self.rows_of_a_timer
                if key[0] == "join":
                    self.answer_joins(key[1], now_ms, out)
            case StoodStill():
                self.deadlines = {key: at_ms + event.moved_ms for key, at_ms in self.deadlines.items()}
            case Forget(group_id, request_id):
                waiting = self.parked.get(group_id, [])
                self.parked[group_id] = [parked for parked in waiting if parked != request_id]
            case DeleteGroup():
                raise RuntimeError("the tiny shard breaks here")
        return out

    def writes_nothing(self, event: Event) -> bool:
        return isinstance(event, Heartbeat | OffsetFetch)

    def knows(self, group_id: str, member_id: str | None) -> bool:
        return True

    def commit(self, event: OffsetCommit, now_ms: int, out: Effects) -> None:
        offsets = {place: StoredOffset(committed.offset, -1, "", now_ms) for place, committed in event.offsets.items()}
        self.keep(OffsetsStored(event.group_id, offsets), out)
        out.reply(event.request_id, OffsetCommitReply())

    def fetch(self, group_id: str) -> dict[tuple[str, int], StoredOffset | None]:
        return {
            (topic, partition): StoredOffset(offset, -1, "", 0)
            for (owner, topic, partition), offset in self.offsets.items()
            if owner == group_id
        }

    def answer_joins(self, group_id: str, now_ms: int, out: Effects) -> None:
        self.keep(RebalanceDecided(group_id, entry(self.rounds.get(group_id, 0) + 1, now_ms)), out)
        for request_id in self.parked.pop(group_id, []):
            out.reply(request_id, JoinReply(generation=self.rounds[group_id]))
        out.notices.append(GroupChanged(group_id, "Stable", self.rounds[group_id]))

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        return False

    def arm(self, key: TimerKey, at_ms: int, out: Effects) -> None:
        self.deadlines[key] = at_ms
        out.timers[key] = at_ms

    def keep(self, record: Record, out: Effects) -> None:
        self.apply(record)
        out.records.append(record)

    def lifecycle(self) -> list[Event]:
        """The events that the engine itself made on loading."""
        return [event for event in self.seen if isinstance(event, TopicsChanged | Loaded)]


def entry(number: int, now_ms: int) -> RebalanceEntry:
    return RebalanceEntry(
        number, number - 1, number, "", "", Cause.MEMBER_JOINED, "", "", "", "", "", Outcome.COMPLETED, now_ms, now_ms
    )


def heartbeat(request_id: int, group_id: str = "g", member_id: str = "m") -> Heartbeat:
    return Heartbeat(request_id, group_id, member_id, None, 1)


def commit(request_id: int, offset: int, group_id: str = "g", member_id: str = "") -> OffsetCommit:
    return OffsetCommit(request_id, group_id, member_id, None, -1, {("t", 0): CommittedOffset(offset)})


def fetch(request_id: int, group_id: str = "g") -> OffsetFetch:
    return OffsetFetch(request_id, group_id, None)


def join(request_id: int, group_id: str = "g") -> JoinGroup:
    protocols = (Protocol("range", b""),)
    return JoinGroup(request_id, group_id, "", None, "c", "/h", 10_000, 10_000, "consumer", protocols, "fresh")


def break_it(request_id: int, group_id: str = "g") -> DeleteGroup:
    return DeleteGroup(request_id, group_id)
