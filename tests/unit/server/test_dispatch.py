"""The dispatch table is complete when the node starts, or the node does not start."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.edge.listener_base import report_actions
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.grpc.adapter import serve_metered_unary, serve_unary
from muster.coordinator.server.rpc_dispatch import FastPathHandler, MethodKind, fast_path_of, methods_of, snake_case
from muster.coordinator.server.services.group_coordinator import GroupCoordinator
from muster.storage.rpc.v1 import broker_service_pb2 as storage_pb
from muster.storage.service.broker_service import BrokerService

GROUPS = pb.DESCRIPTOR.services_by_name["GroupCoordinator"]
BROKER = storage_pb.DESCRIPTOR.services_by_name["Broker"]


async def nothing(request: Any, call: Any) -> None:
    """A handler that answers nobody."""


class Everything:
    """Has a handler for whatever is asked."""

    def __getattr__(self, name: str) -> Callable[[Any, Any], Awaitable[None]]:
        return nothing


def test_every_method_has_its_row_with_its_types_and_kind() -> None:
    table = methods_of(GROUPS, Everything())
    assert set(table) == {f"/coordinator.rpc.v1.GroupCoordinator/{method.name}" for method in GROUPS.methods}
    join = table["/coordinator.rpc.v1.GroupCoordinator/JoinGroup"]
    assert (join.kind, join.request_type, join.response_type) == (
        MethodKind.UNARY,
        pb.JoinGroupRequest,
        pb.JoinGroupResponse,
    )
    assert table["/coordinator.rpc.v1.GroupCoordinator/WatchGroup"].kind is MethodKind.SERVER_STREAM


def test_a_method_without_a_handler_is_found_at_once() -> None:
    with pytest.raises(LookupError, match=r"has no handler for FindCoordinator: object needs a method find_coord"):
        methods_of(GROUPS, object())


@pytest.mark.parametrize(("service", "owner"), [(GROUPS, GroupCoordinator), (BROKER, BrokerService)])
def test_both_services_handle_all_their_methods(service: Any, owner: type) -> None:
    missing = [method.name for method in service.methods if not hasattr(owner, snake_case(method.name))]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "handler"), [("Heartbeat", "heartbeat"), ("InitProducerId", "init_producer_id"), ("X2Y", "x2_y")]
)
def test_handlers_are_named_in_snake_case(name: str, handler: str) -> None:
    assert snake_case(name) == handler


class Beating(Everything):
    """Its heartbeat has a short way."""

    def __init__(self, *, well: bool) -> None:
        self.well = well
        self.asked: list[str] = []

    def heartbeat_fast_path(self, request: Any, call: Any) -> bool:
        self.asked.append("short")
        return self.well

    async def heartbeat(self, request: Any, call: Any) -> pb.HeartbeatResponse:
        self.asked.append("long")
        return pb.HeartbeatResponse(error_code=27)


@pytest.mark.parametrize(("well", "asked", "code"), [(True, ["short"], 0), (False, ["short", "long"], 27)])
def test_a_short_way_answers_where_all_is_well_and_else_the_handler_does(
    well: bool, asked: list[str], code: int
) -> None:
    handlers, counted = Beating(well=well), list[int]()
    method = methods_of(GROUPS, handlers)["/coordinator.rpc.v1.GroupCoordinator/Heartbeat"]
    meter = SimpleNamespace(answered=lambda seconds, code: counted.append(code))
    nothing = cast(Any, None)
    for answer in (serve_unary(method, nothing), serve_metered_unary(method, cast(Any, meter), nothing)):
        handlers.asked.clear()
        data = asyncio.run(answer(pb.HeartbeatRequest(), nothing, nothing))  # type: ignore[arg-type]
        assert pb.HeartbeatResponse.FromString(cast(bytes, data)).error_code == code
        assert handlers.asked == asked
    assert counted == [code]


def test_whoever_stands_before_a_handler_takes_its_short_way_from_it() -> None:
    """A judge that knew nothing of it would be passed by."""
    table = methods_of(GROUPS, Beating(well=True))
    assert [name.rpartition("/")[2] for name, method in table.items() if fast_path_of(method.handler)] == ["Heartbeat"]
    heartbeat = table["/coordinator.rpc.v1.GroupCoordinator/Heartbeat"]
    assert isinstance(heartbeat.handler, FastPathHandler)
    before = replace(heartbeat, handler=report_actions(heartbeat.handler, "Heartbeat", "grpc", lambda action: None))
    assert fast_path_of(before.handler) is None
