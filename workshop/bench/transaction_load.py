"""Transactional producers by Kafka's protocol, level 2 and 0, and logs as transactions leave them.

The producers are lean: an epoch, sequences, and requests that are bytes. What they cost is small beside the node's.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from muster.client.aio.producer import AsyncProducer
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.runtime.transaction_records import TRANSACTIONS_TOPIC
from muster.coordinator.runtime.transaction_shards import BrokerTransactionLog, encode_transactions, transaction_topic
from muster.coordinator.transactions.records import TransactionState, TransactionStored
from muster.storage.broker.broker import Broker
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.records.batch import encode_batch
from muster.workshop.bench.kafka_load import LoadConnection
from muster.workshop.bench.processes import BenchFailed

TOPIC: Final = "bench"
TIMEOUT_MS: Final = 60_000
VALUE: Final = bytes(100)
CREATE, FIND, INIT, ADD, PRODUCE, END, PLAIN_END = 4, 3, 4, 3, 12, 5, 3
ADD_OFFSETS, SEND_OFFSETS = 3, 2
"""Versions. The plain ones are those of level 0."""
ACKS_ALL: Final = -1

AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
TRIES: Final = 1_000


# Producers
# ---------


class WireProducer:
    """One producer on a connection of its own; without a name it is idempotent only."""

    def __init__(self, line: LoadConnection, transactional_id: str | None) -> None:
        self._line = line
        self._id = transactional_id
        self._producer_id = self._epoch = -1
        self._sequences: dict[int, int] = {}

    async def begin_life(self, timeout_ms: int = TIMEOUT_MS) -> None:
        """Get a producer id. timeout_ms: of each transaction. Raises BenchFailed."""
        if self._id is not None:
            await self._line.send_request(
                "FindCoordinator", FIND, struct("FindCoordinatorRequest")(key=self._id, key_type=1)
            )
        asked = struct("InitProducerIdRequest")(transactional_id=self._id, transaction_timeout_ms=timeout_ms)
        answer = await self._until_taken("InitProducerId", INIT, asked)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def send(self, records: Mapping[int, int]) -> None:
        """So many records to each of these partitions, in one request. Raises BenchFailed."""
        part = struct("ProduceRequest.topic_data.partition_data")
        data = struct("ProduceRequest.topic_data")(
            name=TOPIC,
            partition_data=[
                part(index=number, records=self._batch(number, count)) for number, count in records.items()
            ],
        )
        asked = struct("ProduceRequest")(
            transactional_id=self._id, acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[data]
        )
        await self._until_taken("Produce", PRODUCE, asked)
        for number, count in records.items():
            self._sequences[number] = self._sequences.get(number, 0) + count

    async def commit(self) -> None:
        """End the transaction. The answer has the epoch of the next one. Raises BenchFailed."""
        asked = struct("EndTxnRequest")(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=True
        )
        answer = await self._until_taken("EndTxn", END, asked)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    async def pass_empty_handed(self) -> None:
        """A whole transaction of level 0 that adds a partition, writes nothing and commits. Raises BenchFailed."""
        await self.add_partitions(TOPIC, 1)
        await self.commit_plainly()

    async def add_partitions(self, topic: str, partitions: int) -> None:
        """The first ones of a topic, in one request. Raises BenchFailed."""
        row = struct("AddPartitionsToTxnRequest.topics")(name=topic, partitions=list(range(partitions)))
        added = struct("AddPartitionsToTxnRequest")(topics=[row], **self._who)
        await self._until_taken("AddPartitionsToTxn", ADD, added)

    async def send_positions(self, group_id: str, topic: str, partitions: int) -> None:
        """A group's positions in the first partitions of a topic, in one request. Raises BenchFailed."""
        joined = struct("AddOffsetsToTxnRequest")(group_id=group_id, **self._who)
        await self._until_taken("AddOffsetsToTxn", ADD_OFFSETS, joined)
        row = struct("TxnOffsetCommitRequest.topics.partitions")
        rows = [row(partition_index=number, committed_offset=1, committed_metadata="") for number in range(partitions)]
        named = struct("TxnOffsetCommitRequest.topics")(name=topic, partitions=rows)
        sent = struct("TxnOffsetCommitRequest")(group_id=group_id, topics=[named], **self._who)
        await self._until_taken("TxnOffsetCommit", SEND_OFFSETS, sent)

    async def is_committed(self) -> bool:
        """Whether the transaction that was committed at level 0 is complete. Raises BenchFailed."""
        again = struct("EndTxnRequest")(committed=True, **self._who)
        code: int = (await self._line.send_request("EndTxn", PLAIN_END, again)).error_code
        if code and code not in AGAIN:
            raise BenchFailed(f"EndTxn of producer {self._id!r} was answered {code}; no healthy node does that")
        return not code

    async def commit_plainly(self) -> None:
        """At level 0: the epoch stays. Raises BenchFailed."""
        await self._until_taken("EndTxn", PLAIN_END, struct("EndTxnRequest")(committed=True, **self._who))

    @property
    def _who(self) -> dict[str, object]:
        return {"transactional_id": self._id, "producer_id": self._producer_id, "producer_epoch": self._epoch}

    def _batch(self, partition: int, records: int) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        return encode_batch(
            [(now_ms, None, VALUE, ())] * records,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.get(partition, 0),
            transactional=self._id is not None,
        )

    async def _until_taken(self, api: str, version: int, asked: object) -> Any:
        """Ask again as clients do: the coordinator may still be writing markers."""
        code: int = ErrorCode.NONE
        for _ in range(TRIES):
            answer = await self._line.send_request(api, version, asked)
            code = next((code for code in codes_of(api, answer) if code), ErrorCode.NONE)
            if code not in AGAIN:
                break
        if code:
            raise BenchFailed(f"{api} of producer {self._id!r} was answered {code}; no healthy node does that")
        return answer


