"""`muster cluster drain` of a node over a Kafka: who answers, and what is refused in which words."""

import asyncio
from typing import cast

from muster.coordinator.edge.cluster_view import GRPC
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.nodes_group import AssignedCluster
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import AssignedNode, ShardAssignment
from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb
from muster.coordinator.server.kafka_backend.grpc_services import MOST_PATIENCE_MS, DrainService
from muster.coordinator.server.rpc_dispatch import RpcCall

CALL = cast(RpcCall, None)


class Nodes:
    def __init__(self, assignment: ShardAssignment) -> None:
        self.assignment = assignment
        self.said: list[object] = []
        self.left: frozenset[int] = frozenset()

    def drain(self) -> None:
        self.said.append("drain")

    def undrain(self) -> None:
        self.said.append("undrain")

    async def drained(self, patience_s: float) -> frozenset[int]:
        self.said.append(patience_s)
        return self.left


def node(number: int, *, draining: bool = False) -> AssignedNode:
    return AssignedNode(number, f"i{number}", {"grpc": f"host-{number}:9290"}, (number,), draining)


def given(*nodes: AssignedNode) -> tuple[Nodes, DrainService]:
    assignment = ShardAssignment(4, {each.node: each for each in nodes})
    view = AssignedCluster(1)
    view.learn(assignment)
    assert view.nodes(GRPC)
    named = Nodes(assignment)
    return named, DrainService(named, view, "muster.state")


def ask(service: DrainService, **words: int) -> pb.DrainNodeResponse:
    return asyncio.run(service.drain_node(pb.DrainNodeRequest(**words), CALL))  # type: ignore[arg-type]


def test_a_node_drains_itself_and_tells_what_is_left() -> None:
    nodes, service = given(node(1), node(2))
    assert ask(service, node_id=1, timeout_ms=7_000) == pb.DrainNodeResponse()
    nodes.left = frozenset({3, 1})
    answer = ask(service, node_id=1, timeout_ms=2**31 - 1)
    assert [(each.topic, each.partition) for each in answer.still_leads] == [("muster.state", 1), ("muster.state", 3)]
    assert ask(service, node_id=1, undrain=True) == pb.DrainNodeResponse()
    assert nodes.said == ["drain", 7.0, "drain", MOST_PATIENCE_MS / 1_000, "undrain"]


def test_another_node_is_told_where_to_ask_and_one_that_is_not_there_is_named() -> None:
    nodes, service = given(node(1), node(2))
    elsewhere = ask(service, node_id=2)
    assert elsewhere.error_code == ErrorCode.NOT_COORDINATOR
    assert elsewhere.error_message == "node 2 drains itself; ask it, at host-2:9290"
    unknown = ask(service, node_id=9)
    assert unknown.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert unknown.error_message == "node 9 is not known; expected one of [1, 2]"
    assert nodes.said == []


def test_the_last_one_that_takes_shards_is_not_drained() -> None:
    for others in ((), (node(2, draining=True),)):
        nodes, service = given(node(1), *others)
        refused = ask(service, node_id=1)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "node 1 is the only one that takes shards, and would keep them; start another" in (refused.error_message)
        assert nodes.said == []
