"""Positions in transactions: whoever may write by a transactional id, and read in the group and the topics."""

import asyncio
from typing import Any

import pytest

from muster.coordinator.kafka.authorization.guard import HandlerGuard
from muster.coordinator.kafka.codec.codec import decode_frame, struct
from muster.coordinator.kafka.dispatch import ClientPeer, EncodedAnswer, KafkaCall
from muster.coordinator.kafka.handlers.transaction_batches import make_markers_response
from muster.coordinator.security.access_model import Acl, Operation
from muster.coordinator.security.rights import TRANSACTIONAL_ID
from tests.support.kafka.asked import Asked
from tests.support.kafka.rights import ALICE, CLUSTER, GROUP, TOPIC, acl, authorizer, codes, partitions, request

PATH = "TxnOffsetCommitRequest"
TXN = acl(Operation.WRITE, TRANSACTIONAL_ID, "app")
READS_GROUP = acl(Operation.READ, GROUP, "g")
READS_MINE = acl(Operation.READ, TOPIC, "mine")


class Topics:
    auto_create = False

    def __contains__(self, name: object) -> bool:
        raise AssertionError("nobody asks for it")

    def by_id(self) -> dict[bytes, str]:
        raise AssertionError("nobody asks for it")


def asked(api: str, acls: list[Acl], version: int = 3, **fields: Any) -> tuple[Any, list[str]]:
    """The answer, and the topics that the handler was asked about."""
    seen: list[str] = []

    async def handler(request: Any, call: KafkaCall) -> Any:
        rows = getattr(request, "topics", ())
        seen.extend(topic.name for topic in rows)
        seen.extend(each.transactional_id for each in getattr(request, "transactions", ()))
        return struct(f"{api}Response")(
            **({"topics": partitions(f"{api}Response.topics", seen)} if api == "TxnOffsetCommit" else {})
        )

    async def story() -> Any:
        judged, _ = HandlerGuard(authorizer(acls), Topics()).guarded(api, version, handler, None)
        assert judged is not None
        eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = KafkaCall(version, "tests", ClientPeer("10.0.0.1", eof, identity=Asked.identity(ALICE)))
        named = {} if "transactions" in fields else {"transactional_id": "app"}
        group = {"group_id": "g"} if "group_id" in struct(f"{api}Request").__slots__ else {}
        return await judged(struct(f"{api}Request")(**named, **group, **fields), call)

    return asyncio.run(story()), seen


@pytest.mark.parametrize(("acls", "code"), [([], 53), ([TXN], 30), ([READS_GROUP], 53), ([TXN, READS_GROUP], 0)])
def test_a_group_comes_into_a_transaction_of_who_may_write_by_its_id_and_read_in_it(acls: list[Acl], code: int) -> None:
    answer, _ = asked("AddOffsetsToTxn", acls)
    assert answer.error_code == code


@pytest.mark.parametrize(
    ("acls", "told", "handled"),
    [
        ([], {53}, []),
        ([TXN], {30}, []),
        ([TXN, READS_GROUP], {29}, []),
        ([TXN, READS_GROUP, READS_MINE], {0, 29}, ["mine"]),
        ([TXN, READS_GROUP, acl(Operation.READ, TOPIC, "*")], {0}, ["mine", "theirs"]),
    ],
)
def test_positions_are_committed_for_topics_that_may_be_read(
    acls: list[Acl], told: set[int], handled: list[str]
) -> None:
    answer, seen = asked("TxnOffsetCommit", acls, topics=partitions(f"{PATH}.topics", ["mine", "theirs"]))
    assert (set(codes(answer)), seen) == (told, handled)
    assert sorted(topic.name for topic in answer.topics) == ["mine", "theirs"]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("acls", "code", "handled"),
    [
        ([], 31, []),
        ([TXN, acl(Operation.WRITE, TOPIC, "*")], 31, []),
        ([acl(Operation.CLUSTER_ACTION, CLUSTER)], 0, ["app", "other"]),
    ],
)
def test_only_nodes_ask_about_several_transactions(
    version: int, acls: list[Acl], code: int, handled: list[str]
) -> None:
    row = struct("AddPartitionsToTxnRequest.transactions")
    transactions = [row(transactional_id=name, producer_id=1, producer_epoch=0) for name in ("app", "other")]
    answer, seen = asked("AddPartitionsToTxn", acls, version, transactions=transactions)
    assert (answer.error_code, seen) == (code, handled)


