"""Produce and Fetch. Readable batches enter the log unchanged, and leave it as they are stored.

Fetch versions 0 to 3 (before Kafka 0.11) get older message formats, and Produce versions 0 to 2 bring them; both are
converted off the event loop. Current clients do not pay for that: they use the highest version that both sides know.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from muster.coordinator.kafka.codec.codec import encode
from muster.coordinator.kafka.dispatch import EncodedAnswer, FutureAnswer, HangUp, KafkaCall
from muster.coordinator.kafka.handlers.departed_readers import DepartedReaders
from muster.coordinator.kafka.handlers.single_batch_produce import SingleBatch
from muster.coordinator.kafka.handlers.transactions import TransactionGate
from muster.coordinator.kafka.protocol import FetchSessionIdNotFound, refuse_replica, refuse_transactions
from muster.long_work import AT_ONCE
from muster.storage.broker.broker import Divergence, check_epoch, check_history
from muster.storage.broker.fetches import FetchLimits, FetchPosition, FetchRead
from muster.storage.broker.requests import ACKS_NONE, Batches, Guards, LogRequests, partition_outcome, refused_partition
from muster.storage.errors import InvalidRecord, StorageError, UnsupportedCompressionType
from muster.storage.files import Buffer
from muster.storage.records.message_conversion import MAX_UNPACKED_BYTES, convert_down, convert_up, is_message_set
from muster.storage.types import AbortedTransaction, Appended, Fetched

# Fetch before Kafka 0.11
# -----------------------

CURRENT_FORMAT_SINCE: Final = 4
"""From this version on batches leave as they lie on disk."""
MAGIC_1_SINCE: Final = 2

MAX_CONVERTED_BYTES: Final = 55 << 20
"""Bytes of messages in one answer, beside the one message that a partition may have more."""

MAX_REPEATED_FETCHES: Final = 100
"""So many times a partition is read on where nothing but emptied batches lay."""


class ConvertibleResponse(Protocol):
    """What is looked at of an answer."""

    @property
    def responses(self) -> Sequence[Any]: ...


AnyFetchResponse = TypeVar("AnyFetchResponse", bound=ConvertibleResponse)


async def convert_to_older_format(
    answer: AnyFetchResponse, request: Any, call: KafkaCall, again: Callable[[Any], Awaitable[AnyFetchResponse]]
) -> AnyFetchResponse:
    """The answer in the request's format, converted off the loop. `again` fetches for a request that was moved on."""
    magic = int(call.api_version >= MAGIC_1_SINCE)
    for _ in range(MAX_REPEATED_FETCHES):
        parts = [
            (asked, part)
            for topic, told in zip(request.topics, answer.responses, strict=True)
            for asked, part in zip(topic.partitions, told.partitions, strict=True)
        ]
        if not any(len(part.records) for _, part in parts):
            break
        if not await asyncio.to_thread(_convert, parts, magic, min(request.max_bytes, MAX_CONVERTED_BYTES)):
            break
        answer = await again(request)
    return answer


def _convert(parts: list[tuple[Any, Any]], magic: int, room: int) -> bool:
    """Put older messages in place of the batches; whether all were empty, and the request now asks behind them."""
    moved = False
    found = 0
    for asked, part in parts:
        if not len(part.records):
            continue
        most = max(asked.partition_max_bytes, 1)
        try:
            if found >= room:
                part.records = b""
                continue
            part.records, reached = convert_down(part.records, magic, asked.fetch_offset, min(most, room - found))
        except StorageError as damaged:
            part.error_code, part.records = damaged.code, b""
            continue
        found += len(part.records)
        if not part.records and reached > asked.fetch_offset:
            asked.fetch_offset, moved = reached, True
    return moved and not found


# Produce before Kafka 0.11
# -------------------------

CURRENT_FORMAT_PRODUCED_SINCE: Final = 3
"""From this version of Produce on records come as batches of magic 2."""

CONVERTED_AT_A_TIME: Final = 2
"""Requests that are converted at a time; others wait for their turn, each with its connection."""

