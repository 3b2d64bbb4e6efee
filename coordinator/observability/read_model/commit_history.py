"""How a group's positions moved and how often they were committed, as far as its node knows. Plain and immutable.

Times are epoch milliseconds. Between two samples a position is taken to have moved evenly.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from muster.coordinator.observability.read_model.groups import TopicPartition

HOUR_MS: Final = 3_600_000
"""Commits are counted over the last hour, as far as it is known."""


class SeenPosition(NamedTuple):
    """Where a position stood, and how often it had been committed by then (0: not known)."""

    at_ms: int
    offset: int
    commits: int = 0


@dataclass(frozen=True, slots=True)
class CommitTrail:
    """Of one partition: samples, oldest first, no two of one time. The last is the newest commit."""

    samples: tuple[SeenPosition, ...] = ()

    @classmethod
    def of(cls, samples: Iterable[SeenPosition]) -> "CommitTrail":
        """Without those that are not later than the one before: a clock may have been set back.

        >>> [sample.offset for sample in CommitTrail.of(map(SeenPosition, (1, 3, 2, 3, 4), (5, 6, 7, 8, 9))).samples]
        [5, 6, 9]
        """
        kept: list[SeenPosition] = []
        for sample in samples:
            if not kept or sample.at_ms > kept[-1].at_ms:
                kept.append(sample)
        return cls(tuple(kept))

    def at(self, at_ms: int) -> tuple[float, float] | None:
        """Position and number of commits at a time; None before the first sample, the newest after the last.

        >>> CommitTrail((SeenPosition(0, 10, 1), SeenPosition(10, 20, 3))).at(5)
        (15.0, 2.0)
        """
        if not self.samples or at_ms < self.samples[0].at_ms:
            return None
        place = bisect_right(self.samples, at_ms, key=lambda sample: sample.at_ms)
        before = self.samples[place - 1]
        if place == len(self.samples):
            return float(before.offset), float(before.commits)
        after = self.samples[place]
        share = (at_ms - before.at_ms) / (after.at_ms - before.at_ms)
        return (
            before.offset + share * (after.offset - before.offset),
            before.commits + share * (after.commits - before.commits),
        )

    def extended(self, newest: SeenPosition) -> "CommitTrail":
        """With the newest commit, where that is later than the last sample. Without samples nothing is known."""
        if not self.samples or newest.at_ms <= self.samples[-1].at_ms:
            return self
        return CommitTrail((*self.samples, newest))

    def records_between(self, from_ms: int, to_ms: int) -> float | None:
        """Records that were read in that time; None where it is not known. A position that was set back counts 0."""
        begin, end = self.at(from_ms), self.at(to_ms)
        return None if begin is None or end is None else max(0.0, end[0] - begin[0])

    def rate_since(self, from_ms: int) -> float:
        """Records a second that were read from then on, or from the first sample; 0 where that is not known."""
        if not self.samples:
            return 0.0
        begin_ms, end_ms = max(from_ms, self.samples[0].at_ms), self.samples[-1].at_ms
        read = self.records_between(begin_ms, end_ms) or 0.0
        return read * 1000 / (end_ms - begin_ms) if end_ms > begin_ms else 0.0


@dataclass(frozen=True, slots=True)
class CommitTraffic:
    """Records that the group wrote by committing, from `from_ms` to `to_ms`, and what share of the offsets topic its
    records are: `own` of `partition_records` in `kept_in`, and of `topic_records`, which are 0 where that is not known.
    """

    records: int
    from_ms: int
    to_ms: int
    kept_in: str = ""
    own: int = 0
    partition_records: int = 0
    topic_records: int = 0

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records * 1000 / (self.to_ms - self.from_ms) if self.to_ms > self.from_ms else 0.0


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """Of one group. `traffic` None: it is not known."""

    trails: Mapping[TopicPartition, CommitTrail] = field(default_factory=dict)
    traffic: CommitTraffic | None = None


def count_commits(trails: Iterable[CommitTrail], window_ms: int = HOUR_MS) -> tuple[int, int, int]:
    """Records that were written until the newest commit, and from when to when; nothing where nobody committed twice.

    A position that was committed long before its others may be what compaction has left: time is counted from its
    second sample on.

    >>> count_commits([CommitTrail((SeenPosition(0, 0, 1), SeenPosition(10_000, 5, 6), SeenPosition(20_000, 9, 11)))])
    (5, 10000, 20000)
    """
    known = [trail for trail in trails if len(trail.samples) > 1 and trail.samples[-1].commits]
    if not known:
        return 0, 0, 0
    to_ms = max(trail.samples[-1].at_ms for trail in known)
    from_ms = max(to_ms - window_ms, min(trail.samples[1].at_ms for trail in known))
    counted = 0.0
    for trail in known:
        begin = trail.at(from_ms)
        counted += trail.samples[-1].commits - (begin[1] if begin is not None else 0)
    return round(counted), from_ms, to_ms
