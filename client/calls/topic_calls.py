"""Calls about topics and logs: partition counts, first and last offsets, offsets by time, and deletion of records.

Partition counts are refreshed when they are older than metadata.max.age.ms. Calls about partitions go to their
leaders and are repeated when leadership has moved.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from muster.client.calls.leaders import MOVED, NOT_YET, ONE_NODE
from muster.client.calls.methods import DELETE_RECORDS, LIST_OFFSETS, METADATA
from muster.client.calls.transport import CallRetry, Transport, now_ms
from muster.client.errors import Refused, UnknownTopic, Unreachable, refusal
from muster.client.members.subscription import group_by_topic
from muster.client.types import OffsetAndTimestamp, TopicPartition
from muster.storage.rpc.v1 import broker_service_pb2 as pb

if TYPE_CHECKING:
    from muster.client.config import ClientConfig
    from muster.client.types import ConnectionConfig


# Topics and partition counts
# ---------------------------

UNKNOWN_TOPIC = 3
MAX_TOPICS = 100_000


class PartitionCounts:
    """Partition counts by topic, as last heard of. Lives on the transport's loop."""

    def __init__(self, transport: Transport, config: "ClientConfig | ConnectionConfig") -> None:
        self._transport = transport
        self._max_age_ms = config.metadata_max_age_ms
        self._known: dict[str, tuple[int, int]] = {}

    async def fetch(self, topics: Iterable[str], timeout_ms: int | None = None) -> dict[str, int]:
        """Partition counts right now; topics that do not exist are left out."""
        wanted = sorted(set(topics))
        if not wanted:
            return {}
        answer = await self._transport.retried(
            METADATA, pb.MetadataRequest(topics=wanted), doing="looking up topics", timeout_ms=timeout_ms
        )
        counts = self._learn(answer)
        for topic in wanted:
            if topic not in counts:
                self._known.pop(topic, None)
        return counts

    async def fetch_all(self, include_internal: bool = False) -> dict[str, int]:
        """Every topic there is."""
        request = pb.MetadataRequest(all_topics=True, include_internal=include_internal)
        answer = await self._transport.retried(METADATA, request, doing="listing topics")
        return self._learn(answer)

    async def listed(self, topic: str | None = None) -> dict[str, int]:
        """As programs see it: every topic but the node's own, in order; or this one, if it exists."""
        return dict(sorted((await self.fetch_all() if topic is None else await self.fetch([topic])).items()))

    async def count(self, topic: str, timeout_ms: int | None = None) -> int:
        """The partitions of one topic, from memory when it is fresh; UnknownTopic when there is none."""
        known = self.remembered(topic)
        if known is not None:
            return known
        counts = await self.fetch([topic], timeout_ms)
        if topic not in counts:
            raise UnknownTopic(
                UNKNOWN_TOPIC, "UNKNOWN_TOPIC_OR_PARTITION", f"there is no topic {topic!r}; create it first"
            )
        return counts[topic]

    def remembered(self, topic: str) -> int | None:
        """The count if it was heard of lately."""
        known = self._known.get(topic)
        return known[0] if known is not None and now_ms() - known[1] < self._max_age_ms else None

    def forget(self, topic: str) -> None:
        self._known.pop(topic, None)

    def _learn(self, answer: pb.MetadataResponse) -> dict[str, int]:
        counts: dict[str, int] = {}
        for topic in answer.topics:
            if topic.error_code == UNKNOWN_TOPIC:
                continue
            if topic.error_code:
                name = pb.ErrorCode.Name(topic.error_code)
                raise refusal(topic.error_code, name, topic.error_message, topic.name)
            counts[topic.name] = len(topic.partitions)
        at_ms = now_ms()
        for name, count in counts.items():
            self._known[name] = (count, at_ms)
        while len(self._known) > MAX_TOPICS:
            del self._known[next(iter(self._known))]
        return counts


def match_topics(patterns: Iterable[re.Pattern[str]], topics: Mapping[str, int]) -> set[str]:
    """
    >>> sorted(match_topics([re.compile("^a")], {"ab": 1, "b": 1}))
    ['ab']
    """
    return {topic for topic in topics if any(pattern.match(topic) for pattern in patterns)}


# Calls to partition leaders
# --------------------------

Refusals: TypeAlias = dict[TopicPartition, Refused]
Attempt: TypeAlias = Callable[[str, Collection[TopicPartition], int | None], Awaitable[Refusals]]
"""Asks one node (HOST:PORT, or ONE_NODE) about some partitions, within so many ms; what it refused of them."""


