"""WriteTxnMarkers: end what a producer has open in some partitions of this node (KIP-98, KIP-664).

`RequestedMarkers` writes what a request asks for; every listener that serves this API calls it. From a client it is the
tool against a hanging transaction, and it ends any other one as well: of a transaction that lost a part of itself that
way the coordinator may still commit the rest (TX-C17).
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from muster.coordinator.core.model.effects import TxnEndedReply
from muster.coordinator.core.model.events import TxnEnded
from muster.coordinator.errors import CoordinatorError, ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.group_requests import GroupDriver
from muster.coordinator.kafka.handlers.transaction_batches import (
    AT_ONCE,
    MarkerPlaces,
    make_markers_response,
    read_markers,
)
from muster.coordinator.kafka.handlers.transactions import is_partition
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from muster.coordinator.runtime.transaction_records import TRANSACTIONS_TOPIC
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.types import TopicPartition

STORAGE_FAILED: Final = 56
"""KAFKA_STORAGE_ERROR: whoever asked sends the marker again."""


class RequestedMarkers:
    """Writes markers into the logs that this node leads, and the groups' shards into theirs. On the node's loop."""

    def __init__(self, requests: LogRequests, groups: GroupDriver) -> None:
        self._requests = requests
        self._groups = groups

    async def write(self, wanted: Sequence[MarkerPlaces]) -> list[dict[TopicPartition, int]]:
        """Of each marker and partition Kafka's error number; 0 once it is as durable as with acks=all.

        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED
        (TX-L5) are those that a coordinator knows.
        """
        results = [dict.fromkeys(places, int(ErrorCode.NONE)) for _, places in wanted]
        begun: list[tuple[dict[TopicPartition, int], TopicPartition, Awaitable[Any]]] = []
        asked = [(told, place, marker) for told, (marker, _) in zip(results, wanted, strict=True) for place in told]
        for number, (told, place, marker) in enumerate(asked, 1):
            if not number % AT_ONCE:
                await asyncio.sleep(0)
            if not is_partition(place, self._requests.broker.topics()):
                told[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif place[0] != GROUPS_TOPIC:
                try:
                    begun.append((told, place, self._append(place, marker)))
                except StorageError as error:
                    told[place] = error.code
                except OSError:
                    told[place] = STORAGE_FAILED
        begun += [
            (told, place, end_positions(self._groups, place[1], marker))
            for told, place, marker in asked
            if place[0] == GROUPS_TOPIC and not told[place]
        ]
        outcomes = await asyncio.gather(*(each for _, _, each in begun), return_exceptions=True)
        for (told, place, _), outcome in zip(begun, outcomes, strict=True):
            told[place] = code_of(outcome)
        return results

    def _append(self, place: TopicPartition, marker: MarkerToWrite) -> "asyncio.Future[None]":
        self._requests.broker.check_writable(place[0])
        return self._requests.commit.append_marker(place, marker)


async def end_positions(groups: GroupDriver, shard: int, marker: MarkerToWrite) -> int:
    """Have a shard of the groups end a producer's positions (TX-G4); Kafka's error number, 0 once that is durable.

    Whoever leads the shard elsewhere, or loads it, is to be asked again (TX-C10).
    """
    ended = TxnEnded(
        groups.next_id(), marker.producer_id, marker.epoch, marker.commit, marker.coordinator_epoch, marker.level
    )
    try:
        reply = await groups.ask_shard(shard, ended, TxnEndedReply)
    except (CoordinatorError, Overloaded, NodeShuttingDown):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return reply.code


def code_of(outcome: Any) -> int:
    """Kafka's number for what became of a marker: a number of it, a failure, or nothing for success."""
    if isinstance(outcome, int):
        return outcome
    if isinstance(outcome, StorageError):
        return outcome.code
    if isinstance(outcome, OSError):
        return STORAGE_FAILED
    if isinstance(outcome, BaseException):
        raise outcome
    return ErrorCode.NONE


class WriteTxnMarkersHandlers:
    """The clients' listener: operators, who may be wrong about the coordinator epoch (TX-C17)."""

    def __init__(self, requests: LogRequests, groups: GroupDriver) -> None:
        self._markers = RequestedMarkers(requests, groups)
        self._log = requests.broker

    async def write_txn_markers(self, request: Any, call: KafkaCall) -> Any:
        """Every marker that no coordinator could have sent yet is refused with INVALID_REQUEST."""
        wanted, newest = read_markers(request), newest_coordinator_epoch(self._log)
        possible = [each for each in wanted if each[0].coordinator_epoch <= newest]
        written = iter(await self._markers.write(possible))
        refused = int(ErrorCode.INVALID_REQUEST)
        return make_markers_response(
            (
                marker.producer_id,
                next(written) if marker.coordinator_epoch <= newest else dict.fromkeys(places, refused),
            )
            for marker, places in wanted
        )


def newest_coordinator_epoch(log: RecordLog) -> int:
    """The highest leader epoch of `__transaction_state`; 0 on a node of its own, whose markers carry that."""
    topic = log.topics().get(TRANSACTIONS_TOPIC)
    partitions = 0 if topic is None else topic.partitions
    return max([0, *(log.leader_of(TRANSACTIONS_TOPIC, number)[1] for number in range(partitions))])
