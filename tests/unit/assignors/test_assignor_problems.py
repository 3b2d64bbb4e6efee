"""Problems and snapshots as text: good ones survive the trip, bad ones are told what is wrong."""

import json

import pytest

from muster.assignors.api import AssignorError, Member, Snapshot
from muster.assignors.plan_codec import decode_snapshot, encode_snapshot
from muster.assignors.tools.problem import snapshot_of, solve

GROUP = Snapshot(
    {"t": 3, "u": 0},
    [
        Member("a", ("t", "u"), {"t": [0, 2]}, 5, "i-1", "r1", b"\x00\xff"),
        Member("b", ("t",)),
        Member("c", (), {}),
    ],
    lags={"t": [5, 0, 2**62]},
    racks={"t": [["r1", "r2"], [], ["r2"]]},
    assignor="sticky",
    options={"max.partitions.per.member": 2, "member.capacity": {"a": 2.5}},
    stale={"t": [1]},
)


def as_lists(snapshot):
    return json.loads(snapshot.to_json())


def test_a_snapshot_survives_json():
    assert as_lists(Snapshot.from_json(GROUP.to_json())) == as_lists(GROUP)
    assert Snapshot.from_json('{"topics":{},"members":[]}') == Snapshot({}, [])


def test_a_snapshot_survives_its_binary_form():
    assert as_lists(decode_snapshot(encode_snapshot(GROUP))) == as_lists(GROUP)


