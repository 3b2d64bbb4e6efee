"""The proof that nothing was lost: every line that was produced, held against every line that a worker reported.

A worker's report is a file of fixed-size records, appended before the offset is committed: partition, offset, and a
checksum of key and value. What a killed worker had written stays; a torn last record does not count. For the
cluster's demo the reports also prove that no partition had two owners at one time, and show the longest gap without
progress.
"""

import json
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Produced against reported
# -------------------------

REPORT = np.dtype([("partition", "<u4"), ("offset", "<i8"), ("checksum", "<u4")])
REPORT_STRUCT = "<IqI"
NOT_PRODUCED = -1


def checksum(key: bytes | None, value: bytes) -> int:
    """
    >>> checksum(None, b"123456789") == 0xCBF43926
    True
    """
    return zlib.crc32(value, zlib.crc32(key) if key else 0)


class ProducedLines:
    """What was sent: checksums in the order of sending, offsets in the order of delivery, which is the same one."""

    def __init__(self, partitions: int) -> None:
        self._checksums = [array("L") for _ in range(partitions)]
        self._offsets = [array("q") for _ in range(partitions)]

    def sent(self, partition: int, check: int) -> None:
        self._checksums[partition].append(check)

    def delivered(self, partition: int, offset: int) -> None:
        self._offsets[partition].append(offset)

    @property
    def lines(self) -> int:
        return sum(len(column) for column in self._offsets)

    def by_partition(self) -> list[int]:
        return [len(column) for column in self._offsets]

    def expected(self) -> list[NDArray[np.int64]]:
        """Per partition and offset the checksum, or NOT_PRODUCED."""
        columns = []
        for checks, offsets in zip(self._checksums, self._offsets, strict=True):
            assert len(checks) == len(offsets)
            column = np.full(max(offsets, default=-1) + 1, NOT_PRODUCED, dtype=np.int64)
            column[np.frombuffer(offsets, dtype=np.int64)] = np.array(checks, dtype=np.int64)
            columns.append(column)
        return columns


def read_new_lines(report: Path, read: dict[Path, int]) -> NDArray[np.void]:
    """What a report has gained since it was `read` up to there; a torn last line does not count yet."""
    done = read.get(report, 0)
    with report.open("rb") as opened:
        opened.seek(done)
        data = opened.read()
    whole = len(data) - len(data) % REPORT.itemsize
    read[report] = done + whole
    return np.frombuffer(data[:whole], dtype=REPORT)


class DeliveryProof:
    """Reads reports as they grow and counts what they prove."""

    def __init__(self, expected: list[NDArray[np.int64]]) -> None:
        self._expected = expected
        self._times = [np.zeros(len(column), dtype=np.int64) for column in expected]
        self._read: dict[Path, int] = {}
        self.produced = sum(int((column != NOT_PRODUCED).sum()) for column in expected)
        self.consumed = 0
        self.altered = 0
        self.by_report: dict[Path, int] = {}

    @property
    def distinct(self) -> int:
        return sum(int((times > 0).sum()) for times in self._times)

    @property
    def duplicates(self) -> int:
        return self.consumed - self.altered - self.distinct

    @property
    def lost(self) -> int:
        return self.produced - self.distinct

    @property
    def complete(self) -> bool:
        return self.lost == 0

    def follow(self, report: Path) -> None:
        """Take in what a report has gained since the last time."""
        lines = read_new_lines(report, self._read)
        self.by_report[report] = self.by_report.get(report, 0) + len(lines)
        self.consumed += len(lines)
        for partition in np.unique(lines["partition"]):
            self._count(int(partition), lines[lines["partition"] == partition])

    def _count(self, partition: int, lines: NDArray[np.void]) -> None:
        """A line counts when the log's offset holds what was produced there; anything else is altered."""
        expected = self._expected[partition] if partition < len(self._expected) else np.empty(0, dtype=np.int64)
        known = lines[(lines["offset"] >= 0) & (lines["offset"] < len(expected))]
        good = known[expected[known["offset"]] == known["checksum"]]
        self.altered += len(lines) - len(good)
        if len(good):
            np.add.at(self._times[partition], good["offset"], 1)


# Ownership and gaps in a cluster
# -------------------------------

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class ReportedReads:
    """What workers reported: checksums by place, and how often each was read."""

    checksums: dict[Place, int] = field(default_factory=dict)
    times: Counter[Place] = field(default_factory=Counter)
    _done: dict[Path, int] = field(default_factory=dict)

    def follow(self, report: Path) -> None:
        """Take in what a report has gained since the last time."""
        for partition, offset, checksum in read_new_lines(report, self._done).tolist():
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


# What a demo has shown
# ---------------------


class ProofTable(Table):
    """What was counted, the figures, and notes on them."""

    def __init__(self) -> None:
        super().__init__(title="Proof", title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False)
        self.add_column()
        self.add_column(justify="right")
        self.add_column(style="dim")

    def add_check(self, what: str, figure: str, *, good: bool, note: str = "") -> None:
        self.add_row(what, Text(figure, style="green" if good else "bold red"), note)

    def show(self, out: Console, *, holds: bool) -> None:
        out.print(self)
        verdict = "all of it holds" if holds else "NOT ALL OF IT HOLDS"
        out.print(Text(verdict, style="bold green" if holds else "bold red"))
