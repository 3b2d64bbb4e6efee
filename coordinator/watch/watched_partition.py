"""One partition of an offsets topic, followed record by record: its groups' facts, rebalances and positions; and all
such partitions, whose facts are passed on to the shards that answer.

A transaction's positions count when its marker says so. What is damaged or of an unknown version is passed over and
counted: other tools may write what nobody else can read.

Nearly all records are positions, one or a few in a batch, and most were committed before. `take_batches` reads those
without making an object for a record; a property test holds it to what the plain way reads.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, Protocol, get_args

from crc32c import crc32c

from muster.coordinator.core.model.events import RecordsWatched, WatchStood
from muster.coordinator.core.model.records import (
    ConsumerRecord,
    GroupDeleted,
    GroupEpochDeleted,
    GroupRecord,
    GroupStored,
    MemberRecord,
    OffsetDeleted,
    OffsetsStored,
    RebalanceDecided,
    Record,
    TopicId,
)
from muster.coordinator.core.model.types import MemberPlan, RebalanceEntry, StoredOffset
from muster.coordinator.core.watched.broker_evidence import BrokerEvidence
from muster.coordinator.core.watched.classic_history import ClassicHistory
from muster.coordinator.core.watched.consumer_history import ConsumerHistory
from muster.coordinator.runtime.kafka_records import (
    CONSUMER_KINDS,
    GROUP_KEY,
    OFFSET_KEY_HEADS,
    TAGS_OF_TOPIC,
    decode_group,
)
from muster.coordinator.runtime.own_records import FENCE_KEY, OWN_KINDS, PROBE_KEY
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import INT64, MalformedRecord, UnknownVersion
from muster.coordinator.watch.watched_positions import (
    NEVER,
    RowTimes,
    WatchedPositions,
    read_place,
    read_position,
    read_text,
)
from muster.storage.compression import codec_name, decompress
from muster.storage.errors import CorruptMessage, StorageError, UnsupportedCompressionType
from muster.storage.logs.producer_state import ABORT, COMMIT
from muster.storage.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchView,
    decode_body,
    read_varint,
    varint,
    view_at,
)

MAX_PENDING_BYTES = 64 << 20
"""Of positions in transactions that have not ended."""

PENDING_BYTES = 300
"""What such a position takes beside its key and value."""

MAX_UNPACKED_BYTES = 32 << 20
"""Of a compressed batch: a broker takes 1 MB by default."""

MAX_REASONS = 64
"""Reasons for passing something over that are counted apart."""

OTHER_REASONS = "something else"
DAMAGED_BATCH = "batch whose records do not add up"

FACTS_OF_GROUPS = (GroupStored, GroupDeleted, *get_args(ConsumerRecord))
GROUP_KEYS = {GROUP_KEY, *CONSUMER_KINDS}
OWN_KEYS = {*OWN_KINDS, FENCE_KEY, PROBE_KEY}
"""Of records of Muster's own."""

UNREADABLE = -2

HEAD = Struct(">qi4xBIHi8xq14xi")
"""Of a batch's header: base offset, length, magic, checksum, attributes, last offset delta, newest time, number of
records."""

SHORT_HEAD = Struct(">8xi4xB4xH12xq14xi")
"""Length, magic, attributes, newest time, number of records."""

LEAST_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD
UNUSUAL = CODEC_MASK | CONTROL_BIT | TRANSACTIONAL_BIT

SILENCE_MS = 3_600_000
"""Commits are read from so long before the first moment that is asked about: how a member went is told by its last."""


class WatchedRecordsSink(Protocol):
    """Takes what the records say, in their order."""

    def take_fact(self, fact: GroupRecord) -> None:
        """A record of a group, positions excepted: what is known of the group from now on."""

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        """A rebalance has come to its end with the fact taken last. Its number is not the ledger's."""


@dataclass(slots=True)
class WatchedGroup:
    """One group. began_ms, heard_ms: when the first and the last of its records were written, positions excepted."""

    id: str
    classic: ClassicHistory
    consumer: ConsumerHistory
    began_ms: int
    heard_ms: int = 0
    plans: dict[str, MemberPlan] = field(default_factory=dict)
    """Those of its last entry, by member."""


# Records that look alike
# -----------------------


