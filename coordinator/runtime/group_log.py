"""The group log on a broker: two internal topics with one partition each per shard."""

import errno
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from muster.coordinator.core.model.records import TxnMarked
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.ports import (
    Entry,
    KeyValue,
    LogDamage,
    LogFailed,
    Read,
    TxnBatchRead,
    TxnMarkerFound,
    TxnProducer,
)
from muster.coordinator.runtime.replay import GROUPS_TOPIC, LEDGER_TOPIC
from muster.storage.broker.broker import Broker
from muster.storage.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    StorageError,
    TransactionCoordinatorFenced,
)
from muster.storage.files import Buffer
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.records.batch import (
    BatchView,
    TurnBody,
    checksum_error,
    encode_turn,
    encode_written,
    read_batches,
)
from muster.storage.records.markers import read_marker
from muster.storage.types import AppendOrigin, Fetched

READ_BYTES = 4 << 20
"""How much of the log one step of a replay holds in memory."""

BATCH_BYTES = 8 << 20
"""Keys and values that one batch takes. A turn that decided more is written as several, in order."""


RECORD_BYTES = 32
"""What a record takes in a batch beside its key and its value, at most."""

NO_SEQUENCE = -1

MAX_LOSSES = 100
"""Losses that are kept until somebody asks; beyond that the oldest go."""


class PartitionCountConflict(ValueError):
    """The data directory was made with another number of partitions than the settings say."""


