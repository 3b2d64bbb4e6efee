"""WriteTxnMarkers: end what a producer has open in some partitions of this node (KIP-98, KIP-664).

`RequestedMarkers` writes what a request asks for; every listener that serves this API calls it. From a client it is the
tool against a hanging transaction, and it ends any other one as well: of a transaction that lost a part of itself that
way the coordinator may still commit the rest (TX-C17).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

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


AppendMarker: TypeAlias = Callable[[TopicPartition, MarkerToWrite], Awaitable[Any]]
"""Appends a marker to a log. Awaited, it is durable, or gives Kafka's error number. Raises StorageError, OSError."""

EndPositions: TypeAlias = Callable[[int, MarkerToWrite], Coroutine[Any, Any, int]]
"""Has a shard of the groups end a producer's positions; returns Kafka's error number, 0 once that is durable."""


class RequestedMarkers:
    """Writes markers into the logs that this node leads, and the groups' shards into theirs. On the node's loop.

    UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED
    (TX-L5) are the numbers of errors that a coordinator knows.
    """

    def __init__(self, log: RecordLog, append: AppendMarker, end_positions: EndPositions) -> None:
        self._log = log
        self._append = append
        self._end_positions = end_positions

    async def write(self, wanted: Sequence[MarkerPlaces]) -> list[dict[TopicPartition, int]]:
        """Of each marker and partition Kafka's error number; 0 once it is as durable as with acks=all."""
        begun: list[dict[TopicPartition, asyncio.Future[int]]] = [{} for _ in wanted]
        asked = [
            (found, place, marker) for found, (marker, places) in zip(begun, wanted, strict=True) for place in places
        ]
        for number, (found, place, marker) in enumerate(asked):
            if number and not number % AT_ONCE:
                await asyncio.sleep(0)
            found[place] = self.begin(place, marker)
        return [{place: await ended for place, ended in found.items()} for found in begun]

    def begin(self, place: TopicPartition, marker: MarkerToWrite) -> "asyncio.Future[int]":
        """Append the marker now; the future has Kafka's error number, 0 once the marker is durable."""
        if not is_partition(place, self._log.topics()):
            return settled(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if place[0] == GROUPS_TOPIC:
            return asyncio.ensure_future(self._end_positions(place[1], marker))
        try:
            appended = self._append(place, marker)
        except (StorageError, OSError) as error:
            return settled(code_of(error))
        return asyncio.ensure_future(outcome_of(appended))


def make_requested_markers(requests: LogRequests, groups: GroupDriver) -> RequestedMarkers:
    """Of a listener of clients: they wait for as long as it takes."""

    def append(place: TopicPartition, marker: MarkerToWrite) -> "asyncio.Future[None]":
        requests.broker.check_writable(place[0])
        return requests.commit.append_marker(place, marker)

    return RequestedMarkers(requests.broker, append, partial(end_positions, groups))


async def outcome_of(appended: Awaitable[Any]) -> int:
    """Kafka's number for what becomes of a marker: that which it ends with, or 0."""
    try:
        return int(await appended or ErrorCode.NONE)
    except (StorageError, OSError) as error:
        return code_of(error)


def code_of(error: StorageError | OSError) -> int:
    return error.code if isinstance(error, StorageError) else STORAGE_FAILED


def settled(code: int) -> "asyncio.Future[int]":
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    done.set_result(code)
    return done


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


class WriteTxnMarkersHandlers:
    """The clients' listener: operators, who may be wrong about the coordinator epoch (TX-C17)."""

    def __init__(self, requests: LogRequests, groups: GroupDriver) -> None:
        self._markers = make_requested_markers(requests, groups)
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
