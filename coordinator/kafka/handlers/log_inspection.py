"""What tools ask each node in turn: its log directory (KIP-113), the producers of a partition, and transactions
(KIP-664). Web interfaces and exporters ask it at their start, whatever they show later."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall, encode_aside
from muster.long_work import AT_ONCE, map_off_loop, slice_queue
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import StorageError
from muster.storage.types import Topic, TopicPartition

TRANSACTION_STATES: Final = frozenset(
    {
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    }
)  # fmt: skip
"""Kafka's names of the states of a transaction."""

NO_SPACE_KNOWN: Final = (-1, -1)


class LogInspectionHandlers:
    """The node has one log directory, no future copies, and no transactions of its own."""

    def __init__(self, requests: LogRequests, directory: str) -> None:
        """directory: where the logs are, as `log.dirs` has it."""
        self._requests = requests
        self._broker = requests.broker
        self._directory = directory
        self._turn = asyncio.Lock()  # of answers about many partitions

    # DescribeLogDirs

    async def describe_log_dirs(self, request: Any, call: KafkaCall) -> Any:
        """Bytes of each partition that is held here, of those asked for or of all. Unknown ones are left out."""
        asked = None if request.topics is None else [(one.topic, one.partitions) for one in request.topics]
        here = (topic.here for topic in self._broker.topics().values())
        many = sum(map(len, here)) if asked is None else sum(len(numbers) for _, numbers in asked)
        if many <= AT_ONCE:
            return await self._describe_directory(self._held(self._broker.topics(), asked), call.api_version)
        async with self._turn:  # naming many partitions takes the loop a while, too: one caller at a time
            return await self._describe_directory(self._held(self._broker.topics(), asked), call.api_version)

    @staticmethod
    def _held(topics: Mapping[str, Topic], asked: Sequence[tuple[str, Sequence[int]]] | None) -> list[TopicPartition]:
        """Partitions that are held here, topic by topic."""
        if asked is None:
            return [(topic.name, number) for topic in topics.values() for number in topic.here]
        found: dict[TopicPartition, None] = {}
        for name, numbers in asked:
            if (topic := topics.get(name)) is not None:
                found |= dict.fromkeys((name, number) for number in numbers if number in topic.here)
        return list(found)

    async def _describe_directory(self, places: Sequence[TopicPartition], version: int) -> Any:
        sizes = await self._sizes(places)
        space = await asyncio.to_thread(measure_space, self._directory)

        def whole() -> Any:
            return make_directory_answer(self._directory, space, places, sizes)

        return await encode_aside("DescribeLogDirsResponse", version, whole, len(places))

    async def _sizes(self, places: Sequence[TopicPartition]) -> list[int]:
        sizes: list[int] = []
        for start in range(0, len(places), AT_ONCE):
            sizes += self._broker.sizes(places[start : start + AT_ONCE])
            await slice_queue().wait()
        return sizes

    # DescribeProducers

    async def describe_producers(self, request: Any, call: KafkaCall) -> Any:
        """The producers that this node's log of a partition knows: sequences, and where an open transaction begins.

        Each copy answers, as in Kafka: `find-hanging --broker-id` asks one node about all that it has.
        """
        asked = [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
        rows = dict(zip(asked, await map_off_loop(self._producers, asked), strict=True))
        topic_row = struct("DescribeProducersResponse.topics")
        topics: dict[str, list[Any]] = {topic.name: [] for topic in request.topics}
        for (name, _), found in rows.items():
            topics[name].append(found)
        answer = struct("DescribeProducersResponse")(
            topics=[topic_row(name=name, partitions=found) for name, found in topics.items()]
        )
        many = sum(len(found.active_producers) for found in rows.values())
        return await encode_aside("DescribeProducersResponse", call.api_version, lambda: answer, many)

    def _producers(self, place: TopicPartition) -> Any:
        """The row of one partition. In any thread."""
        row = struct("DescribeProducersResponse.topics.partitions")
        producer_row = struct("DescribeProducersResponse.topics.partitions.active_producers")
        try:
            known = self._broker.hosted_log(*place).list_producers()
        except StorageError as error:
            return row(partition_index=place[1], error_code=error.code, error_message=str(error))
        return row(
            partition_index=place[1],
            active_producers=[
                producer_row(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.txn_first_offset,
                )
                for producer in known
            ],
        )

    # ListTransactions

    async def list_transactions(self, request: Any, call: KafkaCall) -> Any:
        """None: a node coordinates no transactions. States that Kafka does not have are told."""
        unknown = [state for state in dict.fromkeys(request.state_filters) if state not in TRANSACTION_STATES]
        return struct("ListTransactionsResponse")(unknown_state_filters=unknown, transaction_states=[])


def make_directory_answer(
    directory: str, space: tuple[int, int], places: Sequence[TopicPartition], sizes: Sequence[int]
) -> Any:
    """The answer to DescribeLogDirs. space: as `measure_space` has it."""
    row = struct("DescribeLogDirsResponse.results.topics.partitions")
    topic_row = struct("DescribeLogDirsResponse.results.topics")
    partitions: dict[str, list[Any]] = {}
    for (name, number), size in zip(places, sizes, strict=True):
        partitions.setdefault(name, []).append(row(partition_index=number, partition_size=size))
    total, usable = space
    result = struct("DescribeLogDirsResponse.results")(
        log_dir=directory,
        topics=[topic_row(name=name, partitions=rows) for name, rows in partitions.items()],
        total_bytes=total,
        usable_bytes=usable,
    )
    return struct("DescribeLogDirsResponse")(results=[result])


def measure_space(directory: str) -> tuple[int, int]:
    """Bytes that the disk of a directory has, and how many of them are free; -1 where that cannot be told."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return NO_SPACE_KNOWN
    return usage.total, usage.free
