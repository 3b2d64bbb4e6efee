from muster.coordinator.rpc.v1 import control_service_pb2 as _control_service_pb2
from muster.coordinator.rpc.v1 import errors_pb2 as _errors_pb2
from muster.coordinator.rpc.v1 import ledger_pb2 as _ledger_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeNodeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeNodeResponse(_message.Message):
    __slots__ = ("node_id", "conditions", "now_ms", "resources")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    now_ms: int
    resources: NodeResources
    def __init__(self, node_id: _Optional[int] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., now_ms: _Optional[int] = ..., resources: _Optional[_Union[NodeResources, _Mapping]] = ...) -> None: ...

class NodeResources(_message.Message):
    __slots__ = ("open_descriptors", "descriptor_limit", "resident_bytes", "memory_bytes", "disk_free_bytes", "disk_total_bytes", "loop_late_ms", "stalls", "stalled_ms", "started_at_ms", "failed_logins")
    OPEN_DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOOP_LATE_MS_FIELD_NUMBER: _ClassVar[int]
    STALLS_FIELD_NUMBER: _ClassVar[int]
    STALLED_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILED_LOGINS_FIELD_NUMBER: _ClassVar[int]
    open_descriptors: int
    descriptor_limit: int
    resident_bytes: int
    memory_bytes: int
    disk_free_bytes: int
    disk_total_bytes: int
    loop_late_ms: int
    stalls: int
    stalled_ms: int
    started_at_ms: int
    failed_logins: _containers.RepeatedCompositeFieldContainer[FailedLogins]
    def __init__(self, open_descriptors: _Optional[int] = ..., descriptor_limit: _Optional[int] = ..., resident_bytes: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., disk_total_bytes: _Optional[int] = ..., loop_late_ms: _Optional[int] = ..., stalls: _Optional[int] = ..., stalled_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., failed_logins: _Optional[_Iterable[_Union[FailedLogins, _Mapping]]] = ...) -> None: ...

class FailedLogins(_message.Message):
    __slots__ = ("door", "address", "count", "why")
    DOOR_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    door: str
    address: str
    count: int
    why: str
    def __init__(self, door: _Optional[str] = ..., address: _Optional[str] = ..., count: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("name", "sentence", "since_ms", "last_ms", "count", "impairs", "warning")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IMPAIRS_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    name: str
    sentence: str
    since_ms: int
    last_ms: int
    count: int
    impairs: str
    warning: bool
    def __init__(self, name: _Optional[str] = ..., sentence: _Optional[str] = ..., since_ms: _Optional[int] = ..., last_ms: _Optional[int] = ..., count: _Optional[int] = ..., impairs: _Optional[str] = ..., warning: bool = ...) -> None: ...

class FindCoordinatorRequest(_message.Message):
    __slots__ = ("key", "group_protocol", "key_type")
    KEY_FIELD_NUMBER: _ClassVar[int]
    GROUP_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    KEY_TYPE_FIELD_NUMBER: _ClassVar[int]
    key: str
    group_protocol: str
    key_type: str
    def __init__(self, key: _Optional[str] = ..., group_protocol: _Optional[str] = ..., key_type: _Optional[str] = ...) -> None: ...

class FindCoordinatorResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "node_id", "host", "port", "partition", "in_cluster", "members_per_stream")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    IN_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_PER_STREAM_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    node_id: int
    host: str
    port: int
    partition: int
    in_cluster: bool
    members_per_stream: int
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., node_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., partition: _Optional[int] = ..., in_cluster: bool = ..., members_per_stream: _Optional[int] = ...) -> None: ...

class JoinGroupProtocol(_message.Message):
    __slots__ = ("name", "metadata")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    metadata: bytes
    def __init__(self, name: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("group_id", "session_timeout_ms", "rebalance_timeout_ms", "member_id", "group_instance_id", "protocol_type", "protocols", "reason", "client_id", "remote_assignor")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REMOTE_ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str
    protocol_type: str
    protocols: _containers.RepeatedCompositeFieldContainer[JoinGroupProtocol]
    reason: str
    client_id: str
    remote_assignor: str
    def __init__(self, group_id: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocols: _Optional[_Iterable[_Union[JoinGroupProtocol, _Mapping]]] = ..., reason: _Optional[str] = ..., client_id: _Optional[str] = ..., remote_assignor: _Optional[str] = ...) -> None: ...

class JoinGroupMember(_message.Message):
    __slots__ = ("member_id", "group_instance_id", "metadata")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    group_instance_id: str
    metadata: bytes
    def __init__(self, member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class JoinGroupResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "generation_id", "protocol_type", "protocol_name", "leader", "skip_assignment", "member_id", "members", "cause", "cause_detail", "rebalance_number", "leader_state", "scheduled_delay_ms")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_NAME_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    SKIP_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_DETAIL_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LEADER_STATE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    generation_id: int
    protocol_type: str
    protocol_name: str
    leader: str
    skip_assignment: bool
    member_id: str
    members: _containers.RepeatedCompositeFieldContainer[JoinGroupMember]
    cause: _ledger_pb2.RebalanceCause
    cause_detail: str
    rebalance_number: int
    leader_state: str
    scheduled_delay_ms: int
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., generation_id: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol_name: _Optional[str] = ..., leader: _Optional[str] = ..., skip_assignment: bool = ..., member_id: _Optional[str] = ..., members: _Optional[_Iterable[_Union[JoinGroupMember, _Mapping]]] = ..., cause: _Optional[_Union[_ledger_pb2.RebalanceCause, str]] = ..., cause_detail: _Optional[str] = ..., rebalance_number: _Optional[int] = ..., leader_state: _Optional[str] = ..., scheduled_delay_ms: _Optional[int] = ...) -> None: ...

