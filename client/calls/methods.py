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
from muster.coordinator.rpc.v1 import transaction_service_pb2 as transaction_pb
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb
from muster.storage.service.fetch_frames import MultiFetchFrames

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")
Read = TypeVar("Read", covariant=True)


class AnswerReader(Protocol[Read]):
    """A message type, or what reads a message's bytes in its place."""

    @staticmethod
    def FromString(data: bytes, /) -> Read: ...


@dataclass(frozen=True, slots=True)
class ClientMethod(Generic[Request, Response]):
    """`idempotent`: after a lost answer the request may be sent again (grpc.io's word, and HTTP's).

    `path`: if the request is not named after its call, as ours are.
    """

    request: type[Request]
    response: AnswerReader[Response]
    idempotent: bool = True
    path: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path or path_of(self.request))

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def path_of(request: type[Message]) -> str:
    """The path of the call that a request is named after.

    >>> path_of(group_pb.HeartbeatRequest)
    '/coordinator.rpc.v1.GroupCoordinator/Heartbeat'
    """
    call = request.DESCRIPTOR.name.removesuffix("Request")
    services = request.DESCRIPTOR.file.services_by_name.values()
    return next(f"/{service.full_name}/{call}" for service in services if call in service.methods_by_name)


FIND_COORDINATOR = ClientMethod(group_pb.FindCoordinatorRequest, group_pb.FindCoordinatorResponse)
# A repeated join could add a second member, a repeated sync could meet another round: the member machine decides.
JOIN_GROUP = ClientMethod(group_pb.JoinGroupRequest, group_pb.JoinGroupResponse, False)
SYNC_GROUP = ClientMethod(group_pb.SyncGroupRequest, group_pb.SyncGroupResponse, False)
HEARTBEAT = ClientMethod(group_pb.HeartbeatRequest, group_pb.HeartbeatResponse)
# After a lost answer the member says everything, which the coordinator can tell from a stale heartbeat.
CONSUMER_GROUP_HEARTBEAT = ClientMethod(
    group_pb.ConsumerGroupHeartbeatRequest, group_pb.ConsumerGroupHeartbeatResponse, False
)
LEAVE_GROUP = ClientMethod(group_pb.LeaveGroupRequest, group_pb.LeaveGroupResponse)
OFFSET_COMMIT = ClientMethod(group_pb.OffsetCommitRequest, group_pb.OffsetCommitResponse)
TXN_OFFSET_COMMIT = ClientMethod(group_pb.TxnOffsetCommitRequest, group_pb.TxnOffsetCommitResponse)
OFFSET_FETCH = ClientMethod(group_pb.OffsetFetchRequest, group_pb.OffsetFetchResponse)
OFFSET_DELETE = ClientMethod(group_pb.OffsetDeleteRequest, group_pb.OffsetDeleteResponse)
SESSION = ClientMethod(group_pb.SessionRequest, group_pb.SessionResponse)
SHARED_SESSION = ClientMethod(group_pb.SharedSessionRequest, group_pb.SharedSessionResponse)
DESCRIBE_NODE = ClientMethod(group_pb.DescribeNodeRequest, group_pb.DescribeNodeResponse)
LIST_GROUPS = ClientMethod(group_pb.ListGroupsRequest, group_pb.ListGroupsResponse)
DESCRIBE_GROUPS = ClientMethod(group_pb.DescribeGroupsRequest, group_pb.DescribeGroupsResponse)
DELETE_GROUPS = ClientMethod(group_pb.DeleteGroupsRequest, group_pb.DeleteGroupsResponse, False)
REMOVE_MEMBERS = ClientMethod(group_pb.RemoveMembersRequest, group_pb.RemoveMembersResponse, False)
DESCRIBE_GROUP_SETTINGS = ClientMethod(group_pb.DescribeGroupSettingsRequest, group_pb.DescribeGroupSettingsResponse)
ALTER_GROUP_SETTINGS = ClientMethod(group_pb.AlterGroupSettingsRequest, group_pb.AlterGroupSettingsResponse, False)
EXPLAIN_GROUP = ClientMethod(group_pb.ExplainGroupRequest, group_pb.ExplainGroupResponse)
SIMULATE_ASSIGNMENT = ClientMethod(group_pb.SimulateAssignmentRequest, group_pb.SimulateAssignmentResponse)
WATCH_GROUP = ClientMethod(group_pb.WatchGroupRequest, group_pb.WatchGroupResponse)

CLAIM_FENCE = ClientMethod(fence_pb.ClaimFenceRequest, fence_pb.ClaimFenceResponse)
# Said twice it is as said once, but for the ledger's second entry, and the version that the first has raised.
HOLD_GROUP = ClientMethod(control_pb.HoldGroupRequest, control_pb.HoldGroupResponse, False)
RESUME_GROUP = ClientMethod(control_pb.ResumeGroupRequest, control_pb.ResumeGroupResponse, False)
# Said twice the second is refused: one runs already, or none does any more.
START_CANARY = ClientMethod(control_pb.StartCanaryRequest, control_pb.StartCanaryResponse, False)
END_CANARY = ClientMethod(control_pb.EndCanaryRequest, control_pb.EndCanaryResponse, False)
DESCRIBE_CANARY = ClientMethod(control_pb.DescribeCanaryRequest, control_pb.DescribeCanaryResponse)
DESCRIBE_HOLDS = ClientMethod(control_pb.DescribeHoldsRequest, control_pb.DescribeHoldsResponse)

