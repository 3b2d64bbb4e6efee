"""What observation costs a node: a scrape of very many series, a hundred open pages, and large pages.

A scrape is measured by processor time per series, compression included, and by the longest stretch in which the loop
serves nothing else. Open pages are measured while nothing changes. The page is measured from answers to bytes, for
1,000 groups and for a group of 1,000 members and 10,000 partitions that all moved; the node behind it is a stand-in
that has every answer at hand.
"""

import asyncio
import contextlib
import gc
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from google.protobuf.message import Message

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.config import load_settings
from muster.coordinator.core.model.records import OffsetsStored
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.observability.history.group_history import GroupHistory, Sample
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1.ledger_pb2 import REBALANCE_CAUSE_SESSION_EXPIRED, REBALANCE_OUTCOME_COMPLETED, Rebalance
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.node.main import YOUNG_OBJECTS
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.node_log import configure_logs
from muster.coordinator.web.http.monitoring import gzip_pieces
from muster.coordinator.web.http.node_port import NOBODY, Exposition, HttpCaller, NodeFacts, NodeHealth
from muster.storage.broker.broker import Broker
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.report import BENCH, BenchRow, less_is_better

# A scrape
# --------

SCRAPED_GROUPS = 1_000
SCRAPED_PARTITIONS = 100
SCRAPE_TIMES = 5
LIMIT_US: Final = 3.0
LIMIT_MS: Final = 5.0
FORMATS: Final = {"text": "", "OpenMetrics": "application/openmetrics-text;version=1.0.0"}


@dataclass(slots=True)
class ScrapeCost:
    """Of one scrape. `stretch_ms`: the most processor time that the loop's thread took between two turns of others."""

    cpu_s: float
    stretch_ms: float
    series: int

    @property
    def us(self) -> float:
        return self.cpu_s / self.series * 1e6


def measure_scrape(name: str, home: str) -> Iterator[BenchRow]:
    configure_logs("error", "console")
    for word, accept in FORMATS.items():
        costs = asyncio.run(measure_format(str(Path(home) / word), accept))
        case = f"{name}: {costs[0].series:,} series as {word}"
        first, rest = costs[0], costs[1:]
        yield less_is_better(f"{case}, the first", first.us, "us CPU/series", "limit", LIMIT_US, 1.0)
        later = statistics.median(cost.us for cost in rest)
        yield less_is_better(f"{case}, later ones", later, "us CPU/series", "limit", LIMIT_US, 1.0)
        longest = max(cost.stretch_ms for cost in costs)
        yield less_is_better(f"{case}, longest stretch", longest, "ms CPU", "limit", LIMIT_MS, 1.0)


async def measure_format(home: str, accept: str) -> list[ScrapeCost]:
    """A node in this process, whose groups have committed to all partitions of one topic."""
    given = {"log.dirs": home, "listeners": "127.0.0.1:0", "http.listeners": "127.0.0.1:0", "logging.level": "error"}
    node = CoordinatorNode(
        load_settings(None, given | {"metrics.max.series": str(10 * SCRAPED_GROUPS * SCRAPED_PARTITIONS)})
    )
    await node.start()
    try:
        cast(Broker, node.broker).create_topic("t", SCRAPED_PARTITIONS, {})
        for number in range(SCRAPED_GROUPS):
            commit_in_memory(node, f"group-{number}")
        collect_garbage_like_node()
        return [await scrape_once(node, accept) for _ in range(SCRAPE_TIMES)]
    finally:
        await node.stop()


