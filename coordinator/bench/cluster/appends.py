"""CL-P3 to CL-P5: what a record costs that three nodes keep, against one node alone on the same disk."""

import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from muster.coordinator.bench.cluster.asking import Asking, Writer
from muster.coordinator.bench.cluster.trio import Trio
from muster.coordinator.bench.processes import Stopwatch
from muster.coordinator.bench.wire.line import Line
from muster.storage.records.batch import encode_turn

TOPIC: Final = "appended"
BATCH_BYTES: Final = 15_000
RECORDS: Final = 15
MEGABYTES: Final = 60
DEPTH: Final = 8
"""Produces under way at a time. A node alone flushes about four of them at once; asked one by one it flushes for each,
and a megabyte costs it three times as much."""
ONE_BY_ONE: Final = 300
WARM: Final = 200
ROUNDS: Final = 3


class Cost(NamedTuple):
    """Milliseconds of processor time per MB, of the leader and of all nodes; of one acks=all produce, the median."""

    leader_ms: float
    all_ms: float
    produce_ms: float


def batch() -> bytes:
    value = bytes(range(256)) * (BATCH_BYTES // RECORDS // 256 + 1)
    return encode_turn([(b"", value[: BATCH_BYTES // RECORDS], None) for _ in range(RECORDS)], 0)


async def costs(trios: Sequence[tuple[Trio, int]]) -> list[Cost]:
    """Of each, with that many copies, the medians of some rounds. They take turns, so that what else the machine does
    falls upon all of them."""
    askings = [Asking(trio.addresses) for trio, _ in trios]
    found: list[list[Cost]] = [[] for _ in trios]
    try:
        for (_, factor), asking in zip(trios, askings, strict=True):
            await asking.make(TOPIC, 1, factor)
        for _ in range(ROUNDS):
            for (trio, _), asking, mine in zip(trios, askings, found, strict=True):
                mine.append(await once(trio, asking))
        return [Cost(*map(statistics.median, zip(*mine, strict=True))) for mine in found]
    finally:
        for asking in askings:
            asking.close()


async def once(trio: Trio, asking: Asking) -> Cost:
    writer = Writer(asking, TOPIC, batch())
    await writer.begin()
    line = await Line.to(asking.addresses[writer.at])
    try:
        request = line.request("Produce", 9, writer.request())
        left = MEGABYTES * 1_000_000 // BATCH_BYTES

        def go_on() -> bool:
            nonlocal left
            left -= 1
            return left > 0

        before = {node: trio.cpu_s(node) for node in asking.addresses}
        sent = await line.repeat(request, DEPTH, go_on)
        used = {node: trio.cpu_s(node) - before[node] for node in asking.addresses}
        megabytes = sent * BATCH_BYTES / 1_000_000
        small = line.request("Produce", 9, Writer(asking, TOPIC).request())
        took: list[float] = []
        for number in range(WARM + ONE_BY_ONE):
            watch = Stopwatch()
            await line.pass_on(small)
            if number >= WARM:
                took.append(watch.read() * 1_000)
        leader, everybody = used[writer.at], sum(used.values())
        return Cost(leader * 1_000 / megabytes, everybody * 1_000 / megabytes, statistics.median(took))
    finally:
        line.close()
