"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: by any node of a cluster, whoever is the
controller."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from muster.coordinator.edge.cluster import ClusterView
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.replication.protocol.facts import TopicPartition
from muster.storage.broker.in_turns import map_in_turns

PREFERRED, UNCLEAN = 0, 1
MAX_TIMEOUT_MS: Final = 600_000
ONE_NAMED: Final = "An unclean election may lose records: expected one partition that is named."


class OngoingReassignment(Protocol):
    """A reassignment that is under way."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def adding(self) -> tuple[int, ...]: ...
    @property
    def removing(self) -> tuple[int, ...]: ...


class PartitionAdministrator(Protocol):
    """What `replication.admin.ClusterAdmin` does."""

    async def elect(
        self, places: Iterable[TopicPartition] | None, unclean: bool = ..., timeout_ms: int = ...
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    async def reassign(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], timeout_ms: int = ...
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    def reassignments(
        self, places: Iterable[TopicPartition] | None = ...
    ) -> Mapping[TopicPartition, OngoingReassignment]: ...


class PartitionAdminHandlers:
    """Each partition of a request for itself: one refusal does not hurt the others."""

    def __init__(self, admin: PartitionAdministrator, cluster: ClusterView) -> None:
        self._admin = admin
        self._cluster = cluster

    async def elect_leaders(self, request: Any, call: KafkaCall) -> Any:
        """Have the first replica elected (0), or anybody who lives (1); for all partitions where none is named."""
        made = struct("ElectLeadersResponse")
        asked = request.topic_partitions
        places = None if asked is None else [TopicPartition(each.topic, p) for each in asked for p in each.partitions]
        if request.election_type not in (PREFERRED, UNCLEAN) or (request.election_type == UNCLEAN and places is None):
            return made(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
        unclean = request.election_type == UNCLEAN
        found = await self._admin.elect(places, unclean, bounded_timeout_ms(request.timeout_ms))
        topic_row = struct("ElectLeadersResponse.replica_election_results")
        row = struct("ElectLeadersResponse.replica_election_results.partition_result")

        def result(place: TopicPartition, code: ErrorCode) -> Any:
            why = ONE_NAMED if unclean and code is ErrorCode.INVALID_REQUEST else error_sentence(place, code)
            return row(partition_id=place.partition, error_code=code, error_message=why)

        told = dict(zip(found, await map_in_turns(lambda place: result(place, found[place]), found), strict=True))
        rows = [
            topic_row(topic=topic, partition_result=[told[place] for place in of])
            for topic, of in group_by_topic(found).items()
        ]
        return made(replica_election_results=rows)

    async def alter_partition_reassignments(self, request: Any, call: KafkaCall) -> Any:
        """Give partitions other replicas (KIP-455); null cancels what is under way."""
        wanted = {
            TopicPartition(topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
            for topic in request.topics
            for each in topic.partitions
        }
        found: dict[TopicPartition, ErrorCode] = {}
        if not request.allow_replication_factor_change:
            found = dict.fromkeys(self._resized(wanted), ErrorCode.INVALID_REPLICATION_FACTOR)
        good = {place: target for place, target in wanted.items() if place not in found}
        found |= await self._admin.reassign(good, bounded_timeout_ms(request.timeout_ms))
        topic_row = struct("AlterPartitionReassignmentsResponse.responses")
        row = struct("AlterPartitionReassignmentsResponse.responses.partitions")

        def result(place: TopicPartition) -> Any:
            code = found[place]
            return row(partition_index=place.partition, error_code=code, error_message=error_sentence(place, code))

        told = dict(zip(wanted, await map_in_turns(result, wanted), strict=True))
        return struct("AlterPartitionReassignmentsResponse")(
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=[
                topic_row(name=topic, partitions=[told[place] for place in of])
                for topic, of in group_by_topic(wanted).items()
            ],
        )

    def _resized(self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]) -> list[TopicPartition]:
        """Those that would have more or fewer replicas than before (KIP-860)."""
        return [
            place
            for place, target in wanted.items()
            if target is not None
            and (view := self._cluster.partition(*place)) is not None
            and len(target) != len(view.replicas) - len(view.adding)
        ]

    async def list_partition_reassignments(self, request: Any, call: KafkaCall) -> Any:
        """Those under way, of the partitions asked for or of all."""
        asked = request.topics
        if asked is not None:
            asked = [TopicPartition(topic.name, number) for topic in asked for number in topic.partition_indexes]
        found = self._admin.reassignments(asked)
        topic_row = struct("ListPartitionReassignmentsResponse.topics")
        row = struct("ListPartitionReassignmentsResponse.topics.partitions")

        def result(place: TopicPartition) -> Any:
            one = found[place]
            return row(
                partition_index=place.partition,
                replicas=list(one.replicas),
                adding_replicas=list(one.adding),
                removing_replicas=list(one.removing),
            )

        return struct("ListPartitionReassignmentsResponse")(
            topics=[
                topic_row(name=topic, partitions=[result(place) for place in of])
                for topic, of in group_by_topic(found).items()
            ]
        )


def group_by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place)
    return found


def error_sentence(place: TopicPartition, code: ErrorCode) -> str | None:
    return None if code is ErrorCode.NONE else f"{place}: {code.meaning}"


def bounded_timeout_ms(timeout_ms: int) -> int:
    return max(0, min(timeout_ms, MAX_TIMEOUT_MS))
