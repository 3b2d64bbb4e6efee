"""CL-P7: a shard of a million records is taken over, from what its follower kept ready and from its log."""

import threading
from pathlib import Path
from typing import Final

from muster.coordinator.core.model.core_records import OffsetStored
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.replication.io.shards.tail import StoredShardTail
from muster.coordinator.runtime.codec_init import encode
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.loads import LoadJob
from muster.coordinator.runtime.warm import WarmJob, WarmShard
from muster.storage.broker.broker import Broker
from muster.workshop.bench.processes import BenchFailed, Stopwatch
from muster.workshop.bench.rows import BenchRow

TAKEOVER_CASE: Final = "P7 takeover of 1,000,000 records, warm"
TAKEOVER_RECORDS: Final = 1_000_000
POSITIONS: Final = 100_000
"""As many as are committed again and again."""
RECORDS_AT_ONCE: Final = 1_000
TAKEOVER_REST: Final = 1_000
"""Records that are not committed yet when the leader goes."""
SHARE: Final = 0.05
SEGMENT_BYTES: Final = 100 << 20


class FollowerGroupLog(BrokerGroupLog):
    """One shard, as a follower has it."""

    def __init__(self, home: str) -> None:
        self.broker = Broker(home)
        super().__init__(self.broker, 1, SEGMENT_BYTES)

    def tail(self, topic: str, shard: int) -> StoredShardTail:
        return StoredShardTail(self.broker, topic, shard)

    def fill(self, first: int, count: int) -> None:
        for number in range(first, first + count, RECORDS_AT_ONCE):
            positions = range(number, min(number + RECORDS_AT_ONCE, first + count))
            self.append(0, encode([position(each) for each in positions]).groups, [], 0)


def position(number: int) -> OffsetStored:
    """
    >>> position(POSITIONS + 12) == position(12)
    False
    >>> position(POSITIONS + 12).group_id == position(12).group_id
    True
    """
    place = number % POSITIONS
    return OffsetStored(f"group-{place // 10}", "topic", place % 10, StoredOffset(number, -1, "", number))


def measure_shard_takeover(home: str, records: int = TAKEOVER_RECORDS) -> BenchRow:
    Path(home).mkdir(mode=0o700, parents=True)
    log = FollowerGroupLog(home)
    try:
        log.fill(0, records)
        log.flush([0])
        warm = WarmShard(0, make_shard(), log, threading.Lock(), refuse_warm_shard)
        while warm.take_some():
            pass
        log.fill(records, TAKEOVER_REST)
        warm_s = time_job(WarmJob(0, make_shard(), log, warm=warm))
        cold_s = time_job(LoadJob(0, make_shard(), log))
    finally:
        log.broker.close()
    ratio = cold_s / warm_s
    return BenchRow(
        "cluster", TAKEOVER_CASE, round(warm_s, 4), "s", "read from the log", round(cold_s, 3), round(ratio, 1),
        round(1 / SHARE, 3), ratio >= 1 / SHARE,
    )  # fmt: skip


def make_shard() -> Shard:
    return Shard(Limits(), 0)


def refuse_warm_shard(shard: int, why: str) -> None:
    raise BenchFailed(f"shard {shard} is not kept ready: {why}")


def time_job(job: LoadJob) -> float:
    watch = Stopwatch()
    job.run()
    return watch.read()
