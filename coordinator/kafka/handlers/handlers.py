"""All handlers of the group APIs as one object, and all handlers of the log APIs as another, for the dispatcher.

In cluster mode some handlers are replaced by those of `handlers/cluster_backend.py`, which is imported only then.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from muster.coordinator.edge.listener_base import UNRESTRICTED, TopicRightsSource
from muster.coordinator.kafka.handlers.classic_membership import MembershipHandlers
from muster.coordinator.kafka.handlers.committed_offsets import CommittedOffsetHandlers, ZooKeeperOffsets
from muster.coordinator.kafka.handlers.consumer_groups import ConsumerGroupHandlers, GroupAdminHandlers
from muster.coordinator.kafka.handlers.departed_readers import DepartedReaders
from muster.coordinator.kafka.handlers.group_requests import GroupDriver, GroupRequests
from muster.coordinator.kafka.handlers.log_inspection import LogInspectionHandlers
from muster.coordinator.kafka.handlers.log_offsets import LeaderEpochHandlers, LogOffsetHandlers
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint, DescribeClusterHandlers, MetadataHandlers
from muster.coordinator.kafka.handlers.produce_and_fetch import RecordHandlers
from muster.coordinator.kafka.handlers.single_batch_produce import ProduceReader
from muster.coordinator.kafka.handlers.topics import TopicHandlers
from muster.coordinator.kafka.handlers.transaction_markers import WriteTxnMarkersHandlers
from muster.coordinator.kafka.handlers.transaction_queries import TransactionQueryHandlers
from muster.coordinator.kafka.handlers.transactional_offsets import TransactionalOffsetHandlers
from muster.coordinator.kafka.handlers.transactions import (
    TransactionalProducerHandlers,
    TransactionGate,
    TransactionService,
)
from muster.storage.broker.requests import LogRequests

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView


# Groups
# ------


class GroupHandlers:
    """Members of both protocols, committed offsets and tools, over the same groups as the node's other door.

    `endpoint` is asked each time: the port is known only once the node listens. `partitions` gives the catalog's
    partition counts, `log_span` the first offset and the end of one partition; `elsewhere` are the groups of a
    ZooKeeper, if there is one; `rights_of` says what a member may read; `cluster` knows who
    coordinates which group where this node is one of many. `departed` learns by which names members join. `records`:
    the handlers of the log, whose producers commit positions in their transactions; `newest_connection`: of which
    overtaken ones are refused.
    """

    def __init__(
        self,
        driver: GroupDriver,
        *,
        shards: int,
        endpoint: Callable[[], AdvertisedEndpoint],
        partitions: Callable[[], Mapping[str, int]],
        log_span: Callable[[str, int], tuple[int, int]],
        elsewhere: ZooKeeperOffsets | None = None,
        rights_of: TopicRightsSource = UNRESTRICTED,
        cluster: "ClusterView | None" = None,
        departed: DepartedReaders | None = None,
        transactions: TransactionService | None = None,
        records: "LogHandlers | None" = None,
        newest_connection: bool = True,
    ) -> None:
        groups = GroupRequests(driver, shards, rights_of, departed)
        members = make_membership_handlers(groups, endpoint, cluster, transactions)
        self.find_coordinator = members.find_coordinator
        self.join_group_now, self.sync_group_now = members.join_group_now, members.sync_group_now
        self.leave_group_now, self.heartbeat_now = members.leave_group_now, members.heartbeat_now
        offsets = CommittedOffsetHandlers(groups, partitions, log_span, elsewhere)
        self.offset_commit_now, self.offset_commit_reader = offsets.offset_commit_now, offsets.offset_commit_reader
        self.offset_commit, self.offset_fetch = offsets.offset_commit, offsets.offset_fetch
        self.offset_delete = offsets.offset_delete
        if records is not None and records.producers is not None and records.gate is not None:
            positions = TransactionalOffsetHandlers(
                groups, records.producers, records.gate, partitions, newest_connection=newest_connection
            )
            self.add_offsets_to_txn, self.txn_offset_commit = positions.add_offsets_to_txn, positions.txn_offset_commit
            self.write_txn_markers = WriteTxnMarkersHandlers(records.requests, driver).write_txn_markers
        tools = GroupAdminHandlers(groups)
        self.list_groups, self.describe_groups = tools.list_groups, tools.describe_groups
        self.delete_groups = tools.delete_groups
        consumers = ConsumerGroupHandlers(groups)
        self.consumer_group_heartbeat_now = consumers.consumer_group_heartbeat_now
        self.consumer_group_describe = consumers.consumer_group_describe


def make_membership_handlers(
    groups: GroupRequests,
    endpoint: Callable[[], AdvertisedEndpoint],
    cluster: "ClusterView | None",
    transactions: TransactionService | None,
) -> MembershipHandlers:
    if cluster is None:
        return MembershipHandlers(groups, endpoint, transactions)
    from muster.coordinator.kafka.handlers.cluster_backend import ClusterMembers

    return ClusterMembers(groups, endpoint, cluster, transactions)


# The log
# -------


class LogHandlers:
    """Produce, Fetch, ListOffsets, Metadata, topics, producer ids and the log directory of one node.

    `requests` are shared with the node's other door, so that each wakes the other's fetches. `endpoint` is asked each
    time: the port is known only once the node listens. `directory` is that of the log. `elsewhere` says which topics
    other nodes have; `cluster` knows the other nodes where this one is one of many. `departed` sees what is fetched.
    `transactions` coordinates transactional ids, where that is done; `verifies`: see `TransactionGate`. `conversions`
    counts, by API, the partitions whose records were converted for a client from before Kafka 0.11.
    """

    def __init__(
        self,
        requests: LogRequests,
        endpoint: Callable[[], AdvertisedEndpoint],
        *,
        node_id: int,
        auto_create: bool,
        directory: str,
        elsewhere: Callable[[str], bool] = lambda topic: False,
        cluster: "ClusterView | None" = None,
        departed: DepartedReaders | None = None,
        transactions: TransactionService | None = None,
        verifies: bool = True,
        conversions: Counter[str] | None = None,
    ) -> None:
        self.requests = requests
        gate = None
        if transactions is not None:
            gate = TransactionGate(requests.broker, transactions, verifies=verifies, together=cluster is None)
        self.gate = gate
        self.producers: TransactionalProducerHandlers | None = None
        records = RecordHandlers(requests, departed, gate, conversions)
        self.produce, self.produce_now, self.produce_reader = records.produce, records.produce_now, ProduceReader
        self.fetch, self.fetch_now = records.fetch, records.fetch_now
        offsets = LogOffsetHandlers(requests)
        self.list_offsets, self.list_offsets_now = offsets.list_offsets, offsets.list_offsets_now
        self.init_producer_id = offsets.init_producer_id
        inspection = LogInspectionHandlers(requests, directory)
        self.describe_log_dirs, self.describe_producers = inspection.describe_log_dirs, inspection.describe_producers
        self.list_transactions = inspection.list_transactions
        if transactions is not None:
            self.producers = producers = TransactionalProducerHandlers(requests, transactions)
            self.init_producer_id = producers.init_producer_id
            queries = TransactionQueryHandlers(transactions)
            self.list_transactions = queries.list_transactions
            self.describe_transactions = queries.describe_transactions
            self.add_partitions_to_txn, self.end_txn = producers.add_partitions_to_txn, producers.end_txn
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
    from muster.coordinator.kafka.handlers.cluster_backend import ClusterMetadata

    return ClusterMetadata(requests, endpoint, cluster, auto_create=auto_create)


def make_cluster_topics(requests: LogRequests, node_id: int, cluster: "ClusterView") -> TopicHandlers:
    from muster.coordinator.kafka.handlers.cluster_backend import ClusterTopicHandlers

    return ClusterTopicHandlers(requests, node_id, cluster)
