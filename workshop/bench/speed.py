"""Speed, each case beside its peer."""

import asyncio
import importlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvloop
from crc32c import crc32c

from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.config import LogSettings
from muster.storage.files import RealFiles
from muster.storage.logs.log import Log
from muster.storage.records.batch import decode_records, encode_batch, read_batches
from muster.storage.records.columns import to_arrow
from muster.storage.records.runs import decode_runs
from muster.storage.records.scan import Order, walk_checked
from muster.workshop.bench.case import NOW_MS, LogBenchmarkCase, bench_log, cpu, rate_case, sample_batch

# -- append -------------------------------------------------------------------------------------------------


def measure_append(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
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


def measure_group_commit(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
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


def measure_fetch(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
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


def measure_codec(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
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


def measure_columns(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
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


def measure_recovery_scan(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
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
