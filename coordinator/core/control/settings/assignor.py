"""What an operator says about the assignor that the coordinator runs for a group."""

from collections.abc import Mapping
from dataclasses import replace

from muster.assignors.api import AssignorError, JsonValue, Snapshot
from muster.assignors.api import Member as AssignorMember
from muster.assignors.registry import BUILT_IN, resolve
from muster.coordinator.core.control.settings.setting import Change, Of, Setting, invalid, planner
from muster.coordinator.core.control.settings.shapes import Options
from muster.coordinator.core.plan import decided
from muster.coordinator.core.types import Limits

TRIAL = Snapshot({"t": 2}, [AssignorMember("a", ("t",)), AssignorMember("b", ("t",))])


def check_options(value: Mapping[str, JsonValue], change: Change) -> None:
    """Options that the group's assignor takes. Without a group, each has to be an option of some assignor."""
    word = change.kind.assignor(change.group, change.step)
    if change.kind.plans_itself(change.group):
        raise invalid(
            f"group {change.group_id!r} is planned by its own members, whose leader has options of its own "
            "(partition.assignment.options); for plans of the coordinator all of them need group.protocol=consumer, or "
            "a group.remote.assignor"
        )
    if word in BUILT_IN:
        taken_by(word, value, ASSIGNOR_OPTIONS.name)
    elif not word and all(name in BUILT_IN for name in runnable(change.step.limits)):
        has_options("", list(BUILT_IN), value, ASSIGNOR_OPTIONS.name)


def taken_by(assignor: str, options: Mapping[str, JsonValue], setting: str) -> None:
    """Whether a built-in assignor can use them; it is asked to plan something small. Raises CoordinatorError."""
    has_options(assignor, [assignor], options, setting)
    try:
        decided(resolve(assignor), replace(TRIAL, options=options))
    except AssignorError as error:
        raise invalid(f"{setting}: {error}") from None


def has_options(assignor: str, words: list[str], options: Mapping[str, JsonValue], setting: str) -> None:
    """Of a plugin nothing is known: it says itself what it cannot use, and then it has failed."""
    known = list(dict.fromkeys(name for word in words for name in getattr(resolve(word), "options", ())))
    who = f"assignor {assignor!r}" if assignor else "an assignor of this coordinator"
    for name in options:
        if name not in known:
            has = f"known are: {', '.join(known)}" if known else "it has none"
            raise invalid(f"{setting}: {name!r} is no option of {who}; {has}")


def runnable(limits: Limits) -> tuple[str, ...]:
    return (*limits.consumer_assignors, *limits.remote_assignors)


NO_OPTIONS: Mapping[str, JsonValue] = {}

ASSIGNOR_OPTIONS = Setting(
    name="assignor.options",
    shape=Options(),
    default=NO_OPTIONS,
    groups=Of.PLANNED,
    meaning="Options of the assignor by which the coordinator plans for the group.",
    check=check_options,
    hears=planner,
)
