"""Weights, limits, and moves that must pay."""

import pytest

from muster.assignors import registry
from muster.assignors.api import AssignorError, Member, Snapshot
from muster.assignors.options import options_of
from muster.assignors.run import run


def decided(word, topics, members, lags=None, **options):
    named = {key.replace("_", "."): value for key, value in options.items()}
    return run(registry.resolve(word), Snapshot(topics, members, lags, options=named), withhold=False)


def two(owned_a, owned_b):
    return [Member("a", ("t",), {"t": owned_a}, 1), Member("b", ("t",), {"t": owned_b}, 1)]


def sizes(assignment):
    return {who: sum(map(len, share.values())) for who, share in assignment.members.items()}


def test_capacity_shares_in_proportion():
    members = [Member(w, ("t",)) for w in "abc"]
    assert sizes(decided("uniform", {"t": 8}, members, member_capacity={"a": 2.0})) == {"a": 4, "b": 2, "c": 2}


def test_capacity_may_name_a_static_member_by_its_instance():
    members = [Member("x-1", ("t",), instance_id="big"), Member("x-2", ("t",))]
    assert sizes(decided("uniform", {"t": 8}, members, member_capacity={"big": 3.0})) == {"x-1": 6, "x-2": 2}


def test_what_exceeds_the_limit_is_reported():
    answer = decided("uniform", {"t": 5}, [Member(w, ("t",)) for w in "ab"], max_partitions_per_member=2)
    assert sizes(answer) == {"a": 2, "b": 2}
    assert len(answer.unassigned) == 1
    assert answer.note == "1 partition without a place: all subscribers have 2, the limit"


def test_no_partition_is_left_out_while_a_chain_of_moves_finds_room():
    members = [Member("a", ("t", "u"), {"t": [0]}, 1), Member("b", ("t",))]
    answer = decided("uniform", {"t": 1, "u": 1}, members, max_partitions_per_member=1)
    assert answer.to_dict() == {"a": {"u": [0]}, "b": {"t": [0]}}
    assert not answer.unassigned


def test_claims_above_the_limit_are_given_up():
    answer = decided("uniform", {"t": 4}, two([0, 1, 2, 3], []), max_partitions_per_member=2)
    assert sizes(answer) == {"a": 2, "b": 2}


def test_standby_members_take_over_only_when_nobody_else_can():
    members = [Member("a", ("t",)), Member("spare", ("t", "u"))]
    assert decided("uniform", {"t": 3, "u": 1}, members, member_standby=["spare"]).to_dict() == {
        "a": {"t": [0, 1, 2]},
        "spare": {"u": [0]},
    }
    limited = decided("uniform", {"t": 3}, members, member_standby=["spare"], max_partitions_per_member=2)
    assert sizes(limited) == {"a": 2, "spare": 1}


def test_higher_priority_is_served_first_even_against_claims():
    members = [Member("low", ("t",), {"t": [0, 1]}, 1), Member("high", ("t",))]
    assert sizes(decided("uniform", {"t": 2}, members, member_priority={"high": 1})) == {"low": 0, "high": 2}


def test_a_move_that_pays_is_made_and_proved():
    answer = decided("lag-sticky", {"t": 4}, two([0, 1, 2], [3]), {"t": [500, 400, 300, 100]}, move_budget=3)
    assert answer.note == "gain 25 % >= 5 %, 1 move <= budget 3"
    assert sizes(answer) == {"a": 2, "b": 2}


def test_within_the_tolerance_nothing_moves():
    answer = decided("lag-sticky", {"t": 4}, two([0, 1], [2, 3]), {"t": [54, 49, 49, 49]})
    assert answer.note.startswith("imbalance 2.44 % <= tolerance 10 %")


def test_too_small_a_gain_is_not_worth_a_move():
    options = {"min_gain": 0.5}
    answer = decided("lag-sticky", {"t": 4}, two([0, 1, 2], [3]), {"t": [500, 400, 300, 100]}, **options)
    assert answer.note == "gain 25 % < 50 %: nothing moves"
    assert answer.to_dict() == {"a": {"t": [0, 1, 2]}, "b": {"t": [3]}}


def test_the_budget_bounds_the_moves():
    lags = {"t": [100] * 20}
    for budget in (0, 1, 3):
        answer = decided("lag-sticky", {"t": 20}, two(list(range(20)), []), lags, move_budget=budget, min_gain=0.0)
        assert sizes(answer)["b"] == budget


def test_dampening_sheds_only_part_of_the_excess():
    lags = {"t": [100] * 20}
    whole = decided("lag-sticky", {"t": 20}, two(list(range(20)), []), lags, dampening=1.0, imbalance_tolerance=0.0)
    part = decided("lag-sticky", {"t": 20}, two(list(range(20)), []), lags, dampening=0.5)
    assert (sizes(whole)["b"], sizes(part)["b"]) == (10, 5)


