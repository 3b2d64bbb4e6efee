"""The series of groups and topics, and what is kept between scrapes to write them.

Series of a topic are those of kafka_exporter. A node on its own has the only replica of each partition; in a cluster
the leader of a partition reports it. Series of a group: lags and sums of its topics, balance, what its rebalances
cost. An end and the commits below it are read in one piece of work, in which nothing is committed: a lag belongs to
one moment.

The lag in seconds answers when the topic ended where the group is now. For each topic that a group reads, its end is
kept at the times of earlier answers; the group's place among them, by interpolation, is how old the first record is
that it has not committed: exact where the topic's partitions move alike, an average otherwise.

Rebalances are counted from the ledger's entries as these become durable. The disagreement of shadow assignors is
that of each group's latest decision that its shadows have made again, as long as the assignor is still set as a
shadow.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final, NamedTuple, Protocol, TypeAlias

from muster.assignors.data.values import readable_lag
from muster.coordinator.core.control.trials.shadow_assignors import SHADOW_ASSIGNORS
from muster.coordinator.core.groups.group import NOBODY_OWNS, GroupData, Owners
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.types import (
    AUDIT_OUTCOMES,
    Outcome,
    RebalanceEntry,
    RebalancePhase,
    RebalanceSource,
    StoredOffset,
)
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.observability.history.group_history import PartitionRates
from muster.coordinator.observability.metrics.exposition import (
    END,
    ExpositionSheet,
    HistogramLines,
    number,
    start,
    start_of_many,
)
from muster.coordinator.observability.metrics.instruments import (
    LONG_BOUNDS,
    ClusterFiguresSource,
    LedPartitionFigures,
    Timing,
)
from muster.coordinator.observability.metrics.table import EXPORTER, OF_PARTITION, Level

# What is looked at
# -----------------

SLICE: Final = 200
"""Partitions that one piece of work goes through: a millisecond or so."""


class SeriesSource(Protocol):
    """The node, to be looked at. Nothing of it may be kept between two pieces of work."""

    def cores(self) -> Iterable[Shard]:
        """The shards that are loaded."""

    def whole(self) -> bool:
        """Whether all of them are."""

    def partitions(self) -> Mapping[str, int]:
        """The number of partitions by topic, internal ones included."""

    def ends(self, topic: str, partitions: range) -> list[int]:
        """Where each of these partitions ends for readers; -1 where its log cannot tell."""

    def starts(self, topic: str, partitions: range) -> list[int]:
        """Where each begins; -1 where its log cannot tell."""

    def rates(self, group_id: str) -> PartitionRates | None:
        """How much is written to each partition that the group reads, as seen over time; None: not known yet."""

    def sizes(self, topic: str, partitions: range) -> int:
        """Bytes of their segments, together."""


# Lag in seconds
# --------------

APART_MS = 5_000
"""Times are so far apart at least, however often somebody asks."""

MOST = 96
"""Times kept for a topic; beyond that every second one of the older half goes, so that they reach back further."""


class TopicEndHistory:
    """One topic's."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._ends: list[int] = []

    def note(self, now_ms: int, end: int) -> None:
        """It ends here now. A topic that was cut back, or made anew, begins again; so it does when the clock was set
        back."""
        if self._times and (end < self._ends[-1] or now_ms < self._times[-1]):
            self._times, self._ends = [], []
        if self._times and now_ms - self._times[-1] < APART_MS:
            return
        self._times.append(now_ms)
        self._ends.append(end)
        if len(self._times) > MOST:
            half = MOST // 2
            self._times = self._times[:half:2] + self._times[half:]
            self._ends = self._ends[:half:2] + self._ends[half:]

    def seconds(self, now_ms: int, end: int, lag: int) -> float | None:
        """How long ago it ended `lag` before `end`, where it ends now. None: too little is known yet.

        What is older than all that is kept is reckoned by the rate since then; where nothing was written since, it is
        at least as old as what is kept.
        """
        if lag <= 0:
            return 0.0
        if not self._times:
            return None
        times, ends = [*self._times, now_ms], [*self._ends, max(end, self._ends[-1])]
        wanted = end - lag
        if wanted < ends[0]:
            span_ms, grown = now_ms - times[0], ends[-1] - ends[0]
            if span_ms <= 0:
                return None
            older_ms = (ends[0] - wanted) * span_ms / grown if grown else 0.0
            return (span_ms + older_ms) / 1000
        # The last time at which it ended no further than there; from then on the next record was written.
        before = bisect_right(ends, wanted) - 1
        after = bisect_left(ends, wanted + 1, lo=before)
        if after >= len(ends):
            return 0.0
        part = (wanted - ends[before]) / (ends[after] - ends[before])
        return (now_ms - (times[before] + part * (times[after] - times[before]))) / 1000


