"""The producer: appends records to topics, keyed as Kafka keys them."""

import concurrent.futures
import contextlib
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from muster.client.aio.producer import ANY, ProducerCore, encode_bytes
from muster.client.config import ProducerConfig, load
from muster.client.errors import ClientError
from muster.client.records.accumulator import Headers
from muster.client.twins import shared_loop
from muster.client.types import FencingToken, OnDelivery, RecordMetadata

LAST_CHANCE_S = 1.0
"""What a producer still tries to deliver when it is left by an error."""


class Producer:
    """Sends in the background, in batches; safe to share between threads.

    A record whose key is not None goes to partition `murmur2(key) & 0x7fffffff % partitions`, exactly as from Kafka's
    own producer; without a key, a batch at a time goes to one partition after the other. Within a partition records
    keep their order. A lost answer is retried until delivery.timeout.ms; batches are numbered (enable.idempotence), so
    a record that is sent again is written once. Call `flush` (or `close`) to learn whether everything arrived.

    With `fence`, the `fencing_token` that a `Consumer` or `Worker` has for a partition it owns, records are written on
    behalf of that partition: once a later owner writes, or claims, the log refuses this one's records (ProducerFenced).
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, fence: FencingToken | None = None, **properties: Any
    ) -> None:
        self._core = ProducerCore(load(ProducerConfig, config, properties), fence)
        self._loop = shared_loop()
        self._core.bind(self._loop.loop)

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = ANY,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> None:
        """Queue one record. Waits for room up to max.block.ms, then raises BufferFull.

        `on_delivery(error, metadata)` is called from the client's thread and should return quickly. `timestamp` is
        epoch milliseconds; 0 means now.
        """
        self._loop.check_process()
        core = self._core
        partitions = core.catalog.remembered(topic)
        if partitions is None:
            partitions = self._loop.run(core.count(topic))
        core.add(
            topic,
            partitions,
            encode_bytes("value", value),
            encode_bytes("key", key),
            partition,
            timestamp,
            tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers),
            on_delivery,
            core.config.max_block_ms / 1000,
        )

    def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = ANY,
        timestamp: int = 0,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> "concurrent.futures.Future[RecordMetadata]":
        """Queue one record as `produce` does, and return a future of its metadata."""
        future: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()

        def delivered(error: Exception | None, metadata: RecordMetadata | None) -> None:
            if error is not None:
                future.set_exception(error)
            elif metadata is not None:
                future.set_result(metadata)

        self.produce(topic, value, key, partition, delivered, timestamp, headers)
        return future

    def poll(self, timeout: float = 0.0) -> int:
        """Wait up to `timeout` seconds for deliveries; return how many records were delivered or failed since the
        last call.

        Optional: `on_delivery` is called without it. Failed records count as well, and `flush` still raises for them.
        """
        self._loop.check_process()
        self._core.accumulator.wait_for_news(timeout)
        return self._core.accumulator.reported()

    def flush(self, timeout: float | None = None) -> int:
        """Wait until everything is delivered; return how many batches are still outstanding after `timeout` seconds.

        Raises DeliveryFailed when records were given up since the last flush.
        """
        self._loop.check_process()
        self._core.accumulator.wait_until_empty(timeout)
        self._core.raise_failures()
        return self._core.accumulator.waiting

    def close(self, timeout: float | None = None) -> None:
        """Flush and stop. Records that are not delivered within `timeout` seconds are given up, which is an error."""
        if self._core.closed:
            return
        try:
            left = self.flush(timeout)
            if left:
                raise ClientError(f"{left} batch(es) were not delivered within {timeout} s of close()")
        finally:
            self._loop.run(self._core.close())

    def claim(self, partitions: Iterable[tuple[str, int]] = ()) -> None:
        """Become the fence's only writer now, before the first record; needs `fence`.

        From then on, every log that an earlier owner has written to refuses its records (ProducerFenced). Without
        this call, the first record does the same. Raises ProducerFenced when another owner may write.
        """
        self._loop.run(self._core.claim(partitions))

    def list_topics(self, topic: str | None = None) -> dict[str, int]:
        """Return partition counts by name, of all topics or of one; empty for a topic that does not exist."""
        return self._loop.run(self._core.catalog.listed(topic))

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic, looked up within max.block.ms; raises UnknownTopic."""
        return set(range(self._loop.run(self._core.count(topic))))

    def __len__(self) -> int:
        """Batches not yet delivered."""
        return self._core.accumulator.waiting

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        # After an error (Ctrl-C among them) nobody wants to wait for a node that may be gone, nor to hear of that.
        with contextlib.suppress(ClientError):
            self.close(LAST_CHANCE_S)
