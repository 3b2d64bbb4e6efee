"""The lab: exact, fair, and true to what each generation promises."""

from pathlib import Path

import pytest

from muster.cli.common.output import plain_table
from muster.cli.workshop import COMPARISON_COLUMNS, comparison_rows
from muster.workshop.lab.comparison import (
    ComparisonResult,
    Workload,
    compare_generations,
    draw_comparison,
)
from muster.workshop.lab.generations import BY_NAME, GENERATIONS
from muster.workshop.lab.simulated_worker import RunAccount

SMALL = Workload(members=3, partitions=9, joining=1)
PAGE = Path(__file__).parents[3] / "docs" / "protocol" / "compare.md"


@pytest.fixture(scope="module")
def small() -> dict[str, ComparisonResult]:
    return {result.generation.name: result for result in compare_generations(SMALL, GENERATIONS)}


@pytest.fixture(scope="module")
def whole() -> list[ComparisonResult]:
    return list(compare_generations(Workload(), GENERATIONS))


def test_every_generation_gets_through_the_course(small: dict[str, ComparisonResult]) -> None:
    assert list(small) == list(BY_NAME)
    for result in small.values():
        assert [chapter.name for chapter in result.chapters] == ["rolling restart", "crash", "scale-out"]
        assert result.total.messages > 0


def test_the_same_seed_gives_the_same_run_and_another_seed_another(small: dict[str, ComparisonResult]) -> None:
    generation = BY_NAME["kip848-pushed"]
    again = next(compare_generations(SMALL, [generation]))
    assert again == small[generation.name]
    other = next(compare_generations(Workload(members=3, partitions=9, joining=1, seed=2), [generation]))
    assert other.total != again.total


def test_static_members_restart_without_a_rebalance(small: dict[str, ComparisonResult]) -> None:
    restart = small["static"].chapters[0].costs
    assert (restart.rebalances, restart.moved) == (0, 0)
    assert small["eager"].chapters[0].costs.rebalances >= 2 * SMALL.members


def test_a_deploy_moves_nothing_between_members_that_stay(small: dict[str, ComparisonResult]) -> None:
    told, untold = small["kip848-deploy"].chapters[0].costs, small["kip848"].chapters[0].costs
    assert told.moved == 0 < untold.moved


def test_a_sticky_assignor_moves_less(whole: list[ComparisonResult]) -> None:
    total = {result.generation.name: result.total for result in whole}
    assert total["eager-sticky"].moved < total["eager"].moved / 2
    assert total["cooperative"].moved == total["eager-sticky"].moved


def test_a_lost_worker_costs_a_delayed_group_no_moves(small: dict[str, ComparisonResult]) -> None:
    assert small["delayed"].chapters[1].costs.moved == 0
    assert small["delayed"].chapters[1].costs.longest_stop_s > small["cooperative"].chapters[1].costs.longest_stop_s


@pytest.mark.parametrize(("pushed", "polled"), [("pushed", "cooperative"), ("kip848-pushed", "kip848")])
def test_who_is_told_is_back_ten_times_sooner(whole: list[ComparisonResult], pushed: str, polled: str) -> None:
    scale_out = {result.generation.name: result.chapters[2].costs for result in whole}
    assert 10 * scale_out[pushed].unowned_partition_s < scale_out[polled].unowned_partition_s
    assert 10 * scale_out[pushed].longest_stop_s < scale_out[polled].longest_stop_s


def test_the_page_shows_what_the_lab_finds(whole: list[ComparisonResult]) -> None:
    page = PAGE.read_text()
    for chapters in (False, True):
        table = plain_table([row for result in whole for row in comparison_rows(result, chapters)], COMPARISON_COLUMNS)
        assert table.rstrip() in page, "the page is stale: paste what `muster lab compare [--chapters]` prints"


def test_the_account_counts_gaps_moves_and_repeated_work() -> None:
    one = ("t", 0)
    account = RunAccount([one, ("t", 1)])
    account.begin_measuring(1_000)
    account.record_take("a", one, 1_500)
    account.work(one, 0, 10)
    account.drop("a", one, 4_000)
    account.record_take("b", one, 6_000)
    account.work(one, 4, 10)
    costs = account.costs(rebalances=2, messages=7, now_ms=7_000)
    assert (costs.stops, costs.moved, costs.duplicates) == (1, 1, 6)
    assert costs.unowned_partition_s == pytest.approx(0.5 + 2.0 + 6.0)
    assert costs.longest_stop_s == pytest.approx(6.0)


def test_two_holders_at_once_leave_no_gap() -> None:
    account = RunAccount([("t", 0)])
    account.begin_measuring(0)
    account.record_take("a", ("t", 0), 0)
    account.record_take("b", ("t", 0), 100)
    account.drop("a", ("t", 0), 200)
    assert account.costs(0, 0, 300).unowned_partition_s == 0
    assert not account.unowned


def test_the_chart_is_the_same_for_the_same_figures(small: dict[str, ComparisonResult], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "two.svg"):
        draw_comparison(list(small.values()), tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    assert "partition-seconds unowned" in drawn
    assert "kip848-pushed" in drawn
