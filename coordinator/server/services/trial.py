"""What operators ask of canaries, from protobuf to core events, and the answers back. Pure; shape only."""

from collections.abc import Mapping

from muster.coordinator.core.control.trials import guards
from muster.coordinator.core.model.candidates import AssignorCandidate
from muster.coordinator.core.model.replies import CanaryReply
from muster.coordinator.core.model.trial_events import DescribeCanary, EndCanary, StartCanary
from muster.coordinator.core.model.trial_records import CanaryGuardRule, CanaryState, CanaryStored
from muster.coordinator.core.model.types import RequestId
from muster.coordinator.edge import shape
from muster.coordinator.edge.shape import MalformedGroupRequest
from muster.coordinator.edge.words import error_sentence, name_operator
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.server.services.answers import to_error_code

MAX_GUARDS = 20

CANARY_STATES: Mapping[CanaryState, pb.CanaryState] = {
    CanaryState.CANARY: pb.CANARY_STATE_CANARY,
    CanaryState.WAITING: pb.CANARY_STATE_WAITING,
    CanaryState.PROMOTED: pb.CANARY_STATE_PROMOTED,
    CanaryState.ROLLED_BACK: pb.CANARY_STATE_ROLLED_BACK,
}


def parse_start_canary(
    request: pb.StartCanaryRequest, request_id: RequestId, lag: tuple[float, int], *, client_host: str
) -> StartCanary:
    """`lag`: the mean of the last hour, and over how many milliseconds it is known."""
    if len(request.guards) > MAX_GUARDS:
        raise MalformedGroupRequest(f"guards has {len(request.guards)} of them; at most {MAX_GUARDS} are read")
    return StartCanary(
        request_id,
        shape.check_name("group_id", request.group_id),
        request.assignor,
        request.for_ms,
        tuple(shape.check_name("guards", guard) for guard in request.guards),
        request.lag_floor if request.HasField("lag_floor") else guards.DEFAULT_LAG_FLOOR,
        not request.wait,
        request.validate_only,
        name_operator(client_host, shape.check_reason("reason", request.reason)),
        *lag,
    )


def parse_end_canary(request: pb.EndCanaryRequest, request_id: RequestId, *, client_host: str) -> EndCanary:
    who = name_operator(client_host, shape.check_reason("reason", request.reason))
    return EndCanary(request_id, shape.check_name("group_id", request.group_id), request.promote, who)


def parse_describe_canary(request: pb.DescribeCanaryRequest, request_id: RequestId) -> DescribeCanary:
    return DescribeCanary(request_id, shape.check_name("group_id", request.group_id))


def build_start_canary_response(reply: CanaryReply) -> pb.StartCanaryResponse:
    return pb.StartCanaryResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        canary=build_canary(reply),
    )


def build_end_canary_response(reply: CanaryReply) -> pb.EndCanaryResponse:
    return pb.EndCanaryResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        canary=build_canary(reply),
    )


def build_describe_canary_response(reply: CanaryReply) -> pb.DescribeCanaryResponse:
    return pb.DescribeCanaryResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        canary=build_canary(reply),
    )


def build_canary(reply: CanaryReply) -> pb.Canary | None:
    stored = reply.canary
    if stored is None:
        return None
    return pb.Canary(
        state=CANARY_STATES[stored.state],
        assignor=AssignorCandidate(stored.assignor, stored.options).word,
        former=stored.former,
        operator=stored.operator,
        began_at_ms=stored.began_at_ms,
        until_ms=stored.until_ms,
        promotes=stored.promotes,
        guards=[
            build_canary_guard(each, stored, reply.idle.get(guards.guard_text(each), "")) for each in stored.guards
        ],
        lag_floor=stored.lag_floor,
        rebalances=stored.tally.rebalances,
        ended=stored.ended,
    )


def build_canary_guard(each: CanaryGuardRule, stored: CanaryStored, idle: str) -> pb.CanaryGuard:
    return pb.CanaryGuard(
        guard=guards.guard_text(each),
        idle=idle,
        baseline=guards.guard_basis(each, stored.baseline) if each.relative else None,
        figure=guards.figure_of(each, stored.tally),
    )
