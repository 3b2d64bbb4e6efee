"""Where a group's page is, and which shards are missed, at a node that is one of three."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.core.model.types import Limits
from muster.coordinator.edge.cluster_view import ClusterView
from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.observability.history.group_history import GroupHistory
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.listeners.http_listener import NodeAccess
from muster.coordinator.web.http.node_port import CoordinatingNode
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.support.cluster_image import ThreeNodes, led, node
from tests.support.web import web_settings

SHARDS = 3


def inside(cluster: ClusterView | None, *status: ShardStatus) -> NodeAccess:
    told = status or (ShardStatus.ACTIVE,) * SHARDS
    engine = Engine(MemoryGroupLog(SHARDS), SHARDS, Limits())
    for slot, each in zip(engine._slots, told, strict=True):
        slot.status = each
    whole = SimpleNamespace(engine=engine, history=GroupHistory(10_000), changes=GroupChanges("test"))
    clock = SimpleNamespace(now_ms=lambda: 0)
    conditions = Conditions(lambda: 0)
    return NodeAccess(cast(Any, whole), web_settings(), {}, (), conditions, cast(Any, clock), cluster=cluster)


def group_of(shard: int) -> str:
    return next(name for number in range(1000) if partition_for(name := f"g{number}", SHARDS) == shard)


def test_a_group_is_owned_by_the_leader_of_its_shard_and_shown_where_that_serves_http() -> None:
    cluster = ThreeNodes(SHARDS)
    cluster.nodes(node(8, listeners=["GRPC", "HTTP"]), node(9, listeners=["GRPC"]))
    here, elsewhere, unseen = (inside(cluster.view).owner(group_of(shard)) for shard in range(SHARDS))
    assert here is None
    assert elsewhere == CoordinatingNode(8, "node-8.example:50051", "node-8.example:9291")
    assert unseen == CoordinatingNode(9, "node-9.example:50051", "")


def test_nobody_is_named_where_nobody_coordinates_or_there_is_no_cluster() -> None:
    cluster = ThreeNodes(SHARDS)
    cluster.topics(__consumer_offsets={1: led(-1)})
    assert inside(cluster.view).owner(group_of(1)) is None
    assert inside(None).owner(group_of(1)) is None


@pytest.mark.parametrize(
    ("status", "missed"),
    [(ShardStatus.UNLOADED, ()), (ShardStatus.LOADING, (1,)), (ShardStatus.FAILED, (1,)), (ShardStatus.ACTIVE, ())],
)
def test_shards_of_other_nodes_are_not_missed(status: ShardStatus, missed: tuple[int, ...]) -> None:
    found = inside(ThreeNodes(SHARDS).view, ShardStatus.ACTIVE, status, ShardStatus.ACTIVE).health()
    assert found.loading == missed
    assert found.started == (status is not ShardStatus.LOADING)
