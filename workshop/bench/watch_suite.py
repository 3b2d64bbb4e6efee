"""The cases of `muster bench watch`: records a second through the reader of `__consumer_offsets`, and what it takes to
explain the groups of made-up segments (watch_load.py), in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from muster.coordinator.core.model.records import OffsetStored
from muster.coordinator.runtime.kafka_records import decode_group
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.storage.compression import CODECS
from muster.storage.records.batch import read_batches
from muster.workshop.bench.kafka_peer import JarsUnavailable
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.report import BenchRow, MeasureCase, at_least, at_most, measure_cases
from muster.workshop.bench.watch_broker import measure_broker
from muster.workshop.bench.watch_load import (
    MEMBERS,
    OWNED,
    CountedEntries,
    LoadShape,
    compressed_batches,
    made_batches,
    shape_of,
    write_partition,
)
from muster.workshop.bench.watch_peers import measure_peers

BENCH = "watch"
WANTED_PER_S = 400_000
ROUNDS, POSITIONS = 15, 20_000
"""Of a pair: the best round of each counts, in turns."""
COMMIT_MS = 5_000
MIB, LOAD_PARTITIONS, LOAD_GROUPS, LOAD_SHARE = 128, 10, 10, 0.95
MANY_GROUPS, MANY_GENERATIONS = 10_000, 20
FIRST_S, WANTED_S, RESIDENT_MB = 5.0, 60.0, 300.0
READ_S = 900

MeasureBeside: TypeAlias = Callable[[str, str, str, str], Iterator[BenchRow]]
"""Of the case's name, a directory, where Kafka's jars are, and the bench's name."""

BESIDE_KAFKA: dict[str, MeasureBeside] = {"comparators": measure_peers, "broker": measure_broker}


def run(only: str = "", place: str = "") -> Iterator[BenchRow]:
    """place: of Kafka's jars, for the cases beside a real one; empty: Maven has them, or they are skipped."""
    cases: dict[str, MeasureCase] = {
        "positions, one in a batch": lambda name, home: measure_positions(name, 1),
        "positions, ten in a batch": lambda name, home: measure_positions(name, 10),
        "compressed positions": measure_compressed,
        "segments": measure_segments,
        "many groups": measure_many_groups,
    }
    cases |= {name: partial(measure_beside_kafka, measure, place) for name, measure in BESIDE_KAFKA.items()}
    return measure_cases(cases, only)


def measure_beside_kafka(measure: MeasureBeside, place: str, name: str, home: str) -> Iterator[BenchRow]:
    try:
        yield from measure(name, home, place, BENCH)
    except JarsUnavailable as missing:
        yield BenchRow(BENCH, f"{name}: skipped, {missing}", 0.0, "", "Kafka", 0.0, 0.0, 0.0, True)


# The reader
# ----------


