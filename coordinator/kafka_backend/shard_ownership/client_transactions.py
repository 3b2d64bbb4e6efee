"""Offsets that a client's transaction commits: written under the client's producer, then followed until their marker.

Each write is a batch of its own next to the shard's batches: only its client waits for it, and the log tells which
came first. One write per producer is in flight. Its sequences are Muster's (KB-E2, KB-E3): they go on over all
transactions of an epoch, and start at 0 in the next. After a take-over they are unknown (what a compacted log still
has of a producer proves nothing), and a sequence that was used before would be taken for a duplicate: so the broker
is asked first. For a producer that it does not know it accepts any sequence as the first one (Kafka's
ProducerAppendInfo). The log's end is used then: each batch takes as many offsets as sequences, so that number was
never used. 0 may have been, by a producer that this broker has forgotten and the next leader has not
(`producer.id.expiration.ms`).

While offsets of a transaction are pending, the log is read on, from before them, until the transaction's marker is
there (KB-E4). The marker decides; of what it commits, only records that nothing later has overwritten count. While
none is pending nothing is read.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from muster.coordinator.kafka_backend.shard_ownership.append_queues import (
    DONE,
    MAX_SEQUENCE,
    NEVER_FITS,
    RECORD_BYTES,
    back_off_ms,
)
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import (
    AppendClientOffsets,
    ClientBatchAnswered,
    ClientWriteOutcome,
    DescribeProducer,
    FollowLog,
    LogFetched,
    ProducerDescribed,
    RequestWithoutAnswer,
    TransactionEnded,
    TransactionPending,
    WriteClientBatch,
)
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipContext
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    NEVER,
    LogBatch,
    NewRecord,
    ShardBatch,
    ShardReplay,
    TransactionalClient,
)

# Offsets written under a client's producer (KB-E2, KB-E3)
# --------------------------------------------------------

OTHER_SEQUENCE: Final = frozenset({45, 59})
"""OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID."""
RETRIABLE: Final = frozenset({14, 15, 16, 19, 51, 74, 75})
"""It is not in the log, and may be next time: too few in sync, Kafka's own transaction coordinator busy."""
OUTCOME_UNKNOWN: Final = frozenset({3, 5, 6, 7, 20, 56})
"""It may be in the log: REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND; and what a broker says that leads no more,
has the partition no more, or lost its disk: of what came too late for it, and of what it had appended before, and the
next leader may have (Kafka's DelayedProduce)."""
NOT_WRITTEN: Final = frozenset({2, 10, 15, 18, 29, 47, 48, 53, 87, 90, 120})
"""It is not in the log, and never will be. Behind any other code nobody knows that, nor which sequence is the next: a
broker that had appended it would take another batch of the same numbers for this one."""
MESSAGE_TOO_LARGE: Final = 10
INVALID_PRODUCER_EPOCH: Final = 47
"""INVALID_PRODUCER_EPOCH: what a broker says to an epoch that is over."""
UNKNOWN_PRODUCER_STATE: Final = (-1, 0)
"""The epoch and sequence of a producer of which nothing is known."""

MOST_TRIES: Final = 4
"""Of what is known not to be in the log: one client's trouble is not to last."""
MOST_ASKED: Final = 2
"""Times that one write has the broker asked for its producer's sequence."""
MOST_REMEMBERED: Final = 10_000
"""Producers of one shard whose sequences are kept."""


class ClientWrite:
    """unsure: it may be in the log, and no answer has told. request: the number that is waited for; 0: none is."""

    __slots__ = ("again_ms", "asked", "batch", "client", "records", "request", "since_ms", "size", "token", "tries",
                 "unsure")  # fmt: skip

    def __init__(self, event: AppendClientOffsets, size: int, now_ms: int) -> None:
        self.token = event.token
        self.client: TransactionalClient = event.client
        self.records: Sequence[NewRecord] = event.records
        self.size = size
        self.since_ms = self.again_ms = now_ms
        self.tries = self.asked = self.request = 0
        self.unsure = False
        self.batch: ShardBatch | None = None

    @property
    def may_be_there(self) -> bool:
        return self.unsure or (self.batch is not None and self.request > 0)


