"""The GroupCoordinator service over somebody's Kafka."""

from typing import Any

from muster.coordinator.engine.ends import Ends
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.dispatch import Call
from muster.coordinator.server.service.groups import GroupCoordinator


class UpstreamGroups(GroupCoordinator):
    """As its base; where logs end that nobody has asked about of late is asked of their leaders."""

    def __init__(self, *args: Any, ends: Ends, **given: Any) -> None:
        super().__init__(*args, **given)
        self._ends = ends

    async def offset_fetch(self, request: pb.OffsetFetchRequest, call: Call) -> pb.OffsetFetchResponse:
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
