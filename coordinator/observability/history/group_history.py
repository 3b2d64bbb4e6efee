"""What a sampler saw of groups, bounded: lag over time, and per partition rates, lag and last commits. Pure.

Times are given, in milliseconds of a clock that never jumps. A group is sampled in pieces (`record_sample`), as few
partitions at a time as the caller likes, and `settle` ends its sample. Rates are exponentially weighted means with a
half-life of 5 samples, by the time between two looks: a gap counts as long as it was. A partition whose log or
commit went back (recreated, truncated, offsets reset) gives no rate at that sample, and starts from there.

A figure over time keeps every sample of the last hour (at 10 s each), before that the highest of each minute, for a
day.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.assignors.api import TopicPartition
from muster.coordinator.observability.history.group_health import (
    ALLOWED_LAG,
    CommitWindows,
    GroupHealth,
    HealthStatus,
    PartitionHealth,
    judge_health,
)

# A figure over time
# ------------------

Ints = NDArray[np.int64]

RECENT_POINTS = 360
"""An hour of samples, one every 10 s."""
MINUTE_MS = 60_000
MINUTE_POINTS = 1_440
FIRST_ROOM = 16


class PointRing:
    """The last `most` points, oldest first. It takes room as it fills."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times = np.empty(FIRST_ROOM, np.int64)
        self._values = np.empty(FIRST_ROOM, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._most)

    def add(self, time_ms: int, value: int) -> None:
        room = len(self._times)
        if self._count == room < self._most:
            self._times = np.resize(self._times, min(room * 2, self._most))
            self._values = np.resize(self._values, min(room * 2, self._most))
            room = len(self._times)
        at = self._count % room
        self._times[at], self._values[at] = time_ms, value
        self._count += 1

    def raise_last(self, value: int) -> None:
        """The last point is this high at least."""
        at = (self._count - 1) % len(self._times)
        self._values[at] = max(self._values[at], value)

    def points(self) -> tuple[Ints, Ints]:
        """Times and values, oldest first, as copies."""
        kept, at = len(self), self._count % len(self._times)
        if self._count <= len(self._times):
            return self._times[:kept].copy(), self._values[:kept].copy()
        return np.roll(self._times, -at), np.roll(self._values, -at)


class FigureSeries:
    """One figure: every sample of the last hour (at 10 s each), before that the highest of each minute, for a day."""

    def __init__(self) -> None:
        self._recent = PointRing(RECENT_POINTS)
        self._minutes = PointRing(MINUTE_POINTS)
        self._minute = -1

    def add(self, time_ms: int, value: int) -> None:
        self._recent.add(time_ms, value)
        if time_ms // MINUTE_MS == self._minute:
            self._minutes.raise_last(value)
        else:
            self._minute = time_ms // MINUTE_MS
            self._minutes.add(time_ms, value)

    def recent(self) -> tuple[Ints, Ints]:
        """Times in ms and values of the last samples, oldest first."""
        return self._recent.points()

    def points(self) -> tuple[Ints, Ints]:
        """Times in ms and values, oldest first. A minute before the recent samples is one point, at its first time."""
        times, values = self._recent.points()
        if not len(times):
            return times, values
        minutes, highest = self._minutes.points()
        before = minutes < times[0]
        return np.concatenate([minutes[before], times]), np.concatenate([highest[before], values])


# Groups
# ------

Floats = NDArray[np.float64]

HALF_LIFE_SAMPLES = 5
INTERVALS = 10
"""Burrow's window: so many commits of a partition are looked at."""
COUNTS = 30
"""So many looks at how often a group commits are kept."""
MAX_GROUPS = 2_000
MAX_PARTITIONS = 100_000
MAX_TROUBLED = 20
"""So many partitions that are not well are named for a group."""
LONGEST_ETA_S = 30 * 86_400.0
UNKNOWN = -1
"""The end of a log that is away."""
STALE_SAMPLES = 6
"""After so many samples without a look, rates say nothing about now."""


