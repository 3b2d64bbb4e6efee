"""A plugin is tried on the group as it is before `assignor` counts; a refusal changes nothing."""

import pytest

from muster.assignors.api import AssignorError
from muster.coordinator.core.model.effects import SettingsReply
from muster.coordinator.core.model.events import AlterSettings, Planned
from muster.coordinator.core.model.plan import PlanRequest, compute_plan
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
