"""`muster bench log`: what the log costs, each case as a ratio to a named limit or peer measured in the same run.

Turns of ours and the peer alternate and their ratio is the median over the turns, so that a busy machine slows both.
Everything is written below a directory of the caller's and removed again.
"""

import asyncio
import contextlib
import importlib
import os
import random
import resource
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvloop
from crc32c import crc32c

from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.compression import CODECS
from muster.storage.config import MAX_LONG, LogSettings
from muster.storage.files import RealFiles
from muster.storage.logs.log import Log
from muster.storage.logs.log_metadata import SUMMARIES
from muster.storage.records.batch import NewRecord, decode_records, encode_batch, read_batches
from muster.storage.records.columns import decode_runs, to_arrow
from muster.storage.records.scan import Order, walk_checked
from muster.storage.topics.data_dir import CLEAN_SHUTDOWN, RECOVERY_POINTS
from muster.workshop.bench.report import BenchRow

# A line of the report
# --------------------

NOW_MS = 1_700_000_000_000
NO_FLUSH = {"log.flush.interval.messages": str(MAX_LONG)}


def rate_case(case: str, ours: list[float], peer: str, theirs: list[float], unit: str, goal: float) -> BenchRow:
    """Rates: more is better. The ratio is the median over the turns, whose halves lie close together in time."""
    value, peer_value = statistics.median(ours), statistics.median(theirs)
    ratio = statistics.median(mine / his for mine, his in zip(ours, theirs, strict=True))
    return BenchRow(
        "log", case, round(value, 3), unit, peer, round(peer_value, 3), round(ratio, 3), goal, ratio >= goal
    )


def cpu(work: Callable[[], object]) -> float:
    """Processor seconds of the work: on a shared machine the wall clock measures the neighbours."""
    start = time.process_time()
    work()
    return max(time.process_time() - start, 1e-9)


