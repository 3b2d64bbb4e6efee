"""What operators ask of canaries, from protobuf to core events, and the answers back. Pure; shape only."""

from collections.abc import Mapping

from muster.coordinator.core.control.trial import guards
from muster.coordinator.core.control.trial.candidates import Candidate
from muster.coordinator.core.control.trial.events import DescribeCanary, EndCanary, StartCanary
from muster.coordinator.core.control.trial.records import CanaryState, CanaryStored, Guard
from muster.coordinator.core.control.trial.replies import CanaryReply
from muster.coordinator.core.types import RequestId
from muster.coordinator.edge.words import operator, sentence
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.server.messages import shape
from muster.coordinator.server.messages.answers import error_code
from muster.coordinator.server.messages.shape import MalformedRequest

MAX_GUARDS = 20

STATES: Mapping[CanaryState, pb.CanaryState] = {
    CanaryState.CANARY: pb.CANARY_STATE_CANARY,
    CanaryState.WAITING: pb.CANARY_STATE_WAITING,
    CanaryState.PROMOTED: pb.CANARY_STATE_PROMOTED,
    CanaryState.ROLLED_BACK: pb.CANARY_STATE_ROLLED_BACK,
}


def start_canary(
    request: pb.StartCanaryRequest, request_id: RequestId, lag: tuple[float, int], *, client_host: str
) -> StartCanary:
    """`lag`: the mean of the last hour, and over how many milliseconds it is known."""
    if len(request.guards) > MAX_GUARDS:
        raise MalformedRequest(f"guards has {len(request.guards)} of them; at most {MAX_GUARDS} are read")
    return StartCanary(
        request_id,
        shape.name("group_id", request.group_id),
        request.assignor,
        request.for_ms,
        tuple(shape.name("guards", guard) for guard in request.guards),
        request.lag_floor if request.HasField("lag_floor") else guards.DEFAULT_LAG_FLOOR,
        not request.wait,
        request.validate_only,
        operator(client_host, shape.reason("reason", request.reason)),
        *lag,
    )


def end_canary(request: pb.EndCanaryRequest, request_id: RequestId, *, client_host: str) -> EndCanary:
    who = operator(client_host, shape.reason("reason", request.reason))
    return EndCanary(request_id, shape.name("group_id", request.group_id), request.promote, who)


def describe_canary(request: pb.DescribeCanaryRequest, request_id: RequestId) -> DescribeCanary:
    return DescribeCanary(request_id, shape.name("group_id", request.group_id))


def started(reply: CanaryReply) -> pb.StartCanaryResponse:
    return pb.StartCanaryResponse(
        error_code=error_code(reply.code), error_message=sentence(reply.code, reply.message), canary=canary(reply)
    )


def ended(reply: CanaryReply) -> pb.EndCanaryResponse:
    return pb.EndCanaryResponse(
        error_code=error_code(reply.code), error_message=sentence(reply.code, reply.message), canary=canary(reply)
    )


def described(reply: CanaryReply) -> pb.DescribeCanaryResponse:
    return pb.DescribeCanaryResponse(
        error_code=error_code(reply.code), error_message=sentence(reply.code, reply.message), canary=canary(reply)
    )


def canary(reply: CanaryReply) -> pb.Canary | None:
    stored = reply.canary
    if stored is None:
        return None
    return pb.Canary(
        state=STATES[stored.state],
        assignor=Candidate(stored.assignor, stored.options).word,
        former=stored.former,
        operator=stored.operator,
        began_at_ms=stored.began_at_ms,
        until_ms=stored.until_ms,
        promotes=stored.promotes,
        guards=[guard(each, stored, reply.idle.get(guards.written(each), "")) for each in stored.guards],
        lag_floor=stored.lag_floor,
        rebalances=stored.tally.rebalances,
        ended=stored.ended,
    )


def guard(each: Guard, stored: CanaryStored, idle: str) -> pb.CanaryGuard:
    return pb.CanaryGuard(
        guard=guards.written(each),
        idle=idle,
        baseline=guards.basis_of(each, stored.baseline) if each.relative else None,
        figure=guards.figure_of(each, stored.tally),
    )