def collect_garbage_like_node() -> None:
    """The collector of garbage passes over what is there, and looks at what is new as seldom as in a node."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def commit_in_memory(node: CoordinatorNode, group_id: str) -> None:
    """In memory only: what a scrape looks at."""
    core = node.engine.core(partition_for(group_id, node.engine.shards))
    if not isinstance(core, Shard):
        raise BenchFailed(f"the shard of {group_id!r} is not loaded; the node's log says why")
    offsets = {("t", partition): StoredOffset(partition, -1, "", 0) for partition in range(SCRAPED_PARTITIONS)}
    core.apply(OffsetsStored(group_id, offsets))


async def scrape_once(node: CoordinatorNode, accept: str) -> ScrapeCost:
    if node.measuring is None:
        raise BenchFailed("the node does not count; http.listeners is needed for it")
    going = asyncio.ensure_future(watch_loop())
    await asyncio.sleep(0)
    began_s = time.process_time()
    exposition = await node.measuring.scrape(accept)
    await gzip_pieces(exposition.pieces)
    cpu_s = time.process_time() - began_s
    going.cancel()
    series = sum(piece.count(b"\n") - piece.count(b"\n#") for piece in exposition.pieces)
    return ScrapeCost(cpu_s, max(await going), series)


async def watch_loop() -> list[float]:
    """What the loop's thread computed between two turns of this one, in ms, until it is cancelled."""
    stretches = []
    try:
        while True:
            began_s = time.thread_time()
            await asyncio.sleep(0)
            stretches.append((time.thread_time() - began_s) * 1e3)
    except asyncio.CancelledError:
        return stretches


# Open pages
# ----------

PAGES = 100
FOLLOWING_ROUNDS = 3
ROUND_S = 10.0
SETTLED_S = 1.0
LIMIT: Final = 3.0
"""Percent of a core."""
SETTINGS: Final = {"http.listeners": "127.0.0.1:0"}


def measure_open_pages(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, SETTINGS) as server:
        yield asyncio.run(measure_streams(name, server))


async def measure_streams(name: str, server: ServerProcess) -> BenchRow:
    """What the streams cost more than nothing does, in rounds of both."""
    more, idle = [], []
    for _ in range(FOLLOWING_ROUNDS):
        idle.append(await measure_core_share(server))
        async with open_streams(server):
            more.append(await measure_core_share(server) - idle[-1])
    value, before = max(statistics.median(more), 0.001), statistics.median(idle)
    case = f"{name}: {PAGES} open pages, nothing changes (a node alone: {before:.2f} %)"
    return BenchRow(
        BENCH, case, round(value, 3), "% of a core", "limit", LIMIT, round(LIMIT / value, 2), 1.0, value <= LIMIT
    )


async def measure_core_share(server: ServerProcess) -> float:
    await asyncio.sleep(SETTLED_S)
    watch, before = Stopwatch(), server.cpu_ns()
    await asyncio.sleep(ROUND_S)
    return (server.cpu_ns() - before) / 1e7 / watch.read()


@contextlib.asynccontextmanager
async def open_streams(server: ServerProcess) -> AsyncIterator[None]:
    """Half of them follow everything, the others a group each, as pages do."""
    opened = [await open_stream(server, "/events" if page % 2 else f"/events?group=g{page}") for page in range(PAGES)]
    try:
        yield
    finally:
        for writer in opened:
            writer.close()


async def open_stream(server: ServerProcess, path: str) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(str(server.said["http_host"]), int(server.said["http_port"]))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    if not (await reader.readline()).startswith(b"HTTP/1.1 200"):
        raise BenchFailed(f"{path} is not followed; the node's log says why")
    await reader.readuntil(b"retry: ")
    return writer


# Large pages
# -----------

MEMBERS, PARTITIONS, GROUPS = 1_000, 10_000, 1_000
MOST_CPU_MS, MOST_KB, MOST_STRETCH_MS = 500.0, 300.0, 2.0
TIMES: Final = 5
LARGE, TOPIC = "large", "events"
NOW_MS: Final = 1_700_000_000_000


