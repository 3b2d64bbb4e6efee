"""One answer to a scrape: all that is large of it, gone through in slices so that nobody waits for it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field

from muster.coordinator.core.groups.group import Group
from muster.coordinator.core.state import ShardState
from muster.coordinator.errors import ErrorCode
from muster.coordinator.metrics.budget import Budget, fitted
from muster.coordinator.metrics.cluster import ClusterSight
from muster.coordinator.metrics.ends import AllEnds
from muster.coordinator.metrics.groups import GroupLines, Held, Writing
from muster.coordinator.metrics.instruments import LONG_BOUNDS, Instruments, Meter
from muster.coordinator.metrics.rebalances import Rebalances
from muster.coordinator.metrics.shadows import Disagreement
from muster.coordinator.metrics.sight import Sight
from muster.coordinator.metrics.table import FAMILIES, Level, bulk, levels_of
from muster.coordinator.metrics.topics import SERIES, TopicLines
from muster.coordinator.metrics.writing import Form, HistogramLines, Sheet, number, start

DURATION = "muster_request_duration_seconds"
SHADOWS = "muster_shadow_disagreement_ratio"
HISTOGRAM_SERIES = len(LONG_BOUNDS) + 3

Fenced = MutableMapping[tuple[str, ErrorCode], int]
"""(group, code) -> how many requests were refused with it"""


@dataclass(frozen=True, slots=True)
class Fineness:
    """What is written, and how much of it: the settings `metrics.*`."""

    granularity: str = "partition"
    max_series: int = 50_000
    commit_age: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """What is counted as it happens."""

    instruments: Instruments
    rebalances: Rebalances
    fenced: Fenced


@dataclass(slots=True)
class Page:
    """An answer that is being made."""

    sheet: Sheet
    budget: Budget = field(default_factory=Budget)


class Scraper:
    """A node's groups and topics as series. What it keeps between two answers goes with the group, or the topic."""

    def __init__(
        self,
        sight: Sight,
        counts: Counts,
        node_id: int,
        fineness: Fineness | None = None,
        cluster: ClusterSight | None = None,
    ) -> None:
        self._cluster = cluster
        self._sight = sight
        self._rebalances = counts.rebalances
        self._fenced = counts.fenced
        self._meters = counts.instruments.meters
        self._durations: dict[tuple[str, str], HistogramLines] = {}
        self._node_id = node_id
        self._fineness = fineness or Fineness()
        self._levels = levels_of(self._fineness.granularity)
        self._groups: dict[str, GroupLines] = {}
        self._topics: dict[str, TopicLines] = {}
        self._ends = AllEnds()

    def page(self, form: Form) -> Page:
        return Page(Sheet(form, (*bulk(), FAMILIES[DURATION])))

    def steps(self, page: Page, now_ms: int) -> Iterator[None]:
        """Fill the page; each step is a millisecond or so, and others may have their turn after it."""
        fenced = self._fenced_by_group()
        sizes: dict[tuple[str, str], dict[Level, int]] = {}
        for group, state in self._each():
            sizes["group", group.id] = self._size(group, state, fenced)
            yield
        counts = self._sight.partitions()
        sizes |= {
            ("topic", topic): {Level.TOPIC: 2, Level.PARTITION: SERIES * count} for topic, count in counts.items()
        }
        page.budget = fitted(sizes, self._levels, self._fineness.max_series)
        yield
        alive, shadows = set(), Disagreement()
        for group, state in self._each():
            alive.add(group.id)
            shadows.note(group.id, state)
            yield from self._write_group(group, state, fenced, page, now_ms)
        rows = shadows.ratios().items()
        page.sheet.add(SHADOWS, [f"{start(SHADOWS, {'assignor': word})}{number(ratio)}\n" for word, ratio in rows])
        for topic, count in counts.items():
            lines = self._lines_of(topic)
            yield from lines.write(count, self._sight, page.sheet, self._allowed("topic", topic, page))
            yield
        for key, meter in list(self._meters.items()):
            if meter.count:
                page.sheet.add(DURATION, self._duration(key, meter).of(meter))
                yield
        self._forget(alive, counts)

    def _each(self) -> Iterator[tuple[Group, ShardState]]:
        """All groups, as they are when it is their turn."""
        for core in self._sight.cores():
            for group_id in list(core.state.groups):
                group = core.state.groups.get(group_id)
                if group is not None:
                    yield group, core.state

    def _write_group(
        self, group: Group, state: ShardState, fenced: Mapping[str, Mapping[ErrorCode, int]], page: Page, now_ms: int
    ) -> Iterator[None]:
        lines, held, sheet = self._lines(group.id), Held(), page.sheet
        levels = self._allowed("group", group.id, page)
        to = Writing(self._sight, sheet, self._ends, levels, self._fineness.commit_age, now_ms)
        yield from lines.write(group, state, held, to)
        lines.write_balance(group, state, held, to)
        if Level.GROUP in levels:
            if group.id in self._rebalances.groups:
                lines.write_history(self._rebalances.groups[group.id], sheet)
            lines.write_fenced(fenced.get(group.id, {}), sheet)
        yield

    def _lines(self, group_id: str) -> GroupLines:
        return self._groups.get(group_id) or self._groups.setdefault(group_id, GroupLines(group_id))

    def _lines_of(self, topic: str) -> TopicLines:
        made = self._topics.get(topic)
        return made or self._topics.setdefault(topic, TopicLines(topic, self._node_id, self._cluster))

    def _size(self, group: Group, state: ShardState, fenced: Mapping[str, Mapping[ErrorCode, int]]) -> dict[Level, int]:
        counts = self._sight.partitions()
        topics = self._lines(group.id).topics(group, state, counts)
        of_group = (6 if group.members else 2) + len(fenced.get(group.id, ()))
        of_group += self._fineness.commit_age * len(group.members)
        if (tally := self._rebalances.groups.get(group.id)) is not None:
            of_group += 1 + len(tally.causes) + len(tally.moved) + HISTOGRAM_SERIES * len(tally.durations)
        return {
            Level.ALWAYS: 1 + 2 * len(topics),
            Level.GROUP: of_group,
            Level.TOPIC: len(topics),
            Level.PARTITION: 2 * sum(counts[topic] for topic in topics),
        }

    def _duration(self, key: tuple[str, str], meter: Meter) -> HistogramLines:
        if key not in self._durations:
            self._durations[key] = HistogramLines(
                DURATION, dict(zip(FAMILIES[DURATION].labels, key, strict=True)), meter
            )
        return self._durations[key]

    def _allowed(self, kind: str, name: str, page: Page) -> frozenset[Level]:
        return frozenset(level for level in self._levels if page.budget.allows(kind, name, level))

    def _fenced_by_group(self) -> Mapping[str, Mapping[ErrorCode, int]]:
        found: dict[str, Counter[ErrorCode]] = defaultdict(Counter)
        for (group_id, code), count in self._fenced.items():
            found[group_id][code] += count
        return found

    def _forget(self, alive: set[str], counts: Mapping[str, int]) -> None:
        """A dead group's series go with it; while a shard is away, nobody knows which of its groups are."""
        for group_id in self._groups.keys() - alive:
            del self._groups[group_id]
        for topic in self._topics.keys() - counts.keys():
            del self._topics[topic]
        self._ends.keep(counts)
        if self._sight.whole():
            self._rebalances.keep(alive)
            for key in [key for key in self._fenced if key[0] not in alive]:
                del self._fenced[key]
