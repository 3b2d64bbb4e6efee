"""Seeded transactions break no rule, a seed is one run under any hash seed, and each rule can be broken."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.transactions.mutants import MUTANTS, SOUND
from tests.sim.transactions.world import Options, run_seed

pytestmark = pytest.mark.sim

FEW = 3
MANY = 16
ROOT = Path(__file__).parents[3]

SEEDS_PER_MUTANT = 200
CAUGHT_BY = {
    "equal marker epoch ends a transaction": 14,
    "markers of an earlier life": 17,
    "no gate": 41,
    "overtaken requests are performed": 169,
    "the fence is given to a client": 12,
    "any generation may commit": 6,
    "positions let in by a shard that is lost": 14,
    "overtaken positions are taken": 14,
    "open positions are not looked for": 164,
}
"""The seed to begin with, where the first ones catch nothing. It is only a hint."""

WANTED = {
    *(f"killed in {state}" for state in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort")),
    *(f"killed in {state}" for state in ("CompleteCommit", "CompleteAbort")),
    *(f"level {level} {end}" for level in (0, 2) for end in ("commit 0", "abort 0", "commit 90", "abort 90")),
    *("node killed", "power lost", "shard dropped", "client killed", "second instance", "client frozen"),
    *("message held back", "request overtaken by its repetition", "answer lost", "connection closed"),
    *("batch given up", "producer id wanted", "orphan TAKEN", "orphan joins", "late marker"),
    *("no producer ids", "level changed at a restart", "retention over an open transaction"),
    *(f"topic deleted in {state}" for state in ("Ongoing", "PrepareCommit", "PrepareAbort")),
    *(f"killed behind the record of {state}" for state in ("Ongoing", "PrepareCommit", "PrepareAbort")),
    *(f"killed behind the record of {state}" for state in ("CompleteCommit", "CompleteAbort")),
    *(f"killed behind {step}" for step in ("data", "positions", "a marker", "a marker of positions")),
    *("operator's delete while positions wait", "operator's forget while positions wait", "position expired"),
    *("position counts", "position dropped", "told unstable", "position waited for", "inputs consumed"),
    *(f"positions {code}" for code in ("NONE", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "INVALID_TXN_STATE")),
}


def checked(seed: int, kind: str) -> Counter[str]:
    run = run_seed(seed, SOUND[kind])
    how = f"python -m tests.sim.transactions --kind {kind!r} --seed {seed} --trace trace.txt"
    assert not run.violation, f"{run.violation}\nrepeat: {how}"
    return run.met


@pytest.mark.parametrize("kind", SOUND)
def test_a_few_runs_break_nothing(kind: str) -> None:
    met = sum((checked(seed, kind) for seed in range(FEW)), Counter[str]())
    assert met.total() > 100


@pytest.mark.timeout(600)
def test_many_runs_break_nothing_and_meet_everything() -> None:
    met = sum((checked(FEW + seed, kind) for kind in SOUND for seed in range(MANY)), Counter[str]())
    assert {what for what in WANTED if not met[what]} == set()


def violation_of(options: Options, first: int) -> str:
    runs = (run_seed(first + more, options) for more in range(SEEDS_PER_MUTANT))
    return next((run.violation for run in runs if run.violation), "")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_can_be_broken(mutant: str) -> None:
    assert violation_of(MUTANTS[mutant], CAUGHT_BY.get(mutant, 0))


def test_a_seed_is_one_run_under_any_hash_seed() -> None:
    said = []
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [
                sys.executable,
                "-c",
                "from tests.sim.transactions.world import run_seed; print([run_seed(s).digest for s in (3, 11)])",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(ran.stdout)
    assert len(said[0]) > 100
    assert said[0] == said[1]


def test_different_seeds_are_different_runs() -> None:
    assert run_seed(3).digest != run_seed(4).digest
