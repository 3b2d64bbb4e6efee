"""Read-ahead: one long poll for each node that leads wanted partitions; records are decoded as the application takes
them.

Each partition has two positions: `fetch_offset` is requested next, `position` is handed to the application next.
Records wait in `ready`, in the order in which they will be handed over. A seek, a pause or a revoked partition voids
the records of the old epoch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from muster.client.calls.leaders import MAYBE_MOVED, MOVED, ONE_NODE
from muster.client.calls.methods import FETCH
from muster.client.calls.topic_calls import READ_COMMITTED, READ_UNCOMMITTED
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig
from muster.client.errors import CorruptRecords, LogTruncated, OffsetOutOfRange, TransportRefused, Unreachable, refusal
from muster.client.records.partition_state import (
    UNKNOWN_EPOCH,
    ConsumedPartition,
    FetchedChunk,
    ReadyRecord,
    find_batch_end,
)
from muster.client.twins import BackgroundTasks
from muster.client.types import Message, TopicPartition
from muster.storage.errors import CorruptMessage
from muster.storage.records.batch import decode_records
from muster.storage.records.markers import build_aborted_filter
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.types import Record

if TYPE_CHECKING:
    from muster.client.records.kafka_records import KafkaPoll


# One long poll
# -------------


class FetchWishes(Protocol):
    """What is asked of `ConsumerFetcher`."""

    @property
    def full(self) -> bool: ...

    def wanted(self, address: str) -> list[ConsumedPartition]: ...

    def take_in(self, wanted: list[ConsumedPartition], answer: pb.FetchResponse) -> bool: ...

    def unreachable(self, wanted: list[ConsumedPartition]) -> None: ...

    def fail(self, error: Exception) -> None: ...


class FetchPoll:
    """One call after the other. `address`: the node's, or ONE_NODE."""

    def __init__(self, fetcher: FetchWishes, transport: "Transport", config: "ConsumerConfig", address: str) -> None:
        self.address = address
        self._fetcher = fetcher
        self._transport = transport
        self._config = config
        self._changed = asyncio.Event()
        self._turn = 0
        self.task = asyncio.create_task(self._run())

    def changed(self) -> None:
        """Look again at what to fetch."""
        self._changed.set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _run(self) -> None:
        backoff = self._transport.backoff()
        fetcher = self._fetcher
        while True:
            self._changed.clear()
            wanted = fetcher.wanted(self.address)
            if not wanted or fetcher.full:
                await self._changed.wait()
                continue
            try:
                answer = await self._fetch(wanted)
            except Unreachable as error:
                self._transport.announce(error)
                fetcher.unreachable(wanted)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            except TransportRefused as error:
                fetcher.fail(error)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            backoff.reset()
            if answer is not None and not fetcher.take_in(wanted, answer):
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _fetch(self, wanted: list[ConsumedPartition]) -> pb.FetchResponse | None:
        """None when the wishes changed while waiting: the call is given up and made anew."""
        patience_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        call = asyncio.create_task(
            self._transport.leaders.ask_leader(
                FETCH,
                self._request(wanted),
                doing="fetching records",
                address=self.address,
                places=[state.tp for state in wanted],
                timeout_ms=patience_ms,
                parked_ms=self._config.fetch_max_wait_ms,
            )
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

    def _request(self, wanted: list[ConsumedPartition]) -> pb.FetchRequest:
        config, leaders = self._config, self._transport.leaders
        request = pb.FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=READ_COMMITTED if config.reads_committed else READ_UNCOMMITTED,
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
            part = line.partitions.add(
                partition=partition,
                fetch_offset=state.fetch_offset,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
            if leaders.shared and state.fetch_offset is not None:
                part.current_leader_epoch = leaders.epoch(state.tp)
                part.last_fetched_epoch = state.epoch_before(state.fetch_offset)
        return request


# The fetcher
# -----------

log = logging.getLogger("muster.client")

OFFSET_OUT_OF_RANGE = 1
UNSUPPORTED_VERSION = 35


class ConsumerFetcher:
    """Fills `ready` for the partitions it is given. `wake` is called when records or an error came in."""

    def __init__(self, transport: Transport, config: ConsumerConfig, wake: Callable[[], None]) -> None:
        self.states: dict[TopicPartition, ConsumedPartition] = {}
        self.ready: deque[ReadyRecord] = deque()
        self.failure: Exception | None = None
        self.truncations = 0
        """How often it went back to where a log that lost records parts from what was read."""
        self._transport = transport
        self._config = config
        self._wake_owner = wake
        self._leaders = transport.leaders
        self._polls: dict[str, FetchPoll | KafkaPoll] = {}
        self._asked_where = False
        self._ending = BackgroundTasks(self.fail)
        self._turn = 0
        self._started = False

    def start(self) -> None:
        if not self._started:
            self._started = True
            self._leaders.listen(self.changed)
            self._begin_polling(ONE_NODE)
            self.changed()

    def _begin_polling(self, address: str) -> None:
        self._keep(address, FetchPoll(self, self._transport, self._config, address))

    def _keep(self, address: str, poll: "FetchPoll | KafkaPoll") -> None:
        self._polls[address] = poll
        poll.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Only a bug ends it before `stop` does; the application must not wait for records for ever."""
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)

    async def stop(self) -> None:
        self._started = False
        polls, self._polls = list(self._polls.values()), {}
        await asyncio.gather(*(poll.stop() for poll in polls), *self._ending)

    def changed(self) -> None:
        """Partitions, positions, pauses or leaders changed: look again at what to fetch, and where."""
        if self._leaders.records and self._started:
            self._read_elsewhere()
        elif self._leaders.shared and self._started:
            self._spread()
        for poll in self._polls.values():
            poll.changed()

    def _changed_at(self, address: str | None) -> None:
        """The same for partitions of one leader: who waits for records of others is not disturbed."""
        poll = self._polls.get(ONE_NODE if self._leaders.records else address) if address is not None else None
        if poll is None:
            self.changed()
        else:
            poll.changed()

    def _spread(self) -> None:
        """A long poll for each leader, and none at nodes that are gone."""
        by_leader, unknown = self._leaders.routed(state.tp for state in self.states.values() if state.fetchable)
        self._leaders.refresh_leaders(unknown)
        for address in by_leader.keys() - self._polls.keys():
            self._begin_polling(address)
        for address in self._polls.keys() - by_leader.keys() - {ONE_NODE, *self._leaders.nodes}:
            self._end(address)

    def _end(self, address: str) -> None:
        self._ending.start(self._polls.pop(address).stop())

    def _read_elsewhere(self) -> None:
        """The nodes have no records: they are in somebody's Kafka."""
        from muster.client.records.kafka_records import KafkaPoll

        if isinstance(self._polls.get(ONE_NODE), KafkaPoll):
            return
        for address in list(self._polls):
            self._end(address)
        self._keep(ONE_NODE, KafkaPoll(self, self._config, self._leaders.records))

    def wanted(self, address: str) -> list[ConsumedPartition]:
        """The partitions that want records from this node."""
        route = self._leaders.route
        return [state for state in self.states.values() if state.fetchable and route(state.tp) == address]

    @property
    def full(self) -> bool:
        """Whether enough waits to be handed over."""
        held = sum(state.chunk.size for state in self.states.values() if state.chunk is not None)
        return held >= self._config.fetch_max_bytes

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.states.setdefault(tp, ConsumedPartition(tp))

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

    def _decode(self, state: ConsumedPartition, limit: int) -> None:
        chunk = state.chunk
        assert chunk is not None
        topic, partition = state.tp
        record: Record | None = None
        try:
            for _ in range(limit):
                last, record = record, next(chunk.records, None)
                if record is None:
                    decoded_to = chunk.decoded_to if last is None else last.offset + 1
                    if chunk.next_offset > decoded_to:
                        # Markers and aborted records (TX-R3), or what compaction took away.
                        self.ready.append(ReadyRecord(state, state.epoch, None, chunk.next_offset))
                    state.chunk = None
                    state.fetch_offset = chunk.next_offset
                    self._changed_at(self._leaders.route(state.tp))
                    return
                message = Message(topic, partition, *record)
                self.ready.append(ReadyRecord(state, state.epoch, message))
            if record is not None:
                chunk.decoded_to = record.offset + 1
        except CorruptMessage as error:
            state.chunk = None
            self.fail(CorruptRecords(f"{topic}-{partition} cannot be read at offset {state.fetch_offset}: {error}"))
            state.stuck = True

    # What the long polls bring

    def unreachable(self, wanted: list[ConsumedPartition]) -> None:
        """The node that these were asked of did not answer."""
        if self._leaders.shared:
            self._leaders.doubt([state.tp for state in wanted])

    def take_in(self, wanted: list[ConsumedPartition], answer: pb.FetchResponse) -> bool:
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

    def _take_partition(self, state: ConsumedPartition, result: pb.FetchPartitionResult) -> bool:
        code = result.error_code
        if code == OFFSET_OUT_OF_RANGE:
            self.out_of_range(state)
            return True
        if code == UNSUPPORTED_VERSION and not self._asked_where:
            self._asked_where = True  # the answer says who has the records
            self._leaders.refresh_leaders([state.tp])
            return False
        if code in MOVED or (code in MAYBE_MOVED and self._leaders.shared):
            self._leaders.doubt([state.tp], result.current_leader if result.HasField("current_leader") else None)
            return True
        if result.HasField("diverging_epoch"):
            self._truncated(state, result.diverging_epoch)
            return True
        if code:
            error = refusal(
                code, pb.ErrorCode.Name(code), result.error_message, f"{state.tp.topic}-{state.tp.partition}"
            )
            if not error.retriable:
                self.fail(error)
            return False
        state.high_watermark, state.log_start = result.high_watermark, result.log_start_offset
        if result.records and state.fetch_offset is not None:
            data, offset = memoryview(result.records), state.fetch_offset
            if self._leaders.shared and state.history is None:
                state.begin_history(offset, UNKNOWN_EPOCH)
            state.chunk = FetchedChunk(
                decode_records(data, offset, build_aborted_filter(result.aborted_transactions)),
                find_batch_end(data, offset, state.history),
                len(result.records),
                offset,
            )
        return True

    def _truncated(self, state: ConsumedPartition, parted: pb.EpochEndOffset) -> None:
        """CL-K5, KIP-320: what was read last is not in the log of who leads now."""
        before = state.fetch_offset or 0
        where = min(parted.end_offset, before)
        if self._config.auto_offset_reset == "none":
            self.fail(LogTruncated(state.tp, before, where))
            state.stuck = True
            return
        self.truncations += 1
        log.warning(
            "%s-%d: records up to offset %d were read, and from %d on the log has others or none; going back to there",
            *state.tp,
            before,
            where,
        )
        state.move_to(where)
        state.begin_history(where, parted.epoch)
        if state.stored is not None and state.stored > where:
            state.stored = where

    def out_of_range(self, state: ConsumedPartition) -> None:
        if self._config.auto_offset_reset == "none":
            self.fail(
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

    def filled(self) -> None:
        """Records came in."""
        self._wake_owner()

    def fail(self, error: Exception) -> None:
        self.failure = error
        self._wake_owner()