def test_a_partition_that_moved_a_moment_ago_stays():
    options = {
        "now_ms": 2_000_000,
        "moved_at_ms": {"t": {"0": 1_900_000, "1": 1_900_000, "2": 1_000}, "gone": {"7": 1}},
    }
    answer = decided("lag-sticky", {"t": 4}, two([0, 1, 2], [3]), {"t": [400, 400, 400, 100]}, **options)
    assert answer.to_dict() == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}


def test_one_giant_partition_does_not_hide_a_starving_member():
    members = [Member("a", ("t",), {"t": [0]}, 1), Member("b", ("t",), {"t": [1, 2, 3, 4]}, 1), Member("c", ("t",))]
    answer = decided("lag-sticky", {"t": 5}, members, {"t": [10**9, 10, 10, 10, 10]}, dampening=1.0)
    assert sizes(answer) == {"a": 1, "b": 2, "c": 2}


def test_two_giants_of_one_member_are_parted():
    # Fair is 1000; the first giant fills its member, the others are to have 1000 each. Whoever takes the second has
    # nearly twice that, and what it had is passed on.
    members = [Member(w, ("t",), {"t": part}, 1) for w, part in zip("abc", ([0, 1], [2, 3], [4, 5]), strict=True)]
    answer = decided("lag-sticky", {"t": 6}, members, {"t": [2000, 1600, 200, 200, 200, 300]}, dampening=1.0)
    assert answer.note.startswith("gain 44.")
    assert "nothing moves" not in answer.note
    owner = {p: who for who, share in answer.to_dict().items() for p in share.get("t", [])}
    assert owner[0] == "a"
    assert owner[1] != "a"


def test_two_partitions_change_places_where_none_can_go_alone():
    # 110 and 60: every single move makes a member as heavy as a was.
    answer = decided("lag-sticky", {"t": 4}, two([0, 1], [2, 3]), {"t": [60, 50, 40, 20]}, base_lag=0, dampening=1.0)
    assert answer.note == "gain 18.2 % >= 5 %, 2 moves"
    assert answer.to_dict() == {"a": {"t": [1, 2]}, "b": {"t": [0, 3]}}


@pytest.mark.parametrize(
    "options", [{"min_gain": 0.2}, {"move_budget": 1}, {"now_ms": 9, "moved_at_ms": {"t": {"2": 8, "3": 8}}}]
)
def test_a_swap_keeps_to_the_gain_the_budget_and_the_cooldown(options):
    answer = decided("lag-sticky", {"t": 4}, two([0, 1], [2, 3]), {"t": [60, 50, 40, 20]}, dampening=1.0, **options)
    assert answer.to_dict() == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}


def test_only_what_the_other_subscribes_to_changes_places():
    members = [Member("a", ("t", "u"), {"t": [0, 1]}, 1), Member("b", ("t", "u", "v"), {"v": [0], "t": [2]}, 1)]
    lags = {"t": [60, 50, 20], "v": [40]}
    answer = decided("lag-sticky", {"t": 3, "v": 1}, members, lags, dampening=1.0, base_lag=0)
    assert answer.to_dict()["b"]["v"] == [0]


def test_without_lag_partitions_still_spread():
    assert sizes(decided("lag-sticky", {"t": 6}, [Member(w, ("t",)) for w in "abc"])) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("word", "options", "complaint"),
    [
        ("uniform", {"max_partitions_per_member": 0}, "'max.partitions.per.member' is 0: .*greater than or equal to 1"),
        ("uniform", {"member_capacity": {"a": 0.0}}, "must be above 0"),
        ("uniform", {"member_capacity": {"a": float("nan")}}, "'member.capacity.a' is nan: .*finite number"),
        ("uniform", {"member_capacity": {"a": float("inf")}}, "'member.capacity.a' is inf: .*finite number"),
        ("lag-sticky", {"imbalance_tolerance": float("inf")}, "'imbalance.tolerance' is inf: .*finite number"),
        ("uniform", {"typo": 1}, "'typo' is 1: .*Its options are member.capacity"),
        ("uniform", {"member_priority": {"a": 5000}}, "within"),
        ("lag-sticky", {"dampening": 2.0}, "'dampening' is 2.0"),
        ("lag-sticky", {"seed": "x"}, "'seed' is 'x'"),
    ],
)
def test_bad_options_are_named(word, options, complaint):
    with pytest.raises(AssignorError, match=complaint):
        decided(word, {"t": 1}, [Member("a", ("t",))], **options)


def test_options_are_described():
    assert "Default: 0.1" in options_of("lag-sticky")["imbalance.tolerance"]
    assert list(options_of("uniform")) == [
        "member.capacity",
        "max.partitions.per.member",
        "member.priority",
        "member.standby",
    ]
    assert options_of("range") == {}
