"""KIP-848 requests from protobuf to core events: shape only. Pure."""

from muster.coordinator.core import events
from muster.coordinator.core.consumer.records import Shares
from muster.coordinator.core.rights import Rights
from muster.coordinator.core.types import RequestId
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.messages import shape
from muster.coordinator.server.messages.shape import MalformedRequest

TOPIC_ID_BYTES = 16
UNCHANGED = -1


def heartbeat(
    request: pb.ConsumerGroupHeartbeatRequest,
    request_id: RequestId,
    *,
    client_host: str,
    client_software: str = "",
    rights: Rights = None,
) -> events.ConsumerHeartbeat:
    names = request.subscribed_topic_names.names if request.HasField("subscribed_topic_names") else None
    has_timeout = request.HasField("rebalance_timeout_ms")
    return events.ConsumerHeartbeat(
        request_id=request_id,
        group_id=shape.name("group_id", request.group_id),
        member_id=shape.name("member_id", request.member_id),
        member_epoch=request.member_epoch,
        group_instance_id=optional(request, "group_instance_id"),
        rack_id=optional(request, "rack_id"),
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else UNCHANGED,
        topic_names=None if names is None else topic_names(tuple(names)),
        topic_regex=optional(request, "subscribed_topic_regex"),
        server_assignor=optional(request, "server_assignor"),
        owned=owned(request.topic_partitions) if request.HasField("topic_partitions") else None,
        client_id=shape.name("client_id", request.client_id),
        client_host=client_host,
        client_software=client_software,
        ready=owned(request.ready) if request.HasField("ready") else None,
        rights=rights,
    )


def optional(request: pb.ConsumerGroupHeartbeatRequest, field: str) -> str | None:
    """None when it is absent; an empty one has a meaning of its own, or is refused by the core."""
    return shape.name(field, getattr(request, field)) if request.HasField(field) else None


def topic_names(names: tuple[str, ...]) -> tuple[str, ...]:
    shape.at_most("subscribed_topic_names", len(names), shape.MAX_TOPICS)
    for name in names:
        shape.filled("subscribed_topic_names", name)
    shape.distinct("subscribed_topic_names", names)
    return names


def owned(assignment: pb.ConsumerAssignment) -> Shares:
    shares: dict[bytes, frozenset[int]] = {}
    for topic in assignment.topic_partitions:
        if len(topic.topic_id) != TOPIC_ID_BYTES:
            raise MalformedRequest(
                f"topic_partitions.topic_id has {len(topic.topic_id)} bytes; expected the {TOPIC_ID_BYTES} bytes that "
                "the assignment gave"
            )
        for partition in topic.partitions:
            shape.at_least("topic_partitions.partitions", partition, 0)
        shape.distinct("topic_partitions.partitions", topic.partitions)
        shares[topic.topic_id] = frozenset(topic.partitions)
    shape.distinct("topic_partitions", [topic.topic_id for topic in assignment.topic_partitions])
    shape.at_most("topic_partitions", sum(map(len, shares.values())), shape.MAX_PARTITIONS)
    return shares
