"""What others hear late while one client pushes ten times its quota, and pays no heed to being told to wait.

Heartbeats of other groups by Kafka's door, by the 99th percentile, against a time just before in which nobody pushes.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from muster.coordinator.kafka.codec.codec import struct
from muster.workshop.bench.abuse import p99, start_abuser
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.others import SteadyMembers
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow, less_is_better

QUOTA_MEMBERS = 10
QUOTA: Final = 128 << 10
"""Bytes per second."""
QUOTA_TIMES: Final = 10
BURST_S: Final = 12
"""As long as the burst that a quiet client may have: a quota is an average over eleven seconds. What is taken then is
its own to push, and is measured by itself."""
PUSH_S: Final = 24
QUOTA_GOAL: Final = 2 / 3
"""At most one and a half times as late."""
QUOTA_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "kafka.listeners": "127.0.0.1:0",
    "authorizer": "acl",
    "super.users": "User:ANONYMOUS",
}
QUOTA_TOPIC: Final = "pushed"


def measure_quota(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, QUOTA_SETTINGS) as server:
        yield from asyncio.run(measure_above_quota(name, server))


async def measure_above_quota(name: str, server: ServerProcess) -> list[BenchRow]:
    line = await LoadConnection.to(kafka_address(server))
    await prepare_quota(line)
    others = await SteadyMembers.of(kafka_address(server), QUOTA_MEMBERS)
    work = await start_abuser(server, "kafka-quota", QUOTA * QUOTA_TIMES, PUSH_S)
    idle = p99(await others.during(asyncio.sleep(BURST_S)))
    pushing = asyncio.ensure_future(work())
    burst = p99(await others.during(asyncio.sleep(BURST_S)))
    held = p99(await others.during(pushing))
    reached = await count_taken_bytes(line) / PUSH_S
    line.close()
    what = f"{name}: one pushes {QUOTA_TIMES} times its quota, others' heartbeats"
    first = f"{what}, while it has a burst"
    within = f"{name}: bytes per second of it that are taken, its burst among them"
    return [
        less_is_better(first, burst, "ms p99", "nobody pushes", idle, QUOTA_GOAL),
        less_is_better(f"{what}, once it is held", held, "ms p99", "nobody pushes", idle, QUOTA_GOAL),
        less_is_better(within, reached, "B/s", "its quota", QUOTA, 1 / (1 + 11 / PUSH_S) * 0.95),
    ]


async def prepare_quota(line: LoadConnection) -> None:
    """A topic, and a quota on whoever has the load's client id."""
    topic = struct("CreateTopicsRequest.topics")(name=QUOTA_TOPIC, num_partitions=1, replication_factor=1)
    await line.ask("CreateTopics", 5, struct("CreateTopicsRequest")(topics=[topic], timeout_ms=10_000))
    path = "AlterClientQuotasRequest.entries"
    entity = [struct(f"{path}.entity")(entity_type="client-id", entity_name="bench")]
    ops = [struct(f"{path}.ops")(key="producer_byte_rate", value=float(QUOTA))]
    entry = struct(path)(entity=entity, ops=ops)
    answer = await line.ask("AlterClientQuotas", 0, struct("AlterClientQuotasRequest")(entries=[entry]))
    if answer.entries[0].error_code:
        raise BenchFailed(f"the quota could not be set: {answer.entries[0].error_message}")


async def count_taken_bytes(line: LoadConnection) -> int:
    """How many bytes were taken: each record is a frame of the push."""
    from muster.workshop.bench.abuser import PUSHED_BYTES

    partition = struct("ListOffsetsRequest.topics.partitions")(partition_index=0, timestamp=-1)
    topic = struct("ListOffsetsRequest.topics")(name=QUOTA_TOPIC, partitions=[partition])
    answer = await line.ask("ListOffsets", 1, struct("ListOffsetsRequest")(replica_id=-1, topics=[topic]))
    return int(answer.topics[0].partitions[0].offset) * PUSHED_BYTES
