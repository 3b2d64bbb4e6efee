"""A claim of a fence as an event and as places, and its refusal. Pure; shape only."""

from muster.coordinator.core.model.fences_events import NO_PRODUCER, ClaimFence
from muster.coordinator.core.model.types import RequestId
from muster.coordinator.edge import shape
from muster.coordinator.errors import CoordinatorError
from muster.coordinator.rpc.v1 import fence_service_pb2 as pb
from muster.coordinator.server.services import answers


def parse_fence_claim(request: pb.ClaimFenceRequest, request_id: RequestId, fresh_id: int) -> ClaimFence:
    return ClaimFence(
        request_id,
        shape.check_name("group_id", request.group_id),
        shape.check_name("member_id", request.member_id),
        shape.check_name("topic", request.topic),
        request.partition,
        request.generation_id,
        request.producer_id if request.HasField("producer_id") else NO_PRODUCER,
        request.producer_epoch if request.HasField("producer_epoch") else NO_PRODUCER,
        fresh_id,
    )


def parse_fenced_logs(request: pb.ClaimFenceRequest) -> list[tuple[str, int]]:
    """Raises MalformedRequest for too many of them, and for one that is named twice."""
    shape.check_at_most("logs", len(request.logs), shape.MAX_PARTITIONS)
    places = [(shape.check_name("topic", each.topic), each.partition) for each in request.logs]
    shape.check_distinct("logs", places)
    return places


def build_fence_refusal(refusal: CoordinatorError) -> pb.ClaimFenceResponse:
    return pb.ClaimFenceResponse(
        error_code=answers.to_error_code(refusal.code), error_message=refusal.message, producer_id=-1, producer_epoch=-1
    )
