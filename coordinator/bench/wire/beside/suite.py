"""The cases of `muster bench wire --kafka PLACE`: each work on both sides in turns, after both are warm."""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

from muster.coordinator.bench.kafka.place import rival
from muster.coordinator.bench.processes import LOAD_CORE, SERVER_CORE, node, pinned
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.wire.beside.work import Figure, Side, Work, prepare, works
from muster.coordinator.bench.wire.records import kafka_address

NAME: Final = "beside Kafka"
PEER: Final = "Kafka's broker"
DELAY_MS = 500
"""How long a group waits for its first members, on both sides where the broker is ours to start."""
WARM_UP_S, WARM_ROUNDS = 10.0, 3
"""Each side does each work for so long, and so often, before it counts: a JVM compiles what is asked of it again and
again."""
ROUNDS = 7
SETTINGS = {"group.initial.rebalance.delay.ms": str(DELAY_MS), "kafka.listeners": "127.0.0.1:0"}


def cases(place: str, only: str) -> Iterator[Row]:
    """Measure the cases whose name contains `only` beside the broker of `place`. Raises BenchFailed, JavaNotFound."""
    wanted = [work for work in works() if any(only in f"{NAME}: {figure.what}" for figure in work.figures)]
    if not wanted:
        return
    home = tempfile.mkdtemp(prefix="muster-bench-")
    try:
        with rival(place, home, DELAY_MS) as broker, node(f"{home}/node", SETTINGS) as server:
            ours, theirs = Side(kafka_address(server), server.pid), Side(broker.address, broker.pid)
            with pinned(SERVER_CORE, theirs.pid), pinned(LOAD_CORE), asyncio.Runner() as runner:
                rows = compared(wanted, ours, theirs)
                while row := runner.run(following(rows)):
                    yield row
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def following(rows: AsyncIterator[Row]) -> Row | None:
    return await anext(rows, None)


async def compared(wanted: list[Work], ours: Side, theirs: Side) -> AsyncIterator[Row]:
    for side in (ours, theirs):
        await prepare(side)
    for work in wanted:
        for row in await in_turns(work, ours, theirs):
            yield row


async def in_turns(work: Work, ours: Side, theirs: Side) -> list[Row]:
    """The median round of each side; who begins changes."""
    rounds = (await work.ready(ours), await work.ready(theirs))
    for once in rounds:
        ends_s, done = time.monotonic() + WARM_UP_S, 0
        while done < WARM_ROUNDS or time.monotonic() < ends_s:
            await once()
            done += 1
    values: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            values[which].append(await rounds[which]())
    medians = [[statistics.median(each) for each in zip(*side, strict=True)] for side in values]
    return [row(*each) for each in zip(work.figures, *medians, strict=True)]


def row(figure: Figure, ours: float, theirs: float) -> Row:
    """
    >>> row(Figure("commits", "commits/s", 3.0, more_is_better=True), 4_000.0, 1_000.0)[5:]
    (1000.0, 4.0, 3.0, True)
    >>> row(Figure("heartbeats", "us", 3.0), 10.0, 25.0)[5:]
    (25.0, 2.5, 3.0, False)
    """
    ratio = ours / theirs if figure.more_is_better else theirs / ours
    case = f"{NAME}: {figure.what}"
    return Row(
        "wire",
        case,
        round(ours, 3),
        figure.unit,
        PEER,
        round(theirs, 3),
        round(ratio, 3),
        figure.goal,
        ratio >= figure.goal,
    )
