"""Between what nodes mean and the messages of copying that say it: Fetch, OffsetForLeaderEpoch. Pure; both directions
of each message stand together."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from muster.coordinator.cluster.controller.effects import IsrAltered, IsrResult, ShutdownAnswered
from muster.coordinator.cluster.controller.events import IsrItem, IsrMember, Offline
from muster.coordinator.cluster.facts import NO_EPOCH, NOBODY, Endpoint, State, TopicPartition
from muster.coordinator.cluster.image import ClusterState, Known, NodeStatus, NodeView, PartitionView, TopicView
from muster.coordinator.cluster.replicas.messages import (
    PART_BYTES,
    FetchAnswer,
    FetchedPart,
    FetchItem,
    FetchRequest,
    Forgotten,
)
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.wire.words import EpochAsked, EpochEnd, Noted

NameOf: TypeAlias = Callable[[bytes], str | None]
"""The name of the topic that has this id, as far as this node knows. On the wire topics go by their ids."""

Key = TypeVar("Key")
Row = TypeVar("Row")


def code_of(number: int) -> ErrorCode:
    """A code of another version's that is not known here is a failure like any other."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def grouped(rows: Iterable[tuple[Key, Row]]) -> Mapping[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for key, row in rows:
        found.setdefault(key, []).append(row)
    return found


# -- Fetch ------------------------------------------------------------------------------------------------------------


def fetch_request(cluster_id: str, request: FetchRequest, *, max_wait_ms: int, min_bytes: int) -> Any:
    topic, left = struct("FetchRequest.topics"), struct("FetchRequest.forgotten_topics_data")
    rows = grouped((item.topic_id, row_of(item, request.part_bytes)) for item in request.items)
    gone = grouped((each.topic_id, each.place.partition) for each in request.forgotten)
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


def row_of(item: FetchItem, part_bytes: int) -> Any:
    return struct("FetchRequest.topics.partitions")(
        partition=item.place.partition,
        current_leader_epoch=item.epoch,
        fetch_offset=item.offset,
        last_fetched_epoch=item.last_epoch,
        log_start_offset=item.start,
        partition_max_bytes=part_bytes,
    )