async def call_leaders(
    transport: Transport, places: Iterable[TopicPartition], attempt: Attempt, timeout_ms: int | None = None
) -> None:
    """Until every partition is answered by its leader. Raises the first refusal that trying again does not change, or,
    when `timeout_ms` (default.api.timeout.ms) is over, the last one, or Unreachable."""
    leaders = transport.leaders
    patience = CallRetry(transport, timeout_ms)
    left = list(places)
    leaders.doubt_missing(tp[0] for tp in left)
    while left:
        by_leader, unknown = leaders.routed(left)
        for tp in unknown:
            if leaders.is_missing(tp[0]):
                raise leaders.why_not(tp)
        leaders.refresh_leaders(unknown)
        left = list(unknown)
        last: Refused | Unreachable | None = leaders.why_not(unknown[0]) if unknown else None
        given_ms = timeout_ms if ONE_NODE in by_leader else patience.attempt_ms
        asked = [(address, lot, attempt(address, lot, given_ms)) for address, lot in by_leader.items()]
        answers = await asyncio.gather(*(each[2] for each in asked), return_exceptions=True)
        for (address, lot, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Unreachable) and address != ONE_NODE:
                again: Collection[TopicPartition] = lot
                last = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                again = [tp for tp, refusal in answer.items() if refusal.code in (NOT_YET if leaders.shared else MOVED)]
                for tp, refusal in answer.items():
                    if tp not in again:
                        raise refusal
                    last = refusal
            leaders.doubt(again)
            left += again
        if left:
            assert last is not None, "what is left was refused, or has no leader"
            if not await patience.another_try(last):
                raise last.after(patience.waited_ms) if isinstance(last, Unreachable) else last
            await leaders.settled(left)


# Offsets of logs
# ---------------

LATEST = -1
EARLIEST = -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


async def list_offsets(
    transport: Transport,
    times: Mapping[TopicPartition, int],
    timeout_ms: int | None = None,
    *,
    committed: bool = False,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The first offset at or after each time (epoch milliseconds, LATEST or EARLIEST); offset -1 when there is none.

    With `committed` the latest is the last stable offset: before the first open transaction.
    """
    if not times:
        return {}
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt(address: str, places: Collection[TopicPartition], patience_ms: int | None) -> Refusals:
        request = pb.ListOffsetsRequest(isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED)
        lines: dict[str, pb.ListOffsetsTopic] = {}
        for topic, partition in sorted(places):
            line = lines.get(topic)
            if line is None:
                line = lines[topic] = request.topics.add(name=topic)
            line.partitions.add(partition_index=partition, timestamp=times[TopicPartition(topic, partition)])
        call = transport.retried if address == ONE_NODE else transport.call
        answer = await call(
            LIST_OFFSETS, request, doing="looking up offsets", address=address or None, timeout_ms=patience_ms
        )
        refused: Refusals = {}
        for topic_result in answer.topics:
            for result in topic_result.partitions:
                about = f"{topic_result.name}-{result.partition_index}"
                key = TopicPartition(topic_result.name, result.partition_index)
                if result.error_code:
                    name = pb.ErrorCode.Name(result.error_code)
                    refused[key] = refusal(result.error_code, name, result.error_message, about)
                else:
                    found[key] = OffsetAndTimestamp(result.offset, result.timestamp)
        return refused

    await call_leaders(transport, times, attempt, timeout_ms)
    return found


async def delete_records(transport: Transport, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Drop records below each offset (-1: all there are); the logs' new first offsets. The first refusal is raised."""
    marks: dict[TopicPartition, int] = {}

    async def attempt(address: str, places: Collection[TopicPartition], patience_ms: int | None) -> Refusals:
        request = pb.DeleteRecordsRequest()
        for topic, numbers in group_by_topic(places).items():
            line = request.topics.add(name=topic)
            for number in numbers:
                line.partitions.add(partition_index=number, offset=before[TopicPartition(topic, number)])
        answer = await transport.call(
            DELETE_RECORDS, request, doing="deleting records", address=address or None, timeout_ms=patience_ms
        )
        refused: Refusals = {}
        for found in answer.topics:
            for result in found.partitions:
                key = TopicPartition(found.name, result.partition_index)
                if result.error_code:
                    about, name = f"{found.name}-{result.partition_index}", pb.ErrorCode.Name(result.error_code)
                    refused[key] = refusal(result.error_code, name, result.error_message, about)
                else:
                    marks[key] = result.low_watermark
        return refused

    await call_leaders(transport, before, attempt)
    return marks


async def list_end_offsets(
    transport: Transport, partitions: Collection[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, int]:
    """The high watermarks; with `committed` the last stable offsets."""
    found = await list_offsets(transport, dict.fromkeys(partitions, LATEST), committed=committed)
    return {tp: at.offset for tp, at in found.items()}


async def list_start_offsets(transport: Transport, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    found = await list_offsets(transport, dict.fromkeys(partitions, EARLIEST))
    return {tp: at.offset for tp, at in found.items()}
