"""Traces of groups without their decisions: members, subscriptions and load over time; read, written, and made from a
seed.

A backtest replays a trace. Traces are JSON lines: a head, then one line per step with its row of the load. All
partitions are on one axis: topics in the order of the head, partition p of a topic at p plus the counts of the topics
before it. A synthetic trace depends on its plan and seed only, on every machine and under any hash seed: only
`Random.random` is drawn from, and its values become whole numbers immediately.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.assignors.data.columns import Axis

# Traces
# ------

VERSION = 1
MAX_STEPS = 1_000_000
MAX_CELLS = 200_000_000
"""Steps times partitions: 1.6 GB of 64-bit numbers."""
MAX_LOAD = 10**12
"""Records of one partition at one step; sums over all partitions stay exact in 64 bits."""
MAX_LINE_CHARACTERS = 64 << 20

Load = NDArray[np.int64]


class TraceMember(NamedTuple):
    """One member over its whole life. A worker that comes back as a dynamic member is a new one."""

    id: str
    instance_id: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TraceStep:
    """What is so from `at_ms` until the next step.

    `cause` says why the group rebalances here; empty means that it does not, only the load is another one.
    `present` are numbers of members, `subscriptions` the numbers of what each of them subscribes to, `counts` the
    partitions of each topic. `lost` are (member, since when it worked on nothing) for those who went since the last
    rebalance; `silent` are members of the group that do not work: their crash is not known yet.
    """

    at_ms: int
    cause: str
    present: tuple[int, ...]
    subscriptions: tuple[int, ...]
    counts: tuple[int, ...]
    lost: tuple[tuple[int, int], ...] = ()
    silent: tuple[int, ...] = ()


@dataclass(frozen=True)
class GroupTrace:
    """A history, ready to be replayed.

    `drain_per_s` 0: a row of `load` is the lag of each partition, as it was recorded, whatever a replay decides.
    Otherwise it is what arrived in each partition since the step before, and every member works off so many records a
    second of what the replay gives it: then decisions have consequences. Partitions that do not exist have no load.
    """

    name: str
    topics: tuple[str, ...]
    counts: tuple[int, ...]
    members: tuple[TraceMember, ...]
    subscriptions: tuple[tuple[str, ...], ...]
    steps: tuple[TraceStep, ...]
    load: Load
    end_ms: int
    drain_per_s: int = 0

    def __post_init__(self) -> None:
        problem = find_problem(self)
        if problem:
            raise ValueError(f"trace {self.name!r}: {problem}")

    @cached_property
    def axis(self) -> Axis:
        return Axis.of(self.topics, dict(zip(self.topics, self.counts, strict=True)))

    @property
    def decisions(self) -> int:
        return sum(1 for step in self.steps if step.cause)

    def renamed(self, seed: int) -> "GroupTrace":
        """The same history with other member ids, as every run has them: ids are random, and ties fall by id.

        Seed 0 is the trace as it is. Static members keep their instance ids, which is what they are sorted by.
        """
        if seed == 0:
            return self
        dice = Random(seed)
        members = tuple(member._replace(id=f"{dice.getrandbits(64):016x}-{member.id}") for member in self.members)
        return replace(self, members=members)


def find_problem(trace: GroupTrace) -> str:
    """What makes this no history; empty when nothing does."""
    steps, cells = len(trace.steps), sum(trace.counts)
    if not steps:
        return "it has no steps; expected at least one rebalance"
    if steps > MAX_STEPS or steps * cells > MAX_CELLS:
        return f"{steps} steps of {cells} partitions are too many; expected at most {MAX_CELLS} cells"
    if trace.load.shape != (steps, cells):
        return f"its load is {trace.load.shape}; expected one row per step and one column per partition {steps, cells}"
    if trace.load.size and (int(trace.load.min()) < 0 or int(trace.load.max()) > MAX_LOAD):
        return f"its load goes from {trace.load.min()} to {trace.load.max()}; expected 0 to {MAX_LOAD}"
    if not 0 <= trace.drain_per_s <= MAX_LOAD:
        return f"drain_per_s is {trace.drain_per_s}; expected 0 to {MAX_LOAD}"
    if len(trace.topics) != len(trace.counts) or len(set(trace.topics)) != len(trace.topics):
        return "topics and counts do not go together; expected one count for each topic, each topic once"
    if len({member.id for member in trace.members}) != len(trace.members):
        return "two members have the same id; ids must differ"
    unknown = sorted({topic for row in trace.subscriptions for topic in row} - set(trace.topics))
    if unknown:
        return f"somebody subscribes to {unknown[0]!r}, which is none of its topics"
    return next((problem for at in range(steps) if (problem := find_step_problem(trace, at))), "")


def find_step_problem(trace: GroupTrace, at: int) -> str:
    step, members, kinds = trace.steps[at], len(trace.members), len(trace.subscriptions)
    until_ms = trace.steps[at + 1].at_ms if at + 1 < len(trace.steps) else trace.end_ms
    if until_ms < step.at_ms:
        return f"step {at} is at {step.at_ms} ms and ends at {until_ms} ms; expected steps in order of time"
    if len(step.present) != len(step.subscriptions) or len(set(step.present)) != len(step.present):
        return (
            f"step {at} lists {len(step.present)} members and {len(step.subscriptions)} subscriptions; "
            "expected each member once, with one subscription"
        )
    named = [*step.present, *step.silent, *(member for member, _ in step.lost)]
    if any(not 0 <= member < members for member in named):
        return f"step {at} names member {max(named)}; the members are 0 to {members - 1}"
    if any(not 0 <= kind < kinds for kind in step.subscriptions):
        return f"step {at} names subscription {max(step.subscriptions)}; there are 0 to {kinds - 1}"
    if len(step.counts) != len(trace.counts) or any(
        not 0 <= now <= most for now, most in zip(step.counts, trace.counts, strict=True)
    ):
        return f"step {at} has partition counts {list(step.counts)}; expected at most {list(trace.counts)}"
    if set(step.present) & {member for member, _ in step.lost}:
        return f"step {at} lists a member as present and as lost"
    return ""


class TraceHead(BaseModel):
    """The first line of a trace file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int = Field(ge=VERSION, le=VERSION)
    name: str
    topics: dict[str, int]
    members: list[list[str | None]]
    subscriptions: list[list[str]]
    end_ms: int
    drain_per_s: int


