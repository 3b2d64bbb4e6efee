"""How a call ends that has no answer: a gRPC status with google.rpc details. Refusals of the protocol are answers."""

from dataclasses import dataclass
from uuid import uuid4

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from muster.coordinator.edge import words
from muster.coordinator.errors import Denied, Draining, NotAuthenticated, NotNow, NotThere, Overloaded

DOMAIN = "coordinator.rpc.v1"
DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Ending:
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


def malformed(text: str, field: str = "") -> Ending:
    """The request breaks its own shape; sending it again cannot help."""
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=text)
    return Ending(
        grpc.StatusCode.INVALID_ARGUMENT,
        text,
        (error_info("MALFORMED_REQUEST"), error_details_pb2.BadRequest(field_violations=[violation])),
    )


def overloaded(refusal: Overloaded) -> Ending:
    """A limit is reached; the client may try again after the hinted time."""
    delay = Duration()
    delay.FromMilliseconds(refusal.retry_after_ms)
    return Ending(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        str(refusal),
        (error_info("LIMIT_REACHED"), error_details_pb2.RetryInfo(retry_delay=delay)),
    )


def draining(refusal: Draining) -> Ending:
    return Ending(grpc.StatusCode.UNAVAILABLE, str(refusal), (error_info("DRAINING"),))


def not_there(refusal: NotThere) -> Ending:
    return Ending(grpc.StatusCode.NOT_FOUND, str(refusal), (error_info("NOT_THERE"),))


def denied(refusal: Denied) -> Ending:
    return Ending(grpc.StatusCode.PERMISSION_DENIED, str(refusal), (error_info("DENIED"),))


def not_now(refusal: NotNow) -> Ending:
    return Ending(grpc.StatusCode.UNAVAILABLE, str(refusal), (error_info("NOT_NOW"),))


def not_authenticated(refusal: NotAuthenticated) -> Ending:
    return Ending(grpc.StatusCode.UNAUTHENTICATED, str(refusal), (error_info("NOT_AUTHENTICATED"),))


def failed() -> tuple[Ending, str]:
    """An unexpected exception: the client learns a reference into the node's log, and nothing of the inside."""
    reference = uuid4().hex[:12]
    details = (error_info("INTERNAL", reference=reference),)
    return Ending(grpc.StatusCode.INTERNAL, words.failed(reference), details), reference


def error_info(reason: str, **metadata: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)