def test_every_truncated_binary_form_is_refused():
    blob = encode_snapshot(GROUP)
    for size in range(len(blob)):
        with pytest.raises(ValueError, match="binary snapshot"):
            decode_snapshot(blob[:size])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "snapshot"),
        ("[]", "snapshot: expected an object, got"),
        ('{"members":[]}', "snapshot: 'topics' is missing"),
        ('{"topics":{"t":-1},"members":[]}', r"topics.t: expected a number of 0 or more, got -1"),
        ('{"topics":{"t":true},"members":[]}', r"topics.t: expected a whole number, got True"),
        ('{"topics":{},"members":[{"id":"a","topics":"t"}]}', r"members\[0\].topics: expected a list"),
        ('{"topics":{},"members":[{"id":"a","topics":[]},{"id":"a","topics":[]}]}', "'a' appears twice"),
        ('{"topics":{},"members":[],"extra":1}', "'extra' is not a field"),
        ('{"topics":{},"members":[{"id":"a","topics":[],"owned":{"t":[-4]}}]}', "got -4"),
        ('{"topics":{},"members":[{"id":"a","topics":[],"user_data":"%"}]}', "expected base64"),
        ('{"topics":{"t":99999999},"members":[]}', "99999999 partitions is too large"),
    ],
)
def test_bad_snapshots_name_the_field(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        Snapshot.from_json(text)


def test_a_problem_is_solved():
    problem = {"assignor": "range", "topics": {"t": 3}, "members": [{"id": "a", "topics": ["t"]}]}
    assert solve(problem) == {"a": {"t": [0, 1, 2]}}
    assert solve({**problem, "members": [*problem["members"], {"id": "b", "topics": ["t"]}]}, "roundrobin") == {
        "a": {"t": [0, 2]},
        "b": {"t": [1]},
    }


def test_a_snapshot_of_the_ledger_is_a_problem_as_it_is():
    assert as_lists(snapshot_of(as_lists(GROUP))) == as_lists(GROUP)


def test_lags_beside_the_topics_count():
    lags = {"t": [1, 1, 90], "u": [7]}
    problem = {"assignor": "lag", "topics": {"t": 3, "u": 1}, "members": [], "lags": lags}
    members = [{"id": "a", "topics": ["t", "u"]}, {"id": "b", "topics": ["t", "u"]}]
    assert solve({**problem, "members": members}) == {"a": {"t": [2], "u": [0]}, "b": {"t": [0, 1]}}


def test_what_the_ledger_alone_was_told_is_no_option_of_the_assignor():
    told = {"fallback": "last good assignment", "reason": "it failed", "held": "pins", "handover": "whole"}
    problem = {"assignor": "range", "topics": {"t": 1}, "members": [{"id": "a", "topics": ["t"]}], "options": told}
    assert solve(problem) == {"a": {"t": [0]}}


@pytest.mark.parametrize(
    ("handover", "plan"),
    [
        ("whole", {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}),
        (["a"], {"a": {"t": [0, 1]}, "b": {}}),
        ([], {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}),
    ],
)
def test_a_recorded_plan_comes_out_as_it_was_handed_out(handover, plan):
    members = [
        {"id": "a", "topics": ["t"], "owned": {"t": [0, 1, 2, 3]}, "generation": 1},
        {"id": "b", "topics": ["t"]},
    ]
    problem = {"assignor": "uniform", "topics": {"t": 4}, "members": members, "options": {"handover": handover}}
    assert solve(problem) == plan


def test_lag_problems_count_an_absent_commit_by_the_reset():
    topics = {"t": [{"begin": 2, "end": 10, "committed": None}, {"begin": 0, "end": 10, "committed": 12}]}
    members = [{"id": "a", "topics": ["t"]}]
    assert snapshot_of({"topics": topics, "members": members, "reset": "Latest"}).lags == {"t": [0, 0]}
    for reset in ("earliest", "none"):
        assert snapshot_of({"topics": topics, "members": members, "reset": reset}).lags == {"t": [8, 0]}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"assignor": "rnge"}, "did you mean 'range'"),
        ({"assignor": ""}, "names no assignor"),
        ({"topics": []}, "topics: expected an object"),
        ({"topics": {"t": "x"}}, "topics.t: expected a whole number, got 'x'"),
        ({"topics": {"t": [["r", 4]]}}, r"topics.t\[0\]\[1\]: expected a string"),
        ({"topics": {"t": [{"begin": 0}]}}, "'end' is missing"),
        ({"members": [{"topics": []}]}, r"members\[0\]: 'id' is missing"),
        ({"members": [{"id": "a", "topics": [], "owned": [["t"]]}]}, r"owned\[0\]: expected \[topic, partition\]"),
        ({"lagz": {"t": [1]}}, "problem: 'lagz' is not a field of it; its fields are topics, members, lags, racks,"),
        ({"members": [{"id": "a", "topics": [], "rac": "r"}]}, r"members\[0\]: 'rac' is not a field of it"),
        ({"topics": {"t": [{"begin": 0, "end": 1, "lag": 1}]}}, r"topics.t\[0\]: 'lag' is not a field of it"),
        ({"topics": {"t": [["r"]]}, "racks": {"t": [["r"]]}}, "topics.t: states racks that racks.t states as well"),
        ({"lags": {"t": [-1]}}, r"lags.t\[0\]: expected a number of 0 or more, got -1"),
        ({"reset": "sometimes"}, "reset: expected one of latest, earliest, none"),
    ],
)
def test_bad_problems_name_the_field(change, complaint):
    problem = {"assignor": "range", "topics": {"t": 1}, "members": [], **change}
    with pytest.raises((ValueError, AssignorError), match=complaint):
        solve(problem)


def test_a_problem_that_is_no_object_is_refused():
    with pytest.raises(ValueError, match="problem: expected an object"):
        solve([1])


def test_a_long_list_of_members_is_one_list() -> None:
    """It is written some members at a time."""
    for count in (0, 1, 19, 20, 21, 40, 41):
        members = [Member(f"m{number}", ("a",), owned={"a": (number,)}) for number in range(count)]
        whole = json.dumps(json.loads(Snapshot({"a": 50}, members).to_json()), separators=(",", ":"))
        assert Snapshot({"a": 50}, members).to_json() == whole
        assert [member["id"] for member in json.loads(whole)["members"]] == [member.id for member in members]
