"""The others: members of groups of their own, who beat at a steady pace through Kafka's door, whatever goes on."""

import asyncio
import math
import time
from collections.abc import Awaitable
from dataclasses import dataclass

from muster.coordinator.kafka.codec.emitter import Frame
from muster.workshop.bench.wire_members import KafkaMember, join_together

MEMBERS = 40
EVERY_S = 0.02


class SteadyMembers:
    """Each beats every EVERY_S, whether or not it was answered: a second in which the node answers nobody is then as
    many late answers as a second has heartbeats, and no single one.
    """

    def __init__(self, members: list[KafkaMember]) -> None:
        self._members = members
        self._taken: list[float] = []

    @classmethod
    async def of(cls, address: str, count: int = MEMBERS) -> "SteadyMembers":
        return cls(await join_together(address, [f"others-{number}" for number in range(count)]))

    async def during(self, work: Awaitable[object]) -> list[float]:
        """How long their heartbeats took while `work` went on, in ms."""
        self._taken = []
        going = asyncio.ensure_future(work)
        beating = [asyncio.create_task(self._beat(one, going)) for one in self._members]
        try:
            await going
        finally:
            await asyncio.gather(*beating)
        return self._taken

    async def _beat(self, member: KafkaMember, going: "asyncio.Future[object]") -> None:
        request, loop = member.beat(), asyncio.get_running_loop()
        due_s = loop.time() + EVERY_S * self._members.index(member) / len(self._members)
        unanswered: set[asyncio.Future[None]] = set()
        while not going.done():
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            answered = loop.create_future()
            unanswered.add(answered)
            answered.add_done_callback(unanswered.discard)
            member.line.send(request, _LatencyHandler(time.perf_counter(), self._taken, answered))
            due_s += EVERY_S
        if unanswered:
            await asyncio.wait(unanswered)


@dataclass(slots=True)
class _LatencyHandler:
    """Hears of one answer."""

    sent_s: float
    taken: list[float]
    answered: "asyncio.Future[None]"

    def __call__(self, frame: Frame) -> None:
        self.taken.append((time.perf_counter() - self.sent_s) * 1e3)
        self.answered.set_result(None)


def latency_tail(taken: list[float]) -> float:
    """The 99.9th percentile.

    >>> latency_tail([float(each) for each in range(1, 2_001)])
    1998.0
    """
    return sorted(taken)[math.ceil(len(taken) * 0.999) - 1]
