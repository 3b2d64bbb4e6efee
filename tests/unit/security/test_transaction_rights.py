"""Who learns of which transactional ids, and of which of their topics, by gRPC."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final

import pytest
from google.protobuf import message_factory

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.security.rights import BROKER, GROUPS, TRANSACTIONS
from muster.coordinator.server.rpc_dispatch import MethodKind, ServiceMethod
from muster.coordinator.server.security.audit_log import AuditLog, Line
from muster.coordinator.server.security.call_guard import guard_method
from muster.coordinator.server.security.call_rights import CallRights
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from tests.unit.security.test_grpc_matrix import BOB, DESCRIPTORS

TOPIC, ID, GROUP = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
CALL: Final = SimpleNamespace(identity=BOB, door="grpc")


def right(operation: Operation, kind: ResourceType, name: str) -> Acl:
    return Acl(kind, PatternType.LITERAL, name, "User:bob", "*", operation, Permission.ALLOW)


def ask(full_name: str, request: Any, answer: Any, acls: Iterable[Acl]) -> tuple[Any, list[Any]]:
    """What leaves, and what the handler was asked."""
    rpc, asked, lines = DESCRIPTORS[full_name], list[Any](), list[Line]()
    lists = AclAuthorizer()
    lists.replace(acls)

    async def handle(request: Any, call: Any) -> Any:
        asked.append(request)
        return answer(request) if callable(answer) else answer

    kinds = message_factory.GetMessageClass(rpc.input_type), message_factory.GetMessageClass(rpc.output_type)
    method = ServiceMethod(full_name, MethodKind.UNARY, *kinds, handle)

    async def nothing_staged(request: Any) -> list[str]:
        return []

    rights = CallRights(lists, AuditLog(lines.append), lambda: frozenset({"seen", "hidden"}))
    return asyncio.run(guard_method(method, rights, nothing_staged)(request, CALL)), asked


def describe(request: pb.DescribeTransactionsRequest) -> pb.DescribeTransactionsResponse:
    topics = [pb.TransactionPartitions(topic=name, partitions=[0]) for name in ("seen", "hidden")]
    return pb.DescribeTransactionsResponse(
        transactions=[
            pb.DescribedTransaction(transactional_id=name, state="Ongoing", producer_id=4, topics=topics)
            for name in request.transactional_ids
        ]
    )


@pytest.mark.parametrize(
    ("acls", "told"),
    [
        ([], [("mine", 53, -1, []), ("theirs", 53, -1, [])]),
        ([right(DESCRIBE, ID, "mine")], [("mine", 0, 4, []), ("theirs", 53, -1, [])]),
        (
            [right(DESCRIBE, ID, "*"), right(DESCRIBE, TOPIC, "seen")],
            [("mine", 0, 4, ["seen"]), ("theirs", 0, 4, ["seen"])],
        ),
    ],
)
def test_ids_are_described_to_who_may_and_without_hidden_topics(acls: list[Acl], told: list[Any]) -> None:
    request = pb.DescribeTransactionsRequest(transactional_ids=["mine", "theirs"])
    answer, _ = ask(TRANSACTIONS + "DescribeTransactions", request, describe, acls)
    found = [
        (each.transactional_id, each.error_code, each.producer_id, [topic.topic for topic in each.topics])
        for each in answer.transactions
    ]
    assert found == told


@pytest.mark.parametrize(
    ("acls", "told"), [([], []), ([right(DESCRIBE, ID, "seen")], ["seen"]), ([right(WRITE, ID, "*")], ["seen", "zoo"])]
)
def test_ids_that_may_not_be_described_are_not_listed(acls: list[Acl], told: list[str]) -> None:
    answer = pb.ListTransactionsResponse(
        transactions=[pb.ListedTransaction(transactional_id=name) for name in ("seen", "zoo")]
    )
    for more in ([], [right(DESCRIBE, TOPIC, "*")]):
        asked = pb.ListTransactionsRequest()
        left, _ = ask(
            TRANSACTIONS + "ListTransactions",
            asked,
            lambda _: pb.ListTransactionsResponse.FromString(answer.SerializeToString()),
            [*acls, *more],
        )
        assert [each.transactional_id for each in left.transactions] == told


@pytest.mark.parametrize(
    ("acls", "codes", "topics"),
    [
        ([], [53, 53], []),
        ([right(WRITE, TOPIC, "*")], [53, 53], []),
        ([right(WRITE, ID, "app")], [29, 29], []),
        ([right(WRITE, ID, "app"), right(WRITE, TOPIC, "seen")], [0, 29], ["seen"]),
    ],
)
def test_records_of_a_transaction_need_the_right_to_its_id_as_well(
    acls: list[Acl], codes: list[int], topics: list[str]
) -> None:
    rows = [
        broker_pb.ProduceTopic(name=name, partition_data=[broker_pb.ProducePartition()]) for name in ("seen", "hidden")
    ]
    request = broker_pb.ProduceRequest(transactional_id="app", topic_data=rows)

    def produce(request: broker_pb.ProduceRequest) -> broker_pb.ProduceResponse:
        answered = [
            broker_pb.ProduceTopicResult(name=row.name, partition_responses=[broker_pb.ProducePartitionResult()])
            for row in request.topic_data
        ]
        return broker_pb.ProduceResponse(responses=answered)

    answer, asked = ask(BROKER + "Produce", request, produce, acls)
    assert [part.error_code for topic in answer.responses for part in topic.partition_responses] == codes
    assert [row.name for one in asked for row in one.topic_data] == topics


@pytest.mark.parametrize(
    ("acls", "codes"),
    [
        ([], 53),
        ([right(WRITE, ID, "app")], 30),
        ([right(WRITE, ID, "app"), right(READ, GROUP, "g")], [29, 29]),
        ([right(WRITE, ID, "app"), right(READ, GROUP, "g"), right(READ, TOPIC, "seen")], [0, 29]),
    ],
)
def test_positions_need_the_id_the_group_and_the_topics(acls: list[Acl], codes: int | list[int]) -> None:
    rows = [
        group_pb.OffsetCommitTopic(name=name, partitions=[group_pb.OffsetCommitPartition(committed_offset=1)])
        for name in ("seen", "hidden")
    ]

    def commit(request: group_pb.TxnOffsetCommitRequest) -> group_pb.TxnOffsetCommitResponse:
        answered = [
            group_pb.OffsetTopicResult(name=row.name, partitions=[group_pb.OffsetPartitionResult()])
            for row in request.topics
        ]
        return group_pb.TxnOffsetCommitResponse(topics=answered)

    request = group_pb.TxnOffsetCommitRequest(transactional_id="app", group_id="g", topics=rows)
    answer, _ = ask(GROUPS + "TxnOffsetCommit", request, commit, acls)
    told = [part.error_code for topic in answer.topics for part in topic.partitions]
    assert (told or answer.error_code) == codes


@pytest.mark.parametrize("kind", [GROUP, ID])
@pytest.mark.parametrize("key_type", ["", "group", "transaction", "share"])
def test_a_coordinator_is_looked_for_by_the_right_to_what_the_key_names(key_type: str, kind: ResourceType) -> None:
    request = group_pb.FindCoordinatorRequest(key="x", key_type=key_type)
    answer, asked = ask(
        GROUPS + "FindCoordinator", request, group_pb.FindCoordinatorResponse(node_id=1), [right(DESCRIBE, kind, "x")]
    )
    transactional = key_type == "transaction"
    may = transactional == (kind is ID)
    assert answer.error_code == (0 if may else 53 if transactional else 30)
    assert bool(asked) is may
