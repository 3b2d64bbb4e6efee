"""A hanging, raising or lying plugin cannot harm the group: every lie is caught and named."""

import numpy as np
import pytest

from muster.assignors.api import Assignment, AssignorError, Member, RebalanceProtocol, Snapshot
from muster.assignors.data.consumer_protocol import (
    Subscription,
    encode_sticky_user_data,
    encode_subscription,
    member_from_subscription,
)
from muster.assignors.registry import resolve
from muster.assignors.run import overran, run, withheld

GROUP = Snapshot({"t": 3, "u": 1}, [Member("a", ("t",)), Member("b", ("t", "u"))])


class Plugin:
    name = "plugin"
    protocol = RebalanceProtocol.EAGER

    def __init__(self, answer, protocol=RebalanceProtocol.EAGER):
        self.answer, self.protocol = answer, protocol

    def assign(self, snapshot):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(snapshot) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"a": {"t": [0, 1]}, "b": {"t": [1, 2], "u": [0]}}, r"gave t-1 twice: to 'a' and 'b'"),
        ({"a": {"t": [0]}, "b": {"u": [0]}}, r"forgot t-1, t-2; its subscribers are a, b"),
        ({"a": {"t": [0, 1], "u": [0]}, "b": {"t": [2]}}, r"gave 'a' u-0, but it is not subscribed"),
        ({"a": {"t": [0, 7]}, "b": {"t": [1, 2], "u": [0]}}, r"t-7, which does not exist \(t has 3"),
        ({"a": {"t": [-1, 0]}, "b": {"t": [1, 2], "u": [0]}}, r"t--1, which does not exist"),
        ({"a": {"v": [0]}, "b": {"t": [0, 1, 2], "u": [0]}}, r"v-0, which does not exist"),
        ({"z": {"t": [0, 1, 2]}, "b": {"u": [0]}}, r"gave partitions to z, not members"),
        ({"a": {"t": [0, 0, 1]}, "b": {"t": [2], "u": [0]}}, r"gave t-0 twice: to 'a' and 'a'"),
        ({"a": {"t": ["0"]}}, r"a partition number must be an int"),
        ({"a": {"t": [True]}}, r"a partition number must be an int"),
        ({"a": 5}, r"answered something unreadable"),
        (None, r"answered a NoneType"),
        ([1, 2], r"answered a list"),
        (ZeroDivisionError("oops"), r"raised ZeroDivisionError: oops"),
        (Assignment({"a": {"t": [0, 1]}, "b": {"u": [0]}}, unassigned=[("t", 2)]), r"left t-2 unassigned, but"),
    ],
)
def test_lies_are_named(answer, complaint):
    with pytest.raises(AssignorError, match=complaint) as caught:
        run(Plugin(answer), GROUP)
    assert caught.value.assignor == "plugin"


def test_a_range_that_overshoots_is_caught():
    with pytest.raises(AssignorError, match="does not exist"):
        run(Plugin({"a": {"t": range(4)}, "b": {"u": [0]}}), GROUP)


@pytest.mark.parametrize(
    ("owners", "complaint"),
    [
        ([0, 0, 1], "expected an array of 4 signed integers"),
        ([0, 0, 1, 5], "gave u-0 to member number 5"),
        ([0, 0, -1, 1], "forgot t-2"),
        ([0, 0, 1, 0], "gave 'a' u-0, but it is not subscribed"),
        ([0.0, 0.0, 1.0, 1.0], "expected an array of 4 signed integers"),
    ],
)
def test_lies_in_arrays_are_named(owners, complaint):
    def answer(snapshot):
        return Assignment(snapshot.columns.table(np.array(owners)))

    with pytest.raises(AssignorError, match=complaint):
        run(Plugin(answer), Snapshot(GROUP.topics, GROUP.members))


def test_a_list_in_place_of_an_array_is_named():
    def answer(snapshot):
        return Assignment(snapshot.columns.table([0, 0, 1, 1]))

    with pytest.raises(AssignorError, match="answered list as owners"):
        run(Plugin(answer), GROUP)


