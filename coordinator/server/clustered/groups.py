"""The GroupCoordinator service of a node that is one of many."""

import asyncio
from typing import Any, Final, Protocol

from muster.coordinator.core import effects, events
from muster.coordinator.edge.cluster import GRPC, Cluster, leads
from muster.coordinator.errors import Draining, ErrorCode, NotNow, Overloaded
from muster.coordinator.replication.wire.words import GroupsWithSettings
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.clustered.metadata import CUT_OFF
from muster.coordinator.server.dispatch import Call
from muster.coordinator.server.driver.drive import Driver
from muster.coordinator.server.messages import answers, shape
from muster.coordinator.server.service.groups import GroupCoordinator
from muster.coordinator.server.service.sharing import MEMBERS_PER_STREAM
from muster.coordinator.server.service.watch import Watcher

LOOK_S: Final = 1.0
"""How often it is looked whether a group that is watched is coordinated here still."""


class Ends(Protocol):
    """See `replication.ends.EndsElsewhere`."""

    @property
    def untried(self) -> bool: ...

    async def known(self) -> None: ...


class ClusterGroupCoordinator(GroupCoordinator):
    """As its base; FindCoordinator names other nodes, too: a group is coordinated by the leader of its shard.

    Takes what its base takes, and who is where; `ends` knows where logs end of which there is no copy here.
    """

    def __init__(self, cluster: Cluster, *args: Any, ends: Ends | None = None, **given: Any) -> None:
        super().__init__(*args, **given)
        self._cluster = cluster
        self._ends = ends
        self.look_s = LOOK_S

    async def find_coordinator(self, request: pb.FindCoordinatorRequest, call: Call) -> pb.FindCoordinatorResponse:
        shard = self._shard_of(shape.name("key", request.key))
        if self._cluster.cut_off:
            raise NotNow(CUT_OFF)
        node = self._cluster.coordinator(shard, GRPC)
        if node is None:
            return pb.FindCoordinatorResponse(
                error_code=answers.error_code(ErrorCode.COORDINATOR_NOT_AVAILABLE),
                error_message=f"nobody coordinates shard {shard} of the groups right now; ask again",
                node_id=-1,
                partition=shard,
                in_cluster=True,
            )
        return pb.FindCoordinatorResponse(
            node_id=node.node_id,
            host=node.host,
            port=node.port,
            partition=shard,
            in_cluster=True,
            members_per_stream=MEMBERS_PER_STREAM,
        )

    async def list_groups(self, request: pb.ListGroupsRequest, call: Call) -> pb.ListGroupsResponse:
        """This node's groups, which are not all."""
        answer = await super().list_groups(request, call)
        answer.in_cluster = True
        return answer

    async def offset_fetch(self, request: pb.OffsetFetchRequest, call: Call) -> pb.OffsetFetchResponse:
        """Where an end is asked for that nobody has asked for of late, its leader is waited for, once."""
        answer = await super().offset_fetch(request, call)
        if not request.include_log_offsets or self._ends is None or not self._ends.untried:
            return answer
        await self._ends.known()
        return await super().offset_fetch(request, call)

    async def _next(self, watcher: Watcher, told: pb.WatchGroupResponse) -> pb.WatchGroupResponse:
        """A group that moves to another node has no more notices here: its watcher is sent after it."""
        waiting = asyncio.ensure_future(super()._next(watcher, told))
        try:
            while not (await asyncio.wait([waiting], timeout=self.look_s))[0]:
                self._coordinates(told.group_id)
            return await waiting
        finally:
            waiting.cancel()

    async def _current(self, group_id: str) -> effects.GroupChanged:
        self._coordinates(group_id)
        return await super()._current(group_id)

    def _coordinates(self, group_id: str) -> None:
        """Raises Draining, at which clients look for the coordinator."""
        if not leads(self._cluster, self._shard_of(group_id)):
            raise Draining(f"this node does not coordinate group '{group_id}'; find the coordinator again")


async def groups_with_settings(driver: Driver, cluster: Cluster, shards: int) -> GroupsWithSettings:
    """Of the groups that this node coordinates; a code where one of their shards cannot tell."""
    here = [shard for shard in range(shards) if leads(cluster, shard)]
    questions = [(shard, events.ListSettings(driver.next_id())) for shard in here]
    try:
        replies = await driver.ask_all(questions, effects.ListSettingsReply)
    except (Draining, Overloaded):
        return GroupsWithSettings(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = next((reply.code for reply in replies if reply.code is not ErrorCode.NONE), ErrorCode.NONE)
    return GroupsWithSettings(refused, tuple(group for reply in replies for group in reply.group_ids))
