"""The node of the simulator: one shard of transactional ids over a log of bytes, and the logs of a few partitions.

It does what the server and the engine do: keeps records, holds answers and markers until what they rest on is durable,
asks the coordinator on behalf of first batches, writes markers, and looks for orphans after a load.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.transaction_records import decode_transaction, encode_transaction
from muster.coordinator.transactions.effects import OrphanVerdict, SendMarkers
from muster.coordinator.transactions.events import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    MarkersWritten,
    OrphanFound,
    OrphansSearched,
    ProducerIdDrawn,
    TopicsDeleted,
    TransactionsLoaded,
    TransactionTimer,
)
from muster.coordinator.transactions.records import TransactionExpired
from muster.coordinator.transactions.shard import TransactionShard
from muster.coordinator.transactions.state import TransactionLimits
from tests.sim.transactions.logs import DataBatch, Guard, LogModel, MarkerBatch

PLACES = (("t", 0), ("t", 1), ("o", 0))
NOT_COORDINATOR, NOT_AVAILABLE, LOADING = 16, 15, 14
UNKNOWN_PARTITION = 3
NOT_ENOUGH_REPLICAS, CONCURRENT = 19, 51
AS_PRODUCE = {90: 47, 49: 47, 14: NOT_ENOUGH_REPLICAS, 15: NOT_ENOUGH_REPLICAS, 16: NOT_ENOUGH_REPLICAS}


@dataclass(slots=True)
class Produce:
    """One batch, from the client's side."""

    transactional_id: str
    level: int
    place: tuple[str, int]
    batch: DataBatch


@dataclass(slots=True, frozen=True)
class Refused:
    code: int
    close_connection: bool = False


@dataclass(slots=True)
class HeldAnswer:
    """What may leave once the first `position` records are durable."""

    position: int
    request_id: int
    said: Any


