"""The fast paths of small plans find what the general ways find, or leave it to them."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from muster.assignors import registry
from muster.assignors.api import Assignment, AssignorError, Member, Snapshot
from muster.assignors.data.values import claims_of_one_generation, newest_claims
from muster.assignors.registry import BUILT_IN
from muster.assignors.run import checked, whole_shares

TOPICS = ("a", "b", "c")
NUMBERS = st.lists(st.integers(-1, 4), max_size=3)
SHARES = st.dictionaries(st.sampled_from(TOPICS), NUMBERS, max_size=3)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    topics = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 4)))
    members = [
        Member(
            f"m{number}",
            tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True))),
            draw(st.none() | SHARES),
            draw(st.sampled_from((1, 1, 1, 2))),
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    return Snapshot(topics, members)


@st.composite
def near_plans(draw: st.DrawFn) -> tuple[Snapshot, dict[str, dict[str, list[int]]]]:
    """A whole plan as a rule, and at times with something wrong in it."""
    snapshot = draw(snapshots())
    plan: dict[str, dict[str, list[int]]] = {member.id: {} for member in snapshot.members}
    for topic in snapshot.subscribed_topics():
        readers = [member.id for member in snapshot.members if topic in member.topics]
        for partition in range(snapshot.topics[topic]):
            plan[draw(st.sampled_from(readers))].setdefault(topic, []).insert(0, partition)
    if draw(st.booleans()):
        wrong = draw(st.dictionaries(st.sampled_from(("m0", "m1", "m9")), SHARES, max_size=1))
        plan.update(wrong)
    return snapshot, plan


def rows(plan: Assignment) -> Mapping[str, Mapping[str, Sequence[int]]]:
    return {member: {topic: list(row) for topic, row in share.items()} for member, share in plan.members.items()}


@given(near_plans())
def test_shares_that_are_whole_at_a_glance_are_so_by_a_closer_look(
    drawn: tuple[Snapshot, dict[str, dict[str, list[int]]]],
) -> None:
    snapshot, plan = drawn
    try:
        expected = checked("test", snapshot, plan)
    except AssignorError:
        assert whole_shares(snapshot, plan) is None
        return
    assert rows(checked("test", snapshot, plan, ours=True)) == rows(expected)


@given(snapshots())
def test_our_own_plans_are_what_a_closer_look_makes_of_them(snapshot: Snapshot) -> None:
    for word in BUILT_IN:
        assignor = registry.resolve(word)
        answer = assignor.assign(snapshot)
        assert rows(checked(word, snapshot, answer, ours=True)) == rows(checked(word, snapshot, answer))


@given(snapshots())
def test_claims_of_one_generation_are_the_newest(snapshot: Snapshot) -> None:
    quick = claims_of_one_generation(snapshot.topics, snapshot.members)
    assert quick is None or quick == newest_claims(snapshot.topics, snapshot.members)


def test_the_fast_paths_are_taken() -> None:
    members = [Member("a", ("t",), {"t": [0, 1]}, 3), Member("b", ("t",), {"t": [2]}, 3), Member("c", ("t",))]
    snapshot = Snapshot({"t": 4}, members)
    assert claims_of_one_generation(snapshot.topics, members) == {"t": [0, 0, 1, -1]}
    assert whole_shares(snapshot, {"a": {"t": [1, 0]}, "b": {"t": [2]}, "c": {"t": [3]}}) == {
        "a": {"t": [0, 1]},
        "b": {"t": [2]},
        "c": {"t": [3]},
    }
