"""Advice on how a group is now: who has nothing, what nobody has, and what is not committed."""

from dataclasses import replace

from muster.coordinator.observability.advice.model import Advice
from muster.coordinator.observability.advice.table import advise_group
from muster.coordinator.observability.doctor.model import ExaminedGroup
from muster.coordinator.observability.read_model.groups import PartitionLag
from tests.support.doctor import MINUTE, NOW, at, entry, group, member, tp
from tests.support.group_history import GroupHistory


def advised(examined: ExaminedGroup, partitions: int = 4) -> list[Advice]:
    return list(advise_group(examined, {"t": partitions}, NOW).advice)


def only(examined: ExaminedGroup, partitions: int = 4) -> Advice:
    (found,) = advised(examined, partitions)
    return found


def test_partitions_that_nobody_reads_come_first_and_cost_what_they_wait() -> None:
    found = only(group(member("a", [0]), member("b", [1]), ledger=(entry(1, ago_ms=10 * MINUTE),)))
    assert found.kind == "partitions-without-member"
    # Two partitions, since the rebalance that left them out was over.
    assert found.saves.partition_seconds == 2 * (600 - 1)
    assert found.proof[1] == "t-2, t-3"


def test_partitions_that_an_operator_holds_back_are_meant_so() -> None:
    held = group(member("a", [0]), held=("frozen",), ledger=(entry(1, ago_ms=10 * MINUTE),))
    assert advised(held) == []


def test_members_without_a_partition_are_one_too_many() -> None:
    found = only(group(member("a", [0]), member("b", [1]), member("c")), partitions=2)
    assert found.kind == "members-without-partition"
    assert found.sentence.startswith("Stop 1 member, or give the topics more partitions: nothing to do for 1 member")
    assert (found.saves.share, found.saves.of) == (0.3333, "of the members")


def test_a_minority_that_reads_other_topics_is_named() -> None:
    rest = [member(name, [number]) for number, name in enumerate("abc")]
    odd = member("d", [3], topics=("t", "u"))
    found = next(each for each in advised(group(*rest, odd)) if each.kind == "mixed-subscriptions")
    assert found.sentence.endswith("1 of 4 members read others than the rest.")
    assert found.proof == ("3 members read t", "d at h reads t, u")


def test_two_halves_are_no_minority() -> None:
    halves = group(member("a", [0, 1]), member("b", [2, 3], topics=("t", "u")))
    assert "mixed-subscriptions" not in [each.kind for each in advised(halves)]


def test_a_roll_out_that_stopped_names_the_members_that_are_left() -> None:
    both, old = ("cooperative-sticky", "range"), ("range",)
    members = [member(name, [number], offered_assignors=both) for number, name in enumerate("abc")]
    found = only(group(*members, member("d", [3], offered_assignors=old), assignor="range"))
    assert found.kind == "unfinished-roll-out"
    assert found.settings == ("partition.assignment.strategy=cooperative-sticky,range",)
    assert found.how.startswith("Set it on d at h;")


def never(number: int) -> PartitionLag:
    return PartitionLag(tp(number), None, 0, 50, 50)


def test_a_group_that_commits_nothing_is_told_to() -> None:
    old = (entry(1, ago_ms=20 * MINUTE),)
    positions = {tp(number): never(number) for number in range(4)}
    found = only(group(member("a", [0, 1]), member("b", [2, 3]), positions=positions, ledger=old))
    assert (found.kind, found.settings) == ("no-commits", ("enable.auto.commit=true",))


def test_a_group_that_has_just_started_may_commit_later() -> None:
    positions = {tp(number): never(number) for number in range(4)}
    young = group(member("a", [0, 1]), member("b", [2, 3]), positions=positions, ledger=(entry(1, ago_ms=MINUTE),))
    assert advised(young) == []


def test_a_member_whose_positions_stand_still_is_named_with_how_to_remove_it() -> None:
    positions = {tp(0): at(5, 50, 20 * MINUTE), tp(1): at(5, 50, 20 * MINUTE), tp(2): at(49, 50), tp(3): at(49, 50)}
    found = only(group(member("a", [0, 1]), member("b", [2]), member("c", [3]), positions=positions))
    assert found.kind == "stuck-member"
    assert found.settings == ("muster groups remove-members g a",)
    assert (found.saves.share, found.saves.of) == (0.5, "of the partitions")


def test_lag_on_one_member_is_spread_by_a_plan_that_looks_at_it() -> None:
    history = GroupHistory("range")
    history.start("abcd")
    examined = history.examined(lags={"orders": [9_000, 8_000, 7_000] + [10] * 9})
    (found,) = advise_group(examined, history.topics, history.now_ms).advice
    assert found.kind == "lag-aware"
    assert "a at 10.0.0.1 has 24,000 of 24,090 records behind, 4.0 times the mean" in found.sentence
    assert found.settings == ("muster groups set orders assignor=lag-sticky",)
    watched = replace(examined, ledger=tuple(history.watched_entries()))
    # A history of one generation tells of no rebalance: it may be anybody's.
    assert advise_group(watched, history.topics, history.now_ms).advice[0].kind == "lag-aware"


def test_even_lag_is_nobodys_fault() -> None:
    history = GroupHistory("range")
    history.start("abcd")
    examined = history.examined(lags={"orders": [5_000] * 12})
    assert advise_group(examined, history.topics, history.now_ms).advice == ()
