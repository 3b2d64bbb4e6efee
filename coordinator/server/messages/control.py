"""What operators ask of a group that works, from protobuf to core events, and the answers back. Pure; shape only."""

from collections.abc import Mapping
from typing import TypeVar, cast

from muster.coordinator.core import effects
from muster.coordinator.core.control.events import (
    Ask,
    AskDeploy,
    AskDrain,
    AskFreeze,
    AskPin,
    DescribeHolds,
    End,
    EndDeploy,
    EndFreeze,
    HoldGroup,
    ResumeGroup,
    Undrain,
    Unpin,
)
from muster.coordinator.core.control.holds.values import By, HoldsStored, Orphans, Seen, Until
from muster.coordinator.core.types import RequestId
from muster.coordinator.edge.words import operator, sentence
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.server.messages import shape
from muster.coordinator.server.messages.answers import error_code
from muster.coordinator.server.messages.shape import MalformedRequest

BY: Mapping[int, By] = {
    pb.NAMED_BY_UNSPECIFIED: By.MEMBER_ID,
    pb.NAMED_BY_CLIENT_ID: By.CLIENT_ID,
    pb.NAMED_BY_INSTANCE: By.INSTANCE,
    pb.NAMED_BY_HOST: By.HOST,
}
AS_NAMED = {by: cast(pb.NamedBy, number) for number, by in BY.items()}
ORPHANS: Mapping[int, Orphans | None] = {
    pb.ORPHANS_UNSPECIFIED: None,
    pb.ORPHANS_GIVE: Orphans.GIVE,
    pb.ORPHANS_KEEP: Orphans.KEEP,
}
AS_ORPHANS = {word: cast(pb.Orphans, number) for number, word in ORPHANS.items() if word is not None}


def hold_group(
    request: pb.HoldGroupRequest, request_id: RequestId, *, client_host: str, seen: Seen | None = None
) -> HoldGroup:
    return HoldGroup(
        request_id,
        shape.name("group_id", request.group_id),
        asked(request),
        request.for_ms if request.HasField("for_ms") else None,
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        operator(client_host, shape.reason("reason", request.reason)),
        seen,
    )


def asked(request: pb.HoldGroupRequest) -> Ask:
    match request.WhichOneof("verb"):
        case "freeze":
            return AskFreeze(known("freeze.orphans", request.freeze.orphans, ORPHANS))
        case "deploy":
            return AskDeploy(request.deploy.expect)
        case "drain":
            return AskDrain(*named("drain", request.drain))
        case "pin":
            name = shape.name("pin.name", request.pin.name)
            return AskPin(shape.name("pin.topic", request.pin.topic), request.pin.partition, name)
        case _:
            raise MalformedRequest("verb is missing; expected freeze, deploy, drain or pin")


def resume_group(request: pb.ResumeGroupRequest, request_id: RequestId, *, client_host: str) -> ResumeGroup:
    return ResumeGroup(
        request_id,
        shape.name("group_id", request.group_id),
        ended(request),
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        operator(client_host, shape.reason("reason", request.reason)),
    )


def ended(request: pb.ResumeGroupRequest) -> End | None:
    match request.WhichOneof("what"):
        case "freeze":
            return EndFreeze()
        case "deploy":
            return EndDeploy()
        case "drain":
            return Undrain(*named("drain", request.drain))
        case "pin":
            return Unpin(shape.name("pin.topic", request.pin.topic), request.pin.partition)
        case _:
            return None


def named(field: str, drain: pb.Drain) -> tuple[By, str]:
    return known(f"{field}.by", drain.by, BY), shape.name(f"{field}.name", drain.name)


T = TypeVar("T")


def known(field: str, value: int, words: Mapping[int, T]) -> T:
    if value not in words:
        raise MalformedRequest(f"{field} is {value}; expected one of {', '.join(map(str, words))}")
    return words[value]


def describe_holds(request: pb.DescribeHoldsRequest, request_id: RequestId) -> DescribeHolds:
    return DescribeHolds(request_id, shape.name("group_id", request.group_id))


def held(reply: effects.HoldsReply) -> pb.HoldGroupResponse:
    return pb.HoldGroupResponse(
        error_code=error_code(reply.code),
        error_message=sentence(reply.code, reply.message),
        holds=holds(reply),
        sentence=reply.sentence,
    )


def resumed(reply: effects.HoldsReply) -> pb.ResumeGroupResponse:
    return pb.ResumeGroupResponse(
        error_code=error_code(reply.code),
        error_message=sentence(reply.code, reply.message),
        holds=holds(reply),
        sentence=reply.sentence,
    )


def described(reply: effects.HoldsReply) -> pb.DescribeHoldsResponse:
    return pb.DescribeHoldsResponse(
        error_code=error_code(reply.code), error_message=sentence(reply.code, reply.message), holds=holds(reply)
    )


def holds(reply: effects.HoldsReply) -> pb.Holds:
    stored = reply.holds or HoldsStored("")
    out = pb.Holds(version=stored.version)
    if stored.freeze is not None:
        out.freeze.orphans = AS_ORPHANS[stored.freeze.orphans]
        if stored.freeze.until is not None:
            out.freeze_until_ms = stored.freeze.until.at_ms
    if stored.deploy is not None:
        out.deploy.expect, out.back, out.hold_ms = stored.deploy.expect, stored.deploy.back, stored.deploy.hold_ms
        if stored.deploy.until is not None:
            out.deploy_until_ms = stored.deploy.until.at_ms
    left = [*reply.draining, *[0] * len(stored.drains)]
    for drain, count in zip(stored.drains, left, strict=False):
        said = pb.Drain(by=AS_NAMED[drain.by], name=drain.name)
        out.drains.append(pb.HeldDrain(drain=said, until_ms=at_ms(drain.until), left=count))
    for pin in stored.pins:
        where = pb.Pin(topic=pin.topic, partition=pin.partition, name=pin.name)
        out.pins.append(pb.HeldPin(pin=where, until_ms=at_ms(pin.until)))
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


def at_ms(until: Until | None) -> int | None:
    return None if until is None else until.at_ms
