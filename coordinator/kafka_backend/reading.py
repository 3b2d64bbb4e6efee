"""What is read from the state topic, and how: batches as the rules want to see them, a slice at a time (KB-S4)."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from muster.coordinator.kafka_backend.owner import LogOwner
from muster.coordinator.kafka_backend.shard_ownership import effects as ef
from muster.coordinator.kafka_backend.shard_ownership import events as ev
from muster.coordinator.kafka_backend.shard_ownership.facts import ProducerEpoch
from muster.coordinator.kafka_backend.shard_ownership.voids import LogBatch
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.kafka_backend.upstream import records
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.storage.records.batch import BatchView

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
            told = (await records.list_offsets(self._upstream, leader, [place]))[place]
            await self._owner.told("ListOffsets", told.code)
            self._owner.step(ev.LogEndFound(shard, effect.request, told.code, told.offset))

        self._owner.ask(shard, effect.request, ask())

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

        self._owner.ask(effect.shard, effect.request, ask())

    async def _asked(self, effect: ef.FetchLog) -> None:
        place, shard, request = (self._topic, effect.shard), effect.shard, effect.request
        leader = await self._owner.leader(shard)
        told = (await records.fetch(self._upstream, leader, {place: effect.offset})).get(place)
        if told is None:
            self._owner.step(ev.RequestWithoutAnswer(shard, request, "the answer leaves it out"))
            return
        await self._owner.told("Fetch", told.code)
        start = told.start_offset
        if told.code == records.OUT_OF_RANGE and start < 0:
            start = await records.log_start(self._upstream, *place)
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
