"""Reads ahead: one long poll over all partitions that want records, decoded as they are taken.

Two positions per partition: `fetch_offset` is what to ask the node for next, `position` is what the application gets
next. Records wait in `ready`, in the order they will be handed over; a seek, a pause or a lost partition makes those of
the old epoch void.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from muster.coordinator.client.calls.methods import FETCH
from muster.coordinator.client.calls.transport import Transport
from muster.coordinator.client.config import ConsumerConfig
from muster.coordinator.client.errors import CorruptRecords, OffsetOutOfRange, TransportRefused, Unreachable, refusal
from muster.coordinator.client.types import Message, TopicPartition
from muster.storage.errors import CorruptMessage
from muster.storage.records.batch import decode_records, read_batches
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.types import Record

log = logging.getLogger("muster.client")

OFFSET_OUT_OF_RANGE = 1


@dataclass(slots=True)
class Chunk:
    """Fetched bytes, decoded piece by piece. `next_offset` is where to go on once they are used up."""

    records: Iterator[Record]
    next_offset: int
    size: int


@dataclass(slots=True, eq=False)
class PartitionState:
    """Where one owned partition stands. `epoch` changes whenever records fetched before are void."""

    tp: TopicPartition
    position: int | None = None
    fetch_offset: int | None = None
    stored: int | None = None
    committed: int | None = None
    paused: bool = False
    revoking: bool = False
    stuck: bool = False
    """Reading on would fail again, and the application has been told; it has to seek."""
    reset: bool = False
    """The log does not hold the committed offset: go where auto.offset.reset says instead."""
    epoch: int = 0
    chunk: Chunk | None = None
    high_watermark: int = -1
    log_start: int = -1

    def move_to(self, offset: int | None) -> None:
        """Read from here on next; None asks for the committed or reset position again."""
        self.position = self.fetch_offset = offset
        self.chunk = None
        self.stuck = False
        self.epoch += 1

    @property
    def fetchable(self) -> bool:
        return self.fetch_offset is not None and self.chunk is None and not (self.paused or self.revoking or self.stuck)


class Ready(NamedTuple):
    """A record on its way to the application, void when the partition moved to another epoch."""

    state: PartitionState
    epoch: int
    message: Message


class Fetcher:
    """Fills `ready` for the partitions it is given. `wake` is called when records or an error came in."""

    def __init__(self, transport: Transport, config: ConsumerConfig, wake: Callable[[], None]) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.ready: deque[Ready] = deque()
        self.failure: Exception | None = None
        self._transport = transport
        self._config = config
        self._wake_owner = wake
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._turn = 0

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Only a bug ends it before `stop` does; the application must not wait for records for ever."""
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def changed(self) -> None:
        """Partitions, positions or pauses changed: look again at what to fetch."""
        self._changed.set()

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.states.setdefault(tp, PartitionState(tp))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            state = self.states.pop(tp, None)
            if state is not None:
                state.move_to(None)
        self.changed()

    def refill(self, limit: int) -> None:
        """Decode up to `limit` records into `ready`, one partition after the other, a different one first each time."""
        states = [state for state in self.states.values() if state.chunk is not None and not state.paused]
        self._turn += 1
        for offset in range(len(states)):
            state = states[(self._turn + offset) % len(states)]
            if len(self.ready) >= limit:
                return
            if not state.revoking:
                self._decode(state, limit - len(self.ready))

    def _decode(self, state: PartitionState, limit: int) -> None:
        chunk = state.chunk
        assert chunk is not None
        topic, partition = state.tp
        try:
            for _ in range(limit):
                record = next(chunk.records, None)
                if record is None:
                    state.chunk = None
                    state.fetch_offset = chunk.next_offset
                    self.changed()
                    return
                message = Message(topic, partition, *record)
                self.ready.append(Ready(state, state.epoch, message))
        except CorruptMessage as error:
            state.chunk = None
            self._fail(CorruptRecords(f"{topic}-{partition} cannot be read at offset {state.fetch_offset}: {error}"))
            state.stuck = True

    # The long poll

    async def _run(self) -> None:
        backoff = self._transport.backoff()
        while True:
            self._changed.clear()
            wanted = [state for state in self.states.values() if state.fetchable]
            if not wanted or self._full():
                await self._changed.wait()
                continue
            try:
                answer = await self._fetch(wanted)
            except Unreachable as error:
                self._transport.announce(error)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            except TransportRefused as error:
                self._fail(error)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            backoff.reset()
            if answer is not None and not self._take_in(wanted, answer):
                await asyncio.sleep(backoff.next_ms() / 1000)

    def _full(self) -> bool:
        held = sum(state.chunk.size for state in self.states.values() if state.chunk is not None)
        return held >= self._config.fetch_max_bytes

    async def _fetch(self, wanted: list[PartitionState]) -> pb.FetchResponse | None:
        """None when the wishes changed while waiting: the call is given up and made anew."""
        request = self._request(wanted)
        patience_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        call = asyncio.create_task(
            self._transport.call(FETCH, request, doing="fetching records", timeout_ms=patience_ms)
        )
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait([call, changed], return_when=asyncio.FIRST_COMPLETED)
            return call.result() if call.done() else None
        finally:
            # Without these both would go on behind our back, the call on the node's side too.
            changed.cancel()
            if not call.done():
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

    def _request(self, wanted: list[PartitionState]) -> pb.FetchRequest:
        config = self._config
        request = pb.FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms, min_bytes=config.fetch_min_bytes, max_bytes=config.fetch_max_bytes
        )
        # Begin with another partition each time, so that a byte limit does not starve the last ones.
        self._turn += 1
        start = self._turn % len(wanted)
        lines: dict[str, pb.FetchTopic] = {}
        for state in wanted[start:] + wanted[:start]:
            topic, partition = state.tp
            line = lines.get(topic)
            if line is None:
                line = lines[topic] = request.topics.add(topic=topic)
            line.partitions.add(
                partition=partition,
                fetch_offset=state.fetch_offset,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
        return request

    def _take_in(self, wanted: list[PartitionState], answer: pb.FetchResponse) -> bool:
        """Whether all went well; otherwise the next fetch should wait a little."""
        asked = {state.tp: (state, state.epoch) for state in wanted}
        well = answer.error_code == 0
        for topic in answer.responses:
            for result in topic.partitions:
                state, epoch = asked[TopicPartition(topic.topic, result.partition_index)]
                if state.epoch == epoch and self.states.get(state.tp) is state:
                    well = self._take_partition(state, result) and well
        self._wake_owner()
        return well

    def _take_partition(self, state: PartitionState, result: pb.FetchPartitionResult) -> bool:
        code = result.error_code
        if code == OFFSET_OUT_OF_RANGE:
            self._out_of_range(state)
            return True
        if code:
            error = refusal(
                code, pb.ErrorCode.Name(code), result.error_message, f"{state.tp.topic}-{state.tp.partition}"
            )
            if not error.retriable:
                self._fail(error)
            return False
        state.high_watermark, state.log_start = result.high_watermark, result.log_start_offset
        if result.records and state.fetch_offset is not None:
            data = memoryview(result.records)
            state.chunk = Chunk(
                decode_records(data, state.fetch_offset), end_of(data, state.fetch_offset), len(result.records)
            )
        return True

    def _out_of_range(self, state: PartitionState) -> None:
        if self._config.auto_offset_reset == "none":
            self._fail(
                OffsetOutOfRange(
                    OFFSET_OUT_OF_RANGE,
                    "OFFSET_OUT_OF_RANGE",
                    f"{state.tp.topic}-{state.tp.partition} does not hold offset {state.fetch_offset}; "
                    "seek, or set auto.offset.reset",
                )
            )
            state.stuck = True
            return
        log.warning(
            "%s-%d does not hold offset %s; going to the %s",
            *state.tp,
            state.fetch_offset,
            self._config.auto_offset_reset,
        )
        state.move_to(None)
        state.reset = True

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._wake_owner()


def end_of(data: memoryview, offset: int) -> int:
    """The offset after the last whole batch: records may be missing at its end (compaction), it still counts."""
    end = offset
    try:
        for batch in read_batches(data):
            end = max(end, batch.next_offset)
    except CorruptMessage:
        # Decoding will meet the same bytes and say more.
        pass
    return end
