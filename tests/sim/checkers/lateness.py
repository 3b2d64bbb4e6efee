"""11. Who sent in time is not expired: nobody is taken out while something he said waits to be heard."""

from muster.coordinator.core.effects import Effects, Reply
from muster.coordinator.core.events import Event, Request, TimerFired
from muster.coordinator.core.shard import Shard
from tests.sim.watch import Checker
from tests.sim.world import World

Member = tuple[str, str]

IN, LOST, OUT = 0, -1_000, -2_000
"""A member of a central group that has not answered one ping, two pings, ... stands between the first two."""


class WhoSentInTimeIsNotExpired(Checker):
    """From its arrival at the node's sockets until a shard has stepped it, a request speaks for its member."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.in_sockets: dict[int, tuple[object, Member, int]] = {}
        self.in_engine: dict[int, tuple[Member, int]] = {}
        """request id -> who said it, and when it arrived"""
        self.before: dict[str, int] = {}

    def arrived(self, token: object, request: Request) -> None:
        member_id = getattr(request, "member_id", "")
        if member_id:
            self.in_sockets[id(token)] = (token, (request.group_id, member_id), self.world.now_ms)

    def taken(self, token: object, request_id: int) -> None:
        arrived = self.in_sockets.pop(id(token), None)
        if arrived is not None and request_id:
            self.in_engine[request_id] = arrived[1:]

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        if isinstance(event, TimerFired):
            self.before = standing(core, event)

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        self.in_engine.pop(getattr(event, "request_id", 0), None)
        if not isinstance(event, TimerFired):
            return
        after = standing(core, event)
        expired = {member_id for member_id, chances in self.before.items() if after.get(member_id, OUT) < chances}
        if not expired:
            return
        self.world.census[f"members expired by the timer {event.key[0]}"] += len(expired)
        waiting = [*self.in_engine.values(), *(arrived[1:] for arrived in self.in_sockets.values())]
        for (group_id, member_id), at_ms in waiting:
            if group_id == event.key[1] and member_id in expired and at_ms <= event.deadline_ms:
                late_ms = self.world.now_ms - at_ms
                self.fail(f"{event.key} expires {member_id}, of whom something has waited for {late_ms} ms")

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
