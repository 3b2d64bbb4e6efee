"""A member of a group in the simulator of transactions: the client's own machine, classic or of KIP-848."""

from collections.abc import Callable, Sequence
from typing import Any

from muster.assignors.api import Snapshot, TopicPartition
from muster.assignors.data.consumer_protocol import encode_assignment, member_from_subscription
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.member_types import MemberSettings
from muster.client.members.subscription import Subscriber
from muster.coordinator.core.model.events import JoinGroup
from tests.sim.members.classic_part import ClassicPart
from tests.sim.members.consumer_part import ConsumerPart
from tests.sim.network import dies_with_its_call
from tests.sim.transactions.group_node import INPUT
from tests.sim.transactions.node import Refused

CONSUMER = "consumer"
"""What a group of KIP-848 is drawn as, before its assignor."""


class MemberCall:
    """A request under way. number: the node's, once it has arrived; boot: of which process."""

    def __init__(self, request: Any, on_answer: Callable[[Any], None]) -> None:
        self.request, self.on_answer = request, on_answer
        self.over = False
        self.number, self.boot = 0, -1


class SimulatedMember:
    """`release` is asked to let go of partitions, and calls what it is given once it has; `assigned` hears of new ones.

    kind: assignors of a classic group, or `CONSUMER` and the assignor of the coordinator.
    """

    def __init__(
        self,
        world: Any,
        name: str,
        kind: Sequence[str],
        release: Callable[[Sequence[TopicPartition], Callable[[], None]], None],
        assigned: Callable[[Sequence[TopicPartition], Sequence[TopicPartition]], None],
    ) -> None:
        options = world.options
        self.world, self.name = world, name
        self.release, self.assigned = release, assigned
        self.settings = MemberSettings(
            group_id=options.group,
            client_id=name,
            session_timeout_ms=options.session_ms,
            rebalance_timeout_ms=options.rebalance_ms,
            heartbeat_interval_ms=options.session_ms // 3,
            retry_backoff_ms=50,
            retry_backoff_max_ms=300,
        )
        process: Any = self
        self.part: Any
        if kind[0] == CONSUMER:
            self.part = ConsumerPart(process, RequestedSubscription((INPUT,), "", kind[1]))
        else:
            self.part = ClassicPart(process, Subscriber((INPUT,), [resolve(each) for each in kind]))
        self.alive = True
        self.calls: dict[int, MemberCall] = {}
        self.frozen_until_ms = 0
        self.backlog: list[Callable[[], None]] = []
        self.wake_at_ms: int | None = None
        self.arrives_ms = 0

    @property
    def member(self) -> Any:
        return self.part.member

    @property
    def identity(self) -> tuple[str, int]:
        return self.member.member_id, self.member.generation

    def start(self) -> None:
        self.tell(ev.Start())
        self.tell(ev.PartitionCountsChanged({INPUT: self.world.options.inputs}))

    def kill(self) -> None:
        self.alive = False

    def freeze(self, ms: int) -> None:
        self.frozen_until_ms = self.world.now_ms + ms
        self.world.after(ms, self._thaw)

    def _thaw(self) -> None:
        backlog, self.backlog = self.backlog, []
        for action in backlog:
            self.later(action)

    def later(self, action: Callable[[], None]) -> None:
        """Now, or as soon as the process runs again."""
        if self.world.now_ms < self.frozen_until_ms:
            self.backlog.append(action)
        elif self.alive:
            action()

    def tell(self, event: Any) -> None:
        if self.alive:
            for action in self.member.step(event, self.world.now_ms):
                if self.alive:
                    self._perform(action)

    # -- what the machine wants -----------------------------------------------------------------------------

    def _perform(self, action: Any) -> None:
        world, token = self.world, getattr(action, "token", 0)
        self.world.trace(self.name, type(action).__name__)
        match action:
            case act.FindCoordinator():
                world.after(world.rng.randint(2, 8), self._found, token)
            case act.SendJoin() | act.SendSync() | act.SendHeartbeat() | act.SendConsumerHeartbeat():
                self._ask(token, action)
            case act.SendLeave() | act.LeaveConsumerGroup():
                self._send(MemberCall(self.part.farewell(action), lambda answer: None))
            case act.Abandon():
                self._abandon(token)
            case act.MakePlan():
                world.after(world.rng.randint(0, 40), self.later, lambda: self._plan(action))
            case act.Revoke() | act.Lost():
                self.release(action.partitions, lambda: self.later(lambda: self.tell(ev.Revoked(token))))
            case act.Assign():
                self.assigned(action.added, action.partitions)
            case act.WakeMemberAt():
                self.wake_at_ms = action.at_ms
                world.at(action.at_ms, self.later, lambda: self._wake(action.at_ms))
            case act.Fail() | act.Closed():
                world.met[f"member {type(action).__name__}"] += 1
                self.alive = False

    def _wake(self, at_ms: int) -> None:
        if at_ms == self.wake_at_ms:
            self.wake_at_ms = None
            self.tell(ev.TimerExpired())

    def _found(self, token: int) -> None:
        failed = ev.RequestFailed(token, retriable=True, detail="nobody there")
        self.later(lambda: self.tell(ev.CoordinatorFound(token) if self.world.node.up else failed))

    def _plan(self, action: act.MakePlan) -> None:
        members = [
            member_from_subscription(each.member_id, each.group_instance_id, each.metadata, action.protocol_name)
            for each in action.members
        ]
        topics = {INPUT: self.world.options.inputs}
        snapshot = Snapshot(topics=topics, members=members, assignor=action.protocol_name)
        plan = run(resolve(action.protocol_name), snapshot)
        shares = tuple((member, encode_assignment(share)) for member, share in sorted(plan.to_dict().items()))
        self.tell(ev.PlanMade(action.generation, shares, b"", topics, question=action.question))

    # -- requests -------------------------------------------------------------------------------------------

    def _ask(self, token: int, action: Any) -> None:
        question = self.part.question(action)

        def answered(answer: Any) -> None:
            self.calls.pop(token, None)
            failed = ev.RequestFailed(token, retriable=True, detail="no answer")
            self.tell(failed if answer is None else question.translate(token, answer))

        call = self.calls[token] = MemberCall(question.request, answered)
        timeout_ms = min(question.timeout_ms, self.settings.rebalance_timeout_ms + 1_000)
        self.world.after(timeout_ms, self._hear, call, None)
        self._send(call)

    def _abandon(self, token: int) -> None:
        if call := self.calls.pop(token, None):
            call.over = True
            self._forget(call)

    def _forget(self, call: MemberCall) -> None:
        node = self.world.node
        if call.number and node.up and call.boot == node.boot:
            node.groups.forget(call.number, self.settings.group_id)

    def _send(self, call: MemberCall) -> None:
        """By a connection of its own, in order."""
        world = self.world
        ms = world.rng.randint(1, 8)
        if world.faulty and world.rng.random() < world.stall_rate:
            world.met["member held back"] += 1
            ms = world.rng.choice((300, 1_500))
        self.arrives_ms = max(self.arrives_ms, world.now_ms + ms)
        if world.faulty and world.rng.random() < world.loss_rate:
            world.met["member's request lost"] += 1
        else:
            world.at(self.arrives_ms, self._arrive, call)

    def _arrive(self, call: MemberCall) -> None:
        node = self.world.node
        if call.over and dies_with_its_call(call.request):
            return
        if not node.up:
            self.world.after(5, self._hear, call, None)
            return
        call.boot = node.boot

        def answered(reply: Any) -> None:
            if not (self.world.faulty and self.world.rng.random() < self.world.loss_rate):
                told = None if isinstance(reply, Refused) else reply
                self.world.after(self.world.rng.randint(1, 8), self._hear, call, told)

        call.number = node.ask_group(call.request, answered)

    def _hear(self, call: MemberCall, answer: Any) -> None:
        if not call.over:
            call.over = True
            if answer is None and isinstance(call.request, JoinGroup):
                self._forget(call)
            self.later(lambda: call.on_answer(answer))

    def broken(self) -> None:
        """The node is gone, and the connection with it."""
        for call in list(self.calls.values()):
            self.world.after(self.world.rng.randint(1, 30), self._hear, call, None)
