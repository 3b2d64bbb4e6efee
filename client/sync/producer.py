"""The producer: appends records to topics, keyed as Kafka keys them."""

import concurrent.futures
import contextlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from muster.client.aio.producer import ANY, LAST_CHANCE_MS, LAST_CHANCE_S, AsyncProducer, encode_bytes
from muster.client.errors import ClientError, TransactionAborted
from muster.client.records.accumulator import Headers
from muster.client.twins import shared_loop, waiting
from muster.client.types import FencingToken, OnDelivery, RecordMetadata


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
        self._twin = AsyncProducer(config, fence=fence, **properties)
        self._core = self._twin._core
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
        if not core.is_open():
            self._loop.run(core.check_open())
        partitions = core.catalog.remembered(topic)
        if partitions is None:
            partitions = self._loop.run(core.count(topic))
        try:
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
        except TransactionAborted:
            self._loop.run(core.settle_failure())
            raise

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

        Raises DeliveryFailed when records were given up since the last flush; in a transaction TransactionAborted.
        """
        self._loop.check_process()
        self._core.accumulator.wait_until_empty(timeout)
        if self._core.transactions is not None:
            self._loop.run(self._core.settle_failure())
        self._core.raise_failures()
        return self._core.accumulator.waiting

    init_transactions = waiting(AsyncProducer.init_transactions)
    begin = waiting(AsyncProducer.begin)
    commit = waiting(AsyncProducer.commit)
    abort = waiting(AsyncProducer.abort)
    send_offsets = waiting(AsyncProducer.send_offsets)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """A transaction as a context: commits at the end; an exception aborts and goes on up."""
        self.begin()
        try:
            yield self
        except BaseException as error:
            self._loop.run(self._core.leave_transaction(error))
            raise
        self.commit()

    close = waiting(AsyncProducer.close)
    claim = waiting(AsyncProducer.claim)
    list_topics = waiting(AsyncProducer.list_topics)
    partitions_for = waiting(AsyncProducer.partitions_for)

    def __len__(self) -> int:
        """Batches not yet delivered."""
        return self._core.accumulator.waiting

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        """With a transactional.id, `init_transactions`: what an earlier instance left open holds up nobody."""
        self._loop.run(self._twin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        # After an error (Ctrl-C among them) nobody wants to wait for a node that may be gone, nor to hear of that.
        if self._core.transactions is not None:
            self._loop.run(self._core.abort_quietly(LAST_CHANCE_MS))
        with contextlib.suppress(ClientError):
            self.close(LAST_CHANCE_S)
