"""Drives a member machine: performs its calls and timers, and queues callbacks for the member's owner.

Every kind of member has calls by token, one timer and callbacks in order. Back-off has jitter, so that a group does
not return in one burst (KIP-580). A bug fails the member visibly. `MemberDriver` serves members of classic and of
KIP-848 groups.
"""

import asyncio
import logging
import os
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from uuid import uuid4

from muster.assignors.api import RebalanceProtocol
from muster.client.calls.group_calls import LEAVE_PATIENCE_MS, GroupCalls
from muster.client.calls.transport import Transport, now_ms
from muster.client.config import GroupConfig
from muster.client.errors import (
    AuthenticationError,
    AuthorizationError,
    ClientError,
    Refused,
    TransportRefused,
    Unreachable,
    refusal,
)
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.consumer_member import ConsumerMemberMachine, RequestedSubscription
from muster.client.members.member_types import MemberSettings, MembershipState
from muster.client.members.subscription import Subscriber
from muster.client.membership.leader_planner import PlanMaker
from muster.client.membership.member_calls import ClassicCalls, ConsumerCalls, HandoffReadiness
from muster.client.membership.ports import Callback, Wake, build_callback, build_preparation
from muster.client.membership.session_stream import ProtocolMachine, SessionHeartbeats
from muster.client.twins import BackgroundTasks
from muster.client.types import GroupMetadata, TopicPartition
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import error_code_of

# What every driver does
# ----------------------

log = logging.getLogger("muster.client")

BACKOFF_JITTER = 0.2

EventT = TypeVar("EventT")


class DriverBase(ABC, Generic[EventT]):
    """One member on the running loop. `wake` is called whenever its owner should look."""

    def __init__(self, group_id: str, wake: Wake) -> None:
        self.callbacks: deque[Callback] = deque()
        self.failure: Exception | None = None
        self.trouble: Exception | None = None
        """To be raised once; the member goes on trying."""
        self._unwelcome: Exception | None = None
        """Why a call of this member is not for it to make: it fails by that, and not by its translation to a code."""
        self._group_id = group_id
        self._wake_owner = wake
        self._background = BackgroundTasks(self._crashed)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def send(self, event: EventT | ev.CommonEvent | ev.Revoked | ev.RequestFailed) -> None:
        """Step the machine and start what it asks for."""

    def refused(self, error: Refused, generation: int) -> None:
        """A commit made under `generation` was refused: the group may have gone on without this member."""
        self.send(ev.CommitRefused(error_code_of(error.code), error.message, generation))

    def done(self, callback: Callback) -> None:
        """The application has been told."""
        if callback.token is not None:
            self.send(ev.Revoked(callback.token))

    async def _stop(self, *more: asyncio.Task[None] | None) -> None:
        """End the timer, the calls under way, and `more`."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks.values(), *(task for task in more if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake_at(self, at_ms: int, *, spread: bool = False) -> None:
        """Replaces an earlier wish. With `spread`, a whole group does not come back in one burst (KIP-580)."""
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0, at_ms - now_ms())
        if spread:
            delay_ms = int(delay_ms * (1 + random.uniform(0, BACKOFF_JITTER)))
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._time_is_up)

    def _time_is_up(self) -> None:
        try:
            self.send(ev.TimerExpired())
        except Exception as error:
            self._crashed(error)

    def _start_call(self, token: int, work: Coroutine[Any, Any, EventT]) -> None:
        """Start a call; its answer, or why there is none, goes to the machine."""

        async def asking() -> None:
            try:
                answer: EventT | ev.RequestFailed = await work
            except Exception as error:
                if isinstance(error, AuthenticationError | AuthorizationError):
                    self._unwelcome = error
                failed = self._failed(token, error)
                if failed is None:
                    self._crashed(error)
                    return
                answer = failed
            self._tasks.pop(token, None)
            self.send(answer)
            self._answered(answer)

        task = self._tasks[token] = self._background.start(asking())
        # A task that is cancelled before its first step would leave the call behind, never begun.
        task.add_done_callback(lambda _: work.close())

    def _fail(self, action: act.Fail) -> None:
        self.failure = self._unwelcome or refusal(action.code, action.code.name, action.message, self._group_id)

    def _abandon(self, token: int) -> None:
        if task := self._tasks.pop(token, None):
            task.cancel()

    @abstractmethod
    def _failed(self, token: int, error: Exception) -> ev.RequestFailed | None:
        """What the machine hears of a call that failed. None is for a bug."""

    def _answered(self, answer: EventT | ev.RequestFailed) -> None:
        """The machine has heard the answer."""

    def _crashed(self, error: Exception) -> None:
        """A bug must not leave a member waiting for ever: whoever owns it is told."""
        log.error("the member of group %r stopped working", self._group_id, exc_info=error)
        self.failure = error
        self._wake_owner()


# Members of classic and KIP-848 groups
# -------------------------------------


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
            self._pushed = SessionHeartbeats(
                transport, calls, self.settings, self._consumer, self.machine, self.send, self._crashed
            )
        self._plan_task: asyncio.Task[None] | None = None
        self._leave_task: asyncio.Task[None] | None = None
        self._silent_since_ms: int | None = None
        self._readiness: HandoffReadiness | None = None

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
            self._pushed.follow_member()

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
                self._start_call(action.token, self._find(action))
            case act.SendHeartbeat() | act.SendConsumerHeartbeat() if self._pushed is not None and self._pushed.is_open:
                self._start_call(action.token, self._pushed.heartbeat(action))
            case act.SendJoin() | act.SendSync() | act.SendHeartbeat():
                self._start_call(action.token, self._classic.send_request(action))
            case act.SendConsumerHeartbeat():
                self._start_call(action.token, self._consumer.heartbeat(action))
            case act.SendLeave():
                self._leave_task = self._background.start(self._classic.leave(action))
            case act.LeaveConsumerGroup():
                self._leave_task = self._background.start(self._consumer.leave(action))
            case act.Abandon():
                self._abandon(action.token)
            case act.MakePlan():
                if self._plan_task is not None:
                    self._plan_task.cancel()
                self._plan_task = self._background.start(self._plan(action))
            case act.HandoffReady():
                if self._readiness is not None:
                    self._readiness.mark_ready(action.partitions)
            case act.Prepare():
                self._prepare(action)
            case act.WakeMemberAt():
                self._wake_at(action.at_ms, spread=self.machine.state is MembershipState.JOINING)
            case _:
                self._report_action(action)

    def _report_action(self, action: act.Revoke | act.Lost | act.Assign | act.Fail | act.Closed) -> None:
        match action:
            case act.Revoke() | act.Lost() | act.Assign():
                machine, patience_ms = self.machine, self.settings.rebalance_timeout_ms
                told = build_callback(action, machine.generation, self._protocol, machine.owned, patience_ms)
                if isinstance(action, act.Revoke):
                    self._readiness = HandoffReadiness(action.partitions)
                    told = replace(told, event=replace(told.event, heirs=self._readiness))
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
