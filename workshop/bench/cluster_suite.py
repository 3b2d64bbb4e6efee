"""The cases of `muster bench cluster`: failover, replicated appends, moving leaders, and taking over a shard.

Goals are those of docs/design/cluster.md: CL-P1 and CL-P2, how long no server answers when the coordinator's node is
killed, stands still, or is stopped; CL-P3 to CL-P5, what a record costs that three nodes keep, against one node
alone on the same disk; CL-P6, a thousand units that get other leaders together, until everything is written and
known, against the bare writes; CL-P7, a shard of a million records that is taken over from what its follower kept
ready and from its log.

The ledger of elections says when the controller decided the first move. Meanwhile nodes are asked for one partition
only: that of the topic made last, which is decided last. Answers about all thousand would cost the nodes more than
what is measured.
"""

import asyncio
import contextlib
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muster.client import Admin
from muster.coordinator.core.model.records import OffsetStored
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.io.shards.replicated_shards import StoredShardTail
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.kafka_records import encode
from muster.coordinator.runtime.leased import WarmJob, WarmShard
from muster.coordinator.runtime.stepper import LoadJob
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.storage.broker.broker import Broker
from muster.storage.records.batch import encode_turn
from muster.workshop.bench.cluster_servers import (
    NOBODY,
    NODES,
    PAUSE_S,
    TRIES_S,
    MusterTrio,
    ServerGone,
    ServerTrio,
    TrioClient,
    TrioMember,
    TrioWriter,
    retry_until,
    run_one_node,
    run_three_brokers,
    run_three_nodes,
)
from muster.workshop.bench.kafka_load import LoadConnection
from muster.workshop.bench.processes import BenchFailed, Stopwatch
from muster.workshop.bench.report import BenchRow, at_most

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.cluster_service_pb2 import Election


# Failover
# --------

FAILOVER_TOPIC: Final = "written"
PARTITIONS: Final = 3
SETTLE_S: Final = 8.0
"""Between two rounds, for all copies to be in sync again; more than a session, so that no lease of before counts."""


class FailureKind(Enum):
    KILLED = signal.SIGKILL
    FROZEN = signal.SIGSTOP
    STOPPED = signal.SIGTERM


class ServiceGap(NamedTuple):
    """Seconds from the signal to the first answer of another node; and the longest time between two answers."""

    first_s: float
    longest_s: float


async def measure_heartbeat_gap(
    trio: ServerTrio, asking: TrioClient, member: TrioMember, how: FailureKind
) -> ServiceGap:
    """Of the group's coordinator."""

    async def answered() -> str:
        return "" if await member.beat() else "a member is not answered, though nobody was touched"

    await retry_until("heartbeats", answered)
    victim = member.at

    async def beat(but: int) -> tuple[bool, int]:
        return await member.beat(but), member.at

    return await measure_gap(trio, victim, how, beat)


async def measure_produce_gap(trio: ServerTrio, asking: TrioClient, member: TrioMember, how: FailureKind) -> ServiceGap:
    """Of the leader of a partition, acks=all."""
    writer = TrioWriter(asking, FAILOVER_TOPIC)
    await writer.await_first_write()

    async def write(but: int) -> tuple[bool, int]:
        return await writer.write(but), writer.at

    return await measure_gap(trio, writer.at, how, write)


async def measure_gap(
    trio: ServerTrio, victim: int, how: FailureKind, work: Callable[[int], Awaitable[tuple[bool, int]]]
) -> ServiceGap:
    """The work goes on until another node has answered for two seconds; then the victim is back."""
    began_s = last_s = time.monotonic()
    trio.signal(victim, how.value)
    first_s, longest_s = 0.0, 0.0
    but = victim if how is FailureKind.FROZEN else NOBODY  # a client would find that out by its own patience
    while not first_s or time.monotonic() < began_s + first_s + 2:
        done, at = await work(but)
        now_s = time.monotonic()
        if done:
            longest_s, last_s = max(longest_s, now_s - last_s), now_s
            if at != victim and not first_s:
                first_s = now_s - began_s
        if now_s > began_s + TRIES_S:
            raise BenchFailed(f"nobody answered for {TRIES_S:.0f} s after a node was {how.name.lower()}")
        await asyncio.sleep(PAUSE_S)
    if how is FailureKind.FROZEN:
        trio.signal(victim, signal.SIGCONT)
    else:
        await asyncio.to_thread(trio.ended, victim)
        await asyncio.to_thread(trio.start, victim)
    return ServiceGap(first_s, longest_s)