def measure_positions(name: str, batch: int) -> Iterator[BenchRow]:
    shape = busy_groups(batch)
    data = b"".join(made_batches(shape, range(shape.groups), POSITIONS // batch))
    later_ms = shape.until_ms + 1_000 * 3_600_000

    def read(since_ms: int | None = None) -> Callable[[], object]:
        return lambda: WatchedPartition(CountedEntries(), {}, since_ms=since_ms).take_batches(data)

    reading, plain, passing = best_rates([read(), lambda: read_plainly(data), read(later_ms)])
    yield at_least(4.0, name, reading, "positions/s", "a node's own codec", plain, bench=BENCH)
    yield at_least(1.0, name, reading, "positions/s", "wanted", WANTED_PER_S, bench=BENCH)
    yield at_least(1.5, f"{name}, from before --since", passing, "positions/s", "read", reading, bench=BENCH)


def busy_groups(batch: int) -> LoadShape:
    """Each position is committed every five seconds, as clients do by default."""
    shape = LoadShape(groups=100, batch=batch, generations=0, until_ms=time.time_ns() // 1_000_000)
    return replace(shape, span_ms=COMMIT_MS * POSITIONS // (shape.groups * MEMBERS * OWNED))


def measure_compressed(name: str, home: str) -> Iterator[BenchRow]:
    """Of each codec, in turns."""
    for batch in (1, 10):
        shape = busy_groups(batch)
        plain = b"".join(made_batches(shape, range(shape.groups), POSITIONS // batch))
        codecs = {codec: compressed_batches(plain, codec) for codec in CODECS[1:]}

        def read(data: bytes) -> Callable[[], object]:
            return lambda: WatchedPartition(CountedEntries(), {}).take_batches(data)

        rates = best_rates([read(data) for data in codecs.values()])
        for codec, rate in zip(codecs, rates, strict=True):
            what = f"{name}, {codec}, {batch} in a batch"
            yield at_least(1.0, what, rate, "positions/s", "wanted", WANTED_PER_S, bench=BENCH)


def read_plainly(data: bytes) -> dict[tuple[str, str, int], Any]:
    """Record by record, as a node reads what it has written."""
    newest = {}
    for each in read_batches(data):
        for record in each.records():
            assert record.key is not None
            fact = decode_group(KeyValue(record.key, record.value))
            if isinstance(fact, OffsetStored):
                newest[fact.group_id, fact.topic, fact.partition] = fact.value
    return newest


def best_rates(ways: list[Callable[[], object]]) -> list[float]:
    """Positions a second of processor time, of the best round of each: other processes take turns, too."""
    best = [float("inf")] * len(ways)
    for _ in range(ROUNDS):
        for number, way in enumerate(ways):
            began_s = time.process_time()
            way()
            best[number] = min(best[number], time.process_time() - began_s)
    return [POSITIONS / each for each in best]


# Whole partitions
# ----------------


def measure_segments(name: str, home: str) -> Iterator[BenchRow]:
    """Three days of which one is asked about, beside all three; megabytes a second of processor time."""
    folder = write_load(Path(home), MIB << 20, LoadShape(LOAD_GROUPS, 10, None, time.time_ns() // 1_000_000))
    whole, day = read_apart(folder), read_apart(folder, "--since-hours", "24")
    what = f"{name}, {whole['size'] >> 20} MiB"
    rate, of_day = (read["size"] / read["cpu_s"] / 1e6 for read in (whole, day))
    wanted = (5 << 30) / WANTED_S / 1e6
    yield at_most(1.0, f"{what}: first group explained", whole["first_s"], "s", "wanted", FIRST_S, bench=BENCH)
    yield at_least(1.0, f"{what}: --since 24h", of_day, "MB/s", "5 GiB in a minute", wanted, bench=BENCH)
    yield at_least(1.25, f"{what}: --since 24h", of_day, "MB/s", "all three days", rate, bench=BENCH)


def measure_many_groups(name: str, home: str) -> Iterator[BenchRow]:
    """What the reader keeps of them, besides what it tells a ledger."""
    per_partition = MANY_GROUPS // LOAD_PARTITIONS
    shape = LoadShape(per_partition, 10, MANY_GENERATIONS, time.time_ns() // 1_000_000)
    folder = Path(home) / "load"
    for number in range(LOAD_PARTITIONS):
        write_partition(folder, number, shape, MANY_GENERATIONS * per_partition, LOAD_PARTITIONS)
    read = read_apart(folder)
    what = f"{name}, {MANY_GROUPS} x {MANY_GENERATIONS} generations: resident memory"
    yield at_most(1.0, what, read["resident_mb"], "MB", "wanted", RESIDENT_MB, bench=BENCH)


def write_load(home: Path, size: int, shape: LoadShape) -> Path:
    folder = home / "load"
    filled, batches = shape_of(size // LOAD_PARTITIONS, shape, LOAD_SHARE)
    for number in range(LOAD_PARTITIONS):
        write_partition(folder, number, filled, batches, LOAD_PARTITIONS)
    return folder


def read_apart(folder: Path, *how: str) -> dict[str, Any]:
    """In a process of its own, whose memory is that of the reading alone. Raises BenchFailed."""
    command = [sys.executable, "-m", "muster.workshop.bench.watch_load", str(folder), "--read", *how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_S, check=False)
    if done.returncode:
        raise BenchFailed(f"reading made-up segments failed: {done.stderr.strip().splitlines()[-1:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told
