"""KB-P4: a shard with a million positions in it is taken from Kafka, beside the same records from a node's own log."""

import asyncio
import time
from collections.abc import Iterator

from muster.coordinator.core.model.core_records import OffsetStored
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.codec_init import encode
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.loader import replay_shard
from muster.storage.broker.broker import Broker as LogBroker
from muster.storage.config import MAX_LONG, LogSettings
from muster.storage.records.batch import encode_turn
from muster.workshop.bench import loading
from muster.workshop.bench.broker import KafkaBroker, fill_broker
from muster.workshop.bench.inside import BENCH, run_node_over
from muster.workshop.bench.rows import BenchRow, at_most

RECORDS = 1_000_000
KEYS = 200_000
TURN = 500
CLUSTER = "bench-taking"


def measure_shard_taking(broker: KafkaBroker, home: str) -> Iterator[BenchRow]:
    turns = [encode(map(stored_record, range(start, start + TURN))).groups for start in range(0, RECORDS, TURN)]
    bundled_s = measure_own_log(home, turns)
    fill_broker(broker, f"{CLUSTER}.state", 1, [encode_turn(turn, 0) for turn in turns], {"cleanup.policy": "compact"})
    nothing_s = asyncio.run(measure_taking_s(broker.address, "bench-nothing"))
    ours_s = asyncio.run(measure_taking_s(broker.address, CLUSTER)) - nothing_s
    case, peer = f"P4 taking a shard of {RECORDS:,} records", "from a log of one's own"
    yield at_most(1.1, case, ours_s, "s CPU", peer, bundled_s, bench=BENCH)


def stored_record(number: int) -> OffsetStored:
    group, partition = divmod(number % KEYS, 100)
    return OffsetStored(f"group-{group}", "orders", partition, StoredOffset(number, -1, "", loading.NOW_MS))


def measure_own_log(home: str, turns: list[list[tuple[bytes, bytes | None, int]]]) -> float:
    """Processor seconds."""
    broker = LogBroker(home, LogSettings.from_properties({"log.flush.interval.messages": str(MAX_LONG)}))
    try:
        log = BrokerGroupLog(broker, 1, 1 << 30)
        for turn in turns:
            log.append(0, turn, [], loading.NOW_MS)
        return loading.loading_cpu_s(lambda: check_positions(replay_shard(log, 0, Shard(Limits(), 0)).groups))
    finally:
        broker.close()


def check_positions(positions: int) -> None:
    assert positions == KEYS, f"{positions} positions were taken; {KEYS} were written"


async def measure_taking_s(address: str, cluster: str) -> float:
    """Processor seconds of a node's start, its threads included."""
    began = time.process_time()
    async with run_node_over(address, cluster, 1) as node:
        taken = time.process_time() - began
        if cluster == CLUSTER:
            check_positions(node.engine.report(0).groups)
        return taken