class TraceLine(BaseModel):
    """A further line: one step and its row of the load."""

    model_config = ConfigDict(extra="forbid", strict=True)

    at_ms: int
    cause: str
    present: list[int]
    subscriptions: list[int]
    counts: list[int]
    lost: list[list[int]] = []
    silent: list[int] = []
    load: list[int]


def write_lines(trace: GroupTrace) -> Iterator[str]:
    """The trace as JSON lines; the same trace has the same bytes."""
    head = {
        "version": VERSION,
        "name": trace.name,
        "topics": dict(zip(trace.topics, trace.counts, strict=True)),
        "members": [list(member) for member in trace.members],
        "subscriptions": [list(row) for row in trace.subscriptions],
        "end_ms": trace.end_ms,
        "drain_per_s": trace.drain_per_s,
    }
    yield json.dumps(head, separators=(",", ":"), ensure_ascii=False)
    for number, step in enumerate(trace.steps):
        row = {key: value for key, value in asdict(step).items() if value or key not in ("lost", "silent")}
        yield json.dumps(row | {"load": trace.load[number].tolist()}, separators=(",", ":"), ensure_ascii=False)


def parse_trace(lines: Iterable[str]) -> GroupTrace:
    """Read what `write_lines` wrote. ValueError names the line and what is wrong with it."""
    rows = iter(lines)
    head = read_line(TraceHead, next(rows, ""), 1)
    steps: list[TraceStep] = []
    load: list[list[int]] = []
    for number, text in enumerate(rows, start=2):
        if not text.strip():
            continue
        if len(steps) == MAX_STEPS:
            raise ValueError(f"line {number}: a trace has at most {MAX_STEPS} steps")
        line = read_line(TraceLine, text, number)
        if any(len(pair) != 2 for pair in line.lost):
            raise ValueError(f"line {number}: lost is {line.lost}; expected pairs of a member and a time")
        if len(line.load) != sum(head.topics.values()):
            raise ValueError(
                f"line {number}: load has {len(line.load)} numbers; expected {sum(head.topics.values())}, "
                "one per partition"
            )
        if line.load and not 0 <= min(line.load) <= max(line.load) <= MAX_LOAD:
            raise ValueError(
                f"line {number}: load goes from {min(line.load)} to {max(line.load)}; expected 0 to {MAX_LOAD}"
            )
        load.append(line.load)
        steps.append(read_step(line))
    return GroupTrace(
        name=head.name,
        topics=tuple(head.topics),
        counts=tuple(head.topics.values()),
        members=tuple(read_member_row(row) for row in head.members),
        subscriptions=tuple(tuple(row) for row in head.subscriptions),
        steps=tuple(steps),
        load=np.array(load, dtype=np.int64).reshape(len(steps), sum(head.topics.values())),
        end_ms=head.end_ms,
        drain_per_s=head.drain_per_s,
    )


