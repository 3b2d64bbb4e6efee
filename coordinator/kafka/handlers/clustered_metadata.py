"""Metadata of a cluster: its live nodes, its controller, all its topics and who leads their partitions.

All of it as the node knows it, which may be behind by as much as a poll takes: so is a broker of Kafka.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from muster.coordinator.edge.cluster import KAFKA, NO_NODE, ClusterView, NodeAddress, visible_topic, visible_topics
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka.errors import LeaderNotAvailable
from muster.coordinator.kafka.handlers.making import TopicCreations
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint, DescribedPartition, MetadataHandlers
from muster.storage.broker.requests import LogRequests
from muster.storage.broker.topic_requests import NewTopic
from muster.storage.errors import StorageError, UnknownTopicOrPartition
from muster.storage.topics.catalog import check_topic_name

if TYPE_CHECKING:
    from muster.coordinator.replication.protocol.image import PartitionView, TopicView

NAMES_A_LISTENER: Final = 6
"""From this version on a leader that does not listen where the client asks has a code of its own (KIP-302)."""

LISTENER_NOT_FOUND: Final = 72
REPLICA_NOT_AVAILABLE: Final = 9
"""What version 0, which names live replicas only, says where that are not all."""


class ClusterMetadata(MetadataHandlers):
    """As its base, of the whole cluster. What is asked for and made is told of once the node knows of it."""

    def __init__(
        self,
        requests: LogRequests,
        endpoint: Callable[[], AdvertisedEndpoint],
        cluster: ClusterView,
        *,
        auto_create: bool,
    ) -> None:
        super().__init__(requests, endpoint, auto_create=auto_create, elsewhere=lambda topic: False)
        self._cluster = cluster
        self._making = TopicCreations(lambda wanted: requests.topics.create(wanted))

    def nodes(self) -> list[NodeAddress]:
        return self._cluster.nodes(KAFKA)

    def controller(self) -> int:
        return self._cluster.controller

    def _here(self, version: int) -> "ReachableNodes":
        """Raises HangUp where the node is cut off: a client would be told of itself for ever, and ask nobody else."""
        if self._cluster.cut_off:
            raise HangUp("what this node knows of its cluster may be over; another one is to be asked")
        return ReachableNodes(version, frozenset(node.node_id for node in self.nodes()))

    def _topics(self) -> "Mapping[str, TopicView]":
        return visible_topics(self._cluster)

    def _ids(self) -> "Mapping[bytes, TopicView]":
        return {topic.topic_id: topic for topic in visible_topics(self._cluster).values()}

    async def _make(self, names: Sequence[str]) -> dict[str, StorageError]:
        known, partitions = self._cluster.topics(), self._broker.settings.num_partitions
        missing = [NewTopic(name, partitions) for name in names if name not in known]
        return await self._making.make(missing) if missing else {}

    def _by_name(self, name: str, refused: Mapping[str, StorageError]) -> "TopicView":
        topic = visible_topic(self._cluster, name)
        if topic is not None and topic.partitions:
            return topic
        if topic is not None:
            raise LeaderNotAvailable(f"Topic '{name}' was made just now: nobody leads its partitions yet.")
        if name in refused:
            raise refused[name]
        check_topic_name(name, {})  # Clients ask again and again for a topic that might come to be.
        raise UnknownTopicOrPartition(f"Topic '{name}' does not exist.")

    def _id_of(self, topic: "TopicView") -> bytes:
        return topic.topic_id

    def _partitions(self, topic: "TopicView", here: "ReachableNodes") -> "Iterator[DescribedPartition]":
        return (self._partition(number, view, here) for number, view in sorted(topic.partitions.items()))

    def _partition(self, number: int, view: "PartitionView", here: "ReachableNodes") -> DescribedPartition:
        offline = self._cluster.offline(view)
        replicas, isr = view.replicas, view.isr
        code, leader = here.leader(view.leader, offline)
        if here.version == 0:  # which has no place for those that are offline
            replicas, isr = here.reachable_of(replicas), here.reachable_of(isr)
            if code is ErrorCode.NONE and (len(replicas), len(isr)) != (len(view.replicas), len(view.isr)):
                code = REPLICA_NOT_AVAILABLE
        return DescribedPartition(code, number, leader, view.leader_epoch, replicas, isr, offline)


class ReachableNodes(NamedTuple):
    """What one answer goes by: its version, and the nodes that its clients can reach."""

    version: int
    reachable: frozenset[int]

    def leader(self, node: int, offline: Sequence[int]) -> tuple[int, int]:
        """The code and the leader that clients are told."""
        if node in self.reachable:
            return ErrorCode.NONE, node
        if node == NO_NODE or node in offline or self.version < NAMES_A_LISTENER:
            return ErrorCode.LEADER_NOT_AVAILABLE, NO_NODE
        return LISTENER_NOT_FOUND, NO_NODE

    def reachable_of(self, nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(node for node in nodes if node in self.reachable)
