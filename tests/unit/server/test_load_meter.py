"""The sampler of balance: what is measured in which pieces, and who is refused when there is too much of it."""

import asyncio
from collections.abc import Sequence

from structlog.testing import capture_logs

from muster.coordinator.core.control.balance.evaluation import AT_ONCE_PARTITIONS, OngoingBalance, Stage, proceed_from
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import MeasureLoad
from muster.coordinator.core.model.events import (
    AlterSettings,
    BalanceGoesOn,
    ConsumerHeartbeat,
    Event,
    LoadMeasured,
    TimerFired,
    TopicsChanged,
)
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.history import group_history
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.server.monitoring.load_meter import LoadMeter
from tests.fakes.log_extents import SaidExtents

SIZES = {"small": 40_000, "large": 45_000, "largest": 70_000}
LIMITS = Limits(consumer_assignment_interval_ms=0, consumer_session_timeout_ms=10**9, ledger_max_snapshot_bytes=1_000)


class Shards:
    """An engine of one shard."""

    shards = 1

    def __init__(self, core: Shard) -> None:
        self._core = core

    def status(self, shard: int, /) -> ShardStatus:
        return ShardStatus.ACTIVE

    def core(self, shard: int, /) -> Shard:
        return self._core


def id_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def shard_of(sizes: dict[str, int]) -> Shard:
    """One KIP-848 group of one member for each size, which reads a topic of its own name; their balance is on."""
    shard = Shard(LIMITS, 0)
    shard.step(TopicsChanged(sizes, (), {name: id_of(n) for n, name in enumerate(sizes, 1)}), 0)
    for group in sizes:
        shard.step(ConsumerHeartbeat(1, group, "m", 0, None, None, 60_000, (group,), owned={}), 0)
        shard.step(AlterSettings(1, group, {"balance": "watch"}, (), None, False, operator="op"), 0)
    return shard


def asked(shard: Shard, group: str) -> MeasureLoad:
    (found,) = shard.step(TimerFired(("balance", group), 10_000), 10_000).measures
    return found


def pieces(meter: LoadMeter, measure: MeasureLoad) -> list[LoadMeasured]:
    async def take() -> list[LoadMeasured]:
        return [piece async for piece in meter.pieces(measure)]

    return asyncio.run(take())


def test_the_largest_groups_are_refused_first_and_the_log_is_told_when_that_changes() -> None:
    assert sum(SIZES.values()) > group_history.MAX_PARTITIONS > SIZES["small"] + SIZES["large"]
    shard = shard_of(SIZES)
    looked: list[int] = []

    def ends(places: Sequence[tuple[str, int]]) -> list[int]:
        looked.append(len(places))
        return [0] * len(places)

    meter = LoadMeter(Shards(shard), SaidExtents(ends), lambda: 10_000)
    wanted = {group: asked(shard, group) for group in SIZES}
    with capture_logs() as lines:
        found = {group: pieces(meter, measure) for group, measure in wanted.items()}
        pieces(meter, wanted["largest"])
    assert {group: [piece.refused != "" for piece in told] for group, told in found.items() if len(told) == 1} == {
        "largest": [True]
    }
    assert "100000 partitions" in found["largest"][0].refused
    assert (sum(looked), max(looked)) == (SIZES["small"] + SIZES["large"], 500)
    assert [(line["groups"], line["log_level"]) for line in lines] == [(["largest"], "warning")]
    assert lines[0]["notice"].startswith("1 of the largest groups with 70000 partitions are not balanced")
    for told in found.values():
        for piece in told:
            shard.step(piece, 10_000)
    assert shard.state.balancing["largest"].refused
    assert not shard.state.balancing["small"].refused

    shard.step(AlterSettings(1, "largest", {"balance": "off"}, (), None, False, operator="op"), 10_000)
    with capture_logs() as lines:
        pieces(meter, wanted["small"])
    assert [line["notice"] for line in lines] == ["there is room for all groups again"]


def test_what_follows_of_a_sample_of_a_large_group_has_a_turn_for_each_stage() -> None:
    """Of a small one it is all done at once. An evaluation that begins meanwhile takes the place of the one before."""
    shard, done = shard_of({"g": 4}), list[str]()
    balancing = shard.state.balancing["g"]

    def stage(name: str, *rest: str) -> Stage:
        def work(group_id: str, of: OngoingBalance, step: Step) -> Stage | None:
            done.append(name)
            return stage(*rest) if rest else None

        return work

    def begin(*names: str) -> list[Event]:
        step = Step(shard.state, 0)
        proceed_from(stage(*names), "g", balancing, step)
        return step.out.chores

    balancing.partitions = AT_ONCE_PARTITIONS
    assert begin("look", "judge", "ask") == []
    assert done == ["look", "judge", "ask"]

    done.clear()
    balancing.partitions = AT_ONCE_PARTITIONS + 1
    (void,) = begin("look", "judge", "ask")
    (chore,) = begin("look again", "judge again", "ask again")
    assert done == ["look", "look again"]
    assert isinstance(void, BalanceGoesOn)
    assert shard.step(void, 0).chores == []
    (chore,) = shard.step(chore, 0).chores
    assert done == ["look", "look again", "judge again"]
    assert shard.step(chore, 0).chores == []
    assert done[-1] == "ask again"
