"""Between what nodes and their controller mean and the messages that say it: AlterPartition, ControlledShutdown,
ClusterState, and what the ledger of elections is told. Pure; both directions of each message stand together."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.io.wire.translate import group_rows
from muster.coordinator.replication.io.wire.words import ElectionEntry
from muster.coordinator.replication.protocol.controller.effects import AlterPartitionResult, IsrResult, ShutdownResult
from muster.coordinator.replication.protocol.controller.events import IsrItem, IsrMember, OfflineReplica
from muster.coordinator.replication.protocol.facts import NodeEndpoint, PartitionState, TopicPartition
from muster.coordinator.replication.protocol.image import (
    ClusterNodeStatus,
    ClusterState,
    ImageVersion,
    NodeView,
    PartitionView,
    TopicView,
)

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
    )


def node_view(row: Any) -> NodeView:
    """A state that is not known here is that of a node which is not to be counted on."""
    status = ClusterNodeStatus(row.state) if row.state in set(ClusterNodeStatus) else ClusterNodeStatus.GONE
    endpoints = tuple(NodeEndpoint(one.listener, one.host, one.port) for one in row.endpoints)
    return NodeView(row.node_id, row.node_epoch, status, row.rack, endpoints, row.session_ms)


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
