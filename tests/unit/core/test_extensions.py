"""Rules beside the protocols: each call reaches every extension, and each call has one that answers."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from muster.assignors.api import Snapshot
from muster.coordinator.core.control.extensions import EXTENSIONS
from muster.coordinator.core.groups.extensions import (
    NO_EXTENSIONS,
    TOLD,
    Extensions,
    GroupExtension,
    GroupView,
    StandingPlan,
)
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.registry import FACTS
from muster.coordinator.core.model.plan_correction import CorrectedPlan
from muster.coordinator.core.model.records import SettingsStored
from muster.coordinator.core.model.types import Limits

CALLS = sorted(name for name, each in vars(GroupExtension).items() if callable(each) and not name.startswith("_"))
OF_ONE = {"fire_timer"}
"""Calls that the shard addresses to one extension, by the timer's key."""

NOTICES = [
    "entry_kept",
    "group_forgotten",
    "leader_plan_adopted",
    "load",
    "member_left",
    "node_stalled",
    "plan_adopted",
    "plan_recorded",
    "plan_settled",
]
ANY: Any = object()
VIEW = GroupView("g", None, dict, dict)


def extension(**answers: Callable[..., Any] | Mapping[str, str]) -> GroupExtension:
    """One that answers these calls."""
    made: GroupExtension = type(
        "Answering", (GroupExtension,), {k: staticmethod(v) if callable(v) else v for k, v in answers.items()}
    )()
    return made


def snapshot(*topics: str) -> Snapshot:
    return Snapshot(dict.fromkeys(topics, 1), [])


def grown(seen: Snapshot, topic: str) -> Snapshot:
    return snapshot(*seen.topics, topic)


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_answered_by_an_extension_of_the_shard(name: str) -> None:
    assert any(getattr(type(each), name) is not getattr(GroupExtension, name) for each in EXTENSIONS.each)


@pytest.mark.parametrize("name", [name for name in CALLS if name not in OF_ONE])
def test_every_call_can_be_made_to_all_extensions(name: str) -> None:
    assert callable(getattr(Extensions, name))


@pytest.mark.parametrize("name", NOTICES)
def test_a_notice_reaches_every_extension_in_order(name: str) -> None:
    told: list[tuple[str, tuple[Any, ...]]] = []
    both = Extensions(
        (
            extension(**{name: lambda *said: told.append(("a", said))}),
            extension(**{name: lambda *said: told.append(("b", said))}),
        )
    )
    said = tuple(range(getattr(GroupExtension, name).__code__.co_argcount - 1))
    getattr(both, name)(*said)
    assert told == [("a", said), ("b", said)]


@pytest.mark.parametrize("name", TOLD)
def test_an_extension_with_a_table_is_told_of_groups_in_it_only(name: str) -> None:
    told: list[tuple[Any, ...]] = []
    one = extension(tables={name: "settings"}, **{name: lambda *said: told.append(said)})
    step = Step(ShardState(Limits(), FACTS), 0)
    between = (None,) * (getattr(GroupExtension, name).__code__.co_argcount - 3)
    getattr(Extensions((one,)), name)("g", *between, step)
    assert told == []
    step.keep(SettingsStored("g", 1, {}))
    getattr(Extensions((one,)), name)("g", *between, step)
    assert told == [("g", *between, step)]


@pytest.mark.parametrize("one", EXTENSIONS.each, ids=lambda each: type(each).__name__)
def test_the_tables_of_an_extension_are_of_what_it_is_told(one: GroupExtension) -> None:
    state = ShardState(Limits(), FACTS)
    for name, table in one.tables.items():
        assert name in TOLD
        assert getattr(type(one), name) is not getattr(GroupExtension, name)
        assert getattr(state, table) == {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("prepare_snapshot", lambda seen: (ANY, seen, ANY)),
        ("restrict_snapshot", lambda seen: (VIEW, seen, ANY)),
        ("restore_snapshot", lambda seen: ("g", seen, ANY, ANY)),
    ],
)
def test_each_extension_gets_the_snapshot_of_the_one_before(name: str, said: Callable[[Snapshot], Any]) -> None:
    both = Extensions(
        (
            extension(**{name: lambda _, seen, *rest: grown(seen, "a")}),
            GroupExtension(),
            extension(**{name: lambda _, seen, *rest: grown(seen, "b")}),
        )
    )
    assert list(getattr(both, name)(*said(snapshot("t"))).topics) == ["t", "a", "b"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("protects_members", ("g", ANY)),
        ("take_plan", (ANY, ANY)),
        ("take_lost_record", (ANY, ANY)),
    ],
)
def test_one_extension_is_enough_for_yes(name: str, said: tuple[Any, ...]) -> None:
    yes, no = extension(**{name: lambda *_: True}), GroupExtension()
    assert getattr(Extensions((no, yes)), name)(*said)
    assert getattr(Extensions((yes, no)), name)(*said)
    assert not getattr(Extensions((no, no)), name)(*said)
    assert not getattr(NO_EXTENSIONS, name)(*said)


def test_the_first_extension_that_corrects_a_plan_has_the_say() -> None:
    first, second = CorrectedPlan({"a": {}}, why="first"), CorrectedPlan({"b": {}}, why="second")
    both = Extensions(
        (GroupExtension(), extension(correct_plan=lambda *_: first), extension(correct_plan=lambda *_: second))
    )
    assert both.correct_plan(VIEW, {}, snapshot(), ANY) is first


def test_the_first_extension_that_lets_a_plan_stand_says_why() -> None:
    first, second = StandingPlan("first", {}), StandingPlan("second", {})
    both = Extensions(
        (GroupExtension(), extension(standing_plan=lambda *_: first), extension(standing_plan=lambda *_: second))
    )
    assert both.standing_plan("g", True, (), ANY) is first
    assert Extensions((GroupExtension(),)).standing_plan("g", True, (), ANY) is None


def test_every_timer_has_one_extension() -> None:
    assert len(EXTENSIONS.by_timer) == sum(len(each.timers) for each in EXTENSIONS.each)
    assert all(word in each.timers for word, each in EXTENSIONS.by_timer.items())
    assert {"balance", "canary", "hold", "look"} == EXTENSIONS.by_timer.keys()
