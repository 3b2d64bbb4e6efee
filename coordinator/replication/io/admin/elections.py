"""What can be said of an election that is asked for (CL-A5), by what a node knows. Pure."""

from collections.abc import Collection

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.facts import NO_NODE_ID, TopicPartition
from muster.coordinator.replication.protocol.image import ClusterImage, ClusterNodeStatus, PartitionView


def preferred_refusal(image: ClusterImage, unit: TopicPartition, drained: Collection[int]) -> ErrorCode | None:
    """Why its first replica is not elected now; None if it can be. drained: nodes that are to lead nothing."""
    view = image.partition(unit)
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if view.leader == view.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    return None if may_lead(image, view, view.replicas[0], drained) else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def may_lead(image: ClusterImage, view: PartitionView, node_id: int, drained: Collection[int]) -> bool:
    node = image.nodes.get(node_id)
    lives = node is not None and node.status is ClusterNodeStatus.LIVE
    return lives and node_id in view.isr and node_id not in drained


def unclean_refusal(image: ClusterImage, unit: TopicPartition) -> ErrorCode | None:
    """Why nobody is elected whatever it costs; None if somebody can be."""
    view = image.partition(unit)
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if view.leader != NO_NODE_ID:
        return ErrorCode.ELECTION_NOT_NEEDED
    return no_live_replica(image, view)


def no_live_replica(image: ClusterImage, view: PartitionView) -> ErrorCode | None:
    live = {node.id for node in image.live()}
    return None if live.intersection(view.replicas) else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def election_outcome(
    image: ClusterImage, unit: TopicPartition, drained: Collection[int], *, unclean: bool
) -> ErrorCode | None:
    """What has come of one that was asked for; None as long as it may come true yet."""
    view = image.partition(unit)
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if unclean:
        return ErrorCode.NONE if view.leader != NO_NODE_ID else no_live_replica(image, view)
    if view.leader == view.replicas[0]:
        return ErrorCode.NONE
    return None if may_lead(image, view, view.replicas[0], drained) else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
