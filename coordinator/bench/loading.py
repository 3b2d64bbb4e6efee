"""What a restart costs: replaying committed offsets, against a plain read of the same bytes plus decoding."""

import statistics
import time
from collections.abc import Callable, Iterator

from muster.coordinator.bench.rows import Row, less_is_better
from muster.coordinator.core.records import OffsetStored
from muster.coordinator.core.shard import Shard
from muster.coordinator.core.types import Limits, StoredOffset
from muster.coordinator.runtime.codec import encode
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.loading.loader import GROUPS_TOPIC, replay
from muster.storage.broker.broker import Broker
from muster.storage.config import MAX_LONG, LogSettings
from muster.storage.records.batch import decode_records

RECORDS = 100_000
KEYS = 20_000
"""Each partition's offset was committed this often before the log was compacted: RECORDS / KEYS."""
TURN = 200
"""Commits that one turn of a busy node keeps in one batch."""
ROUNDS = 5
NOW_MS = 1_700_000_000_000
GOAL = 0.2
"""The plain read knows nothing of keys, groups or newest values."""


def measure(name: str, home: str) -> Iterator[Row]:
    broker = Broker(home, LogSettings.from_properties({"log.flush.interval.messages": str(MAX_LONG)}))
    try:
        log = BrokerGroupLog(broker, 1, 1 << 30)
        fill(log)
        paths = [segment.path() for segment in broker.log(GROUPS_TOPIC, 0).segments]
        ours, theirs = [], []
        for _ in range(ROUNDS):
            theirs.append(cpu_s(lambda: plain(paths)))
            ours.append(cpu_s(lambda: load(log)))
    finally:
        broker.close()
    value, peer = (statistics.median(seconds) * 1e6 / RECORDS for seconds in (ours, theirs))
    yield less_is_better(name, value, "CPU s/million records", "plain read and decoding", peer, GOAL)


def fill(log: BrokerGroupLog) -> None:
    for start in range(0, RECORDS, TURN):
        encoded = encode(commit(number) for number in range(start, start + TURN))
        log.append(0, encoded.groups, encoded.ledger, NOW_MS)


def commit(number: int) -> OffsetStored:
    group, partition = divmod(number % KEYS, 100)
    return OffsetStored(f"group-{group}", "orders", partition, StoredOffset(number, -1, "", NOW_MS))


def plain(paths: list[str]) -> None:
    count = 0
    for path in paths:
        with open(path, "rb") as file:
            count += sum(1 for _ in decode_records(file.read()))
    assert count == RECORDS, f"{count} records were read back; {RECORDS} were written"


def load(log: BrokerGroupLog) -> None:
    shard = Shard(Limits(), 0)
    report = replay(log, 0, shard)
    assert report.records == RECORDS, f"{report.records} records were replayed; {RECORDS} were written"
    assert report.groups == KEYS, f"{report.groups} facts were kept; {KEYS} keys were written"


def cpu_s(work: Callable[[], None]) -> float:
    """Processor seconds of the work: on a shared machine the wall clock measures the neighbours."""
    started = time.process_time()
    work()
    return time.process_time() - started
