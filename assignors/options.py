"""Options of the assignors that have any, checked: an unknown or impossible one is named, with what is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.assignors.api import AssignorError, JsonValue

MAX_PRIORITY = 1000
STANDBY = -1 - MAX_PRIORITY  # Below every priority that can be stated.

_M = TypeVar("_M", bound=BaseModel)


class UniformOptions(BaseModel):
    """Weights and limits. Members are named by group.instance.id or by member id."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    capacity: dict[str, float] = Field(
        default_factory=dict,
        alias="member.capacity",
        description="How much a member can carry relative to the others; 1 unless stated.",
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        alias="max.partitions.per.member",
        description="No member gets more; what finds no place is reported as unassigned.",
    )
    priority: dict[str, int] = Field(
        default_factory=dict,
        alias="member.priority",
        description="Higher ones are served first; lower ones get only what the higher cannot take. 0 unless stated.",
    )
    standby: list[str] = Field(
        default_factory=list,
        alias="member.standby",
        description="Members who get something only when nobody else can take it.",
    )

    def model_post_init(self, context: object) -> None:
        for member, capacity in self.capacity.items():
            if capacity <= 0:
                raise ValueError(f"member.capacity of {member!r} must be above 0, got {capacity}")
        for member, priority in self.priority.items():
            if abs(priority) > MAX_PRIORITY:
                raise ValueError(f"member.priority of {member!r} must be within +-{MAX_PRIORITY}, got {priority}")

    @property
    def plain(self) -> bool:
        """Whether nothing is asked for beyond the exact balance."""
        return not (self.capacity or self.limit or self.priority or self.standby)


class LagStickyOptions(UniformOptions):
    """When a move pays."""

    tolerance: float = Field(
        default=0.10,
        ge=0,
        alias="imbalance.tolerance",
        description="Nothing moves while the heaviest member is at most this share above the mean.",
    )
    min_gain: float = Field(
        default=0.05,
        ge=0,
        le=1,
        alias="min.gain",
        description="Moves that lower the heaviest member's load by a smaller share are not made.",
    )
    move_budget: int | None = Field(
        default=None, ge=0, alias="move.budget", description="At most this many voluntary moves at a time."
    )
    dampening: float = Field(
        default=0.6,
        gt=0,
        le=1,
        alias="dampening",
        description="A member sheds at most this share of what it has above the mean in one round.",
    )
    cooldown_ms: int = Field(
        default=1_800_000,
        ge=0,
        alias="cooldown.ms",
        description="A partition that moved may not move again for this long.",
    )
    now_ms: int = Field(
        default=0, ge=0, alias="now.ms", description="The time of the decision, as part of the snapshot."
    )
    moved_at_ms: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        alias="moved.at.ms",
        description="When partitions last moved: {topic: {partition: time}}.",
    )
    base_lag: int = Field(
        default=1,
        ge=0,
        alias="base.lag",
        description="Added to the lag of every partition, so that idle ones count too.",
    )
    seed: int = Field(default=0, alias="seed", description="Decides ties; no member is favoured for its name.")


def read_options(assignor: str, model: type[_M], options: Mapping[str, JsonValue]) -> _M:
    """The checked options; AssignorError names the option, its value and what was expected."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        known = ", ".join(describe(model))
        raise AssignorError(
            assignor, f"option {name!r} is {first['input']!r}: {first['msg']}. Its options are {known}"
        ) from None


def describe(model: type[BaseModel]) -> dict[str, str]:
    """{option: sentence, with its default}."""
    out: dict[str, str] = {}
    for field in model.model_fields.values():
        default = field.get_default(call_default_factory=True, validated_data={})
        out[str(field.alias)] = f"{field.description} Default: {default if default not in (None, {}, []) else 'none'}."
    return out


def options_of(word: str) -> dict[str, str]:
    """What the built-in assignor `word` understands: {option: sentence}; empty when it has no options."""
    models: dict[str, type[BaseModel]] = {"uniform": UniformOptions, "lag-sticky": LagStickyOptions}
    return describe(models[word]) if word in models else {}
