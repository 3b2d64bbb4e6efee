"""ListOffsets, OffsetForLeaderEpoch (KIP-320) and InitProducerId: where a log, or an epoch of it, begins and ends.

What needs a search in the log is searched in a thread. InitProducerId hands out the ids of idempotent producers.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall, encode_aside
from muster.coordinator.kafka.handlers.produce_and_fetch import READ_COMMITTED, iterate_partitions
from muster.coordinator.kafka.protocol import UnsupportedTimestamp, refuse_replica, refuse_transactions
from muster.long_work import AT_ONCE, map_here_or_off_loop, slice_queue
from muster.storage.broker.broker import check_epoch, end_of_epoch
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import InvalidRequest, OffsetNotAvailable, StorageError
from muster.storage.logs.segment import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    is_known_timestamp,
)

LEADER_NOT_AVAILABLE: Final = 5
FEW: Final = 100
"""Partitions that are looked up without a pause, however many connections ask."""
NOT_AVAILABLE_SINCE: Final = 5
"""The first version of ListOffsets that has OFFSET_NOT_AVAILABLE (KIP-207)."""
NEVER: Final = 1 << 15
TIERED_SINCE: Final = {EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The first version that may ask for each (KIP-405, KIP-1005)."""


OffsetQuery: TypeAlias = tuple[Any, Any]
"""A topic of the request, and one of its partitions."""


class SegmentStart(NamedTuple):
    """Where a segment begins, or the log ends."""

    offset: int


@dataclass(slots=True)
class ListedPartition:
    """One partition of a ListOffsetsResponse."""

    partition_index: int
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    old_style_offsets: Sequence[SegmentStart] = ()
    """In version 0: beginnings of segments that are old enough, the newest first."""


@dataclass(slots=True)
class ListedTopic:
    name: str
    partitions: list[ListedPartition]


@dataclass(slots=True)
class ListOffsetsResponse:
    topics: list[ListedTopic] = field(default_factory=list)


@dataclass(slots=True)
class InitProducerIdResponse:
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


class LogOffsetHandlers:
    """Handlers of what a log knows about itself; what it has to search for is searched in a thread."""

    def __init__(self, requests: LogRequests) -> None:
        self._requests = requests
        self._turn = asyncio.Lock()  # of requests about many partitions

    def list_offsets_now(self, request: Any, call: KafkaCall) -> ListOffsetsResponse | None:
        """What logs know without a search, of a few partitions: readers ask that, and tools that measure lag."""
        asked = list(iterate_partitions(request.topics, "partitions"))
        if len(asked) > FEW or not all(is_known_timestamp(part.timestamp) for _, part in asked):
            return None
        look = self._offset_lookup(request, call.api_version)
        return make_list_offsets_response(request, asked, map(look, asked))

    async def list_offsets(self, request: Any, call: KafkaCall) -> ListOffsetsResponse | EncodedAnswer:
        """Offsets by time: -1 the end (read_committed: the last stable offset), -2 the start, -3 the youngest."""
        asked = list(iterate_partitions(request.topics, "partitions"))
        look = self._offset_lookup(request, call.api_version)
        if len(asked) <= FEW:
            return make_list_offsets_response(request, asked, await self._look_each(look, asked))
        async with self._turn:
            answer = make_list_offsets_response(request, asked, await self._look_each(look, asked))
            return await encode_aside("ListOffsetsResponse", call.api_version, lambda: answer, len(asked))

    async def _look_each(
        self, look: Callable[[OffsetQuery], ListedPartition], asked: Sequence[OffsetQuery]
    ) -> list[ListedPartition]:
        return await map_here_or_off_loop(look, asked, lambda one: is_known_timestamp(one[1].timestamp))

    def _offset_lookup(self, request: Any, version: int) -> Callable[[OffsetQuery], ListedPartition]:
        """What looks one partition up."""
        committed = request.isolation_level == READ_COMMITTED
        refusal = refuse_replica(request.replica_id)

        def look(one: OffsetQuery) -> ListedPartition:
            topic, part = one
            if refusal is not None:
                return ListedPartition(part.partition_index, refusal.code)
            return self._listed(topic.name, part, committed, version) if version else self._beginnings(topic.name, part)

        return look

    def _listed(self, topic: str, part: Any, committed: bool, version: int) -> ListedPartition:
        index = part.partition_index
        refusal = check_epoch(self._requests.broker, topic, index, part.current_leader_epoch)
        if refusal is not None:
            return ListedPartition(index, refusal.code)
        try:
            if part.timestamp < MAX_TIMESTAMP and version < TIERED_SINCE.get(part.timestamp, NEVER):
                raise UnsupportedTimestamp(
                    f"Timestamp {part.timestamp} asks for nothing in version {version}; expected -3 or more."
                )
            found = self._requests.list_offset(topic, index, part.timestamp, committed=committed)
        except OffsetNotAvailable as error:
            # Older clients do not know that word.
            return ListedPartition(index, error.code if version >= NOT_AVAILABLE_SINCE else LEADER_NOT_AVAILABLE)
        except StorageError as error:
            return ListedPartition(index, error.code)
        offset, timestamp, epoch = found
        return ListedPartition(index, 0, timestamp, offset, epoch)

    def _beginnings(self, topic: str, part: Any) -> ListedPartition:
        """Version 0: -1 the end and segments before it, -2 the start, a time the segments whose records are older."""
        try:
            log = self._requests.broker.log(topic, part.partition_index)
            if part.timestamp == LATEST:
                self._requests.list_offset(topic, part.partition_index, LATEST)
        except OffsetNotAvailable:
            return ListedPartition(part.partition_index, LEADER_NOT_AVAILABLE)
        except StorageError as error:
            return ListedPartition(part.partition_index, error.code)
        begins = [max(each.base_offset, log.start_offset) for each in log.segments]
        if part.timestamp == LATEST:
            found = [*begins, log.high_watermark]
        elif part.timestamp == EARLIEST:
            found = [log.start_offset]
        else:
            ages = [each.max_timestamp for each in log.segments]
            found = [begin for begin, age in zip(begins, ages, strict=True) if age <= part.timestamp]
        newest = sorted(set(found), reverse=True)[: max(part.max_num_offsets, 0)]
        return ListedPartition(part.partition_index, old_style_offsets=[SegmentStart(offset) for offset in newest])

    async def init_producer_id(self, request: Any, call: KafkaCall) -> InitProducerIdResponse:
        """An id that was never given before, at epoch 0: without transactions nobody has to be fenced (KIP-360)."""
        try:
            if request.transactional_id == "":
                raise InvalidRequest("transactional.id is empty; expected none at all, or one with characters.")
            if request.transactional_id is not None:
                raise refuse_transactions(request.transactional_id)
            producer_id, epoch = self._requests.broker.next_producer_id()
        except StorageError as error:
            return InitProducerIdResponse(error.code)
        return InitProducerIdResponse(0, producer_id, epoch)


