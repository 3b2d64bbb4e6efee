"""The GroupControl service: what operators do to a working group, and how a group's description shows it.

Overrides freeze a group, announce a deployment, drain or pin members, until an operator or a deadline ends them; a
canary tries another assignor. Each method asks the shard that holds the group, through the driver; the other
functions translate between protobuf and core events and check shape only. A group's description shows its balance,
canary and fences.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TypeVar, cast

from muster.coordinator.core.control.trials import canary
from muster.coordinator.core.model import effects
from muster.coordinator.core.model.effects import NO_CONTROLS, BalanceView, CanaryReply, Controls
from muster.coordinator.core.model.events import (
    AskDeploy,
    AskDrain,
    AskFreeze,
    AskPin,
    DescribeCanary,
    DescribeHolds,
    EndCanary,
    EndDeploy,
    EndFreeze,
    HoldGroup,
    OverrideEnd,
    OverrideRequest,
    ResumeGroup,
    StartCanary,
    Undrain,
    Unpin,
)
from muster.coordinator.core.model.records import (
    By,
    CanaryGuardRule,
    CanaryState,
    CanaryStored,
    FenceStored,
    HoldsStored,
    MeasuredRates,
    Orphans,
    Until,
)
from muster.coordinator.core.model.shadow_scoring import AssignorCandidate
from muster.coordinator.core.model.types import PartitionMove, RequestId
from muster.coordinator.edge import request_limits
from muster.coordinator.edge.request_limits import MalformedGroupRequest, error_sentence, name_operator
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import group_responses
from muster.coordinator.server.services.group_responses import to_error_code

# Overrides
# ---------

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
        request_limits.check_name("group_id", request.group_id),
        parse_override(request),
        request.for_ms if request.HasField("for_ms") else None,
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        name_operator(client_host, request_limits.check_reason("reason", request.reason)),
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
            name = request_limits.check_name("pin.name", request.pin.name)
            return AskPin(request_limits.check_name("pin.topic", request.pin.topic), request.pin.partition, name)
        case _:
            raise MalformedGroupRequest("verb is missing; expected freeze, deploy, drain or pin")


def parse_resume_group(request: pb.ResumeGroupRequest, request_id: RequestId, *, client_host: str) -> ResumeGroup:
    return ResumeGroup(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        parse_ended_override(request),
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        name_operator(client_host, request_limits.check_reason("reason", request.reason)),
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
            return Unpin(request_limits.check_name("pin.topic", request.pin.topic), request.pin.partition)
        case _:
            return None


def parse_drain(field: str, drain: pb.Drain) -> tuple[By, str]:
    return parse_enum(f"{field}.by", drain.by, MEMBER_SELECTORS), request_limits.check_name(f"{field}.name", drain.name)


EnumValue = TypeVar("EnumValue")


def parse_enum(field: str, value: int, words: Mapping[int, EnumValue]) -> EnumValue:
    if value not in words:
        raise MalformedGroupRequest(f"{field} is {value}; expected one of {', '.join(map(str, words))}")
    return words[value]


def parse_describe_holds(request: pb.DescribeHoldsRequest, request_id: RequestId) -> DescribeHolds:
    return DescribeHolds(request_id, request_limits.check_name("group_id", request.group_id))


def build_hold_response(reply: effects.HoldsReply) -> pb.HoldGroupResponse:
    return pb.HoldGroupResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        holds=build_overrides(reply),
        sentence=reply.sentence,
        moves=build_forecast_moves(reply.moves),
        moves_unknown=reply.moves_unknown,
    )


def build_resume_response(reply: effects.HoldsReply) -> pb.ResumeGroupResponse:
    return pb.ResumeGroupResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        holds=build_overrides(reply),
        sentence=reply.sentence,
        moves=build_forecast_moves(reply.moves),
        moves_unknown=reply.moves_unknown,
    )


def build_forecast_moves(moves: Iterable[PartitionMove]) -> Iterator[pb.ForecastMove]:
    for move in moves:
        yield pb.ForecastMove(topic=move.topic, partition=move.partition, source=move.source, target=move.target)


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


# Canaries
# --------

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
        request_limits.check_name("group_id", request.group_id),
        request.assignor,
        request.for_ms,
        tuple(request_limits.check_name("guards", guard) for guard in request.guards),
        request.lag_floor if request.HasField("lag_floor") else canary.DEFAULT_LAG_FLOOR,
        not request.wait,
        request.validate_only,
        name_operator(client_host, request_limits.check_reason("reason", request.reason)),
        *lag,
    )


def parse_end_canary(request: pb.EndCanaryRequest, request_id: RequestId, *, client_host: str) -> EndCanary:
    who = name_operator(client_host, request_limits.check_reason("reason", request.reason))
    return EndCanary(request_id, request_limits.check_name("group_id", request.group_id), request.promote, who)


def parse_describe_canary(request: pb.DescribeCanaryRequest, request_id: RequestId) -> DescribeCanary:
    return DescribeCanary(request_id, request_limits.check_name("group_id", request.group_id))


def build_start_canary_response(reply: CanaryReply) -> pb.StartCanaryResponse:
    return pb.StartCanaryResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        canary=build_canary(reply),
        moves=build_forecast_moves(reply.moves),
        moves_unknown=reply.moves_unknown,
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
            build_canary_guard(each, stored, reply.idle.get(canary.guard_text(each), "")) for each in stored.guards
        ],
        lag_floor=stored.lag_floor,
        rebalances=stored.tally.rebalances,
        ended=stored.ended,
    )


def build_canary_guard(each: CanaryGuardRule, stored: CanaryStored, idle: str) -> pb.CanaryGuard:
    return pb.CanaryGuard(
        guard=canary.guard_text(each),
        idle=idle,
        baseline=canary.guard_basis(each, stored.baseline) if each.relative else None,
        figure=canary.figure_of(each, stored.tally),
    )


MOVING = frozenset({"drain", "pin"})
"""Verbs that move partitions from one living member to another."""


async def no_loads_known(group_id: str) -> MeasuredRates | None:
    """Of a node that does not look at its groups."""
    return None


class GroupControl:
    """What operators do with a group while it works: hold something of it, resume, try an assignor, look."""

    def __init__(
        self,
        driver: EngineDriver,
        shards: int,
        lag_of: Callable[[str], tuple[float, int]] = lambda group_id: (0.0, 0),
        seen: Callable[[str], Awaitable[MeasuredRates | None]] = no_loads_known,
    ) -> None:
        """`lag_of` gives the mean of a group's total lag in the last hour, and for how many ms it is known; `seen` what
        its partitions carry now."""
        self._driver = driver
        self._shards = shards
        self._lag_of = lag_of
        self._seen = seen

    async def hold_group(self, request: pb.HoldGroupRequest, call: RpcCall) -> pb.HoldGroupResponse:
        seen = await self._seen(request.group_id) if request.WhichOneof("verb") in MOVING else None
        event = parse_hold_group(request, self._driver.next_id(), client_host=call.peer_host, seen=seen)
        return build_hold_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.HoldsReply)
        )

    async def resume_group(self, request: pb.ResumeGroupRequest, call: RpcCall) -> pb.ResumeGroupResponse:
        event = parse_resume_group(request, self._driver.next_id(), client_host=call.peer_host)
        return build_resume_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.HoldsReply)
        )

    async def describe_holds(self, request: pb.DescribeHoldsRequest, call: RpcCall) -> pb.DescribeHoldsResponse:
        event = parse_describe_holds(request, self._driver.next_id())
        return build_describe_holds_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, effects.HoldsReply)
        )

    async def start_canary(self, request: pb.StartCanaryRequest, call: RpcCall) -> pb.StartCanaryResponse:
        lag = self._lag_of(request.group_id)
        event = parse_start_canary(request, self._driver.next_id(), lag, client_host=call.peer_host)
        return build_start_canary_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, CanaryReply)
        )

    async def end_canary(self, request: pb.EndCanaryRequest, call: RpcCall) -> pb.EndCanaryResponse:
        event = parse_end_canary(request, self._driver.next_id(), client_host=call.peer_host)
        return build_end_canary_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, CanaryReply)
        )

    async def describe_canary(self, request: pb.DescribeCanaryRequest, call: RpcCall) -> pb.DescribeCanaryResponse:
        event = parse_describe_canary(request, self._driver.next_id())
        return build_describe_canary_response(
            await self._driver.ask_shard(self._shard_of(event.group_id), event, CanaryReply)
        )

    def _shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self._shards)


# Active controls in a group's description
# ----------------------------------------


def build_controlled_group(group_id: str, reply: effects.DescribeReply) -> group_pb.DescribedGroup:
    """The group, and what goes on in it."""
    group = group_responses.build_described_group(group_id, reply)
    found = reply.controls
    if found is NO_CONTROLS:
        return group
    for name, part in (
        ("canary", None if found.canary is None else build_canary(found.canary)),
        ("balance", build_balance(found.balance)),
        ("fences", build_fences(found)),
    ):
        if part is not None:
            getattr(group, name).CopyFrom(part)
    return group


def build_balance(found: BalanceView | None) -> pb.GroupBalance | None:
    if found is None:
        return None
    return pb.GroupBalance(
        mode=found.mode,
        idle=found.idle,
        heaviest=found.heaviest,
        ratio=found.ratio,
        paid=found.paid,
        rounds=found.rounds,
        resting=found.resting,
    )


def build_fences(found: Controls) -> pb.GroupFences | None:
    if not found.fences:
        return None
    return pb.GroupFences(count=found.fences, newest=[build_fence(each) for each in found.newest_fences])


def build_fence(found: FenceStored) -> pb.GroupFence:
    return pb.GroupFence(
        topic=found.topic,
        partition=found.partition,
        member_id=found.member_id,
        generation=found.generation,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        claimed_at_ms=found.claimed_at_ms,
    )