RefusedPlaces: TypeAlias = dict[int, StorageError]
"""By the place in the request."""


def convert_to_current_format(request: Any) -> tuple[int, RefusedPlaces]:
    """Put batches of magic 2 in place of the request's messages; how many partitions there were, and what could not be
    converted. In all they may unpack to MAX_UNPACKED_BYTES."""
    converted, room = 0, MAX_UNPACKED_BYTES
    refused: RefusedPlaces = {}
    for place, (_, data) in enumerate(iterate_partitions(request.topic_data, "partition_data")):
        if data.records is None or not is_message_set(data.records):
            continue  # what else there may be is for the log to judge
        try:
            data.records, taken = convert_up(data.records, room)
        except StorageError as error:
            refused[place] = error
            continue
        converted, room = converted + 1, room - taken
    return converted, refused


# Produce and Fetch
# -----------------

READ_COMMITTED: Final = 1
ZSTD: Final = 4
ZSTD_SINCE: Final = 7
"""The first version of Produce in which zstd may come (KIP-110)."""

# Of a batch's header: where its length, its magic and its attributes lie, and what the attributes say.
_LENGTH, _MAGIC, _ATTRIBUTES = slice(8, 12), 16, slice(21, 23)
_BEFORE_LENGTH_ENDS = 12
_CODEC, _TRANSACTIONAL = 0x07, 0x10


@dataclass(slots=True)
class RecordError:
    """A record for whose sake its batch was refused (KIP-467)."""

    batch_index: int
    batch_index_error_message: str


