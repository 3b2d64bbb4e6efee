"""A recorded group as a trace: the ledger says who was there, commits and logs say how far behind it was.

Taken over from the ledger are completed rebalances whose snapshot was kept, and the ones that emptied the group.
Follow-up rounds of a cooperative hand-over are left out: a replay makes its own. Since when a member that went had been
silent is what its partitions' time without an owner tells, else the beginning of the rebalance.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from muster.assignors.api import Snapshot
from muster.spark.pipelines.trace import MAX_LOAD, GroupTrace, Load, TraceMember, TraceStep

FOLLOW_UP = "revocation follow up"
COMPLETED, EMPTIED = "completed", "emptied"

RecordedPartition = tuple[str, int]


class RecordedPosition(NamedTuple):
    """A committed position from a moment on; None: it was forgotten."""

    at_ms: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """What a trace needs of one entry of the ledger. `snapshot` None: the group was emptied."""

    started_at_ms: int
    ended_at_ms: int
    cause: str
    snapshot: Snapshot | None
    idle_ms: Mapping[str, int]
    """member that lost partitions -> the longest that one of them was without an owner"""


@dataclass(frozen=True, slots=True)
class RecordedLags:
    """What is known of how far behind the group was, and when.

    `positions` are in order of time; `ends` are the ends of logs at the moments that were looked up.
    """

    positions: Mapping[RecordedPartition, Sequence[RecordedPosition]] = field(default_factory=dict)
    ends: Mapping[tuple[RecordedPartition, int], int] = field(default_factory=dict)

    def at(self, place: RecordedPartition, at_ms: int) -> int | None:
        """None where it is not known."""
        end, known = self.ends.get((place, at_ms)), self.positions.get(place, ())
        number = bisect_right(known, at_ms, key=lambda position: position.at_ms)
        committed = known[number - 1].committed if number else None
        return None if end is None or committed is None else min(MAX_LOAD, max(0, end - committed))


def read_entries(documents: object) -> list[RecordedEntry]:
    """From entries as `muster groups explain -o json --snapshots` prints them. ValueError says what is wrong."""
    if not isinstance(documents, list):
        raise ValueError(f"a JSON {type(documents).__name__}; expected the list that `groups explain -o json` prints")
    found = sorted((entry for document in documents if (entry := read_entry(document))), key=lambda e: e.ended_at_ms)
    if not any(entry.snapshot for entry in found):
        raise ValueError(
            "no rebalance was recorded with a snapshot; expected what `groups explain GROUP -o json --snapshots` prints"
        )
    first = next(number for number, entry in enumerate(found) if entry.snapshot)
    return found[first:]


def read_entry(document: Any) -> RecordedEntry | None:
    """None for what is no decision of its own, or cannot be made again."""
    try:
        outcome, cause = normalize_word(document["outcome"]), normalize_word(document["cause"])
        snapshot = document["snapshot"] if outcome == COMPLETED else None
        if outcome not in (COMPLETED, EMPTIED) or cause == FOLLOW_UP or (outcome == COMPLETED and snapshot is None):
            return None
        idle: dict[str, int] = {}
        for move in document["moves"]:
            idle[move["source"]] = max(idle.get(move["source"], 0), int(move["unowned_ms"]))
        return RecordedEntry(
            started_at_ms=int(document["started_at_ms"]),
            ended_at_ms=int(document["ended_at_ms"]),
            cause=cause,
            snapshot=None if snapshot is None else Snapshot.from_json(json.dumps(snapshot)),
            idle_ms=idle,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"an entry without {error}; expected one that `groups explain -o json` printed") from None


def normalize_word(word: object) -> str:
    return str(word).replace("_", " ").lower()


def list_partitions(entries: Iterable[RecordedEntry]) -> list[RecordedPartition]:
    """All that the group ever read, in the order of a trace's axis."""
    counts = count_partitions(entries)
    return [(topic, number) for topic, count in counts.items() for number in range(count)]


