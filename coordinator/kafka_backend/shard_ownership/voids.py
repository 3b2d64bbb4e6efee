"""What a replay makes of a shard's log (KB-S4), and which keys must be written again (KB-S7).

One pass, in the order of the log. A plain batch counts when the latest owner wrote it, or nobody owned yet; any other
is void: written by somebody who did not know that he was an owner no more, and whom his producer could not fence.
Transactional batches wait for their marker.

Two things differ from a plain reading of the rules, both so that a compacted log says what the whole one said. An
owner record has a key of its own (`facts.owner_key`): a later one of the same key would take its place away from in
front of the batches that it makes count. And a transaction's record that a later one of its key was written after, by
whoever it was, be it a tombstone, does not come to count at the marker: the cleaner keeps the later one. So does
Kafka's own coordinator (tests/integration/engine/test_pending_truth.py asks it).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.coordinator.kafka_backend.shard_ownership.facts import (
    KEPT_KEY,
    OWN_KEY,
    OwnerRecord,
    ProducerEpoch,
    ShardRecord,
    decode_owner_record,
)
from muster.coordinator.kafka_backend.shard_ownership.losses import AcceptedLoss, decode_accepted_loss


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


class ShardReplay:
    """Where a pass over a shard's log stands.

    position: the next offset. owner: of the latest owner record; before: of the one before it. owners: all owner
    records that were met, as (turn, key), by their places. unfenced: the latest owner's producer, or one since when
    nothing was settled, did not fence the one before (KB-F6). voids: records passed over. to_repair: keys of which the
    newest record is void, with its offset. pending: by producer id, what waits for a marker (KB-E4). accepted: what an
    operator has said of the log last; None: nothing.
    """

    __slots__ = ("_waiting_for", "accepted", "before", "owner", "owners", "pending", "position", "to_repair",
                 "unfenced", "voids")  # fmt: skip

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.owner: OwnerRecord | None = None
        self.before: OwnerRecord | None = None
        self.owners: list[tuple[int, bytes]] = []
        self.unfenced = False
        self.voids = 0
        self.to_repair: dict[bytes, int] = {}
        self.pending: dict[int, dict[bytes, ShardRecord]] = {}
        self._waiting_for: dict[bytes, set[int]] = {}
        """The same by key: a log has many records, and at times many transactions at once."""
        self.accepted: AcceptedLoss | None = None

    def take(self, batch: LogBatch) -> Sequence[ShardRecord]:
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
            return self._void(records)
        if self.to_repair or self.pending:
            self._overtakes(records)
        return records

    def take_all(self, batches: Iterable[LogBatch]) -> list[ShardRecord]:
        return [record for batch in batches for record in self.take(batch)]

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

    def _void(self, records: Sequence[ShardRecord]) -> Sequence[ShardRecord]:
        self.voids += len(records)
        self.to_repair.update((record.key, record.offset) for record in records if record.key is not None)
        return ()

    def _ended(self, producer_id: int, *, committed: bool) -> Sequence[ShardRecord]:
        ended = self.pending.pop(producer_id, {})
        for key in ended:
            self._waits_no_more(key, producer_id)
        if not committed:
            return ()
        records = sorted(ended.values(), key=lambda record: record.offset)
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

    def take(self, batches: Iterable[LogBatch]) -> None:
        for batch in batches:
            if batch.base_offset >= self.upto:
                self.replay.position = max(self.replay.position, batch.next_offset)
                continue
            for record in self.replay.take(batch):
                if record.key in self.values:
                    self.values[record.key] = record.value

    @property
    def done(self) -> bool:
        return self.replay.position >= self.upto