@dataclass(slots=True)
class ProducedPartition:
    """One partition of a ProduceResponse."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None


@dataclass(slots=True)
class ProducedTopic:
    name: str
    partition_responses: list[ProducedPartition]


@dataclass(slots=True)
class ProduceResponse:
    responses: list[ProducedTopic]


@dataclass(frozen=True, slots=True)
class DivergingEpoch:
    epoch: int = -1
    end_offset: int = -1


AS_ONE: Final = DivergingEpoch()


@dataclass(frozen=True, slots=True)
class CurrentLeader:
    leader_id: int
    leader_epoch: int


@dataclass(slots=True)
class FetchResponsePartition:
    """One partition of a FetchResponse."""

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    records: Buffer = b""
    diverging_epoch: DivergingEpoch = AS_ONE


@dataclass(slots=True)
class MovedPartition(FetchResponsePartition):
    """One that is refused because another node leads it, or leads it in a later epoch by now."""

    current_leader: CurrentLeader | None = None


@dataclass(slots=True)
class FetchedTopic:
    topic: str
    partitions: list[FetchResponsePartition]


@dataclass(slots=True)
class FetchResponse:
    """Session id 0 tells every client that it has to name all its partitions each time (KIP-227)."""

    responses: list[FetchedTopic] = field(default_factory=list)
    error_code: int = 0


class RecordHandlers:
    """Handlers of the records' APIs over a node's `LogRequests`. `departed` is shown who fetches what. `gate` asks for
    the first records of a transaction; None where no transactions are coordinated."""

    def __init__(
        self,
        requests: LogRequests,
        departed: DepartedReaders | None = None,
        gate: TransactionGate | None = None,
        conversions: Counter[str] | None = None,
    ) -> None:
        self._requests = requests
        self._departed = departed
        self._gate = gate
        self._conversions = Counter[str]() if conversions is None else conversions
        self._converting = asyncio.Semaphore(CONVERTED_AT_A_TIME)

    # -- produce ------------------------------------------------------------------------------------------

    def produce_now(self, request: Any, call: KafkaCall) -> FutureAnswer | None:
        """Append everything in order, then answer when it is as durable as its topics promise; None with acks=0.

        HangUp when something could not be appended and no answer is wanted: as in Kafka, only that tells the client.
        Records for very many partitions go the long way, and so do the first ones of a transaction.
        """
        if isinstance(request, SingleBatch):
            return self._produce_single(request, call)
        if count_produced_partitions(request) > AT_ONCE or call.api_version < CURRENT_FORMAT_PRODUCED_SINCE:
            return None
        parts, refused = split_refused_batches(request, call.api_version, self._gate is not None)
        if request.transactional_id is not None and self._gate is not None and not self._gate.is_open(parts):
            return None
        begun = self._requests.begin_produce(parts, request.acks, max(request.timeout_ms, 0))

        def respond() -> ProduceResponse | None:
            return make_produce_response(request, merge_refusals([partition_outcome(part) for part in begun], refused))

        return FutureAnswer(begun[0] if len(begun) == 1 else asyncio.gather(*begun, return_exceptions=True), respond)

    async def produce(self, request: Any, call: KafkaCall) -> ProduceResponse | EncodedAnswer | None:
        """The same for very many partitions: they are taken in some at a time, and a thread makes the answer."""
        if request.transactional_id is not None and self._gate is not None:
            return await self._produce_first(request, call, self._gate)
        unread = await self._convert_up(request) if call.api_version < CURRENT_FORMAT_PRODUCED_SINCE else {}
        parts, refused = await asyncio.to_thread(split_refused_batches, request, call.api_version, False, unread)
        results = await self._requests.produce(parts, request.acks, max(request.timeout_ms, 0))

        def answer() -> EncodedAnswer | None:
            told = make_produce_response(request, merge_refusals(results, refused))
            return None if told is None else EncodedAnswer(encode("ProduceResponse", call.api_version, told))

        return await asyncio.to_thread(answer)

    async def _convert_up(self, request: Any) -> RefusedPlaces:
        async with self._converting:
            converted, unread = await asyncio.to_thread(convert_to_current_format, request)
        self._conversions["Produce"] += converted
        return unread

    async def _produce_first(self, request: Any, call: KafkaCall, gate: TransactionGate) -> ProduceResponse | None:
        """Records that begin a transaction in their logs: its coordinator is asked for each of them."""
        parts, refused = split_refused_batches(request, call.api_version, True)

        def begin(let_in: Sequence[Batches], guards: Guards) -> "list[asyncio.Future[Appended]]":
            return self._requests.begin_produce(let_in, request.acks, max(request.timeout_ms, 0), guards)

        results = await gate.append_first(request.transactional_id, parts, call.api_version, begin)
        return make_produce_response(request, merge_refusals(results, refused))

    def _produce_single(self, request: SingleBatch, call: KafkaCall) -> FutureAnswer:
        refusal = check_batches(request.records, None, call.api_version)
        if refusal is None:
            part = (request.topic, request.index, request.records)
            (begun,) = self._requests.begin_produce((part,), request.acks, max(request.timeout_ms, 0))
        else:
            begun = refused_partition(refusal)

        def respond() -> ProduceResponse | EncodedAnswer | None:
            result = partition_outcome(begun)
            if isinstance(result, StorageError) or request.acks == ACKS_NONE:
                return make_produce_response(request, [result])
            return EncodedAnswer([request.answer(result)])

        return FutureAnswer(begun, respond)

    # -- fetch --------------------------------------------------------------------------------------------

    def fetch_now(self, request: Any, call: KafkaCall) -> FetchResponse | None:
        """The answer if it need not wait, for records, for the disk, for others or for an older format."""
        if call.api_version < CURRENT_FORMAT_SINCE:
            return None
        if (refused := refuse_fetch(request)) is not None:
            return refused
        self._note_fetch(request, call)
        places, fenced = self._places(request)
        reading = self._requests.begin_fetch(places, fetch_bounds(request))
        if reading.done and (reading.enough or not may_wait(request, places, fenced)):
            return make_fetch_records_response(request, reading.results, fenced)
        call.begun = reading
        return None

    async def fetch(self, request: Any, call: KafkaCall) -> FetchResponse:
        """Answer when there is enough to read, when a partition refuses, or when the client's patience is over."""
        begun, call.begun = call.begun, None
        if begun is None:
            self._note_fetch(request, call)
        answer = await self._whenever(request, begun)
        if call.api_version >= CURRENT_FORMAT_SINCE:
            return answer
        self._conversions["Fetch"] += sum(len(topic.partitions) for topic in answer.responses)
        return await convert_to_older_format(answer, request, call, self._whenever)

    def _note_fetch(self, request: Any, call: KafkaCall) -> None:
        if self._departed is not None and self._departed.by_names:
            self._departed.fetched(request, call)

    async def _whenever(self, request: Any, begun: FetchRead | None = None) -> FetchResponse:
        if (refused := refuse_fetch(request)) is not None:
            return refused
        places, fenced = self._places(request)
        patience_ms = request.max_wait_ms if may_wait(request, places, fenced) else 0
        found = await self._requests.fetch(places, fetch_bounds(request), patience_ms, begun)
        return make_fetch_records_response(request, found, fenced)

    def _places(self, request: Any) -> tuple[list[FetchPosition], dict[int, StorageError | Divergence]]:
        """Where to read, and why not, by the place in the request."""
        places: list[FetchPosition] = []
        fenced: dict[int, StorageError | Divergence] = {}
        for place, (topic, part) in enumerate(iterate_partitions(request.topics, "partitions")):
            refusal = self._fenced(topic.topic, part)
            if refusal is not None:
                fenced[place] = refusal
            else:
                places.append((topic.topic, part.partition, part.fetch_offset, max(part.partition_max_bytes, 1)))
        return places, fenced

    def _fenced(self, topic: str, part: Any) -> StorageError | Divergence | None:
        """Why the client's idea of the partition's leader, or of what it has read, is not the log's (KIP-320, 595)."""
        broker = self._requests.broker
        refusal = check_epoch(broker, topic, part.partition, part.current_leader_epoch)
        if refusal is not None or part.last_fetched_epoch < 0:
            return refusal
        return check_history(broker, topic, part.partition, part.fetch_offset, part.last_fetched_epoch)


