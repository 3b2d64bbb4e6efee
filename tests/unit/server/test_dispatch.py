"""The dispatch table is complete when the node starts, or the node does not start."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.dispatch import Kind, methods_of, snake_case
from muster.coordinator.server.service.groups import GroupCoordinator
from muster.storage.rpc.v1 import broker_service_pb2 as storage_pb
from muster.storage.service.broker import BrokerService

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
        Kind.UNARY,
        pb.JoinGroupRequest,
        pb.JoinGroupResponse,
    )
    assert table["/coordinator.rpc.v1.GroupCoordinator/WatchGroup"].kind is Kind.SERVER_STREAM


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
