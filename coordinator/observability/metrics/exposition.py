"""Prometheus' text format and OpenMetrics for many series, and which series fit `metrics.max.series`.

`prometheus_client` writes what is small (see `node_metrics.py`); this module writes what is large. A series' name
and labels are made once and kept as text from scrape to scrape.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.coordinator.observability.metrics.instruments import Timing
from muster.coordinator.observability.metrics.table import FINENESS, Level, MetricFamily, MetricKind
from muster.long_work import sort_in_runs

# The formats
# -----------

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def start(name: str, labels: Mapping[str, str]) -> str:
    r"""A line up to its value.

    >>> start("up", {"group": 'a"b\n'})
    'up{group="a\\"b\\n"} '
    """
    inner = ",".join(f'{label}="{value.translate(ESCAPES)}"' for label, value in labels.items())
    return f"{name}{{{inner}}} " if inner else f"{name} "


def start_of_many(name: str, labels: Mapping[str, str], last: str) -> str:
    """What the lines begin with that differ in one number, their last label: the number and `END` follow.

    >>> start_of_many("lag", {"topic": "t"}, "partition") + "7" + END
    'lag{topic="t",partition="7"} '
    """
    return f'{start(name, labels)[:-2]},{last}="'


END = '"} '


def number(value: float) -> str:
    """
    >>> number(3.0), number(0.25), number(10**18)
    ('3', '0.25', '1000000000000000000')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


class HistogramLines:
    """How the lines of one histogram begin."""

    def __init__(self, name: str, labels: Mapping[str, str], timing: Timing) -> None:
        self._buckets = [start(f"{name}_bucket", {**labels, "le": bound}) for bound, _ in timing.cumulative()]
        self._count = start(f"{name}_count", labels)
        self._sum = start(f"{name}_sum", labels)

    def of(self, timing: Timing) -> list[str]:
        """Its lines now."""
        rows = zip(self._buckets, timing.cumulative(), strict=True)
        lines = [f"{begin}{count}\n" for begin, (_, count) in rows]
        return [*lines, f"{self._count}{timing.count}\n", f"{self._sum}{number(timing.seconds)}\n"]


@dataclass(frozen=True, slots=True)
class ExpositionFormat:
    """Which of the two formats."""

    openmetrics: bool = False

    def head(self, family: MetricFamily) -> str:
        """What stands above a family's lines. OpenMetrics names a counter without `_total` there."""
        name = family.name
        if self.openmetrics and family.kind is MetricKind.COUNTER:
            name = name.removesuffix("_total")
        meaning = family.meaning.replace("\\", r"\\").replace("\n", r"\n")
        if self.openmetrics:
            meaning = meaning.replace('"', r"\"")
        return f"# HELP {name} {meaning}\n# TYPE {name} {family.kind}\n"


class ExpositionSheet:
    """The answer as it grows: for each family its lines, in pieces. A format wants a family's lines together."""

    def __init__(self, form: ExpositionFormat, families: Iterable[MetricFamily]) -> None:
        self._form = form
        self._families = tuple(families)
        self._pieces: dict[str, list[bytes]] = {family.name: [] for family in self._families}
        self.series = 0

    def add(self, name: str, lines: list[str]) -> None:
        """More lines of the family of this name, each with its end of line."""
        if lines:
            self._pieces[name].append("".join(lines).encode())
            self.series += len(lines)

    def pieces(self) -> Iterable[bytes]:
        """All there is, family by family; those without a line are left out."""
        for family in self._families:
            if self._pieces[family.name]:
                yield self._form.head(family).encode()
                yield from self._pieces[family.name]


# The budget of series
# --------------------

Sizes: TypeAlias = Mapping[tuple[str, str], Mapping[Level, int]]
"""("group" or "topic", name) -> how many series it has at each level."""


@dataclass(slots=True)
class SeriesBudget:
    """`left_out` has what is not written: of whom, at which level. `dropped`: how many series that are, by level."""

    left_out: set[tuple[str, str, Level]] = field(default_factory=set)
    dropped: Counter[Level] = field(default_factory=Counter)

    def allows(self, kind: str, name: str, level: Level) -> bool:
        return (kind, name, level) not in self.left_out


def fitted(sizes: Sizes, levels: frozenset[Level], most: int) -> SeriesBudget:
    """What goes so that the others are at most so many: the finest level first, of the largest first.

    What is written always (sums, members) stays whatever the limit.

    >>> sizes = {("group", "a"): {Level.PARTITION: 8, Level.ALWAYS: 1}, ("group", "b"): {Level.PARTITION: 2}}
    >>> fitted(sizes, frozenset({Level.ALWAYS, Level.PARTITION}), most=5).left_out
    {('group', 'a', <Level.PARTITION: 'partition'>)}
    """
    budget = SeriesBudget()
    total = sum(count for each in sizes.values() for level, count in each.items() if level in levels)
    for level in reversed(FINENESS):
        if total <= most:
            break
        for key, count in largest(sizes, level) if level in levels else ():
            budget.left_out.add((*key, level))
            budget.dropped[level] += count
            total -= count
            if total <= most:
                break
    return budget


def largest(sizes: Sizes, level: Level) -> Sequence[tuple[tuple[str, str], int]]:
    counts = [(key, each[level]) for key, each in sizes.items() if each.get(level)]
    return sort_in_runs(counts, lambda row: (-row[1], row[0]))
