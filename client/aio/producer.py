"""The asyncio producer, and the core that it shares with its synchronous twin."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from muster.client.calls.topic_calls import PartitionCounts
from muster.client.calls.transport import Transport
from muster.client.config import ProducerConfig, load
from muster.client.errors import (
    BufferFull,
    ClientError,
    ConfigError,
    DeliveryFailed,
    IllegalState,
    TransactionAborted,
    UnknownTopic,
)
from muster.client.records.accumulator import (
    RECORD_OVERHEAD,
    Accumulator,
    Headers,
    ProducerNumbering,
    TransactionNumbering,
    choose_partition,
)
from muster.client.records.producer_transactions import ConsumedPositions, ProducerTransactions, choose_offsets
from muster.client.records.sender import BatchSender, ProducerFence, build_too_large
from muster.client.types import (
    FencingToken,
    GroupMetadata,
    OffsetAndMetadata,
    OnDelivery,
    RecordMetadata,
    TopicPartition,
)

# The core that both twins share
# ------------------------------

MAX_HEADERS = 1_000
ANY = -1
LAST_CHANCE_S = 1.0
"""What a producer still tries to deliver, or to abort, when it is left by an error."""
LAST_CHANCE_MS = int(LAST_CHANCE_S * 1000)

log = logging.getLogger("muster.client")


class ProducerCore:
    """One producer, without the face that applications see. `bind` it to the loop that sends."""

    def __init__(self, config: ProducerConfig, fence: FencingToken | None = None) -> None:
        if fence is not None and config.acks == "0":
            raise ConfigError("acks=0 hears of no refusal, and a fence is there to refuse; use acks=all")
        if fence is not None and config.transactional_id is not None:
            raise ConfigError("transactional.id and fence both say who may write; use one of them")
        self.config = config
        self.transport = Transport(config)
        self.catalog = PartitionCounts(self.transport, config)
        self.accumulator = Accumulator(config, self._wake)
        self.fence = None if fence is None else ProducerFence(fence, self.transport)
        numbers = self.fence or choose_numbering(config, self.transport)
        self.sender = BatchSender(self.transport, config, self.accumulator, numbers)
        self.closed = False
        self._news = asyncio.Event()
        self.accumulator.on_room = self._news.set
        self.transactions: ProducerTransactions | None = None
        """None without a transactional.id."""
        if isinstance(numbers, TransactionNumbering):
            self.transactions = ProducerTransactions(
                config, self.transport, self.accumulator, self.sender, numbers, self.until
            )
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

    async def leave_transaction(self, error: BaseException) -> None:
        """An exception ends a block: abort, quickly where the program is interrupted."""
        await self.abort_quietly(None if isinstance(error, Exception) else LAST_CHANCE_MS)

    async def abort_quietly(self, patience_ms: int | None) -> None:
        """Abort what is open, if anything is; there is an error already that says more than this one's."""
        if self.transactions is not None and not self.closed:
            try:
                await self.transactions.abort(patience_ms)
            except ClientError as trouble:
                log.debug("%s", trouble)

    async def count(self, topic: str) -> int:
        """Partitions of a topic, looked up within max.block.ms."""
        return await self.catalog.count(topic, max(1, self.config.max_block_ms))

    def transactional(self, what: str) -> ProducerTransactions:
        """Raises IllegalState without a transactional.id, or once this producer is closed."""
        if self.closed:
            raise IllegalState("this producer is closed")
        if self.transactions is None:
            raise IllegalState(f"{what} needs a name for its transactions: Producer(..., transactional_id=NAME)")
        return self.transactions

    def is_open(self) -> bool:
        """Whether a record may be produced: with a transactional.id, while a transaction is open."""
        return self.transactions is None or self.transactions.life.is_open

    async def check_open(self) -> None:
        """Raises unless `is_open`; where the transaction has failed it is aborted first."""
        if self.transactions is not None and not self.closed and not self.transactions.life.is_open:
            await self.transactions.settle_failure()
            self.transactions.life.check_open("produce()")

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Whether the condition came true in time; looked at again whenever room came back."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not condition():
            self._news.clear()
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return False
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                return condition()
        return True

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
        if self.sender.broken is not None:
            raise self.sender.broken
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

    async def settle_failure(self) -> None:
        """Where the open transaction has failed: abort it, and raise TransactionAborted."""
        if self.transactions is not None:
            await self.transactions.settle_failure()

    def raise_failures(self) -> None:
        if self.transactions is not None:
            return
        failed, first = self.sender.take_failures()
        if first is not None:
            raise DeliveryFailed(failed, first)

    async def close(self) -> None:
        self.closed = True
        await self.sender.stop()
        await self.transport.close()


def choose_numbering(config: ProducerConfig, transport: Transport) -> ProducerNumbering | TransactionNumbering | None:
    """None where the producer is not to be idempotent."""
    if config.transactional_id is not None:
        return TransactionNumbering(config.transactional_id)
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


# The client
# ----------


