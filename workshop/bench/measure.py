"""The tail of others' heartbeats while a stranger, or the node itself, has something large to do; against none of it.

Before each there is a time in which nothing goes on: the machine and the node as they are just then.
"""

import asyncio
import gc
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from muster.assignors.api import Member, Snapshot
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.storage.records.batch import encode_batch
from muster.workshop.bench.filling import FILLED_TOPIC, days_ago, fill_directory
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.members import GrpcConnection
from muster.workshop.bench.others import SteadyMembers, latency_tail
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow, less_is_better
from muster.workshop.bench.stranger import LargeRequestClient, one_by_one, wait_until

STALL_PARTITIONS = 10_000
OFFSETS = 100_000
EXPIRING_GROUPS, EXPIRING_OFFSETS_EACH = 2_000, 100
STALL_MEMBERS = 1_000
SEGMENTS, UPKEEP_SEGMENT_BYTES = 48, 1 << 20
READS = 400
TOPICS = 500
UPKEEP_S = 6.0
SMALL_SEGMENTS = 1_000
LARGE_BATCHES = 30
IDLE_S = 2.0
FIRST_EXPIRY_MS = 15_000
STALL_GOAL = 0.25
LIMIT_MS = 50.0
STALL_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "kafka.listeners": "127.0.0.1:0",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class Strain:
    """What goes on, and how it is begun and waited for."""

    what: str
    work: Callable[[], Awaitable[object]]


def measure_stalls(name: str, home: str) -> Iterator[BenchRow]:
    expiring = {f"expiring-{number}": EXPIRING_OFFSETS_EACH for number in range(EXPIRING_GROUPS)}
    with fill_directory(home) as fill:
        fill(expiring, days_ago(10))
        fill({"large": OFFSETS}, days_ago(0))
    settings = STALL_SETTINGS | {"offsets.retention.check.interval.ms": str(FIRST_EXPIRY_MS)}
    with pinned(LOAD_CORE), run_node(home, settings) as server, asyncio.Runner() as runner:
        rows = measure_strains(name, server)
        while row := runner.run(iterate_rows(rows)):
            yield row


async def iterate_rows(rows: AsyncIterator[BenchRow]) -> BenchRow | None:
    return await anext(rows, None)


async def measure_strains(name: str, server: ServerProcess) -> AsyncIterator[BenchRow]:
    others, stranger = (
        await SteadyMembers.of(kafka_address(server)),
        LargeRequestClient(await LoadConnection.to(kafka_address(server))),
    )
    async for strain in make_strains(server, stranger):
        gc.collect()
        gc.freeze()  # a collection of ours would look like a stall of the node
        idle = latency_tail(await others.during(asyncio.sleep(IDLE_S)))
        taken = latency_tail(await others.during(strain.work()))
        gc.unfreeze()
        stranger.look()
        case = f"{name}: {strain.what}"
        yield less_is_better(case, taken, "ms p99.9", "the idle node", idle, STALL_GOAL)
        yield less_is_better(case, taken, "ms p99.9", "limit", LIMIT_MS, 1.0)


async def make_strains(server: ServerProcess, stranger: LargeRequestClient) -> AsyncIterator[Strain]:
    last = f"expiring-{EXPIRING_GROUPS - 1}"

    async def expired() -> bool:
        return not await stranger.kept(last)

    yield Strain(
        f"expiry of {EXPIRING_GROUPS * EXPIRING_OFFSETS_EACH:,} offsets",
        lambda: wait_until(expired, "the expiry of offsets"),
    )
    async for strain in topic_strains(stranger):
        yield strain
    async for strain in offset_strains(stranger):
        yield strain
    async for strain in record_strains(stranger):
        yield strain
    async for strain in segment_strains(stranger):
        yield strain
    yield simulation_strain(server)


async def topic_strains(stranger: LargeRequestClient) -> AsyncIterator[Strain]:
    yield Strain(f"creation of {STALL_PARTITIONS:,} partitions", stranger.create("many", STALL_PARTITIONS))
    yield Strain(
        f"a commit of {STALL_PARTITIONS:,} offsets", stranger.commit("committing", "many", range(STALL_PARTITIONS))
    )
    yield Strain("their deletion", stranger.delete("many"))
    few = [stranger.create(f"few-{number}", 1) for number in range(TOPICS)]
    yield Strain(f"creation of {len(few)} topics, one by one", lambda: one_by_one(few))
    gone = [stranger.delete(f"few-{number}") for number in range(TOPICS)]
    yield Strain("their deletion, one by one", lambda: one_by_one(gone))


