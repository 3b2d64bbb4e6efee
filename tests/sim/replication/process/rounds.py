"""What a simulated node does of its own accord: settle what happened, flush, fetch, poll, ask for another ISR."""

from typing import TYPE_CHECKING, Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterNodeStatus,
    ClusterState,
    ImageChanges,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.leader import IsrAnswer, IsrProposal
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer, FetchRequest, LogBroken
from tests.sim.replication.network import Broken, Refused
from tests.sim.replication.process.messages import Ask, Poll, Probing
from tests.sim.replication.watching import RETRY_MS

if TYPE_CHECKING:
    from tests.sim.replication.node import SimNode

LAG_MS = 3_000
CHECKPOINT_MS = 5_000


class Rounds:
    """Of one life of a node."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self._unflushed: set[TopicPartition] = set()
        self._polling = self._flushing = False
        self._armed_ms = 0

    def settle(self) -> None:
        """What is to be done after anything happened."""
        replicas = self._node.replicas
        while replicas.moved:
            moved, replicas.moved = replicas.moved, {}
            for place in moved:
                self._node.door.answer_parked(place)
                for engine in self._node.engines:
                    engine.moved(place)
        for engine in self._node.engines:
            engine.settled()
        replicas.gained.clear()
        replicas.lost.clear()
        replicas.resized.clear()
        self._node.undone += replicas.undone
        replicas.undone.clear()
        replicas.serving.wake(self._node.now())
        for question in replicas.questions(self._node.now()):
            self._alter(question)
        for node, request in replicas.requests(self._node.now()):
            self._fetch(node, request)
        if unkept := replicas.unkept():
            self.flush_soon(unkept)
        self._arm()

    def flush_soon(self, places: list[TopicPartition]) -> None:
        """One group commit for everything that is not flushed by the time it begins."""
        self._unflushed |= set(places)
        if self._flushing:
            return
        self._flushing = True
        self._node.later(self._node.world.between(0, 2), self._begin_flush)

    def _begin_flush(self) -> None:
        places, self._unflushed = sorted(self._unflushed), set()
        ends = {place: self._node.disk.logs[place].end for place in places if place in self._node.disk.logs}
        self._node.later(self._node.world.between(1, 15), lambda: self._flushed(ends))

    def _flushed(self, ends: dict[TopicPartition, int]) -> None:
        self._flushing = False
        done = []
        for place, end in ends.items():
            log = self._node.disk.logs.get(place)
            if log is None:
                continue
            try:
                log.flush(end)
            except LogBroken as error:
                self._node.replicas.broke(place, str(error))
            else:
                done.append(place)
        self._node.replicas.flushed(done, self._node.now())
        if self._unflushed:
            self.flush_soon([])
        self.settle()

    def look(self) -> None:
        self._node.replicas.check_replicas(self._node.now())
        before = self._node.replicas.cut_off
        self._node.replicas.look_around(
            self._node.ensemble.timeout_ms, self._node.now(), in_touch=self._node.zookeeper.connected
        )
        self._node.world.census["nodes that may have been passed by"] += self._node.replicas.cut_off and not before
        self.settle()
        self._node.later(LAG_MS // 4, self.look)

    def _arm(self) -> None:
        """Look again when the next parked fetch has waited long enough, or a node may be asked again."""
        now_ms = self._node.now()
        next_ms = self._node.replicas.next_ms(now_ms)
        if next_ms is None:
            return
        at_ms = next_ms if next_ms > now_ms else now_ms + RETRY_MS
        if now_ms < self._armed_ms <= at_ms:
            return
        self._armed_ms = at_ms
        self._node.later(max(1, at_ms - now_ms), lambda: self._due(at_ms))

    def _due(self, at_ms: int) -> None:
        if self._armed_ms == at_ms:  # Another moment has not taken its place.
            self._armed_ms = 0
            self.settle()

    def checkpoint(self) -> None:
        self._node.disk.checkpoint()
        self._node.later(CHECKPOINT_MS, self.checkpoint)

    def _fetch(self, node: int, request: FetchRequest) -> None:
        def fetched(outcome: FetchAnswer | Broken) -> None:
            if isinstance(outcome, Broken):
                self._node.replicas.failed(node, request, self._node.now())
                self.broken(node)
            else:
                self._node.replicas.answered(node, request, outcome, self._node.now())
            self.settle()

        self._node.ask(f"n{node}", request, fetched, by="fetch")

    def poll(self) -> None:
        """One long poll of the controller after the other."""
        if self._polling or self._node.epoch == NO_EPOCH:
            return
        controller = self._node.candidate.controller
        if controller is None:
            self._node.later(RETRY_MS, self.poll)
            return
        self._polling = True
        offline = tuple(
            events_and_effects.OfflineReplica(topic_id, place.partition, why)
            for place, (topic_id, why) in sorted(self._node.replicas.offline.items())
        )
        poll = Poll(self._node.id, self._node.epoch, self._node.image.known, offline)

        def polled(outcome: ClusterState | Broken) -> None:
            self._polling = False
            wait_ms = 0
            if isinstance(outcome, Broken):
                self.broken(controller)
                wait_ms = RETRY_MS
            elif outcome.error == ErrorCode.STALE_BROKER_EPOCH:
                if poll.node_epoch == self._node.epoch and any(
                    each.id == self._node.id and each.status is ClusterNodeStatus.GONE for each in outcome.nodes
                ):
                    self._node.epoch = NO_EPOCH
                    self._node.candidate.register_anew()
                wait_ms = RETRY_MS
            elif outcome.error != ErrorCode.NONE:
                wait_ms = RETRY_MS
            elif (changes := self._node.image.apply(outcome)) is not None:
                self._learn_in_steps(changes)
                return
            self.settle()
            self._node.later(wait_ms, self.poll)

        self._node.ask(f"n{controller}", poll, polled, by="poll")

    def _learn_in_steps(self, changes: ImageChanges) -> None:
        """All at once, or as a node does it where there are many: other things happen in between, but no poll."""
        units = self._node.replicas.begin_learning(self._node.image, changes)
        if self._node.world.chance(0.8):
            self._node.replicas.learn_units(units, self._node.now())
            units = []
        else:
            self._node.replicas.lay_down(units)
        self._polling = True

        def step() -> None:
            self.settle()
            if units:
                self._node.replicas.learn_units([units.pop(0)], self._node.now())
                self.settle()
                self._node.later(self._node.world.between(1, 60), step)
            else:
                for engine in self._node.engines:
                    engine.learned(changes)
                self._node.look_at_its_mark()
                self._polling = False
                self.poll()

        self._node.later(self._node.world.between(1, 60), step) if units else step()

    def broken(self, node: int) -> None:
        """CL-C9: whose connection broke is looked at by the controller, or, where that is the controller, by this
        node."""
        if node == self._node.candidate.controller and node != self._node.id and self._node.settings.eviction:
            epoch = self._node.image.known.epoch
            refused: list[int] = []

            def tried(outcome: Any) -> None:
                if not isinstance(outcome, Refused):
                    return
                refused.append(self._node.now())
                if len(refused) == 3:
                    self._node.candidate.depose(epoch)
                else:
                    self._node.later(80, attempt)

            def attempt() -> None:
                self._node.ask(f"n{node}", Probing(), tried, by="probe", patience_ms=300)

            attempt()
        elif self._node.candidate.machine is not None:
            self._node.candidate.tell(events_and_effects.ConnectionBroken(node))

    def _alter(self, question: IsrProposal) -> None:
        topic = self._node.image.topics.get(question.unit.topic)
        controller = self._node.candidate.controller
        if topic is None or controller is None:
            self._node.replicas.altered(question, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT), self._node.now())
            self._node.later(RETRY_MS, self.settle)
            return
        item = events_and_effects.IsrItem(
            topic.topic_id,
            question.unit.partition,
            question.leader_epoch,
            question.partition_epoch,
            tuple(events_and_effects.IsrMember(*each) for each in question.isr),
        )
        node_epoch = self._node.epoch

        def altered(outcome: events_and_effects.AlterPartitionResult | Broken) -> None:
            answer = IsrAnswer(ErrorCode.REQUEST_TIMED_OUT)
            if not isinstance(outcome, Broken):
                answer = answer_of(outcome)
            self._node.replicas.altered(question, answer, self._node.now())
            self.settle()
            self._node.later(RETRY_MS, self.settle)

        make = lambda number: events_and_effects.AlterPartitionRequested(number, self._node.id, node_epoch, (item,))  # noqa: E731
        self._node.ask(f"n{controller}", Ask(make), altered, by="alter")


def answer_of(outcome: events_and_effects.AlterPartitionResult) -> IsrAnswer:
    if outcome.error != ErrorCode.NONE:
        return IsrAnswer(outcome.error)
    result = outcome.results[0]
    if result.state is None:
        return IsrAnswer(result.error)
    state = result.state
    return IsrAnswer(result.error, state.leader_epoch, state.partition_epoch, state.isr)