class Sample(NamedTuple):
    """Some partitions of one group, as they were at one moment; columns of one length."""

    places: Sequence[TopicPartition]
    ends: Sequence[int]
    """The log's end; UNKNOWN while the log is away."""
    committed: Sequence[int]
    commit_ms: Sequence[int]
    """When that was committed, by the same clock as `now_ms`."""
    positions: Sequence[int] = ()
    """Where the group goes on reading (`reading_position`); empty: where it committed."""


@dataclass(frozen=True, slots=True)
class PartitionRates:
    """One row a partition: records a second written and read (NaN: not known yet), and how many wait, smoothed."""

    places: tuple[TopicPartition, ...]
    produced: Floats
    consumed: Floats
    lag: Floats
    lag_now: Ints
    """As last seen, not smoothed."""


class GroupHistory:
    """Of one node. `sample_ms` is how far two samples of a group lie apart as a rule."""

    def __init__(self, sample_ms: int) -> None:
        self.sample_ms = sample_ms
        self._groups: dict[str, _GroupTable] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._missing: tuple[int, int] = (0, 0)
        self._window_ms = INTERVALS * sample_ms

    def __len__(self) -> int:
        """How many partitions of groups are kept."""
        return sum(len(group.rows) for group in self._groups.values())

    @property
    def groups(self) -> Sequence[str]:
        return tuple(self._groups)

    # What the sampler says.

    def topics(self, ids: Mapping[str, bytes]) -> None:
        """The topics there are. What is kept of one that has gone, or was made anew under its name, goes."""
        gone = {name for name, id in self._topic_ids.items() if ids.get(name) != id}
        self._topic_ids = dict(ids)
        if gone:
            for group in self._groups.values():
                group.forget({place for place in group.rows if place[0] in gone})

    def expect(self, group_id: str, partitions: int) -> None:
        """A sample begins of a group of that size: room is made once, and nothing is moved while it is taken."""
        self._groups.setdefault(group_id, _GroupTable()).expect(partitions)

    def record_sample(self, group_id: str, sample: Sample, now_ms: int) -> None:
        """Some partitions of a group; none of them twice in one sample. They are judged, too."""
        group = self._groups.setdefault(group_id, _GroupTable())
        group.record_sample(sample, now_ms, HALF_LIFE_SAMPLES * self.sample_ms)
        group.judge_these(sample.places, now_ms, self._window_ms)

    def note_commits(self, group_id: str, count: int, now_ms: int) -> None:
        """So many positions of the group have been committed since its shard was loaded."""
        if (group := self._groups.get(group_id)) is not None:
            group.note_commits(count, now_ms)

    def settle(self, group_id: str, now_ms: int, *, has_members: bool = True) -> None:
        """All of the group has been taken: what was not goes, and its lag is a point of its series."""
        group = self._groups.get(group_id)
        if group is not None:
            group.settle(now_ms, has_members, self._window_ms)

    def forget(self, group_ids: Iterable[str]) -> None:
        """Everything of these groups goes."""
        for group_id in group_ids:
            self._groups.pop(group_id, None)

    def refused(self, groups: int, partitions: int) -> None:
        """So much is there beside what is kept: `admit_groups` had no room for it."""
        self._missing = (groups, partitions)

    # What is asked.

    @property
    def notice(self) -> str:
        """What is left out for want of room; empty when nothing is."""
        groups, partitions = self._missing
        if not groups:
            return ""
        return (
            f"{groups} of the largest groups with {partitions} partitions have no history: a node keeps that of "
            f"{MAX_GROUPS} groups and {MAX_PARTITIONS} partitions; metrics and lags of them are still answered"
        )

    def knows(self, group_id: str) -> bool:
        return group_id in self._groups

    def topics_of(self, group_id: str) -> Collection[str]:
        """The topics that its figures are about."""
        group = self._groups.get(group_id)
        return group.topics if group else ()

    def lag_series(self, group_id: str) -> tuple[Ints, Ints]:
        """(times in ms, total lags), oldest first: a day of minutes, then the last hour's samples. Empty if unknown."""
        group = self._groups.get(group_id)
        return group.series.points() if group else (np.empty(0, np.int64), np.empty(0, np.int64))

    def lag(self, group_id: str) -> int | None:
        """The total lag when the group was last seen; None if it never was."""
        group = self._groups.get(group_id)
        return int(group.table["lag_now"].sum()) if group and group.settled is not None else None

    def rates(self, group_id: str) -> PartitionRates | None:
        group = self._groups.get(group_id)
        if group is None:
            return None
        table = group.table
        columns = (table[name].copy() for name in ("produced", "consumed", "lag", "lag_now"))
        return PartitionRates(tuple(group.rows), *columns)

    def positions(self, group_id: str, place: TopicPartition) -> tuple[list[int], list[int]]:
        """Times (ms) and positions of the last commits that samples saw, oldest first; empty if there are none."""
        group = self._groups.get(group_id)
        at = None if group is None else group.rows.get(place)
        if group is None or at is None:
            return [], []
        row = group.table[at]
        begin = INTERVALS - min(int(row["commits"]), INTERVALS)
        return row["times"][begin:].tolist(), row["offsets"][begin:].tolist()

    def commits(self, group_id: str) -> tuple[int, int, int] | None:
        """How many positions were committed lately, and from when to when (ms); None while that is not known."""
        group = self._groups.get(group_id)
        if group is None or len(group.counted) < 2:
            return None
        (from_ms, before), (to_ms, now) = group.counted[0], group.counted[-1]
        return now - before, from_ms, to_ms

    def trend(self, group_id: str) -> float | None:
        """By how many records a second the group's lag grows (below 0: shrinks); None while that is not known.

        None also while nobody reads for the group: what is read then says nothing about when it catches up.
        """
        group = self._groups.get(group_id)
        known = group.flow() if group and group.idle_since_ms is None else None
        return None if known is None else known[0] - known[1]

    def trend_window_ms(self, group_id: str) -> int:
        """How far back the trend looks; 0 while there is none. Members were there all that time, or never."""
        group = self._groups.get(group_id)
        if group is None or group.settled is None or group.idle_since_ms is not None:
            return 0
        return min(group.settled - group.reading_since_ms, self._window_ms)

    def flow(self, group_id: str) -> tuple[float, float] | None:
        """Records a second (written, read) over all its partitions with known rates; None while there is none."""
        group = self._groups.get(group_id)
        return group.flow() if group else None

    def seen_ms(self, group_id: str) -> int | None:
        """When the group was last seen whole."""
        group = self._groups.get(group_id)
        return group.settled if group else None

    def fresh(self, group_id: str, now_ms: int) -> bool:
        """Whether the figures are of now: the group was seen within the last few samples."""
        seen = self.seen_ms(group_id)
        return seen is not None and now_ms - seen <= STALE_SAMPLES * self.sample_ms

    def eta_s(self, group_id: str) -> float | None:
        """Seconds until nothing waits, at today's pace; 0 when nothing does, None when not at this pace, or unknown.

        A pace at which it takes longer than LONGEST_ETA_S is none: what is left of a trend that fades is never quite 0.
        """
        lag, trend = self.lag(group_id), self.trend(group_id)
        if not lag:
            return None if lag is None else 0.0
        return lag / -trend if trend is not None and lag < -trend * LONGEST_ETA_S else None

    def last_health(self, group_id: str) -> GroupHealth:
        """As it was at the last sample: each partition has been judged with its piece."""
        group = self._groups.get(group_id)
        if group is None or group.settled is None:
            return self.health(group_id, 0)
        if group.judged is None or group.judged[0] != group.settled:
            group.judged = (group.settled, group.summary(group.table["status"], self._window_ms))
        return group.judged[1]

    def health(self, group_id: str, now_ms: int, allowed_lag: int = ALLOWED_LAG) -> GroupHealth:
        """By Burrow's rules (`health`), over the commits that samples saw: one commit a sample at most.

        One thing differs: a partition of which a single commit is known has not stopped before it has been watched for
        a whole window, or every group with lag would be stopped when a node has just started.
        """
        group = self._groups.get(group_id)
        if group is None or group.settled is None:
            return GroupHealth(HealthStatus.NOTFOUND, 0, None, 0.0, 0, (), 0)
        return group.summary(judge_partitions(group.table, now_ms, allowed_lag, self._window_ms), self._window_ms)


