"""Reads and writes the partitions of the state topic on behalf of `ShardOwner`.

Reading turns fetched batches into the values that the rules expect, a slice at a time, so that a large log does not
block the loop (KB-S4). Writing sends what the shards of a node have decided to the leading brokers by plain
callbacks: no task, and no round of the loop, lies between the answer and the requests that wait for it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from muster.assignors.api import TopicPartition
from muster.coordinator.core.model.events import Event
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ef
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.shard_log import BatchResult, LogBatch, ProducerEpoch
from muster.coordinator.kafka_backend.state_log import StateLog, are_large, encode_batches, wires_of
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.protocol import FENCED_CODES, UpstreamError
from muster.coordinator.kafka_backend.upstream.record_requests import ProduceResult
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.storage.records.batch import BatchView


class LogOwner(Protocol):
    """`ShardOwner`, as far as it is asked here."""

    def step(self, event: ev.ShardEvent) -> None: ...

    def heard(self, event: ev.ShardEvent) -> None:
        """The same, in a call of the loop's own: what comes of it waits for nothing else."""

    def takes(self, shard: int) -> bool: ...

    def submit(self, shard: int, event: Event) -> None:
        """To the engine, at once and in order; its turn comes in the loop's next round."""

    async def leader(self, shard: int) -> int:
        """Raises UpstreamError."""

    async def count_answer(self, api: str, code: int) -> None: ...

    async def refresh_leaders(self) -> None: ...

    def start_request(self, shard: int, request: int, asking: Coroutine[Any, Any, None]) -> None:
        """Have it run; where it raises, `RequestWithoutAnswer` is the answer to the request."""

    def start_task(self, work: Coroutine[Any, Any, None]) -> None: ...


# Reading (KB-S4)
# ---------------

ABORT, COMMIT = 0, 1
"""Types of control records that end transactions."""

AT_ONCE: Final = 10_000
"""Records, about, that are looked at before others have their turn; a batch is not parted."""

LARGE_BYTES: Final = 256 << 10
MANY_RECORDS: Final = 1_000
"""From so much, or so many, on batches are decoded in a thread."""


class StateLogReader:
    """Performs what the rules want to know of the logs of shards that are taken."""

    def __init__(self, owner: LogOwner, upstream: Upstream, log: StateLog, topic: str) -> None:
        self._owner, self._upstream, self._log, self._topic = owner, upstream, log, topic
        self._ahead: dict[int, tuple[int, Sequence[LogBatch]]] = {}
        """What was fetched and not looked at yet, and the offset from which on."""

    def gone(self, shard: int) -> None:
        """It is read no more."""
        self._ahead.pop(shard, None)

    def ask_end(self, effect: ef.FindLogEnd) -> None:
        shard, place = effect.shard, (self._topic, effect.shard)

        async def ask() -> None:
            leader = await self._owner.leader(shard)
            told = (await record_requests.list_offsets(self._upstream, leader, [place]))[place]
            await self._owner.count_answer("ListOffsets", told.code)
            self._owner.step(ev.LogEndFound(shard, effect.request, told.code, told.offset))

        self._owner.start_request(shard, effect.request, ask())

    def fetch(self, effect: ef.FetchLog) -> None:
        async def ask() -> None:
            if (read := self._log.much(effect.shard)) is not None:
                await asyncio.to_thread(read.thin_out)
            at, ahead = self._ahead.pop(effect.shard, (-1, ()))
            if at == effect.offset:
                await asyncio.sleep(0)
                self._fetched(effect, ahead)
            else:
                await self._asked(effect)

        self._owner.start_request(effect.shard, effect.request, ask())

    async def _asked(self, effect: ef.FetchLog) -> None:
        place, shard, request = (self._topic, effect.shard), effect.shard, effect.request
        leader = await self._owner.leader(shard)
        told = (await record_requests.fetch(self._upstream, leader, {place: effect.offset})).get(place)
        if told is None:
            self._owner.step(ev.RequestWithoutAnswer(shard, request, "the answer leaves it out"))
            return
        await self._owner.count_answer("Fetch", told.code)
        start = told.start_offset
        if told.code == record_requests.OUT_OF_RANGE and start < 0:
            start = await record_requests.log_start(self._upstream, *place)
        if batches := await decode_batches(told.batches):
            self._fetched(effect, batches)
        else:
            self._owner.step(ev.LogFetched(shard, request, told.code, (), effect.offset, start))

    def _fetched(self, effect: ef.FetchLog, batches: Sequence[LogBatch]) -> None:
        """What came, as far as it is not too much for once."""
        upto = portion_length(batches, AT_ONCE)
        after = batches[upto - 1].next_offset
        if upto < len(batches):
            self._ahead[effect.shard] = after, batches[upto:]
        self._owner.step(ev.LogFetched(effect.shard, effect.request, 0, batches[:upto], after))


