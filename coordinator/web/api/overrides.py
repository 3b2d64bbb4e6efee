"""Operator overrides and canaries over the API: freeze, deploy, drain, pin, resume; start, promote, roll back.

The rules and guards are the coordinator's. The coordinator knows no trial run for the end of a canary, so what would
end is described by its present state.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from muster.coordinator.observability.read_model.group_mapper import (
    BY_NAME,
    ORPHANS_OF,
    map_canary,
    map_forecast_moves,
    map_holds,
)
from muster.coordinator.observability.read_model.groups import Canary, ForecastMove
from muster.coordinator.observability.views.controls import HoldRow, format_minute, guard_row, hold_rows, sentence
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.web.api.actions import Act, Told, action_response, field_refusal
from muster.coordinator.web.api.endpoint import ApiEndpoint, EndpointRequest
from muster.coordinator.web.api.node_queries import NodeQueries, check_group_code
from muster.coordinator.web.http.node_port import HttpRefusal
from muster.coordinator.web.http.responses import rows_response

# Overrides
# ---------

Verb = Literal["freeze", "deploy", "drain", "pin"]
By = Literal["member-id", "client-id", "instance", "host"]
Version = Annotated[int | None, Field(ge=0, description="Only if what is held is at this version; 0: nothing is.")]

MOST_CHARACTERS: Final = 1_000
"""Of a name."""


class OverrideTarget(Act):
    """Of whom, and of what, a verb speaks. Which of these count is said by the verb."""

    by: By = Field("member-id", description="How a drained member is named.")
    name: str = Field("", max_length=MOST_CHARACTERS, description="drain: who; pin: whose the partition shall be.")
    topic: str = Field("", max_length=MOST_CHARACTERS, description="pin: the partition's topic.")
    partition: int = Field(0, ge=0, lt=2**31, description="pin: its number.")
    expected_version: Version = None

    def drain(self) -> pb.Drain:
        if not self.name:
            raise field_refusal("name", "who is to be drained is not said; expected a name")
        return pb.Drain(by=BY_NAME[self.by], name=self.name)

    def pin(self) -> pb.Pin:
        if not self.topic:
            raise field_refusal("topic", "which partition is not said; expected topic and partition")
        return pb.Pin(topic=self.topic, partition=self.partition, name=self.name)


class HoldGroupBody(OverrideTarget):
    """Freeze, deploy, drain or pin."""

    verb: Verb = Field(description="What to do.")
    orphans: Literal["", "give", "keep"] = Field(
        "", description="freeze: what happens to partitions that lose their owner."
    )
    expect: int = Field(0, ge=0, lt=2**31, description="deploy: so many members come back.")
    for_ms: int | None = Field(None, gt=0, lt=2**53, description="It ends by itself after so long.")


class ResumeGroupBody(OverrideTarget):
    """End what is held, or a part of it."""

    what: Literal["", "freeze", "deploy", "drain", "pin"] = Field("", description="Which part; empty: everything.")


class MoveRow(TypedDict):
    """A partition that changes hands; `source` and `target` are member ids, null for nobody."""

    topic: str
    partition: int
    source: str | None
    target: str | None


class ToldHolds(Told):
    """`moves`: what changes hands; null where nothing is known of it."""

    rows: list[HoldRow]
    moves: list[MoveRow] | None


async def hold_group(asking: NodeQueries, given: EndpointRequest) -> Response:
    body: HoldGroupBody = given.body
    request = pb.HoldGroupRequest(
        group_id=given.names["group"],
        for_ms=body.for_ms,
        expected_version=body.expected_version,
        validate_only=body.dry_run,
        reason=body.reason,
    )
    match body.verb:
        case "freeze":
            request.freeze.orphans = ORPHANS_OF[body.orphans]
        case "deploy":
            request.deploy.expect = body.expect
        case "drain":
            request.drain.CopyFrom(body.drain())
        case "pin":
            request.pin.CopyFrom(body.pin())
    return overrides_response(await asking.call("HoldGroup", request), given)


async def resume_group(asking: NodeQueries, given: EndpointRequest) -> Response:
    body: ResumeGroupBody = given.body
    request = pb.ResumeGroupRequest(
        group_id=given.names["group"],
        expected_version=body.expected_version,
        validate_only=body.dry_run,
        reason=body.reason,
    )
    match body.what:
        case "freeze":
            request.freeze = True
        case "deploy":
            request.deploy = True
        case "drain":
            request.drain.CopyFrom(body.drain())
        case "pin":
            request.pin.CopyFrom(body.pin())
    return overrides_response(await asking.call("ResumeGroup", request), given)


async def list_overrides(asking: NodeQueries, given: EndpointRequest) -> Response:
    group = given.names["group"]
    return rows_response(hold_rows(group, await asking.describe_holds(group)), dict)


def overrides_response(answer: pb.HoldGroupResponse | pb.ResumeGroupResponse, given: EndpointRequest) -> Response:
    group = given.names["group"]
    check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
    rows, moves = hold_rows(group, map_holds(answer.holds)), move_rows(map_forecast_moves(answer))
    return action_response(given, answer.sentence, rows, moves=moves)


def move_rows(moves: Iterable[ForecastMove] | None) -> list[Any] | None:
    return None if moves is None else [asdict(move) for move in moves]


OVERRIDES_ENDPOINT: Final = ApiEndpoint(
    "/groups/{group}/holds", "What operators hold of a group.", list[HoldRow], list_overrides
)

OVERRIDE_ENDPOINTS: Final = (
    ApiEndpoint(
        "/groups/{group}/hold",
        "Freeze, deploy, drain or pin, as `muster groups freeze` and the like.",
        ToldHolds,
        hold_group,
        method="POST",
        body=HoldGroupBody,
    ),
    ApiEndpoint(
        "/groups/{group}/resume",
        "End what is held, as `muster groups resume`.",
        ToldHolds,
        resume_group,
        method="POST",
        body=ResumeGroupBody,
    ),
)


# Canaries
# --------


class GuardRow(TypedDict):
    guard: str
    counts: str
    baseline: str | None
    figure: str | None


class CanaryRow(TypedDict):
    state: str
    assignor: str
    former: str
    until_ms: int
    promotes: bool
    rebalances: int
    ended: str
    guards: list[dict[str, Any]]


def canary_document(canary: Canary) -> CanaryRow:
    return {
        "state": canary.state,
        "assignor": canary.assignor,
        "former": canary.former,
        "until_ms": canary.until_ms,
        "promotes": canary.promotes,
        "rebalances": canary.rebalances,
        "ended": canary.ended,
        "guards": [asdict(guard) for guard in canary.guards],
    }


class ToldCanary(Told):
    """`moves`: what changes hands; null where nothing is known of it."""

    rows: list[GuardRow]
    moves: list[MoveRow] | None


class StartCanaryBody(Act):
    """Another assignor plans the group for real, for a while, and is held against the group's own last hour."""

    assignor: str = Field(max_length=5_000, description='NAME, or NAME{"option": value}.')
    for_ms: int = Field(gt=0, lt=2**53, description="How long it is tried.")
    guards: list[str] = Field([], max_length=20, description="FIGURE > NUMBER or NUMBERx; none: the usual ones.")
    lag_floor: int | None = Field(None, ge=0, lt=2**53, description="Less lag trips no guard; 1000 unless told.")
    wait: bool = Field(False, description="At the end it waits for an operator instead of being promoted.")


