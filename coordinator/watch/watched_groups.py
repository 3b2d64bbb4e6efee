"""All groups of an offsets topic, followed record by record: their rebalances, and what could not be read.

A transaction's positions count when its marker says so. What is damaged or of an unknown version is passed over and
counted: other tools may write what nobody else can read.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from muster.coordinator.core.model.records import (
    ConsumerRecord,
    GroupDeleted,
    GroupEpochDeleted,
    GroupRecord,
    GroupStored,
    OffsetDeleted,
    OffsetStored,
    TopicId,
)
from muster.coordinator.core.model.types import NO_TOPIC_ID, RebalanceEntry
from muster.coordinator.core.watched.classic_history import ClassicHistory
from muster.coordinator.core.watched.commit_times import CommitTimes
from muster.coordinator.core.watched.consumer_history import ConsumerHistory
from muster.coordinator.runtime.kafka_records import PlainOffsets, decode_group
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord, SkippedRecord
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import ABORT, COMMIT
from muster.storage.records.batch import BatchView

MAX_ENTRIES = 100
"""Of one group: older ones go."""

MAX_PENDING = 100_000
"""Positions of transactions that have not ended."""

CONSUMER_RECORDS = get_args(ConsumerRecord)

Commit = tuple[str, str, int, int, TopicId]
"""Group, topic, partition, when in ms, the topic's id or b""."""


@dataclass(slots=True)
class WatchedGroup:
    """One group. began_ms: when the first of its records was written that is still there."""

    id: str
    classic: ClassicHistory
    consumer: ConsumerHistory
    began_ms: int
    heard_ms: int = 0
    entries: list[RebalanceEntry] = field(default_factory=list)
    dropped: int = 0
    """Entries beyond `MAX_ENTRIES`."""

    def keep(self, entry: RebalanceEntry) -> None:
        self.entries.append(entry)
        if len(self.entries) > MAX_ENTRIES:
            del self.entries[0]
            self.dropped += 1


class WatchedGroups:
    """See the module. Feed the batches of each partition in their order."""

    def __init__(self) -> None:
        self.groups: dict[str, WatchedGroup] = {}
        self.skipped: Counter[str] = Counter()
        """What was passed over, and how often."""
        self.records = 0
        self._names: dict[TopicId, str] = {}
        self._plain = PlainOffsets()
        self._pending: dict[tuple[int, int], list[Commit]] = {}

    def take_batch(self, partition: int, batch: BatchView) -> None:
        """One batch of one partition of the topic."""
        try:
            records = batch.records()
        except StorageError as error:
            self.skipped[f"damaged batch: {error}"] += 1
            return
        producer = (partition, batch.producer_id)
        if batch.control:
            for record in records:
                self._end_transaction(producer, record.key)
            return
        pending = self._pending.setdefault(producer, []) if batch.transactional else None
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
                group_id, topic, partition, position = plain
                self._commit((group_id, topic, partition, position.commit_timestamp_ms, position.topic_id), pending)
                return
            record = decode_group(stored)
        except (MalformedRecord, ValueError) as error:
            self.skipped[f"record that cannot be read: {error}"] += 1
            return
        if isinstance(record, SkippedRecord):
            self.skipped[record.kind] += 1
            return
        if isinstance(record, OffsetStored):
            at_ms = record.value.commit_timestamp_ms
            self._commit((record.group_id, record.topic, record.partition, at_ms, record.value.topic_id), pending)
            return
        self._take_fact(record, written_ms, leader_epoch)

    def _take_fact(self, record: GroupRecord, written_ms: int, leader_epoch: int) -> None:
        group_id = getattr(record, "group_id", "")
        if isinstance(record, OffsetDeleted):
            if (known := self.groups.get(group_id)) is not None:
                known.classic.commits.forget((record.topic, record.partition))
            return
        if not isinstance(record, GroupStored | GroupDeleted | CONSUMER_RECORDS):
            self.skipped[f"record of Muster's own: {type(record).__name__}"] += 1
            return
        group = self._group(group_id, written_ms)
        if isinstance(record, GroupStored):
            entry = group.classic.take_group(record, written_ms, leader_epoch)
            if entry is not None:
                group.keep(entry)
        elif isinstance(record, GroupDeleted):
            group.classic.take_deletion()
        else:
            group.consumer.number = max(group.consumer.number, group.classic.number)
            for entry in group.consumer.take_record(record, written_ms):
                group.keep(entry)
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
        group_id, topic, partition, at_ms, topic_id = commit
        if topic_id != NO_TOPIC_ID:
            self._names.setdefault(topic_id, topic)
        self._group(group_id, at_ms).classic.commits.note_commit((topic, partition), at_ms)

    def _end_transaction(self, producer: tuple[int, int], key: bytes | None) -> None:
        kind = int.from_bytes(key[2:4], "big", signed=True) if key is not None and len(key) >= 4 else -1
        if kind not in (ABORT, COMMIT):
            return  # KRaft's own
        pending = self._pending.pop(producer, [])
        if kind == COMMIT:
            for commit in pending:
                self._note(commit)

    # What was found
    # --------------

    def told_of(self) -> Iterator[WatchedGroup]:
        """The groups that have had members; one that only committed has no rebalances."""
        return (group for group in self.groups.values() if group.entries or group.classic.stored is not None)

    @property
    def topic_names(self) -> Mapping[TopicId, str]:
        return self._names
