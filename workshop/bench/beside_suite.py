"""The cases of `muster bench wire --kafka PLACE`: each work on both sides in turns, after both are warm."""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

from muster.workshop.bench.place import find_peer_broker
from muster.workshop.bench.processes import LOAD_CORE, SERVER_CORE, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.work import BrokerSide, BrokerWork, WorkFigure, list_works, prepare_side

NAME: Final = "beside Kafka"
PEER: Final = "Kafka's broker"
DELAY_MS = 500
"""How long a group waits for its first members, on both sides where the broker is ours to start."""
WARM_UP_S, WARM_ROUNDS = 10.0, 3
"""Each side does each work for so long, and so often, before it counts: a JVM compiles what is asked of it again and
again."""
ROUNDS = 7
SETTINGS = {"group.initial.rebalance.delay.ms": str(DELAY_MS), "kafka.listeners": "127.0.0.1:0"}


def measure_beside_kafka(place: str, only: str) -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only` beside the broker of `place`. Raises BenchFailed, JavaNotFound."""
    wanted = [work for work in list_works() if any(only in f"{NAME}: {figure.what}" for figure in work.figures)]
    if not wanted:
        return
    home = tempfile.mkdtemp(prefix="muster-bench-")
    try:
        with find_peer_broker(place, home, DELAY_MS) as broker, run_node(f"{home}/node", SETTINGS) as server:
            ours, theirs = BrokerSide(kafka_address(server), server.pid), BrokerSide(broker.address, broker.pid)
            with pinned(SERVER_CORE, theirs.pid), pinned(LOAD_CORE), asyncio.Runner() as runner:
                rows = compare_sides(wanted, ours, theirs)
                while row := runner.run(iterate_rows(rows)):
                    yield row
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def iterate_rows(rows: AsyncIterator[BenchRow]) -> BenchRow | None:
    return await anext(rows, None)


async def compare_sides(wanted: list[BrokerWork], ours: BrokerSide, theirs: BrokerSide) -> AsyncIterator[BenchRow]:
    for side in (ours, theirs):
        await prepare_side(side)
    for work in wanted:
        for row in await alternate_sides(work, ours, theirs):
            yield row


async def alternate_sides(work: BrokerWork, ours: BrokerSide, theirs: BrokerSide) -> list[BenchRow]:
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


def row(figure: WorkFigure, ours: float, theirs: float) -> BenchRow:
    """
    >>> row(WorkFigure("commits", "commits/s", 3.0, more_is_better=True), 4_000.0, 1_000.0)[5:]
    (1000.0, 4.0, 3.0, True)
    >>> row(WorkFigure("heartbeats", "us", 3.0), 10.0, 25.0)[5:]
    (25.0, 2.5, 3.0, False)
    """
    ratio = ours / theirs if figure.more_is_better else theirs / ours
    case = f"{NAME}: {figure.what}"
    return BenchRow(
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
