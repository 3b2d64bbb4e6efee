"""Producer ids and their epochs, and the partitions of clients' transactions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from muster.coordinator.engine.upstream.errors import WAIT_FOR_COORDINATOR, Refused
from muster.coordinator.engine.upstream.upstream import PAUSE_S, TRANSACTION, Upstream
from muster.coordinator.kafka.codec.codec import struct

TRANSACTION_MS: Final = 60_000
"""Of a transaction that is never begun: Kafka wants to know."""


NOT_FOUND: Final = 105


class Given(NamedTuple):
    """A producer, where the code is 0."""

    code: int
    producer_id: int = -1
    epoch: int = -1


async def init_producer(upstream: Upstream, transactional_id: str) -> Given:
    """A producer whose epoch is one above that of whoever had this transactional id before (D3), or the code why not:
    14, 15, 16 and 51 are worth another try. Raises UpstreamError."""
    request = struct("InitProducerIdRequest")(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_MS)
    answer = await upstream.ask_coordinator(TRANSACTION, transactional_id, "InitProducerId", request)
    return Given(answer.error_code, answer.producer_id, answer.producer_epoch)


async def add_partitions(
    upstream: Upstream, transactional_id: str, producer_id: int, epoch: int, topic: str, partitions: Sequence[int]
) -> dict[int, int]:
    """Put partitions of a topic into the transaction of a client's producer (E1): Kafka's code for each. Raises
    UpstreamError."""
    asked = struct("AddPartitionsToTxnRequest.topics")(name=topic, partitions=list(partitions))
    request = struct("AddPartitionsToTxnRequest")(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, topics=[asked]
    )
    answer = await upstream.ask_coordinator(TRANSACTION, transactional_id, "AddPartitionsToTxn", request)
    codes = dict.fromkeys(partitions, -1)
    for result in answer.results:
        codes.update({each.partition_index: each.partition_error_code for each in result.results_by_partition})
    return codes


async def is_known(upstream: Upstream, transactional_id: str, patience_s: float) -> bool:
    """Whether the upstream remembers that name: for `transactional.id.expiration.ms` (7 days) after its last
    InitProducerId. patience_s: so long its coordinator may be on its way. Raises UpstreamError: Unspoken where it is
    older than Kafka 3.0 (KIP-664)."""
    request = struct("DescribeTransactionsRequest")(transactional_ids=[transactional_id])

    async def ask() -> int:
        answer = await upstream.ask_coordinator(TRANSACTION, transactional_id, "DescribeTransactions", request)
        return next((each.error_code for each in answer.transaction_states), NOT_FOUND)

    return await _patiently(upstream, transactional_id, ask, patience_s) != NOT_FOUND


async def remember(upstream: Upstream, transactional_id: str, patience_s: float) -> None:
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
        except Refused as error:
            code = error.code
        if code in (0, NOT_FOUND):
            return code
        if code not in WAIT_FOR_COORDINATOR or loop.time() > deadline_s:
            raise Refused(f"asking for the transactional id {transactional_id}", code)
        upstream.coordinator_moved(TRANSACTION, transactional_id)
        await asyncio.sleep(PAUSE_S)
