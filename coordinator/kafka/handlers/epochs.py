"""OffsetForLeaderEpoch: where an epoch's records end, for readers who want to know whether theirs are still there
(KIP-320)."""

import asyncio
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.errors import refuse_replica
from muster.storage.broker.epochs import check_epoch, end_of_epoch
from muster.storage.broker.in_turns import AT_ONCE
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import StorageError

UNKNOWN_EPOCH: Final = -1


class LeaderEpochHandlers:
    """Handlers of what a log knows about its leaders."""

    def __init__(self, requests: LogRequests) -> None:
        self._requests = requests

    async def offset_for_leader_epoch(self, request: Any, call: KafkaCall) -> Any:
        """Of each partition the largest epoch that is not above the one asked for, and where it ends; -1 each where
        that is not known, which is no error."""
        made = struct("OffsetForLeaderEpochResponse.topics")
        refusal = refuse_replica(request.replica_id)
        topics, done = [], 0
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                rows.append(self._end(topic.topic, part, refusal))
                done += 1
                if done % AT_ONCE == 0:
                    await asyncio.sleep(0)
            topics.append(made(topic=topic.topic, partitions=rows))
        return struct("OffsetForLeaderEpochResponse")(topics=topics)

    def _end(self, topic: str, part: Any, refusal: StorageError | None) -> Any:
        row, index = struct("OffsetForLeaderEpochResponse.topics.partitions"), part.partition
        try:
            refusal = refusal or check_epoch(self._requests.broker, topic, index, part.current_leader_epoch)
            if refusal is not None:
                raise refusal
            epoch, end = end_of_epoch(self._requests.broker.log(topic, index), part.leader_epoch)
        except StorageError as error:
            return row(error_code=error.code, partition=index, leader_epoch=UNKNOWN_EPOCH, end_offset=UNKNOWN_EPOCH)
        return row(partition=index, leader_epoch=epoch, end_offset=end)
