"""Requests about records: Produce, Fetch, ListOffsets, and the producer ids and epochs under which records are written.

Records are read with isolation level read_uncommitted, markers included (KB-S5). AddPartitionsToTxn puts a
partition into the transaction of a client's producer (KB-E1), DescribeProducers tells where its sequences stand
(KB-E3).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from muster.assignors.api import TopicPartition
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.connection import ASK, READ, WRITE
from muster.coordinator.kafka_backend.upstream.protocol import (
    WAIT_FOR_COORDINATOR,
    Unreached,
    UpstreamError,
    UpstreamRefused,
    describe_code,
)
from muster.coordinator.kafka_backend.upstream.upstream_client import PAUSE_S, TRANSACTION, Upstream
from muster.storage.errors import CorruptMessage
from muster.storage.records.batch import BatchView, checksum_error, read_batches

ALL: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
OUT_OF_RANGE: Final = 1
SILENT: Final = 7
"""REQUEST_TIMED_OUT: of what an answer leaves out nothing was heard."""
ANSWER_LIMIT: Final = 16 << 20
"""Of all partitions of a fetch together; a single batch comes whole, however large."""
PORTION: Final = 4 << 20
"""Of one partition."""
MOST_BATCHES: Final = 10_000
"""Of one Produce request."""


BESIDE_S: Final = 1.0
"""How much longer than its own time a Produce is waited for: a broker that is silent then may lead no more (KB-A2)."""


class ProduceResult(NamedTuple):
    """What was said of one batch: Kafka's code, the offset of its first record, and where the log begins; -1: not
    told."""

    code: int
    offset: int = -1
    detail: str = ""
    start: int = -1


class FetchedPortion(NamedTuple):
    """What one fetch brought of one partition. high_watermark: where what is committed ends."""

    code: int
    batches: Sequence[BatchView]
    high_watermark: int
    start_offset: int


async def produce(
    upstream: Upstream,
    broker: int,
    batches: Mapping[TopicPartition, bytes],
    timeout_ms: int,
    transactional_id: str | None = None,
    *,
    purpose: str = WRITE,
) -> dict[TopicPartition, ProduceResult]:
    """One request with acks=all, one batch for each partition, and what became of each. Raises UpstreamError: then
    nobody knows. A partition that the answer leaves out counts as one of which nothing was heard (7)."""
    request = produce_request(batches, timeout_ms, transactional_id)
    answer = await upstream.ask_broker(
        broker, "Produce", request, purpose=purpose, waits_s=timeout_ms / 1000, within_s=BESIDE_S
    )
    return produce_results(answer, batches)


def produce_then(
    upstream: Upstream,
    broker: int,
    batches: Mapping[TopicPartition, bytes],
    timeout_ms: int,
    tell: Callable[[dict[TopicPartition, ProduceResult] | UpstreamError], None],
) -> None:
    """As `produce`, by calls alone: see `Upstream.ask_then`."""

    def told(answer: Any) -> None:
        tell(answer if isinstance(answer, UpstreamError) else produce_results(answer, batches))

    request = produce_request(batches, timeout_ms)
    upstream.ask_then(broker, "Produce", request, told, purpose=WRITE, waits_s=timeout_ms / 1000, within_s=BESIDE_S)


def produce_request(
    batches: Mapping[TopicPartition, bytes], timeout_ms: int, transactional_id: str | None = None
) -> object:
    if len(batches) > MOST_BATCHES:
        raise ValueError(f"{len(batches)} batches in one Produce; at most {MOST_BATCHES}")
    topics: dict[str, list[object]] = {}
    for (topic, partition), batch in batches.items():
        data = struct("ProduceRequest.topic_data.partition_data")(index=partition, records=batch)
        topics.setdefault(topic, []).append(data)
    return struct("ProduceRequest")(
        transactional_id=transactional_id,
        acks=ALL,
        timeout_ms=timeout_ms,
        topic_data=[
            struct("ProduceRequest.topic_data")(name=name, partition_data=data) for name, data in topics.items()
        ],
    )


def produce_results(answer: Any, batches: Iterable[TopicPartition]) -> dict[TopicPartition, ProduceResult]:
    """What became of each."""
    told = {
        (topic.name, each.index): ProduceResult(
            each.error_code, each.base_offset, each.error_message or "", each.log_start_offset
        )
        for topic in answer.responses
        for each in topic.partition_responses
    }
    return {place: told.get(place, ProduceResult(SILENT)) for place in batches}


async def fetch(
    upstream: Upstream,
    broker: int,
    wanted: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int = 0,
    portion: int = PORTION,
    purpose: str = READ,
    within_s: float | None = None,
) -> dict[TopicPartition, FetchedPortion]:
    """What there is from these offsets on, read_uncommitted, markers included; a batch that holds the offset may begin
    before it. With max_wait_ms the broker waits so long for something to come. Raises UpstreamError."""
    topics: dict[str, list[object]] = {}
    for (topic, partition), offset in wanted.items():
        part = struct("FetchRequest.topics.partitions")(
            partition=partition, fetch_offset=offset, partition_max_bytes=portion
        )
        topics.setdefault(topic, []).append(part)
    request = struct("FetchRequest")(
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=ANSWER_LIMIT,
        session_epoch=-1,
        topics=[struct("FetchRequest.topics")(topic=name, partitions=parts) for name, parts in topics.items()],
    )
    answer = await upstream.ask_broker(
        broker, "Fetch", request, purpose=purpose, waits_s=max_wait_ms / 1000, within_s=within_s
    )
    if answer.error_code:
        raise UpstreamRefused("fetching", answer.error_code)
    return {
        (topic.topic, each.partition_index): FetchedPortion(
            each.error_code, checked_batches(topic.topic, each), each.high_watermark, each.log_start_offset
        )
        for topic in answer.responses
        for each in topic.partitions
    }


def checked_batches(topic: str, part: Any) -> list[BatchView]:
    """The batches that came whole. Raises Unreached for bytes that are no batches: they are asked for again."""
    try:
        batches = list(read_batches(part.records or b""))
        for batch in batches:
            if not batch.crc_ok:
                raise checksum_error(batch)
    except CorruptMessage as error:
        raise Unreached(f"{topic}-{part.partition_index}: {error}") from error
    return batches


async def read_log(
    upstream: Upstream, topic: str, partition: int, start: int, upto: int, *, deadline_s: float
) -> AsyncIterator[list[BatchView]]:
    """The batches from `start` up to `upto`, a portion at a time; one that begins before `start` is among them.

    A leader that moves is followed, and what was deleted before the log's start is passed over. Raises UpstreamError
    when nothing new came for deadline_s.
    """
    loop = asyncio.get_running_loop()
    heard_s, why = loop.time(), ""
    while start < upto:
        if loop.time() - heard_s > deadline_s:
            raise Unreached(f"{topic}-{partition} cannot be read from offset {start} to {upto}: {why}")
        try:
            told = await fetch(upstream, upstream.leader(topic, partition), {(topic, partition): start})
            came = told[topic, partition]
        except (Unreached, KeyError) as error:
            why = str(error)
            await pause_and_refresh(upstream, topic)
            continue
        if came.code == OUT_OF_RANGE:
            begins = came.start_offset if came.start_offset >= 0 else await log_start(upstream, topic, partition)
            if begins > start:
                start = begins
                continue
        if came.code or not came.batches:
            why = describe_code(came.code) if came.code else f"it ends at {came.high_watermark}"
            await pause_and_refresh(upstream, topic)
            continue
        heard_s = loop.time()
        wanted = [batch for batch in came.batches if batch.base_offset < upto and batch.next_offset > start]
        start = max(start, came.batches[-1].next_offset)
        yield wanted


async def log_start(upstream: Upstream, topic: str, partition: int) -> int:
    """Where a log begins: most brokers do not tell it beside OFFSET_OUT_OF_RANGE. Raises UpstreamError."""
    return await _end_of(upstream, topic, partition, EARLIEST)


async def log_span(upstream: Upstream, topic: str, partition: int) -> tuple[int, int]:
    """Where a log begins, and where it ends. Raises UpstreamError."""
    start = await _end_of(upstream, topic, partition, EARLIEST)
    return start, await _end_of(upstream, topic, partition, LATEST)


async def _end_of(upstream: Upstream, topic: str, partition: int, timestamp: int) -> int:
    place = topic, partition
    told = (await list_offsets(upstream, upstream.leader(topic, partition), [place], timestamp))[place]
    if told.code:
        raise UpstreamRefused(f"asking where {topic}-{partition} begins or ends", told.code)
    return told.offset


async def pause_and_refresh(upstream: Upstream, topic: str) -> None:
    """A while later, and with what brokers say of the topic then."""
    await asyncio.sleep(PAUSE_S)
    try:
        await upstream.refresh([topic])
    except Unreached:
        return


async def list_offsets(
    upstream: Upstream, broker: int, places: Iterable[TopicPartition], timestamp: int = LATEST, *, purpose: str = ASK
) -> dict[TopicPartition, ProduceResult]:
    """Where these logs end, or with EARLIEST begin, as far as one leader can tell; a code for each, 7 for one that the
    answer leaves out. Raises UpstreamError."""
    places = list(places)
    topics: dict[str, list[object]] = {}
    for topic, partition in places:
        part = struct("ListOffsetsRequest.topics.partitions")(partition_index=partition, timestamp=timestamp)
        topics.setdefault(topic, []).append(part)
    request = struct("ListOffsetsRequest")(
        replica_id=-1,
        topics=[struct("ListOffsetsRequest.topics")(name=name, partitions=parts) for name, parts in topics.items()],
    )
    answer = await upstream.ask_broker(broker, "ListOffsets", request, purpose=purpose)
    told = {
        (topic.name, each.partition_index): ProduceResult(each.error_code, each.offset)
        for topic in answer.topics
        for each in topic.partitions
    }
    return {place: told.get(place, ProduceResult(SILENT)) for place in places}


async def fetch_log_sizes(upstream: Upstream, broker: int, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """How many bytes a broker's logs of these partitions have; without those that it does not tell. Raises
    UpstreamError."""
    asked = struct("DescribeLogDirsRequest.topics")(topic=topic, partitions=list(partitions))
    answer = await upstream.ask_broker(broker, "DescribeLogDirs", struct("DescribeLogDirsRequest")(topics=[asked]))
    return {
        each.partition_index: each.partition_size
        for result in answer.results
        for told in result.topics
        if told.name == topic
        for each in told.partitions
        if not each.is_future_key
    }


# Producer ids, epochs and transactions
# -------------------------------------

COORDINATOR_NOT_AVAILABLE: Final = 15

TRANSACTION_MS: Final = 60_000
"""Of a transaction that is never begun: Kafka wants to know."""


NOT_FOUND: Final = 105


class DescribedProducerState(NamedTuple):
    """What the leader of a partition knows of a producer; all of it -1: nothing. open_at: the offset where its open
    transaction begins."""

    code: int
    epoch: int = -1
    last_sequence: int = -1
    open_at: int = -1


class InitializedProducer(NamedTuple):
    """A producer, where the code is 0."""

    code: int
    producer_id: int = -1
    epoch: int = -1


async def init_producer(upstream: Upstream, transactional_id: str) -> InitializedProducer:
    """A producer whose epoch is one above that of whoever had this transactional id before (KB-D3), or the code why
    not: 14, 15, 16 and 51 are worth another try. Raises UpstreamError."""
    request = struct("InitProducerIdRequest")(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_MS)
    answer = await upstream.ask_coordinator(TRANSACTION, transactional_id, "InitProducerId", request)
    return InitializedProducer(answer.error_code, answer.producer_id, answer.producer_epoch)


async def add_partition_to_transaction(
    upstream: Upstream,
    transactional_id: str,
    producer: tuple[int, int],
    place: tuple[str, int],
    broker: int | None = None,
) -> int:
    """Put a partition into the transaction of a client's producer, given with its epoch (KB-E1): Kafka's code. broker:
    who is asked; None: whoever coordinates the transaction. Raises UpstreamError."""
    topic, partition = place
    asked = struct("AddPartitionsToTxnRequest.topics")(name=topic, partitions=[partition])
    request = struct("AddPartitionsToTxnRequest")(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], topics=[asked]
    )
    if broker is not None:
        answer = await upstream.ask_broker(broker, "AddPartitionsToTxn", request)
    else:
        answer = await upstream.ask_coordinator(TRANSACTION, transactional_id, "AddPartitionsToTxn", request)
    codes = [each.partition_error_code for result in answer.results for each in result.results_by_partition]
    code = int(codes[0]) if codes else COORDINATOR_NOT_AVAILABLE
    upstream.count("AddPartitionsToTxn", code)
    if broker is None and code in WAIT_FOR_COORDINATOR:
        upstream.coordinator_moved(TRANSACTION, transactional_id)
    return code


async def describe_producer(
    upstream: Upstream, broker: int, topic: str, partition: int, producer_id: int
) -> DescribedProducerState:
    """What this leader knows of a producer in its partition (KB-E3). Raises UpstreamError."""
    asked = struct("DescribeProducersRequest.topics")(name=topic, partition_indexes=[partition])
    answer = await upstream.ask_broker(broker, "DescribeProducers", struct("DescribeProducersRequest")(topics=[asked]))
    for each in (part for found in answer.topics for part in found.partitions):
        if each.error_code:
            return DescribedProducerState(int(each.error_code))
        for one in each.active_producers:
            if one.producer_id == producer_id:
                return DescribedProducerState(0, one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
    return DescribedProducerState(0)


async def is_transactional_id_known(upstream: Upstream, transactional_id: str, patience_s: float) -> bool:
    """Whether the upstream remembers that name: for `transactional.id.expiration.ms` (7 days) after its last
    InitProducerId. patience_s: so long its coordinator may be on its way. Raises UpstreamError: Unspoken where it is
    older than Kafka 3.0 (KIP-664)."""
    request = struct("DescribeTransactionsRequest")(transactional_ids=[transactional_id])

    async def ask() -> int:
        answer = await upstream.ask_coordinator(TRANSACTION, transactional_id, "DescribeTransactions", request)
        return next((each.error_code for each in answer.transaction_states), NOT_FOUND)

    return await _patiently(upstream, transactional_id, ask, patience_s) != NOT_FOUND


async def remember_transactional_id(upstream: Upstream, transactional_id: str, patience_s: float) -> None:
    """Have the upstream remember that name. Raises UpstreamError."""

    async def ask() -> int:
        return (await init_producer(upstream, transactional_id)).code

    await _patiently(upstream, transactional_id, ask, patience_s)


async def _patiently(
    upstream: Upstream, transactional_id: str, ask: Callable[[], Awaitable[int]], patience_s: float
) -> int:
    """0 or NOT_FOUND. Raises Refused for another code; those of a coordinator that moves, after that time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + patience_s
    while True:
        try:
            code = await ask()
        except UpstreamRefused as error:
            code = error.code
        if code in (0, NOT_FOUND):
            return code
        if code not in WAIT_FOR_COORDINATOR or loop.time() > deadline_s:
            raise UpstreamRefused(f"asking for the transactional id {transactional_id}", code)
        upstream.coordinator_moved(TRANSACTION, transactional_id)
        await asyncio.sleep(PAUSE_S)
