"""What it costs that every batch is looked into: append with the look beside append that checks headers only."""

import random
from collections.abc import Callable, Iterator
from functools import partial

from muster.storage.broker.broker import Broker
from muster.storage.compression import CODECS
from muster.storage.config import LogSettings
from muster.storage.logs.log import Log
from muster.storage.records.batch import encode_batch
from muster.storage.records.body import NewRecord
from muster.workshop.bench.case import NO_FLUSH, NOW_MS, LogBenchmarkCase, cpu, rate_case, sample_batch

GOAL = round(1 / 1.3, 3)
"""Of batches of 16 KB that are not compressed; for the others the page says what it is."""

_WORDS = [b"%06d user %04d clicked on item " % (number, 7 * number) for number in range(64)]


def measure_validation(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
    broker = Broker(f"{home}/data", LogSettings.from_properties(NO_FLUSH))
    try:
        broker.create_topic("looked", 1)
        broker.create_topic("headers", 1, {"validate": "header"})
        logs = broker.log("looked", 0), broker.log("headers", 0)
        for label, size in (("16 KB", 16 << 10), ("128 KB", 128 << 10)):
            goal = GOAL if size <= 16 << 10 else 0.0
            alike = partial(sample_batch, size)
            yield _beside(f"{name}, {label}, values of one length", logs, alike, rounds, size, goal)
            for codec in CODECS:
                mixed = partial(_mixed, random.Random(size), size, codec)
                yield _beside(f"{name}, {label}, {codec}, values of 40 to 180 bytes", logs, mixed, rounds, size, 0.0)
    finally:
        broker.close()


def _beside(
    name: str, logs: tuple[Log, Log], make: Callable[[], bytes], rounds: int, size: int, goal: float
) -> LogBenchmarkCase:
    count = max(8, (1 << 20) // size)
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(rounds + 1):
        batches = [make() for _ in range(count)]
        # Who comes second finds the batches in the processor's cache: they take turns at that.
        in_turn = logs if turn % 2 else logs[::-1]
        rates = {log: count / cpu(partial(_append_all, log, batches)) / 1e3 for log in in_turn}
        if turn:  # The first meets everything for the first time.
            ours.append(rates[logs[0]])
            theirs.append(rates[logs[1]])
    return rate_case(name, ours, "headers only", theirs, "thousand batches/s CPU", goal)


def _append_all(log: Log, batches: list[bytes]) -> None:
    for data in batches:
        log.append(data, NOW_MS)


def _mixed(chance: random.Random, size: int, codec: str) -> bytes:
    """About `size` bytes of records, no two batches of the same lengths."""
    records: list[NewRecord] = []
    left = size
    while left > 0:
        value = b"".join(chance.choices(_WORDS, k=6))[: chance.randrange(40, 180)]
        records.append((NOW_MS + len(records) // 50, None, value, ()))
        left -= len(value) + 9
    return encode_batch(records, codec=codec)
