"""Settings of a group, by an operator: hard facts that may come before its first member and outlive its last.

One record holds them all; it is a tombstone when the last one is unset. Every change is an entry in the ledger, and
notifies what the setting affects. The settings are listed in `core/control/settings_table.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from muster.assignors.api import JsonValue
from muster.coordinator.core.control.overrides.forecast import TRIED, plugin_trial, wait_for_plan
from muster.coordinator.core.control.settings_table import SETTINGS
from muster.coordinator.core.control.trials import canary
from muster.coordinator.core.control.trials.shadow_assignors import SHADOW_ASSIGNORS
from muster.coordinator.core.groups.bookkeeping import keep_entry, next_number
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import ListSettingsReply, SettingsReply
from muster.coordinator.core.model.events import AlterSettings, DescribeSettings, ListSettings, Planned
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan import PlanRequest, canonical_name
from muster.coordinator.core.model.records import SettingsStored, SettingsUnset
from muster.coordinator.core.model.shadow_scoring import AssignorCandidate
from muster.coordinator.core.model.types import Cause, Outcome, RebalanceEntry
from muster.coordinator.core.settings.assignor_choice import ASSIGNOR, ASSIGNOR_OPTIONS
from muster.coordinator.core.settings.setting import UNRECORDABLE, SettingsChange, invalid_setting, is_recordable
from muster.coordinator.errors import CoordinatorError, ErrorCode

MAX_BYTES = 64 << 10
"""Of all settings of one group, as JSON."""

MAX_BARE_GROUPS = 10_000
"""Ids of one shard that have settings and no group."""

MAX_TOLD = 500
"""Characters of a value that the ledger's sentence repeats."""


def describe_settings(request: DescribeSettings, step: Step) -> None:
    """What is set, and how often it was changed. A group that nobody has heard of has nothing set."""
    check_group_named(request.group_id)
    step.reply(request.request_id, reply_of(step.state.settings.get(request.group_id), step))


def list_settings(request: ListSettings, step: Step) -> None:
    """Of which groups something is set."""
    step.reply(request.request_id, ListSettingsReply(group_ids=tuple(step.state.settings)))


def alter_settings(request: AlterSettings, step: Step, planned: Planned | None = None) -> None:
    """Set and unset at once, if the version is still the expected one; refusals change nothing.

    Plugins that are to plan the group, or beside it, are tried first, off the loop, one after the other: the request
    comes again with the plan of each (`planned`).
    """
    check_group_named(request.group_id)
    before = step.state.settings.get(request.group_id)
    check_request(request, before)
    canary.check_no_canary(request.group_id, (*request.set, *request.unset), step)
    old = before.values if before else {}
    values = {name: value for name, value in {**old, **request.set}.items() if name not in request.unset}
    if before is None and values:
        room_for_one_more(request.group_id, step.state)
    size = len(json.dumps(values))
    if size > MAX_BYTES:
        raise invalid_setting(
            f"the settings of group {request.group_id!r} would take {size} bytes; at most {MAX_BYTES} may"
        )
    group = step.state.logged(request.group_id)
    change = SettingsChange(request.group_id, group, KINDS[type(group)], values, old, step)
    check_values(request, change)
    trials = plugins_to_try(change)
    if planned is not None and planned.plan is None:
        name, _ = trials[request.tried - 1] if request.tried <= len(trials) else (ASSIGNOR.name, None)
        raise invalid_setting(f"{name}: {planned.error}; {TRIED}")
    if request.tried < len(trials):
        _, trial = trials[request.tried]
        if not wait_for_plan(trial, replace(request, tried=request.tried + 1), step):
            raise CoordinatorError(ErrorCode.POLICY_VIOLATION, "too many requests wait for a plan; try again")
        return
    why = before.suspended if before and ASSIGNOR.name not in request.set and ASSIGNOR.name in values else ""
    # What was unset left nothing behind: from the ledger's count on, no version ever comes again.
    version = before.version + 1 if before else next_number(request.group_id, step)
    after = SettingsStored(request.group_id, version, values, why)
    if values == old and (before is None or why == before.suspended):
        step.reply(request.request_id, reply_of(before, step))
        return
    if not request.validate_only:
        step.keep(after if values else SettingsUnset(request.group_id))
        apply_change(request, change)
    step.reply(request.request_id, reply_of(after if values else None, step))


def check_group_named(group_id: str) -> None:
    if not group_id:
        raise CoordinatorError(ErrorCode.INVALID_GROUP_ID, "group_id is empty; name the group")


def reply_of(stored: SettingsStored | None, step: Step) -> SettingsReply:
    defaults = {name: setting.default_of(step.limits) for name, setting in SETTINGS.items()}
    if stored is None:
        return SettingsReply(defaults=defaults)
    return SettingsReply(version=stored.version, values=stored.values, defaults=defaults, suspended=stored.suspended)


