"""Offsets of clients' transactions in the state topic: written under their producers, and followed until the marker.

Exactly-once (KB-E1 to KB-E5), by the rules of `shard_ownership/client_transactions.py`. Shards with an open
transaction that one broker leads are read by one long poll. The core learns what is pending, and what a marker has
ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from muster.assignors.api import TopicPartition
from muster.coordinator.core.model.events import Key, TxnMarkerRead, TxnOffsetsWritten
from muster.coordinator.core.model.records import OffsetDeleted, OffsetsStored, OffsetStored
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ef
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import TransactionPending
from muster.coordinator.kafka_backend.shard_ownership.shard_log import MeasuredRecords, ShardRecord, TransactionalClient
from muster.coordinator.kafka_backend.state_log import StateLog, encode_batches
from muster.coordinator.kafka_backend.state_log_io import LogOwner, decode_batches
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.connection import CLIENTS, FOLLOW
from muster.coordinator.kafka_backend.upstream.protocol import WAIT_FOR_LEADER, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import NO_LEADER, Upstream
from muster.coordinator.runtime.kafka_records import PlainOffsets, decode_group, encode
from muster.coordinator.runtime.ports import Entry, KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord
from muster.long_work import AT_ONCE, work_through
from muster.storage.errors import StorageError

# Between records and the core's events
# -------------------------------------

PARTITION_BYTES = 4
UNKNOWN_EPOCH = -1
"""A replay keeps what waits by producer ids; nobody needs more."""


def entries(group_id: str, offsets: Mapping[TopicPartition, StoredOffset]) -> list[Entry]:
    """One record for each, in their order. Raises ValueError for a string that Kafka's format cannot hold."""
    return encode([OffsetsStored(group_id, offsets)]).groups


def decode_offset(record: ShardRecord) -> OffsetStored | None:
    """None for what is no position: whoever may write to the topic may have put it there."""
    if record.key is None:
        return None
    try:
        found = decode_group(KeyValue(record.key, record.value, record.offset))
    except MalformedRecord:
        return None
    return found if isinstance(found, OffsetStored) else None


def pending_events(effect: TransactionPending) -> Iterator[TxnOffsetsWritten]:
    """What a replay met, and found no marker of: neighbours of one group together."""
    group_id, at, plain = "", -1, PlainOffsets()
    offsets: dict[TopicPartition, StoredOffset] = {}
    for record in effect.records:
        found = decode_plain_offset(record, plain)
        if found is None:
            continue
        group, topic, partition, value = found
        if group != group_id or record.offset != at + len(offsets):
            if offsets:
                yield TxnOffsetsWritten(effect.producer_id, UNKNOWN_EPOCH, group_id, offsets, at)
            group_id, at, offsets = group, record.offset, {}
        offsets[topic, partition] = value
    if offsets:
        yield TxnOffsetsWritten(effect.producer_id, UNKNOWN_EPOCH, group_id, offsets, at)


def decode_plain_offset(record: ShardRecord, plain: PlainOffsets) -> tuple[str, str, int, StoredOffset] | None:
    """As `decode_offset`, most by the short way."""
    try:
        short = plain.read(KeyValue(record.key or b"", record.value, record.offset))
    except MalformedRecord:
        return None
    found = decode_offset(record) if short is None else None
    return short if found is None else (found.group_id, found.topic, found.partition, found.value)


def group_and_topic_of(key: bytes) -> tuple[str, str] | None:
    """The group and the topic of a position's key; None: it is none."""
    try:
        found = decode_group(KeyValue(key, None, 0))
    except MalformedRecord:
        return None
    return (found.group_id, found.topic) if isinstance(found, OffsetDeleted) else None


def split_keys(records: Iterable[ShardRecord]) -> frozenset[Key]:
    """What they are about. How a key begins, its group and topic, is read once; the partition's number ends it."""
    places: dict[bytes, tuple[str, str] | None] = {}
    found: set[Key] = set()
    for record in records:
        key = record.key or b""
        begins = key[:-PARTITION_BYTES]
        if begins not in places:
            places[begins] = group_and_topic_of(key)
        if (place := places[begins]) is not None:
            found.add((*place, int.from_bytes(key[-PARTITION_BYTES:], "big", signed=True)))
    return frozenset(found)


# Reading on until the marker (KB-E4)
# -----------------------------------

WAIT_MS: Final = 100
"""How long a broker waits for something to come. What is wanted meanwhile of another of its shards waits as long."""

PORTION: Final = 1 << 20
"""Bytes of one shard in one answer; a batch comes whole."""


POLL_EXTRA_S: Final = 2.0
"""How much longer an answer is waited for: a broker that is silent then may lead no more."""