class AsyncProducer:
    """As `muster.client.Producer`; waits by suspending the task instead of the thread."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, fence: FencingToken | None = None, **properties: Any
    ) -> None:
        self._core = ProducerCore(load(ProducerConfig, config, properties), fence)

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
        """Queue one record. Waits for room up to max.block.ms, then raises BufferFull.

        `on_delivery(error, metadata)` is called from the client's thread and should return quickly. `timestamp` is
        epoch milliseconds; 0 means now.
        """
        core = self._core
        core.bind(asyncio.get_running_loop())
        await core.check_open()
        value, key = encode_bytes("value", value), encode_bytes("key", key)
        pairs = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
        partitions = await core.count(topic)
        await self._room_for(measure_record(value, key, pairs))
        try:
            core.add(topic, partitions, value, key, partition, timestamp, pairs, on_delivery, 0)
        except TransactionAborted:
            await core.settle_failure()
            raise

    async def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = ANY,
        timestamp: int = 0,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """Queue one record as `produce` does, and return a future of its metadata."""
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
        """Wait up to `timeout` seconds for deliveries; return how many records were delivered or failed since the
        last call.

        Optional: `on_delivery` is called without it. Failed records count as well, and `flush` still raises for them.
        """
        await self._core.until(lambda: self._core.accumulator.news, timeout)
        return self._core.accumulator.reported()

    async def flush(self, timeout: float | None = None) -> int:
        """Wait until everything is delivered; return how many batches are still outstanding after `timeout` seconds.

        Raises DeliveryFailed when records were given up since the last flush; in a transaction TransactionAborted.
        """
        accumulator = self._core.accumulator
        accumulator.begin_flush()
        try:
            await self._core.until(lambda: not accumulator.waiting, timeout)
        finally:
            accumulator.end_flush()
        await self._core.settle_failure()
        self._core.raise_failures()
        return accumulator.waiting

    async def close(self, timeout: float | None = None) -> None:
        """Flush and stop. Records that are not delivered within `timeout` seconds are given up, which is an error.

        A transaction that is open is aborted.
        """
        core = self._core
        if core.closed:
            return
        try:
            if core.transactions is not None:
                core.bind(asyncio.get_running_loop())
                await core.transactions.close(
                    core.config.delivery_timeout_ms if timeout is None else int(timeout * 1000)
                )
                return
            left = await self.flush(timeout)
            if left:
                raise ClientError(f"{left} batch(es) were not delivered within {timeout} s of close()")
        finally:
            await core.close()

    async def init_transactions(self) -> None:
        """Become the only producer with this transactional id; what an earlier one left open is aborted.

        `with Producer(...)` does the same, and so does the first `begin`. Raises ProducerFenced when the node does not
        let this producer have the id, Unreachable after max.block.ms.
        """
        core = self._core
        core.bind(asyncio.get_running_loop())
        await core.transactional("init_transactions()").initialize()

    async def begin(self) -> None:
        """Begin a transaction: what is produced from now on is seen by readers of committed records after `commit`.

        After OutcomeUnknown it first settles how the last one ended. Raises ProducerFenced.
        """
        core = self._core
        core.bind(asyncio.get_running_loop())
        await core.transactional("begin()").begin()

    async def commit(self) -> None:
        """Deliver what is outstanding, then commit. Nothing is sent for an empty transaction.

        Raises TransactionAborted if a record could not be delivered, ProducerFenced if another producer has the
        transactional id, and OutcomeUnknown if no answer came within delivery.timeout.ms.
        """
        await self._core.transactional("commit()").commit()

    async def abort(self) -> None:
        """Drop what is not delivered yet, and abort. Harmless after TransactionAborted. Raises ProducerFenced."""
        await self._core.transactional("abort()").abort()

    async def send_offsets(
        self,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | ConsumedPositions,
        group_metadata: GroupMetadata | None = None,
    ) -> None:
        """Commit positions of a group with the transaction.

        Either `offsets` (the next record to read, by partition) and `consumer.consumer_group_metadata()`, or a consumer
        alone: then the positions behind all that it has handed over. Raises TransactionAborted when the group has gone
        on without this member.
        """
        transactions = self._core.transactional("send_offsets()")
        await transactions.send_offsets(*choose_offsets(offsets, group_metadata))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction as a context: commits at the end; an exception aborts and goes on up."""
        await self.begin()
        try:
            yield self
        except BaseException as error:
            await self._core.leave_transaction(error)
            raise
        await self.commit()

    async def claim(self, partitions: Iterable[tuple[str, int]] = ()) -> None:
        """Become the fence's only writer now, before the first record; needs `fence`.

        From then on, every log that an earlier owner has written to refuses its records (ProducerFenced). Without
        this call, the first record does the same. Raises ProducerFenced when another owner may write.
        """
        await self._core.claim(partitions)

    async def list_topics(self, topic: str | None = None) -> dict[str, int]:
        """Return partition counts by name, of all topics or of one; empty for a topic that does not exist."""
        return await self._core.catalog.listed(topic)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic, looked up within max.block.ms; raises UnknownTopic."""
        return set(range(await self._core.count(topic)))

    async def __aenter__(self) -> Self:
        """With a transactional.id, `init_transactions`: what an earlier instance left open holds up nobody."""
        transactions = self._core.transactions
        if transactions is not None and transactions.life.must_initialize:
            try:
                await self.init_transactions()
            except BaseException:
                await self._core.close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        # After an error (Ctrl-C among them) nobody wants to wait for a node that may be gone, nor to hear of that.
        await self._core.abort_quietly(LAST_CHANCE_MS)
        with contextlib.suppress(ClientError):
            await self.close(LAST_CHANCE_S)

    async def _room_for(self, size: int) -> None:
        core = self._core
        if not await core.until(lambda: core.accumulator.has_room(size), core.config.max_block_ms / 1000):
            raise BufferFull(
                f"no room for a record of {size} bytes within {core.config.max_block_ms} ms; "
                "is the node reachable? buffer.memory and max.block.ms set the limits"
            )
