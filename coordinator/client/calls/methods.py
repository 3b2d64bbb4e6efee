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


class Answer(Protocol[Read]):
    """A message type, or what reads a message's bytes in its place."""

    @staticmethod
    def FromString(data: bytes, /) -> Read: ...


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """`idempotent`: after a lost answer the request may be sent again (grpc.io's word, and HTTP's)."""

    path: str
    request: type[Request]
    response: Answer[Response]
    idempotent: bool = True

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


FIND_COORDINATOR = Method(GROUP + "FindCoordinator", group_pb.FindCoordinatorRequest, group_pb.FindCoordinatorResponse)
# A repeated join could add a second member, a repeated sync could meet another round: the member machine decides.
JOIN_GROUP = Method(GROUP + "JoinGroup", group_pb.JoinGroupRequest, group_pb.JoinGroupResponse, False)
SYNC_GROUP = Method(GROUP + "SyncGroup", group_pb.SyncGroupRequest, group_pb.SyncGroupResponse, False)
HEARTBEAT = Method(GROUP + "Heartbeat", group_pb.HeartbeatRequest, group_pb.HeartbeatResponse)
# After a lost answer the member says everything, which the coordinator can tell from a stale heartbeat.
CONSUMER_GROUP_HEARTBEAT = Method(
    GROUP + "ConsumerGroupHeartbeat",
    group_pb.ConsumerGroupHeartbeatRequest,
    group_pb.ConsumerGroupHeartbeatResponse,
    False,
)
LEAVE_GROUP = Method(GROUP + "LeaveGroup", group_pb.LeaveGroupRequest, group_pb.LeaveGroupResponse)
OFFSET_COMMIT = Method(GROUP + "OffsetCommit", group_pb.OffsetCommitRequest, group_pb.OffsetCommitResponse)
OFFSET_FETCH = Method(GROUP + "OffsetFetch", group_pb.OffsetFetchRequest, group_pb.OffsetFetchResponse)
OFFSET_DELETE = Method(GROUP + "OffsetDelete", group_pb.OffsetDeleteRequest, group_pb.OffsetDeleteResponse)
SESSION = Method(GROUP + "Session", group_pb.SessionRequest, group_pb.SessionResponse)
SHARED_SESSION = Method(GROUP + "SharedSession", group_pb.SharedSessionRequest, group_pb.SharedSessionResponse)
DESCRIBE_NODE = Method(GROUP + "DescribeNode", group_pb.DescribeNodeRequest, group_pb.DescribeNodeResponse)
LIST_GROUPS = Method(GROUP + "ListGroups", group_pb.ListGroupsRequest, group_pb.ListGroupsResponse)
DESCRIBE_GROUPS = Method(GROUP + "DescribeGroups", group_pb.DescribeGroupsRequest, group_pb.DescribeGroupsResponse)
DELETE_GROUPS = Method(GROUP + "DeleteGroups", group_pb.DeleteGroupsRequest, group_pb.DeleteGroupsResponse, False)
REMOVE_MEMBERS = Method(GROUP + "RemoveMembers", group_pb.RemoveMembersRequest, group_pb.RemoveMembersResponse, False)
DESCRIBE_GROUP_SETTINGS = Method(
    GROUP + "DescribeGroupSettings", group_pb.DescribeGroupSettingsRequest, group_pb.DescribeGroupSettingsResponse
)
ALTER_GROUP_SETTINGS = Method(
    GROUP + "AlterGroupSettings", group_pb.AlterGroupSettingsRequest, group_pb.AlterGroupSettingsResponse, False
)
EXPLAIN_GROUP = Method(GROUP + "ExplainGroup", group_pb.ExplainGroupRequest, group_pb.ExplainGroupResponse)
SIMULATE_ASSIGNMENT = Method(
    GROUP + "SimulateAssignment", group_pb.SimulateAssignmentRequest, group_pb.SimulateAssignmentResponse
)
WATCH_GROUP = Method(GROUP + "WatchGroup", group_pb.WatchGroupRequest, group_pb.WatchGroupResponse)

CLAIM_FENCE = Method(FENCING + "ClaimFence", fence_pb.ClaimFenceRequest, fence_pb.ClaimFenceResponse)
# Said twice it is as said once, but for the ledger's second entry, and the version that the first has raised.
HOLD_GROUP = Method(CONTROL + "HoldGroup", control_pb.HoldGroupRequest, control_pb.HoldGroupResponse, False)
RESUME_GROUP = Method(CONTROL + "ResumeGroup", control_pb.ResumeGroupRequest, control_pb.ResumeGroupResponse, False)
# Said twice the second is refused: one runs already, or none does any more.
START_CANARY = Method(CONTROL + "StartCanary", control_pb.StartCanaryRequest, control_pb.StartCanaryResponse, False)
END_CANARY = Method(CONTROL + "EndCanary", control_pb.EndCanaryRequest, control_pb.EndCanaryResponse, False)
DESCRIBE_CANARY = Method(
    CONTROL + "DescribeCanary", control_pb.DescribeCanaryRequest, control_pb.DescribeCanaryResponse
)
DESCRIBE_HOLDS = Method(CONTROL + "DescribeHolds", control_pb.DescribeHoldsRequest, control_pb.DescribeHoldsResponse)