class TransactionFollower:
    """A task for each broker that leads a shard of which something is wanted."""

    def __init__(self, owner: LogOwner, upstream: Upstream, topic: str) -> None:
        self._owner = owner
        self._upstream = upstream
        self._topic = topic
        self._wanted: dict[int, ef.FollowLog] = {}
        self._polled: set[int] = set()
        """Brokers that are asked."""

    def follow(self, effect: ef.FollowLog) -> None:
        self._wanted[effect.shard] = effect
        self._owner.start_task(self._begun(effect))

    def gone(self, shard: int) -> None:
        self._wanted.pop(shard, None)

    async def _begun(self, effect: ef.FollowLog) -> None:
        try:
            await self._owner.leader(effect.shard)
        except UpstreamError as error:
            self._failed(effect, str(error))
        else:
            self._start_polls()

    def _start_polls(self) -> None:
        """See to it that each leader is asked; a shard without one is tried again by whoever wants it."""
        for each in list(self._wanted.values()):
            broker = self._upstream.view.leader(self._topic, each.shard)
            if broker == NO_LEADER:
                self._failed(each, "nobody leads it")
            elif broker not in self._polled:
                self._polled.add(broker)
                self._owner.start_task(self._poll_on(broker))

    async def _poll_on(self, broker: int) -> None:
        """For as long as something is wanted of what it leads."""
        view = self._upstream.view
        try:
            while mine := [each for each in self._wanted.values() if view.leader(self._topic, each.shard) == broker]:
                await self._poll(broker, mine)
                view = self._upstream.view
        finally:
            self._polled.discard(broker)
        self._start_polls()

    async def _poll(self, broker: int, wanted: list[ef.FollowLog]) -> None:
        offsets = {(self._topic, each.shard): each.offset for each in wanted}
        try:
            told = await record_requests.fetch(
                self._upstream,
                broker,
                offsets,
                max_wait_ms=WAIT_MS,
                portion=PORTION,
                purpose=FOLLOW,
                within_s=POLL_EXTRA_S,
            )
        except UpstreamError as error:
            await self._owner.refresh_leaders()
            for each in wanted:
                self._failed(each, str(error))
            return
        for each in wanted:
            await self._take_portion(each, told.get((self._topic, each.shard)))

    async def _take_portion(self, asked: ef.FollowLog, told: record_requests.FetchedPortion | None) -> None:
        if told is None:
            self._failed(asked, "the answer leaves it out")
            return
        self._upstream.count("Fetch", told.code)
        if told.code:
            await self._owner.refresh_leaders()
        try:
            batches = await decode_batches(told.batches)
        except StorageError as error:
            self._failed(asked, str(error))
            return
        if self._is_over(asked):
            after = told.batches[-1].next_offset if told.batches else asked.offset
            self._owner.step(ev.LogFetched(asked.shard, asked.request, told.code, batches, after, told.start_offset))

    def _failed(self, asked: ef.FollowLog, why: str) -> None:
        if self._is_over(asked):
            self._owner.step(ev.RequestWithoutAnswer(asked.shard, asked.request, why))

    def _is_over(self, asked: ef.FollowLog) -> bool:
        """Whether it was wanted until now: what follows from it is wanted anew, and takes its place."""
        if self._wanted.get(asked.shard) is not asked:
            return False
        del self._wanted[asked.shard]
        return True


# Writing under clients' producers (KB-E2, KB-E3)
# -----------------------------------------------

NOT_COORDINATOR: Final = 16


class ClientWriteResult(NamedTuple):
    """Of one write: Kafka's code; 0: it is in the log, and waits for its marker."""

    code: int


class ClientWriteInFlight(NamedTuple):
    """What was given to be written, and who waits for it."""

    shard: int
    client: TransactionalClient
    group_id: str
    kept: Mapping[TopicPartition, StoredOffset]
    outcome: "asyncio.Future[ClientWriteResult]"


