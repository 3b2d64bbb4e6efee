"""Values that the machines of this room share, and the engine's own records (KB-S2)."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

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
