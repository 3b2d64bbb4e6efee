"""One workload under one generation of the protocol after the other: a rolling restart, a crash, a scale-out.

Everything runs in virtual time; the same seed gives the same run, to the last message. `joins` measures what one
more member costs a settled group, by the size of the group. The chart has one panel per measure and one bar per
generation; it needs the extra `lab`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from muster.coordinator.core.model.events import AskDeploy, HoldGroup
from muster.coordinator.core.model.types import Limits
from muster.workshop.lab.generations import HEARTBEAT_MS, SESSION_MS, LabRun, ProtocolGeneration
from muster.workshop.lab.simulated_node import GROUP, SimulatedConnection, SimulatedNode, VirtualClock
from muster.workshop.lab.simulated_worker import RunAccount, RunCosts, SimulatedWorker, SteadyLoad
from muster.workshop.lab.zookeeper_worker import ZookeeperRebalances

# The course
# ----------

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
            before = self._begin_measuring()
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

    def _begin_measuring(self) -> tuple[int, int]:
        self._lab.account.begin_measuring(self._clock.now_ms)
        return self._lab.rebalances, self._lab.messages

    def _costs(self, rebalances: int, messages: int) -> RunCosts:
        lab = self._lab
        return lab.account.costs(lab.rebalances - rebalances, lab.messages - messages, self._clock.now_ms)

    def _settled(self, when: str) -> None:
        """The comparison means nothing if somebody cheats: everything is owned, once, by living workers."""
        accounts = self._lab.account.accounts
        wrong = [tp for tp, account in accounts.items() if len(account.holders) != 1]
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


# One more member
# ---------------

WINDOW_MS = 60_000
"""Messages are counted over such a time, before the join and after it."""
PARTITIONS = 200
"""Enough for the largest group to have something to share."""


@dataclass(frozen=True, slots=True)
class JoinCosts:
    """One member more. `until_owned_s`: until the last partition that stopped was owned again.

    `woken` counts words that nobody had asked for: watches that fired, or what a coordinator pushed. `messages` are
    those beyond what the group sends in the same time when nothing happens.
    """

    generation: str
    members: int
    until_owned_s: float
    stops: int
    unowned_partition_s: float
    woken: int
    messages: int


def measure_joins(
    sizes: Sequence[int], generations: Iterable[ProtocolGeneration], seed: int = 1
) -> Iterator[JoinCosts]:
    for generation in generations:
        for size in sizes:
            yield JoinCourse(generation, size, seed).run()


class JoinCourse(ComparisonCourse):
    """A course of one event."""

    def __init__(self, generation: ProtocolGeneration, members: int, seed: int) -> None:
        super().__init__(Workload(members=members, partitions=PARTITIONS, joining=1, seed=seed), generation)
        self._members = members

    def run(self) -> JoinCosts:  # type: ignore[override]
        clock, lab = self._clock, self._lab
        self._assemble()
        clock.run(START_MS + CALM_MS)
        self._settled("the start")
        quiet = lab.messages
        clock.run(clock.now_ms + WINDOW_MS)
        quiet = lab.messages - quiet
        before, woken, started_ms = self._begin_measuring(), lab.woken, clock.now_ms
        self._scale_out()
        clock.run(started_ms + WINDOW_MS)
        self._settled("the join")
        costs = self._costs(*before)
        taken_ms = max(account.taken_at_ms for account in lab.account.accounts.values())
        return JoinCosts(
            self._generation.name,
            self._members,
            max(0, taken_ms - started_ms) / 1000,
            costs.stops,
            costs.unowned_partition_s,
            lab.woken - woken,
            max(0, costs.messages - quiet),
        )


# The chart
# ---------

ROWS, COLUMNS = 2, 4
BAR, CHAPTERS = 0.7, ("#4878a8", "#d1605e", "#85b66f")
"""Height of a bar, and the colours of the course's chapters in order."""


class ComparisonPanel(NamedTuple):
    """A field of `Costs` and its title. `stacked`: the chapters add up to the whole."""

    field: str
    title: str
    stacked: bool = True


PANELS = (
    ComparisonPanel("rebalances", "rebalances"),
    ComparisonPanel("stops", "times that a partition stopped"),
    ComparisonPanel("unowned_partition_s", "partition-seconds unowned"),
    ComparisonPanel("longest_stop_s", "longest stop of a partition, s", stacked=False),
    ComparisonPanel("moved", "partitions moved"),
    ComparisonPanel("duplicates", "records worked on twice"),
    ComparisonPanel("messages", "messages sent"),
)


def draw_comparison(results: Sequence[ComparisonResult], path: Path) -> None:
    """Write the chart; the suffix of the path chooses the format (svg, png, pdf). Raises OSError."""
    import matplotlib
    from matplotlib.figure import Figure

    # The same results give the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "muster", "svg.fonttype": "none"}):
        figure = Figure(figsize=(14, 3.3 + 0.5 * len(results)), layout="constrained")
        axes: Any = figure.subplots(ROWS, COLUMNS, sharey=True)
        for axis, panel in zip(axes.flat, PANELS, strict=False):
            draw_panel(axis, panel, results)
        spare = axes.flat[len(PANELS)]
        spare.axis("off")
        spare.legend(*axes.flat[0].get_legend_handles_labels(), loc="center")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def draw_panel(axis: Any, panel: ComparisonPanel, results: Sequence[ComparisonResult]) -> None:
    names = [result.generation.name for result in results]
    start = [0.0] * len(results)
    for number, colour in enumerate(CHAPTERS):
        values = [float(getattr(result.chapters[number].costs, panel.field)) for result in results]
        label = results[0].chapters[number].name
        if panel.stacked:
            axis.barh(names, values, BAR, left=start, color=colour, label=label)
            start = [left + value for left, value in zip(start, values, strict=True)]
        else:
            places = [place + (number - 1) * BAR / len(CHAPTERS) for place in range(len(results))]
            axis.barh(places, values, BAR / len(CHAPTERS), color=colour, label=label)
    axis.set_title(panel.title, fontsize="medium")
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
