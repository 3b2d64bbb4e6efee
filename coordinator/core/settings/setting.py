"""One setting of a group: name, values, meaning, extra checks, and what a change triggers; with the timeouts of groups.

The timeouts are Kafka's own settings of KIP-848 groups, within the bounds of the node (KIP-848; the assignment
interval is KIP-1263), how long an old owner may drain, and how long the share of a member that left waits for its
successor.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from muster.assignors.api import JsonValue
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.kind import GroupKind
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.shapes import NodeSetting, Shape, WholeNumber
from muster.coordinator.errors import CoordinatorError, ErrorCode

T = TypeVar("T")


class GroupScope(Enum):
    """The groups that a setting is meant for; for others it may be set, and waits."""

    EVERY = "all groups"
    PLANNED = "groups that the coordinator plans for"
    CONSUMER = "KIP-848 groups"
    CLASSIC = "classic groups"


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What is asked: the group, if there is one, all that would be set, and what is set now."""

    group_id: str
    group: GroupData | None
    kind: GroupKind[Any]
    after: Mapping[str, JsonValue]
    before: Mapping[str, JsonValue]
    step: Step


Check: TypeAlias = Callable[[Any, SettingsChange], None]
"""Raises CoordinatorError (`invalid_setting`, as a rule) for a value that has the right shape and still cannot be."""

Fit: TypeAlias = Callable[[SettingsChange], None]
"""Raises CoordinatorError for settings that do not go together as they would be then (`change.after`)."""

ChangeListener: TypeAlias = Callable[[SettingsChange, RebalanceTrigger], None]
"""What follows of a change, on `change.step`. The trigger says who made it, in a sentence."""


def accept_any_value(value: Any, change: SettingsChange) -> None:
    """Every value of the right shape is taken."""


def accept_any_combination(change: SettingsChange) -> None:
    """It has nothing to do with other settings."""


def notify_nobody(change: SettingsChange, trigger: RebalanceTrigger) -> None:
    """It counts from when it is looked at next."""


def replan_on_change(change: SettingsChange, trigger: RebalanceTrigger) -> None:
    """What was planned without it is void."""
    change.kind.settings_changed(change.group, trigger, change.step)


@dataclass(frozen=True)
class Setting(Generic[T]):
    """`meaning` is one sentence. The default may be what a setting of the node says.

    `check` is asked of a value that is to be set, `together` whenever it would be another, unset or not.
    """

    name: str
    shape: Shape[T]
    default: T | NodeSetting[T]
    groups: GroupScope
    meaning: str
    check: Check = accept_any_value
    together: Fit = accept_any_combination
    hears: ChangeListener = notify_nobody

    def of(self, state: ShardState, group_id: str) -> T:
        """What holds for the group, set or not."""
        stored = state.settings.get(group_id)
        return self.default_of(state.limits) if stored is None else self.among(stored.values, state.limits)

    def among(self, values: Mapping[str, JsonValue], limits: Limits) -> T:
        """What would hold for a group that has set these."""
        if self.name not in values:
            return self.default_of(limits)
        try:
            return self.shape.of_json(values[self.name], limits)
        except ValueError:  # the node's bounds are others than when it was set: it may not hold any more
            return self.default_of(limits)

    def default_of(self, limits: Limits) -> T:
        """What holds when nothing is set."""
        return self.default.read(limits) if isinstance(self.default, NodeSetting) else self.default


MAX_DEPTH = 32
"""Of objects and lists in each other: what reads the log again gives up on very many."""

LARGEST = 2**63


def is_recordable(value: JsonValue, depth: int = MAX_DEPTH) -> bool:
    """Whether it is read from the log as it was: finite, of whole characters, not too deep."""
    match value:
        case str():
            return not any("\ud800" <= letter <= "\udfff" for letter in value)
        case bool() | None:
            return True
        case int():
            return -LARGEST <= value < LARGEST
        case float():
            return math.isfinite(value)
        case Mapping():
            return depth > 0 and all(
                is_recordable(key) and is_recordable(held, depth - 1) for key, held in value.items()
            )
        case _:
            return depth > 0 and all(is_recordable(held, depth - 1) for held in value)


