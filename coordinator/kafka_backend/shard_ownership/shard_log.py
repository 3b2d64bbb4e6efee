"""The log of a shard: its own records, which of its records count, and what it has lost.

A replay is one pass in log order (KB-S4). A plain batch counts if the latest owner wrote it, or if there is no
owner record yet; any other plain batch is fenced: its producer did not know that it was no longer the owner, and
the broker could not refuse it. Transactional batches wait for their marker. Keys whose newest record is fenced are
written again (KB-S7).

Two rules make a compacted log say what the whole log said. An owner record has a key of its own (`owner_key`): a
later record of the same key would remove it from in front of the batches that it makes count. And a transaction's
record does not come to count at the marker if a later record of its key was written after it, by any producer and
even as a tombstone: the cleaner keeps the later one. Kafka's own coordinator does the same
(tests/integration/kafka_backend/test_pending_truth.py asks it).

A compacted log never begins later than at 0, and no acknowledged record lies behind its end. So two losses are
certain (KB-H1):

- the log begins later than at 0: records were deleted (DeleteRecords, or retention under another cleanup.policy),
- the log ends before what this process had acknowledged, or puts a batch there: it was cut short (an unclean election),
  or is another log of the same name.

A log that was cut short while no process had it cannot be recognised: no node is left that knows its length. A shard
with such a log is not served until an operator has accepted it; that acceptance is a record in the log itself.
"""

import json
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

OWN_KEY = 0xFF
"""The first byte of the keys of the engine's own records; groups have 0x00 or 0x7d there, the ledger `{`."""

NEVER = -(1 << 62)
"""A moment before all others."""


class ProducerEpoch(NamedTuple):
    """Who writes, as a batch's header has it. Higher epochs of one id fence the lower ones, other ids fence nobody."""

    id: int
    epoch: int

    def fences(self, other: "ProducerEpoch") -> bool:
        """Whether a partition that has a batch of this producer refuses the other's.

        >>> ProducerEpoch(7, 3).fences(ProducerEpoch(7, 2)), ProducerEpoch(7, 0).fences(ProducerEpoch(7, 2))
        (True, False)
        >>> ProducerEpoch(8, 3).fences(ProducerEpoch(7, 2))
        False
        """
        return self.id == other[0] and self.epoch > other[1]


NO_PRODUCER = ProducerEpoch(-1, -1)


class ShardRecord(Protocol):
    """A record as it was read."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def offset(self) -> int: ...


class ShardRecordRead(NamedTuple):
    """A `ShardRecord`."""

    key: bytes | None
    value: bytes | None
    offset: int


NewRecord: TypeAlias = tuple[bytes, bytes | None, object]
"""Key, value (None: a tombstone), and what means nothing: as `runtime.ports.Entry`."""


class MeasuredRecords(list[Any]):
    """`NewRecord`s that are measured as they come, a portion after the other: nobody goes through very many at once.

    size, largest: of keys and values, in bytes, of all and of one. marks: how many there were, and their size, after
    each portion.
    """

    __slots__ = ("largest", "marks", "size")

    def __init__(self, records: Sequence[NewRecord] = ()) -> None:
        super().__init__()
        self.size = self.largest = 0
        self.marks: list[tuple[int, int]] = []
        self.extend(records)

    def extend(self, records: Iterable[NewRecord]) -> None:
        """Another portion; of some that are counted, their portions."""
        if isinstance(records, MeasuredRecords):
            count, size = len(self), self.size
            self.marks += [(count + each, size + its) for each, its in records.marks]
            self.size, self.largest = size + records.size, max(self.largest, records.largest)
            super().extend(records)
        elif portion := list(records):
            sizes = [len(key) + len(value or b"") for key, value, _ in portion]
            super().extend(portion)
            self.size, self.largest = self.size + sum(sizes), max(self.largest, *sizes)
            self.marks.append((len(self), self.size))


class RetryReason(NamedTuple):
    """Why something is tried again: Kafka's code; 0: there was no answer, and detail is a sentence."""

    code: int
    detail: str = ""


