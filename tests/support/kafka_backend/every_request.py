"""A valid request of every API and version that a proxy tells of, written by kio, which nobody here wrote."""

import io
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from kio.index import load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from muster.coordinator.kafka_backend.proxy.allowed_apis import TABLE
from muster.coordinator.server.rpc_dispatch import snake_case
from muster.storage.records.batch import encode_turn

Fields = Mapping[str, Any]

TOPIC, OTHER, OURS, THEIRS = "seen", "made", "ours-1", "theirs-1"
BATCH = encode_turn([(b"k", b"v", 0)], 0)
BROKER, TOPICS, BROKER_LOGGER, GROUPS = 4, 2, 8, 32
READ, ALLOW, ANY, LITERAL, USER = 3, 3, 1, 3, "User:somebody"
SCRAM_256 = 1

MEMBER: Fields = {"member_id": "nobody", "generation_id": 1, "group_instance_id": None}
PRODUCER: Fields = {"transactional_id": "t-1", "producer_id": 1, "producer_epoch": 0}
TOKEN: Fields = {"hmac": b"h" * 8, "renew_period": 1, "expiry_time_period": 1}
FILTER: Fields = {
    "resource_type_filter": TOPICS, "pattern_type_filter": LITERAL, "resource_name_filter": None,
    "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
}  # fmt: skip
POSITION: Fields = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}


def grouped(**more: Any) -> list[Fields]:
    """Of a group of ours, and of Kafka's."""
    return [{**MEMBER, "group_id": group, **more} for group in (OURS, THEIRS)]


def settings_of(resources: list[tuple[int, str]], **more: Any) -> list[Fields]:
    return [{"resources": [{"resource_type": kind, "resource_name": name, **more} for kind, name in resources]}]


def requests(broker: int, nowhere: str, log_dir: str) -> dict[str, list[Fields]]:
    """By API: fields of requests, where a version has them. nowhere: a topic that is not there."""
    named = {"name": TOPIC, "topic": TOPIC}
    parts = {"partitions": [0], "partition_indexes": [0]}
    return {
        "Produce": [
            {"acks": -1, "timeout": 9_000, "topic_data": [{"name": name, "partition_data": [{"records": BATCH}]}]}
            for name in (TOPIC, nowhere)
        ],
        "Fetch": [{"max_wait": 10, "min_bytes": 1, "topics": [{**named, "partitions": [{"partition_max_bytes": 99}]}]}],
        "ListOffsets": [{"replica_id": -1, "topics": [{**named, "partitions": [{"timestamp": -1}]}]}],
        "Metadata": [{"topics": None}, {"topics": [{"name": TOPIC}, {"name": nowhere}]}],
        "OffsetCommit": grouped(topics=[{**named, "partitions": [POSITION]}]),
        "OffsetFetch": [
            {**one, "groups": grouped(topics=[{**named, **parts}])} for one in grouped(topics=[{**named, **parts}])
        ],
        "FindCoordinator": [
            {"key": group, "key_type": kind, "coordinator_keys": [group, THEIRS]}
            for group, kind in ((OURS, 0), (THEIRS, 0), (THEIRS, 1))
        ],
        "JoinGroup": grouped(
            session_timeout=10_000, rebalance_timeout=10_000, member_id="", protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
        ),
        "Heartbeat": grouped(),
        "LeaveGroup": grouped(members=[MEMBER]),
        "SyncGroup": grouped(assignments=[], protocol_type="consumer", protocol_name="range"),
        "DescribeGroups": [{"groups": [OURS, THEIRS]}],
        "ListGroups": [{}],
        "SaslHandshake": [{"mechanism": "PLAIN"}],
        "ApiVersions": [{"client_software_name": "kio", "client_software_version": "1"}],
        "CreateTopics": [
            {"timeout": 9_000, "topics": [{"name": OTHER, "num_partitions": 1, "replication_factor": copies}]}
            for copies in (1, 3)
        ],
        "DeleteTopics": [{"timeout": 9_000, "topic_names": [nowhere], "topics": [{"name": nowhere}]}],
        "DeleteRecords": [{"timeout": 9_000, "topics": [{**named, "partitions": [{"offset": 0}]}]}],
        "InitProducerId": [{"transactional_id": one, "transaction_timeout": 9_000} for one in (None, "t-1")],
        "OffsetForLeaderEpoch": [{"topics": [{**named, "partitions": [{"leader_epoch": 0}]}]}],
        "AddPartitionsToTxn": [
            {f"{old}{name}": value for name, value in PRODUCER.items() for old in ("", "v3_and_below_")}
            | {"v3_and_below_topics": [{**named, **parts}], "topics": [{**named, **parts}]}
        ],
        "AddOffsetsToTxn": [{**PRODUCER, **one} for one in grouped()],
        "EndTxn": [{**PRODUCER, "committed": True}],
        "TxnOffsetCommit": [{**PRODUCER, **one} for one in grouped(topics=[{**named, "partitions": [POSITION]}])],
        "DescribeAcls": [FILTER],
        "CreateAcls": [
            {"creations": [{
                "resource_type": TOPICS, "resource_name": TOPIC, "principal": USER, "host": "*", "operation": READ,
                "permission_type": ALLOW,
            }]}
        ],
        "DeleteAcls": [{"filters": [FILTER]}],
        "DescribeConfigs": settings_of(
            [(BROKER, str(broker)), (BROKER, ""), (BROKER_LOGGER, str(broker)), (TOPICS, TOPIC), (GROUPS, THEIRS)],
            configuration_keys=None,
        ) + [
            {**one, "include_synonyms": True, "include_documentation": True}
            for one in settings_of([(BROKER, str(broker))], configuration_keys=None)
        ],
        "AlterConfigs": [
            {**one, "validate_only": True}
            for one in settings_of([(TOPICS, TOPIC), (BROKER, str(broker))], configs=[])
        ],
        "AlterReplicaLogDirs": [{"dirs": [{"path": log_dir, "topics": [{**named, **parts}]}]}],
        "DescribeLogDirs": [{"topics": None}],
        "SaslAuthenticate": [{"auth_bytes": b"\0somebody\0secret"}],
        "CreatePartitions": [
            {"timeout": 9_000, "validate_only": True, "topics": [{**named, "count": 9, "assignments": None}]}
        ],
        "CreateDelegationToken": [{"renewers": [], "max_lifetime": 9_000}],
        "RenewDelegationToken": [TOKEN],
        "ExpireDelegationToken": [TOKEN],
        "DescribeDelegationToken": [{"owners": None}],
        "DeleteGroups": [{"groups_names": [OURS, THEIRS]}],
        "ElectLeaders": [{"topic_partitions": [{**named, **parts}], "timeout": 9_000}, {"topic_partitions": None}],
        "IncrementalAlterConfigs": [
            {"validate_only": True} | one
            for name, value in (("advertised.listeners", "PLAINTEXT://x:1"), ("log.cleaner.threads", "1"))
            for one in settings_of(
                [(BROKER, str(broker))], configs=[{"name": name, "config_operation": 0, "value": value}]
            )
        ],
        "ListPartitionReassignments": [{"timeout": 9_000, "topics": None}],
        "OffsetDelete": grouped(topics=[{**named, "partitions": [{"partition_index": 0}]}]),
        "DescribeClientQuotas": [{"components": []}],
        "AlterClientQuotas": [
            {"validate_only": True, "entries": [{
                "entity": [{"entity_type": "user", "entity_name": "somebody"}],
                "ops": [{"key": "producer_byte_rate", "value": 9.0}],
            }]}
        ],
        "DescribeUserScramCredentials": [{"users": None}],
        "AlterUserScramCredentials": [{"deletions": [{"name": "somebody", "mechanism": SCRAM_256}]}],
        "DescribeCluster": [{"include_cluster_authorized_operations": True, "endpoint_type": 1}],
        "DescribeProducers": [{"topics": [{**named, **parts}]}],
        "DescribeTransactions": [{"transactional_ids": ["t-1"]}],
        "ListTransactions": [{}],
        "ConsumerGroupHeartbeat": grouped(
            member_epoch=0, rebalance_timeout=9_000, subscribed_topic_names=[TOPIC], topic_partitions=[],
            member_id="AAAAAAAAAAAAAAAAAAAAAA", instance_id=None,
        ),
        "ConsumerGroupDescribe": [{"group_ids": [OURS, THEIRS]}],
        "ListConfigResources": [{"resource_types": [BROKER, BROKER_LOGGER, TOPICS, GROUPS]}, {}],
    }  # fmt: skip


