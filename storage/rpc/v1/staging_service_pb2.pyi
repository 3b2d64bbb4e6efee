from muster.storage.rpc.v1 import broker_service_pb2 as _broker_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StageRecordsRequest(_message.Message):
    __slots__ = ("sink", "batch", "attempt", "position", "topic_data", "last")
    SINK_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    sink: str
    batch: int
    attempt: str
    position: int
    topic_data: _containers.RepeatedCompositeFieldContainer[_broker_service_pb2.ProduceTopic]
    last: bool
    def __init__(self, sink: _Optional[str] = ..., batch: _Optional[int] = ..., attempt: _Optional[str] = ..., position: _Optional[int] = ..., topic_data: _Optional[_Iterable[_Union[_broker_service_pb2.ProduceTopic, _Mapping]]] = ..., last: bool = ...) -> None: ...

class StageRecordsResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "settled", "position")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    error_code: _broker_service_pb2.ErrorCode
    error_message: str
    settled: bool
    position: int
    def __init__(self, error_code: _Optional[_Union[_broker_service_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., settled: bool = ..., position: _Optional[int] = ...) -> None: ...

class StagedAttempt(_message.Message):
    __slots__ = ("attempt", "size")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    attempt: str
    size: int
    def __init__(self, attempt: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class CommitStagedRequest(_message.Message):
    __slots__ = ("sink", "batch", "attempts")
    SINK_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    batch: int
    attempts: _containers.RepeatedCompositeFieldContainer[StagedAttempt]
    def __init__(self, sink: _Optional[str] = ..., batch: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[StagedAttempt, _Mapping]]] = ...) -> None: ...

class CommitStagedResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "settled")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    error_code: _broker_service_pb2.ErrorCode
    error_message: str
    settled: bool
    def __init__(self, error_code: _Optional[_Union[_broker_service_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ..., settled: bool = ...) -> None: ...

class AbortStagedRequest(_message.Message):
    __slots__ = ("sink", "batch", "attempts")
    SINK_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    batch: int
    attempts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sink: _Optional[str] = ..., batch: _Optional[int] = ..., attempts: _Optional[_Iterable[str]] = ...) -> None: ...

class AbortStagedResponse(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: _broker_service_pb2.ErrorCode
    error_message: str
    def __init__(self, error_code: _Optional[_Union[_broker_service_pb2.ErrorCode, str]] = ..., error_message: _Optional[str] = ...) -> None: ...
