"""The table of rights: what each request at each door needs. Listeners enforce it, the docs page shows it.

Kafka's APIs need what Kafka's brokers ask for (KafkaApis, ControllerApis of 4.1). A test fails for a request without a
row.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from muster.coordinator.security.access_model import Operation, ResourceType

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


OF_ANSWER: Final = "-> "


class WithoutRight(Enum):
    """What happens to a resource that the caller has no right to."""

    REFUSED = "refused"
    """With the code of its kind of resource: 29, 30, 31 or 53."""
    LEFT_OUT = "left out"
    """The answer reads as if it were not there."""


class RequiredRight(NamedTuple):
    operation: Operation
    resource_type: ResourceType
    of: str = ""
    """The path of the resource's name in the request, or in the answer if it begins with `->`. Empty: the cluster."""
    lacking: WithoutRight = WithoutRight.REFUSED
    instead: "RequiredRight | None" = None
    """This right is as good."""
    when: str = ""
    """Empty: always."""

    @property
    def of_answer(self) -> bool:
        """Whether the name is in the answer, not in the request."""
        return self.of.startswith(OF_ANSWER)

    def split_path(self) -> tuple[str, str]:
        """The field that `of` begins with, and the path below it.

        >>> API_RIGHTS["ListOffsets"][0].split_path(), API_RIGHTS["ListGroups"][0].split_path()
        (('topics', 'name'), ('groups', 'group_id'))
        >>> API_RIGHTS["Heartbeat"][0].split_path()
        ('group_id', '')
        """
        first, _, rest = self.of.removeprefix(OF_ANSWER).partition(".")
        return first, rest


RequiredRights: TypeAlias = tuple[RequiredRight, ...]
"""All that a request needs. Empty: every caller may send it."""

REFUSALS: Final = {TOPIC: 29, GROUP: 30, CLUSTER: 31, TRANSACTIONAL_ID: 53}
"""Kafka's code for a missing right, by type of resource."""


def left_out(operation: Operation, kind: ResourceType, of: str, instead: RequiredRight | None = None) -> RequiredRight:
    return RequiredRight(operation, kind, of, WithoutRight.LEFT_OUT, instead)


def on_cluster(operation: Operation) -> RequiredRight:
    return RequiredRight(operation, CLUSTER)


MEMBER: Final = (RequiredRight(READ, GROUP, "group_id"),)
CONFIGS_OF_A_NODE: Final = "a broker"
CONFIG_ROWS_READ: Final = (
    RequiredRight(DESCRIBE_CONFIGS, TOPIC, "resources.resource_name", when="a topic"),
    RequiredRight(DESCRIBE_CONFIGS, GROUP, "resources.resource_name", when="a group"),
    RequiredRight(DESCRIBE_CONFIGS, CLUSTER, when=CONFIGS_OF_A_NODE),
)
CONFIG_ROWS_CHANGED: Final = (
    RequiredRight(ALTER_CONFIGS, TOPIC, "resources.resource_name", when="a topic"),
    RequiredRight(ALTER_CONFIGS, GROUP, "resources.resource_name", when="a group"),
    RequiredRight(ALTER_CONFIGS, CLUSTER, when=CONFIGS_OF_A_NODE),
)
ANY_TOPIC: Final = "any one at all"
SAME: Final = "the same"
NEW_TOPIC: Final = "one that is missing and would be made"

OF_MEMBERS: Final = left_out(DESCRIBE, TOPIC, "-> topics of its members")
OF_ROWS: Final = left_out(DESCRIBE, TOPIC, "-> topics of its rows")

