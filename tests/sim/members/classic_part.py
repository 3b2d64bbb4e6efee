"""What a process is made of that speaks JoinGroup and SyncGroup: the machine, its requests, and the leader's plans."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.delayed_rebalance import DelayedLeader
from muster.client.members.member_types import GroupMember, MemberSettings
from muster.client.members.subscription import Subscriber
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import MemberIdentity, Protocol
from tests.sim.faults import JOIN_GRACE_MS, REQUEST_TIMEOUT_MS
from tests.sim.members.part import Question
from tests.sim.members.planner import Planner

if TYPE_CHECKING:
    from tests.sim.members.client import Process

MakeClassic = Callable[[MemberSettings, Subscriber], ClassicMemberMachine]


class ClassicPart:
    """Eager, cooperative, or with a `delayed` leader's memory one that shares named resources (KIP-415)."""

    consumer = False
    regex = ""

    def __init__(
        self,
        process: "Process",
        subscriber: Subscriber,
        make_member: MakeClassic = ClassicMemberMachine,
        delayed: DelayedLeader | None = None,
    ) -> None:
        self.process = process
        self.settings = process.settings
        self.subscriber = subscriber
        self.member = make_member(process.settings, subscriber)
        self.planner = Planner(process, delayed)
        self.named = delayed is not None
        """Its topics are names that no catalog knows."""

    @property
    def cooperative(self) -> bool:
        return self.subscriber.protocol.value == "cooperative"

    def reads(self, topics: dict[str, int]) -> set[tuple[str, int]]:
        """The partitions of what it subscribes to."""
        names = self.member.topics
        return {(name, 0) for name in names} if self.named else partitions_of(names, topics)

    def question(self, action: Any) -> Question:
        match action:
            case act.SendJoin():
                return Question(self._join(action), self._long_ms, join_answered)
            case act.SendSync():
                return Question(self._sync(action), self._long_ms, sync_answered)
            case act.SendHeartbeat():
                return Question(self._heartbeat(action), REQUEST_TIMEOUT_MS, heartbeat_answered)
            case _:
                raise AssertionError(f"a classic member does not ask for {action}")

    def farewell(self, action: Any) -> events.LeaveGroup:
        who = MemberIdentity(action.member_id, self.settings.group_instance_id, action.reason)
        return events.LeaveGroup(0, self.settings.group_id, (who,))

    def pushed(self, reply: effects.PushReply, generation: int) -> ev.HeartbeatPushed:
        return ev.HeartbeatPushed(reply.code, reply.message, generation)

    @property
    def _long_ms(self) -> int:
        """A join may take the whole rebalance timeout, and a little more."""
        return self.settings.rebalance_timeout_ms + JOIN_GRACE_MS

    def _join(self, action: act.SendJoin) -> events.JoinGroup:
        settings = self.settings
        return events.JoinGroup(
            request_id=0,
            group_id=settings.group_id,
            member_id=action.member_id,
            group_instance_id=settings.group_instance_id,
            client_id=self.process.name,
            client_host="host",
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            protocol_type=settings.protocol_type,
            protocols=tuple(Protocol(offer.name, offer.metadata) for offer in action.protocols),
            fresh_id="",
            reason=action.reason,
            remote_assignor=settings.remote_assignor,
        )

    def _sync(self, action: act.SendSync) -> events.SyncGroup:
        return events.SyncGroup(
            request_id=0,
            group_id=self.settings.group_id,
            member_id=action.member_id,
            group_instance_id=self.settings.group_instance_id,
            generation=action.generation,
            protocol_type=self.settings.protocol_type,
            protocol_name=action.protocol_name,
            assignments=action.assignments,
            snapshot=action.snapshot,
            leader_state=action.leader_state,
            scheduled_delay_ms=action.scheduled_delay_ms,
        )

    def _heartbeat(self, action: act.SendHeartbeat) -> events.Heartbeat:
        instance_id = self.settings.group_instance_id
        return events.Heartbeat(0, self.settings.group_id, action.member_id, instance_id, action.generation)


def partitions_of(names: tuple[str, ...], topics: dict[str, int]) -> set[tuple[str, int]]:
    return {(name, number) for name in names for number in range(topics.get(name, 0))}


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
    return ev.ClassicHeartbeatAnswered(token, reply.code, reply.message)
