"""What other members notice while one client, or the node itself, does something large; and what a start costs.

The tail of the others' heartbeats is held against a time just before in which nothing else goes on. The cases: a
large request (topics, offsets, records), the node's own upkeep (compaction, retention, expiry), a simulation,
requests that are refused, requests whose caller goes away, and a client that pushes ten times its quota and ignores
the throttle time. Load that would disturb the measurement runs in a process of its own (`abuser`).

A start is measured after a kill with many partitions, and with many committed offsets. Loading replays committed
offsets against a plain read of the same bytes plus decoding, by processor time: on a shared machine the wall clock
measures the neighbours.
"""

import asyncio
import contextlib
import gc
import math
import os
import random
import secrets
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from muster.assignors.api import Member, Snapshot
from muster.coordinator.core.model.records import OffsetsStored, OffsetStored
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import Frame, struct
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.kafka_records import encode
from muster.coordinator.runtime.replay import GROUPS_TOPIC, replay_shard
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.security.login import TOKEN_ID_BYTES, TOKEN_SECRET_BYTES, format_token
from muster.storage.broker.broker import Broker
from muster.storage.config import MAX_LONG, LogSettings
from muster.storage.records.batch import decode_records, encode_batch
from muster.workshop.bench import crowds
from muster.workshop.bench.crowds import DESCRIBED, LISTED, POSITIONS_GROUP, PRODUCERS_TOPIC, TOPIC, WIDE_TOPIC
from muster.workshop.bench.grpc_members import GrpcConnection, GrpcMember, make_share
from muster.workshop.bench.heartbeats import USER, prepare_secured_node, secured_facts
from muster.workshop.bench.kafka_load import LoadConnection, SteadyMembers, kafka_address, latency_tail
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.report import BenchRow, less_is_better
from muster.workshop.bench.transaction_load import WireProducer

# Data directories as a node leaves them
# --------------------------------------

SHARDS, FILLED_SEGMENT_BYTES = 50, 100 << 20
"""As a node has them by default."""
FILLED_TOPIC = "orders"
FILLED_TURN = 500
"""Offsets that one turn of a busy node keeps in one batch."""


Fill: TypeAlias = Callable[[Mapping[str, int], int], None]
"""Groups, how many offsets of TOPIC each gets, and when they were committed."""


@contextlib.contextmanager
def fill_directory(home: str) -> Iterator[Fill]:
    """A directory to be filled in the block; a node can be started on it afterwards."""
    broker = Broker(home, LogSettings.from_properties({"log.flush.interval.messages": str(MAX_LONG)}))
    try:
        broker.create_topic(FILLED_TOPIC, 1)
        log = BrokerGroupLog(broker, SHARDS, FILLED_SEGMENT_BYTES)
        yield lambda groups, at_ms: fill_with_offsets(log, groups, at_ms)
    finally:
        broker.close()


def fill_with_offsets(log: BrokerGroupLog, groups: Mapping[str, int], at_ms: int) -> None:
    for facts in offset_turns(groups, at_ms):
        encoded = encode(facts)
        log.append(partition_for(facts[0].group_id, SHARDS), encoded.groups, encoded.ledger, at_ms)


def offset_turns(groups: Mapping[str, int], at_ms: int) -> Iterator[list[OffsetsStored]]:
    """What is appended at once: facts of one shard."""
    position = StoredOffset(12_345, -1, "", at_ms, None)
    by_shard: dict[int, list[OffsetsStored]] = {}
    for group_id, count in groups.items():
        facts = by_shard.setdefault(partition_for(group_id, SHARDS), [])
        for first in range(0, count, FILLED_TURN):
            facts.append(
                OffsetsStored(
                    group_id, {(FILLED_TOPIC, n): position for n in range(first, min(first + FILLED_TURN, count))}
                )
            )
            if sum(len(fact.offsets) for fact in facts) >= FILLED_TURN:
                yield list(facts)
                facts.clear()
    yield from (facts for facts in by_shard.values() if facts)


def days_ago(days: int) -> int:
    return int(time.time() * 1000) - days * 86_400_000


# The client with large requests
# ------------------------------