class EndHistories:
    """Those of all topics that some group reads."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicEndHistory] = {}

    def of(self, topic: str) -> TopicEndHistory:
        return self._topics.setdefault(topic, TopicEndHistory())

    def keep(self, alive: Container[str]) -> None:
        for topic in [each for each in self._topics if each not in alive]:
            del self._topics[topic]


# Owners
# ------

NOBODY: Mapping[int, str] = {}


class OwnerCache:
    """The owners of one group's partitions, as they were told last."""

    def __init__(self) -> None:
        self._told = NOBODY_OWNS

    def of(self, group: GroupData, state: ShardState) -> Owners:
        self._told = KINDS[type(group)].owners(group, state, self._told)
        return self._told.owners


def imbalance(held: Mapping[str, float], members: int) -> float:
    """The largest share over the mean of so many members; 1.0 is even, and so is nothing at all.

    >>> imbalance({"a": 3, "b": 1}, 2), imbalance({"a": 3}, 3), imbalance({}, 2)
    (1.5, 3.0, 1.0)
    """
    total = sum(held.values())
    return max(held.values()) * members / total if total else 1.0


# Totals of rebalances
# --------------------


def long_timing() -> Timing:
    return Timing(LONG_BOUNDS)


@dataclass(slots=True)
class GroupRebalanceTotals:
    """One group's. The numbers say which entry was counted last: an entry is told of when it is decided, and again
    when it has settled; one whose assignor failed once more when it was made after all.
    """

    causes: Counter[str] = field(default_factory=Counter)
    durations: dict[str, Timing] = field(default_factory=dict)
    """By type of group."""
    moved: Counter[str] = field(default_factory=Counter)
    """By assignor."""
    unowned_ms: int = 0
    begun: int = 0
    planned: int = 0
    settled: int = 0
    phases: int = 0
    """Phases of the entry `planned` that were counted."""


EXEMPLAR_CHARS: Final = 30
"""Of each value of an exemplar: OpenMetrics allows 128 characters for the names and values of all its labels."""


class WaitExemplar(NamedTuple):
    """The last rebalance whose phase was as long as a bucket says, and for whom it waited last."""

    group_id: str
    labels: Mapping[str, str]
    seconds: float


def make_wait_exemplar(group_id: str, entry: RebalanceEntry, phase: RebalancePhase) -> WaitExemplar:
    *_, last = phase.waits
    labels = {
        "group": group_id[:EXEMPLAR_CHARS],
        "rebalance": str(entry.number),
        "waited_for": (last.client_id or last.member_id)[:EXEMPLAR_CHARS],
        "came": last.came.name.lower(),
    }
    return WaitExemplar(group_id, labels, max(0, phase.duration_ms) / 1000)


