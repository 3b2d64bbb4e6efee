"""Coordinates the transactional ids of a standalone node: an engine of its own, made when the first id asks.

A node that never saw a transactional id has neither `__transaction_state` nor this engine. Once the topic is there, it
is loaded at every start: decided transactions get their markers, open ones their timeouts. After each load the logs of
the node are searched for open transactions that their coordinator does not know (TX-C14); until that has been done its
ids are refused as loading.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeGuard, TypeVar

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.core.model.types import Limits
from muster.coordinator.edge.background_tasks import RestartedTask, SupervisedTasks
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.handlers.group_requests import GroupDriver
from muster.coordinator.kafka.handlers.transaction_markers import end_positions
from muster.coordinator.kafka.handlers.transactions import PendingAddition, ask_coordinator
from muster.coordinator.runtime.abort_records import ORPHAN, AbortEntry, entry_of
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.runtime.transaction_shards import (
    BrokerTransactionLog,
    NewestConnection,
    TransactionCores,
    TransactionShardCore,
    check_partition_count,
    transaction_kind,
    transaction_topic,
)
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import DriverCallbacks, DriverLimits, EngineDriver, ReplyWaiter
from muster.coordinator.server.transactions.abort_journal import AbortJournal, AbortLog, BrokerAbortLog
from muster.coordinator.server.transactions.marker_writer import MarkerWriter
from muster.coordinator.server.transactions.stable_offset_watch import OpenOwner, StableOffsetWatch
from muster.coordinator.server.transactions.transaction_history import TransactionHistory, TransactionTally
from muster.coordinator.transactions.effects import (
    AbortNoted,
    AddPartitionsReply,
    MarkerTrouble,
    OrphanReply,
    OrphanVerdict,
    ProducerIdWanted,
    SendMarkers,
    TransactionEnd,
)
from muster.coordinator.transactions.events import (
    AddPartitions,
    MarkersWritten,
    OrphanFound,
    OrphansSearched,
    PartitionAddition,
    ProducerIdDrawn,
    TransactionRequest,
)
from muster.coordinator.transactions.records import TransactionState
from muster.coordinator.transactions.state import TransactionLimits, TransactionsState
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.logs.transactions import OpenTransaction
from muster.storage.types import TopicPartition

if TYPE_CHECKING:
    from muster.coordinator.observability.metrics.instruments import TransactionFigures

log = structlog.get_logger("muster.transactions")

TransactionReplyType = TypeVar("TransactionReplyType")

FIRST_LOAD_S: Final = 5.0
"""How long the first request for a transactional id waits until the log that was made for it is loaded."""

IDS_PER_TURN: Final = 2_000
"""Transactional ids that one turn of the loop looks at for a listing, about: a millisecond or two."""

LOGS_PER_TURN: Final = 200
"""Logs that are looked at for open transactions between two turns of the loop."""


def transaction_limits(settings: Settings) -> TransactionLimits:
    return TransactionLimits(
        level=settings.transaction_version,
        max_timeout_ms=settings.transaction_max_timeout_ms,
        expiration_ms=settings.transactional_id_expiration_ms,
        expiration_check_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        patience_ms=settings.add_partitions_to_txn_retry_backoff_max_ms,
        max_ids=settings.transaction_max_ids,
        newest_connection=settings.transaction_newest_connection,
    )


class MarkerWriting(Protocol):
    """See `MarkerWriter`."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    def write(self, asked: SendMarkers) -> None: ...

    def without_leader(self) -> int:
        """Markers that wait until somebody leads their partition."""