class SyncGroupAssignment(_message.Message):
    __slots__ = ("member_id", "assignment")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    assignment: bytes
    def __init__(self, member_id: _Optional[str] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class SyncGroupRequest(_message.Message):
    __slots__ = ("group_id", "generation_id", "member_id", "group_instance_id", "protocol_type", "protocol_name", "assignments", "snapshot", "leader_state", "scheduled_delay_ms")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    LEADER_STATE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str
    protocol_type: str
    protocol_name: str
    assignments: _containers.RepeatedCompositeFieldContainer[SyncGroupAssignment]
    snapshot: bytes
    leader_state: str
    scheduled_delay_ms: int
    def __init__(self, group_id: _Optional[str] = ..., generation_id: _Optional[int] = ..., member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocol_name: _Optional[str] = ..., assignments: _Optional[_Iterable[_Union[SyncGroupAssignment, _Mapping]]] = ..., snapshot: _Optional[bytes] = ..., leader_state: _Optional[str] = ..., scheduled_delay_ms: _Optional[int] = ...) -> None: ...

class SyncGroupResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "protocol_type", "protocol_name", "assignment")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    protocol_type: str
    protocol_name: str
    assignment: bytes
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol_name: _Optional[str] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("group_id", "generation_id", "member_id", "group_instance_id")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str
    def __init__(self, group_id: _Optional[str] = ..., generation_id: _Optional[int] = ..., member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "cause", "cause_detail")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_DETAIL_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    cause: _ledger_pb2.RebalanceCause
    cause_detail: str
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., cause: _Optional[_Union[_ledger_pb2.RebalanceCause, str]] = ..., cause_detail: _Optional[str] = ...) -> None: ...

class ConsumerTopicPartitions(_message.Message):
    __slots__ = ("topic_id", "topic_name", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    topic_name: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., topic_name: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ConsumerAssignment(_message.Message):
    __slots__ = ("topic_partitions",)
    TOPIC_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_partitions: _containers.RepeatedCompositeFieldContainer[ConsumerTopicPartitions]
    def __init__(self, topic_partitions: _Optional[_Iterable[_Union[ConsumerTopicPartitions, _Mapping]]] = ...) -> None: ...

class SubscribedTopicNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class ConsumerGroupHeartbeatRequest(_message.Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "group_instance_id", "rack_id", "rebalance_timeout_ms", "subscribed_topic_names", "subscribed_topic_regex", "server_assignor", "topic_partitions", "client_id", "ready")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_ID_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_TOPIC_NAMES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_TOPIC_REGEX_FIELD_NUMBER: _ClassVar[int]
    SERVER_ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    member_id: str
    member_epoch: int
    group_instance_id: str
    rack_id: str
    rebalance_timeout_ms: int
    subscribed_topic_names: SubscribedTopicNames
    subscribed_topic_regex: str
    server_assignor: str
    topic_partitions: ConsumerAssignment
    client_id: str
    ready: ConsumerAssignment
    def __init__(self, group_id: _Optional[str] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., group_instance_id: _Optional[str] = ..., rack_id: _Optional[str] = ..., rebalance_timeout_ms: _Optional[int] = ..., subscribed_topic_names: _Optional[_Union[SubscribedTopicNames, _Mapping]] = ..., subscribed_topic_regex: _Optional[str] = ..., server_assignor: _Optional[str] = ..., topic_partitions: _Optional[_Union[ConsumerAssignment, _Mapping]] = ..., client_id: _Optional[str] = ..., ready: _Optional[_Union[ConsumerAssignment, _Mapping]] = ...) -> None: ...

class ConsumerGroupHeartbeatResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "member_id", "member_epoch", "heartbeat_interval_ms", "assignment", "cause", "cause_detail", "revoke_within_ms", "coming", "heirs_ready", "session_timeout_ms")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_DETAIL_FIELD_NUMBER: _ClassVar[int]
    REVOKE_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    COMING_FIELD_NUMBER: _ClassVar[int]
    HEIRS_READY_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerAssignment
    cause: _ledger_pb2.RebalanceCause
    cause_detail: str
    revoke_within_ms: int
    coming: ConsumerAssignment
    heirs_ready: ConsumerAssignment
    session_timeout_ms: int
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., assignment: _Optional[_Union[ConsumerAssignment, _Mapping]] = ..., cause: _Optional[_Union[_ledger_pb2.RebalanceCause, str]] = ..., cause_detail: _Optional[str] = ..., revoke_within_ms: _Optional[int] = ..., coming: _Optional[_Union[ConsumerAssignment, _Mapping]] = ..., heirs_ready: _Optional[_Union[ConsumerAssignment, _Mapping]] = ..., session_timeout_ms: _Optional[int] = ...) -> None: ...

