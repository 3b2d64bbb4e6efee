"""Faults of other implementations (KAFKA-13419, KAFKA-14639 and others), and ours free of them (GC-A4)."""

import pytest

from muster.assignors import registry
from muster.assignors.api import Member, Snapshot
from muster.assignors.compliance import settled
from muster.assignors.run import run

STICKY = ["sticky", "cooperative-sticky", "uniform"]


def decided(word, snapshot, withhold=True):
    return run(registry.resolve(word), snapshot, withhold)


@pytest.fixture(params=[1, 400], autouse=True)
def both_paths(request, monkeypatch):
    monkeypatch.setattr("muster.assignors.api.FAST_FROM", request.param)


@pytest.mark.parametrize("word", STICKY)
def test_an_empty_subscription_gets_nothing_whatever_its_place(word):
    for idle in ("A", "m", "z"):
        members = [Member(idle, ()), Member("b", ("t",)), Member("n", ("t",))]
        shares = decided(word, Snapshot({"t": 4}, members)).to_dict()
        assert shares[idle] == {}
        assert sorted(len(share["t"]) for who, share in shares.items() if who != idle) == [2, 2]


@pytest.mark.parametrize("word", STICKY)
def test_claims_beyond_the_end_of_a_shrunk_topic_count_for_nothing(word):
    members = [Member("a", ("t",), {"t": [0, 5, 6]}, 3), Member("b", ("t",), {"t": [1, 2, 7]}, 3)]
    shares = decided(word, Snapshot({"t": 3}, members)).to_dict()
    assert shares == {"a": {"t": [0]}, "b": {"t": [1, 2]}}


@pytest.mark.parametrize("word", STICKY)
def test_a_stale_claimant_that_no_longer_subscribes_gets_nothing_back(word):
    members = [Member("a", ("u",), {"t": [0, 1]}, 2), Member("b", ("t",), {"t": [2]}, 3), Member("c", ("t",), {}, 3)]
    shares = decided(word, Snapshot({"t": 3, "u": 1}, members), withhold=False).to_dict()
    assert shares["a"] == {"u": [0]}


def test_a_stale_claimant_is_not_given_what_its_owner_still_reads():
    members = [
        Member("stale", ("t",), {"t": [0, 1, 2, 3]}, 2),
        Member("owner", ("t",), {"t": [0, 1, 2, 3]}, 5),
    ]
    first = decided("cooperative-sticky", Snapshot({"t": 4}, members))
    assert first.to_dict()["stale"] == {}
    assert len(first.to_dict()["owner"]["t"]) == 2
    assert len(first.withheld) == 2


def test_newest_generation_wins_a_conflict_and_a_tie_is_nobodys():
    members = [
        Member("a", ("t",), {"t": [0, 1]}, 4),
        Member("b", ("t",), {"t": [1, 2]}, 5),
        Member("c", ("t",), {"t": [2]}, 5),
    ]
    assert Snapshot({"t": 3}, members).owners() == {("t", 0): "a", ("t", 1): "b"}
    columns = Snapshot({"t": 3}, members).columns
    assert [columns.members[n] if n >= 0 else None for n in columns.owner.tolist()] == ["a", "b", None]
    assert columns.claimed.all()


@pytest.mark.parametrize("word", STICKY)
def test_unequal_groups_settle_in_two_rounds(word):
    topics = {f"t{n}": 1 + n % 4 for n in range(8)}
    names = list(topics)
    members = [Member(f"m{n}", tuple(names[n % 3 :: 2]), {names[-1 - n]: [0]}, n % 2) for n in range(6)]
    group = Snapshot(topics, members)
    first = decided(word, group)
    second = decided(word, settled(group, first))
    assert not second.withheld
    third = decided(word, settled(group, second))
    assert third.to_dict() == second.to_dict()


@pytest.mark.parametrize("word", STICKY)
def test_nothing_moves_200_rebalances_in_a_row(word):
    group = Snapshot({"t": 7, "u": 5}, [Member(w, ("t", "u") if w < "c" else ("t",)) for w in "abcd"])
    first = decided(word, group)
    for _ in range(200):
        group = settled(group, first)
        assert decided(word, group).to_dict() == first.to_dict()


def test_a_member_that_gives_up_partitions_does_not_empty_one_topic():
    topics = {f"t{n}": 4 for n in range(4)}
    owner = Member("a", tuple(topics), {topic: [0, 1, 2, 3] for topic in topics}, 1)
    shares = decided("sticky", Snapshot(topics, [owner, Member("b", tuple(topics))])).to_dict()
    assert shares["a"] == {topic: [0, 1] for topic in topics}


@pytest.mark.parametrize("word", ["roundrobin", "range", "roundrobin-legacy"])
def test_members_that_must_be_skipped_are_skipped(word):
    members = [Member("a", ("u",)), Member("b", ("t", "u")), Member("c", ("t",))]
    shares = decided(word, Snapshot({"t": 5, "u": 3}, members)).to_dict()
    assert sum(len(p) for share in shares.values() for p in share.values()) == 8


@pytest.mark.parametrize("word", ["range", "roundrobin"])
def test_static_and_dynamic_members_mixed_in_any_order_all_get_their_share(word):
    members = [
        Member("d1", ("t",)),
        Member("s2", ("t",), instance_id="b"),
        Member("d0", ("t",)),
        Member("s1", ("t",), instance_id="a"),
    ]
    shares = decided(word, Snapshot({"t": 4}, members)).to_dict()
    assert {who: share["t"] for who, share in shares.items()} == {"s1": [0], "s2": [1], "d0": [2], "d1": [3]}


def test_names_sort_as_java_compares_them():
    members = [Member("￮", ("t",)), Member("😀", ("t",))]
    shares = decided("range", Snapshot({"t": 1}, members)).to_dict()
    assert shares == {"￮": {}, "😀": {"t": [0]}}


def test_lag_ties_under_lag_sticky_do_not_always_favour_low_ids():
    members = [Member(w, ("t",)) for w in "abcdef"]
    takers = {
        next(
            who
            for who, share in decided("lag-sticky", Snapshot({"t": 1}, members, options={"seed": seed})).members.items()
            if share
        )
        for seed in range(40)
    }
    assert takers == set("abcdef")


def test_lags_near_the_end_of_64_bits_do_not_wrap():
    lags = [2**63 - 1, 2**63 - 1, 2**63 - 1, 1]
    shares = decided("lag", Snapshot({"t": 4}, [Member("a", ("t",)), Member("b", ("t",))], lags={"t": lags})).to_dict()
    assert shares == {"a": {"t": [0, 2]}, "b": {"t": [1, 3]}}
