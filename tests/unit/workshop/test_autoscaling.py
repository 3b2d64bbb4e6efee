"""The simulated deployment: what turns it around, under KEDA's Kafka rules and under ours, on the same loads."""

import json

import pytest

from muster.cli.main import main
from muster.workshop.lab.autoscaling import MUSTER, WriteLoad, keda_trigger, make_loads, run_deployment

LOADS = {trace.name: trace for trace in make_loads(1)}


@pytest.mark.parametrize("name", LOADS)
def test_by_rates_a_load_turns_nobody_around_more_than_once_in_half_an_hour(name: str) -> None:
    found = run_deployment(LOADS[name], MUSTER)
    assert found.reversals_30min <= 1
    assert found.behind_s < 60


@pytest.mark.parametrize("seed", range(2, 8))
def test_whatever_the_noise(seed: int) -> None:
    (noise,) = (trace for trace in make_loads(seed) if trace.name == "noise")
    assert run_deployment(noise, MUSTER).reversals_30min <= 1


@pytest.mark.parametrize("name", ["load that doubles", "bursts", "noise"])
def test_keda_s_kafka_rules_turn_around_on_the_same_load_or_let_it_wait(name: str) -> None:
    """As documented: there is no threshold that does neither."""
    ours = run_deployment(LOADS[name], MUSTER)
    for threshold in (1_000, 5_000, 30_000):
        theirs = run_deployment(LOADS[name], keda_trigger(threshold))
        assert theirs.reversals_30min > ours.reversals_30min
        assert theirs.peak_lag > ours.peak_lag


def test_a_load_that_goes_leaves_nothing_running_for_long() -> None:
    found = run_deployment(WriteLoad("gone", 7_200, lambda at: 800.0 if at < 1_800 else 0.0), MUSTER)
    assert max(found.replicas) >= 8
    assert found.replicas[-1] == 1


def test_the_command_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "scaler", "--lag-threshold", "1000", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 8
    assert {row["rules"] for row in rows} == {"kafka, lagThreshold 1000", "drainTargetSeconds 120"}
