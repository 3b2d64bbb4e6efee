"""What the nodes of a scripted cluster answer about groups."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from tests.support.scripted.node import ScriptedNode

NO_COORDINATOR, NOT_COORDINATOR = 15, 16


class Place(Protocol):
    """A partition, as all replicas have it."""

    leader: int
    start: int

    @property
    def end(self) -> int: ...


class Groups:
    """`lonely`: a single node that shares no cluster. nodes: by id; places: the partitions of each topic."""

    def __init__(
        self, nodes: Mapping[int, ScriptedNode], places: Mapping[str, Sequence[Place]], *, lonely: bool
    ) -> None:
        self._nodes = nodes
        self._places = places
        self._lonely = lonely
        self.coordinators: dict[str, int | None] = {}
        self.committed: dict[tuple[str, str, int], tuple[int, int]] = {}
        self.epochs: dict[str, int] = {}
        """Member epochs of KIP-848 members."""
        self.joins: Counter[str] = Counter()
        self.interval_ms = 20
        """Between heartbeats, as coordinators tell it."""
        self.session_ms = 0
        """How long members are waited for, as they are told; 0: they are not."""

    def _coordinates(self, node: ScriptedNode, group: str) -> int:
        where = self.coordinators.get(group)
        return NO_COORDINATOR if where is None else 0 if where == node.node_id else NOT_COORDINATOR

    async def _findcoordinator(
        self, node: ScriptedNode, request: group_pb.FindCoordinatorRequest
    ) -> group_pb.FindCoordinatorResponse:
        where = self.coordinators.get(request.key)
        if where is None:
            return group_pb.FindCoordinatorResponse(error_code=NO_COORDINATOR, in_cluster=not self._lonely)
        port = self._nodes[where].port
        return group_pb.FindCoordinatorResponse(node_id=where, host="127.0.0.1", port=port, in_cluster=not self._lonely)

    async def _offsetcommit(
        self, node: ScriptedNode, request: group_pb.OffsetCommitRequest
    ) -> group_pb.OffsetCommitResponse:
        code = self._coordinates(node, request.group_id)
        for topic in request.topics if not code else ():
            for part in topic.partitions:
                at = (part.committed_offset, part.committed_leader_epoch)
                self.committed[request.group_id, topic.name, part.partition_index] = at
        return group_pb.OffsetCommitResponse(error_code=code)

    async def _offsetfetch(
        self, node: ScriptedNode, request: group_pb.OffsetFetchRequest
    ) -> group_pb.OffsetFetchResponse:
        code = self._coordinates(node, request.group_id)
        answer = group_pb.OffsetFetchResponse(error_code=code)
        for topic in request.topics if not code else ():
            line = answer.topics.add(name=topic.name)
            for number in topic.partition_indexes:
                offset, epoch = self.committed.get((request.group_id, topic.name, number), (-1, -1))
                row = line.partitions.add(partition_index=number, committed_offset=offset, committed_leader_epoch=epoch)
                place = self._places[topic.name][number]
                if request.include_log_offsets and place.leader == node.node_id:
                    row.log_start_offset, row.log_end_offset = place.start, place.end
        return answer

    async def _listgroups(self, node: ScriptedNode, request: group_pb.ListGroupsRequest) -> group_pb.ListGroupsResponse:
        answer = group_pb.ListGroupsResponse(in_cluster=not self._lonely)
        for group, where in self.coordinators.items():
            if where == node.node_id:
                answer.groups.add(group_id=group, group_state="Stable", protocol_type="consumer", group_type="Classic")
        return answer

    async def _describegroups(
        self, node: ScriptedNode, request: group_pb.DescribeGroupsRequest
    ) -> group_pb.DescribeGroupsResponse:
        answer = group_pb.DescribeGroupsResponse()
        for group in request.groups:
            code = self._coordinates(node, group)
            answer.groups.add(group_id=group, error_code=code, group_state="" if code else "Stable")
        return answer

    async def _deletegroups(
        self, node: ScriptedNode, request: group_pb.DeleteGroupsRequest
    ) -> group_pb.DeleteGroupsResponse:
        answer = group_pb.DeleteGroupsResponse()
        for group in request.groups_names:
            code = self._coordinates(node, group)
            answer.results.add(group_id=group, error_code=code)
            if not code:
                del self.coordinators[group]
        return answer

    async def _consumergroupheartbeat(
        self, node: ScriptedNode, request: group_pb.ConsumerGroupHeartbeatRequest
    ) -> group_pb.ConsumerGroupHeartbeatResponse:
        """Whoever joins gets everything."""
        code = self._coordinates(node, request.group_id)
        answer = group_pb.ConsumerGroupHeartbeatResponse(error_code=code, member_id=request.member_id)
        if code:
            return answer
        answer.heartbeat_interval_ms = self.interval_ms
        answer.session_timeout_ms = self.session_ms
        if request.member_epoch == 0:
            self.joins[request.member_id] += 1
            self.epochs[request.member_id] = self.epochs.get(request.member_id, 0) + 1
            for name, places in self._places.items():
                answer.assignment.topic_partitions.add(
                    topic_id=name.encode().ljust(16, b"."), topic_name=name, partitions=range(len(places))
                )
        answer.member_epoch = self.epochs.get(request.member_id, 1)
        return answer
