from muster.coordinator.rpc.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Orphans(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORPHANS_UNSPECIFIED: _ClassVar[Orphans]
    ORPHANS_GIVE: _ClassVar[Orphans]
    ORPHANS_KEEP: _ClassVar[Orphans]

class NamedBy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NAMED_BY_UNSPECIFIED: _ClassVar[NamedBy]
    NAMED_BY_CLIENT_ID: _ClassVar[NamedBy]
    NAMED_BY_INSTANCE: _ClassVar[NamedBy]
    NAMED_BY_HOST: _ClassVar[NamedBy]

class CanaryState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANARY_STATE_UNSPECIFIED: _ClassVar[CanaryState]
    CANARY_STATE_CANARY: _ClassVar[CanaryState]
    CANARY_STATE_WAITING: _ClassVar[CanaryState]
    CANARY_STATE_PROMOTED: _ClassVar[CanaryState]
    CANARY_STATE_ROLLED_BACK: _ClassVar[CanaryState]
ORPHANS_UNSPECIFIED: Orphans
ORPHANS_GIVE: Orphans
ORPHANS_KEEP: Orphans
NAMED_BY_UNSPECIFIED: NamedBy
NAMED_BY_CLIENT_ID: NamedBy
NAMED_BY_INSTANCE: NamedBy
NAMED_BY_HOST: NamedBy
CANARY_STATE_UNSPECIFIED: CanaryState
CANARY_STATE_CANARY: CanaryState
CANARY_STATE_WAITING: CanaryState
CANARY_STATE_PROMOTED: CanaryState
CANARY_STATE_ROLLED_BACK: CanaryState

class Freeze(_message.Message):
    __slots__ = ("orphans",)
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    orphans: Orphans
    def __init__(self, orphans: _Optional[_Union[Orphans, str]] = ...) -> None: ...

class Deploy(_message.Message):
    __slots__ = ("expect",)
    EXPECT_FIELD_NUMBER: _ClassVar[int]
    expect: int
    def __init__(self, expect: _Optional[int] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("by", "name")
    BY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    by: NamedBy
    name: str
    def __init__(self, by: _Optional[_Union[NamedBy, str]] = ..., name: _Optional[str] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("topic", "partition", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    name: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class HoldGroupRequest(_message.Message):
    __slots__ = ("group_id", "freeze", "deploy", "drain", "pin", "for_ms", "expected_version", "validate_only", "reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    FREEZE_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    freeze: Freeze
    deploy: Deploy
    drain: Drain
    pin: Pin
    for_ms: int
    expected_version: int
    validate_only: bool
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., freeze: _Optional[_Union[Freeze, _Mapping]] = ..., deploy: _Optional[_Union[Deploy, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., pin: _Optional[_Union[Pin, _Mapping]] = ..., for_ms: _Optional[int] = ..., expected_version: _Optional[int] = ..., validate_only: bool = ..., reason: _Optional[str] = ...) -> None: ...

class HoldGroupResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "holds", "sentence", "moves", "moves_unknown")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    MOVES_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    holds: Holds
    sentence: str
    moves: _containers.RepeatedCompositeFieldContainer[ForecastMove]
    moves_unknown: str
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., holds: _Optional[_Union[Holds, _Mapping]] = ..., sentence: _Optional[str] = ..., moves: _Optional[_Iterable[_Union[ForecastMove, _Mapping]]] = ..., moves_unknown: _Optional[str] = ...) -> None: ...

class ForecastMove(_message.Message):
    __slots__ = ("topic", "partition", "source", "target")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    source: str
    target: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class ResumeGroupRequest(_message.Message):
    __slots__ = ("group_id", "freeze", "deploy", "drain", "pin", "expected_version", "validate_only", "reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    FREEZE_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    freeze: bool
    deploy: bool
    drain: Drain
    pin: Pin
    expected_version: int
    validate_only: bool
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., freeze: bool = ..., deploy: bool = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., pin: _Optional[_Union[Pin, _Mapping]] = ..., expected_version: _Optional[int] = ..., validate_only: bool = ..., reason: _Optional[str] = ...) -> None: ...

class ResumeGroupResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "holds", "sentence", "moves", "moves_unknown")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    MOVES_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    holds: Holds
    sentence: str
    moves: _containers.RepeatedCompositeFieldContainer[ForecastMove]
    moves_unknown: str
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., holds: _Optional[_Union[Holds, _Mapping]] = ..., sentence: _Optional[str] = ..., moves: _Optional[_Iterable[_Union[ForecastMove, _Mapping]]] = ..., moves_unknown: _Optional[str] = ...) -> None: ...

class DescribeHoldsRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class DescribeHoldsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "holds")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    holds: Holds
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., holds: _Optional[_Union[Holds, _Mapping]] = ...) -> None: ...