CREATE, DELETE, COMMIT, FETCH_OFFSETS, DELETE_OFFSETS, DELETE_GROUPS = 4, 3, 2, 5, 0, 1
PRODUCE, FETCH, LIST_OFFSETS, CREATE_ACLS = 7, 10, 5, 2
READ, ALLOW = 3, 3
PATIENCE_S = 120.0

Codes: TypeAlias = Callable[[Any], Sequence[int]]


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request whose answer is looked at when the clock has stopped."""

    line: LoadConnection
    name: str
    version: int
    data: bytes
    codes: Codes
    unread: "list[tuple[PreparedRequest, Frame]]"

    async def __call__(self) -> None:
        self.unread.append((self, await self.line.pass_on(self.data)))

    def check_answer(self, frame: Frame) -> None:
        """Raises BenchFailed when anything was refused."""
        answer = self.line.read(self.name, self.version, frame)
        if any(self.codes(answer)):
            raise BenchFailed(f"{self.name} was answered {answer!r:.300}; a healthy node does that to nobody")


class LargeRequestClient:
    """Its requests, on one connection. `check_answers` when no clock runs: to read 100,000 rows takes this process 60
    ms, in which it reads no other answer, and the node would seem to be late.
    """

    def __init__(self, line: LoadConnection) -> None:
        self.line = line
        self._unread: list[tuple[PreparedRequest, Frame]] = []

    def check_answers(self) -> None:
        """Raises BenchFailed when anything since the last look was refused."""
        while self._unread:
            ready, frame = self._unread.pop()
            ready.check_answer(frame)

    def create(self, topic: str, partitions: int, **settings: object) -> PreparedRequest:
        config = struct("CreateTopicsRequest.topics.configs")
        configs = [config(name=key.replace("_", "."), value=str(value)) for key, value in settings.items()]
        wanted = struct("CreateTopicsRequest.topics")(
            name=topic, num_partitions=partitions, replication_factor=1, configs=configs
        )
        return self._ready(
            "CreateTopics", CREATE, lambda answer: [one.error_code for one in answer.topics], topics=[wanted]
        )

    def create_acls(self, numbers: range) -> PreparedRequest:
        """Each lets somebody read a topic."""
        entry = struct("CreateAclsRequest.creations")
        rows = [
            entry(
                resource_type=TOPIC,
                resource_name=f"topic-{number}",
                principal=f"User:user-{number % 100}",
                host="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for number in numbers
        ]
        return self._ready(
            "CreateAcls", CREATE_ACLS, lambda answer: [one.error_code for one in answer.results], creations=rows
        )

    def delete(self, topic: str) -> PreparedRequest:
        return self._ready(
            "DeleteTopics",
            DELETE,
            lambda answer: [one.error_code for one in answer.responses],
            topic_names=[topic],
            timeout_ms=60_000,
        )

    def commit(self, group_id: str, topic: str, partitions: range, retention_ms: int = -1) -> PreparedRequest:
        row = struct("OffsetCommitRequest.topics.partitions")
        rows = [row(partition_index=number, committed_offset=1, committed_metadata="") for number in partitions]
        return self._ready(
            "OffsetCommit",
            COMMIT,
            codes_by_topic,
            group_id=group_id,
            retention_time_ms=retention_ms,
            topics=[struct("OffsetCommitRequest.topics")(name=topic, partitions=rows)],
        )

    def offsets(self, group_id: str, topic: str, partitions: int) -> PreparedRequest:
        wanted = struct("OffsetFetchRequest.topics")(name=topic, partition_indexes=list(range(partitions)))
        return self._ready("OffsetFetch", FETCH_OFFSETS, codes_by_topic, group_id=group_id, topics=[wanted])

    async def kept(self, group_id: str) -> int:
        """How many offsets the group has."""
        message = struct("OffsetFetchRequest")(group_id=group_id, topics=None)
        answer = await self.line.send_request("OffsetFetch", FETCH_OFFSETS, message)
        return sum(len(topic.partitions) for topic in answer.topics)

    def delete_offsets(self, group_id: str, topic: str, partitions: int) -> PreparedRequest:
        row = struct("OffsetDeleteRequest.topics.partitions")
        rows = [row(partition_index=number) for number in range(partitions)]
        topics = [struct("OffsetDeleteRequest.topics")(name=topic, partitions=rows)]
        return self._ready("OffsetDelete", DELETE_OFFSETS, codes_by_topic, group_id=group_id, topics=topics)

    def delete_group(self, group_id: str) -> PreparedRequest:
        return self._ready(
            "DeleteGroups",
            DELETE_GROUPS,
            lambda answer: [one.error_code for one in answer.results],
            groups_names=[group_id],
        )

    def produce(self, topic: str, batch: bytes) -> PreparedRequest:
        part = struct("ProduceRequest.topic_data.partition_data")(index=0, records=batch)
        return self._ready(
            "Produce",
            PRODUCE,
            lambda answer: [part.error_code for one in answer.responses for part in one.partition_responses],
            transactional_id=None,
            acks=-1,
            timeout_ms=60_000,
            topic_data=[struct("ProduceRequest.topic_data")(name=topic, partition_data=[part])],
        )

    def fetch(self, topic: str, offset: int, max_bytes: int) -> PreparedRequest:
        part = struct("FetchRequest.topics.partitions")(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        return self._ready(
            "Fetch",
            FETCH,
            lambda answer: [part.error_code for one in answer.responses for part in one.partitions],
            max_wait_ms=0,
            min_bytes=0,
            topics=[struct("FetchRequest.topics")(topic=topic, partitions=[part])],
        )

    def at_time(self, topic: str, timestamp_ms: int) -> PreparedRequest:
        part = struct("ListOffsetsRequest.topics.partitions")(partition_index=0, timestamp=timestamp_ms)
        topics = [struct("ListOffsetsRequest.topics")(name=topic, partitions=[part])]
        return self._ready("ListOffsets", LIST_OFFSETS, codes_by_topic, replica_id=-1, topics=topics)

    def _ready(self, name: str, version: int, codes: Codes, **fields: object) -> PreparedRequest:
        request = self.line.request(name, version, struct(f"{name}Request")(**fields))
        return PreparedRequest(self.line, name, version, request, codes, self._unread)


def codes_by_topic(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.topics for part in topic.partitions]


async def one_by_one(requests: Sequence[Callable[[], Awaitable[object]]]) -> None:
    for request in requests:
        await request()


async def wait_until(reached: Callable[[], Awaitable[bool]], what: str, pause_s: float = 0.2) -> None:
    """Look now and then. Raises BenchFailed when it takes longer than a benchmark's patience."""
    ends_s = time.monotonic() + PATIENCE_S
    while not await reached():
        if time.monotonic() > ends_s:
            raise BenchFailed(f"after {PATIENCE_S:.0f} s {what} was not over; try again on a machine with less to do")
        await asyncio.sleep(pause_s)


