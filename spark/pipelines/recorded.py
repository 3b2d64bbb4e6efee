"""A recorded group as a trace: members from the ledger, lag from committed positions and log ends.

A trace takes completed rebalances whose snapshot was kept, and rebalances that emptied the group. Follow-up rounds of
a cooperative hand-over are left out: a replay makes its own. A departed member was silent for as long as its
partitions had no owner, or else since the rebalance began. One partition of `__consumer_offsets` has all of a group's
positions; log ends at past moments are looked up by timestamp.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from muster.assignors.api import Snapshot
from muster.client import Admin, Consumer
from muster.client.types import TopicPartition
from muster.coordinator.core.model.records import OffsetDeleted, OffsetStored
from muster.coordinator.runtime.kafka_records import decode_group
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord
from muster.coordinator.runtime.shards import partition_for
from muster.spark.pipelines.traces import MAX_LOAD, GroupTrace, Load, TraceMember, TraceStep

# Log ends at past moments
# ------------------------

MAX_LOOKUPS = 2_000_000
"""Moments times partitions of one run."""
WANTED_MOMENTS = 400
"""So many unless a pause between them is given: a line in a chart shows no more."""
LATER, NOW, RETAINED = "next record", "log end", "first record left"
EVERY_MS = (1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000, 21_600_000, 86_400_000)


class PastLogEnd(NamedTuple):
    """Where a log ended at a moment. `basis`: the next record is still there, there is none (the log still ends
    there), or records of that time are gone and the first one left was taken."""

    topic: str
    partition: int
    at_ms: int
    log_end: int
    basis: str


def choose_moments(first_ms: int, last_ms: int, every_ms: int | None) -> range:
    """Regular moments from the first commit on; the pause is chosen when it is not given.

    >>> choose_moments(100_500, 103_000, 1_000)
    range(101000, 103001, 1000)
    """
    if every_ms is None:
        wanted = max(1, (last_ms - first_ms) // WANTED_MOMENTS)
        every_ms = next((one for one in EVERY_MS if one >= wanted), EVERY_MS[-1])
    start_ms = -(-first_ms // every_ms) * every_ms
    return range(start_ms, max(last_ms, start_ms) + 1, every_ms)


def find_log_ends(admin: Admin, partitions: Iterable[tuple[str, int]], times: Sequence[int]) -> list[PastLogEnd]:
    """Partitions that no longer exist are left out. ValueError when it would take too many look-ups."""
    existing = admin.list_topics()
    asked = sorted(TopicPartition(*tp) for tp in set(partitions) if tp[1] < existing.get(tp[0], 0))
    if len(asked) * len(times) > MAX_LOOKUPS:
        raise ValueError(
            f"{len(times)} moments of {len(asked)} partitions are too many; expected at most {MAX_LOOKUPS} look-ups; "
            "make the pause between moments longer"
        )
    starts = {tp: found.offset for tp, found in admin.list_offsets(dict.fromkeys(asked, -2)).items()}
    latest = {tp: found.offset for tp, found in admin.list_offsets(dict.fromkeys(asked, -1)).items()}
    out: list[PastLogEnd] = []
    for at_ms in times:
        found = admin.list_offsets(dict.fromkeys(asked, at_ms + 1))
        out += [find_log_end(tp, at_ms, found[tp].offset, starts[tp], latest[tp]) for tp in asked]
    return out


def find_log_end(tp: TopicPartition, at_ms: int, later: int, start: int, latest: int) -> PastLogEnd:
    if later < 0:
        return PastLogEnd(tp.topic, tp.partition, at_ms, latest, NOW)
    return PastLogEnd(tp.topic, tp.partition, at_ms, later, RETAINED if later == start and start > 0 else LATER)


def build_table(ends: Sequence[PastLogEnd]) -> Any:
    """As an Arrow table."""
    import pyarrow as pa

    kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string())
    schema = pa.schema(list(zip(PastLogEnd._fields, kinds, strict=True)))
    return pa.Table.from_pylist([end._asdict() for end in ends], schema=schema)


# Traces from the ledger
# ----------------------

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
    if isinstance(documents, dict):
        documents = documents.get("rebalances")
    if not isinstance(documents, list):
        raise ValueError(f"a JSON {type(documents).__name__}; expected what `groups explain -o json` prints")
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
            writer.record_step(at_ms)
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

    def record_step(self, at_ms: int) -> None:
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


# Committed positions
# -------------------

OFFSETS_TOPIC = "__consumer_offsets"
POLL_S = 1.0
MAX_IDLE_POLLS = 30
MAX_RECORDS = 50_000_000
"""Of one partition; a log with more is better read by Spark."""


def read_positions(
    admin: Admin, properties: Mapping[str, Any], group: str
) -> tuple[dict[tuple[str, int], list[RecordedPosition]], int]:
    """What the group committed, partition by partition, oldest first, and how many records could not be read.

    As far back as compaction has left it. ValueError when the log is too long for one reader, TimeoutError when the
    node stops answering.
    """
    count = admin.list_topics(include_internal=True).get(OFFSETS_TOPIC, 0)
    if not count:
        return {}, 0
    place = TopicPartition(OFFSETS_TOPIC, partition_for(group, count))
    end = admin.list_offsets({place: -1})[place].offset
    start = admin.list_offsets({place: -2})[place].offset
    if end - start > MAX_RECORDS:
        raise ValueError(
            f"{place[0]}-{place[1]} has {end - start} records; at most {MAX_RECORDS} are read without Spark"
        )
    found: dict[tuple[str, int], list[RecordedPosition]] = {}
    malformed = 0
    with Consumer({**properties, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([place])
        consumer.seek(place, start)
        idle = 0
        while consumer.position(place) < end:
            messages = consumer.consume(1_000, POLL_S)
            malformed += sum(not note_position(found, group, KeyValue(m.key or b"", m.value)) for m in messages)
            idle = 0 if messages else idle + 1
            if idle == MAX_IDLE_POLLS:
                at = consumer.position(place)
                raise TimeoutError(
                    f"{place[0]}-{place[1]}: nothing came after offset {at} for {idle} s; expected {end}"
                )
    return found, malformed


def note_position(found: dict[tuple[str, int], list[RecordedPosition]], group: str, stored: KeyValue) -> bool:
    """Whether the record could be read; a tombstone has the time of the commit before it."""
    try:
        record = decode_group(stored)
    except MalformedRecord:
        return False
    match record:
        case OffsetStored(of, topic, partition, value) if of == group:
            mine = found.setdefault((topic, partition), [])
            mine.append(RecordedPosition(max(value.commit_timestamp_ms, mine[-1].at_ms if mine else 0), value.offset))
        case OffsetDeleted(of, topic, partition) if of == group and (topic, partition) in found:
            mine = found[topic, partition]
            mine.append(RecordedPosition(mine[-1].at_ms, None))
    return True
