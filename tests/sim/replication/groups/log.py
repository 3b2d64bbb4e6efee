"""The group log of a simulated node: both halves of the units that it leads, over its simulated disk.

A record is an entry of its log, a batch of positions in a transaction is one, and so is a marker. What the log knows of
producers is a model of its rules (`tests.sim.transactions.logs`), rebuilt from the entries in each leader epoch.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from muster.coordinator.core.model.records import TxnMarked
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.replicated_shards import shard_unit
from muster.coordinator.replication.protocol.cluster_metadata import LEDGER, TopicPartition, halves_of
from muster.coordinator.replication.protocol.leader import ALL
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.replication.protocol.replica_fetch import LogBroken
from muster.coordinator.runtime.ports import (
    Entry,
    KeyValue,
    LogFailed,
    Read,
    TxnBatchRead,
    TxnMarkerFound,
    TxnProducer,
)
from tests.sim.replication.disk import Disk, NoRoom, SimLog
from tests.sim.transactions.logs import DataBatch, Guard, LogModel, MarkerBatch

PORTION = 7
NO_SEQUENCE = -1


class PositionsBatch(NamedTuple):
    """Positions in a producer's transaction: keys and values."""

    producer_id: int
    epoch: int
    records: tuple[tuple[bytes, bytes | None], ...]


def read_entry(offset: int, value: object) -> Read:
    """As a replay is given it. All positions of a batch stand at its offset."""
    match value:
        case PositionsBatch(producer_id, epoch, records):
            kept = tuple(KeyValue(key, body, offset) for key, body in records)
            return TxnBatchRead(TxnProducer(producer_id, epoch), kept)
        case MarkerBatch():
            return TxnMarkerFound(TxnProducer(value.producer_id, value.epoch), value.commit, offset)
        case _:
            key, body = value  # type: ignore[misc]
            return KeyValue(key, body, offset)