class TransactionCoordinator:
    """One per node, on the node's loop. `open` begins with what is there; `ask` makes the rest when it is needed."""

    alone: ClassVar[bool] = True
    """Whether there are no other nodes that may coordinate ids."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        requests: Callable[[], LogRequests],
        groups: GroupDriver,
        clock: NodeClock,
        newest_connection: NewestConnection,
        fail: Callable[[BaseException], None],
    ) -> None:
        """requests: of the node's records, once it has joined. groups: those of the node, whose positions transactions
        commit. fail: hears of what the node cannot go on with."""
        self._settings = settings
        self._broker = broker
        self._requests = requests
        self._clock = clock
        self._cores = TransactionCores(transaction_limits(settings), newest_connection, self._decided)
        self._fail = fail
        self._conditions: Conditions | None = None
        self._beginning = asyncio.Lock()
        self._driver: EngineDriver | None = None
        self._engine: Engine | None = None
        self._closed = False
        self._known: Mapping[str, bytes] = {}
        """Ids of the topics that the shards know of."""
        self._end_positions = partial(end_positions, groups)
        self._markers = self._make_markers()
        self.aborts = AbortJournal(self._make_abort_log())
        self.history = TransactionHistory(self, self.aborts, broker, clock.now_ms)
        self._watch = StableOffsetWatch(
            broker, clock.now_ms, settings.transaction_max_timeout_ms, self._owner_of_open, alone=self.alone
        )
        self._tally = TransactionTally(with_partitions=settings.metrics_granularity == "partition")
        broker.holds.clock_ms = clock.now_ms  # as the times of the coordinator's decisions
        self._loaded, self._searched = asyncio.Event(), asyncio.Event()
        self._loads = 0
        self._unsearched: dict[int, int] = {}
        """Shard -> the load of it that no search has followed yet."""
        self._search = RestartedTask("search for open transactions", self._search_after_loads)
        self._drawing = SupervisedTasks(fail)
        self._undecided: dict[int, asyncio.Future[None]] = {}
        """Additions that data waits for, by the number of their request."""

    @property
    def shards(self) -> int:
        return self._settings.transaction_state_log_num_partitions

    async def open(self, conditions: Conditions) -> None:
        """Load the ids that there are. Raises PartitionCountConflict."""
        self._conditions = conditions
        if check_partition_count(self._broker, self.shards):
            await self._begin()

    def check_room(self, transactional_id: str) -> None:
        """Raises CoordinatorError for an id that would be one more than `transaction.max.ids`."""
        if self._engine is None:
            return
        shards = [state.ids for state in self._states()]
        most = self._settings.transaction_max_ids
        if sum(map(len, shards)) >= most and not any(transactional_id in ids for ids in shards):
            raise CoordinatorError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the node knows {most} transactional ids, as many as transaction.max.ids allows; try later",
            )

    async def ask(
        self,
        transactional_id: str,
        make: Callable[[int], TransactionRequest],
        wanted: type[TransactionReplyType],
    ) -> TransactionReplyType:
        """The reply to the request that `make` makes of its number. Raises CoordinatorError, Overloaded,
        NodeShuttingDown."""
        driver = self._driver or await self._begin()
        shard = self.shard_of(transactional_id)
        event: Any = make(driver.next_id())
        reply = await driver.ask_shard(shard, event, wanted)
        if isinstance(reply, AddPartitionsReply):
            self._tally.note_verification(event, reply)
        return reply

    async def begin_adding(self, transactional_id: str, make: Callable[[int], AddPartitions]) -> PendingAddition:
        """Have partitions join a transaction, and hear of the decision before its record is durable. Raises
        CoordinatorError, Overloaded, NodeShuttingDown."""
        driver = self._driver or await self._begin()
        number, loop = driver.next_id(), asyncio.get_running_loop()
        addition = PendingAddition(loop.create_future(), loop.create_future())
        event: Any = make(number)
        waiter: ReplyWaiter = addition.recorded
        driver.begin_request(partition_for(transactional_id, self.shards), event, waiter)
        self._undecided[number] = addition.decided
        addition.recorded.add_done_callback(lambda _: self._decided(number))
        return addition

    def _decided(self, number: int) -> None:
        decided = self._undecided.pop(number, None)
        if decided is not None and not decided.done():
            decided.set_result(None)

    async def ask_additions(self, addition: PartitionAddition) -> Mapping[TopicPartition, int]:
        """Kafka's number of each partition: it joins the transaction, or it is asked whether it has (TX-L4)."""
        return await ask_coordinator(self, addition)

    def shard_of(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self.shards)

    async def ask_every_shard(
        self, make: Callable[[int], TransactionRequest], wanted: type[TransactionReplyType]
    ) -> dict[int, TransactionReplyType]:
        """The replies of all shards, in their order; none where no transactional id was ever seen. One turn of the loop
        asks as many shards as have IDS_PER_TURN ids between them."""
        driver = self._driver
        if driver is None:
            return {}
        replies: dict[int, TransactionReplyType] = {}
        for shards in self._portions():
            questions: list[Any] = [(shard, make(driver.next_id())) for shard in shards]
            replies |= zip(shards, await driver.ask_all(questions, wanted), strict=True)
        return replies

    def _portions(self) -> Iterator[list[int]]:
        portion, ids = list[int](), 0
        for shard in range(self.shards):
            core = None if self._engine is None else self._engine.core(shard)
            portion.append(shard)
            ids += len(core.shard.state.ids) if is_transactional(core) else 0
            if ids >= IDS_PER_TURN:
                yield portion
                portion, ids = [], 0
        if portion:
            yield portion

    def figures(self) -> "TransactionFigures | None":
        """None while no transactional id was ever seen."""
        if self._engine is None:
            return None
        counts = (state.counts for state in self._states())
        return self._tally.figures(counts, self._watch, self.aborts, self._markers.without_leader())

    def _states(self) -> Iterator[TransactionsState]:
        """Of the shards that are loaded."""
        if self._engine is not None:
            cores = map(self._engine.core, range(self.shards))
            yield from (core.shard.state for core in cores if is_transactional(core))

    def _owner_of_open(self, producer_id: int, epoch: int, place: TopicPartition) -> OpenOwner | None:
        """See `FindOwner`. A decided transaction sends its markers until they are written."""
        for state in self._states():
            name = state.by_producer.get(producer_id)
            if name is None:
                continue
            known = state.ids[name]
            stored = known.stored
            open_now = stored.state is TransactionState.ONGOING and stored.epoch == epoch
            if (open_now or stored.state.prepared) and place[1] in stored.partitions.get(place[0], ()):
                return OpenOwner(name, known.newest)
        return None

    async def prepare(self) -> None:
        """Have the topic and the engine made: somebody asks who coordinates a transactional id."""
        if self._driver is None:
            await self._begin()

    async def draw_producer_id(self) -> int:
        """A producer id that was never given before. Raises StorageError. A thread writes the next block down."""
        producer_id, _ = await asyncio.to_thread(self._broker.next_producer_id)
        return producer_id

    async def close(self, timeout_s: float) -> None:
        """Answer everyone, and make durable what was decided. Raises TimeoutError."""
        self._closed = True
        await self._search.stop()
        await self._watch.stop()
        if self._driver is not None:
            await self._driver.close(timeout_s)
        await self._markers.stop()
        await self._drawing.close()
        async with asyncio.timeout(timeout_s):
            await self.aborts.stop()

    # -- the engine -------------------------------------------------------------------------------------------------

    async def _begin(self) -> EngineDriver:
        async with self._beginning:
            if self._driver is not None:
                return self._driver
            if self._closed:
                raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the node is shutting down")
            made = await self._ensure_topic()
            self._engine = engine = self._make_engine()
            self._driver = driver = EngineDriver(
                engine,
                self._clock,
                DriverLimits(max_parked=self._settings.max_parked_requests),
                DriverCallbacks(on_notice=self._noticed, on_fatal=self._fail, on_bug=report_trouble),
            )
            self._broker.on_topics_changed(self._topics_changed)
            self._markers.start()
            self.aborts.start(self._conditions)
            self._watch.start(self._conditions)
            await self._begin_shards(engine, driver, made=made)
            return driver

    async def _ensure_topic(self) -> bool:
        """Whether the topic had to be made. Raises CoordinatorError, PartitionCountConflict."""
        if check_partition_count(self._broker, self.shards):
            return False
        await self._make_topic()
        return True

    async def _begin_shards(self, engine: Engine, driver: EngineDriver, *, made: bool) -> None:
        """Where the topic was made there is next to nothing to load: whoever asked first need not ask again."""
        self._search.start()
        if made:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOAD_S):
                    await self._searched.wait()

    async def _make_topic(self) -> None:
        wanted = transaction_topic(self.shards, self._settings.transaction_state_log_segment_bytes)
        (made,) = await self._requests().topics.create([wanted])
        if isinstance(made, StorageError):
            log.warning("the log of transactional ids cannot be made", why=str(made))
            raise CoordinatorError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the log of transactional ids cannot be made: {made}"
            )

    def _make_engine(self) -> Engine:
        engine = Engine(BrokerTransactionLog(self._broker), self.shards, Limits(), self._cores, self._engine_options())
        engine.submit_all(self._topics_now(()))
        engine.load(self._clock.now_ms())
        return engine

    def _engine_options(self) -> EngineOptions:
        return EngineOptions(
            on_bug=report_trouble,
            on_status=self._report_status,
            inbox_limit=self._settings.queued_max_requests,
            loads_elsewhere=True,
            kind=transaction_kind(self._settings.transaction_version),
        )

    def _make_abort_log(self) -> AbortLog:
        return BrokerAbortLog(self._broker, self._requests, self._clock.now_ms)

    def _make_markers(self) -> MarkerWriting:
        return MarkerWriter(
            self._broker, self._clock.now_ms, self._end_positions, self._markers_written, self._is_wanted
        )

    def _topics_now(self, gone: tuple[str, ...]) -> TopicsChanged:
        topics = self._broker.topics()
        self._known = {name: topic.id for name, topic in topics.items()}
        partitions = {name: topic.partitions for name, topic in topics.items()}
        return TopicsChanged(partitions, gone, self._known)

    def _topics_changed(self) -> None:
        if self._driver is not None:
            topics = self._broker.topics()  # one that is there again under its name has another id
            gone = [name for name, known in self._known.items() if name not in topics or topics[name].id != known]
            self._driver.tell_all(self._topics_now(tuple(sorted(gone))))

    def _report_status(self, shard: int, status: ShardStatus, why: str) -> None:
        if status is ShardStatus.ACTIVE:
            self._loads += 1
            self._unsearched[shard] = self._loads
            self._loaded.set()
        failed = status is ShardStatus.FAILED
        tell = log.warning if failed else log.debug
        tell("transaction shard", number=shard, status=status.value, why=why)
        if self._conditions is None:
            return
        key = f"transaction-shard-failed:{shard}"
        if failed:
            self._conditions.report(key, f"the transactional ids of shard {shard} are not served: {why}")
        else:
            self._conditions.clear(key)

    # -- what it asks for ---------------------------------------------------------------------------------------------

    def _noticed(self, notice: Any) -> None:
        match notice:
            case SendMarkers():
                self._markers.write(notice)
            case AbortNoted():
                self.aborts.note(entry_of(notice))
                log.info(
                    "transaction aborted",
                    transactional_id=notice.transactional_id,
                    cause=notice.decision.cause.value,
                    by=notice.decision.by.address,
                    open_ms=notice.open_ms,
                    partitions=len(notice.partitions),
                )
            case MarkerTrouble():
                log.warning(
                    "a transaction's marker was refused",
                    transactional_id=notice.transactional_id,
                    partition="-".join(map(str, notice.partition)),
                    why=notice.message,
                )
            case TransactionEnd():
                self._tally.note_end(notice)
            case ProducerIdWanted():
                self._drawing.start(self._draw_for(notice.transactional_id), "producer ids of transactions")

    def _is_wanted(self, asked: SendMarkers, place: TopicPartition) -> bool:
        """Whether the shard waits for this marker. One that is loaded again asks for its own."""
        engine = self._engine
        core = None if engine is None else engine.core(partition_for(asked.transactional_id, self.shards))
        return is_transactional(core) and core.shard.waits_for(asked, place)

    def _markers_written(self, written: MarkersWritten) -> None:
        if self._driver is not None:
            event: Any = written
            self._driver.submit_event(partition_for(written.transactional_id, self.shards), event)

    async def _draw_for(self, transactional_id: str) -> None:
        """The coordinator asks again, should there be none now."""
        try:
            drawn = ProducerIdDrawn(transactional_id, await self.draw_producer_id())
        except StorageError as error:
            log.warning("no producer id can be had", transactional_id=transactional_id, why=str(error))
            return
        if self._driver is not None:
            event: Any = drawn
            self._driver.submit_event(partition_for(transactional_id, self.shards), event)

    # -- what logs have open, and nobody knows ----------------------------------------------------------------------

    async def _search_after_loads(self) -> None:
        """Search whenever a shard has been loaded, once all of them have been: any of them may know the producer.

        A shard that is loaded again meanwhile waits for the next search, and so do all where this one fails.
        """
        while True:
            if not self._unsearched:
                self._loaded.clear()
            await self._loaded.wait()
            driver = self._driver
            assert driver is not None, "a shard was loaded, so there is an engine that is driven"
            await driver.all_loaded()
            waiting = dict(self._unsearched)
            await self._search_logs(driver)
            done: Any = OrphansSearched()
            for shard, load in waiting.items():
                if self._unsearched[shard] == load:
                    del self._unsearched[shard]
                    driver.submit_event(shard, done)
            self._searched.set()

    async def _search_logs(self, driver: EngineDriver) -> None:
        for number, (place, found) in enumerate(self._open_in_logs()):
            if not number % LOGS_PER_TURN:
                await asyncio.sleep(0)
            for each in found:
                await self._settle_orphan(driver, place, each)

    def _open_in_logs(self) -> Iterator[tuple[TopicPartition, list[OpenTransaction]]]:
        return ((each.partition, each.open_transactions()) for each in list(self._broker.logs()))

    async def _settle_orphan(self, driver: EngineDriver, place: TopicPartition, found: OpenTransaction) -> None:
        questions: list[Any] = [
            (shard, OrphanFound(driver.next_id(), found.producer_id, found.epoch, place))
            for shard in range(self.shards)
        ]
        verdicts: list[OrphanReply] = await driver.ask_all(questions, OrphanReply)
        if any(each.code for each in verdicts) or any(each.verdict is OrphanVerdict.TAKEN for each in verdicts):
            return  # it is known, or a shard does not answer now and is loaded again
        known = [each for each in verdicts if each.verdict is OrphanVerdict.HANGING]
        epoch = max((each.marker_epoch for each in known), default=min(found.epoch + 1, 32_767))
        if await self._end_hanging(place, found, epoch):
            transactional_id = known[0].transactional_id if known else ""
            self._tally.note_orphan()
            self.aborts.note(orphan_entry(transactional_id, place, found, self._clock.now_ms()))

    async def _end_hanging(self, place: TopicPartition, found: OpenTransaction, epoch: int) -> bool:
        """Whether its marker is durable."""
        marker = MarkerToWrite(found.producer_id, epoch, commit=False, coordinator_epoch=0)
        told = {"partition": "-".join(map(str, place)), "producer": found.producer_id, "epoch": found.epoch}
        try:
            if found not in self._broker.log(*place).open_transactions():
                return False  # It has ended since, and the next one of its producer may have begun.
            if place[0] == GROUPS_TOPIC:  # the groups' engine writes there
                await self._end_hanging_positions(place[1], marker)
            else:
                self._broker.append_marker(*place, marker, self._clock.now_ms())
                await asyncio.to_thread(self._broker.flush, [place])
        except (StorageError, OSError) as error:
            log.warning("a hanging transaction could not be ended", why=str(error), **told)
            return False
        log.warning("a hanging transaction was aborted: no coordinator knows its producer", **told)
        return True

    async def _end_hanging_positions(self, shard: int, marker: MarkerToWrite) -> None:
        """Raises OSError where the groups' shard cannot write the marker now; the next search tries again."""
        if error := await self._end_positions(shard, marker):
            raise OSError(f"shard {shard} of the groups answered {error}")


def orphan_entry(transactional_id: str, place: TopicPartition, found: OpenTransaction, now_ms: int) -> AbortEntry:
    """Of an open transaction of a log that no coordinator would have ended; since when it was open nobody knows."""
    partitions = (f"{place[0]}-{place[1]}",)
    return AbortEntry(
        transactional_id, found.producer_id, found.epoch, ORPHAN, now_ms, partitions=partitions, partition_count=1
    )


def is_transactional(core: object) -> TypeGuard[TransactionShardCore]:
    return isinstance(core, TransactionShardCore)


def report_trouble(what: str, error: Exception) -> None:
    log.error("a bug in the coordinator of transactions", what=what, exc_info=error)