WORK: Final = {"heartbeat": measure_heartbeat_gap, "produce": measure_produce_gap}


async def measure_gaps(trio: ServerTrio, count: int, how: FailureKind, whats: Collection[str]) -> dict[str, ServiceGap]:
    """The medians, by what was asked: `WORK` has the words."""
    asking = TrioClient(trio.addresses)
    try:
        await asking.make(FAILOVER_TOPIC, PARTITIONS, 3)
        member = TrioMember(asking)
        await member.join()
        found: dict[str, list[ServiceGap]] = {}
        for _ in range(count):
            for what in whats:
                await asyncio.sleep(SETTLE_S)
                await asking.in_sync(FAILOVER_TOPIC, PARTITIONS)
                found.setdefault(what, []).append(await WORK[what](trio, asking, member, how))
        return {what: ServiceGap(*map(statistics.median, zip(*gaps, strict=True))) for what, gaps in found.items()}
    finally:
        asking.close()


# Appends
# -------

APPEND_TOPIC: Final = "appended"
BATCH_BYTES: Final = 15_000
APPEND_RECORDS: Final = 15
MEGABYTES: Final = 60
DEPTH: Final = 8
"""Produces under way at a time. A node alone flushes about four of them at once; asked one by one it flushes for each,
and a megabyte costs it three times as much."""
ONE_BY_ONE: Final = 300
WARM: Final = 200
ROUNDS: Final = 3


class AppendCost(NamedTuple):
    """Milliseconds of processor time per MB, of the leader and of all nodes; of one acks=all produce, the median."""

    leader_ms: float
    all_ms: float
    produce_ms: float


