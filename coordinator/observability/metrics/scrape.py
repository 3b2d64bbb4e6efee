"""One answer to a scrape: its large part is written in slices, so that no other request waits for it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field

from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.metrics.exposition import (
    ExpositionFormat,
    ExpositionSheet,
    HistogramLines,
    SeriesBudget,
    fitted,
    number,
    start,
)
from muster.coordinator.observability.metrics.instruments import (
    LONG_BOUNDS,
    ClusterFiguresSource,
    Instruments,
    RequestMeter,
)
from muster.coordinator.observability.metrics.series import (
    SERIES,
    EndHistories,
    GroupLines,
    GroupWriting,
    MemberTally,
    RebalanceTotals,
    SeriesSource,
    ShadowDisagreement,
    TopicLines,
)
from muster.coordinator.observability.metrics.table import FAMILIES, Level, bulk_families, levels_of

DURATION = "muster_request_duration_seconds"
SHADOWS = "muster_shadow_disagreement_ratio"
HISTOGRAM_SERIES = len(LONG_BOUNDS) + 3

Fenced = MutableMapping[tuple[str, ErrorCode], int]
"""(group, code) -> how many requests were refused with it"""


@dataclass(frozen=True, slots=True)
class SeriesGranularity:
    """What is written, and how much of it: the settings `metrics.*`."""

    granularity: str = "partition"
    max_series: int = 50_000
    commit_age: bool = False


@dataclass(frozen=True, slots=True)
class ScrapeCounts:
    """What is counted as it happens."""

    instruments: Instruments
    rebalances: RebalanceTotals
    fenced: Fenced


@dataclass(slots=True)
class ScrapePage:
    """An answer that is being made."""

    sheet: ExpositionSheet
    sizes: dict[tuple[str, str], Mapping[Level, int]] = field(default_factory=dict)
    """("group" or "topic", name) -> how many series it has at each level."""
    budget: SeriesBudget = field(default_factory=SeriesBudget)


class Scraper:
    """A node's groups and topics as series. What it keeps between two answers goes with the group, or the topic."""

    def __init__(
        self,
        source: SeriesSource,
        counts: ScrapeCounts,
        node_id: int,
        fineness: SeriesGranularity | None = None,
        cluster: ClusterFiguresSource | None = None,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._rebalances = counts.rebalances
        self._fenced = counts.fenced
        self._meters = counts.instruments.meters
        self._durations: dict[tuple[str, str], HistogramLines] = {}
        self._node_id = node_id
        self._fineness = fineness or SeriesGranularity()
        self._levels = levels_of(self._fineness.granularity)
        self._groups: dict[str, GroupLines] = {}
        self._topics: dict[str, TopicLines] = {}
        self._ends = EndHistories()

    def page(self, form: ExpositionFormat) -> ScrapePage:
        return ScrapePage(ExpositionSheet(form, (*bulk_families(), FAMILIES[DURATION])))

    def measure(self, page: ScrapePage) -> Iterator[None]:
        """How many series each group and topic has; each step is a millisecond at most, as those of `write` are."""
        fenced = self._fenced_by_group()
        for group, state in self._all_groups():
            page.sizes["group", group.id] = self._size(group, state, fenced)
            yield
        for topic, count in self._source.partitions().items():
            page.sizes["topic", topic] = {Level.TOPIC: 2, Level.PARTITION: SERIES * count}
            yield

    def fit(self, page: ScrapePage) -> None:
        """Decide what is left out, once all is measured. In any thread."""
        page.budget = fitted(page.sizes, self._levels, self._fineness.max_series)
        page.sizes = {}

    def write(self, page: ScrapePage, now_ms: int) -> Iterator[None]:
        """Fill the page, once it fits."""
        fenced, counts = self._fenced_by_group(), self._source.partitions()
        alive, shadows = set(), ShadowDisagreement()
        for group, state in self._all_groups():
            alive.add(group.id)
            shadows.note(group.id, state)
            yield from self._write_group(group, state, fenced, page, now_ms)
        rows = shadows.ratios().items()
        page.sheet.add(SHADOWS, [f"{start(SHADOWS, {'assignor': word})}{number(ratio)}\n" for word, ratio in rows])
        for topic, count in counts.items():
            lines = self._lines_of(topic)
            yield from lines.write(count, self._source, page.sheet, self._allowed("topic", topic, page))
            yield
        for key, meter in list(self._meters.items()):
            if meter.count:
                page.sheet.add(DURATION, self._duration(key, meter).of(meter))
                yield
        self._forget(alive, counts)

    def _all_groups(self) -> Iterator[tuple[GroupData, ShardState]]:
        """All groups, as they are when it is their turn."""
        for core in self._source.cores():
            for group_id in list(core.state.groups):
                group = core.state.groups.get(group_id)
                if group is not None:
                    yield group, core.state

    def _write_group(
        self,
        group: GroupData,
        state: ShardState,
        fenced: Mapping[str, Mapping[ErrorCode, int]],
        page: ScrapePage,
        now_ms: int,
    ) -> Iterator[None]:
        lines, held, sheet = self._lines(group.id), MemberTally(), page.sheet
        levels = self._allowed("group", group.id, page)
        to = GroupWriting(self._source, sheet, self._ends, levels, self._fineness.commit_age, now_ms)
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

    def _size(
        self, group: GroupData, state: ShardState, fenced: Mapping[str, Mapping[ErrorCode, int]]
    ) -> dict[Level, int]:
        counts = self._source.partitions()
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

    def _duration(self, key: tuple[str, str], meter: RequestMeter) -> HistogramLines:
        if key not in self._durations:
            self._durations[key] = HistogramLines(
                DURATION, dict(zip(FAMILIES[DURATION].labels, key, strict=True)), meter
            )
        return self._durations[key]

    def _allowed(self, kind: str, name: str, page: ScrapePage) -> frozenset[Level]:
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
        if self._source.whole():
            self._rebalances.keep(alive)
            for key in [key for key in self._fenced if key[0] not in alive]:
                del self._fenced[key]