class ClientWrites:
    """Of one shard, while it is served. size: bytes that wait, or are under way. in_doubt: one was refused, and an
    attempt before may have brought it into the log."""

    __slots__ = ("_context", "_queues", "_requests", "_sequences", "_shard", "in_doubt", "size")

    def __init__(self, shard: int, context: OwnershipContext) -> None:
        self._shard = shard
        self._context = context
        self._queues: dict[int, deque[ClientWrite]] = {}
        self._requests: dict[int, ClientWrite] = {}
        self._sequences: dict[int, tuple[int, int]] = {}
        self.size = 0
        self.in_doubt = False

    @property
    def is_empty(self) -> bool:
        return not self._queues

    @property
    def under_way(self) -> bool:
        """Whether something may be in the log of which nothing was heard yet."""
        return any(queue[0].may_be_there for queue in self._queues.values())

    def may_be_there(self, producer_id: int) -> bool:
        """The same of one producer."""
        queue = self._queues.get(producer_id)
        return queue is not None and queue[0].may_be_there

    def waits_for(self, request: int) -> bool:
        return request in self._requests

    def add(self, event: AppendClientOffsets) -> None:
        size = event.size + RECORD_BYTES * len(event.records)
        if size > self._context.settings.limits.batch_bytes:
            self._context.out.append(ClientWriteOutcome(self._shard, event.token, MESSAGE_TOO_LARGE))
            return
        self._queues.setdefault(event.client.producer.id, deque()).append(
            ClientWrite(event, size, self._context.now_ms)
        )
        self.size += size

    # What is heard.

    def apply_description(self, event: ProducerDescribed, end: int) -> ClientWrite | None:
        """Where the producer's sequences stand. The write that wants to know it; None: it has to ask again. end: where
        the log ends, as far as is known."""
        write = self._over(event.request)
        if event.code:
            self._not_now(write)
            return None
        producer = write.client.producer
        if event.epoch < 0:
            self._remember(producer.id, producer.epoch, end & MAX_SEQUENCE)
        elif event.epoch < producer.epoch:
            self._remember(producer.id, producer.epoch, 0)
        else:
            self._remember(producer.id, event.epoch, (event.last_sequence + 1) & MAX_SEQUENCE)
        write.again_ms = self._context.now_ms
        return write

    def failed(self, event: RequestWithoutAnswer) -> None:
        write = self._over(event.request)
        write.unsure = write.unsure or write.batch is not None
        self._not_now(write)

    def answered(self, event: ClientBatchAnswered) -> ClientWrite | None:
        """What the broker says of a write. The write, where it is in the log."""
        write = self._over(event.request)
        if event.code in DONE and event.offset >= 0:
            assert write.batch is not None
            producer = write.client.producer
            self._remember(producer.id, producer.epoch, (write.batch.sequence + len(write.records)) & MAX_SEQUENCE)
            self._end(write, 0, event.offset)
            return write
        if event.code in DONE or event.code in OUTCOME_UNKNOWN:
            write.unsure = True
            self._not_now(write)
        elif event.code in RETRIABLE:
            self._not_now(write)
        elif event.code in OTHER_SEQUENCE and write.asked < MOST_ASKED:
            self._sequences.pop(write.client.producer.id, None)
            write.batch = None
        else:
            self._refused(write, event.code)
        return None

    def _over(self, request: int) -> ClientWrite:
        write = self._requests.pop(request)
        write.request = 0
        return write

    def _not_now(self, write: ClientWrite) -> None:
        write.tries += 1
        write.again_ms = self._context.now_ms + back_off_ms(self._context.settings.limits, write.tries)
        if write.tries >= MOST_TRIES and not write.unsure:
            self._refused(write, 15)

    def _refused(self, write: ClientWrite, code: int) -> None:
        self.in_doubt = self.in_doubt or write.unsure
        if code not in NOT_WRITTEN:
            self._sequences.pop(write.client.producer.id, None)
        self._end(write, MESSAGE_TOO_LARGE if code in NEVER_FITS else code, -1)

    def _end(self, write: ClientWrite, code: int, offset: int) -> None:
        queue = self._queues[write.client.producer.id]
        assert queue[0] is write, "one of a producer is under way"
        queue.popleft()
        if not queue:
            del self._queues[write.client.producer.id]
        self.size -= write.size
        self._context.out.append(ClientWriteOutcome(self._shard, write.token, code, offset))

    def _remember(self, producer_id: int, epoch: int, sequence: int) -> None:
        """The latest come last."""
        self._sequences.pop(producer_id, None)
        self._sequences[producer_id] = epoch, sequence
        if len(self._sequences) > MOST_REMEMBERED:
            del self._sequences[next(iter(self._sequences))]

    # What is done.

    def ready(self) -> list[ClientWrite]:
        """Those whose turn it is."""
        firsts = [queue[0] for queue in self._queues.values()]
        return [write for write in firsts if not write.request and write.again_ms <= self._context.now_ms]

    def go(self, write: ClientWrite) -> None:
        """Write it, or ask where its producer stands. Of an epoch that is over nothing is written."""
        producer = write.client.producer
        if self._sequences.get(producer.id, UNKNOWN_PRODUCER_STATE)[0] > producer.epoch:
            self._refused(write, INVALID_PRODUCER_EPOCH)
            return
        write.request = self._context.number()
        self._requests[write.request] = write
        if write.batch is None:
            sequence = self._sequence(producer.id, producer.epoch)
            if sequence is None:
                write.asked += 1
                self._context.out.append(DescribeProducer(self._shard, write.request, producer.id))
                return
            write.batch = ShardBatch(
                self._shard, producer, sequence, write.records, write.size, 0, write.client.transactional_id
            )
        timeout_ms = self._context.settings.limits.request_timeout_ms
        self._context.out.append(WriteClientBatch(self._shard, write.request, write.batch, timeout_ms))

    def _sequence(self, producer_id: int, epoch: int) -> int | None:
        """Of the producer's next batch; None: not known. In an epoch above one of which something was written here
        nothing was yet."""
        if producer_id not in self._sequences:
            return None
        known, sequence = self._sequences[producer_id]
        return sequence if known == epoch else 0

    @property
    def is_late(self) -> bool:
        """KB-A4: nobody could say for too long what became of one. The log can."""
        most = self._context.settings.limits.delivery_timeout_ms
        return any(
            queue[0].unsure and self._context.now_ms - queue[0].since_ms >= most for queue in self._queues.values()
        )

    def wish(self) -> int | None:
        """When to look again, at the latest."""
        firsts = [queue[0] for queue in self._queues.values()]
        wanted = [write.again_ms for write in firsts if not write.request]
        most = self._context.settings.limits.delivery_timeout_ms
        wanted += [write.since_ms + most for write in firsts if write.unsure]
        return min(wanted, default=None)


