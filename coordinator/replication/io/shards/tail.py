"""One half of a shard, read as it grows: what its leader has written, and this node has copied."""

from collections.abc import Iterator
from typing import Final

from muster.coordinator.replication.protocol.facts import NO_EPOCH
from muster.coordinator.runtime.group_log import records_from
from muster.coordinator.runtime.ports import KeyValue, LogDamage, LogFailed
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.logs import replica
from muster.storage.logs.log import Log
from muster.storage.records.batch import read_batches

PORTION_BYTES: Final = 128 << 10
"""Of whole batches, at least one."""


class StoredShardTail:
    """See `Tail`. Raises LogFailed where the node has no such log."""

    def __init__(self, broker: Broker, topic: str, shard: int) -> None:
        self._broker = broker
        self._place = topic, shard
        self._log = self._find()
        self._cuts = self._log.cuts.seen
        self._start = self._at = self._log.start_offset
        self._epoch = NO_EPOCH  # of the record before `_at`

    def more(self, *, committed: bool) -> Iterator[KeyValue | LogDamage] | None:
        until = self._log.high_watermark if committed else self._log.end_offset
        if self._at >= until:
            return None
        try:
            data = replica.fetch_as_replica(self._log, self._at, PORTION_BYTES).records
        except (StorageError, OSError) as error:
            raise LogFailed(f"{self._name}: {error}") from error
        batches = [batch for batch in read_batches(data) if batch.next_offset <= until]
        if not batches:
            if committed:
                return None
            raise LogFailed(f"{self._name}: nothing can be read at offset {self._at}, but it ends at {until}")
        first, self._at = self._at, batches[-1].next_offset
        self._epoch = batches[-1].leader_epoch
        return records_from(first, batches)

    @property
    def behind(self) -> bool:
        return self._at < self._log.high_watermark

    def stands(self) -> bool:
        """Of two copies that have a record of the same offset and epoch, all before it is the same."""
        seen = self._log.cuts.seen
        if self._find() is not self._log or self._log.start_offset != self._start:
            return False
        if seen != self._cuts:
            if self._at > self._start and not self._has(self._at - 1, self._epoch):
                return False
            self._cuts = seen
        return True

    def _has(self, offset: int, epoch: int) -> bool:
        return offset < self._log.end_offset and self._log.epochs.at(offset) == epoch

    def _find(self) -> Log:
        try:
            return self._broker.log(*self._place)
        except StorageError as error:
            raise LogFailed(f"{self._name}: {error}") from error

    @property
    def _name(self) -> str:
        return "{}-{}".format(*self._place)