# Large requests and upkeep
# -------------------------

STALL_PARTITIONS = 10_000
OFFSETS = 100_000
EXPIRING_GROUPS, EXPIRING_OFFSETS_EACH = 2_000, 100
STALL_MEMBERS = 1_000
SEGMENTS, UPKEEP_SEGMENT_BYTES = 48, 1 << 20
READS = 400
TOPICS = 500
LISTED_GROUPS, DESCRIBED_GROUPS, ASKING = 100_000, 10_000, 50
"""Groups that all of so many connections list, or describe, at once."""
CONSUMERS = 200
"""Of one group."""
PRODUCERS = 2_000
QUOTAS, USERS = 2_000, 500
ACLS, ACLS_AT_ONCE = 50_000, 5_000
UPKEEP_S = 6.0
LONG_TRANSACTION_MS = 900_000
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

SECURED = {"authorizer": "acl", "super.users": "User:ANONYMOUS"}


@dataclass(frozen=True, slots=True)
class Strain:
    """What goes on, and how it is begun and waited for."""

    what: str
    work: Callable[[], Awaitable[object]]
    crowd: bool = False
    """Whether many ask at once for something large: how the others fare is told by more than their tail then."""


MakeStrains: TypeAlias = Callable[[ServerProcess, LargeRequestClient], AsyncIterator[Strain]]