class StandInNode:
    """The node, as `muster.coordinator.web.http.node_port.NodePort` has it, with one large group and many small
    ones.
    """

    def __init__(self, members: int, partitions: int, groups: int, now_ms: int = NOW_MS) -> None:
        self._began_ms = now_ms - 300_000
        self.history = GroupHistory(10_000)
        self.changes = GroupChanges("bench")
        self._partitions = partitions
        ids = [f"consumer-{number}-0a1b2c3d-0000-4000-8000-{number:012d}" for number in range(members)]
        self.large = pb.DescribedGroup(group_id=LARGE, group_state="Stable", protocol_data="sticky", generation_id=7)
        wanted = encode_subscription(Subscription(1, (TOPIC,)))
        for number, member in enumerate(ids):
            share = encode_assignment({TOPIC: list(range(number, partitions, members))})
            self.large.members.add(
                member_id=member, client_id=f"consumer-{number}", client_host="10.0.0.1", member_metadata=wanted,
                member_assignment=share,
            )  # fmt: skip
        self.explained = pb.ExplainGroupResponse(
            rebalances=[make_rebalance(number, ids, partitions, self._began_ms) for number in (3, 2, 1)]
        )
        self._answers: dict[tuple[int, ...], pb.OffsetFetchResponse] = {}
        self._catalog = log_pb.MetadataResponse()
        topic = self._catalog.topics.add(name=TOPIC)
        for number in range(partitions):
            topic.partitions.add(partition_index=number)
        self._groups = [LARGE, *(f"group-{number:04d}" for number in range(groups - 1))]
        self._listed = pb.ListGroupsResponse()
        for name in self._groups:
            self._listed.groups.add(group_id=name, group_state="Stable", protocol_type="consumer", group_type="classic")
        places = [(TOPIC, number) for number in range(partitions)]
        for step in range(30):
            at_ms = self._began_ms + step * 10_000
            committed = [step * (50 + number % 7) for number in range(partitions)]
            ends = [offset + lag_of(number) * (60 - step) // 30 for number, offset in enumerate(committed)]
            self.history.record_sample(LARGE, Sample(places, ends, committed, [at_ms] * partitions), at_ms)
            self.history.settle(LARGE, at_ms)
            for name in self._groups[1:]:
                self.history.record_sample(name, Sample(places[:3], [9, 9, 9], [step % 9] * 3, [at_ms] * 3), at_ms)
                self.history.settle(name, at_ms)

    async def call(self, method: str, request: Message, by: HttpCaller = NOBODY) -> Message:
        answers: dict[str, Any] = {
            "ListGroups": self._list,
            "DescribeGroups": self._describe,
            "ExplainGroup": self._explain,
            "OffsetFetch": self._positions,
            "Metadata": self._metadata,
            "DescribeGroupSettings": lambda _: pb.DescribeGroupSettingsResponse(),
            "DescribeHolds": lambda _: control_pb.DescribeHoldsResponse(),
            "DescribeCanary": lambda _: control_pb.DescribeCanaryResponse(),
            "DescribeNode": lambda _: pb.DescribeNodeResponse(),
        }
        found: Message = answers[method](request)
        return found

    async def metrics(self, accept: str) -> Exposition:
        raise NotImplementedError("pages ask for no metrics")

    def sees_figures(self, group: str) -> bool:
        return True

    def sees_group(self, group: str) -> bool:
        return True

    def sees_node(self) -> bool:
        return True

    def log_bytes(self, places: Sequence[tuple[str, int]]) -> Sequence[int]:
        return [1 << 20] * len(places)

    def owner(self, group: str) -> None:
        """All groups are this node's."""

    def leads(self) -> None:
        """So are all shards."""

    def health(self) -> NodeHealth:
        return NodeHealth(True, False, (), ())

    def node(self) -> NodeFacts:
        return NodeFacts(1, "bench", "127.0.0.1:9090", "", "127.0.0.1:9291", NOW_MS, 50)

    def _list(self, _: Message) -> pb.ListGroupsResponse:
        return self._listed

    def _describe(self, request: pb.DescribeGroupsRequest) -> pb.DescribeGroupsResponse:
        small = [pb.DescribedGroup(group_id=name, group_state="Stable") for name in request.groups if name != LARGE]
        return pb.DescribeGroupsResponse(groups=[*small, *([self.large] if LARGE in request.groups else [])])

    def _explain(self, request: pb.ExplainGroupRequest) -> pb.ExplainGroupResponse:
        if request.group_id != LARGE:
            return pb.ExplainGroupResponse(rebalances=[Rebalance(group_id=request.group_id, number=1)])
        return self.explained

    def _positions(self, request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
        asked = () if request.all_topics else tuple(request.topics[0].partition_indexes)
        if asked not in self._answers:
            self._answers[asked] = self._made(asked or range(self._partitions))
        return self._answers[asked]

    def _made(self, numbers: Iterable[int]) -> pb.OffsetFetchResponse:
        answer = pb.OffsetFetchResponse()
        topic = answer.topics.add(name=TOPIC)
        for number in numbers:
            topic.partitions.add(
                partition_index=number, committed_offset=0, log_start_offset=0, log_end_offset=lag_of(number)
            )
        return answer

    def _metadata(self, _: log_pb.MetadataRequest) -> log_pb.MetadataResponse:
        return self._catalog


def lag_of(number: int) -> int:
    """Of a partition: from none to 20,000, most of them few."""
    return (number * 7_919 % 997) ** 2 // 50


def make_rebalance(number: int, ids: list[str], partitions: int, began_ms: int) -> Rebalance:
    """In which every partition went to the next member."""
    entry = Rebalance(group_id=LARGE, number=number, generation=number, culprit=ids[0], unowned_partition_seconds=9e3)
    entry.cause, entry.outcome = REBALANCE_CAUSE_SESSION_EXPIRED, REBALANCE_OUTCOME_COMPLETED
    entry.started_at_ms = began_ms + number * 60_000
    entry.ended_at_ms = entry.started_at_ms + 980
    for each in range(partitions):
        source, target = (ids[(each + step) % len(ids)] for step in (number, number + 1))
        entry.moves.add(topic=TOPIC, partition=each, source=source, target=target, unowned_ms=900, why="evens out")
    entry.phases.add(name="join", duration_ms=900, waited_for=[ids[0]])
    entry.phases.add(name="plan", duration_ms=80)
    return entry


@dataclass(slots=True)
class PageCost:
    cpu_ms: float
    kb: float
    stretch_ms: float
    """The longest time in which the loop did nothing else."""
    body: bytes = field(repr=False, default=b"")


async def fetch_page(app: Any, path: str, expected: Sequence[int] = (200,)) -> bytes:
    """The body of a GET, by ASGI and no transport. `path` may have a query."""
    path, _, query = path.partition("?")
    scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": ""}
    scope |= {
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")],
    }
    body, status = bytearray(), list[int]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])
        body.extend(message.get("body", b""))

    await app(scope, receive, send)
    if status[0] not in expected:
        raise RuntimeError(f"{path} answered {status[0]}; expected {expected}")
    return bytes(body)


