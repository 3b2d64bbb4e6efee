from muster.coordinator.rpc.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_STATE_UNSPECIFIED: _ClassVar[NodeState]
    NODE_STATE_LIVE: _ClassVar[NodeState]
    NODE_STATE_SHUTTING_DOWN: _ClassVar[NodeState]
    NODE_STATE_DRAINED: _ClassVar[NodeState]
    NODE_STATE_GONE: _ClassVar[NodeState]

class PartitionFilter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITION_FILTER_UNSPECIFIED: _ClassVar[PartitionFilter]
    PARTITION_FILTER_ALL: _ClassVar[PartitionFilter]
    PARTITION_FILTER_UNDER_REPLICATED: _ClassVar[PartitionFilter]
    PARTITION_FILTER_UNDER_MIN_ISR: _ClassVar[PartitionFilter]
    PARTITION_FILTER_OFFLINE: _ClassVar[PartitionFilter]

class ElectionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ELECTION_TYPE_PREFERRED_UNSPECIFIED: _ClassVar[ElectionType]
    ELECTION_TYPE_UNCLEAN: _ClassVar[ElectionType]
NODE_STATE_UNSPECIFIED: NodeState
NODE_STATE_LIVE: NodeState
NODE_STATE_SHUTTING_DOWN: NodeState
NODE_STATE_DRAINED: NodeState
NODE_STATE_GONE: NodeState
PARTITION_FILTER_UNSPECIFIED: PartitionFilter
PARTITION_FILTER_ALL: PartitionFilter
PARTITION_FILTER_UNDER_REPLICATED: PartitionFilter
PARTITION_FILTER_UNDER_MIN_ISR: PartitionFilter
PARTITION_FILTER_OFFLINE: PartitionFilter
ELECTION_TYPE_PREFERRED_UNSPECIFIED: ElectionType
ELECTION_TYPE_UNCLEAN: ElectionType

class ClusterPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class ClusterEndpoint(_message.Message):
    __slots__ = ("listener", "host", "port")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    listener: str
    host: str
    port: int
    def __init__(self, listener: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ClusterNode(_message.Message):
    __slots__ = ("node_id", "host", "port", "rack", "state", "node_epoch", "endpoints", "leads", "holds", "behind", "known_sequence")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NODE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    KNOWN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    host: str
    port: int
    rack: str
    state: NodeState
    node_epoch: int
    endpoints: _containers.RepeatedCompositeFieldContainer[ClusterEndpoint]
    leads: int
    holds: int
    behind: int
    known_sequence: int
    def __init__(self, node_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., rack: _Optional[str] = ..., state: _Optional[_Union[NodeState, str]] = ..., node_epoch: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[ClusterEndpoint, _Mapping]]] = ..., leads: _Optional[int] = ..., holds: _Optional[int] = ..., behind: _Optional[int] = ..., known_sequence: _Optional[int] = ...) -> None: ...

class ClusterPartitionState(_message.Message):
    __slots__ = ("topic", "partition", "leader_id", "leader_epoch", "replicas", "isr", "elr", "adding", "removing", "offline", "min_isr")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    MIN_ISR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    offline: _containers.RepeatedScalarFieldContainer[int]
    min_isr: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., offline: _Optional[_Iterable[int]] = ..., min_isr: _Optional[int] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ("partitions", "topics")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    partitions: PartitionFilter
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, partitions: _Optional[_Union[PartitionFilter, str]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "cluster_id", "controller_id", "controller_epoch", "sequence", "nodes", "partition_count", "offline_count", "under_min_isr_count", "under_replicated_count", "partitions", "heard_ms_ago", "cut_off")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNDER_MIN_ISR_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    CUT_OFF_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    cluster_id: str
    controller_id: int
    controller_epoch: int
    sequence: int
    nodes: _containers.RepeatedCompositeFieldContainer[ClusterNode]
    partition_count: int
    offline_count: int
    under_min_isr_count: int
    under_replicated_count: int
    partitions: _containers.RepeatedCompositeFieldContainer[ClusterPartitionState]
    heard_ms_ago: int
    cut_off: str
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., cluster_id: _Optional[str] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[ClusterNode, _Mapping]]] = ..., partition_count: _Optional[int] = ..., offline_count: _Optional[int] = ..., under_min_isr_count: _Optional[int] = ..., under_replicated_count: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ClusterPartitionState, _Mapping]]] = ..., heard_ms_ago: _Optional[int] = ..., cut_off: _Optional[str] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("election_type", "partitions", "timeout_ms")
    ELECTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    election_type: ElectionType
    partitions: _containers.RepeatedCompositeFieldContainer[ClusterPartition]
    timeout_ms: int
    def __init__(self, election_type: _Optional[_Union[ElectionType, str]] = ..., partitions: _Optional[_Iterable[_Union[ClusterPartition, _Mapping]]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ElectedLeader(_message.Message):
    __slots__ = ("topic", "partition", "error_code", "error_message", "leader_id", "leader_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error_code: _errors_pb2.ErrorCode
    error_message: str
    leader_id: int
    leader_epoch: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class ElectLeadersResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "results")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    results: _containers.RepeatedCompositeFieldContainer[ElectedLeader]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ElectedLeader, _Mapping]]] = ...) -> None: ...