def read_line(kind: Any, text: str, number: int) -> Any:
    if len(text) > MAX_LINE_CHARACTERS:
        raise ValueError(f"line {number}: {len(text)} characters; expected at most {MAX_LINE_CHARACTERS}")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the line"
        expected = "the head of a trace" if kind is TraceHead else "a step"
        raise ValueError(f"line {number}: {place}: {first['msg']}; expected {expected}") from None


def read_member_row(row: Sequence[str | None]) -> TraceMember:
    if len(row) != 3 or row[0] is None:
        raise ValueError(f"a member is {row}; expected its id, its instance id or null, and its rack or null")
    return TraceMember(row[0], row[1], row[2])


def read_step(line: TraceLine) -> TraceStep:
    return TraceStep(
        at_ms=line.at_ms,
        cause=line.cause,
        present=tuple(line.present),
        subscriptions=tuple(line.subscriptions),
        counts=tuple(line.counts),
        lost=tuple((pair[0], pair[1]) for pair in line.lost),
        silent=tuple(line.silent),
    )


def write_trace(trace: GroupTrace, path: Path) -> None:
    """As JSON lines, packed when the name ends in .gz. Raises OSError."""
    with open_trace(path, "wt") as file:
        file.writelines(line + "\n" for line in write_lines(trace))


def read_trace(path: Path) -> GroupTrace:
    """Raises OSError, and ValueError that names the file and the line."""
    try:
        with open_trace(path, "rt") as file:
            return parse_trace(read_bounded_lines(file))
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: {error}") from None


def open_trace(path: Path, mode: Literal["rt", "wt"]) -> IO[str]:
    return gzip.open(path, mode, encoding="utf-8") if path.suffix == ".gz" else path.open(mode, encoding="utf-8")


def read_bounded_lines(file: Any) -> Iterator[str]:
    """Lines, none of them read further than one may be long."""
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        yield line


# Synthetic traces
# ----------------

MINUTE_MS = 60_000
RESTART_MS = 20_000
"""A worker of a rolling deploy is away for this long."""
REPLACED_MS = 60_000
"""After a crash was noticed, somebody brings another worker."""
BURST_FACTOR = 12
WARM_S = 30
"""At the start there is as much to read as arrives in this time."""


