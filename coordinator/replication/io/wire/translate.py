"""Between what nodes mean and the messages of copying that say it: Fetch, OffsetForLeaderEpoch. Pure; both directions
of each message stand together."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.io.wire.words import EpochEnd, EpochQuery
from muster.coordinator.replication.protocol.facts import NO_EPOCH, NO_NODE_ID, TopicPartition
from muster.coordinator.replication.protocol.messages import (
    PART_BYTES,
    FetchAnswer,
    FetchedPartition,
    FetchItem,
    FetchRequest,
    ForgottenPartition,
)

NameOf: TypeAlias = Callable[[bytes], str | None]
"""The name of the topic that has this id, as far as this node knows. On the wire topics go by their ids."""

Key = TypeVar("Key")
Row = TypeVar("Row")


def group_rows(rows: Iterable[tuple[Key, Row]]) -> Mapping[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for key, row in rows:
        found.setdefault(key, []).append(row)
    return found


# -- Fetch ------------------------------------------------------------------------------------------------------------


def fetch_request(cluster_id: str, request: FetchRequest, *, max_wait_ms: int, min_bytes: int) -> Any:
    topic, left = struct("FetchRequest.topics"), struct("FetchRequest.forgotten_topics_data")
    rows = group_rows((item.topic_id, fetch_row(item, request.part_bytes)) for item in request.items)
    gone = group_rows((each.topic_id, each.place.partition) for each in request.forgotten)
    return struct("FetchRequest")(
        cluster_id=cluster_id,
        replica_state=struct("FetchRequest.replica_state")(replica_id=request.node, replica_epoch=request.node_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=request.answer_bytes,
        session_id=request.session,
        session_epoch=request.session_epoch,
        topics=[topic(topic_id=topic_id, partitions=each) for topic_id, each in rows.items()],
        forgotten_topics_data=[left(topic_id=topic_id, partitions=each) for topic_id, each in gone.items()],
    )


def fetch_row(item: FetchItem, part_bytes: int) -> Any:
    return struct("FetchRequest.topics.partitions")(
        partition=item.place.partition,
        current_leader_epoch=item.epoch,
        fetch_offset=item.offset,
        last_fetched_epoch=item.last_epoch,
        log_start_offset=item.start,
        partition_max_bytes=part_bytes,
    )


def parse_fetch_request(request: Any, name_of: NameOf) -> tuple[FetchRequest, list[FetchedPartition]]:
    """What is asked of topics that are known here, and what to answer of the others.

    Sizes hold for the whole request: nodes ask for as much of each partition.
    """
    items: list[FetchItem] = []
    unknown: list[FetchedPartition] = []
    part_bytes = PART_BYTES
    for topic in request.topics:
        name = name_of(topic.topic_id)
        for row in topic.partitions:
            if name is None:
                place = TopicPartition("", row.partition)
                unknown.append(FetchedPartition(place, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            part_bytes = min(part_bytes, max(row.partition_max_bytes, 1))
            place = TopicPartition(name, row.partition)
            asked = row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch, row.log_start_offset
            items.append(FetchItem(place, topic.topic_id, *asked))
    forgotten = tuple(
        ForgottenPartition(TopicPartition(name, number), topic.topic_id)
        for topic in request.forgotten_topics_data
        if (name := name_of(topic.topic_id)) is not None
        for number in topic.partitions
    )
    replica = request.replica_state
    session = request.session_id, request.session_epoch
    sizes = part_bytes, max(request.max_bytes, 1)
    return FetchRequest(replica.replica_id, replica.replica_epoch, *session, tuple(items), forgotten, *sizes), unknown


def fetch_response(answer: FetchAnswer, unknown: Iterable[FetchedPartition] = ()) -> Any:
    topic = struct("FetchResponse.responses")
    rows = group_rows((part.topic_id, fetched_row(part)) for parts in (answer.parts, unknown) for part in parts)
    return struct("FetchResponse")(
        error_code=answer.code,
        session_id=answer.session,
        responses=[topic(topic_id=topic_id, partitions=each) for topic_id, each in rows.items()],
    )


def fetched_row(part: FetchedPartition) -> Any:
    """What a replica has no use for (the last stable offset, aborted transactions) says nothing."""
    row = struct("FetchResponse.responses.partitions")(
        partition_index=part.place.partition,
        error_code=part.code,
        high_watermark=part.high_watermark,
        log_start_offset=part.start,
        records=part.records,
    )
    if part.diverging is not None:
        epoch, end = part.diverging
        row.diverging_epoch = struct("FetchResponse.responses.partitions.diverging_epoch")(epoch=epoch, end_offset=end)
    if part.leader_epoch != NO_EPOCH:
        leader = struct("FetchResponse.responses.partitions.current_leader")
        row.current_leader = leader(leader_id=part.leader, leader_epoch=part.leader_epoch)
    return row


def parse_fetch_response(response: Any, name_of: NameOf) -> FetchAnswer:
    """Of topics that are known no more nothing is told. Records are views of the answer's bytes, not looked into."""
    parts = tuple(
        fetched_partition(TopicPartition(name, row.partition_index), topic.topic_id, row)
        for topic in response.responses
        if (name := name_of(topic.topic_id)) is not None
        for row in topic.partitions
    )
    return FetchAnswer(response.error_code, response.session_id, parts)


def fetched_partition(place: TopicPartition, topic_id: bytes, row: Any) -> FetchedPartition:
    parted, leader = row.diverging_epoch, row.current_leader
    return FetchedPartition(
        place,
        topic_id,
        row.error_code,
        row.high_watermark,
        row.log_start_offset,
        None if parted is None else (parted.epoch, parted.end_offset),
        row.records or b"",
        NO_NODE_ID if leader is None else leader.leader_id,
        NO_EPOCH if leader is None else leader.leader_epoch,
    )


# -- OffsetForLeaderEpoch ---------------------------------------------------------------------------------------------


def epochs_request(node: int, asked: Iterable[EpochQuery]) -> Any:
    topic, row = struct("OffsetForLeaderEpochRequest.topics"), struct("OffsetForLeaderEpochRequest.topics.partitions")
    rows = group_rows(
        (
            one.topic,
            row(partition=one.partition, current_leader_epoch=one.leader_epoch, leader_epoch=one.epoch),
        )
        for one in asked
    )
    topics = [topic(topic=name, partitions=each) for name, each in rows.items()]
    return struct("OffsetForLeaderEpochRequest")(replica_id=node, topics=topics)


def parse_epochs_request(request: Any) -> tuple[EpochQuery, ...]:
    return tuple(
        EpochQuery(topic.topic, row.partition, row.current_leader_epoch, row.leader_epoch)
        for topic in request.topics
        for row in topic.partitions
    )


def epochs_response(ends: Iterable[EpochEnd]) -> Any:
    topic, row = struct("OffsetForLeaderEpochResponse.topics"), struct("OffsetForLeaderEpochResponse.topics.partitions")
    rows = group_rows(
        (one.topic, row(partition=one.partition, error_code=one.error, leader_epoch=one.epoch, end_offset=one.end))
        for one in ends
    )
    return struct("OffsetForLeaderEpochResponse")(
        topics=[topic(topic=name, partitions=each) for name, each in rows.items()]
    )


def parse_epochs_response(response: Any) -> list[EpochEnd]:
    return [
        EpochEnd(topic.topic, row.partition, error_code_of(row.error_code), row.leader_epoch, row.end_offset)
        for topic in response.topics
        for row in topic.partitions
    ]
