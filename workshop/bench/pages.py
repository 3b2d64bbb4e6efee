"""What the page costs: 1,000 groups, and a group of 1,000 members and 10,000 partitions that all moved.

The node behind it is a stand-in that has every answer at hand: what is measured is the page, from answers to bytes.
"""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import Message

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.observability.history.history import GroupHistory, Sample
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1.ledger_pb2 import (
    REBALANCE_CAUSE_SESSION_EXPIRED,
    REBALANCE_OUTCOME_COMPLETED,
    Rebalance,
)
from muster.coordinator.web.http.node_port import NOBODY, Exposition, HttpCaller, NodeFacts, NodeHealth
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from muster.workshop.bench.rows import BenchRow, less_is_better

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
            self.history.take(LARGE, Sample(places, ends, committed, [at_ms] * partitions), at_ms)
            self.history.settle(LARGE, at_ms)
            for name in self._groups[1:]:
                self.history.take(name, Sample(places[:3], [9, 9, 9], [step % 9] * 3, [at_ms] * 3), at_ms)
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
