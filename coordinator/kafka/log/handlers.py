"""All handlers of the log's APIs as one object, for the dispatcher."""

from collections.abc import Callable

from muster.coordinator.kafka.log.metadata import Endpoint, MetadataHandlers
from muster.coordinator.kafka.log.offsets import OffsetHandlers
from muster.coordinator.kafka.log.produces import ProduceReader
from muster.coordinator.kafka.log.records import RecordHandlers
from muster.coordinator.kafka.log.topics import TopicHandlers
from muster.storage.broker.requests import LogRequests


class LogHandlers:
    """Produce, Fetch, ListOffsets, Metadata, topics and producer ids over one node's log.

    `requests` are shared with the node's other door, so that each wakes the other's fetches. `endpoint` is asked each
    time: the port is known only once the node listens. `elsewhere` says which topics other nodes have.
    """

    def __init__(
        self,
        requests: LogRequests,
        endpoint: Callable[[], Endpoint],
        *,
        node_id: int,
        auto_create: bool,
        elsewhere: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        records = RecordHandlers(requests)
        self.produce, self.produce_now, self.produce_reader = records.produce, records.produce_now, ProduceReader
        self.fetch, self.fetch_now = records.fetch, records.fetch_now
        offsets = OffsetHandlers(requests)
        self.list_offsets, self.init_producer_id = offsets.list_offsets, offsets.init_producer_id
        self.metadata = MetadataHandlers(requests, endpoint, auto_create=auto_create, elsewhere=elsewhere).metadata
        topics = TopicHandlers(requests, node_id)
        self.create_topics, self.delete_topics = topics.create_topics, topics.delete_topics
        self.create_partitions, self.delete_records = topics.create_partitions, topics.delete_records
