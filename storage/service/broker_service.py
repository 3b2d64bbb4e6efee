"""The Broker service without its transport: one coroutine per RPC, protobuf in, protobuf out.

Refusals travel in the answer, per topic or partition, with Kafka's numbers. A request that breaks its own shape raises
`MalformedRequest`, which the adapter turns into its transport's word for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias

from muster.long_work import (
    iterate_in_turns,
    make_aside,
    map_here_or_off_loop,
    map_in_turns,
    map_off_loop,
    work_through,
)
from muster.storage.broker.broker import NOT_TOLD, Divergence, check_epoch, check_history
from muster.storage.broker.fetches import FetchLimits, FetchPosition
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import DEFAULT, Batches, MorePartitions, NewTopic, RecordRequests
from muster.storage.config import LogSettings, TopicSettings
from muster.storage.errors import (
    InvalidRequest,
    MalformedRequest,
    StorageError,
    TransactionsNotCoordinated,
    check_entry_count,
    check_unique,
)
from muster.storage.files import Buffer
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.logs.segment import is_known_timestamp
from muster.storage.records.batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
)
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.fetch_frames import FetchResultFrame, fetch_response, multi_fetch_response
from muster.storage.settings_text import shown_setting
from muster.storage.types import Appended, Fetched, Topic, TopicPartition

# Results in protobuf
# -------------------

Wanted: TypeAlias = pb.FetchPartition | pb.MultiFetchPartition
Asked: TypeAlias = tuple[str, Wanted]
"""A topic's name, and what is wanted of one of its partitions."""


def error_code_of(error: StorageError) -> Any:
    """Kafka's number; the generated enum is open, though its type says otherwise."""
    return error.code


def numbered(code: int) -> Any:
    """As `error_code_of`, of a number."""
    return int(code)


def find_epoch_mismatch(broker: RecordLog, topic: str, part: Wanted) -> StorageError | Divergence | None:
    """Why the reader's idea of the leader, or of what it has read, is not the log's; None where it tells of neither."""
    if part.HasField("current_leader_epoch"):
        refusal = check_epoch(broker, topic, part.partition, part.current_leader_epoch)
        if refusal is not None:
            return refusal
    if part.HasField("last_fetched_epoch") and part.last_fetched_epoch != NOT_TOLD:
        return check_history(broker, topic, part.partition, part.fetch_offset, part.last_fetched_epoch)
    return None


def current_leader_of(error: StorageError) -> pb.LeaderIdAndEpoch | None:
    """Who leads the partition instead, where the refusal says it."""
    if error.leader >= 0:
        return pb.LeaderIdAndEpoch(leader_id=error.leader, leader_epoch=error.leader_epoch)
    return None


def produce_response(request: pb.ProduceRequest, results: Sequence[Appended | StorageError]) -> pb.ProduceResponse:
    told = iter(results)
    response = pb.ProduceResponse()
    for topic in request.topic_data:
        answer = response.responses.add(name=topic.name)
        answer.partition_responses.extend(produce_result(data.index, next(told)) for data in topic.partition_data)
    return response


def produce_result(partition: int, result: Appended | StorageError) -> pb.ProducePartitionResult:
    if isinstance(result, StorageError):
        return pb.ProducePartitionResult(
            index=partition,
            error_code=error_code_of(result),
            error_message=str(result),
            base_offset=-1,
            log_append_time_ms=-1,
            current_leader=current_leader_of(result),
        )
    return pb.ProducePartitionResult(
        index=partition,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )


def fetch_result(topic: str, partition: int, found: Fetched | StorageError | Divergence) -> FetchResultFrame:
    if isinstance(found, Divergence):
        parting = pb.FetchPartitionResult(
            partition_index=partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            diverging_epoch=pb.EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset),
        )
        return FetchResultFrame(topic, parting, b"")
    if isinstance(found, StorageError):
        refused = pb.FetchPartitionResult(
            partition_index=partition,
            error_code=error_code_of(found),
            error_message=str(found),
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            current_leader=current_leader_of(found),
        )
        return FetchResultFrame(topic, refused, b"")
    result = pb.FetchPartitionResult(
        partition_index=partition,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=[
            pb.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in found.aborted
        ],
    )
    return FetchResultFrame(topic, result, found.records)


