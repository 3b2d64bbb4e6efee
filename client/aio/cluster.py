"""What an admin client says of a cluster: how it stands, and what operators do about it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from muster.client.calls import methods
from muster.client.calls.group_calls import check_code
from muster.client.calls.transport import Transport
from muster.client.errors import NotAuthorized, TransportRefused
from muster.coordinator.observability.views.formatting import host_and_port
from muster.coordinator.rpc.v1 import cluster_service_pb2 as cluster_pb
from muster.coordinator.rpc.v1 import errors_pb2
from muster.storage.rpc.v1 import broker_service_pb2

WantedReplicas: TypeAlias = Literal["none", "all", "under-replicated", "under-min-isr", "offline"]
Place: TypeAlias = tuple[str, int]

FILTERS: Final[Mapping[str, cluster_pb.PartitionFilter]] = {
    "none": cluster_pb.PARTITION_FILTER_UNSPECIFIED,
    "all": cluster_pb.PARTITION_FILTER_ALL,
    "under-replicated": cluster_pb.PARTITION_FILTER_UNDER_REPLICATED,
    "under-min-isr": cluster_pb.PARTITION_FILTER_UNDER_MIN_ISR,
    "offline": cluster_pb.PARTITION_FILTER_OFFLINE,
}


class ClusterCalls:
    """A part of `Admin`. All of it raises TransportRefused (status UNIMPLEMENTED) where the node is on its own."""

    _transport: Transport

    async def nodes(self) -> dict[str, int]:
        """Node ids by the address at which each is reached."""
        metadata = await self._transport.retried(
            methods.METADATA, broker_service_pb2.MetadataRequest(), doing="looking up the nodes"
        )
        return {host_and_port(node.host, node.port): node.node_id for node in metadata.brokers}

    async def describe_cluster(
        self, partitions: WantedReplicas = "none", topics: Iterable[str] = ()
    ) -> cluster_pb.DescribeClusterResponse:
        """The nodes, who is controller, how many partitions want for something; and those asked for, of these topics
        or all. The message is the contract's."""
        request = cluster_pb.DescribeClusterRequest(partitions=FILTERS[partitions], topics=topics)
        answer = await self._transport.retried(methods.DESCRIBE_CLUSTER, request, doing="looking at the cluster")
        check_code(answer.error_code, answer.error_message)
        return answer

    async def topic_copies(self, topic: str) -> list[cluster_pb.ClusterPartitionState]:
        """Who leads a topic's partitions, and who has copies. None where the node is on its own, or does not say."""
        try:
            return list((await self.describe_cluster("all", [topic])).partitions)
        except (TransportRefused, NotAuthorized) as error:
            if isinstance(error, TransportRefused) and error.status != "UNIMPLEMENTED":
                raise
            return []

    async def elect_leaders(
        self, partitions: Iterable[Place] | None = None, *, unclean: bool = False
    ) -> list[cluster_pb.ElectedLeader]:
        """Have each partition's first replica lead; None: wherever another one does. `unclean`: have anybody lead who
        lives, of one partition that nobody leads; records may be lost. What became of each; refusals are in it."""
        request = cluster_pb.ElectLeadersRequest(
            election_type=cluster_pb.ELECTION_TYPE_UNCLEAN
            if unclean
            else cluster_pb.ELECTION_TYPE_PREFERRED_UNSPECIFIED,
            partitions=[
                cluster_pb.ClusterPartition(topic=topic, partition=number) for topic, number in partitions or ()
            ],
            timeout_ms=self._patience_ms(),
        )
        answer = await self._transport.call(methods.ELECT_LEADERS, request, doing="electing leaders")
        check_code(answer.error_code, answer.error_message)
        return list(answer.results)

    async def reassign_partitions(
        self, wanted: Mapping[Place, Sequence[int] | None]
    ) -> list[cluster_pb.AlteredReassignment]:
        """Give partitions other replicas, the first of which is to lead; None leaves off what is under way. On return
        it has begun. What became of each; refusals are in it."""
        request = cluster_pb.AlterPartitionReassignmentsRequest(timeout_ms=self._patience_ms())
        for (topic, number), replicas in wanted.items():
            request.partitions.add(topic=topic, partition=number, replicas=replicas, cancel=replicas is None)
        answer = await self._transport.call(methods.ALTER_REASSIGNMENTS, request, doing="reassigning partitions")
        check_code(answer.error_code, answer.error_message)
        return list(answer.results)

    async def reassignments(self) -> list[cluster_pb.ClusterPartitionState]:
        """The partitions whose replicas are changing."""
        request = cluster_pb.ListPartitionReassignmentsRequest()
        answer = await self._transport.retried(methods.LIST_REASSIGNMENTS, request, doing="listing reassignments")
        check_code(answer.error_code, answer.error_message)
        return list(answer.partitions)

    async def drain_node(self, node_id: int, *, on: bool = True) -> list[Place]:
        """Have a node lead nothing that another can lead, until it is undrained (`on=False`). What it still leads."""
        request = cluster_pb.DrainNodeRequest(node_id=node_id, undrain=not on, timeout_ms=self._patience_ms())
        doing = f"draining node {node_id}"
        answer = await self._transport.call(methods.DRAIN_NODE, request, doing=doing)
        if answer.error_code == errors_pb2.ERROR_CODE_NOT_COORDINATOR:  # over a Kafka each node answers for itself
            address = {number: address for address, number in (await self.nodes()).items()}.get(node_id)
            answer = await self._transport.call(methods.DRAIN_NODE, request, doing=doing, address=address)
        check_code(answer.error_code, answer.error_message)
        return [(each.topic, each.partition) for each in answer.still_leads]

    async def explain_elections(
        self, limit: int = 50, topic: str = "", *, address: str | None = None
    ) -> list[cluster_pb.Election]:
        """The last elections that changed a leader, the youngest first. Raises Refused (6) where the node has no copy
        of the ledger of elections: ask another by its `address`."""
        request = cluster_pb.ExplainElectionsRequest(limit=limit, topic=topic)
        answer = await self._transport.retried(
            methods.EXPLAIN_ELECTIONS, request, doing="explaining elections", address=address
        )
        check_code(answer.error_code, answer.error_message)
        return list(answer.elections)

    def _patience_ms(self) -> int:
        """How long the node may take: less than this client waits for its answer."""
        return max(1, self._transport.config.request_timeout_ms * 4 // 5)