class SimGroupLog:
    """As `ShardGroupLog`. What a flush covers is what was there when it began (`mark`)."""

    def __init__(
        self,
        disk: Callable[[], Disk],
        replicas: Callable[[], NodeReplicas],
        written: Callable[[Sequence[TopicPartition]], None],
        broken: Callable[[TopicPartition, str], None],
    ) -> None:
        self._disk = disk
        self._replicas = replicas
        self._written = written
        self._broken = broken
        self._marks: dict[TopicPartition, int] = {}
        self._known: dict[int, tuple[int, LogModel]] = {}
        """By shard: leader epoch, and what is known of producers in it."""

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        with self._writing(shard) as (place, epoch):
            for half in reversed(halves_of(place)):  # the ledger first
                if records := ledger if half.topic == LEDGER else groups:
                    self._append(half, epoch, [(key, value) for key, value, _ in records])

    def append_in_transaction(
        self, shard: int, producer: TxnProducer, groups: Sequence[Entry], guard: object | None, now_ms: int
    ) -> None:
        if refusal := self.transaction_refusal(shard, producer, guard):
            raise LogFailed(f"shard {shard}: {refusal.meaning}")
        with self._writing(shard) as (place, epoch):
            known = self.known(shard)
            records = tuple((key, value) for key, value, _ in groups)
            self._append(place, epoch, [PositionsBatch(*producer, records)])
            known.append(DataBatch(*producer, NO_SEQUENCE, None))

    def append_marker(self, shard: int, marker: TxnMarked, now_ms: int) -> None:
        if refusal := self.marker_refusal(shard, marker):
            raise LogFailed(f"shard {shard}: {refusal.meaning}")
        with self._writing(shard) as (place, epoch):
            known, batch = self.known(shard), batch_of(marker)
            self._append(place, epoch, [batch])
            known.append(batch)

    def transaction_refusal(self, shard: int, producer: TxnProducer, guard: object | None) -> ErrorCode:
        assert guard is None or isinstance(guard, Guard)
        known = self.known(shard)
        of_producer = known.producers.get(producer.id)
        if of_producer is not None and producer.epoch < of_producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        may = known.may_open(DataBatch(*producer, NO_SEQUENCE, None), guard)
        return ErrorCode.NONE if may else ErrorCode.INVALID_TXN_STATE

    def marker_refusal(self, shard: int, marker: TxnMarked) -> ErrorCode:
        return ErrorCode(self.known(shard).marker_refusal(batch_of(marker)))

    # -- what is known of producers -------------------------------------------------------------------------

    def known(self, shard: int) -> LogModel:
        """In this leader epoch; guards of an earlier one are void (TX-N6). Raises LogFailed where it is not led."""
        place = shard_unit(shard)
        leader = self._replicas().leaders.get(place)
        if leader is None:
            raise LogFailed(f"{place}: another node leads it")
        found = self._known.get(shard)
        if found is not None and found[0] == leader.epoch:
            return found[1]
        if found is not None:
            for guard in found[1].guards:
                guard.valid = False
        known = LogModel()
        try:
            entries = self._log(place).model.records
        except LogBroken as error:
            raise LogFailed(str(error)) from error
        for entry in entries:
            if isinstance(entry.value, PositionsBatch):
                known.append(DataBatch(entry.value.producer_id, entry.value.epoch, NO_SEQUENCE, None))
            elif isinstance(entry.value, MarkerBatch):
                known.append(entry.value)
        self._known[shard] = leader.epoch, known
        return known

    @contextmanager
    def _writing(self, shard: int) -> Iterator[tuple[TopicPartition, int]]:
        """As the leader of its unit, in that epoch. Raises LogFailed."""
        place = shard_unit(shard)
        leader = self._replicas().leaders.get(place)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else leader.may_append(ALL)
        if leader is None or code is not ErrorCode.NONE:
            no_room = code is ErrorCode.NOT_ENOUGH_REPLICAS
            raise LogFailed(f"{place}: {code.meaning}", no_room=no_room)
        try:
            yield place, leader.epoch
        except LogBroken as error:
            self._broken(place, str(error))
            raise LogFailed(str(error)) from error
        finally:
            self._written(halves_of(place))

    def _append(self, half: TopicPartition, epoch: int, values: Sequence[object]) -> None:
        """Explanations that find no room are lost; where groups find none, another copy is to lead."""
        try:
            self._log(half).append(epoch, values)
        except NoRoom as error:
            if half.topic != LEDGER:
                elsewhere = self._replicas().unwritable(half, str(error))
                raise LogFailed(str(error), no_room=not elsewhere) from error

    def mark(self, shards: Sequence[int]) -> None:
        """A flush of these begins."""
        logs = self._disk().logs
        self._marks = {
            half: logs[half].end for shard in shards for half in halves_of(shard_unit(shard)) if half in logs
        }

    def flush(self, shards: Sequence[int]) -> None:
        failed = []
        for shard in shards:
            try:
                for half in halves_of(shard_unit(shard)):
                    if half in self._marks:
                        self._log(half).flush(self._marks[half])
            except LogBroken:
                failed.append(shard)
        if failed:
            raise LogFailed("the disk says EIO", failed)

    def read_groups(self, shard: int) -> Iterator[Read]:
        return self._read(shard_unit(shard))

    def read_ledger(self, shard: int) -> Iterator[KeyValue]:
        return (item for item in self._read(halves_of(shard_unit(shard))[1]) if isinstance(item, KeyValue))

    def tail(self, topic: str, shard: int) -> "SimTail":
        return SimTail(self._log, TopicPartition(topic, shard))

    def _log(self, half: TopicPartition) -> SimLog:
        log = self._disk().logs.get(half)
        if log is None:
            raise LogBroken(f"{half} is not held here")
        return log

    def _read(self, half: TopicPartition) -> Iterator[Read]:
        """To the end, whatever is committed of it (CL-G2)."""
        try:
            model = self._log(half).model
        except LogBroken as error:
            raise LogFailed(str(error)) from error
        for offset, entry in enumerate(list(model.records), model.start):
            yield read_entry(offset, entry.value)


def batch_of(marker: TxnMarked) -> MarkerBatch:
    return MarkerBatch(marker.producer_id, marker.epoch, marker.commit, marker.coordinator_epoch, marker.level)


class SimTail:
    """As `StoredTail`; what it gives comes in small portions."""

    def __init__(self, find: Callable[[TopicPartition], SimLog], half: TopicPartition) -> None:
        self._find = find
        self._half = half
        self._model = self._now.model
        self._start = self._at = self._model.start
        self._epoch = -1

    @property
    def _now(self) -> SimLog:
        try:
            return self._find(self._half)
        except LogBroken as error:
            raise LogFailed(str(error)) from error

    @property
    def behind(self) -> bool:
        return self._at < self._now.high_watermark

    def more(self, *, committed: bool) -> Iterator[Read] | None:
        log = self._now
        until = log.high_watermark if committed else log.end
        if self._at >= until:
            return None
        entries = self._model.read(self._at, min(PORTION, until - self._at))
        first, self._at, self._epoch = self._at, self._at + len(entries), entries[-1].epoch
        return (read_entry(offset, entry.value) for offset, entry in enumerate(entries, first))

    def stands(self) -> bool:
        model = self._now.model
        if model is not self._model or model.start != self._start:
            return False
        last = model.at(self._at - 1)
        return self._at == self._start or (last is not None and last.epoch == self._epoch)
