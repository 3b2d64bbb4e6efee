"""The logs of shards that several nodes share: appended by the leader, loaded (CL-G2) and kept warm (CL-G8).

`ReplicatedGroupLog.append` writes both halves as their leader; a node that does not lead the unit raises LogFailed.
A `StoredShardTail` reads what the leader has written and this node has copied. `WarmShards` keeps a core for each
shard that another node leads, so that a takeover does not grow with the log.
"""

import asyncio
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import structlog

from muster.coordinator.core.model.records import TxnMarked
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    OFFSETS,
    TRANSACTIONS,
    TopicPartition,
    halves_of,
)
from muster.coordinator.replication.protocol.leader import ALL
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.runtime.group_log import READ_BYTES, BrokerGroupLog, records_from
from muster.coordinator.runtime.leased import TakeRecords, UnfitForWarming, WarmLog, WarmShard
from muster.coordinator.runtime.ports import Entry, KeyValue, LogDamage, LogFailed, Read, TxnProducer
from muster.coordinator.runtime.shards import ShardCore
from muster.coordinator.runtime.transaction_records import TransactionReadReport
from muster.coordinator.runtime.transaction_shards import BrokerTransactionLog
from muster.coordinator.transactions.records import TransactionExpired
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.logs import replica
from muster.storage.logs.log import Log
from muster.storage.records.batch import read_batches
from muster.storage.types import Fetched

# One half, read as it grows
# --------------------------

PORTION_BYTES: Final = 128 << 10
"""Of whole batches, at least one."""


class StoredShardTail:
    """See `CommittedTail`. Raises LogFailed where the node has no such log."""

    def __init__(self, broker: Broker, topic: str, shard: int) -> None:
        self._broker = broker
        self._place = topic, shard
        self._log = self._find()
        self._cuts = self._log.cuts.seen
        self._start = self._at = self._log.start_offset
        self._epoch = NO_EPOCH  # of the record before `_at`

    def more(self, *, committed: bool) -> Iterator[Read | LogDamage] | None:
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


# The group log over units
# ------------------------


class GroupLogSide(Protocol):
    """Of `ReplicaManager`, what the log needs."""

    @property
    def replicas(self) -> NodeReplicas: ...

    def written(self, places: Sequence[TopicPartition]) -> None: ...

    def broken(self, place: TopicPartition, why: str) -> None: ...

    def unwritable(self, place: TopicPartition, why: str) -> bool: ...


def shard_unit(shard: int) -> TopicPartition:
    return TopicPartition(OFFSETS, shard)


@contextmanager
def appending_as_leader(side: GroupLogSide, unit: TopicPartition) -> Iterator[None]:
    """Something is appended to the unit's logs now. Raises LogFailed where this node may not."""
    leader = side.replicas.leaders.get(unit)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else leader.may_append(ALL)
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        raise LogFailed(f"{unit}: {code.meaning}", no_room=True)
    if code is not ErrorCode.NONE:
        raise LogFailed(f"{unit}: another node leads it")
    try:
        yield
    finally:  # a part of it may have been written
        side.written(halves_of(unit))