async def offset_strains(stranger: LargeRequestClient) -> AsyncIterator[Strain]:
    await stranger.create("wide", STALL_PARTITIONS)()
    await stranger.commit("shrinking", "wide", range(STALL_PARTITIONS))()
    yield Strain(f"a look at {OFFSETS:,} offsets", stranger.offsets("large", FILLED_TOPIC, OFFSETS))
    yield Strain(
        f"deletion of {STALL_PARTITIONS:,} offsets", stranger.delete_offsets("shrinking", "wide", STALL_PARTITIONS)
    )
    yield Strain(f"deletion of a group with {OFFSETS:,} offsets", stranger.delete_group("large"))


async def record_strains(stranger: LargeRequestClient) -> AsyncIterator[Strain]:
    """Batches that are looked into, and old records that are read with their checksums."""
    now_ms = days_ago(0)
    await stranger.create("records", 1, segment_bytes=UPKEEP_SEGMENT_BYTES)()
    value = random.Random(7).randbytes(500)
    records = [(now_ms + number, None, value + os.urandom(20), ()) for number in range(2_000)]
    packed = encode_batch(records, codec="gzip")
    large = [stranger.produce("records", packed) for _ in range(LARGE_BATCHES)]
    yield Strain(f"{LARGE_BATCHES} batches of 1 MB, by gzip", lambda: one_by_one(large))
    plain = encode_batch([(now_ms + number, None, os.urandom(1_000), ()) for number in range(1_000)])
    await one_by_one([stranger.produce("records", plain) for _ in range(SEGMENTS)])
    offsets = random.Random(8).sample(range(LARGE_BATCHES * 2_000), READS)
    reads = [stranger.fetch("records", offset, 1 << 20) for offset in offsets]
    yield Strain(f"{READS} reads of old records", lambda: one_by_one(reads))
    times = [stranger.at_time("records", now_ms + number) for number in range(READS)]
    yield Strain(f"{READS} searches by time", lambda: one_by_one(times))


async def segment_strains(stranger: LargeRequestClient) -> AsyncIterator[Strain]:
    """The node's own upkeep: what is superseded, and what is too old."""
    now_ms = days_ago(0)
    settings = {"segment_bytes": UPKEEP_SEGMENT_BYTES, "min_cleanable_dirty_ratio": 0.01}
    await stranger.create("compacted", 1, cleanup_policy="compact", **settings)()
    keyed = encode_batch([(now_ms, b"key-%d" % (number % 500), os.urandom(200), ()) for number in range(4_500)])
    await one_by_one([stranger.produce("compacted", keyed) for _ in range(SEGMENTS)])

    yield Strain("compaction", lambda: asyncio.sleep(UPKEEP_S))
    await stranger.create("short", 1, retention_bytes=UPKEEP_SEGMENT_BYTES, segment_bytes=16_384)()
    small = encode_batch([(now_ms, None, os.urandom(15_000), ())])
    await one_by_one([stranger.produce("short", small) for _ in range(SMALL_SEGMENTS)])
    yield Strain("retention", lambda: asyncio.sleep(UPKEEP_S))


def simulation_strain(server: ServerProcess) -> Strain:
    """An assignment of a large group, tried by a stranger."""
    topics = {f"topic-{number}": 100 for number in range(STALL_PARTITIONS // 100)}
    members = [Member(f"member-{number}", tuple(sorted(topics))) for number in range(STALL_MEMBERS)]
    text = Snapshot(topics, members).to_json()
    request = pb.SimulateAssignmentRequest(snapshot_json=text, assignors=["range"])

    async def simulated() -> None:
        wire = GrpcConnection(server.address)
        try:
            answer = await wire.call("SimulateAssignment", request, pb.SimulateAssignmentResponse)
            assert ErrorCode(answer.error_code) is ErrorCode.NONE, answer.error_message
        finally:
            await wire.close()

    return Strain(f"a simulation of {STALL_MEMBERS:,} members and {STALL_PARTITIONS:,} partitions", simulated)