def count_partitions(entries: Iterable[RecordedEntry]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in entries:
        for topic, count in (entry.snapshot.topics if entry.snapshot else {}).items():
            counts[topic] = max(counts.get(topic, 0), count)
    return dict(sorted(counts.items()))


def find_lag_moments(entries: Sequence[RecordedEntry], until_ms: int, every_ms: int) -> list[int]:
    """When the lag is asked for: at each rebalance, and regularly between them."""
    starts = [entry.started_at_ms for entry in entries]
    return sorted(
        {at for one, next_ms in pairwise([*starts, until_ms]) for at in (one, *range(one, next_ms, every_ms))}
    )


def build_trace(
    name: str, entries: Sequence[RecordedEntry], moments: Sequence[int], lags: RecordedLags, until_ms: int
) -> GroupTrace:
    """The history of these entries, with a look at the lag at each of the moments.

    A partition's lag is what the assignor saw at the rebalance, or what commits and logs tell, or the last known one.
    """
    counts = count_partitions(entries)
    writer = TraceWriter(counts)
    by_start = {entry.started_at_ms: entry for entry in entries}
    for at_ms in moments:
        if at_ms in by_start:
            writer.rebalance(by_start[at_ms])
        else:
            writer.look(at_ms)
    return GroupTrace(
        name=name,
        topics=tuple(counts),
        counts=tuple(counts.values()),
        members=tuple(writer.members),
        subscriptions=tuple(writer.kinds),
        steps=tuple(writer.steps),
        load=build_load(list_partitions(entries), writer.steps, by_start, lags),
        end_ms=max(until_ms, writer.steps[-1].at_ms),
    )


class TraceWriter:
    """Writes steps down, giving members and subscriptions their numbers."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._topics = tuple(counts)
        self._numbers: dict[str, int] = {}
        self.members: list[TraceMember] = []
        self.kinds: dict[tuple[str, ...], int] = {}
        self.steps: list[TraceStep] = []

    def rebalance(self, entry: RecordedEntry) -> None:
        snapshot = entry.snapshot or Snapshot({}, [])
        present = tuple(self._number(m.id, m.instance_id, m.rack) for m in snapshot.members)
        kinds = tuple(self._kind(m.topics) for m in snapshot.members)
        before = self.steps[-1] if self.steps else None
        counts = (
            before.counts if before and not entry.snapshot else tuple(snapshot.topics.get(t, 0) for t in self._topics)
        )
        gone = sorted(set(before.present if before else ()) - set(present))
        lost = tuple((number, self._silent_since(entry, number)) for number in gone)
        self.steps.append(TraceStep(entry.started_at_ms, entry.cause, present, kinds, counts, lost))

    def look(self, at_ms: int) -> None:
        last = self.steps[-1]
        self.steps.append(TraceStep(at_ms, "", last.present, last.subscriptions, last.counts))

    def _number(self, member: str, instance: str | None, rack: str | None) -> int:
        if member not in self._numbers:
            self._numbers[member] = len(self.members)
            self.members.append(TraceMember(member, instance, rack))
        return self._numbers[member]

    def _kind(self, topics: Iterable[str]) -> int:
        """Topics that never existed while this was recorded are left out: no plan can have them."""
        return self.kinds.setdefault(tuple(topic for topic in topics if topic in self._topics), len(self.kinds))

    def _silent_since(self, entry: RecordedEntry, number: int) -> int:
        idle_ms = entry.idle_ms.get(self.members[number].id, -1)
        return entry.started_at_ms if idle_ms < 0 else min(entry.started_at_ms, entry.ended_at_ms - idle_ms)


def build_load(
    places: Sequence[RecordedPartition],
    steps: Sequence[TraceStep],
    by_start: Mapping[int, RecordedEntry],
    lags: RecordedLags,
) -> Load:
    load = np.zeros((len(steps), len(places)), dtype=np.int64)
    topics = list(dict.fromkeys(topic for topic, _ in places))
    for number, step in enumerate(steps):
        counts = dict(zip(topics, step.counts, strict=True))
        entry = by_start.get(step.at_ms)
        seen = entry.snapshot.lags if entry and entry.snapshot and entry.snapshot.lags else {}
        for column, (topic, partition) in enumerate(places):
            known = seen.get(topic, ())
            lag = int(known[partition]) if partition < len(known) else lags.at((topic, partition), step.at_ms)
            before = int(load[number - 1, column]) if number else 0
            if partition < counts[topic]:
                load[number, column] = before if lag is None else min(MAX_LOAD, max(0, lag))
    return load
