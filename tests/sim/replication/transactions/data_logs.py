"""Transactional records at the leaders of their partitions: gate, appends and markers (TX-L3, TX-N3, TX-N5).

What a log knows of producers is a model of its rules (`tests.sim.transactions.logs`), rebuilt from the records in each
leader epoch, guards and all. The records themselves are replicated as any.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.replication.protocol.fetch_sessions import LedPartition
from muster.coordinator.replication.protocol.replica_fetch import LogBroken
from muster.coordinator.transactions.events import AddPartitions
from tests.sim.replication.disk import NoRoom, SimLog
from tests.sim.replication.process.messages import Produced
from tests.sim.replication.transactions.messages import DataAsk, IdAsk, JoinedEarly, MarkerAsk
from tests.sim.transactions.logs import DataBatch, Guard, LogModel, MarkerBatch
from tests.sim.transactions.node import AS_PRODUCE, CONCURRENT, NOT_ENOUGH_REPLICAS

if TYPE_CHECKING:
    from tests.sim.replication.node import SimNode

NOT_LED = ErrorCode.NOT_LEADER_OR_FOLLOWER


class LedLog(NamedTuple):
    """A log for one leader epoch, and what is known of its producers."""

    led: LedPartition
    epoch: int
    known: LogModel


class DataLogs:
    """Of one life of a node. ask_coordinator: of a transactional id, wherever that is. begun: hears when a transaction
    has its first record in a log."""

    def __init__(
        self,
        node: "SimNode",
        ask_coordinator: Callable[[IdAsk, Callable[[Any], None]], None],
        begun: Callable[[], None],
    ) -> None:
        self._node = node
        self._begun = begun
        self._ask = ask_coordinator
        self._logs: dict[TopicPartition, LedLog] = {}

    def find(self, place: TopicPartition) -> LedLog | None:
        """None where this node does not lead it."""
        led = self._node.replicas.led.get(place)
        if led is None or led.leader.over or led.leader.passed_by:
            self._logs.pop(place, None)
            return None
        found = self._logs.get(place)
        if found is None or found.epoch != led.leader.epoch:
            assert isinstance(led.log, SimLog)
            known = LogModel()
            for entry in led.log.model.records:
                assert isinstance(entry.value, DataBatch | MarkerBatch)
                known.append(entry.value)
            found = self._logs[place] = LedLog(led, led.leader.epoch, known)
        found.known.durable = found.led.log.high_watermark
        return found

    # -- data -----------------------------------------------------------------------------------------------

    def produce(self, asked: DataAsk, reply: Callable[[Produced], None]) -> None:
        batch, log = asked.batch, self.find(asked.place)
        if log is None or log.led.topic_id != asked.topic_id:
            reply(Produced(NOT_LED))
            return
        known = log.known.producers.get(batch.producer_id)
        if log.known.known_batch(batch) is not None or log.known.is_open(batch.producer_id, batch.epoch):
            self._append_data(asked, log, None, reply)
        elif known is not None and batch.epoch < known.epoch:
            reply(Produced(ErrorCode.INVALID_PRODUCER_EPOCH))
        else:
            guard = log.known.guard(batch.producer_id, batch.epoch)
            add = AddPartitions(
                0,
                asked.transactional_id,
                batch.producer_id,
                batch.epoch,
                (tuple(asked.place),),  # type: ignore[arg-type]
                asked.level,
                verify_only=asked.level < 2,
            )
            question = IdAsk(asked.transactional_id, partial(numbered, add))
            self._ask(question, lambda answer: self._decided(asked, log, guard, answer, reply))

    def _decided(
        self, asked: DataAsk, log: LedLog, guard: Guard, answer: Any, reply: Callable[[Produced], None]
    ) -> None:
        code = int(answer.code) or int(getattr(answer, "partitions", {}).get(tuple(asked.place), 0))
        if code == CONCURRENT and asked.level < 2:
            code = NOT_ENOUGH_REPLICAS
        if code:
            reply(Produced(AS_PRODUCE.get(code, code)))
        elif self.find(asked.place) is not log:
            reply(Produced(NOT_LED))
        elif isinstance(answer, JoinedEarly):

            def recorded(produced: Produced) -> None:
                answer.then(lambda code: reply(Produced(AS_PRODUCE.get(code, code)) if code else produced))

            self._append_data(asked, log, guard, recorded)
        else:
            self._append_data(asked, log, guard, reply)

    def _append_data(self, asked: DataAsk, log: LedLog, guard: Guard | None, reply: Callable[[Produced], None]) -> None:
        if refusal := log.led.leader.may_append(-1):
            reply(Produced(refusal))
            return
        before = len(log.known.batches)
        error, offset = log.known.append_data(asked.batch, guard, asked.level)
        self._node.trace(f"{self._node.name} data {asked.place} {asked.batch} {error}")
        if error:
            reply(Produced(error))
        elif offset < before or self._write(log, asked.place, asked.batch):
            if guard is not None:
                self._begun()
            self._park(asked.place, offset + 1, reply)
        else:
            reply(Produced(NOT_LED))

    # -- markers --------------------------------------------------------------------------------------------

    def mark(self, asked: MarkerAsk, told: Callable[[int], None]) -> None:
        """What the log finds wrong is told once all it rests on is committed (TX-N5)."""
        log = self.find(asked.place)
        if log is None or log.led.leader.may_append(-1):
            told(NOT_LED)
            return
        error, offset = log.known.append_marker(asked.marker)
        self._node.trace(f"{self._node.name} marker {asked.place} {asked.marker} {error}")
        self._node.world.census[f"markers answered {error}"] += 1
        if not error and not self._write(log, asked.place, asked.marker):
            told(NOT_LED)
            return
        end = offset + 1 if not error else log.led.log.end
        self._park(asked.place, end, lambda outcome: told(int(outcome.code) or error))

    def _park(self, place: TopicPartition, end: int, reply: Callable[[Produced], None]) -> None:
        door = self._node.door
        door.park(place, end, end - 1, reply)
        self._node.later(0, lambda: door.answer_parked(place))
        self._node.settle()

    def _write(self, log: LedLog, place: TopicPartition, value: DataBatch | MarkerBatch) -> bool:
        assert isinstance(log.led.log, SimLog)
        try:
            log.led.log.append(log.epoch, [value])
        except LogBroken as error:
            self._logs.pop(place, None)  # What it knows has one batch too many.
            if isinstance(error, NoRoom):
                self._node.replicas.unwritable(place, str(error))
            else:
                self._node.replicas.broke(place, str(error))
            self._node.settle()
            return False
        self._node.replicas.appended(place)
        self._node.rounds.flush_soon([place])
        return True


def numbered(add: AddPartitions, number: int, fresh_id: int) -> AddPartitions:
    return replace(add, request_id=number)
