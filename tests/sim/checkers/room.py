"""13. A full disk stops only what must be written, and costs nobody his place who did nothing.

A shard falls once for it, and is served again before there is room: signs of life and questions are answered, but for
groups that owe the log a fact. While a log takes nothing nobody is expired; afterwards what was refused for want of
room has been heard: whoever said it has his whole session from then on, unless the stream on which he listens breaks.
If it broke before, a member of a KIP-848 group has the grace (which waits as well while there is no room) until a
heartbeat of his is heard: what would not have begun his session anew with room either, a commit or his leaving, does
not do so for want of it. Commits of classic members are signs of life.
"""

from collections.abc import Sequence

from muster.coordinator.core.consumer.members import is_leaving
from muster.coordinator.core.model.effects import Effects, Reply
from muster.coordinator.core.model.events import (
    AlterSettings,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    DescribeGroup,
    Event,
    ExplainGroup,
    Heartbeat,
    Loaded,
    OffsetFetch,
    Request,
    SessionHeartbeat,
    StreamLost,
    TimerFired,
)
from muster.coordinator.core.settings.setting import SESSION_TIMEOUT
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.shards import ShardStatus
from tests.sim.checkers.lateness import OUT, standing
from tests.sim.checkers.replay import group_of
from tests.sim.node.crashing_log import NO_ROOM
from tests.sim.watch import Checker
from tests.sim.world import World

NEEDS_NO_WRITE = (Heartbeat, OffsetFetch, DescribeGroup, DescribeConsumerGroup, ExplainGroup)


class AFullDiskStopsOnlyWrites(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.starved: set[int] = set()
        """Shards that fell for want of room, and whose logs have taken nothing since."""
        self.owing: set[str] = set()
        """Groups of them that have decided something since."""
        self.refused_ms: dict[tuple[str, str], int] = {}
        """(group, member) -> when something it said was refused for want of room, last"""
        self.on_grace: set[tuple[str, str]] = set()
        """(group, member) of KIP-848 members whose stream broke, and no heartbeat was taken since."""
        self.before: dict[str, int] = {}
        self.session_ms = 0
        """Of the member whose session may end in the step."""
        self.shortest_ms: dict[str, int] = {}
        """Of a KIP-848 group whose settings were changed: a session goes on that was begun with what was set then."""

    def status(self, shard: int, status: ShardStatus, why: str) -> None:
        if status is ShardStatus.UNLOADED:
            self._over(shard)
        elif status is ShardStatus.FAILED:
            self._forget_what_is_owed(shard)
            if NO_ROOM in why and shard in self.starved:
                self.fail(f"shard {shard} fell again for want of room, and there has been none since: {why}")
            elif NO_ROOM in why:
                self.world.census["shards that fell for want of room"] += 1
                self.starved.add(shard)

    def appended(self, shard: int, groups: Sequence[KeyValue], ledger: Sequence[KeyValue]) -> None:
        if shard in self.starved:
            self.world.census["shards that had room again"] += 1
            self.world.census["groups that owed facts"] += len(self.owing)
            self._over(shard)

    def crashed(self) -> None:
        self.starved.clear()
        self.owing.clear()

    def _over(self, shard: int) -> None:
        self.starved.discard(shard)
        self._forget_what_is_owed(shard)

    def _forget_what_is_owed(self, shard: int) -> None:
        self.owing = {group_id for group_id in self.owing if self.node.shard_index(group_id) != shard}

    def released(self, request: Request, reply: Reply) -> None:
        group_id, member_id = request.group_id, getattr(request, "member_id", "")
        if self.node.shard_index(group_id) not in self.starved:
            return
        if reply.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            told = reply.code is not ErrorCode.NOT_COORDINATOR
            self.world.census["requests answered without room"] += told and isinstance(request, NEEDS_NO_WRITE)
            return
        self.world.census["requests refused for want of room"] += 1
        if (group_id, member_id) not in self.on_grace or stays(request):
            self.refused_ms[group_id, member_id] = self.world.now_ms
        if isinstance(request, NEEDS_NO_WRITE) and group_id not in self.owing:
            self.fail(f"{request} was refused for want of room, though it needs none: {reply.message}")

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        if isinstance(event, TimerFired):
            self.before, self.session_ms = standing(core, event), session_ms_of(core, event)
            if event.key[0] == "session":
                self.session_ms = min(self.session_ms, self.shortest_ms.get(event.key[1], self.session_ms))
        elif isinstance(event, AlterSettings):
            self._note_session(core, event.group_id)
        elif isinstance(event, StreamLost):
            self.refused_ms.pop((event.group_id, event.member_id), None)
            if beats_alone(core, event):
                self.on_grace.add((event.group_id, event.member_id))
        elif isinstance(event, Loaded):  # all sessions begin anew
            self.on_grace = {key for key in self.on_grace if self.node.shard_index(key[0]) != shard}
        elif isinstance(event, SessionHeartbeat | ConsumerHeartbeat) and stays(event):
            self.on_grace.discard((event.group_id, event.member_id))

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        if shard in self.starved:
            self.owing.update(map(group_of, effects.records))
        if isinstance(event, AlterSettings):
            self._note_session(core, event.group_id)
        if not isinstance(event, TimerFired):
            return
        after = standing(core, event)
        expired = [member_id for member_id, chances in self.before.items() if after.get(member_id, OUT) < chances]
        if expired and shard in self.starved:
            self.fail(f"{event.key} expires {expired} while the log of shard {shard} takes nothing")
        for member_id in expired if self.session_ms else ():
            refused_ms = self.refused_ms.pop((event.key[1], member_id), None)
            if refused_ms is not None and self.world.now_ms < refused_ms + self.session_ms:
                ago_ms = self.world.now_ms - refused_ms
                self.fail(f"{event.key} expires {member_id}, which was refused for want of room {ago_ms} ms ago")

    def _note_session(self, core: Shard, group_id: str) -> None:
        now_ms = SESSION_TIMEOUT.of(core.state, group_id)
        self.shortest_ms[group_id] = min(now_ms, self.shortest_ms.get(group_id, now_ms))


def stays(event: Event) -> bool:
    """Whether it is a KIP-848 heartbeat that begins its sender's session anew where it is taken."""
    said = event.heartbeat if isinstance(event, SessionHeartbeat) else event
    return isinstance(said, ConsumerHeartbeat) and not is_leaving(said)


def beats_alone(core: Shard, event: StreamLost) -> bool:
    """Whether nothing but KIP-848 heartbeats begins the member's session anew."""
    group = core.consumer_groups.get(event.group_id)
    member = group.members.get(event.member_id) if group else None
    return member is not None and member.classic is None


def session_ms_of(core: Shard, event: TimerFired) -> int:
    """That of the member whose session's timer it is; 0 of another timer."""
    if event.key[0] != "session":
        return 0
    _, group_id, member_id = event.key
    group, consumers = core.groups.get(group_id), core.consumer_groups.get(group_id)
    if group is not None and member_id in group.members:
        return group.members[member_id].session_timeout_ms
    if consumers is None or member_id not in consumers.members:
        return 0
    classic = consumers.members[member_id].classic
    return classic.session_timeout_ms if classic else SESSION_TIMEOUT.of(core.state, group_id)
