"""One member leaves a group and the others join anew at once: what that costs the server."""

import asyncio
import statistics
from collections.abc import Iterator

from muster.coordinator.bench.processes import LOAD_CORE, Server, node, pinned
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.wire.costs import as_wire
from muster.coordinator.bench.wire.line import Line
from muster.coordinator.bench.wire.members import WireMember, together
from muster.coordinator.bench.wire.records import kafka_address
from muster.coordinator.bench.wire.yardstick import Machine, within

LIMITS_MS = {10: 2.0, 100: 20.0, 500: 120.0}
"""Members that stay, and what the server may take of its processor for all of them."""

ROUNDS, REJOINS = 7, 400
"""At least so many rounds, and of a small group as many more as it takes for so many members to have joined anew."""
SETTINGS = {"group.initial.rebalance.delay.ms": "1000", "kafka.listeners": "127.0.0.1:0"}


def measure(name: str, home: str) -> Iterator[Row]:
    for size, limit_ms in LIMITS_MS.items():
        with pinned(LOAD_CORE), node(f"{home}/{size}", SETTINGS) as ours:
            machine = Machine()
            cost_ms = asyncio.run(one_leaves(ours, size, machine))
        yield as_wire(within(f"{name}: {size} members", cost_ms, "ms CPU", limit_ms, machine))


async def one_leaves(ours: Server, size: int, machine: Machine) -> float:
    """The median of several rounds behind one that warms up; in between the one that left comes back."""
    address = kafka_address(ours)
    members = await together(address, ["bench"] * (size + 1))
    costs = []
    for _ in range(1 + max(ROUNDS, REJOINS // size)):
        machine.look()
        *stay, leaver = members
        before = ours.cpu_ns()
        await leaver.leave()
        await asyncio.gather(*(member.join() for member in stay))
        costs.append((ours.cpu_ns() - before) / 1e6)
        back = WireMember(await Line.to(address), "bench")
        leaver.line.close()
        members = [*stay, back]
        coming = asyncio.create_task(back.join())
        await stay[0].called()
        await asyncio.gather(coming, *(member.join() for member in stay))
    return statistics.median(costs[1:])
