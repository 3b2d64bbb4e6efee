"""What a simulated node is asked: by other nodes, by producers and readers, and for its controller's machine."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import ClusterState, TopicPartition
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.fetch_sessions import LedPartition
from muster.coordinator.replication.protocol.replica_fetch import FetchRequest, LogBroken
from tests.sim.replication.disk import NoRoom, SimLog
from tests.sim.replication.groups.coordinator import EpochsAsked, GroupAsk, epochs_let_go
from tests.sim.replication.process.messages import Ask, Consume, Consumed, Poll, Probing, Produce, Produced
from tests.sim.replication.transactions.messages import DataAsk, IdAsk, MarkerAsk, PositionsAsk

if TYPE_CHECKING:
    from tests.sim.replication.node import SimNode

POLL_WAIT_MS = 500
FETCH_WAIT_MS = 500


class Door:
    """Of one life of a node. Each request is answered once, or never where the life is over before."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self._parked: dict[TopicPartition, list[tuple[int, int, int, Callable[[Any], None]]]] = {}
        self._requests: dict[int, Callable[[Any], None]] = {}
        self._request = 0

    def answer(self, answer: events_and_effects.Respond) -> None:
        reply = self._requests.pop(answer.request, None)
        if reply is not None:
            reply(answer.body)

    def take(self, request: Any, reply: Callable[[Any], None]) -> None:
        match request:
            case FetchRequest():
                life = self._node.life
                self._node.replicas.fetch(
                    request,
                    lambda answer: reply(answer) if self._node.life == life else None,
                    FETCH_WAIT_MS,
                    self._node.now(),
                )
                self._node.settle()
            case Poll():
                number = self._number(reply)
                polled = events_and_effects.ImagePolled(
                    number, request.node, request.node_epoch, request.image, request.offline, POLL_WAIT_MS
                )
                self._for_controller(number, polled, ClusterState(error=ErrorCode.NOT_CONTROLLER))
            case Ask(make):
                number = self._number(reply)
                self._for_controller(
                    number, make(number), events_and_effects.AlterPartitionResult(ErrorCode.NOT_CONTROLLER)
                )
            case Produce():
                self._produce(request, reply)
            case Consume():
                self._consume(request, reply)
            case GroupAsk(asked) if self._node.groups is not None:
                life = self._node.life
                self._node.groups.receive(asked, lambda answer: reply(answer) if self._node.life == life else None)
                self._node.settle()
            case EpochsAsked():
                reply(epochs_let_go(self._node, request))
            case IdAsk() if self._node.ids is not None:
                self._node.ids.receive(request, self._unless_over(reply))
                self._node.settle()
            case DataAsk() if self._node.ids is not None:
                self._node.ids.data.produce(request, self._unless_over(reply))
            case MarkerAsk() if self._node.ids is not None:
                self._node.mark(request, self._unless_over(reply))
            case PositionsAsk() if self._node.positions is not None:
                self._node.positions.commit(request, self._unless_over(reply))
                self._node.settle()
            case Probing():
                reply(None)

    def _unless_over(self, reply: Callable[[Any], None]) -> Callable[[Any], None]:
        life = self._node.life
        return lambda answer: reply(answer) if self._node.life == life else None

    def _number(self, reply: Callable[[Any], None]) -> int:
        self._request += 1
        self._requests[self._request] = reply
        return self._request

    def _for_controller(self, number: int, event: events_and_effects.ControllerEvent, otherwise: Any) -> None:
        if not self._node.candidate.tell(event):
            self._requests.pop(number)(otherwise)

    # Records.

    def _produce(self, request: Produce, reply: Callable[[Any], None]) -> None:
        led = self._led(request)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if led is None else led.leader.may_append(-1)
        if led is None or code != ErrorCode.NONE:
            reply(Produced(code))
            return
        log, first = led.log, led.log.end
        assert isinstance(log, SimLog)
        try:
            log.append(led.leader.epoch, request.values)
        except NoRoom as error:
            # As `replication.requests`: another copy leads instead, where there is one.
            elsewhere = self._node.replicas.unwritable(request.place, str(error))
            reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_SERVER_ERROR))
            self._node.settle()
            return
        except LogBroken as error:
            self._node.replicas.broke(request.place, str(error))
            reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self._node.settle()
            return
        self._node.replicas.appended(request.place)
        self.park(request.place, log.end, first, reply)
        self._node.rounds.flush_soon([request.place])
        self._node.settle()

    def _led(self, request: Produce | Consume) -> LedPartition | None:
        led = self._node.replicas.led.get(request.place)
        return led if led is not None and led.topic_id == request.topic_id else None

    def park(self, place: TopicPartition, end: int, first: int, reply: Callable[[Any], None]) -> None:
        """Answer once the log of this place, which the node leads, is committed up to `end`."""
        epoch = self._node.replicas.led[place].leader.epoch
        self._parked.setdefault(place, []).append((end, first, epoch, reply))

    def answer_parked(self, place: TopicPartition) -> None:
        """CL-L2: what became of the appends that wait."""
        waiting = self._parked.pop(place, [])
        led = self._node.replicas.led.get(place)
        still = []
        for end, first, epoch, reply in waiting:
            if led is None or led.leader.epoch != epoch:
                reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                continue
            code = led.leader.parked(led.half, end)
            if code is None:
                still.append((end, first, epoch, reply))
            else:
                reply(Produced(code, first, epoch))
        if still:
            self._parked[place] = still

    def _consume(self, request: Consume, reply: Callable[[Any], None]) -> None:
        led = self._led(request)
        if led is None or led.leader.over or led.leader.passed_by:
            reply(Consumed(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        log = led.log
        assert isinstance(log, SimLog)
        if request.offset < log.start:
            reply(Consumed(ErrorCode.OFFSET_OUT_OF_RANGE, log.start))
            return
        entries = log.model.read(request.offset, max(0, min(50, log.high_watermark - request.offset)))
        reply(Consumed(ErrorCode.NONE, request.offset, tuple(entries), led.leader.epoch))
