"""One workload under one generation after the other: a rolling restart, a crash, a scale-out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from muster.coordinator.core.model.control_events import AskDeploy, HoldGroup
from muster.coordinator.core.model.types import Limits
from muster.workshop.lab.account import RunAccount, RunCosts
from muster.workshop.lab.clock import VirtualClock
from muster.workshop.lab.generations import HEARTBEAT_MS, SESSION_MS, LabRun, ProtocolGeneration
from muster.workshop.lab.labourer import SimulatedWorker, SteadyLoad
from muster.workshop.lab.node import GROUP, SimulatedConnection, SimulatedNode
from muster.workshop.lab.zookeeper_worker import ZookeeperRebalances

START_MS = 60_000
"""Counting begins when the group has long settled."""
CALM_MS = 120_000
"""After each chapter: long enough for every delay to be over."""
RESTART_MS, BETWEEN_RESTARTS_MS = 5_000, 20_000
DEPLOY_MS = 3_600_000
REPLACED_MS = 30_000
"""After a crash, somebody brings the worker back within this time."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`joining` workers come at once in the scale-out. The same seed gives the same run, to the last message."""

    members: int = 6
    partitions: int = 48
    joining: int = 3
    seed: int = 1
    labour: SteadyLoad = field(default_factory=SteadyLoad)


@dataclass(frozen=True, slots=True)
class CourseChapter:
    """What one part of the course cost."""

    name: str
    costs: RunCosts


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    generation: ProtocolGeneration
    total: RunCosts
    chapters: tuple[CourseChapter, ...]


def compare_generations(workload: Workload, generations: Iterable[ProtocolGeneration]) -> Iterator[ComparisonResult]:
    for generation in generations:
        yield ComparisonCourse(workload, generation).run()


class ComparisonCourse:
    """One run."""

    def __init__(self, workload: Workload, generation: ProtocolGeneration) -> None:
        self._workload = workload
        self._generation = generation
        self._clock = VirtualClock(workload.seed)
        count = workload.partitions
        topics = {f"t{number}": 1 for number in range(count)} if generation.resources else {"t": count}
        node = SimulatedNode(self._clock, topics, group_limits())
        account = RunAccount([(topic, number) for topic in topics for number in range(topics[topic])])
        self._lab = LabRun(
            self._clock, node, account, workload.labour, tuple(topics), ZookeeperRebalances(self._clock, topics)
        )
        self._workers: dict[str, SimulatedWorker] = {}
        self._incarnations = 0

    def run(self) -> ComparisonResult:
        self._assemble()
        self._clock.run(START_MS)
        self._settled("the start")
        chapters = []
        for name, happen in (
            ("rolling restart", self._rolling_restart),
            ("crash", self._crash),
            ("scale-out", self._scale_out),
        ):
            before = self._begin()
            happen()
            self._clock.run(self._clock.now_ms + CALM_MS)
            self._settled(name)
            chapters.append(CourseChapter(name, self._costs(*before)))
        return ComparisonResult(self._generation, sum_costs([chapter.costs for chapter in chapters]), tuple(chapters))

    def _assemble(self) -> None:
        for number in range(self._workload.members):
            self._clock.at(self._clock.rng.randint(0, 1_000), partial(self._start, f"w{number}"))

    def _rolling_restart(self) -> None:
        if self._generation.deploys:
            deploy = HoldGroup(0, GROUP, AskDeploy(len(self._workers)), DEPLOY_MS, None, False, "the lab")
            self._lab.node.call(SimulatedConnection(), deploy, lambda _: None)
        for name in sorted(self._workers):
            self._workers[name].close(self._generation.leaving)
            self._clock.after(RESTART_MS, partial(self._start, name))
            self._clock.run(self._clock.now_ms + BETWEEN_RESTARTS_MS)

    def _crash(self) -> None:
        name = max(self._workers)
        self._workers[name].crash()
        self._clock.after(REPLACED_MS, partial(self._start, name))

    def _scale_out(self) -> None:
        for number in range(self._workload.joining):
            self._start(f"x{number}")

    def _start(self, name: str) -> None:
        self._incarnations += 1
        worker = self._workers[name] = self._generation.make(self._lab, name, self._incarnations)
        worker.start()

    def _begin(self) -> tuple[int, int]:
        self._lab.account.begin(self._clock.now_ms)
        return self._lab.rebalances, self._lab.messages

    def _costs(self, rebalances: int, messages: int) -> RunCosts:
        lab = self._lab
        return lab.account.costs(lab.rebalances - rebalances, lab.messages - messages, self._clock.now_ms)

    def _settled(self, when: str) -> None:
        """The comparison means nothing if somebody cheats: everything is owned, once, by living workers."""
        books = self._lab.account.books
        wrong = [tp for tp, book in books.items() if len(book.holders) != 1]
        assert not wrong, f"{self._generation.name}: after {when}, {wrong} are not owned by one worker each"


def group_limits() -> Limits:
    return Limits(
        initial_rebalance_delay_ms=3_000,
        consumer_session_timeout_ms=SESSION_MS,
        consumer_heartbeat_interval_ms=HEARTBEAT_MS,
    )


def sum_costs(costs: list[RunCosts]) -> RunCosts:
    return RunCosts(
        rebalances=sum(c.rebalances for c in costs),
        stops=sum(c.stops for c in costs),
        unowned_partition_s=sum(c.unowned_partition_s for c in costs),
        longest_stop_s=max(c.longest_stop_s for c in costs),
        moved=sum(c.moved for c in costs),
        duplicates=sum(c.duplicates for c in costs),
        messages=sum(c.messages for c in costs),
    )
