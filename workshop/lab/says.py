"""The coordinator's replies, as the member machines hear them."""

from muster.client.members import events as ev
from muster.client.members.types import GroupMember
from muster.coordinator.core.model import effects


def join_answered(token: int, reply: effects.JoinReply) -> ev.JoinAnswered:
    return ev.JoinAnswered(
        token=token,
        code=reply.code,
        message=reply.message,
        generation=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(GroupMember(m.member_id, m.group_instance_id, m.metadata) for m in reply.members),
        cause=reply.cause,
        cause_detail=reply.cause_detail,
        rebalance_number=reply.rebalance_number,
        leader_state=reply.leader_state,
        scheduled_delay_ms=reply.scheduled_delay_ms,
    )


def sync_answered(token: int, reply: effects.SyncReply) -> ev.SyncAnswered:
    return ev.SyncAnswered(token, reply.code, reply.message, reply.assignment)


def heartbeat_answered(token: int, reply: effects.HeartbeatReply) -> ev.ClassicHeartbeatAnswered:
    return ev.ClassicHeartbeatAnswered(token, reply.code, reply.message, reply.cause, reply.cause_detail)


def consumer_answered(token: int, reply: effects.ConsumerHeartbeatReply) -> ev.ConsumerHeartbeatAnswered:
    assignment = None
    if reply.assignment is not None:
        named = ((reply.names[topic], numbers) for topic, numbers in reply.assignment.items() if topic in reply.names)
        assignment = tuple(sorted((topic, number) for topic, numbers in named for number in numbers))
    return ev.ConsumerHeartbeatAnswered(
        token,
        reply.code,
        reply.message,
        reply.member_epoch,
        reply.heartbeat_interval_ms,
        assignment,
        session_timeout_ms=reply.session_timeout_ms,
    )
