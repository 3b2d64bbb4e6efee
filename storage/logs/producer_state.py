"""What a log knows of its idempotent producers: sequence numbers, epochs, open transactions.

KIP-98 and KIP-360: the last five batches of each producer are known, so that a repeated one is answered with its old
offset; an older epoch is fenced; within an epoch sequences have no holes. Control batches are the markers that end a
transaction. After a restart the state comes from the newest snapshot that can be trusted and the batches after it;
after a crash also from the batches shortly before it, for a snapshot has one of each producer.
Producer ids are never given twice: they are reserved on disk a block at a time.
"""

import logging
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from muster.storage.errors import (
    CorruptMessage,
    DataDirectoryError,
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from muster.storage.files import Files, read_file, read_lines, write_lines
from muster.storage.logs.segment import AbortedEntry, Segment, read_whole_batch, segment_path, unpack_aborted
from muster.storage.logs.transactions import (
    LEVEL_BUMPS_EPOCH,
    NO_TIME,
    NOTHING_UNSTABLE,
    OpenTransaction,
    PendingGuards,
    StableHold,
    TransactionGuard,
    UnstableTransactions,
)
from muster.storage.records.batch import CONTROL_BIT, MAX_SEQUENCE, TRANSACTIONAL_BIT
from muster.storage.records.markers import TransactionMarker, read_marker
from muster.storage.records.scan import BatchFault, BatchHead, walk_headers

# Producer ids
# ------------

BLOCK = 1000
MAX_EPOCH = 32767
_NAME = "producer-id-block"

FENCES_FROM = 1 << 62
"""Producer ids from here up stand for fences: who may write on behalf of a partition of a group."""


def is_fence(producer_id: int) -> bool:
    return producer_id >= FENCES_FROM


class LocalProducerIds:
    """Hands out ids from a block whose end was made durable before the first of it is given. In any thread."""

    def __init__(self, files: Files, data_dir: str) -> None:
        self._files = files
        self._path = f"{data_dir}/{_NAME}"
        self._next = self._end = 0
        self._lock = threading.Lock()

    def next(self, known: int, epoch: int) -> tuple[int, int]:
        """The next epoch of `known`, or a fresh id at epoch 0 when it has none or its epochs are used up."""
        if known >= 0 and 0 <= epoch < MAX_EPOCH - 1:
            return known, epoch + 1
        return self._fresh(), 0

    def next_fence(self) -> int:
        """A producer id for a fence, never given before."""
        return FENCES_FROM + self._fresh()

    def _fresh(self) -> int:
        with self._lock:
            if self._next == self._end:
                lines = read_lines(self._files, self._path, 2)
                first = int(lines[0][1]) if lines else 0
                write_lines(self._files, self._path, [("next", str(first + BLOCK))], 2)
                self._next, self._end = first, first + BLOCK
            self._next += 1
            return self._next - 1


# Sequences, epochs, open transactions
# ------------------------------------

OnRecord: TypeAlias = Callable[[int], bool]
"""Whether the group of a fence, by its producer id, may still exist. From any thread."""

KEPT_BATCHES = 5
_NONE = -1
_SNAPSHOT_VERSION = 1

# version, CRC-32C of all behind it, count
_SNAPSHOT_HEAD = struct.Struct(">hII")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of its txn
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class KnownBatch(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """-1 where its records have no sequences, as those that a coordinator writes."""
        return (self.last_sequence - self.delta) & MAX_SEQUENCE if self.last_sequence >= 0 else _NONE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.delta


def known_batch(head: BatchHead) -> KnownBatch:
    delta = head.last_offset - head.base_offset
    last_sequence = (head.base_sequence + delta) & MAX_SEQUENCE if head.base_sequence >= 0 else _NONE
    return KnownBatch(last_sequence, head.last_offset, delta, head.max_timestamp)


class ProducerEntry:
    """One producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "marked_ms",
        "txn_epoch",
        "txn_first_offset",
        "txn_records",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: tuple[KnownBatch, ...] = ()
        self.coordinator_epoch = _NONE
        self.txn_first_offset = _NONE
        self.txn_epoch = self.txn_records = _NONE
        """Of the open transaction: the epoch that its records carry, and how many it has; -1: not counted."""
        self.marked_ms = _NONE

    @property
    def last(self) -> KnownBatch | None:
        return self.batches[-1] if self.batches else None

    @property
    def last_timestamp(self) -> int:
        return max(self.marked_ms, self.batches[-1].timestamp if self.batches else _NONE)


class DescribedProducer(NamedTuple):
    """One producer as tools see it; -1 where something is not known, or no transaction is open."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log; `last_offset` is the marker's. hold: None where an older one was open
    until then."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    hold: StableHold | None = None


def _is_transactional(head: BatchHead) -> bool:
    """Whether it holds records of a transaction."""
    return head.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) == TRANSACTIONAL_BIT


def transactional_head(producer_id: int, epoch: int) -> BatchHead:
    """Of a batch without sequences that a coordinator would write in this producer's transaction."""
    return BatchHead(0, 0, 0, 0, _NONE, _NONE, producer_id, epoch, _NONE, 1, TRANSACTIONAL_BIT)


def _known_before(head: BatchHead, producer: ProducerEntry) -> KnownBatch | None:
    """The same batch, if it is among the producer's last ones."""
    if producer.epoch != head.producer_epoch or head.base_sequence < 0:
        return None
    delta = head.last_offset - head.base_offset
    last_sequence = (head.base_sequence + delta) & MAX_SEQUENCE
    for known in producer.batches:
        if known.last_sequence == last_sequence and known.delta == delta:
            return known
    return None


def _follows_on(head: BatchHead, follower: BatchHead) -> bool:
    """Whether the second batch has the sequence that comes after the first one's, in the same epoch."""
    if head.base_sequence < 0 or head.producer_epoch != follower.producer_epoch:
        return False
    return (head.base_sequence + head.last_offset - head.base_offset + 1) & MAX_SEQUENCE == follower.base_sequence


def _check_epoch(head: BatchHead, producer: ProducerEntry) -> None:
    if head.producer_epoch < producer.epoch:
        raise InvalidProducerEpoch(
            f"Producer {head.producer_id} comes with epoch {head.producer_epoch}, epoch {producer.epoch} has "
            "taken over. This instance must stop."
        )


def _check_order(
    head: BatchHead, producer: ProducerEntry | None, ahead: tuple[int, int] | None, guard: TransactionGuard | None
) -> None:
    """`ahead`: epoch and last sequence of the batch before, in the same append."""
    if ahead is not None:
        epoch, last = ahead
    elif producer is not None and producer.batches:
        epoch, last = producer.epoch, producer.batches[-1].last_sequence
    elif guard is not None and guard.level >= LEVEL_BUMPS_EPOCH:
        epoch, last = head.producer_epoch, _NONE  # Its epoch is one transaction, which begins here.
    elif producer is not None and head.producer_epoch == producer.epoch:
        return  # Only a marker is known: any sequence may follow.
    elif producer is not None:
        epoch, last = producer.epoch, _NONE
    else:
        return  # Nothing is known: any sequence may come first.
    expected = (last + 1) & MAX_SEQUENCE if head.producer_epoch == epoch else 0
    if head.base_sequence != expected:
        raise OutOfOrderSequence(
            f"Producer {head.producer_id} epoch {head.producer_epoch} sent sequence {head.base_sequence}; expected "
            f"{expected}. Batches were lost or reordered on the way."
        )


class ProducerState:
    """All producers of one log, and the transactions that they have in it."""

    __slots__ = ("guards", "producers", "unstable")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.unstable = UnstableTransactions()
        self.guards = PendingGuards()

    # -- checks before an append --------------------------------------------------------------------------

    def check(self, heads: Iterable[BatchHead], guard: TransactionGuard | None = None) -> KnownBatch | None:
        """Refuse batches out of order, fenced, or of a transaction that has not begun; batches that are all in the log
        already are returned instead, as one. Markers are for `check_marker`."""
        heads = list(heads)
        if len(heads) > 1 and len({head.producer_id for head in heads if _is_transactional(head)}) > 1:
            raise InvalidProducerIdMapping(
                "An append holds transactional batches of several producers; expected those of one."
            )
        if len(heads) > 1 and (repeated := self._find_repeated(heads)) is not None:
            return repeated
        ahead: dict[int, tuple[int, int]] = {}
        for head in heads:
            number = head.producer_id
            if number < 0 or head.attributes & CONTROL_BIT:
                continue
            producer = self.producers.get(number)
            if producer is not None:
                known = _known_before(head, producer)
                if known and len(heads) == 1:
                    return known
                if known:
                    raise DuplicateSequence(
                        f"Producer {number} sent its sequence {head.base_sequence} again, along with batches that did "
                        "not come with it before. Send a repeated batch alone."
                    )
                _check_epoch(head, producer)
            self._check_transaction(head, producer, guard)
            if head.base_sequence >= 0:
                if self.guards.count:
                    self._check_turn(head, guard)
                _check_order(head, producer, ahead.get(number), guard)
                last = (head.base_sequence + head.last_offset - head.base_offset) & MAX_SEQUENCE
                ahead[number] = head.producer_epoch, last
        return None

    def _find_repeated(self, heads: list[BatchHead]) -> KnownBatch | None:
        """The batches of an earlier append that comes again, as one; None where it is not exactly that.

        An append is written as a whole, so its batches have consecutive offsets. Of a long one the first batches are no
        longer remembered: they are in the log because a known one follows on them, by sequence and epoch.
        """
        last, first_offset = None, _NONE
        behind: dict[int, BatchHead] = {}
        for head in reversed(heads):
            producer = self.producers.get(head.producer_id)
            if producer is None or head.attributes & CONTROL_BIT or head.producer_id < 0:
                return None
            known, follower = _known_before(head, producer), behind.get(head.producer_id)
            delta = head.last_offset - head.base_offset
            if known is None:
                if follower is None or not _follows_on(head, follower):
                    return None
                first_offset -= delta + 1
            elif last is not None and known.last_offset != first_offset - 1:
                return None
            else:
                last, first_offset = last or known, known.first_offset
            behind[head.producer_id] = head
        return None if last is None else last._replace(delta=last.last_offset - first_offset)

    def check_marker(self, head: BatchHead, marker: TransactionMarker, level: int) -> None:
        """InvalidProducerEpoch for a marker of a transaction before this one; TransactionCoordinatorFenced when a newer
        coordinator has written a marker for this producer."""
        producer = self.producers.get(head.producer_id)
        if producer is None:
            return
        epoch = head.producer_epoch
        late = epoch == producer.epoch < MAX_EPOCH and producer.txn_first_offset >= 0
        if epoch < producer.epoch or (late and level >= LEVEL_BUMPS_EPOCH):
            raise InvalidProducerEpoch(
                f"The marker for producer {head.producer_id} carries epoch {epoch}; expected "
                f"{producer.epoch + late} or more."
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"The marker for producer {head.producer_id} carries coordinator epoch {marker.coordinator_epoch}; "
                f"expected {producer.coordinator_epoch} or more."
            )

    def make_guard(self, producer_id: int, epoch: int, sequence: int, level: int) -> TransactionGuard | None:
        """None where its transaction is open already: nobody has to be asked."""
        producer = self.producers.get(producer_id)
        if producer is not None and producer.txn_first_offset >= 0 and producer.epoch == epoch:
            return None
        return self.guards.make(producer_id, epoch, sequence, level)

    def _check_transaction(
        self, head: BatchHead, producer: ProducerEntry | None, guard: TransactionGuard | None
    ) -> None:
        """A transactional batch is part of a transaction that is open here, or its guard says that one begins."""
        is_open = producer is not None and producer.txn_first_offset >= 0
        if not head.attributes & TRANSACTIONAL_BIT:
            if is_open:
                raise InvalidTxnState(
                    f"Producer {head.producer_id} sent a batch outside its open transaction. End the transaction first."
                )
            return
        if guard is not None and guard.ended:
            raise InvalidTxnState(
                f"Producer {head.producer_id}'s transaction of epoch {head.producer_epoch} was ended while its records "
                "waited to be written; they are no part of the next one. Abort that, and send them again."
            )
        if is_open and producer is not None and producer.epoch == head.producer_epoch:
            return
        if guard is None or not self.guards.holds(guard, head.producer_id, head.producer_epoch):
            raise InvalidTxnState(
                f"Producer {head.producer_id} has no transaction of epoch {head.producer_epoch} open in this log, and "
                "its coordinator was not asked since the last one ended. Add the partition to the transaction, then "
                "send again."
            )

    def _check_turn(self, head: BatchHead, own: TransactionGuard | None) -> None:
        waits = self.guards.waits_before(head.producer_id, head.producer_epoch, head.base_sequence, own)
        if waits is not None:
            raise OutOfOrderSequence(
                f"Producer {head.producer_id} epoch {head.producer_epoch} sent sequence {head.base_sequence} while its "
                f"sequence {waits} still waits for the transaction's coordinator. Send it again."
            )

    # -- what an append or a replay tells -----------------------------------------------------------------

    def note(
        self, head: BatchHead, marker: TransactionMarker | None = None, level: int = 0, now_ms: int = NO_TIME
    ) -> CompletedTransaction | None:
        """Take a batch of the log into account; the transaction that it ended, if it did. Batches come in the order of
        the log. `level` is the one of a marker that was just appended, `now_ms` when that or transactional data was."""
        if head.producer_id < 0:
            return None
        producer = self.producers.get(head.producer_id)
        if producer is None:
            producer = self.producers[head.producer_id] = ProducerEntry(head.producer_epoch)
        elif producer.epoch != head.producer_epoch:
            producer.epoch = head.producer_epoch
            producer.batches = ()
        if head.attributes & CONTROL_BIT:
            return self._note_marker(head, producer, marker, level, now_ms)
        producer.batches = (*producer.batches[1 - KEPT_BATCHES :], known_batch(head))
        if head.attributes & TRANSACTIONAL_BIT:
            if producer.txn_first_offset < 0:
                producer.txn_first_offset, producer.txn_epoch = head.base_offset, head.producer_epoch
                producer.txn_records = 0
                self.unstable.begin(head.base_offset, head.producer_id, now_ms)
                self.guards.spend(head.producer_id)
            if producer.txn_records >= 0:
                producer.txn_records += head.count
        return None

    def _note_marker(
        self, head: BatchHead, producer: ProducerEntry, marker: TransactionMarker | None, level: int, now_ms: int
    ) -> CompletedTransaction | None:
        if marker is None:
            return None
        # With the epoch raised the marker may be one that comes late or again: the transaction after it goes on.
        self.guards.end(head.producer_id, head.producer_epoch if level >= LEVEL_BUMPS_EPOCH else _NONE)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.marked_ms = head.max_timestamp
        first, producer.txn_first_offset = producer.txn_first_offset, _NONE
        if first < 0:
            return None
        held = self.unstable.end(first, head.last_offset, now_ms)
        hold = None
        if held is not None:
            hold = StableHold(head.producer_id, producer.txn_epoch, first, producer.txn_records, *held, now_ms)
        return CompletedTransaction(head.producer_id, first, head.last_offset, marker.aborted, hold)

    # -- what readers may see -----------------------------------------------------------------------------

    def stable_after(self, done: CompletedTransaction) -> int:
        """The last stable offset once this transaction is over: others may still be open."""
        oldest = self.unstable.oldest_open()
        return done.last_offset + 1 if oldest == NOTHING_UNSTABLE else oldest

    def open_transactions(self) -> list[OpenTransaction]:
        """Those without a marker, oldest first."""
        known = self.producers
        return [OpenTransaction(number, known[number].epoch, first) for first, number in self.unstable.open()]

    def current_hold(self) -> StableHold | None:
        """The oldest open transaction, at which readers have to stop."""
        first, number = next(self.unstable.open(), (NOTHING_UNSTABLE, _NONE))
        if number < 0:
            return None
        producer, unstable = self.producers[number], self.unstable
        return StableHold(
            number, producer.txn_epoch, first, producer.txn_records, unstable.held_since_ms, unstable.held_exactly
        )

    def describe(self, numbers: Sequence[int]) -> list[DescribedProducer]:
        """Those of these producers that are known."""
        known = [(number, producer) for number in numbers if (producer := self.producers.get(number)) is not None]
        return [
            DescribedProducer(
                number,
                producer.epoch,
                producer.last.last_sequence if producer.last else _NONE,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
            for number, producer in known
        ]

    def expire(self, now_ms: int, idle_ms: int, on_record: OnRecord) -> None:
        """Forget producers without an open transaction that were idle for longer than `idle_ms`.

        A fence that is on record stays: a former owner may wake up after any time.
        """
        gone = [
            number
            for number, producer in self.producers.items()
            if producer.txn_first_offset < 0
            and now_ms - producer.last_timestamp > idle_ms
            and not (is_fence(number) and on_record(number))
        ]
        for number in gone:
            del self.producers[number]

    # -- snapshots ----------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Kafka's `.snapshot` (version 1): of each producer the last batch only."""
        entries = []
        for number, producer in sorted(self.producers.items()):
            last = producer.last or KnownBatch(_NONE, _NONE, 0, producer.marked_ms)
            batch = (last.last_sequence, last.last_offset, last.delta, producer.last_timestamp)
            fence = (producer.coordinator_epoch, producer.txn_first_offset)
            entries.append(_SNAPSHOT_ENTRY.pack(number, producer.epoch, *batch, *fence))
        body = len(entries).to_bytes(4, "big") + b"".join(entries)
        return _SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body

    @classmethod
    def restore(cls, data: bytes, name: str) -> "ProducerState":
        """The state in a snapshot; DataDirectoryError when it is damaged."""
        state = cls()
        size = _SNAPSHOT_HEAD.size
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data) if len(data) >= size else (0, 0, 0)
        if version != _SNAPSHOT_VERSION or crc32c(data[6:]) != crc or len(data) != size + count * _SNAPSHOT_ENTRY.size:
            raise DataDirectoryError(
                f"The producer snapshot {name} is damaged; expected version 1, its checksum and whole entries. "
                "It is rebuilt from the log."
            )
        for fields in _SNAPSHOT_ENTRY.iter_unpack(data[size:]):
            number, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
            producer = state.producers[number] = ProducerEntry(epoch)
            if offset >= 0:
                producer.batches = (KnownBatch(sequence, offset, delta, timestamp),)
            producer.marked_ms = timestamp
            producer.coordinator_epoch = coordinator_epoch
            producer.txn_first_offset = txn_first_offset
            producer.txn_epoch = epoch if txn_first_offset >= 0 else _NONE
        begun = [(each.txn_first_offset, number) for number, each in state.producers.items()]
        for first, number in sorted(begun):
            if first >= 0:
                state.unstable.begin(first, number)
        return state


# Markers to write
# ----------------


class MarkerToWrite(NamedTuple):
    """What a coordinator decided of a producer's transaction. level: of the transaction's end (`transaction.version`);
    the bytes do not tell it."""

    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    level: int = 0


# Rebuilding the state
# --------------------

logger = logging.getLogger("muster.storage")


def load_producers(segments: Sequence[Segment], high_watermark: int | None = None) -> ProducerState:
    """The state at the log's end: from the newest snapshot that can be trusted, and the batches after it.

    `high_watermark` is that of a log which is told its own: a snapshot behind it does not say which transactions have
    their markers between the two.
    """
    first, state = newest_snapshot(segments, high_watermark)
    load_aborted(segments[:first])
    for segment in segments[first:]:
        if segment.producers:
            replay_producers(segment, state)
    if first < len(segments):  # a log that was closed in order is believed as it is
        recall_batches(segments[:first], state)
    return state


def newest_snapshot(segments: Sequence[Segment], high_watermark: int | None = None) -> tuple[int, ProducerState]:
    """The state behind so many of the segments, from the newest snapshot that can be trusted; nothing behind none."""
    for first in range(len(segments), 0, -1):
        segment = segments[first - 1]
        if high_watermark is None or segment.next_offset <= high_watermark:
            known = _snapshot_after(segment)
            if known is not None:
                return first, known
    return 0, ProducerState()


def load_aborted(segments: Sequence[Segment]) -> None:
    """Know what was aborted in these segments, which begin the log: readers need to, wherever it was.

    Where the index cannot be trusted, the segment's batches tell. What they tell of producers is not needed here: where
    there is damage, the snapshot behind it knows more.
    """
    state, reached = ProducerState(), 0
    for place, segment in enumerate(segments):
        if _load_aborted(segment):
            continue
        if reached < place:
            reached, state = newest_snapshot(segments[:place])
        for unknown in segments[reached : place + 1]:
            replay_producers(unknown, state)
        reached = place + 1


def _load_aborted(segment: Segment) -> bool:
    """Take the aborted index over if it is the one that was written; whether that went well."""
    if segment.summary is None:
        return not segment.producers
    if segment.summary.txn_crc:
        data = segment.read_side(".txnindex")
        if crc32c(data) != segment.summary.txn_crc:
            return False
        segment.aborted = unpack_aborted(data)
    return True


def _snapshot_after(segment: Segment) -> ProducerState | None:
    """The producers at the segment's end; None when that takes a replay."""
    if segment.summary is None:
        return None
    if not segment.summary.snapshot_crc:
        return ProducerState()
    path = segment_path(segment.directory, segment.next_offset, ".snapshot")
    try:
        data = read_file(segment.files, path)
        if crc32c(data) == segment.summary.snapshot_crc:
            return ProducerState.restore(data, path)
    except (OSError, DataDirectoryError) as error:
        logger.warning("%s: %s", path, error)
    return None


TAIL_BYTES: Final = 8 << 20
"""So far back from where a replay begins, earlier batches of producers are looked for, by their headers."""

WINDOW_BYTES: Final = 512 << 10


def recall_batches(segments: Sequence[Segment], state: ProducerState) -> None:
    """Find the batches before the only one that a snapshot has of a producer, until five of each are known.

    segments: those before the replayed ones, of which the last TAIL_BYTES are looked at. Who has sent nothing there
    sends nothing again.
    """
    windows = tail_windows(segments)
    if not windows:
        return
    oldest = windows[-1].first_offset
    missing = {
        number: producer
        for number, producer in state.producers.items()
        if is_incomplete(producer) and producer.batches[0].first_offset >= oldest
    }
    for window in windows:
        if not missing:
            return
        try:
            heads = list(walk_headers(window.segment.file(), window.start, window.end))
        except BatchFault:
            return  # reading there will say so, too
        for head in reversed(heads):
            producer = missing.get(head.producer_id)
            if (
                producer is None
                or head.attributes & CONTROL_BIT
                or head.base_offset >= producer.batches[0].first_offset
            ):
                continue
            known = known_batch(head)
            follows = (known.last_sequence + 1) & MAX_SEQUENCE == producer.batches[0].first_sequence
            if follows and head.producer_epoch == producer.epoch:
                producer.batches = (known, *producer.batches)
            if not follows or head.producer_epoch != producer.epoch or not is_incomplete(producer):
                del missing[head.producer_id]


def is_incomplete(producer: ProducerEntry) -> bool:
    """Whether there may be batches before those that are known: sequences begin at 0."""
    return 0 < len(producer.batches) < KEPT_BATCHES and producer.batches[0].first_sequence > 0


class TailWindow(NamedTuple):
    """Bytes of a segment, from one batch's start to another's. No batch in it has an offset below `first_offset`."""

    segment: Segment
    start: int
    end: int
    first_offset: int


def tail_windows(segments: Sequence[Segment]) -> list[TailWindow]:
    """The last TAIL_BYTES of these segments, in pieces of about WINDOW_BYTES, the last first."""
    windows: list[TailWindow] = []
    left = TAIL_BYTES
    for segment in reversed(segments):
        index, end = segment.index(), segment.size
        while end > 0 and left > 0:
            place = bisect_right(index.positions, end - min(WINDOW_BYTES, left)) - 1
            start = index.positions[place] if place >= 0 else 0
            first = segment.base_offset + (index.offsets[place - 1] + 1 if place > 0 else 0)
            windows.append(TailWindow(segment, start, end, first))
            left -= end - start
            end = start
    return windows


def replay_producers(segment: Segment, state: ProducerState) -> None:
    """Tell `state` of every batch in the segment, and the segment of the transactions aborted in it."""
    segment.aborted = []
    try:
        for head in walk_headers(segment.file(), 0, segment.size):
            if head.producer_id < 0:
                continue
            marker = read_marker(read_whole_batch(segment, head)) if head.attributes & CONTROL_BIT else None
            done = state.note(head, marker)
            if done and done.aborted:
                segment.aborted.append(AbortedEntry(*done[:3], state.stable_after(done)))
    except (BatchFault, CorruptMessage) as fault:
        # Reading there will say so too; what is known of the producers up to here stays true.
        logger.error("The producers of %s are known in part only: %s", segment.path(), fault)