def is_transactional(records: Buffer) -> bool:
    """Whether one of these batches is of a transaction. Only headers are read: the log refuses what is broken."""
    at, total = 0, len(records)
    while total - at >= HEADER_SIZE:
        if records[at + MAGIC_AT] == MAGIC and records[at + ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
            return True
        size = LENGTH_OVERHEAD + int.from_bytes(records[at + 8 : at + LENGTH_OVERHEAD], "big")
        if size < HEADER_SIZE:
            return False
        at += size
    return False


# The service
# -----------

READ_COMMITTED = 1
DEFAULT_MAX_TIMEOUT_MS = 900_000
DESCRIBED_ROWS = 50
"""What a topic's settings take, in rows."""
ROOM = 1 << 30
"""More than any answer has."""

DELETE_RECORDS_MS = 30_000
"""How long copies of a log may take to give up what it gives up: what Kafka's admin clients have patience for."""


MarkerResult: TypeAlias = tuple[int, str]
"""Kafka's number, 0 once the marker is durable, and a sentence."""

LAST_PRODUCER_ID = (1 << 63) - 1
LAST_EPOCH = 32_767


class RecordTransactions(Protocol):
    """The transactional ids of a node, as far as records have to do with them."""

    @property
    def max_timeout_ms(self) -> int:
        """`transaction.max.timeout.ms` of the node."""
        ...

    async def produce(
        self, transactional_id: str, parts: Sequence[Batches], acks: int, timeout_ms: int
    ) -> list[Appended | StorageError]:
        """Append records of a transaction, whose coordinator is asked first. One outcome per part."""

    async def write_markers(
        self, marker: MarkerToWrite, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, MarkerResult]:
        """What became of the marker in each of these partitions."""


class BrokerService:
    """Handlers named after the RPCs, in snake_case. `call` is the transport's context and is not looked at."""

    def __init__(
        self,
        requests: RecordRequests,
        *,
        node_id: int,
        advertised: Callable[[], tuple[str, int]],
        room: Callable[[Any], int] = lambda call: ROOM,
        transactions: RecordTransactions | None = None,
    ) -> None:
        """`room` says, of a call, how many bytes its answer should have at most. `transactions`: None where the node
        coordinates none."""
        self.requests = requests
        self._room = room
        self._transactions = transactions
        self._broker = requests.broker
        self._node_id = node_id
        self._advertised = advertised

    # -- topics -------------------------------------------------------------------------------------------

    async def metadata(self, request: pb.MetadataRequest, call: object) -> pb.MetadataResponse:
        check_entry_count("topics", len(request.topics))
        host, port = self._advertised()
        topics = self._broker.topics()
        names = list(dict.fromkeys(request.topics))  # one of many partitions, named very often, has no room anywhere
        if request.all_topics:
            names = [name for name, topic in topics.items() if request.include_internal or not topic.internal]
        answer = pb.MetadataResponse(
            brokers=[pb.NodeMetadata(node_id=self._node_id, host=host, port=port)],
            cluster_id=self._broker.cluster_id,
        )

        def told() -> pb.MetadataResponse:
            for name in names:
                self._tell_topic(name, answer.topics.add(name=name))
            return answer

        there = [topic for name in names if (topic := topics.get(name)) is not None]
        return await make_aside(told, len(names) + sum(topic.partitions for topic in there))

    def _tell_topic(self, name: str, told: pb.TopicMetadata) -> None:
        """In any thread."""
        try:
            topic = self._broker.topic(name)
        except StorageError as error:
            told.error_code, told.error_message = error_code_of(error), str(error)
            return
        told.topic_id, told.is_internal = topic.id, topic.internal
        for number in range(topic.partitions):
            told.partitions.add(
                partition_index=number, leader_id=self._node_id, leader_epoch=self._leader_epoch(name, number)
            )

    def _leader_epoch(self, name: str, number: int) -> int:
        try:
            return self._broker.log(name, number).leader_epoch
        except StorageError:
            return -1

    async def create_topics(self, request: pb.CreateTopicsRequest, call: object) -> pb.CreateTopicsResponse:
        check_entry_count("topics", len(request.topics))
        check_unique("topic", [topic.name for topic in request.topics])
        if request.validate_only:
            return pb.CreateTopicsResponse(topics=await map_in_turns(self._check_topic, request.topics))
        wanted = [
            NewTopic(topic.name, self._count(topic), dict(topic.configs), requested_replicas(topic))
            for topic in request.topics
        ]
        made = await self.requests.topics.create(wanted)
        return pb.CreateTopicsResponse(
            topics=[
                _refused(topic.name, result)
                if isinstance(result, StorageError)
                else pb.TopicResult(name=topic.name, topic_id=result.id, num_partitions=result.partitions)
                for topic, result in zip(wanted, made, strict=True)
            ]
        )

    def _count(self, wanted: pb.NewTopic) -> int:
        count = wanted.num_partitions if wanted.HasField("num_partitions") else -1
        return self._broker.settings.num_partitions if count == -1 else count

    def _check_topic(self, wanted: pb.NewTopic) -> pb.TopicResult:
        count = self._count(wanted)
        try:
            self.requests.topics.check_new(
                NewTopic(wanted.name, count, dict(wanted.configs), requested_replicas(wanted))
            )
        except StorageError as error:
            return _refused(wanted.name, error)
        return pb.TopicResult(name=wanted.name, num_partitions=count)

    async def delete_topics(self, request: pb.DeleteTopicsRequest, call: object) -> pb.DeleteTopicsResponse:
        check_entry_count("topics", len(request.topic_names))
        asked = await map_in_turns(self._to_go, request.topic_names)
        failed = iter(await self.requests.topics.delete([each for each in asked if isinstance(each, Topic)]))
        return pb.DeleteTopicsResponse(
            topics=[
                _refused(name, next(failed) if isinstance(each, Topic) else each)
                for name, each in zip(request.topic_names, asked, strict=True)
            ]
        )

    def _to_go(self, name: str) -> Topic | StorageError:
        try:
            self._broker.check_writable(name)
            return self._broker.topic(name)
        except StorageError as error:
            return error

    async def create_partitions(self, request: pb.CreatePartitionsRequest, call: object) -> pb.CreatePartitionsResponse:
        check_entry_count("topics", len(request.topics))
        check_unique("topic", [topic.name for topic in request.topics])
        refused = await map_in_turns(self._may_not_grow, request.topics)
        growing = [
            (wanted.name, wanted.count) for wanted, no in zip(request.topics, refused, strict=True) if no is None
        ]
        grown = iter([] if request.validate_only else await self.requests.topics.grow(growing))
        results = []
        for wanted, no in zip(request.topics, refused, strict=True):
            outcome = no or next(grown, None)
            result = _refused(wanted.name, outcome if isinstance(outcome, StorageError) else None)
            result.num_partitions = wanted.count
            results.append(result)
        return pb.CreatePartitionsResponse(results=results)

    def _may_not_grow(self, wanted: pb.NewPartitions) -> StorageError | None:
        try:
            self._broker.check_writable(wanted.name)
            self.requests.topics.check_growth(MorePartitions(wanted.name, wanted.count))
        except StorageError as error:
            return error
        return None

    async def alter_configs(self, request: pb.AlterConfigsRequest, call: object) -> pb.AlterConfigsResponse:
        """Settings of topics; the node's own topics keep theirs."""
        check_entry_count("topics", len(request.topics))
        check_entry_count("configs", sum(len(topic.configs) + len(topic.unset) for topic in request.topics))
        check_unique("topic", [topic.topic for topic in request.topics])
        wanted = [(each.topic, {**each.configs, **dict.fromkeys(each.unset)}) for each in request.topics]
        refused = await map_in_turns(lambda one: self._may_not_change(*one), wanted)
        changing = [one for one, no in zip(wanted, refused, strict=True) if no is None]
        changed = iter([] if request.validate_only else await self.requests.topics.change(changing))
        results = []
        for (name, _), no in zip(wanted, refused, strict=True):
            outcome = no or next(changed, None)
            error = outcome if isinstance(outcome, StorageError) else None
            result = pb.AlteredConfigs(topic=name)
            if error is not None:
                result.error_code, result.error_message = error_code_of(error), str(error)
            results.append(result)
        return pb.AlterConfigsResponse(results=results)

    def _may_not_change(self, name: str, changes: Mapping[str, str | None]) -> StorageError | None:
        try:
            self._broker.check_writable(name)
            self._broker.plan_change(name, changes)
        except StorageError as error:
            return error
        return None

    async def describe_configs(self, request: pb.DescribeConfigsRequest, call: object) -> pb.DescribeConfigsResponse:
        check_entry_count("topics", len(request.topics))
        if not request.topics:
            entries = [*_entries(self._broker.settings), *self._transaction_entries()]
            return pb.DescribeConfigsResponse(results=[pb.DescribedConfigs(configs=entries)])
        answer, names = pb.DescribeConfigsResponse(), dict.fromkeys(request.topics)

        def told() -> pb.DescribeConfigsResponse:
            for name in names:
                answer.results.append(self._describe(name))
            return answer

        return await make_aside(told, DESCRIBED_ROWS * len(names))

    def _transaction_entries(self) -> Iterator[pb.ConfigEntry]:
        """What tools need to know in order to judge how long a transaction is open."""
        if self._transactions is not None:
            longest_ms = self._transactions.max_timeout_ms
            yield pb.ConfigEntry(
                name="transaction.max.timeout.ms",
                value=str(longest_ms),
                is_default=longest_ms == DEFAULT_MAX_TIMEOUT_MS,
                documentation="The longest transaction.timeout.ms that a producer may ask for.",
            )

    def _describe(self, name: str) -> pb.DescribedConfigs:
        """In any thread."""
        try:
            topic = self._broker.topic(name)
            settings = self._broker.topic_settings(name)
        except StorageError as error:
            return pb.DescribedConfigs(topic=name, error_code=error_code_of(error), error_message=str(error))
        return pb.DescribedConfigs(topic=name, configs=list(_entries(settings, set(topic.configs))))

    # -- produce ------------------------------------------------------------------------------------------

    async def produce(self, request: pb.ProduceRequest, call: object) -> pb.ProduceResponse:
        """Append all, then wait for durability together: one flush serves many produces."""
        check_entry_count("partitions", sum(len(topic.partition_data) for topic in request.topic_data))
        check_unique(
            "partition", [(topic.name, data.index) for topic in request.topic_data for data in topic.partition_data]
        )
        if request.timeout_ms < 0:
            raise MalformedRequest(f"timeout_ms is {request.timeout_ms}; expected 0 or more.")
        parts = [
            (topic.name, data.index, data.records) for topic in request.topic_data for data in topic.partition_data
        ]
        if request.transactional_id:
            results = await self._produce_in_transaction(request, parts)
        elif any(is_transactional(records) for _, _, records in parts):
            results = await self._produce_outside(request, parts)
        else:
            results = await self.requests.produce(parts, request.acks, request.timeout_ms)
        return await work_through(lambda: produce_response(request, results), len(results))

    async def _produce_in_transaction(
        self, request: pb.ProduceRequest, parts: Sequence[Batches]
    ) -> list[Appended | StorageError]:
        if self._transactions is None:
            refusal = TransactionsNotCoordinated(
                f"transactional_id '{request.transactional_id}' needs a transaction coordinator, which this node has "
                "none of. Leave it empty, and produce outside of transactions."
            )
            return [refusal for _ in parts]
        return await self._transactions.produce(request.transactional_id, parts, request.acks, request.timeout_ms)

    async def _produce_outside(
        self, request: pb.ProduceRequest, parts: Sequence[Batches]
    ) -> list[Appended | StorageError]:
        """Refuses records of a transaction whose id the request does not name: its right to that was not looked at."""
        refusal = TransactionsNotCoordinated(
            "Records of a transaction came without a transactional_id. Name the producer's in the request."
        )
        plain = [part for part in parts if not is_transactional(part[2])]
        found = iter(await self.requests.produce(plain, request.acks, request.timeout_ms))
        return [refusal if is_transactional(part[2]) else next(found) for part in parts]

    async def init_producer_id(self, request: pb.InitProducerIdRequest, call: object) -> pb.InitProducerIdResponse:
        """A fresh producer id, or the next epoch of a known one. Transactional ids are for the service Transactions."""
        try:
            if request.transactional_id:
                raise InvalidRequest(
                    f"transactional.id '{request.transactional_id}' is initialized by Transactions.InitProducerId. "
                    "Leave it empty for an idempotent producer."
                )
            known = request.producer_id if request.HasField("producer_id") else -1
            epoch = request.producer_epoch if request.HasField("producer_epoch") else -1
            producer_id, producer_epoch = self._broker.next_producer_id(known, epoch)
        except StorageError as error:
            return pb.InitProducerIdResponse(
                error_code=error_code_of(error), error_message=str(error), producer_id=-1, producer_epoch=-1
            )
        return pb.InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)

    # -- fetch --------------------------------------------------------------------------------------------

    async def fetch(self, request: pb.FetchRequest, call: object) -> bytes:
        """Long poll over partitions by topic. A FetchResponse, encoded (see `muster.storage.service.fetch_frames`)."""
        asked = [(topic.topic, part) for topic in request.topics for part in topic.partitions]
        parts = iter(await self._long_poll(asked, request, self._room(call)))
        return fetch_response((topic.topic, islice(parts, len(topic.partitions))) for topic in request.topics)

    async def multi_fetch(self, request: pb.MultiFetchRequest, call: object) -> bytes:
        """Long poll over a flat list of partitions, answered in that order. A MultiFetchResponse, encoded."""
        asked = [(part.topic, part) for part in request.fetches]
        return multi_fetch_response(await self._long_poll(asked, request, self._room(call)))

    async def _long_poll(
        self, asked: Sequence[Asked], request: pb.FetchRequest | pb.MultiFetchRequest, room: int
    ) -> list[FetchResultFrame]:
        check_entry_count("partitions", len(asked))
        check_unique("partition", [(topic, part.partition) for topic, part in asked])
        for name in ("max_wait_ms", "min_bytes", "max_bytes", "isolation_level"):
            if getattr(request, name) < 0:
                raise MalformedRequest(f"{name} is {getattr(request, name)}; expected 0 or more.")
        bounds = FetchLimits(
            min_bytes=min(request.min_bytes, room),
            max_bytes=min(request.max_bytes or ROOM, room),  # what is waited for has to fit, too
            committed=request.isolation_level == READ_COMMITTED,
        )
        places: list[FetchPosition] = []
        refused: dict[int, StorageError | Divergence] = {}
        for turn, (topic, part) in enumerate(asked):
            if (refusal := find_epoch_mismatch(self._broker, topic, part)) is not None:
                refused[turn] = refusal
            else:
                places.append((topic, part.partition, part.fetch_offset, part.partition_max_bytes))
        # A refusal is news: it is not held back until others have records.
        found = iter(await self.requests.fetch(places, bounds, 0 if refused else request.max_wait_ms))
        return [
            fetch_result(topic, part.partition, refused[turn] if turn in refused else next(found))
            for turn, (topic, part) in enumerate(asked)
        ]

    # -- offsets ------------------------------------------------------------------------------------------

    async def list_offsets(self, request: pb.ListOffsetsRequest, call: object) -> pb.ListOffsetsResponse:
        check_entry_count("partitions", sum(len(topic.partitions) for topic in request.topics))
        asked = [(topic.name, part) for topic in request.topics async for part in iterate_in_turns(topic.partitions)]
        committed = request.isolation_level == READ_COMMITTED
        listed = await map_here_or_off_loop(
            lambda one: self._list(*one, committed), asked, lambda one: is_known_timestamp(one[1].timestamp)
        )
        results = iter(listed)

        def told() -> pb.ListOffsetsResponse:
            response = pb.ListOffsetsResponse()
            for topic in request.topics:
                line = response.topics.add(name=topic.name)
                for result in islice(results, len(topic.partitions)):
                    line.partitions.append(result)
            return response

        return await make_aside(told, len(listed))

    def _list(self, topic: str, part: pb.ListOffsetsPartition, committed: bool) -> pb.ListOffsetsPartitionResult:
        result = pb.ListOffsetsPartitionResult(partition_index=part.partition_index, offset=-1, timestamp=-1)
        try:
            result.offset, result.timestamp, _ = self.requests.list_offset(
                topic, part.partition_index, part.timestamp, committed=committed
            )
        except StorageError as error:
            result.error_code, result.error_message = error_code_of(error), str(error)
        return result

    async def delete_records(self, request: pb.DeleteRecordsRequest, call: object) -> pb.DeleteRecordsResponse:
        asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
        check_entry_count("partitions", len(asked))
        wanted = [(topic, part.partition_index, part.offset) for topic, part in asked]
        done = await self.requests.delete_records(wanted, DELETE_RECORDS_MS)
        results = iter(_given_up(one[1], outcome) for one, outcome in zip(wanted, done, strict=True))
        response = pb.DeleteRecordsResponse()
        for topic in request.topics:
            response.topics.add(name=topic.name, partitions=islice(results, len(topic.partitions)))
        return response

    # -- producers ----------------------------------------------------------------------------------------

    async def describe_producers(
        self, request: pb.DescribeProducersRequest, call: object
    ) -> pb.DescribeProducersResponse:
        """The producers that each log knows; searched off the loop."""
        asked = [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
        check_entry_count("partitions", len(asked))
        found = await map_off_loop(self._producers, asked)
        weight = sum(len(each.active_producers) for each in found)
        return await make_aside(lambda: described_producers(request, found), weight)

    def _producers(self, place: TopicPartition) -> pb.DescribeProducersPartitionResult:
        """Of one partition. In any thread."""
        try:
            known = self._broker.log(*place).list_producers()
        except StorageError as error:
            return pb.DescribeProducersPartitionResult(
                partition_index=place[1], error_code=error_code_of(error), error_message=str(error)
            )
        return pb.DescribeProducersPartitionResult(
            partition_index=place[1],
            active_producers=[
                pb.ProducerStateEntry(
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    last_sequence=each.last_sequence,
                    last_timestamp_ms=each.last_timestamp,
                    coordinator_epoch=each.coordinator_epoch,
                    current_txn_start_offset=each.txn_first_offset,
                )
                for each in known
            ],
        )

    async def write_txn_markers(self, request: pb.WriteTxnMarkersRequest, call: object) -> pb.WriteTxnMarkersResponse:
        """Aborts what the producer has open in these logs; a transaction that is not hanging is torn by it (TX-C17)."""
        places = [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
        check_entry_count("partitions", len(places))
        check_unique("partition", places)
        for name, most in (("producer_id", LAST_PRODUCER_ID), ("producer_epoch", LAST_EPOCH)):
            if not 0 <= getattr(request, name) <= most:
                raise MalformedRequest(f"{name} is {getattr(request, name)}; expected 0 to {most}.")
        if request.coordinator_epoch < 0:
            raise MalformedRequest(f"coordinator_epoch is {request.coordinator_epoch}; expected 0 or more.")
        if self._transactions is None:
            none = TransactionsNotCoordinated("No marker is written here: this node coordinates no transactions.")
            written: Mapping[TopicPartition, MarkerResult] = dict.fromkeys(places, (none.code, str(none)))
        else:
            marker = MarkerToWrite(
                request.producer_id, request.producer_epoch, commit=False, coordinator_epoch=request.coordinator_epoch
            )
            written = await self._transactions.write_markers(marker, places)
        response = pb.WriteTxnMarkersResponse()
        for topic in request.topics:
            answer = response.topics.add(name=topic.name)
            for number in topic.partition_indexes:
                code, message = written[topic.name, number]
                row = answer.partitions.add(partition_index=number, error_message=message)
                row.error_code = numbered(code)
        return response


def described_producers(
    request: pb.DescribeProducersRequest, found: Sequence[pb.DescribeProducersPartitionResult]
) -> pb.DescribeProducersResponse:
    results = iter(found)
    response = pb.DescribeProducersResponse()
    for topic in request.topics:
        response.topics.add(name=topic.name, partitions=islice(results, len(topic.partition_indexes)))
    return response


def _given_up(partition: int, outcome: int | StorageError) -> pb.DeleteRecordsPartitionResult:
    if isinstance(outcome, StorageError):
        return pb.DeleteRecordsPartitionResult(
            partition_index=partition, low_watermark=-1, error_code=error_code_of(outcome), error_message=str(outcome)
        )
    return pb.DeleteRecordsPartitionResult(partition_index=partition, low_watermark=outcome)


def requested_replicas(wanted: pb.NewTopic) -> int:
    return wanted.replication_factor if wanted.HasField("replication_factor") else DEFAULT


def _refused(name: str, error: StorageError | None) -> pb.TopicResult:
    """What came of a topic; nothing speaks against it without an error."""
    if error is None:
        return pb.TopicResult(name=name)
    return pb.TopicResult(name=name, error_code=error_code_of(error), error_message=str(error))


def _entries(settings: LogSettings | TopicSettings, given: set[str] | None = None) -> Iterator[pb.ConfigEntry]:
    for name, field in type(settings).model_fields.items():
        if not field.repr:
            continue  # it holds settings by other names, secrets among them
        alias = field.alias or name
        value = getattr(settings, name)
        standard = alias not in given if given is not None else value == field.default
        text = shown_setting(settings, alias, name) or ""
        yield pb.ConfigEntry(name=alias, value=text, is_default=standard, documentation=field.description or "")
