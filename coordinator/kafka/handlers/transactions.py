"""Transactional producers: InitProducerId with an id, AddPartitionsToTxn, EndTxn, and the gate of their first records.

What a request means is decided by the coordinator of its transactional id (docs/design/transactions.md). Clients speak
level 0 or 2, by the version of the request. At level 0 EndTxn keeps the epoch, and each partition is added before
records are sent to it. At level 2 each EndTxn raises the epoch, and records add their partition themselves (KIP-890).
"""

import asyncio
import struct as packing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from muster.coordinator.errors import CoordinatorError, ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, HangUp, KafkaCall
from muster.coordinator.kafka.handlers.transaction_batches import (
    BATCHED_SINCE,
    PartitionCodes,
    ask_about_each,
    make_additions_response,
    read_additions,
)
from muster.coordinator.kafka.protocol import RAISES_EPOCH, ConcurrentTransactions, TransactionAbortable
from muster.coordinator.transactions.effects import (
    AddPartitionsReply,
    EndTxnReply,
    InitProducerIdReply,
)
from muster.coordinator.transactions.events import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    PartitionAddition,
    RequestOrigin,
    TransactionRequest,
)
from muster.coordinator.transactions.records import LAST_CLIENT_EPOCH, NO_PRODUCER_ID
from muster.coordinator.transactions.state import MAX_TRANSACTION_PARTITIONS
from muster.long_work import AT_ONCE, make_aside, run_in_answer_thread
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import Batches, Guards, LogRequests, partition_outcome
from muster.storage.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    StorageError,
)
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.types import Appended, Topic, TopicPartition

Reply = TypeVar("Reply")

FENCED_SINCE: Final = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
"""The first version of an API whose clients know PRODUCER_FENCED; older ones hear INVALID_PRODUCER_EPOCH."""

UNKNOWN_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TRANSACTION_ABORTABLE_SINCE: Final = 11
"""The first version of Produce in which TRANSACTION_ABORTABLE may be told."""
RAISES_EPOCH_SINCE: Final = {"Produce": 12, "EndTxn": 5, "TxnOffsetCommit": 5}
"""The first version of an API whose clients speak level 2."""


class TransactionService(Protocol):
    """The coordinator of a node's transactional ids, as its listeners call it."""

    async def prepare(self) -> None:
        """Be ready to coordinate. Raises CoordinatorError."""

    def check_room(self, transactional_id: str) -> None:
        """Raises CoordinatorError for an id that would be one too many."""

    async def ask(self, transactional_id: str, make: Callable[[int], TransactionRequest], wanted: type[Reply]) -> Reply:
        """The reply to the request that `make` makes of its number. Raises CoordinatorError, Overloaded,
        NodeShuttingDown."""

    async def ask_additions(self, addition: PartitionAddition) -> Mapping[TopicPartition, int]:
        """Kafka's number of each partition, from whoever coordinates the id, be it another node (TX-N3)."""

    def shard_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that the id belongs to, once `prepare` has returned."""

    async def ask_every_shard(self, make: Callable[[int], TransactionRequest], wanted: type[Reply]) -> dict[int, Reply]:
        """The reply of each shard of this node. Raises Overloaded, NodeShuttingDown."""

    async def draw_producer_id(self) -> int:
        """A producer id that was never given before. Raises StorageError."""


class PendingAddition:
    """Partitions that join a transaction, from the request to its durable record (TX-L12).

    `decided` is done once records may be appended to them, or never may be; `recorded` holds the reply, which leaves
    once the addition is durable.
    """

    __slots__ = ("decided", "recorded")

    def __init__(self, decided: "asyncio.Future[None]", recorded: "asyncio.Future[Any]") -> None:
        self.decided = decided
        self.recorded = recorded

    async def code(self) -> int:
        """Kafka's number for what became of it; 0 once it is durable."""
        try:
            return int((await self.recorded).code)
        except REFUSALS as error:
            return refusal_code(error)

    def refusal(self) -> int:
        """Kafka's number for what is known already to keep the records out; 0: they may be appended."""
        if not self.recorded.done():
            return 0
        error = self.recorded.exception()
        return self.recorded.result().code if error is None else refusal_code(error)