def fetch_asked(request: Any, name_of: NameOf) -> tuple[FetchRequest, list[FetchedPart]]:
    """What is asked of topics that are known here, and what to answer of the others.

    Sizes hold for the whole request: nodes ask for as much of each partition.
    """
    items: list[FetchItem] = []
    unknown: list[FetchedPart] = []
    part_bytes = PART_BYTES
    for topic in request.topics:
        name = name_of(topic.topic_id)
        for row in topic.partitions:
            if name is None:
                place = TopicPartition("", row.partition)
                unknown.append(FetchedPart(place, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            part_bytes = min(part_bytes, max(row.partition_max_bytes, 1))
            place = TopicPartition(name, row.partition)
            asked = row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch, row.log_start_offset
            items.append(FetchItem(place, topic.topic_id, *asked))
    forgotten = tuple(
        Forgotten(TopicPartition(name, number), topic.topic_id)
        for topic in request.forgotten_topics_data
        if (name := name_of(topic.topic_id)) is not None
        for number in topic.partitions
    )
    replica = request.replica_state
    session = request.session_id, request.session_epoch
    sizes = part_bytes, max(request.max_bytes, 1)
    return FetchRequest(replica.replica_id, replica.replica_epoch, *session, tuple(items), forgotten, *sizes), unknown


def fetch_response(answer: FetchAnswer, unknown: Iterable[FetchedPart] = ()) -> Any:
    topic = struct("FetchResponse.responses")
    rows = grouped((part.topic_id, part_row(part)) for parts in (answer.parts, unknown) for part in parts)
    return struct("FetchResponse")(
        error_code=answer.code,
        session_id=answer.session,
        responses=[topic(topic_id=topic_id, partitions=each) for topic_id, each in rows.items()],
    )


def part_row(part: FetchedPart) -> Any:
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


def fetch_answer(response: Any, name_of: NameOf) -> FetchAnswer:
    """Of topics that are known no more nothing is told. Records are views of the answer's bytes, not looked into."""
    parts = tuple(
        part_of(TopicPartition(name, row.partition_index), topic.topic_id, row)
        for topic in response.responses
        if (name := name_of(topic.topic_id)) is not None
        for row in topic.partitions
    )
    return FetchAnswer(response.error_code, response.session_id, parts)


def part_of(place: TopicPartition, topic_id: bytes, row: Any) -> FetchedPart:
    parted, leader = row.diverging_epoch, row.current_leader
    return FetchedPart(
        place,
        topic_id,
        row.error_code,
        row.high_watermark,
        row.log_start_offset,
        None if parted is None else (parted.epoch, parted.end_offset),
        row.records or b"",
        NOBODY if leader is None else leader.leader_id,
        NO_EPOCH if leader is None else leader.leader_epoch,
    )


# -- OffsetForLeaderEpoch ---------------------------------------------------------------------------------------------


def epochs_request(node: int, asked: Iterable[EpochAsked]) -> Any:
    topic, row = struct("OffsetForLeaderEpochRequest.topics"), struct("OffsetForLeaderEpochRequest.topics.partitions")
    rows = grouped(
        (
            one.topic,
            row(partition=one.partition, current_leader_epoch=one.leader_epoch, leader_epoch=one.epoch),
        )
        for one in asked
    )
    topics = [topic(topic=name, partitions=each) for name, each in rows.items()]
    return struct("OffsetForLeaderEpochRequest")(replica_id=node, topics=topics)


def epochs_asked(request: Any) -> tuple[EpochAsked, ...]:
    return tuple(
        EpochAsked(topic.topic, row.partition, row.current_leader_epoch, row.leader_epoch)
        for topic in request.topics
        for row in topic.partitions
    )


def epochs_response(ends: Iterable[EpochEnd]) -> Any:
    topic, row = struct("OffsetForLeaderEpochResponse.topics"), struct("OffsetForLeaderEpochResponse.topics.partitions")
    rows = grouped(
        (one.topic, row(partition=one.partition, error_code=one.error, leader_epoch=one.epoch, end_offset=one.end))
        for one in ends
    )
    return struct("OffsetForLeaderEpochResponse")(
        topics=[topic(topic=name, partitions=each) for name, each in rows.items()]
    )


def epoch_ends(response: Any) -> list[EpochEnd]:
    return [
        EpochEnd(topic.topic, row.partition, code_of(row.error_code), row.leader_epoch, row.end_offset)
        for topic in response.topics
        for row in topic.partitions
    ]


# -- AlterPartition ---------------------------------------------------------------------------------------------------


def alter_request(node: int, node_epoch: int, items: Iterable[IsrItem]) -> Any:
    topic, row = struct("AlterPartitionRequest.topics"), struct("AlterPartitionRequest.topics.partitions")
    member = struct("AlterPartitionRequest.topics.partitions.new_isr_with_epochs")
    rows = grouped(
        (
            one.topic_id,
            row(
                partition_index=one.partition,
                leader_epoch=one.leader_epoch,
                partition_epoch=one.partition_epoch,
                new_isr_with_epochs=[member(broker_id=each.node, broker_epoch=each.epoch) for each in one.isr],
            ),
        )
        for one in items
    )
    topics = [topic(topic_id=topic_id, partitions=each) for topic_id, each in rows.items()]
    return struct("AlterPartitionRequest")(broker_id=node, broker_epoch=node_epoch, topics=topics)


def alter_items(request: Any) -> tuple[IsrItem, ...]:
    return tuple(
        IsrItem(
            topic.topic_id,
            row.partition_index,
            row.leader_epoch,
            row.partition_epoch,
            tuple(IsrMember(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs),
        )
        for topic in request.topics
        for row in topic.partitions
    )


def alter_response(answer: IsrAltered) -> Any:
    topic, row = struct("AlterPartitionResponse.topics"), struct("AlterPartitionResponse.topics.partitions")
    rows = grouped(
        (
            one.topic_id,
            row(partition_index=one.partition, error_code=one.error)
            if one.state is None
            else row(
                partition_index=one.partition,
                error_code=one.error,
                leader_id=one.state.leader,
                leader_epoch=one.state.leader_epoch,
                isr=list(one.state.isr),
                partition_epoch=one.state.partition_epoch,
            ),
        )
        for one in answer.results
    )
    topics = [topic(topic_id=topic_id, partitions=each) for topic_id, each in rows.items()]
    return struct("AlterPartitionResponse")(error_code=answer.error, topics=topics)


def altered(response: Any) -> IsrAltered:
    """Of a state no more is known than the message has: who leads, who is in sync, and both epochs."""
    results = tuple(
        IsrResult(topic.topic_id, row.partition_index, code_of(row.error_code), state_of(row))
        for topic in response.topics
        for row in topic.partitions
    )
    return IsrAltered(code_of(response.error_code), results)


def state_of(row: Any) -> State | None:
    if row.error_code:
        return None
    return State(row.leader_id, row.leader_epoch, tuple(row.isr), partition_epoch=row.partition_epoch)


# -- ControlledShutdown -----------------------------------------------------------------------------------------------


def shutdown_request(node: int, node_epoch: int) -> Any:
    return struct("ControlledShutdownRequest")(broker_id=node, broker_epoch=node_epoch)


def shutdown_response(answer: ShutdownAnswered) -> Any:
    row = struct("ControlledShutdownResponse.remaining_partitions")
    remaining = [row(topic_name=place.topic, partition_index=place.partition) for place in answer.remaining]
    return struct("ControlledShutdownResponse")(error_code=answer.error, remaining_partitions=remaining)


def shutdown_answered(response: Any) -> ShutdownAnswered:
    remaining = tuple(TopicPartition(row.topic_name, row.partition_index) for row in response.remaining_partitions)
    return ShutdownAnswered(code_of(response.error_code), remaining)


# -- ClusterState -----------------------------------------------------------------------------------------------------


def state_request(
    cluster_id: str, node: int, node_epoch: int, known: Known, offline: Iterable[Offline], max_wait_ms: int
) -> Any:
    row = struct("ClusterStateRequest.offline")
    return struct("ClusterStateRequest")(
        cluster_id=cluster_id,
        node_id=node,
        node_epoch=node_epoch,
        controller_epoch=known.epoch,
        sequence=known.sequence,
        max_wait_ms=max_wait_ms,
        offline=[row(topic_id=one.topic_id, partition=one.partition, reason=one.reason) for one in offline],
    )


def offline_of(request: Any) -> tuple[Offline, ...]:
    return tuple(Offline(row.topic_id, row.partition, row.reason) for row in request.offline)


def state_response(answer: ClusterState) -> Any:
    return struct("ClusterStateResponse")(
        error_code=answer.error,
        controller_id=answer.controller,
        controller_epoch=answer.epoch,
        sequence=answer.sequence,
        full=answer.full,
        nodes=[node_row(node) for node in answer.nodes],
        topics=[topic_row(topic) for topic in answer.topics],
    )


def cluster_state(response: Any) -> ClusterState:
    return ClusterState(
        code_of(response.error_code),
        response.controller_id,
        response.controller_epoch,
        response.sequence,
        response.full,
        tuple(map(node_view, response.nodes)),
        tuple(map(topic_view, response.topics)),
    )


def node_row(node: NodeView) -> Any:
    endpoint = struct("ClusterStateResponse.nodes.endpoints")
    return struct("ClusterStateResponse.nodes")(
        node_id=node.id,
        node_epoch=node.epoch,
        state=node.status,
        rack=node.rack,
        endpoints=[endpoint(listener=one.listener, host=one.host, port=one.port) for one in node.endpoints],
    )


def node_view(row: Any) -> NodeView:
    """A state that is not known here is that of a node which is not to be counted on."""
    status = NodeStatus(row.state) if row.state in set(NodeStatus) else NodeStatus.GONE
    endpoints = tuple(Endpoint(one.listener, one.host, one.port) for one in row.endpoints)
    return NodeView(row.node_id, row.node_epoch, status, row.rack, endpoints)


def topic_row(topic: TopicView) -> Any:
    config = struct("ClusterStateResponse.topics.configs")
    return struct("ClusterStateResponse.topics")(
        topic_id=topic.topic_id,
        name=topic.name,
        internal=topic.internal,
        deleted=topic.deleted,
        configs=[config(name=name, value=value) for name, value in topic.configs.items()],
        partitions=list(partition_rows(topic.partitions)),
    )


def topic_view(row: Any) -> TopicView:
    return TopicView(
        row.topic_id,
        row.name,
        {one.name: one.value for one in row.configs},
        {one.index: partition_view(one) for one in row.partitions},
        row.deleted,
    )


def partition_rows(partitions: Mapping[int, PartitionView]) -> Iterator[Any]:
    row = struct("ClusterStateResponse.topics.partitions")
    for index, view in partitions.items():
        yield row(
            index=index,
            leader=view.leader,
            leader_epoch=view.leader_epoch,
            partition_epoch=view.partition_epoch,
            isr=view.isr,
            elr=view.elr,
            replicas=view.replicas,
            adding=view.adding,
            removing=view.removing,
            unclean_epoch=view.unclean_epoch,
            directories=directory_rows(view.directories),
        )


def directory_rows(directories: Mapping[int, str] | None) -> list[Any] | None:
    row = struct("ClusterStateResponse.topics.partitions.directories")
    return None if directories is None else [row(node_id=node, directory=one) for node, one in directories.items()]


def partition_view(row: Any) -> PartitionView:
    return PartitionView(
        row.leader,
        row.leader_epoch,
        row.partition_epoch,
        tuple(row.isr),
        tuple(row.elr),
        tuple(row.replicas),
        tuple(row.adding),
        tuple(row.removing),
        row.unclean_epoch,
        None if row.directories is None else {one.node_id: one.directory for one in row.directories},
    )


# -- NoteElections ----------------------------------------------------------------------------------------------------


def note_request(records: Iterable[Noted]) -> Any:
    row = struct("NoteElectionsRequest.elections")
    return struct("NoteElectionsRequest")(elections=[row(key=one.key, value=one.value) for one in records])


def noted(request: Any) -> tuple[Noted, ...]:
    return tuple(Noted(bytes(one.key), bytes(one.value)) for one in request.elections)


def noted_response(code: ErrorCode) -> Any:
    return struct("NoteElectionsResponse")(error_code=code)


def note_answered(response: Any) -> ErrorCode:
    return code_of(response.error_code)
