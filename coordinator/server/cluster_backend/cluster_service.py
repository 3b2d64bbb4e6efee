"""The Cluster service: which node leads and has copies, and what operators do about it. No transport here."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin.cluster_admin import explain_no_election, explain_no_reassignment
from muster.coordinator.replication.io.election_ledger import ElectionReport
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage, TopicPartition
from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb
from muster.coordinator.server.cluster_backend import cluster_description
from muster.coordinator.server.cluster_backend.cluster_description import ClusterStanding, ControllerHeard
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services.group_responses import to_error_code
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.long_work import make_aside, map_in_turns
from muster.storage.errors import StorageError

CLUSTER_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Cluster"]

PATIENCE_MS: Final = 60_000
MOST_PATIENCE_MS: Final = 600_000
DRAINED_S: Final = 1.0
"""An answer about the cluster waits no longer for ZooKeeper."""

ELECTIONS_TOLD: Final = 50
MOST_ELECTIONS: Final = 10_000
ROW: Final = 5
"""A partition takes so many times as long as a position does."""

Places = Iterable[TopicPartition]


class ClusterAdministration(Protocol):
    """What `ClusterAdmin` does."""

    async def elect(
        self, places: Places | None, unclean: bool = ..., timeout_ms: int = ...
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    async def reassign(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], timeout_ms: int = ...
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    def reassignments(self, places: Places | None = ...) -> Mapping[TopicPartition, object]: ...

    async def drain(self, node: int, on: bool = ...) -> ErrorCode: ...

    async def drained(self) -> frozenset[int]: ...


class ElectionHistory(Protocol):
    """What the ledger of elections answers."""

    @property
    def here(self) -> bool: ...

    async def explain(self, limit: int, topic: str = ...) -> list[ElectionReport]:
        """Raises StorageError."""
        ...


class ImageWait(Protocol):
    """Waits until the image shows something."""

    async def until(self, shown: Callable[[], bool], deadline_s: float) -> bool: ...


class ClusterService:
    """Answered by any node of a cluster; a single node has no such service, and gRPC says UNIMPLEMENTED.

    min_isr: min.insync.replicas of topics that say nothing. applied: how far each node is, where this one is the
    controller; nothing elsewhere. touch: how old what is told of the cluster is.
    """

    def __init__(
        self,
        cluster_id: str,
        image: ClusterImage,
        admin: ClusterAdministration,
        elections: ElectionHistory,
        shows: ImageWait,
        *,
        min_isr: int,
        applied: Callable[[], Mapping[int, int]] = dict,
        touch: Callable[[], ControllerHeard] = ControllerHeard,
    ) -> None:
        self._cluster_id = cluster_id
        self._image = image
        self._admin = admin
        self._elections = elections
        self._shows = shows
        self._min_isr = min_isr
        self._applied = applied
        self._touch = touch

    async def describe_cluster(self, request: pb.DescribeClusterRequest, call: RpcCall) -> pb.DescribeClusterResponse:
        drained = await self._drained()
        image, applied, heard = self._image.taken(), dict(self._applied()), self._touch()
        answer = pb.DescribeClusterResponse(
            cluster_id=self._cluster_id, heard_ms_ago=heard.ms_ago, cut_off=heard.cut_off
        )

        def told() -> pb.DescribeClusterResponse:
            standing = ClusterStanding.of(image, self._min_isr, drained, applied)
            return cluster_description.describe_cluster(answer, standing, request.partitions, frozenset(request.topics))

        return await make_aside(told, ROW * image.size)

    async def elect_leaders(self, request: pb.ElectLeadersRequest, call: RpcCall) -> pb.ElectLeadersResponse:
        unclean = request.election_type == pb.ELECTION_TYPE_UNCLEAN
        answer = pb.ElectLeadersResponse()
        if unclean and not request.partitions:
            answer.error_code = to_error_code(ErrorCode.INVALID_REQUEST)
            answer.error_message = (
                "an unclean election may lose records: expected one partition that is named, got none; name one"
            )
            return answer
        places = [partition_of_row(each) for each in request.partitions] or None
        found = await self._admin.elect(places, unclean, patience_ms(request.timeout_ms))

        def told(place: TopicPartition) -> None:
            code, view = found[place], self._image.partition(place)
            row = answer.results.add(
                topic=place.topic, partition=place.partition, error_code=to_error_code(code), leader_id=-1
            )
            if code is not ErrorCode.NONE:
                row.error_message = explain_no_election(self._image, place, code, unclean=unclean)
            if view is not None:
                row.leader_id, row.leader_epoch = view.leader, view.leader_epoch

        await map_in_turns(told, found)
        return answer

    async def alter_partition_reassignments(
        self, request: pb.AlterPartitionReassignmentsRequest, call: RpcCall
    ) -> pb.AlterPartitionReassignmentsResponse:
        wanted = {
            TopicPartition(each.topic, each.partition): None if each.cancel else tuple(each.replicas)
            for each in request.partitions
        }
        answer = pb.AlterPartitionReassignmentsResponse()
        found = await self._admin.reassign(wanted, patience_ms(request.timeout_ms))

        def told(each: pb.WantedReplicas) -> None:
            place = TopicPartition(each.topic, each.partition)
            code = found[place]
            row = answer.results.add(topic=place.topic, partition=place.partition, error_code=to_error_code(code))
            if code is not ErrorCode.NONE:
                row.error_message = explain_no_reassignment(self._image, place, each.replicas, code)

        await map_in_turns(told, request.partitions)
        return answer

    async def list_partition_reassignments(
        self, request: pb.ListPartitionReassignmentsRequest, call: RpcCall
    ) -> pb.ListPartitionReassignmentsResponse:
        places = [partition_of_row(each) for each in request.partitions] or None
        under_way = sorted(self._admin.reassignments(places))
        image, answer = self._image.taken(), pb.ListPartitionReassignmentsResponse()

        def told() -> pb.ListPartitionReassignmentsResponse:
            standing = ClusterStanding.of(image, self._min_isr)
            known = {each.place: each for each in standing.partitions}
            answer.partitions.extend(standing.row(place, known[place]) for place in under_way if place in known)
            return answer

        return await make_aside(told, ROW * image.size)

    async def drain_node(self, request: pb.DrainNodeRequest, call: RpcCall) -> pb.DrainNodeResponse:
        """Answered once the node leads nothing that another could lead."""
        node, deadline_s = request.node_id, deadline_after(request.timeout_ms)
        code = await self._admin.drain(node, not request.undrain)
        answer = pb.DrainNodeResponse(error_code=to_error_code(code))
        if code is not ErrorCode.NONE:
            answer.error_message = (
                f"node {node} is not known; expected one of {sorted(self._image.nodes)}"
                if code is ErrorCode.RESOURCE_NOT_FOUND
                else f"node {node}: {code.meaning}; it may be done yet"
            )
        elif not request.undrain:
            image = self._image
            await self._shows.until(lambda: not any(cluster_description.movable_units(image, node)), deadline_s)
            for place in sorted(cluster_description.units_led_by(image, node)):
                answer.still_leads.add(topic=place.topic, partition=place.partition)
        return answer

    async def explain_elections(
        self, request: pb.ExplainElectionsRequest, call: RpcCall
    ) -> pb.ExplainElectionsResponse:
        answer = pb.ExplainElectionsResponse()
        if not self._elections.here:
            copies = self._image.partition(cluster_description.ELECTIONS_PLACE)
            answer.error_code = to_error_code(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            answer.error_message = (
                f"this node has no copy of the ledger of elections; ask one of the nodes {list(copies.replicas)}"
                if copies is not None
                else "there is no ledger of elections yet: it is made with the first "
                "offsets.topic.replication.factor nodes"
            )
            return answer
        limit = min(request.limit if request.limit > 0 else ELECTIONS_TOLD, MOST_ELECTIONS)
        try:
            for told in await self._elections.explain(limit, request.topic):
                cluster_description.describe_election(answer.elections.add(), told)
        except StorageError as error:
            answer.error_code = to_error_code(ErrorCode.UNKNOWN_SERVER_ERROR)
            answer.error_message = (
                f"this node's copy of the ledger of elections cannot be read: {error}; ask another node"
            )
        return answer

    async def _drained(self) -> frozenset[int]:
        """None, where ZooKeeper cannot be asked: how the cluster stood when it was last in reach is told at once."""
        try:
            async with asyncio.timeout(DRAINED_S):
                return await self._admin.drained()
        except (ZooKeeperError, TimeoutError):
            return frozenset()


def partition_of_row(row: pb.ClusterPartition) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)


def patience_ms(asked_ms: int) -> int:
    return min(asked_ms if asked_ms > 0 else PATIENCE_MS, MOST_PATIENCE_MS)


def deadline_after(timeout_ms: int) -> float:
    """By the loop's clock, in seconds."""
    return asyncio.get_running_loop().time() + patience_ms(timeout_ms) / 1000