@runtime_checkable
class LocalAdditions(Protocol):
    """A coordinator on this node: it reports a decision before its record is durable."""

    async def begin_adding(self, transactional_id: str, make: Callable[[int], AddPartitions]) -> PendingAddition:
        """Ask for what `make` makes of its number. Raises CoordinatorError, Overloaded, NodeShuttingDown."""


def refusal_code(error: BaseException) -> int:
    """Kafka's number for what kept a request from being decided; clients try these again."""
    if isinstance(error, CoordinatorError):
        return error.code
    busy = isinstance(error, Overloaded)
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if busy else ErrorCode.COORDINATOR_NOT_AVAILABLE


def told_code(api: str, code: int, version: int) -> int:
    """The number that a client of this version knows it by."""
    if code == ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE[api]:
        return InvalidProducerEpoch.code
    return code


def level_of(api: str, version: int) -> int:
    """The `transaction.version` that the client of such a request speaks."""
    return RAISES_EPOCH if version >= RAISES_EPOCH_SINCE[api] else 0


REFUSALS: Final = (CoordinatorError, Overloaded, NodeShuttingDown)
BeginAppends: TypeAlias = Callable[[Sequence[Batches], Guards], "list[asyncio.Future[Appended]]"]
"""See `LogRequests.begin_produce`."""


# Producers
# ---------