class SyntheticPlan(BaseModel):
    """What to make. Times are virtual; `drain_per_s` is how many records a second one member works off."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scenario: str
    load: str
    members: int = Field(default=8, ge=1, le=10_000)
    topics: int = Field(default=2, ge=1, le=1_000)
    partitions: int = Field(default=24, ge=1, le=100_000)
    """Of each topic."""
    minutes: int = Field(default=120, ge=1, le=100_000)
    sample_s: int = Field(default=30, ge=1, le=3_600)
    """How often the load is looked at between rebalances."""
    skew: float = Field(default=0.8, ge=0, le=10)
    """The exponent of the zipf load: partition k gets 1/k^skew of the first one's records."""
    utilisation: float = Field(default=0.6, gt=0, le=10)
    """What arrives, as a share of what the first members can work off together."""
    drain_per_s: int = Field(default=1_000, ge=1, le=1_000_000)
    session_ms: int = Field(default=45_000, ge=1, le=3_600_000)
    """After this long without a heartbeat a crash is noticed."""

    @property
    def name(self) -> str:
        return f"{self.scenario}/{self.load}"

    def make(self, seed: int) -> GroupTrace:
        return make_trace(self, seed)


@dataclass(slots=True)
class SyntheticWorker:
    number: int
    kind: int
    crashed_at_ms: int = -1


class SyntheticHistory:
    """Writes steps down while a scenario goes on."""

    def __init__(self, plan: SyntheticPlan, seed: int) -> None:
        self.plan = plan
        self.dice = Random(f"{plan.scenario}/{plan.load}/{seed}")
        self.topics = tuple(f"topic-{number}" for number in range(plan.topics))
        self.counts = [plan.partitions] * plan.topics
        self.subscriptions = [self.topics]
        self.members: list[TraceMember] = []
        self.there: list[SyntheticWorker] = []
        self.lost: list[tuple[int, int]] = []
        self.steps: list[TraceStep] = []
        self.end_ms = plan.minutes * MINUTE_MS

    def joins(self, kind: int = 0) -> SyntheticWorker:
        """A new member, with a random id as a coordinator makes them."""
        number = len(self.members)
        self.members.append(TraceMember(f"{int(self.dice.random() * 2**48):012x}-w{number}"))
        self.there.append(SyntheticWorker(number, kind))
        return self.there[-1]

    def leaves(self, worker: SyntheticWorker, since_ms: int) -> None:
        self.there.remove(worker)
        self.lost.append((worker.number, since_ms))

    def one(self) -> SyntheticWorker:
        """One of those who work."""
        working = [worker for worker in self.there if worker.crashed_at_ms < 0]
        return working[self.below(len(working))]

    @property
    def working(self) -> int:
        return sum(1 for worker in self.there if worker.crashed_at_ms < 0)

    def below(self, limit: int) -> int:
        return int(self.dice.random() * limit)

    def step(self, at_ms: int, cause: str) -> None:
        """What is so from now on; a cause means that the group rebalances."""
        if at_ms >= self.end_ms:
            return
        self.steps.append(
            TraceStep(
                at_ms=at_ms,
                cause=cause,
                present=tuple(worker.number for worker in self.there),
                subscriptions=tuple(worker.kind for worker in self.there),
                counts=tuple(self.counts),
                lost=tuple(self.lost) if cause else (),
                silent=tuple(worker.number for worker in self.there if worker.crashed_at_ms >= 0),
            )
        )
        if cause:
            self.lost.clear()


def steady(story: SyntheticHistory) -> None:
    """Nobody comes or goes; every ten minutes the group is asked to look at its balance."""
    for at_ms in range(10 * MINUTE_MS, story.end_ms, 10 * MINUTE_MS):
        story.step(at_ms, "lag imbalance")


def rolling(story: SyntheticHistory) -> None:
    """Every half an hour all workers are restarted one by one, under new member ids."""
    for start_ms in range(5 * MINUTE_MS, story.end_ms, 30 * MINUTE_MS):
        at_ms = start_ms
        for worker in list(story.there):
            story.leaves(worker, at_ms)
            story.step(at_ms, "member left")
            story.joins()
            story.step(at_ms + RESTART_MS, "member joined")
            at_ms += 2 * RESTART_MS + story.below(RESTART_MS)


