"""Why an election or a reassignment that an operator asked for was not done, in a sentence. Pure."""

from collections.abc import Collection

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.facts import NO_NODE_ID, TopicPartition
from muster.coordinator.replication.protocol.image import ClusterImage


def explain_no_election(image: ClusterImage, place: TopicPartition, code: ErrorCode, *, unclean: bool) -> str:
    view = image.partition(place)
    if view is None or code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT):
        return explain_refusal(image, place, code)
    first, leader = view.replicas[0], view.leader
    match code:
        case ErrorCode.ELECTION_NOT_NEEDED if unclean and leader != NO_NODE_ID:
            return f"{place}: node {leader} leads it; an unclean election is for a partition that nobody leads"
        case ErrorCode.ELECTION_NOT_NEEDED:
            return f"{place}: its first replica, node {first}, leads it already"
        case ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            return f"{place}: its first replica, node {first}, {explain_ineligible(image, first, view.isr)}"
        case ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
            return f"{place}: of its replicas {format_nodes(view.replicas)} none is up; bring one of these nodes back"
    return explain_refusal(image, place, code)


def explain_no_reassignment(
    image: ClusterImage, place: TopicPartition, replicas: Collection[int], code: ErrorCode
) -> str:
    if code is ErrorCode.INVALID_REPLICA_ASSIGNMENT:
        up = format_nodes(sorted(node.id for node in image.live()))
        return f"{place} to {format_nodes(replicas) or 'nobody'}: expected nodes that are up, each once; up are {up}"
    return explain_refusal(image, place, code)


def explain_refusal(image: ClusterImage, place: TopicPartition, code: ErrorCode) -> str:
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"{place}: the cluster has no such partition"
    if code is not ErrorCode.REQUEST_TIMED_OUT:
        return f"{place}: {code.meaning}"
    lives = any(node.id == image.controller for node in image.live())
    who = f"node {image.controller}, the controller," if lives else "a controller, of which none is known right now,"
    return (
        f"{place}: it was left in ZooKeeper for {who} and did not come in time: it was refused there, as that node's "
        "log says, or comes yet; look before you ask again"
    )


def explain_ineligible(image: ClusterImage, node_id: int, isr: Collection[int]) -> str:
    node = image.nodes.get(node_id)
    if node is None or node not in image.live():
        return "is gone"
    return "is not in sync" if node_id not in isr else "is drained, or goes down, or cannot use its log of it"


def format_nodes(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes))
