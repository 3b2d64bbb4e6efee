"""Puts ownerships into logs: from then on each of them refuses who owned before, as it does an older producer epoch.

An ownership is a producer id of a fence and an epoch. It comes into a log as a marker that aborts a transaction nobody
began: readers pass over it, and every copy of the log, and Kafka's own broker, knows the epoch from it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from muster.storage.broker.group_commit import GroupCommit
from muster.storage.broker.record_log import AppendableLog
from muster.storage.errors import InvalidProducerEpoch, UnknownTopicOrPartition
from muster.storage.logs.producer_state import MAX_EPOCH
from muster.storage.records.markers import encode_marker
from muster.storage.types import AppendOrigin, TopicPartition


class FenceOwnership(NamedTuple):
    """`former` are the fence's producer ids whose epochs were used up: nobody may write under them any more."""

    producer_id: int
    epoch: int
    former: Sequence[int] = ()


class FenceMarker(NamedTuple):
    """A marker that a log is to have."""

    place: TopicPartition
    producer_id: int
    epoch: int


class Fences:
    """One per node, on the loop that appends."""

    def __init__(self, broker: AppendableLog, commit: GroupCommit, clock_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._commit = commit
        self._clock_ms = clock_ms
        # Of each fence the newest epoch that was put up in this life: a slower claim before it comes too late.
        self._newest: dict[int, int] = {}

    def check(self, places: Sequence[TopicPartition]) -> None:
        """Raises the StorageError of a log that is not there, or that clients may not write to."""
        for topic, partition in places:
            self._broker.log(topic, partition)
            self._broker.check_writable(topic)

    async def put_up(self, ownership: FenceOwnership, places: Sequence[TopicPartition]) -> None:
        """Durable on return in these logs, and in all that owners before it have written to or claimed for.

        Raises InvalidProducerEpoch when a later one was put up meanwhile, or the StorageError of a log.
        """
        producer_id, epoch, former = ownership
        newest = self._newest[producer_id] = max(epoch, self._newest.get(producer_id, epoch))
        marks = [FenceMarker(place, producer_id, epoch) for place in places]
        if epoch or former:
            # No older ownership comes into another log any more (see below), so none is missed.
            behind = {producer_id: epoch, **dict.fromkeys(former, MAX_EPOCH)}
            marks += await asyncio.to_thread(self._behind, behind, frozenset(places))
            newest = self._newest[producer_id]
        if newest > epoch:
            raise InvalidProducerEpoch(f"Fence {producer_id} has a later owner: epoch {newest}, not {epoch}.")
        flushes = [self._commit.flushed(mark.place) for mark in marks if self._written(mark, mark.place in places)]
        await asyncio.gather(*flushes)

    def _behind(self, epochs: dict[int, int], named: frozenset[TopicPartition]) -> list[FenceMarker]:
        """The logs that know one of these producers by an older epoch. In a thread: there may be very many."""
        found = []
        for log in self._broker.logs():
            known = log.producers.producers
            if not known or log.failure is not None:
                continue
            for producer_id, epoch in epochs.items():
                producer = known.get(producer_id)
                asked_for = log.partition in named and epoch < MAX_EPOCH
                if producer is not None and producer.epoch < epoch and not asked_for:
                    found.append(FenceMarker(log.partition, producer_id, epoch))
        return found

    def _written(self, mark: FenceMarker, named: bool) -> bool:
        """Append the marker. A log that was found and is gone, or has failed since, takes nobody's records."""
        batch = encode_marker(
            commit=False,
            producer_id=mark.producer_id,
            producer_epoch=mark.epoch,
            coordinator_epoch=0,
            timestamp_ms=self._clock_ms(),
        )
        try:
            self._broker.append(*mark.place, batch, self._clock_ms(), origin=AppendOrigin.COORDINATOR)
        except UnknownTopicOrPartition:
            if named:
                raise
            return False
        return True
