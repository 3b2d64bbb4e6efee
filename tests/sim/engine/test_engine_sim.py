"""Seeds of three nodes over one Kafka, and mutants: each by the seed, or the story, that catches it."""

from collections.abc import Callable

import pytest

from tests.sim.engine.checkers import Violation
from tests.sim.engine.mutants import MUTANTS
from tests.sim.engine.world import run_seed
from tests.unit.ownership import test_taking as stories


@pytest.mark.parametrize("seed", [0, 1657])
def test_three_nodes_in_bad_weather(seed: int) -> None:
    """1657 was found by it: all ended between two rounds, and came back to a map in which two shards were nobody's."""
    result = run_seed(seed)
    assert not result.violation
    assert result.census["produce 0"] > 100
    assert result.census["looks"] > 20


def test_the_same_seed_is_the_same_run() -> None:
    assert run_seed(3, duration_ms=20_000) == run_seed(3, duration_ms=20_000)


@pytest.mark.parametrize(
    ("mutant", "seed"),
    [
        ("no owner record", 3),
        ("replay to the end as it was before the owner record", 6),
        ("lease from receipt", 53),
        ("marker ignored", 0),
        ("sequence from 1", 5),
    ],
)
def test_a_mutant_is_caught_by_a_seed(mutant: str, seed: int) -> None:
    with MUTANTS[mutant]():
        assert run_seed(seed).violation


@pytest.mark.parametrize(
    ("mutant", "story"),
    [
        ("F6's wait left out", stories.test_f6_what_the_wait_is_for),
        ("voids applied", stories.test_f6_where_nobody_is_fenced_the_owner_waits_and_reads_what_came_behind),
        (
            "the owner record itself is refreshed",
            stories.test_f6_an_owner_that_writes_nothing_is_not_forgotten_and_its_log_stays_whole_when_cleaned,
        ),
    ],
)
def test_a_mutant_is_caught_by_a_story(mutant: str, story: Callable[[], None]) -> None:
    with MUTANTS[mutant](), pytest.raises((AssertionError, Violation)):
        story()
