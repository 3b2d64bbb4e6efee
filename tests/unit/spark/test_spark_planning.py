"""Every record is planned once, whatever the way; `split` is level to one record; the same plan every time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.assignors.registry import BUILT_IN, known
from muster.spark.planning import (
    ONE_TO_ONE,
    PLANNING_WAYS,
    SPLIT,
    NotPlanned,
    OffsetRange,
    Slots,
    TaskPlan,
    check_assignor,
    cut_into_pieces,
    plan_tasks,
    round_half_up,
)

# The assignors that take any group; those with options of their own are among them, without options.
ASSIGNORS = sorted(BUILT_IN)


@st.composite
def backlogs(draw: st.DrawFn) -> list[OffsetRange]:
    topics = draw(st.lists(st.sampled_from(["a", "b", "orders"]), max_size=3, unique=True))
    found = []
    for topic in topics:
        for partition in draw(st.lists(st.integers(0, 30), max_size=6, unique=True)):
            start = draw(st.integers(0, 2**60))
            found.append(OffsetRange(topic, partition, start, start + draw(st.integers(0, 5_000))))
    return found


PLANS = st.builds(
    TaskPlan,
    assignor=st.sampled_from([*PLANNING_WAYS, *ASSIGNORS]),
    tasks=st.integers(1, 12),
    min_partitions=st.one_of(st.none(), st.integers(1, 20)),
    max_records=st.one_of(st.none(), st.integers(50, 3_000)),
)


def joined(slots: Slots) -> list[OffsetRange]:
    """The ranges of all slots with pieces that meet put together again."""
    found: list[OffsetRange] = []
    for piece in sorted(piece for slot in slots for piece in slot):
        if found and found[-1].tp == piece.tp and found[-1].end == piece.start:
            found[-1] = found[-1]._replace(end=piece.end)
        else:
            found.append(piece)
    return found


@given(backlogs(), PLANS)
def test_every_record_is_planned_exactly_once(backlog: list[OffsetRange], plan: TaskPlan) -> None:
    slots = plan_tasks(backlog, plan)
    assert joined(slots) == sorted(wanted for wanted in backlog if wanted.size)
    assert all(slots), "a task without work costs as much as one with"
    assert plan_tasks(list(reversed(backlog)), plan) == slots
    if plan.max_records is not None:
        assert all(sum(piece.size for piece in slot) <= plan.max_records for slot in slots)


@given(backlogs(), st.integers(1, 12))
def test_split_fills_exactly_its_tasks_and_is_level_to_a_record(backlog: list[OffsetRange], tasks: int) -> None:
    sizes = [sum(piece.size for piece in slot) for slot in plan_tasks(backlog, TaskPlan(SPLIT, tasks))]
    total = sum(wanted.size for wanted in backlog)
    assert len(sizes) == min(tasks, total)
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(backlogs(), st.sampled_from(ASSIGNORS), st.integers(1, 12))
def test_an_assignor_deals_whole_partitions_to_at_most_its_tasks(
    backlog: list[OffsetRange], assignor: str, tasks: int
) -> None:
    slots = plan_tasks(backlog, TaskPlan(assignor, tasks))
    assert len(slots) <= tasks
    assert sorted(piece for slot in slots for piece in slot) == sorted(wanted for wanted in backlog if wanted.size)


def test_the_lag_assignor_puts_the_heaviest_by_itself() -> None:
    backlog = [OffsetRange("t", number, 0, size) for number, size in enumerate([10, 1_000, 20, 30])]
    slots = plan_tasks(backlog, TaskPlan("lag", 3))
    (heaviest,) = [slot for slot in slots if any(piece.size == 1_000 for piece in slot)]
    assert [piece.partition for piece in heaviest] == [1]


def test_one_to_one_is_a_task_per_partition_with_something_to_read() -> None:
    backlog = [OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 7, 7), OffsetRange("t", 2, 0, 1)]
    assert plan_tasks(backlog, TaskPlan(ONE_TO_ONE, 1)) == [[backlog[0]], [backlog[2]]]


@pytest.mark.parametrize(
    ("sizes", "least", "expected"),
    [
        ([5, 5, 5], 3, [1, 1, 1]),
        ([5], 4, [4]),
        ([100, 100], 4, [2, 2]),
        ([1, 1, 100], 6, [1, 1, 4]),
        ([4_500, 300, 300, 300], 10, [7, 1, 1, 1]),
        ([1_000, 100, 100, 100], 5, [2, 1, 1, 1]),
    ],
)
def test_min_partitions_splits_the_large_ones(sizes: list[int], least: int, expected: list[int]) -> None:
    backlog = [OffsetRange("t", number, 0, size) for number, size in enumerate(sizes)]
    slots = plan_tasks(backlog, TaskPlan(ONE_TO_ONE, 1, min_partitions=least))
    assert [sum(slot[0].partition == number for slot in slots) for number in range(len(sizes))] == expected


def test_max_records_makes_more_tasks_than_asked_for() -> None:
    backlog = [OffsetRange("t", 0, 0, 1_000)]
    for assignor in (SPLIT, ONE_TO_ONE, "range"):
        slots = plan_tasks(backlog, TaskPlan(assignor, 2, max_records=300))
        assert [sum(piece.size for piece in slot) for slot in slots] == [250] * 4


def test_pieces_leave_the_rest_to_the_last() -> None:
    assert [piece.size for piece in cut_into_pieces(OffsetRange("t", 0, 3, 13), 3)] == [3, 3, 4]
    assert [piece.size for piece in cut_into_pieces(OffsetRange("t", 0, 0, 2), 3)] == [1, 1]


def test_half_is_rounded_up_in_whole_numbers() -> None:
    assert [round_half_up(5, 2), round_half_up(4, 3), round_half_up(2**70 + 1, 2)] == [3, 1, 2**69 + 1]


def test_partitions_that_a_limit_leaves_over_are_read_all_the_same() -> None:
    backlog = [OffsetRange("t", number, 0, 10) for number in range(5)]
    slots = plan_tasks(backlog, TaskPlan("uniform", 2, options={"max.partitions.per.member": 1}))
    assert joined(slots) == backlog


def test_a_plugin_plans_too_and_is_not_trusted() -> None:
    backlog = [OffsetRange("t", number, 0, 10) for number in range(4)]
    assert plan_tasks(backlog, TaskPlan("muster.assignors.builtin.range:RangeAssignor", 2)) == [
        backlog[:2],
        backlog[2:],
    ]
    with pytest.raises(NotPlanned, match=r"assignor 'forgets': forgot t-1.*; mend it, or .*assignor=split"):
        plan_tasks(backlog, TaskPlan("tests.support.plugins:Forgets", 2))
    said = r"assignor 'raises': raised ZeroDivisionError: out of cheese \(.*, line \d+, in assign\); mend it, or"
    with pytest.raises(NotPlanned, match=said):
        plan_tasks(backlog, TaskPlan("tests.support.plugins:Raises", 2))


def test_a_plugin_that_hangs_is_given_up_at_its_deadline() -> None:
    said = (
        r"assignor 'hangs': was not done after 20 ms; give it longer by assignorDeadlineMs; at .*; mend it, or .*split"
    )
    with pytest.raises(NotPlanned, match=said):
        plan_tasks([OffsetRange("t", 0, 0, 10)], TaskPlan("tests.support.plugins:Hangs", 2, deadline_ms=20))


def test_an_unknown_way_is_refused_with_those_there_are() -> None:
    for word in (*PLANNING_WAYS, *known()):
        check_assignor(word)
    with pytest.raises(ValueError, match=r"assignor='splt'.*range.*split, one-to-one"):
        check_assignor("splt")
