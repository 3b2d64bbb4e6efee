"""KIP-848 requests from protobuf to core events: shape only. Pure."""

from muster.coordinator.core.model import core_events
from muster.coordinator.core.model.consumer_records import Shares
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import RequestId
from muster.coordinator.edge import shape
from muster.coordinator.edge.shape import MalformedGroupRequest
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

TOPIC_ID_BYTES = 16
UNCHANGED = -1


def parse_consumer_heartbeat(
    request: pb.ConsumerGroupHeartbeatRequest,
    request_id: RequestId,
    *,
    client_host: str,
    client_software: str = "",
    rights: Rights = None,
) -> core_events.ConsumerHeartbeat:
    names = request.subscribed_topic_names.names if request.HasField("subscribed_topic_names") else None
    has_timeout = request.HasField("rebalance_timeout_ms")
    return core_events.ConsumerHeartbeat(
        request_id=request_id,
        group_id=shape.check_name("group_id", request.group_id),
        member_id=shape.check_name("member_id", request.member_id),
        member_epoch=request.member_epoch,
        group_instance_id=optional_field(request, "group_instance_id"),
        rack_id=optional_field(request, "rack_id"),
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else UNCHANGED,
        topic_names=None if names is None else parse_topic_names(tuple(names)),
        topic_regex=optional_field(request, "subscribed_topic_regex"),
        server_assignor=optional_field(request, "server_assignor"),
        owned=parse_owned_partitions(request.topic_partitions) if request.HasField("topic_partitions") else None,
        client_id=shape.check_name("client_id", request.client_id),
        client_host=client_host,
        client_software=client_software,
        ready=parse_owned_partitions(request.ready) if request.HasField("ready") else None,
        rights=rights,
    )


def optional_field(request: pb.ConsumerGroupHeartbeatRequest, field: str) -> str | None:
    """None when it is absent; an empty one has a meaning of its own, or is refused by the core."""
    return shape.check_name(field, getattr(request, field)) if request.HasField(field) else None


def parse_topic_names(names: tuple[str, ...]) -> tuple[str, ...]:
    shape.check_at_most("subscribed_topic_names", len(names), shape.MAX_TOPICS)
    for name in names:
        shape.check_filled_name("subscribed_topic_names", name)
    shape.check_distinct("subscribed_topic_names", names)
    return names


def parse_owned_partitions(assignment: pb.ConsumerAssignment) -> Shares:
    shares: dict[bytes, frozenset[int]] = {}
    for topic in assignment.topic_partitions:
        if len(topic.topic_id) != TOPIC_ID_BYTES:
            raise MalformedGroupRequest(
                f"topic_partitions.topic_id has {len(topic.topic_id)} bytes; expected the {TOPIC_ID_BYTES} bytes that "
                "the assignment gave"
            )
        for partition in topic.partitions:
            shape.check_at_least("topic_partitions.partitions", partition, 0)
        shape.check_distinct("topic_partitions.partitions", topic.partitions)
        shares[topic.topic_id] = frozenset(topic.partitions)
    shape.check_distinct("topic_partitions", [topic.topic_id for topic in assignment.topic_partitions])
    shape.check_at_most("topic_partitions", sum(map(len, shares.values())), shape.MAX_PARTITIONS)
    return shares