class RebalanceTotals:
    """All groups' of a node."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupRebalanceTotals] = {}
        self.phases: dict[str, Timing] = {}
        self.exemplars: dict[str, dict[int, WaitExemplar]] = {}
        """By phase and bucket; of phases that waited for somebody."""

    def count_rebalance(self, group_id: str, group_type: str, entry: RebalanceEntry) -> None:
        """An entry has become durable, or more is known of it. Those of no rebalance are not counted."""
        if entry.outcome in AUDIT_OUTCOMES:
            return
        group = self.groups.setdefault(group_id, GroupRebalanceTotals())
        if entry.number > group.begun:
            group.begun = entry.number
            group.causes[entry.cause.name.lower()] += 1
        if entry.number > group.planned and entry.outcome in (Outcome.COMPLETED, Outcome.EMPTIED):
            group.planned, group.phases = entry.number, 0
            group.moved[entry.protocol_name] += len(entry.moves)
            if entry.outcome is Outcome.COMPLETED and (entry.source is not RebalanceSource.WATCHED or entry.phases):
                took_ms = max(0, entry.ended_at_ms - entry.started_at_ms)
                group.durations.setdefault(group_type, long_timing()).took(took_ms / 1000)
        if entry.number == group.planned:
            self._phases(group_id, entry, entry.phases[group.phases :])
            group.phases = max(group.phases, len(entry.phases))
        if entry.unowned_partition_ms >= 0 and entry.number > group.settled:
            group.settled = entry.number
            group.unowned_ms += entry.unowned_partition_ms

    def keep(self, alive: Container[str]) -> None:
        """Forget the groups that are no longer there."""
        for group_id in [each for each in self.groups if each not in alive]:
            del self.groups[group_id]
        for name, by_bucket in self.exemplars.items():
            self.exemplars[name] = {place: one for place, one in by_bucket.items() if one.group_id in alive}

    def _phases(self, group_id: str, entry: RebalanceEntry, phases: Iterable[RebalancePhase]) -> None:
        for phase in phases:
            name, seconds = phase.name.replace(" ", "_"), max(0, phase.duration_ms) / 1000
            timing = self.phases.setdefault(name, long_timing())
            timing.took(seconds)
            if phase.waits:
                made = make_wait_exemplar(group_id, entry, phase)
                self.exemplars.setdefault(name, {})[timing.bucket_of(seconds)] = made


# Disagreement of shadow assignors
# --------------------------------


@dataclass(slots=True)
class ShadowDisagreement:
    """Added up group by group, by the word of the shadow: partitions that it would have given to somebody else, and
    all that there were to give."""

    differs: Counter[str] = field(default_factory=Counter)
    partitions: Counter[str] = field(default_factory=Counter)

    def note(self, group_id: str, state: ShardState) -> None:
        """One more group. What a shadow did not plan (it failed, or nobody could) is left out."""
        ledger = state.ledgers.get(group_id)
        if ledger is None or not ledger.shadows or group_id not in state.settings:
            return
        number = max(ledger.shadows)
        real, *others = ledger.shadows[number]
        entry = ledger.entries.get(number)
        if entry is None or real.failure:
            return
        words = {candidate.word for candidate in SHADOW_ASSIGNORS.of(state, group_id)}
        partitions = count_assigned_partitions(entry) + real.unassigned
        for score in others:
            if not score.failure and score.assignor in words and partitions:
                self.differs[score.assignor] += score.differs
                self.partitions[score.assignor] += partitions

    def ratios(self) -> dict[str, float]:
        return {word: self.differs[word] / count for word, count in sorted(self.partitions.items())}


def count_assigned_partitions(entry: RebalanceEntry) -> int:
    """Partitions that somebody was given."""
    return sum(len(partitions) for member in entry.members for _, partitions in member.assigned)


# Series of a group
# -----------------

Committed: TypeAlias = Mapping[tuple[str, int], StoredOffset]
NO_COMMITS: Committed = {}


DURATION = "muster_group_rebalance_duration_seconds"


class TopicOfGroupLines:
    """How the lines of one topic that a group reads begin."""

    __slots__ = ("_labels", "lag", "lag_sum", "offset", "offset_sum", "seconds")

    def __init__(self, group_id: str, topic: str) -> None:
        self._labels = {"consumergroup": group_id, "topic": topic}
        self.lag: list[str] = []
        self.offset: list[str] = []
        self.lag_sum = start("kafka_consumergroup_lag_sum", self._labels)
        self.offset_sum = start("kafka_consumergroup_current_offset_sum", self._labels)
        self.seconds = start("muster_group_lag_seconds", {"group": group_id, "topic": topic})

    def grow(self, count: int) -> None:
        """Have the lines of so many partitions."""
        missing = range(len(self.lag), count)
        if missing:
            lag = start_of_many("kafka_consumergroup_lag", self._labels, "partition")
            offset = start_of_many("kafka_consumergroup_current_offset", self._labels, "partition")
            self.lag += [f"{lag}{partition}{END}" for partition in missing]
            self.offset += [f"{offset}{partition}{END}" for partition in missing]

    def write(self, partitions: range, known: tuple[list[int], list[int]], to: "GroupWriting") -> None:
        """The lags and offsets of these partitions."""
        if Level.PARTITION not in to.levels:
            return
        self.grow(partitions.stop)
        rows = (("kafka_consumergroup_lag", self.lag), ("kafka_consumergroup_current_offset", self.offset))
        for (name, begins), values in zip(rows, known, strict=True):
            begun = begins[partitions.start : partitions.stop]
            to.sheet.add(name, [f"{begin}{value}\n" for begin, value in zip(begun, values, strict=True)])

    def write_sums(self, topic: str, total: "TopicSum", to: "GroupWriting") -> None:
        if not total.committed:
            return
        to.sheet.add("kafka_consumergroup_lag_sum", [f"{self.lag_sum}{total.lag}\n"])
        to.sheet.add("kafka_consumergroup_current_offset_sum", [f"{self.offset_sum}{total.offset}\n"])
        if total.ended < 0:
            return
        ends = to.ends.of(topic)
        ends.note(to.now_ms, total.ended)
        seconds = ends.seconds(to.now_ms, total.ended, total.lag)
        if Level.TOPIC in to.levels and seconds is not None:
            to.sheet.add("muster_group_lag_seconds", [f"{self.seconds}{number(round(seconds, 3))}\n"])


@dataclass(slots=True)
class MemberTally:
    """What is added up over a group's partitions while they are gone through."""

    count: Counter[str] = field(default_factory=Counter)
    lag: Counter[str] = field(default_factory=Counter)
    rate: dict[str, float] = field(default_factory=dict)
    """member -> records a second that are written to its partitions"""
    committed_ms: dict[str, int] = field(default_factory=dict)
    """member -> the latest commit of a partition that it has"""
    unowned: int = 0

    def note(self, owner: str, lag: int, found: StoredOffset | None) -> None:
        """One partition of this owner."""
        self.count[owner] += 1
        if lag > 0:
            self.lag[owner] += lag
        if found is not None and found.commit_timestamp_ms > self.committed_ms.get(owner, -1):
            self.committed_ms[owner] = found.commit_timestamp_ms