def measure_stalls(name: str, home: str) -> Iterator[BenchRow]:
    expiring = {f"expiring-{number}": EXPIRING_OFFSETS_EACH for number in range(EXPIRING_GROUPS)}
    with fill_directory(home) as fill:
        fill(expiring, days_ago(10))
        fill({"large": OFFSETS}, days_ago(0))
        fill({f"{LISTED}{number}": 1 for number in range(LISTED_GROUPS)}, days_ago(0))
    settings = STALL_SETTINGS | {"offsets.retention.check.interval.ms": str(FIRST_EXPIRY_MS)}
    settings["http.listeners"] = "127.0.0.1:0"
    yield from measure_node(name, home, settings, make_strains)
    token = format_token(os.urandom(TOKEN_ID_BYTES), os.urandom(TOKEN_SECRET_BYTES))
    prepare_secured_node(f"{home}.secured", secured_facts(token, secrets.token_hex(16)))
    secured = settings | SECURED | {"super.users": f"User:ANONYMOUS;User:{USER}"}
    yield from measure_node(name, f"{home}.secured", secured, partial(acl_strains, token))


def measure_node(name: str, home: str, settings: Mapping[str, str], strains: MakeStrains) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, settings) as server, asyncio.Runner() as runner:
        rows = measure_strains(name, server, strains)
        while row := runner.run(iterate_rows(rows)):
            yield row


async def iterate_rows(rows: AsyncIterator[BenchRow]) -> BenchRow | None:
    return await anext(rows, None)


async def measure_strains(name: str, server: ServerProcess, strains: MakeStrains) -> AsyncIterator[BenchRow]:
    others, stranger = (
        await SteadyMembers.of(kafka_address(server)),
        LargeRequestClient(await LoadConnection.to(kafka_address(server))),
    )
    async for strain in strains(server, stranger):
        gc.collect()
        gc.freeze()  # a collection of ours would look like a stall of the node
        idle = await others.during(asyncio.sleep(IDLE_S))
        taken = await others.during(strain.work())
        gc.unfreeze()
        stranger.check_answers()
        case = f"{name}: {strain.what}"
        for row in crowd_rows(case, idle, taken) if strain.crowd else tail_rows(case, idle, taken):
            yield row


def tail_rows(case: str, idle: list[float], taken: list[float]) -> Iterator[BenchRow]:
    tail = latency_tail(taken)
    yield less_is_better(case, tail, "ms p99.9", "the idle node", latency_tail(idle), STALL_GOAL)
    yield less_is_better(case, tail, "ms p99.9", "limit", LIMIT_MS, 1.0)


def crowd_rows(case: str, idle: list[float], taken: list[float]) -> Iterator[BenchRow]:
    """The others' heartbeats, in ms, without and with the crowd: at the 99th percentile at most four times as late, and
    none later than LIMIT_MS. The median has no goal.

    >>> [(row.unit, row.value, row.ok) for row in crowd_rows("c", [1.0] * 99, [2.0] * 98 + [60.0])]
    [('ms p50', 2.0, True), ('ms p99', 60.0, False), ('ms at most', 60.0, False)]
    """
    yield less_is_better(case, statistics.median(taken), "ms p50", "the idle node", statistics.median(idle), 0.0)
    yield less_is_better(case, p99(taken), "ms p99", "the idle node", p99(idle), STALL_GOAL)
    yield less_is_better(case, max(taken), "ms at most", "limit", LIMIT_MS, 1.0)


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
    async for strain in transaction_strains(server):
        yield strain
    async for strain in record_strains(stranger):
        yield strain
    async for strain in segment_strains(stranger):
        yield strain
    async for strain in state_strains(server, stranger):
        yield strain
    yield simulation_strain(server)


