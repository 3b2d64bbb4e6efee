"""A plugin is tried on the group as it is before `assignor` counts; a refusal changes nothing."""

import pytest

from muster.assignors.api import AssignorError
from muster.coordinator.core.model.effects import CanaryReply, SettingsReply
from muster.coordinator.core.model.events import AlterSettings, AskDrain, HoldGroup, Planned, StartCanary
from muster.coordinator.core.model.plan import PlanRequest, compute_plan
from muster.coordinator.core.model.records import By
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.support import plugins
from tests.support.stories.script import Stage

PLUGIN = "tests.support.plugins:Deals"
LIMITS = Limits(installed=("deals",), plugins=(("deals", PLUGIN),))


def ask(
    shard: Shard, *, validate_only: bool = False, **values: object
) -> tuple[list[PlanRequest], list[SettingsReply]]:
    event = AlterSettings(99, "g", values, (), None, validate_only, "op")  # type: ignore[arg-type]
    effects = shard.step(event, 0)
    return [plan for plan in effects.plans if isinstance(plan, PlanRequest)], replies(effects.replies)


def replies(given: object) -> list[SettingsReply]:
    return [reply for _, reply in given if isinstance(reply, SettingsReply)]  # type: ignore[attr-defined]


def living_group() -> Shard:
    stage = Stage(limits=LIMITS)
    for command in ("topics t=3", "join g a", "join g b", "advance 9s", "sync g a", "sync g b"):
        stage.run([command])
    return stage.shard


@pytest.mark.parametrize("validate_only", [True, False])
def test_what_fails_on_the_group_is_refused(validate_only: bool) -> None:
    shard = living_group()
    (asked,), none = ask(shard, assignor="deals", validate_only=validate_only)
    assert (asked.assignor, asked.trial, none) == (PLUGIN, True, [])
    assert {member.id for member in asked.snapshot.members} == {"a-1", "b-1"}
    (reply,) = replies(
        shard.step(Planned("g", asked.epoch, None, "assignor 'deals': raised x (f.py, line 3)"), 0).replies
    )
    assert reply.code is ErrorCode.INVALID_CONFIG
    assert "raised x (f.py, line 3); tried on the group as it is, and nothing was changed" in reply.message
    assert not shard.state.settings


def test_what_plans_the_group_counts() -> None:
    shard = living_group()
    (asked,), _ = ask(shard, assignor="deals")
    (reply,) = replies(shard.step(Planned("g", asked.epoch, compute_plan(asked)), 0).replies)
    assert (reply.code, dict(reply.values)) == (ErrorCode.NONE, {"assignor": "deals"})
    assert shard.groups["g"].planner.assignor == "deals"


def test_a_group_that_has_no_members_yet_is_tried_on_a_small_one() -> None:
    shard = Shard(LIMITS, 0)
    (asked,), _ = ask(shard, assignor="deals")
    assert compute_plan(asked) == {"a": {"t": (0,)}, "b": {"t": (1,)}}


def test_options_for_a_plugin_are_tried_and_other_settings_are_not() -> None:
    shard = Shard(LIMITS, 0)
    (asked,), _ = ask(shard, assignor="deals")
    shard.step(Planned("g", asked.epoch, {}), 0)
    (asked,), _ = ask(shard, **{"assignor.options": {"speed": 3}})
    assert asked.snapshot.options == {"speed": 3}
    shard.step(Planned("g", asked.epoch, {}), 0)
    assert ask(shard, **{"hold.ms": 5})[0] == []
    assert ask(shard, assignor="range", **{"assignor.options": {}})[0] == []


def test_a_plugin_that_declares_its_options_takes_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Shard(LIMITS, 0)
    (asked,), _ = ask(shard, assignor="deals", **{"assignor.options": {"sped": 3}})
    compute_plan(asked)
    monkeypatch.setattr(plugins.Deals, "options", ("speed",), raising=False)
    with pytest.raises(AssignorError, match="'deals': has no option 'sped'; its options are speed"):
        compute_plan(asked)


def begin_canary(
    shard: Shard, assignor: str, *, validate_only: bool = False
) -> tuple[list[PlanRequest], list[CanaryReply]]:
    event = StartCanary(99, "g", assignor, 60_000, (), 1_000, True, validate_only, "op")
    effects = shard.step(event, 0)
    plans = [plan for plan in effects.plans if isinstance(plan, PlanRequest)]
    return plans, [reply for _, reply in effects.replies if isinstance(reply, CanaryReply)]


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_canary_that_fails_on_the_group_is_refused(validate_only: bool) -> None:
    shard = living_group()
    ask(shard, assignor="range")
    (asked,), none = begin_canary(shard, 'deals{"speed": 3}', validate_only=validate_only)
    assert (asked.assignor, asked.trial, asked.snapshot.options, none) == (PLUGIN, True, {"speed": 3}, [])
    failed = Planned("g", asked.epoch, None, "assignor 'deals': raised x (f.py, line 3)")
    ((_, reply),) = shard.step(failed, 0).replies
    assert reply.code is ErrorCode.INVALID_CONFIG
    assert "raised x (f.py, line 3); tried on the group as it is, and nothing was changed" in reply.message
    assert not shard.state.canaries


def owning_group() -> Shard:
    """a has t-0 and t-1, b has t-2."""
    stage = Stage(limits=LIMITS)
    for command in ("limits consumer_assignment_interval_ms=0", "topics t=3"):
        stage.run([command])
    stage.run(["set g", 'assignor "range"'])
    for command in ("enter g a topics=t", "enter g b topics=t"):
        stage.run([command])
    return stage.shard


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_canary_that_plans_the_group_says_what_moves(validate_only: bool) -> None:
    shard = owning_group()
    (asked,), _ = begin_canary(shard, "deals", validate_only=validate_only)
    a, b = (member.id for member in asked.snapshot.members)
    plan = {a: {"t": (2,)}, b: {"t": (0, 1)}}
    ((_, reply),) = shard.step(Planned("g", asked.epoch, plan, "", asked.snapshot), 0).replies
    assert isinstance(reply, CanaryReply)
    assert reply.code is ErrorCode.NONE
    assert [(move.partition, move.source, move.target) for move in reply.moves] == [(0, a, b), (1, a, b), (2, b, a)]
    assert ("g" in shard.state.canaries) is not validate_only


def test_a_canary_under_a_drain_gives_the_drained_member_nothing() -> None:
    shard = owning_group()
    drained = next(member.id for member in shard.state.groups["g"].members.values() if member.client_id == "b")
    shard.step(HoldGroup(98, "g", AskDrain(By.CLIENT_ID, "b"), None, None, False, "op"), 0)
    _, (reply,) = begin_canary(shard, "roundrobin", validate_only=True)
    assert drained not in {move.target for move in reply.moves}


def test_each_shadow_is_tried_and_the_first_that_fails_is_named() -> None:
    shard = living_group()
    words = ["deals", "range", 'deals{"speed": 3}']
    (first,), none = ask(shard, **{"shadow.assignors": words})
    assert (first.snapshot.options, none) == ({}, [])
    effects = shard.step(Planned("g", first.epoch, compute_plan(first)), 0)
    (second,) = [plan for plan in effects.plans if isinstance(plan, PlanRequest)]
    assert second.snapshot.options == {"speed": 3}
    assert effects.replies == []
    (reply,) = replies(shard.step(Planned("g", second.epoch, None, "assignor 'deals': raised x"), 0).replies)
    assert reply.message.startswith("shadow.assignors: assignor 'deals': raised x; tried on the group as it is")
    assert not shard.state.settings