def make_list_offsets_response(
    request: Any, asked: Sequence[OffsetQuery], found: Iterable[ListedPartition]
) -> ListOffsetsResponse:
    """What was found, topic by topic."""
    answer = {topic.name: ListedTopic(topic.name, []) for topic in request.topics}
    for (topic, _), listed in zip(asked, found, strict=True):
        answer[topic.name].partitions.append(listed)
    return ListOffsetsResponse(list(answer.values()))


# OffsetForLeaderEpoch
# --------------------

UNKNOWN_EPOCH: Final = -1


class LeaderEpochHandlers:
    """Handlers of what a log knows about its leaders."""

    def __init__(self, requests: LogRequests) -> None:
        self._requests = requests

    async def offset_for_leader_epoch(self, request: Any, call: KafkaCall) -> Any:
        """Of each partition the largest epoch that is not above the one asked for, and where it ends; -1 each where
        that is not known, which is no error."""
        made = struct("OffsetForLeaderEpochResponse.topics")
        refusal = refuse_replica(request.replica_id)
        topics, done = [], 0
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                rows.append(self._end(topic.topic, part, refusal))
                done += 1
                if done % AT_ONCE == 0:
                    await slice_queue().wait()
            topics.append(made(topic=topic.topic, partitions=rows))
        return struct("OffsetForLeaderEpochResponse")(topics=topics)

    def _end(self, topic: str, part: Any, refusal: StorageError | None) -> Any:
        row, index = struct("OffsetForLeaderEpochResponse.topics.partitions"), part.partition
        try:
            refusal = refusal or check_epoch(self._requests.broker, topic, index, part.current_leader_epoch)
            if refusal is not None:
                raise refusal
            epoch, end = end_of_epoch(self._requests.broker.log(topic, index), part.leader_epoch)
        except StorageError as error:
            return row(error_code=error.code, partition=index, leader_epoch=UNKNOWN_EPOCH, end_offset=UNKNOWN_EPOCH)
        return row(partition=index, leader_epoch=epoch, end_offset=end)
