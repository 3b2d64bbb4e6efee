"""What `Producer` and its asyncio twin share."""

import asyncio
import time
from collections.abc import Iterable

from muster.client.callbacks import OnDelivery
from muster.client.calls.catalog import PartitionCounts
from muster.client.calls.transport import Transport
from muster.client.config import ProducerConfig
from muster.client.errors import ConfigError, DeliveryFailed, IllegalState, UnknownTopic
from muster.client.records.accumulator import RECORD_OVERHEAD, Accumulator, Headers
from muster.client.records.fenced import ProducerFence
from muster.client.records.numbering import ProducerNumbering
from muster.client.records.partitioner import choose_partition
from muster.client.records.sender import BatchSender, build_too_large
from muster.client.types import FencingToken, TopicPartition

MAX_HEADERS = 1_000
ANY = -1


class ProducerCore:
    """One producer, without the face that applications see. `bind` it to the loop that sends."""

    def __init__(self, config: ProducerConfig, fence: FencingToken | None = None) -> None:
        if fence is not None and config.acks == "0":
            raise ConfigError("acks=0 hears of no refusal, and a fence is there to refuse; use acks=all")
        self.config = config
        self.transport = Transport(config)
        self.catalog = PartitionCounts(self.transport, config)
        self.accumulator = Accumulator(config, self._wake)
        self.fence = None if fence is None else ProducerFence(fence, self.transport)
        self.sender = BatchSender(
            self.transport, config, self.accumulator, self.fence or choose_numbering(config, self.transport)
        )
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start sending on `loop`; repeating it is harmless."""
        if self._loop is None:
            self._loop = loop
            loop.call_soon_threadsafe(self.sender.start)

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.sender.wake)

    async def claim(self, places: Iterable[tuple[str, int]]) -> None:
        """Become the only writer now. Raises ProducerFenced when another owner may write by now."""
        if self.closed:
            raise IllegalState("this producer is closed")
        if self.fence is None:
            raise IllegalState(
                "claim() needs a fence: Producer(..., fence=token), with the token of a partition's owner"
            )
        await self.fence.claim_patiently([TopicPartition(*place) for place in places])

    async def count(self, topic: str) -> int:
        """Partitions of a topic, looked up within max.block.ms."""
        return await self.catalog.count(topic, max(1, self.config.max_block_ms))

    def add(
        self,
        topic: str,
        partitions: int,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp_ms: int,
        headers: Headers,
        on_delivery: OnDelivery | None,
        block_s: float,
    ) -> None:
        """Hand a record to the sender; raises at once what can be known at once."""
        if self.closed:
            raise IllegalState("this producer is closed")
        size = measure_record(value, key, headers)
        if size > self.config.max_request_size:
            raise build_too_large(size, self.config.max_request_size)
        if partition == ANY:
            if key is None:
                partition = self.accumulator.sticky_partition(topic, partitions)
            else:
                partition = choose_partition(key, partitions)
        elif not 0 <= partition < partitions:
            last = partitions - 1
            raise UnknownTopic(
                3, "UNKNOWN_TOPIC_OR_PARTITION", f"{topic} has partitions 0 to {last}; {partition} is not one"
            )
        stamp = timestamp_ms or time.time_ns() // 1_000_000
        self.accumulator.add(TopicPartition(topic, partition), (stamp, key, value, headers), size, on_delivery, block_s)

    def raise_failures(self) -> None:
        failed, first = self.sender.take_failures()
        if first is not None:
            raise DeliveryFailed(failed, first)

    async def close(self) -> None:
        self.closed = True
        await self.sender.stop()
        await self.transport.close()


def choose_numbering(config: ProducerConfig, transport: Transport) -> ProducerNumbering | None:
    """None where the producer is not to be idempotent."""
    return ProducerNumbering(transport) if config.numbers_batches else None


def measure_record(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    if len(headers) > MAX_HEADERS:
        raise IllegalState(f"{len(headers)} headers are too many; at most {MAX_HEADERS} fit a record")
    size = RECORD_OVERHEAD + (len(value) if value else 0) + (len(key) if key else 0)
    for name, content in headers:
        size += len(name) + (len(content) if content else 0) + 8
    return size


def encode_bytes(what: str, given: bytes | str | None) -> bytes | None:
    """Text is sent as UTF-8; anything else that is not bytes is refused.

    >>> encode_bytes("key", "é")
    b'\\xc3\\xa9'
    """
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"the {what} is {type(given).__name__}; bytes, str or None is expected")
