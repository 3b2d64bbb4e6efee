"""Settings of a group, by an operator: hard facts that may come before its first member and outlive its last.

One record holds them all; it is a tombstone when the last one is unset. Every change is an entry in the ledger, and a
group that the coordinator plans for is planned anew.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from muster.assignors.api import AssignorError, JsonValue, Snapshot
from muster.assignors.api import Member as AssignorMember
from muster.assignors.registry import BUILT_IN, resolve
from muster.coordinator.core.effects import ListSettingsReply, SettingsReply
from muster.coordinator.core.entries import keep_entry, next_number
from muster.coordinator.core.events import AlterSettings, DescribeSettings, ListSettings
from muster.coordinator.core.groups.group import Group
from muster.coordinator.core.groups.kinds import KINDS
from muster.coordinator.core.ledger import Trigger
from muster.coordinator.core.plan import decided
from muster.coordinator.core.records import SettingsStored, SettingsUnset
from muster.coordinator.core.state import ASSIGNOR_OPTIONS, ShardState, Step
from muster.coordinator.core.types import Cause, Limits, Outcome, RebalanceEntry
from muster.coordinator.errors import CoordinatorError, ErrorCode

MAX_BYTES = 64 << 10
"""Of all settings of one group, as JSON."""

MAX_BARE_GROUPS = 10_000
"""Ids of one shard that have settings and no group."""

MAX_TOLD = 500
"""Characters of a value that the ledger's sentence repeats."""

Check = Callable[[str, JsonValue, Step], None]

TRIAL = Snapshot({"t": 2}, [AssignorMember("a", ("t",)), AssignorMember("b", ("t",))])


def describe_settings(request: DescribeSettings, step: Step) -> None:
    """What is set, and how often it was changed. A group that nobody has heard of has nothing set."""
    named(request.group_id)
    step.reply(request.request_id, reply_of(step.state.settings.get(request.group_id)))


def list_settings(request: ListSettings, step: Step) -> None:
    """Of which groups something is set."""
    step.reply(request.request_id, ListSettingsReply(group_ids=tuple(step.state.settings)))


def alter_settings(request: AlterSettings, step: Step) -> None:
    """Set and unset at once, if the version is still the expected one; refusals change nothing."""
    named(request.group_id)
    before = step.state.settings.get(request.group_id)
    check_request(request, before)
    values = dict(before.values) if before else {}
    values.update(request.set)
    for name in request.unset:
        values.pop(name, None)
    if before is None and values:
        room_for_one_more(request.group_id, step.state)
    size = len(json.dumps(values))
    if size > MAX_BYTES:
        raise invalid(f"the settings of group {request.group_id!r} would take {size} bytes; at most {MAX_BYTES} may")
    for name, value in request.set.items():
        CHECKS[name](request.group_id, value, step)
    after = SettingsStored(request.group_id, (before.version if before else 0) + 1, values)
    if values == (before.values if before else {}):
        step.reply(request.request_id, reply_of(before))
        return
    if not request.validate_only:
        step.keep(after if values else SettingsUnset(request.group_id))
        changed(request, before, after, step)
    step.reply(request.request_id, reply_of(after if values else None))


def named(group_id: str) -> None:
    if not group_id:
        raise CoordinatorError(ErrorCode.INVALID_GROUP_ID, "group_id is empty; name the group")


def reply_of(stored: SettingsStored | None) -> SettingsReply:
    return SettingsReply(version=stored.version, values=stored.values) if stored else SettingsReply()


def check_request(request: AlterSettings, before: SettingsStored | None) -> None:
    names = [*request.set, *request.unset]
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise invalid(f"{unknown[0]!r} is no setting of a group; known are: {', '.join(CHECKS)}")
    if not names:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "nothing is to be set or unset; name a setting")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"{twice!r} is named twice; set it or unset it, once")
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


def check_options(group_id: str, value: JsonValue, step: Step) -> None:
    """Options that the group's assignor takes. Without a group, each has to be an option of some assignor."""
    if not isinstance(value, Mapping) or not value:
        raise invalid(f"{ASSIGNOR_OPTIONS} is {json.dumps(value)}; expected a JSON object with an option or more")
    group = step.state.logged(group_id)
    word = KINDS[type(group)].assignor(group, step)
    if KINDS[type(group)].plans_itself(group):
        raise invalid(
            f"group {group_id!r} is planned by its own members, whose leader has options of its own "
            "(partition.assignment.options); for plans of the coordinator all of them need group.protocol=consumer, or "
            "a group.remote.assignor"
        )
    if word in BUILT_IN:
        may_have(word, [word], value)
        try:
            decided(resolve(word), replace(TRIAL, options=value))
        except AssignorError as error:
            raise invalid(f"{ASSIGNOR_OPTIONS}: {error}") from None
    elif not word and all(name in BUILT_IN for name in runnable(step.limits)):
        may_have("", list(BUILT_IN), value)


def may_have(assignor: str, words: list[str], options: Mapping[str, JsonValue]) -> None:
    """Of a plugin nothing is known: it says itself what it cannot use, and then it has failed."""
    known = list(dict.fromkeys(name for word in words for name in getattr(resolve(word), "options", ())))
    who = f"assignor {assignor!r}" if assignor else "an assignor of this coordinator"
    for name in options:
        if name not in known:
            has = f"known are: {', '.join(known)}" if known else "it has none"
            raise invalid(f"{ASSIGNOR_OPTIONS}: {name!r} is no option of {who}; {has}")


CHECKS: Mapping[str, Check] = {ASSIGNOR_OPTIONS: check_options}
"""Every setting by its name, and what says no to a value of it."""


def runnable(limits: Limits) -> tuple[str, ...]:
    return (*limits.consumer_assignors, *limits.remote_assignors)


def changed(request: AlterSettings, before: SettingsStored | None, after: SettingsStored, step: Step) -> None:
    """The ledger's entry, and a new plan where the coordinator makes it."""
    old = before.values if before else {}
    names = [name for name in (*request.set, *request.unset) if old.get(name) != after.values.get(name)]
    told = "; ".join(f"{name}: {shown(old.get(name))} -> {shown(after.values.get(name))}" for name in names)
    detail = f"{request.operator} changed the group's settings: {told}"
    group = step.state.logged(request.group_id)
    keep_entry(request.group_id, entry_of(group, request, detail, step), step)
    KINDS[type(group)].settings_changed(group, Trigger(Cause.OPERATOR, detail, request.operator), step)


def entry_of(group: Group | None, request: AlterSettings, detail: str, step: Step) -> RebalanceEntry:
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


def shown(value: JsonValue) -> str:
    text = "unset" if value is None else json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_TOLD else f"{text[:MAX_TOLD]}... ({len(text)} characters)"


def invalid(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_CONFIG, message)
