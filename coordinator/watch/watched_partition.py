"""One partition of an offsets topic, followed record by record: its groups' facts, rebalances and positions; and all
such partitions, whose facts are passed on to the shards that answer.

A transaction's positions count when its marker says so. What is damaged or of an unknown version is passed over and
counted: other tools may write what nobody else can read.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, cast, get_args

from muster.coordinator.core.model.events import RecordsWatched, WatchStood
from muster.coordinator.core.model.records import (
    ConsumerRecord,
    GroupDeleted,
    GroupEpochDeleted,
    GroupRecord,
    GroupStored,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    RebalanceDecided,
    Record,
    TopicId,
)
from muster.coordinator.core.model.types import NO_TOPIC_ID, RebalanceEntry, StoredOffset
from muster.coordinator.core.watched.classic_history import ClassicHistory
from muster.coordinator.core.watched.consumer_history import ConsumerHistory
from muster.coordinator.core.watched.endings import CommitTimes
from muster.coordinator.runtime.kafka_records import PlainOffsets, decode_group
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord, SkippedRecord
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import ABORT, COMMIT
from muster.storage.records.batch import BatchView

MAX_PENDING = 100_000
"""Positions of transactions that have not ended, of one producer."""

FACTS_OF_GROUPS = (GroupStored, GroupDeleted, *get_args(ConsumerRecord))
"""Others are of Muster's own."""

Commit = tuple[str, str, int, StoredOffset]
"""Group, topic, partition, position."""


class WatchedRecordsSink(Protocol):
    """Takes what the records say, in their order."""

    def take_fact(self, fact: GroupRecord) -> None:
        """A record of a group, positions excepted: what is known of the group from now on."""

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        """A rebalance has come to its end with the fact taken last. Its number is not the ledger's."""


@dataclass(slots=True)
class WatchedGroup:
    """One group. began_ms, heard_ms: when the first and the last of its records were written that were read."""

    id: str
    classic: ClassicHistory
    consumer: ConsumerHistory
    began_ms: int
    heard_ms: int = 0


class WatchedPartition:
    """See the module. Feed it the partition's batches in their order."""

    def __init__(self, sink: WatchedRecordsSink, names: dict[TopicId, str]) -> None:
        """names: topic id -> name, shared by all partitions: commits tell of them."""
        self._sink = sink
        self._names = names
        self.groups: dict[str, WatchedGroup] = {}
        self.skipped: Counter[str] = Counter()
        """What was passed over, and how often."""
        self.records = 0
        self.next_offset = -1
        """Behind the last batch taken."""
        self._plain = PlainOffsets()
        self._pending: dict[int, list[Commit]] = {}
        """By producer id."""
        self._changed: dict[tuple[str, str, int], StoredOffset | None] = {}

    def take_batch(self, batch: BatchView) -> None:
        self.next_offset = batch.next_offset
        try:
            records = batch.records()
        except StorageError as error:
            self.skipped[f"damaged batch: {error}"] += 1
            return
        if batch.control:
            for record in records:
                self._end_transaction(batch.producer_id, record.key)
            return
        pending = self._pending.setdefault(batch.producer_id, []) if batch.transactional else None
        for record in records:
            self.records += 1
            if record.key is None:
                self.skipped["record without a key"] += 1
                continue
            stored = KeyValue(record.key, record.value)
            self._take_record(stored, record.timestamp_ms, batch.leader_epoch, pending)

    def _take_record(self, stored: KeyValue, written_ms: int, leader_epoch: int, pending: list[Commit] | None) -> None:
        try:
            plain = self._plain.read(stored)
            if plain is not None:
                self._commit(plain, pending)
                return
            record = decode_group(stored)
        except (MalformedRecord, ValueError) as error:
            self.skipped[f"record that cannot be read: {error}"] += 1
            return
        if isinstance(record, SkippedRecord):
            self.skipped[record.kind] += 1
            return
        if isinstance(record, OffsetStored):
            self._commit((record.group_id, record.topic, record.partition, record.value), pending)
            return
        self._take_fact(record, written_ms, leader_epoch)

    def _take_fact(self, record: GroupRecord, written_ms: int, leader_epoch: int) -> None:
        group_id = getattr(record, "group_id", "")
        if isinstance(record, OffsetDeleted):
            self._changed[group_id, record.topic, record.partition] = None
            if (known := self.groups.get(group_id)) is not None:
                known.classic.commits.forget((record.topic, record.partition))
            return
        if not isinstance(record, FACTS_OF_GROUPS):
            self.skipped[f"record of Muster's own: {type(record).__name__}"] += 1
            return
        group = self._group(group_id, written_ms)
        self._sink.take_fact(record)
        if isinstance(record, GroupStored):
            entry = group.classic.take_group(record, written_ms, leader_epoch)
            if entry is not None:
                self._sink.take_entry(group_id, entry)
        elif isinstance(record, GroupDeleted):
            group.classic.take_deletion()
        else:
            group.consumer.number = max(group.consumer.number, group.classic.number)
            for entry in group.consumer.take_record(cast(ConsumerRecord, record), written_ms):
                self._sink.take_entry(group_id, entry)
            group.classic.number = group.consumer.number
            if isinstance(record, GroupEpochDeleted):
                group.consumer = ConsumerHistory(group_id, self._names, group.consumer.number, group.classic.commits)

    def _group(self, group_id: str, at_ms: int) -> WatchedGroup:
        group = self.groups.get(group_id)
        if group is None:
            commits = CommitTimes()
            group = self.groups[group_id] = WatchedGroup(
                group_id,
                ClassicHistory(group_id, commits=commits),
                ConsumerHistory(group_id, self._names, commits=commits),
                at_ms,
            )
        group.heard_ms = max(group.heard_ms, at_ms)
        return group

    # Positions
    # ---------

    def _commit(self, commit: Commit, pending: list[Commit] | None) -> None:
        if pending is None:
            self._note(commit)
        elif len(pending) < MAX_PENDING:
            pending.append(commit)
        else:
            self.skipped["position of a transaction with too many"] += 1

    def _note(self, commit: Commit) -> None:
        group_id, topic, partition, position = commit
        if position.topic_id != NO_TOPIC_ID:
            self._names.setdefault(position.topic_id, topic)
        at_ms = position.commit_timestamp_ms
        self._group(group_id, at_ms).classic.commits.note_commit((topic, partition), at_ms)
        self._changed[group_id, topic, partition] = position

    def _end_transaction(self, producer_id: int, key: bytes | None) -> None:
        kind = int.from_bytes(key[2:4], "big", signed=True) if key is not None and len(key) >= 4 else -1
        if kind not in (ABORT, COMMIT):
            return  # KRaft's own
        pending = self._pending.pop(producer_id, [])
        if kind == COMMIT:
            for commit in pending:
                self._note(commit)

    def take_positions(self, most: int) -> list[tuple[str, str, int, StoredOffset | None]]:
        """Positions that changed since they were taken last, the newest of each: group, topic, partition, position;
        None: it was deleted. At most so many; the others come next time."""
        keys = list(islice(self._changed, most))
        return [(*key, self._changed.pop(key)) for key in keys]


