"""CL-P1 and CL-P2: how long nobody answers when the coordinator's node is killed, stands still, or is told to stop."""

import asyncio
import signal
import statistics
import time
from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from typing import Final, NamedTuple

from muster.coordinator.bench.cluster.asking import NOBODY, PAUSE_S, TRIES_S, Asking, Member, Writer, until
from muster.coordinator.bench.cluster.trio import Trio
from muster.coordinator.bench.processes import BenchFailed

TOPIC: Final = "written"
PARTITIONS: Final = 3
SETTLE_S: Final = 8.0
"""Between two rounds, for all copies to be in sync again; more than a session, so that no lease of before counts."""


class How(Enum):
    KILLED = signal.SIGKILL
    FROZEN = signal.SIGSTOP
    STOPPED = signal.SIGTERM


class Gap(NamedTuple):
    """Seconds from the signal to the first answer of another node; and the longest time between two answers."""

    first_s: float
    longest_s: float


async def heartbeats(trio: Trio, asking: Asking, member: Member, how: How) -> Gap:
    """Of the group's coordinator."""

    async def answered() -> str:
        return "" if await member.beat() else "a member is not answered, though nobody was touched"

    await until("heartbeats", answered)
    victim = member.at

    async def beat(but: int) -> tuple[bool, int]:
        return await member.beat(but), member.at

    return await gone(trio, victim, how, beat)


async def produces(trio: Trio, asking: Asking, member: Member, how: How) -> Gap:
    """Of the leader of a partition, acks=all."""
    writer = Writer(asking, TOPIC)
    await writer.begin()

    async def write(but: int) -> tuple[bool, int]:
        return await writer.write(but), writer.at

    return await gone(trio, writer.at, how, write)


async def gone(trio: Trio, victim: int, how: How, work: Callable[[int], Awaitable[tuple[bool, int]]]) -> Gap:
    """The work goes on until another node has answered for two seconds; then the victim is back."""
    began_s = last_s = time.monotonic()
    trio.signal(victim, how.value)
    first_s, longest_s = 0.0, 0.0
    but = victim if how is How.FROZEN else NOBODY  # a client would find that out by its own patience
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
    if how is How.FROZEN:
        trio.signal(victim, signal.SIGCONT)
    else:
        await asyncio.to_thread(trio.ended, victim)
        await asyncio.to_thread(trio.start, victim)
    return Gap(first_s, longest_s)


WORK: Final = {"heartbeat": heartbeats, "produce": produces}


async def rounds(trio: Trio, count: int, how: How, whats: Collection[str]) -> dict[str, Gap]:
    """The medians, by what was asked: `WORK` has the words."""
    asking = Asking(trio.addresses)
    try:
        await asking.make(TOPIC, PARTITIONS, 3)
        member = Member(asking)
        await member.join()
        found: dict[str, list[Gap]] = {}
        for _ in range(count):
            for what in whats:
                await asyncio.sleep(SETTLE_S)
                await asking.in_sync(TOPIC, PARTITIONS)
                found.setdefault(what, []).append(await WORK[what](trio, asking, member, how))
        return {what: Gap(*map(statistics.median, zip(*gaps, strict=True))) for what, gaps in found.items()}
    finally:
        asking.close()
