"""Tables by partition: the positions of a group, the partitions of a topic, and the groups that read it. Pure.

A table has a page of rows; what is added up covers all of them. Rates are the sampler's, known where it has looked at
a partition of some group at least twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Final

from muster.coordinator.observability.history.group_history import PartitionRates
from muster.coordinator.observability.read_model.groups import PartitionLag, TopicPartition
from muster.coordinator.observability.views.formatting import size
from muster.coordinator.observability.views.member_names import Names

ROWS: Final = 50
"""Of a page of partitions: a phone shows them, and a page of ten thousand partitions stays below its limit."""
MOST_READERS: Final = 20

Place = tuple[str, int]
Rates = Mapping[Place, float]


# Pages of rows
# -------------


@dataclass(frozen=True, slots=True)
class RowPage:
    """Which rows are shown: from `first` to before `last` of `total`; `number` counts from 1."""

    number: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        return (self.number - 1) * ROWS

    @property
    def last(self) -> int:
        return min(self.number * ROWS, self.total)


def row_page(number: int, total: int) -> RowPage:
    """A page beyond the last is the last.

    >>> row_page(3, 125), row_page(9, 125).number, row_page(1, 0).pages
    (RowPage(number=3, pages=3, total=125), 3, 1)
    """
    pages = max(1, -(-total // ROWS))
    return RowPage(min(max(1, number), pages), pages, total)


def known_rates(known: PartitionRates | None, column: str) -> dict[Place, float]:
    """Records a second by partition; `column` is produced or consumed. What is not known is left out."""
    if known is None:
        return {}
    figures = zip(known.places, getattr(known, column).tolist(), strict=True)
    return {(topic, number): rate for (topic, number), rate in figures if not isnan(rate)}


# A group
# -------


@dataclass(frozen=True, slots=True)
class GroupPositionLine:
    """One partition of a group. `read` and `written` are records a second; None: not known."""

    topic: str
    partition: int
    owner: str
    committed: int | None
    log_start: int
    log_end: int
    lag: int
    removed: int
    read: float | None
    written: float | None


def position_lines(
    positions: Mapping[TopicPartition, PartitionLag], names: Names, read: Rates, written: Rates, shown: RowPage
) -> tuple[GroupPositionLine, ...]:
    """In order of topic and partition; where there are several pages, those with most lag first."""
    ordered = sorted(positions, key=lambda tp: (-positions[tp].lag if shown.pages > 1 else 0, tp))
    return tuple(
        GroupPositionLine(
            *tp,
            names[positions[tp].owner] if positions[tp].owner else "",
            positions[tp].committed,
            positions[tp].log_start,
            positions[tp].log_end,
            positions[tp].lag,
            positions[tp].removed,
            read.get(tp),
            written.get(tp),
        )
        for tp in ordered[shown.first : shown.last]
    )


# A topic
# -------


@dataclass(frozen=True, slots=True)
class TopicPartitionLine:
    number: int
    start: int
    end: int
    size: str
    written: float | None

    @property
    def records(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class TopicReaderLine:
    """One group with positions in the topic. `health` is the sampler's word, `reason` its sentence."""

    group: str
    partitions: int
    lag: int
    read: float | None
    health: str
    reason: str


def partition_lines(
    topic: str,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    held: Mapping[Place, int],
    written: Rates,
    shown: RowPage,
) -> list[TopicPartitionLine]:
    numbers = sorted(number for name, number in ends if name == topic)
    return [
        TopicPartitionLine(
            number,
            starts.get((topic, number), 0),
            ends[topic, number],
            size(held.get((topic, number), 0)),
            written.get((topic, number)),
        )
        for number in numbers[shown.first : shown.last]
    ]


def reader_lines(
    topic: str, seen: Iterable[tuple[str, PartitionRates]], health: Mapping[str, tuple[str, str]]
) -> list[TopicReaderLine]:
    """The groups with positions in the topic, most lag first; those without members behind the others."""
    found = []
    for group, known in seen:
        rows = [at for at, (name, _) in enumerate(known.places) if name == topic]
        if not rows:
            continue
        read = [rate for rate in known.consumed[rows].tolist() if not isnan(rate)]
        word, reason = health.get(group, ("", ""))
        lag = int(known.lag_now[rows].sum())
        found.append(TopicReaderLine(group, len(rows), lag, sum(read) if read else None, word, reason))
    return sorted(found, key=lambda line: (line.health == "IDLE", -line.lag, line.group))


def knows_topic(known: PartitionRates, topic: str) -> bool:
    """Whether the group has a position in the topic."""
    return any(name == topic for name, _ in known.places)


def written_to(seen: Sequence[tuple[str, PartitionRates]], topics: Iterable[str]) -> dict[Place, float]:
    """Records a second written to each partition of these topics, as far as some group's samples say."""
    wanted, found = set(topics), dict[Place, float]()
    for _, known in seen:
        rates = known_rates(known, "produced")
        found |= {place: rate for place, rate in rates.items() if place[0] in wanted}
    return found