def sample_batch(size: int, value_bytes: int = 100, key: bytes | None = None) -> bytes:
    """A batch of about `size` bytes of 100-byte records."""
    count = max(1, (size - 61) // (value_bytes + 8))
    value = (b"%06d " % 7) * (value_bytes // 7 + 1)
    return encode_batch([(NOW_MS + n, key, value[:value_bytes], ()) for n in range(count)])


@contextlib.contextmanager
def bench_log(home: str, **properties: str) -> Iterator[Log]:
    broker = Broker(f"{home}/data", LogSettings.from_properties({**NO_FLUSH, **properties}))
    try:
        broker.create_topic("bench", 1)
        yield broker.log("bench", 0)
    finally:
        broker.close()


# What the look inside costs
# --------------------------

GOAL = round(1 / 1.3, 3)
"""Of batches of 16 KB that are not compressed; for the others the page says what it is."""

_WORDS = [b"%06d user %04d clicked on item " % (number, 7 * number) for number in range(64)]


def measure_validation(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
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
) -> BenchRow:
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


# Memory
# ------


def measure_idle_partition(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
    """Resident bytes per idle partition, over 1,000 of them."""
    broker = Broker(f"{home}/data", LogSettings.from_properties(NO_FLUSH))
    broker.create_topic("bench", 1000)
    data = sample_batch(1 << 10)
    for number in range(1000):
        broker.append("bench", number, data, NOW_MS)
    broker.close()
    del broker
    before = resident_bytes()
    broker = Broker(f"{home}/data", LogSettings.from_properties(NO_FLUSH))
    each = max(1.0, (resident_bytes() - before) / 1000 / 1024)
    broker.close()
    yield BenchRow("log", name, round(each, 2), "KB", "limit", 20.0, round(20.0 / each, 3), 1.0, each <= 20.0)


def measure_memory_growth(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
    """Growth of resident memory while five gigabytes are written, read and recovered; one where the disk is small."""
    data = sample_batch(1_000_000)
    gigabytes = 5 if shutil.disk_usage(home).free > 8 << 30 else 1
    count = (gigabytes << 30) // len(data)
    # A small turn first, so that buffers which are made once are not counted.
    _write_read_recover(f"{home}/warm", data, 100)
    before = resident_bytes()
    with _peak_memory() as peak:
        _write_read_recover(f"{home}/long", data, count)
    grown = max(0.1, (max(peak) - before) / 1e6)
    case = f"{name} over {gigabytes} GB"
    yield BenchRow("log", case, round(grown, 2), "MB", "limit", 32.0, round(32.0 / grown, 3), 1.0, grown <= 32.0)


def _write_read_recover(home: str, data: bytes, count: int) -> None:
    large = {"log.segment.bytes": str(256 << 20)}
    with bench_log(home, **large) as log:
        for _ in range(count):
            log.append(data, NOW_MS)
        head = log.segments[0].locate(0)
        assert head is not None
        for number in range(0, count, 4):
            log.fetch(number * head.count, 4 << 20)
        end = log.end_offset
    # As if the power had gone before anything was written down: every byte is checked.
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS, f"bench-0/{SUMMARIES}"):
        os.unlink(f"{home}/data/{name}")
    broker = Broker(f"{home}/data", LogSettings.from_properties({**NO_FLUSH, **large}))
    assert broker.end_offset("bench", 0) == end
    broker.close()
    shutil.rmtree(home)


@contextlib.contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """Looks at the resident memory all the while; the largest value of the list is the peak."""
    seen = [resident_bytes()]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            seen[0] = max(seen[0], resident_bytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def resident_bytes() -> int:
    """What the process holds in memory now; where the system does not say, the most it ever held."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# Speed
# -----

# -- append -------------------------------------------------------------------------------------------------


def measure_append(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
    for label, size, goal in (("16 KB", 16 << 10, 0.65), ("1 MB", 1_000_000, 0.75)):
        data = sample_batch(size)
        count = max(8, (64 << 20) // len(data))
        ours, theirs = [], []
        for turn in range(3 * rounds):
            theirs.append(count * len(data) / _raw_writes(f"{home}/raw-{turn}", data, count) / 1e6)
            ours.append(count * len(data) / _appends(f"{home}/log-{turn}", data, count) / 1e6)
        yield rate_case(
            f"{name} {label} batches, headers only", ours, "os.write of the same bytes", theirs, "MB/s CPU", goal
        )


def _raw_writes(path: str, data: bytes, count: int) -> float:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def work() -> None:
        for _ in range(count):
            os.write(fd, data)

    try:
        return cpu(work)
    finally:
        os.close(fd)
        os.unlink(path)


def _appends(home: str, data: bytes, count: int) -> float:
    # What the look into batches adds is a case of its own.
    with bench_log(home, **{"log.validate": "header"}) as log:

        def work() -> None:
            for _ in range(count):
                log.append(data, NOW_MS)

        spent = cpu(work)
    shutil.rmtree(home)
    return spent


# -- group commit -------------------------------------------------------------------------------------------


def measure_group_commit(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
    broker = Broker(f"{home}/data", LogSettings())
    broker.create_topic("bench", 1)
    for label, size in (("one record", 100), ("1 KB", 1 << 10)):
        data = sample_batch(size)
        alone, together = [], []
        for _ in range(3 * rounds):
            alone.append(uvloop.run(_callers(broker, data, 1, 40)))
            together.append(uvloop.run(_callers(broker, data, 32, 40)))
        yield rate_case(f"{name}, {label} each", together, "one caller", alone, "appends/s", 20.0)
    broker.close()


async def _callers(broker: Broker, data: bytes, callers: int, appends: int) -> float:
    commit = GroupCommit(broker, lambda: NOW_MS)

    async def caller() -> None:
        for _ in range(appends):
            await commit.append(("bench", 0), data)

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    spent = time.perf_counter() - start
    await commit.close()
    return callers * appends / spent


# -- fetch --------------------------------------------------------------------------------------------------


def measure_fetch(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
    data = sample_batch(16 << 10)
    with bench_log(home) as log:
        for _ in range((64 << 20) // len(data)):
            log.append(data, NOW_MS)
        records = log.end_offset * len(data) // log.size
        for label, most in (("64 KB", 64 << 10), ("1 MB", 1 << 20)):
            # Whole batches, so that nothing has to be read twice, and the same for both.
            batches = round(most / len(data))
            chunk, step = batches * len(data), batches * records
            ours, theirs = [], []
            for _ in range(3 * rounds):
                theirs.append(_to_socket(partial(_plain_reads, log, chunk)))
                ours.append(_to_socket(partial(_fetches, log, chunk, step)))
            yield rate_case(f"{name} {label}", ours, "pread and send", theirs, "MB/s CPU", 0.8)


def _to_socket(read: Callable[[Callable[[bytes | memoryview], object]], int]) -> float:
    ours, theirs = socket.socketpair()
    sink = threading.Thread(target=_drain, args=(theirs,), daemon=True)
    sink.start()
    try:
        start = time.thread_time()
        sent = read(ours.sendall)
        return sent / max(time.thread_time() - start, 1e-9) / 1e6
    finally:
        ours.close()
        sink.join()
        theirs.close()


def _drain(end: socket.socket) -> None:
    room = bytearray(1 << 20)
    while end.recv_into(room):
        pass


def _plain_reads(log: Log, most: int, send: Callable[[bytes | memoryview], object]) -> int:
    fd = os.open(log.segments[0].path(), os.O_RDONLY)
    at = 0
    try:
        while data := os.pread(fd, most, at):
            send(data)
            at += len(data)
    finally:
        os.close(fd)
    return at


def _fetches(log: Log, chunk: int, step: int, send: Callable[[bytes | memoryview], object]) -> int:
    sent = 0
    for offset in range(0, log.end_offset, step):
        data = log.fetch(offset, chunk).records
        send(data)
        sent += len(data)
    assert sent == log.size
    return sent


# -- records ------------------------------------------------------------------------------------------------


def measure_codec(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
    try:
        peer: Any = importlib.import_module("kafka.record.default_records")
    except ImportError:
        return
    value = b"x" * 100
    plain = [(NOW_MS + n, None, value, ()) for n in range(140)]
    data = encode_batch(plain)
    for label, mine, his in (
        ("encode", lambda: encode_batch(plain), lambda: _peer_encode(peer, value)),
        ("decode", lambda: list(decode_records(data)), lambda: list(peer.DefaultRecordBatch(data))),
    ):
        ours, theirs = [], []
        for _ in range(rounds):
            theirs.append(140 * 100 / cpu(partial(_repeat, his, 100)) / 1e3)
            ours.append(140 * 100 / cpu(partial(_repeat, mine, 100)) / 1e3)
        yield rate_case(f"{name}: {label}", ours, "kafka-python", theirs, "thousand records/s CPU", 2.5)


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()


def measure_columns(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
    try:
        peer: Any = importlib.import_module("kafka.record.default_records")
        importlib.import_module("pyarrow")
    except ImportError:
        return
    data = sample_batch(1_000_000)
    (batch,) = read_batches(data)

    def to_table() -> None:
        assert batch.crc_ok
        ((columns, _),) = decode_runs(data, [batch])
        to_arrow(columns)

    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(batch.count / cpu(lambda: list(peer.DefaultRecordBatch(data))) / 1e3)
        spent = cpu(partial(_repeat, to_table, 8)) / 8
        ours.append(batch.count / spent / 1e3)
    yield rate_case(name, ours, "kafka-python", theirs, "thousand records/s CPU", 8.0)


def _peer_encode(peer: Any, value: bytes) -> object:
    builder = peer.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number in range(140):
        builder.append(number, NOW_MS + number, None, value, [])
    return builder.build()


# -- recovery -----------------------------------------------------------------------------------------------


def measure_recovery_scan(name: str, home: str, rounds: int) -> Iterator[BenchRow]:
    for label, size in (("16 KB", 16 << 10), ("1 MB", 1_000_000)):
        data = sample_batch(size)
        with bench_log(f"{home}/{size}") as log:
            for _ in range((128 << 20) // len(data)):
                log.append(data, NOW_MS)
            path, total = log.segments[0].path(), log.size
        ours, theirs = [], []
        for _ in range(rounds):
            theirs.append(total / cpu(partial(_only_crc, path)) / 1e6)
            ours.append(total / cpu(partial(_scan, path, total)) / 1e6)
        yield rate_case(f"{name}, {label} batches", ours, "a CRC over the file", theirs, "MB/s CPU", 0.5)


def _only_crc(path: str) -> int:
    room = memoryview(bytearray(1 << 20))
    crc = at = 0
    fd = os.open(path, os.O_RDONLY)
    try:
        while got := os.preadv(fd, [room], at):
            crc = crc32c(room[:got], crc)
            at += got
    finally:
        os.close(fd)
    return crc


def _scan(path: str, size: int) -> int:
    file = RealFiles().open(path, writable=False)
    return sum(1 for _ in walk_checked(file, 0, size, Order(0, 0)))


# The suite
# ---------

CASES: dict[str, Callable[[str, str, int], Iterator[BenchRow]]] = {
    "append": measure_append,
    "append with the look": measure_validation,
    "group commit, 32 callers": measure_group_commit,
    "fetch to a socket": measure_fetch,
    "records of 100 bytes": measure_codec,
    "a 1 MB batch to Arrow": measure_columns,
    "recovery scan": measure_recovery_scan,
    "an idle partition": measure_idle_partition,
    "memory": measure_memory_growth,
}


def run(only: str | None = None, directory: str | None = None, rounds: int = 7) -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`, one after the other; cases without their peer are left out."""
    for name, measure in CASES.items():
        if only is None or only in name:
            home = tempfile.mkdtemp(prefix="muster-bench-", dir=directory)
            try:
                yield from measure(name, home, rounds)
            finally:
                shutil.rmtree(home, ignore_errors=True)
