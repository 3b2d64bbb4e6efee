"""The benchmark measures what it says, on a clock that the test holds."""

from itertools import count

import pytest

from muster.workshop.bench import assignors
from muster.workshop.bench import assignors as bench


def ticking():
    ticks = count()
    return lambda: float(next(ticks))


class NoPeer:
    name = "nobody"

    def on_objects(self, snapshot):
        return lambda: None

    on_bytes = on_objects


@pytest.mark.parametrize(("peers", "expected"), [([NoPeer()], ("nobody", 1.0, 1.0)), ([], (None, None, None))])
def test_rows_have_the_fields_of_the_command_line(peers, expected, monkeypatch):
    monkeypatch.setattr(bench, "find_peers", lambda word: peers)
    rows = list(bench.measure(ticking(), only="10x10x10 range fresh", names=("range",)))
    assert len(rows) == 2
    for row in rows:
        assert list(row) == ["bench", "case", "value", "unit", "peer", "peer_value", "ratio", "goal", "ok"]
        assert (row["bench"], row["value"], row["unit"]) == ("assignors", 1.0, "s")
        assert (row["peer"], row["peer_value"], row["ratio"]) == expected
        assert row["ok"] is False


def test_events_are_what_they_are_called():
    from muster.assignors.registry import resolve

    shape = (10, 10, 50)
    for pick in ("equal", "one differs", "half", "five random"):
        start = bench.make_group(shape, pick)
        sticky = resolve("sticky")
        assert bench.apply_event(start, sticky, "fresh") is start
        unchanged = bench.apply_event(start, sticky, "unchanged")
        assert len(unchanged.owners()) == len(list(start))
        assert len(bench.apply_event(start, sticky, "one leaves").members) == 9
        assert bench.apply_event(start, sticky, "one joins").members[-1].owned is None


def test_a_plugin_s_process_is_measured_against_the_same_logic_here(monkeypatch):
    monkeypatch.setattr(assignors, "SMALL_TURNS", 2)
    monkeypatch.setattr(assignors, "LARGE_TURNS", 1)
    monkeypatch.setattr(assignors, "LARGE_PLAN", [("4,000", (10, 4, 1000))])
    rows = list(bench.measure(ticking(), only="isolation: plain"))
    assert [row["case"] for row in rows] == [
        f"isolation: plain, {size} partitions" for size in ("100", "1,000", "4,000")
    ]
    for row in rows:
        assert list(row) == ["bench", "case", "value", "unit", "peer", "peer_value", "ratio", "goal", "ok"]
        assert (row["value"], row["peer_value"], row["ok"]) == (1.0, 1.0, True)
    assert [row["goal"] for row in rows] == [1.5] * 3
    assert assignors.isolation_row("", 0.001, 0.0029)["ok"]
    assert not assignors.isolation_row("", 0.001, 0.0031)["ok"]
    assert not assignors.isolation_row("", 1.0, 1.6)["ok"]
