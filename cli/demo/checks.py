"""What the cluster's demo proves, of what producer and workers have written down."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from muster.cli.demo.proof import REPORT

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class ReportedReads:
    """What workers reported: checksums by place, and how often each was read."""

    checksums: dict[Place, int] = field(default_factory=dict)
    times: Counter[Place] = field(default_factory=Counter)
    _done: dict[Path, int] = field(default_factory=dict)

    def follow(self, report: Path) -> None:
        """Take in what a report has gained since the last time; a torn last record does not count yet."""
        done = self._done.get(report, 0)
        with report.open("rb") as opened:
            opened.seek(done)
            data = opened.read()
        whole = len(data) - len(data) % REPORT.itemsize
        self._done[report] = done + whole
        for partition, offset, checksum in np.frombuffer(data[:whole], dtype=REPORT).tolist():
            self.checksums[partition, offset] = checksum
            self.times[partition, offset] += 1

    def lacks(self, acked: Mapping[Place, int]) -> list[Place]:
        """What was acknowledged, and not read, or read otherwise."""
        return sorted(place for place, checksum in acked.items() if self.checksums.get(place) != checksum)

    @property
    def again(self) -> int:
        """How many were read more often than once."""
        return sum(count - 1 for count in self.times.values())


class OwnershipSpan(NamedTuple):
    """A worker had a partition from then till then, in nanoseconds."""

    partition: int
    worker: str
    since: int
    until: int


def ownership_spans(worker: str, lines: Iterable[str], now: int) -> list[OwnershipSpan]:
    """What a worker owned, by its own words; `now` where it still does.

    >>> ownership_spans("w", ['{"at_ns": 1, "gained": [0, 1]}', '{"at_ns": 5, "lost": [1]}'], 9)
    [OwnershipSpan(partition=1, worker='w', since=1, until=5), OwnershipSpan(partition=0, worker='w', since=1, until=9)]
    """
    since: dict[int, int] = {}
    found = []
    for line in lines:
        told = json.loads(line)
        for partition in told.get("gained", ()):
            since.setdefault(partition, told["at_ns"])
        had = [partition for partition in told.get("lost", ()) if partition in since]
        found += [OwnershipSpan(partition, worker, since.pop(partition), told["at_ns"]) for partition in had]
    return found + [OwnershipSpan(partition, worker, at, now) for partition, at in sorted(since.items())]


def find_double_owners(spans: Iterable[OwnershipSpan]) -> list[tuple[OwnershipSpan, OwnershipSpan]]:
    """Pairs of workers that had one partition at one time."""
    by_partition: dict[int, list[OwnershipSpan]] = {}
    for span in spans:
        by_partition.setdefault(span.partition, []).append(span)
    found = []
    for each in by_partition.values():
        ordered = sorted(each, key=lambda span: span.since)
        found += [
            (first, second)
            for at, first in enumerate(ordered)
            for second in ordered[at + 1 :]
            if second.since < first.until and second.worker != first.worker
        ]
    return found


def longest_gap_s(moments_ns: Iterable[int]) -> float:
    """The longest time between two of these moments, which are in order.

    >>> longest_gap_s([0, 1_000_000_000, 1_500_000_000])
    1.0
    """
    return max((after - before for before, after in pairwise(moments_ns)), default=0) / 1e9
