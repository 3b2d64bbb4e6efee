"""What operators hold of a group, by the API: freeze, deploy, drain, pin, resume. The rules are the coordinator's."""

from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.responses import Response

from muster.coordinator.observability.views.holds import BY_NAME, ORPHANS_OF, HoldRow, hold_rows, seen_holds
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.web.api.actions import Act, Told, action_response, field_refusal
from muster.coordinator.web.api.endpoint import ApiEndpoint, EndpointRequest
from muster.coordinator.web.api.node_queries import NodeQueries, check_group_code
from muster.coordinator.web.http.rendering import rows_response

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
    orphans: Literal["", "give", "keep"] = Field("", description="freeze: what becomes of what loses its owner.")
    expect: int = Field(0, ge=0, lt=2**31, description="deploy: so many members come back.")
    for_ms: int | None = Field(None, gt=0, lt=2**53, description="It ends by itself after so long.")


class ResumeGroupBody(OverrideTarget):
    """End what is held, or a part of it."""

    what: Literal["", "freeze", "deploy", "drain", "pin"] = Field("", description="Which part; empty: everything.")


class ToldHolds(Told):
    rows: list[HoldRow]


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
    return rows_response(hold_rows(group, await asking.holds(group)), dict)


def overrides_response(answer: pb.HoldGroupResponse | pb.ResumeGroupResponse, given: EndpointRequest) -> Response:
    group = given.names["group"]
    check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
    return action_response(given, answer.sentence, hold_rows(group, seen_holds(answer.holds)))


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
