"""The APIs this node serves, and in which versions: enough for every client of today, and no more."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Api:
    """One API. `parks`: the connection's later requests wait for its answer, as in Kafka.

    It may take long, or be so large next to its request that many at once would fill the node's memory. `parks_long`:
    they wait only if it is not begun whole at once.
    """

    key: int
    name: str
    first: int
    last: int
    advertised_first: int = -1
    """The first version that ApiVersions tells of, where that is not the first one served."""
    parks: bool = False
    parks_long: bool = False

    @property
    def told_first(self) -> int:
        return self.first if self.advertised_first < 0 else self.advertised_first

    def serves(self, version: int) -> bool:
        return self.first <= version <= self.last


APIS: Final = (
    # librdkafka before 2.6 compresses only if Produce is told of from 0 on, which is why Kafka 4 does (KAFKA-18659).
    Api(0, "Produce", 3, 9, advertised_first=0, parks_long=True),
    Api(1, "Fetch", 0, 12, parks=True),
    Api(2, "ListOffsets", 0, 7),
    Api(3, "Metadata", 0, 12, parks=True),
    Api(8, "OffsetCommit", 2, 9),
    Api(9, "OffsetFetch", 1, 9, parks=True),
    Api(10, "FindCoordinator", 0, 4, parks=True),
    Api(11, "JoinGroup", 0, 9, parks=True),
    Api(12, "Heartbeat", 0, 4),
    Api(13, "LeaveGroup", 0, 5),
    Api(14, "SyncGroup", 0, 5, parks=True),
    Api(15, "DescribeGroups", 0, 6, parks=True),
    Api(16, "ListGroups", 0, 5, parks=True),
    Api(17, "SaslHandshake", 0, 1, parks=True),
    Api(18, "ApiVersions", 0, 3),
    Api(19, "CreateTopics", 2, 7, parks=True),
    Api(20, "DeleteTopics", 1, 6, parks=True),
    Api(21, "DeleteRecords", 0, 2, parks=True),
    Api(22, "InitProducerId", 0, 4),
    Api(23, "OffsetForLeaderEpoch", 2, 4),
    Api(29, "DescribeAcls", 1, 3, parks=True),
    Api(30, "CreateAcls", 1, 3, parks=True),
    Api(31, "DeleteAcls", 1, 3, parks=True),
    Api(32, "DescribeConfigs", 1, 4, parks=True),
    Api(33, "AlterConfigs", 0, 2, parks=True),
    Api(36, "SaslAuthenticate", 0, 2, parks=True),
    Api(37, "CreatePartitions", 0, 3, parks=True),
    Api(42, "DeleteGroups", 0, 2),
    Api(44, "IncrementalAlterConfigs", 0, 1, parks=True),
    Api(47, "OffsetDelete", 0, 0),
    Api(48, "DescribeClientQuotas", 0, 1, parks=True),
    Api(49, "AlterClientQuotas", 0, 1, parks=True),
    Api(50, "DescribeUserScramCredentials", 0, 0, parks=True),
    Api(51, "AlterUserScramCredentials", 0, 0, parks=True),
    Api(60, "DescribeCluster", 0, 1, parks=True),
    Api(68, "ConsumerGroupHeartbeat", 0, 1),
    Api(69, "ConsumerGroupDescribe", 0, 1, parks=True),
    Api(74, "ListConfigResources", 0, 1, parks=True),
)

CLUSTER_APIS: Final = tuple(
    sorted(
        (
            *APIS,
            Api(43, "ElectLeaders", 0, 2, parks=True),
            Api(45, "AlterPartitionReassignments", 0, 1, parks=True),
            Api(46, "ListPartitionReassignments", 0, 0, parks=True),
        ),
        key=lambda api: api.key,
    )
)
"""Those that a node of a cluster serves."""

API_VERSIONS: Final = 18
HEARTBEAT: Final = 12
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
UNSUPPORTED_VERSION: Final = 35
