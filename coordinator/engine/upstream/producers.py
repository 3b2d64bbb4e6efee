"""Producer ids and their epochs, and the partitions of clients' transactions."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from muster.coordinator.engine.upstream.upstream import TRANSACTION, Upstream
from muster.coordinator.kafka.codec.codec import struct

TRANSACTION_MS: Final = 60_000
"""Of a transaction that is never begun: Kafka wants to know."""


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
