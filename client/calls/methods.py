"""The calls of all services: path, answer type, and whether the same request may safely be sent twice."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from muster.coordinator.rpc.v1 import acl_service_pb2 as acl_pb
from muster.coordinator.rpc.v1 import cluster_service_pb2 as cluster_pb
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import fence_service_pb2 as fence_pb
from muster.coordinator.rpc.v1 import quota_service_pb2 as quota_pb
from muster.coordinator.rpc.v1 import security_service_pb2 as security_pb
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb
from muster.storage.service.fetch_frames import MultiFetchFrames

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")
Read = TypeVar("Read", covariant=True)

ACLS = "/coordinator.rpc.v1.Acls/"
GROUP = "/coordinator.rpc.v1.GroupCoordinator/"
FENCING = "/coordinator.rpc.v1.Fencing/"
SECURITY = "/coordinator.rpc.v1.Security/"
QUOTAS = "/coordinator.rpc.v1.Quotas/"
CLUSTER = "/coordinator.rpc.v1.Cluster/"
CONTROL = "/coordinator.rpc.v1.GroupControl/"
BROKER = "/storage.rpc.v1.Broker/"
STAGING = "/storage.rpc.v1.Staging/"


class AnswerReader(Protocol[Read]):
    """A message type, or what reads a message's bytes in its place."""

    @staticmethod
    def FromString(data: bytes, /) -> Read: ...


@dataclass(frozen=True, slots=True)
class ClientMethod(Generic[Request, Response]):
    """`idempotent`: after a lost answer the request may be sent again (grpc.io's word, and HTTP's)."""

    path: str
    request: type[Request]
    response: AnswerReader[Response]
    idempotent: bool = True

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


FIND_COORDINATOR = ClientMethod(
    GROUP + "FindCoordinator", group_pb.FindCoordinatorRequest, group_pb.FindCoordinatorResponse
)
# A repeated join could add a second member, a repeated sync could meet another round: the member machine decides.
JOIN_GROUP = ClientMethod(GROUP + "JoinGroup", group_pb.JoinGroupRequest, group_pb.JoinGroupResponse, False)
SYNC_GROUP = ClientMethod(GROUP + "SyncGroup", group_pb.SyncGroupRequest, group_pb.SyncGroupResponse, False)
HEARTBEAT = ClientMethod(GROUP + "Heartbeat", group_pb.HeartbeatRequest, group_pb.HeartbeatResponse)
# After a lost answer the member says everything, which the coordinator can tell from a stale heartbeat.
CONSUMER_GROUP_HEARTBEAT = ClientMethod(
    GROUP + "ConsumerGroupHeartbeat",
    group_pb.ConsumerGroupHeartbeatRequest,
    group_pb.ConsumerGroupHeartbeatResponse,
    False,
)
LEAVE_GROUP = ClientMethod(GROUP + "LeaveGroup", group_pb.LeaveGroupRequest, group_pb.LeaveGroupResponse)
OFFSET_COMMIT = ClientMethod(GROUP + "OffsetCommit", group_pb.OffsetCommitRequest, group_pb.OffsetCommitResponse)
OFFSET_FETCH = ClientMethod(GROUP + "OffsetFetch", group_pb.OffsetFetchRequest, group_pb.OffsetFetchResponse)
OFFSET_DELETE = ClientMethod(GROUP + "OffsetDelete", group_pb.OffsetDeleteRequest, group_pb.OffsetDeleteResponse)
SESSION = ClientMethod(GROUP + "Session", group_pb.SessionRequest, group_pb.SessionResponse)
SHARED_SESSION = ClientMethod(GROUP + "SharedSession", group_pb.SharedSessionRequest, group_pb.SharedSessionResponse)
DESCRIBE_NODE = ClientMethod(GROUP + "DescribeNode", group_pb.DescribeNodeRequest, group_pb.DescribeNodeResponse)
LIST_GROUPS = ClientMethod(GROUP + "ListGroups", group_pb.ListGroupsRequest, group_pb.ListGroupsResponse)
DESCRIBE_GROUPS = ClientMethod(
    GROUP + "DescribeGroups", group_pb.DescribeGroupsRequest, group_pb.DescribeGroupsResponse
)
DELETE_GROUPS = ClientMethod(GROUP + "DeleteGroups", group_pb.DeleteGroupsRequest, group_pb.DeleteGroupsResponse, False)
REMOVE_MEMBERS = ClientMethod(
    GROUP + "RemoveMembers", group_pb.RemoveMembersRequest, group_pb.RemoveMembersResponse, False
)
DESCRIBE_GROUP_SETTINGS = ClientMethod(
    GROUP + "DescribeGroupSettings", group_pb.DescribeGroupSettingsRequest, group_pb.DescribeGroupSettingsResponse
)
ALTER_GROUP_SETTINGS = ClientMethod(
    GROUP + "AlterGroupSettings", group_pb.AlterGroupSettingsRequest, group_pb.AlterGroupSettingsResponse, False
)
EXPLAIN_GROUP = ClientMethod(GROUP + "ExplainGroup", group_pb.ExplainGroupRequest, group_pb.ExplainGroupResponse)
SIMULATE_ASSIGNMENT = ClientMethod(
    GROUP + "SimulateAssignment", group_pb.SimulateAssignmentRequest, group_pb.SimulateAssignmentResponse
)
WATCH_GROUP = ClientMethod(GROUP + "WatchGroup", group_pb.WatchGroupRequest, group_pb.WatchGroupResponse)

