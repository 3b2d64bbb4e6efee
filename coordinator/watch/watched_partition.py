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
from typing import Final, NamedTuple, Protocol, get_args

from crc32c import crc32c

from muster.coordinator.core.model.events import RecordsWatched, WatchStood
from muster.coordinator.core.model.ledger import SharedEntries
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
from muster.coordinator.runtime.record_fields import INT16, INT64, MalformedRecord, UnknownVersion, plain_string
from muster.coordinator.watch.record_shapes import (
    LONE_AT,
    LONE_BYTES,
    LONE_COUNT,
    LONES,
    OF_TOPIC,
    OF_TOPIC_BYTES,
    OF_TOPIC_VERSION,
    PLAIN,
    PLAIN_BYTES,
    PLAIN_VERSION,
    POSITION_HEAD,
    RUNS,
    SHAPE_BYTES,
    SHAPES,
    PositionRun,
    are_positions,
    note_lone,
    shape_at,
)
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
    view_at,
)
from muster.storage.records.markers import ABORT, COMMIT

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
CLASSIC_HEAD = INT16.pack(GROUP_KEY)
GROUP_KEYS = {GROUP_KEY, *CONSUMER_KINDS}
OWN_KEYS = {*OWN_KINDS, FENCE_KEY, PROBE_KEY}
"""Of records of Muster's own."""

UNREADABLE = -2
LONE_END = LONE_AT + LONE_BYTES

HEAD = Struct(">qi4xBIHi8xq14xi")
"""Of a batch's header: base offset, length, magic, checksum, attributes, last offset delta, newest time, number of
records."""

SHORT_HEAD = Struct(">8xi4xB4xH12xq14xi")
"""Length, magic, attributes, newest time, number of records."""

LEAST_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD
UNUSUAL = CODEC_MASK | CONTROL_BIT | TRANSACTIONAL_BIT

SILENCE_MS = 3_600_000
"""What was written so long before the first moment that is asked about, or earlier, is read as after compaction
(WA-R6): how a member went is told by its last commit, and who is back had gone a quarter of an hour before (WA-M2)."""

KEPT_GENERATIONS = 2
"""Of what a classic group was like before: what its members waited for shows in the last two (WA-C1)."""

MOST_GROUPS = 20
"""Whose past is taken in one piece: the loop has others to serve."""


class PastRecord(NamedTuple):
    """One from before the first moment, as it was written."""

    stored: KeyValue
    written_ms: int
    leader_epoch: int


class PastRecords:
    """Records of groups from before the first moment: of each key the last, as after compaction; of a classic group the
    last generations."""

    def __init__(self) -> None:
        self._groups: dict[bytes, dict[bytes, list[PastRecord]]] = {}
        """By the group's id, as keys have it."""

    def __len__(self) -> int:
        """How many groups they are of."""
        return len(self._groups)

    def hold(self, record: PastRecord) -> None:
        key, value, _ = record.stored
        group = group_bytes(key)
        if value is None:
            held = self._groups.get(group, {})
            held.pop(key, None)
            if not held:
                self._groups.pop(group, None)
            return
        held = self._groups.setdefault(group, {})
        before = held.pop(key, [])  # in the order in which keys were written last
        held[key] = [*before[1 - KEPT_GENERATIONS :], record] if key.startswith(CLASSIC_HEAD) else [record]

    def take(self, key: bytes) -> list[PastRecord]:
        """Those of the group of this key."""
        held = self._groups.pop(group_bytes(key), {})
        return [record for records in held.values() for record in records]

    def take_next(self) -> list[PastRecord]:
        """Those of any group."""
        return [record for records in self._groups.pop(next(iter(self._groups))).values() for record in records]


def group_bytes(key: bytes) -> bytes:
    """The group's id, with its length: keys of groups have it behind their kind."""
    return key[2 : 4 + int.from_bytes(key[2:4], "big")]


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


# Generations that say the same
# -----------------------------


def share_members(now: GroupStored, before: GroupStored | None) -> GroupStored:
    """The same, made of the objects of the generation before where it says the same: most of it repeats, and the ledger
    keeps many."""
    known = {member.member_id: member for member in before.members} if before else {}
    return replace(now, members=tuple(share_member(member, known.get(member.member_id)) for member in now.members))


