"""Requests about several transactions: AddPartitionsToTxn from version 4 on, and WriteTxnMarkers.

The leaders of partitions send the first to the coordinators of transactional ids, before they take records in. The
coordinators send the second to the leaders, to end transactions. Tools that end a hanging transaction send it too.
Here these messages become values and values become messages, for every listener and for the nodes that ask.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.transactions.events import PartitionAddition
from muster.coordinator.transactions.records import TopicPartition
from muster.storage.logs.producer_state import MarkerToWrite

NO_TOPIC_ID: Final = bytes(16)

BATCHED_SINCE: Final = 4
"""The first version of AddPartitionsToTxn that names several transactions."""

AT_ONCE: Final = 100
"""Transactions that are asked about at a time, and partitions of markers that begin between two turns of the loop."""

PartitionCodes: TypeAlias = Mapping[TopicPartition, int]
"""Kafka's error numbers, 0 for none."""
MarkerPlaces: TypeAlias = tuple[MarkerToWrite, tuple[TopicPartition, ...]]
"""A marker, and the partitions that it is for."""


class NodeMarker(NamedTuple):
    """A marker that one node asks of another. content: what goes into the log. topic_ids: of the topics that are meant,
    as far as they are known, by name. Kafka's message has none: they travel in a tagged field (TX-C15)."""

    content: MarkerToWrite
    topic_ids: tuple[tuple[str, bytes], ...] = ()

    @property
    def producer_id(self) -> int:
        return self.content.producer_id


WriteMarker: TypeAlias = Callable[[NodeMarker, Sequence[TopicPartition]], Coroutine[Any, Any, PartitionCodes]]
"""Writes a marker into the logs of partitions that are led here, and returns once it is known what became of it."""


def places_of(topics: Iterable[Any], partitions: str = "partitions") -> tuple[TopicPartition, ...]:
    return tuple((topic.name, number) for topic in topics for number in getattr(topic, partitions))


def numbers_of(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions of each topic, in the order in which they come."""
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found


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


def make_additions_request(additions: Iterable[PartitionAddition]) -> Any:
    """Each transactional id is named once."""
    path = "AddPartitionsToTxnRequest.transactions"
    row, topic_row = struct(path), struct(f"{path}.topics")
    return struct("AddPartitionsToTxnRequest")(
        transactions=[
            row(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                verify_only=each.verify_only,
                topics=[
                    topic_row(name=topic, partitions=numbers) for topic, numbers in numbers_of(each.partitions).items()
                ],
            )
            for each in additions
        ]
    )


def read_additions_response(response: Any) -> dict[str, PartitionCodes]:
    """By transactional id; nothing, where the whole request is refused."""
    return {
        each.transactional_id: {
            (topic.name, part.partition_index): part.partition_error_code
            for topic in each.topic_results
            for part in topic.results_by_partition
        }
        for each in response.results_by_transaction
    }


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


def read_node_markers(request: Any) -> list[tuple[NodeMarker, tuple[TopicPartition, ...]]]:
    """As `read_markers`, of another node."""
    named = [tuple((topic.name, topic.topic_id) for topic in each.topics) for each in request.markers]
    return [
        (NodeMarker(marker, tuple(each for each in topic_ids if each[1] != NO_TOPIC_ID)), places)
        for topic_ids, (marker, places) in zip(named, read_markers(request), strict=True)
    ]


def make_markers_request(markers: Iterable[tuple[NodeMarker, Sequence[TopicPartition]]]) -> Any:
    path = "WriteTxnMarkersRequest.markers"
    row, topic_row = struct(path), struct(f"{path}.topics")
    return struct("WriteTxnMarkersRequest")(
        markers=[
            row(
                producer_id=marker.producer_id,
                producer_epoch=marker.epoch,
                transaction_result=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.level,
                topics=[
                    topic_row(name=topic, partition_indexes=numbers, topic_id=topic_ids.get(topic, NO_TOPIC_ID))
                    for topic, numbers in numbers_of(places).items()
                ],
            )
            for (marker, ids), places in markers
            for topic_ids in [dict(ids)]
        ]
    )


def read_markers_response(response: Any) -> dict[int, PartitionCodes]:
    """By producer id; of one that has several markers in the request, what became of the last of each partition."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for each in response.markers:
        codes = found.setdefault(each.producer_id, {})
        for topic in each.topics:
            codes.update(((topic.name, part.partition_index), part.error_code) for part in topic.partitions)
    return dict(found)


async def write_each_marker(
    markers: Sequence[tuple[NodeMarker, Sequence[TopicPartition]]], write: WriteMarker
) -> list[tuple[int, PartitionCodes]]:
    """What became of each, by producer id. All of them are under way at a time: a slow partition holds up the answer,
    and nothing else. Others have their turn between some partitions and the next."""
    begun: list[tuple[int, asyncio.Task[PartitionCodes]]] = []
    async with asyncio.TaskGroup() as tasks:
        since_turn = 0
        for number, (marker, places) in enumerate(markers):
            for first in range(0, len(places), AT_ONCE):
                some = places[first : first + AT_ONCE]
                begun.append((number, tasks.create_task(write(marker, some))))
                since_turn += len(some)
                if since_turn >= AT_ONCE:
                    since_turn = 0
                    await asyncio.sleep(0)
    codes: list[dict[TopicPartition, int]] = [{} for _ in markers]
    for number, task in begun:
        codes[number].update(task.result())
    return [(marker.producer_id, told) for (marker, _), told in zip(markers, codes, strict=True)]
