"""Capacities, limits, tiers and budgets keep their promises on any group."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.assignors import registry
from muster.assignors.api import Member, Snapshot
from muster.assignors.builtin import vectorized
from muster.assignors.compliance import settled
from muster.assignors.run import run
from muster.assignors.tools.what_if import owner_of

quick = settings(max_examples=50, deadline=None)
WORDS = ["uniform", "lag-sticky"]


@st.composite
def groups(draw):
    topics = {t: draw(st.integers(1, 4)) for t in draw(st.sets(st.sampled_from("tuv"), min_size=1))}
    members = [
        Member(
            word,
            tuple(draw(st.sets(st.sampled_from("tuv"), min_size=1))),
            draw(st.none() | st.dictionaries(st.sampled_from("tuv"), st.lists(st.integers(0, 4), unique=True))),
            draw(st.integers(0, 2)),
        )
        for word in "abcd"[: draw(st.integers(1, 4))]
    ]
    options = {}
    if draw(st.booleans()):
        options["max.partitions.per.member"] = draw(st.integers(1, 4))
    if draw(st.booleans()):
        options["member.capacity"] = {"a": draw(st.floats(0.25, 4))}
    if draw(st.booleans()):
        options["member.priority"] = {"b": draw(st.integers(-2, 2))}
    if draw(st.booleans()):
        options["member.standby"] = ["c"]
    lags = {t: [draw(st.integers(0, 1000)) for _ in range(n)] for t, n in topics.items()}
    return Snapshot(topics, members, lags, options=options)


def decided(word, snapshot, withhold=False):
    return run(registry.resolve(word), snapshot, withhold)


def most_that_fit(snapshot, limit):
    """How many partitions can be placed at all: by trying every set of choices."""
    every = list(snapshot)
    best = 0
    seen = {tuple(0 for _ in snapshot.members)}
    place = {member.id: number for number, member in enumerate(snapshot.members)}
    for topic, _ in every:
        takers = [place[who] for who in snapshot.subscribers(topic)]
        following = set(seen)
        for loads, taker in itertools.product(seen, takers):
            if loads[taker] < limit:
                following.add(tuple(load + (n == taker) for n, load in enumerate(loads)))
        seen = following
        best = max(map(sum, seen))
    return best


@pytest.mark.parametrize("word", WORDS)
@quick
@given(snapshot=groups())
def test_limits_hold_and_leave_out_no_more_than_they_must(word, snapshot):
    answer = decided(word, snapshot)
    limit = snapshot.options.get("max.partitions.per.member", 99)
    loads = [sum(map(len, share.values())) for share in answer.members.values()]
    assert max(loads) <= limit
    assert sum(loads) + len(answer.unassigned) == len(list(snapshot))
    assert sum(loads) == most_that_fit(snapshot, limit)


@pytest.mark.parametrize("word", WORDS)
@quick
@given(snapshot=groups())
def test_it_answers_the_same_twice_and_in_any_order(word, snapshot):
    turned = replace(snapshot, members=list(reversed(snapshot.members)))
    assert decided(word, turned).to_dict() == decided(word, snapshot).to_dict()


@quick
@given(snapshot=groups(), budget=st.integers(0, 3))
def test_the_budget_bounds_what_moves_of_its_own_accord(snapshot, budget):
    snapshot = replace(snapshot, options={"move.budget": budget, "min.gain": 0.0, "imbalance.tolerance": 0.0})
    before = {tp: who for tp, who in snapshot.owners().items() if tp in set(snapshot)}
    after = owner_of(decided("lag-sticky", snapshot).members)
    assert sum(after[tp] != who for tp, who in before.items()) <= budget


SHEDS_AND_HAS_ROOM_AGAIN = Snapshot(
    {"t": 2, "u": 1},
    [Member("a", ("t", "u"), {"u": [0]}, 1), Member("b", ("t",)), Member("c", ("u",))],
    options={"max.partitions.per.member": 2, "member.priority": {"b": -1}},
)


@pytest.mark.parametrize("word", WORDS)
@quick
@given(snapshot=groups())
@example(snapshot=SHEDS_AND_HAS_ROOM_AGAIN)
def test_it_hands_over_in_two_rounds(word, snapshot):
    first = decided(word, snapshot, withhold=True)
    if first.withheld:
        assert not decided(word, settled(snapshot, first), withhold=True).withheld


@pytest.mark.parametrize("pick", ["five random", "half", "one differs"])
@pytest.mark.parametrize("event", ["one leaves", "one joins"])
def test_the_short_cut_for_large_groups_is_as_good_as_the_full_network(pick, event, monkeypatch):
    from muster.workshop.bench import assignors as bench

    sticky = registry.resolve("sticky")
    snapshot = bench.apply_event(bench.make_group((24, 20, 30), pick), sticky, event)
    owners = snapshot.owners()

    def cost():
        reader = owner_of(decided("sticky", replace(snapshot)).members)
        loads: dict[str, int] = {}
        for who in reader.values():
            loads[who] = loads.get(who, 0) + 1
        moved = sum(reader[tp] != who for tp, who in owners.items())
        return sum(load * load for load in loads.values()), moved

    full = cost()
    monkeypatch.setattr(vectorized, "_SMALL", 0)
    assert cost() == full
    monkeypatch.setattr("muster.assignors.api.FAST_FROM", 10**9)
    assert cost() == full
