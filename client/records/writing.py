"""Batches whose partitions are in somebody's Kafka: written there by confluent-kafka."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muster.client.errors import ClientError
from muster.client.records.settings import load_confluent_kafka, producer_properties

if TYPE_CHECKING:
    from muster.client.config import ProducerConfig
    from muster.client.records.accumulator import PendingBatch

log = logging.getLogger("muster.client")

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
