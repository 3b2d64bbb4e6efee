"""Requests about several transactions: AddPartitionsToTxn from version 4 on, and WriteTxnMarkers.

The leaders of partitions send the first to the coordinators of transactional ids, before they take records in. The
coordinators send the second to the leaders, to end transactions. Tools that end a hanging transaction send it too.
Here these messages become values and values become messages, for every listener and for the nodes that ask.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.transactions.events import PartitionAddition
from muster.coordinator.transactions.records import TopicPartition
from muster.storage.logs.producer_state import MarkerToWrite

BATCHED_SINCE: Final = 4
"""The first version of AddPartitionsToTxn that names several transactions."""

AT_ONCE: Final = 100
"""Transactions that are asked about at a time, and partitions of markers that begin between two turns of the loop."""

PartitionCodes: TypeAlias = Mapping[TopicPartition, int]
"""Kafka's error numbers, 0 for none."""
MarkerPlaces: TypeAlias = tuple[MarkerToWrite, tuple[TopicPartition, ...]]
"""A marker, and the partitions that it is for."""


def places_of(topics: Iterable[Any], partitions: str = "partitions") -> tuple[TopicPartition, ...]:
    return tuple((topic.name, number) for topic in topics for number in getattr(topic, partitions))


def by_topic(codes: PartitionCodes) -> dict[str, list[tuple[int, int]]]:
    """(partition, code) of each topic, in the order of the partitions."""
    found: dict[str, list[tuple[int, int]]] = {}
    for (topic, number), code in codes.items():
        found.setdefault(topic, []).append((number, code))
    return found


# AddPartitionsToTxn
# ------------------


def read_additions(request: Any) -> list[PartitionAddition]:
    return [
        PartitionAddition(
            each.transactional_id,
            each.producer_id,
            each.producer_epoch,
            places_of(each.topics),
            each.verify_only,
        )
        for each in request.transactions
    ]


def make_additions_response(results: Iterable[tuple[str, PartitionCodes]], error_code: int = 0) -> Any:
    """results: what became of the partitions of each transactional id."""
    path = "AddPartitionsToTxnResponse.results_by_transaction"
    row, topic_row = struct(path), struct(f"{path}.topic_results")
    part = struct(f"{path}.topic_results.results_by_partition")
    return struct("AddPartitionsToTxnResponse")(
        error_code=error_code,
        results_by_transaction=[
            row(
                transactional_id=transactional_id,
                topic_results=[
                    topic_row(
                        name=topic,
                        results_by_partition=[
                            part(partition_index=number, partition_error_code=code) for number, code in parts
                        ],
                    )
                    for topic, parts in by_topic(codes).items()
                ],
            )
            for transactional_id, codes in results
        ],
    )


async def ask_about_each(
    additions: Sequence[PartitionAddition], ask: Callable[[PartitionAddition], Awaitable[PartitionCodes]]
) -> list[tuple[str, PartitionCodes]]:
    """What `ask` says of each, by transactional id; some of them at a time."""
    results: list[tuple[str, PartitionCodes]] = []
    for first in range(0, len(additions), AT_ONCE):
        some = additions[first : first + AT_ONCE]
        codes = await asyncio.gather(*map(ask, some))
        results += zip((each.transactional_id for each in some), codes, strict=True)
    return results


# WriteTxnMarkers
# ---------------


def read_markers(request: Any) -> list[MarkerPlaces]:
    """Version 1 says nothing of the level: its markers are of level 0."""
    return [
        (
            MarkerToWrite(
                each.producer_id,
                each.producer_epoch,
                each.transaction_result,
                each.coordinator_epoch,
                each.transaction_version,
            ),
            places_of(each.topics, "partition_indexes"),
        )
        for each in request.markers
    ]


def make_markers_response(results: Iterable[tuple[int, PartitionCodes]]) -> Any:
    """results: producer ids, and what became of the partitions of each one's marker."""
    path = "WriteTxnMarkersResponse.markers"
    row, topic_row, part = struct(path), struct(f"{path}.topics"), struct(f"{path}.topics.partitions")
    return struct("WriteTxnMarkersResponse")(
        markers=[
            row(
                producer_id=producer_id,
                topics=[
                    topic_row(
                        name=topic, partitions=[part(partition_index=number, error_code=code) for number, code in parts]
                    )
                    for topic, parts in by_topic(codes).items()
                ],
            )
            for producer_id, codes in results
        ]
    )