def check_request(request: AlterSettings, before: SettingsStored | None) -> None:
    names = [*request.set, *request.unset]
    # One that another version of Muster has set can be unset.
    set_once = before.values if before else {}
    unknown = [name for name in names if name not in SETTINGS and (name in request.set or name not in set_once)]
    if unknown:
        raise invalid_setting(f"{unknown[0]!r} is not a setting of a group; known are: {', '.join(SETTINGS)}")
    if not names:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "nothing is to be set or unset; name a setting")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"{twice!r} is named twice; set it or unset it, once")
    for name, value in request.set.items():
        if not is_recordable(value):
            raise invalid_setting(f"{name} has {UNRECORDABLE}")
    version = before.version if before else 0
    if request.expected_version not in (None, version):
        raise CoordinatorError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the settings of group {request.group_id!r} are at version {version}, version {request.expected_version} "
            "was expected: somebody else changed them; look at them again",
        )


def room_for_one_more(group_id: str, state: ShardState) -> None:
    if len(state.settings) < MAX_BARE_GROUPS or state.logged(group_id) is not None:
        return
    bare = sum(state.logged(other) is None for other in state.settings)
    if bare >= MAX_BARE_GROUPS:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION,
            f"{bare} groups that do not exist have settings, as many as may; unset those of some",
        )


def check_values(request: AlterSettings, change: SettingsChange) -> None:
    """Each by its own shape and by what speaks against it in this group, and then all of them together."""
    for name, value in request.set.items():
        setting = SETTINGS[name]
        try:
            found = setting.shape.of_json(value, change.step.limits)
        except ValueError as error:
            raise invalid_setting(f"{name} {error}") from None
        setting.check(found, change)
    names = [*request.set, *request.unset]
    for fits in dict.fromkeys(SETTINGS[name].together for name in names if name in SETTINGS):
        fits(change)


def plugins_to_try(change: SettingsChange) -> list[tuple[str, PlanRequest]]:
    """What plugins that are to plan the group, or beside it, are asked before the settings count, by setting.

    None of those that stay as they are.
    """
    group_id, group, kind, step = change.group_id, change.group, change.kind, change.step
    candidates: list[tuple[str, AssignorCandidate]] = []
    word, names = change.after.get(ASSIGNOR.name), (ASSIGNOR.name, ASSIGNOR_OPTIONS.name)
    if isinstance(word, str) and any(change.before.get(name) != change.after.get(name) for name in names):
        options = change.after.get(ASSIGNOR_OPTIONS.name, {})
        assert isinstance(options, Mapping)
        candidates.append((ASSIGNOR.name, AssignorCandidate(canonical_name(word, step.limits), options)))
    shadows = change.after.get(SHADOW_ASSIGNORS.name)
    if isinstance(shadows, list | tuple) and shadows != change.before.get(SHADOW_ASSIGNORS.name):
        candidates += [(SHADOW_ASSIGNORS.name, each) for each in SHADOW_ASSIGNORS.shape.of_json(shadows, step.limits)]
    asked = [(name, plugin_trial(group_id, kind, group, each, step)) for name, each in candidates]
    return [(name, trial) for name, trial in asked if trial is not None]


def apply_change(request: AlterSettings, change: SettingsChange) -> None:
    """The ledger's entry, and what follows for whoever hears of it, once each."""
    old, new, step = change.before, change.after, change.step
    names = [name for name in (*request.set, *request.unset) if old.get(name) != new.get(name)]
    told = "; ".join(f"{name}: {shown_setting(old.get(name))} -> {shown_setting(new.get(name))}" for name in names)
    if not names:
        # Set to what it was: that takes back what suspended it.
        names, told = [ASSIGNOR.name], f"{ASSIGNOR.name}: {shown_setting(new[ASSIGNOR.name])} counts again"
    detail = f"{request.operator} changed the group's settings: {told}"
    keep_entry(request.group_id, entry_of(change.group, request, detail, step), step)
    trigger = RebalanceTrigger(Cause.OPERATOR, detail, request.operator)
    for hears in dict.fromkeys(SETTINGS[name].hears for name in names if name in SETTINGS):
        hears(change, trigger)


def entry_of(group: GroupData | None, request: AlterSettings, detail: str, step: Step) -> RebalanceEntry:
    """An entry beside those of rebalances: nothing was planned, nobody moved."""
    generation, under_way = (0, 0) if group is None else (group.generation, group.under_way)
    return RebalanceEntry(
        # A rebalance that is under way has its number already, and is written when it ends.
        number=max(next_number(request.group_id, step), under_way + 1),
        previous_generation=generation,
        generation=generation,
        protocol_type="",
        protocol_name="",
        cause=Cause.OPERATOR,
        culprit=request.operator,
        culprit_client_id="",
        culprit_client_host="",
        detail=detail,
        client_reason="",
        outcome=Outcome.SETTINGS_CHANGED,
        started_at_ms=step.now_ms,
        ended_at_ms=step.now_ms,
    )


def shown_setting(value: JsonValue) -> str:
    text = "unset" if value is None else json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_TOLD else f"{text[:MAX_TOLD]}... ({len(text)} characters)"
