"""Replies about KIP-848 groups to protobuf responses. Pure."""

from collections.abc import Iterable, Mapping
from typing import cast

from muster.coordinator.core.model import effects
from muster.coordinator.core.model.consumer_records import TopicId
from muster.coordinator.edge.words import error_sentence
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.server.services.answers import to_error_code

SPEAKS_CLASSIC = 0
SPEAKS_CONSUMER = 1


def build_consumer_heartbeat_response(reply: effects.ConsumerHeartbeatReply) -> pb.ConsumerGroupHeartbeatResponse:
    if reply.code is not ErrorCode.NONE:
        return pb.ConsumerGroupHeartbeatResponse(
            error_code=to_error_code(reply.code), error_message=error_sentence(reply.code, reply.message)
        )
    return pb.ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assignment is None else build_consumer_assignment(reply.assignment, reply.names),
        cause=cast(ledger_pb2.RebalanceCause, reply.cause),
        cause_detail=reply.cause_detail,
        revoke_within_ms=reply.revoke_within_ms,
        coming=None if reply.coming is None else build_consumer_assignment(reply.coming, reply.names),
        heirs_ready=build_consumer_assignment(reply.heirs_ready, reply.names) if reply.heirs_ready else None,
        session_timeout_ms=reply.session_timeout_ms,
    )


def build_consumer_assignment(
    shares: Mapping[TopicId, Iterable[int]], names: Mapping[TopicId, str]
) -> pb.ConsumerAssignment:
    rows = sorted((names.get(topic, ""), topic, sorted(partitions)) for topic, partitions in shares.items())
    return pb.ConsumerAssignment(
        topic_partitions=[
            pb.ConsumerTopicPartitions(topic_id=topic, topic_name=name, partitions=partitions)
            for name, topic, partitions in rows
        ]
    )


def build_described_consumer_group(group_id: str, reply: effects.DescribeConsumerReply) -> pb.DescribedConsumerGroup:
    return pb.DescribedConsumerGroup(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        group_id=group_id,
        group_state=reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.target_epoch,
        assignor_name=reply.assignor,
        members=[build_consumer_member(view, reply.names) for view in reply.members],
        waiting_for=reply.waiting_for,
        waiting_until_ms=reply.waiting_until_ms,
    )


def build_consumer_member(view: effects.ConsumerMemberView, names: Mapping[TopicId, str]) -> pb.ConsumerGroupMember:
    held = {topic: set(partitions) for topic, partitions in view.assigned.items()}
    for topic, partitions in view.revoking.items():
        held.setdefault(topic, set()).update(partitions)
    return pb.ConsumerGroupMember(
        member_id=view.member_id,
        group_instance_id=view.instance_id,
        rack_id=view.rack_id,
        member_epoch=view.epoch,
        client_id=view.client_id,
        client_host=view.client_host,
        subscribed_topic_names=view.topic_names,
        subscribed_topic_regex=view.topic_regex,
        assignment=build_consumer_assignment(held, names),
        target_assignment=build_consumer_assignment(view.target, names),
        member_type=SPEAKS_CLASSIC if view.classic else SPEAKS_CONSUMER,
        member_state=view.state,
    )
