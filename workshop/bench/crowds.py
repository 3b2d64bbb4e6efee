"""Answers that grow with the node's state, and a crowd that asks for one of them: at Kafka's door, by gRPC and by HTTP.

A question is data: what is asked, and how large its answer is at least. `ask_together` runs in a process of its own,
so that reading large answers does not disturb whoever measures how the others fare meanwhile. What else grows is
bounded by its request (FindCoordinator, OffsetForLeaderEpoch), by bytes (Fetch) or by the number of nodes.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.rpc.v1 import acl_service_pb2 as acl_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import quota_service_pb2 as quota_pb
from muster.coordinator.rpc.v1 import security_service_pb2 as security_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as transaction_pb
from muster.storage.records.batch import encode_batch
from muster.storage.rpc.v1 import broker_service_pb2 as storage_pb
from muster.workshop.bench.kafka_load import LoadConnection
from muster.workshop.bench.processes import BenchFailed

# What there is to ask about
# --------------------------

WIDE_TOPIC, DESCRIBED = "everywhere", "described-"
"""A topic with many partitions, and how the names of many topics begin."""
LISTED: Final = "listed-"
"""How the names of many groups begin."""
POSITIONS_GROUP, CONSUMER_GROUP = "positions", "many-consumers"
"""Groups with many positions, and with many members of KIP-848."""
PRODUCERS_TOPIC: Final = "producers"
"""Its one partition knows many producers."""

ROW_BYTES: Final = 5
"""A row of an answer has more."""
TOKEN_VARIABLE: Final = "MUSTER_BENCH_TOKEN"
"""The environment's name for the token by which gRPC's callers say who they are."""
ANY: Final = 1
"""Of whatever an entry has: its resource's type, its pattern's, its operation, its permission."""
TOPIC: Final = 2
LATEST: Final = -1
CALL_S: Final = 120.0
USERS_AT_ONCE: Final = 100
"""As many as a node changes by one request."""


# Questions
# ---------


@dataclass(frozen=True, slots=True)
class KafkaQuestion:
    """An API in one version. `make`: its request, about so many things."""

    api: str
    version: int
    make: Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class GrpcQuestion:
    """A method by its full name. `make`: its request, about so many things."""

    method: str
    make: Callable[[int], Message]


@dataclass(frozen=True, slots=True)
class HttpQuestion:
    """A path. `most`: more rows than that are not told at once."""

    path: str
    most: int | None = None


Question = KafkaQuestion | GrpcQuestion | HttpQuestion

GROUPS: Final = "/coordinator.rpc.v1.GroupCoordinator/"
TRANSACTIONS: Final = "/coordinator.rpc.v1.Transactions/"
BROKER: Final = "/storage.rpc.v1.Broker/"


def described_groups(count: int) -> list[str]:
    return [f"{LISTED}{number}" for number in range(count)]


def described_topics(count: int) -> list[str]:
    return [f"{DESCRIBED}{number}" for number in range(count)]


def kafka_settings(count: int) -> Any:
    row = struct("DescribeConfigsRequest.resources")
    rows = [row(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in described_topics(count)]
    return struct("DescribeConfigsRequest")(resources=rows)


def kafka_ends(count: int) -> Any:
    part = struct("ListOffsetsRequest.topics.partitions")
    rows = [part(partition_index=number, timestamp=LATEST) for number in range(count)]
    topic = struct("ListOffsetsRequest.topics")(name=WIDE_TOPIC, partitions=rows)
    return struct("ListOffsetsRequest")(replica_id=-1, topics=[topic])


def kafka_acls(count: int) -> Any:
    names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    kinds = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), ANY)
    return struct("DescribeAclsRequest")(**names, **kinds)


def kafka_producers(count: int) -> Any:
    topic = struct("DescribeProducersRequest.topics")(name=PRODUCERS_TOPIC, partition_indexes=[0])
    return struct("DescribeProducersRequest")(topics=[topic])


def grpc_ends(count: int) -> Message:
    rows = [storage_pb.ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in range(count)]
    return storage_pb.ListOffsetsRequest(topics=[storage_pb.ListOffsetsTopic(name=WIDE_TOPIC, partitions=rows)])


def kafka(api: str, version: int, **fields: Any) -> KafkaQuestion:
    """A request that is the same however much there is."""
    return KafkaQuestion(api, version, lambda count: struct(f"{api}Request")(**fields))


QUESTIONS: Final[Mapping[str, Question]] = {
    "kafka ListGroups": kafka("ListGroups", 4),
    "kafka Metadata": kafka("Metadata", 9, topics=None),
    "kafka DescribeConfigs": KafkaQuestion("DescribeConfigs", 4, kafka_settings),
    "kafka ListConfigResources": kafka("ListConfigResources", 1),
    "kafka ListOffsets": KafkaQuestion("ListOffsets", 5, kafka_ends),
    "kafka DescribeLogDirs": kafka("DescribeLogDirs", 3, topics=None),
    "kafka DescribeGroups": KafkaQuestion(
        "DescribeGroups", 5, lambda count: struct("DescribeGroupsRequest")(groups=described_groups(count))
    ),
    "kafka ConsumerGroupDescribe": kafka("ConsumerGroupDescribe", 0, group_ids=[CONSUMER_GROUP]),
    "kafka OffsetFetch": kafka("OffsetFetch", 5, group_id=POSITIONS_GROUP, topics=None),
    "kafka DescribeProducers": KafkaQuestion("DescribeProducers", 0, kafka_producers),
    "kafka ListTransactions": kafka("ListTransactions", 1),
    "kafka DescribeAcls": KafkaQuestion("DescribeAcls", 2, kafka_acls),
    "kafka DescribeClientQuotas": kafka("DescribeClientQuotas", 1),
    "kafka DescribeUserScramCredentials": kafka("DescribeUserScramCredentials", 0, users=None),
    "grpc ListGroups": GrpcQuestion(f"{GROUPS}ListGroups", lambda count: pb.ListGroupsRequest()),
    "grpc DescribeGroups": GrpcQuestion(
        f"{GROUPS}DescribeGroups", lambda count: pb.DescribeGroupsRequest(groups=described_groups(count))
    ),
    "grpc ConsumerGroupDescribe": GrpcQuestion(
        f"{GROUPS}ConsumerGroupDescribe", lambda count: pb.ConsumerGroupDescribeRequest(group_ids=[CONSUMER_GROUP])
    ),
    "grpc OffsetFetch": GrpcQuestion(
        f"{GROUPS}OffsetFetch", lambda count: pb.OffsetFetchRequest(group_id=POSITIONS_GROUP, all_topics=True)
    ),
    "grpc Metadata": GrpcQuestion(f"{BROKER}Metadata", lambda count: storage_pb.MetadataRequest(all_topics=True)),
    "grpc DescribeConfigs": GrpcQuestion(
        f"{BROKER}DescribeConfigs", lambda count: storage_pb.DescribeConfigsRequest(topics=described_topics(count))
    ),
    "grpc ListOffsets": GrpcQuestion(f"{BROKER}ListOffsets", grpc_ends),
    "grpc DescribeProducers": GrpcQuestion(
        f"{BROKER}DescribeProducers",
        lambda count: storage_pb.DescribeProducersRequest(
            topics=[storage_pb.DescribeProducersTopic(name=PRODUCERS_TOPIC, partition_indexes=[0])]
        ),
    ),
    "grpc ListTransactions": GrpcQuestion(
        f"{TRANSACTIONS}ListTransactions", lambda count: transaction_pb.ListTransactionsRequest()
    ),
    "grpc DescribeAcls": GrpcQuestion(
        "/coordinator.rpc.v1.Acls/DescribeAcls", lambda count: acl_pb.DescribeAclsRequest()
    ),
    "grpc DescribeQuotas": GrpcQuestion(
        "/coordinator.rpc.v1.Quotas/DescribeQuotas", lambda count: quota_pb.DescribeQuotasRequest()
    ),
    "grpc DescribeUsers": GrpcQuestion(
        "/coordinator.rpc.v1.Security/DescribeUsers", lambda count: security_pb.DescribeUsersRequest()
    ),
    "http groups": HttpQuestion("/api/v1/groups", most=10_000),
    "http topics": HttpQuestion("/api/v1/topics"),
    "http topic": HttpQuestion(f"/api/v1/topics/{WIDE_TOPIC}"),
    "http lag": HttpQuestion(f"/api/v1/groups/{POSITIONS_GROUP}/lag"),
    "http members": HttpQuestion(f"/api/v1/groups/{CONSUMER_GROUP}/members"),
    "http metrics": HttpQuestion("/metrics"),
    "http page of groups": HttpQuestion("/", most=0),
}


# Crowds
# ------

Ask = Callable[[], Awaitable[int]]
"""Asks once; how many bytes the answer has. Raises BenchFailed when it is refused."""


async def prepare(question: Question, address: str, size: int) -> Ask:
    """A connection of its own, which is open, and a request that is bytes already."""
    if isinstance(question, KafkaQuestion):
        return await prepare_kafka(question, address, size)
    if isinstance(question, GrpcQuestion):
        return await prepare_grpc(question, address, size)
    return await prepare_http(question, address)


async def prepare_kafka(question: KafkaQuestion, address: str, size: int) -> Ask:
    line = await LoadConnection.to(address)
    request = line.request(question.api, question.version, question.make(size))

    async def ask() -> int:
        return len(await line.pass_on(request))

    return ask


async def prepare_grpc(question: GrpcQuestion, address: str, size: int) -> Ask:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    options += [("grpc.max_receive_message_length", 256 << 20), ("grpc.max_send_message_length", 64 << 20)]
    channel = grpc.aio.insecure_channel(address, options)
    await asyncio.wait_for(channel.channel_ready(), CALL_S)
    request = question.make(size).SerializeToString()
    call: Any = channel.unary_unary(question.method)
    token = os.environ.get(TOKEN_VARIABLE)
    metadata = (("authorization", f"Bearer {token}"),) if token else None

    async def ask() -> int:
        try:
            return len(await call(request, timeout=CALL_S, metadata=metadata))
        except grpc.aio.AioRpcError as error:
            raise BenchFailed(f"{question.method} ended with {error.code().name}: {error.details()}") from error

    return ask


async def prepare_http(question: HttpQuestion, address: str) -> Ask:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)

    async def ask() -> int:
        writer.write(f"GET {question.path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(CALL_S):
            status, answer = await reader.readline(), await reader.read()
        writer.close()
        if b" 200 " not in status:
            raise BenchFailed(f"{question.path} was answered {status.decode().strip()!r}; expected 200")
        return len(answer)

    return ask


async def ask_together(
    name: str, address: str, size: int, crowd: int, await_start: Callable[[], Awaitable[None]]
) -> None:
    """So many connections ask the question at once. size: about so many things, of which each has ROW_BYTES at least
    in the answer. Raises BenchFailed for a shorter answer, and for a refusal."""
    question = QUESTIONS[name]
    asks = [await prepare(question, address, size) for _ in range(crowd)]
    await await_start()
    told = size if not isinstance(question, HttpQuestion) or question.most is None else min(size, question.most)
    if (least := min(await asyncio.gather(*(ask() for ask in asks)))) <= told * ROW_BYTES:
        raise BenchFailed(f"{name} was answered with {least} bytes; expected more than {told * ROW_BYTES}")


# A node with much to tell
# ------------------------


async def fill_with_members(line: LoadConnection, count: int) -> None:
    """So many members of one KIP-848 group, which read the wide topic."""
    make = struct("ConsumerGroupHeartbeatRequest")
    for number in range(count):
        request = make(
            group_id=CONSUMER_GROUP,
            member_id=f"member-{number}",
            member_epoch=0,
            rebalance_timeout_ms=600_000,
            subscribed_topic_names=[WIDE_TOPIC],
            topic_partitions=[],
        )
        answer = await line.send_request("ConsumerGroupHeartbeat", 0, request)
        if answer.error_code:
            raise BenchFailed(f"member {number} was answered with code {answer.error_code}: {answer.error_message}")


async def fill_with_transactional_ids(line: LoadConnection, count: int) -> None:
    make = struct("InitProducerIdRequest")
    for number in range(count):
        request = make(transactional_id=f"transactional-{number}", transaction_timeout_ms=60_000)
        answer = await line.send_request("InitProducerId", 4, request)
        if answer.error_code:
            raise BenchFailed(f"transactional id {number} was answered with code {answer.error_code}")


async def fill_with_producers(line: LoadConnection, count: int) -> None:
    """So many producers, each with one record in one partition."""
    part = struct("ProduceRequest.topic_data.partition_data")
    for number in range(count):
        records = [(int(time.time() * 1000), None, b"x", ())]  # of long ago they would be forgotten at once
        batch = encode_batch(records, producer_id=1_000_000 + number, producer_epoch=0, base_sequence=0)
        topic = struct("ProduceRequest.topic_data")(name=PRODUCERS_TOPIC, partition_data=[part(index=0, records=batch)])
        request = struct("ProduceRequest")(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=[topic])
        answer = await line.send_request("Produce", 7, request)
        if code := answer.responses[0].partition_responses[0].error_code:
            raise BenchFailed(f"producer {number} was answered with code {code}")


async def fill_with_quotas(line: LoadConnection, count: int) -> None:
    path = "AlterClientQuotasRequest.entries"
    entity, op = struct(f"{path}.entity"), struct(f"{path}.ops")
    entries = [
        struct(path)(
            entity=[entity(entity_type="client-id", entity_name=f"client-{number}")],
            ops=[op(key="producer_byte_rate", value=1e6)],
        )
        for number in range(count)
    ]
    answer = await line.send_request("AlterClientQuotas", 0, struct("AlterClientQuotasRequest")(entries=entries))
    if answer.entries[0].error_code:
        raise BenchFailed(f"quotas could not be set: {answer.entries[0].error_message}")


async def fill_with_users(line: LoadConnection, count: int) -> None:
    row = struct("AlterUserScramCredentialsRequest.upsertions")
    for begin in range(0, count, USERS_AT_ONCE):
        rows = [
            row(name=f"user-{number}", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32))
            for number in range(begin, min(begin + USERS_AT_ONCE, count))
        ]
        request = struct("AlterUserScramCredentialsRequest")(upsertions=rows)
        answer = await line.send_request("AlterUserScramCredentials", 0, request)
        if answer.results[0].error_code:
            raise BenchFailed(f"users could not be made: {answer.results[0].error_message}")
