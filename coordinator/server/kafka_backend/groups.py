"""The GroupCoordinator service over somebody's Kafka: a group is its shard's owner's."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from muster.coordinator.kafka_backend.upstream.ends import UpstreamLogEnds
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as coordinator_pb
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services.of_many import RoutedGroupCoordinator

CUT_OFF: Final = (
    "this node has heard nothing of the nodes' group in the upstream for too long: which node coordinates a group may "
    "be known to all but it; ask another node, or again later"
)


class UpstreamGroups(RoutedGroupCoordinator):
    """As its base; where logs end that nobody has asked about of late is asked of their leaders. met: returns once the
    node knows the others, or waits no longer; who asks for a coordinator before that waits with it."""

    def __init__(self, *args: Any, ends: UpstreamLogEnds, met: Callable[[], Awaitable[None]], **given: Any) -> None:
        super().__init__(*args, cut_off=CUT_OFF, **given)
        self._ends = ends
        self._met = met

    async def find_coordinator(
        self, request: coordinator_pb.FindCoordinatorRequest, call: RpcCall
    ) -> coordinator_pb.FindCoordinatorResponse:
        await self._met()
        return await super().find_coordinator(request, call)

    async def offset_fetch(
        self, request: coordinator_pb.OffsetFetchRequest, call: RpcCall
    ) -> coordinator_pb.OffsetFetchResponse:
        answer = await super().offset_fetch(request, call)
        unknown = [
            (topic.name, part.partition_index)
            for topic in answer.topics
            for part in topic.partitions
            if not part.HasField("log_end_offset")
        ]
        if not request.include_log_offsets or not unknown:
            return answer
        await self._ends.ahead(unknown)
        return await super().offset_fetch(request, call)
