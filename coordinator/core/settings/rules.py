"""When a group's load is evened out: what its settings say, and what holds where nothing is set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.shapes import Fraction, Shape, WholeNumber, Word
from muster.coordinator.errors import CoordinatorError, ErrorCode

OFF, WATCH, ACT = "off", "watch", "act"

DAY_MS = 86_400_000

OWN_OPTIONS = ("min.gain", "move.budget", "cooldown.ms", "moved.at.ms", "now.ms")
"""Options of the assignor that balance hands in by itself."""


@dataclass(frozen=True, slots=True)
class BalanceRules:
    """Times in ms."""

    mode: str = OFF
    min_gain: float = 0.10
    """By this share the heaviest member has to become lighter."""
    rounds: int = 3
    """In so many evaluations in a row."""
    cooldown_ms: int = 1_800_000
    """A partition that has moved stays where it is for so long."""
    move_budget: int = 0
    """So many moves at a time; 0: all that pay."""
    sample_ms: int = 10_000
    drain_ms: int = 300_000
    """What waits counts as a load that is to be read within this time."""

    @property
    def on(self) -> bool:
        return self.mode != OFF


FIELDS: Mapping[str, tuple[str, Shape[Any]]] = {
    "balance": ("mode", Word((OFF, WATCH, ACT))),
    "balance.min.gain": ("min_gain", Fraction()),
    "balance.rounds": ("rounds", WholeNumber(1, 1_000)),
    "balance.cooldown.ms": ("cooldown_ms", WholeNumber(0, 7 * DAY_MS)),
    "balance.move.budget": ("move_budget", WholeNumber(0, 10_000)),
    "balance.sample.ms": ("sample_ms", WholeNumber(1_000, 3_600_000)),
    "balance.drain.target.ms": ("drain_ms", WholeNumber(1_000, DAY_MS)),
}
"""By the name of the setting: where it goes, and what it may be."""

NO_LIMITS = Limits()
"""None of these is bounded by what the node says."""


def read_balance_rules(values: Mapping[str, JsonValue]) -> BalanceRules:
    """The rules of a group with these settings. One that another version has set, and nobody can read, holds not.

    >>> read_balance_rules({"balance": "act", "balance.rounds": 5, "balance.min.gain": "much"}).min_gain
    0.1
    """
    found: dict[str, Any] = {}
    for name, (field, shape) in FIELDS.items():
        if name in values:
            try:
                found[field] = shape.of_json(values[name], NO_LIMITS)
            except ValueError:
                continue
    return BalanceRules(**found)


def check_not_said_twice(after: Mapping[str, JsonValue]) -> None:
    """Balance hands in its own figures: the assignor's options must not say others. Raises CoordinatorError."""
    options, mode = after.get("assignor.options"), read_balance_rules(after).mode
    twice = [name for name in OWN_OPTIONS if isinstance(options, Mapping) and name in options]
    if twice and mode != OFF:
        raise CoordinatorError(
            ErrorCode.INVALID_CONFIG,
            f"assignor.options: {twice[0]!r} cannot be said while balance is {mode!r}, which hands it in by itself; "
            "unset it, or set balance=off; what balance hands in is set with balance.min.gain, balance.move.budget and "
            "balance.cooldown.ms",
        )