DESCRIBE_ACLS = Method(ACLS + "DescribeAcls", acl_pb.DescribeAclsRequest, acl_pb.DescribeAclsResponse)
CREATE_ACLS = Method(ACLS + "CreateAcls", acl_pb.CreateAclsRequest, acl_pb.CreateAclsResponse)
# Said twice the second finds nothing.
DELETE_ACLS = Method(ACLS + "DeleteAcls", acl_pb.DeleteAclsRequest, acl_pb.DeleteAclsResponse, False)
CHECK_ACL = Method(ACLS + "CheckAcl", acl_pb.CheckAclRequest, acl_pb.CheckAclResponse)
DESCRIBE_USERS = Method(SECURITY + "DescribeUsers", security_pb.DescribeUsersRequest, security_pb.DescribeUsersResponse)
ALTER_USERS = Method(SECURITY + "AlterUsers", security_pb.AlterUsersRequest, security_pb.AlterUsersResponse, False)
DESCRIBE_TOKENS = Method(
    SECURITY + "DescribeTokens", security_pb.DescribeTokensRequest, security_pb.DescribeTokensResponse
)
CREATE_TOKEN = Method(SECURITY + "CreateToken", security_pb.CreateTokenRequest, security_pb.CreateTokenResponse, False)
REVOKE_TOKENS = Method(
    SECURITY + "RevokeTokens", security_pb.RevokeTokensRequest, security_pb.RevokeTokensResponse, False
)
DESCRIBE_QUOTAS = Method(QUOTAS + "DescribeQuotas", quota_pb.DescribeQuotasRequest, quota_pb.DescribeQuotasResponse)
# Said twice it is as said once.
ALTER_QUOTAS = Method(QUOTAS + "AlterQuotas", quota_pb.AlterQuotasRequest, quota_pb.AlterQuotasResponse)

DESCRIBE_CLUSTER = Method(
    CLUSTER + "DescribeCluster", cluster_pb.DescribeClusterRequest, cluster_pb.DescribeClusterResponse
)
ELECT_LEADERS = Method(CLUSTER + "ElectLeaders", cluster_pb.ElectLeadersRequest, cluster_pb.ElectLeadersResponse)
ALTER_REASSIGNMENTS = Method(
    CLUSTER + "AlterPartitionReassignments",
    cluster_pb.AlterPartitionReassignmentsRequest,
    cluster_pb.AlterPartitionReassignmentsResponse,
)
LIST_REASSIGNMENTS = Method(
    CLUSTER + "ListPartitionReassignments",
    cluster_pb.ListPartitionReassignmentsRequest,
    cluster_pb.ListPartitionReassignmentsResponse,
)
DRAIN_NODE = Method(CLUSTER + "DrainNode", cluster_pb.DrainNodeRequest, cluster_pb.DrainNodeResponse)
EXPLAIN_ELECTIONS = Method(
    CLUSTER + "ExplainElections", cluster_pb.ExplainElectionsRequest, cluster_pb.ExplainElectionsResponse
)

HEALTH = Method("/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse)

METADATA = Method(BROKER + "Metadata", broker_pb.MetadataRequest, broker_pb.MetadataResponse)
CREATE_TOPICS = Method(BROKER + "CreateTopics", broker_pb.CreateTopicsRequest, broker_pb.CreateTopicsResponse, False)
DELETE_TOPICS = Method(BROKER + "DeleteTopics", broker_pb.DeleteTopicsRequest, broker_pb.DeleteTopicsResponse, False)
CREATE_PARTITIONS = Method(
    BROKER + "CreatePartitions", broker_pb.CreatePartitionsRequest, broker_pb.CreatePartitionsResponse, False
)
ALTER_CONFIGS = Method(BROKER + "AlterConfigs", broker_pb.AlterConfigsRequest, broker_pb.AlterConfigsResponse, False)
DESCRIBE_CONFIGS = Method(
    BROKER + "DescribeConfigs", broker_pb.DescribeConfigsRequest, broker_pb.DescribeConfigsResponse
)
PRODUCE = Method(BROKER + "Produce", broker_pb.ProduceRequest, broker_pb.ProduceResponse, False)
FETCH = Method(BROKER + "Fetch", broker_pb.FetchRequest, broker_pb.FetchResponse)
MULTI_FETCH = Method(BROKER + "MultiFetch", broker_pb.MultiFetchRequest, broker_pb.MultiFetchResponse)
# The same call for readers of many records: they come as views of the answer.
MULTI_FETCH_FRAMES = Method(BROKER + "MultiFetch", broker_pb.MultiFetchRequest, MultiFetchFrames)
LIST_OFFSETS = Method(BROKER + "ListOffsets", broker_pb.ListOffsetsRequest, broker_pb.ListOffsetsResponse)
DELETE_RECORDS = Method(
    BROKER + "DeleteRecords", broker_pb.DeleteRecordsRequest, broker_pb.DeleteRecordsResponse, False
)
INIT_PRODUCER_ID = Method(BROKER + "InitProducerId", broker_pb.InitProducerIdRequest, broker_pb.InitProducerIdResponse)

STAGE_RECORDS = Method(STAGING + "StageRecords", staging_pb.StageRecordsRequest, staging_pb.StageRecordsResponse)
COMMIT_STAGED = Method(STAGING + "CommitStaged", staging_pb.CommitStagedRequest, staging_pb.CommitStagedResponse)
ABORT_STAGED = Method(STAGING + "AbortStaged", staging_pb.AbortStagedRequest, staging_pb.AbortStagedResponse)