# To the shards that answer
# -------------------------

MOST_FACTS: Final = 200
"""In one event: the loop has others to serve."""

MOST_POSITIONS: Final = 1_000
"""That one look passes on."""


class FactsCollector:
    """The sink of one watched partition."""

    def __init__(self) -> None:
        self.facts: list[Record] = []

    def take_fact(self, fact: GroupRecord) -> None:
        self.facts.append(fact)

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        self.facts.append(RebalanceDecided(group_id, entry))


class WatchedFacts:
    """All watched partitions. tell: gets the number of a shard and an event for it."""

    def __init__(self, tell: Callable[[int, RecordsWatched | WatchStood], None]) -> None:
        self._tell = tell
        self._names: dict[TopicId, str] = {}
        self._collectors: dict[int, FactsCollector] = {}
        self.partitions: dict[int, WatchedPartition] = {}

    def learn_names(self, ids: Mapping[str, TopicId]) -> None:
        """Of topics by their ids: records of KIP-848 groups name topics by id alone."""
        self._names.update((topic_id, name) for name, topic_id in ids.items())

    def made_partition(self, partition: int) -> WatchedPartition:
        """One that has read nothing yet, in place of what was there."""
        collector = self._collectors[partition] = FactsCollector()
        watched = self.partitions[partition] = WatchedPartition(collector, self._names)
        return watched

    def pass_facts(self, partition: int, shard: int) -> None:
        """What was said since the last call, positions excepted."""
        collector = self._collectors[partition]
        facts, collector.facts = collector.facts, []
        for begin in range(0, len(facts), MOST_FACTS):
            self._tell(shard, RecordsWatched(tuple(facts[begin : begin + MOST_FACTS])))

    def pass_positions(self, partition: int, shard: int) -> bool:
        """The newest positions, so many at a time. Whether there are more."""
        changed = self.partitions[partition].take_positions(MOST_POSITIONS)
        stored: dict[str, dict[tuple[str, int], StoredOffset]] = {}
        facts: list[Record] = []
        for group_id, topic, number, position in changed:
            if position is None:
                facts.append(OffsetDeleted(group_id, topic, number))
            else:
                stored.setdefault(group_id, {})[topic, number] = position
        facts += [OffsetsStored(group_id, offsets) for group_id, offsets in stored.items()]
        for begin in range(0, len(facts), MOST_FACTS):
            self._tell(shard, RecordsWatched(tuple(facts[begin : begin + MOST_FACTS])))
        return len(changed) == MOST_POSITIONS