class OwnerRecord(NamedTuple):
    """An owner record: the first batch of an owner (KB-S2). `turn` counts the owners of a shard, from 1 on.

    instance: of the process; address, kafka: where its doors are, gRPC's and Kafka's. since_ms: of the wall's clock,
    for people.
    """

    turn: int
    node: int
    producer: ProducerEpoch
    instance: str = ""
    address: str = ""
    kafka: str = ""
    since_ms: int = 0


def owner_key(turn: int, producer: ProducerEpoch) -> bytes:
    """Its own for each owner: where two took the same turn, the cleaner must not keep the later record in place of
    the one before it, by which the first one's batches count.

    >>> owner_key(12, ProducerEpoch(7, 3))
    b'\\xffowner 12 7 3'
    """
    return b"\xffowner %d %d %d" % (turn, *producer)


KEPT_KEY = b"\xffkept"
"""Of what an owner writes so that brokers do not forget its producer, and when all is settled behind its owner record
(KB-F6). Its value means nothing. The owner record itself is never written again: a cleaner keeps the newest of a key,
and without the first one the owner's batches before it would be void."""


def encode_owner_record(owner: OwnerRecord) -> NewRecord:
    value = {
        "version": 1,
        "node": owner.node,
        "instance": owner.instance,
        "address": owner.address,
        "kafka": owner.kafka,
        "producer_id": owner.producer.id,
        "epoch": owner.producer.epoch,
        "turn": owner.turn,
        "since_ms": owner.since_ms,
    }
    return owner_key(owner.turn, owner.producer), json.dumps(value, separators=(",", ":")).encode(), None


UNREADABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What comes of reading JSON that somebody else may have written."""

MOST_TURNS = 1 << 62


def decode_owner_record(record: ShardRecord) -> OwnerRecord | None:
    """What an owner record says; None: it is none, is a tombstone, or nobody can read it."""
    key, value = record.key, record.value
    if key is None or value is None or not key.startswith(b"\xffowner "):
        return None
    try:
        said = json.loads(value)
        owner = OwnerRecord(
            int(said["turn"]),
            int(said["node"]),
            ProducerEpoch(int(said["producer_id"]), int(said["epoch"])),
            str(said.get("instance", "")),
            str(said.get("address", "")),
            str(said.get("kafka", "")),
            int(said.get("since_ms", 0)),
        )
    except UNREADABLE:
        return None
    return owner if owner.turn < MOST_TURNS else None


class TransactionalClient(NamedTuple):
    """A client's producer, in whose name positions are written (KB-E2)."""

    transactional_id: str
    producer: ProducerEpoch


class ShardBatch:
    """Records that are appended as one, under the numbers of their shard's producer (KB-A1, KB-A2).

    sequence: of its first record. position: how many of the shard's appends are acknowledged once it is. wire: its
    bytes; None until it was sent for the first time. The very same bytes are sent again. transactional_id: of the
    client whose producer this is; empty: it is the shard's.
    """

    __slots__ = ("position", "producer", "records", "sequence", "shard", "size", "transactional_id", "wire")

    def __init__(
        self,
        shard: int,
        producer: ProducerEpoch,
        sequence: int,
        records: Sequence[NewRecord],
        size: int,
        position: int,
        transactional_id: str = "",
    ) -> None:
        self.shard = shard
        self.producer = producer
        self.sequence = sequence
        self.records = records
        self.size = size
        self.position = position
        self.transactional_id = transactional_id
        self.wire: bytes | None = None


class BatchResult(NamedTuple):
    """What Kafka said of one batch: a code by its number, the offset of its first record, and where the log begins; -1:
    not told."""

    code: int
    offset: int = -1
    start: int = -1


# Losses that no replay may pass over (KB-H1)
# -------------------------------------------

ACCEPTED_KEY: Final = b"\xffaccepted"


class AcceptedLoss(NamedTuple):
    """The word of an operator who looked: what a shard's log lacks is given up. start: where it began by then. token:
    tells one such word from another."""

    start: int
    token: str


def encode_accepted_loss(accepted: AcceptedLoss) -> NewRecord:
    value = {"version": 1, "start": accepted.start, "token": accepted.token}
    return ACCEPTED_KEY, json.dumps(value, separators=(",", ":")).encode(), None


