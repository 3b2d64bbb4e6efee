"""The same course with a real node and a process for each worker: shorter, and never the same twice."""

import asyncio
import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

from muster.assignors.api import TopicPartition
from muster.client.aio import AsyncAdmin
from muster.client.members.member_types import LeavePolicy
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.grpc_members import GrpcConnection
from muster.workshop.bench.processes import run_node, stop_process
from muster.workshop.lab.comparison import ComparisonResult, CourseChapter, Workload, sum_costs
from muster.workshop.lab.generations import HEARTBEAT_MS, SESSION_MS, ProtocolGeneration
from muster.workshop.lab.simulated_worker import RunAccount, RunCosts

GROUP = "lab"
DELAY_MS = 15_000
START_S, CALM_S = 12.0, 30.0
RESTART_S, BETWEEN_RESTARTS_S = 3.0, 9.0
REPLACED_S = 15.0
LOOK_S = 0.2
LATEST_S = 120.0
"""A group that has not settled so long after it should have is measured as it is."""
PIPE_BYTES = 1 << 16
NOT_COUNTED = 0
"""Messages and duplicates: a node does not count the first, and these workers read no records."""


class RealWorker:
    """A process and what it says it has."""

    def __init__(self, name: str, given: dict[str, Any]) -> None:
        self.name = name
        self.held: set[TopicPartition] = set()
        self.unfinished = b""
        """The beginning of a line whose end has not come yet."""
        command = [sys.executable, "-m", "muster.workshop.lab.real_worker", json.dumps(given)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )


def compare_in_real_time(workload: Workload, generations: Iterable[ProtocolGeneration]) -> Iterator[ComparisonResult]:
    """About three minutes for each generation."""
    for generation in generations:
        with contextlib.ExitStack() as closing:
            home = closing.enter_context(tempfile.TemporaryDirectory(prefix="muster-lab-"))
            minimum = {
                "group.consumer.session.timeout.ms": str(SESSION_MS),
                "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
                "group.consumer.min.heartbeat.interval.ms": "1000",
                "group.consumer.min.session.timeout.ms": "6000",
            }
            address = closing.enter_context(run_node(home, minimum)).address
            course = RealTimeCourse(workload, generation, address)
            closing.callback(course.end)
            yield course.run()


class RealTimeCourse:
    """One run. Time passes in `watch` only, which keeps the books meanwhile."""

    def __init__(self, workload: Workload, generation: ProtocolGeneration, address: str) -> None:
        self._workload = workload
        self._generation = generation
        self._address = address
        count = workload.partitions
        self._resources = [f"t{number}" for number in range(count)] if generation.resources else []
        partitions = [(name, 0) for name in self._resources] or [("t", number) for number in range(count)]
        self._account = RunAccount(partitions)
        self._workers: dict[str, RealWorker] = {}
        self._selector = selectors.DefaultSelector()

    def run(self) -> ComparisonResult:
        if not self._resources:
            asyncio.run(make_topic(self._address, self._workload.partitions))
        for number in range(self._workload.members):
            self._start(f"w{number}")
        self._watch_until_owned(START_S + self._workload.members)
        chapters = []
        for name, happen in (
            ("rolling restart", self._rolling_restart),
            ("crash", self._crash),
            ("scale-out", self._scale_out),
        ):
            before = asyncio.run(fetch_last_rebalance_number(self._address))
            self._account.begin_measuring(now_ms())
            happen()
            self._watch_until_owned(CALM_S)
            after = asyncio.run(fetch_last_rebalance_number(self._address))
            chapters.append(CourseChapter(name, self._account.costs(after - before, NOT_COUNTED, now_ms())))
        costs: list[RunCosts] = [chapter.costs for chapter in chapters]
        return ComparisonResult(self._generation, sum_costs(costs), tuple(chapters))

    def end(self) -> None:
        for worker in self._workers.values():
            stop_process(worker.process)
        self._selector.close()

    def _rolling_restart(self) -> None:
        for name in sorted(self._workers):
            leaver = self._workers[name]
            assert leaver.process.stdin is not None
            leaver.process.stdin.close()
            self._watch(RESTART_S)
            self._gone(leaver)
            self._start(name)
            self._watch_until_owned(BETWEEN_RESTARTS_S - RESTART_S)

    def _crash(self) -> None:
        name = max(self._workers)
        self._workers[name].process.kill()
        self._gone(self._workers[name])
        self._watch(REPLACED_S)
        self._start(name)

    def _scale_out(self) -> None:
        for number in range(self._workload.joining):
            self._start(f"x{number}")

    def _start(self, name: str) -> None:
        given = {
            "properties": {"bootstrap.servers": self._address, "client.id": name, **self._properties(name)},
            "topics": [] if self._resources else ["t"],
            "resources": self._resources,
            "leave": self._generation.leaving is LeavePolicy.LEAVE,
        }
        worker = self._workers[name] = RealWorker(name, given)
        assert worker.process.stdout is not None
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def _properties(self, name: str) -> dict[str, str]:
        own = {
            "group.id": GROUP,
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": str(HEARTBEAT_MS),
            "scheduled.rebalance.max.delay.ms": str(DELAY_MS),
            **self._generation.properties,
        }
        if self._generation.leaving is LeavePolicy.REMAIN:
            own["group.instance.id"] = name
        if self._generation.properties.get("group.protocol") == "consumer":
            # The coordinator keeps these two.
            del own["session.timeout.ms"], own["heartbeat.interval.ms"]
        return own

    def _watch_until_owned(self, seconds: float) -> None:
        """At least so long, and on a busy machine until everything has an owner and every worker something, if there
        is enough."""
        latest = time.monotonic() + seconds + LATEST_S
        self._watch(seconds)
        while not self._all_owned() and time.monotonic() < latest:
            self._watch(LOOK_S)

    def _all_owned(self) -> bool:
        shares = [len(worker.held) for worker in self._workers.values()]
        everyone = len(shares) > self._workload.partitions or all(shares)
        return everyone and sum(shares) >= self._workload.partitions

    def _watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                worker: RealWorker = key.data
                said = os.read(key.fd, PIPE_BYTES)
                if not said:
                    self._selector.unregister(key.fileobj)
                *lines, worker.unfinished = (worker.unfinished + said).split(b"\n")
                for line in lines:
                    self._note(worker, *json.loads(line))

    def _note(self, worker: RealWorker, what: str, at_ms: int, topic: str, partition: int) -> None:
        tp = (topic, partition)
        if what == "take":
            worker.held.add(tp)
            self._account.record_take(worker.name, tp, at_ms)
        else:
            worker.held.discard(tp)
            self._account.drop(worker.name, tp, at_ms)

    def _gone(self, worker: RealWorker) -> None:
        """The process is dead or about to end: nothing is worked on there any more."""
        for tp in sorted(worker.held):
            self._account.drop(worker.name, tp, now_ms())
        worker.held.clear()
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        stop_process(worker.process)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def make_topic(address: str, partitions: int) -> None:
    async with AsyncAdmin({"bootstrap.servers": address}) as admin:
        await admin.create_topic("t", partitions)


async def fetch_last_rebalance_number(address: str) -> int:
    """The number of the group's last rebalance."""
    wire = GrpcConnection(address)
    try:
        request = pb.ExplainGroupRequest(group_id=GROUP, limit=1)
        explained = await wire.call("ExplainGroup", request, pb.ExplainGroupResponse)
    finally:
        await wire.close()
    return max((rebalance.number for rebalance in explained.rebalances), default=0)
