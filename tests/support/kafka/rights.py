"""A request of every API that asks for names of its own, and a node in memory that has such names."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.codec.messages import MessageStruct
from muster.coordinator.security.access_model import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    parse_principal,
)
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.storage.records.batch import encode_batch
from tests.support.kafka.asked import Asked

ALICE: Final = "User:alice"
ROOT: Final = "User:root"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
NOW: Final = 1_700_000_000_000
REFUSALS: Final = {29, 30, 31, 53}


def acl(
    operation: Operation,
    kind: ResourceType,
    name: str = CLUSTER_NAME,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    principal: str = ALICE,
) -> Acl:
    return Acl(kind, pattern, name, principal, "*", operation, permission)


def authorizer(acls: Iterable[Acl] = ()) -> AclAuthorizer:
    made = AclAuthorizer([parse_principal(ROOT)])
    made.replace(acls)
    return made


def one(path: str, **fields: object) -> Any:
    return struct(path)(**fields)


def codes(answer: object) -> Iterator[int]:
    """Every error code in it."""
    if isinstance(answer, MessageStruct):
        for name in answer._defaults:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                yield int(value)
            else:
                yield from codes(value)
    elif isinstance(answer, list | tuple):
        for each in answer:
            yield from codes(each)


def words(answer: object) -> Iterator[str]:
    """Every text in it, but for sentences."""
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, MessageStruct):
        for name in answer._defaults:
            if not name.endswith("error_message"):
                yield from words(getattr(answer, name))
    elif isinstance(answer, list | tuple):
        for each in answer:
            yield from words(each)


def request(api: str, topics: list[str], groups: list[str], transactional: str | None = None) -> Any:
    """One that names these, in the fields of every version."""
    return struct(f"{api}Request")(**FIELDS[api](f"{api}Request", topics, groups, transactional))


def partitions(path: str, topics: list[str], field: str = "name", **more: object) -> list[Any]:
    row = one(f"{path}.partitions", **more)
    return [one(path, **{field: name}, partitions=[row]) for name in topics]


def resources(path: str, topics: list[str], groups: list[str], brokers: bool) -> list[Any]:
    made = struct(f"{path}.resources")
    rows = [made(resource_type=2, resource_name=name, configs=[]) for name in topics]
    rows += [made(resource_type=32, resource_name=name, configs=[]) for name in groups]
    return rows + ([made(resource_type=4, resource_name="1", configs=[])] if brokers else [])


def described(path: str, topics: list[str], groups: list[str]) -> list[Any]:
    made = struct(f"{path}.resources")
    rows = [made(resource_type=2, resource_name=name, configuration_keys=None) for name in topics]
    rows += [made(resource_type=32, resource_name=name, configuration_keys=None) for name in groups]
    return [*rows, made(resource_type=4, resource_name="1", configuration_keys=None)]


def produced(path: str, topics: list[str]) -> list[Any]:
    row = one(f"{path}.topic_data.partition_data", index=0, records=encode_batch([(NOW, None, b"v", ())]))
    return [one(f"{path}.topic_data", name=name, partition_data=[row]) for name in topics]


def looked_up(path: str, topics: list[str], groups: list[str]) -> dict[str, object]:
    def rows(of: str) -> list[Any]:
        return [one(of, name=name, partition_indexes=[0]) for name in topics]

    made = struct(f"{path}.groups")
    every = [made(group_id=name, topics=rows(f"{path}.groups.topics")) for name in groups]
    return {"group_id": groups[0], "topics": rows(f"{path}.topics"), "groups": every}


def member(path: str, topics: list[str], groups: list[str], transactional: str | None) -> dict[str, object]:
    return {"group_id": groups[0], "member_id": "nobody"}


def joining(path: str, topics: list[str], groups: list[str], transactional: str | None) -> dict[str, object]:
    metadata = encode_subscription(Subscription(version=1, topics=tuple(topics)))
    return {
        "group_id": groups[0],
        "member_id": "nobody",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [one(f"{path}.protocols", name="range", metadata=metadata)],
    }


Fields = Callable[[str, list[str], list[str], str | None], dict[str, object]]

FIELDS: Final[dict[str, Fields]] = {
    "Produce": lambda path, topics, groups, txn: {
        "acks": 1,
        "timeout_ms": 1000,
        "transactional_id": txn,
        "topic_data": produced(path, topics),
    },
    "Fetch": lambda path, topics, groups, txn: {
        "max_bytes": 1 << 20,
        "topics": partitions(f"{path}.topics", topics, "topic", partition_max_bytes=1 << 20),
    },
    "ListOffsets": lambda path, topics, groups, txn: {
        "replica_id": -1,
        "topics": partitions(f"{path}.topics", topics, timestamp=-1),
    },
    "OffsetForLeaderEpoch": lambda path, topics, groups, txn: {
        "replica_id": -1,
        "topics": partitions(f"{path}.topics", topics, "topic", leader_epoch=0),
    },
    "Metadata": lambda path, topics, groups, txn: {
        "topics": [one(f"{path}.topics", name=name) for name in topics],
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    },
    "OffsetCommit": lambda path, topics, groups, txn: {
        "group_id": groups[0],
        "topics": partitions(f"{path}.topics", topics, committed_offset=0, committed_metadata=""),
    },
    "OffsetFetch": lambda path, topics, groups, txn: looked_up(path, topics, groups),
    "FindCoordinator": lambda path, topics, groups, txn: {
        "key": txn or groups[0],
        "key_type": int(txn is not None),
        "coordinator_keys": [txn] if txn else groups,
    },
    "JoinGroup": joining,
    "Heartbeat": member,
    "LeaveGroup": lambda path, topics, groups, txn: {
        "group_id": groups[0],
        "member_id": "nobody",
        "members": [one(f"{path}.members", member_id="nobody")],
    },
    "SyncGroup": lambda path, topics, groups, txn: {
        "group_id": groups[0],
        "generation_id": 1,
        "member_id": "nobody",
        "protocol_type": "consumer",
        "protocol_name": "range",
    },
    "DescribeGroups": lambda path, topics, groups, txn: {"groups": groups, "include_authorized_operations": True},
    "ListGroups": lambda path, topics, groups, txn: {},
    "CreateTopics": lambda path, topics, groups, txn: {
        "timeout_ms": 1000,
        "topics": [one(f"{path}.topics", name=name, num_partitions=1, replication_factor=1) for name in topics],
    },
    "DeleteTopics": lambda path, topics, groups, txn: {
        "topic_names": topics,
        "topics": [one(f"{path}.topics", name=name) for name in topics],
        "timeout_ms": 1000,
    },
    "DeleteRecords": lambda path, topics, groups, txn: {
        "timeout_ms": 1000,
        "topics": partitions(f"{path}.topics", topics, offset=-1),
    },
    "InitProducerId": lambda path, topics, groups, txn: {"transactional_id": txn, "transaction_timeout_ms": 1000},
    "DescribeConfigs": lambda path, topics, groups, txn: {"resources": described(path, topics, groups)},
    "AlterConfigs": lambda path, topics, groups, txn: {"resources": resources(path, topics, groups, brokers=True)},
    "CreatePartitions": lambda path, topics, groups, txn: {
        "timeout_ms": 1000,
        "topics": [one(f"{path}.topics", name=name, count=2, assignments=None) for name in topics],
    },
    "DeleteGroups": lambda path, topics, groups, txn: {"groups_names": groups},
    "IncrementalAlterConfigs": lambda path, topics, groups, txn: {
        "resources": resources(path, topics, groups, brokers=True)
    },
    "OffsetDelete": lambda path, topics, groups, txn: {
        "group_id": groups[0],
        "topics": partitions(f"{path}.topics", topics),
    },
    "ConsumerGroupHeartbeat": lambda path, topics, groups, txn: {
        "group_id": groups[0],
        "member_id": "nobody",
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": topics,
        "topic_partitions": [],
    },
    "ConsumerGroupDescribe": lambda path, topics, groups, txn: {
        "group_ids": groups,
        "include_authorized_operations": True,
    },
    "DescribeLogDirs": lambda path, topics, groups, txn: {"topics": None},
    "DescribeProducers": lambda path, topics, groups, txn: {
        "topics": [one(f"{path}.topics", name=name, partition_indexes=[0]) for name in topics]
    },
    "ListTransactions": lambda path, topics, groups, txn: {},
    "WriteTxnMarkers": lambda path, topics, groups, txn: {
        "markers": [
            one(
                f"{path}.markers",
                producer_id=1,
                topics=[one(f"{path}.markers.topics", name=name, partition_indexes=[0]) for name in topics],
            )
        ]
    },
    "ElectLeaders": lambda path, topics, groups, txn: {
        "topic_partitions": [one(f"{path}.topic_partitions", topic=name, partitions=[0]) for name in topics]
    },
    "ListPartitionReassignments": lambda path, topics, groups, txn: {"topics": None},
    "ListConfigResources": lambda path, topics, groups, txn: {},
    "DescribeClientQuotas": lambda path, topics, groups, txn: {"components": [], "strict": False},
    "AlterClientQuotas": lambda path, topics, groups, txn: {
        "validate_only": True,
        "entries": [one(f"{path}.entries", entity=[], ops=[])],
    },
}
"""By API: what `request` fills in."""


async def settle(root: Asked, topics: Iterable[str], groups: Iterable[str]) -> None:
    """Make topics, and groups with a position in each of them."""
    topics, groups = list(topics), list(groups)
    made = [one("CreateTopicsRequest.topics", name=name, num_partitions=1, replication_factor=1) for name in topics]
    for topic in (await root("CreateTopics", 7, topics=made)).topics:
        assert topic.error_code in (0, 36)
    for group in groups:
        answer = await root("OffsetCommit", 8, request("OffsetCommit", topics, [group]))
        assert set(codes(answer)) <= {0}


async def subscribe(root: Asked, group: str, topics: list[str]) -> None:
    """Let somebody consume in a KIP-848 group."""
    path, member_id = "ConsumerGroupHeartbeat", f"m-{group}"
    asked = request(path, topics, [group])
    asked.member_id = member_id
    answer = await root(path, 1, asked)
    assert answer.error_code == 0, answer
    asked.member_epoch = answer.member_epoch
    await root(path, 1, asked)