API_RIGHTS: Final[Mapping[str, RequiredRights]] = {
    "Produce": (
        RequiredRight(WRITE, TOPIC, "topic_data.name"),
        RequiredRight(WRITE, TRANSACTIONAL_ID, "transactional_id", when="records of a transaction"),
    ),
    "Fetch": (RequiredRight(READ, TOPIC, "topics.topic"),),
    "ListOffsets": (RequiredRight(DESCRIBE, TOPIC, "topics.name"),),
    "OffsetForLeaderEpoch": (
        RequiredRight(DESCRIBE, TOPIC, "topics.topic", instead=on_cluster(Operation.CLUSTER_ACTION)),
    ),
    "Metadata": (
        RequiredRight(DESCRIBE, TOPIC, "topics.name"),
        RequiredRight(CREATE, TOPIC, "topics.name", instead=on_cluster(CREATE), when=NEW_TOPIC),
        left_out(DESCRIBE, TOPIC, "-> topics.name"),
    ),
    "OffsetCommit": (RequiredRight(READ, GROUP, "group_id"), RequiredRight(READ, TOPIC, "topics.name")),
    "OffsetFetch": (
        RequiredRight(DESCRIBE, GROUP, "groups.group_id"),
        RequiredRight(DESCRIBE, TOPIC, "groups.topics.name"),
        left_out(DESCRIBE, TOPIC, "-> groups.topics.name"),
    ),
    "FindCoordinator": (
        RequiredRight(DESCRIBE, GROUP, "coordinator_keys", when="of groups"),
        RequiredRight(DESCRIBE, TRANSACTIONAL_ID, "coordinator_keys", when="of transactions"),
    ),
    "JoinGroup": MEMBER,
    "Heartbeat": MEMBER,
    "LeaveGroup": MEMBER,
    "SyncGroup": MEMBER,
    "DescribeGroups": (RequiredRight(DESCRIBE, GROUP, "groups"), OF_MEMBERS),
    "ListGroups": (left_out(DESCRIBE, GROUP, "-> groups.group_id", instead=on_cluster(DESCRIBE)),),
    "SaslHandshake": (),
    "ApiVersions": (),
    "CreateTopics": (
        RequiredRight(CREATE, TOPIC, "topics.name", instead=on_cluster(CREATE)),
        left_out(DESCRIBE_CONFIGS, TOPIC, "-> topics.configs"),
    ),
    "DeleteTopics": (RequiredRight(DELETE, TOPIC, "topics.name"),),
    "DeleteRecords": (RequiredRight(DELETE, TOPIC, "topics.name"),),
    "InitProducerId": (
        RequiredRight(
            Operation.IDEMPOTENT_WRITE,
            CLUSTER,
            instead=RequiredRight(WRITE, TOPIC, ANY_TOPIC),
            when="without a transactional id",
        ),
        RequiredRight(WRITE, TRANSACTIONAL_ID, "transactional_id", when="with one"),
    ),
    "AddPartitionsToTxn": (
        RequiredRight(WRITE, TRANSACTIONAL_ID, "transactional_id", when="of one transaction, up to version 3"),
        RequiredRight(WRITE, TOPIC, "topics.name", when="of one transaction, up to version 3"),
        RequiredRight(Operation.CLUSTER_ACTION, CLUSTER, when="of several, as nodes ask from version 4 on"),
    ),
    "EndTxn": (RequiredRight(WRITE, TRANSACTIONAL_ID, "transactional_id"),),
    "AddOffsetsToTxn": (
        RequiredRight(WRITE, TRANSACTIONAL_ID, "transactional_id"),
        RequiredRight(READ, GROUP, "group_id"),
    ),
    "TxnOffsetCommit": (
        RequiredRight(WRITE, TRANSACTIONAL_ID, "transactional_id"),
        RequiredRight(READ, GROUP, "group_id"),
        RequiredRight(READ, TOPIC, "topics.name"),
    ),
    "WriteTxnMarkers": (on_cluster(ALTER),),
    "DescribeAcls": (on_cluster(DESCRIBE),),
    "CreateAcls": (on_cluster(ALTER),),
    "DeleteAcls": (on_cluster(ALTER),),
    "DescribeConfigs": CONFIG_ROWS_READ,
    "AlterConfigs": CONFIG_ROWS_CHANGED,
    "DescribeLogDirs": (on_cluster(DESCRIBE), left_out(DESCRIBE, TOPIC, "-> results.topics.name")),
    "SaslAuthenticate": (),
    "CreatePartitions": (RequiredRight(ALTER, TOPIC, "topics.name"),),
    "DeleteGroups": (RequiredRight(DELETE, GROUP, "groups_names"),),
    "IncrementalAlterConfigs": CONFIG_ROWS_CHANGED,
    "OffsetDelete": (RequiredRight(DELETE, GROUP, "group_id"), RequiredRight(READ, TOPIC, "topics.name")),
    "DescribeClientQuotas": (on_cluster(DESCRIBE_CONFIGS),),
    "AlterClientQuotas": (on_cluster(ALTER_CONFIGS),),
    "DescribeUserScramCredentials": (on_cluster(DESCRIBE),),
    "AlterUserScramCredentials": (on_cluster(ALTER),),
    "ElectLeaders": (on_cluster(ALTER), left_out(DESCRIBE, TOPIC, "-> replica_election_results.topic")),
    "AlterPartitionReassignments": (on_cluster(ALTER),),
    "ListPartitionReassignments": (on_cluster(DESCRIBE), left_out(DESCRIBE, TOPIC, "-> topics.name")),
    "DescribeCluster": (
        RequiredRight(DESCRIBE, CLUSTER, lacking=WithoutRight.LEFT_OUT, when="what the caller may do there"),
    ),
    "DescribeProducers": (RequiredRight(READ, TOPIC, "topics.name"),),
    "DescribeTransactions": (
        RequiredRight(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids"),
        left_out(DESCRIBE, TOPIC, "-> transaction_states.topics.topic"),
    ),
    "ListTransactions": (left_out(DESCRIBE, TRANSACTIONAL_ID, "-> transaction_states.transactional_id"),),
    "ConsumerGroupHeartbeat": (
        RequiredRight(READ, GROUP, "group_id"),
        RequiredRight(DESCRIBE, TOPIC, "subscribed_topic_names"),
        left_out(DESCRIBE, TOPIC, "topics that subscribed_topic_regex matches"),
    ),
    "ConsumerGroupDescribe": (
        RequiredRight(DESCRIBE, GROUP, "group_ids"),
        RequiredRight(DESCRIBE, TOPIC, "-> groups.members.assignment.topic_partitions.topic_name"),
    ),
    "ListConfigResources": (
        on_cluster(DESCRIBE_CONFIGS),
        left_out(DESCRIBE, TOPIC, "-> config_resources.resource_name", RequiredRight(DESCRIBE_CONFIGS, TOPIC, SAME)),
        left_out(DESCRIBE, GROUP, "-> config_resources.resource_name", RequiredRight(DESCRIBE_CONFIGS, GROUP, SAME)),
    ),
}
"""By an API's name. Those that no node serves yet have the row that they will need."""

GROUPS: Final = "/coordinator.rpc.v1.GroupCoordinator/"
CONTROL: Final = "/coordinator.rpc.v1.GroupControl/"
FENCING: Final = "/coordinator.rpc.v1.Fencing/"
ACLS: Final = "/coordinator.rpc.v1.Acls/"
SECURITY: Final = "/coordinator.rpc.v1.Security/"
QUOTAS: Final = "/coordinator.rpc.v1.Quotas/"
NODES: Final = "/coordinator.rpc.v1.Cluster/"
TRANSACTIONS: Final = "/coordinator.rpc.v1.Transactions/"
BROKER: Final = "/storage.rpc.v1.Broker/"
STAGING: Final = "/storage.rpc.v1.Staging/"
SCALER: Final = "/externalscaler.ExternalScaler/"
HEALTH: Final = "/grpc.health.v1.Health/"

LOOK: Final = (RequiredRight(DESCRIBE, GROUP, "group_id"),)
SET: Final = (RequiredRight(ALTER_CONFIGS, GROUP, "group_id"),)
PATTERN: Final = left_out(DESCRIBE, TOPIC, "topics that the pattern matches")
SESSION: Final = (
    RequiredRight(READ, GROUP, "hello.group_id, register_consumer.group_id"),
    RequiredRight(DESCRIBE, TOPIC, "register_consumer.topics, consumer_group_heartbeat.subscribed_topic_names.names"),
    PATTERN,
)
OF_ENTRIES: Final = left_out(DESCRIBE, TOPIC, "-> topics of its entries")
SCALED: Final = (
    RequiredRight(DESCRIBE, GROUP, "scalerMetadata[consumerGroup]"),
    RequiredRight(DESCRIBE, TOPIC, "scalerMetadata[topic]"),
)

PRODUCER: Final = (RequiredRight(WRITE, TRANSACTIONAL_ID, "transactional_id"),)
OF_TRANSACTIONS: Final = left_out(DESCRIBE, TOPIC, "-> topics of its transactions")

RPC_RIGHTS: Final[Mapping[str, RequiredRights]] = {
    GROUPS + "FindCoordinator": (
        RequiredRight(DESCRIBE, GROUP, "key", when="of a group"),
        RequiredRight(DESCRIBE, TRANSACTIONAL_ID, "key", when="of a transactional id"),
    ),
    GROUPS + "JoinGroup": MEMBER,
    GROUPS + "SyncGroup": MEMBER,
    GROUPS + "Heartbeat": MEMBER,
    GROUPS + "ConsumerGroupHeartbeat": (
        RequiredRight(READ, GROUP, "group_id"),
        RequiredRight(DESCRIBE, TOPIC, "subscribed_topic_names.names"),
        PATTERN,
    ),
    GROUPS + "ConsumerGroupDescribe": (
        RequiredRight(DESCRIBE, GROUP, "group_ids"),
        RequiredRight(DESCRIBE, TOPIC, "-> groups.members.assignment.topic_partitions.topic_name"),
    ),
    GROUPS + "LeaveGroup": MEMBER,
    GROUPS + "OffsetCommit": (RequiredRight(READ, GROUP, "group_id"), RequiredRight(READ, TOPIC, "topics.name")),
    GROUPS + "TxnOffsetCommit": API_RIGHTS["TxnOffsetCommit"],
    GROUPS + "OffsetFetch": (
        RequiredRight(DESCRIBE, GROUP, "group_id"),
        RequiredRight(DESCRIBE, TOPIC, "topics.name"),
        left_out(DESCRIBE, TOPIC, "-> topics.name"),
    ),
    GROUPS + "OffsetDelete": (RequiredRight(DELETE, GROUP, "group_id"), RequiredRight(READ, TOPIC, "topics.name")),
    GROUPS + "ListGroups": (left_out(DESCRIBE, GROUP, "-> groups.group_id", instead=on_cluster(DESCRIBE)),),
    GROUPS + "DescribeGroups": (RequiredRight(DESCRIBE, GROUP, "groups"), OF_MEMBERS),
    GROUPS + "DeleteGroups": (RequiredRight(DELETE, GROUP, "groups_names"),),
    GROUPS + "RemoveMembers": MEMBER,
    GROUPS + "DescribeGroupSettings": (RequiredRight(DESCRIBE_CONFIGS, GROUP, "group_id"),),
    GROUPS + "AlterGroupSettings": SET,
    GROUPS + "ExplainGroup": (*LOOK, OF_ENTRIES),
    GROUPS + "SimulateAssignment": (
        RequiredRight(DESCRIBE, GROUP, "group_id", when="of a group"),
        RequiredRight(DESCRIBE, TOPIC, "-> topics of the plan"),
    ),
    GROUPS + "DescribeNode": (on_cluster(DESCRIBE),),
    GROUPS + "WatchGroup": (*LOOK, OF_ENTRIES),
    GROUPS + "Session": SESSION,
    GROUPS + "SharedSession": SESSION,
    CONTROL + "HoldGroup": SET,
    CONTROL + "ResumeGroup": SET,
    CONTROL + "DescribeHolds": LOOK,
    CONTROL + "StartCanary": SET,
    CONTROL + "EndCanary": SET,
    CONTROL + "DescribeCanary": LOOK,
    FENCING + "ClaimFence": (RequiredRight(READ, GROUP, "group_id"), RequiredRight(WRITE, TOPIC, "logs.topic")),
    TRANSACTIONS + "InitProducerId": PRODUCER,
    TRANSACTIONS + "EndTxn": PRODUCER,
    TRANSACTIONS + "DescribeTransactions": (
        RequiredRight(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids"),
        OF_TRANSACTIONS,
    ),
    TRANSACTIONS + "ListTransactions": (left_out(DESCRIBE, TRANSACTIONAL_ID, "-> transactions.transactional_id"),),
    TRANSACTIONS + "TerminateTransaction": PRODUCER,
    TRANSACTIONS + "ExplainTransactions": (
        RequiredRight(DESCRIBE, TRANSACTIONAL_ID, "transactional_id"),
        OF_TRANSACTIONS,
    ),
    SECURITY + "DescribeUsers": (on_cluster(DESCRIBE),),
    SECURITY + "AlterUsers": (on_cluster(ALTER),),
    SECURITY + "DescribeTokens": (on_cluster(DESCRIBE),),
    SECURITY + "CreateToken": (on_cluster(ALTER),),
    SECURITY + "RevokeTokens": (on_cluster(ALTER),),
    ACLS + "DescribeAcls": (on_cluster(DESCRIBE),),
    ACLS + "CreateAcls": (on_cluster(ALTER),),
    ACLS + "DeleteAcls": (on_cluster(ALTER),),
    ACLS + "CheckAcl": (on_cluster(DESCRIBE),),
    QUOTAS + "DescribeQuotas": (on_cluster(DESCRIBE_CONFIGS),),
    QUOTAS + "AlterQuotas": (on_cluster(ALTER_CONFIGS),),
    NODES + "DescribeCluster": (on_cluster(DESCRIBE), OF_ROWS),
    NODES + "ElectLeaders": (on_cluster(ALTER), OF_ROWS),
    NODES + "AlterPartitionReassignments": (on_cluster(ALTER),),
    NODES + "ListPartitionReassignments": (on_cluster(DESCRIBE), OF_ROWS),
    NODES + "DrainNode": (on_cluster(ALTER), OF_ROWS),
    NODES + "ExplainElections": (on_cluster(DESCRIBE), OF_ROWS),
    BROKER + "Metadata": (RequiredRight(DESCRIBE, TOPIC, "topics"), left_out(DESCRIBE, TOPIC, "-> topics.name")),
    BROKER + "CreateTopics": (RequiredRight(CREATE, TOPIC, "topics.name", instead=on_cluster(CREATE)),),
    BROKER + "DeleteTopics": (RequiredRight(DELETE, TOPIC, "topic_names"),),
    BROKER + "CreatePartitions": (RequiredRight(ALTER, TOPIC, "topics.name"),),
    BROKER + "DescribeConfigs": (
        RequiredRight(DESCRIBE_CONFIGS, TOPIC, "topics"),
        RequiredRight(DESCRIBE_CONFIGS, CLUSTER, when="without topics: the node's"),
    ),
    BROKER + "AlterConfigs": (RequiredRight(ALTER_CONFIGS, TOPIC, "topics.topic"),),
    BROKER + "Produce": API_RIGHTS["Produce"],
    BROKER + "Fetch": (RequiredRight(READ, TOPIC, "topics.topic"),),
    BROKER + "MultiFetch": (RequiredRight(READ, TOPIC, "fetches.topic"),),
    BROKER + "InitProducerId": API_RIGHTS["InitProducerId"],
    BROKER + "ListOffsets": (RequiredRight(DESCRIBE, TOPIC, "topics.name"),),
    BROKER + "DeleteRecords": (RequiredRight(DELETE, TOPIC, "topics.name"),),
    BROKER + "DescribeProducers": API_RIGHTS["DescribeProducers"],
    BROKER + "WriteTxnMarkers": API_RIGHTS["WriteTxnMarkers"],
    STAGING + "StageRecords": (RequiredRight(WRITE, TOPIC, "topic_data.name"),),
    STAGING + "CommitStaged": (RequiredRight(WRITE, TOPIC, "topics of what was staged"),),
    STAGING + "AbortStaged": (RequiredRight(WRITE, TOPIC, "topics of what was staged"),),
    SCALER + "IsActive": SCALED,
    SCALER + "StreamIsActive": SCALED,
    SCALER + "GetMetricSpec": SCALED,
    SCALER + "GetMetrics": (
        RequiredRight(DESCRIBE, GROUP, "scaledObjectRef.scalerMetadata[consumerGroup]"),
        RequiredRight(DESCRIBE, TOPIC, "scaledObjectRef.scalerMetadata[topic]"),
    ),
    HEALTH + "Check": (),
    HEALTH + "List": (),
    HEALTH + "Watch": (),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": (),
}
"""By a method's full name. Health and reflection are asked who they are by settings of their own, not by these."""
