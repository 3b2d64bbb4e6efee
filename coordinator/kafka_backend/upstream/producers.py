"""Producer ids and their epochs, and the partitions of clients' transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.errors import WAIT_FOR_COORDINATOR, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream import PAUSE_S, TRANSACTION, Upstream

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
        answer = await upstream.ask(broker, "AddPartitionsToTxn", request)
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
    answer = await upstream.ask(broker, "DescribeProducers", struct("DescribeProducersRequest")(topics=[asked]))
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
