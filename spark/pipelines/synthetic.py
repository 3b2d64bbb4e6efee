"""Histories made from a seed: what happens to a group, and how the load lies on its partitions.

The same plan and seed give the same trace, on every machine and under any hash seed: only `Random.random` is drawn
from, and what it yields becomes whole numbers at once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from muster.spark.pipelines.trace import GroupTrace, Load, TraceMember, TraceStep

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