def log_batches_of(batches: Iterable[BatchView]) -> Iterator[LogBatch]:
    """Raises storage's CorruptMessage for records that do not add up."""
    for batch in batches:
        producer = ProducerEpoch(batch.producer_id, batch.producer_epoch)
        if not batch.control:
            yield LogBatch(
                batch.base_offset, batch.next_offset, producer, batch.records(), transactional=batch.transactional
            )
        elif (kind := control_type(batch)) in (ABORT, COMMIT):
            yield LogBatch(batch.base_offset, batch.next_offset, producer, marker=kind == COMMIT)
        else:
            yield LogBatch(batch.base_offset, batch.next_offset, producer)


async def decode_batches(batches: Sequence[BatchView]) -> list[LogBatch]:
    if sum(batch.size for batch in batches) > LARGE_BYTES or sum(batch.count for batch in batches) > MANY_RECORDS:
        return await asyncio.to_thread(lambda: list(log_batches_of(batches)))
    return list(log_batches_of(batches))


def portion_length(batches: Sequence[LogBatch], most: int) -> int:
    """How many of them have so many records together, about; one at least."""
    count = 0
    for at, batch in enumerate(batches):
        count += len(batch.records) + 1
        if count > most:
            return max(at, 1)
    return len(batches)


def control_type(batch: BatchView) -> int:
    """Of the one record of a control batch: its key has a version, then a type, of two bytes each; -1: none."""
    for record in batch.records():
        if record.key is not None and len(record.key) >= 4:
            return int.from_bytes(record.key[2:4], "big")
    return -1


# Writing
# -------

API: Final = "Produce"


class StateLogWriter:
    """on_acked hears after how many seconds a request was answered, on_fenced of a shard that somebody else writes,
    on_bug of a mistake of the program."""

    def __init__(
        self,
        owner: LogOwner,
        upstream: Upstream,
        topic: str,
        wall_ms: Callable[[], int],
        *,
        on_acked: Callable[[float], None],
        on_fenced: Callable[[int], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self._owner = owner
        self._upstream = upstream
        self._topic = topic
        self._wall_ms = wall_ms
        self._on_acked = on_acked
        self._on_fenced = on_fenced
        self._on_bug = on_bug
        self._stopped = False

    def stop(self) -> None:
        """What is under way may come to be; nobody is told."""
        self._stopped = True

    def write(self, effect: ef.Produce) -> None:
        stamp_ms = self._wall_ms()
        if not are_large(effect.batches):
            self._send(effect, wires_of(effect.batches, stamp_ms))
            return

        async def write() -> None:
            self._send(effect, await encode_batches(effect.batches, stamp_ms))

        self._owner.start_task(write())

    def _send(self, effect: ef.Produce, bytes_of: Mapping[int, bytes]) -> None:
        began_s = time.perf_counter()

        def told(answer: dict[TopicPartition, ProduceResult] | UpstreamError) -> None:
            if self._stopped:
                return
            try:
                self._report_produced(effect, answer, began_s)
            except Exception as error:  # it is no fault of the connection, in whose call this is
                self._on_bug(error)

        sent = {(self._topic, shard): wire for shard, wire in bytes_of.items()}
        record_requests.produce_then(self._upstream, effect.broker, sent, effect.timeout_ms, told)

    def _report_produced(
        self, effect: ef.Produce, answer: dict[TopicPartition, ProduceResult] | UpstreamError, began_s: float
    ) -> None:
        if isinstance(answer, UpstreamError):
            self._owner.heard(ev.ProduceLost(effect.broker, effect.request, str(answer)))
            return
        self._on_acked(time.perf_counter() - began_s)
        results = {shard: BatchResult(each.code, each.offset, each.start) for (_, shard), each in answer.items()}
        for result in results.values():
            self._upstream.count(API, result.code)
        self._owner.heard(ev.BatchesProduced(effect.broker, effect.request, results))
        for shard, result in results.items():
            if result.code in FENCED_CODES:
                self._on_fenced(shard)
