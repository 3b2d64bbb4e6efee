"""From "a member joined" and "a member left" to "every partition is owned again", told by the members themselves.

Real clients, one event loop. A polled member hears of a rebalance at its next heartbeat, a pushed one at once.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from muster.client.aio import AsyncAdmin, AsyncWorker
from tests.support.pace import pace

PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Takeover:
    """Milliseconds."""

    joined_ms: float
    left_ms: float


class Crew:
    """Workers of one group over one topic; `changed` is set whenever one of them gained or lost something."""

    def __init__(self, properties: dict[str, Any], topic: str, partitions: int) -> None:
        self.workers: list[AsyncWorker] = []
        self._properties = properties
        self._topic = topic
        self._everything = {(topic, number) for number in range(partitions)}
        self._changed = asyncio.Event()
        self._running: dict[AsyncWorker, asyncio.Task[None]] = {}

    async def hire(self) -> AsyncWorker:
        worker = AsyncWorker(self._properties)
        await worker.join([self._topic], on_gain=self._note, on_lose=self._note)
        self.workers.append(worker)
        self._running[worker] = asyncio.create_task(worker.run())
        return worker

    async def dismiss(self, worker: AsyncWorker) -> None:
        self.workers.remove(worker)
        task = self._running.pop(worker)
        await worker.close()
        await asyncio.gather(task, return_exceptions=True)

    async def settled(self) -> None:
        """Every partition has exactly one owner, and every worker its fair part. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE_S * pace()):
            while not self._fair():
                self._changed.clear()
                await self._changed.wait()

    async def close(self) -> None:
        for worker in list(self.workers):
            await self.dismiss(worker)

    def _note(self, *_: object) -> None:
        # The worker counts the partition once its callbacks have returned.
        asyncio.get_running_loop().call_soon(self._changed.set)

    def _fair(self) -> bool:
        owned: Sequence[set[Any]] = [worker.owned() for worker in self.workers]
        total = sum(len(share) for share in owned)
        least = len(self._everything) // len(self.workers)
        return (
            total == len(self._everything)
            and set().union(*owned) == self._everything
            and all(len(share) >= least for share in owned)
        )


async def takeover(
    address: str,
    properties: dict[str, Any],
    *,
    members: int,
    partitions: int,
    settled: Callable[[str], None] = lambda _: None,
) -> Takeover:
    """Gather the members, let one more join, let one leave. `settled` hears "gathered", "joined" and "left".

    `properties` are those of the workers: `group.id`, `group.membership`, `group.protocol` and what else they need.
    The topic is made here and called like the group.
    """
    topic = str(properties["group.id"])
    async with AsyncAdmin({"bootstrap.servers": address}) as admin:
        await admin.create_topic(topic, partitions)
    crew = Crew({"bootstrap.servers": address, **properties}, topic, partitions)
    try:
        for _ in range(members):
            await crew.hire()
        await crew.settled()
        settled("gathered")
        joined_ms = await timed(crew, crew.hire())
        settled("joined")
        left_ms = await timed(crew, crew.dismiss(crew.workers[0]))
        settled("left")
    finally:
        await crew.close()
    return Takeover(joined_ms, left_ms)


async def timed(crew: Crew, change: Any) -> float:
    started = time.perf_counter()
    await change
    await crew.settled()
    return (time.perf_counter() - started) * 1000
