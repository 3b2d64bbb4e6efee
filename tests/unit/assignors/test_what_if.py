"""Foresight: what moves, why, and whether it keeps the bounds."""

import json
from dataclasses import replace

import pytest

from muster.assignors.api import AssignorError, Member, Snapshot
from muster.assignors.tools.what_if import ForecastBounds, SnapshotChange, compare, forecast_table, list_moves, what_if

GROUP = Snapshot(
    {"t": 4},
    [Member("a", ("t",), {"t": [0, 1]}, 3), Member("b", ("t",), {"t": [2, 3]}, 3)],
    lags={"t": [10, 20, 30, 40]},
    assignor="cooperative-sticky",
)


def test_nothing_changes_when_nothing_changed():
    forecast = what_if(GROUP)
    assert (forecast.assignor, forecast.moves, forecast.withheld) == ("cooperative-sticky", (), 0)
    assert [(m.id, m.partitions_after, m.lag_after) for m in forecast.members] == [("a", 2, 30), ("b", 2, 70)]


def test_a_newcomer_is_explained():
    forecast = what_if(GROUP, change=SnapshotChange(add=("c",)))
    assert len(forecast.moves) == forecast.withheld == 1
    assert forecast.moves[0].target == "c"
    assert forecast.moves[0].why.startswith("evens out: ")


def test_a_lost_member_is_explained():
    forecast = what_if(GROUP, change=SnapshotChange(remove=("b",)))
    assert {move.why for move in forecast.moves} == {"b is gone"}
    assert [(m.id, m.partitions_before, m.partitions_after) for m in forecast.members] == [("a", 2, 4), ("b", 2, 0)]


def test_other_lags_and_more_partitions():
    assert what_if(GROUP, "lag", SnapshotChange(lags={"t": [0, 0, 0, 9]})).lag[1].most == 9
    assert [m.why for m in what_if(GROUP, change=SnapshotChange(topics={"t": 5})).moves] == ["nobody owned it"]


def test_a_rule_that_does_not_stick_says_so():
    group = Snapshot({"t": 2}, [Member("a", ("t",), {"t": [1]}, 1), Member("b", ("t",), {"t": [0]}, 1)])
    assert {move.why for move in what_if(group, "range").moves} == {
        "placed by rule: this assignor did not keep it with its owner"
    }


def test_tied_claims_are_named():
    group = Snapshot({"t": 1}, [Member("a", ("t",), {"t": [0]}, 1), Member("b", ("t",), {"t": [0]}, 1)])
    assert what_if(group, "sticky").moves[0].why == "claims of a and b disagree"


def test_assignors_are_compared_side_by_side():
    forecasts = compare(GROUP, "range, cooperative-sticky,lag")
    rows = forecast_table(forecasts)
    assert [row["ASSIGNOR"] for row in rows] == ["range", "cooperative-sticky", "lag"]
    assert rows[2]["LAG"] == "50-50"
    assert rows[1]["MOVES"] == "0"


def test_bounds_are_told_when_broken():
    forecast = what_if(GROUP, "cooperative-sticky", SnapshotChange(add=("c", "d")))
    assert forecast.breaches(ForecastBounds()) == []
    assert forecast.breaches(ForecastBounds(max_moves=2, max_spread=1, max_lag_share=4.0)) == []
    broken = forecast.breaches(ForecastBounds(max_moves=1, max_spread=0, max_lag_share=1.1))
    assert broken[0] == "cooperative-sticky: 2 moves, at most 1 allowed"
    assert len(broken) == 2
    spread = what_if(GROUP, change=SnapshotChange(add=("c",))).breaches(ForecastBounds(max_spread=0))
    assert spread == ["cooperative-sticky: spread of 1 partitions, at most 0 allowed"]


def test_a_forecast_is_plain_json():
    out = json.loads(json.dumps(what_if(GROUP, change=SnapshotChange(add=("c",))).to_dict()))
    assert out["partitions"]["after"] == {"least": 1, "most": 2, "deviation": 0.471}
    assert out["assignment"]["c"] == {"t": [out["moves"][0]["partition"]]}


def test_impossible_changes_are_refused():
    with pytest.raises(ValueError, match="'z' cannot leave: the members are a, b"):
        what_if(GROUP, change=SnapshotChange(remove=("z",)))
    with pytest.raises(ValueError, match="'a' cannot join"):
        what_if(GROUP, change=SnapshotChange(add=("a",)))
    with pytest.raises(ValueError, match="names no assignor"):
        what_if(Snapshot({}, []))
    with pytest.raises(AssignorError, match="is not known"):
        what_if(GROUP, "rnge")


def test_moves_list_arrivals_and_losses():
    assert list_moves({"a": {"t": [0, 1]}}, {"a": {"t": [1]}, "b": {"u": [0]}}) == [
        ("t", 0, "a", None),
        ("u", 0, None, "b"),
    ]


@pytest.mark.parametrize("told", [{"held": "pins"}, {"fallback": "last good assignment", "reason": "cheese"}])
@pytest.mark.parametrize("assignor", ["", "uniform", "lag-sticky", "range"])
def test_what_only_the_ledger_was_told_is_no_option(told: dict[str, str], assignor: str):
    recorded = replace(GROUP, assignor="uniform", options={"member.capacity": {"a": 2.0}, **told})
    forecast = what_if(recorded, assignor)
    assert forecast == what_if(replace(recorded, options={"member.capacity": {"a": 2.0}}), assignor)
    assert forecast.unassigned == 0


def test_another_assignor_is_not_asked_with_options_that_only_the_former_has():
    recorded = replace(GROUP, assignor="lag-sticky", options={"now.ms": 5, "member.capacity": {"a": 3.0, "b": 1.0}})
    assert [m.partitions_after for m in what_if(recorded, "uniform").members] == [3, 1]
    with pytest.raises(AssignorError, match=r"'now\.ms'"):
        what_if(recorded, "uniform", SnapshotChange(options={"now.ms": 5}))
    with pytest.raises(AssignorError, match=r"'move\.budgt'"):
        what_if(replace(GROUP, options={"move.budgt": 1}), "lag-sticky")


def test_of_a_plugin_s_options_those_are_left_that_the_other_has():
    recorded = replace(GROUP, assignor="some.plugin:Class", options={"flavour": "mint", "max.partitions.per.member": 4})
    assert what_if(recorded, "uniform").unassigned == 0
    assert what_if(replace(recorded, options={"max.partitions.per.member": 1}), "uniform").unassigned == 2