def written(name: str, version: int, given: Fields) -> bytes:
    """A frame with its length; the correlation id is 7."""
    schema = schema_of(name, version, EntityType.request)
    body = io.BytesIO()
    entity_writer(schema)(body, built(schema, given))
    key = next(key for key, (api, _) in TABLE.items() if api.name == name)
    client = b"tap"
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + (7).to_bytes(4, "big")
    head += len(client).to_bytes(2, "big") + client + (b"\0" if schema.__header_schema__.__flexible__ else b"")
    return (len(head) + len(body.getvalue())).to_bytes(4, "big") + head + body.getvalue()


def read(name: str, version: int, frame: bytes) -> Any:
    """An answer without its length. Raises what kio does for one that is none."""
    schema = schema_of(name, version, EntityType.response)
    _, begin = entity_reader(schema.__header_schema__)(frame, 0)
    found, size = entity_reader(schema)(frame, begin)
    assert begin + size == len(frame), f"{name} {version}: bytes are left behind its answer"
    return found


def schema_of(name: str, version: int, kind: EntityType) -> Any:
    return load_entity_schema(snake_case(name), version, kind)  # type: ignore[arg-type]


def built(schema: Any, given: Fields) -> Any:
    hints = get_type_hints(schema)
    known = {each.name: each for each in fields(schema)}
    values = {name: value_of(hints[name], given[name]) for name in known if name in given}
    for name, each in known.items():
        if name not in values and each.default is MISSING and each.default_factory is MISSING:
            values[name] = nothing(hints[name])
    return schema(**values)


def value_of(hint: Any, value: Any) -> Any:
    """As the field wants it: times are milliseconds."""
    if value is None:
        return None if NONE in get_args(hint) else nothing(hint)
    kind = bare(hint)
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return tuple(value_of(inner, each) for each in value)
    if is_dataclass(kind):
        return built(kind, value)
    if issubclass(kind, timedelta) or "timedelta" in kind.__name__.lower():
        return timedelta(milliseconds=value)
    return value


NONE = type(None)


def bare(hint: Any) -> Any:
    """Without `| None`."""
    if get_origin(hint) in (Union, UnionType):
        return next(each for each in get_args(hint) if each is not NONE)
    return hint


def nothing(hint: Any) -> Any:
    if NONE in get_args(hint):
        return None
    kind = bare(hint)
    if get_origin(kind) is tuple:
        return ()
    if is_dataclass(kind):
        return built(kind, {})
    if "timedelta" in kind.__name__.lower():
        return timedelta(0)
    return next((each() for each in (bool, int, float, str, bytes) if issubclass(kind, each)), UUID(int=0))
