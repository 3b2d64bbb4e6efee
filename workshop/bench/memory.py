"""Memory, each case against its limit."""

import contextlib
import os
import resource
import shutil
import threading
from collections.abc import Iterator

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.logs.summaries import SUMMARIES
from muster.storage.topics.data_dir import CLEAN_SHUTDOWN, RECOVERY_POINTS
from muster.workshop.bench.case import NO_FLUSH, NOW_MS, LogBenchmarkCase, bench_log, sample_batch


def measure_idle_partition(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
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
    yield LogBenchmarkCase("log", name, round(each, 2), "KB", "limit", 20.0, round(20.0 / each, 3), 1.0, each <= 20.0)


def measure_memory_growth(name: str, home: str, rounds: int) -> Iterator[LogBenchmarkCase]:
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
    yield LogBenchmarkCase(
        "log", case, round(grown, 2), "MB", "limit", 32.0, round(32.0 / grown, 3), 1.0, grown <= 32.0
    )


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
