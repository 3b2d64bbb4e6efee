"""How a call ends that has no answer: a gRPC status with google.rpc details. Refusals of the protocol are answers."""

from dataclasses import dataclass
from uuid import uuid4

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from muster.coordinator.edge import words
from muster.coordinator.errors import (
    CallDenied,
    NodeShuttingDown,
    NotAuthenticated,
    Overloaded,
    SubjectNotFound,
    TemporarilyUnknown,
)

DOMAIN = "coordinator.rpc.v1"
DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class CallStatus:
    """The status of a call that has no answer. `details` are google.rpc messages."""

    code: grpc.StatusCode
    text: str
    details: tuple[Message, ...]

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """The status once more, with its details, where every gRPC library looks for it."""
        packed = []
        for detail in self.details:
            packed.append(AnyMessage())
            packed[-1].Pack(detail)
        status = status_pb2.Status(code=self.code.value[0], message=self.text, details=packed)
        return ((DETAILS_KEY, status.SerializeToString()),)


def malformed_status(text: str, field: str = "") -> CallStatus:
    """The request breaks its own shape; sending it again cannot help."""
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=text)
    return CallStatus(
        grpc.StatusCode.INVALID_ARGUMENT,
        text,
        (build_error_info("MALFORMED_REQUEST"), error_details_pb2.BadRequest(field_violations=[violation])),
    )


def overloaded_status(refusal: Overloaded) -> CallStatus:
    """A limit is reached; the client may try again after the hinted time."""
    delay = Duration()
    delay.FromMilliseconds(refusal.retry_after_ms)
    return CallStatus(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        str(refusal),
        (build_error_info("LIMIT_REACHED"), error_details_pb2.RetryInfo(retry_delay=delay)),
    )


def draining_status(refusal: NodeShuttingDown) -> CallStatus:
    return CallStatus(grpc.StatusCode.UNAVAILABLE, str(refusal), (build_error_info("DRAINING"),))


def not_found_status(refusal: SubjectNotFound) -> CallStatus:
    return CallStatus(grpc.StatusCode.NOT_FOUND, str(refusal), (build_error_info("NOT_THERE"),))


def denied_status(refusal: CallDenied) -> CallStatus:
    return CallStatus(grpc.StatusCode.PERMISSION_DENIED, str(refusal), (build_error_info("DENIED"),))


def unavailable_status(refusal: TemporarilyUnknown) -> CallStatus:
    return CallStatus(grpc.StatusCode.UNAVAILABLE, str(refusal), (build_error_info("NOT_NOW"),))


def unauthenticated_status(refusal: NotAuthenticated) -> CallStatus:
    return CallStatus(grpc.StatusCode.UNAUTHENTICATED, str(refusal), (build_error_info("NOT_AUTHENTICATED"),))


def failed_status() -> tuple[CallStatus, str]:
    """An unexpected exception: the client learns a reference into the node's log, and nothing of the inside."""
    reference = uuid4().hex[:12]
    details = (build_error_info("INTERNAL", reference=reference),)
    return CallStatus(grpc.StatusCode.INTERNAL, words.describe_failure(reference), details), reference


def build_error_info(reason: str, **metadata: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)
