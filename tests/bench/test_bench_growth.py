"""`muster bench growth` runs its whole course in miniature, and its page says what bent and what was left out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.workshop.bench import growth_page, growth_suite
from muster.workshop.bench import growth_suite as course
from muster.workshop.bench.growth_suite import GRPC, KAFKA, GrowthCell, PhaseCost, all_cells, slice_of_group
from muster.workshop.bench.processes import BenchFailed, Stopwatch

SMALL, LARGE = GrowthCell(KAFKA, 1_000, 1, 1_000), GrowthCell(KAFKA, 10_000, 1, 1_000)


def phase(name: str, cpu_s: float = 1.0, resident_mb: float = 100.0, units: int = 0) -> PhaseCost:
    return PhaseCost(name, cpu_s, cpu_s, resident_mb, units)


def told(cells: dict[GrowthCell, list[PhaseCost]]) -> list[dict[str, Any]]:
    found: growth_suite.Found = {}
    rows: list[dict[str, Any]] = []
    for cell, phases in cells.items():
        found[cell] = {}
        for each in phases:
            found[cell][each.name] = each
            rows += growth_suite.phase_rows(cell, each, found)
    return rows


def of(rows: list[dict[str, Any]], cell: GrowthCell, what: str) -> dict[str, Any]:
    return next(row for row in rows if row["case"] == f"{cell.label}: {what}")


def test_ten_times_as_much_may_take_ten_times_as_long_and_not_twenty() -> None:
    both = {SMALL: [phase("start"), phase("join", 1.0)], LARGE: [phase("start"), phase("join", 10.0)]}
    assert of(told(both), LARGE, "join")["ratio"] == 1.0
    both[LARGE][1] = phase("join", 20.0)
    late = of(told(both), LARGE, "join")
    assert (late["ratio"], late["ok"], late["peer"]) == (0.5, False, f"10 times {SMALL.label}")


def test_a_heartbeat_may_not_take_longer_because_there_are_more_members() -> None:
    both = {
        cell: [phase("start"), phase("heartbeats", cost, units=1_000)] for cell, cost in ((SMALL, 1.0), (LARGE, 2.0))
    }
    assert not of(told(both), LARGE, "heartbeats")["ok"]


def test_memory_is_what_came_on_top_of_the_start() -> None:
    both = {
        SMALL: [phase("start", resident_mb=80.0), phase("rebalance", resident_mb=110.0)],
        LARGE: [phase("start", resident_mb=80.0), phase("rebalance", resident_mb=680.0)],
    }
    row = of(told(both), LARGE, "memory after it")
    assert (row["value"], row["peer_value"], row["ok"]) == (600.0, 300.0, False)


def test_every_partition_is_given_to_one_member_of_the_group_and_all_move_on() -> None:
    cell = GrowthCell(KAFKA, 30, 3, 1_000)
    for number in range(3):
        mine = slice_of_group(cell, number)
        first, then = mine.pieces(10, 0, 1_000), mine.pieces(10, 1, 1_000)
        given = [partition for piece in first for partition in piece["growth-0"]]
        assert len(given) == len(set(given)) == 333
        assert all(one["growth-0"] != other["growth-0"] for one, other in zip(first, then, strict=True))


def test_the_grid_has_what_was_asked_for() -> None:
    for door in (KAFKA, GRPC):
        mine = [cell for cell in all_cells() if cell.door == door]
        assert {cell.members for cell in mine} == {1_000, 10_000, 50_000}
        assert {cell.groups for cell in mine} == {1, 100, 10_000}
        assert {cell.partitions for cell in mine} == {1_000, 10_000, 100_000}


def test_a_cell_that_this_machine_cannot_run_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (20_000, 20_000))
    (row,) = growth_suite.measure_cell(GrowthCell(KAFKA, 50_000, 1, 1_000), Stopwatch(), {})
    assert (row["ok"], row["case"]) == (True, "kafka, 50,000 members, 1 group, 1,000 partitions: left out")
    assert "20,000 open files" in row["peer"]
    assert not course.reason_impossible(GrowthCell(GRPC, 50_000, 1, 1_000))
    assert not course.reason_impossible(GrowthCell(KAFKA, 50_000, 100, 1_000))


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (BenchFailed("stopped in 'join': 150 s were over"), "150 s were over"),
        (ConnectionResetError("the server closed the connection"), "the server closed the connection"),
        (TimeoutError(), "an answer took too long"),
    ],
)
def test_what_ends_a_cell_is_told_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, says: str
) -> None:
    def stopped(cell: GrowthCell, home: str) -> Any:
        yield phase("start")
        raise failure

    monkeypatch.setattr(course, "run_cell", stopped)
    rows = list(growth_suite.measure_cell(SMALL, Stopwatch(), {}))
    assert [row["ok"] for row in rows] == [True, False]
    assert says in growth_page.cells_table(growth_suite.cells_of(rows))


def test_the_page_has_a_row_for_each_cell_and_the_worst_bend_first() -> None:
    course_of = ("start", "topics", "join", "rebalance", "heartbeats", "idle", "restart")
    small = [phase(name, 1.0, 100.0, 1_000 if name == "heartbeats" else 0) for name in course_of]
    large = [each._replace(cpu_s=30.0 if each.name == "join" else 20.0, resident_mb=100.0) for each in small]
    rows = json.loads(json.dumps(told({SMALL: small, LARGE: large})))
    cells = growth_page.cells_table(growth_suite.cells_of(rows)).splitlines()
    assert cells[2].startswith("| kafka | 1,000 | 1 | 1,000 | 1 / 1 s |")
    bends = growth_page.bends_table(rows).splitlines()
    assert "heartbeats" in bends[2]
    assert bends[3] == "| kafka, 10,000 members, 1 group, 1,000 partitions: join | 30 s CPU | 10 | 3 |"
    assert growth_page.bends_table([]) == "Nowhere, in this run."


def test_the_same_figures_give_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    course_of = ("start", "join", "rebalance", "restart")
    found = {
        cell: {name: phase(name) for name in course_of} for cell in (SMALL, LARGE, GrowthCell(GRPC, 1_000, 1, 10_000))
    }
    for name in ("one.svg", "two.svg"):
        growth_page.draw_growth(found, tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    assert "kafka, 1 group" in drawn


def test_the_page_has_places_for_both_tables() -> None:
    text = (Path(__file__).parents[2] / growth_page.PAGE).read_text()
    assert all(f"<!-- begin {name} -->" in text for name in (growth_page.CELLS, growth_page.BENDS))


def test_quick_goes_with_one_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "log", "--quick"]) == 2
    assert "--quick works only with the suite growth" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.skipif("MUSTER_BENCH" not in os.environ, reason="a minute for a benchmark: set MUSTER_BENCH")
def test_the_whole_course_in_miniature(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(course, "IDLE_S", 0.1)
    monkeypatch.setattr(course, "BEATS", {KAFKA: 200, GRPC: 100})
    main(["bench", "growth", "--quick", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = growth_suite.cells_of(rows)
    assert [about.get("why") for about in found.values()] == [None] * 8
    assert all(set(about) == set(course.PHASES) for about in found.values())
