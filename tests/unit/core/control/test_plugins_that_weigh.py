"""Which plugins take loads, the rules are told with what was measured: they look for no class."""

from dataclasses import replace

import pytest

from muster.assignors import registry
from muster.assignors.api import Assignor
from muster.coordinator.core.model.events import (
    AlterSettings,
    ConsumerHeartbeat,
    LoadMeasured,
    Planned,
    TimerFired,
    TopicsChanged,
)
from muster.coordinator.core.model.plan import Plan, PlanRequest, compute_plan
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.shapes import OWN_OPTIONS
from muster.coordinator.core.shard import Shard
from muster.coordinator.server.monitoring.load_meter import LoadMeter
from tests.fakes.log_extents import SaidExtents
from tests.support.plugins import Deals
from tests.unit.server.test_load_meter import Shards, pieces

HERE = __name__
Weighing = tuple[tuple[str, tuple[str, ...]], ...]


class Weighs(Deals):
    """It takes loads and what balance hands in; of the rest it knows one option."""

    name = "weighs"
    wants_lags = True
    options = (*OWN_OPTIONS, "colour")


class Half(Deals):
    """It takes loads, and cannot be told when a move pays."""

    name = "half"
    wants_lags = True
    options = ("colour",)


WORDS = (f"{HERE}:Weighs", f"{HERE}:Half", "tests.support.plugins:Deals", "no.such:Plugin")
TOLD: Weighing = ((WORDS[0], Weighs.options),)


class Group:
    """One of KIP-848, with an assignor of its own; its balance acts. Time passes by the sample."""

    def __init__(self, word: str) -> None:
        self.asked: list[PlanRequest] = []
        limits = Limits(consumer_assignment_interval_ms=0, consumer_session_timeout_ms=10**9, remote_assignors=WORDS)
        self.shard = Shard(limits, 0)
        self.shard.state.planner = self.plan
        self.now_ms = 0
        self.shard.step(TopicsChanged({"t": 4}, (), {"t": bytes(15) + b"\1"}), 0)
        said = {"assignor": word, "assignor.options": {"colour": "red"}, "balance": "act"}
        tried = self.shard.step(AlterSettings(1, "g", said, (), None, False, operator="op"), 0).plans
        for request in tried:
            if isinstance(request, PlanRequest):
                self.shard.step(Planned(request.group_id, request.epoch, self.plan(request), trial=True), 0)
        self.enter("a")

    def plan(self, request: PlanRequest) -> Plan:
        self.asked.append(request)
        return compute_plan(replace(request, assignor="uniform", snapshot=replace(request.snapshot, options={})))

    def enter(self, member: str) -> None:
        joins = ConsumerHeartbeat(1, "g", member, 0, None, None, 60_000, ("t",), owned={})
        self.shard.step(joins, self.now_ms)

    def measured(self, weighing: Weighing) -> None:
        self.now_ms += 10_000
        (asked,) = self.shard.step(TimerFired(("balance", "g"), self.now_ms), self.now_ms).measures
        rows = (("t", 0, (self.now_ms, 1, 1, 1), (self.now_ms, 1, 1, 1)),)
        told = LoadMeasured("g", asked.serial, rows, self.now_ms, last=True, weighing=weighing)
        self.shard.step(told, self.now_ms)


@pytest.mark.parametrize(
    ("word", "told", "assignor", "option"),
    [
        pytest.param(WORDS[0], TOLD, WORDS[0], {"colour": "red"}, id="it weighs"),
        pytest.param(
            WORDS[1],
            TOLD,
            "lag-sticky",
            {"dampening": 1.0, "imbalance.tolerance": pytest.approx(0.01)},
            id="it does not",
        ),
    ],
)
def test_a_plan_is_made_by_the_groups_plugin_if_that_is_told_to_weigh(
    word: str, told: Weighing, assignor: str, option: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, target: str) -> Assignor:
        assert name in registry.BUILT_IN, f"the rules looked for {target}"
        return found(name, target)

    found = registry._load
    monkeypatch.setattr(registry, "_load", load)
    group = Group(word)
    group.measured(told)
    group.measured(told)
    group.enter("b")
    snapshot = group.asked[-1].snapshot
    assert group.asked[-1].assignor == snapshot.assignor == assignor
    assert snapshot.lags is not None
    assert snapshot.lags["t"][0] > snapshot.lags["t"][1]
    own = {"min.gain", "cooldown.ms", "moved.at.ms", "now.ms"}
    assert own < snapshot.options.keys()
    assert {name: value for name, value in snapshot.options.items() if name not in own} == option


def test_the_sampler_tells_which_plugins_weigh() -> None:
    """Of those that the node may run; one that cannot be found weighs nothing."""
    group = Group(WORDS[0])
    (asked,) = group.shard.step(TimerFired(("balance", "g"), 10_000), 10_000).measures
    meter = LoadMeter(Shards(group.shard), SaidExtents(lambda places: [0] * len(places)), lambda: 10_000)
    *others, last = pieces(meter, asked)
    assert last.last
    assert dict(last.weighing)[WORDS[0]] == Weighs.options
    assert not {WORDS[1], WORDS[2], WORDS[3]} & dict(last.weighing).keys()
    assert not any(piece.weighing for piece in others)
