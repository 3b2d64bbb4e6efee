"""The GroupCoordinator service of a node that is one of many."""

from typing import Any, Protocol

from muster.coordinator.core.model import core_events, effects
from muster.coordinator.edge.cluster import ClusterView, coordinates_shard
from muster.coordinator.errors import ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.replication.io.wire.words import GroupsWithSettings
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.cluster_backend.metadata_service import CUT_OFF
from muster.coordinator.server.driver.drive import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services.of_many import RoutedGroupCoordinator


class ClusterEnds(Protocol):
    """See `replication.ends.EndsElsewhere`."""

    @property
    def untried(self) -> bool: ...

    async def known(self) -> None: ...


class ClusterGroupCoordinator(RoutedGroupCoordinator):
    """As its base, whose shards go with the partitions that nodes lead.

    `ends` knows where logs end of which there is no copy here.
    """

    def __init__(self, cluster: ClusterView, *args: Any, ends: ClusterEnds | None = None, **given: Any) -> None:
        super().__init__(cluster, *args, cut_off=CUT_OFF, **given)
        self._ends = ends

    async def offset_fetch(self, request: pb.OffsetFetchRequest, call: RpcCall) -> pb.OffsetFetchResponse:
        """Where an end is asked for that nobody has asked for of late, its leader is waited for, once."""
        answer = await super().offset_fetch(request, call)
        if not request.include_log_offsets or self._ends is None or not self._ends.untried:
            return answer
        await self._ends.known()
        return await super().offset_fetch(request, call)


async def groups_with_settings(driver: EngineDriver, cluster: ClusterView, shards: int) -> GroupsWithSettings:
    """Of the groups that this node coordinates; a code where one of their shards cannot tell."""
    here = [shard for shard in range(shards) if coordinates_shard(cluster, shard)]
    questions = [(shard, core_events.ListSettings(driver.next_id())) for shard in here]
    try:
        replies = await driver.ask_all(questions, effects.ListSettingsReply)
    except (NodeShuttingDown, Overloaded):
        return GroupsWithSettings(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = next((reply.code for reply in replies if reply.code is not ErrorCode.NONE), ErrorCode.NONE)
    return GroupsWithSettings(refused, tuple(group for reply in replies for group in reply.group_ids))
