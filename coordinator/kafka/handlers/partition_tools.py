"""What tools ask of leaders and replicas where a node is on its own: it leads every partition, and nobody else can.

ElectLeaders (KIP-460), AlterPartitionReassignments and ListPartitionReassignments (KIP-455) are answered as by a Kafka
cluster of one broker. Nodes of a cluster answer by `handlers/cluster_backend.py`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.long_work import map_in_turns
from muster.storage.broker.record_log import RecordLog
from muster.storage.types import TopicPartition

ELECTION_TYPES: Final = (0, 1)
"""Preferred, and unclean."""


class ToolOutcome(NamedTuple):
    """What came of a request for one partition: a code, and a sentence unless it is 0."""

    code: int
    sentence: str | None


DONE: Final = ToolOutcome(ErrorCode.NONE, None)


class SoleNodeHandlers:
    """Answers partition by partition; one that is named twice is answered once."""

    def __init__(self, log: RecordLog, node_id: int) -> None:
        self._log = log
        self._node_id = node_id

    async def elect_leaders(self, request: Any, call: KafkaCall) -> Any:
        """Nothing is to be elected. Of all partitions none is told, as by Kafka."""
        made = struct("ElectLeadersResponse")
        if request.election_type not in ELECTION_TYPES:
            return made(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
        topic_row = struct("ElectLeadersResponse.replica_election_results")
        row = struct("ElectLeadersResponse.replica_election_results.partition_result")
        asked = [(each.topic, number) for each in request.topic_partitions or () for number in each.partitions]
        topics = await self._told(
            asked,
            self._election,
            lambda number, told: row(partition_id=number, error_code=told.code, error_message=told.sentence),
        )
        return made(
            replica_election_results=[topic_row(topic=name, partition_result=rows) for name, rows in topics.items()]
        )

    async def alter_partition_reassignments(self, request: Any, call: KafkaCall) -> Any:
        """This node may be named alone, which changes nothing; there is nothing under way to be cancelled."""
        targets = {
            (topic.name, each.partition_index): each.replicas for topic in request.topics for each in topic.partitions
        }
        topic_row = struct("AlterPartitionReassignmentsResponse.responses")
        row = struct("AlterPartitionReassignmentsResponse.responses.partitions")
        topics = await self._told(
            list(targets),
            lambda place: self._reassignment(place, targets[place]),
            lambda number, told: row(partition_index=number, error_code=told.code, error_message=told.sentence),
        )
        return struct("AlterPartitionReassignmentsResponse")(
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=[topic_row(name=name, partitions=rows) for name, rows in topics.items()],
        )

    async def list_partition_reassignments(self, request: Any, call: KafkaCall) -> Any:
        """None is under way."""
        return struct("ListPartitionReassignmentsResponse")(topics=[])

    async def _told(
        self,
        asked: list[TopicPartition],
        outcome: Callable[[TopicPartition], ToolOutcome],
        row: Callable[[int, ToolOutcome], Any],
    ) -> dict[str, list[Any]]:
        """Rows by topic."""
        once = list(dict.fromkeys(asked))
        topics: dict[str, list[Any]] = {}
        for (name, number), told in zip(once, await map_in_turns(outcome, once), strict=True):
            topics.setdefault(name, []).append(row(number, told))
        return topics

    def _election(self, place: TopicPartition) -> ToolOutcome:
        return self._missing(place) or ToolOutcome(
            ErrorCode.ELECTION_NOT_NEEDED, f"{place[0]}-{place[1]}: {ErrorCode.ELECTION_NOT_NEEDED.meaning}"
        )

    def _reassignment(self, place: TopicPartition, replicas: list[int] | None) -> ToolOutcome:
        if (missing := self._missing(place)) is not None:
            return missing
        name, number = place
        if replicas is None:
            code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            return ToolOutcome(code, f"{name}-{number}: {code.meaning}")
        if replicas != [self._node_id]:
            return ToolOutcome(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{name}-{number} is to be on nodes {replicas}; expected [{self._node_id}], the only node there is.",
            )
        return DONE

    def _missing(self, place: TopicPartition) -> ToolOutcome | None:
        name, number = place
        topic = self._log.topics().get(name)
        if topic is None:
            return ToolOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        if not 0 <= number < topic.partitions:
            return ToolOutcome(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic '{name}' has no partition {number}; expected 0 to {topic.partitions - 1}.",
            )
        return None
