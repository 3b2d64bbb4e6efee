"""The producer for asyncio."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from muster.client.aio.producing_shared import ANY, ProducerCore, encode_bytes, measure_record
from muster.client.callbacks import OnDelivery
from muster.client.config import ProducerConfig, load
from muster.client.errors import BufferFull, ClientError
from muster.client.records.accumulator import Headers
from muster.client.types import FencingToken, RecordMetadata

LAST_CHANCE_S = 1.0
"""What a producer still tries to deliver when it is left by an error."""


class AsyncProducer:
    """As `muster.client.Producer`; waits by suspending the task instead of the thread."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, fence: FencingToken | None = None, **properties: Any
    ) -> None:
        self._core = ProducerCore(load(ProducerConfig, config, properties), fence)
        self._room = asyncio.Event()
        self._core.accumulator.on_room = self._room.set

    async def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = ANY,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> None:
        """Queue one record; waits for room up to max.block.ms, then raises BufferFull.

        `on_delivery(error, metadata)` is called from the client's thread and should return quickly. `timestamp` is
        epoch milliseconds, 0 means now.
        """
        core = self._core
        core.bind(asyncio.get_running_loop())
        value, key = encode_bytes("value", value), encode_bytes("key", key)
        pairs = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
        partitions = await core.count(topic)
        await self._room_for(measure_record(value, key, pairs))
        core.add(topic, partitions, value, key, partition, timestamp, pairs, on_delivery, 0)

    async def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = ANY,
        timestamp: int = 0,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """As `produce`, with a future of where the record went."""
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()

        def delivered(error: Exception | None, metadata: RecordMetadata | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            elif metadata is not None:
                future.set_result(metadata)

        await self.produce(topic, value, key, partition, delivered, timestamp, headers)
        return future

    async def poll(self, timeout: float = 0.0) -> int:
        """Wait up to `timeout` seconds for the word on records that are on their way; returns how many had it since.

        Nothing has to be polled here, for `on_delivery` is called without: this is for who waits for room or for news.
        Failed records count as well, and `flush` still raises for them.
        """
        await self._until(lambda: self._core.accumulator.news, timeout)
        return self._core.accumulator.reported()

    async def flush(self, timeout: float | None = None) -> int:
        """Wait until everything is delivered; returns how many batches are still on their way after `timeout` seconds.

        Raises DeliveryFailed when records were given up since the last flush.
        """
        accumulator = self._core.accumulator
        accumulator.begin_flush()
        try:
            await self._until(lambda: not accumulator.waiting, timeout)
        finally:
            accumulator.end_flush()
        self._core.raise_failures()
        return accumulator.waiting

    async def close(self, timeout: float | None = None) -> None:
        """Flush and stop. Records not delivered within `timeout` seconds are given up, and that is an error."""
        if self._core.closed:
            return
        try:
            left = await self.flush(timeout)
            if left:
                raise ClientError(f"{left} batch(es) were not delivered within {timeout} s of close()")
        finally:
            await self._core.close()

    async def claim(self, partitions: Iterable[tuple[str, int]] = ()) -> None:
        """Become the fence's only writer now, before the first record; needs `fence`.

        From then on every record of an earlier owner is refused (ProducerFenced), by these logs and all that it has
        written to. Without this the first record does the same. Raises ProducerFenced when another owner may write.
        """
        await self._core.claim(partitions)

    async def list_topics(self, topic: str | None = None) -> dict[str, int]:
        """Partition counts by name, of all topics or of this one; nothing for a topic that does not exist."""
        return await self._core.catalog.listed(topic)

    async def partitions_for(self, topic: str) -> set[int]:
        """The numbers of its partitions, looked up within max.block.ms; UnknownTopic when there is no such topic."""
        return set(range(await self._core.count(topic)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        # After an error (Ctrl-C among them) nobody wants to wait for a node that may be gone, nor to hear of that.
        with contextlib.suppress(ClientError):
            await self.close(LAST_CHANCE_S)

    async def _room_for(self, size: int) -> None:
        core = self._core
        if not await self._until(lambda: core.accumulator.has_room(size), core.config.max_block_ms / 1000):
            raise BufferFull(
                f"no room for a record of {size} bytes within {core.config.max_block_ms} ms; "
                "is the node reachable? buffer.memory and max.block.ms set the limits"
            )

    async def _until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Whether the condition came true in time; looked at again whenever room came back."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not condition():
            self._room.clear()
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return False
            try:
                await asyncio.wait_for(self._room.wait(), left)
            except TimeoutError:
                return condition()
        return True