async def state_strains(server: ServerProcess, stranger: LargeRequestClient) -> AsyncIterator[Strain]:
    """Answers that grow with the node's state, asked for on many connections at once, by a process of its own."""
    await stranger.create(WIDE_TOPIC, STALL_PARTITIONS)()
    await stranger.create(PRODUCERS_TOPIC, 1)()
    await one_by_one([stranger.create(f"{DESCRIBED}{number}", 1) for number in range(TOPICS)])
    await stranger.commit(POSITIONS_GROUP, WIDE_TOPIC, range(STALL_PARTITIONS))()
    await crowds.fill_with_transactional_ids(stranger.line, PRODUCERS)
    await crowds.fill_with_producers(stranger.line, PRODUCERS)
    groups, partitions, topics = LISTED_GROUPS, STALL_PARTITIONS, TOPICS
    for what, questions, size in (
        (f"a list of {groups:,} groups", ("kafka ListGroups", "grpc ListGroups", "http groups"), groups),
        (f"{DESCRIBED_GROUPS:,} described groups", ("kafka DescribeGroups", "grpc DescribeGroups"), DESCRIBED_GROUPS),
        (
            f"a group of {CONSUMERS} consumers with {partitions:,} partitions",
            ("kafka ConsumerGroupDescribe", "grpc ConsumerGroupDescribe", "http members"),
            CONSUMERS,
        ),
        (f"{partitions:,} positions of a group", ("kafka OffsetFetch", "grpc OffsetFetch", "http lag"), partitions),
        (f"metadata of {partitions:,} partitions", ("kafka Metadata", "grpc Metadata", "http topic"), partitions),
        (f"{topics} topics", ("http topics",), topics),
        (f"settings of {topics} topics", ("kafka DescribeConfigs", "grpc DescribeConfigs"), topics),
        (f"names of {topics} topics that have settings", ("kafka ListConfigResources",), topics),
        (f"the ends of {partitions:,} partitions", ("kafka ListOffsets", "grpc ListOffsets"), partitions),
        (f"the sizes of {partitions:,} partitions", ("kafka DescribeLogDirs",), partitions),
        (f"{PRODUCERS:,} producers of a partition", ("kafka DescribeProducers", "grpc DescribeProducers"), PRODUCERS),
        (f"{PRODUCERS:,} transactions", ("kafka ListTransactions", "grpc ListTransactions"), PRODUCERS),
        ("all metrics", ("http metrics",), 0),
        ("the page of groups", ("http page of groups",), 0),
    ):
        if size == CONSUMERS:
            await crowds.fill_with_members(stranger.line, CONSUMERS)  # their sessions do not outlast the cases before
        for question in questions:
            yield await crowd_strain(server, what, question, size)


async def crowd_strain(server: ServerProcess, what: str, question: str, size: int, token: str = "") -> Strain:
    """token: by which gRPC's callers say who they are."""
    work = await start_abuser(server, question, size, ASKING, {crowds.TOKEN_VARIABLE: token})
    return Strain(f"{what} ({question}), asked for by {ASKING} connections at once", work, crowd=True)


async def acl_strains(token: str, server: ServerProcess, stranger: LargeRequestClient) -> AsyncIterator[Strain]:
    """On a node that has an authorizer, by whoever may do everything."""
    for first in range(0, ACLS, ACLS_AT_ONCE):
        await stranger.create_acls(range(first, min(first + ACLS_AT_ONCE, ACLS)))()
    await crowds.fill_with_quotas(stranger.line, QUOTAS)
    await crowds.fill_with_users(stranger.line, USERS)
    for what, questions, size in (
        (f"a list of {ACLS:,} access control entries", ("kafka DescribeAcls", "grpc DescribeAcls"), ACLS),
        (f"a list of {QUOTAS:,} quotas", ("kafka DescribeClientQuotas", "grpc DescribeQuotas"), QUOTAS),
        (f"a list of {USERS:,} users", ("kafka DescribeUserScramCredentials", "grpc DescribeUsers"), USERS),
    ):
        for question in questions:
            yield await crowd_strain(server, what, question, size, token)


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


