"""The cases of `muster bench engine`: commits, taking a shard, heartbeats and failover of a node over a Kafka.

Goals are those of docs/design/kafka-backend.md: KB-P1 to KB-P3, commits against what it costs to write as much to
the same Kafka; KB-P4, a shard with a million positions taken from Kafka, against the same records from the node's
own log; KB-P7, a heartbeat at a node over Kafka against a node with its own log, by processor time, interleaved;
KB-P8 and KB-P9, how long no node answers a heartbeat when the owner of the group's shard is killed or stopped,
against three brokers of Kafka of which the group's coordinator fails the same way.
"""

import asyncio
import contextlib
import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from muster.coordinator.core.model.records import OffsetStored
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import errors_pb2
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.kafka_records import encode
from muster.coordinator.runtime.replay import replay_shard
from muster.coordinator.server.node.main import loop_factory
from muster.coordinator.server.node.node import CoordinatorNode
from muster.storage.broker.broker import Broker as LogBroker
from muster.storage.config import MAX_LONG, LogSettings
from muster.storage.records.batch import encode_turn
from muster.workshop.bench import interference, kafka_backend_load
from muster.workshop.bench.cluster_servers import TrioClient, TrioMember, TrioProcesses, run_three_brokers
from muster.workshop.bench.cluster_suite import (
    BROKERS,
    KILLED_HEARTBEAT_S,
    STOPPED_S,
    TOLD,
    FailureKind,
    ServiceGap,
    measure_gaps,
    measure_heartbeat_gap,
)
from muster.workshop.bench.grpc_members import GrpcConnection
from muster.workshop.bench.heartbeats import HEARTBEAT_SETTINGS, interleave_targets, join_target
from muster.workshop.bench.kafka_backend_load import (
    BENCH,
    LOOK_AGAIN_S,
    STARTS_S,
    commit_position,
    group_per_shard,
    run_node_over,
    settings_over,
    start_node_process,
)
from muster.workshop.bench.kafka_load import LoadConnection
from muster.workshop.bench.kafka_peer import (
    KafkaBroker,
    classpath,
    fill_broker,
    free_ports,
    produce_batch,
    running_broker,
)
from muster.workshop.bench.processes import (
    LOAD_CORE,
    BenchFailed,
    ServerProcess,
    pinned,
    read_announcement,
    run_node,
    run_server,
)
from muster.workshop.bench.report import BenchRow, at_least, at_most
from muster.workshop.bench.web_costs import collect_garbage_like_node

# Commits
# -------

COMMIT_ROUNDS, EACH = 9, 60
COMMIT_SHARDS, AT_ONCE = 50, 20
CALLERS, CALLS = 32, 60
TRANSACTION = 20
WARM_UP = 200
BARE = "bare"


def measure_commits(broker: KafkaBroker) -> Iterator[BenchRow]:
    fill_broker(broker, BARE, 1, [encode_commit(0)])
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        one, bare, many, in_turn, rate = runner.run(measure_commit_rates(broker.address))
    peer = "acks=all Produce of the same bytes, bare"
    yield at_most(1.5, "P1 a commit, one shard, median", one, "ms", peer, bare, bench=BENCH)
    case, peer = f"P2 {COMMIT_SHARDS} shards, {AT_ONCE} commits each, at once", f"{COMMIT_SHARDS} bare batches in turn"
    yield at_most(0.1, case, many, "ms", peer, in_turn, bench=BENCH)
    case, peer = f"P3 commits, {CALLERS} callers", f"confluent-kafka, a transaction for each {TRANSACTION}"
    yield at_least(4.0, case, rate, "commits/s", peer, measure_transaction_rate(broker.address), bench=BENCH)


def encode_commit(number: int) -> bytes:
    """The batch that keeps a commit of one position."""
    stored = OffsetStored("bench-0", "orders", 0, StoredOffset(number, -1, "", 0))
    return encode_turn(encode([stored]).groups, 0)


async def measure_commit_rates(address: str) -> tuple[float, float, float, float, float]:
    """ms of one commit and of one bare batch, of many commits at once and of as many batches as there are shards in
    turn, commits a second; the first four side by side, the medians of rounds."""
    groups = group_per_shard(COMMIT_SHARDS)
    async with run_node_in_process(address) as node:
        line = await LoadConnection.to(address)
        count = iter(range(1 << 40))

        async def ours() -> None:
            await commit_position(node, groups[0], next(count))

        async def theirs() -> None:
            if code := await produce_batch(line, BARE, 0, encode_commit(next(count)), acks=-1):
                raise BenchFailed(f"the broker refused a batch with error {code}")

        async def at_once() -> None:
            number = next(count)
            await asyncio.gather(*(commit_position(node, group, number) for group in groups for _ in range(AT_ONCE)))

        for _ in range(WARM_UP):
            await ours()
            await theirs()
        await at_once()
        found: tuple[list[float], ...] = ([], [], [], [])
        for _ in range(COMMIT_ROUNDS):
            found[0].append(await median_ms(ours, EACH))
            found[1].append(await median_ms(theirs, EACH))
            found[2].append(await median_ms(at_once, 3))
            found[3].append(await taken_ms(theirs, COMMIT_SHARDS))
        one, bare, many, in_turn = map(statistics.median, found)
        line.close()
        return one, bare, many, in_turn, await commits_a_second(ours)


