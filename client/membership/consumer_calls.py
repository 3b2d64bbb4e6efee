"""What a KIP-848 member says to its coordinator. Partitions go by topic id on the wire and by name everywhere else."""

from collections.abc import Iterable

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.methods import CONSUMER_GROUP_HEARTBEAT
from muster.client.calls.transport import Transport
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.subscription import group_by_topic
from muster.client.members.types import MemberSettings, Partitions, TopicPartition
from muster.client.membership.classic_calls import read_cause
from muster.coordinator.errors import error_code_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb


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