def test_what_a_plugin_does_to_its_snapshot_changes_nothing():
    group = Snapshot({"t": 3}, [Member("a", ("t",), {"t": [0, 1, 2]}, 1), Member("b", ("t",))], {"t": [1, 2, 3]})
    before = group.to_json()

    def vandal(snapshot):
        snapshot.members[0].owned.clear()
        snapshot.members.clear()
        return {"b": {"t": [0, 1, 2]}}

    answer = run(Plugin(vandal, RebalanceProtocol.COOPERATIVE), group)
    assert len(answer.withheld) == 3
    assert group.to_json() == before


def test_snapshots_and_their_arrays_cannot_be_written_to():
    def vandal(snapshot):
        snapshot.topics["t"] = 0
        return {}

    def careless(snapshot):
        snapshot.columns.owner[:] = 0
        return Assignment(snapshot.columns.table(snapshot.columns.owner))

    with pytest.raises(AssignorError, match="raised TypeError"):
        run(Plugin(vandal), GROUP)
    with pytest.raises(AssignorError, match="raised ValueError: assignment destination is read-only"):
        run(Plugin(careless), GROUP)


def test_a_plugin_that_wants_to_leave_takes_nobody_with_it():
    def leave(snapshot):
        raise SystemExit(3)

    with pytest.raises(AssignorError, match="raised SystemExit: 3"):
        run(Plugin(leave), GROUP)


def test_arrays_and_dicts_mean_the_same():
    def answer(snapshot):
        return Assignment(snapshot.columns.table(np.array([0, 0, 1, 1])))

    expected = {"a": {"t": [0, 1]}, "b": {"t": [2], "u": [0]}}
    assert run(Plugin(answer), Snapshot(GROUP.topics, GROUP.members)).to_dict() == expected
    assert run(Plugin(expected), GROUP).to_dict() == expected


def test_members_left_out_get_nothing_but_an_entry():
    assignment = run(Plugin({"b": {"t": [2, 0, 1], "u": [0]}}), GROUP)
    assert assignment.to_dict() == {"a": {}, "b": {"t": [0, 1, 2], "u": [0]}}


def test_two_members_of_one_id_cannot_be_run():
    with pytest.raises(AssignorError, match="'a' appears twice"):
        run(Plugin({}), Snapshot({}, [Member("a", ()), Member("a", ())]))


def test_what_is_listed_as_unassigned_must_be_so():
    limited = Snapshot({"t": 2}, [Member("a", ("t",))], options={"max.partitions.per.member": 1})
    assert run(Plugin(Assignment({"a": {"t": [0]}}, unassigned=[("t", 1)])), limited).unassigned == (("t", 1),)
    for unassigned in ([("t", 1)], [("t", 2)], [("t", -1)]):
        with pytest.raises(AssignorError, match="as unassigned that do not exist or have a reader"):
            run(Plugin(Assignment({"a": {"t": [0, 1]}}, unassigned=unassigned)), limited)


def test_a_plugin_without_a_readable_name_is_named_by_its_class():
    class Nameless(Plugin):
        @property
        def name(self):
            raise RuntimeError("no name")

    with pytest.raises(AssignorError, match="assignor 'Nameless': forgot"):
        run(Nameless({}), GROUP)


def test_an_overrun_is_named_with_its_deadline():
    assert str(overran("slow", 5000)).startswith("assignor 'slow': was not done after 5000 ms")


def test_a_cooperative_change_of_owner_is_withheld_for_a_round():
    group = Snapshot({"t": 2}, [Member("a", ("t",), {"t": [0, 1]}, 3), Member("b", ("t",))])
    target = {"a": {"t": [0]}, "b": {"t": [1]}}
    plugin = Plugin(target, RebalanceProtocol.COOPERATIVE)
    first = run(plugin, group)
    assert first.to_dict() == {"a": {"t": [0]}, "b": {}}
    assert list(first.withheld) == [("t", 1)]
    assert run(plugin, group, withhold=False).to_dict() == target
    assert run(Plugin(target), group).to_dict() == target