class RecordShape(NamedTuple):
    """Of records that begin with the same bytes. unpack: the key, the length of the value, the value, and the number of
    headers. value_size: what the length has to be. key_at: where the key begins."""

    unpack: Callable[[bytes, int], tuple[Any, ...]]
    size: int
    value_size: bytes
    key_at: int


SHAPE_BYTES = 8
"""How a record begins: its length, attributes, the differences of time and offset, and its key's length."""

MAX_SHAPES = 1 << 15

SHAPES: dict[bytes, RecordShape] = {}

PLAIN = Struct(">H12xHq")
"""A value of version 3: its version, the length of its metadata, and where there is none, the commit time."""
PLAIN_VERSION, PLAIN_BYTES = 3, PLAIN.size

OF_TOPIC = Struct(">H12xBq3s16s")
"""A value of version 4: its version, one more than the length of its metadata, and where there is none, the commit time
and the topic's id behind its tag."""
OF_TOPIC_VERSION, OF_TOPIC_BYTES = 4, OF_TOPIC.size

POSITION_HEAD = OFFSET_KEY_HEADS[-1]
"""Of the key of a position, as all but the oldest brokers write it."""


def shape_at(body: bytes, at: int) -> RecordShape | None:
    """None: the record has to be read the plain way. Raises IndexError or CorruptMessage."""
    size, begin = read_varint(body, at)
    _, key_at = read_varint(body, begin + 1, 10)
    _, key_at = read_varint(body, key_at)
    key_size, key_at = read_varint(body, key_at)
    rest = begin + size - key_at - key_size - 1
    value_size = varint(rest - 1 if rest <= 64 else rest - 2)
    value_bytes = rest - len(value_size)
    if key_at - at > SHAPE_BYTES or key_size < 0 or value_bytes < PLAIN.size:
        return None
    layout = Struct(f">{key_at - at}x{key_size}s{len(value_size)}s{value_bytes}sB")
    if len(SHAPES) >= MAX_SHAPES:
        SHAPES.clear()
    shape = SHAPES[body[at : at + SHAPE_BYTES]] = RecordShape(layout.unpack_from, layout.size, value_size, key_at - at)
    return shape


def share_members(now: GroupStored, before: GroupStored | None) -> GroupStored:
    """The same, made of the objects of the generation before where it says the same: most of it repeats, and the ledger
    keeps many."""
    known = {member.member_id: member for member in before.members} if before else {}
    return replace(now, members=tuple(share_member(member, known.get(member.member_id)) for member in now.members))


def share_member(now: MemberRecord, before: MemberRecord | None) -> MemberRecord:
    if before is None or now == before:
        return before or now
    return replace(
        now,
        member_id=before.member_id,
        client_id=before.client_id if now.client_id == before.client_id else now.client_id,
        client_host=before.client_host if now.client_host == before.client_host else now.client_host,
        subscription=before.subscription if now.subscription == before.subscription else now.subscription,
    )


def batch_in(data: bytes, at: int) -> BatchView:
    """The whole batch that begins there. Raises CorruptMessage."""
    batch = view_at(memoryview(data), at, at)
    if batch is None:
        raise CorruptMessage(f"The batch at byte {at} is not there as a whole.")
    return batch


# A partition
# -----------


