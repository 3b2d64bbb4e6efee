"""Delays of delayed groups (KIP-415) as older versions recorded them: by their end alone."""

import pytest

from muster.coordinator.core.model.records import DelayStored, RebalanceForgotten
from tests.support.stories.script import Stage

JOIN = 'join g a owned=r-0 reason="the coordinator was restarted"'


def delayed_group() -> Stage:
    """Its delay of five minutes began at 7,206,000 ms, with plan 2."""
    stage = Stage()
    for command in (
        ["advance 2h"],
        ["given g session=1200000 rebalance=20000 protocols=delayed topics=r,s", "a: r-0", "b: s-0"],
        ["leave g b"],
        ["join g a owned=r-0"],
        ["sync g a state=lost:s delay=300s", "a: r-0"],
    ):
        stage.run(command)
    kept = stage.shard.state.ledgers["g"].delay
    assert kept is not None
    assert kept.delay_ms == 300_000
    stage.shard.apply(DelayStored("g", kept.leader_state, kept.until_ms))
    stage.records.append(DelayStored("g", kept.leader_state, kept.until_ms))
    return stage


def delay_left(stage: Stage) -> str:
    (line,) = stage.run([JOIN])
    return line.split("delay left ")[1]


def test_with_the_clock_as_it_was_it_ends_when_the_record_says() -> None:
    stage = delayed_group()
    stage.run(["advance 60s"])
    stage.run(["reload"])
    assert delay_left(stage) == "240000ms"


@pytest.mark.parametrize("known", [True, False])
def test_with_the_clock_set_back_it_lasts_no_longer_than_it_was_meant_to(known: bool) -> None:
    stage = delayed_group()
    if not known:
        for number in list(stage.shard.state.ledgers["g"].entries):
            stage.shard.apply(RebalanceForgotten("g", number))
            stage.records.append(RebalanceForgotten("g", number))
    stage.run(["advance 60s"])
    stage.run(["clock back=1h"])
    assert delay_left(stage) == "300000ms"
    stage = delayed_group()
    stage.run(["clock back=1h"])
    stage.run(["advance 120s"])
    assert delay_left(stage) == "180000ms"
