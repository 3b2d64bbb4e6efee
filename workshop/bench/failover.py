"""CL-P1 and CL-P2: how long nobody answers when the coordinator's node is killed, stands still, or is told to stop."""

import asyncio
import signal
import statistics
import time
from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from typing import Final, NamedTuple

from muster.workshop.bench.asking import NOBODY, PAUSE_S, TRIES_S, TrioClient, TrioMember, TrioWriter, retry_until
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.trio import ServerTrio

FAILOVER_TOPIC: Final = "written"
PARTITIONS: Final = 3
SETTLE_S: Final = 8.0
"""Between two rounds, for all copies to be in sync again; more than a session, so that no lease of before counts."""


class FailureKind(Enum):
    KILLED = signal.SIGKILL
    FROZEN = signal.SIGSTOP
    STOPPED = signal.SIGTERM


class ServiceGap(NamedTuple):
    """Seconds from the signal to the first answer of another node; and the longest time between two answers."""

    first_s: float
    longest_s: float


async def measure_heartbeat_gap(
    trio: ServerTrio, asking: TrioClient, member: TrioMember, how: FailureKind
) -> ServiceGap:
    """Of the group's coordinator."""

    async def answered() -> str:
        return "" if await member.beat() else "a member is not answered, though nobody was touched"

    await retry_until("heartbeats", answered)
    victim = member.at

    async def beat(but: int) -> tuple[bool, int]:
        return await member.beat(but), member.at

    return await measure_gap(trio, victim, how, beat)


async def measure_produce_gap(trio: ServerTrio, asking: TrioClient, member: TrioMember, how: FailureKind) -> ServiceGap:
    """Of the leader of a partition, acks=all."""
    writer = TrioWriter(asking, FAILOVER_TOPIC)
    await writer.begin()

    async def write(but: int) -> tuple[bool, int]:
        return await writer.write(but), writer.at

    return await measure_gap(trio, writer.at, how, write)


async def measure_gap(
    trio: ServerTrio, victim: int, how: FailureKind, work: Callable[[int], Awaitable[tuple[bool, int]]]
) -> ServiceGap:
    """The work goes on until another node has answered for two seconds; then the victim is back."""
    began_s = last_s = time.monotonic()
    trio.signal(victim, how.value)
    first_s, longest_s = 0.0, 0.0
    but = victim if how is FailureKind.FROZEN else NOBODY  # a client would find that out by its own patience
    while not first_s or time.monotonic() < began_s + first_s + 2:
        done, at = await work(but)
        now_s = time.monotonic()
        if done:
            longest_s, last_s = max(longest_s, now_s - last_s), now_s
            if at != victim and not first_s:
                first_s = now_s - began_s
        if now_s > began_s + TRIES_S:
            raise BenchFailed(f"nobody answered for {TRIES_S:.0f} s after a node was {how.name.lower()}")
        await asyncio.sleep(PAUSE_S)
    if how is FailureKind.FROZEN:
        trio.signal(victim, signal.SIGCONT)
    else:
        await asyncio.to_thread(trio.ended, victim)
        await asyncio.to_thread(trio.start, victim)
    return ServiceGap(first_s, longest_s)


WORK: Final = {"heartbeat": measure_heartbeat_gap, "produce": measure_produce_gap}


async def measure_gaps(trio: ServerTrio, count: int, how: FailureKind, whats: Collection[str]) -> dict[str, ServiceGap]:
    """The medians, by what was asked: `WORK` has the words."""
    asking = TrioClient(trio.addresses)
    try:
        await asking.make(FAILOVER_TOPIC, PARTITIONS, 3)
        member = TrioMember(asking)
        await member.join()
        found: dict[str, list[ServiceGap]] = {}
        for _ in range(count):
            for what in whats:
                await asyncio.sleep(SETTLE_S)
                await asking.in_sync(FAILOVER_TOPIC, PARTITIONS)
                found.setdefault(what, []).append(await WORK[what](trio, asking, member, how))
        return {what: ServiceGap(*map(statistics.median, zip(*gaps, strict=True))) for what, gaps in found.items()}
    finally:
        asking.close()
