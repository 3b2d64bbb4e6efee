"""The series of one group: lags and sums of its topics, balance, what its rebalances cost.

An end and the commits below it are read in one piece of work, in which nobody commits: a lag is of one moment.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.owners import Owners
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.observability.metrics.ends import EndHistories
from muster.coordinator.observability.metrics.instruments import Timing
from muster.coordinator.observability.metrics.ownership import NOBODY, OwnerCache, imbalance
from muster.coordinator.observability.metrics.rebalances import GroupRebalanceTotals
from muster.coordinator.observability.metrics.sight import SLICE, SeriesSource
from muster.coordinator.observability.metrics.table import Level
from muster.coordinator.observability.metrics.writing import (
    END,
    ExpositionSheet,
    HistogramLines,
    number,
    start,
    start_of_many,
)

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

    sight: SeriesSource
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
        counts = to.sight.partitions()
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
                share.write(partitions, self._slice(topic, partitions, committed, row, total, held, to.sight), to)
                yield
            if topic in subscribed and group.members:
                held.unowned += sum(partition not in row for partition in range(counts[topic]))
            share.write_sums(topic, total, to)
        yield from self._rates(owners, held, to)

    def _rates(self, owners: Owners, held: MemberTally, to: GroupWriting) -> Iterator[None]:
        """Add up what is written a second to the partitions of each member, as far as that is known yet."""
        rates = to.sight.rates(self.id) if Level.GROUP in to.levels else None
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
        sight: SeriesSource,
    ) -> tuple[list[int], list[int]]:
        """The lags and offsets of these partitions, which are added up as well."""
        lags, offsets = [], []
        for partition, end in zip(partitions, sight.ends(topic, partitions), strict=True):
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
                held.note(owner, lag, found)
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
    from muster.coordinator.core.control.balance.evaluating import last_burden

    carried = last_burden(group, state)
    return None if carried is None else carried.ratio