def decode_accepted_loss(record: ShardRecord) -> AcceptedLoss | None:
    """None: it is none, or nobody can read it."""
    if record.key != ACCEPTED_KEY or record.value is None:
        return None
    try:
        said = json.loads(record.value)
        return AcceptedLoss(int(said["start"]), str(said["token"]))
    except UNREADABLE:
        return None


class LogLosses:
    """What this process knows of the logs of its shards, over all the times that it takes them."""

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._words: dict[int, AcceptedLoss | None] = {}

    def read(self, shard: int, start: int, end: int, accepted: AcceptedLoss | None) -> str:
        """A log was read, from where it begins up to its end; why nothing may be served from it, "": it may."""
        before = self._words.setdefault(shard, accepted)
        if accepted is not None and accepted != before:
            self._ends.pop(shard, None)
        self._words[shard] = accepted
        self._starts[shard] = start
        if start > (0 if accepted is None else accepted.start):
            return f"its log begins at offset {start}: what was before is deleted"
        known = self._ends.get(shard, 0)
        if end < known:
            return f"its log ends at offset {end}, and it was acknowledged up to {known}"
        return ""

    def acked(self, shard: int, offset: int, count: int, start: int = -1) -> str:
        """So many records were put there; -1: it was not told where. start: where the log begins, by the same answer.
        Why that may not be, "": it may."""
        known = self._ends.get(shard, 0)
        if 0 <= offset < known:
            return f"a batch was put at offset {offset}, and it was acknowledged up to {known}"
        if start > self._starts.get(shard, 0):
            return f"its log begins at offset {start}: what was before is deleted"
        if offset >= 0:
            self._ends[shard] = offset + count
        return ""

    def forget(self) -> None:
        """All logs are others, and an operator has said so."""
        self._starts.clear()
        self._ends.clear()
        self._words.clear()


# Replay: which records count, and which are fenced (KB-S4, KB-S7)
# ----------------------------------------------------------------


class LogBatch(NamedTuple):
    """A batch as it was read. next_offset: where the next one may begin.

    marker: of a control batch: whether it commits; None: it holds records.
    """

    base_offset: int
    next_offset: int
    producer: ProducerEpoch
    records: Sequence[ShardRecord] = ()
    transactional: bool = False
    marker: bool | None = None


OFFSET = attrgetter("offset")