class TransactionalProducerHandlers:
    """Handlers of the producers' requests to the coordinator of their transactional id."""

    def __init__(self, requests: LogRequests, service: TransactionService) -> None:
        self._requests = requests
        self._service = service

    async def init_producer_id(self, request: Any, call: KafkaCall) -> Any:
        """An id that was never given before, or the next epoch of a transactional id."""
        response = struct("InitProducerIdResponse")
        try:
            if request.transactional_id is None:
                producer_id, epoch = self._requests.broker.next_producer_id()
                return response(producer_id=producer_id, producer_epoch=epoch)
            self._service.check_room(request.transactional_id)
            fresh_id = await self._service.draw_producer_id()
        except (StorageError, CoordinatorError) as error:
            return response(error_code=error.code, producer_id=-1, producer_epoch=-1)

        def make(number: int) -> InitProducerId:
            return InitProducerId(
                number,
                request.transactional_id,
                request.transaction_timeout_ms,
                fresh_id,
                request.producer_id,
                request.producer_epoch,
                connection=call.peer.number,
                client=origin_of(call),
            )

        reply = await self.ask(request.transactional_id, make, InitProducerIdReply)
        code = told_code("InitProducerId", reply.code, call.api_version)
        return response(error_code=code, producer_id=reply.producer_id, producer_epoch=reply.epoch)

    async def add_partitions_to_txn(self, request: Any, call: KafkaCall) -> Any:
        """All of the partitions join, or none: where one is refused nothing is done about the others (KIP-98)."""
        if call.api_version >= BATCHED_SINCE:
            return make_additions_response(await ask_about_each(read_additions(request), self.add_checked))
        rows = sum(len(topic.partitions) for topic in request.topics)
        if rows > MAX_TRANSACTION_PARTITIONS:  # before anything is made of them
            return await make_added_answer(request, rows, call.api_version, lambda place: ErrorCode.INVALID_REQUEST)
        known = self._requests.broker.topics()
        topics = {topic.name: known[topic.name] for topic in request.topics if topic.name in known}
        places, refused = await make_aside(lambda: check_additions(request, topics), rows)
        if refused:
            other = ErrorCode.OPERATION_NOT_ATTEMPTED
            return await make_added_answer(request, rows, call.api_version, lambda place: refused.get(place, other))

        def make(number: int) -> AddPartitions:
            return AddPartitions(
                number,
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                places,
                connection=call.peer.number,
            )

        reply = await self.ask(request.transactional_id, make, AddPartitionsReply)
        code = told_code("AddPartitionsToTxn", reply.code, call.api_version)
        return await make_added_answer(request, rows, call.api_version, lambda place: code)

    async def add_checked(self, addition: PartitionAddition) -> PartitionCodes:
        """One transaction of a request that names several: all of its partitions are known, or nothing is attempted."""
        topics = self._requests.broker.topics()
        known = {place: is_partition(place, topics) for place in addition.partitions}
        if not all(known.values()):
            other = ErrorCode.OPERATION_NOT_ATTEMPTED
            return {place: other if found else UNKNOWN_PARTITION for place, found in known.items()}
        return await ask_coordinator(self._service, addition)

    async def end_txn(self, request: Any, call: KafkaCall) -> Any:
        response, level = struct("EndTxnResponse"), level_of("EndTxn", call.api_version)
        fresh_id = NO_PRODUCER_ID
        if level >= RAISES_EPOCH and request.producer_epoch >= LAST_CLIENT_EPOCH:
            try:
                fresh_id = await self._service.draw_producer_id()
            except StorageError:
                return response(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def make(number: int) -> EndTxn:
            return EndTxn(
                number,
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.committed,
                fresh_id,
                level=level,
                connection=call.peer.number,
                client=origin_of(call),
            )

        reply = await self.ask(request.transactional_id, make, EndTxnReply)
        code = told_code("EndTxn", reply.code, call.api_version)
        return response(error_code=code, producer_id=reply.producer_id, producer_epoch=reply.epoch)

    async def ask(self, transactional_id: str, make: Callable[[int], TransactionRequest], wanted: type[Reply]) -> Any:
        try:
            reply: Any = await self._service.ask(transactional_id, make, wanted)
        except REFUSALS as error:
            refused: Any = wanted
            return refused(code=refusal_code(error), message=str(error))
        if reply.close_connection:
            raise HangUp(f"a request of transactional id {transactional_id!r} was overtaken by a newer connection's")
        return reply


def origin_of(call: KafkaCall) -> RequestOrigin:
    """Who ends a transaction, or takes its id over, for explanations."""
    return RequestOrigin(call.peer_host, call.client_software, call.client_id)


def is_partition(place: TopicPartition, topics: Mapping[str, Topic]) -> bool:
    topic = topics.get(place[0])
    return topic is not None and 0 <= place[1] < topic.partitions


def check_additions(
    request: Any, topics: Mapping[str, Topic]
) -> tuple[tuple[TopicPartition, ...], dict[TopicPartition, int]]:
    """The partitions of an AddPartitionsToTxn, and the codes of those that cannot join."""
    places = tuple((topic.name, number) for topic in request.topics for number in topic.partitions)
    refused: dict[TopicPartition, int] = {
        place: UNKNOWN_PARTITION for place in places if not is_partition(place, topics)
    }
    # The node writes these itself, and positions of groups come in by AddOffsetsToTxn.
    internal = {place for place in places if place[0] in topics and topics[place[0]].internal}
    return places, refused | dict.fromkeys(internal, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def make_added_answer(request: Any, rows: int, version: int, code_of: Callable[[TopicPartition], int]) -> Any:
    """A thread makes one of many rows."""
    if rows <= AT_ONCE:
        return make_added_response(request, code_of)
    return await run_in_answer_thread(
        lambda: EncodedAnswer(encode("AddPartitionsToTxnResponse", version, make_added_response(request, code_of)))
    )


def make_added_response(request: Any, code_of: Callable[[TopicPartition], int]) -> Any:
    topic_row = struct("AddPartitionsToTxnResponse.results")
    row = struct("AddPartitionsToTxnResponse.results.results_by_partition")
    return struct("AddPartitionsToTxnResponse")(
        results=[
            topic_row(
                name=topic.name,
                results_by_partition=[
                    row(partition_index=number, partition_error_code=code_of((topic.name, number)))
                    for number in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# The gate of first records
# -------------------------

# Of a batch's header: attributes, and producer id, epoch and first sequence.
_ATTRIBUTES: Final = slice(21, 23)
_PRODUCER: Final = packing.Struct(">qhi")
_PRODUCER_AT: Final = 43
_TRANSACTIONAL: Final = 0x10


class FirstBatch(NamedTuple):
    """Records for a partition in whose log their producer has no transaction open."""

    place: TopicPartition
    producer_id: int
    epoch: int
    guard: TransactionGuard


class TransactionLeave(NamedTuple):
    """Leave to append the first records of a transaction to one log. guard: None where it is open there. addition:
    what their answer has to wait for; None: nothing."""

    place: TopicPartition
    guard: TransactionGuard | None
    addition: PendingAddition | None = None

    async def settle(self) -> int:
        """Wait until the partition's addition is durable. Returns Kafka's number for what became of it."""
        return 0 if self.addition is None else await self.addition.code()


class TransactionGate:
    """Asks the coordinator before a log takes the first records of a transaction (TX-L3, TX-L4).

    A coordinator on this node decides first, and its record and the data become durable in the same flushes (TX-L12).
    """

    def __init__(self, log: RecordLog, service: TransactionService, *, verifies: bool, together: bool = True) -> None:
        """verifies: `transaction.partition.verification.enable`; without it, whoever asks at level 0 is let in.
        together: whether an addition and its data may be flushed at the same time (TX-L12); in a cluster data waits
        until the addition is committed (TX-N3)."""
        self._log = log
        self._service = service
        self._local = service if together and isinstance(service, LocalAdditions) else None
        self._verifies = verifies

    def is_open(self, parts: Iterable[Batches]) -> bool:
        """Whether no coordinator has to be asked: every transaction that the batches are of is open in its log."""
        for topic, partition, records in parts:
            found = read_producer(records)
            if found is None:
                continue
            try:
                if not self._log.log(topic, partition).has_open_transaction(*found[:2]):
                    return False
            except StorageError:
                continue  # the append says so
        return True

    async def append_first(
        self, transactional_id: str, parts: Sequence[Batches], version: int, begin: BeginAppends
    ) -> list[Appended | StorageError]:
        """Append records of which some begin a transaction in their log; `begin` does it. One outcome per part.

        Each is durable, and so is the addition of its partition to the transaction.
        """
        level, refused = level_of("Produce", version), dict[TopicPartition, StorageError]()
        first = self._first_batches(parts, level, refused)
        guards = {each.place: each.guard for each in first}
        additions = list[tuple[list[TopicPartition], PendingAddition]]()
        try:
            codes: Mapping[TopicPartition, int] = {}
            if level >= RAISES_EPOCH and self._local is not None:
                codes = await self._add_all(self._local, transactional_id, first, additions)
            elif first and (self._verifies or level >= RAISES_EPOCH):
                codes = await self._ask_coordinator(transactional_id, first, level)
            refused |= refusals_of(transactional_id, codes, version)
            self.drop_all({place: guards[place] for place in refused if place in guards})
            let_in = [part for part in parts if part[:2] not in refused]
            begun = begin(let_in, guards)
            await asyncio.gather(*begun, return_exceptions=True)
            unrecorded = dict[TopicPartition, int]()
            for places, addition in additions:
                unrecorded |= dict.fromkeys(places, await addition.code())
        finally:  # one that the log did not take would keep later records of its producer out
            self.drop_all(guards)
            for _, addition in additions:
                addition.recorded.cancel()
        outcomes = iter(
            [
                tell_new_epoch(
                    transactional_id, topic, partition, partition_outcome(part), guards.get((topic, partition))
                )
                for (topic, partition, _), part in zip(let_in, begun, strict=True)
            ]
        )
        results = [refused[part[:2]] if part[:2] in refused else next(outcomes) for part in parts]
        late = refusals_of(transactional_id, unrecorded, version)
        return [late.get(part[:2], result) for part, result in zip(parts, results, strict=True)]

    async def ask_for(
        self, transactional_id: str, producer_id: int, epoch: int, place: TopicPartition, level: int
    ) -> TransactionLeave:
        """Leave for the node's own records of a transaction. Raises CoordinatorError."""
        try:
            guard = self._log.log(*place).make_guard(producer_id, epoch, level=level)
        except NotLeaderOrFollower as error:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR, str(error)) from error
        except StorageError as error:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        if guard is None or (level < RAISES_EPOCH and not self._verifies):
            return TransactionLeave(place, guard)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        addition = None
        try:
            if level >= RAISES_EPOCH and self._local is not None:
                addition = await self._add(self._local, transactional_id, (producer_id, epoch), {place: guard})
                code = ErrorCode(addition.refusal())
            else:
                codes = await self._ask_for(transactional_id, producer_id, epoch, (place,), level)
                code = ErrorCode(codes[place])
        except REFUSALS as error:
            code = ErrorCode(refusal_code(error))
        finally:
            if code:
                self.drop(place, guard)
        if code:
            raise CoordinatorError(code)
        return TransactionLeave(place, guard, addition)

    def drop_all(self, guards: Guards) -> None:
        """See `drop`."""
        for place, guard in guards.items():
            self.drop(place, guard)

    def drop(self, place: TopicPartition, guard: TransactionGuard | None) -> None:
        """The records have come, or do not. Safe to call for a guard that is used."""
        if guard is not None:
            with suppress(StorageError):  # the topic is gone, and its guards with it
                self._log.log(*place).drop_guard(guard)

    def _first_batches(
        self, parts: Sequence[Batches], level: int, refused: dict[TopicPartition, StorageError]
    ) -> list[FirstBatch]:
        first, begun = list[FirstBatch](), set[TopicPartition]()
        for topic, partition, records in parts:
            found = read_producer(records)
            if found is None or (topic, partition) in begun:
                continue  # of two batches for one partition the first begins the transaction
            try:
                self._log.check_writable(topic)  # before the coordinator hears of it
                guard = self._log.log(topic, partition).make_guard(found[0], found[1], sequence=found[2], level=level)
            except StorageError as error:
                refused[topic, partition] = error
                continue
            if guard is not None:
                first.append(FirstBatch((topic, partition), found[0], found[1], guard))
                begun.add((topic, partition))
        return first

    async def _add_all(
        self,
        local: LocalAdditions,
        transactional_id: str,
        first: Sequence[FirstBatch],
        additions: list[tuple[list[TopicPartition], PendingAddition]],
    ) -> dict[TopicPartition, int]:
        """Have these partitions join, and list what their answers have to wait for. Returns the numbers of those that
        may not join."""
        codes = dict[TopicPartition, int]()
        for who, guards in group_by_producer(first).items():
            try:
                addition = await self._add(local, transactional_id, who, guards)
            except REFUSALS as error:
                codes |= dict.fromkeys(guards, refusal_code(error))
                continue
            code = addition.refusal()
            codes |= dict.fromkeys(guards, code)
            if not code:
                additions.append((list(guards), addition))
        return codes

    async def _add(
        self, local: LocalAdditions, transactional_id: str, who: tuple[int, int], guards: Guards
    ) -> PendingAddition:
        """Have the partitions join; returns once that is decided. The guards are dropped with a shard that is lost
        before its record is durable: when it has been loaded, it is told of what is in the logs by then."""
        places = tuple(guards)

        def make(number: int) -> AddPartitions:
            return AddPartitions(number, transactional_id, *who, places, level=RAISES_EPOCH)

        addition = await local.begin_adding(transactional_id, make)

        def drop_if_refused(_: object) -> None:
            if addition.recorded.cancelled() or addition.refusal():
                self.drop_all(guards)

        addition.recorded.add_done_callback(drop_if_refused)
        await addition.decided
        return addition

    async def _ask_coordinator(
        self, transactional_id: str, first: Sequence[FirstBatch], level: int
    ) -> dict[TopicPartition, int]:
        """Each producer of the request is asked for by itself; as a rule there is one."""
        asked = group_by_producer(first)
        answers = await asyncio.gather(
            *(self._ask_for(transactional_id, *who, tuple(guards), level) for who, guards in asked.items())
        )
        return {place: code for answer in answers for place, code in answer.items()}

    async def _ask_for(
        self, transactional_id: str, producer_id: int, epoch: int, places: Sequence[TopicPartition], level: int
    ) -> PartitionCodes:
        """At level 2 they join the transaction; at level 0 it is asked whether they have."""
        verify_only = level < RAISES_EPOCH
        return await self._service.ask_additions(
            PartitionAddition(transactional_id, producer_id, epoch, tuple(places), verify_only)
        )


async def ask_coordinator(service: TransactionService, addition: PartitionAddition) -> PartitionCodes:
    """Kafka's error number for each partition, also where the coordinator is busy, away or on another node."""
    try:
        reply = await service.ask(addition.transactional_id, addition.as_request, AddPartitionsReply)
    except REFUSALS as error:
        return dict.fromkeys(addition.partitions, refusal_code(error))
    return {place: reply.partitions.get(place, reply.code) for place in addition.partitions}


def group_by_producer(first: Sequence[FirstBatch]) -> dict[tuple[int, int], dict[TopicPartition, TransactionGuard]]:
    """(producer id, epoch) -> its guards; as a rule there is one producer."""
    found = dict[tuple[int, int], dict[TopicPartition, TransactionGuard]]()
    for each in first:
        found.setdefault((each.producer_id, each.epoch), {})[each.place] = each.guard
    return found


def tell_new_epoch(
    transactional_id: str,
    topic: str,
    partition: int,
    outcome: Appended | StorageError,
    guard: TransactionGuard | None,
) -> Appended | StorageError:
    """A guard that no marker has ended, and that the log does not know, is of an earlier leader epoch (TX-N6): nothing
    is wrong with the transaction, and the producer sends again."""
    if not isinstance(outcome, InvalidTxnState) or guard is None or guard.ended:
        return outcome
    return NotLeaderOrFollower(
        f"The log of {topic}-{partition} has a new leader epoch since the coordinator of transactional id "
        f"{transactional_id!r} was asked. Nothing was written; find its leader again, and send the records to it."
    )


def refusals_of(
    transactional_id: str, codes: Mapping[TopicPartition, int], version: int
) -> dict[TopicPartition, StorageError]:
    return {place: refuse_records(transactional_id, code, version) for place, code in codes.items() if code}


def read_producer(records: Any) -> tuple[int, int, int] | None:
    """Producer id, epoch and first sequence of a transactional batch; None for any other."""
    if records is None or len(records) < _PRODUCER_AT + _PRODUCER.size:
        return None
    if not int.from_bytes(records[_ATTRIBUTES], "big") & _TRANSACTIONAL:
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return producer_id, epoch, sequence


AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
REFUSED_FOR_GOOD: Final[Mapping[int, type[StorageError]]] = {
    ErrorCode.PRODUCER_FENCED: InvalidProducerEpoch,
    ErrorCode.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: InvalidProducerIdMapping,
    ErrorCode.INVALID_REQUEST: InvalidRequest,
}


def refuse_records(transactional_id: str, code: int, version: int) -> StorageError:
    """What a producer hears for its records when the coordinator does not agree (TX-L4)."""
    if code == ErrorCode.CONCURRENT_TRANSACTIONS and level_of("Produce", version) >= RAISES_EPOCH:
        return ConcurrentTransactions(
            f"The transaction before of id {transactional_id!r} is not complete yet. Nothing was written; send again."
        )
    if code in AGAIN:
        return NotEnoughReplicas(
            f"The coordinator of transactional id {transactional_id!r} cannot tell now whether its transaction "
            "has this partition. Nothing was written; send again."
        )
    refusal = REFUSED_FOR_GOOD.get(code, InvalidTxnState)
    if code == ErrorCode.TRANSACTION_ABORTABLE and version >= TRANSACTION_ABORTABLE_SINCE:
        refusal = TransactionAbortable
    return refusal(
        f"The transaction of id {transactional_id!r} does not have this partition, or this producer is not its current "
        "one. Abort the transaction."
    )