class FramedEntries(list[Entry]):
    """Records of one topic, and their bytes as a batch has them, made as they come by `extend`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = TurnBody()

    def extend(self, records: Iterable[Entry]) -> None:
        some = list(records)
        super().extend(some)
        self.body.add(some)


TRANSACTION_REFUSALS = (InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced)
"""What the log says of a producer, and not of itself."""


class BrokerGroupLog:
    """A `GroupLog` kept by a broker. Makes the two topics when they are missing.

    Groups are spread by a hash over the number of partitions, so the number cannot change under existing data: when
    the topics are there already, `partitions` must be theirs. Raises PartitionCountConflict otherwise.
    """

    def __init__(self, broker: Broker, partitions: int, segment_bytes: int) -> None:
        self._broker = broker
        self._batch_bytes = min(BATCH_BYTES, segment_bytes // 2)
        self._losses: deque[str] = deque(maxlen=MAX_LOSSES)
        self._make_topics(partitions, segment_bytes)

    def _make_topics(self, partitions: int, segment_bytes: int) -> None:
        broker = self._broker
        present = broker.topics()
        for topic in (GROUPS_TOPIC, LEDGER_TOPIC):
            if topic in present and present[topic].partitions != partitions:
                raise PartitionCountConflict(
                    f"offsets.topic.num.partitions is {partitions}, but the data directory's {topic} has "
                    f"{present[topic].partitions} partitions and every group's place depends on it; set it to "
                    f"{present[topic].partitions}, or use another data directory"
                )
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(segment_bytes),
            # A turn's batch is as large as it is; only a segment bounds it.
            "max.message.bytes": str(segment_bytes),
        }
        for topic in (GROUPS_TOPIC, LEDGER_TOPIC):
            if topic not in present:
                broker.create_topic(topic, partitions, configs, internal=True)

    def draft(self) -> list[Entry]:
        return FramedEntries()

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        # The ledger goes first: an explanation without its generation is harmless, the reverse is a gap.
        if ledger:
            try:
                self._append(LEDGER_TOPIC, shard, ledger, now_ms)
            except LogFailed as error:
                self._losses.append(f"{len(ledger)} explanations of rebalances could not be written: {error}")
        self._append(GROUPS_TOPIC, shard, groups, now_ms)

    def _append(self, topic: str, shard: int, records: Sequence[Entry], now_ms: int) -> None:
        for batch in encode_batches(records, now_ms, self._batch_bytes):
            try:  # every commit comes here: no call more than it takes
                self._broker.append(topic, shard, batch, now_ms, origin=AppendOrigin.COORDINATOR)
            except (StorageError, OSError) as error:
                raise LogFailed(f"{topic}-{shard}: {error}", no_room=is_out_of_room(error)) from error

    def append_in_transaction(
        self, shard: int, producer: TxnProducer, groups: Sequence[Entry], guard: object | None, now_ms: int
    ) -> None:
        assert guard is None or isinstance(guard, TransactionGuard), f"{guard!r} is no guard of a log"
        for batch in encode_batches(groups, now_ms, self._batch_bytes, producer):
            self._write(GROUPS_TOPIC, shard, partial(self._append_batch, GROUPS_TOPIC, shard, batch, now_ms, guard))

    def append_marker(self, shard: int, marker: TxnMarked, now_ms: int) -> None:
        wanted = marker_to_write(marker)
        self._write(GROUPS_TOPIC, shard, lambda: self._broker.append_marker(GROUPS_TOPIC, shard, wanted, now_ms))

    def transaction_refusal(self, shard: int, producer: TxnProducer, guard: object | None) -> ErrorCode:
        assert guard is None or isinstance(guard, TransactionGuard), f"{guard!r} is no guard of a log"
        return self._refusal(shard, lambda log: log.check_transaction(*producer, guard))

    def marker_refusal(self, shard: int, marker: TxnMarked) -> ErrorCode:
        return self._refusal(shard, lambda log: log.check_marker(marker_to_write(marker)))

    def _refusal(self, shard: int, check: Callable[[Log], None]) -> ErrorCode:
        try:
            check(self._broker.log(GROUPS_TOPIC, shard))
        except TRANSACTION_REFUSALS as refusal:
            return ErrorCode(refusal.code)
        except StorageError as error:
            raise LogFailed(f"{GROUPS_TOPIC}-{shard}: {error}") from error
        return ErrorCode.NONE

    def _append_batch(
        self, topic: str, shard: int, batch: Buffer, now_ms: int, guard: TransactionGuard | None = None
    ) -> None:
        self._broker.append(topic, shard, batch, now_ms, origin=AppendOrigin.COORDINATOR, guard=guard)

    def _write(self, topic: str, shard: int, append: Callable[[], object]) -> None:
        """Raises LogFailed."""
        try:
            append()
        except (StorageError, OSError) as error:
            raise LogFailed(f"{topic}-{shard}: {error}", no_room=is_out_of_room(error)) from error

    def take_losses(self) -> list[str]:
        """What could not be written of the ledger since the last call, a sentence each. Any thread."""
        losses = []
        while self._losses:
            losses.append(self._losses.popleft())
        return losses

    def flush(self, shards: Sequence[int]) -> None:
        try:
            self._broker.flush(log_places(LEDGER_TOPIC, shards))
        except (StorageError, OSError):
            for shard in shards:
                self._flush_ledger(shard)
        try:
            self._broker.flush(log_places(GROUPS_TOPIC, shards))
        except (StorageError, OSError) as error:
            # One bad file must not take the others' shards along: find out which it is.
            failed = [shard for shard in shards if not self._can_flush(shard)]
            raise LogFailed(str(error), failed or shards) from error

    def read_groups(self, shard: int) -> Iterator[Read | LogDamage]:
        for item in self._read(GROUPS_TOPIC, shard):
            if isinstance(item, LogDamage) and not item.given_up:
                raise LogFailed(f"{GROUPS_TOPIC}-{shard}: {item.sentence}")
            yield item

    def read_ledger(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        return (item for item in self._read(LEDGER_TOPIC, shard) if isinstance(item, KeyValue | LogDamage))

    def _flush_ledger(self, shard: int) -> None:
        try:
            self._broker.flush(log_places(LEDGER_TOPIC, [shard]))
        except (StorageError, OSError) as error:
            self._losses.append(f"explanations of rebalances could not be flushed: {LEDGER_TOPIC}-{shard}: {error}")

    def _can_flush(self, shard: int) -> bool:
        try:
            self._broker.flush(log_places(GROUPS_TOPIC, [shard]))
        except (StorageError, OSError):
            return False
        return True

    def _read(self, topic: str, shard: int) -> Iterator[Read | LogDamage]:
        offset = end = 0
        try:
            # What is not durable cannot be fetched, and after a failure in this process there may be such records.
            if topic == LEDGER_TOPIC:
                self._flush_ledger(shard)
            else:
                self._broker.flush([(topic, shard)])
            offset = self._broker.start_offset(topic, shard)
            end = self._broker.end_offset(topic, shard)
            while offset < end:
                fetched = self._fetch(topic, shard, offset)
                batches = list(read_batches(fetched.records))
                yield from records_from(offset, batches)
                next_offset = batches[-1].next_offset if batches else offset
                if next_offset <= offset:
                    raise OSError(f"nothing can be read at offset {offset}, but it ends at {end}")
                offset = next_offset
        except (StorageError, OSError) as error:
            if topic != LEDGER_TOPIC or not end:
                raise LogFailed(f"{topic}-{shard}: {error}") from error
            yield LogDamage(offset, str(error), end)

    def _fetch(self, topic: str, shard: int, offset: int) -> Fetched:
        return self._broker.fetch(topic, shard, offset, READ_BYTES, min_one=True)


def records_from(offset: int, batches: Iterable[BatchView]) -> Iterator[Read | LogDamage]:
    """What batches of an internal topic have from an offset on; of a damaged one that it is, and why. What transactions
    wrote comes by batches, and their markers in between."""
    for batch in batches:
        if not batch.crc_ok:
            yield LogDamage(batch.base_offset, str(checksum_error(batch)), batch.next_offset)
        elif batch.lost:
            yield LogDamage(batch.base_offset, describe_lost_batch(batch), batch.next_offset, given_up=True)
        elif batch.control:
            marker = read_marker(batch) if batch.next_offset > offset else None
            if marker is not None:
                yield TxnMarkerFound(producer_of(batch), not marker.aborted, batch.last_offset)
        elif batch.transactional:
            records = tuple(records_since(offset, batch))
            if records:
                yield TxnBatchRead(producer_of(batch), records)
        else:
            yield from records_since(offset, batch)


def records_since(offset: int, batch: BatchView) -> Iterator[KeyValue]:
    for record in batch.records():
        if record.offset >= offset:
            yield KeyValue(record.key or b"", record.value, record.offset)


def producer_of(batch: BatchView) -> TxnProducer:
    return TxnProducer(batch.producer_id, batch.producer_epoch)


def marker_to_write(marker: TxnMarked) -> MarkerToWrite:
    return MarkerToWrite(marker.producer_id, marker.epoch, marker.commit, marker.coordinator_epoch, marker.level)


def describe_lost_batch(batch: BatchView) -> str:
    return f"the records up to offset {batch.last_offset} could not be read and were given up ('muster log recover')"


def is_out_of_room(error: BaseException | None) -> bool:
    """Whether it is the disk, or the quota, that has no room."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