class ShardReplay:
    """Where a pass over a shard's log stands.

    position: the next offset. owner: of the latest owner record; before: of the one before it. owners: all owner
    records that were met, as (turn, key), by their places. unfenced: the latest owner's producer, or one since when
    nothing was settled, did not fence the one before (KB-F6). fenced_records: how many were passed over. to_repair:
    keys of which the newest record is void, with its offset. pending: by producer id, what waits for a marker (KB-E4).
    accepted: what an operator has said of the log last; None: nothing.
    """

    __slots__ = (
        "_waiting_for",
        "accepted",
        "before",
        "fenced_records",
        "owner",
        "owners",
        "pending",
        "position",
        "to_repair",
        "unfenced",
    )  # fmt: skip

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.owner: OwnerRecord | None = None
        self.before: OwnerRecord | None = None
        self.owners: list[tuple[int, bytes]] = []
        self.unfenced = False
        self.fenced_records = 0
        self.to_repair: dict[bytes, int] = {}
        self.pending: dict[int, dict[bytes, ShardRecord]] = {}
        self._waiting_for: dict[bytes, set[int]] = {}
        """The same by key: a log has many records, and at times many transactions at once."""
        self.accepted: AcceptedLoss | None = None

    def replay_batch(self, batch: LogBatch) -> Sequence[ShardRecord]:
        """The records that count from here on, oldest first. A batch that was taken before is passed over."""
        if batch.next_offset <= self.position:
            return ()
        self.position = batch.next_offset
        if batch.marker is not None:
            return self._ended(batch.producer.id, committed=batch.marker)
        records = batch.records
        if batch.transactional:
            if not records:  # all that a cleaner left of one, which may have ended long ago
                return ()
            waiting = self.pending.setdefault(batch.producer.id, {})
            for record in records:
                if record.key is not None:
                    waiting[record.key] = record
                    self._waiting_for.setdefault(record.key, set()).add(batch.producer.id)
            return ()
        if records and (records[0].key or b"")[:1] == b"\xff":
            records = self._own(batch)
        elif self.owner is not None and batch.producer != self.owner.producer:
            return self._skip_fenced(records)
        if self.to_repair or self.pending:
            self._overtakes(records)
        return records

    def take_all(self, batches: Iterable[LogBatch]) -> list[ShardRecord]:
        return [record for batch in batches for record in self.replay_batch(batch)]

    def _own(self, batch: LogBatch) -> Sequence[ShardRecord]:
        """The engine's own records are nobody's state. An owner record counts when its turn is new; so of two that
        took the same turn the first did."""
        for record in batch.records:
            self.accepted = decode_accepted_loss(record) or self.accepted
            owner = decode_owner_record(record)
            if owner is not None:
                assert record.key is not None
                self.owners.append((owner.turn, record.key))
                if owner.producer == batch.producer and (self.owner is None or owner.turn > self.owner.turn):
                    fenced = self.owner is None or owner.producer.fences(self.owner.producer)
                    self.unfenced = self.unfenced or not fenced
                    self.before, self.owner = self.owner, owner
            elif self.owner is not None and batch.producer == self.owner.producer and record.key == KEPT_KEY:
                self.unfenced = False
        return [record for record in batch.records if (record.key or b"")[:1] != bytes([OWN_KEY])]

    def _skip_fenced(self, records: Sequence[ShardRecord]) -> Sequence[ShardRecord]:
        self.fenced_records += len(records)
        self.to_repair.update((record.key, record.offset) for record in records if record.key is not None)
        return ()

    def _ended(self, producer_id: int, *, committed: bool) -> Sequence[ShardRecord]:
        ended, waiting_for = self.pending.pop(producer_id, {}), self._waiting_for
        for key in ended:  # there may be very many, each nearly always of this producer alone
            if len(waiting_for[key]) == 1:
                del waiting_for[key]
            else:
                waiting_for[key].discard(producer_id)
        if not committed:
            return ()
        records = sorted(ended.values(), key=OFFSET)
        if self.to_repair or self.pending:
            self._overtakes(records)
        return records

    def _overtakes(self, records: Sequence[ShardRecord]) -> None:
        """These count, and are the newest of their keys unless something with a higher offset is there."""
        for record in records:
            key = record.key
            if key is None:
                continue
            if self.to_repair.get(key, record.offset) < record.offset:
                del self.to_repair[key]
            for producer_id in tuple(self._waiting_for.get(key, ())):
                if self.pending[producer_id][key].offset < record.offset:
                    del self.pending[producer_id][key]
                    self._waits_no_more(key, producer_id)

    def _waits_no_more(self, key: bytes, producer_id: int) -> None:
        left = self._waiting_for[key]
        left.discard(producer_id)
        if not left:
            del self._waiting_for[key]

    def must_repair(self) -> list[bytes]:
        """KB-S7: keys to be written again. One that a transaction waits for is left for later: what is written now
        would be newer than the transaction's."""
        return [key for key in self.to_repair if key not in self._waiting_for]


class RepairPass:
    """What counts for some keys: a pass of its own, over the same part of the log (KB-S7)."""

    __slots__ = ("replay", "upto", "values")

    def __init__(self, keys: Iterable[bytes], start: int, upto: int) -> None:
        self.values: dict[bytes, bytes | None] = dict.fromkeys(keys)
        self.replay = ShardReplay(start)
        self.upto = upto

    def replay_batches(self, batches: Iterable[LogBatch]) -> None:
        for batch in batches:
            if batch.base_offset >= self.upto:
                self.replay.position = max(self.replay.position, batch.next_offset)
                continue
            for record in self.replay.replay_batch(batch):
                if record.key in self.values:
                    self.values[record.key] = record.value

    @property
    def done(self) -> bool:
        return self.replay.position >= self.upto