class Holds(_message.Message):
    __slots__ = ("version", "freeze", "freeze_until_ms", "deploy", "deploy_until_ms", "back", "hold_ms", "drains", "pins", "shares")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FREEZE_FIELD_NUMBER: _ClassVar[int]
    FREEZE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    version: int
    freeze: Freeze
    freeze_until_ms: int
    deploy: Deploy
    deploy_until_ms: int
    back: int
    hold_ms: int
    drains: _containers.RepeatedCompositeFieldContainer[HeldDrain]
    pins: _containers.RepeatedCompositeFieldContainer[HeldPin]
    shares: _containers.RepeatedCompositeFieldContainer[HeldShare]
    def __init__(self, version: _Optional[int] = ..., freeze: _Optional[_Union[Freeze, _Mapping]] = ..., freeze_until_ms: _Optional[int] = ..., deploy: _Optional[_Union[Deploy, _Mapping]] = ..., deploy_until_ms: _Optional[int] = ..., back: _Optional[int] = ..., hold_ms: _Optional[int] = ..., drains: _Optional[_Iterable[_Union[HeldDrain, _Mapping]]] = ..., pins: _Optional[_Iterable[_Union[HeldPin, _Mapping]]] = ..., shares: _Optional[_Iterable[_Union[HeldShare, _Mapping]]] = ...) -> None: ...

class HeldDrain(_message.Message):
    __slots__ = ("drain", "until_ms", "left")
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    drain: Drain
    until_ms: int
    left: int
    def __init__(self, drain: _Optional[_Union[Drain, _Mapping]] = ..., until_ms: _Optional[int] = ..., left: _Optional[int] = ...) -> None: ...

class HeldPin(_message.Message):
    __slots__ = ("pin", "until_ms")
    PIN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    pin: Pin
    until_ms: int
    def __init__(self, pin: _Optional[_Union[Pin, _Mapping]] = ..., until_ms: _Optional[int] = ...) -> None: ...

class HeldShare(_message.Message):
    __slots__ = ("member_id", "client_id", "partitions", "until_ms")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    client_id: str
    partitions: int
    until_ms: int
    def __init__(self, member_id: _Optional[str] = ..., client_id: _Optional[str] = ..., partitions: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class StartCanaryRequest(_message.Message):
    __slots__ = ("group_id", "assignor", "for_ms", "guards", "lag_floor", "wait", "validate_only", "reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    GUARDS_FIELD_NUMBER: _ClassVar[int]
    LAG_FLOOR_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    assignor: str
    for_ms: int
    guards: _containers.RepeatedScalarFieldContainer[str]
    lag_floor: int
    wait: bool
    validate_only: bool
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., assignor: _Optional[str] = ..., for_ms: _Optional[int] = ..., guards: _Optional[_Iterable[str]] = ..., lag_floor: _Optional[int] = ..., wait: bool = ..., validate_only: bool = ..., reason: _Optional[str] = ...) -> None: ...

class StartCanaryResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "canary", "moves", "moves_unknown")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    MOVES_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    canary: Canary
    moves: _containers.RepeatedCompositeFieldContainer[ForecastMove]
    moves_unknown: str
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., canary: _Optional[_Union[Canary, _Mapping]] = ..., moves: _Optional[_Iterable[_Union[ForecastMove, _Mapping]]] = ..., moves_unknown: _Optional[str] = ...) -> None: ...