class WatchedPartition:
    """See the module. Feed it the partition's batches in their order: what was there before is passed over.

    A partition that was made anew, or whose newest records were lost, is read by a new one from its begin.
    """

    def __init__(
        self,
        sink: WatchedRecordsSink,
        names: dict[TopicId, str],
        session_ms: int | None = None,
        *,
        since_ms: int | None = None,
        group_sessions: Mapping[str, int] | None = None,
    ) -> None:
        """names: topic id -> name, shared by all partitions: commits tell of them. session_ms: the broker's
        `group.consumer.session.timeout.ms`; None: nobody knows it. group_sessions: by group, its own in its place.

        since_ms: rebalances that ended before are not told, and positions are passed over that were committed an hour
        before it or earlier. What groups were like before is needed to tell what changed, so their facts are taken.
        """
        self._session_ms = session_ms
        self._group_sessions = {} if group_sessions is None else group_sessions
        self._sink = sink
        self._names = names
        self._since_ms = since_ms
        self._positions_since_ms = -1 << 63 if since_ms is None else since_ms - SILENCE_MS
        self.groups: dict[str, WatchedGroup] = {}
        self.skipped: Counter[str] = Counter()
        """What was passed over, and how often."""
        self.records = 0
        self.next_offset = -1
        """Behind the last batch taken."""
        self._positions = WatchedPositions()
        self._pending: dict[int, list[tuple[bytes, bytes | None]]] = {}
        """By producer id."""
        self._pending_bytes = 0

    @property
    def positions(self) -> WatchedPositions:
        """Of all its groups."""
        return self._positions

    def skip(self, what: str) -> None:
        """Count what is passed over."""
        known = what in self.skipped or len(self.skipped) < MAX_REASONS
        self.skipped[what if known else OTHER_REASONS] += 1

    def take_batch(self, batch: BatchView) -> None:
        self.take_batches(batch.data)

    # One flat loop: a call for each record would double the time that it takes.
    def take_batches(self, data: bytes | memoryview, most: int = sys.maxsize) -> int:  # noqa: PLR0912, PLR0915
        """Take whole batches from the begin of these bytes on, until they have `most` bytes; how many bytes they have.

        What is left is half a batch, or begins with none: `batch_end` tells (segment_files.py).
        """
        data = bytes(data)  # pieces of bytes are made faster than views
        head, checksum_of, shapes, plain, of_topic = HEAD.unpack_from, crc32c, SHAPES, PLAIN.unpack, OF_TOPIC.unpack
        positions, names = self._positions, self._names
        rows, last_ms, usual_ms, changed = positions.rows, positions.last_ms, positions.usual_ms, positions.changed
        commits, due_ms = positions.commits, positions.due_ms
        read_from_ms, next_offset, records = self._positions_since_ms, self.next_offset, 0
        at, end = 0, len(data)
        while at < most and end - at >= HEADER_SIZE:
            base_offset, length, magic, checksum, attributes, last_delta, newest_ms, count = head(data, at)
            stop = at + LENGTH_OVERHEAD + length
            if length <= 0 or stop > end:
                break
            begin, at = at, stop
            if newest_ms < read_from_ms and (passed := self._pass_positions(data, begin, most)) > begin:
                at, next_offset = passed, max(next_offset, self.next_offset)
                continue
            if magic != MAGIC or length < LEAST_LENGTH or checksum_of(data[begin + ATTRIBUTES_AT : stop]) != checksum:
                old = magic < MAGIC
                self.skip("batch of a format before version 2" if old else "batch with a wrong checksum")
                continue
            if base_offset + last_delta < next_offset:
                self.skip("batch that was there before")
                continue
            next_offset = base_offset + last_delta + 1
            body, place, close, pending = data, begin + HEADER_SIZE, stop, None
            if attributes & UNUSUAL:
                opened = self._open(data, begin, stop, attributes)
                if opened is None:
                    continue
                body, pending = opened
                place, close = 0, len(body)
            taken = 0
            try:
                for taken in range(1, count + 1):  # noqa: B007
                    shape = shapes.get(body[place : place + SHAPE_BYTES]) or shape_at(body, place)
                    if shape is None:
                        place = self._take_record(batch_in(data, begin), body, place, close, pending)
                        continue
                    unpack, size, value_size, _ = shape
                    key, said_size, value, headers = unpack(body, place)
                    if (row := rows.get(key, NEVER)) == NEVER and pending is None:
                        row = self._new_row(key)
                    if row == NEVER or said_size != value_size or headers:
                        place = self._take_record(batch_in(data, begin), body, place, close, pending)
                        continue
                    place += size
                    if pending is not None:
                        self._hold(pending, key, value)
                        continue
                    if len(value) == PLAIN_BYTES:
                        version, metadata, at_ms = plain(value)
                        known = version == PLAIN_VERSION and not metadata
                    elif len(value) == OF_TOPIC_BYTES:
                        version, metadata, at_ms, tags, topic_id = of_topic(value)
                        known = version == OF_TOPIC_VERSION and metadata == 1 and tags == TAGS_OF_TOPIC
                        if known and topic_id not in names:
                            names[topic_id] = read_place(key).topic
                    else:
                        known = False
                    if not known and (at_ms := self._commit_ms(key, value)) == UNREADABLE:
                        continue
                    before_ms = last_ms[row]
                    if at_ms > before_ms:
                        if before_ms >= 0:
                            usual, distance = usual_ms[row], at_ms - before_ms
                            usual_ms[row] = distance if distance >= usual else (3 * usual + distance) >> 2
                        last_ms[row] = at_ms
                    commits[row] += 1
                    if at_ms >= due_ms[row]:
                        positions.sample(row, at_ms, value)
                    changed[key] = value
                if place != close:
                    self.skip(DAMAGED_BATCH)
            except (CorruptMessage, IndexError, StructError):
                self.skip(DAMAGED_BATCH)
            records += taken
        self.next_offset = next_offset
        self.records += records
        return at

    def _pass_positions(self, data: bytes, at: int, most: int) -> int:
        """Pass over batches from before the first moment that hold nothing but positions, as far as that is seen at
        once; where they end."""
        last, end, from_ms = -1, len(data), self._positions_since_ms
        head, shapes = SHORT_HEAD.unpack_from, SHAPES
        while at < most and end - at >= HEADER_SIZE:
            length, magic, attributes, newest_ms, count = head(data, at)
            stop = at + LENGTH_OVERHEAD + length
            if stop > end or magic != MAGIC or newest_ms >= from_ms or attributes & UNUSUAL or length < LEAST_LENGTH:
                break
            place = at + HEADER_SIZE
            for _ in range(count):
                shape = shapes.get(data[place : place + SHAPE_BYTES])
                if shape is None:
                    break
                _, size, _, key_at = shape
                key_at += place
                if data[key_at : key_at + 2] != POSITION_HEAD:
                    break
                place += size
            if place != stop:
                break
            self.records += count
            last, at = at, stop
        if last >= 0:
            self.next_offset = batch_in(data, last).next_offset
        return at

    # What is not plain
    # -----------------

    def _open(
        self, data: bytes, begin: int, stop: int, attributes: int
    ) -> tuple[bytes, list[tuple[bytes, bytes | None]] | None] | None:
        """The records of a batch that is compressed or of a transaction, and where its positions wait; None: there are
        none to take."""
        if attributes & CONTROL_BIT:
            self._end_transaction(batch_in(data, begin))
            return None
        number = attributes & CODEC_MASK
        try:
            body = decompress(codec_name(number), data[begin + HEADER_SIZE : stop], MAX_UNPACKED_BYTES)
        except UnsupportedCompressionType as error:
            self.skip(f"compressed batch: {error}")
            return None
        except StorageError:
            self.skip(f"{codec_name(number)} batch that cannot be unpacked")
            return None
        if not attributes & TRANSACTIONAL_BIT:
            return body, None
        return body, self._pending.setdefault(batch_in(data, begin).producer_id, [])

    def _take_record(
        self, batch: BatchView, body: bytes, at: int, close: int, pending: list[tuple[bytes, bytes | None]] | None
    ) -> int:
        """Take any record; where it ends. Raises CorruptMessage or IndexError."""
        size, begin = read_varint(body, at)
        end = begin + size
        if not begin <= end <= close:
            raise CorruptMessage(f"A record at byte {at} claims {size} bytes where {close - begin} are left.")
        stamp_ms = batch.max_timestamp if batch.log_append_time else None
        (record,), _ = decode_body(body[at:end], 1, batch.base_offset, batch.base_timestamp, stamp_ms, at)
        if record.key is None:
            self.skip("record without a key")
        elif record.key[:2] in OFFSET_KEY_HEADS:
            self._take_position(record.key, record.value, pending)
        else:
            self._take_other(KeyValue(record.key, record.value), record.timestamp_ms, batch.leader_epoch)
        return end

    def _take_other(self, stored: KeyValue, written_ms: int, leader_epoch: int) -> None:
        kind = int.from_bytes(stored.key[:2], "big", signed=True)
        if kind not in GROUP_KEYS:
            self.skip("record of Muster's own" if kind in OWN_KEYS else f"record of key type {kind}")
            return
        try:
            record = decode_group(stored)
        except ValueError as error:
            self._skip_unreadable(f"record of key type {kind}", error)
            return
        if isinstance(record, FACTS_OF_GROUPS):
            self._take_fact(record, written_ms, leader_epoch)

    def _skip_unreadable(self, what: str, error: ValueError) -> None:
        self.skip(f"{what} with {error}" if isinstance(error, UnknownVersion) else f"{what} that cannot be read")

    def _take_fact(
        self, record: GroupStored | GroupDeleted | ConsumerRecord, written_ms: int, leader_epoch: int
    ) -> None:
        group_id = getattr(record, "group_id", "")
        group = self._group(group_id, written_ms)
        if isinstance(record, GroupStored):
            record = share_members(record, group.classic.stored)
        self._sink.take_fact(record)
        if isinstance(record, GroupStored):
            entry = group.classic.take_group(record, written_ms, leader_epoch)
            self._tell(group, () if entry is None else (entry,))
        elif isinstance(record, GroupDeleted):
            group.classic.take_deletion()
        else:
            group.consumer.number = max(group.consumer.number, group.classic.number)
            self._tell(group, group.consumer.take_record(record, written_ms))
            group.classic.number = group.consumer.number
            if isinstance(record, GroupEpochDeleted):
                group.consumer = ConsumerHistory(
                    group_id, self._names, group.consumer.session_ms, group.consumer.number, group.classic.commits
                )

    def _tell(self, group: WatchedGroup, entries: Iterable[RebalanceEntry]) -> None:
        for entry in entries:
            if self._since_ms is None or entry.ended_at_ms >= self._since_ms:
                shared = tuple(
                    plan if (kept := group.plans.get(plan.member_id)) != plan else kept for plan in entry.members
                )
                group.plans = {plan.member_id: plan for plan in shared}
                self._sink.take_entry(group.id, replace(entry, members=shared))

    def _group(self, group_id: str, at_ms: int) -> WatchedGroup:
        group = self.groups.get(group_id)
        if group is None:
            times = RowTimes(self._positions, group_id)
            group = self.groups[group_id] = WatchedGroup(
                group_id,
                ClassicHistory(group_id, commits=times),
                ConsumerHistory(
                    group_id, self._names, self._group_sessions.get(group_id, self._session_ms), commits=times
                ),
                at_ms,
            )
        group.heard_ms = max(group.heard_ms, at_ms)
        return group

    # Positions
    # ---------

    def _new_row(self, key: bytes) -> int:
        """NEVER: it is no position's key."""
        if key[:2] not in OFFSET_KEY_HEADS:
            return NEVER
        try:
            read_place(key)
        except MalformedRecord:
            return NEVER
        return self._positions.add(key)

    def _take_position(self, key: bytes, value: bytes | None, pending: list[tuple[bytes, bytes | None]] | None) -> None:
        if pending is not None:
            self._hold(pending, key, value)
        elif value is None:
            self._positions.delete(key)
        elif (row := self._positions.rows.get(key, NEVER)) != NEVER or (row := self._new_row(key)) != NEVER:
            at_ms = self._commit_ms(key, value)
            if at_ms != UNREADABLE:
                self._positions.note(key, row, value, at_ms)
        else:
            self.skip("position whose key cannot be read")

    def _commit_ms(self, key: bytes, value: bytes) -> int:
        """When the position was committed; UNREADABLE: its value says nothing, which has been counted."""
        try:
            text = read_text(value)
        except MalformedRecord as error:
            self._skip_unreadable("position", error)
            return UNREADABLE
        if text.topic_id and text.topic_id not in self._names:
            self._names[text.topic_id] = read_place(key).topic
        at_ms: int = INT64.unpack_from(value, text.at)[0]
        return max(at_ms, NEVER)

    def _hold(self, pending: list[tuple[bytes, bytes | None]], key: bytes, value: bytes | None) -> None:
        """Until its transaction ends."""
        size = PENDING_BYTES + len(key) + len(value or b"")
        if self._pending_bytes + size > MAX_PENDING_BYTES:
            self.skip("position of a transaction while too much waits for the end of others")
            return
        self._pending_bytes += size
        pending.append((key, value))

    def _end_transaction(self, batch: BatchView) -> None:
        try:
            keys = [record.key or b"" for record in batch.records()]
        except StorageError:
            self.skip(DAMAGED_BATCH)
            return
        for key in keys:
            kind = int.from_bytes(key[2:4], "big", signed=True) if len(key) >= 4 else -1
            if kind not in (ABORT, COMMIT):
                continue  # KRaft's own
            for key_of_position, value in self._pending.pop(batch.producer_id, []):
                self._pending_bytes -= PENDING_BYTES + len(key_of_position) + len(value or b"")
                if kind == COMMIT:
                    self._take_position(key_of_position, value, None)

    def take_positions(self, most: int) -> list[tuple[str, str, int, StoredOffset | None]]:
        """Positions that changed since they were taken last, the newest of each: group, topic, partition, position;
        None: it was deleted. At most so many; the others come next time."""
        return [
            (*read_place(key), None if value is None else read_position(value))
            for key, value in self._positions.take(most)
        ]