async def measure_request(app: Any, path: str) -> PageCost:
    """Of one request; the loop's own turns are watched meanwhile."""
    stretch = 0.0

    async def watch() -> None:
        nonlocal stretch
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            stretch, before = max(stretch, now - before), now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    began = time.process_time()
    body = await fetch_page(app, path)
    cpu_s = time.process_time() - began
    watching.cancel()
    return PageCost(cpu_s * 1000, len(body) / 1000, stretch * 1000, body)


def make_app(node: StandInNode) -> Any:
    from muster.coordinator.config import load_settings
    from muster.coordinator.web.app import make_app as whole

    return whole(node, load_settings(None, {"http.listeners": "127.0.0.1:9291"}))


def measure_pages(case: str, home: str) -> Iterator[BenchRow]:
    """Processor time with the loop left alone, then the longest stretch of the loop in a run of its own."""
    sys.setswitchinterval(0.001)
    app = make_app(StandInNode(MEMBERS, PARTITIONS, GROUPS))
    for what, path in (
        (f"{MEMBERS:,} members x {PARTITIONS:,} partitions", f"/groups/{LARGE}"),
        (f"{GROUPS:,} groups", "/"),
    ):
        cpu_ms, kb, stretch_ms = asyncio.run(measure_best(app, path))
        yield less_is_better(f"{case}: {what}", cpu_ms, "ms cpu", "limit", MOST_CPU_MS, goal=1.0)
        yield less_is_better(f"{case}: {what}", kb, "KB", "limit", MOST_KB, goal=1.0)
        yield less_is_better(f"{case}: {what}", stretch_ms, "ms of loop", "limit", MOST_STRETCH_MS, goal=1.0)


async def measure_best(app: Any, path: str) -> tuple[float, float, float]:
    began, quiet = 0.0, []
    for _ in range(TIMES):
        began = time.process_time()
        body = await fetch_page(app, path)
        quiet.append((time.process_time() - began) * 1000)
    stretches = [(await measure_request(app, path)).stretch_ms for _ in range(TIMES)]
    return min(quiet), len(body) / 1000, min(stretches)
