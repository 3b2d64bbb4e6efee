"""The table of rights names every request of both doors, and nothing that is none."""

from importlib import import_module
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from docs.tools.rights import kafka_rights, rpc_rights
from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.security.rights import API_RIGHTS, REFUSALS, RPC_RIGHTS, SECURITY, RequiredRight

ROOT = Path(__file__).resolve().parents[3]


def methods() -> set[str]:
    """Every method of every contract in the tree, and of what gRPC brings along."""
    files: list[FileDescriptor] = [health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR]
    for made in ROOT.glob("*/rpc/v1/*_pb2.py"):
        module = ".".join(("muster", *made.relative_to(ROOT).with_suffix("").parts))
        files.append(import_module(module).DESCRIPTOR)
    return {
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }


def test_every_api_of_kafka_has_a_row() -> None:
    assert {api.name for api in APIS} - API_RIGHTS.keys() == set()


def test_every_method_of_grpc_has_a_row() -> None:
    assert methods() - RPC_RIGHTS.keys() == set()


def test_no_row_is_for_a_method_that_is_not_there() -> None:
    # The Security service is built by several hands: its rows may come first.
    mine = {name for name in RPC_RIGHTS if not name.startswith(SECURITY)}
    assert mine - methods() - {"/grpc.health.v1.Health/List"} == set()  # which newer releases of gRPC's health have


def test_every_right_can_be_refused_and_says_of_what() -> None:
    rows = [right for rights in (*API_RIGHTS.values(), *RPC_RIGHTS.values()) for right in rights]
    for right in (*rows, *(right.instead for right in rows if right.instead is not None)):
        assert isinstance(right, RequiredRight)
        assert right.resource_type in REFUSALS
        assert bool(right.of) == (right.resource_type is not right.resource_type.CLUSTER), right


def test_the_page_shows_every_row() -> None:
    page = kafka_rights() + rpc_rights()
    assert all(f"`{name}`" in page for name in API_RIGHTS)
    assert all(f"`{name.rpartition('.')[2]}`" in page for name in RPC_RIGHTS)
