"""Performs what a member machine asks for: calls, timers, plans. Callbacks are queued for whoever owns the member."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from muster.assignors.api import RebalanceProtocol
from muster.client.calls.group_calls import LEAVE_PATIENCE_MS, GroupCalls
from muster.client.calls.transport import Transport, now_ms
from muster.client.config import GroupConfig
from muster.client.errors import ClientError, Refused, TransportRefused, Unreachable
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_machine import ConsumerMemberMachine, RequestedSubscription
from muster.client.members.machine import ClassicMemberMachine
from muster.client.members.states import MembershipState
from muster.client.members.subscription import Subscriber
from muster.client.members.types import MemberSettings
from muster.client.membership.classic_calls import ClassicCalls
from muster.client.membership.consumer_calls import ConsumerCalls
from muster.client.membership.heirs import HandoffReadiness
from muster.client.membership.leader_planner import PlanMaker
from muster.client.membership.performing import DriverBase
from muster.client.membership.pushed import ProtocolMachine, SessionHeartbeats
from muster.client.membership.seam import Callback
from muster.client.membership.telling import build_callback, build_preparation
from muster.client.types import GroupMetadata, TopicPartition
from muster.coordinator.core.model.types import Cause

log = logging.getLogger("muster.client")


@dataclass(frozen=True, slots=True)
class ClassicParticipation:
    """A member that joins and syncs, and makes the plan when it leads."""

    subscriber: Subscriber
    planner: PlanMaker


@dataclass(frozen=True, slots=True)
class ConsumerParticipation:
    """A member whose coordinator makes the plan (KIP-848)."""

    wish: RequestedSubscription


class MemberDriver(DriverBase[ev.ClassicEvent | ev.ConsumerEvent]):
    """One member of one group on the running loop. `wake` is called whenever the owner should look."""

    def __init__(
        self,
        transport: Transport,
        calls: GroupCalls,
        config: GroupConfig,
        part: ClassicParticipation | ConsumerParticipation,
        wake: Callable[[], None],
    ) -> None:
        self.settings = build_member_settings(config)
        super().__init__(self.settings.group_id, wake)
        self._transport = transport
        self._calls = calls
        self._config = config
        self._classic = ClassicCalls(transport, calls, self.settings)
        self._consumer = ConsumerCalls(transport, calls, self.settings, config.client_rack)
        self._planner: PlanMaker | None = None
        if isinstance(part, ClassicParticipation):
            self.machine: ProtocolMachine = ClassicMemberMachine(self.settings, part.subscriber)
            self._planner = part.planner
            self._protocol = part.subscriber.protocol.value
        else:
            self.machine = ConsumerMemberMachine(self.settings, str(uuid4()), part.wish)
            self._protocol = RebalanceProtocol.COOPERATIVE.value
        self._pushed: SessionHeartbeats | None = None
        if config.group_membership == "push":
            self._pushed = SessionHeartbeats(transport, calls, self.settings, self._consumer, self.machine, self.send)
        self._plan_task: asyncio.Task[None] | None = None
        self._leave_task: asyncio.Task[None] | None = None
        self._silent_since_ms: int | None = None
        self._heirs: HandoffReadiness | None = None

    @property
    def identity(self) -> GroupMetadata:
        machine = self.machine
        return GroupMetadata(
            self.settings.group_id, machine.generation, machine.member_id, self.settings.group_instance_id
        )

    @property
    def watches_topics(self) -> bool:
        """Only the leader of a classic group acts on them."""
        return self.machine.is_leader

    def send(self, event: ev.ClassicEvent | ev.ConsumerEvent) -> None:
        """Step the machine and start what it asks for."""
        for action in self.machine.step(event, now_ms()):
            self._perform(action)
        if self._pushed is not None:
            self._pushed.look()

    def next_callback(self) -> Callback | None:
        """The next one to tell. What was to be revoked is lost if the group gave the member up in the meantime."""
        if not self.callbacks:
            return None
        callback = self.callbacks.popleft()
        if (
            callback.kind == "revoked"
            and self.machine.generation < 0
            and self.machine.state is not MembershipState.CLOSED
        ):
            lost = replace(callback.event, kind="lost", cause=Cause.MEMBER_FENCED)
            return Callback("lost", callback.partitions, lost, callback.token)
        return callback

    async def abort(self) -> None:
        """Stop everything at once; the group finds out by itself."""
        await self._stop(self._plan_task, self._leave_task)
        if self._pushed is not None:
            await self._pushed.close()

    async def left(self) -> None:
        """Wait, not for long, until the coordinator has heard that the member leaves.

        A callback that was interrupted (Ctrl-C) does not keep the member from leaving.
        """
        while (token := self.machine.awaited_release) is not None:
            self.send(ev.Revoked(token))
        if self._leave_task is not None:
            await asyncio.wait([self._leave_task], timeout=LEAVE_PATIENCE_MS / 1000)
        await self.abort()

    # Actions

    def _perform(self, action: act.Action) -> None:
        match action:
            case act.FindCoordinator():
                self._ask(action.token, self._find(action))
            case act.SendHeartbeat() | act.SendConsumerHeartbeat() if self._pushed is not None and self._pushed.is_open:
                self._ask(action.token, self._pushed.heartbeat(action))
            case act.SendJoin() | act.SendSync() | act.SendHeartbeat():
                self._ask(action.token, self._classic.ask(action))
            case act.SendConsumerHeartbeat():
                self._ask(action.token, self._consumer.heartbeat(action))
            case act.SendLeave():
                self._leave_task = asyncio.create_task(self._classic.leave(action))
            case act.LeaveConsumerGroup():
                self._leave_task = asyncio.create_task(self._consumer.leave(action))
            case act.Abandon():
                self._abandon(action.token)
            case act.MakePlan():
                if self._plan_task is not None:
                    self._plan_task.cancel()
                self._plan_task = asyncio.create_task(self._plan(action))
            case act.HandoffReady():
                if self._heirs is not None:
                    self._heirs.are_ready(action.partitions)
            case act.Prepare():
                self._prepare(action)
            case act.WakeMemberAt():
                self._wake_at(action.at_ms, spread=self.machine.state is MembershipState.JOINING)
            case _:
                self._tell(action)

    def _tell(self, action: act.Revoke | act.Lost | act.Assign | act.Fail | act.Closed) -> None:
        match action:
            case act.Revoke() | act.Lost() | act.Assign():
                machine, patience_ms = self.machine, self.settings.rebalance_timeout_ms
                told = build_callback(action, machine.generation, self._protocol, machine.owned, patience_ms)
                if isinstance(action, act.Revoke):
                    self._heirs = HandoffReadiness(action.partitions)
                    told = replace(told, event=replace(told.event, heirs=self._heirs))
                self.callbacks.append(told)
            case act.Fail():
                self._fail(action)
            case act.Closed():
                pass  # Whoever closes looks at the machine's state.
        self._wake_owner()

    def _prepare(self, action: act.Prepare) -> None:
        """Whoever is ready says so from any thread."""
        machine, loop = self.machine, asyncio.get_running_loop()

        def ready(partitions: tuple[TopicPartition, ...]) -> None:
            loop.call_soon_threadsafe(self.send, ev.PartitionsPrepared(partitions))

        self.callbacks.append(
            build_preparation(action, machine.generation, machine.owned, self.settings.rebalance_timeout_ms, ready)
        )
        self._wake_owner()

    # Calls

    def _failed(self, token: int, error: Exception) -> ev.RequestFailed | None:
        match error:
            case Unreachable():
                self._unreachable(error)
                return ev.RequestFailed(token, True, str(error))
            case Refused() | TransportRefused():
                return ev.RequestFailed(token, isinstance(error, Refused) and error.retriable, str(error))
            case _:
                return None

    def _answered(self, answer: ev.ClassicEvent | ev.ConsumerEvent) -> None:
        if not isinstance(answer, ev.RequestFailed):
            self._silent_since_ms = None

    def _unreachable(self, error: Unreachable) -> None:
        """Keep trying; but whoever waits for the very first contact is told after default.api.timeout.ms."""
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms()
            self._transport.announce(error)
        waited_ms = now_ms() - self._silent_since_ms
        if not self.machine.member_id and waited_ms >= self._config.default_api_timeout_ms:
            self._silent_since_ms = now_ms()
            self.trouble = Unreachable(error.address, waited_ms, f"joining group {self.settings.group_id!r}")
            self._wake_owner()

    async def _find(self, action: act.FindCoordinator) -> ev.ClassicEvent:
        self._calls.forget_coordinator()
        await self._calls.coordinator()
        return ev.CoordinatorFound(action.token)

    async def _plan(self, action: act.MakePlan) -> None:
        assert self._planner is not None, "only a classic member plans"
        try:
            answer: ev.ClassicEvent = replace(await self._planner.plan(action), question=action.question)
        except ClientError as error:
            log.warning("the plan for generation %d has to wait: %s", action.generation, error)
            answer = ev.PlanFailed(action.generation, str(error), action.question)
        except Exception as error:
            self._crashed(error)
            return
        self.send(answer)


def build_member_settings(config: GroupConfig) -> MemberSettings:
    assert config.group_id is not None, "a member needs a group; its owner has checked"
    return MemberSettings(
        group_id=config.group_id,
        client_id=config.client_id or f"{config.kind}-{config.group_id}-{config.group_instance_id or os.getpid()}",
        group_instance_id=config.group_instance_id,
        remote_assignor=config.group_remote_assignor or "",
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=max(config.retry_backoff_max_ms, config.retry_backoff_ms),
    )