# Open transactions, until their marker (KB-E4)
# ---------------------------------------------

PAUSE_MS: Final = 10
"""Until it is asked again where nothing came: the asking itself waits for something to come."""

UNKNOWN_TRANSACTION: Final = "a client's transaction is open in its log of which nothing is known here"
OUTCOME_LATE: Final = "nobody could say for engine.kafka.delivery.timeout.ms what became of a client's positions"
OUTCOME_IN_DOUBT: Final = "a client's positions were refused, and an attempt before may have brought them into its log"
LOG_SHORTER: Final = "its log is shorter than it was"


class OpenTransactions:
    """Of one shard, from when it is served until it is not.

    Each of `heard` and `advance_writes` returns why the shard has to be taken anew; "": it has not.
    """

    __slots__ = ("_again_ms", "_context", "_end", "_open", "_replay", "_request", "_shard", "_tries", "writes")

    def __init__(self, shard: int, context: OwnershipContext, replay: ShardReplay) -> None:
        """replay: as far as the shard was read; what waits in it is told (`TransactionPending`)."""
        self._shard = shard
        self._context = context
        self._replay = replay
        self._end = replay.position
        self._open = {producer_id: NEVER for producer_id, waiting in replay.pending.items() if waiting}
        """By producer id: the offset up to which something of it is there."""
        self._request = 0
        self._tries = 0
        self._again_ms = NEVER
        self.writes = ClientWrites(shard, context)
        for producer_id in sorted(self._open):
            records = sorted(replay.pending[producer_id].values(), key=lambda record: record.offset)
            context.out.append(TransactionPending(shard, producer_id, records))

    @property
    def open(self) -> int:
        """Transactions whose marker is waited for."""
        return len(self._open)

    # What is heard.

    def acked(self, upto: int) -> None:
        """The shard's own batches up to there are in the log."""
        self._end = max(self._end, upto)

    def append(self, event: AppendClientOffsets) -> None:
        self.writes.add(event)

    def heard(self, event: LogFetched | RequestWithoutAnswer | ProducerDescribed | ClientBatchAnswered) -> str:
        """An answer; one that nobody waits for is dropped."""
        if event.request == self._request and isinstance(event, LogFetched | RequestWithoutAnswer):
            self._request = 0
            return self._fetched(event) if isinstance(event, LogFetched) else self._failed()
        if not self.writes.waits_for(event.request):
            return ""
        if isinstance(event, ProducerDescribed):
            return self._apply_description(event)
        if isinstance(event, ClientBatchAnswered):
            write = self.writes.answered(event)
            if write is not None:
                self._open[write.client.producer.id] = event.offset
                self.acked(event.offset + len(write.records))
        elif isinstance(event, RequestWithoutAnswer):
            self.writes.failed(event)
        return ""

    def _apply_description(self, event: ProducerDescribed) -> str:
        """An open transaction of which nothing is known is what an owner before wrote as he was one no more."""
        write = self.writes.apply_description(event, self._end)
        if write is None or event.open_at < 0 or write.unsure:
            return ""
        producer_id = write.client.producer.id
        return "" if producer_id in self._open or producer_id in self._replay.pending else UNKNOWN_TRANSACTION

    def _fetched(self, event: LogFetched) -> str:
        replay = self._replay
        if event.code == 1:
            return LOG_SHORTER
        if event.code:
            return self._failed()
        self._tries, before = 0, replay.position
        if all(self._replay_batch(batch) for batch in event.batches):
            replay.position = max(replay.position, event.next_offset)
        self._end = max(self._end, replay.position)
        self._again_ms = self._context.now_ms + (PAUSE_MS if replay.position == before else 0)
        return ""

    def _replay_batch(self, batch: LogBatch) -> bool:
        """False: the marker of a producer of which something may be in front of it that is not told yet. It is read
        again, later."""
        replay, producer_id = self._replay, batch.producer.id
        if batch.next_offset <= replay.position:
            return True
        if batch.marker is not None and self.writes.may_be_there(producer_id):
            return False
        records = replay.replay_batch(batch)
        if batch.marker is not None and producer_id in self._open:
            if self._open[producer_id] < batch.base_offset:  # else there is something of its next transaction
                del self._open[producer_id]
            self._context.out.append(
                TransactionEnded(self._shard, batch.producer, batch.marker, records, batch.base_offset)
            )
        return True

    def _failed(self) -> str:
        self._tries += 1
        self._again_ms = self._context.now_ms + back_off_ms(self._context.settings.limits, self._tries)
        return ""

    # What is done.

    @property
    def _is_idle(self) -> bool:
        """There are no transactions, as in most shards at most times: it is asked with each commit."""
        return not self._open and self.writes.is_empty and not self.writes.in_doubt

    def advance_writes(self) -> str:
        """What may be asked and written now; only while the lease holds (KB-F7)."""
        context = self._context
        if self._is_idle:
            return ""
        if self.writes.is_late:
            return OUTCOME_LATE
        if self.writes.in_doubt:
            return OUTCOME_IN_DOUBT
        if not context.may_write:
            return ""
        for write in self.writes.ready():
            if not self._open and not self.writes.under_way:
                # Nothing of a client's is in front of where the log ends now.
                self._replay.position = max(self._replay.position, self._end)
            self.writes.go(write)
        if self._open and not self._request and self._again_ms <= context.now_ms:
            self._request = context.number()
            context.out.append(FollowLog(self._shard, self._request, self._replay.position))
        return ""

    def wish(self) -> int | None:
        """When to look again, at the latest."""
        if self._is_idle or not self._context.may_write:
            return None
        wanted = [self.writes.wish()]
        if self._open and not self._request:
            wanted.append(self._again_ms)
        return min((each for each in wanted if each is not None), default=None)
