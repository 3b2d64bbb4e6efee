"""Which assignor the coordinator runs for a group: the operator's settings, or the canary's candidate while one runs.

`chosen_assignor` and `chosen_options` are the only place that decides it for groups of every kind.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.assignors.api import AssignorError, JsonValue, Snapshot
from muster.assignors.api import Member as AssignorMember
from muster.assignors.registry import BUILT_IN, resolve
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.plan import canonical_name, run_assignor, runnable_assignors
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.setting import (
    GroupScope,
    Setting,
    SettingsChange,
    invalid_setting,
    replan_on_change,
)
from muster.coordinator.core.settings.shapes import Flag, NameList, Options, Word, check_not_said_twice

TRIAL = Snapshot({"t": 2}, [AssignorMember("a", ("t",)), AssignorMember("b", ("t",))])


def check_assignor(word: str, change: SettingsChange) -> None:
    """What the coordinator can run: built in, installed, or named by the node. And what options are set are its own."""
    limits = change.step.limits
    name = canonical_name(word, limits)
    if name not in (names := runnable_assignors(limits)):
        raise invalid_setting(
            f"{ASSIGNOR.name}: {word!r} is not an assignor of this coordinator; known here: {', '.join(names)}"
        )
    options = change.after.get(ASSIGNOR_OPTIONS.name)
    if name in BUILT_IN and isinstance(options, Mapping):
        check_options_taken(name, options, ASSIGNOR_OPTIONS.name)


def check_options(value: Mapping[str, JsonValue], change: SettingsChange) -> None:
    """Options that the group's assignor takes. Without a group, each has to be an option of some assignor."""
    wanted = change.after.get(ASSIGNOR.name)
    if isinstance(wanted, str):
        word = canonical_name(wanted, change.step.limits)
    elif not change.kind.plans_itself(change.group):
        word = change.kind.assignor(change.group, change.step)
    else:
        raise invalid_setting(
            f"group {change.group_id!r} is planned by its own members, whose leader has options of its own "
            f"(partition.assignment.options); for plans of the coordinator set {ASSIGNOR.name} too, or give all of "
            "them group.protocol=consumer or a group.remote.assignor"
        )
    if word in BUILT_IN:
        check_options_taken(word, value, ASSIGNOR_OPTIONS.name)
    elif not word and all(name in BUILT_IN for name in offered_assignors(change.step.limits)):
        check_has_options("", list(BUILT_IN), value, ASSIGNOR_OPTIONS.name)


def check_options_fit(change: SettingsChange) -> None:
    """Options are chosen for the assignor that is set: whoever plans without it might not take them, and fail."""
    if ASSIGNOR.name in change.after or ASSIGNOR.name not in change.before:
        return
    if ASSIGNOR_OPTIONS.name in change.after:
        raise invalid_setting(
            f"{ASSIGNOR_OPTIONS.name} are options of {ASSIGNOR.name}={change.before[ASSIGNOR.name]}, and whoever plans "
            "without it may not take them; unset both"
        )


def check_options_taken(assignor: str, options: Mapping[str, JsonValue], setting: str) -> None:
    """Whether a built-in assignor can use them; it is asked to plan something small. Raises CoordinatorError."""
    check_has_options(assignor, [assignor], options, setting)
    try:
        run_assignor(resolve(assignor), replace(TRIAL, options=options))
    except AssignorError as error:
        raise invalid_setting(f"{setting}: {error}") from None


def check_has_options(assignor: str, words: list[str], options: Mapping[str, JsonValue], setting: str) -> None:
    """Of a plugin nothing is known: it says itself what it cannot use, and then it has failed."""
    takes = list(dict.fromkeys(name for word in words for name in getattr(resolve(word), "options", ())))
    who = f"assignor {assignor!r}" if assignor else "an assignor of this coordinator"
    for name in options:
        if name not in takes:
            has = f"known are: {', '.join(takes)}" if takes else "it has none"
            raise invalid_setting(f"{setting}: {name!r} is not an option of {who}; {has}")


def offered_assignors(limits: Limits) -> tuple[str, ...]:
    """What members may ask for by configuration of the node."""
    return (*limits.consumer_assignors, *limits.remote_assignors)


def check_said_once(change: SettingsChange) -> None:
    """Balance hands in figures of its own."""
    check_not_said_twice(change.after)


NO_OPTIONS: Mapping[str, JsonValue] = {}

ASSIGNOR: Setting[str] = Setting(
    name="assignor",
    shape=Word(),
    default="",
    groups=GroupScope.EVERY,
    meaning="The assignor by which the coordinator plans for the group, whatever its members ask for; classic members "
    "need no support for it.",
    check=check_assignor,
    together=check_options_fit,
    hears=replan_on_change,
)

NO_NAMES: tuple[str, ...] = ()

PROTOCOLS: Setting[tuple[str, ...]] = Setting(
    name="assignor.protocols",
    shape=NameList(),
    default=NO_NAMES,
    groups=GroupScope.CLASSIC,
    meaning="Further protocol names that members may vote for while `assignor` is set. By listing one, you vouch that "
    "its clients read only assigned partitions.",
    hears=replan_on_change,
)

COOPERATIVE_ONLY = Setting(
    name="cooperative.only",
    shape=Flag(),
    default=False,
    groups=GroupScope.CLASSIC,
    meaning="Refuse members that would give up everything in each rebalance.",
)

ASSIGNOR_OPTIONS = Setting(
    name="assignor.options",
    shape=Options(),
    default=NO_OPTIONS,
    groups=GroupScope.PLANNED,
    meaning="Options of the assignor by which the coordinator plans for the group.",
    check=check_options,
    together=check_said_once,
    hears=replan_on_change,
)


# The choice
# ----------


def chosen_assignor(state: ShardState, group_id: str) -> str:
    """The canary's candidate while one runs, else the group's setting, by its own name; empty: whoever its members ask
    for.

    Options that go with it are `chosen_options`.
    """
    canary = state.canaries.get(group_id)
    if canary is not None and canary.runs:
        return canary.assignor
    word = ASSIGNOR.of(state, group_id)
    return canonical_name(word, state.limits) if word else ""


def chosen_options(state: ShardState, group_id: str) -> Mapping[str, JsonValue]:
    """What that assignor is told beside the group."""
    canary = state.canaries.get(group_id)
    return canary.options if canary is not None and canary.runs else ASSIGNOR_OPTIONS.of(state, group_id)


BUDGET = "move.budget"


def move_budget(state: ShardState, group_id: str) -> int:
    """How many partitions of drained members may move at once: what balance may move; 0: all."""
    for budget in (chosen_options(state, group_id).get(BUDGET), balance_budget(state, group_id)):
        if isinstance(budget, int) and budget > 0:
            return budget
    return 0


def balance_budget(state: ShardState, group_id: str) -> object:
    stored = state.settings.get(group_id)
    return stored.values.get(f"balance.{BUDGET}") if stored else None
