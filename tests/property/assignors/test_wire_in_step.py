"""Many blobs walked in step read exactly as one by one, and shares are written alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.assignors import leader_codec as wire_columns
from muster.assignors import registry
from muster.assignors.api import Assignment, Snapshot
from muster.assignors.data.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
    member_from_subscription,
    parse_assignment,
)
from muster.assignors.leader_codec import LeaderTopics, SubscribedMember, assign_bytes, write_shares
from muster.assignors.run import run

TOPICS = {"a": 3, "bb": 2, "c": 0, "ccc": 9, "naïve": 1}
WORDS = ["sticky", "cooperative-sticky", "uniform", "range"]
claims = st.dictionaries(st.sampled_from([*TOPICS, "gone"]), st.lists(st.integers(-1, 10), max_size=5), max_size=5)
user_data = (
    st.none()
    | st.binary(max_size=12)
    | st.builds(encode_sticky_user_data, claims, st.none() | st.integers(-1, 9))
    | st.builds(encode_cooperative_user_data, st.integers(-1, 9))
)
subscriptions = st.builds(
    Subscription,
    st.integers(0, 3),
    st.lists(st.sampled_from([*TOPICS, "gone"]), max_size=4).map(tuple),
    user_data,
    claims,
    st.integers(-1, 9),
    st.none() | st.sampled_from(["", "r1", "rück"]),
)
groups = st.lists(subscriptions, max_size=6).map(
    lambda said: [
        SubscribedMember(f"m{n}", encode_subscription(one), f"i{n}" if n % 2 else None) for n, one in enumerate(said)
    ]
)
quick = settings(max_examples=80, deadline=None)


def plain(member):
    owned = {
        topic: sorted({p for p in partitions if 0 <= p < TOPICS.get(topic, 0)})
        for topic, partitions in (member.owned or {}).items()
    }
    kept = None if member.owned is None else {topic: row for topic, row in owned.items() if row}
    return replace(member, owned=kept)


@pytest.mark.parametrize("word", WORDS)
@quick
@given(members=groups)
def test_in_step_reads_as_one_by_one(word, members):
    table = wire_columns.member_table(word, members, TOPICS)
    assert len(table) == len(members)
    for read, joined in zip(table, members, strict=True):
        assert plain(read) == plain(
            member_from_subscription(joined.member_id, joined.instance_id, joined.metadata, word)
        )


@pytest.mark.parametrize("word", WORDS)
@quick
@given(members=groups.filter(len), data=st.data())
def test_damaged_blobs_are_judged_alike(word, members, data):
    hurt = data.draw(st.integers(0, len(members) - 1))
    blob = bytearray(members[hurt].metadata)
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(blob)))
    members[hurt] = replace(members[hurt], metadata=bytes(blob[:cut] if data.draw(st.booleans()) else blob))
    try:
        expected = [plain(member_from_subscription(m.member_id, m.instance_id, m.metadata, word)) for m in members]
    except ValueError:
        with pytest.raises(ValueError):
            list(wire_columns.member_table(word, members, TOPICS))
        return
    assert [plain(read) for read in wire_columns.member_table(word, members, TOPICS)] == expected


@quick
@given(members=groups, version=st.integers(0, 3))
def test_shares_are_written_as_one_by_one(members, version):
    snapshot = Snapshot(TOPICS, wire_columns.member_table("uniform", members, TOPICS))
    columns = snapshot.columns
    assignment = Assignment(columns.table(columns.owner))
    assert write_shares(assignment, version) == {
        member: encode_assignment(share, None, version) for member, share in assignment.members.items()
    }


@pytest.mark.parametrize("size", [3, 300])
def test_from_bytes_to_bytes(size):
    blobs = [SubscribedMember(f"m{n}", encode_subscription(Subscription(3, ("t", "u")))) for n in range(3)]
    assignment, out = assign_bytes(registry.resolve("roundrobin"), blobs, LeaderTopics({"t": size, "u": size}))
    read = {member: parse_assignment(blob).partitions for member, blob in out.items()}
    assert read == assignment.to_dict()
    assert read["m0"]["t"] == list(range(0, size, 3))
    assert run(registry.resolve("roundrobin"), Snapshot({"t": size}, [])).to_dict() == {}
