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
from muster.coordinator.bench.members import Wire
from muster.coordinator.bench.processes import LOAD_CORE, Server, node, pinned
from muster.coordinator.bench.rows import Row, less_is_better
from muster.coordinator.bench.stall.filling import TOPIC, days_ago, filled
from muster.coordinator.bench.stall.others import Others, tail
from muster.coordinator.bench.stall.stranger import Stranger, one_by_one, until
from muster.coordinator.bench.wire.line import Line
from muster.coordinator.bench.wire.records import kafka_address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.storage.records.batch import encode_batch

PARTITIONS = 10_000
OFFSETS = 100_000
EXPIRING_GROUPS, OFFSETS_EACH = 2_000, 100
MEMBERS = 1_000
SEGMENTS, SEGMENT_BYTES = 48, 1 << 20
READS = 400
TOPICS = 500
UPKEEP_S = 6.0
SMALL_SEGMENTS = 1_000
LARGE_BATCHES = 30
IDLE_S = 2.0
FIRST_EXPIRY_MS = 15_000
GOAL = 0.25
LIMIT_MS = 50.0
SETTINGS = {
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


def measure(name: str, home: str) -> Iterator[Row]:
    expiring = {f"expiring-{number}": OFFSETS_EACH for number in range(EXPIRING_GROUPS)}
    with filled(home) as fill:
        fill(expiring, days_ago(10))
        fill({"large": OFFSETS}, days_ago(0))
    settings = SETTINGS | {"offsets.retention.check.interval.ms": str(FIRST_EXPIRY_MS)}
    with pinned(LOAD_CORE), node(home, settings) as server, asyncio.Runner() as runner:
        rows = suffered(name, server)
        while row := runner.run(following(rows)):
            yield row


async def following(rows: AsyncIterator[Row]) -> Row | None:
    return await anext(rows, None)


async def suffered(name: str, server: Server) -> AsyncIterator[Row]:
    others, stranger = await Others.of(kafka_address(server)), Stranger(await Line.to(kafka_address(server)))
    async for strain in strains(server, stranger):
        gc.collect()
        gc.freeze()  # a collection of ours would look like a stall of the node
        idle = tail(await others.during(asyncio.sleep(IDLE_S)))
        taken = tail(await others.during(strain.work()))
        gc.unfreeze()
        stranger.look()
        case = f"{name}: {strain.what}"
        yield less_is_better(case, taken, "ms p99.9", "the idle node", idle, GOAL)
        yield less_is_better(case, taken, "ms p99.9", "limit", LIMIT_MS, 1.0)


async def strains(server: Server, stranger: Stranger) -> AsyncIterator[Strain]:
    last = f"expiring-{EXPIRING_GROUPS - 1}"

    async def expired() -> bool:
        return not await stranger.kept(last)

    yield Strain(
        f"expiry of {EXPIRING_GROUPS * OFFSETS_EACH:,} offsets", lambda: until(expired, "the expiry of offsets")
    )
    async for strain in of_topics(stranger):
        yield strain
    async for strain in of_offsets(stranger):
        yield strain
    async for strain in of_records(stranger):
        yield strain
    async for strain in of_segments(stranger):
        yield strain
    yield simulation(server)


async def of_topics(stranger: Stranger) -> AsyncIterator[Strain]:
    yield Strain(f"creation of {PARTITIONS:,} partitions", stranger.create("many", PARTITIONS))
    yield Strain(f"a commit of {PARTITIONS:,} offsets", stranger.commit("committing", "many", range(PARTITIONS)))
    yield Strain("their deletion", stranger.delete("many"))
    few = [stranger.create(f"few-{number}", 1) for number in range(TOPICS)]
    yield Strain(f"creation of {len(few)} topics, one by one", lambda: one_by_one(few))
    gone = [stranger.delete(f"few-{number}") for number in range(TOPICS)]
    yield Strain("their deletion, one by one", lambda: one_by_one(gone))


async def of_offsets(stranger: Stranger) -> AsyncIterator[Strain]:
    await stranger.create("wide", PARTITIONS)()
    await stranger.commit("shrinking", "wide", range(PARTITIONS))()
    yield Strain(f"a look at {OFFSETS:,} offsets", stranger.offsets("large", TOPIC, OFFSETS))
    yield Strain(f"deletion of {PARTITIONS:,} offsets", stranger.delete_offsets("shrinking", "wide", PARTITIONS))
    yield Strain(f"deletion of a group with {OFFSETS:,} offsets", stranger.delete_group("large"))


async def of_records(stranger: Stranger) -> AsyncIterator[Strain]:
    """Batches that are looked into, and old records that are read with their checksums."""
    now_ms = days_ago(0)
    await stranger.create("records", 1, segment_bytes=SEGMENT_BYTES)()
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


async def of_segments(stranger: Stranger) -> AsyncIterator[Strain]:
    """The node's own upkeep: what is superseded, and what is too old."""
    now_ms = days_ago(0)
    settings = {"segment_bytes": SEGMENT_BYTES, "min_cleanable_dirty_ratio": 0.01}
    await stranger.create("compacted", 1, cleanup_policy="compact", **settings)()
    keyed = encode_batch([(now_ms, b"key-%d" % (number % 500), os.urandom(200), ()) for number in range(4_500)])
    await one_by_one([stranger.produce("compacted", keyed) for _ in range(SEGMENTS)])

    yield Strain("compaction", lambda: asyncio.sleep(UPKEEP_S))
    await stranger.create("short", 1, retention_bytes=SEGMENT_BYTES, segment_bytes=16_384)()
    small = encode_batch([(now_ms, None, os.urandom(15_000), ())])
    await one_by_one([stranger.produce("short", small) for _ in range(SMALL_SEGMENTS)])
    yield Strain("retention", lambda: asyncio.sleep(UPKEEP_S))


def simulation(server: Server) -> Strain:
    """An assignment of a large group, tried by a stranger."""
    topics = {f"topic-{number}": 100 for number in range(PARTITIONS // 100)}
    members = [Member(f"member-{number}", tuple(sorted(topics))) for number in range(MEMBERS)]
    text = Snapshot(topics, members).to_json()
    request = pb.SimulateAssignmentRequest(snapshot_json=text, assignors=["range"])

    async def simulated() -> None:
        wire = Wire(server.address)
        try:
            answer = await wire.call("SimulateAssignment", request, pb.SimulateAssignmentResponse)
            assert ErrorCode(answer.error_code) is ErrorCode.NONE, answer.error_message
        finally:
            await wire.close()

    return Strain(f"a simulation of {MEMBERS:,} members and {PARTITIONS:,} partitions", simulated)