class Node:
    """One process after another on one machine."""

    log_class = LogModel
    shard_class = TransactionShard
    voids_guards = True
    """Whether a shard that is lost takes the guards along that it has let in (TX-L12)."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.records: list[KeyValue] = []
        self.durable = 0
        self.logs = {place: self.log_class() for place in PLACES}
        self.absent: set[str] = set()
        """Topics that are deleted, and not made again yet."""
        self.made_ms: dict[str, int] = {}
        """When each topic that was deleted before was made again, by the clock of this machine."""
        self.skew_ms = 0
        self.next_producer = 100
        self.boot = self.life = self.coordinator_epoch = 0
        self.up = False
        self.level = 2
        self.die()

    # -- lives --------------------------------------------------------------------------------------------

    def die(self) -> None:
        self.up = False
        self.boot += 1
        self.connection = 0
        self.request = 0
        self.asked: dict[int, Callable[[Any], None]] = {}
        self.clients: dict[int, Callable[[Any], None]] = {}
        self.held: list[HeldAnswer] = []
        self.produced: list[tuple[int, LogModel, int, Callable[[Any], None]]] = []
        self.marked: list[tuple[LogModel, int, SendMarkers, tuple[str, int]]] = []
        self.flushing = False

    def crash(self, *, power: bool) -> None:
        """The process dies; with `power` what was not flushed is lost, of each log another part."""
        self.die()
        rng = self.world.rng
        if power:
            del self.records[rng.randint(self.durable, len(self.records)) :]
            for place, log in self.logs.items():
                log.cut(rng.randint(log.durable, len(log.batches)))
                self.world.judge.cut(place, len(log.batches))
        else:
            for log in self.logs.values():
                before = log.state()
                log.forget()
                assert log.state() == before, "a log that was read again is another one"

    @property
    def now_ms(self) -> int:
        """What the clock of this process says."""
        return int(self.world.now_ms + self.skew_ms)

    def start(self) -> None:
        self.up = True
        self.next_producer += 10 - self.next_producer % 10  # What is left of the block is given to nobody.
        self.load(newest_connection=-1)
        self.search_orphans()
        self.step(OrphansSearched())
        self.flush_later()

    def drop(self) -> None:
        """The shard alone is lost, and replayed; the process goes on."""
        for request_id in list(self.asked):
            self.asked.pop(request_id)(Refused(NOT_COORDINATOR))
        for request_id in list(self.clients):
            self.clients.pop(request_id)(Refused(NOT_COORDINATOR))
        self.held = []
        self.load(newest_connection=self.connection)
        self.search_orphans()
        self.step(OrphansSearched())

    def limits(self) -> TransactionLimits:
        return TransactionLimits(level=self.level, newest_connection=self.world.options.newest_connection)

    def load(self, newest_connection: int) -> None:
        self.life += 1
        self.loaded_ms = self.now_ms
        self.world.judge.fences.clear()
        if self.world.options.reigns:
            self.coordinator_epoch += 1
        self.shard = self.shard_class(self.limits(), 0)
        self.mirror, self.kept = TransactionShard(self.limits(), 0), TransactionShard(self.limits(), 0)
        self.kept_to = 0
        for at, item in enumerate(self.records):
            self.shard.apply(self.read(item))
            self.mirror.apply(self.read(item))
            if at < self.durable:
                self.kept.apply(self.read(item))
                self.kept_to = at + 1
        self.step(TransactionsLoaded(self.life, self.coordinator_epoch, newest_connection, orphans_follow=True))

    def read(self, item: KeyValue) -> Any:
        record = decode_transaction(item)
        assert encode_transaction(record) == item, f"{record} is not written as it was read"  # type: ignore[arg-type]
        return record

    def search_orphans(self) -> None:
        for place, log in self.logs.items():
            for producer_id, epoch in log.open_transactions():
                verdicts: list[Any] = []
                records = len(self.records)
                self.ask(lambda number, p=producer_id, e=epoch, t=place: OrphanFound(number, p, e, t), verdicts.append)
                self.world.met["orphan joins"] += len(self.records) - records
                self.settle_orphan(log, producer_id, epoch, verdicts[0])

    def settle_orphan(self, log: LogModel, producer_id: int, epoch: int, reply: Any) -> None:
        self.world.met[f"orphan {reply.verdict.name}"] += 1
        if reply.verdict is OrphanVerdict.TAKEN:
            return
        marker_epoch = reply.marker_epoch if reply.verdict is OrphanVerdict.HANGING else min(epoch + 1, 32_767)
        marker = MarkerBatch(producer_id, marker_epoch, False, self.coordinator_epoch, 0)
        error, _ = log.append_marker(marker)
        assert error == 0, f"a hanging transaction cannot be aborted: {error}"

    # -- topics and retention ------------------------------------------------------------------------------

    def delete_topic(self, topic: str, again_ms: int) -> None:
        """It is made again under its name after that time; 0: before anybody hears of it."""
        self.absent.add(topic)
        for place in [place for place in PLACES if place[0] == topic]:
            old, self.logs[place] = self.logs[place], self.log_class()
            for guard in old.guards:
                guard.valid = False
            self.world.judge.deleted(place)
            lost, self.produced = (
                [each for each in self.produced if each[1] is old],
                [each for each in self.produced if each[1] is not old],
            )
            for _, _, _, answered in lost:
                answered(Refused(UNKNOWN_PARTITION))
            unwritten = [each for each in self.marked if each[0] is old]
            self.marked = [each for each in self.marked if each[0] is not old]
            for _, _, sent, _ in unwritten:
                self.report(sent, place, UNKNOWN_PARTITION)
        if again_ms:
            self.world.after(again_ms, self.make_topic, topic)
            self.hear_of_topics(topic)
        else:
            self.make_topic(topic, topic)

    def make_topic(self, topic: str, deleted: str = "") -> None:
        self.absent.discard(topic)
        for place in [place for place in PLACES if place[0] == topic]:
            self.logs[place] = self.log_class()  # Another id: what was sent to the topic before does not reach it.
        self.made_ms[topic] = self.world.now_ms
        self.hear_of_topics(deleted)

    def hear_of_topics(self, deleted: str) -> None:
        if self.up:
            present = {topic: True for topic, _ in PLACES if topic not in self.absent}
            self.step(TopicsDeleted(frozenset({deleted} - {""}), present.keys()))

    # -- the coordinator ----------------------------------------------------------------------------------

    def can_draw(self) -> bool:
        """A new block of producer ids has to be written down first, which may fail."""
        if self.next_producer % 10 or not self.world.is_full():
            return True
        self.world.met["no producer ids"] += 1
        return False

    def draw(self) -> int:
        self.next_producer += 1
        return self.next_producer

    def ask(self, make: Callable[[int], Any], answered: Callable[[Any], None]) -> None:
        """The node asks its own coordinator: it hears the decision, durable or not."""
        self.request += 1
        self.asked[self.request] = answered
        self.step(make(self.request))

    def serve(self, make: Callable[[int, int], Any], answered: Callable[[Any], None]) -> None:
        """A client asks: it hears what is durable. `make` gets the request's number and a fresh producer id."""
        if not self.can_draw():
            answered(Refused(NOT_AVAILABLE))
            return
        self.request += 1
        self.clients[self.request] = answered
        self.step(make(self.request, self.draw()))

    def step(self, event: Any) -> None:
        before = {name: known.stored for name, known in self.shard.state.ids.items()}
        out = self.shard.step(event, self.now_ms)
        self.world.trace("step", event)
        if out.records and isinstance(event, AddPartitions | EndTxn | InitProducerId) and self.world.is_full():
            self.lose(out)
            return
        for record in out.records:
            self.world.judge.decided(before.get(record.transactional_id), record, self)
            if isinstance(record, TransactionExpired):
                before.pop(record.transactional_id, None)
            else:
                before[record.transactional_id] = record
            self.records.append(encode_transaction(record))
            self.mirror.apply(self.read(self.records[-1]))
            self.world.trace("record", record)
            if not isinstance(record, TransactionExpired):
                self.world.passed(f"the record of {record.state.title}")
        self.world.judge.replayed(self)
        for request_id, reply in out.replies:
            if request_id in self.asked:
                self.asked.pop(request_id)(reply)
            elif request_id in self.clients:
                self.held.append(HeldAnswer(len(self.records), request_id, reply))
            else:
                self.world.judge.fail(f"request {request_id} is answered, and none waits for it: {reply}")
        self.held += [HeldAnswer(len(self.records), 0, notice) for notice in out.notices]
        for key, at_ms in out.timers.items():
            if at_ms is not None:
                self.world.at(at_ms - self.skew_ms, self.fire, key, self.boot, self.life)
        for chore in out.chores:
            self.world.after(1, self.do_chore, chore, self.boot)
        self.release()
        self.flush_later()

    def lose(self, out: Any) -> None:
        """The log takes no records: the shard is lost. The node's own requests may have been decided by then."""
        self.world.met["no room"] += 1
        for request_id, reply in out.replies:
            if request_id in self.asked:
                self.asked.pop(request_id)(reply)
        self.drop()

    def fire(self, key: tuple[str, ...], boot: int, life: int) -> None:
        at_ms = self.shard.deadlines.get(key)
        if self.up and (boot, life) == (self.boot, self.life) and at_ms is not None and at_ms <= self.now_ms:
            self.step(TransactionTimer(key, at_ms))

    def do_chore(self, chore: Any, boot: int) -> None:
        if self.up and boot == self.boot:
            self.step(chore)

    def may_leave(self, held: HeldAnswer) -> bool:
        return held.position <= self.durable

    def release(self) -> None:
        while self.held and self.may_leave(self.held[0]):
            held = self.held.pop(0)
            if held.request_id:
                self.clients.pop(held.request_id)(held.said)
            elif isinstance(held.said, SendMarkers):
                for place in held.said.partitions:
                    self.world.after(
                        self.marker_delay_ms(), self.write_marker, held.said, place, self.boot, self.logs.get(place)
                    )
            elif type(held.said).__name__ == "ProducerIdWanted":
                self.world.met["producer id wanted"] += 1
                self.world.after(5, self.give_producer_id, held.said.transactional_id, self.boot)

    def marker_delay_ms(self) -> int:
        """Until a marker is written: the next turn, or the way to another node."""
        rng = self.world.rng
        if self.world.options.late_markers and self.world.faulty and rng.random() < 0.1:
            return rng.choice((300, 1_500))
        return rng.randint(0, 30)

    def give_producer_id(self, name: str, boot: int) -> None:
        if self.up and boot == self.boot and self.can_draw():
            self.step(ProducerIdDrawn(name, self.draw()))

    # -- markers ------------------------------------------------------------------------------------------

    def write_marker(self, sent: SendMarkers, place: tuple[str, int], boot: int, to: LogModel | None) -> None:
        if not self.up or boot != self.boot or self.is_void(sent, place, to):
            return
        rng, log = self.world.rng, self.logs[place]
        if place[0] in self.absent:
            self.report(sent, place, UNKNOWN_PARTITION)
            return
        if self.world.faulty and rng.random() < 0.06:
            self.report(sent, place, 6)
            return
        if sent.life == self.life:
            self.world.judge.marking(sent, self)
        else:
            self.world.met["late marker"] += 1
        marker = MarkerBatch(sent.producer_id, sent.epoch, sent.commit, sent.coordinator_epoch, sent.level)
        error, offset = log.append_marker(marker)
        self.world.trace("marker", place, marker, error)
        if error:
            self.report(sent, place, error)
            return
        self.world.judge.marked(place, marker, offset)
        self.world.passed("a marker")
        self.marked.append((log, offset, sent, place))
        self.after_marker()
        self.flush_later()

    def is_void(self, sent: SendMarkers, place: tuple[str, int], to: LogModel | None) -> bool:
        """Nobody waits for it: an earlier life of the shard wanted it, or its topic has been deleted meanwhile."""
        if sent.life != self.life:  # It goes to another node, by the topic's id.
            return not self.world.options.late_markers or to is not self.logs.get(place)
        if self.shard.waits_for(sent, place):
            return False
        self.world.met["marker that nobody waits for"] += 1
        return True

    def after_marker(self) -> None:
        """Nothing is said of a marker before it is flushed."""

    def report(self, sent: SendMarkers, place: tuple[str, int], error: int) -> None:
        gone = frozenset({place} if place[0] in self.absent else ())
        self.step(MarkersWritten(sent.transactional_id, sent.life, sent.number, {place: error}, gone))

    # -- data ---------------------------------------------------------------------------------------------

    def produce(self, request: Produce, answered: Callable[[Any], None]) -> None:
        log, batch = self.logs[request.place], request.batch
        if request.place[0] in self.absent:
            answered(Refused(UNKNOWN_PARTITION))
            return
        if log.known_batch(batch) is not None or log.is_open(batch.producer_id, batch.epoch):
            self.append_data(request, None, answered)
            return
        known = log.producers.get(batch.producer_id)
        if known is not None and batch.epoch < known.epoch:
            answered(Refused(47))
            return
        guard = log.guard(batch.producer_id, batch.epoch)
        self.ask(
            lambda number: AddPartitions(
                number,
                request.transactional_id,
                batch.producer_id,
                batch.epoch,
                (request.place,),
                request.level,
                verify_only=request.level < 2,
            ),
            lambda reply: self.decided(request, guard, reply, answered),
        )

    def decided(self, request: Produce, guard: Guard, reply: Any, answered: Callable[[Any], None]) -> None:
        code = int(reply.code) or int(getattr(reply, "partitions", {}).get(request.place, 0))
        if code == CONCURRENT and request.level < 2:
            code = NOT_ENOUGH_REPLICAS
        if code:
            answered(Refused(AS_PRODUCE.get(code, code)))
            return
        delay = self.world.rng.choice((0, 0, 0, 3, 40, 600 if self.world.faulty else 0))
        if delay:  # It was asked on another node, say, or a thread looks into the batch.
            self.world.after(delay, self.append_asked, request, guard, answered, self.boot, self.life)
        else:
            self.append_data(request, guard, answered)

    def append_asked(
        self, request: Produce, guard: Guard, answered: Callable[[Any], None], boot: int, life: int
    ) -> None:
        if not self.up or boot != self.boot:
            return
        if request.level >= 2 and life != self.life and self.voids_guards:
            self.world.met["guard of a lost shard"] += 1
            answered(Refused(NOT_ENOUGH_REPLICAS))
        else:
            self.append_data(request, guard, answered)

    def append_data(self, request: Produce, guard: Guard | None, answered: Callable[[Any], None]) -> None:
        log = self.logs[request.place]
        if request.place[0] in self.absent:
            answered(Refused(UNKNOWN_PARTITION))
            return
        before = len(log.batches)
        error, offset = log.append_data(request.batch, guard, request.level)
        self.world.trace("data", request.place, request.batch, error)
        if error:
            answered(Refused(error))
            return
        if offset == before:
            self.world.judge.appended(request.place, request.batch)
            self.world.passed("data")
        self.produced.append((len(self.records), log, offset, answered))
        self.flush_later()

    # -- flushes ------------------------------------------------------------------------------------------

    def flush_later(self) -> None:
        if not self.flushing and self.up:
            self.flushing = True
            self.world.after(self.world.rng.randint(0, 10), self.begin_flush, self.boot)

    def begin_flush(self, boot: int) -> None:
        if boot == self.boot:
            ends = [(log, len(log.batches)) for log in self.logs.values()]
            self.world.after(self.world.rng.randint(1, 20), self.end_flush, boot, len(self.records), ends)

    def end_flush(self, boot: int, records: int, ends: list[tuple[LogModel, int]]) -> None:
        if boot != self.boot:
            return
        self.flushing = False
        self.durable = max(self.durable, records)
        while self.kept_to < self.durable:
            self.kept.apply(self.read(self.records[self.kept_to]))
            self.kept_to += 1
        for log, end in ends:
            log.durable = max(log.durable, end)
        self.world.judge.look(self)
        self.release()
        produced, self.produced = self.produced, []
        for each in produced:
            position, log, offset, answered = each
            if position <= self.durable and offset < log.durable:
                answered(Refused(0))
            else:
                self.produced.append(each)
        self.report_durable()
        dirty = self.durable < len(self.records) or any(log.durable < len(log.batches) for log in self.logs.values())
        if dirty:
            self.flush_later()

    def quiet(self) -> bool:
        """Whether nothing is under way in what else the node has."""
        return True

    def report_durable(self) -> None:
        marked, self.marked = self.marked, []
        for each in marked:
            log, offset, sent, place = each
            if offset >= log.durable:
                self.marked.append(each)
            elif self.world.faulty and self.world.rng.random() < 0.04:
                self.report(sent, place, 7)  # It is written, and its answer lost.
            else:
                self.report(sent, place, 0)
