"""The Broker service of a cluster's node: Metadata describes all nodes and topics (CL-K1, CL-K2).

What it says of the cluster may be behind by as much as a poll takes.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from muster.coordinator.edge.cluster_view import GRPC, NO_NODE, ClusterView, visible_topic, visible_topics
from muster.coordinator.errors import ErrorCode, TemporarilyUnknown
from muster.long_work import make_aside, map_in_turns
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import UnknownTopicOrPartition, check_entry_count
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.broker_service import ROOM, BrokerService, RecordTransactions

if TYPE_CHECKING:
    from muster.coordinator.replication.protocol.cluster_metadata import PartitionView, TopicView


ROW: Final = 2
"""A partition takes so many times as long as a position does."""

CUT_OFF: Final = (
    "this node reaches neither ZooKeeper nor the nodes that are in sync with it: what it knows of the cluster may be "
    "over; ask another node"
)


class ClusterBrokerService(BrokerService):
    """As its base; what it tells of the cluster may be behind by as much as a poll takes."""

    def __init__(
        self,
        requests: LogRequests,
        cluster: ClusterView,
        *,
        advertised: Callable[[], tuple[str, int]],
        room: Callable[[Any], int] = lambda call: ROOM,
        transactions: RecordTransactions | None = None,
    ) -> None:
        super().__init__(requests, node_id=cluster.me, advertised=advertised, room=room, transactions=transactions)
        self._cluster = cluster

    async def metadata(self, request: pb.MetadataRequest, call: object) -> pb.MetadataResponse:
        check_entry_count("topics", len(request.topics))
        if self._cluster.cut_off:
            raise TemporarilyUnknown(CUT_OFF)
        names = list(dict.fromkeys(request.topics))  # one of many partitions, named very often, has no room anywhere
        if request.all_topics:
            known = visible_topics(self._cluster).items()
            names = [name for name, topic in known if request.include_internal or not topic.internal]
        nodes = self._cluster.nodes(GRPC)
        reachable = {node.node_id for node in nodes}
        answer = pb.MetadataResponse(
            brokers=[pb.NodeMetadata(node_id=node.node_id, host=node.host, port=node.port) for node in nodes],
            cluster_id=self._broker.cluster_id,
            controller_id=self._cluster.controller,
        )
        topics = await map_in_turns(lambda name: (name, visible_topic(self._cluster, name)), names)

        def told() -> pb.MetadataResponse:
            answer.topics.extend(self._image_metadata(name, topic, reachable) for name, topic in topics)
            return answer

        partitions = sum(len(topic.partitions) for _, topic in topics if topic is not None)
        return await make_aside(told, ROW * (partitions + len(topics)))

    def _image_metadata(self, name: str, topic: "TopicView | None", reachable: set[int]) -> pb.TopicMetadata:
        """What is known of a topic is made anew where it changes, and never changed."""
        if topic is None:
            return unknown_topic(name)
        if not topic.partitions:
            why = f"topic '{name}' was made just now: nobody leads its partitions yet; ask again"
            return pb.TopicMetadata(name=name, error_code=error_code(ErrorCode.LEADER_NOT_AVAILABLE), error_message=why)
        return self._described(topic, reachable)

    def _described(self, topic: "TopicView", reachable: set[int]) -> pb.TopicMetadata:
        return pb.TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            partitions=[
                self._partition(number, view, view.leader in reachable)
                for number, view in sorted(topic.partitions.items())
            ],
        )

    def _partition(self, number: int, view: "PartitionView", led: bool) -> pb.PartitionMetadata:
        """Of a leader that just died nobody is told: whoever asked it would ask in vain."""
        return pb.PartitionMetadata(
            partition_index=number,
            leader_id=view.leader if led else NO_NODE,
            leader_epoch=view.leader_epoch,
            replica_nodes=view.replicas,
            isr_nodes=view.isr,
            offline_replicas=self._cluster.offline(view),
            error_code=error_code(ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE),
        )


def unknown_topic(name: str) -> pb.TopicMetadata:
    why = UnknownTopicOrPartition(f"There is no topic '{name}'. Create it first, or check its spelling.")
    return pb.TopicMetadata(name=name, error_code=error_code(ErrorCode(why.code)), error_message=str(why))


def error_code(number: ErrorCode) -> Any:
    """Kafka's number; the generated enum is open, though its type says otherwise."""
    return int(number)
