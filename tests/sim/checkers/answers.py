"""6. Each request is answered once, or its connection failed."""

from muster.coordinator.core.model.effects import Effects, Reply
from muster.coordinator.core.model.events import Event, Request
from muster.coordinator.core.shard import Shard
from tests.sim.watch import Checker
from tests.sim.world import World

PATIENCE_MS = 1_000
"""At rest a turn and a flush take far less than this."""


class EachRequestIsAnsweredOnce(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.waiting: dict[int, tuple[Request, int]] = {}

    def received(self, request: Request) -> None:
        self.waiting[request.request_id] = (request, self.world.now_ms)

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        """What was parked and is answered now may still have to wait for a flush."""
        for request_id, _ in effects.replies:
            if request_id in self.waiting:
                self.waiting[request_id] = (self.waiting[request_id][0], self.world.now_ms)

    def released(self, request: Request, reply: Reply) -> None:
        if self.waiting.pop(request.request_id, None) is None:
            self.fail(f"request #{request.request_id} ({type(request).__name__}) is answered a second time")
        self.world.census[f"{type(request).__name__}: {reply.code.name}"] += 1

    def forgotten(self, request: Request) -> None:
        self.waiting.pop(request.request_id, None)

    def crashed(self) -> None:
        self.waiting.clear()

    def finished(self) -> None:
        """At rest, whoever still waits is parked in a group."""
        parked = {request_id for shard in self.node.live_shards() for request_id in parked_in(shard)}
        for request_id, (request, since_ms) in self.waiting.items():
            if request_id not in parked and since_ms < self.world.now_ms - PATIENCE_MS:
                self.fail(f"request #{request_id} ({request}) was never answered")


def parked_in(shard: Shard) -> list[int]:
    members = [member for group in shard.groups.values() for member in group.members.values()]
    requests = [request for member in members for request in (member.join_request, member.sync_request)]
    listens = [listen.request_id for group in shard.state.listeners.values() for listen in group.values()]
    return [*listens, *(request for request in requests if request is not None)]
