"""A worker of a central group in virtual time: it registers and answers up one stream, down which orders come."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import central_events as ce
from muster.client.members import events as ev
from muster.client.members.central_member import CentralMemberMachine
from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import NOTHING_COMMITTED, CentralReply, Reply, StartFetcher
from muster.coordinator.core.model.types import CommittedOffset
from muster.workshop.lab.simulated_node import SimulatedCall, SimulatedConnection, SimulatedNode, VirtualClock
from muster.workshop.lab.simulated_worker import RunAccount, SimulatedWorker, SteadyLoad


class CentralWorker(SimulatedWorker):
    """Commits nothing by itself: its answers say how far it has come."""

    def __init__(
        self,
        clock: VirtualClock,
        node: SimulatedNode,
        account: RunAccount,
        labour: SteadyLoad,
        name: str,
        machine: CentralMemberMachine,
    ) -> None:
        super().__init__(clock, account, labour, name, machine)
        self._node = node
        self._machine = machine
        self._connection = SimulatedConnection()
        self._stream = 0
        self._awaiting: SimulatedCall | None = None
        self._begins: dict[TopicPartition, int] = {}
        self._last: Mapping[TopicPartition, int] = {}

    def hang_up(self) -> None:
        """Its system closes the connection, however the process ended."""
        stream, self._stream = self._stream, 0
        if self._awaiting is not None:
            self._node.abandon(self._awaiting)
        if stream:
            self._node.close_connection(
                self._connection, events.StreamClosed(self._group, self._machine.member_id, stream)
            )

    def perform_action(self, action: Any) -> None:
        match action:
            case act.FindCoordinator():
                self._clock.after(1, lambda: self.handle_event(ev.CoordinatorFound(action.token)))
            case ce.RegisterMember():
                self._register(action)
            case ce.AnswerPing(number):
                self._say(events.PingAnswered, number, offsets_of({tp: self._positions[tp] for tp in self.holding}))
            case ce.AnswerStopped(number):
                self._say(events.FetcherStopped, number, offsets_of(self._last))
            case ce.AnswerStarted(number):
                self._say(events.FetcherStarted, number)
            case ce.SendDeregister(reason):
                gone = events.Deregister(
                    0, self._group, self._machine.member_id, self._stream, offsets_of(self._last), reason
                )
                self._node.say(self._connection, gone)
                self._stream = 0
            case ce.CloseStream():
                self.hang_up()
            case act.Abandon() | ce.LogNotice():
                pass  # A registration is answered at once; a report is for people.

    def send_commit(self, positions: Mapping[TopicPartition, int], done: Callable[[], None]) -> None:
        """What counts goes with the next answer."""
        self._last = positions
        done()

    def fetch_positions(
        self, partitions: Sequence[TopicPartition], then: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None:
        """The order to start has said it."""
        then({tp: self._begins[tp] for tp in partitions})

    @property
    def _group(self) -> str:
        return self._machine.settings.group_id

    def _register(self, action: ce.RegisterMember) -> None:
        machine = self._machine
        request = events.RegisterConsumer(
            0,
            self._group,
            machine.member_id,
            self.name,
            "lab",
            machine.settings.session_timeout_ms,
            action.topics,
            action.regex,
            action.assignor,
            action.generation,
            action.owned,
        )

        def registered(reply: Reply) -> None:
            assert isinstance(reply, CentralReply), f"a registration was answered by {reply}"
            if not reply.code:
                self._stream = call.request_id
                self._await()
            self.handle_event(ce.MemberRegistered(action.token, reply.code, reply.message))

        call = self._node.call(self._connection, request, registered)

    def _await(self) -> None:
        """The node's end of the stream asks for orders, as long as there is one."""
        question = events.AwaitOrders(0, self._group, self._machine.member_id, self._stream)
        self._awaiting = self._node.park(self._connection, question, self._heard)

    def _heard(self, reply: Reply) -> None:
        assert isinstance(reply, CentralReply), f"AwaitOrders was answered by {reply}"
        self._awaiting = None
        if reply.code:
            self._stream = 0
            self.handle_event(ce.StreamEnded(reply.code, reply.message))
            return
        for order in reply.orders:
            if isinstance(order, StartFetcher):
                self._begins = {(t, p): 0 if at == NOTHING_COMMITTED else at for t, p, at in order.partitions}
            self.handle_event(ce.OrderReceived(order, reply.answered))
        if self._stream:
            self._await()

    def _say(self, kind: Any, number: int, *rest: events.Offsets) -> None:
        self._node.say(self._connection, kind(0, self._group, self._machine.member_id, self._stream, number, *rest))


def offsets_of(positions: Mapping[TopicPartition, int]) -> events.Offsets:
    return tuple((*tp, CommittedOffset(position)) for tp, position in sorted(positions.items()))
