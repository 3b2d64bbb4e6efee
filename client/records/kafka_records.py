"""Records that stay in a Kafka cluster (`muster serve --engine`): read and written there with confluent-kafka.

Groups, positions and callbacks work as usual; no record passes a Muster node. Partitions are assigned to
confluent-kafka by hand. It is polled in a thread, one portion at a time; portions wait here until earlier records of
the partition are consumed, and at most `fetch.max.bytes` wait. Imported only after a node has said that it keeps no
records.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from muster.client.errors import ClientError
from muster.client.records.partition_state import ConsumedPartition, FetchedChunk
from muster.client.types import TopicPartition
from muster.storage.types import Record

if TYPE_CHECKING:
    from muster.client.config import ConsumerConfig, ProducerConfig, RecordsProperties
    from muster.client.records.accumulator import PendingBatch


# Configuration of confluent-kafka
# --------------------------------

NOT_INSTALLED: Final = (
    "the records are in the Kafka cluster at {bootstrap}, and confluent-kafka, which reads and writes them, is not "
    "installed: pip install 'muster-groups[kafka]'"
)
NAMES: Final = {
    "records_security_protocol": "security.protocol",
    "records_sasl_mechanism": "sasl.mechanism",
    "records_sasl_username": "sasl.username",
    "records_sasl_password": "sasl.password",
    "records_ssl_ca_location": "ssl.ca.location",
    "records_ssl_certificate_location": "ssl.certificate.location",
    "records_ssl_key_location": "ssl.key.location",
    "records_ssl_key_password": "ssl.key.password",
}


def load_confluent_kafka(bootstrap: str) -> Any:
    """Raises ClientError where it is not installed."""
    try:
        import confluent_kafka
    except ImportError:
        raise ClientError(NOT_INSTALLED.format(bootstrap=bootstrap)) from None
    return confluent_kafka


def connection_properties(config: "RecordsProperties", bootstrap: str) -> dict[str, Any]:
    given = {name: getattr(config, field) for field, name in NAMES.items()}
    return {
        "bootstrap.servers": config.records_bootstrap_servers or bootstrap,
        **{name: value for name, value in given.items() if value is not None},
    }


def consumer_properties(config: "ConsumerConfig", bootstrap: str) -> dict[str, Any]:
    """Positions are Muster's: nothing is committed there, and no group of that name ever has a member."""
    return {
        **connection_properties(config, bootstrap),
        "client.id": config.client_id or "muster",
        "group.id": config.group_id or "muster",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": config.isolation_level,
        "fetch.min.bytes": config.fetch_min_bytes,
        "fetch.wait.max.ms": config.fetch_max_wait_ms,
        "fetch.max.bytes": max(config.fetch_max_bytes, config.max_partition_fetch_bytes),
        "max.partition.fetch.bytes": config.max_partition_fetch_bytes,
        "message.max.bytes": max(1_000, min(config.fetch_max_bytes, config.max_partition_fetch_bytes)),
    }


def producer_properties(config: "ProducerConfig", bootstrap: str) -> dict[str, Any]:
    """Batches are made before: it waits for no company."""
    return {
        **connection_properties(config, bootstrap),
        "client.id": config.client_id or "muster",
        "acks": config.acks,
        "enable.idempotence": config.numbers_batches,
        "linger.ms": 0,
        "compression.type": config.compression_type,
        "message.max.bytes": max(config.max_request_size, 1_000),
        "message.timeout.ms": config.delivery_timeout_ms,
    }


# Reading
# -------

log = logging.getLogger("muster.client")

PORTION: Final = 500
"""Records that are taken at a time."""
PATIENCE_S: Final = 0.1
"""How long a portion waits for a first record; what changed meanwhile is done after that."""


class KafkaPollWishes(Protocol):
    """What is asked of `ConsumerFetcher`."""

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
            change = self._compare_reads()
            if self._hand_out():
                self._fetcher.filled()
            if (not self._reads and not change.leave) or self._is_full():
                await self._changed.wait()
                continue
            messages = await loop.run_in_executor(self._thread, self._portion, change)
            self._sort(messages)

    # -- on the loop --------------------------------------------------------------------------------------------------

    def _compare_reads(self) -> KafkaPollChange:
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
            chunk = FetchedChunk(iter(records), records[-1].offset + 1, size, records[0].offset)
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


# Writing
# -------

ROOM_S: Final = 0.05


class KafkaDelivery(NamedTuple):
    """What became of one record; offset and time -1: not told."""

    error: Exception | None = None
    offset: int = -1
    time_ms: int = -1


class KafkaWriter:
    """Made where a node has said that it has no records. Raises ClientError where confluent-kafka is not installed."""

    def __init__(self, config: "ProducerConfig", bootstrap: str) -> None:
        kafka = load_confluent_kafka(bootstrap)
        try:
            self._producer: Any = kafka.Producer(producer_properties(config, bootstrap), logger=log)
        except kafka.KafkaException as error:
            raise ClientError(f"confluent-kafka refuses its settings (records.*): {error}") from error
        self._kafka = kafka
        self._patience_s = config.delivery_timeout_ms / 1000
        self._thread = ThreadPoolExecutor(1, "muster-records")

    async def write(self, batches: Sequence["PendingBatch"]) -> list[list[KafkaDelivery]]:
        """For each batch what became of each of its records, once all of them are settled."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._write, batches)

    def close(self) -> None:
        """What is under way is given up."""
        self._producer.purge()
        self._thread.shutdown(wait=False)

    def _write(self, batches: Sequence["PendingBatch"]) -> list[list[KafkaDelivery]]:
        overdue = KafkaDelivery(ClientError("Kafka did not answer within delivery.timeout.ms"))
        told = [[overdue] * len(batch.records) for batch in batches]
        for batch, results in zip(batches, told, strict=True):
            for number, record in enumerate(batch.records):
                self._hand_over(batch, record, partial(self._settled, results, number))
        self._producer.flush(self._patience_s)
        return told

    def _hand_over(self, batch: "PendingBatch", record: Any, settled: Any) -> None:
        time_ms, key, value, headers = record
        topic, partition = batch.tp
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=settled,
                    timestamp=time_ms,
                    headers=list(headers) or None,
                )
            except BufferError:
                self._producer.poll(ROOM_S)
                continue
            except self._kafka.KafkaException as error:
                settled(error.args[0], None)
            self._producer.poll(0)
            return

    def _settled(self, results: list[KafkaDelivery], number: int, error: Any, message: Any) -> None:
        if error is not None:
            results[number] = KafkaDelivery(ClientError(f"Kafka did not take a record: {error.str()}"))
        else:
            results[number] = KafkaDelivery(None, message.offset(), message.timestamp()[1])
