"""The APIs and versions that clients are offered: only those of this table, never because the upstream offers one
(KB-X5).

Not in it: Produce from 10 and Fetch from 16 on, which name brokers' addresses (KIP-951); features, so that clients
keep to transactions version 1; share and streams groups, telemetry, Raft, what brokers ask each other, and moving
partitions between brokers.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.protocol import Api


class RequestRoute(Enum):
    """What is done with a request."""

    PASS = "it passes, and so does its answer"
    EDIT = "it passes; of its answer the beginning or all is read, and rewritten"
    GROUP = "it names one group: answered here if that is ours, else it passes"
    SEVERAL = "it names several things of which some may be ours"
    GREET = "ApiVersions"
    LOGIN = "it passes, and what it says of its sender is remembered"


PRODUCE: Final = 0
PASS, EDIT, GROUP, SEVERAL = RequestRoute.PASS, RequestRoute.EDIT, RequestRoute.GROUP, RequestRoute.SEVERAL

TABLE: Final[Mapping[int, tuple[Api, RequestRoute]]] = {
    api.key: (api, way)
    for api, way in (
        # From 0 on, though no broker takes what is older than 3: without it old clients compress nothing (KAFKA-18659).
        (Api(0, "Produce", 0, 9), PASS),
        (Api(1, "Fetch", 0, 15), PASS),
        (Api(2, "ListOffsets", 0, 10), PASS),
        (Api(3, "Metadata", 0, 12), EDIT),
        (Api(8, "OffsetCommit", 2, 9), GROUP),
        (Api(9, "OffsetFetch", 1, 9, parks=True), SEVERAL),
        (Api(10, "FindCoordinator", 0, 4, parks=True), SEVERAL),
        (Api(11, "JoinGroup", 0, 9, parks=True), GROUP),
        (Api(12, "Heartbeat", 0, 4), GROUP),
        (Api(13, "LeaveGroup", 0, 5), GROUP),
        (Api(14, "SyncGroup", 0, 5, parks=True), GROUP),
        (Api(15, "DescribeGroups", 0, 6, parks=True), SEVERAL),
        (Api(16, "ListGroups", 0, 5, parks=True), EDIT),
        (Api(17, "SaslHandshake", 0, 1, parks=True), RequestRoute.LOGIN),
        (Api(18, "ApiVersions", 0, 3), RequestRoute.GREET),
        (Api(19, "CreateTopics", 0, 7), PASS),
        (Api(20, "DeleteTopics", 0, 6), PASS),
        (Api(21, "DeleteRecords", 0, 2), PASS),
        (Api(22, "InitProducerId", 0, 4), PASS),
        (Api(23, "OffsetForLeaderEpoch", 0, 4), PASS),
        (Api(24, "AddPartitionsToTxn", 0, 3), PASS),
        (Api(25, "AddOffsetsToTxn", 0, 3), GROUP),
        (Api(26, "EndTxn", 0, 3), PASS),
        (Api(28, "TxnOffsetCommit", 0, 3), GROUP),
        (Api(29, "DescribeAcls", 0, 3), PASS),
        (Api(30, "CreateAcls", 0, 3), PASS),
        (Api(31, "DeleteAcls", 0, 3), PASS),
        (Api(32, "DescribeConfigs", 1, 4, parks=True), SEVERAL),
        (Api(33, "AlterConfigs", 0, 2, parks=True), SEVERAL),
        (Api(34, "AlterReplicaLogDirs", 0, 2), PASS),
        (Api(35, "DescribeLogDirs", 0, 4), EDIT),
        (Api(36, "SaslAuthenticate", 0, 2, parks=True), RequestRoute.LOGIN),
        (Api(37, "CreatePartitions", 0, 3), PASS),
        (Api(38, "CreateDelegationToken", 0, 3), PASS),
        (Api(39, "RenewDelegationToken", 0, 2), PASS),
        (Api(40, "ExpireDelegationToken", 0, 2), PASS),
        (Api(41, "DescribeDelegationToken", 0, 3), PASS),
        (Api(42, "DeleteGroups", 0, 2, parks=True), SEVERAL),
        (Api(43, "ElectLeaders", 0, 2), PASS),
        (Api(44, "IncrementalAlterConfigs", 0, 1, parks=True), SEVERAL),
        (Api(46, "ListPartitionReassignments", 0, 0), PASS),
        (Api(47, "OffsetDelete", 0, 0), GROUP),
        (Api(48, "DescribeClientQuotas", 0, 1), PASS),
        (Api(49, "AlterClientQuotas", 0, 1), PASS),
        (Api(50, "DescribeUserScramCredentials", 0, 0), PASS),
        (Api(51, "AlterUserScramCredentials", 0, 0), PASS),
        (Api(60, "DescribeCluster", 0, 1), EDIT),
        (Api(61, "DescribeProducers", 0, 0), PASS),
        (Api(65, "DescribeTransactions", 0, 0), PASS),
        (Api(66, "ListTransactions", 0, 1), EDIT),
        (Api(68, "ConsumerGroupHeartbeat", 0, 1), GROUP),
        (Api(69, "ConsumerGroupDescribe", 0, 1, parks=True), SEVERAL),
        (Api(74, "ListConfigResources", 0, 1, parks=True), SEVERAL),
    )
}

CHANGES_TOPICS: Final = frozenset({19, 20, 37})
"""After which there are other topics, or partitions."""

GROUPS_HERE: Final = frozenset(
    {"OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
     "DescribeGroups", "ListGroups", "DeleteGroups", "OffsetDelete", "ConsumerGroupHeartbeat",
     "ConsumerGroupDescribe", "TxnOffsetCommit"}
)  # fmt: skip
"""On a node's own port they are told as they are served here, be the upstream older."""


TOKENS: Final = frozenset({38, 39, 40, 41})
"""About delegation tokens: who has one comes to the brokers as whoever it was made by."""


def offered_versions(offered: Iterable[Any], *, own_port: bool, untold: Collection[int] = ()) -> list[Any]:
    """Rows of ApiVersions, of those that the upstream `offered`, without `untold`."""
    upstream = {row.api_key: (row.min_version, row.max_version) for row in offered}
    made = struct("ApiVersionsResponse.api_keys")
    rows = []
    for key, (api, _) in TABLE.items():
        if key in untold:
            continue
        first, last = api.first, api.last
        if not (own_port and api.name in GROUPS_HERE):
            least, most = upstream.get(key, (0, -1))
            first, last = max(first, least), min(last, most)
        if first <= last:
            rows.append(made(api_key=key, min_version=first, max_version=last))
    return rows
