"""What `Poll` is where nodes have the records: partitions are read by confluent-kafka, assigned by hand.

It is asked in a thread, one portion after the other. What it brought waits here until the partition's records before
are used up; with `fetch.max.bytes` of it waiting nothing more is asked for.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from muster.client.errors import ClientError
from muster.client.records.partition_state import ConsumedPartition, FetchedChunk
from muster.client.records.settings import consumer_properties, load_confluent_kafka
from muster.client.types import TopicPartition
from muster.storage.types import Record

if TYPE_CHECKING:
    from muster.client.config import ConsumerConfig

log = logging.getLogger("muster.client")

PORTION: Final = 500
"""Records that are taken at a time."""
PATIENCE_S: Final = 0.1
"""How long a portion waits for a first record; what changed meanwhile is done after that."""


class KafkaPollWishes(Protocol):
    """What is asked of `fetcher.Fetcher`."""

    @property
    def states(self) -> dict[TopicPartition, ConsumedPartition]: ...

    @property
    def full(self) -> bool: ...

    def out_of_range(self, state: ConsumedPartition) -> None: ...

    def filled(self) -> None: ...

    def fail(self, error: Exception) -> None: ...


class KafkaPollChange(NamedTuple):
    """leave, take: what is read no more, and from which offset what is read now."""

    leave: list[TopicPartition]
    take: list[tuple[TopicPartition, int]]


class KafkaPoll:
    """`task` ends with `stop`."""

    def __init__(self, fetcher: KafkaPollWishes, config: "ConsumerConfig", bootstrap: str) -> None:
        self._fetcher = fetcher
        self._config = config
        self._bootstrap = bootstrap
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "muster-records")
        self._reads: dict[TopicPartition, int] = {}
        """The epoch of each partition's state under which it is read."""
        self._waiting: dict[TopicPartition, deque[FetchedChunk]] = {}
        self._consumer: Any = None
        self._kafka: Any = None
        self.task = asyncio.create_task(self._run())

    def changed(self) -> None:
        """Look again at what to read."""
        self._changed.set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self._consumer is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        try:
            self._kafka = load_confluent_kafka(self._bootstrap)
            made = {**consumer_properties(self._config, self._bootstrap), "error_cb": self._troubled}
            self._consumer = self._kafka.Consumer(made, logger=log)
        except (ClientError, ValueError) as error:
            self._fetcher.fail(error)
            return
        except self._kafka.KafkaException as error:
            self._fetcher.fail(ClientError(f"confluent-kafka refuses its settings (records.*): {error}"))
            return
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            change = self._look()
            if self._hand_out():
                self._fetcher.filled()
            if (not self._reads and not change.leave) or self._is_full():
                await self._changed.wait()
                continue
            messages = await loop.run_in_executor(self._thread, self._portion, change)
            self._sort(messages)

    # -- on the loop --------------------------------------------------------------------------------------------------

    def _look(self) -> KafkaPollChange:
        """What is to be read by now, against what is."""
        wanted = {state.tp: state for state in self._fetcher.states.values() if is_record(state)}
        leave = [tp for tp, epoch in self._reads.items() if tp not in wanted or wanted[tp].epoch != epoch]
        for tp in leave:
            del self._reads[tp]
            self._waiting.pop(tp, None)
        take = []
        for tp, state in wanted.items():
            if tp not in self._reads and state.fetch_offset is not None:
                self._reads[tp] = state.epoch
                take.append((tp, state.fetch_offset))
        return KafkaPollChange(leave, take)

    def _is_full(self) -> bool:
        held = sum(chunk.size for chunks in self._waiting.values() for chunk in chunks)
        return self._fetcher.full or held >= self._config.fetch_max_bytes

    def _hand_out(self) -> bool:
        """Give each partition that has nothing left what waits for it; whether any did."""
        given = False
        for tp, chunks in self._waiting.items():
            state = self._fetcher.states.get(tp)
            if chunks and state is not None and state.fetchable and state.epoch == self._reads.get(tp):
                state.chunk = chunks.popleft()
                given = True
        return given

    def _sort(self, messages: Iterable[Any]) -> None:
        by_partition: dict[TopicPartition, list[Record]] = {}
        for message in messages:
            tp = TopicPartition(message.topic() or "", message.partition() or 0)
            if (error := message.error()) is not None:
                self._refused(tp, error)
            elif tp in self._reads:
                by_partition.setdefault(tp, []).append(convert_record(message))
        for tp, records in by_partition.items():
            size = sum(len(record.value or b"") + len(record.key or b"") for record in records)
            chunk = FetchedChunk(iter(records), records[-1].offset + 1, size)
            self._waiting.setdefault(tp, deque()).append(chunk)

    def _refused(self, tp: TopicPartition, error: Any) -> None:
        code, state = error.code(), self._fetcher.states.get(tp)
        if code in (self._kafka.KafkaError._AUTO_OFFSET_RESET, self._kafka.KafkaError.OFFSET_OUT_OF_RANGE):
            if state is not None and tp in self._reads:
                self._fetcher.out_of_range(state)
        elif code != self._kafka.KafkaError._PARTITION_EOF and not error.retriable():
            self._fetcher.fail(ClientError(f"{tp.topic}-{tp.partition} cannot be read from Kafka: {error.str()}"))

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _portion(self, change: KafkaPollChange) -> list[Any]:
        made = self._kafka.TopicPartition
        if change.leave:
            self._consumer.incremental_unassign([made(*tp) for tp in change.leave])
        if change.take:
            self._consumer.incremental_assign([made(*tp, offset) for tp, offset in change.take])
        found: list[Any] = self._consumer.consume(PORTION, PATIENCE_S)
        return found

    def _troubled(self, error: Any) -> None:
        """It tries again by itself."""
        log.warning("records of Kafka at %s: %s", self._bootstrap, error.str())


def is_record(state: ConsumedPartition) -> bool:
    return state.fetch_offset is not None and not (state.paused or state.revoking or state.stuck)


def convert_record(message: Any) -> Record:
    kind, time_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(message.offset(), time_ms if kind else -1, message.key(), message.value(), headers)