DESCRIBE_ACLS = ClientMethod(acl_pb.DescribeAclsRequest, acl_pb.DescribeAclsResponse)
CREATE_ACLS = ClientMethod(acl_pb.CreateAclsRequest, acl_pb.CreateAclsResponse)
# Said twice the second finds nothing.
DELETE_ACLS = ClientMethod(acl_pb.DeleteAclsRequest, acl_pb.DeleteAclsResponse, False)
CHECK_ACL = ClientMethod(acl_pb.CheckAclRequest, acl_pb.CheckAclResponse)
DESCRIBE_USERS = ClientMethod(security_pb.DescribeUsersRequest, security_pb.DescribeUsersResponse)
ALTER_USERS = ClientMethod(security_pb.AlterUsersRequest, security_pb.AlterUsersResponse, False)
DESCRIBE_TOKENS = ClientMethod(security_pb.DescribeTokensRequest, security_pb.DescribeTokensResponse)
CREATE_TOKEN = ClientMethod(security_pb.CreateTokenRequest, security_pb.CreateTokenResponse, False)
REVOKE_TOKENS = ClientMethod(security_pb.RevokeTokensRequest, security_pb.RevokeTokensResponse, False)
DESCRIBE_QUOTAS = ClientMethod(quota_pb.DescribeQuotasRequest, quota_pb.DescribeQuotasResponse)
# Said twice it is as said once.
ALTER_QUOTAS = ClientMethod(quota_pb.AlterQuotasRequest, quota_pb.AlterQuotasResponse)

DESCRIBE_CLUSTER = ClientMethod(cluster_pb.DescribeClusterRequest, cluster_pb.DescribeClusterResponse)
ELECT_LEADERS = ClientMethod(cluster_pb.ElectLeadersRequest, cluster_pb.ElectLeadersResponse)
ALTER_REASSIGNMENTS = ClientMethod(
    cluster_pb.AlterPartitionReassignmentsRequest, cluster_pb.AlterPartitionReassignmentsResponse
)
LIST_REASSIGNMENTS = ClientMethod(
    cluster_pb.ListPartitionReassignmentsRequest, cluster_pb.ListPartitionReassignmentsResponse
)
DRAIN_NODE = ClientMethod(cluster_pb.DrainNodeRequest, cluster_pb.DrainNodeResponse)
EXPLAIN_ELECTIONS = ClientMethod(cluster_pb.ExplainElectionsRequest, cluster_pb.ExplainElectionsResponse)

HEALTH = ClientMethod(
    health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse, path="/grpc.health.v1.Health/Check"
)

METADATA = ClientMethod(broker_pb.MetadataRequest, broker_pb.MetadataResponse)
CREATE_TOPICS = ClientMethod(broker_pb.CreateTopicsRequest, broker_pb.CreateTopicsResponse, False)
DELETE_TOPICS = ClientMethod(broker_pb.DeleteTopicsRequest, broker_pb.DeleteTopicsResponse, False)
CREATE_PARTITIONS = ClientMethod(broker_pb.CreatePartitionsRequest, broker_pb.CreatePartitionsResponse, False)
ALTER_CONFIGS = ClientMethod(broker_pb.AlterConfigsRequest, broker_pb.AlterConfigsResponse, False)
DESCRIBE_CONFIGS = ClientMethod(broker_pb.DescribeConfigsRequest, broker_pb.DescribeConfigsResponse)
PRODUCE = ClientMethod(broker_pb.ProduceRequest, broker_pb.ProduceResponse, False)
FETCH = ClientMethod(broker_pb.FetchRequest, broker_pb.FetchResponse)
MULTI_FETCH = ClientMethod(broker_pb.MultiFetchRequest, broker_pb.MultiFetchResponse)
# The same call for readers of many records: they come as views of the answer.
MULTI_FETCH_FRAMES = ClientMethod(broker_pb.MultiFetchRequest, MultiFetchFrames)
LIST_OFFSETS = ClientMethod(broker_pb.ListOffsetsRequest, broker_pb.ListOffsetsResponse)
DELETE_RECORDS = ClientMethod(broker_pb.DeleteRecordsRequest, broker_pb.DeleteRecordsResponse, False)
INIT_PRODUCER_ID = ClientMethod(broker_pb.InitProducerIdRequest, broker_pb.InitProducerIdResponse)

DESCRIBE_PRODUCERS = ClientMethod(broker_pb.DescribeProducersRequest, broker_pb.DescribeProducersResponse)
WRITE_TXN_MARKERS = ClientMethod(broker_pb.WriteTxnMarkersRequest, broker_pb.WriteTxnMarkersResponse)

LIST_TRANSACTIONS = ClientMethod(transaction_pb.ListTransactionsRequest, transaction_pb.ListTransactionsResponse)
DESCRIBE_TRANSACTIONS = ClientMethod(
    transaction_pb.DescribeTransactionsRequest, transaction_pb.DescribeTransactionsResponse
)
# Done twice it fences an epoch more, and nobody else.
TERMINATE_TRANSACTION = ClientMethod(
    transaction_pb.TerminateTransactionRequest, transaction_pb.TerminateTransactionResponse
)
EXPLAIN_TRANSACTIONS = ClientMethod(
    transaction_pb.ExplainTransactionsRequest, transaction_pb.ExplainTransactionsResponse
)
# An epoch belongs to one transaction, so the coordinator recognizes both when they come again.
INIT_TRANSACTIONS = ClientMethod(transaction_pb.InitProducerIdRequest, transaction_pb.InitProducerIdResponse)
END_TXN = ClientMethod(transaction_pb.EndTxnRequest, transaction_pb.EndTxnResponse)

STAGE_RECORDS = ClientMethod(staging_pb.StageRecordsRequest, staging_pb.StageRecordsResponse)
COMMIT_STAGED = ClientMethod(staging_pb.CommitStagedRequest, staging_pb.CommitStagedResponse)
ABORT_STAGED = ClientMethod(staging_pb.AbortStagedRequest, staging_pb.AbortStagedResponse)
