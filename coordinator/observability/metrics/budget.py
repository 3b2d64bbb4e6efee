"""Which series are left out when there are more than `metrics.max.series`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.coordinator.observability.metrics.table import FINENESS, Level

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
    return sorted(counts, key=lambda row: (-row[1], row[0]))