class EndCanaryBody(Act):
    """It becomes the setting, or goes."""

    promote: bool = Field(description="Otherwise it is rolled back.")


async def start_canary(asking: NodeQueries, given: EndpointRequest) -> Response:
    body: StartCanaryBody = given.body
    request = pb.StartCanaryRequest(
        group_id=given.names["group"],
        assignor=body.assignor,
        for_ms=body.for_ms,
        guards=body.guards,
        lag_floor=body.lag_floor,
        wait=body.wait,
        validate_only=body.dry_run,
        reason=body.reason,
    )
    answer = await asking.call("StartCanary", request)
    check_group_code(answer.error_code, answer.error_message, f"group {given.names['group']!r}")
    moves = move_rows(map_forecast_moves(answer))
    if not body.dry_run:
        return canary_response(answer.canary, given, moves)
    canary = map_canary(answer.canary)
    end = "promoted" if canary.promotes else "told to wait"
    until = format_minute(canary.until_ms)
    said = f"{canary.assignor} would plan in place of {canary.former} until {until}, then be {end}{count_moves(moves)}"
    return canary_response(answer.canary, given, moves, said)


async def end_canary(asking: NodeQueries, given: EndpointRequest) -> Response:
    """The coordinator knows no trial run of an end: what would end is told from how it stands."""
    body: EndCanaryBody = given.body
    group = given.names["group"]
    if body.dry_run:
        found = await require_active_canary(asking, group)
        canary = map_canary(found)
        moves: list[Any] | None = []
        if body.promote:
            said = (
                f"{canary.assignor} would become the group's setting; it plans the group already, so that nothing moves"
            )
        else:
            moves = await forecast_moves(asking, group, canary.former)
            said = f"{canary.former} would plan in place of {canary.assignor} again{count_moves(moves)}"
        return canary_response(found, given, moves, f"{sentence(canary)} {said}")
    request = pb.EndCanaryRequest(group_id=group, promote=body.promote, reason=body.reason)
    answer = await asking.call("EndCanary", request)
    check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
    return canary_response(answer.canary, given, None)


