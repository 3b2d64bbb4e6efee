"""Whatever grows with the node's state is a case of `muster bench coordinator --only stall`, or is bounded, and why."""

from typing import Final

from muster.coordinator.kafka.protocol import RAISES_EPOCH, transactional_apis
from muster.coordinator.rpc.v1 import (
    acl_service_pb2,
    control_service_pb2,
    coordinator_service_pb2,
    fence_service_pb2,
    quota_service_pb2,
    security_service_pb2,
    transaction_service_pb2,
)
from muster.coordinator.web.api.reading import READING_ENDPOINTS
from muster.storage.rpc.v1 import broker_service_pb2, staging_service_pb2
from muster.workshop.bench.crowds import QUESTIONS, GrpcQuestion, HttpQuestion, KafkaQuestion

NAMED: Final = "a row for each name of the request, whose length is bounded"
BYTES: Final = "bounded by bytes"
ONE: Final = "about one member, group, id or node"
SPAN: Final = "of one group or id, of which the ledger keeps a bounded number of entries"
NODES: Final = "a row for each node"
NOBODY: Final = "always empty on a node by itself; of a cluster what is under way"
MEMBERS: Final = "grows with one group's members, who are bounded (group.max.size), and is sent to its leader alone"

BOUNDED_AT_KAFKAS_DOOR: Final = {
    **dict.fromkeys(("Produce", "OffsetCommit", "OffsetDelete", "OffsetForLeaderEpoch", "FindCoordinator"), NAMED),
    **dict.fromkeys(("CreateTopics", "DeleteTopics", "DeleteRecords", "CreatePartitions", "DeleteGroups"), NAMED),
    **dict.fromkeys(("AlterConfigs", "IncrementalAlterConfigs", "CreateAcls", "AlterClientQuotas"), NAMED),
    **dict.fromkeys(("AlterUserScramCredentials", "AlterPartitionReassignments", "ElectLeaders"), NAMED),
    **dict.fromkeys(("AddPartitionsToTxn", "WriteTxnMarkers", "TxnOffsetCommit", "DescribeTransactions"), NAMED),
    **dict.fromkeys(("Heartbeat", "LeaveGroup", "SyncGroup", "ConsumerGroupHeartbeat", "InitProducerId"), ONE),
    **dict.fromkeys(("AddOffsetsToTxn", "EndTxn", "SaslHandshake", "SaslAuthenticate", "ApiVersions"), ONE),
    "Fetch": BYTES,
    "JoinGroup": MEMBERS,
    "DescribeCluster": NODES,
    "ListPartitionReassignments": NOBODY,
    "DeleteAcls": "what it finds is deleted: it grows once",
}

BOUNDED_BY_GRPC: Final = {
    **dict.fromkeys(("OffsetCommit", "TxnOffsetCommit", "OffsetDelete", "DeleteGroups", "RemoveMembers"), NAMED),
    **dict.fromkeys(("CreateAcls", "AlterQuotas", "AlterUsers", "RevokeTokens", "CreateTopics", "DeleteTopics"), NAMED),
    **dict.fromkeys(("CreatePartitions", "AlterConfigs", "Produce", "DeleteRecords", "WriteTxnMarkers"), NAMED),
    **dict.fromkeys(("DescribeTransactions", "StageRecords", "CommitStaged", "AbortStaged"), NAMED),
    **dict.fromkeys(("FindCoordinator", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat", "LeaveGroup"), ONE),
    **dict.fromkeys(("DescribeGroupSettings", "AlterGroupSettings", "DescribeNode", "Session", "SharedSession"), ONE),
    **dict.fromkeys(("HoldGroup", "ResumeGroup", "DescribeHolds", "StartCanary", "EndCanary", "DescribeCanary"), ONE),
    **dict.fromkeys(("ClaimFence", "CheckAcl", "CreateToken", "InitProducerId", "EndTxn"), ONE),
    **dict.fromkeys(("TerminateTransaction",), ONE),
    **dict.fromkeys(("ExplainGroup", "ExplainTransactions", "WatchGroup"), SPAN),
    **dict.fromkeys(("Fetch", "MultiFetch"), BYTES),
    "JoinGroup": MEMBERS,
    "SimulateAssignment": "of a snapshot that comes with the request; a case of its own",
    "DeleteAcls": "what it finds is deleted: it grows once",
    "DescribeTokens": "of one user by default; their number is bounded (a user's quota of tokens)",
}

BOUNDED_BY_HTTP: Final = {
    "/groups/{group}": ONE,
    "/groups/{group}/history": SPAN,
    "/groups/{group}/explain": SPAN,
    "/groups/{group}/incidents": SPAN,
    "/groups/{group}/advice": SPAN,
    "/groups/{group}/settings": ONE,
    "/groups/{group}/holds": ONE,
    "/groups/{group}/canary": ONE,
    "/nodes": NODES,
    "/settings": ONE,
}

SERVICES = (
    acl_service_pb2,
    control_service_pb2,
    coordinator_service_pb2,
    fence_service_pb2,
    quota_service_pb2,
    security_service_pb2,
    transaction_service_pb2,
    broker_service_pb2,
    staging_service_pb2,
)


def test_each_api_of_kafka_is_asked_by_a_crowd_or_is_bounded() -> None:
    asked = {each.api for each in QUESTIONS.values() if isinstance(each, KafkaQuestion)}
    served = {api.name for api in transactional_apis(RAISES_EPOCH)}
    assert asked | BOUNDED_AT_KAFKAS_DOOR.keys() == served
    assert not asked & BOUNDED_AT_KAFKAS_DOOR.keys()


def test_each_method_of_grpc_is_asked_by_a_crowd_or_is_bounded() -> None:
    """Those of a cluster's own service are asked of a cluster (Cluster.DescribeCluster)."""
    asked = {each.method for each in QUESTIONS.values() if isinstance(each, GrpcQuestion)}
    services = [service for module in SERVICES for service in module.DESCRIPTOR.services_by_name.values()]
    served = {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}
    assert asked <= served
    assert {method.rpartition("/")[2] for method in served - asked} == BOUNDED_BY_GRPC.keys()


def test_each_path_of_the_json_api_is_asked_by_a_crowd_or_is_bounded() -> None:
    asked = {each.path for each in QUESTIONS.values() if isinstance(each, HttpQuestion)}
    unasked = {
        endpoint.path
        for endpoint in READING_ENDPOINTS
        if not any(matches(f"/api/v1{endpoint.path}", path) for path in asked)
    }
    assert unasked <= BOUNDED_BY_HTTP.keys()
    assert "/metrics" in asked


def matches(template: str, path: str) -> bool:
    """
    >>> matches("/a/{b}/c", "/a/x/c"), matches("/a/{b}", "/a/x/c")
    (True, False)
    """
    parts, given = template.split("/"), path.split("/")
    return len(parts) == len(given) and all(
        part == one or part.startswith("{") for part, one in zip(parts, given, strict=True)
    )
