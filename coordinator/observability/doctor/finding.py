"""What a rule is, and what it finds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from muster.coordinator.observability.doctor.facts import DoctorFacts, ExaminedGroup


class Severity(IntEnum):
    """ADVICE: nothing is wrong yet. From WARNING on something is."""

    ADVICE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class RuleCase:
    """One case of a rule: a sentence, and the figures behind it."""

    what: str
    evidence: tuple[str, ...]
    todo: str = ""
    """In place of the rule's own, where the case says it better."""
    severity: Severity | None = None
    """In place of the rule's own."""


GroupCheck: TypeAlias = Callable[[ExaminedGroup, DoctorFacts], Iterable[RuleCase]]
NodeCheck: TypeAlias = Callable[[DoctorFacts], Iterable[RuleCase]]


@dataclass(frozen=True, slots=True)
class DoctorRule:
    """`why` it matters and `cure` are one or two sentences each; one of the looks is set."""

    name: str
    severity: Severity
    why: str
    cure: str
    group: GroupCheck | None = None
    node: NodeCheck | None = None


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """What is told. `group` is empty for the node."""

    rule: str
    severity: Severity
    group: str
    what: str
    evidence: tuple[str, ...]
    why: str
    todo: str