def share_member(now: MemberRecord, before: MemberRecord | None) -> MemberRecord:
    if before is None or now == before:
        return before or now
    return MemberRecord(
        before.member_id,
        now.group_instance_id,
        before.client_id if now.client_id == before.client_id else now.client_id,
        before.client_host if now.client_host == before.client_host else now.client_host,
        now.rebalance_timeout_ms,
        now.session_timeout_ms,
        before.subscription if now.subscription == before.subscription else now.subscription,
        now.assignment,
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
        before it or earlier. What groups were like before is needed to tell what changed, so the last of their facts
        are taken: when the group's next comes, or by `tell_past`.
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
        self.leader_epoch = -1
        """Of the last batch taken; -1: none was."""
        self._positions = WatchedPositions()
        self._past = PastRecords()
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

    def has_group(self, group_id: str) -> bool:
        """Whether one of the records that were taken is of this group."""
        wanted = group_bytes(bytes(2) + plain_string(group_id))
        return group_id in self.groups or any(group_bytes(key) == wanted for key in self._positions.rows)

    def tell_past(self, most: int = sys.maxsize) -> bool:
        """Tell the sink what groups were like before the first moment, of those that nothing was told of since: at most
        so many groups. Whether there are more."""
        for _ in range(min(len(self._past), most)):
            self._take_past(self._past.take_next())
        return bool(self._past)

    # One flat loop: a call for each record would double the time that it takes.
    def take_batches(self, data: bytes | memoryview, most: int = sys.maxsize) -> int:  # noqa: PLR0912, PLR0915
        """Take whole batches from the begin of these bytes on, until they have `most` bytes; how many bytes they have.

        What is left is half a batch, or begins with none: `batch_end` tells (segment_files.py).
        """
        data = bytes(data)  # pieces of bytes are made faster than views
        head, checksum_of, shapes, plain, of_topic = HEAD.unpack_from, crc32c, SHAPES, PLAIN.unpack, OF_TOPIC.unpack
        positions, names, runs, lones = self._positions, self._names, RUNS, LONES
        rows, last_ms, usual_ms, changed = positions.rows, positions.last_ms, positions.usual_ms, positions.changed
        commits, due_ms = positions.commits, positions.due_ms
        read_from_ms, next_offset, records = self._positions_since_ms, self.next_offset, 0
        at, end, last = 0, len(data), -1
        while at < most and end - at >= HEADER_SIZE:
            if (lone := lones.get(data[at + LONE_AT : at + LONE_END])) is not None and end - at >= lone.size:
                unpack, size, size_behind, begins, metadata_size, tags_wanted, value_at, _ = lone
                (
                    base_offset, length, magic, checksum, attributes, last_delta, newest_ms,
                    key, begin, metadata, at_ms, tags, topic_id, headers,
                ) = unpack(data, at)  # fmt: skip
                if (
                    length == size_behind
                    and begin == begins
                    and metadata == metadata_size
                    and tags == tags_wanted
                    and not headers
                    and magic == MAGIC
                    and not attributes & UNUSUAL
                    and base_offset + last_delta >= next_offset
                    and newest_ms >= read_from_ms
                    and (row := rows.get(key, NEVER)) != NEVER
                    and (not topic_id or topic_id in names)
                    and checksum_of(data[at + ATTRIBUTES_AT : at + size]) == checksum
                ):
                    next_offset = base_offset + last_delta + 1
                    before_ms = last_ms[row]
                    if at_ms > before_ms:
                        if before_ms >= 0:
                            usual, distance = usual_ms[row], at_ms - before_ms
                            usual_ms[row] = distance if distance >= usual else (3 * usual + distance) >> 2
                        last_ms[row] = at_ms
                    commits[row] += 1
                    value = data[at + value_at : at + size - 1]
                    if at_ms >= due_ms[row]:
                        positions.sample(row, at_ms, value)
                    changed[key] = value
                    last = at
                    at += size
                    records += 1
                    continue
            base_offset, length, magic, checksum, attributes, last_delta, newest_ms, count = head(data, at)
            stop = at + LENGTH_OVERHEAD + length
            if length <= 0 or stop > end:
                break
            begin, at = at, stop
            if newest_ms < read_from_ms and (passed := self._pass_positions(data, begin, most)) > begin:
                at, next_offset, last = passed, max(next_offset, self.next_offset), -1
                continue
            if magic != MAGIC or length < LEAST_LENGTH or checksum_of(data[begin + ATTRIBUTES_AT : stop]) != checksum:
                old = magic < MAGIC
                self.skip("batch of a format before version 2" if old else "batch with a wrong checksum")
                continue
            if base_offset + last_delta < next_offset:
                self.skip("batch that was there before")
                continue
            next_offset, last = base_offset + last_delta + 1, begin
            body, place, close, pending = data, begin + HEADER_SIZE, stop, None
            if attributes & UNUSUAL:
                opened = self._open(data, begin, stop, attributes)
                if opened is None:
                    continue
                body, pending = opened
                place, close = 0, len(body)
                if count == 1 and pending is None and self._take_lone(body):
                    records += 1
                    continue
            taken, known = 0, False
            try:
                if (
                    count > 1
                    and pending is None
                    and (run := runs.get((body[place : place + SHAPE_BYTES], count)))
                    and run.size == close - place
                    and self._take_run(run, body, place)
                ):
                    records += count
                    continue
                for taken in range(1, count + 1):  # noqa: B007
                    shape = shapes.get(body[place : place + SHAPE_BYTES]) or shape_at(body, place)
                    if shape is None:
                        place = self._take_record(batch_in(data, begin), body, place, close, pending)
                        continue
                    unpack, size, value_size, _, _, _ = shape
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
                elif count > 1 and pending is None:
                    are_positions(body, 0 if body is not data else begin + HEADER_SIZE, close, count)
                elif known:
                    note_lone(body, 0 if body is not data else begin + HEADER_SIZE)
            except (CorruptMessage, IndexError, StructError):
                self.skip(DAMAGED_BATCH)
            records += taken
        self.next_offset = next_offset
        self.records += records
        if last >= 0:
            self.leader_epoch = batch_in(data, last).leader_epoch
        return at

    def _take_lone(self, body: bytes) -> bool:
        """Take the only position of a compressed batch, if it is as one before; False: it is not."""
        lone = LONES.get(LONE_COUNT + body[:SHAPE_BYTES])
        if lone is None or HEADER_SIZE + len(body) != lone.size:
            return False
        key, begin, metadata, at_ms, tags, topic_id, headers = lone.unpack_body(body)
        row = self._positions.rows.get(key, NEVER)
        if (
            row == NEVER
            or begin != lone.begins
            or metadata != lone.metadata
            or tags != lone.tags
            or headers
            or (topic_id and topic_id not in self._names)
        ):
            return False
        self._positions.note(key, row, body[lone.value_at - HEADER_SIZE : -1], at_ms)
        return True

    def _take_run(self, run: PositionRun, body: bytes, place: int) -> bool:
        """Take all positions of a batch whose records are as those of one before; False: they are not."""
        fields = run.read(body, place)
        if not run.fits(fields):
            return False
        step, positions, names = run.step, self._positions, self._names
        keys = fields[1::step]
        found = [positions.rows.get(key, NEVER) for key in keys]
        if NEVER in found:
            return False
        last_ms, usual_ms, changed = positions.last_ms, positions.usual_ms, positions.changed
        commits, due_ms, at = positions.commits, positions.due_ms, place + run.value_at
        if run.topic_at:
            for topic_id, key in zip(fields[run.topic_at :: step], keys, strict=True):
                if topic_id not in names:
                    names[topic_id] = read_place(key).topic
        for row, key, at_ms in zip(found, keys, fields[run.time_at :: step], strict=True):
            before_ms = last_ms[row]
            if at_ms > before_ms:
                if before_ms >= 0:
                    usual, distance = usual_ms[row], at_ms - before_ms
                    usual_ms[row] = distance if distance >= usual else (3 * usual + distance) >> 2
                last_ms[row] = at_ms
            commits[row] += 1
            value = body[at : at + run.value_bytes]
            if at_ms >= due_ms[row]:
                positions.sample(row, at_ms, value)
            changed[key] = value
            at += run.stride
        return True

    def _pass_positions(self, data: bytes, at: int, most: int) -> int:
        """Pass over batches from before the first moment that hold nothing but positions, as far as that is seen at
        once; where they end."""
        last, end, from_ms = -1, len(data), self._positions_since_ms
        head, shapes, runs = SHORT_HEAD.unpack_from, SHAPES, RUNS
        while at < most and end - at >= HEADER_SIZE:
            length, magic, attributes, newest_ms, count = head(data, at)
            stop = at + LENGTH_OVERHEAD + length
            if stop > end or magic != MAGIC or newest_ms >= from_ms or attributes & UNUSUAL or length < LEAST_LENGTH:
                break
            place = at + HEADER_SIZE
            begins = data[place : place + SHAPE_BYTES]
            if count == 1 and (shape := shapes.get(begins)):  # nearly as many are so as are not
                if place + shape.size != stop or not data.startswith(POSITION_HEAD, place + shape.key_at):
                    break
            elif (
                (run := runs.get((begins, count))) is None
                or place + run.size != stop
                or run.begin(data, place) != run.beginnings
            ) and not are_positions(data, place, stop, count):
                break
            self.records += count
            last, at = at, stop
        if last >= 0:
            batch = batch_in(data, last)
            self.next_offset, self.leader_epoch = batch.next_offset, batch.leader_epoch
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
        if written_ms < self._positions_since_ms:
            self._past.hold(PastRecord(stored, written_ms, leader_epoch))
            return
        if self._past:
            self._take_past(self._past.take(stored.key))
        self._take_group_record(stored, written_ms, leader_epoch)

    def _take_past(self, records: Iterable[PastRecord]) -> None:
        for record in records:
            self._take_group_record(*record)

    def _take_group_record(self, stored: KeyValue, written_ms: int, leader_epoch: int) -> None:
        try:
            record = decode_group(stored)
        except ValueError as error:
            self._skip_unreadable(f"record of key type {int.from_bytes(stored.key[:2], 'big', signed=True)}", error)
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


def position_facts(changed: Iterable[tuple[str, str, int, StoredOffset | None]]) -> list[Record]:
    """Of what `take_positions` gives: one of all positions of a group, and one for each that was deleted."""
    stored: dict[str, dict[tuple[str, int], StoredOffset]] = {}
    facts: list[Record] = []
    for group_id, topic, number, position in changed:
        if position is None:
            facts.append(OffsetDeleted(group_id, topic, number))
        else:
            stored.setdefault(group_id, {})[topic, number] = position
    return [*facts, *(OffsetsStored(group_id, offsets) for group_id, offsets in stored.items())]


# To the shards that answer
# -------------------------

MOST_FACTS: Final = 20
"""In one event, some 2 ms: the loop has others to serve."""

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
        self.strays = False
        """Whether a group belongs to another shard than the one that its partition was said to be."""
        self.evidence = BrokerEvidence()
        self.since_ms = since_ms
        self.session_ms: int | None = None
        """The broker's group.consumer.session.timeout.ms, once it is known: no record tells it."""
        self._group_sessions: dict[str, int] = {}
        self._names: dict[TopicId, str] = {}
        self._shared = SharedEntries()
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
            collector, self._names, self.session_ms, since_ms=self.since_ms, group_sessions=self._group_sessions
        )
        return watched

    def pass_facts(self, partition: int, shard: int) -> bool:
        """What was said since the last call, positions excepted. Whether anything was."""
        collector = self._collectors[partition]
        facts, collector.facts = collector.facts, []
        self._pass(partition, shard, facts)
        return bool(facts)

    def pass_settled(self, partition: int, facts: Iterable[Record], shard: int) -> None:
        """Facts that another process has read; what else is known of a rebalance is put into its entry."""
        self._pass(
            partition,
            shard,
            [
                replace(fact, entry=self._settled(fact.group_id, self._shared.share(fact.entry)))
                if isinstance(fact, RebalanceDecided)
                else fact
                for fact in facts
            ],
        )

    def pass_positions(self, partition: int, shard: int) -> bool:
        """What groups were like before all that is told, then the newest positions, so many at a time. Whether there
        are more."""
        watched = self.partitions[partition]
        more = watched.tell_past(MOST_GROUPS)
        self.pass_facts(partition, shard)
        if more:
            return True
        changed = watched.take_positions(MOST_POSITIONS)
        self._pass(partition, shard, position_facts(changed))
        return len(changed) == MOST_POSITIONS

    def _pass(self, partition: int, shard: int, facts: list[Record]) -> None:
        if partition in self.heard:
            self.heard[partition].update(getattr(fact, "group_id", "") for fact in facts)
        of_shards = {shard: facts}
        if self.shard_of is not None:
            of_shards = {}
            for fact in facts:
                of_shards.setdefault(self.shard_of(getattr(fact, "group_id", "")), []).append(fact)
            self.strays = self.strays or bool(of_shards.keys() - {shard})
        for number, some in of_shards.items():
            for begin in range(0, len(some), MOST_FACTS):
                self._tell(number, RecordsWatched(tuple(some[begin : begin + MOST_FACTS])))