def count_produced_partitions(request: Any) -> int:
    """How many a ProduceRequest has records for."""
    return sum(len(topic.partition_data) for topic in request.topic_data)


def split_refused_batches(
    request: Any, version: int, transactional: bool, unread: Mapping[int, StorageError] | None = None
) -> tuple[list[Batches], RefusedPlaces]:
    """What of a ProduceRequest is for the log to judge, and what is refused.

    transactional: whether transactions are coordinated here. unread: what is refused in any case.
    """
    parts: list[Batches] = []
    refused = dict(unread or {})
    for place, (topic, data) in enumerate(iterate_partitions(request.topic_data, "partition_data")):
        if place in refused:
            continue
        refusal = check_batches(data.records, request.transactional_id, version, transactional)
        if refusal is not None:
            refused[place] = refusal
        else:
            parts.append((topic.name, data.index, data.records))
    return parts, refused


def merge_refusals(
    results: Sequence[Appended | StorageError], refused: Mapping[int, StorageError]
) -> list[Appended | StorageError]:
    """The results of all places, in the request's order."""
    judged = iter(results)
    return [refused[place] if place in refused else next(judged) for place in range(len(results) + len(refused))]


def make_produce_response(request: Any, results: Sequence[Appended | StorageError]) -> ProduceResponse | None:
    if request.acks == ACKS_NONE:
        for result in results:
            if isinstance(result, StorageError):
                raise HangUp(f"a produce with acks=0 was refused: {result}")
        return None
    remaining = iter(results)
    return ProduceResponse(
        [
            ProducedTopic(topic.name, [produced_row(data.index, next(remaining)) for data in topic.partition_data])
            for topic in request.topic_data
        ]
    )


def may_wait(request: Any, places: Sequence[FetchPosition], fenced: Mapping[int, object]) -> bool:
    """Whether to wait where too little is found. A refusal is news: it is not held back until others have records."""
    return request.max_wait_ms > 0 and bool(places) and not fenced