@asynccontextmanager
async def run_node_in_process(address: str) -> AsyncIterator[CoordinatorNode]:
    """A node that has started, on the loop that it has in a process of its own, and with its collector of garbage: at
    the pace of Python's a third of what is measured would be looks through what the start made."""
    before = gc.get_threshold()
    async with run_node_over(address, "bench-commits", COMMIT_SHARDS) as node:
        collect_garbage_like_node()
        try:
            yield node
        finally:
            gc.unfreeze()
            gc.set_threshold(*before)


async def median_ms(work: Callable[[], Awaitable[None]], times: int) -> float:
    return statistics.median([await taken_ms(work, 1) for _ in range(times)])


async def taken_ms(work: Callable[[], Awaitable[None]], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        await work()
    return (time.perf_counter() - began) * 1e3


async def commits_a_second(ours: Callable[[], Awaitable[None]]) -> float:
    async def caller() -> None:
        for _ in range(CALLS):
            await ours()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return CALLERS * CALLS / (time.perf_counter() - began)


def measure_transaction_rate(address: str) -> float:
    """Commits a second of a producer that is fenced as libraries offer it: so many in a transaction."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "transactional.id": "bench-theirs", "linger.ms": 0})
    producer.init_transactions(60)
    value = encode_commit(0)

    def one() -> None:
        producer.begin_transaction()
        for number in range(TRANSACTION):
            producer.produce(BARE, value, str(number))
        producer.commit_transaction(60)

    for _ in range(5):
        one()
    began, times = time.perf_counter(), CALLERS * CALLS // TRANSACTION
    for _ in range(times):
        one()
    return times * TRANSACTION / (time.perf_counter() - began)


# Taking a shard
# --------------

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
    return OffsetStored(f"group-{group}", "orders", partition, StoredOffset(number, -1, "", interference.NOW_MS))


def measure_own_log(home: str, turns: list[list[tuple[bytes, bytes | None, int]]]) -> float:
    """Processor seconds."""
    broker = LogBroker(home, LogSettings.from_properties({"log.flush.interval.messages": str(MAX_LONG)}))
    try:
        log = BrokerGroupLog(broker, 1, 1 << 30)
        for turn in turns:
            log.append(0, turn, [], interference.NOW_MS)
        return interference.loading_cpu_s(lambda: check_positions(replay_shard(log, 0, Shard(Limits(), 0)).groups))
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


# Heartbeats
# ----------

HEARTBEAT_SHARDS = 4


def measure_backend_heartbeats(broker: KafkaBroker, home: str) -> Iterator[BenchRow]:
    settings = {**settings_over(broker.address, "bench-beating", HEARTBEAT_SHARDS), **HEARTBEAT_SETTINGS}
    with pinned(LOAD_CORE), run_node(home, HEARTBEAT_SETTINGS) as bundled, run_server(node_arguments(settings)) as over:
        ours, theirs = asyncio.run(interleave_nodes(over, bundled))
    peer = "a node with a log of its own"
    yield at_most(1.05, "P7 a heartbeat by gRPC", ours, "us CPU/RPC", peer, theirs, bench=BENCH)


def node_arguments(settings: Mapping[str, str]) -> list[str]:
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return ["-m", "muster.cli", "serve", "--announce", "--until-eof", *given]


async def interleave_nodes(over: ServerProcess, bundled: ServerProcess) -> tuple[float, float]:
    await wait_until_coordinating(over)
    ours, theirs = map(
        statistics.median, await interleave_targets((await join_target(over), await join_target(bundled)))
    )
    return ours, theirs


async def wait_until_coordinating(over: ServerProcess) -> None:
    """Return once it answers for the group that is about to be joined."""
    wire = GrpcConnection(over.address)
    request = pb.HeartbeatRequest(group_id="bench", member_id="nobody", generation_id=1)
    async with asyncio.timeout(STARTS_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):  # it has heard nothing of the nodes' group yet
                answer = await wire.call("Heartbeat", request, pb.HeartbeatResponse)
                if answer.error_code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID:
                    break
            await asyncio.sleep(LOOK_AGAIN_S)
    await wire.close()


# Failover
# --------

NODES: Final = (1_000_001, 1_000_002, 1_000_003)
"""As Kafka's clients know them: `engine.kafka.node.id.base` and `node.id`."""
FAILOVER_SHARDS: Final = 4
BEFORE: Final = {
    FailureKind.KILLED: ServiceGap(KILLED_HEARTBEAT_S, KILLED_HEARTBEAT_S),
    FailureKind.STOPPED: ServiceGap(STOPPED_S, STOPPED_S),
}
FAILOVER_ROUNDS: Final = 3
SETTLE_S: Final = 12.0
"""Between two rounds: a session, and the time that shards take to be dealt anew."""


class NodesOverKafka(TrioProcesses):
    """Muster's over one broker, each with a door of its own and one for the broker; they stay over restarts."""

    def __init__(self, home: Path, broker: KafkaBroker) -> None:
        super().__init__()
        self._home = home
        self._broker = broker
        self._ports = dict(zip(NODES, zip(free_ports(3), free_ports(3), strict=True), strict=True))
        self.addresses = {node: f"127.0.0.1:{own}" for node, (own, _) in self._ports.items()}

    def start(self, node: int) -> None:
        own, brokers = self._ports[node]
        settings = settings_over(self._broker.address, "bench-failover", FAILOVER_SHARDS) | {
            "node.id": str(node - NODES[0] + 1),
            "kafka.listeners": f"127.0.0.1:{own}",
            "engine.kafka.broker.ports": str(brokers),
            "engine.kafka.broker.id.first": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        process = start_node_process(settings, self._home / f"node{node}.log")
        self.runs(node, process)
        read_announcement(process)


def measure_failover(broker: KafkaBroker, home: str, kafka: str) -> Iterator[BenchRow]:
    """kafka: a folder of brokers to be killed and stopped; without one Kafka's figures are those of before."""
    ours = run_nodes_over(broker, Path(home))
    theirs, peer = BEFORE, TOLD
    if kafka:
        theirs, peer = {how: measure_brokers(Path(home) / how.name.lower(), kafka, how) for how in ours}, BROKERS
    killed, stopped = FailureKind.KILLED, FailureKind.STOPPED
    first, longest = "P8 an owner is killed: first heartbeat", "P9 an owner is stopped: longest without a heartbeat"
    yield at_most(1.2, first, ours[killed].first_s, "s", peer, theirs[killed].first_s, bench=BENCH)
    yield at_most(1.0, longest, ours[stopped].longest_s, "s", peer, theirs[stopped].longest_s, bench=BENCH)


def measure_brokers(folder: Path, kafka: str, how: FailureKind) -> ServiceGap:
    folder.mkdir()
    with run_three_brokers(str(folder), kafka) as brokers:
        return asyncio.run(measure_gaps(brokers, 1, how, ["heartbeat"]))["heartbeat"]


def run_nodes_over(broker: KafkaBroker, home: Path) -> dict[FailureKind, ServiceGap]:
    nodes = NodesOverKafka(home, broker)
    try:
        for node in NODES:
            nodes.start(node)
        return asyncio.run(measure_node_gaps(nodes))
    finally:
        nodes.stop()


async def measure_node_gaps(nodes: NodesOverKafka) -> dict[FailureKind, ServiceGap]:
    """The medians of the rounds."""
    asking = TrioClient(nodes.addresses)
    try:
        await asyncio.sleep(SETTLE_S)
        member = TrioMember(asking)
        await member.join()
        found: dict[FailureKind, ServiceGap] = {}
        for how in (FailureKind.KILLED, FailureKind.STOPPED):
            gaps = []
            for _ in range(FAILOVER_ROUNDS):
                gaps.append(await measure_heartbeat_gap(nodes, asking, member, how))
                await asyncio.sleep(SETTLE_S)
            found[how] = ServiceGap(*(sorted(each)[FAILOVER_ROUNDS // 2] for each in zip(*gaps, strict=True)))
        return found
    finally:
        asking.close()


# The suite
# ---------

MeasureOverKafka: TypeAlias = Callable[[KafkaBroker, str, str], Iterator[BenchRow]]
"""Beside a broker, in a folder that is removed afterwards; and the classpath of more of them."""

CASES: Final[dict[str, MeasureOverKafka]] = {
    "P1 P2 P3 commits": lambda broker, home, jars: measure_commits(broker),
    "P4 taking": lambda broker, home, jars: measure_shard_taking(broker, home),
    "P5 P6 passing": lambda broker, home, jars: kafka_backend_load.measure_passing(broker, home),
    "transactions": lambda broker, home, jars: kafka_backend_load.measure_transactions(broker, home),
    "P7 heartbeats": lambda broker, home, jars: measure_backend_heartbeats(broker, home),
    "P8 P9 failover": measure_failover,
}


def run(only: str = "", kafka: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`, over a broker of the folder `kafka`, or of what Maven has.

    Raises BenchFailed, JarsUnavailable, JavaNotFound.
    """
    wanted = {name: measure for name, measure in CASES.items() if only in name}
    if not wanted:
        return
    home = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    try:
        with running_broker(str(home), classpath(kafka) if kafka else "") as broker:
            for name, measure in wanted.items():
                folder = home / name.replace(" ", "-")
                folder.mkdir()
                yield from measure(broker, str(folder), kafka)
    finally:
        shutil.rmtree(home, ignore_errors=True)