def admit_groups(
    sizes: Sequence[int], most_groups: int = MAX_GROUPS, most_partitions: int = MAX_PARTITIONS
) -> NDArray[np.bool_]:
    """Which groups of these sizes there is room for: the smallest first, of equal ones who comes first.

    >>> admit_groups([5, 1, 3], most_partitions=4).tolist(), admit_groups([5, 1, 3], most_groups=1).tolist()
    ([False, True, True], [False, True, False])
    """
    each = np.asarray(sizes, np.int64)
    order = np.argsort(each, kind="stable")
    room = np.cumsum(each[order]) <= most_partitions
    room[most_groups:] = False
    found = np.zeros(len(each), np.bool_)
    found[order] = room
    return found


ROW = np.dtype(
    [
        ("at_ms", np.int64),
        ("since_ms", np.int64),
        ("end", np.int64),
        ("committed", np.int64),
        ("commit_ms", np.int64),
        ("lag_now", np.int64),
        ("produced", np.float64),
        ("consumed", np.float64),
        ("lag", np.float64),
        ("round", np.int64),
        ("commits", np.int64),
        ("offsets", np.int64, (INTERVALS,)),
        ("times", np.int64, (INTERVALS,)),
        ("lags", np.int64, (INTERVALS,)),
        ("looks", np.int64),
        ("ends", np.int64, (INTERVALS,)),
        ("status", np.int64),
    ]
)
"""One partition of one group: 424 bytes. The windows are shifted to the left; `commits` and `looks` say how much of
each is filled."""


