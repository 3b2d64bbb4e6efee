"""A shard whose log has no room: what needs no write goes on, what does is refused, nothing that was decided is lost.

While it lasts, requests that would write are refused as COORDINATOR_NOT_AVAILABLE (clients try again) without being
read, but for the word that their senders live, and timers wait: nobody is expired for requests that were not taken.
Facts that come to be all the same, from a plan or a changed topic, are owed: their groups are closed until the log has
taken them, so nobody hears of them before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.coordinator.core.model.core_events import Event
from muster.coordinator.core.model.core_records import Record
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.types import RequestId, TimerKey
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.codec_init import encode
from muster.coordinator.runtime.own import room_probe_record
from muster.coordinator.runtime.ports import Entry
from muster.coordinator.runtime.slot import Notices, Replies, ShardCore
from muster.coordinator.runtime.timers import RetryPauses

PROBE_MS = 1_000
"""How long between two looks whether there is room again."""

OWED_LIMIT = 20_000
"""Facts that are owed at most; a shard that owes more is dropped, and loaded again after a pause."""

NO_ROOM = ErrorCode.COORDINATOR_NOT_AVAILABLE


@dataclass(slots=True)
class StarvedShard:
    """What a shard keeps while its log takes nothing."""

    since_ms: int
    why: str
    owed: list[Record] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    """Groups that owe facts."""
    due: set[TimerKey] = field(default_factory=set)
    """Timers that came due meanwhile, and were not fired."""
    waiting: list[tuple[Replies, Notices]] = field(default_factory=list)
    """What may be told once the facts that are owed are durable."""

    def takes(self, event: Event, group_id: str, core: ShardCore) -> bool:
        """Whether a request can be answered without a write, and without telling what is owed."""
        return group_id not in self.closed and core.writes_nothing(event)

    def owe(self, effects: Effects, unanswered: Mapping[RequestId, Event]) -> Effects:
        """Keep back the facts of a step and what rests on them; what is left may go its way.

        A step that leaves no fact may tell of a group that owes some: rights have changed, and it calls a member back.
        """
        if not effects.records:
            return self._told_of_others(effects, unanswered) if effects.replies or effects.notices else effects
        self.owed += effects.records
        self.closed.update(group_concerned(record) for record in effects.records)
        self.waiting.append((effects.replies, effects.notices))
        return Effects(
            timers=effects.timers,
            plans=effects.plans,
            regexes=effects.regexes,
            measures=effects.measures,
            chores=effects.chores,
        )

    def _told_of_others(self, effects: Effects, unanswered: Mapping[RequestId, Event]) -> Effects:
        """Keep back what tells of groups that owe facts."""
        about = {
            request_id: group_concerned(unanswered[request_id])
            for request_id, _ in effects.replies
            if request_id in unanswered
        }
        replies = [each for each in effects.replies if about.get(each[0]) in self.closed]
        notices = [each for each in effects.notices if each.group_id in self.closed]
        if not replies and not notices:
            return effects
        self.waiting.append((replies, notices))
        return Effects(
            replies=[each for each in effects.replies if each not in replies],
            timers=effects.timers,
            notices=[each for each in effects.notices if each not in notices],
            plans=effects.plans,
            regexes=effects.regexes,
            measures=effects.measures,
            chores=effects.chores,
        )

    def refusal(self) -> str:
        return f"the coordinator can write nothing down at the moment, try again later: {self.why}"

    def probe(self) -> tuple[Sequence[Entry], Sequence[Entry]]:
        """What is owed, for both topics, and a record that asks for room even if nothing is."""
        encoded = encode(self.owed)
        return [*encoded.groups, room_probe_record()], encoded.ledger


class StarvedShards:
    """The shards whose log has no room, and when to look again."""

    def __init__(self) -> None:
        self.by_shard: dict[int, StarvedShard] = {}
        self._probes = RetryPauses()

    @property
    def next_ms(self) -> int | None:
        """No look is due before this time."""
        return self._probes.next_ms

    def closes(self, shard: int, group_id: str) -> bool:
        """Whether nothing may be told of a group, for it owes facts."""
        return shard in self.by_shard and group_id in self.by_shard[shard].closed

    def refused(self, shard: int, why: str, now_ms: int) -> None:
        """The shard's log has refused records for want of room."""
        self.by_shard.setdefault(shard, StarvedShard(now_ms, why))

    def dropped(self, shard: int) -> None:
        """What it owes was never told, and is forgotten with its core; the log is as full. See `probe` once loaded."""
        if starved := self.by_shard.get(shard):
            self.by_shard[shard] = StarvedShard(starved.since_ms, starved.why)
            self._probes.cancel(shard)

    def forget(self, shard: int) -> None:
        self.by_shard.pop(shard, None)
        self._probes.cancel(shard)

    def look_again(self, shard: int, now_ms: int) -> None:
        """There is still no room."""
        self._probes.set(shard, now_ms + PROBE_MS)

    def looked_at(self, shard: int) -> None:
        """It is being looked at now."""
        self._probes.cancel(shard)

    def pop_due(self, now_ms: int) -> int | None:
        """The next shard whose log is to be looked at."""
        return self._probes.pop_due(now_ms)


def group_concerned(said: Record | Event) -> str:
    """Whose fact it is, or what a request is about; the node's own belong to nobody."""
    return str(getattr(said, "group_id", ""))
