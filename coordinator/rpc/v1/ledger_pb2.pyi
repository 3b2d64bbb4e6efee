from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RebalanceCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REBALANCE_CAUSE_UNSPECIFIED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_MEMBER_JOINED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_MEMBER_METADATA_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_STATIC_MEMBER_METADATA_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_SESSION_EXPIRED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_MEMBER_LEFT: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_STATIC_MEMBER_REPLACED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_PROTOCOL_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_LEADER_REJOINED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_POLL_TIMEOUT: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_SYNC_TIMEOUT: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_REBALANCE_TIMEOUT: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_GROUP_OVER_SIZE: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_REVOCATION_FOLLOW_UP: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_SUBSCRIPTION_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_PARTITIONS_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_ASSIGNOR_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_LAG_IMBALANCE: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_OPERATOR: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_THAW: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_COORDINATOR_FAILOVER: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_HANDOFF_TIMEOUT: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_MEMBER_FENCED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_WEIGHT_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_ASSIGNOR_FAILED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_DELAY_OVER: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_BROKERS_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_CANARY: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_DEPLOY_OVER: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_PIN_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_DRAINED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_NODE_STALLED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_PROTOCOLS_CHANGED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_MEMBER_RESTARTED: _ClassVar[RebalanceCause]
    REBALANCE_CAUSE_INSTANCE_ID_SHARED: _ClassVar[RebalanceCause]

