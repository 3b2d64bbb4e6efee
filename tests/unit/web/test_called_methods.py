"""HTTP calls methods by their names alone: each that it calls is the only one of its name."""

import re
from pathlib import Path
from typing import Any, cast

import muster.coordinator.web as web
from muster.coordinator.rpc.v1 import cluster_service_pb2
from muster.coordinator.server.backend.node_services import SERVICES
from muster.coordinator.server.listeners.http_listener import unary_methods_by_name
from muster.coordinator.server.rpc_dispatch import MethodKind, ServiceMethod, kind_of

ALL = (*SERVICES, *cluster_service_pb2.DESCRIPTOR.services_by_name.values())


def test_every_method_that_is_called_by_http_has_a_name_of_its_own() -> None:
    nothing = cast(Any, None)
    table = {
        f"/{service.full_name}/{rpc.name}": ServiceMethod(rpc.full_name, kind_of(rpc), nothing, nothing, nothing)
        for service in ALL
        for rpc in service.methods
    }
    known = unary_methods_by_name(table)
    sources = (path.read_text(encoding="utf-8") for path in Path(str(web.__file__)).parent.rglob("*.py"))
    called = {name for text in sources for name in re.findall(r'\.call\(\s*"(\w+)"', text)}
    assert len(called) > 10
    assert called <= known.keys()
    assert all(method.kind is MethodKind.UNARY for method in known.values())
    assert "InitProducerId" not in known, "Broker and Transactions have one"
    assert {"EndTxn", "OffsetFetch"} <= known.keys()