async def describe_canary(asking: NodeQueries, given: EndpointRequest) -> Response:
    group = given.names["group"]
    answer = await asking.call("DescribeCanary", pb.DescribeCanaryRequest(group_id=group))
    check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
    return rows_response([canary_document(map_canary(answer.canary))] if answer.HasField("canary") else [], dict)


async def require_active_canary(asking: NodeQueries, group: str) -> pb.Canary:
    """The canary that goes on. Raises Refused (409) where there is none."""
    answer = await asking.call("DescribeCanary", pb.DescribeCanaryRequest(group_id=group))
    check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
    if not answer.HasField("canary") or not map_canary(answer.canary).goes_on:
        raise HttpRefusal(409, "INVALID_REQUEST", f"group {group!r} has no canary that goes on")
    found: pb.Canary = answer.canary
    return found


async def forecast_moves(asking: NodeQueries, group: str, assignor: str) -> list[Any] | None:
    """What a plan by it would move of today's, as `muster simulate` finds; None where nobody can say."""
    request = group_pb.SimulateAssignmentRequest(group_id=group, assignors=[assignor])
    answer = await asking.call("SimulateAssignment", request)
    plans = [plan for plan in answer.assignments if not plan.error_message]
    if answer.error_code or not plans:
        return None
    keys = ("topic", "partition", "source", "target")
    return [{key: move[key] for key in keys} for move in json.loads(plans[0].forecast_json)["moves"]]


def count_moves(moves: list[Any] | None) -> str:
    """To be said behind a sentence; empty where nobody can say."""
    return "" if moves is None else f": {plural(len(moves), 'partition')} would move"


def canary_response(found: pb.Canary, given: EndpointRequest, moves: list[Any] | None, said: str = "") -> Response:
    canary = map_canary(found)
    rows = [guard_row(asdict(guard)) for guard in canary.guards]
    return action_response(given, (said or sentence(canary)).rstrip("."), rows, moves=moves)


CANARY_ENDPOINT: Final = ApiEndpoint(
    "/groups/{group}/canary", "How another assignor's trial goes.", list[CanaryRow], describe_canary
)

CANARY_ENDPOINTS: Final = (
    ApiEndpoint(
        "/groups/{group}/canary",
        "Try an assignor for real, as `muster groups canary`.",
        ToldCanary,
        start_canary,
        method="POST",
        body=StartCanaryBody,
    ),
    ApiEndpoint(
        "/groups/{group}/canary/end",
        "Promote it or roll it back, as `muster groups promote` and `rollback`.",
        ToldCanary,
        end_canary,
        method="POST",
        body=EndCanaryBody,
    ),
)
