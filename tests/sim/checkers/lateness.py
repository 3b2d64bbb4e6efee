"""11. Who sent in time is not expired: nobody is taken out while something he said waits to be heard."""

from muster.coordinator.core.model.effects import Effects, Reply
from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    Event,
    Heartbeat,
    JoinGroup,
    Request,
    SessionHeartbeat,
    SyncGroup,
    TimerFired,
)
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.watch import Checker
from tests.sim.world import World

IN, LOST, OUT = 0, -1_000, -2_000
"""A member of a central group that has not answered one ping, two pings, ... stands between the first two."""


ASKED = {"join": (JoinGroup,), "sync": (JoinGroup, SyncGroup)}
"""What the timers of a classic rebalance wait for. Sessions end by others: a heartbeat says that its member is alive,
not that it has come back, and a member that is heard of again when the time is nearly over has to be quick."""


class WhoSentInTimeIsNotExpired(Checker):
    """From its arrival at the node's sockets until a shard has stepped it, a request speaks for its member.

    A heartbeat of another generation than the group's does not: it is refused, and a refusal renews nothing. Nor does
    one of an epoch for which its member has been fenced: it has to join anew, whatever comes behind that word.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.in_sockets: dict[int, tuple[object, Request, int]] = {}
        self.in_engine: dict[int, tuple[Request, int]] = {}
        """request id -> what was said, and when it arrived"""
        self.before: dict[str, int] = {}
        self.generation: int | None = None
        """Of the timer's group, where it is a classic one."""
        self.fenced: dict[tuple[str, str], int] = {}
        """(group, member) -> the epoch under which a heartbeat of its was refused last"""

    def arrived(self, token: object, request: Request) -> None:
        if getattr(request, "member_id", ""):
            self.in_sockets[id(token)] = (token, request, self.world.now_ms)

    def taken(self, token: object, request_id: int) -> None:
        arrived = self.in_sockets.pop(id(token), None)
        if arrived is not None and request_id:
            self.in_engine[request_id] = arrived[1:]

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        if isinstance(event, TimerFired):
            self.before = standing(core, event)
            classic = core.groups.get(event.key[1]) if len(event.key) > 1 else None
            self.generation = classic.generation if classic is not None else None

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        self.in_engine.pop(getattr(event, "request_id", 0), None)
        self._note_fenced(event, effects)
        if not isinstance(event, TimerFired):
            return
        after = standing(core, event)
        expired = {member_id for member_id, chances in self.before.items() if after.get(member_id, OUT) < chances}
        if not expired:
            return
        self.world.census[f"members expired by the timer {event.key[0]}"] += len(expired)
        waiting = [*self.in_engine.values(), *(arrived[1:] for arrived in self.in_sockets.values())]
        for request, at_ms in waiting:
            member_id = getattr(request, "member_id", "")
            if (
                request.group_id != event.key[1]
                or member_id not in expired
                or at_ms > event.deadline_ms + self.world.behind_ms
            ):
                continue
            if not isinstance(request, ASKED.get(event.key[0], object)):
                continue
            if isinstance(request, Heartbeat) and self.generation not in (None, request.generation):
                continue
            fenced = self.fenced.get((request.group_id, member_id))
            if isinstance(request, ConsumerHeartbeat) and request.member_epoch == fenced:
                continue
            late_ms = self.world.now_ms - at_ms
            self.fail(f"{event.key} expires {member_id}, of whom something has waited for {late_ms} ms")

    def _note_fenced(self, event: Event, effects: Effects) -> None:
        beat = event.heartbeat if isinstance(event, SessionHeartbeat) else event
        if isinstance(beat, ConsumerHeartbeat):
            codes = {reply.code for request_id, reply in effects.replies if request_id == event.request_id}  # type: ignore[union-attr]
            if ErrorCode.FENCED_MEMBER_EPOCH in codes:
                self.fenced[beat.group_id, beat.member_id] = beat.member_epoch
            elif ErrorCode.NONE in codes:
                self.fenced.pop((beat.group_id, beat.member_id), None)

    def released(self, request: Request, reply: Reply) -> None:
        self.in_engine.pop(request.request_id, None)

    def forgotten(self, request: Request) -> None:
        self.in_engine.pop(request.request_id, None)

    def crashed(self) -> None:
        self.in_engine.clear()
        self.in_sockets.clear()


def standing(core: Shard, event: TimerFired) -> dict[str, int]:
    """The members of the timer's group, and how they stand: less is worse. Only central groups have degrees."""
    if len(event.key) < 2:
        return {}
    group_id = event.key[1]
    group = core.consumer_groups.get(group_id) or core.groups.get(group_id)
    if group is not None:
        return dict.fromkeys(group.members, IN)
    central = core.central_groups.get(group_id)
    members = central.members.values() if central is not None else ()
    return {member.id: LOST if member.lost else IN - member.timed_out for member in members}