CLAIM_FENCE = ClientMethod(FENCING + "ClaimFence", fence_pb.ClaimFenceRequest, fence_pb.ClaimFenceResponse)
# Said twice it is as said once, but for the ledger's second entry, and the version that the first has raised.
HOLD_GROUP = ClientMethod(CONTROL + "HoldGroup", control_pb.HoldGroupRequest, control_pb.HoldGroupResponse, False)
RESUME_GROUP = ClientMethod(
    CONTROL + "ResumeGroup", control_pb.ResumeGroupRequest, control_pb.ResumeGroupResponse, False
)
# Said twice the second is refused: one runs already, or none does any more.
START_CANARY = ClientMethod(
    CONTROL + "StartCanary", control_pb.StartCanaryRequest, control_pb.StartCanaryResponse, False
)
END_CANARY = ClientMethod(CONTROL + "EndCanary", control_pb.EndCanaryRequest, control_pb.EndCanaryResponse, False)
DESCRIBE_CANARY = ClientMethod(
    CONTROL + "DescribeCanary", control_pb.DescribeCanaryRequest, control_pb.DescribeCanaryResponse
)
DESCRIBE_HOLDS = ClientMethod(
    CONTROL + "DescribeHolds", control_pb.DescribeHoldsRequest, control_pb.DescribeHoldsResponse
)

DESCRIBE_ACLS = ClientMethod(ACLS + "DescribeAcls", acl_pb.DescribeAclsRequest, acl_pb.DescribeAclsResponse)
CREATE_ACLS = ClientMethod(ACLS + "CreateAcls", acl_pb.CreateAclsRequest, acl_pb.CreateAclsResponse)
# Said twice the second finds nothing.
DELETE_ACLS = ClientMethod(ACLS + "DeleteAcls", acl_pb.DeleteAclsRequest, acl_pb.DeleteAclsResponse, False)
CHECK_ACL = ClientMethod(ACLS + "CheckAcl", acl_pb.CheckAclRequest, acl_pb.CheckAclResponse)
DESCRIBE_USERS = ClientMethod(
    SECURITY + "DescribeUsers", security_pb.DescribeUsersRequest, security_pb.DescribeUsersResponse
)
ALTER_USERS = ClientMethod(
    SECURITY + "AlterUsers", security_pb.AlterUsersRequest, security_pb.AlterUsersResponse, False
)
DESCRIBE_TOKENS = ClientMethod(
    SECURITY + "DescribeTokens", security_pb.DescribeTokensRequest, security_pb.DescribeTokensResponse
)
CREATE_TOKEN = ClientMethod(
    SECURITY + "CreateToken", security_pb.CreateTokenRequest, security_pb.CreateTokenResponse, False
)
REVOKE_TOKENS = ClientMethod(
    SECURITY + "RevokeTokens", security_pb.RevokeTokensRequest, security_pb.RevokeTokensResponse, False
)
DESCRIBE_QUOTAS = ClientMethod(
    QUOTAS + "DescribeQuotas", quota_pb.DescribeQuotasRequest, quota_pb.DescribeQuotasResponse
)
# Said twice it is as said once.
ALTER_QUOTAS = ClientMethod(QUOTAS + "AlterQuotas", quota_pb.AlterQuotasRequest, quota_pb.AlterQuotasResponse)