UNRECORDABLE = (
    f"a number that is not finite or takes more than 64 bits, half a character, or more than {MAX_DEPTH} objects in "
    "each other; expected what every reader of JSON can read"
)
"""What is said of a value that has to be read from the log again, and could not be."""


def invalid_setting(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_CONFIG, message)


# Timeouts of KIP-848 groups
# --------------------------


def session_outlasts_heartbeats(change: SettingsChange) -> None:
    """Whoever sends heartbeats as told has to be heard of within his session, whichever of the two is set."""
    limits = change.step.limits
    session_ms = SESSION_TIMEOUT.among(change.after, limits)
    heartbeat_ms = HEARTBEAT_INTERVAL.among(change.after, limits)
    if session_ms <= heartbeat_ms:
        raise invalid_setting(
            f"{SESSION_TIMEOUT.name} would be {session_ms} and {HEARTBEAT_INTERVAL.name} {heartbeat_ms}; expected the "
            "session to be the longer one"
        )


SESSION_TIMEOUT = Setting(
    name="consumer.session.timeout.ms",
    shape=WholeNumber(
        NodeSetting("group.consumer.min.session.timeout.ms", lambda limits: limits.consumer_min_session_timeout_ms),
        NodeSetting("group.consumer.max.session.timeout.ms", lambda limits: limits.consumer_max_session_timeout_ms),
    ),
    default=NodeSetting("group.consumer.session.timeout.ms", lambda limits: limits.consumer_session_timeout_ms),
    groups=GroupScope.CONSUMER,
    meaning="How long a member may be silent before it is removed; a new value applies from its next heartbeat.",
    together=session_outlasts_heartbeats,
)

HEARTBEAT_INTERVAL = Setting(
    name="consumer.heartbeat.interval.ms",
    shape=WholeNumber(
        NodeSetting(
            "group.consumer.min.heartbeat.interval.ms", lambda limits: limits.consumer_min_heartbeat_interval_ms
        ),
        NodeSetting(
            "group.consumer.max.heartbeat.interval.ms", lambda limits: limits.consumer_max_heartbeat_interval_ms
        ),
    ),
    default=NodeSetting("group.consumer.heartbeat.interval.ms", lambda limits: limits.consumer_heartbeat_interval_ms),
    groups=GroupScope.CONSUMER,
    meaning="How often members send heartbeats; each receives a new value with the response to its next one.",
    together=session_outlasts_heartbeats,
)

ASSIGNMENT_INTERVAL = Setting(
    name="consumer.assignment.interval.ms",
    shape=WholeNumber(
        NodeSetting(
            "group.consumer.min.assignment.interval.ms", lambda limits: limits.consumer_min_assignment_interval_ms
        ),
        NodeSetting(
            "group.consumer.max.assignment.interval.ms", lambda limits: limits.consumer_max_assignment_interval_ms
        ),
    ),
    default=NodeSetting("group.consumer.assignment.interval.ms", lambda limits: limits.consumer_assignment_interval_ms),
    groups=GroupScope.CONSUMER,
    meaning="The shortest time between two assignments; in Kafka since 4.3.",
)


# Handoff
# -------

HANDOFF_TIMEOUT = Setting(
    name="handoff.timeout.ms",
    shape=WholeNumber(0),
    default=0,
    groups=GroupScope.PLANNED,
    meaning=(
        "How long a member may take to give up a partition before it is taken away; 0: the member's rebalance timeout."
    ),
)


# Held shares
# -----------

HOLD_MS = Setting(
    name="hold.ms",
    shape=WholeNumber(0, 86_400_000),
    default=0,
    groups=GroupScope.PLANNED,
    meaning=(
        "How long the partitions of a departed dynamic member wait for a replacement, in milliseconds; 0: not at all, "
        "but 120 s during a deploy."
    ),
)