def test_the_right_of_a_node_is_not_that_of_a_producer() -> None:
    topics = [struct("AddPartitionsToTxnRequest.topics")(name="mine", partitions=[0])]
    answer, seen = asked("AddPartitionsToTxn", [acl(Operation.CLUSTER_ACTION, CLUSTER)], topics=topics)
    assert (set(codes(answer)) - {0}, seen) == ({53}, [])


@pytest.mark.parametrize(("acls", "code"), [([], 31), ([acl(Operation.ALTER, CLUSTER, "kafka-cluster")], 0)])
def test_markers_are_written_for_who_may_alter_the_cluster(acls: list[Acl], code: int) -> None:
    async def handler(request: Any, call: KafkaCall) -> Any:
        return make_markers_response([(1, {("mine", 0): 0, ("theirs", 0): 0})])

    async def story() -> Any:
        judged, _ = HandlerGuard(authorizer(acls), Topics()).guarded("WriteTxnMarkers", 1, handler, None)
        assert judged is not None
        eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = KafkaCall(1, "tests", ClientPeer("10.0.0.1", eof, identity=Asked.identity(ALICE)))
        return await judged(request("WriteTxnMarkers", ["mine", "theirs"], []), call)

    answer = asyncio.run(story())
    if isinstance(answer, EncodedAnswer):
        answer = decode_frame("WriteTxnMarkersResponse", 1, b"".join(answer.body))
    (told,) = answer.markers
    rows = [(topic.name, part.partition_index, part.error_code) for topic in told.topics for part in topic.partitions]
    assert (told.producer_id, rows) == (1, [("mine", 0, code), ("theirs", 0, code)])


DESCRIBES_MINE = acl(Operation.DESCRIBE, TRANSACTIONAL_ID, "mine")


@pytest.mark.parametrize(
    ("acls", "told", "handled"),
    [
        ([], [("mine", 53, []), ("theirs", 53, [])], []),
        ([DESCRIBES_MINE], [("mine", 0, []), ("theirs", 53, [])], ["mine"]),
        (
            [DESCRIBES_MINE, acl(Operation.DESCRIBE, TOPIC, "seen")],
            [("mine", 0, ["seen"]), ("theirs", 53, [])],
            ["mine"],
        ),
        (
            [acl(Operation.DESCRIBE, TRANSACTIONAL_ID, "*"), acl(Operation.DESCRIBE, TOPIC, "*")],
            [("mine", 0, ["seen", "hidden"]), ("theirs", 0, ["seen", "hidden"])],
            ["mine", "theirs"],
        ),
    ],
)
def test_an_id_is_described_to_who_may_and_without_topics_that_are_hidden(
    acls: list[Acl], told: list[tuple[str, int, list[str]]], handled: list[str]
) -> None:
    seen: list[str] = []
    row = struct("DescribeTransactionsResponse.transaction_states")
    topic = struct("DescribeTransactionsResponse.transaction_states.topics")

    async def handler(request: Any, call: KafkaCall) -> Any:
        seen.extend(request.transactional_ids)
        return struct("DescribeTransactionsResponse")(
            transaction_states=[
                row(transactional_id=name, topics=[topic(topic=each, partitions=[0]) for each in ("seen", "hidden")])
                for name in request.transactional_ids
            ]
        )

    async def story() -> Any:
        judged, _ = HandlerGuard(authorizer(acls), Topics()).guarded("DescribeTransactions", 0, handler, None)
        assert judged is not None
        eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = KafkaCall(0, "tests", ClientPeer("10.0.0.1", eof, identity=Asked.identity(ALICE)))
        return await judged(struct("DescribeTransactionsRequest")(transactional_ids=["mine", "theirs"]), call)

    answer = asyncio.run(story())
    found = [
        (each.transactional_id, each.error_code, [one.topic for one in each.topics])
        for each in answer.transaction_states
    ]
    assert (found, seen) == (told, handled)
