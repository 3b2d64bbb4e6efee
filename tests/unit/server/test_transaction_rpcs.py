"""The Transactions service of gRPC, and transactions in produces and commits, without connection or clock."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.errors import CoordinatorError, ErrorCode, Overloaded
from muster.coordinator.kafka.handlers.transaction_queries import DESCRIBED_AT_ONCE
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.runtime.transaction_records import encode_transaction
from muster.coordinator.server.services.group_coordinator import GroupCoordinator
from muster.coordinator.server.transactions.transaction_rpcs import (
    RefusedTransactionRpcs,
    TransactionRpcs,
    make_transaction_rpcs,
)
from muster.coordinator.transactions.effects import EndTxnReply, ListTransactionsReply
from muster.coordinator.transactions.records import LAST_CLIENT_EPOCH, TransactionState, TransactionStored
from muster.storage.errors import MalformedRequest, StorageError
from muster.storage.records.batch import encode_batch
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from muster.storage.service.broker_service import BrokerService, is_transactional
from tests.fakes.memory_files import MemoryFiles, damage_log
from tests.support.group_service import group_service_context
from tests.support.kafka.door import NODE_ID, Door, play
from tests.support.transaction_rpcs import CALL, TransactionalEdge, produce_request
from tests.support.transactions import keep_committed
from tests.unit.storage.logs import T0, batch

NODE = Settings(transaction_state_log_num_partitions=3)
BOTH = ("t", 0), ("t", 1)


def committed(door: Door, partition: int = 0) -> list[bytes]:
    """What a reader of committed records gets, fetch by fetch."""
    values, offset, dropped, log = list[bytes](), 0, set[int](), door.broker.log("t", partition)
    while offset < log.last_stable_offset:
        found = log.fetch(offset, 1 << 20, committed=True)
        aborted = ((each.producer_id, each.first_offset) for each in found.aborted)
        kept, following = keep_committed(found.records, aborted, dropped)
        values, offset = values + kept, following or offset
    return values


# Producers
# ---------


def test_what_is_committed_is_read_in_all_partitions_and_what_is_aborted_in_none() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        assert await edge.send(who, b"a", b"b", places=BOTH) == [0, 0]
        assert await edge.send(who, b"c", first=2) == [0], "the transaction is open: nobody is asked"
        assert [committed(door, each) for each in (0, 1)] == [[], []]
        code, after = await edge.end(who)
        assert (code, after) == (0, (who[0], who[1] + 1))
        assert await edge.settled() == "CompleteCommit"
        assert [committed(door, each) for each in (0, 1)] == [[b"a", b"b", b"c"], [b"a", b"b"]]
        assert await edge.send(after, b"d", places=BOTH) == [0, 0]
        assert (await edge.end(after, commit=False))[0] == 0
        assert await edge.settled() == "CompleteAbort"
        assert [committed(door, each) for each in (0, 1)] == [[b"a", b"b", b"c"], [b"a", b"b"]]

    play(story, transactions=NODE)


def test_a_newer_instance_fences_the_one_before_and_aborts_what_it_has_open() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        old = await edge.begin()
        assert await edge.send(old, b"old") == [0]
        while (given := await edge.init()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        new = given.producer_id, given.producer_epoch
        assert new == (old[0], old[1] + 2), "the epoch between is nobody's"
        assert await edge.send(old, b"late", first=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert (await edge.end(old))[0] == ErrorCode.PRODUCER_FENCED
        assert await edge.send(new, b"new") == [0]
        assert (await edge.end(new))[0] == 0
        assert await edge.settled() == "CompleteCommit"
        assert committed(door) == [b"new"]

    play(story, transactions=NODE)


def test_a_producer_goes_on_with_the_id_and_epoch_that_it_has() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        following = await edge.init(producer_id=who[0], producer_epoch=who[1])
        assert (following.producer_id, following.producer_epoch) == (who[0], who[1] + 1)
        again = await edge.init(producer_id=who[0], producer_epoch=who[1])
        assert again == following, "its answer was lost"
        strange = await edge.init(producer_id=who[0] + 1, producer_epoch=who[1])
        assert (strange.error_code, strange.producer_id, strange.producer_epoch) == (ErrorCode.PRODUCER_FENCED, -1, -1)

    play(story, transactions=NODE)


@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        ({"name": ""}, ErrorCode.INVALID_REQUEST, "expected 1 to 32767"),
        ({"name": "x" * 32_768}, ErrorCode.INVALID_REQUEST, "has 32768 bytes"),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT, "transaction.timeout.ms=0"),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT, "1 to 900000"),
        ({"producer_id": 4}, ErrorCode.INVALID_REQUEST, "expected both, or neither"),
        ({"producer_epoch": 4}, ErrorCode.INVALID_REQUEST, "expected both, or neither"),
        ({"producer_id": 4, "producer_epoch": 32_768}, ErrorCode.INVALID_REQUEST, "producer_epoch is 32768"),
        ({"producer_id": 4, "producer_epoch": -2}, ErrorCode.INVALID_REQUEST, "producer_epoch is -2"),
    ],
)
def test_what_no_producer_may_ask_for(asked: dict[str, Any], code: ErrorCode, says: str) -> None:
    async def story(door: Door) -> None:
        answer = await TransactionalEdge(door).init(**asked)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
        assert says in answer.error_message

    play(story, transactions=NODE)


def test_an_id_too_many_is_refused() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        await edge.begin("one")
        assert (await edge.init("two")).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert (await edge.init("one")).error_code == 0

    play(story, transactions=NODE.model_copy(update={"transaction_max_ids": 1}))


def test_the_end_of_a_transaction_that_is_none() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        assert (await edge.end((1, 0), name=""))[0] == ErrorCode.INVALID_REQUEST
        assert (await edge.end((1, 0), name="x" * 40_000))[0] == ErrorCode.INVALID_REQUEST
        assert (await edge.end((1, 1 << 20)))[0] == ErrorCode.INVALID_REQUEST
        assert (await edge.end((1, 0)))[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING, "never initialized"
        who = await edge.begin()
        assert await edge.end(who) == (ErrorCode.INVALID_TXN_STATE, (-1, -1)), "nothing is open"
        assert (await edge.end((who[0] + 7, who[1])))[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await edge.end((who[0], who[1] + 7)))[0] == ErrorCode.PRODUCER_FENCED
        assert await edge.send(who, b"a") == [0]
        code, after = await edge.end(who)
        assert code == 0
        await edge.settled()
        assert await edge.end(who) == (0, after), "its answer was lost"
        assert (await edge.end(who, commit=False))[0] == ErrorCode.INVALID_TXN_STATE

    play(story, transactions=NODE)


def test_the_last_epoch_ends_with_a_fresh_producer_id() -> None:
    disk = MemoryFiles()

    async def before(door: Door) -> None:
        assert (await TransactionalEdge(door).find()).error_code == 0
        old = TransactionStored("app", 900, LAST_CLIENT_EPOCH, 60_000, TransactionState.EMPTY, updated_ms=T0)
        key, value = encode_transaction(old)[:2]
        place = "__transaction_state", partition_for("app", NODE.transaction_state_log_num_partitions)
        door.broker.log(*place).append(encode_batch([(T0, key, value, ())]), T0)
        door.broker.flush()

    async def after(door: Door) -> None:
        edge, last = TransactionalEdge(door), (900, LAST_CLIENT_EPOCH)
        while (codes := await edge.send(last, b"a")) == [19]:
            pass
        assert codes == [0]
        code, who = await edge.end(last)
        assert code == 0
        assert who[0] != 900
        assert who[1] == 0

    play(before, disk, transactions=NODE)
    play(after, disk, transactions=NODE)


# Records
# -------


def test_records_of_a_transaction_have_to_name_their_id() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        assert await edge.send(who, b"a", name="") == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        assert await edge.send(who, b"a") == [0]
        hidden = batch(b"x") + batch(
            b"b", producer_id=who[0], producer_epoch=who[1], base_sequence=1, transactional=True
        )
        request = produce_request("", {("t", 0): hidden, ("t", 1): batch(b"plain")})
        answer = await edge.broker.produce(request, CALL)
        told = [part for topic in answer.responses for part in topic.partition_responses]
        assert [part.error_code for part in told] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0]
        assert "without a transactional_id" in told[0].error_message
        assert door.broker.end_offset("t", 0) == 1
        assert committed(door, 1) == [b"plain"]

    play(story, transactions=NODE)


def test_records_of_an_id_that_was_never_initialized_are_not_taken() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        assert await edge.send((5, 0), b"a", name="nobody") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        who = await edge.begin()
        assert await edge.send((who[0], who[1] + 1), b"a") == [ErrorCode.INVALID_PRODUCER_EPOCH], (
            "told as to Produce 12"
        )
        assert await edge.send((who[0] + 1, 0), b"a") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert await edge.send(who, b"b", first=1) == [45], "the first batch of an epoch has sequence 0"
        assert await edge.send(who, b"a", places=(("nowhere", 0), ("t", 0))) == [3, 0]
        assert await edge.send(who, b"c", first=1, transactional=False) == [48], "a plain batch in an open transaction"
        assert [each.topic for each in (await edge.describe("app"))[0].topics] == ["t"]

    play(story, transactions=NODE)


def test_several_batches_of_one_producer_begin_a_transaction_together_and_those_of_two_do_not() -> None:
    """gRPC takes several batches for one partition, where Kafka's listener takes one."""

    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        one, two = await edge.begin("one"), await edge.begin("two")

        def part(who: tuple[int, int], text: bytes, first: int) -> bytes:
            return batch(text, producer_id=who[0], producer_epoch=who[1], base_sequence=first, transactional=True)

        async def send(records: bytes) -> int:
            answer = await edge.broker.produce(produce_request("one", {("t", 0): records}), CALL)
            code: int = answer.responses[0].partition_responses[0].error_code
            return code

        assert await send(part(one, b"a", 0) + part(two, b"x", 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert door.broker.end_offset("t", 0) == 0, "not even the first of them"
        assert await send(part(one, b"a", 0) + part(one, b"b", 1)) == 0
        assert (await edge.end(one, name="one"))[0] == 0
        assert await edge.settled("one") == "CompleteCommit"
        assert committed(door) == [b"a", b"b"]
        assert (await edge.describe("two"))[0].state == "Empty"

    play(story, transactions=NODE)


def test_topics_of_the_node_come_into_no_transaction() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        assert await edge.send(who, b"a", places=(("__consumer_offsets", 0),)) == [17]
        assert (await edge.describe("app"))[0].state == "Empty"

    play(story, transactions=NODE)


def test_no_guard_is_left_behind_by_a_batch_that_the_log_refuses() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        broken = bytearray(batch(b"a", producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True))
        broken[-1] ^= 1
        answer = await edge.broker.produce(produce_request("app", {("t", 0): bytes(broken)}), CALL)
        assert answer.responses[0].partition_responses[0].error_code == 2
        assert await edge.send(who, b"a") == [0], "nobody waits before it"

    play(story, transactions=NODE)


def test_headers_say_whether_records_are_of_a_transaction() -> None:
    plain = batch(b"a")
    part = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert is_transactional(part)
    assert is_transactional(memoryview(plain + plain + part))
    assert not is_transactional(plain + plain)
    assert not is_transactional(b"")
    assert not is_transactional(part[:60]), "no whole header"
    for length in (0, 10, 1 << 31, (1 << 32) - 1):
        assert not is_transactional(plain[:8] + length.to_bytes(4, "big") + plain[12:] + part)


def test_an_idempotent_producer_with_a_transactional_id_is_sent_to_the_other_service() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        answer = await edge.broker.init_producer_id(broker_pb.InitProducerIdRequest(transactional_id="app"), CALL)
        assert (answer.error_code, answer.producer_id) == (42, -1)
        assert "Transactions.InitProducerId" in answer.error_message

    play(story, transactions=NODE)


def test_the_producers_of_a_partition_are_described() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        assert await edge.send(who, b"a", b"b") == [0]
        topics = [
            broker_pb.DescribeProducersTopic(name="t", partition_indexes=[0, 1, 9]),
            broker_pb.DescribeProducersTopic(name="nowhere", partition_indexes=[0]),
        ]
        answer = await edge.broker.describe_producers(broker_pb.DescribeProducersRequest(topics=topics), CALL)
        told = [part for topic in answer.topics for part in topic.partitions]
        assert [(part.partition_index, part.error_code) for part in told] == [(0, 0), (1, 0), (9, 3), (0, 3)]
        (entry,) = told[0].active_producers
        assert entry == broker_pb.ProducerStateEntry(
            producer_id=who[0],
            producer_epoch=who[1],
            last_sequence=1,
            last_timestamp_ms=T0,
            coordinator_epoch=-1,
            current_txn_start_offset=0,
        )
        assert not told[1].active_producers

    play(story, transactions=NODE)


# Positions of groups
# -------------------


def codes_of(answer: group_pb.TxnOffsetCommitResponse) -> list[int]:
    return [part.error_code for topic in answer.topics for part in topic.partitions]


def test_a_groups_positions_join_the_transaction_by_themselves() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        answer = await edge.commit_offsets(who, *BOTH, ("t", 9))
        assert codes_of(answer) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert answer.error_code == 0
        (described,) = await edge.describe("app")
        assert described.topics == [pb.TransactionPartitions(topic="__consumer_offsets", partitions=[0])]
        (group,) = door.driver.shard.state.groups.values()
        assert group.id == "g"
        assert not group.offsets

    play(story, transactions=NODE)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"name": "nobody"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"generation_id_or_member_epoch": 3, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_positions_that_do_not_get_into_a_transaction(asked: dict[str, Any], code: ErrorCode) -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        answer = await edge.commit_offsets(who, *BOTH, **asked)
        assert (answer.error_code, codes_of(answer)) == (code, [code, code])
        assert answer.error_message

    play(story, transactions=NODE)


def test_positions_of_a_producer_that_is_fenced() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        old = await edge.begin()
        await edge.begin()
        answer = await edge.commit_offsets(old, ("t", 0))
        assert codes_of(answer) == [ErrorCode.INVALID_PRODUCER_EPOCH], "told as to TxnOffsetCommit 5"

    play(story, transactions=NODE)


def test_the_coordinator_of_an_id_is_found_and_made() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        assert "__transaction_state" not in door.broker.topics()
        found = await edge.find()
        assert (found.error_code, found.node_id, found.host, found.port) == (0, NODE_ID, "muster.example", 9290)
        assert found.partition == partition_for("app", 3)
        assert door.broker.topics()["__transaction_state"].partitions == 3
        assert (await edge.find(key_type="group")).partition == 0
        strange = await edge.find(key_type="share")
        assert (strange.error_code, strange.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert "expected 'group', 'transaction'" in strange.error_message

    play(story, transactions=NODE)


# Operators
# ---------


def test_transactions_are_described_one_by_one() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        assert await edge.send(who, b"a", places=(("t", 2), ("t", 0))) == [0, 0]
        open_, gone, nameless = await edge.describe("app", "gone", "app", "")
        assert (open_.error_code, open_.state, open_.coordinator_id) == (0, "Ongoing", NODE_ID)
        assert (open_.producer_id, open_.producer_epoch, open_.transaction_timeout_ms) == (*who, 60_000)
        assert open_.start_time_ms > 0
        assert open_.topics == [pb.TransactionPartitions(topic="t", partitions=[0, 2])]
        assert (open_.client_address, open_.client_software) == ("10.0.0.7", "tests 1.0")
        assert (gone.error_code, gone.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "gone")
        assert (gone.producer_id, gone.start_time_ms) == (-1, -1)
        assert nameless.error_code == ErrorCode.INVALID_REQUEST
        await edge.end(who)
        await edge.settled()
        (done,) = await edge.describe("app")
        assert (done.state, done.start_time_ms, list(done.topics)) == ("CompleteCommit", -1, [])

    play(story, transactions=NODE)


def test_many_transactions_are_described_some_at_a_time() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        await edge.begin()
        names = [f"app-{number}" for number in range(DESCRIBED_AT_ONCE)]
        told = await edge.describe(*names, "app")
        assert [each.transactional_id for each in told] == [*names, "app"]
        assert {each.error_code for each in told[:-1]} == {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
        assert told[-1].state == "Empty"

    play(story, transactions=NODE)


def test_transactions_are_listed_as_filters_say() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        assert await edge.find_all() == pb.ListTransactionsResponse(), "no id was ever seen"
        one = await edge.begin("bill-1")
        two = await edge.begin("bill-2")
        await edge.begin("order")
        assert await edge.send(two, b"a", name="bill-2") == [0]

        async def names(**filters: Any) -> list[str]:
            answer = await edge.find_all(**filters)
            assert answer.error_code == 0, answer.error_message
            return sorted(each.transactional_id for each in answer.transactions)

        assert await names() == ["bill-1", "bill-2", "order"]
        assert await names(states=["Ongoing"]) == ["bill-2"]
        assert await names(producer_ids=[one[0], 999]) == ["bill-1"]
        assert await names(transactional_id_pattern="bill-[0-9]") == ["bill-1", "bill-2"]
        assert await names(transactional_id_pattern="bill") == [], "the pattern is for the whole id"
        assert await names(open_longer_than_ms=1 << 40) == []
        assert await names(open_longer_than_ms=-1) == ["bill-1", "bill-2", "order"]
        unknown = await edge.find_all(states=["Sleeping", "Ongoing", "Sleeping"])
        assert list(unknown.unknown_states) == ["Sleeping"]
        assert [(each.producer_id, each.state) for each in unknown.transactions] == [(two[0], "Ongoing")]

    play(story, transactions=NODE)


@pytest.mark.parametrize("pattern", ["[", "(?=a)b", "x" * 5_000])
def test_a_pattern_that_re2_does_not_read(pattern: str) -> None:
    async def story(door: Door) -> None:
        answer = await TransactionalEdge(door).find_all(transactional_id_pattern=pattern)
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert answer.error_message.startswith("transactional_id_pattern is none that RE2 reads")
        refused = await RefusedTransactionRpcs().list_transactions(
            pb.ListTransactionsRequest(transactional_id_pattern=pattern), CALL
        )
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        refused = await RefusedTransactionRpcs("Ask there.").list_transactions(pb.ListTransactionsRequest(), CALL)
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert refused.error_message.endswith("Ask there."), "an empty list would say that nothing is open"

    play(story, transactions=NODE)


def test_an_operator_ends_a_transaction_and_fences_its_producer() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)

        async def terminate(name: str) -> int:
            asked = pb.TerminateTransactionRequest(transactional_id=name)
            code: int = (await edge.rpcs.terminate_transaction(asked, CALL)).error_code
            return code

        assert await terminate("") == ErrorCode.INVALID_REQUEST
        assert await terminate("gone") == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        who = await edge.begin()
        assert await edge.send(who, b"a") == [0]
        while (code := await terminate("app")) == ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        assert code == 0
        assert (await edge.end(who))[0] == ErrorCode.PRODUCER_FENCED
        assert await edge.send(who, b"b", first=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        (described,) = await edge.describe("app")
        assert (described.state, described.transaction_timeout_ms) == ("Empty", 60_000)
        assert committed(door) == []
        explained = await edge.rpcs.explain_transactions(pb.ExplainTransactionsRequest(transactional_id="app"), CALL)
        (ended,) = explained.ended
        assert (ended.committed, ended.cause, ended.client_address) == (False, "operator", "10.0.0.7")
        assert (ended.producer_id, ended.partition_count) == (who[0], 1)
        assert ended.start_time_ms <= ended.decided_at_ms <= ended.completed_at_ms
        assert not explained.HasField("current"), "nothing is open"

    play(story, transactions=NODE)


def test_what_is_not_known_is_not_explained() -> None:
    async def story(door: Door) -> None:
        rpcs = TransactionalEdge(door).rpcs
        told = await rpcs.explain_transactions(pb.ExplainTransactionsRequest(transactional_id="gone"), CALL)
        assert told.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    play(story, transactions=NODE)


def test_a_hanging_transaction_is_aborted_in_its_logs() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        assert await edge.send(who, b"a", places=BOTH) == [0, 0]
        assert codes_of(await edge.commit_offsets(who, ("t", 0))) == [0]
        told = await edge.markers(who, *BOTH, ("t", 9), ("__consumer_offsets", 0))
        assert [code for code, _ in told] == [0, 0, 3, 0]
        assert [bool(message) for _, message in told] == [False, False, True, False]
        for partition in (0, 1):
            assert door.broker.log("t", partition).open_transactions() == []
            assert committed(door, partition) == []
        assert [code for code, _ in await edge.markers((who[0], 7), ("t", 0))] == [0], "of a newer epoch"
        assert [code for code, _ in await edge.markers(who, ("t", 0))] == [ErrorCode.INVALID_PRODUCER_EPOCH]

    play(story, transactions=NODE)


def test_a_coordinator_epoch_that_nobody_has_had_is_refused() -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin()
        assert await edge.send(who, b"a") == [0]
        ((code, message),) = await edge.markers(who, ("t", 0), coordinator_epoch=1)
        assert code == ErrorCode.INVALID_REQUEST
        assert message == "coordinator_epoch is 1; no coordinator has had a higher one than 0"
        assert len(door.broker.log("t", 0).open_transactions()) == 1
        for wrong in ((-1, 0), (1, -1), (1, 32_768)):
            with pytest.raises(MalformedRequest, match="expected 0 to"):
                await edge.markers(wrong, ("t", 0))
        with pytest.raises(MalformedRequest, match="coordinator_epoch is -1"):
            await edge.markers(who, ("t", 0), coordinator_epoch=-1)
        with pytest.raises(MalformedRequest, match="twice"):
            await edge.markers(who, ("t", 0), ("t", 0))

    play(story, transactions=NODE)


# Troubles of the node
# --------------------


class TroubledService:
    """A coordinator that cannot decide now."""

    def __init__(self, trouble: Exception | None = None, drawing: Exception | None = None) -> None:
        self._trouble = trouble
        self._drawing = drawing

    async def prepare(self) -> None:
        raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is full")

    def check_room(self, transactional_id: str) -> None:
        """There is room."""

    async def ask(self, transactional_id: str, make: Any, wanted: Any) -> Any:
        make(1)
        if self._trouble is not None:
            raise self._trouble
        return EndTxnReply(producer_id=1, epoch=1)

    async def ask_every_shard(self, make: Any, wanted: Any) -> Any:
        return {0: ListTransactionsReply(), 1: ListTransactionsReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")}

    async def draw_producer_id(self) -> int:
        if self._drawing is not None:
            raise self._drawing
        return 1


def rpcs_of(service: TroubledService) -> TransactionRpcs:
    return TransactionRpcs(cast(Any, service), cast(Any, None), node_id=NODE_ID)


def test_a_node_without_a_history_explains_nothing_and_serves_the_rest() -> None:
    rpcs = rpcs_of(TroubledService())
    told = asyncio.run(rpcs.explain_transactions(pb.ExplainTransactionsRequest(transactional_id="app"), CALL))
    assert told.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "DescribeTransactions" in told.error_message
    assert asyncio.run(rpcs.end_txn(pb.EndTxnRequest(transactional_id="app"), CALL)).error_code == 0


def test_no_producer_id_can_be_drawn() -> None:
    rpcs = rpcs_of(TroubledService(drawing=StorageError("the disk is full")))
    given = asyncio.run(
        rpcs.init_producer_id(pb.InitProducerIdRequest(transactional_id="app", transaction_timeout_ms=1), CALL)
    )
    assert (given.error_code, given.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert "the disk is full" in given.error_message
    last = pb.EndTxnRequest(transactional_id="app", producer_epoch=LAST_CLIENT_EPOCH)
    assert asyncio.run(rpcs.end_txn(last, CALL)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    before = pb.EndTxnRequest(transactional_id="app", producer_epoch=LAST_CLIENT_EPOCH - 1)
    assert asyncio.run(rpcs.end_txn(before, CALL)).error_code == 0, "it needs none"


def test_a_refusal_of_the_coordinator_is_told() -> None:
    rpcs = rpcs_of(TroubledService(CoordinatorError(ErrorCode.NOT_COORDINATOR)))
    told = asyncio.run(rpcs.end_txn(pb.EndTxnRequest(transactional_id="app"), CALL))
    assert told.error_code == ErrorCode.NOT_COORDINATOR
    listed = asyncio.run(rpcs.list_transactions(pb.ListTransactionsRequest(states=["x"]), CALL))
    assert (listed.error_code, listed.error_message) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    assert list(listed.unknown_states) == ["x"]


def test_a_shard_that_cannot_be_loaded_is_named_beside_the_ids_of_the_others() -> None:
    disk = MemoryFiles()
    names = [f"app-{number}" for number in range(6)]

    async def before(door: Door) -> None:
        for name in names:
            await TransactionalEdge(door).begin(name)

    async def after(door: Door) -> None:
        edge = TransactionalEdge(door)
        while (found := await edge.find_all()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert found.error_code == 0
        listed = sorted(each.transactional_id for each in found.transactions)
        assert listed == [name for name in names if partition_for(name, 3) != 1]
        (unread,) = found.unread
        assert (unread.partition, unread.error_code) == (1, ErrorCode.NOT_COORDINATOR)
        assert "the transactional ids of shard 1 are not served" in unread.error_message
        assert (await edge.find_all(transactional_id_pattern="x")).unread, "nobody knows whether one of them matches"

    play(before, disk, transactions=NODE)
    damage_log(disk, "__transaction_state-1")
    play(after, disk, transactions=NODE)


def test_a_node_with_too_much_to_do_says_so_by_the_calls_status() -> None:
    rpcs = rpcs_of(TroubledService(Overloaded("too much")))
    with pytest.raises(Overloaded):
        asyncio.run(rpcs.end_txn(pb.EndTxnRequest(transactional_id="app"), CALL))


def test_a_log_of_ids_that_cannot_be_made_is_told_to_who_looks_for_the_coordinator() -> None:
    transactions = SimpleNamespace(prepare=TroubledService().prepare)
    groups = GroupCoordinator(group_service_context(transactions=transactions))
    asked = group_pb.FindCoordinatorRequest(key="app", key_type="transaction")
    told = asyncio.run(groups.find_coordinator(asked, CALL))
    assert (told.error_code, told.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is full")


# Nodes without a coordinator of transactions
# -------------------------------------------

FORBIDDEN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_every_call_is_refused_where_nobody_coordinates() -> None:
    table = make_transaction_rpcs(None, None, node_id=NODE_ID, remedy="Ask another node.")

    def ask(name: str, **fields: Any) -> Any:
        row = table[f"/coordinator.rpc.v1.Transactions/{name}"]
        return asyncio.run(row.handler(row.request_type(**fields), CALL))

    for name in ("InitProducerId", "EndTxn", "TerminateTransaction", "ExplainTransactions"):
        told = ask(name, transactional_id="app")
        assert told.error_code == FORBIDDEN
        assert told.error_message == "transactional.id 'app': Ask another node."
    (described,) = ask("DescribeTransactions", transactional_ids=["app", "app"]).transactions
    assert (described.error_code, described.transactional_id, described.producer_id) == (FORBIDDEN, "app", -1)
    listed = ask("ListTransactions", states=["Ongoing", "Sleeping"], transactional_id_pattern="a.*")
    assert (listed.error_code, list(listed.transactions), list(listed.unknown_states)) == (FORBIDDEN, [], ["Sleeping"])


def test_records_and_positions_are_refused_where_nobody_coordinates() -> None:
    async def story(door: Door) -> None:
        broker = BrokerService(door.requests, node_id=NODE_ID, advertised=lambda: ("h", 1))
        answer = await broker.produce(produce_request("app", {("t", 0): batch(b"a"), ("t", 1): batch(b"a")}), CALL)
        told = [part for topic in answer.responses for part in topic.partition_responses]
        assert [part.error_code for part in told] == [FORBIDDEN, FORBIDDEN]
        assert "'app' needs a transaction coordinator" in told[0].error_message
        assert door.broker.end_offset("t", 0) == 0
        groups = GroupCoordinator(group_service_context(driver=door.driver, partitions=lambda: {"t": 1}))
        rows = [group_pb.OffsetCommitPartition(partition_index=0, committed_offset=7)]
        asked = group_pb.TxnOffsetCommitRequest(
            transactional_id="app", group_id="g", topics=[group_pb.OffsetCommitTopic(name="t", partitions=rows)]
        )
        committed_ = await groups.txn_offset_commit(asked, CALL)
        assert (committed_.error_code, codes_of(committed_)) == (FORBIDDEN, [FORBIDDEN])
        found = await groups.find_coordinator(group_pb.FindCoordinatorRequest(key="app", key_type="transaction"), CALL)
        assert (found.error_code, found.node_id) == (FORBIDDEN, -1)
        topics = [broker_pb.WriteTxnMarkersTopic(name="t", partition_indexes=[0, 1])]
        markers = await broker.write_txn_markers(broker_pb.WriteTxnMarkersRequest(topics=topics), CALL)
        assert [part.error_code for part in markers.topics[0].partitions] == [FORBIDDEN, FORBIDDEN]

    play(story)


def test_the_settings_of_a_node_say_how_long_a_transaction_may_be_open() -> None:
    """`muster topics describe` judges by it."""

    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        (told,) = (await edge.broker.describe_configs(broker_pb.DescribeConfigsRequest(), CALL)).results
        (entry,) = [each for each in told.configs if each.name == "transaction.max.timeout.ms"]
        assert (entry.value, entry.is_default) == ("900000", True)

    play(story, transactions=NODE)


@pytest.mark.parametrize("name", ["app", ""])
def test_a_produce_of_several_batches_whose_answer_was_lost_is_acknowledged_when_it_comes_again(name: str) -> None:
    async def story(door: Door) -> None:
        edge = TransactionalEdge(door)
        who = await edge.begin() if name else door.broker.next_producer_id()
        data = b"".join(
            batch(b"a", b"b", producer_id=who[0], producer_epoch=who[1], base_sequence=first, transactional=bool(name))
            for first in (0, 2, 4)
        )
        lost = await edge.broker.produce(produce_request(name, dict.fromkeys(BOTH, data)), CALL)
        again = await edge.broker.produce(produce_request(name, dict.fromkeys(BOTH, data)), CALL)
        for answer in (lost, again):
            told = [part for topic in answer.responses for part in topic.partition_responses]
            assert [(part.error_code, part.base_offset) for part in told] == [(0, 0), (0, 0)]
        if name:
            assert (await edge.end(who))[0] == 0
            assert await edge.settled(name) == "CompleteCommit"
        assert [committed(door, each) for each in (0, 1)] == [[b"a", b"b"] * 3] * 2

    play(story, transactions=NODE)
