"""What a simulated node has for transactional ids: the real engine, cores and term, over its simulated disk."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from muster.coordinator.core.model.events import Loaded, TimerFired, TopicsChanged
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.replicated_shards import shard_unit
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, OFFSETS, TRANSACTIONS, TopicPartition
from muster.coordinator.replication.protocol.leader import ALL
from muster.coordinator.replication.protocol.replica_fetch import LogBroken
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.ports import Entry, KeyValue, LogFailed, Read
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.runtime.transaction_shards import LedTransactionCores, TransactionShardCore, transaction_kind
from muster.coordinator.transactions.effects import (
    EndCause,
    EndTxnReply,
    InitProducerIdReply,
    ProducerIdWanted,
    SendMarkers,
)
from muster.coordinator.transactions.events import MarkersWritten, ProducerIdDrawn
from muster.coordinator.transactions.records import TransactionState, TransactionStored
from muster.coordinator.transactions.shard import TransactionShard
from muster.coordinator.transactions.state import TransactionLimits
from tests.sim.replication.disk import NoRoom
from tests.sim.replication.groups.coordinator import SHARDS, DrivenEngine, SimCoordinating
from tests.sim.replication.groups.log import SimGroupLog
from tests.sim.replication.transactions.data_logs import DataLogs
from tests.sim.replication.transactions.messages import IdAsk, IdTold, JoinedEarly, MarkerAsk
from tests.sim.transactions.logs import MarkerBatch
from tests.sim.transactions.node import PLACES

if TYPE_CHECKING:
    from tests.sim.replication.node import SimNode

ID_SHARDS = 2
RAISES_EPOCH = 2
"""The level from which records add their partitions themselves."""
UNHEARD_MS = 10_000
"""Behind a load: for so long whoever has a longer timeout is not timed out (TX-C13)."""
MARKER_PATIENCE_MS = 500
ADDITION_PATIENCE_MS = 1_000
DATA_TOPICS = {topic: 1 + max(number for name, number in PLACES if name == topic) for topic, _ in PLACES}
"""The topics that transactions write to, and how many partitions they have."""
KNOWN_TOPICS = {**DATA_TOPICS, OFFSETS: SHARDS}
CATALOG = TopicsChanged(KNOWN_TOPICS, ids={topic: topic.encode()[:1] * 16 for topic in KNOWN_TOPICS})
LATE_MS = (100, 400, 1_200)


@dataclass(slots=True)
class SharedByIds:
    """What is one for the whole cluster: producer ids, which a block file and ZooKeeper keep apart, and the numbers of
    connections. answered: hears of each answer, with the leader epoch of its shard and the request. begun: hears when a
    transaction has its first record in a log. late: hears whose marker is held up on its way, and late_rate: how often
    that is so."""

    answered: Callable[["SimNode", int, int, Any, Any], None]
    begun: Callable[[], None]
    late: Callable[["SimNode"], None]
    late_rate: float
    timed_out: set[tuple[int, int]] = field(default_factory=set)
    """Producer ids and epochs of the aborts that a coordinator has decided at a timeout."""
    connections: int = 0
    fresh: Iterator[int] = field(default_factory=lambda: count(100))


def shard_of(transactional_id: str) -> TopicPartition:
    return TopicPartition(TRANSACTIONS, partition_for(transactional_id, ID_SHARDS))


def shard_of_group(group_id: str) -> TopicPartition:
    return shard_unit(partition_for(group_id, SHARDS))


class SimTransactionLog(SimGroupLog):
    """As `ReplicatedTransactionLog`: a record is a batch."""

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        place = TopicPartition(TRANSACTIONS, shard)
        leader = self._replicas().leaders.get(place)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else leader.may_append(ALL)
        if leader is None or code is not ErrorCode.NONE:
            raise LogFailed(f"{place}: {code.meaning}", no_room=code is ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            for key, value, _ in groups:
                self._log(place).append(leader.epoch, [(key, value)])
        except NoRoom as error:
            elsewhere = self._replicas().unwritable(place, str(error))
            raise LogFailed(str(error), no_room=not elsewhere) from error
        except LogBroken as error:
            self._broken(place, str(error))
            raise LogFailed(str(error)) from error
        finally:
            self._written([place])

    def mark(self, shards: Sequence[int]) -> None:
        logs = self._disk().logs
        places = [TopicPartition(TRANSACTIONS, shard) for shard in shards]
        self._marks = {place: logs[place].end for place in places if place in logs}

    def flush(self, shards: Sequence[int]) -> None:
        failed = []
        for shard in shards:
            place = TopicPartition(TRANSACTIONS, shard)
            try:
                if place in self._marks:
                    self._log(place).flush(self._marks[place])
            except LogBroken:
                failed.append(shard)
        if failed:
            raise LogFailed("the disk says EIO", failed)

    def read_groups(self, shard: int) -> Iterator[Read]:
        return self._read(TopicPartition(TRANSACTIONS, shard))

    def read_ledger(self, shard: int) -> Iterator[KeyValue]:
        return iter(())


class WatchedIdsCore(TransactionShardCore):
    """Reports each timer that fires and each abort that it decides, and tells when it is read."""

    fired: Callable[[int, TimerFired], None]
    aborted: Callable[[TransactionShard, TransactionStored, int], None]
    read: Callable[[int], None]

    def step(self, event: Any, now_ms: int) -> Any:
        if isinstance(event, TimerFired):
            self.fired(self.shard.index, event)
        elif isinstance(event, Loaded):
            self.read(self.shard.index)
        out = super().step(event, now_ms)
        for record in out.records:
            if isinstance(record, TransactionStored) and record.state is TransactionState.PREPARE_ABORT:
                self.aborted(self.shard, record, now_ms)
        return out


class WatchedIdsCores(LedTransactionCores):
    def __init__(self, ids: "SimTransactions", limits: TransactionLimits) -> None:
        super().__init__(limits, lambda: ids.shared.connections, ids.coordinator_epoch)
        self._ids = ids

    def __call__(self, _: Limits, index: int) -> WatchedIdsCore:
        core = WatchedIdsCore(self._limits, index, self._begin_life, self._ids.joined)
        core.fired, core.aborted, core.read = self._ids.timer_fired, self._ids.aborted, self._ids.shard_read
        return core


class SimTransactions(DrivenEngine):
    """The engine of the transactional ids, for one life of a node, its markers, and the data that it leads."""

    together = False
    """Whether data may be appended before the addition of its partition is committed. On a node by itself; never here
    (TX-N3)."""

    def __init__(self, node: "SimNode", shared: SharedByIds) -> None:
        super().__init__(node)
        self.shared = shared
        self.coordinating = SimCoordinating(node, self.side, TRANSACTIONS)
        self.log = SimTransactionLog(lambda: node.disk, lambda: node.replicas, self.side.written, self.side.broken)
        options: Any = EngineOptions(
            on_bug=lambda line, error: node.failed(AssertionError(f"{error!r} at {line}")), kind=transaction_kind(2)
        )
        cores = WatchedIdsCores(self, TransactionLimits())
        self.engine = LeasedEngine(self.log, ID_SHARDS, Limits(), cores, options, authority=self.coordinating)
        self.engine.submit_all(CATALOG)
        self.data = DataLogs(node, self.ask_coordinator, shared.begun)
        self._asked: dict[int, tuple[int, Any, Callable[[Any], None]]] = {}
        self._own: set[int] = set()
        """Those of the node's own data."""
        self._requests = 0
        self._fences: dict[int, set[tuple[int, int]]] = {}
        """By shard, since it was read: producer ids and epochs that only fence, which is in no record."""
        self.coordinating.start(self.engine, self, node.now)
        self.coordinating.look_on()

    def coordinator_epoch(self, shard: int) -> int:
        return self.coordinating.epoch(shard)

    def timer_fired(self, shard: int, timer: TimerFired) -> None:
        node = self._node
        node.world.census[f"timers of ids fired: {timer.key[0]}"] += 1
        if not node.lease_is_proved(TopicPartition(TRANSACTIONS, shard)):
            node.world.violated("TimersUnderLease", f"{node.name} without the lease of ids {shard} fires {timer.key}")

    # -- checkers 17 and 18 ---------------------------------------------------------------------------------

    def shard_read(self, shard: int) -> None:
        self._fences[shard] = set()

    def aborted(self, shard: TransactionShard, record: TransactionStored, now_ms: int) -> None:
        """A coordinator has decided it: nobody times out who could not be heard."""
        cause, world = shard.state.ids[record.transactional_id].decision.cause, self._node.world
        world.census[f"aborts decided: {cause.name.lower()}"] += 1
        if cause is EndCause.TIMED_OUT:
            self.shared.timed_out.add((record.producer_id, record.epoch))
            heard_ms = shard.state.loaded_ms + min(record.timeout_ms, UNHEARD_MS)
            if now_ms < heard_ms:
                world.violated("17", f"{self._node.name} lets {record} time out at {now_ms}, before {heard_ms}")
        elif cause in (EndCause.FENCED, EndCause.OPERATOR):
            rotated = record.next_producer_id >= 0
            fence = (record.next_producer_id, 0) if rotated else (record.producer_id, record.epoch)
            self._fences.setdefault(shard.index, set()).add(fence)

    def check_given(self, shard: int, reply: Any) -> None:
        """An answer leaves: no producer is given an epoch that only fences."""
        if reply.code or not isinstance(reply, InitProducerIdReply | EndTxnReply):
            return
        if (reply.producer_id, reply.epoch) in self._fences.get(shard, ()):
            self._node.world.violated("18", f"{self._node.name} answers {reply}, whose epoch only fences")

    # -- what is asked --------------------------------------------------------------------------------------

    def receive(self, asked: IdAsk, reply: Callable[[Any], None]) -> None:
        self._requests += 1
        event: Any = asked.make(self._requests, next(self.shared.fresh))
        shard = shard_of(asked.transactional_id).partition
        self._node.trace(f"{self._node.name} {event}")
        self._asked[self._requests] = shard, event, reply
        self.engine.submit(shard, event)
        self._release()
        self.wake()

    def ask_coordinator(self, asked: IdAsk, answered: Callable[[Any], None]) -> None:
        """On behalf of data: this node's engine, or another node's door."""
        leader = self._leader_of(shard_of(asked.transactional_id))
        if leader == self._node.id:
            self._own.add(self._requests + 1)
            self.receive(asked, answered)
        elif leader == NO_NODE_ID:
            answered(IdTold(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:

            def told(outcome: Any) -> None:
                failed = isinstance(outcome, Exception)
                answered(IdTold(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if failed else outcome)

            self._node.ask(f"n{leader}", asked, told, by="additions", patience_ms=ADDITION_PATIENCE_MS)

    def joined(self, number: int) -> None:
        """Partitions have joined, and the record of that is not durable yet."""
        found = self._asked.get(number)
        if not self.together or found is None or number not in self._own or found[1].level < RAISES_EPOCH:
            return
        shard, event, reply = found
        early = JoinedEarly()
        self._asked[number] = shard, event, lambda answer: early.finish(int(answer.code))
        self._node.later(0, lambda: reply(early))

    def _leader_of(self, place: TopicPartition) -> int:
        view = self._node.image.partition(place)
        return NO_NODE_ID if view is None else int(view.leader)

    # -- what is told ---------------------------------------------------------------------------------------

    def _release(self) -> None:
        released: Any = self.engine.take_released()
        for number, reply in released.replies:
            found = self._asked.pop(number, None)
            assert found is not None, f"{self._node.name} answers request {number} a second time"
            self._own.discard(number)
            shard, event, back = found
            self._node.trace(f"{self._node.name} answers {number} {reply}")
            self.check_given(shard, reply)
            self.shared.answered(self._node, shard, self.coordinating.epoch_of(shard), event, reply)
            back(reply)
        for notice in released.notices:
            if isinstance(notice, SendMarkers):
                for place in notice.partitions:
                    self._send_marker(notice, TopicPartition(*place))
            elif isinstance(notice, ProducerIdWanted):
                drawn: Any = ProducerIdDrawn(notice.transactional_id, next(self.shared.fresh))
                self._tell(notice.transactional_id, drawn)

    def _tell(self, transactional_id: str, event: Any) -> None:
        self.engine.submit(shard_of(transactional_id).partition, event)
        self.wake()

    def _send_marker(self, sent: SendMarkers, place: TopicPartition) -> None:
        """To whoever leads the partition; now and then the way is long."""
        world = self._node.world
        if world.chance(self.shared.late_rate):
            world.census["markers held up"] += 1
            self.shared.late(self._node)
            self._node.later(world.rng.choice(LATE_MS), lambda: self._deliver(sent, place))
        else:
            self._deliver(sent, place)

    def _deliver(self, sent: SendMarkers, place: TopicPartition) -> None:
        leader = self._leader_of(place)
        marker = MarkerBatch(sent.producer_id, sent.epoch, sent.commit, sent.coordinator_epoch, sent.level)

        def told(outcome: Any) -> None:
            code = int(outcome) if isinstance(outcome, int) else int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            results = {tuple(place): code}
            report: Any = MarkersWritten(sent.transactional_id, sent.life, sent.number, results)  # type: ignore[arg-type]
            self._tell(sent.transactional_id, report)

        if leader == self._node.id:
            self._node.mark(MarkerAsk(place, marker), told)
        elif leader == NO_NODE_ID:
            told(None)
        else:
            self._node.ask(f"n{leader}", MarkerAsk(place, marker), told, by="markers", patience_ms=MARKER_PATIENCE_MS)