class EndCanaryRequest(_message.Message):
    __slots__ = ("group_id", "promote", "reason")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PROMOTE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    promote: bool
    reason: str
    def __init__(self, group_id: _Optional[str] = ..., promote: bool = ..., reason: _Optional[str] = ...) -> None: ...

class EndCanaryResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "canary")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    canary: Canary
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., canary: _Optional[_Union[Canary, _Mapping]] = ...) -> None: ...

class DescribeCanaryRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class DescribeCanaryResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "throttle_time_ms", "canary")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    error_code: _errors_pb2.ErrorCode
    error_message: str
    throttle_time_ms: int
    canary: Canary
    def __init__(self, error_code: _Optional[_Union[_errors_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., throttle_time_ms: _Optional[int] = ..., canary: _Optional[_Union[Canary, _Mapping]] = ...) -> None: ...

class GroupBalance(_message.Message):
    __slots__ = ("mode", "idle", "heaviest", "ratio", "paid", "rounds", "resting")
    MODE_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    HEAVIEST_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    PAID_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    RESTING_FIELD_NUMBER: _ClassVar[int]
    mode: str
    idle: str
    heaviest: str
    ratio: float
    paid: int
    rounds: int
    resting: int
    def __init__(self, mode: _Optional[str] = ..., idle: _Optional[str] = ..., heaviest: _Optional[str] = ..., ratio: _Optional[float] = ..., paid: _Optional[int] = ..., rounds: _Optional[int] = ..., resting: _Optional[int] = ...) -> None: ...

class GroupFences(_message.Message):
    __slots__ = ("count", "newest")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    count: int
    newest: _containers.RepeatedCompositeFieldContainer[GroupFence]
    def __init__(self, count: _Optional[int] = ..., newest: _Optional[_Iterable[_Union[GroupFence, _Mapping]]] = ...) -> None: ...

class GroupFence(_message.Message):
    __slots__ = ("topic", "partition", "member_id", "generation", "producer_id", "producer_epoch", "claimed_at_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    member_id: str
    generation: int
    producer_id: int
    producer_epoch: int
    claimed_at_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., member_id: _Optional[str] = ..., generation: _Optional[int] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., claimed_at_ms: _Optional[int] = ...) -> None: ...

class CanaryGuard(_message.Message):
    __slots__ = ("guard", "idle", "baseline", "figure")
    GUARD_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    FIGURE_FIELD_NUMBER: _ClassVar[int]
    guard: str
    idle: str
    baseline: float
    figure: float
    def __init__(self, guard: _Optional[str] = ..., idle: _Optional[str] = ..., baseline: _Optional[float] = ..., figure: _Optional[float] = ...) -> None: ...

class Canary(_message.Message):
    __slots__ = ("state", "assignor", "former", "operator", "began_at_ms", "until_ms", "promotes", "guards", "lag_floor", "rebalances", "ended")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    BEGAN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    PROMOTES_FIELD_NUMBER: _ClassVar[int]
    GUARDS_FIELD_NUMBER: _ClassVar[int]
    LAG_FLOOR_FIELD_NUMBER: _ClassVar[int]
    REBALANCES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    state: CanaryState
    assignor: str
    former: str
    operator: str
    began_at_ms: int
    until_ms: int
    promotes: bool
    guards: _containers.RepeatedCompositeFieldContainer[CanaryGuard]
    lag_floor: int
    rebalances: int
    ended: str
    def __init__(self, state: _Optional[_Union[CanaryState, str]] = ..., assignor: _Optional[str] = ..., former: _Optional[str] = ..., operator: _Optional[str] = ..., began_at_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., promotes: bool = ..., guards: _Optional[_Iterable[_Union[CanaryGuard, _Mapping]]] = ..., lag_floor: _Optional[int] = ..., rebalances: _Optional[int] = ..., ended: _Optional[str] = ...) -> None: ...
