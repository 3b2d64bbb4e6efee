"""The group log of a simulated node: both halves of the units that it leads, over its simulated disk."""

from collections.abc import Callable, Iterator, Sequence

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.replicated_shards import shard_unit
from muster.coordinator.replication.protocol.cluster_metadata import LEDGER, TopicPartition, halves_of
from muster.coordinator.replication.protocol.leader import ALL
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.replication.protocol.replica_fetch import LogBroken
from muster.coordinator.runtime.ports import Entry, KeyValue, LogFailed, LogWithoutTransactions
from tests.sim.replication.disk import Disk, NoRoom, SimLog

PORTION = 7


class SimGroupLog(LogWithoutTransactions):
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

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        place = shard_unit(shard)
        leader = self._replicas().leaders.get(place)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else leader.may_append(ALL)
        if leader is None or code is not ErrorCode.NONE:
            no_room = code is ErrorCode.NOT_ENOUGH_REPLICAS
            raise LogFailed(f"{place}: {code.meaning}", no_room=no_room)
        try:
            for half in reversed(halves_of(place)):  # the ledger first
                if records := ledger if half.topic == LEDGER else groups:
                    self._append(half, leader.epoch, records)
        except LogBroken as error:
            self._broken(place, str(error))
            raise LogFailed(str(error)) from error
        finally:
            self._written(halves_of(place))

    def _append(self, half: TopicPartition, epoch: int, records: Sequence[Entry]) -> None:
        """Explanations that find no room are lost; where groups find none, another copy is to lead."""
        try:
            self._log(half).append(epoch, [(key, value) for key, value, _ in records])
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

    def read_groups(self, shard: int) -> Iterator[KeyValue]:
        return self._read(shard_unit(shard))

    def read_ledger(self, shard: int) -> Iterator[KeyValue]:
        return self._read(halves_of(shard_unit(shard))[1])

    def tail(self, topic: str, shard: int) -> "SimTail":
        return SimTail(self._log, TopicPartition(topic, shard))

    def _log(self, half: TopicPartition) -> SimLog:
        log = self._disk().logs.get(half)
        if log is None:
            raise LogBroken(f"{half} is not held here")
        return log

    def _read(self, half: TopicPartition) -> Iterator[KeyValue]:
        """To the end, whatever is committed of it (CL-G2)."""
        try:
            model = self._log(half).model
        except LogBroken as error:
            raise LogFailed(str(error)) from error
        for offset, entry in enumerate(list(model.records), model.start):
            key, value = entry.value  # type: ignore[misc]
            yield KeyValue(key, value, offset)


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

    def more(self, *, committed: bool) -> Iterator[KeyValue] | None:
        log = self._now
        until = log.high_watermark if committed else log.end
        if self._at >= until:
            return None
        entries = self._model.read(self._at, min(PORTION, until - self._at))
        first, self._at, self._epoch = self._at, self._at + len(entries), entries[-1].epoch
        return (KeyValue(*entry.value, offset) for offset, entry in enumerate(entries, first))  # type: ignore[misc]

    def stands(self) -> bool:
        model = self._now.model
        if model is not self._model or model.start != self._start:
            return False
        last = model.at(self._at - 1)
        return self._at == self._start or (last is not None and last.epoch == self._epoch)