def log_places(topic: str, shards: Sequence[int]) -> list[tuple[str, int]]:
    return [(topic, shard) for shard in shards]


def encode_batches(
    records: Sequence[Entry], now_ms: int, batch_bytes: int = BATCH_BYTES, producer: TxnProducer | None = None
) -> Iterable[bytes]:
    """The records as one batch, of this producer's transaction if it has one; as several where that is too large."""
    if not records:
        return ()
    if isinstance(records, FramedEntries):
        whole = records.body.sealed(now_ms, producer)
    else:
        whole = encode_turn(records, now_ms) if producer is None else encode_one(records, now_ms, producer)
    if len(whole) <= batch_bytes:
        return (whole,)
    return (encode_one(part, now_ms, producer) for part in split_by_size(records, batch_bytes))


def encode_one(records: Sequence[Entry], now_ms: int, producer: TxnProducer | None) -> bytes:
    """As one batch. What a coordinator writes in a transaction has no sequences (TX-L2)."""
    if producer is None:
        return encode_turn(records, now_ms)
    return encode_written(records, now_ms, producer=(*producer, NO_SEQUENCE), transactional=True)


def split_by_size(records: Sequence[Entry], batch_bytes: int) -> Iterator[Sequence[Entry]]:
    """The records in order, cut where a batch would take more than so many bytes."""
    start = size = 0
    for at, (key, value, _) in enumerate(records):
        own = len(key) + len(value or b"") + RECORD_BYTES
        size += own
        if size > batch_bytes and at > start:
            yield records[start:at]
            start, size = at, own
    if start < len(records):
        yield records[start:]