class ConsumerGroupDescribeRequest(_message.Message):
    __slots__ = ("group_ids",)
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    group_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ConsumerGroupMember(_message.Message):
    __slots__ = ("member_id", "group_instance_id", "rack_id", "member_epoch", "client_id", "client_host", "subscribed_topic_names", "subscribed_topic_regex", "assignment", "target_assignment", "member_type", "member_state")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_TOPIC_NAMES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_TOPIC_REGEX_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    TARGET_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    MEMBER_TYPE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_STATE_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    group_instance_id: str
    rack_id: str
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: _containers.RepeatedScalarFieldContainer[str]
    subscribed_topic_regex: str
    assignment: ConsumerAssignment
    target_assignment: ConsumerAssignment
    member_type: int
    member_state: str
    def __init__(self, member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., rack_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., subscribed_topic_names: _Optional[_Iterable[str]] = ..., subscribed_topic_regex: _Optional[str] = ..., assignment: _Optional[_Union[ConsumerAssignment, _Mapping]] = ..., target_assignment: _Optional[_Union[ConsumerAssignment, _Mapping]] = ..., member_type: _Optional[int] = ..., member_state: _Optional[str] = ...) -> None: ...

class DescribedConsumerGroup(_message.Message):
    __slots__ = ("error_code", "error_message", "group_id", "group_state", "group_epoch", "assignment_epoch", "assignor_name", "members", "waiting_for", "waiting_until_ms")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_STATE_FIELD_NUMBER: _ClassVar[int]
    GROUP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    WAITING_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: _containers.RepeatedCompositeFieldContainer[ConsumerGroupMember]
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    waiting_until_ms: int
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., group_id: _Optional[str] = ..., group_state: _Optional[str] = ..., group_epoch: _Optional[int] = ..., assignment_epoch: _Optional[int] = ..., assignor_name: _Optional[str] = ..., members: _Optional[_Iterable[_Union[ConsumerGroupMember, _Mapping]]] = ..., waiting_for: _Optional[_Iterable[str]] = ..., waiting_until_ms: _Optional[int] = ...) -> None: ...

class ConsumerGroupDescribeResponse(_message.Message):
    __slots__ = ("throttle_time_ms", "groups")
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    throttle_time_ms: int
    groups: _containers.RepeatedCompositeFieldContainer[DescribedConsumerGroup]
    def __init__(self, throttle_time_ms: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[DescribedConsumerGroup, _Mapping]]] = ...) -> None: ...

class MemberIdentity(_message.Message):
    __slots__ = ("member_id", "group_instance_id", "reason")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    group_instance_id: str
    reason: str
    def __init__(self, member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class MemberResult(_message.Message):
    __slots__ = ("member_id", "group_instance_id", "error_code", "error_message")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    group_instance_id: str
    error_code: _errors_pb2.ErrorCode
    error_message: str
    def __init__(self, member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ...) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("group_id", "members")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    members: _containers.RepeatedCompositeFieldContainer[MemberIdentity]
    def __init__(self, group_id: _Optional[str] = ..., members: _Optional[_Iterable[_Union[MemberIdentity, _Mapping]]] = ...) -> None: ...

class LeaveGroupResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "members")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    members: _containers.RepeatedCompositeFieldContainer[MemberResult]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberResult, _Mapping]]] = ...) -> None: ...

class OffsetCommitPartition(_message.Message):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_METADATA_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str
    def __init__(self, partition_index: _Optional[int] = ..., committed_offset: _Optional[int] = ..., committed_leader_epoch: _Optional[int] = ..., committed_metadata: _Optional[str] = ...) -> None: ...

class OffsetCommitTopic(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetCommitPartition]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[OffsetCommitPartition, _Mapping]]] = ...) -> None: ...

class OffsetCommitRequest(_message.Message):
    __slots__ = ("group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id", "topics", "include_zookeeper", "reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_OR_MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ZOOKEEPER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str
    topics: _containers.RepeatedCompositeFieldContainer[OffsetCommitTopic]
    include_zookeeper: bool
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., generation_id_or_member_epoch: _Optional[int] = ..., member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[OffsetCommitTopic, _Mapping]]] = ..., include_zookeeper: bool = ..., reason: _Optional[str] = ...) -> None: ...

class OffsetPartitionResult(_message.Message):
    __slots__ = ("partition_index", "error_code", "error_message")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    error_code: _errors_pb2.ErrorCode
    error_message: str
    def __init__(self, partition_index: _Optional[int] = ..., error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ...) -> None: ...

class OffsetTopicResult(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetPartitionResult]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[OffsetPartitionResult, _Mapping]]] = ...) -> None: ...

class OffsetCommitResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "topics")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    topics: _containers.RepeatedCompositeFieldContainer[OffsetTopicResult]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[OffsetTopicResult, _Mapping]]] = ...) -> None: ...