class ClientTransactions:
    """Of all shards of a node; in the thread of the loop."""

    def __init__(
        self, owner: LogOwner, upstream: Upstream, log: StateLog, topic: str, wall_ms: Callable[[], int]
    ) -> None:
        self._owner = owner
        self._upstream = upstream
        self._log = log
        self._topic = topic
        self._wall_ms = wall_ms
        self._tokens = count(1)
        self._waiting: dict[int, ClientWriteInFlight] = {}
        self._ended: dict[int, deque[ef.TransactionEnded]] = {}
        """By shard: markers of which the core is to be told once their positions have been read."""
        self.following = TransactionFollower(owner, upstream, topic)

    async def append(
        self, shard: int, client: TransactionalClient, group_id: str, kept: Mapping[TopicPartition, StoredOffset]
    ) -> ClientWriteResult:
        """Write these positions, which the core has allowed, in the client's name. Where they come into the log the
        core knows of it before whoever waits here."""
        if not self._owner.takes(shard):
            return ClientWriteResult(NOT_COORDINATOR)
        outcome: asyncio.Future[ClientWriteResult] = asyncio.get_running_loop().create_future()
        token = next(self._tokens)
        self._waiting[token] = ClientWriteInFlight(shard, client, group_id, kept, outcome)
        try:
            made = await work_through(lambda: MeasuredRecords(entries(group_id, kept)), len(kept))
        except BaseException:
            self._waiting.pop(token, None)
            raise
        if token in self._waiting:  # else the shard has gone meanwhile, and with it what the core has allowed
            self._owner.step(ev.AppendClientOffsets(shard, token, client, made, made.size))
        return await outcome

    def gone(self, shard: int) -> None:
        """The shard is served no more: who waits is told to look for its coordinator anew."""
        self.following.gone(shard)
        self._ended.pop(shard, None)
        for token, each in list(self._waiting.items()):
            if each.shard == shard:
                self._over(token, NOT_COORDINATOR)

    def _over(self, token: int, code: int) -> ClientWriteInFlight | None:
        written = self._waiting.pop(token, None)
        if written is not None and not written.outcome.done():
            written.outcome.set_result(ClientWriteResult(code))
        return written

    # -- what is to be done -------------------------------------------------------------------------------------------

    def write(self, effect: ef.WriteClientBatch) -> None:
        async def ask() -> None:
            shard, batch = effect.shard, effect.batch
            leader, place = await self._owner.leader(shard), (self._topic, shard)
            sent = {place: (await encode_batches((batch,), self._wall_ms()))[shard]}
            told = await record_requests.produce(
                self._upstream,
                leader,
                sent,
                effect.timeout_ms,
                batch.transactional_id,
                purpose=CLIENTS[batch.producer.id % len(CLIENTS)],
            )
            code, offset, *_ = told[place]
            self._upstream.count("Produce", code)
            if code in WAIT_FOR_LEADER:
                await self._owner.refresh_leaders()
            self._owner.step(ev.ClientBatchAnswered(shard, effect.request, code, offset))

        self._owner.start_request(effect.shard, effect.request, ask())

    def ask_producer(self, effect: ef.DescribeProducer) -> None:
        async def ask() -> None:
            shard = effect.shard
            leader = await self._owner.leader(shard)
            told = await record_requests.describe_producer(
                self._upstream, leader, self._topic, shard, effect.producer_id
            )
            await self._owner.count_answer("DescribeProducers", told.code)
            self._owner.step(ev.ProducerDescribed(shard, effect.request, *told))

        self._owner.start_request(effect.shard, effect.request, ask())

    def outcome(self, effect: ef.ClientWriteOutcome) -> None:
        written = self._over(effect.token, effect.code)
        if written is not None and not effect.code:
            client, group_id, kept = written.client, written.group_id, written.kept
            event = TxnOffsetsWritten(*client.producer, group_id, kept, effect.offset)
            self._owner.submit(effect.shard, event)

    def waits(self, effect: ef.TransactionPending) -> None:
        for event in pending_events(effect):
            self._owner.submit(effect.shard, event)

    def ended(self, effect: ef.TransactionEnded) -> None:
        """Tell the core, one marker of a shard after the other. The positions of many are read beside the loop."""
        if effect.shard not in self._ended and len(effect.records) <= AT_ONCE:
            self._tell_ended(effect, split_keys(effect.records))
            return
        ended = self._ended.setdefault(effect.shard, deque())
        ended.append(effect)
        if len(ended) == 1:
            self._owner.start_task(self._tell_many_ended(effect.shard, ended))

    async def _tell_many_ended(self, shard: int, ended: deque[ef.TransactionEnded]) -> None:
        try:
            while ended:
                keys = await work_through(partial(split_keys, ended[0].records), len(ended[0].records))
                if self._ended.get(shard) is not ended:
                    return  # the shard has gone meanwhile
                self._tell_ended(ended.popleft(), keys)
        finally:
            if self._ended.get(shard) is ended:
                del self._ended[shard]

    def _tell_ended(self, effect: ef.TransactionEnded, counts: frozenset[Key]) -> None:
        self._owner.submit(effect.shard, TxnMarkerRead(*effect.producer, effect.committed, counts, effect.offset))
        if counts and self._log.on_positions is not None:
            self._log.on_positions(effect.shard, {group for group, _, _ in counts})