def fetch_bounds(request: Any) -> FetchLimits:
    return FetchLimits(request.min_bytes, max(request.max_bytes, 1), request.isolation_level == READ_COMMITTED)


def make_fetch_records_response(
    request: Any, found: Sequence[Fetched | StorageError], fenced: Mapping[int, StorageError | Divergence]
) -> FetchResponse:
    committed = request.isolation_level == READ_COMMITTED
    results: list[Fetched | StorageError | Divergence] = list(found)
    for place, refusal in fenced.items():  # in rising order, so that each finds its place
        results.insert(place, refusal)
    remaining = iter(results)
    return FetchResponse(
        [
            FetchedTopic(
                topic.topic, [fetched_row(part.partition, next(remaining), committed) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def refuse_fetch(request: Any) -> FetchResponse | None:
    """The answer to a fetch of which nothing is looked at; as Kafka gives it, once for all, and to who calls itself a
    replica for each partition as well, which is where older clients look."""
    if request.session_id:
        return FetchResponse(error_code=FetchSessionIdNotFound.code)
    refusal = refuse_replica(request.replica_id)
    if refusal is None:
        return None
    rows = [
        FetchedTopic(topic.topic, [FetchResponsePartition(part.partition, refusal.code) for part in topic.partitions])
        for topic in request.topics
    ]
    return FetchResponse(rows, refusal.code)


def iterate_partitions(topics: list[Any], within: str) -> Iterator[tuple[Any, Any]]:
    """Each partition with its topic, in the request's order."""
    for topic in topics:
        for each in getattr(topic, within):
            yield topic, each


def check_batches(
    records: memoryview | None, transactional_id: str | None, version: int, transactional: bool = False
) -> StorageError | None:
    """Why the batches may not come in by this door; None if the log is to judge. Only one header is read."""
    if transactional_id is not None and not transactional:
        return refuse_transactions(transactional_id)
    if not records:
        return InvalidRecord("A partition came without records; expected one record batch.")
    if len(records) < _ATTRIBUTES.stop or records[_MAGIC] < 2:
        return None
    if int.from_bytes(records[_LENGTH], "big") + _BEFORE_LENGTH_ENDS < len(records):
        return InvalidRecord("A partition came with more than one record batch; expected exactly one.")
    attributes = int.from_bytes(records[_ATTRIBUTES], "big")
    if attributes & _TRANSACTIONAL and transactional_id is None:
        # Nobody would ever end the transaction that this began.
        return refuse_transactions("")
    if attributes & _CODEC == ZSTD and version < ZSTD_SINCE:
        return UnsupportedCompressionType(
            f"Produce version {version} cannot carry zstd; expected version {ZSTD_SINCE} or later. "
            "Use a newer client or another compression.type."
        )
    return None


def produced_row(index: int, result: Appended | StorageError) -> ProducedPartition:
    if isinstance(result, Appended):
        base, _, append_time, log_start = result
        return ProducedPartition(index, 0, base, append_time, log_start)
    at_fault = [RecordError(place, why) for place, why in result.record_errors]
    return ProducedPartition(index, result.code, record_errors=at_fault, error_message=str(result))


def fetched_row(partition: int, found: Fetched | StorageError | Divergence, committed: bool) -> FetchResponsePartition:
    if isinstance(found, StorageError):
        if found.leader_epoch < 0:
            return FetchResponsePartition(partition, found.code)
        leader = CurrentLeader(found.leader, found.leader_epoch)
        return MovedPartition(partition, found.code, current_leader=leader)
    if isinstance(found, Divergence):
        epoch, end, high_watermark, stable, log_start = found
        parted = DivergingEpoch(epoch, end)
        return FetchResponsePartition(partition, 0, high_watermark, stable, log_start, diverging_epoch=parted)
    records, high_watermark, log_start, stable, aborted = found
    return FetchResponsePartition(
        partition, 0, high_watermark, stable, log_start, aborted if committed else None, records
    )
