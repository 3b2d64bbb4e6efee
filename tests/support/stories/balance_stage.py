"""What stories can say of load: `flow`. Measurements that a group asks for are answered from it, and so are the plans
that its balance asks for, unless `planner later` was said.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import Effects, MeasureLoad
from muster.coordinator.core.model.plan import PlanRequest, compute_plan
from tests.support.stories.story import pairs


@dataclass
class Flow:
    """What has been written to and read of one topic, and how fast that goes on since `since_ms`."""

    since_ms: int
    written: list[float]
    read: list[float]
    """Records a second."""
    ends: list[float] = field(default_factory=list)
    committed: list[float] = field(default_factory=list)

    def until(self, now_ms: int) -> None:
        seconds, self.since_ms = (now_ms - self.since_ms) / 1000, now_ms
        self.ends = [end + rate * seconds for end, rate in zip(self.ends, self.written, strict=True)]
        behind = zip(self.committed, self.read, self.ends, strict=True)
        self.committed = [min(at + rate * seconds, end) for at, rate, end in behind]


class BalanceStage:
    """Mixed into `Stage`, which knows the shard and the clock."""

    shard: Any
    now_ms: int
    slow: bool
    step: Any
    obeyed: Any

    def __init__(self) -> None:
        self.flows: dict[str, dict[str, Flow]] = {}
        self.measures: list[MeasureLoad] = []
        self.brought: list[events.Event] = []
        """Answers to what the last step asked for."""

    def do_flow(self, words: list[str], lines: list[str]) -> Iterator[str]:
        """flow GROUP, and below it a line for each topic: TOPIC RATE,RATE,... [read=RATE,RATE,...] in records a second.

        What is not said to be read is read as it is written. `flow GROUP nothing`: measurements are not answered.
        """
        group = words[0]
        former = self.flows.pop(group, {})
        for line in lines:
            topic, rates, *more = line.split()
            written = [float(rate) for rate in rates.split(",")]
            said = pairs(more)
            read = [float(rate) for rate in said["read"].split(",")] if "read" in said else written
            flow = former.get(topic) or Flow(self.now_ms, [], [])
            flow.until(self.now_ms)
            size = len(written)
            flow.ends = (flow.ends + [0.0] * size)[:size]
            flow.committed = (flow.committed + [0.0] * size)[:size]
            flow.written, flow.read = written, read
            self.flows.setdefault(group, {})[topic] = flow
        yield "ok"

    def do_measured(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """measured GROUP refused=WHY: the answer to the last measurement that was asked for."""
        asked = next(each for each in reversed(self.measures) if each.group_id == words[0])
        why = pairs(words[1:])["refused"]
        event = events.LoadMeasured(words[0], asked.serial, at_ms=self.now_ms, last=True, refused=why)
        yield from self.obeyed(self.step(event)) or ["quiet"]

    def do_loads(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """What is known of the group's balance."""
        balancing = self.shard.state.balancing.get(words[0])
        if balancing is None:
            yield "off"
            return
        told = f"{balancing.rules.mode}: {balancing.patience.rounds} of {balancing.rules.rounds} rounds"
        yield told + (f", refused: {balancing.refused}" if balancing.refused else "")

    def measurements(self, effects: Effects) -> None:
        """Answer what this step asks the edge for."""
        self.measures += effects.measures
        for asked in effects.measures:
            if flows := self.flows.get(asked.group_id):
                self.brought.append(self.sample(asked, flows))
        self.brought += [
            events.Planned(asked.group_id, asked.epoch, compute_plan(asked))
            for asked in effects.plans
            if self.of_balance(asked) and not self.slow
        ]

    def of_balance(self, asked: PlanRequest) -> bool:
        balancing = self.shard.state.balancing.get(asked.group_id)
        return balancing is not None and bool(balancing.asked == asked.epoch)

    def sample(self, asked: MeasureLoad, flows: dict[str, Flow]) -> events.LoadMeasured:
        rows = []
        for topic, count in asked.topics.items():
            flow = flows[topic]
            flow.until(self.now_ms)
            ends, committed = (flow.ends + [0.0] * count)[:count], (flow.committed + [0.0] * count)[:count]
            rows.append((topic, 0, tuple(int(end) for end in ends), tuple(int(at) for at in committed)))
        return events.LoadMeasured(asked.group_id, asked.serial, tuple(rows), self.now_ms, last=True)