class ReplicatedGroupLog(BrokerGroupLog):
    """`append` writes as the leader of the shard's unit; where this node does not lead it, it raises LogFailed.

    Followers hear of what is appended at once, beside the flush. A replay reads to the end of the log, whatever is
    committed of it (CL-G2).
    """

    def __init__(self, broker: Broker, side: GroupLogSide, shards: int, segment_bytes: int) -> None:
        """The topics are made by the cluster. segment_bytes: of one, which bounds a batch."""
        self._side = side
        super().__init__(broker, shards, segment_bytes)

    def _make_topics(self, partitions: int, segment_bytes: int) -> None:
        """The controller does (CL-C12)."""

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        with self._leading(shard):
            super().append(shard, groups, ledger, now_ms)

    def append_in_transaction(
        self, shard: int, producer: TxnProducer, groups: Sequence[Entry], guard: object | None, now_ms: int
    ) -> None:
        with self._leading(shard):
            super().append_in_transaction(shard, producer, groups, guard, now_ms)

    def append_marker(self, shard: int, marker: TxnMarked, now_ms: int) -> None:
        with self._leading(shard):
            super().append_marker(shard, marker, now_ms)

    def _leading(self, shard: int) -> AbstractContextManager[None]:
        return appending_as_leader(self._side, shard_unit(shard))

    def tail(self, topic: str, shard: int) -> StoredShardTail:
        """One half, to be read as it grows (CL-G8)."""
        return StoredShardTail(self._broker, topic, shard)

    def _write(self, topic: str, shard: int, append: Callable[[], object]) -> None:
        try:
            super()._write(topic, shard, append)
        except LogFailed as error:
            if self._broker.log(topic, shard).failure is not None:
                # It takes nothing more until the process starts anew: another copy is to lead.
                self._side.broken(TopicPartition(topic, shard), str(error))
            elif error.no_room and topic == OFFSETS and self._side.unwritable(TopicPartition(topic, shard), str(error)):
                raise LogFailed(str(error)) from error  # here it is over, be there room again or not
            raise

    def _fetch(self, topic: str, shard: int, offset: int) -> Fetched:
        return replica.fetch_as_replica(self._broker.log(topic, shard), offset, READ_BYTES)


# The log of transactional ids over units
# ---------------------------------------


class ReplicatedTransactionLog(BrokerTransactionLog):
    """As `ReplicatedGroupLog`, for `__transaction_state`, which the cluster makes when the first id is asked for."""

    def __init__(self, broker: Broker, side: GroupLogSide) -> None:
        super().__init__(broker)
        self._side = side

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        place = TopicPartition(TRANSACTIONS, shard)
        try:
            with appending_as_leader(self._side, place):
                super().append(shard, groups, ledger, now_ms)
        except LogFailed as error:
            if self._broker.log(*place).failure is not None:
                self._side.broken(place, str(error))
            elif error.no_room and error.__cause__ is not None and self._side.unwritable(place, str(error)):
                raise LogFailed(str(error)) from error  # here it is over, be there room again or not
            raise

    def tail(self, topic: str, shard: int) -> StoredShardTail:
        """To be read as it grows (TX-N1)."""
        return StoredShardTail(self._broker, topic, shard)

    def _fetch(self, shard: int, offset: int) -> Fetched:
        return replica.fetch_as_replica(self._broker.log(TRANSACTIONS, shard), offset, READ_BYTES)


# Copies kept warm (CL-G8)
# ------------------------

logger = structlog.get_logger("muster.replication")

PAUSE_S: Final = 0.005
"""Between two slices of what is there already: others have their turn."""

LOOK_S: Final = 0.1
"""Until it is looked again whether more is committed."""

MAX_BEGINNINGS: Final = 3
"""Of a shard whose log was cut each time, until it is led here."""


class WarmTransactionShard(WarmShard):
    """A shard of transactional ids that another node coordinates, kept ready (TX-N1). See `WarmShard`.

    A record that cannot be read makes it useless: a replay passes it over, and says so.
    """

    def _takers(self) -> tuple[tuple[str, TakeRecords], ...]:
        return ((TRANSACTIONS, self._take_facts),)

    def _take_facts(self, items: list[Read]) -> None:
        place, read = f"{TRANSACTIONS}-{self.shard}", TransactionReadReport()
        for item in items:
            fact: Any = read.read(item, place) if isinstance(item, KeyValue) else None
            if fact is not None:
                self.core.apply(fact)
                self.report.groups += 1
                self.report.tombstones += isinstance(fact, TransactionExpired)
        if read.malformed:
            raise UnfitForWarming(read.complaints[0])
        for kind, times in read.skipped.items():
            told = f"{TRANSACTIONS} {kind}"
            self.report.skipped[told] = self.report.skipped.get(told, 0) + times


