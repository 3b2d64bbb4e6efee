"""CreateTopics and CreatePartitions of a cluster: how many copies, and on which nodes."""

from typing import Any

from muster.coordinator.edge.cluster import ClusterView
from muster.coordinator.kafka.errors import InvalidReplicaAssignment
from muster.coordinator.kafka.handlers.topics import DEFAULT, TopicHandlers
from muster.storage.broker.requests import LogRequests
from muster.storage.broker.topic_requests import MorePartitions, NewTopic
from muster.storage.errors import InvalidRequest


class ClusterTopicHandlers(TopicHandlers):
    """As its base; where copies go is looked at by whoever places them (`requests.topics`)."""

    def __init__(self, requests: LogRequests, node_id: int, cluster: ClusterView) -> None:
        super().__init__(requests, node_id)
        self._cluster = cluster

    def _wanted(self, topic: Any) -> NewTopic:
        configs = self._configs(topic)
        if not topic.assignments:
            return NewTopic(topic.name, self._partitions(topic.num_partitions), configs, topic.replication_factor)
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise InvalidRequest(
                f"Topic '{topic.name}' comes with assignments and with counts; expected -1 for both counts."
            )
        assignments = {each.partition_index: list(each.broker_ids) for each in topic.assignments}
        if len(assignments) < len(topic.assignments):
            raise InvalidReplicaAssignment(
                f"The assignments of topic '{topic.name}' name a partition twice; expected each once."
            )
        return NewTopic(topic.name, len(assignments), configs, DEFAULT, assignments)

    def _copies(self, asked: NewTopic) -> int:
        if asked.assignments is not None:
            return len(asked.assignments[0])
        view = self._cluster.partition(asked.name, 0)
        return asked.replication_factor if view is None else len(view.replicas)

    def _growth(self, wanted: Any) -> MorePartitions:
        given = None if wanted.assignments is None else [list(each.broker_ids) for each in wanted.assignments]
        return MorePartitions(wanted.name, wanted.count, given)

    def _check_growth(self, wanted: Any) -> None:
        self._broker.check_writable(wanted.name)
        self._requests.topics.check_growth(self._growth(wanted))