@dataclass(slots=True)
class TopicSum:
    """One topic of a group. `ended`: the ends of its partitions; -1 when one of them is not known."""

    lag: int = 0
    offset: int = 0
    committed: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class GroupWriting:
    """What one group is written from, onto what, and how finely; `commit_age`: its members' commit ages, too."""

    source: SeriesSource
    sheet: ExpositionSheet
    ends: EndHistories
    levels: frozenset[Level]
    commit_age: bool
    now_ms: int


class GroupLines:
    """What is kept of a group from scrape to scrape."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self._shares = OwnerCache()
        self._topics: dict[str, TopicOfGroupLines] = {}
        self._starts: dict[tuple[str, str], str] = {}
        self._histograms: dict[str, HistogramLines] = {}

    def topics(self, group: GroupData, state: ShardState, counts: Mapping[str, int]) -> frozenset[str]:
        """Topics that it has committed to, subscribes to, or owns partitions of, as far as they exist."""
        committed = {topic for topic, _ in state.offsets.get(self.id, {})}
        known = committed | self._subscribed(group) | self._shares.of(group, state).keys()
        return frozenset(topic for topic in known if topic in counts)

    def write(self, group: GroupData, state: ShardState, held: MemberTally, to: GroupWriting) -> Iterator[None]:
        """Write the topics' lines, a slice for each step, and add up in `held` what the group has and has not."""
        counts = to.source.partitions()
        owners = self._shares.of(group, state)
        subscribed = self._subscribed(group) | owners.keys()
        topics = self.topics(group, state, counts)
        for gone in self._topics.keys() - topics:
            del self._topics[gone]
        for topic in sorted(topics):
            share = self._topics.get(topic) or self._topics.setdefault(topic, TopicOfGroupLines(self.id, topic))
            total, row = TopicSum(), owners.get(topic, NOBODY)
            for first in range(0, counts[topic], SLICE):
                partitions = range(first, min(first + SLICE, counts[topic]))
                committed: Committed = state.offsets.get(self.id, NO_COMMITS)
                share.write(partitions, self._slice(topic, partitions, committed, row, total, held, to.source), to)
                yield
            if topic in subscribed and group.members:
                held.unowned += sum(partition not in row for partition in range(counts[topic]))
            share.write_sums(topic, total, to)
        yield from self._rates(owners, held, to)

    def _rates(self, owners: Owners, held: MemberTally, to: GroupWriting) -> Iterator[None]:
        """Add up what is written a second to the partitions of each member, as far as that is known yet."""
        rates = to.source.rates(self.id) if Level.GROUP in to.levels else None
        if rates is None:
            return
        for first in range(0, len(rates.places), SLICE):
            some = slice(first, first + SLICE)
            for (topic, partition), produced in zip(rates.places[some], rates.produced[some].tolist(), strict=True):
                owner = owners.get(topic, NOBODY).get(partition)
                if owner is not None and produced == produced:  # NaN is not known
                    held.rate[owner] = held.rate.get(owner, 0.0) + produced
            yield

    def _slice(
        self,
        topic: str,
        partitions: range,
        committed: Committed,
        row: Mapping[int, str],
        total: TopicSum,
        held: MemberTally,
        source: SeriesSource,
    ) -> tuple[list[int], list[int]]:
        """The lags and offsets of these partitions, which are added up as well."""
        lags, offsets = [], []
        starts = source.starts(topic, partitions) if row else repeat(-1)
        for partition, end, begin in zip(partitions, source.ends(topic, partitions), starts, strict=False):
            found = committed.get((topic, partition))
            lag = offset = -1
            total.ended = total.ended + end if end >= 0 and total.ended >= 0 else -1
            if found is not None and found.offset >= 0:
                offset = found.offset
                total.offset += offset
                total.committed += 1
                if end >= 0:
                    lag = max(0, end - offset)
                    total.lag += lag
            owner = row.get(partition)
            if owner is not None:
                held.note(owner, readable_lag(offset, begin, end) if lag > 0 else lag, found)
            lags.append(lag)
            offsets.append(offset)
        return lags, offsets

    def write_balance(self, group: GroupData, state: ShardState, held: MemberTally, to: GroupWriting) -> None:
        """What concerns the group as a whole."""
        members, sheet = len(group.members), to.sheet
        sheet.add("kafka_consumergroup_members", [self._line("kafka_consumergroup_members", members, group_label=True)])
        if Level.GROUP not in to.levels:
            return
        sheet.add("muster_group_unowned_partitions", [self._line("muster_group_unowned_partitions", held.unowned)])
        idle = sum(member not in held.count for member in group.members)
        sheet.add("muster_group_idle_members", [self._line("muster_group_idle_members", idle)])
        if members:
            name = "muster_group_imbalance_ratio"
            shares = {"count": held.count, "lag": held.lag} | ({"rate": held.rate} if held.rate else {})
            lines = [self._line(name, imbalance(share, members), "by", word) for word, share in shares.items()]
            if (weight := weighted_imbalance(group, state)) is not None:
                lines.append(self._line(name, weight, "by", "weight"))
            sheet.add(name, lines)
        if to.commit_age:
            name = "muster_member_commit_age_seconds"
            ages = {m: max(0, to.now_ms - at_ms) / 1000 for m, at_ms in held.committed_ms.items() if m in group.members}
            # Members come and go under new names: their lines are not kept.
            labels = ({"group": self.id, "member": member} for member in ages)
            rows = zip(labels, ages.values(), strict=True)
            sheet.add(name, [f"{start(name, label)}{number(age)}\n" for label, age in rows])

    def write_history(self, tally: GroupRebalanceTotals, sheet: ExpositionSheet) -> None:
        """What the ledger's entries add up to."""
        name = "muster_group_rebalances_total"
        sheet.add(name, [self._line(name, count, "cause", cause) for cause, count in sorted(tally.causes.items())])
        name = "muster_group_partitions_moved_total"
        sheet.add(name, [self._line(name, count, "assignor", by) for by, count in sorted(tally.moved.items())])
        name = "muster_group_unavailable_partition_seconds_total"
        sheet.add(name, [self._line(name, tally.unowned_ms / 1000)])
        for kind, timing in sorted(tally.durations.items()):
            sheet.add(DURATION, self._histogram(kind, timing).of(timing))

    def write_fenced(self, reasons: Mapping[ErrorCode, int], sheet: ExpositionSheet) -> None:
        name = "muster_fenced_requests_total"
        lines = [self._line(name, count, "reason", code.name) for code, count in sorted(reasons.items())]
        sheet.add(name, lines)

    def _subscribed(self, group: GroupData) -> frozenset[str]:
        """What it is known to read; nothing of one that shares no topics, or whose subscriptions cannot be read."""
        try:
            return KINDS[type(group)].subscribed(group, self.id) or frozenset()
        except CoordinatorError:
            return frozenset()

    def _line(self, name: str, value: float, label: str = "", word: str = "", *, group_label: bool = False) -> str:
        key = (name, word)
        begin = self._starts.get(key)
        if begin is None:
            labels = {"consumergroup" if group_label else "group": self.id, **({label: word} if label else {})}
            begin = self._starts[key] = start(name, labels)
        return f"{begin}{number(value)}\n"

    def _histogram(self, kind: str, timing: Timing) -> HistogramLines:
        if kind not in self._histograms:
            self._histograms[kind] = HistogramLines(DURATION, {"group": self.id, "protocol": kind}, timing)
        return self._histograms[kind]


