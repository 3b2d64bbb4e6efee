"""Workers of groups that have a coordinator, in virtual time: the real member machine in a simulated application.

Classic and KIP-848 members call the coordinator; with a session stream the coordinator speaks first, and assignments
arrive by themselves. Replies of the coordinator are translated into the events of the member machines.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.consumer_member import ConsumerMemberMachine
from muster.client.members.member_types import NO_GENERATION, GroupMember, MemberSettings
from muster.client.members.subscription import group_by_topic
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.types import CommittedOffset, MemberIdentity, Protocol
from muster.workshop.lab.simulated_node import SimulatedCall, SimulatedConnection, SimulatedNode, VirtualClock
from muster.workshop.lab.simulated_worker import RunAccount, SimulatedWorker, SteadyLoad

# Replies as events of the member machines
# ----------------------------------------


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


# Workers
# -------

Machine: TypeAlias = ClassicMemberMachine | ConsumerMemberMachine
Planner: TypeAlias = Callable[[act.MakePlan, int], ev.PlanMade]
"""Makes the plan of a leader, at that time."""


class CoordinatedWorker(SimulatedWorker):
    """A worker whose group has a coordinator."""

    def __init__(
        self,
        clock: VirtualClock,
        node: SimulatedNode,
        account: RunAccount,
        labour: SteadyLoad,
        name: str,
        machine: Machine,
    ) -> None:
        super().__init__(clock, account, labour, name, machine)
        self._node = node
        self._connection = SimulatedConnection()
        self._machine = machine
        self._settings: MemberSettings = machine.settings
        self._calls: dict[int, SimulatedCall] = {}

    def started(self) -> None:
        if isinstance(self._machine, ClassicMemberMachine):
            self.handle_event(ev.PartitionCountsChanged(self._node.topics))

    def hang_up(self) -> None:
        for call in self._calls.values():
            self._node.abandon(call)

    # What the machine asks for

    def perform_action(self, action: act.Action) -> None:
        match action:
            case act.FindCoordinator():
                self._clock.after(1, lambda: self.handle_event(ev.CoordinatorFound(action.token)))
            case act.SendJoin():
                self._send_request(action.token, self._join(action), join_answered)
            case act.SendSync():
                self._send_request(action.token, self._sync(action), sync_answered)
            case act.SendHeartbeat():
                beat = events.Heartbeat(0, self._group, action.member_id, self._instance, action.generation)
                self._send_request(action.token, beat, heartbeat_answered)
            case act.SendConsumerHeartbeat():
                self.consumer_heartbeat(action.token, self._consumer_heartbeat(action))
            case act.SendLeave():
                who = MemberIdentity(action.member_id, self._instance, action.reason)
                self._node.call(self._connection, events.LeaveGroup(0, self._group, (who,)), ignore_answer)
            case act.LeaveConsumerGroup():
                gone = events.ConsumerHeartbeat(0, self._group, action.member_id, action.epoch, self._instance)
                self._node.call(self._connection, gone, ignore_answer)
            case act.Abandon():
                if call := self._calls.pop(action.token, None):
                    self._node.abandon(call)
            case act.MakePlan():
                self.plan(action)

    def plan(self, action: act.MakePlan) -> None:
        raise AssertionError(f"{self.name} was asked to plan, but its coordinator does that")

    def consumer_heartbeat(self, token: int, request: events.ConsumerHeartbeat) -> None:
        self._send_request(token, request, consumer_answered)

    def _send_request(self, token: int, request: events.Request, translate: Callable[[int, Any], Any]) -> None:
        def answered(reply: Reply) -> None:
            self._calls.pop(token, None)
            self.handle_event(translate(token, reply))

        self._calls[token] = self._node.call(self._connection, request, answered)

    def send_commit(self, positions: Mapping[TopicPartition, int], done: Callable[[], None]) -> None:
        offsets = {tp: CommittedOffset(position) for tp, position in positions.items()}
        member = self._machine
        request = events.OffsetCommit(0, self._group, member.member_id, self._instance, member.generation, offsets)
        self._node.call(self._connection, request, lambda _: done())

    def fetch_positions(
        self, partitions: Sequence[TopicPartition], then: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None:
        def fetched(reply: Reply) -> None:
            assert isinstance(reply, effects.OffsetFetchReply), f"an OffsetFetch was answered by {reply}"
            then({tp: stored.offset for tp, stored in reply.offsets.items() if stored})

        self._node.call(self._connection, events.OffsetFetch(0, self._group, tuple(partitions)), fetched)

    # Requests

    @property
    def _group(self) -> str:
        return self._settings.group_id

    @property
    def _instance(self) -> str | None:
        return self._settings.group_instance_id

    def _join(self, action: act.SendJoin) -> events.JoinGroup:
        settings = self._settings
        return events.JoinGroup(
            request_id=0,
            group_id=settings.group_id,
            member_id=action.member_id,
            group_instance_id=settings.group_instance_id,
            client_id=self.name,
            client_host="lab",
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            protocol_type=settings.protocol_type,
            protocols=tuple(Protocol(offer.name, offer.metadata) for offer in action.protocols),
            fresh_id=str(self._node.next_id()),
            reason=action.reason,
        )

    def _sync(self, action: act.SendSync) -> events.SyncGroup:
        return events.SyncGroup(
            request_id=0,
            group_id=self._group,
            member_id=action.member_id,
            group_instance_id=self._instance,
            generation=action.generation,
            protocol_type=self._settings.protocol_type,
            protocol_name=action.protocol_name,
            assignments=action.assignments,
            snapshot=action.snapshot,
            leader_state=action.leader_state,
            scheduled_delay_ms=action.scheduled_delay_ms,
        )

    def _consumer_heartbeat(self, action: act.SendConsumerHeartbeat) -> events.ConsumerHeartbeat:
        owned = None
        if action.owned is not None:
            owned = {self._node.ids[topic]: frozenset(parts) for topic, parts in group_by_topic(action.owned).items()}
        return events.ConsumerHeartbeat(
            request_id=0,
            group_id=self._group,
            member_id=action.member_id,
            member_epoch=action.epoch,
            group_instance_id=self._instance,
            rebalance_timeout_ms=action.rebalance_timeout_ms,
            topic_names=action.topics,
            topic_regex=action.regex,
            server_assignor=action.server_assignor,
            owned=owned,
            client_id=self.name,
            client_host="lab",
        )


class PlanningWorker(CoordinatedWorker):
    """A classic member: when it leads, it plans."""

    planner: Planner

    def plan(self, action: act.MakePlan) -> None:
        self.handle_event(self.planner(action, self._clock.now_ms))


class PushedClassicWorker(PlanningWorker):
    """A classic member with a session stream: its coordinator speaks first."""

    _heard: int = NO_GENERATION
    """The generation under which it listens."""

    def stepped(self) -> None:
        machine = self._machine
        if machine.generation in (NO_GENERATION, self._heard):
            return
        if self._heard == NO_GENERATION:
            self._greet()
        generation = self._heard = machine.generation

        def told(reply: Reply) -> None:
            if isinstance(reply, effects.PushReply) and reply.code:
                self.handle_event(
                    ev.HeartbeatPushed(reply.code, reply.message, generation, reply.cause, reply.cause_detail)
                )

        listen = events.Listen(0, self._group, machine.member_id, self._instance, generation)
        self._node.call(self._connection, listen, told)

    def _greet(self) -> None:
        """Open the stream, and hear how often heartbeats are wanted on it."""

        def welcomed(reply: Reply) -> None:
            assert isinstance(reply, effects.HelloReply), f"a Hello was answered by {reply}"
            self.handle_event(ev.SessionOpened(reply.heartbeat_interval_ms))

        self._node.call(self._connection, events.Hello(0, self._group, self._machine.member_id), welcomed)


class PushedConsumerWorker(CoordinatedWorker):
    """A KIP-848 member with a session stream: assignments come by themselves."""

    _listening: SimulatedCall | None = None

    def consumer_heartbeat(self, token: int, request: events.ConsumerHeartbeat) -> None:
        listening = self._listening

        def answered(reply: Reply) -> None:
            assert isinstance(reply, effects.PushReply), f"a SessionHeartbeat was answered by {reply}"
            if reply.crossed:
                return  # What was pushed is on its way, and the member will speak again.
            self._calls.pop(token, None)
            said = reply.consumer or effects.ConsumerHeartbeatReply(reply.code, reply.message)
            self._listen(said)
            self.handle_event(consumer_answered(token, said))

        parked = listening.request_id if listening is not None else None
        self._calls[token] = self._node.call(self._connection, events.SessionHeartbeat(0, request, parked), answered)

    def _listen(self, said: effects.ConsumerHeartbeatReply) -> None:
        if said.code or said.member_epoch <= 0:
            return
        if self._listening is not None:
            self._node.abandon(self._listening)
        listen = events.Listen(
            0, self._group, self._machine.member_id, self._instance, said.member_epoch, consumer=True
        )
        self._listening = self._node.park(self._connection, listen, self._handle_push)

    def _handle_push(self, reply: Reply) -> None:
        assert isinstance(reply, effects.PushReply), f"a Listen was answered by {reply}"
        self._listening = None
        if reply.consumer is not None:
            self.handle_event(ev.ConsumerHeartbeatPushed(consumer_answered(0, reply.consumer)))
        elif reply.code:
            refused = effects.ConsumerHeartbeatReply(reply.code, reply.message)
            self.handle_event(ev.ConsumerHeartbeatPushed(consumer_answered(0, refused)))


def ignore_answer(_: Reply) -> None:
    """Nobody waits for this answer."""
