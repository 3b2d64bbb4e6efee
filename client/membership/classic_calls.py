"""What a classic member says to its coordinator: requests from actions, events from answers."""

from typing import TypeAlias

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.methods import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from muster.client.calls.transport import Transport
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.types import GroupMember, MemberSettings
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import error_code_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

JOIN_MARGIN_MS = 5_000
"""A parked join is answered by the coordinator's own timers; the client waits a little longer than those."""
KNOWN_CAUSES = frozenset(int(cause) for cause in Cause)

Asking: TypeAlias = act.SendJoin | act.SendSync | act.SendHeartbeat


class ClassicCalls:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup of one member."""

    def __init__(self, transport: Transport, calls: GroupCalls, settings: MemberSettings) -> None:
        self._transport = transport
        self._calls = calls
        self._settings = settings

    async def ask(self, action: Asking) -> ev.ClassicEvent:
        """Raises ClientError when no answer came."""
        match action:
            case act.SendJoin():
                return await self._join(action)
            case act.SendSync():
                return await self._sync(action)
            case act.SendHeartbeat():
                return await self._heartbeat(action)

    async def leave(self, action: act.SendLeave) -> None:
        request = pb.LeaveGroupRequest(group_id=self._settings.group_id)
        request.members.add(
            member_id=action.member_id, group_instance_id=self._settings.group_instance_id, reason=action.reason
        )
        await self._calls.say_goodbye(LEAVE_GROUP, request)

    async def _join(self, action: act.SendJoin) -> ev.ClassicEvent:
        answer = await self._transport.call(
            JOIN_GROUP,
            build_join_request(self._settings, action),
            doing=f"joining group {self._settings.group_id!r}",
            address=await self._calls.coordinator(),
            timeout_ms=self._parked_patience_ms,
        )
        return read_join_answer(action.token, answer)

    @property
    def _parked_patience_ms(self) -> int:
        config = self._transport.config
        return max(config.request_timeout_ms, self._settings.rebalance_timeout_ms + JOIN_MARGIN_MS)

    async def _sync(self, action: act.SendSync) -> ev.ClassicEvent:
        answer = await self._transport.call(
            SYNC_GROUP,
            build_sync_request(self._settings, action),
            doing=f"waiting for a share of group {self._settings.group_id!r}",
            address=await self._calls.coordinator(),
            timeout_ms=self._parked_patience_ms,
        )
        return ev.SyncAnswered(action.token, error_code_of(answer.error_code), answer.error_message, answer.assignment)

    async def _heartbeat(self, action: act.SendHeartbeat) -> ev.ClassicEvent:
        answer = await self._transport.call(
            HEARTBEAT,
            build_heartbeat_request(self._settings, action),
            doing=f"heartbeat to group {self._settings.group_id!r}",
            address=await self._calls.coordinator(),
            timeout_ms=self._transport.leaders.heartbeat_ms(
                self._settings.session_timeout_ms, self._settings.heartbeat_interval_ms
            ),
        )
        return ev.ClassicHeartbeatAnswered(
            action.token,
            error_code_of(answer.error_code),
            answer.error_message,
            read_cause(answer.cause),
            answer.cause_detail,
        )


def build_join_request(settings: MemberSettings, action: act.SendJoin) -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        member_id=action.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=settings.protocol_type,
        protocols=[pb.JoinGroupProtocol(name=p.name, metadata=p.metadata) for p in action.protocols],
        reason=action.reason,
        client_id=settings.client_id,
        remote_assignor=settings.remote_assignor,
    )


def build_sync_request(settings: MemberSettings, action: act.SendSync) -> pb.SyncGroupRequest:
    return pb.SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=action.generation,
        member_id=action.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=settings.protocol_type,
        protocol_name=action.protocol_name,
        assignments=[pb.SyncGroupAssignment(member_id=m, assignment=blob) for m, blob in action.assignments],
        snapshot=action.snapshot,
        leader_state=action.leader_state,
        scheduled_delay_ms=action.scheduled_delay_ms,
    )


def build_heartbeat_request(settings: MemberSettings, action: act.SendHeartbeat) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        group_id=settings.group_id,
        generation_id=action.generation,
        member_id=action.member_id,
        group_instance_id=settings.group_instance_id,
    )


def read_join_answer(token: int, answer: pb.JoinGroupResponse) -> ev.JoinAnswered:
    return ev.JoinAnswered(
        token,
        error_code_of(answer.error_code),
        answer.error_message,
        answer.generation_id,
        answer.protocol_type if answer.HasField("protocol_type") else None,
        answer.protocol_name if answer.HasField("protocol_name") else None,
        answer.leader,
        answer.skip_assignment,
        answer.member_id,
        tuple(read_group_member(member) for member in answer.members),
        read_cause(answer.cause),
        answer.cause_detail,
        answer.rebalance_number,
        answer.leader_state,
        answer.scheduled_delay_ms if answer.HasField("scheduled_delay_ms") else None,
    )


def read_group_member(member: pb.JoinGroupMember) -> GroupMember:
    instance = member.group_instance_id if member.HasField("group_instance_id") else None
    return GroupMember(member.member_id, instance, member.metadata)


def read_cause(number: int) -> Cause:
    """A cause of a newer coordinator is told as none in particular; its detail still says it."""
    return Cause(number) if number in KNOWN_CAUSES else Cause.UNSPECIFIED