def make_batch() -> bytes:
    value = bytes(range(256)) * (BATCH_BYTES // APPEND_RECORDS // 256 + 1)
    return encode_turn([(b"", value[: BATCH_BYTES // APPEND_RECORDS], None) for _ in range(APPEND_RECORDS)], 0)


async def measure_append_costs(trios: Sequence[tuple[ServerTrio, int]]) -> list[AppendCost]:
    """Of each, with that many copies, the medians of some rounds. They take turns, so that what else the machine does
    falls upon all of them."""
    askings = [TrioClient(trio.addresses) for trio, _ in trios]
    found: list[list[AppendCost]] = [[] for _ in trios]
    try:
        for (_, factor), asking in zip(trios, askings, strict=True):
            await asking.make(APPEND_TOPIC, 1, factor)
        for _ in range(ROUNDS):
            for (trio, _), asking, mine in zip(trios, askings, found, strict=True):
                mine.append(await measure_appends_once(trio, asking))
        return [AppendCost(*map(statistics.median, zip(*mine, strict=True))) for mine in found]
    finally:
        for asking in askings:
            asking.close()


async def measure_appends_once(trio: ServerTrio, asking: TrioClient) -> AppendCost:
    writer = TrioWriter(asking, APPEND_TOPIC, make_batch())
    await writer.await_first_write()
    line = await LoadConnection.to(asking.addresses[writer.at])
    try:
        request = line.request("Produce", 9, writer.request())
        left = MEGABYTES * 1_000_000 // BATCH_BYTES

        def go_on() -> bool:
            nonlocal left
            left -= 1
            return left > 0

        before = {node: trio.cpu_s(node) for node in asking.addresses}
        sent = await line.repeat(request, DEPTH, go_on)
        used = {node: trio.cpu_s(node) - before[node] for node in asking.addresses}
        megabytes = sent * BATCH_BYTES / 1_000_000
        small = line.request("Produce", 9, TrioWriter(asking, APPEND_TOPIC).request())
        took: list[float] = []
        for number in range(WARM + ONE_BY_ONE):
            watch = Stopwatch()
            await line.pass_on(small)
            if number >= WARM:
                took.append(watch.read() * 1_000)
        leader, everybody = used[writer.at], sum(used.values())
        return AppendCost(leader * 1_000 / megabytes, everybody * 1_000 / megabytes, statistics.median(took))
    finally:
        line.close()


# Moving leaders
# --------------

MOVING_CASE: Final = "P6 1,000 units move"
MOVING_TOPIC: Final = "moving"
LAST: Final = "moving-last"
UNITS: Final = 1_000
WRITES_AT_ONCE: Final = 100
BARE_ROUNDS: Final = 5
TIMES: Final = 3.0
VICTIM, SURVIVORS = 3, (1, 2)
"""The first one that starts is the controller, and another one dies: how a controller is found is CL-P1's."""
LARGE_S: Final = 5.0
"""How long an answer about all units is waited for."""
LOOK_S: Final = 0.2


def measure_leader_moves(home: str) -> BenchRow:
    Path(home).mkdir(parents=True)
    with run_three_nodes(home, {"auto.leader.rebalance.enable": "false"}) as nodes:
        told_s, bare_s = asyncio.run(time_leader_moves(nodes))
        took_s = told_s - first_decision_s(nodes)
    ratio = bare_s / took_s
    return BenchRow(
        "cluster", MOVING_CASE, round(took_s, 3), "s", "bare multis of 100", round(bare_s, 3), round(ratio, 3),
        round(1 / TIMES, 3), ratio >= 1 / TIMES,
    )  # fmt: skip


async def time_leader_moves(nodes: MusterTrio) -> tuple[float, float]:
    """When all was told, by the wall's clock, and how long the bare writes took."""
    asking = TrioClient(nodes.addresses)
    try:
        for topic, partitions in ((MOVING_TOPIC, UNITS), (LAST, 1)):
            await make_topic_led_by_victim(asking, topic, partitions)
        bare_s = await time_bare_writes(nodes.connect)
        nodes.signal(VICTIM, signal.SIGKILL)
        return await wait_until_known(asking), bare_s
    finally:
        asking.close()


async def make_topic_led_by_victim(asking: TrioClient, topic: str, partitions: int) -> None:
    """All led by the one that is to die."""
    assigned = [
        struct("CreateTopicsRequest.topics.assignments")(partition_index=number, broker_ids=[VICTIM, *SURVIVORS])
        for number in range(partitions)
    ]
    wanted = struct("CreateTopicsRequest.topics")(
        name=topic, num_partitions=-1, replication_factor=-1, assignments=assigned
    )
    request = struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=60_000)
    code = (await asking.send_request(VICTIM, "CreateTopics", 4, request, TRIES_S)).topics[0].error_code
    if code:
        raise BenchFailed(f"the topic {topic} could not be made: error {code}")
    await asking.in_sync(topic, partitions, LARGE_S)


async def wait_until_known(asking: TrioClient) -> float:
    """The moment at which both others have heard of all, by the wall's clock."""
    deadline_s = time.monotonic() + TRIES_S
    waiting = list(SURVIVORS)
    while waiting and time.monotonic() < deadline_s:
        waiting = [node for node in waiting if await count_unmoved(asking, node, LAST)]
        await asyncio.sleep(PAUSE_S if waiting else 0)
    at_s = time.time()
    while time.monotonic() < deadline_s:
        left = [await count_unmoved(asking, node, MOVING_TOPIC) for node in SURVIVORS]
        if not any(left):
            return at_s
        await asyncio.sleep(LOOK_S)
        at_s = time.time()
    raise BenchFailed(f"partitions that have no other leader after {TRIES_S:.0f} s, as both others know: {left}")


async def count_unmoved(asking: TrioClient, node: int, topic: str) -> int:
    """Partitions that are led by the one that died, or by nobody, as far as a node knows; 1 where it says nothing."""
    try:
        parts = await asking.described(node, topic, LARGE_S)
    except ServerGone:
        return 1
    return sum(part.leader_id not in SURVIVORS for part in parts) if parts else 1


def first_decision_s(nodes: MusterTrio) -> float:
    """The moment at which the first was decided, by the wall's clock. The ledger is written behind what it tells of,
    and in its order; should it have lost some, then a few of the hundred that were decided with the first."""
    deadline_s = time.monotonic() + TRIES_S
    found: list[Election] = []
    with Admin({"bootstrap.servers": ",".join(nodes.doors[node] for node in SURVIVORS)}) as admin:
        while time.monotonic() < deadline_s:
            found = [each for each in admin.explain_elections(2 * UNITS, MOVING_TOPIC) if each.from_node_id == VICTIM]
            if len(found) > UNITS - WRITES_AT_ONCE // 2:
                return min(each.decided_ms for each in found) / 1_000
            time.sleep(LOOK_S)
    raise BenchFailed(f"the ledger of elections has {len(found)} of {UNITS:,}, and when it began is not known")


async def time_bare_writes(connect: str) -> float:
    """As many writes of as many bytes, a hundred in one request, and nothing else: the median of some rounds."""
    session = ZooKeeperSession(connect)
    await session.open()
    took_s = []
    try:
        await session.ensure("/bare")
        paths = [f"/bare/{number}" for number in range(UNITS)]
        await write_chunks(session, paths, lambda together, path: together.create(path, b"x" * 200))
        for _ in range(BARE_ROUNDS):
            watch = Stopwatch()
            await write_chunks(session, paths, lambda together, path: together.set_data(path, b"y" * 200))
            took_s.append(watch.read())
        return statistics.median(took_s)
    finally:
        await session.close()


async def write_chunks(session: ZooKeeperSession, paths: list[str], add: Any) -> None:
    for start in range(0, len(paths), WRITES_AT_ONCE):

        def build(together: Any, some: list[str] = paths[start : start + WRITES_AT_ONCE]) -> None:
            for path in some:
                add(together, path)

        await session.commit(build)


# Taking over a shard
# -------------------

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


# The suite
# ---------

BENCH: Final = "cluster"
BROKERS: Final = "three brokers of Kafka 4.1.1"
TOLD: Final = "Kafka 4.1.1, measured before"
"""Where no broker is given: what was measured on another machine."""

KILLED_HEARTBEAT_S, KILLED_PRODUCE_S, STOPPED_S = 10.3, 10.8, 0.86


class FailoverGoal(NamedTuple):
    """of: whether the first answer counts, or the longest while without one. told_s: Kafka's, measured before."""

    case: str
    what: str
    how: FailureKind
    longest: bool
    share: float
    told_s: float


FAILOVERS: Final = (
    FailoverGoal("P1 killed: to the first heartbeat", "heartbeat", FailureKind.KILLED, False, 0.2, KILLED_HEARTBEAT_S),
    FailoverGoal(
        "P1 killed: to the first acks=all produce", "produce", FailureKind.KILLED, False, 0.2, KILLED_PRODUCE_S
    ),
    FailoverGoal("P1 frozen: to the first heartbeat", "heartbeat", FailureKind.FROZEN, False, 0.9, KILLED_HEARTBEAT_S),
    FailoverGoal(
        "P1 frozen: to the first acks=all produce", "produce", FailureKind.FROZEN, False, 0.9, KILLED_PRODUCE_S
    ),
    FailoverGoal("P2 stopped: longest without a heartbeat", "heartbeat", FailureKind.STOPPED, True, 0.5, STOPPED_S),
    FailoverGoal("P2 stopped: longest without a produce", "produce", FailureKind.STOPPED, True, 0.5, 1.0),
)
COSTS: Final = "P3 to P5 copies"
IDLE: Final = "P9 idle, 1,000 partitions"
IDLE_S: Final = 20.0
IDLE_SHARE: Final = 0.03


def run(only: str = "", kafka: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`; beside the brokers of the folder `kafka`, if it names one.

    Each row is told as soon as it is measured. Raises BenchFailed, which names the case that failed, and JavaNotFound.
    """
    wanted = [each for each in FAILOVERS if only in each.case]
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as home:
        for how in dict.fromkeys(each.how for each in wanted):
            yield from measure_failovers(
                f"{home}/{how.name.lower()}", [each for each in wanted if each.how is how], kafka
            )
        if only in COSTS:
            with name_failed_case(COSTS):
                yield from measure_copies(f"{home}/copies")
        for name, measure in ALONE.items():
            if only in name:
                with name_failed_case(name):
                    yield measure(f"{home}/{name.split()[0]}")


@contextlib.contextmanager
def name_failed_case(case: str) -> Iterator[None]:
    """Whatever comes in the way of a case is told with its name. Raises BenchFailed."""
    try:
        yield
    except (BenchFailed, ZooKeeperError, OSError, subprocess.SubprocessError) as error:
        raise BenchFailed(f"{case}: {str(error) or type(error).__name__}") from error


def measure_failovers(home: str, wanted: list[FailoverGoal], kafka: str) -> Iterator[BenchRow]:
    """All of what happens to a node one way. Each way has servers of its own: none has gone through another before.

    Where the brokers fail, what was measured is told beside what they took before, and then how they failed.
    """
    how = wanted[0].how
    whats = list(dict.fromkeys(each.what for each in wanted))
    cases = ", ".join(each.case for each in wanted)
    with name_failed_case(cases), run_three_nodes(f"{home}/ours") as nodes:
        ours = asyncio.run(measure_gaps(nodes, ROUNDS, how, whats))
    theirs: dict[str, ServiceGap] = {}
    failure: BenchFailed | None = None
    if kafka:
        try:
            with (
                name_failed_case(f"{cases}: {BROKERS}"),
                run_three_brokers(make_folder(f"{home}/theirs"), kafka) as brokers,
            ):
                theirs = asyncio.run(measure_gaps(brokers, 1, how, whats))
        except BenchFailed as error:
            failure = error
    for each in wanted:
        yield failover(each, ours[each.what], theirs.get(each.what))
    if failure is not None:
        raise failure


def failover(wanted: FailoverGoal, ours: ServiceGap, theirs: ServiceGap | None) -> BenchRow:
    """
    >>> failover(FAILOVERS[0], ServiceGap(0.5, 0.5), ServiceGap(10.0, 10.0))[2:]
    (0.5, 's', 'three brokers of Kafka 4.1.1', 10.0, 20.0, 5.0, True)
    """
    value = ours.longest_s if wanted.longest else ours.first_s
    peer, against = (TOLD, wanted.told_s) if theirs is None else (BROKERS, theirs[wanted.longest])
    return cost_row(wanted.case, value, "s", peer, against, wanted.share)


def measure_copies(home: str) -> Iterator[BenchRow]:
    with run_one_node(make_folder(home)) as alone, run_three_nodes(home) as nodes:
        single, triple = asyncio.run(measure_append_costs([(alone, 1), (nodes, 3)]))
    peer = "the same node alone"
    yield cost_row("P3 copies: processor time of the leader", triple.leader_ms, "ms/MB", peer, single.leader_ms, 1.2)
    yield cost_row("P4 copies: processor time of all three", triple.all_ms, "ms/MB", peer, single.leader_ms, 1.7)
    yield cost_row("P5 copies: one acks=all produce, median", triple.produce_ms, "ms", peer, single.produce_ms, 3.0)


def measure_idle_cluster(home: str) -> BenchRow:
    """The busiest of three nodes, as a share of a core."""
    with run_three_nodes(make_folder(home)) as nodes:
        asking = TrioClient(nodes.addresses)

        async def fill() -> None:
            await asking.make("idle", 1_000, 3)
            asking.close()

        asyncio.run(fill())
        time.sleep(IDLE_S / 2)
        before = {node: nodes.cpu_s(node) for node in NODES}
        time.sleep(IDLE_S)
        share = max(nodes.cpu_s(node) - before[node] for node in NODES) / IDLE_S
    return cost_row(IDLE, share * 100, "% of a core", "the goal", IDLE_SHARE * 100, 1.0)


def cost_row(case: str, value: float, unit: str, peer: str, peer_value: float, share: float) -> BenchRow:
    return at_most(share, case, value, unit, peer, peer_value, bench=BENCH)


def make_folder(folder: str) -> str:
    Path(folder).mkdir(parents=True)
    return folder


ALONE: Final[dict[str, Callable[[str], BenchRow]]] = {
    MOVING_CASE: measure_leader_moves,
    TAKEOVER_CASE: measure_shard_takeover,
    IDLE: measure_idle_cluster,
}
"""Cases of one row, by their names: measured below a folder that is not there yet."""
