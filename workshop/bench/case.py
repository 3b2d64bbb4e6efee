"""A line of the report, and what the cases share."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from muster.storage.broker.broker import Broker
from muster.storage.config import MAX_LONG, LogSettings
from muster.storage.logs.log import Log
from muster.storage.records.batch import encode_batch

NOW_MS = 1_700_000_000_000
NO_FLUSH = {"log.flush.interval.messages": str(MAX_LONG)}


class LogBenchmarkCase(NamedTuple):
    """One line of the report; `ratio` is value over peer, or peer over value where less is better."""

    bench: str
    case: str
    value: float
    unit: str
    peer: str
    peer_value: float
    ratio: float
    goal: float
    ok: bool


def rate_case(case: str, ours: list[float], peer: str, theirs: list[float], unit: str, goal: float) -> LogBenchmarkCase:
    """Rates: more is better. The ratio is the median over the turns, whose halves lie close together in time."""
    value, peer_value = statistics.median(ours), statistics.median(theirs)
    ratio = statistics.median(mine / his for mine, his in zip(ours, theirs, strict=True))
    return LogBenchmarkCase(
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
