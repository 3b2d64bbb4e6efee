"""Many members of one group in this process: they join, live, and come back after a change."""

import asyncio
import random
from collections.abc import Iterable

from muster.workshop.bench.members import GrpcConnection, GrpcMember, make_share
from muster.workshop.bench.processes import BenchFailed, ServerProcess

HEARTBEAT_S = 3.0
PATIENCE_S = 90.0


class MemberCrowd:
    """`size` members over at most `wires` connections. Use it in `async with`."""

    def __init__(self, server: ServerProcess, group_id: str, size: int, kind: type[GrpcMember], wires: int) -> None:
        self.wires = [GrpcConnection(server.address) for _ in range(min(wires, size))]
        self.group_id = group_id
        self._kind = kind
        self._rng = random.Random(size)
        self._lives: dict[int, asyncio.Task[None]] = {}
        self.members = [self.newcomer(number) for number in range(size)]

    @property
    def messages(self) -> int:
        """All but polled heartbeats, both ways."""
        return sum(wire.messages for wire in self.wires)

    @property
    def bytes(self) -> int:
        return sum(wire.bytes for wire in self.wires)

    def newcomer(self, number: int) -> GrpcMember:
        return self._kind(self.wires[number % len(self.wires)], self.group_id, make_share)

    async def __aenter__(self) -> "MemberCrowd":
        return self

    async def __aexit__(self, *_: object) -> None:
        for life in self._lives.values():
            life.cancel()
        await asyncio.gather(*self._lives.values(), return_exceptions=True)
        for wire in self.wires:
            await wire.close()

    async def join(self) -> float:
        """All join at once; seconds from the last request to join until everyone has its share."""
        await self.done(member.join() for member in self.members)
        ended_s = asyncio.get_running_loop().time()
        for member in self.members:
            self.begin(member)
        return ended_s - max(member.asked_at_s for member in self.members)

    def begin(self, member: GrpcMember) -> None:
        """Let it live: heartbeats spread evenly over the interval, as those of members that started by chance."""
        life = member.live(HEARTBEAT_S, self._rng.uniform(0, HEARTBEAT_S))
        self._lives[id(member)] = asyncio.create_task(life)

    def crash(self, member: GrpcMember) -> None:
        """Not a word any more, and no stream."""
        self._lives.pop(id(member)).cancel()
        self.members.remove(member)

    async def all_beyond(self, generation: int) -> None:
        """Return once every member has a share of a later generation."""
        await self.done(self._beyond(member, generation) for member in self.members)

    async def _beyond(self, member: GrpcMember, generation: int) -> None:
        while member.generation <= generation:
            member.assigned.clear()
            await member.assigned.wait()

    async def done(self, work: Iterable["asyncio.Future[None] | object"]) -> None:
        """All of it, within the patience of a benchmark; a life that ended badly is told at once."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*work)  # type: ignore[arg-type]
        except TimeoutError:
            for life in self._lives.values():
                if life.done() and not life.cancelled():
                    life.result()
            raise BenchFailed(
                f"{len(self.members)} members of {self.group_id!r} were not done after {PATIENCE_S:.0f} s; "
                "try again on a machine with less to do"
            ) from None