DESCRIBE_CLUSTER = ClientMethod(
    CLUSTER + "DescribeCluster", cluster_pb.DescribeClusterRequest, cluster_pb.DescribeClusterResponse
)
ELECT_LEADERS = ClientMethod(CLUSTER + "ElectLeaders", cluster_pb.ElectLeadersRequest, cluster_pb.ElectLeadersResponse)
ALTER_REASSIGNMENTS = ClientMethod(
    CLUSTER + "AlterPartitionReassignments",
    cluster_pb.AlterPartitionReassignmentsRequest,
    cluster_pb.AlterPartitionReassignmentsResponse,
)
LIST_REASSIGNMENTS = ClientMethod(
    CLUSTER + "ListPartitionReassignments",
    cluster_pb.ListPartitionReassignmentsRequest,
    cluster_pb.ListPartitionReassignmentsResponse,
)
DRAIN_NODE = ClientMethod(CLUSTER + "DrainNode", cluster_pb.DrainNodeRequest, cluster_pb.DrainNodeResponse)
EXPLAIN_ELECTIONS = ClientMethod(
    CLUSTER + "ExplainElections", cluster_pb.ExplainElectionsRequest, cluster_pb.ExplainElectionsResponse
)

HEALTH = ClientMethod("/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse)

METADATA = ClientMethod(BROKER + "Metadata", broker_pb.MetadataRequest, broker_pb.MetadataResponse)
CREATE_TOPICS = ClientMethod(
    BROKER + "CreateTopics", broker_pb.CreateTopicsRequest, broker_pb.CreateTopicsResponse, False
)
DELETE_TOPICS = ClientMethod(
    BROKER + "DeleteTopics", broker_pb.DeleteTopicsRequest, broker_pb.DeleteTopicsResponse, False
)
CREATE_PARTITIONS = ClientMethod(
    BROKER + "CreatePartitions", broker_pb.CreatePartitionsRequest, broker_pb.CreatePartitionsResponse, False
)
ALTER_CONFIGS = ClientMethod(
    BROKER + "AlterConfigs", broker_pb.AlterConfigsRequest, broker_pb.AlterConfigsResponse, False
)
DESCRIBE_CONFIGS = ClientMethod(
    BROKER + "DescribeConfigs", broker_pb.DescribeConfigsRequest, broker_pb.DescribeConfigsResponse
)
PRODUCE = ClientMethod(BROKER + "Produce", broker_pb.ProduceRequest, broker_pb.ProduceResponse, False)
FETCH = ClientMethod(BROKER + "Fetch", broker_pb.FetchRequest, broker_pb.FetchResponse)
MULTI_FETCH = ClientMethod(BROKER + "MultiFetch", broker_pb.MultiFetchRequest, broker_pb.MultiFetchResponse)
# The same call for readers of many records: they come as views of the answer.
MULTI_FETCH_FRAMES = ClientMethod(BROKER + "MultiFetch", broker_pb.MultiFetchRequest, MultiFetchFrames)
LIST_OFFSETS = ClientMethod(BROKER + "ListOffsets", broker_pb.ListOffsetsRequest, broker_pb.ListOffsetsResponse)
DELETE_RECORDS = ClientMethod(
    BROKER + "DeleteRecords", broker_pb.DeleteRecordsRequest, broker_pb.DeleteRecordsResponse, False
)
INIT_PRODUCER_ID = ClientMethod(
    BROKER + "InitProducerId", broker_pb.InitProducerIdRequest, broker_pb.InitProducerIdResponse
)

STAGE_RECORDS = ClientMethod(STAGING + "StageRecords", staging_pb.StageRecordsRequest, staging_pb.StageRecordsResponse)
COMMIT_STAGED = ClientMethod(STAGING + "CommitStaged", staging_pb.CommitStagedRequest, staging_pb.CommitStagedResponse)
ABORT_STAGED = ClientMethod(STAGING + "AbortStaged", staging_pb.AbortStagedRequest, staging_pb.AbortStagedResponse)
