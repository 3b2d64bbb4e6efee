"""Every kind of group: session bounds, sizes, the ledger, and assignors that run on the node."""

from typing import Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from muster.coordinator.config.values import MAX_INT, AssignorNames, check_assignor_names, split_list


class GroupCoordinationSettings(BaseModel):
    group_min_session_timeout_ms: int = Field(
        default=6_000,
        alias="group.min.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="The shortest session timeout that a member may ask for.",
    )
    group_max_session_timeout_ms: int = Field(
        default=1_800_000,
        alias="group.max.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="The longest session timeout that a member may ask for.",
    )
    group_initial_rebalance_delay_ms: int = Field(
        default=3_000,
        alias="group.initial.rebalance.delay.ms",
        ge=0,
        le=MAX_INT,
        description="How long the first rebalance of an empty group waits for more members to join.",
    )
    group_max_size: int = Field(
        default=MAX_INT,
        alias="group.max.size",
        ge=1,
        le=MAX_INT,
        description="The most members that one group may have.",
    )
    group_ledger_max_entries: int = Field(
        default=100,
        alias="group.ledger.max.entries",
        ge=1,
        le=100_000,
        description="How many rebalances of each group are kept to be explained; the oldest go first.",
    )
    group_ledger_max_bytes: int = Field(
        default=32 << 20,
        alias="group.ledger.max.bytes",
        ge=0,
        le=MAX_INT,
        description="About how much memory they may take for each group; the oldest go first, the newest is kept.",
    )
    group_ledger_max_snapshot_bytes: int = Field(
        default=1 << 20,
        alias="group.ledger.max.snapshot.bytes",
        ge=0,
        le=MAX_INT,
        description="The largest assignor input that is kept with a rebalance; a larger one is left out.",
    )
    group_assignor_deadline_ms: int = Field(
        default=10_000,
        alias="group.assignor.deadline.ms",
        ge=1,
        le=MAX_INT,
        description="How long an assignor, or a topic pattern, may run on this node before it counts as failed.",
    )
    group_assignor_isolation: Literal["process", "thread"] = Field(
        default="process",
        alias="group.assignor.isolation",
        description="Where assignors that are not built in run: in processes of their own, which are killed at the "
        "deadline, or in threads of the node, which cannot be stopped.",
    )
    group_assignor_max_memory_bytes: int = Field(
        default=1 << 30,
        alias="group.assignor.max.memory.bytes",
        ge=1 << 20,
        le=1 << 40,
        description="How much memory the process of an assignor may take beyond what it needs to start.",
    )
    group_assignor_max_processes: int = Field(
        default=4,
        alias="group.assignor.max.processes",
        ge=1,
        le=256,
        description="How many processes of assignors there may be at a time, idle ones included.",
    )
    group_remote_assignors: AssignorNames = Field(
        default=AssignorNames(""),
        alias="group.remote.assignors",
        description="Assignors beyond the built-in ones and installed plugins that classic members may have run here.",
    )

    @property
    def remote_assignors(self) -> tuple[str, ...]:
        return split_list(self.group_remote_assignors)

    @field_validator("group_remote_assignors")
    @classmethod
    def are_known(cls, value: AssignorNames) -> AssignorNames:
        return check_assignor_names(value) if value else value

    @model_validator(mode="after")
    def has_session_bounds(self) -> Self:
        low, high = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if low > high:
            raise ValueError(
                f"group.min.session.timeout.ms is {low}, but group.max.session.timeout.ms is only {high}; "
                "lower the first or raise the second"
            )
        return self
