"""Transactions over gRPC, call by call as a client of another language makes them, on a real node."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb
from muster.coordinator.server.node.node import CoordinatorNode
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from tests.support.grpc_node import connected, create_topic, lone_member, serving
from tests.support.node import NodeProcess
from tests.support.pace import Patience
from tests.support.stubs import BrokerStub, GroupCoordinatorStub, TransactionsStub
from tests.support.transactions import keep_committed
from tests.unit.storage.logs import batch

pytestmark = pytest.mark.integration

NODE = {"transaction_state_log_num_partitions": "4"}
PLACES = ("bills", 0), ("bills", 1), ("audit", 0)
PATIENCE_S = 30.0

BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class RawProducer:
    """One instance of a transactional id: it keeps what the node gave it, and a sequence for each partition."""

    def __init__(self, channel: grpc.aio.Channel, name: str, timeout_ms: int = 60_000) -> None:
        self._transactions = TransactionsStub(channel)
        self._broker = BrokerStub(channel)
        self._groups = GroupCoordinatorStub(channel)
        self.name = name
        self._timeout_ms = timeout_ms
        self.who = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    async def init(self) -> None:
        async def ask() -> Any:
            return await self._transactions.InitProducerId(
                pb.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self._timeout_ms)
            )

        answer = await until_decided(ask)
        assert answer.error_code == 0, answer.error_message
        self._adopt(answer)

    async def send(self, *values: bytes, places: tuple[tuple[str, int], ...] = PLACES) -> list[int]:
        """The codes, one for each place."""
        topics: dict[str, list[broker_pb.ProducePartition]] = {}
        for place in places:
            first = self._sequences.get(place, 0)
            data = batch(
                *values,
                producer_id=self.who[0],
                producer_epoch=self.who[1],
                base_sequence=first,
                transactional=True,
            )
            self._sequences[place] = first + len(values)
            topics.setdefault(place[0], []).append(broker_pb.ProducePartition(index=place[1], records=data))
        request = broker_pb.ProduceRequest(
            acks=-1,
            transactional_id=self.name,
            topic_data=[broker_pb.ProduceTopic(name=name, partition_data=parts) for name, parts in topics.items()],
        )

        async def ask() -> Any:
            return await self._broker.Produce(request)

        answer = await until_decided(ask, code_of=lambda one: one.responses[0].partition_responses[0].error_code)
        return [part.error_code for topic in answer.responses for part in topic.partition_responses]

    async def send_offset(self, offset: int, member: str, generation: int = 1) -> int:
        rows = [group_pb.OffsetCommitPartition(partition_index=0, committed_offset=offset)]
        request = group_pb.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id="g",
            producer_id=self.who[0],
            producer_epoch=self.who[1],
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[group_pb.OffsetCommitTopic(name="bills", partitions=rows)],
        )
        answer = await until_decided(lambda: self._groups.TxnOffsetCommit(request))
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool = True) -> int:
        request = pb.EndTxnRequest(
            transactional_id=self.name, producer_id=self.who[0], producer_epoch=self.who[1], commit=commit
        )
        answer = await until_decided(lambda: self._transactions.EndTxn(request))
        if not answer.error_code:
            self._adopt(answer)
        return int(answer.error_code)

    def _adopt(self, given: Any) -> None:
        self.who = given.producer_id, given.producer_epoch
        self._sequences = {}


async def until_decided(
    ask: Callable[[], Awaitable[Any]], code_of: Callable[[Any], int] = lambda answer: answer.error_code
) -> Any:
    """The answer, once the coordinator is not busy any more."""
    patience = Patience(PATIENCE_S)
    while code_of(answer := await ask()) in BUSY:
        assert patience.lasts(), answer
    return answer


async def fetch(channel: grpc.aio.Channel, place: tuple[str, int], *, committed: bool = True) -> list[bytes]:
    """What a reader gets up to the end that it is told of, fetch by fetch, without the records of aborted ones."""
    values, offset, end, dropped = list[bytes](), 0, 1, set[int]()
    while offset < end:
        part = broker_pb.FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=1 << 20)
        answer = await BrokerStub(channel).Fetch(
            broker_pb.FetchRequest(
                max_bytes=1 << 20,
                isolation_level=int(committed),
                topics=[broker_pb.FetchTopic(topic=place[0], partitions=[part])],
            )
        )
        found = answer.responses[0].partitions[0]
        assert found.error_code == 0, found.error_message
        end = found.last_stable_offset if committed else found.high_watermark
        aborted = ((each.producer_id, each.first_offset) for each in found.aborted_transactions)
        kept, following = keep_committed(found.records, aborted, dropped)
        values, offset = values + kept, following or offset
    return values


async def read_all(channel: grpc.aio.Channel) -> list[list[bytes]]:
    return [await fetch(channel, place) for place in PLACES]


async def state_of(channel: grpc.aio.Channel, name: str) -> pb.DescribedTransaction:
    """As described, once no transaction of the id is being completed."""
    patience = Patience(PATIENCE_S)
    while True:
        request = pb.DescribeTransactionsRequest(transactional_ids=[name])
        (described,) = (await TransactionsStub(channel).DescribeTransactions(request)).transactions
        if not described.state.startswith("Prepare") and described.error_code not in BUSY:
            return described
        assert patience.lasts(), described


def play(tmp_path: Path, story: Callable[[CoordinatorNode, grpc.aio.Channel], Awaitable[None]]) -> None:
    """Run the story on a node of its own with the topics `bills` and `audit`."""

    async def run() -> None:
        async with serving(tmp_path, **NODE) as node, connected(node) as channel:
            await create_topic(channel, "bills", 2)
            await create_topic(channel, "audit", 1)
            await story(node, channel)

    asyncio.run(run())


def test_two_producers_commit_and_abort_across_two_topics(tmp_path: Path) -> None:
    async def story(node: CoordinatorNode, channel: grpc.aio.Channel) -> None:
        find = group_pb.FindCoordinatorRequest(key="one", key_type="transaction")
        found = await GroupCoordinatorStub(channel).FindCoordinator(find)
        assert (found.error_code, found.port) == (0, node.bound.port)
        one, two = RawProducer(channel, "one"), RawProducer(channel, "two")
        await one.init()
        await two.init()
        assert one.who[0] != two.who[0]
        assert await one.send(b"a", b"b") == [0, 0, 0]
        assert await two.send(b"x") == [0, 0, 0]
        assert await one.send(b"c") == [0, 0, 0]
        assert await read_all(channel) == [[], [], []]
        assert await fetch(channel, PLACES[0], committed=False) == [b"a", b"b", b"x", b"c"]
        assert await two.end(commit=False) == 0
        await state_of(channel, "two")
        assert await read_all(channel) == [[], [], []], "the older one is still open"
        assert await one.end() == 0
        await state_of(channel, "one")
        assert await read_all(channel) == [[b"a", b"b", b"c"]] * 3
        assert await two.send(b"y") == [0, 0, 0]
        assert await two.end() == 0
        await state_of(channel, "two")
        assert await read_all(channel) == [[b"a", b"b", b"c", b"y"]] * 3

    play(tmp_path, story)


def test_the_newer_of_two_instances_fences_the_older_one(tmp_path: Path) -> None:
    async def story(node: CoordinatorNode, channel: grpc.aio.Channel) -> None:
        old, new = RawProducer(channel, "app"), RawProducer(channel, "app")
        await old.init()
        assert await old.send(b"old") == [0, 0, 0]
        await new.init()
        assert new.who[1] > old.who[1]
        assert await old.send(b"late") == [ErrorCode.INVALID_PRODUCER_EPOCH] * 3
        assert await old.end() == ErrorCode.PRODUCER_FENCED
        assert await new.send(b"new") == [0, 0, 0]
        assert await new.end() == 0
        await state_of(channel, "app")
        assert await read_all(channel) == [[b"new"]] * 3
        explained = await TransactionsStub(channel).ExplainTransactions(
            pb.ExplainTransactionsRequest(transactional_id="app")
        )
        assert [each.committed for each in explained.ended] == [True, False]

    play(tmp_path, story)


def test_a_groups_positions_move_with_the_records_or_not_at_all(tmp_path: Path) -> None:
    async def story(node: CoordinatorNode, channel: grpc.aio.Channel) -> None:
        groups = GroupCoordinatorStub(channel)
        member = await lone_member(groups)
        producer = RawProducer(channel, "app")
        await producer.init()

        async def position(*, stable: bool) -> tuple[int, int]:
            asked = group_pb.OffsetFetchRequest(
                group_id="g",
                require_stable=stable,
                topics=[group_pb.OffsetFetchTopic(name="bills", partition_indexes=[0])],
            )
            (row,) = (await groups.OffsetFetch(asked)).topics[0].partitions
            return row.error_code, row.committed_offset

        for offset, commit, after in ((5, True, 5), (9, False, 5), (7, True, 7)):
            assert await producer.send(b"v") == [0, 0, 0]
            assert await producer.send_offset(offset, member) == 0
            assert await position(stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            assert await producer.end(commit=commit) == 0
            await state_of(channel, "app")
            assert await position(stable=True) == (0, after)
        assert await read_all(channel) == [[b"v", b"v"]] * 3
        assert await producer.send_offset(8, member, generation=7) == ErrorCode.ILLEGAL_GENERATION
        assert await producer.send_offset(8, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID

    play(tmp_path, story)


def test_a_transaction_that_is_open_for_too_long_is_aborted(tmp_path: Path) -> None:
    async def story(node: CoordinatorNode, channel: grpc.aio.Channel) -> None:
        producer = RawProducer(channel, "app", timeout_ms=300)
        await producer.init()
        before = producer.who
        assert await producer.send(b"slow") == [0, 0, 0]
        patience = Patience(PATIENCE_S)
        while (described := await state_of(channel, "app")).state == "Ongoing":
            assert patience.lasts(), described
        assert described.state == "CompleteAbort"
        assert described.producer_epoch == before[1] + 1
        assert await producer.send(b"late") == [ErrorCode.INVALID_PRODUCER_EPOCH] * 3
        assert await producer.end(commit=False) == 0, "its abort is a repetition of the node's"
        assert producer.who == (before[0], before[1] + 1)
        assert await producer.send(b"again") == [0, 0, 0]
        assert await producer.end() == 0
        await state_of(channel, "app")
        assert await read_all(channel) == [[b"again"]] * 3
        explained = await TransactionsStub(channel).ExplainTransactions(
            pb.ExplainTransactionsRequest(transactional_id="app")
        )
        assert [each.cause for each in explained.ended] == ["producer", "timed out"]

    play(tmp_path, story)


def test_operators_see_what_is_open_and_end_it(tmp_path: Path) -> None:
    async def story(node: CoordinatorNode, channel: grpc.aio.Channel) -> None:
        stub = TransactionsStub(channel)
        producer = RawProducer(channel, "app")
        await producer.init()
        assert await producer.send(b"a") == [0, 0, 0]
        listed = await stub.ListTransactions(pb.ListTransactionsRequest(states=["Ongoing"]))
        assert [(each.transactional_id, each.producer_id) for each in listed.transactions] == [("app", producer.who[0])]
        described = await state_of(channel, "app")
        assert {each.topic: list(each.partitions) for each in described.topics} == {"bills": [0, 1], "audit": [0]}
        assert described.client_address == "127.0.0.1"
        terminate = pb.TerminateTransactionRequest(transactional_id="app")
        assert (await until_decided(lambda: stub.TerminateTransaction(terminate))).error_code == 0
        assert await producer.end() == ErrorCode.PRODUCER_FENCED
        assert (await state_of(channel, "app")).state == "Empty"
        asked = broker_pb.DescribeProducersTopic(name="audit", partition_indexes=[0])
        known = await BrokerStub(channel).DescribeProducers(broker_pb.DescribeProducersRequest(topics=[asked]))
        (entry,) = known.topics[0].partitions[0].active_producers
        assert (entry.producer_id, entry.current_txn_start_offset, entry.coordinator_epoch) == (producer.who[0], -1, 0)
        assert await read_all(channel) == [[], [], []]

    play(tmp_path, story)


def test_what_was_answered_as_committed_is_there_after_a_kill(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", {"transaction.state.log.num.partitions": "4"})
    node.start()

    async def before() -> None:
        async with grpc.aio.insecure_channel(node.address) as channel:
            await create_topic(channel, "bills", 2)
            await create_topic(channel, "audit", 1)
            producer, other = RawProducer(channel, "app"), RawProducer(channel, "other")
            await producer.init()
            await other.init()
            assert await producer.send(b"kept") == [0, 0, 0]
            assert await other.send(b"open") == [0, 0, 0]
            assert await producer.end() == 0

    async def after() -> None:
        async with grpc.aio.insecure_channel(node.address) as channel:
            assert (await state_of(channel, "app")).state == "CompleteCommit"
            assert (await state_of(channel, "other")).state == "Ongoing"
            again = RawProducer(channel, "other")
            await again.init()
            assert await read_all(channel) == [[b"kept"]] * 3
            assert await again.send(b"more") == [0, 0, 0]
            assert await again.end() == 0
            await state_of(channel, "other")
            assert await read_all(channel) == [[b"kept", b"more"]] * 3

    try:
        asyncio.run(before())
        node.kill()
        node.start()
        asyncio.run(after())
    finally:
        node.stop()