def crashes(story: SyntheticHistory) -> None:
    """A worker falls silent every now and then; the session ends, and another worker comes in its place."""
    at_ms = 0
    while at_ms < story.end_ms:
        at_ms += 3 * MINUTE_MS + story.below(9 * MINUTE_MS)
        worker = story.one()
        worker.crashed_at_ms = at_ms
        story.step(at_ms, "")
        at_ms += story.plan.session_ms
        story.leaves(worker, worker.crashed_at_ms)
        story.step(at_ms, "session expired")
        at_ms += REPLACED_MS
        story.joins()
        story.step(at_ms, "member joined")


def autoscale(story: SyntheticHistory) -> None:
    """The group grows to twice its size and shrinks again, a few workers at a time."""
    low, high = story.plan.members, 2 * story.plan.members
    at_ms, growing = 0, True
    while at_ms < story.end_ms:
        at_ms += 2 * MINUTE_MS + story.below(4 * MINUTE_MS)
        for _ in range(1 + story.below(3)):
            if growing:
                story.joins()
            elif story.working > 1:
                story.leaves(story.one(), at_ms)
        story.step(at_ms, "member joined" if growing else "member left")
        growing = story.working < high if growing else story.working <= low


def churn(story: SyntheticHistory) -> None:
    """Workers join and leave as they please."""
    at_ms, most = 0, 2 * story.plan.members
    while at_ms < story.end_ms:
        at_ms += MINUTE_MS + story.below(5 * MINUTE_MS)
        leaving = story.working > 1 and (story.working >= most or story.below(2) == 0)
        if leaving:
            story.leaves(story.one(), at_ms)
        else:
            story.joins()
        story.step(at_ms, "member left" if leaving else "member joined")


def subscriptions(story: SyntheticHistory) -> None:
    """Workers change what they want: all topics, or all but one."""
    for number in range(len(story.topics) if len(story.topics) > 1 else 0):
        story.subscriptions.append(tuple(topic for at, topic in enumerate(story.topics) if at != number))
    at_ms = 0
    while at_ms < story.end_ms:
        at_ms += 4 * MINUTE_MS + story.below(8 * MINUTE_MS)
        # The first worker wants everything throughout, so that no topic is without a reader.
        if len(story.there) > 1:
            story.there[1 + story.below(len(story.there) - 1)].kind = story.below(len(story.subscriptions))
        story.step(at_ms, "subscription changed")


