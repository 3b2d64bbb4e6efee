"""Positions in transactions over a simulated cluster: of workers that read and write, and of groups without members."""

from collections import Counter

import pytest

from tests.sim.replication.run import run_seed
from tests.sim.replication.weather import Weather

pytestmark = pytest.mark.sim

WORKERS = Weather(lasts_ms=8_000, fault_every_ms=2_000, workers=3, session_ms=1_500, move_rate=0.1)
POSITIONS = Weather(lasts_ms=8_000, fault_every_ms=2_000, ids=3, positions=True, move_rate=0.1)
KINDS = {"workers": WORKERS, "positions": POSITIONS}
MANY = range(100, 106)

WANTED = {
    "workers": ("inputs consumed", "position dropped"),
    "positions": ("position counts", "position dropped", "told unstable", "operator's delete: NONE"),
}
MOVED = ("coordinators of groups gone behind positions", "shards loaded while positions wait", "shards kept ready")


def checked(kind: str, seed: int) -> Counter[str]:
    result = run_seed(seed, KINDS[kind])
    assert not result.violation, f"{kind}, seed {seed}: {result.violation}"
    return Counter(result.census)


def test_inputs_are_consumed_exactly_once_while_coordinators_move_and_a_run_is_the_same_twice() -> None:
    result = run_seed(1, WORKERS)
    assert not result.violation
    assert result.census["inputs consumed"] >= 8
    assert result.census["positions of transactions that count"] >= 8
    assert run_seed(1, WORKERS).digest == result.digest


def test_positions_count_with_their_transactions_while_coordinators_move() -> None:
    result = run_seed(3, POSITIONS)
    assert not result.violation
    assert result.census["positions of transactions that count"] > 5
    assert result.census["told unstable"] > 0
    assert result.census["shards loaded while positions wait"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_many_clusters_keep_positions_right_and_meet_everything(kind: str) -> None:
    met = sum((checked(kind, seed) for seed in MANY), Counter[str]())
    assert {what for what in (*MOVED, *WANTED[kind]) if not met[what]} == set()