class WantedReplicas(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "cancel")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    cancel: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., cancel: bool = ...) -> None: ...

class AlterPartitionReassignmentsRequest(_message.Message):
    __slots__ = ("partitions", "timeout_ms")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[WantedReplicas]
    timeout_ms: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[WantedReplicas, _Mapping]]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class AlteredReassignment(_message.Message):
    __slots__ = ("topic", "partition", "error_code", "error_message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error_code: _errors_pb2.ErrorCode
    error_message: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ...) -> None: ...

class AlterPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "results")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    results: _containers.RepeatedCompositeFieldContainer[AlteredReassignment]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., results: _Optional[_Iterable[_Union[AlteredReassignment, _Mapping]]] = ...) -> None: ...

class ListPartitionReassignmentsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ClusterPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ClusterPartition, _Mapping]]] = ...) -> None: ...

class ListPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "partitions")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[ClusterPartitionState]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ClusterPartitionState, _Mapping]]] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node_id", "undrain", "timeout_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    UNDRAIN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    undrain: bool
    timeout_ms: int
    def __init__(self, node_id: _Optional[int] = ..., undrain: bool = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class DrainNodeResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "still_leads")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    STILL_LEADS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    still_leads: _containers.RepeatedCompositeFieldContainer[ClusterPartition]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., still_leads: _Optional[_Iterable[_Union[ClusterPartition, _Mapping]]] = ...) -> None: ...

class ExplainElectionsRequest(_message.Message):
    __slots__ = ("limit", "topic")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    limit: int
    topic: str
    def __init__(self, limit: _Optional[int] = ..., topic: _Optional[str] = ...) -> None: ...

class LostRecords(_message.Message):
    __slots__ = ("node_id", "from_offset", "to_offset", "records", "epochs", "topic")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    from_offset: int
    to_offset: int
    records: int
    epochs: _containers.RepeatedScalarFieldContainer[int]
    topic: str
    def __init__(self, node_id: _Optional[int] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., records: _Optional[int] = ..., epochs: _Optional[_Iterable[int]] = ..., topic: _Optional[str] = ...) -> None: ...

class Election(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "from_node_id", "to_node_id", "clean", "cause", "isr", "elr", "decided_ms", "took_ms", "lost")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FROM_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CLEAN_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    from_node_id: int
    to_node_id: int
    clean: str
    cause: str
    isr: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    decided_ms: int
    took_ms: int
    lost: _containers.RepeatedCompositeFieldContainer[LostRecords]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., from_node_id: _Optional[int] = ..., to_node_id: _Optional[int] = ..., clean: _Optional[str] = ..., cause: _Optional[str] = ..., isr: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., decided_ms: _Optional[int] = ..., took_ms: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[LostRecords, _Mapping]]] = ...) -> None: ...

class ExplainElectionsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "elections")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ELECTIONS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    elections: _containers.RepeatedCompositeFieldContainer[Election]
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., elections: _Optional[_Iterable[_Union[Election, _Mapping]]] = ...) -> None: ...