def growth(story: SyntheticHistory) -> None:
    """Topics get more partitions, up to twice as many."""
    at_ms, most = 0, 2 * story.plan.partitions
    while at_ms < story.end_ms:
        at_ms += 8 * MINUTE_MS + story.below(8 * MINUTE_MS)
        topic = story.below(len(story.topics))
        story.counts[topic] = min(most, story.counts[topic] + 1 + story.below(story.plan.partitions // 2 + 1))
        story.step(at_ms, "partitions changed")


SCENARIOS: dict[str, Callable[[SyntheticHistory], None]] = {
    "steady": steady,
    "rolling": rolling,
    "crashes": crashes,
    "autoscale": autoscale,
    "churn": churn,
    "subscriptions": subscriptions,
    "growth": growth,
}


def make_trace(plan: SyntheticPlan, seed: int) -> GroupTrace:
    """Raises ValueError for a scenario or a load that there is none of."""
    check_known("scenario", plan.scenario, SCENARIOS)
    check_known("load", plan.load, LOADS)
    story = SyntheticHistory(plan, seed)
    for _ in range(plan.members):
        story.joins()
    story.step(0, "member joined")
    SCENARIOS[plan.scenario](story)
    steps = add_samples(story)
    counts = tuple(max(step.counts[topic] for step in steps) for topic in range(plan.topics))
    return GroupTrace(
        name=plan.name,
        topics=story.topics,
        counts=counts,
        members=tuple(story.members),
        subscriptions=tuple(story.subscriptions),
        steps=tuple(steps),
        load=compute_arrivals(story, steps, counts),
        end_ms=story.end_ms,
        drain_per_s=plan.drain_per_s,
    )


def check_known(what: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise ValueError(f"{word!r} is no {what}; expected one of {', '.join(known)}")


def add_samples(story: SyntheticHistory) -> list[TraceStep]:
    """The story with looks at the load in between, which change nothing."""
    out: list[TraceStep] = []
    pause_ms = story.plan.sample_s * 1000
    for number, step in enumerate(story.steps):
        until_ms = story.steps[number + 1].at_ms if number + 1 < len(story.steps) else story.end_ms
        out.append(step)
        times = range(step.at_ms + pause_ms, until_ms, pause_ms)
        out += [TraceStep(at, "", step.present, step.subscriptions, step.counts, (), step.silent) for at in times]
    return out


def compute_arrivals(story: SyntheticHistory, steps: list[TraceStep], counts: tuple[int, ...]) -> Load:
    """What arrives in each partition between a step and the one before it."""
    size = sum(counts)
    per_s = int(story.plan.utilisation * story.plan.drain_per_s * story.plan.members)
    sofar = LOADS[story.plan.load](story, size, per_s)
    times = np.array([step.at_ms for step in steps], dtype=np.int64)
    load = np.zeros((len(steps), size), dtype=np.int64)
    for place in range(size):
        total = sofar(place, times)
        load[1:, place] = np.diff(total)
        load[0, place] = sofar(place, np.array([WARM_S * 1000], dtype=np.int64))[0]
    for number, step in enumerate(steps):
        start = 0
        for most, count in zip(counts, step.counts, strict=True):
            load[number, start + count : start + most] = 0
            start += most
    return load


RecordsSoFar = Callable[[int, Load], Load]
"""(partition, times in ms) -> records that arrived since time 0."""


def even(story: SyntheticHistory, size: int, per_s: int) -> RecordsSoFar:
    return arrive_steadily([max(1, per_s // size)] * size)


def zipf(story: SyntheticHistory, size: int, per_s: int) -> RecordsSoFar:
    """A few partitions get most of the records."""
    weights = [1.0 / (rank + 1) ** story.plan.skew for rank in range(size)]
    whole = sum(weights)
    rates = [max(1, int(per_s * weight / whole)) for weight in weights]
    for last in range(size - 1, 0, -1):
        other = story.below(last + 1)
        rates[last], rates[other] = rates[other], rates[last]
    return arrive_steadily(rates)


def arrive_steadily(rates: list[int]) -> RecordsSoFar:
    def sofar(place: int, times: Load) -> Load:
        return times * rates[place] // 1000

    return sofar


def bursty(story: SyntheticHistory, size: int, per_s: int) -> RecordsSoFar:
    """Every partition has quiet times and short bursts, at times of its own."""
    quiet = max(1, per_s // (3 * size))
    bursts: list[list[tuple[int, int]]] = []
    for _ in range(size):
        at_ms, mine = 0, []
        while at_ms < story.end_ms:
            at_ms += 5 * MINUTE_MS + story.below(25 * MINUTE_MS)
            length_ms = MINUTE_MS + story.below(4 * MINUTE_MS)
            mine.append((at_ms, at_ms + length_ms))
            at_ms += length_ms
        bursts.append(mine)

    def sofar(place: int, times: Load) -> Load:
        inside = times * 0
        for start_ms, end_ms in bursts[place]:
            inside = inside + np.clip(times - start_ms, 0, end_ms - start_ms)
        return (times * quiet + inside * quiet * (BURST_FACTOR - 1)) // 1000

    return sofar


LOADS: dict[str, Callable[[SyntheticHistory, int, int], RecordsSoFar]] = {"even": even, "zipf": zipf, "bursty": bursty}