def weighted_imbalance(group: GroupData, state: ShardState) -> float | None:
    """The heaviest member over the mean, as the group's balance judges it; None where that is off or knows nothing."""
    if group.id not in state.balancing:
        return None
    from muster.coordinator.core.control.balance.evaluation import last_burden

    carried = last_burden(group, state)
    return None if carried is None else carried.ratio


# Series of a topic
# -----------------

Look: TypeAlias = Callable[[str, range], list[int]]

OF_ONE_REPLICA: Final = {
    "kafka_topic_partition_leader_is_preferred": 1,
    "kafka_topic_partition_replicas": 1,
    "kafka_topic_partition_in_sync_replica": 1,
    "kafka_topic_partition_under_replicated_partition": 0,
}
SERIES: Final = sum(family.labels == OF_PARTITION for family in EXPORTER)
"""Of each partition."""


class TopicLines:
    """How its lines begin; those that never change are kept whole."""

    def __init__(self, topic: str, node_id: int, cluster: ClusterFiguresSource | None = None) -> None:
        self._topic = topic
        self._node_id = node_id
        self._cluster = cluster
        self._count = start("kafka_topic_partitions", {"topic": topic})
        self._bytes = start("muster_log_bytes", {"topic": topic})
        self._ends: list[str] = []
        self._starts: list[str] = []
        self._fixed: dict[str, list[str]] = {name: [] for name in (*OF_ONE_REPLICA, "kafka_topic_partition_leader")}

    def write(
        self, count: int, source: SeriesSource, sheet: ExpositionSheet, levels: frozenset[Level]
    ) -> Iterator[None]:
        """Write its lines, a slice for each step."""
        if Level.TOPIC not in levels:
            return
        sheet.add("kafka_topic_partitions", [f"{self._count}{count}\n"])
        size = 0
        for first in range(0, count, SLICE):
            partitions = range(first, min(first + SLICE, count))
            size += source.sizes(self._topic, partitions)
            if Level.PARTITION in levels:
                self._write_partitions(partitions, source, sheet)
            yield
        sheet.add("muster_log_bytes", [f"{self._bytes}{size}\n"])

    def _write_partitions(self, partitions: range, source: SeriesSource, sheet: ExpositionSheet) -> None:
        self._grow(partitions.stop)
        self._offsets("kafka_topic_partition_current_offset", self._ends, source.ends, partitions, sheet)
        self._offsets("kafka_topic_partition_oldest_offset", self._starts, source.starts, partitions, sheet)
        if self._cluster is not None:
            self._write_led(partitions, self._cluster.led(self._topic, partitions), sheet)
            return
        for name, lines in self._fixed.items():
            sheet.add(name, lines[partitions.start : partitions.stop])

    def _write_led(
        self, partitions: range, known: Sequence[LedPartitionFigures | None], sheet: ExpositionSheet
    ) -> None:
        for name in self._fixed:
            begin = start_of_many(name, {"topic": self._topic}, "partition")
            led = ((number, each) for number, each in zip(partitions, known, strict=True) if each is not None)
            sheet.add(name, [f"{begin}{number}{END}{self._value(name, each)}\n" for number, each in led])

    def _value(self, name: str, led: LedPartitionFigures) -> int:
        match name.removeprefix("kafka_topic_partition_"):
            case "leader":
                return self._node_id
            case "leader_is_preferred":
                return int(led.is_preferred)
            case "replicas":
                return led.replicas
            case "in_sync_replica":
                return led.in_sync
        return int(led.in_sync < led.replicas)

    def _offsets(self, name: str, begins: list[str], look: Look, partitions: range, sheet: ExpositionSheet) -> None:
        known = zip(begins[partitions.start : partitions.stop], look(self._topic, partitions), strict=True)
        sheet.add(name, [f"{begin}{offset}\n" for begin, offset in known if offset >= 0])

    def _grow(self, count: int) -> None:
        missing = range(len(self._ends), count)
        if not missing:
            return

        def begins(name: str, value: str = "") -> list[str]:
            begin = start_of_many(name, {"topic": self._topic}, "partition")
            return [f"{begin}{partition}{END}{value}" for partition in missing]

        self._ends += begins("kafka_topic_partition_current_offset")
        self._starts += begins("kafka_topic_partition_oldest_offset")
        for name, lines in self._fixed.items():
            lines += begins(name, f"{OF_ONE_REPLICA.get(name, self._node_id)}\n")
