"""Fetches of one topic from one leader in a fetch session (KIP-227): the broker keeps in mind what is asked for, so a
request names only what has moved on, and an answer only what has something new.

A broker that cannot keep one more session in mind answers all that it is asked for, each time.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.connection import READ
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.record_requests import ANSWER_LIMIT, PORTION
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

NOT_FOUND: Final = 70
WRONG_EPOCH: Final = 71
"""What a broker says of a session that it has forgotten, or whose requests it has not seen all of."""

LAST_EPOCH: Final = (1 << 31) - 1

NO_MORE: Final = -1
"""The epoch of a request after which the broker may forget the session."""

NO_EPOCH: Final = -1

CLOSE_S: Final = 0.5
"""For telling it so: a broker has room for a thousand sessions, and drops those that nobody uses by itself."""


class FetchPlace(NamedTuple):
    """Where in a partition to read on. leader_epoch: of the batch before there, so that a leader whose log parted from
    what was read says so (KIP-320); NO_EPOCH: none was read."""

    offset: int
    leader_epoch: int = NO_EPOCH


class TopicFetchSession:
    """Of one topic and one leader. One fetch at a time."""

    def __init__(self, upstream: Upstream, leader: int, topic: str) -> None:
        self._upstream = upstream
        self._leader = leader
        self._topic = topic
        self._id = self._epoch = 0
        """0 of the epoch: the next request names everything, and begins a session in place of the one with this id."""
        self._asked: dict[int, FetchPlace] = {}
        """By partition, what the broker has in mind."""
        self._ends: dict[int, int] = {}
        """By partition, where the broker said last that what is committed ends."""

    async def fetch(self, wanted: Mapping[int, FetchPlace]) -> dict[int, Any]:
        """What there is from these places on, by partition, as Fetch answers it; of what has nothing new, nothing.
        Without those that the broker does not know. Raises UpstreamError; the next fetch then names everything."""
        began, self._epoch = self._epoch, 0  # until there is an answer
        answer = await self._ask(wanted, began)
        if answer.error_code in (NOT_FOUND, WRONG_EPOCH) and began:
            self._id = began = 0
            answer = await self._ask(wanted, began)
        if answer.error_code:
            raise UpstreamRefused("fetching", answer.error_code)
        told = {each.partition_index: each for topic in answer.responses for each in topic.partitions}
        if not began:
            self._ends.clear()
        self._ends.update((number, each.high_watermark) for number, each in told.items())
        self._id, self._asked = answer.session_id, dict(wanted)
        if self._id:
            self._epoch = began % LAST_EPOCH + 1
        return {number: told.get(number) or self._nothing(number) for number in wanted if number in self._ends}

    async def close(self) -> None:
        """Let the broker forget it, if it answers at once."""
        if self._id and self._epoch:
            with suppress(UpstreamError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._ask(self._asked, NO_MORE)
        self._id = self._epoch = 0

    def _nothing(self, partition: int) -> Any:
        return struct("FetchResponse.responses.partitions")(
            partition_index=partition, high_watermark=self._ends[partition]
        )

    async def _ask(self, wanted: Mapping[int, FetchPlace], epoch: int) -> Any:
        asked = self._asked if epoch else {}
        part = struct("FetchRequest.topics.partitions")
        moved = [
            part(
                partition=number,
                fetch_offset=place.offset,
                last_fetched_epoch=place.leader_epoch,
                partition_max_bytes=PORTION,
            )
            for number, place in wanted.items()
            if asked.get(number) != place
        ]
        gone = sorted(asked.keys() - wanted.keys())
        forgotten = struct("FetchRequest.forgotten_topics_data")
        request = struct("FetchRequest")(
            max_bytes=ANSWER_LIMIT,
            session_id=self._id,
            session_epoch=epoch,
            topics=[struct("FetchRequest.topics")(topic=self._topic, partitions=moved)] if moved else [],
            forgotten_topics_data=[forgotten(topic=self._topic, partitions=gone)] if gone else [],
        )
        return await self._upstream.ask_broker(self._leader, "Fetch", request, purpose=READ)