class TxnOffsetCommitRequest(_message.Message):
    __slots__ = ("transactional_id", "group_id", "producer_id", "producer_epoch", "generation_id_or_member_epoch", "member_id", "group_instance_id", "topics")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_OR_MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str
    topics: _containers.RepeatedCompositeFieldContainer[OffsetCommitTopic]
    def __init__(self, transactional_id: _Optional[str] = ..., group_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., generation_id_or_member_epoch: _Optional[int] = ..., member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[OffsetCommitTopic, _Mapping]]] = ...) -> None: ...

class TxnOffsetCommitResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "topics")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    topics: _containers.RepeatedCompositeFieldContainer[OffsetTopicResult]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[OffsetTopicResult, _Mapping]]] = ...) -> None: ...

class OffsetFetchTopic(_message.Message):
    __slots__ = ("name", "partition_indexes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_INDEXES_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition_indexes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., partition_indexes: _Optional[_Iterable[int]] = ...) -> None: ...

class OffsetFetchRequest(_message.Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "topics", "all_topics", "require_stable", "include_log_offsets", "include_zookeeper", "include_commits")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALL_TOPICS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_STABLE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_LOG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ZOOKEEPER_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_COMMITS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    member_id: str
    member_epoch: int
    topics: _containers.RepeatedCompositeFieldContainer[OffsetFetchTopic]
    all_topics: bool
    require_stable: bool
    include_log_offsets: bool
    include_zookeeper: bool
    include_commits: bool
    def __init__(self, group_id: _Optional[str] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[OffsetFetchTopic, _Mapping]]] = ..., all_topics: bool = ..., require_stable: bool = ..., include_log_offsets: bool = ..., include_zookeeper: bool = ..., include_commits: bool = ...) -> None: ...

class CommitTrail(_message.Message):
    __slots__ = ("commits", "times_ms", "offsets", "counts")
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    commits: int
    times_ms: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, commits: _Optional[int] = ..., times_ms: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitTraffic(_message.Message):
    __slots__ = ("records", "from_ms", "to_ms", "kept_in", "partition_records", "partition_own", "topic_records")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    KEPT_IN_FIELD_NUMBER: _ClassVar[int]
    PARTITION_RECORDS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_OWN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: int
    from_ms: int
    to_ms: int
    kept_in: str
    partition_records: int
    partition_own: int
    topic_records: int
    def __init__(self, records: _Optional[int] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., kept_in: _Optional[str] = ..., partition_records: _Optional[int] = ..., partition_own: _Optional[int] = ..., topic_records: _Optional[int] = ...) -> None: ...

class OffsetFetchPartition(_message.Message):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code", "commit_timestamp_ms", "log_start_offset", "log_end_offset", "in_zookeeper", "log_offsets_unknown", "trail")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IN_ZOOKEEPER_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSETS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    TRAIL_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: _errors_pb2.ErrorCode
    commit_timestamp_ms: int
    log_start_offset: int
    log_end_offset: int
    in_zookeeper: bool
    log_offsets_unknown: bool
    trail: CommitTrail
    def __init__(self, partition_index: _Optional[int] = ..., committed_offset: _Optional[int] = ..., committed_leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ..., error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., commit_timestamp_ms: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., in_zookeeper: bool = ..., log_offsets_unknown: bool = ..., trail: _Optional[_Union[CommitTrail, _Mapping]] = ...) -> None: ...

class OffsetFetchTopicResult(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetFetchPartition]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[OffsetFetchPartition, _Mapping]]] = ...) -> None: ...

class OffsetFetchResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "topics", "traffic")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    topics: _containers.RepeatedCompositeFieldContainer[OffsetFetchTopicResult]
    traffic: CommitTraffic
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[OffsetFetchTopicResult, _Mapping]]] = ..., traffic: _Optional[_Union[CommitTraffic, _Mapping]] = ...) -> None: ...

class OffsetDeleteRequest(_message.Message):
    __slots__ = ("group_id", "topics", "reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    topics: _containers.RepeatedCompositeFieldContainer[OffsetFetchTopic]
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[OffsetFetchTopic, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class OffsetDeleteResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "topics")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    topics: _containers.RepeatedCompositeFieldContainer[OffsetTopicResult]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[OffsetTopicResult, _Mapping]]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("states_filter", "types_filter", "with_settings")
    STATES_FILTER_FIELD_NUMBER: _ClassVar[int]
    TYPES_FILTER_FIELD_NUMBER: _ClassVar[int]
    WITH_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    states_filter: _containers.RepeatedScalarFieldContainer[str]
    types_filter: _containers.RepeatedScalarFieldContainer[str]
    with_settings: bool
    def __init__(self, states_filter: _Optional[_Iterable[str]] = ..., types_filter: _Optional[_Iterable[str]] = ..., with_settings: bool = ...) -> None: ...

class ListedGroup(_message.Message):
    __slots__ = ("group_id", "protocol_type", "group_state", "group_type", "progress")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_STATE_FIELD_NUMBER: _ClassVar[int]
    GROUP_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str
    progress: GroupProgress
    def __init__(self, group_id: _Optional[str] = ..., protocol_type: _Optional[str] = ..., group_state: _Optional[str] = ..., group_type: _Optional[str] = ..., progress: _Optional[_Union[GroupProgress, _Mapping]] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "groups", "in_cluster")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    IN_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    groups: _containers.RepeatedCompositeFieldContainer[ListedGroup]
    in_cluster: bool
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[ListedGroup, _Mapping]]] = ..., in_cluster: bool = ...) -> None: ...

class DescribeGroupsRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribedMember(_message.Message):
    __slots__ = ("member_id", "group_instance_id", "client_id", "client_host", "member_metadata", "member_assignment", "client_software", "session_timeout_ms", "rebalance_timeout_ms", "heartbeat_interval_ms", "offered_assignors", "last_heard_ms", "subscribed_topic_names", "refused_commits", "refused_commit_code", "taken_over")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    MEMBER_METADATA_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    OFFERED_ASSIGNORS_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_TOPIC_NAMES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_COMMITS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_COMMIT_CODE_FIELD_NUMBER: _ClassVar[int]
    TAKEN_OVER_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    group_instance_id: str
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes
    client_software: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    offered_assignors: _containers.RepeatedScalarFieldContainer[str]
    last_heard_ms: int
    subscribed_topic_names: _containers.RepeatedScalarFieldContainer[str]
    refused_commits: int
    refused_commit_code: _errors_pb2.ErrorCode
    taken_over: int
    def __init__(self, member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., member_metadata: _Optional[bytes] = ..., member_assignment: _Optional[bytes] = ..., client_software: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., offered_assignors: _Optional[_Iterable[str]] = ..., last_heard_ms: _Optional[int] = ..., subscribed_topic_names: _Optional[_Iterable[str]] = ..., refused_commits: _Optional[int] = ..., refused_commit_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., taken_over: _Optional[int] = ...) -> None: ...

class DescribedGroup(_message.Message):
    __slots__ = ("error_code", "error_message", "group_id", "group_state", "protocol_type", "protocol_data", "members", "generation_id", "waiting_for", "waiting_until_ms", "leader", "progress", "planner", "canary", "balance", "fences", "hidden_topics", "watched")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_DATA_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    WAITING_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    FENCES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_TOPICS_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: _containers.RepeatedCompositeFieldContainer[DescribedMember]
    generation_id: int
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    waiting_until_ms: int
    leader: str
    progress: GroupProgress
    planner: GroupPlanner
    canary: _control_service_pb2.Canary
    balance: _control_service_pb2.GroupBalance
    fences: _control_service_pb2.GroupFences
    hidden_topics: int
    watched: str
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., group_id: _Optional[str] = ..., group_state: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocol_data: _Optional[str] = ..., members: _Optional[_Iterable[_Union[DescribedMember, _Mapping]]] = ..., generation_id: _Optional[int] = ..., waiting_for: _Optional[_Iterable[str]] = ..., waiting_until_ms: _Optional[int] = ..., leader: _Optional[str] = ..., progress: _Optional[_Union[GroupProgress, _Mapping]] = ..., planner: _Optional[_Union[GroupPlanner, _Mapping]] = ..., canary: _Optional[_Union[_control_service_pb2.Canary, _Mapping]] = ..., balance: _Optional[_Union[_control_service_pb2.GroupBalance, _Mapping]] = ..., fences: _Optional[_Union[_control_service_pb2.GroupFences, _Mapping]] = ..., hidden_topics: _Optional[int] = ..., watched: _Optional[str] = ...) -> None: ...

class GroupPlanner(_message.Message):
    __slots__ = ("assignor", "by_setting", "kept_out")
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    BY_SETTING_FIELD_NUMBER: _ClassVar[int]
    KEPT_OUT_FIELD_NUMBER: _ClassVar[int]
    assignor: str
    by_setting: bool
    kept_out: str
    def __init__(self, assignor: _Optional[str] = ..., by_setting: bool = ..., kept_out: _Optional[str] = ...) -> None: ...

class GroupProgress(_message.Message):
    __slots__ = ("sampled_ms", "lag", "trend", "eta_seconds", "health", "reason", "idle_since_ms", "trend_window_ms")
    SAMPLED_MS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    TREND_FIELD_NUMBER: _ClassVar[int]
    ETA_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    IDLE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    TREND_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    sampled_ms: int
    lag: int
    trend: float
    eta_seconds: float
    health: str
    reason: str
    idle_since_ms: int
    trend_window_ms: int
    def __init__(self, sampled_ms: _Optional[int] = ..., lag: _Optional[int] = ..., trend: _Optional[float] = ..., eta_seconds: _Optional[float] = ..., health: _Optional[str] = ..., reason: _Optional[str] = ..., idle_since_ms: _Optional[int] = ..., trend_window_ms: _Optional[int] = ...) -> None: ...

class DescribeGroupsResponse(_message.Message):
    __slots__ = ("error_code", "throttle_time_ms", "groups")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    throttle_time_ms: int
    groups: _containers.RepeatedCompositeFieldContainer[DescribedGroup]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., throttle_time_ms: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[DescribedGroup, _Mapping]]] = ...) -> None: ...

class DeleteGroupsRequest(_message.Message):
    __slots__ = ("groups_names", "reason")
    GROUPS_NAMES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    groups_names: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, groups_names: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class DeletedGroup(_message.Message):
    __slots__ = ("group_id", "error_code", "error_message")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    error_code: _errors_pb2.ErrorCode
    error_message: str
    def __init__(self, group_id: _Optional[str] = ..., error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ...) -> None: ...