class ClientProducer:
    """Our own client's producer, by the same calls."""

    def __init__(self, address: str, transactional_id: str | None) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": address, "linger.ms": 0}
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        self._producer = AsyncProducer(settings)
        self._transactional = transactional_id is not None
        self._open = False

    async def begin_life(self) -> None:
        if self._transactional:
            await self._producer.init_transactions()

    async def send(self, records: Mapping[int, int]) -> None:
        """So many records to each of these partitions, and wait for them."""
        if self._transactional and not self._open:
            await self._producer.begin()
            self._open = True
        for partition, count in records.items():
            for _ in range(count):
                await self._producer.produce(TOPIC, VALUE, partition=partition)
        if not self._transactional:  # a commit flushes by itself
            await self._producer.flush()

    async def commit(self) -> None:
        await self._producer.commit()
        self._open = False

    async def close(self) -> None:
        await self._producer.close()


def codes_of(api: str, answer: Any) -> Iterator[int]:
    match api:
        case "Produce":
            yield from (part.error_code for topic in answer.responses for part in topic.partition_responses)
        case "AddPartitionsToTxn":
            yield from (part.partition_error_code for topic in answer.results for part in topic.results_by_partition)
        case "TxnOffsetCommit":
            yield from (part.error_code for topic in answer.topics for part in topic.partitions)
        case _:
            yield answer.error_code


async def create_topic(line: LoadConnection, partitions: int) -> None:
    wanted = struct("CreateTopicsRequest.topics")(name=TOPIC, num_partitions=partitions, replication_factor=1)
    await line.send_request(
        "CreateTopics", CREATE, struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=TIMEOUT_MS)
    )


# Logs as they are after a while
# ------------------------------


def write_known_producers(broker: Broker, producers: int, records: int, now_ms: int) -> None:
    """One partition with so many records, ten in a batch, and that many producers, each of which wrote one of them."""
    broker.create_topic(TOPIC, 1)
    batch = [(now_ms, None, VALUE, ())]
    for number in range(producers):
        broker.append(TOPIC, 0, encode_batch(batch, producer_id=number, producer_epoch=0, base_sequence=0), now_ms)
    for _ in range(max(0, records - producers) // 10):
        broker.append(TOPIC, 0, encode_batch(batch * 10), now_ms)


def write_transactions(broker: Broker, transactions: int, records: int, aborted: int, now_ms: int) -> None:
    """One partition of transactions of so many records each; `aborted` of every two are aborted."""
    broker.create_topic(TOPIC, 1)
    log, batch = broker.log(TOPIC, 0), [(now_ms, None, VALUE, ())] * records
    for number in range(transactions):
        data = encode_batch(batch, producer_id=7, producer_epoch=number, base_sequence=0, transactional=True)
        log.append(data, now_ms, guard=log.make_guard(7, number, sequence=0, level=2))
        commit = number % 2 >= aborted
        log.append_marker(MarkerToWrite(7, number + 1, commit, coordinator_epoch=0, level=2), now_ms)
    broker.flush()


def write_decided(broker: Broker, partitions: int, now_ms: int) -> None:
    """What a kill leaves of a transaction over that many partitions whose commit is decided, and not written yet."""
    broker.create_topic(TOPIC, partitions)
    make_transaction_topic(broker, 1)
    for number in range(partitions):
        log = broker.log(TOPIC, number)
        batch = encode_batch(
            [(now_ms, None, VALUE, ())], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        log.append(batch, now_ms, guard=log.make_guard(7, 0, sequence=0, level=2))
    places = {TOPIC: tuple(range(partitions))}
    state = TransactionState.PREPARE_COMMIT
    decided = TransactionStored("bench", 7, 1, TIMEOUT_MS, state, places, now_ms, now_ms, 7, -1, 2)
    BrokerTransactionLog(broker).append(0, encode_transactions([decided]).groups, [], now_ms)
    broker.flush()


def write_ids(broker: Broker, ids: int, records: int, shards: int, now_ms: int) -> None:
    """So many records of so many transactional ids, spread over the shards as they come."""
    make_transaction_topic(broker, shards)
    log = BrokerTransactionLog(broker)
    cycle = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    for number in range(records):
        state = cycle[number // ids % len(cycle)]
        places = {} if state is TransactionState.COMPLETE_COMMIT else {TOPIC: (0, 1)}
        name, epoch = f"producer-{number % ids}", number // ids // len(cycle)
        stored = TransactionStored(
            name, number % ids, epoch, TIMEOUT_MS, state, places, now_ms, now_ms, number % ids, -1, 2
        )
        log.append(number % ids % shards, encode_transactions([stored]).groups, [], now_ms)


def make_transaction_topic(broker: Broker, shards: int) -> None:
    wanted = transaction_topic(shards, 100 << 20)
    broker.create_topic(TRANSACTIONS_TOPIC, shards, wanted.configs, internal=True)
