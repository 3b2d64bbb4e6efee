"""CL-P3 to CL-P5: what a record costs that three nodes keep, against one node alone on the same disk."""

import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from muster.storage.records.batch import encode_turn
from muster.workshop.bench.asking import TrioClient, TrioWriter
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import Stopwatch
from muster.workshop.bench.trio import ServerTrio

APPEND_TOPIC: Final = "appended"
BATCH_BYTES: Final = 15_000
APPEND_RECORDS: Final = 15
MEGABYTES: Final = 60
DEPTH: Final = 8
"""Produces under way at a time. A node alone flushes about four of them at once; asked one by one it flushes for each,
and a megabyte costs it three times as much."""
ONE_BY_ONE: Final = 300
WARM: Final = 200
ROUNDS: Final = 3


class AppendCost(NamedTuple):
    """Milliseconds of processor time per MB, of the leader and of all nodes; of one acks=all produce, the median."""

    leader_ms: float
    all_ms: float
    produce_ms: float


def make_batch() -> bytes:
    value = bytes(range(256)) * (BATCH_BYTES // APPEND_RECORDS // 256 + 1)
    return encode_turn([(b"", value[: BATCH_BYTES // APPEND_RECORDS], None) for _ in range(APPEND_RECORDS)], 0)


async def measure_append_costs(trios: Sequence[tuple[ServerTrio, int]]) -> list[AppendCost]:
    """Of each, with that many copies, the medians of some rounds. They take turns, so that what else the machine does
    falls upon all of them."""
    askings = [TrioClient(trio.addresses) for trio, _ in trios]
    found: list[list[AppendCost]] = [[] for _ in trios]
    try:
        for (_, factor), asking in zip(trios, askings, strict=True):
            await asking.make(APPEND_TOPIC, 1, factor)
        for _ in range(ROUNDS):
            for (trio, _), asking, mine in zip(trios, askings, found, strict=True):
                mine.append(await measure_appends_once(trio, asking))
        return [AppendCost(*map(statistics.median, zip(*mine, strict=True))) for mine in found]
    finally:
        for asking in askings:
            asking.close()


async def measure_appends_once(trio: ServerTrio, asking: TrioClient) -> AppendCost:
    writer = TrioWriter(asking, APPEND_TOPIC, make_batch())
    await writer.begin()
    line = await LoadConnection.to(asking.addresses[writer.at])
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
        small = line.request("Produce", 9, TrioWriter(asking, APPEND_TOPIC).request())
        took: list[float] = []
        for number in range(WARM + ONE_BY_ONE):
            watch = Stopwatch()
            await line.pass_on(small)
            if number >= WARM:
                took.append(watch.read() * 1_000)
        leader, everybody = used[writer.at], sum(used.values())
        return AppendCost(leader * 1_000 / megabytes, everybody * 1_000 / megabytes, statistics.median(took))
    finally:
        line.close()