class Certainty(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CERTAINTY_UNSPECIFIED: _ClassVar[Certainty]
    CERTAINTY_RECORDED: _ClassVar[Certainty]
    CERTAINTY_INFERRED: _ClassVar[Certainty]
    CERTAINTY_UNKNOWN: _ClassVar[Certainty]
    CERTAINTY_SAID: _ClassVar[Certainty]

class RebalanceSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REBALANCE_SOURCE_COORDINATOR: _ClassVar[RebalanceSource]
    REBALANCE_SOURCE_WATCHED: _ClassVar[RebalanceSource]

class RebalanceOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REBALANCE_OUTCOME_UNSPECIFIED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_COMPLETED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_EMPTIED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_SUPERSEDED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_FAILED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_SETTINGS_CHANGED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_TRIAL: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_HELD: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_WATCHED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_POSITIONS_CHANGED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_GROUP_DELETED: _ClassVar[RebalanceOutcome]
    REBALANCE_OUTCOME_MEMBER_CHANGED: _ClassVar[RebalanceOutcome]

class WaitEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WAIT_END_NEVER: _ClassVar[WaitEnd]
    WAIT_END_JOINED: _ClassVar[WaitEnd]
    WAIT_END_EXPIRED: _ClassVar[WaitEnd]
    WAIT_END_LEFT: _ClassVar[WaitEnd]
    WAIT_END_REPLACED: _ClassVar[WaitEnd]

class TopicChangeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_CHANGE_KIND_UNSPECIFIED: _ClassVar[TopicChangeKind]
    TOPIC_CHANGE_KIND_MADE: _ClassVar[TopicChangeKind]
    TOPIC_CHANGE_KIND_GREW: _ClassVar[TopicChangeKind]
    TOPIC_CHANGE_KIND_DELETED: _ClassVar[TopicChangeKind]
    TOPIC_CHANGE_KIND_REMADE: _ClassVar[TopicChangeKind]
REBALANCE_CAUSE_UNSPECIFIED: RebalanceCause
REBALANCE_CAUSE_MEMBER_JOINED: RebalanceCause
REBALANCE_CAUSE_MEMBER_METADATA_CHANGED: RebalanceCause
REBALANCE_CAUSE_STATIC_MEMBER_METADATA_CHANGED: RebalanceCause
REBALANCE_CAUSE_SESSION_EXPIRED: RebalanceCause
REBALANCE_CAUSE_MEMBER_LEFT: RebalanceCause
REBALANCE_CAUSE_STATIC_MEMBER_REPLACED: RebalanceCause
REBALANCE_CAUSE_PROTOCOL_CHANGED: RebalanceCause
REBALANCE_CAUSE_LEADER_REJOINED: RebalanceCause
REBALANCE_CAUSE_POLL_TIMEOUT: RebalanceCause
REBALANCE_CAUSE_SYNC_TIMEOUT: RebalanceCause
REBALANCE_CAUSE_REBALANCE_TIMEOUT: RebalanceCause
REBALANCE_CAUSE_GROUP_OVER_SIZE: RebalanceCause
REBALANCE_CAUSE_REVOCATION_FOLLOW_UP: RebalanceCause
REBALANCE_CAUSE_SUBSCRIPTION_CHANGED: RebalanceCause
REBALANCE_CAUSE_PARTITIONS_CHANGED: RebalanceCause
REBALANCE_CAUSE_ASSIGNOR_CHANGED: RebalanceCause
REBALANCE_CAUSE_LAG_IMBALANCE: RebalanceCause
REBALANCE_CAUSE_OPERATOR: RebalanceCause
REBALANCE_CAUSE_THAW: RebalanceCause
REBALANCE_CAUSE_COORDINATOR_FAILOVER: RebalanceCause
REBALANCE_CAUSE_HANDOFF_TIMEOUT: RebalanceCause
REBALANCE_CAUSE_MEMBER_FENCED: RebalanceCause
REBALANCE_CAUSE_WEIGHT_CHANGED: RebalanceCause
REBALANCE_CAUSE_ASSIGNOR_FAILED: RebalanceCause
REBALANCE_CAUSE_DELAY_OVER: RebalanceCause
REBALANCE_CAUSE_BROKERS_CHANGED: RebalanceCause
REBALANCE_CAUSE_CANARY: RebalanceCause
REBALANCE_CAUSE_DEPLOY_OVER: RebalanceCause
REBALANCE_CAUSE_PIN_CHANGED: RebalanceCause
REBALANCE_CAUSE_DRAINED: RebalanceCause
REBALANCE_CAUSE_NODE_STALLED: RebalanceCause
REBALANCE_CAUSE_PROTOCOLS_CHANGED: RebalanceCause
REBALANCE_CAUSE_MEMBER_RESTARTED: RebalanceCause
REBALANCE_CAUSE_INSTANCE_ID_SHARED: RebalanceCause
CERTAINTY_UNSPECIFIED: Certainty
CERTAINTY_RECORDED: Certainty
CERTAINTY_INFERRED: Certainty
CERTAINTY_UNKNOWN: Certainty
CERTAINTY_SAID: Certainty
REBALANCE_SOURCE_COORDINATOR: RebalanceSource
REBALANCE_SOURCE_WATCHED: RebalanceSource
REBALANCE_OUTCOME_UNSPECIFIED: RebalanceOutcome
REBALANCE_OUTCOME_COMPLETED: RebalanceOutcome
REBALANCE_OUTCOME_EMPTIED: RebalanceOutcome
REBALANCE_OUTCOME_SUPERSEDED: RebalanceOutcome
REBALANCE_OUTCOME_FAILED: RebalanceOutcome
REBALANCE_OUTCOME_SETTINGS_CHANGED: RebalanceOutcome
REBALANCE_OUTCOME_TRIAL: RebalanceOutcome
REBALANCE_OUTCOME_HELD: RebalanceOutcome
REBALANCE_OUTCOME_WATCHED: RebalanceOutcome
REBALANCE_OUTCOME_POSITIONS_CHANGED: RebalanceOutcome
REBALANCE_OUTCOME_GROUP_DELETED: RebalanceOutcome
REBALANCE_OUTCOME_MEMBER_CHANGED: RebalanceOutcome
WAIT_END_NEVER: WaitEnd
WAIT_END_JOINED: WaitEnd
WAIT_END_EXPIRED: WaitEnd
WAIT_END_LEFT: WaitEnd
WAIT_END_REPLACED: WaitEnd
TOPIC_CHANGE_KIND_UNSPECIFIED: TopicChangeKind
TOPIC_CHANGE_KIND_MADE: TopicChangeKind
TOPIC_CHANGE_KIND_GREW: TopicChangeKind
TOPIC_CHANGE_KIND_DELETED: TopicChangeKind
TOPIC_CHANGE_KIND_REMADE: TopicChangeKind

class TopicPartitions(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class MemberPlan(_message.Message):
    __slots__ = ("member_id", "client_id", "client_host", "group_instance_id", "assigned", "joined_at_ms", "synced_at_ms")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    JOINED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SYNCED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str
    assigned: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    joined_at_ms: int
    synced_at_ms: int
    def __init__(self, member_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., assigned: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., joined_at_ms: _Optional[int] = ..., synced_at_ms: _Optional[int] = ...) -> None: ...

class PhaseWait(_message.Message):
    __slots__ = ("member_id", "client_id", "came", "after_ms")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    client_id: str
    came: WaitEnd
    after_ms: int
    def __init__(self, member_id: _Optional[str] = ..., client_id: _Optional[str] = ..., came: _Optional[_Union[WaitEnd, str]] = ..., after_ms: _Optional[int] = ...) -> None: ...

class RebalancePhase(_message.Message):
    __slots__ = ("name", "duration_ms", "waited_for", "waits")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    WAITED_FOR_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    duration_ms: int
    waited_for: _containers.RepeatedScalarFieldContainer[str]
    waits: _containers.RepeatedCompositeFieldContainer[PhaseWait]
    def __init__(self, name: _Optional[str] = ..., duration_ms: _Optional[int] = ..., waited_for: _Optional[_Iterable[str]] = ..., waits: _Optional[_Iterable[_Union[PhaseWait, _Mapping]]] = ...) -> None: ...

class FurtherTrigger(_message.Message):
    __slots__ = ("cause", "culprit", "culprit_client_id", "culprit_client_host", "detail", "at_ms", "certainty")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    CERTAINTY_FIELD_NUMBER: _ClassVar[int]
    cause: RebalanceCause
    culprit: str
    culprit_client_id: str
    culprit_client_host: str
    detail: str
    at_ms: int
    certainty: Certainty
    def __init__(self, cause: _Optional[_Union[RebalanceCause, str]] = ..., culprit: _Optional[str] = ..., culprit_client_id: _Optional[str] = ..., culprit_client_host: _Optional[str] = ..., detail: _Optional[str] = ..., at_ms: _Optional[int] = ..., certainty: _Optional[_Union[Certainty, str]] = ...) -> None: ...

class TopicChange(_message.Message):
    __slots__ = ("topic", "kind", "before", "after", "at_ms", "by")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    kind: TopicChangeKind
    before: int
    after: int
    at_ms: int
    by: str
    def __init__(self, topic: _Optional[str] = ..., kind: _Optional[_Union[TopicChangeKind, str]] = ..., before: _Optional[int] = ..., after: _Optional[int] = ..., at_ms: _Optional[int] = ..., by: _Optional[str] = ...) -> None: ...

class Incarnation(_message.Message):
    __slots__ = ("member_id", "previous_id", "away_ms", "how")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_ID_FIELD_NUMBER: _ClassVar[int]
    AWAY_MS_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    previous_id: str
    away_ms: int
    how: str
    def __init__(self, member_id: _Optional[str] = ..., previous_id: _Optional[str] = ..., away_ms: _Optional[int] = ..., how: _Optional[str] = ...) -> None: ...

class LateFetch(_message.Message):
    __slots__ = ("member_id", "topic", "partitions", "after_ms", "certainty")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    CERTAINTY_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    after_ms: int
    certainty: Certainty
    def __init__(self, member_id: _Optional[str] = ..., topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., after_ms: _Optional[int] = ..., certainty: _Optional[_Union[Certainty, str]] = ...) -> None: ...

class PartitionMove(_message.Message):
    __slots__ = ("topic", "partition", "source", "target", "unowned_ms", "why", "unowned_at_least_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    UNOWNED_MS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    UNOWNED_AT_LEAST_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    source: str
    target: str
    unowned_ms: int
    why: str
    unowned_at_least_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., unowned_ms: _Optional[int] = ..., why: _Optional[str] = ..., unowned_at_least_ms: _Optional[int] = ...) -> None: ...

class PositionChange(_message.Message):
    __slots__ = ("topic", "partition", "before", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    before: int
    after: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., before: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class PlanScore(_message.Message):
    __slots__ = ("assignor", "failure", "took_ms", "balance_count", "balance_lag", "balance_rate", "members", "moves", "differs", "unassigned")
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    BALANCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BALANCE_LAG_FIELD_NUMBER: _ClassVar[int]
    BALANCE_RATE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    DIFFERS_FIELD_NUMBER: _ClassVar[int]
    UNASSIGNED_FIELD_NUMBER: _ClassVar[int]
    assignor: str
    failure: str
    took_ms: int
    balance_count: float
    balance_lag: float
    balance_rate: float
    members: int
    moves: int
    differs: int
    unassigned: int
    def __init__(self, assignor: _Optional[str] = ..., failure: _Optional[str] = ..., took_ms: _Optional[int] = ..., balance_count: _Optional[float] = ..., balance_lag: _Optional[float] = ..., balance_rate: _Optional[float] = ..., members: _Optional[int] = ..., moves: _Optional[int] = ..., differs: _Optional[int] = ..., unassigned: _Optional[int] = ...) -> None: ...

class Rebalance(_message.Message):
    __slots__ = ("group_id", "number", "previous_generation", "generation", "protocol_type", "protocol_name", "cause", "culprit", "culprit_client_id", "culprit_client_host", "detail", "client_reason", "outcome", "started_at_ms", "ended_at_ms", "phases", "members", "moves", "snapshot_json", "snapshot_source", "also", "unowned_partition_seconds", "herd", "notifications", "shadows", "positions", "more_positions", "certainty", "evidence", "triggers", "topics", "incarnations", "late_fetches", "source", "unowned_at_least_partition_seconds")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_GENERATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_NAME_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_REASON_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_JSON_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    UNOWNED_PARTITION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HERD_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    SHADOWS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    CERTAINTY_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    TRIGGERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    LATE_FETCHES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    UNOWNED_AT_LEAST_PARTITION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    number: int
    previous_generation: int
    generation: int
    protocol_type: str
    protocol_name: str
    cause: RebalanceCause
    culprit: str
    culprit_client_id: str
    culprit_client_host: str
    detail: str
    client_reason: str
    outcome: RebalanceOutcome
    started_at_ms: int
    ended_at_ms: int
    phases: _containers.RepeatedCompositeFieldContainer[RebalancePhase]
    members: _containers.RepeatedCompositeFieldContainer[MemberPlan]
    moves: _containers.RepeatedCompositeFieldContainer[PartitionMove]
    snapshot_json: str
    snapshot_source: str
    also: _containers.RepeatedScalarFieldContainer[str]
    unowned_partition_seconds: float
    herd: int
    notifications: int
    shadows: _containers.RepeatedCompositeFieldContainer[PlanScore]
    positions: _containers.RepeatedCompositeFieldContainer[PositionChange]
    more_positions: int
    certainty: Certainty
    evidence: str
    triggers: _containers.RepeatedCompositeFieldContainer[FurtherTrigger]
    topics: _containers.RepeatedCompositeFieldContainer[TopicChange]
    incarnations: _containers.RepeatedCompositeFieldContainer[Incarnation]
    late_fetches: _containers.RepeatedCompositeFieldContainer[LateFetch]
    source: RebalanceSource
    unowned_at_least_partition_seconds: float
    def __init__(self, group_id: _Optional[str] = ..., number: _Optional[int] = ..., previous_generation: _Optional[int] = ..., generation: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol_name: _Optional[str] = ..., cause: _Optional[_Union[RebalanceCause, str]] = ..., culprit: _Optional[str] = ..., culprit_client_id: _Optional[str] = ..., culprit_client_host: _Optional[str] = ..., detail: _Optional[str] = ..., client_reason: _Optional[str] = ..., outcome: _Optional[_Union[RebalanceOutcome, str]] = ..., started_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., phases: _Optional[_Iterable[_Union[RebalancePhase, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[MemberPlan, _Mapping]]] = ..., moves: _Optional[_Iterable[_Union[PartitionMove, _Mapping]]] = ..., snapshot_json: _Optional[str] = ..., snapshot_source: _Optional[str] = ..., also: _Optional[_Iterable[str]] = ..., unowned_partition_seconds: _Optional[float] = ..., herd: _Optional[int] = ..., notifications: _Optional[int] = ..., shadows: _Optional[_Iterable[_Union[PlanScore, _Mapping]]] = ..., positions: _Optional[_Iterable[_Union[PositionChange, _Mapping]]] = ..., more_positions: _Optional[int] = ..., certainty: _Optional[_Union[Certainty, str]] = ..., evidence: _Optional[str] = ..., triggers: _Optional[_Iterable[_Union[FurtherTrigger, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicChange, _Mapping]]] = ..., incarnations: _Optional[_Iterable[_Union[Incarnation, _Mapping]]] = ..., late_fetches: _Optional[_Iterable[_Union[LateFetch, _Mapping]]] = ..., source: _Optional[_Union[RebalanceSource, str]] = ..., unowned_at_least_partition_seconds: _Optional[float] = ...) -> None: ...

class NodeStall(_message.Message):
    __slots__ = ("ended_at_ms", "stalled_ms")
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STALLED_MS_FIELD_NUMBER: _ClassVar[int]
    ended_at_ms: int
    stalled_ms: int
    def __init__(self, ended_at_ms: _Optional[int] = ..., stalled_ms: _Optional[int] = ...) -> None: ...

class CoordinatorMove(_message.Message):
    __slots__ = ("from_node", "to_node", "cause", "last_heard_ms", "elected_ms", "serving_ms", "groups", "members", "cut")
    FROM_NODE_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    ELECTED_MS_FIELD_NUMBER: _ClassVar[int]
    SERVING_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    from_node: int
    to_node: int
    cause: str
    last_heard_ms: int
    elected_ms: int
    serving_ms: int
    groups: int
    members: int
    cut: int
    def __init__(self, from_node: _Optional[int] = ..., to_node: _Optional[int] = ..., cause: _Optional[str] = ..., last_heard_ms: _Optional[int] = ..., elected_ms: _Optional[int] = ..., serving_ms: _Optional[int] = ..., groups: _Optional[int] = ..., members: _Optional[int] = ..., cut: _Optional[int] = ...) -> None: ...
