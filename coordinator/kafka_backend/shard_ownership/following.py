"""KB-E4: which clients' transactions are open in a shard that is served, and what its log says of them.

While positions of a transaction wait, the log is read on, from before them, until its marker is there: the marker
decides, and of what it commits counts what nothing behind it was written over. While none waits nothing is read.
"""

from typing import Final

from muster.coordinator.kafka_backend.shard_ownership.append_queues import back_off_ms
from muster.coordinator.kafka_backend.shard_ownership.client_writes import ClientWrites
from muster.coordinator.kafka_backend.shard_ownership.effects import FollowLog, TransactionEnded, TransactionPending
from muster.coordinator.kafka_backend.shard_ownership.events import (
    AppendClientOffsets,
    ClientBatchAnswered,
    LogFetched,
    ProducerDescribed,
    RequestWithoutAnswer,
)
from muster.coordinator.kafka_backend.shard_ownership.facts import NEVER
from muster.coordinator.kafka_backend.shard_ownership.ground import OwnershipContext
from muster.coordinator.kafka_backend.shard_ownership.voids import LogBatch, ShardReplay

PAUSE_MS: Final = 10
"""Until it is asked again where nothing came: the asking itself waits for something to come."""

UNKNOWN_TRANSACTION: Final = "a client's transaction is open in its log of which nothing is known here"
OUTCOME_LATE: Final = "nobody could say for engine.kafka.delivery.timeout.ms what became of a client's positions"
OUTCOME_IN_DOUBT: Final = "a client's positions were refused, and an attempt before may have brought them into its log"
LOG_SHORTER: Final = "its log is shorter than it was"


class OpenTransactions:
    """Of one shard, from when it is served until it is not.

    Each of `heard` and `look` returns why the shard has to be taken anew; "": it has not.
    """

    __slots__ = ("_again_ms", "_end", "_ground", "_open", "_replay", "_request", "_shard", "_tries", "writes")

    def __init__(self, shard: int, ground: OwnershipContext, replay: ShardReplay) -> None:
        """replay: as far as the shard was read; what waits in it is told (`TransactionPending`)."""
        self._shard = shard
        self._ground = ground
        self._replay = replay
        self._end = replay.position
        self._open = {producer_id: NEVER for producer_id, waiting in replay.pending.items() if waiting}
        """By producer id: the offset up to which something of it is there."""
        self._request = 0
        self._tries = 0
        self._again_ms = NEVER
        self.writes = ClientWrites(shard, ground)
        for producer_id in sorted(self._open):
            records = sorted(replay.pending[producer_id].values(), key=lambda record: record.offset)
            ground.out.append(TransactionPending(shard, producer_id, records))

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
            return self._told(event)
        if isinstance(event, ClientBatchAnswered):
            write = self.writes.answered(event)
            if write is not None:
                self._open[write.client.producer.id] = event.offset
                self.acked(event.offset + len(write.records))
        elif isinstance(event, RequestWithoutAnswer):
            self.writes.failed(event)
        return ""

    def _told(self, event: ProducerDescribed) -> str:
        """An open transaction of which nothing is known is what an owner before wrote as he was one no more."""
        write = self.writes.told(event, self._end)
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
        if all(self._take(batch) for batch in event.batches):
            replay.position = max(replay.position, event.next_offset)
        self._end = max(self._end, replay.position)
        self._again_ms = self._ground.now_ms + (PAUSE_MS if replay.position == before else 0)
        return ""

    def _take(self, batch: LogBatch) -> bool:
        """False: the marker of a producer of which something may be in front of it that is not told yet. It is read
        again, later."""
        replay, producer_id = self._replay, batch.producer.id
        if batch.next_offset <= replay.position:
            return True
        if batch.marker is not None and self.writes.may_be_there(producer_id):
            return False
        records = replay.take(batch)
        if batch.marker is not None and producer_id in self._open:
            if self._open[producer_id] < batch.base_offset:  # else there is something of its next transaction
                del self._open[producer_id]
            self._ground.out.append(
                TransactionEnded(self._shard, batch.producer, batch.marker, records, batch.base_offset)
            )
        return True

    def _failed(self) -> str:
        self._tries += 1
        self._again_ms = self._ground.now_ms + back_off_ms(self._ground.settings.limits, self._tries)
        return ""

    # What is done.

    @property
    def _is_idle(self) -> bool:
        """There are no transactions, as in most shards at most times: it is asked with each commit."""
        return not self._open and self.writes.is_empty and not self.writes.in_doubt

    def look(self) -> str:
        """What may be asked and written now; only while the lease holds (KB-F7)."""
        ground = self._ground
        if self._is_idle:
            return ""
        if self.writes.is_late:
            return OUTCOME_LATE
        if self.writes.in_doubt:
            return OUTCOME_IN_DOUBT
        if not ground.may_write:
            return ""
        for write in self.writes.ready():
            if not self._open and not self.writes.under_way:
                # Nothing of a client's is in front of where the log ends now.
                self._replay.position = max(self._replay.position, self._end)
            self.writes.go(write)
        if self._open and not self._request and self._again_ms <= ground.now_ms:
            self._request = ground.number()
            ground.out.append(FollowLog(self._shard, self._request, self._replay.position))
        return ""

    def wish(self) -> int | None:
        """When to look again, at the latest."""
        if self._is_idle or not self._ground.may_write:
            return None
        wanted = [self.writes.wish()]
        if self._open and not self._request:
            wanted.append(self._again_ms)
        return min((each for each in wanted if each is not None), default=None)