def test_a_tied_claim_is_withheld_from_both_claimants():
    group = Snapshot({"t": 1}, [Member("a", ("t",), {"t": [0]}, 3), Member("b", ("t",), {"t": [0]}, 3)])
    assert list(run(Plugin({"a": {"t": [0]}}, RebalanceProtocol.COOPERATIVE), group).withheld) == [("t", 0)]


def test_a_rightful_owner_keeps_its_partition_whatever_stale_members_claim():
    group = Snapshot({"t": 1}, [Member("a", ("t",), {"t": [0]}, 4), Member("b", ("t",), {"t": [0]}, 3)])
    assert not run(Plugin({"a": {"t": [0]}}, RebalanceProtocol.COOPERATIVE), group).withheld


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_what_an_eager_sticky_member_remembers_holds_up_nobody(assignor):
    """It has let go of everything before it joined, and will not come back for a second round."""
    had = encode_subscription(Subscription(1, ("t",), user_data=encode_sticky_user_data({"t": [3, 2, 1, 0]}, 1)))
    newcomer = encode_subscription(Subscription(1, ("t",)))
    members = [member_from_subscription(name, None, blob, "sticky") for name, blob in (("a", had), ("b", newcomer))]
    group = Snapshot({"t": 4}, members, assignor=assignor)
    assert members[0].owned == {"t": [3, 2, 1, 0]}  # it guides the plan
    target = run(resolve(assignor), group, withhold=False)
    assert withheld(group, target) == target
    assert withheld(group, Assignment(target.to_dict())) == Assignment(target.to_dict())


def test_one_that_still_holds_is_waited_for_beside_one_that_remembers():
    had = encode_subscription(Subscription(1, ("t",), user_data=encode_sticky_user_data({"t": [0]}, 1)))
    members = [
        member_from_subscription("a", None, had, "sticky"),
        Member("b", ("t",), {"t": [1]}, 1),
        Member("c", ("t",)),
    ]
    target = Assignment({"c": {"t": [0, 1]}})
    assert withheld(Snapshot({"t": 2}, members), target).to_dict() == {"c": {"t": [0]}}


def test_what_librdkafka_says_in_its_user_data_as_well_it_still_holds():
    """Its cooperative-sticky writes the user data of eager `sticky` beside what it owns: that is no memory."""
    holds = Subscription(3, ("t",), encode_sticky_user_data({"t": [0, 1]}, 4), {"t": [0, 1]}, 4)
    members = [
        member_from_subscription("a", None, encode_subscription(holds), "cooperative-sticky"),
        member_from_subscription("b", None, encode_subscription(Subscription(3, ("t",))), "cooperative-sticky"),
    ]
    snapshot = Snapshot({"t": 2}, members)
    given = withheld(snapshot, Assignment({"a": {"t": [0]}, "b": {"t": [1]}}))
    assert (given.to_dict(), given.withheld) == ({"a": {"t": [0]}, "b": {}}, (("t", 1),))


def test_what_members_may_be_reading_besides_waits_and_is_not_theirs_by_that():
    members = [Member("a", ("t",), {"t": [0]}, 5), Member("b", ("t",), {"t": [1]}, 5), Member("c", ("t",))]
    besides = [Member("a", (), {"t": [0, 1, 2]})]
    target = Assignment({"a": {"t": [0]}, "b": {"t": [1]}, "c": {"t": [2]}})
    given = withheld(Snapshot({"t": 3}, members), target, besides)
    assert (given.to_dict(), given.withheld) == ({"a": {"t": [0]}, "b": {"t": [1]}, "c": {}}, (("t", 2),))
    back = Assignment({"a": {"t": [0, 2]}, "b": {"t": [1]}, "c": {}})
    assert withheld(Snapshot({"t": 3}, members), back, besides).withheld == ()