class DeleteGroupsResponse(_message.Message):
    __slots__ = ("throttle_time_ms", "results")
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    throttle_time_ms: int
    results: _containers.RepeatedCompositeFieldContainer[DeletedGroup]
    def __init__(self, throttle_time_ms: _Optional[int] = ..., results: _Optional[_Iterable[_Union[DeletedGroup, _Mapping]]] = ...) -> None: ...

class RemoveMembersRequest(_message.Message):
    __slots__ = ("group_id", "members", "reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    members: _containers.RepeatedCompositeFieldContainer[MemberIdentity]
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., members: _Optional[_Iterable[_Union[MemberIdentity, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class RemoveMembersResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "members")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    members: _containers.RepeatedCompositeFieldContainer[MemberResult]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberResult, _Mapping]]] = ...) -> None: ...

class DescribeGroupSettingsRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class AlterGroupSettingsRequest(_message.Message):
    __slots__ = ("group_id", "set", "unset", "expected_version", "validate_only", "reason")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    set: _containers.ScalarMap[str, str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    expected_version: int
    validate_only: bool
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., unset: _Optional[_Iterable[str]] = ..., expected_version: _Optional[int] = ..., validate_only: bool = ..., reason: _Optional[str] = ...) -> None: ...

class DescribeGroupSettingsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "version", "settings", "defaults", "suspended")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class DefaultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    version: int
    settings: _containers.ScalarMap[str, str]
    defaults: _containers.ScalarMap[str, str]
    suspended: str
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., version: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., defaults: _Optional[_Mapping[str, str]] = ..., suspended: _Optional[str] = ...) -> None: ...

class AlterGroupSettingsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "version", "settings", "defaults", "suspended")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class DefaultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    version: int
    settings: _containers.ScalarMap[str, str]
    defaults: _containers.ScalarMap[str, str]
    suspended: str
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., version: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., defaults: _Optional[_Mapping[str, str]] = ..., suspended: _Optional[str] = ...) -> None: ...

class ExplainGroupRequest(_message.Message):
    __slots__ = ("group_id", "limit", "generation_id", "include_snapshots")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    limit: int
    generation_id: int
    include_snapshots: bool
    def __init__(self, group_id: _Optional[str] = ..., limit: _Optional[int] = ..., generation_id: _Optional[int] = ..., include_snapshots: bool = ...) -> None: ...

class ExplainGroupResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "rebalances", "stalls", "moves")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCES_FIELD_NUMBER: _ClassVar[int]
    STALLS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    rebalances: _containers.RepeatedCompositeFieldContainer[_ledger_pb2.Rebalance]
    stalls: _containers.RepeatedCompositeFieldContainer[_ledger_pb2.NodeStall]
    moves: _containers.RepeatedCompositeFieldContainer[_ledger_pb2.CoordinatorMove]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., rebalances: _Optional[_Iterable[_Union[_ledger_pb2.Rebalance, _Mapping]]] = ..., stalls: _Optional[_Iterable[_Union[_ledger_pb2.NodeStall, _Mapping]]] = ..., moves: _Optional[_Iterable[_Union[_ledger_pb2.CoordinatorMove, _Mapping]]] = ...) -> None: ...

class SimulateAssignmentRequest(_message.Message):
    __slots__ = ("group_id", "snapshot_json", "assignors", "add_members", "remove_members", "auto_offset_reset")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_JSON_FIELD_NUMBER: _ClassVar[int]
    ASSIGNORS_FIELD_NUMBER: _ClassVar[int]
    ADD_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    AUTO_OFFSET_RESET_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    snapshot_json: str
    assignors: _containers.RepeatedScalarFieldContainer[str]
    add_members: _containers.RepeatedScalarFieldContainer[str]
    remove_members: _containers.RepeatedScalarFieldContainer[str]
    auto_offset_reset: str
    def __init__(self, group_id: _Optional[str] = ..., snapshot_json: _Optional[str] = ..., assignors: _Optional[_Iterable[str]] = ..., add_members: _Optional[_Iterable[str]] = ..., remove_members: _Optional[_Iterable[str]] = ..., auto_offset_reset: _Optional[str] = ...) -> None: ...

class SimulatedAssignment(_message.Message):
    __slots__ = ("assignor", "error_message", "forecast_json")
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FORECAST_JSON_FIELD_NUMBER: _ClassVar[int]
    assignor: str
    error_message: str
    forecast_json: str
    def __init__(self, assignor: _Optional[str] = ..., error_message: _Optional[str] = ..., forecast_json: _Optional[str] = ...) -> None: ...

class SimulateAssignmentResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "snapshot_json", "assignments")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_JSON_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    snapshot_json: str
    assignments: _containers.RepeatedCompositeFieldContainer[SimulatedAssignment]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., snapshot_json: _Optional[str] = ..., assignments: _Optional[_Iterable[_Union[SimulatedAssignment, _Mapping]]] = ...) -> None: ...

class SessionHello(_message.Message):
    __slots__ = ("group_id", "member_id", "group_instance_id")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    member_id: str
    group_instance_id: str
    def __init__(self, group_id: _Optional[str] = ..., member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ...) -> None: ...

class ConsumedOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class RegisterConsumer(_message.Message):
    __slots__ = ("group_id", "member_id", "client_id", "session_timeout_ms", "topics", "regex", "assignor", "generation_id", "owned", "offsets", "coordinator_epoch", "rack_id")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RACK_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    member_id: str
    client_id: str
    session_timeout_ms: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    regex: str
    assignor: str
    generation_id: int
    owned: _containers.RepeatedCompositeFieldContainer[_ledger_pb2.TopicPartitions]
    offsets: _containers.RepeatedCompositeFieldContainer[ConsumedOffset]
    coordinator_epoch: int
    rack_id: str
    def __init__(self, group_id: _Optional[str] = ..., member_id: _Optional[str] = ..., client_id: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., regex: _Optional[str] = ..., assignor: _Optional[str] = ..., generation_id: _Optional[int] = ..., owned: _Optional[_Iterable[_Union[_ledger_pb2.TopicPartitions, _Mapping]]] = ..., offsets: _Optional[_Iterable[_Union[ConsumedOffset, _Mapping]]] = ..., coordinator_epoch: _Optional[int] = ..., rack_id: _Optional[str] = ...) -> None: ...

class PingAnswered(_message.Message):
    __slots__ = ("number", "offsets")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    number: int
    offsets: _containers.RepeatedCompositeFieldContainer[ConsumedOffset]
    def __init__(self, number: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[ConsumedOffset, _Mapping]]] = ...) -> None: ...

class FetcherStopped(_message.Message):
    __slots__ = ("number", "offsets")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    number: int
    offsets: _containers.RepeatedCompositeFieldContainer[ConsumedOffset]
    def __init__(self, number: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[ConsumedOffset, _Mapping]]] = ...) -> None: ...