# To the shards that answer
# -------------------------

MOST_FACTS: Final = 200
"""In one event: the loop has others to serve."""

MOST_POSITIONS: Final = 1_000
"""That one look passes on."""


class FactsCollector:
    """The sink of one watched partition. settle: what else is known of a rebalance is put into its entry."""

    def __init__(self, settle: Callable[[str, RebalanceEntry], RebalanceEntry]) -> None:
        self._settle = settle
        self.facts: list[Record] = []

    def take_fact(self, fact: GroupRecord) -> None:
        self.facts.append(fact)

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        self.facts.append(RebalanceDecided(group_id, self._settle(group_id, entry)))


class WatchedFacts:
    """All watched partitions. tell: gets the number of a shard and an event for it. evidence: of the brokers' logs."""

    def __init__(self, tell: Callable[[int, RecordsWatched | WatchStood], None], since_ms: int | None = None) -> None:
        """since_ms: as of a WatchedPartition."""
        self._tell = tell
        self.shard_of: Callable[[str], int] | None = None
        """Of a group, where partitions and shards are not the same."""
        self.evidence = BrokerEvidence()
        self._since_ms = since_ms
        self.session_ms: int | None = None
        """The broker's group.consumer.session.timeout.ms, once it is known: no record tells it."""
        self._group_sessions: dict[str, int] = {}
        self._names: dict[TopicId, str] = {}
        self._collectors: dict[int, FactsCollector] = {}
        self.partitions: dict[int, WatchedPartition] = {}
        self.heard: dict[int, set[str]] = {}
        """By partition that is read anew, the groups that it has told of since."""

    def _settled(self, group_id: str, entry: RebalanceEntry) -> RebalanceEntry:
        return self.evidence.settle(group_id, entry)

    def learn_names(self, ids: Mapping[str, TopicId]) -> None:
        """Of topics by their ids: records of KIP-848 groups name topics by id alone."""
        self._names.update((topic_id, name) for name, topic_id in ids.items())

    def learn_sessions(self, sessions: Mapping[str, int]) -> None:
        """By KIP-848 group, the session timeout in ms that its broker goes by."""
        self._group_sessions.update(sessions)
        for group_id, session_ms in sessions.items():
            for partition in self.partitions.values():
                if (group := partition.groups.get(group_id)) is not None:
                    group.consumer.session_ms = session_ms

    def made_partition(self, partition: int) -> WatchedPartition:
        """One that has read nothing yet, in place of what was there."""
        collector = self._collectors[partition] = FactsCollector(self._settled)
        watched = self.partitions[partition] = WatchedPartition(
            collector, self._names, self.session_ms, since_ms=self._since_ms, group_sessions=self._group_sessions
        )
        return watched

    def pass_facts(self, partition: int, shard: int) -> None:
        """What was said since the last call, positions excepted."""
        collector = self._collectors[partition]
        facts, collector.facts = collector.facts, []
        self._pass(partition, shard, facts)

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
        self._pass(partition, shard, facts)
        return len(changed) == MOST_POSITIONS

    def _pass(self, partition: int, shard: int, facts: list[Record]) -> None:
        if partition in self.heard:
            self.heard[partition].update(getattr(fact, "group_id", "") for fact in facts)
        of_shards = {shard: facts}
        if self.shard_of is not None:
            of_shards = {}
            for fact in facts:
                of_shards.setdefault(self.shard_of(getattr(fact, "group_id", "")), []).append(fact)
        for number, some in of_shards.items():
            for begin in range(0, len(some), MOST_FACTS):
                self._tell(number, RecordsWatched(tuple(some[begin : begin + MOST_FACTS])))
