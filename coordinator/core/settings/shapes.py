"""What values of settings look like: JSON in the log and over gRPC, text in Kafka's tools and on the command line.

Every reading raises ValueError with what was expected, worded to follow "NAME: ".

`BalanceRules` is what the `balance` settings say together, with the defaults where nothing is set.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import CoordinatorError, ErrorCode

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_NAMES = 100
MAX_NAME_CHARS = 249


class KafkaType(Enum):
    """What Kafka's tools are told that a value is."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True)
class NodeSetting(Generic[T]):
    """What one of the node's own settings says."""

    name: str
    read: Callable[[Limits], T]


Bound: TypeAlias = int | NodeSetting[int]


class Shape(Protocol[T_co]):
    """How a value is written and read."""

    @property
    def kafka_type(self) -> KafkaType: ...

    @property
    def allowed(self) -> str:
        """What is expected, for people."""

    def of_json(self, value: JsonValue, limits: Limits) -> T_co:
        """The value as rules want it."""

    def of_text(self, text: str) -> JsonValue:
        """The JSON of what Kafka's tools, or the command line, call the value."""

    def text(self, value: JsonValue) -> str:
        """The other way round."""


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """An integer within bounds, both allowed."""

    low: Bound
    high: Bound = 2**31 - 1
    kafka_type = KafkaType.INT

    @property
    def allowed(self) -> str:
        return f"a whole number, {bound_text(self.low)} to {bound_text(self.high)}"

    def of_json(self, value: JsonValue, limits: Limits) -> int:
        low, high = known_bound(self.low, limits), known_bound(self.high, limits)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"is {shown_value(value)}; expected a whole number from {low} to {high}{self.whose()}")
        return value

    def whose(self) -> str:
        names = [bound.name for bound in (self.low, self.high) if isinstance(bound, NodeSetting)]
        return f" (this node's {', '.join(names)})" if names else ""

    def of_text(self, text: str) -> JsonValue:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"is {shown_value(text)}; expected {self.allowed}") from None

    def text(self, value: JsonValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Fraction:
    """A number from 0 to 1."""

    kafka_type = KafkaType.DOUBLE
    allowed = "a number from 0 to 1"

    def of_json(self, value: JsonValue, limits: Limits) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"is {shown_value(value)}; expected {self.allowed}")
        return float(value)

    def of_text(self, text: str) -> JsonValue:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise ValueError(f"is {shown_value(text)}; expected {self.allowed}")
        return found

    def text(self, value: JsonValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    kafka_type = KafkaType.BOOLEAN
    allowed = "true or false"

    def of_json(self, value: JsonValue, limits: Limits) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"is {shown_value(value)}; expected {self.allowed}")
        return value

    def of_text(self, text: str) -> JsonValue:
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise ValueError(f"is {shown_value(text)}; expected {self.allowed}")
        return word == "true"

    def text(self, value: JsonValue) -> str:
        return str(value).lower()


@dataclass(frozen=True, slots=True)
class Word:
    """One word: of `choices`, if there are any, else any name."""

    choices: tuple[str, ...] = ()
    kafka_type = KafkaType.STRING

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.choices)}" if self.choices else "a name"

    def of_json(self, value: JsonValue, limits: Limits) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS:
            raise ValueError(f"is {shown_value(value)}; expected {self.allowed} of at most {MAX_NAME_CHARS} characters")
        if self.choices and value not in self.choices:
            raise ValueError(f"is {shown_value(value)}; expected {self.allowed}")
        return value

    def of_text(self, text: str) -> JsonValue:
        return text.strip()

    def text(self, value: JsonValue) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class NameList:
    """Words, each once; as text with commas between them."""

    most: int = MAX_NAMES
    kafka_type = KafkaType.LIST

    @property
    def allowed(self) -> str:
        return f"up to {self.most} names with commas between them"

    def of_json(self, value: JsonValue, limits: Limits) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(word, str) and len(word) > 0 for word in value):
            raise ValueError(f"is {shown_value(value)}; expected a list of names")
        names = [str(word) for word in value]
        if len(names) > self.most or any(len(name) > MAX_NAME_CHARS or "," in name for name in names):
            raise ValueError(
                f"is {shown_value(value)}; expected at most {self.most} names without commas, each of at most "
                f"{MAX_NAME_CHARS} characters"
            )
        if len(set(names)) < len(names):
            raise ValueError(f"is {shown_value(value)}; expected each name once")
        return tuple(names)

    def of_text(self, text: str) -> JsonValue:
        return [word.strip() for word in text.split(",") if word.strip()]

    def text(self, value: JsonValue) -> str:
        return ",".join(str(word) for word in value) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Options:
    """A JSON object."""

    kafka_type = KafkaType.STRING
    allowed = "a JSON object"

    def of_json(self, value: JsonValue, limits: Limits) -> Mapping[str, JsonValue]:
        if not isinstance(value, Mapping) or not value:
            raise ValueError(f"is {shown_value(value)}; expected a JSON object with an option or more")
        return value

    def of_text(self, text: str) -> JsonValue:
        try:
            found: JsonValue = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON ({error}); expected {self.allowed}") from None
        return found

    def text(self, value: JsonValue) -> str:
        return json.dumps(value, sort_keys=True)


def known_bound(bound: Bound, limits: Limits) -> int:
    return bound.read(limits) if isinstance(bound, NodeSetting) else bound


def bound_text(bound: Bound) -> str:
    return bound.name if isinstance(bound, NodeSetting) else str(bound)


MAX_SHOWN = 100


def shown_value(value: JsonValue) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text)} characters)"


# Rules of balance
# ----------------

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
