"""All handlers of the log's APIs as one object, for the dispatcher."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.coordinator.kafka.handlers.cluster import DescribeClusterHandlers
from muster.coordinator.kafka.handlers.epochs import LeaderEpochHandlers
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint, MetadataHandlers
from muster.coordinator.kafka.handlers.offsets import LogOffsetHandlers
from muster.coordinator.kafka.handlers.records import RecordHandlers
from muster.coordinator.kafka.handlers.single_batch_produce import ProduceReader
from muster.coordinator.kafka.handlers.topics import TopicHandlers
from muster.storage.broker.requests import LogRequests

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster import ClusterView


class LogHandlers:
    """Produce, Fetch, ListOffsets, Metadata, topics and producer ids over one node's log.

    `requests` are shared with the node's other door, so that each wakes the other's fetches. `endpoint` is asked each
    time: the port is known only once the node listens. `elsewhere` says which topics other nodes have; `cluster` knows
    the other nodes where this one is one of many.
    """

    def __init__(
        self,
        requests: LogRequests,
        endpoint: Callable[[], AdvertisedEndpoint],
        *,
        node_id: int,
        auto_create: bool,
        elsewhere: Callable[[str], bool] = lambda topic: False,
        cluster: "ClusterView | None" = None,
    ) -> None:
        records = RecordHandlers(requests)
        self.produce, self.produce_now, self.produce_reader = records.produce, records.produce_now, ProduceReader
        self.fetch, self.fetch_now = records.fetch, records.fetch_now
        offsets = LogOffsetHandlers(requests)
        self.list_offsets, self.list_offsets_now = offsets.list_offsets, offsets.list_offsets_now
        self.init_producer_id = offsets.init_producer_id
        self.offset_for_leader_epoch = LeaderEpochHandlers(requests).offset_for_leader_epoch
        metadata = (
            MetadataHandlers(requests, endpoint, auto_create=auto_create, elsewhere=elsewhere)
            if cluster is None
            else make_cluster_metadata(requests, endpoint, cluster, auto_create)
        )
        self.metadata = metadata.metadata
        self.describe_cluster_now = DescribeClusterHandlers(requests, metadata).describe_cluster_now
        topics = (
            TopicHandlers(requests, node_id) if cluster is None else make_cluster_topics(requests, node_id, cluster)
        )
        self.create_topics, self.delete_topics = topics.create_topics, topics.delete_topics
        self.create_partitions, self.delete_records = topics.create_partitions, topics.delete_records


def make_cluster_metadata(
    requests: LogRequests, endpoint: Callable[[], AdvertisedEndpoint], cluster: "ClusterView", auto_create: bool
) -> MetadataHandlers:
    from muster.coordinator.kafka.handlers.clustered_metadata import ClusterMetadata

    return ClusterMetadata(requests, endpoint, cluster, auto_create=auto_create)


def make_cluster_topics(requests: LogRequests, node_id: int, cluster: "ClusterView") -> TopicHandlers:
    from muster.coordinator.kafka.handlers.clustered_topics import ClusterTopicHandlers

    return ClusterTopicHandlers(requests, node_id, cluster)
