"""Between what nodes mean and the messages that say it, for every API between nodes. Pure.

Both directions of each message stand together. Nodes ask for log ends and groups here and not at a client's
listener: here they are known as nodes, whatever clients need in order to be let in.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias, TypeVar

from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.io.wire.node_api import (
    AbortRecord,
    AbortsQuery,
    AbortValues,
    ElectionEntry,
    EpochEnd,
    EpochQuery,
    GroupsWithSettings,
    LogEndsQuery,
    PartitionLogEnd,
    SecurityChange,
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
)
from muster.coordinator.replication.io.wire.node_proof import ProofAnswer
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_NODE_ID,
    ClusterNodeStatus,
    ClusterState,
    ImageVersion,
    NodeEndpoint,
    NodeView,
    PartitionState,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionResult,
    IsrItem,
    IsrMember,
    IsrResult,
    OfflineReplica,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.replica_fetch import (
    PART_BYTES,
    FetchAnswer,
    FetchedPartition,
    FetchItem,
    FetchRequest,
    ForgottenPartition,
)

# Fetch and OffsetForLeaderEpoch
# ------------------------------

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
    rows: dict[bytes, Any] = {}
    for item in request.items:
        topic = rows.get(item.topic_id)
        if topic is None:
            topic = rows[item.topic_id] = struct("FetchRequest.topics")(topic_id=item.topic_id, partitions=[])
        topic.partitions.append(fetch_row(item, request.part_bytes))
    gone: dict[bytes, Any] = {}
    for each in request.forgotten:
        left = gone.get(each.topic_id)
        if left is None:
            left = struct("FetchRequest.forgotten_topics_data")(topic_id=each.topic_id, partitions=[])
            gone[each.topic_id] = left
        left.partitions.append(each.place.partition)
    return struct("FetchRequest")(
        cluster_id=cluster_id,
        replica_state=struct("FetchRequest.replica_state")(replica_id=request.node, replica_epoch=request.node_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=request.answer_bytes,
        session_id=request.session,
        session_epoch=request.session_epoch,
        topics=list(rows.values()),
        forgotten_topics_data=list(gone.values()),
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
    forgotten: list[ForgottenPartition] = []
    for topic in request.forgotten_topics_data:
        name = name_of(topic.topic_id)
        if name is not None:
            forgotten += [ForgottenPartition(TopicPartition(name, each), topic.topic_id) for each in topic.partitions]
    replica = request.replica_state
    session = request.session_id, request.session_epoch
    sizes = part_bytes, max(request.max_bytes, 1)
    named = tuple(items), tuple(forgotten)
    return FetchRequest(replica.replica_id, replica.replica_epoch, *session, *named, *sizes), unknown


def fetch_response(answer: FetchAnswer, unknown: Iterable[FetchedPartition] = ()) -> Any:
    rows: dict[bytes, Any] = {}
    for part in (*answer.parts, *unknown):
        topic = rows.get(part.topic_id)
        if topic is None:
            topic = rows[part.topic_id] = struct("FetchResponse.responses")(topic_id=part.topic_id, partitions=[])
        topic.partitions.append(fetched_row(part))
    return struct("FetchResponse")(
        error_code=answer.code,
        session_id=answer.session,
        responses=list(rows.values()),
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
    parts: list[FetchedPartition] = []
    for topic in response.responses:
        name = name_of(topic.topic_id)
        if name is not None:
            places = [TopicPartition(name, row.partition_index) for row in topic.partitions]
            parts += map(fetched_partition, places, repeat(topic.topic_id), topic.partitions)
    return FetchAnswer(response.error_code, response.session_id, tuple(parts))


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


# AlterPartition, ControlledShutdown, ClusterState, NoteElections
# ---------------------------------------------------------------

# -- AlterPartition ---------------------------------------------------------------------------------------------------


def alter_request(node: int, node_epoch: int, items: Iterable[IsrItem]) -> Any:
    topic, row = struct("AlterPartitionRequest.topics"), struct("AlterPartitionRequest.topics.partitions")
    member = struct("AlterPartitionRequest.topics.partitions.new_isr_with_epochs")
    rows = group_rows(
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


def parse_alter_request(request: Any) -> tuple[IsrItem, ...]:
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


def alter_response(answer: AlterPartitionResult) -> Any:
    topic, row = struct("AlterPartitionResponse.topics"), struct("AlterPartitionResponse.topics.partitions")
    rows = group_rows(
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


def parse_alter_response(response: Any) -> AlterPartitionResult:
    """Of a state no more is known than the message has: who leads, who is in sync, and both epochs."""
    results = tuple(
        IsrResult(topic.topic_id, row.partition_index, error_code_of(row.error_code), partition_state_of_row(row))
        for topic in response.topics
        for row in topic.partitions
    )
    return AlterPartitionResult(error_code_of(response.error_code), results)


def partition_state_of_row(row: Any) -> PartitionState | None:
    if row.error_code:
        return None
    return PartitionState(row.leader_id, row.leader_epoch, tuple(row.isr), partition_epoch=row.partition_epoch)


# -- ControlledShutdown -----------------------------------------------------------------------------------------------


def shutdown_request(node: int, node_epoch: int) -> Any:
    return struct("ControlledShutdownRequest")(broker_id=node, broker_epoch=node_epoch)


def shutdown_response(answer: ShutdownResult) -> Any:
    row = struct("ControlledShutdownResponse.remaining_partitions")
    remaining = [row(topic_name=place.topic, partition_index=place.partition) for place in answer.remaining]
    return struct("ControlledShutdownResponse")(error_code=answer.error, remaining_partitions=remaining)


def parse_shutdown_response(response: Any) -> ShutdownResult:
    remaining = tuple(TopicPartition(row.topic_name, row.partition_index) for row in response.remaining_partitions)
    return ShutdownResult(error_code_of(response.error_code), remaining)


# -- ClusterState -----------------------------------------------------------------------------------------------------


def state_request(
    cluster_id: str,
    node: int,
    node_epoch: int,
    known: ImageVersion,
    offline: Iterable[OfflineReplica],
    max_wait_ms: int,
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


def parse_offline(request: Any) -> tuple[OfflineReplica, ...]:
    return tuple(OfflineReplica(row.topic_id, row.partition, row.reason) for row in request.offline)


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


def parse_state_response(response: Any) -> ClusterState:
    return ClusterState(
        error_code_of(response.error_code),
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
        session_ms=node.session_ms,
        proves=node.proves,
    )


def node_view(row: Any) -> NodeView:
    """A state that is not known here is that of a node which is not to be counted on."""
    status = ClusterNodeStatus(row.state) if row.state in set(ClusterNodeStatus) else ClusterNodeStatus.GONE
    endpoints = tuple(NodeEndpoint(one.listener, one.host, one.port) for one in row.endpoints)
    return NodeView(row.node_id, row.node_epoch, status, row.rack, endpoints, row.session_ms, row.proves)


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


def note_request(records: Iterable[ElectionEntry]) -> Any:
    row = struct("NoteElectionsRequest.elections")
    return struct("NoteElectionsRequest")(elections=[row(key=one.key, value=one.value) for one in records])


def parse_note_request(request: Any) -> tuple[ElectionEntry, ...]:
    return tuple(ElectionEntry(bytes(one.key), bytes(one.value)) for one in request.elections)


def note_response(code: ErrorCode) -> Any:
    return struct("NoteElectionsResponse")(error_code=code)


def parse_note_response(response: Any) -> ErrorCode:
    return error_code_of(response.error_code)


# NoteAborts and ReadAborts
# -------------------------


def note_aborts_request(records: Iterable[AbortRecord]) -> Any:
    row = struct("NoteAbortsRequest.entries")
    return struct("NoteAbortsRequest")(entries=[row(key=each.key, value=each.value) for each in records])


def parse_note_aborts(request: Any) -> tuple[AbortRecord, ...]:
    return tuple(AbortRecord(bytes(each.key), bytes(each.value)) for each in request.entries)


def note_aborts_response(code: ErrorCode) -> Any:
    return struct("NoteAbortsResponse")(error_code=code)


def read_aborts_request(asked: AbortsQuery) -> Any:
    return struct("ReadAbortsRequest")(transactional_id=asked.transactional_id, most=asked.most)


def parse_read_aborts(request: Any) -> AbortsQuery:
    return AbortsQuery(request.transactional_id, request.most)


def read_aborts_response(read: AbortValues) -> Any:
    row = struct("ReadAbortsResponse.entries")
    return struct("ReadAbortsResponse")(error_code=read.error, entries=[row(value=each) for each in read.values])


def parse_read_aborts_response(response: Any) -> AbortValues:
    return AbortValues(error_code_of(response.error_code), tuple(bytes(each.value) for each in response.entries))


# LogEnds and GroupsWithSettings
# ------------------------------

MOST_LOGS: Final = 5_000
"""In one question."""

MOST_GROUPS: Final = 100_000
"""In one answer; where there are more the asker hears POLICY_VIOLATION."""


def ends_request(asked: LogEndsQuery) -> Any:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in asked.places:
        topics.setdefault(topic_id, []).append(partition)
    row = struct("LogEndsRequest.topics")
    return struct("LogEndsRequest")(
        earliest=asked.earliest, topics=[row(topic_id=each, partitions=of) for each, of in topics.items()]
    )


def parse_ends_request(request: Any) -> LogEndsQuery | None:
    """None where it asks for more than it may."""
    if sum(len(topic.partitions) for topic in request.topics) > MOST_LOGS:
        return None
    places = tuple((bytes(topic.topic_id), number) for topic in request.topics for number in topic.partitions)
    return LogEndsQuery(request.earliest, places)


def ends_response(ends: Iterable[PartitionLogEnd]) -> Any:
    row, partition = struct("LogEndsResponse.topics"), struct("LogEndsResponse.topics.partitions")
    topics: dict[bytes, list[Any]] = {}
    for each in ends:
        topics.setdefault(each.topic_id, []).append(partition(index=each.partition, offset=each.offset))
    return struct("LogEndsResponse")(topics=[row(topic_id=each, partitions=of) for each, of in topics.items()])


def ends_refusal() -> Any:
    return struct("LogEndsResponse")(error_code=ErrorCode.INVALID_REQUEST)


def parse_ends_response(response: Any) -> Sequence[PartitionLogEnd]:
    return [
        PartitionLogEnd(bytes(topic.topic_id), each.index, each.offset)
        for topic in response.topics
        for each in topic.partitions
    ]


def groups_request() -> Any:
    return struct("GroupsWithSettingsRequest")(most=MOST_GROUPS)


def groups_response(told: GroupsWithSettings, most: int) -> Any:
    made = struct("GroupsWithSettingsResponse")
    if len(told.groups) > min(most, MOST_GROUPS):
        return made(error_code=ErrorCode.POLICY_VIOLATION)
    return made(error_code=told.error, groups=list(told.groups))


def parse_groups_response(response: Any) -> GroupsWithSettings:
    return GroupsWithSettings(error_code_of(response.error_code), tuple(response.groups))


# ProveNode
# ---------


def prove_request(node: int, nonce: bytes = b"", proof: bytes = b"") -> Any:
    return struct("ProveNodeRequest")(node_id=node, nonce=nonce, proof=proof)


def prove_response(answer: ProofAnswer) -> Any:
    return struct("ProveNodeResponse")(error_code=answer.error, nonce=answer.nonce, proof=answer.proof)


def parse_prove_response(response: Any) -> ProofAnswer:
    return ProofAnswer(error_code_of(response.error_code), bytes(response.nonce), bytes(response.proof))


# ReadSecurity and WriteSecurity
# ------------------------------

# -- ReadSecurity -----------------------------------------------------------------------------------------------------


def security_read_request(asked: SecurityQuery) -> Any:
    return struct("ReadSecurityRequest")(
        offset=asked.offset, last_epoch=asked.last_epoch, max_wait_ms=asked.max_wait_ms
    )


def parse_security_read(request: Any) -> SecurityQuery:
    return SecurityQuery(request.offset, request.last_epoch, max(request.max_wait_ms, 0))


def security_read_response(read: SecurityRecords) -> Any:
    return struct("ReadSecurityResponse")(
        error_code=read.error,
        start_offset=read.start,
        high_watermark=read.high_watermark,
        end_offset=read.end,
        anew=read.anew,
        records=read.records,
    )


def parse_security_read_response(response: Any) -> SecurityRecords:
    return SecurityRecords(
        error_code_of(response.error_code),
        response.start_offset,
        response.high_watermark,
        response.end_offset,
        response.anew,
        bytes(response.records),
    )


# -- WriteSecurity ----------------------------------------------------------------------------------------------------


def security_write_request(changed: SecurityUpdate) -> Any:
    row = struct("WriteSecurityRequest.changes")
    return struct("WriteSecurityRequest")(
        base_offset=changed.base,
        last_epoch=changed.last_epoch,
        changes=[row(key=each.key, value=each.value) for each in changed.changes],
    )


def parse_security_write(request: Any) -> SecurityUpdate:
    changes = (
        SecurityChange(bytes(each.key), None if each.value is None else bytes(each.value)) for each in request.changes
    )
    return SecurityUpdate(request.base_offset, request.last_epoch, tuple(changes))


def security_write_response(written: SecurityUpdateResult) -> Any:
    return struct("WriteSecurityResponse")(error_code=written.error, end_offset=written.end)


def parse_security_write_response(response: Any) -> SecurityUpdateResult:
    return SecurityUpdateResult(error_code_of(response.error_code), response.end_offset)
