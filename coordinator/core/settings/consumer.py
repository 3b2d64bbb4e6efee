"""Kafka's own settings of KIP-848 groups, within the bounds of the node (KIP-848; the last one is of KIP-1263)."""

from muster.coordinator.core.settings.setting import GroupScope, Setting, SettingsChange, invalid_setting
from muster.coordinator.core.settings.shapes import NodeSetting, WholeNumber


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
    meaning="How long a member may be silent before it is taken out; counts from its next heartbeat.",
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
    meaning="How often members are told to send heartbeats; they hear of it by the answer to the next one.",
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
    meaning="The shortest time between two new assignments; Kafka has it from 4.3 on.",
)
