"""What operators ask of a group that works, from protobuf to core events, and the answers back. Pure; shape only."""

from collections.abc import Mapping
from typing import TypeVar, cast

from muster.coordinator.core.model import effects
from muster.coordinator.core.model.control_events import (
    AskDeploy,
    AskDrain,
    AskFreeze,
    AskPin,
    DescribeHolds,
    EndDeploy,
    EndFreeze,
    HoldGroup,
    OverrideEnd,
    OverrideRequest,
    ResumeGroup,
    Undrain,
    Unpin,
)
from muster.coordinator.core.model.types import RequestId
from muster.coordinator.core.model.values import By, HoldsStored, MeasuredRates, Orphans, Until
from muster.coordinator.edge import shape
from muster.coordinator.edge.shape import MalformedGroupRequest
from muster.coordinator.edge.words import error_sentence, name_operator
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.server.services.answers import to_error_code

MEMBER_SELECTORS: Mapping[int, By] = {
    pb.NAMED_BY_UNSPECIFIED: By.MEMBER_ID,
    pb.NAMED_BY_CLIENT_ID: By.CLIENT_ID,
    pb.NAMED_BY_INSTANCE: By.INSTANCE,
    pb.NAMED_BY_HOST: By.HOST,
}
SELECTOR_NUMBERS = {by: cast(pb.NamedBy, number) for number, by in MEMBER_SELECTORS.items()}
ORPHAN_POLICIES: Mapping[int, Orphans | None] = {
    pb.ORPHANS_UNSPECIFIED: None,
    pb.ORPHANS_GIVE: Orphans.GIVE,
    pb.ORPHANS_KEEP: Orphans.KEEP,
}
ORPHAN_POLICY_NUMBERS = {word: cast(pb.Orphans, number) for number, word in ORPHAN_POLICIES.items() if word is not None}


def parse_hold_group(
    request: pb.HoldGroupRequest, request_id: RequestId, *, client_host: str, seen: MeasuredRates | None = None
) -> HoldGroup:
    return HoldGroup(
        request_id,
        shape.check_name("group_id", request.group_id),
        parse_override(request),
        request.for_ms if request.HasField("for_ms") else None,
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        name_operator(client_host, shape.check_reason("reason", request.reason)),
        seen,
    )


def parse_override(request: pb.HoldGroupRequest) -> OverrideRequest:
    match request.WhichOneof("verb"):
        case "freeze":
            return AskFreeze(parse_enum("freeze.orphans", request.freeze.orphans, ORPHAN_POLICIES))
        case "deploy":
            return AskDeploy(request.deploy.expect)
        case "drain":
            return AskDrain(*parse_drain("drain", request.drain))
        case "pin":
            name = shape.check_name("pin.name", request.pin.name)
            return AskPin(shape.check_name("pin.topic", request.pin.topic), request.pin.partition, name)
        case _:
            raise MalformedGroupRequest("verb is missing; expected freeze, deploy, drain or pin")


def parse_resume_group(request: pb.ResumeGroupRequest, request_id: RequestId, *, client_host: str) -> ResumeGroup:
    return ResumeGroup(
        request_id,
        shape.check_name("group_id", request.group_id),
        parse_ended_override(request),
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        name_operator(client_host, shape.check_reason("reason", request.reason)),
    )


def parse_ended_override(request: pb.ResumeGroupRequest) -> OverrideEnd | None:
    match request.WhichOneof("what"):
        case "freeze":
            return EndFreeze()
        case "deploy":
            return EndDeploy()
        case "drain":
            return Undrain(*parse_drain("drain", request.drain))
        case "pin":
            return Unpin(shape.check_name("pin.topic", request.pin.topic), request.pin.partition)
        case _:
            return None


def parse_drain(field: str, drain: pb.Drain) -> tuple[By, str]:
    return parse_enum(f"{field}.by", drain.by, MEMBER_SELECTORS), shape.check_name(f"{field}.name", drain.name)


EnumValue = TypeVar("EnumValue")


def parse_enum(field: str, value: int, words: Mapping[int, EnumValue]) -> EnumValue:
    if value not in words:
        raise MalformedGroupRequest(f"{field} is {value}; expected one of {', '.join(map(str, words))}")
    return words[value]


def parse_describe_holds(request: pb.DescribeHoldsRequest, request_id: RequestId) -> DescribeHolds:
    return DescribeHolds(request_id, shape.check_name("group_id", request.group_id))


def build_hold_response(reply: effects.HoldsReply) -> pb.HoldGroupResponse:
    return pb.HoldGroupResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        holds=build_overrides(reply),
        sentence=reply.sentence,
    )


def build_resume_response(reply: effects.HoldsReply) -> pb.ResumeGroupResponse:
    return pb.ResumeGroupResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        holds=build_overrides(reply),
        sentence=reply.sentence,
    )


def build_describe_holds_response(reply: effects.HoldsReply) -> pb.DescribeHoldsResponse:
    return pb.DescribeHoldsResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        holds=build_overrides(reply),
    )


def build_overrides(reply: effects.HoldsReply) -> pb.Holds:
    stored = reply.holds or HoldsStored("")
    out = pb.Holds(version=stored.version)
    if stored.freeze is not None:
        out.freeze.orphans = ORPHAN_POLICY_NUMBERS[stored.freeze.orphans]
        if stored.freeze.until is not None:
            out.freeze_until_ms = stored.freeze.until.at_ms
    if stored.deploy is not None:
        out.deploy.expect, out.back, out.hold_ms = stored.deploy.expect, stored.deploy.back, stored.deploy.hold_ms
        if stored.deploy.until is not None:
            out.deploy_until_ms = stored.deploy.until.at_ms
    left = [*reply.draining, *[0] * len(stored.drains)]
    for drain, count in zip(stored.drains, left, strict=False):
        said = pb.Drain(by=SELECTOR_NUMBERS[drain.by], name=drain.name)
        out.drains.append(pb.HeldDrain(drain=said, until_ms=end_ms(drain.until), left=count))
    for pin in stored.pins:
        where = pb.Pin(topic=pin.topic, partition=pin.partition, name=pin.name)
        out.pins.append(pb.HeldPin(pin=where, until_ms=end_ms(pin.until)))
    for share in stored.shares:
        out.shares.append(
            pb.HeldShare(
                member_id=share.member_id,
                client_id=share.client_id,
                partitions=share.size,
                until_ms=share.until.at_ms,
            )
        )
    return out


def end_ms(until: Until | None) -> int | None:
    return None if until is None else until.at_ms