class _GroupTable:
    """A table of partitions, and the group's lag over time."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, int] = {}
        self.series = FigureSeries()
        self.settled: int | None = None
        self.reading_since_ms = 0
        """The sample since which somebody has read for the group, with members all the time or without."""
        self.idle_since_ms: int | None = None
        self._left_ms: int | None = None
        """The first sample without members since there were any."""
        self.judged: tuple[int, GroupHealth] | None = None
        self.counted: deque[tuple[int, int]] = deque(maxlen=COUNTS)
        """When commits were counted, and how many there had been."""
        self._table = np.zeros(0, ROW)
        self._round = 0
        self._topics: frozenset[str] | None = None

    @property
    def topics(self) -> frozenset[str]:
        if self._topics is None:
            self._topics = frozenset(topic for topic, _ in self.rows)
        return self._topics

    @property
    def table(self) -> NDArray[np.void]:
        return self._table[: len(self.rows)]

    def expect(self, partitions: int) -> None:
        if partitions > len(self._table):
            self._grow(partitions, len(self.rows))

    def record_sample(self, sample: Sample, now_ms: int, half_life_ms: int) -> None:
        fresh = [place for place in sample.places if place not in self.rows]
        if fresh:
            self._make_room(fresh, now_ms)
        at = np.fromiter(map(self.rows.__getitem__, sample.places), np.int64, len(sample.places))
        self._table["round"][at] = self._round
        ends = np.asarray(sample.ends, np.int64)
        there = ends != UNKNOWN
        committed, commit_ms = np.asarray(sample.committed, np.int64), np.asarray(sample.commit_ms, np.int64)
        lags = np.maximum(ends - np.asarray(sample.positions or sample.committed, np.int64), 0)
        if not there.all():
            at, ends, lags, committed, commit_ms = (
                at[there],
                ends[there],
                lags[there],
                committed[there],
                commit_ms[there],
            )
        self._measure(at, ends, committed, lags, now_ms, half_life_ms)
        self._remember(at, ends, committed, lags, commit_ms)

    def judge_these(self, places: Sequence[TopicPartition], now_ms: int, window_ms: int) -> None:
        at = np.fromiter(map(self.rows.__getitem__, places), np.int64, len(places))
        self._table["status"][at] = judge_partitions(self._table[at], now_ms, ALLOWED_LAG, window_ms)

    def settle(self, now_ms: int, has_members: bool, window_ms: int) -> None:
        old = self.table["round"] != self._round
        if old.any():
            self.forget({place for place, row in self.rows.items() if old[row]})
        self._round += 1
        self._note_readers(now_ms, has_members, window_ms)
        self.settled = now_ms
        self.series.add(now_ms, int(self.table["lag_now"].sum()))

    def note_commits(self, count: int, now_ms: int) -> None:
        if self.counted and count < self.counted[-1][1]:
            self.counted.clear()  # the shard was loaded anew
        self.counted.append((now_ms, count))

    def _note_readers(self, now_ms: int, has_members: bool, window_ms: int) -> None:
        """Whether somebody reads for the group: its members, or a client that commits without being one.

        What was read while that changed belongs to neither time: the rates of reading begin again.
        """
        had_members = self.settled is not None and self._left_ms is None
        newest_ms = int(self.table["commit_ms"].max()) if len(self.table) else 0
        if has_members:
            left_ms = idle_since_ms = None
        else:
            left_ms = now_ms if self._left_ms is None else self._left_ms
            commits = left_ms < newest_ms and now_ms - newest_ms <= window_ms
            since_ms = (self.settled or 0) if had_members else (self.idle_since_ms or 0)
            idle_since_ms = None if commits else max(since_ms, newest_ms)
        before = (had_members, self.idle_since_ms is None)
        if self.settled is None or before != (has_members, idle_since_ms is None):
            self.reading_since_ms = now_ms
            self.table["consumed"] = np.nan
        self._left_ms, self.idle_since_ms = left_ms, idle_since_ms

    def _growth(self, window_ms: int) -> int | None:
        """By how many records the lag grew over the last samples, none of which is older than the idle time."""
        times, lags = self.series.recent()
        assert self.settled is not None
        inside = times >= max(self.settled - window_ms, self.reading_since_ms)
        seen = lags[inside]
        return int(seen[-1] - seen[0]) if len(seen) > 1 else None

    def forget(self, places: set[TopicPartition]) -> None:
        kept = [place for place in self.rows if place not in places]
        self._table = self._table[[self.rows[place] for place in kept]]
        self.rows = {place: row for row, place in enumerate(kept)}
        self._topics = None

    def flow(self) -> tuple[float, float] | None:
        table = self.table
        known = ~np.isnan(table["produced"]) & ~np.isnan(table["consumed"])
        if not known.any():
            return None
        return float(table["produced"][known].sum()), float(table["consumed"][known].sum())

    def summary(self, status: Ints, window_ms: int) -> GroupHealth:
        """With these statuses, one a row."""
        table = self.table
        if not len(table):
            return GroupHealth(HealthStatus.OK, 0, None, 0.0, 0, (), 0)
        idle = self.idle_since_ms is not None
        if idle:
            status = np.full_like(status, int(HealthStatus.OK))
        lags = table["lag_now"]
        places = list(self.rows)

        def of(row: int) -> PartitionHealth:
            filled = min(int(table["commits"][row]), INTERVALS) / INTERVALS
            return PartitionHealth(*places[row], HealthStatus(int(status[row])), int(lags[row]), filled)

        worst_first = np.lexsort((-lags, -status))[:MAX_TROUBLED]
        return GroupHealth(
            HealthStatus.IDLE if idle else min(HealthStatus(int(status.max())), HealthStatus.ERR),
            int(lags.sum()),
            of(int(lags.argmax())),
            float((table["commits"] >= INTERVALS).mean()),
            len(places),
            tuple(of(int(row)) for row in worst_first if status[row] > HealthStatus.OK),
            int((status > HealthStatus.OK).sum()),
            self.idle_since_ms,
            self._growth(window_ms) if idle else None,
        )

    def _make_room(self, places: Sequence[TopicPartition], now_ms: int) -> None:
        first = len(self.rows)
        for place in places:
            self.rows[place] = len(self.rows)
        self._topics = None
        if len(self.rows) > len(self._table):
            self._grow(max(len(self.rows), 2 * len(self._table)), first)
        new = self._table[first : len(self.rows)]
        new[...] = np.zeros(1, ROW)
        new["since_ms"], new["at_ms"] = now_ms, UNKNOWN
        for name in ("produced", "consumed", "lag"):
            new[name] = np.nan

    def _grow(self, size: int, filled: int) -> None:
        """A table of that size, with the first so many rows of the one before."""
        grown = np.zeros(size, ROW)  # memory is taken when a row is first written
        grown[:filled] = self._table[:filled]
        self._table = grown

    def _measure(self, at: Ints, ends: Ints, committed: Ints, lag: Ints, now_ms: int, half_life_ms: int) -> None:
        """Rates since the last look, where there was one, and today's lag."""
        table = self._table
        passed_ms = now_ms - table["at_ms"][at]
        seen = (table["at_ms"][at] != UNKNOWN) & (passed_ms > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            fade = np.where(seen, 0.5 ** (passed_ms / half_life_ms), 0.0)
            for name, now, before in (
                ("produced", ends, table["end"][at]),
                ("consumed", committed, table["committed"][at]),
            ):
                told = seen & (now >= before)
                rate, old = (now - before) * 1_000.0 / passed_ms, table[name][at]
                fresh = np.where(np.isnan(old), rate, old * fade + rate * (1 - fade))
                table[name][at] = np.where(told, fresh, old)
        old = table["lag"][at]
        table["lag"][at] = np.where(np.isnan(old), lag, old * fade + lag * (1 - fade))
        table["lag_now"][at], table["end"][at] = lag, ends
        table["committed"][at], table["at_ms"][at] = committed, now_ms

    def _remember(self, at: Ints, ends: Ints, committed: Ints, lags: Ints, commit_ms: Ints) -> None:
        """The windows of Burrow's rules: each commit once, and the log's end at each look."""
        table = self._table
        _push(table["ends"], at, ends)
        table["looks"][at] += 1
        anew = (
            (table["commits"][at] == 0)
            | (table["commit_ms"][at] != commit_ms)
            | (table["offsets"][at, -1] != committed)
        )
        at, committed, commit_ms, lags = at[anew], committed[anew], commit_ms[anew], lags[anew]
        for name, values in (("offsets", committed), ("times", commit_ms), ("lags", lags)):
            _push(table[name], at, values)
        table["commit_ms"][at] = commit_ms
        table["commits"][at] += 1


def judge_partitions(table: NDArray[np.void], now_ms: int, allowed_lag: int, window_ms: int) -> Ints:
    """Of each of these partitions."""
    filled, looks = (np.minimum(table[name], INTERVALS) for name in ("commits", "looks"))
    windows = CommitWindows(table["offsets"], table["times"], table["lags"], filled, table["ends"], looks)
    status = judge_health(windows, table["lag_now"], now_ms, allowed_lag)
    early = (filled < 2) & (now_ms - table["since_ms"] < window_ms)
    return np.where(early, int(HealthStatus.OK), status)


def _push(window: Ints, at: Ints, values: Ints) -> None:
    window[at, :-1] = window[at, 1:]
    window[at, -1] = values
