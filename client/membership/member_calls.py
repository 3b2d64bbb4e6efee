"""Requests and answers between a member and its coordinator, for classic groups and KIP-848 groups.

Requests are built from a machine's actions; answers become its events. KIP-848 uses topic ids on the wire and topic
names everywhere else. A cause from a newer coordinator is read as UNSPECIFIED; its detail is kept.
"""

import threading
from collections.abc import Iterable
from typing import TypeAlias

from muster.assignors.api import TopicPartition
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.methods import CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from muster.client.calls.transport import Transport
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import GroupMember, MemberSettings, Partitions
from muster.client.members.subscription import group_by_topic
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import error_code_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

# Readiness of the next owners
# ----------------------------


class HandoffReadiness:
    """Of one revocation. Told on the client's loop, waited for in the application's thread."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._awaited = set(partitions)
        self._all = threading.Event()

    @property
    def ready(self) -> bool:
        """All of them have said so."""
        return self._all.is_set()

    def mark_ready(self, partitions: Iterable[TopicPartition]) -> None:
        self._awaited -= set(partitions)
        if not self._awaited:
            self._all.set()

    def wait(self, timeout_s: float) -> bool:
        return self._all.wait(timeout_s)


# Classic protocol
# ----------------

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

    async def send_request(self, action: Asking) -> ev.ClassicEvent:
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


# KIP-848
# -------


class ConsumerCalls:
    """ConsumerGroupHeartbeat of one member."""

    def __init__(self, transport: Transport, calls: GroupCalls, settings: MemberSettings, rack: str = "") -> None:
        self._transport = transport
        self._calls = calls
        self._settings = settings
        self._rack = rack
        self._ids: dict[str, bytes] = {}  # of the topics that were assigned; only those can be owned

    async def heartbeat(self, action: act.SendConsumerHeartbeat) -> ev.ConsumerHeartbeatAnswered:
        """Raises ClientError when no answer came."""
        answer = await self._transport.call(
            CONSUMER_GROUP_HEARTBEAT,
            self.request(action),
            doing=f"heartbeat to group {self._settings.group_id!r}",
            address=await self._calls.coordinator(),
            timeout_ms=self._transport.leaders.heartbeat_ms(
                self._settings.session_timeout_ms, self._settings.heartbeat_interval_ms
            ),
        )
        return self.answered(action.token, answer)

    async def leave(self, action: act.LeaveConsumerGroup) -> None:
        request = pb.ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=action.member_id,
            member_epoch=action.epoch,
            group_instance_id=self._settings.group_instance_id,
        )
        await self._calls.say_goodbye(CONSUMER_GROUP_HEARTBEAT, request)

    def request(self, action: act.SendConsumerHeartbeat) -> pb.ConsumerGroupHeartbeatRequest:
        request = pb.ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=action.member_id,
            member_epoch=action.epoch,
            group_instance_id=self._settings.group_instance_id,
            subscribed_topic_regex=action.regex,
            server_assignor=action.server_assignor,
        )
        if action.epoch == 0:
            request.client_id = self._settings.client_id
        if self._rack and action.rebalance_timeout_ms != -1:
            request.rack_id = self._rack
        if action.rebalance_timeout_ms != -1:
            request.rebalance_timeout_ms = action.rebalance_timeout_ms
        if action.topics is not None:
            request.subscribed_topic_names.SetInParent()
            request.subscribed_topic_names.names.extend(action.topics)
        if action.owned is not None:
            request.topic_partitions.SetInParent()
            for topic, numbers in group_by_topic(action.owned).items():
                request.topic_partitions.topic_partitions.add(topic_id=self._ids[topic], partitions=numbers)
        if action.ready is not None:
            for topic, numbers in group_by_topic(action.ready).items():
                request.ready.topic_partitions.add(topic_id=self._ids[topic], partitions=numbers)
        return request

    def answered(self, token: int, answer: pb.ConsumerGroupHeartbeatResponse) -> ev.ConsumerHeartbeatAnswered:
        assignment = None
        if answer.HasField("assignment"):
            assignment = tuple(sorted(self._read(answer.assignment.topic_partitions)))
        return ev.ConsumerHeartbeatAnswered(
            token,
            error_code_of(answer.error_code),
            answer.error_message,
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            assignment,
            read_cause(answer.cause),
            answer.cause_detail,
            answer.revoke_within_ms,
            self._read(answer.coming.topic_partitions) if answer.HasField("coming") else None,
            self._read(answer.heirs_ready.topic_partitions),
            answer.session_timeout_ms,
        )

    def _read(self, topics: Iterable[pb.ConsumerTopicPartitions]) -> Partitions:
        """A topic without a name was deleted after it had been assigned: there is nothing left to read of it."""
        found: list[TopicPartition] = []
        for topic in topics:
            if topic.topic_name:
                self._ids[topic.topic_name] = topic.topic_id
                found += [(topic.topic_name, number) for number in topic.partitions]
        return tuple(found)
