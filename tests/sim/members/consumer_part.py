"""What a process is made of that speaks KIP-848: the machine and its one request. Topics go by id on the wire."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_member import ConsumerMemberMachine, RequestedSubscription
from muster.client.members.member_types import MemberSettings, Partitions
from muster.client.members.subscription import group_by_topic
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.records import Shares, TopicId
from tests.sim.faults import REQUEST_TIMEOUT_MS
from tests.sim.members.classic_part import partitions_of
from tests.sim.members.part import Question

if TYPE_CHECKING:
    from tests.sim.members.client import Process

MakeConsumer = Callable[[MemberSettings, str, RequestedSubscription], ConsumerMemberMachine]


class ConsumerPart:
    """The process's name serves as its member id: every process has one of its own."""

    consumer = True
    cooperative = True
    named = False

    def __init__(
        self, process: "Process", wish: RequestedSubscription, make_member: MakeConsumer = ConsumerMemberMachine
    ) -> None:
        self.process = process
        self.settings = process.settings
        self.regex = wish.regex
        self.member = make_member(process.settings, process.name, wish)
        # Kafka's own clients work on, however long they reach nobody.
        self._minds = sum(process.name.encode()) % 2 == 0
        self._ids: dict[str, TopicId] = {}  # of the topics that were assigned; only those can be owned

    def reads(self, topics: dict[str, int]) -> set[tuple[str, int]]:
        """A pattern of the simulation stands for all topics."""
        return partitions_of(tuple(topics) if self.regex else self.member.topics, topics)

    def question(self, action: Any) -> Question:
        assert isinstance(action, act.SendConsumerHeartbeat)
        timeout_ms = min(REQUEST_TIMEOUT_MS, self.settings.session_timeout_ms)
        return Question(self.heartbeat(action), timeout_ms, self.answered)

    def heartbeat(self, action: act.SendConsumerHeartbeat) -> events.ConsumerHeartbeat:
        return events.ConsumerHeartbeat(
            request_id=0,
            group_id=self.settings.group_id,
            member_id=action.member_id,
            member_epoch=action.epoch,
            group_instance_id=self.settings.group_instance_id,
            rebalance_timeout_ms=action.rebalance_timeout_ms,
            topic_names=action.topics,
            topic_regex=action.regex,
            server_assignor=action.server_assignor,
            owned=None if action.owned is None else self._by_id(action.owned),
            client_id=self.process.name,
            client_host="host",
        )

    def farewell(self, action: Any) -> events.ConsumerHeartbeat:
        instance_id = self.settings.group_instance_id
        return events.ConsumerHeartbeat(0, self.settings.group_id, action.member_id, action.epoch, instance_id)

    def answered(self, token: int, reply: effects.ConsumerHeartbeatReply) -> ev.ConsumerHeartbeatAnswered:
        assignment = None if reply.assignment is None else self._by_name(reply)
        return ev.ConsumerHeartbeatAnswered(
            token,
            reply.code,
            reply.message,
            reply.member_epoch,
            reply.heartbeat_interval_ms,
            assignment,
            session_timeout_ms=reply.session_timeout_ms if self._minds else 0,
        )

    def pushed(self, reply: effects.PushReply, generation: int) -> ev.ConsumerHeartbeatPushed:
        told = reply.consumer or effects.ConsumerHeartbeatReply(reply.code, reply.message)
        return ev.ConsumerHeartbeatPushed(self.answered(0, told))

    def _by_id(self, owned: Partitions) -> Shares:
        return {self._ids[topic]: frozenset(numbers) for topic, numbers in group_by_topic(owned).items()}

    def _by_name(self, reply: effects.ConsumerHeartbeatReply) -> Partitions:
        self._ids.update((name, topic) for topic, name in reply.names.items())
        share = reply.assignment or {}
        return tuple(sorted((reply.names[topic], number) for topic in share for number in share[topic]))
