"""P1 and P2: how long nobody answers when the coordinator's node is killed, stands still, or is told to stop."""

import asyncio
import signal
import statistics
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, NamedTuple

from muster.coordinator.bench.cluster.asking import NOBODY, PAUSE_S, TRIES_S, Asking, Gone, Member, Writer
from muster.coordinator.bench.cluster.trio import Trio
from muster.coordinator.bench.processes import BenchFailed
from muster.coordinator.kafka.codec.codec import struct

TOPIC: Final = "written"
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


async def calm(asking: Asking, member: Member) -> None:
    """Return once the member's coordinator is found and answers."""
    deadline_s = time.monotonic() + TRIES_S
    while not await member.beat():
        if time.monotonic() > deadline_s:
            raise BenchFailed("a member is not answered, though nobody was touched")
        await asyncio.sleep(0.1)


async def heartbeats(trio: Trio, asking: Asking, member: Member, how: How) -> Gap:
    """Of the group's coordinator."""
    await calm(asking, member)
    victim = member.at

    async def beat(but: int) -> tuple[bool, int]:
        return await member.beat(but), member.at

    return await gone(trio, victim, how, beat)


async def produces(trio: Trio, asking: Asking, member: Member, how: How) -> Gap:
    """Of the leader of a partition, acks=all."""
    writer = Writer(asking, TOPIC)
    deadline_s = time.monotonic() + TRIES_S
    while not await writer.write():
        if time.monotonic() > deadline_s:
            raise BenchFailed("nothing is acknowledged, though nobody was touched")
        await asyncio.sleep(0.1)

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


async def rounds(trio: Trio, count: int, hows: tuple[How, ...]) -> dict[tuple[str, How], Gap]:
    """The medians, by what was asked and what happened."""
    asking = Asking(trio.addresses)
    try:
        await asking.make(TOPIC, 3, 3)
        member = Member(asking)
        await member.join()
        found: dict[tuple[str, How], list[Gap]] = {}
        for how in hows:
            for _ in range(count):
                for what, measure in (("heartbeat", heartbeats), ("produce", produces)):
                    await asyncio.sleep(SETTLE_S)
                    await in_sync(asking)
                    gap = await measure(trio, asking, member, how)
                    found.setdefault((what, how), []).append(gap)
        return {key: Gap(*map(statistics.median, zip(*gaps, strict=True))) for key, gaps in found.items()}
    finally:
        asking.close()


async def in_sync(asking: Asking) -> None:
    """Return once all three know three copies of all."""
    request = struct("MetadataRequest")(topics=[struct("MetadataRequest.topics")(name=TOPIC)])
    deadline_s = time.monotonic() + TRIES_S
    while time.monotonic() < deadline_s:
        try:
            parts = (await asking.anybody("Metadata", 4, request)).topics[0].partitions
        except Gone:
            parts = []
        if parts and all(len(part.isr_nodes) == len(asking.addresses) for part in parts):
            return
        await asyncio.sleep(0.1)
    raise BenchFailed("the copies do not come in sync again")
