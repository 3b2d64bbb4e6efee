"""What a rule is, and what it finds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from muster.coordinator.doctor.facts import Facts, Group


class Severity(IntEnum):
    """ADVICE: nothing is wrong yet. From WARNING on something is."""

    ADVICE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Found:
    """One case of a rule: a sentence, and the figures behind it."""

    what: str
    evidence: tuple[str, ...]
    todo: str = ""
    """In place of the rule's own, where the case says it better."""
    severity: Severity | None = None
    """In place of the rule's own."""


GroupLook: TypeAlias = Callable[[Group, Facts], Iterable[Found]]
NodeLook: TypeAlias = Callable[[Facts], Iterable[Found]]


@dataclass(frozen=True, slots=True)
class Rule:
    """`why` it matters and `cure` are one or two sentences each; one of the looks is set."""

    name: str
    severity: Severity
    why: str
    cure: str
    group: GroupLook | None = None
    node: NodeLook | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What is told. `group` is empty for the node."""

    rule: str
    severity: Severity
    group: str
    what: str
    evidence: tuple[str, ...]
    why: str
    todo: str