class WarmShards:
    """One core for each such shard, as large as its leader's. `take_some`, `take_warm_shard` and `run` by one
    thread."""

    def __init__(
        self,
        log: WarmLog,
        shards: int,
        new_core: Callable[[int], ShardCore],
        copied: Callable[[], Container[TopicPartition]],
        topic: str = OFFSETS,
    ) -> None:
        """copied: the partitions that this node follows others in. topic: OFFSETS or TRANSACTIONS, whose partitions are
        the shards."""
        self._topic = topic
        self._make = WarmTransactionShard if topic == TRANSACTIONS else WarmShard
        self._tell = tell_ids_unfit if topic == TRANSACTIONS else log_unfit
        self._log = log
        self._shards = shards
        self._new_core = new_core
        self._copied = copied
        self._warm: dict[int, WarmShard] = {}
        self._begun: dict[int, int] = {}
        """How often, of each shard that has been begun since it was led here last."""
        self._useless: set[int] = set()

    def take_warm_shard(self, shard: int) -> WarmShard | None:
        """This node leads the shard from now on: what was kept ready of it, for whoever takes it over."""
        self._useless.discard(shard)
        self._begun.pop(shard, None)
        warm = self._warm.pop(shard, None)
        return None if warm is None or warm.useless else warm

    def take_some(self) -> bool:
        """A slice of each shard. Whether there may be more already."""
        more = [self._step(shard) for shard in self._behind()]
        return any(more)

    async def run(self) -> None:
        """Each slice is taken in a thread: one large batch holds nobody up."""
        while True:
            for shard in self._behind():
                while (warm := self._of(shard)) is not None:
                    more = await asyncio.to_thread(warm.take_some)
                    self._judge(warm)
                    if not more:
                        break
                    await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(LOOK_S)

    def _step(self, shard: int) -> bool:
        warm = self._of(shard)
        if warm is None:
            return False
        more = warm.take_some()
        self._judge(warm)
        return more

    def _behind(self) -> list[int]:
        """Those copied here of which more is committed than was taken in. What was kept of others goes."""
        copied, behind = self._copied(), []
        for shard in range(self._shards):
            if TopicPartition(self._topic, shard) not in copied:
                self._warm.pop(shard, None)
            elif shard not in self._useless and ((warm := self._warm.get(shard)) is None or warm.behind):
                behind.append(shard)
        return behind

    def _of(self, shard: int) -> WarmShard | None:
        """What is kept ready of the shard, begun where there is nothing; None where nothing is to be."""
        if TopicPartition(self._topic, shard) not in self._copied() or shard in self._useless:
            return None
        if shard not in self._warm:
            if self._begun.get(shard, 0) >= MAX_BEGINNINGS:
                self._useless.add(shard)
                self._tell(shard, f"its log was cut {MAX_BEGINNINGS} times")
                return None
            try:
                self._warm[shard] = self._make(shard, self._new_core(shard), self._log, threading.Lock(), self._tell)
            except LogFailed:
                return None
            self._begun[shard] = self._begun.get(shard, 0) + 1
        return self._warm[shard]

    def _judge(self, warm: WarmShard) -> None:
        """One that was cut is begun anew; one that is of no use for another reason is not, until the shard was led."""
        if not warm.useless or self._warm.get(warm.shard) is not warm:
            return
        del self._warm[warm.shard]
        if not warm.cut:
            self._useless.add(warm.shard)


def log_unfit(shard: int, why: str) -> None:
    """Once for each core: it is of no use from then on."""
    logger.warning("a standby of groups is not kept in memory; a takeover will have to load them", shard=shard, why=why)


def tell_ids_unfit(shard: int, why: str) -> None:
    """As `log_unfit`, of transactional ids."""
    logger.warning(
        "a standby of transactional ids is not kept in memory; a takeover will have to load them", shard=shard, why=why
    )
