"""Tokens per fence never go down: a log takes nothing of a former owner once a later one was told that it is the owner.

The log is the simplest there can be: of each producer id the highest epoch that it was told.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.assignors.api import TopicPartition
from muster.coordinator.core.model.effects import ClaimFenceReply, Effects, Reply
from muster.coordinator.core.model.events import ClaimFence, Event, Request
from muster.coordinator.core.model.records import FenceForgotten
from muster.coordinator.core.requests.fence_claims import LAST_EPOCH
from muster.coordinator.core.shard import Shard
from tests.sim.watch import Checker
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.members.client import Process

Place = tuple[str, str, int]
NOTHING = (-1, -1)


@dataclass
class FencedLog:
    """`epochs` by producer id; ownerships in the order in which they were granted are compared by `rank`."""

    epochs: dict[int, int] = field(default_factory=dict)
    granted: tuple[int, int] = NOTHING
    written: tuple[int, int] = NOTHING


class TokensNeverGoDown(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.logs: dict[Place, FencedLog] = {}
        self.lives: Counter[Place] = Counter()
        """How often a group of that name has gone, and its fences with it"""
        self.asked: dict[int, int] = {}
        """The life in which a claim was decided; its answer may be released in the next."""

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        """A group that goes takes its fences with it; who owned then is no owner of the next group of that name."""
        if isinstance(event, ClaimFence):
            self.asked[event.request_id] = self.lives[event.group_id, event.topic, event.partition]
        for record in effects.records:
            if isinstance(record, FenceForgotten):
                place = (record.group_id, record.topic, record.partition)
                self.logs.pop(place, None)
                self.lives[place] += 1

    def released(self, request: Request, reply: Reply) -> None:
        if not isinstance(request, ClaimFence) or not isinstance(reply, ClaimFenceReply) or reply.code:
            return
        place = (request.group_id, request.topic, request.partition)
        if self.asked.pop(request.request_id, 0) != self.lives[place]:
            return
        log = self.logs.setdefault(place, FencedLog())
        again = (request.producer_id, request.epoch) == (reply.producer_id, reply.epoch)
        if not again and rank(reply) <= log.granted and not self.harmed(request.group_id):
            self.fail(
                f"{request.member_id} was told that it owns {request.topic}-{request.partition} of {request.group_id} "
                f"as {rank(reply)}, though {log.granted} had been granted before"
            )
        log.granted = max(log.granted, rank(reply))
        log.epochs[reply.producer_id] = max(reply.epoch, log.epochs.get(reply.producer_id, -1))
        log.epochs.update(dict.fromkeys(reply.former, LAST_EPOCH + 1))

    def wrote(self, process: "Process", place: TopicPartition, granted: ClaimFenceReply) -> None:
        group_id = process.settings.group_id
        log = self.logs.get((group_id, *place))
        if log is None or granted.producer_id not in log.epochs:
            return  # of a former life of its group
        if granted.epoch < log.epochs[granted.producer_id]:
            self.world.census["records of zombies refused"] += 1
            return
        self.world.census["fenced records taken"] += 1
        if rank(granted) < log.written and not self.harmed(group_id):
            self.fail(f"{process.name} wrote to {place} as {rank(granted)} after {log.written}: the token went down")
        log.written = rank(granted)


def rank(granted: ClaimFenceReply) -> tuple[int, int]:
    return len(granted.former), granted.epoch
