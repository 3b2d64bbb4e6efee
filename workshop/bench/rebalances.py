"""One member leaves a group and the others join anew at once: what that costs the server."""

import asyncio
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from muster.workshop.bench.costs import make_wire_row
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, Stopwatch, TimedProcess, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.wire_members import KafkaMember, join_together
from muster.workshop.bench.yardstick import MachinePace, limit_row

LIMITS_MS = {10: 2.0, 100: 20.0, 500: 120.0}
"""Members that stay, and what the server may take of its processor for all of them."""

REJOIN_ROUNDS, REJOINS = 7, 400
"""At least so many rounds, and of a small group as many more as it takes for so many members to have joined anew."""
REJOIN_SETTINGS = {"group.initial.rebalance.delay.ms": "1000", "kafka.listeners": "127.0.0.1:0"}


def measure_rejoins(name: str, home: str) -> Iterator[BenchRow]:
    for size, limit_ms in LIMITS_MS.items():
        with pinned(LOAD_CORE), run_node(f"{home}/{size}", REJOIN_SETTINGS) as ours:
            machine = MachinePace()
            cost_ms = asyncio.run(measure_one_leave(ours, size, machine))
        yield make_wire_row(limit_row(f"{name}: {size} members", cost_ms, "ms CPU", limit_ms, machine))


async def measure_one_leave(ours: ServerProcess, size: int, machine: MachinePace) -> float:
    """The median of several rounds behind one that warms up."""
    leaving = await LeavingGroup.of(ours, kafka_address(ours), size)
    costs = []
    for _ in range(1 + max(REJOIN_ROUNDS, REJOINS // size)):
        machine.look()
        costs.append((await leaving.once()).cpu_ms)
    return statistics.median(costs[1:])


class RejoinRound(NamedTuple):
    """From the word of the one that leaves until all others have their shares."""

    wall_ms: float
    cpu_ms: float


class LeavingGroup:
    """A group whose last member leaves, again and again; in between somebody else takes its place."""

    def __init__(self, target: TimedProcess, address: str, members: list[KafkaMember]) -> None:
        self._target = target
        self._address = address
        self._members = members

    @classmethod
    async def of(cls, target: TimedProcess, address: str, stay: int) -> "LeavingGroup":
        return cls(target, address, await join_together(address, [f"leaving-{stay}"] * (stay + 1)))

    async def once(self) -> RejoinRound:
        *stay, leaver = self._members
        watch, before = Stopwatch(), self._target.cpu_ns()
        await leaver.leave()
        await asyncio.gather(*(member.join() for member in stay))
        took = RejoinRound(watch.read() * 1e3, (self._target.cpu_ns() - before) / 1e6)
        back = KafkaMember(await LoadConnection.to(self._address), leaver.group_id)
        leaver.line.close()
        self._members = [*stay, back]
        coming = asyncio.create_task(back.join())
        await stay[0].called()
        await asyncio.gather(coming, *(member.join() for member in stay))
        return took

    def close(self) -> None:
        for member in self._members:
            member.line.close()
