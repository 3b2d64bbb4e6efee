"""KIP-848 groups: what their members are told, what they may ask for, and how they change to this protocol and back."""

from typing import Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from muster.coordinator.config.values import MAX_INT, AssignorNames, check_assignor_names, split_list


class ConsumerGroupSettings(BaseModel):
    group_consumer_session_timeout_ms: int = Field(
        default=45_000,
        alias="group.consumer.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="How long a member of a consumer-protocol group may be silent before it is taken out.",
    )
    group_consumer_min_session_timeout_ms: int = Field(
        default=45_000,
        alias="group.consumer.min.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="The lower bound of group.consumer.session.timeout.ms.",
    )
    group_consumer_max_session_timeout_ms: int = Field(
        default=60_000,
        alias="group.consumer.max.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="The upper bound of group.consumer.session.timeout.ms.",
    )
    group_consumer_heartbeat_interval_ms: int = Field(
        default=5_000,
        alias="group.consumer.heartbeat.interval.ms",
        ge=1,
        le=MAX_INT,
        description="How often members of consumer-protocol groups are told to send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int = Field(
        default=5_000,
        alias="group.consumer.min.heartbeat.interval.ms",
        ge=1,
        le=MAX_INT,
        description="The lower bound of group.consumer.heartbeat.interval.ms.",
    )
    group_consumer_max_heartbeat_interval_ms: int = Field(
        default=15_000,
        alias="group.consumer.max.heartbeat.interval.ms",
        ge=1,
        le=MAX_INT,
        description="The upper bound of group.consumer.heartbeat.interval.ms.",
    )
    group_consumer_max_size: int = Field(
        default=MAX_INT,
        alias="group.consumer.max.size",
        ge=1,
        le=MAX_INT,
        description="The most members that one consumer-protocol group may have.",
    )
    group_consumer_assignors: AssignorNames = Field(
        default=AssignorNames("uniform,range"),
        alias="group.consumer.assignors",
        description="The assignors that consumer-protocol groups may ask for; the first is for those that do not ask.",
    )
    group_consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = Field(
        default="bidirectional",
        alias="group.consumer.migration.policy",
        description="Whether groups may change to the consumer protocol (upgrade) and back (downgrade).",
    )
    group_consumer_assignment_interval_ms: int = Field(
        default=1_000,
        alias="group.consumer.assignment.interval.ms",
        ge=0,
        le=MAX_INT,
        description="The shortest time between two new assignments of one consumer-protocol group.",
    )
    group_consumer_min_assignment_interval_ms: int = Field(
        default=0,
        alias="group.consumer.min.assignment.interval.ms",
        ge=0,
        le=MAX_INT,
        description="The lower bound of group.consumer.assignment.interval.ms.",
    )
    group_consumer_max_assignment_interval_ms: int = Field(
        default=15_000,
        alias="group.consumer.max.assignment.interval.ms",
        ge=0,
        le=MAX_INT,
        description="The upper bound of group.consumer.assignment.interval.ms.",
    )
    group_consumer_regex_refresh_interval_ms: int = Field(
        default=600_000,
        alias="group.consumer.regex.refresh.interval.ms",
        ge=10_000,
        le=MAX_INT,
        description="How old the list of topics that match a subscription's pattern may grow.",
    )

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        return split_list(self.group_consumer_assignors)

    @field_validator("group_consumer_assignors")
    @classmethod
    def are_assignors(cls, value: AssignorNames) -> AssignorNames:
        return check_assignor_names(value)

    @model_validator(mode="after")
    def is_within_bounds(self) -> Self:
        check_within_bounds(
            "session.timeout",
            self.group_consumer_session_timeout_ms,
            self.group_consumer_min_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )
        check_within_bounds(
            "heartbeat.interval",
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_min_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )
        check_within_bounds(
            "assignment.interval",
            self.group_consumer_assignment_interval_ms,
            self.group_consumer_min_assignment_interval_ms,
            self.group_consumer_max_assignment_interval_ms,
        )
        return self


def check_within_bounds(name: str, value: int, low: int, high: int) -> None:
    """Raises ValueError when a group.consumer setting is outside its bounds."""
    if not low <= value <= high:
        raise ValueError(
            f"group.consumer.{name}.ms is {value}, outside {low}..{high} (group.consumer.min.{name}.ms, "
            f"group.consumer.max.{name}.ms); change it or its bounds"
        )
