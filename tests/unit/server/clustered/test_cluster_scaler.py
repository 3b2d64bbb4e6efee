"""KEDA may ask any node of a cluster: the group's coordinator answers."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.edge.cluster_view import FORWARDED_HEADER
from muster.coordinator.errors import TemporarilyUnknown
from muster.coordinator.observability.scaler.trigger_metadata import BadMetadata
from muster.coordinator.rpc.v1 import externalscaler_service_pb2 as pb
from muster.coordinator.server.monitoring.scaled_groups import ClusterScaler
from tests.support.cluster_image import ME, ThreeNodes, led


class Others:
    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    async def forwarded(self, node: int, method: str, request: Any, answer: Any) -> Any:
        self.asked.append((node, method.rpartition("/")[2]))
        return answer()

    async def settings(self, *_: Any) -> Any:
        raise NotImplementedError


class Here:
    """This node's groups, which cannot be told of."""

    async def plan_owners(self, trigger: Any) -> Any:
        raise TemporarilyUnknown("asked here")


def ref(group: str = "g") -> pb.ScaledObjectRef:
    return pb.ScaledObjectRef(name="worker", scalerMetadata={"consumerGroup": group})


def call(**headers: str) -> Any:
    return cast(Any, SimpleNamespace(metadata={name.replace("_", "-"): value for name, value in headers.items()}))


@pytest.mark.parametrize("leader", [ME, 8, -1])
@pytest.mark.parametrize("handed_on", [False, True])
def test_what_another_node_coordinates_is_asked_there_once(leader: int, handed_on: bool) -> None:
    cluster, others = ThreeNodes(shards=1), Others()
    cluster.topics(__consumer_offsets={0: led(leader, epoch=9)})
    cluster.view.elsewhere = others
    scaler = ClusterScaler(cluster.view, 1, Here(), lambda: 0)
    asking = call(**{FORWARDED_HEADER: "1"}) if handed_on else call()

    async def story() -> None:
        await scaler.is_active(ref(), asking)
        await scaler.get_metrics(pb.GetMetricsRequest(scaledObjectRef=ref()), asking)
        assert (await anext(scaler.stream_is_active(ref(), asking))).result is False

    if leader == 8 and not handed_on:
        asyncio.run(story())
        assert others.asked == [(8, "IsActive"), (8, "GetMetrics"), (8, "IsActive")]
    else:
        with pytest.raises(TemporarilyUnknown, match="asked here"):
            asyncio.run(story())
        assert others.asked == []


def test_a_trigger_that_is_none_is_handed_to_nobody() -> None:
    cluster, others = ThreeNodes(shards=1), Others()
    cluster.topics(__consumer_offsets={0: led(8)})
    cluster.view.elsewhere = others
    with pytest.raises(BadMetadata):
        asyncio.run(ClusterScaler(cluster.view, 1, Here(), lambda: 0).is_active(ref(""), call()))
    assert others.asked == []
