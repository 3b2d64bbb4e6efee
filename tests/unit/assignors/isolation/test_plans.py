"""Plans as bytes: what comes back is what was sent, and what nobody may send is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.assignors.api import Assignment, AssignorError, Member, Snapshot
from muster.assignors.plan_codec import OWNERS, ROWS, pack_plan, pack_question, unpack_plan, unpack_question
from muster.assignors.run import checked
from tests.support.plugins import Deals

TOPICS = ("a", "b", "c", "d")
SHAPES = st.tuples(
    st.fixed_dictionaries({topic: st.integers(0, 5) for topic in TOPICS}),
    st.lists(st.lists(st.sampled_from(TOPICS), unique=True), min_size=1, max_size=6),
)


def there_and_back(snapshot: Snapshot, assignment: Assignment) -> tuple[str, Assignment]:
    """The form that it took, and what the caller gets."""
    header, body, tabled = pack_question(snapshot)
    shown = unpack_question(header, body)
    said, plan = pack_plan(shown, checked("p", shown, assignment))
    return said["form"], unpack_plan("p", tabled, said, plan)


@given(SHAPES)
def test_shares_come_back_as_they_were_written(shape: tuple[dict[str, int], list[list[str]]]) -> None:
    """Topics that nobody reads or that are empty, and members that read nothing, among them."""
    counts, wanted = shape
    snapshot = Snapshot(counts, [Member(f"m{9 - at}", tuple(topics)) for at, topics in enumerate(wanted)])
    plan = Deals().assign(snapshot)
    form, back = there_and_back(snapshot, Assignment(plan, note="so"))
    assert (form, back.note) == (OWNERS, "so")
    assert {member: dict(share) for member, share in back.members.items()} == plan


def test_what_has_no_reader_comes_back_as_well() -> None:
    limited = {"max.partitions.per.member": 1}
    snapshot = Snapshot({"t": 3, "u": 1}, [Member("x", ("t", "u")), Member("y", ("t",))], options=limited)
    form, back = there_and_back(
        snapshot, Assignment({"x": {"u": [0]}, "y": {"t": [2]}}, unassigned=(("t", 0), ("t", 1)))
    )
    assert form == ROWS
    assert {member: dict(share) for member, share in back.members.items()} == {"x": {"u": [0]}, "y": {"t": [2]}}
    assert list(back.unassigned) == [("t", 0), ("t", 1)]


@pytest.mark.parametrize(
    ("owners", "why"),
    [
        ([0, 0], "2 owners for 3 partitions"),
        ([0, 0, 2], "not a plan"),
        ([0, -2, 0], "not a plan"),
        ([0, -1, 0], "forgot t-1"),
        ([0, 1, 1], "not subscribed"),
    ],
)
def test_owners_that_nobody_may_send_are_refused(owners: list[int], why: str) -> None:
    snapshot = Snapshot({"t": 2, "u": 1}, [Member("x", ("t", "u")), Member("y", ("t",))])
    said: dict[str, Any] = {"form": OWNERS, "note": "", "unassigned": []}
    with pytest.raises(AssignorError, match=why):
        unpack_plan("p", snapshot, said, np.array(owners, "<i4").tobytes())
