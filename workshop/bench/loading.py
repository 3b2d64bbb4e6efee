"""What a restart costs: replaying committed offsets, against a plain read of the same bytes plus decoding."""

import statistics
import time
from collections.abc import Callable, Iterator

from muster.coordinator.core.model.core_records import OffsetStored
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.codec_init import encode
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.loader import GROUPS_TOPIC, replay_shard
from muster.storage.broker.broker import Broker
from muster.storage.config import MAX_LONG, LogSettings
from muster.storage.records.batch import decode_records
from muster.workshop.bench.rows import BenchRow, less_is_better

RECORDS = 100_000
KEYS = 20_000
"""Each partition's offset was committed this often before the log was compacted: RECORDS / KEYS."""
LOADING_TURN = 200
"""Commits that one turn of a busy node keeps in one batch."""
LOADING_ROUNDS = 5
NOW_MS = 1_700_000_000_000
LOADING_GOAL = 0.2
"""The plain read knows nothing of keys, groups or newest values."""


def measure_loading(name: str, home: str) -> Iterator[BenchRow]:
    broker = Broker(home, LogSettings.from_properties({"log.flush.interval.messages": str(MAX_LONG)}))
    try:
        log = BrokerGroupLog(broker, 1, 1 << 30)
        fill_group_log(log)
        paths = [segment.path() for segment in broker.log(GROUPS_TOPIC, 0).segments]
        ours, theirs = [], []
        for _ in range(LOADING_ROUNDS):
            theirs.append(loading_cpu_s(lambda: read_and_decode(paths)))
            ours.append(loading_cpu_s(lambda: load_group_log(log)))
    finally:
        broker.close()
    value, peer = (statistics.median(seconds) * 1e6 / RECORDS for seconds in (ours, theirs))
    yield less_is_better(name, value, "CPU s/million records", "plain read and decoding", peer, LOADING_GOAL)


def fill_group_log(log: BrokerGroupLog) -> None:
    for start in range(0, RECORDS, LOADING_TURN):
        encoded = encode(make_commit(number) for number in range(start, start + LOADING_TURN))
        log.append(0, encoded.groups, encoded.ledger, NOW_MS)


def make_commit(number: int) -> OffsetStored:
    group, partition = divmod(number % KEYS, 100)
    return OffsetStored(f"group-{group}", "orders", partition, StoredOffset(number, -1, "", NOW_MS))


def read_and_decode(paths: list[str]) -> None:
    count = 0
    for path in paths:
        with open(path, "rb") as file:
            count += sum(1 for _ in decode_records(file.read()))
    assert count == RECORDS, f"{count} records were read back; {RECORDS} were written"


def load_group_log(log: BrokerGroupLog) -> None:
    shard = Shard(Limits(), 0)
    report = replay_shard(log, 0, shard)
    assert report.records == RECORDS, f"{report.records} records were replayed; {RECORDS} were written"
    assert report.groups == KEYS, f"{report.groups} facts were kept; {KEYS} keys were written"


def loading_cpu_s(work: Callable[[], None]) -> float:
    """Processor seconds of the work: on a shared machine the wall clock measures the neighbours."""
    started = time.process_time()
    work()
    return time.process_time() - started