async def transaction_strains(server: ServerProcess) -> AsyncIterator[Strain]:
    """As large as clients hardly make them. The last transaction stays open: its markers would be in as many files."""
    producer = WireProducer(await LoadConnection.to(kafka_address(server)), "large")
    await producer.begin_life(LONG_TRANSACTION_MS)

    async def committed() -> None:
        await producer.commit_plainly()
        await wait_until(producer.is_committed, "the end of a transaction")

    sending = partial(producer.send_positions, "moving", "wide", STALL_PARTITIONS)
    yield Strain(f"{STALL_PARTITIONS:,} offsets in a transaction", sending)
    yield Strain("its end", committed)
    adding = partial(producer.add_partitions, "wide", STALL_PARTITIONS)
    yield Strain(f"{STALL_PARTITIONS:,} partitions that join a transaction", adding)


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


# Refused and abandoned requests
# ------------------------------

ABUSE_MEMBERS = 10
EVERY_S = 0.1
ENTRIES, ABUSE_TIMES = 5_000_000, 5
"""Of a list of which 100,000 entries are taken, and how often it is sent."""
FLOOD, FLOODS = 2_000, 10
"""Calls that are cancelled together, and how often."""
ABUSE_GOAL: Final = 0.25
ABUSE_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "kafka.listeners": "127.0.0.1:0"}


class GrpcHeartbeats:
    """Members over gRPC, each with a connection: one heartbeat every EVERY_S, answered or not."""

    def __init__(self, members: list[GrpcMember]) -> None:
        self._members = members

    @classmethod
    async def of(cls, address: str) -> "GrpcHeartbeats":
        members = [
            GrpcMember(GrpcConnection(address), f"beating-{number}", make_share) for number in range(ABUSE_MEMBERS)
        ]
        await asyncio.gather(*(member.join() for member in members))
        return cls(members)

    async def during(self, going: "asyncio.Future[object]") -> list[float]:
        """How long their heartbeats took until `going` was done, in ms."""
        taken: list[float] = []
        asked: list[asyncio.Task[None]] = []
        while not going.done():
            asked += [asyncio.create_task(self._beat(member, taken)) for member in self._members]
            await asyncio.sleep(EVERY_S)
        await asyncio.gather(*asked)
        return taken

    async def _beat(self, member: GrpcMember, taken: list[float]) -> None:
        began_s = time.perf_counter()
        await member.beat()
        taken.append((time.perf_counter() - began_s) * 1e3)

    async def close(self) -> None:
        for member in self._members:
            await member.wire.close()


def measure_abuse(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, ABUSE_SETTINGS) as server:
        yield from asyncio.run(measure_abuse_cases(name, server))


async def measure_abuse_cases(name: str, server: ServerProcess) -> list[BenchRow]:
    rows = []
    lines, beating = (
        await SteadyMembers.of(kafka_address(server), ABUSE_MEMBERS),
        await GrpcHeartbeats.of(server.address),
    )
    for kind, what, size, times in (
        ("kafka", f"{ENTRIES:,} entries refused by Kafka's door", ENTRIES, ABUSE_TIMES),
        ("grpc", f"{ENTRIES:,} entries refused by gRPC", ENTRIES, ABUSE_TIMES),
        ("flood", f"{FLOOD:,} calls at once that are cancelled", FLOOD, FLOODS),
    ):
        work = await start_abuser(server, kind, size, times)
        idle = await measure_both_tails(lines, beating, asyncio.sleep(IDLE_S))
        taken = await measure_both_tails(lines, beating, work())
        for door, value, before in zip(("Kafka's door", "gRPC"), taken, idle, strict=True):
            case = f"{name}: {what}, others by {door}"
            rows.append(less_is_better(case, value, "ms p99", "nobody does it", before, ABUSE_GOAL))
    await beating.close()
    return rows


async def measure_both_tails(
    lines: SteadyMembers, beating: GrpcHeartbeats, work: Awaitable[object]
) -> tuple[float, float]:
    """The tails of both doors while `work` goes on."""
    going = asyncio.ensure_future(work)
    by_kafka, by_grpc = await asyncio.gather(lines.during(going), beating.during(going))
    return p99(by_kafka), p99(by_grpc)


def p99(taken: list[float]) -> float:
    """
    >>> p99([float(each) for each in range(1, 201)])
    198.0
    """
    return sorted(taken)[math.ceil(len(taken) * 0.99) - 1]