class FetcherStarted(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Deregister(_message.Message):
    __slots__ = ("offsets", "reason")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[ConsumedOffset]
    reason: str
    def __init__(self, offsets: _Optional[_Iterable[_Union[ConsumedOffset, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("acknowledged", "request_number", "hello", "heartbeat", "consumer_group_heartbeat", "register_consumer", "ping_answered", "fetcher_stopped", "fetcher_started", "deregister")
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REGISTER_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PING_ANSWERED_FIELD_NUMBER: _ClassVar[int]
    FETCHER_STOPPED_FIELD_NUMBER: _ClassVar[int]
    FETCHER_STARTED_FIELD_NUMBER: _ClassVar[int]
    DEREGISTER_FIELD_NUMBER: _ClassVar[int]
    acknowledged: int
    request_number: int
    hello: SessionHello
    heartbeat: HeartbeatRequest
    consumer_group_heartbeat: ConsumerGroupHeartbeatRequest
    register_consumer: RegisterConsumer
    ping_answered: PingAnswered
    fetcher_stopped: FetcherStopped
    fetcher_started: FetcherStarted
    deregister: Deregister
    def __init__(self, acknowledged: _Optional[int] = ..., request_number: _Optional[int] = ..., hello: _Optional[_Union[SessionHello, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatRequest, _Mapping]] = ..., consumer_group_heartbeat: _Optional[_Union[ConsumerGroupHeartbeatRequest, _Mapping]] = ..., register_consumer: _Optional[_Union[RegisterConsumer, _Mapping]] = ..., ping_answered: _Optional[_Union[PingAnswered, _Mapping]] = ..., fetcher_stopped: _Optional[_Union[FetcherStopped, _Mapping]] = ..., fetcher_started: _Optional[_Union[FetcherStarted, _Mapping]] = ..., deregister: _Optional[_Union[Deregister, _Mapping]] = ...) -> None: ...

class SessionWelcome(_message.Message):
    __slots__ = ("reconnect_grace_ms", "heartbeat_interval_ms")
    RECONNECT_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    reconnect_grace_ms: int
    heartbeat_interval_ms: int
    def __init__(self, reconnect_grace_ms: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ...) -> None: ...

class SessionRebalance(_message.Message):
    __slots__ = ("generation_id", "error_code", "error_message", "cause", "cause_detail")
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_DETAIL_FIELD_NUMBER: _ClassVar[int]
    generation_id: int
    error_code: _errors_pb2.ErrorCode
    error_message: str
    cause: _ledger_pb2.RebalanceCause
    cause_detail: str
    def __init__(self, generation_id: _Optional[int] = ..., error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., cause: _Optional[_Union[_ledger_pb2.RebalanceCause, str]] = ..., cause_detail: _Optional[str] = ...) -> None: ...

class SessionFenced(_message.Message):
    __slots__ = ("generation_id", "error_code", "error_message")
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    generation_id: int
    error_code: _errors_pb2.ErrorCode
    error_message: str
    def __init__(self, generation_id: _Optional[int] = ..., error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ...) -> None: ...

class SessionDrain(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ConsumerRegistered(_message.Message):
    __slots__ = ("error_code", "error_message", "coordinator_epoch")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    coordinator_epoch: int
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., coordinator_epoch: _Optional[int] = ...) -> None: ...

class CentralOrder(_message.Message):
    __slots__ = ("number", "answered", "ping", "stop_fetcher", "start_fetcher", "rebalance_failed", "coordinator_epoch")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    STOP_FETCHER_FIELD_NUMBER: _ClassVar[int]
    START_FETCHER_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FAILED_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    number: int
    answered: int
    ping: Ping
    stop_fetcher: StopFetcher
    start_fetcher: StartFetcher
    rebalance_failed: RebalanceFailed
    coordinator_epoch: int
    def __init__(self, number: _Optional[int] = ..., answered: _Optional[int] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., stop_fetcher: _Optional[_Union[StopFetcher, _Mapping]] = ..., start_fetcher: _Optional[_Union[StartFetcher, _Mapping]] = ..., rebalance_failed: _Optional[_Union[RebalanceFailed, _Mapping]] = ..., coordinator_epoch: _Optional[int] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopFetcher(_message.Message):
    __slots__ = ("cause", "cause_detail", "rebalance_number")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_DETAIL_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    cause: _ledger_pb2.RebalanceCause
    cause_detail: str
    rebalance_number: int
    def __init__(self, cause: _Optional[_Union[_ledger_pb2.RebalanceCause, str]] = ..., cause_detail: _Optional[str] = ..., rebalance_number: _Optional[int] = ...) -> None: ...

class StartPartition(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class StartFetcher(_message.Message):
    __slots__ = ("generation_id", "partitions", "cause", "cause_detail", "rebalance_number")
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_DETAIL_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    generation_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[StartPartition]
    cause: _ledger_pb2.RebalanceCause
    cause_detail: str
    rebalance_number: int
    def __init__(self, generation_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[StartPartition, _Mapping]]] = ..., cause: _Optional[_Union[_ledger_pb2.RebalanceCause, str]] = ..., cause_detail: _Optional[str] = ..., rebalance_number: _Optional[int] = ...) -> None: ...

class RebalanceFailed(_message.Message):
    __slots__ = ("detail",)
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    detail: str
    def __init__(self, detail: _Optional[str] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("sequence_number", "request_number", "welcome", "heartbeat", "consumer_group_heartbeat", "rebalance", "fenced", "drain", "registered", "order")
    SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    sequence_number: int
    request_number: int
    welcome: SessionWelcome
    heartbeat: HeartbeatResponse
    consumer_group_heartbeat: ConsumerGroupHeartbeatResponse
    rebalance: SessionRebalance
    fenced: SessionFenced
    drain: SessionDrain
    registered: ConsumerRegistered
    order: CentralOrder
    def __init__(self, sequence_number: _Optional[int] = ..., request_number: _Optional[int] = ..., welcome: _Optional[_Union[SessionWelcome, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatResponse, _Mapping]] = ..., consumer_group_heartbeat: _Optional[_Union[ConsumerGroupHeartbeatResponse, _Mapping]] = ..., rebalance: _Optional[_Union[SessionRebalance, _Mapping]] = ..., fenced: _Optional[_Union[SessionFenced, _Mapping]] = ..., drain: _Optional[_Union[SessionDrain, _Mapping]] = ..., registered: _Optional[_Union[ConsumerRegistered, _Mapping]] = ..., order: _Optional[_Union[CentralOrder, _Mapping]] = ...) -> None: ...

class MemberLeaves(_message.Message):
    __slots__ = ("broken",)
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    broken: bool
    def __init__(self, broken: bool = ...) -> None: ...

class MemberRequest(_message.Message):
    __slots__ = ("member", "request", "leaves")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    member: int
    request: SessionRequest
    leaves: MemberLeaves
    def __init__(self, member: _Optional[int] = ..., request: _Optional[_Union[SessionRequest, _Mapping]] = ..., leaves: _Optional[_Union[MemberLeaves, _Mapping]] = ...) -> None: ...

class SharedSessionRequest(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[MemberRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[MemberRequest, _Mapping]]] = ...) -> None: ...

class MemberEnded(_message.Message):
    __slots__ = ("status", "message")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    status: int
    message: str
    def __init__(self, status: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class MemberResponse(_message.Message):
    __slots__ = ("member", "response", "ended")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    member: int
    response: SessionResponse
    ended: MemberEnded
    def __init__(self, member: _Optional[int] = ..., response: _Optional[_Union[SessionResponse, _Mapping]] = ..., ended: _Optional[_Union[MemberEnded, _Mapping]] = ...) -> None: ...

class SharedSessionResponse(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[MemberResponse]
    def __init__(self, responses: _Optional[_Iterable[_Union[MemberResponse, _Mapping]]] = ...) -> None: ...

class WatchGroupRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class WatchGroupResponse(_message.Message):
    __slots__ = ("group_id", "group_state", "generation_id", "rebalance", "skipped_rebalances", "progress")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_REBALANCES_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    group_state: str
    generation_id: int
    rebalance: _ledger_pb2.Rebalance
    skipped_rebalances: int
    progress: GroupProgress
    def __init__(self, group_id: _Optional[str] = ..., group_state: _Optional[str] = ..., generation_id: _Optional[int] = ..., rebalance: _Optional[_Union[_ledger_pb2.Rebalance, _Mapping]] = ..., skipped_rebalances: _Optional[int] = ..., progress: _Optional[_Union[GroupProgress, _Mapping]] = ...) -> None: ...