async def start_abuser(
    server: ServerProcess, kind: str, size: int, times: int, more: Mapping[str, str] | None = None
) -> Callable[[], Awaitable[object]]:
    """A process that is ready for it, and what sets it off. more: of its environment."""
    address = kafka_address(server) if kind.startswith("kafka") else server.address
    if kind.startswith("http "):
        address = f"{server.said['http_host']}:{server.said['http_port']}"
    words = ["-m", "muster.workshop.bench.abuser", kind, address, str(size), str(times)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=PIPE, stdout=PIPE, env={**os.environ, **(more or {})}
    )
    begin, said = process.stdin, process.stdout
    assert begin is not None
    assert said is not None
    await said.readline()

    async def work() -> None:
        begin.close()
        if await process.wait():
            raise BenchFailed(f"the process that does it ({kind}) ended with exit code {process.returncode}")

    return work


# A client above its quota
# ------------------------

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
    **SECURED,
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
    await line.send_request("CreateTopics", 5, struct("CreateTopicsRequest")(topics=[topic], timeout_ms=10_000))
    path = "AlterClientQuotasRequest.entries"
    entity = [struct(f"{path}.entity")(entity_type="client-id", entity_name="bench")]
    ops = [struct(f"{path}.ops")(key="producer_byte_rate", value=float(QUOTA))]
    entry = struct(path)(entity=entity, ops=ops)
    answer = await line.send_request("AlterClientQuotas", 0, struct("AlterClientQuotasRequest")(entries=[entry]))
    if answer.entries[0].error_code:
        raise BenchFailed(f"the quota could not be set: {answer.entries[0].error_message}")


async def count_taken_bytes(line: LoadConnection) -> int:
    """How many bytes were taken: each record is a frame of the push."""
    from muster.workshop.bench.abuser import PUSHED_BYTES

    partition = struct("ListOffsetsRequest.topics.partitions")(partition_index=0, timestamp=-1)
    topic = struct("ListOffsetsRequest.topics")(name=QUOTA_TOPIC, partitions=[partition])
    answer = await line.send_request("ListOffsets", 1, struct("ListOffsetsRequest")(replica_id=-1, topics=[topic]))
    return int(answer.topics[0].partitions[0].offset) * PUSHED_BYTES


# A start
# -------

STARTUP_PARTITIONS, LIMIT_S = 10_000, 5.0
GROUPS, STARTUP_OFFSETS_EACH, LIMIT_CPU_S = 100_000, 10, 10.0
STARTUP_SETTINGS = {"kafka.listeners": "127.0.0.1:0"}


def measure_startup(name: str, home: str) -> Iterator[BenchRow]:
    yield measure_start_after_kill(f"{name}: {STARTUP_PARTITIONS:,} partitions after a kill", f"{home}/partitions")
    yield measure_start_with_offsets(
        f"{name}: {GROUPS * STARTUP_OFFSETS_EACH:,} offsets in {GROUPS:,} groups", f"{home}/offsets"
    )


def measure_start_after_kill(case: str, home: str) -> BenchRow:
    """Wall seconds from the start of the process to its announcement, on both cores."""
    with run_node(home, STARTUP_SETTINGS) as server:
        asyncio.run(create_partitions(kafka_address(server)))
        server.kill()
    watch = Stopwatch()
    with run_node(home, STARTUP_SETTINGS):
        return less_is_better(case, watch.read(), "s", "limit", LIMIT_S, 1.0)


async def create_partitions(address: str) -> None:
    line = await LoadConnection.to(address)
    stranger = LargeRequestClient(line)
    await stranger.create("many", STARTUP_PARTITIONS)()
    stranger.check_answers()
    line.close()


def measure_start_with_offsets(case: str, home: str) -> BenchRow:
    """Processor seconds until the node announces itself: all groups are loaded then."""
    with fill_directory(home) as fill:
        fill({f"group-{number}": STARTUP_OFFSETS_EACH for number in range(GROUPS)}, days_ago(0))
    with pinned(LOAD_CORE), run_node(home, STARTUP_SETTINGS) as server:
        return less_is_better(case, server.cpu_s(), "s CPU", "limit", LIMIT_CPU_S, 1.0)


# Loading of committed offsets
# ----------------------------

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
