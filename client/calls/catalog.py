"""What a client knows of topics: partition counts, refreshed when they are older than metadata.max.age.ms."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from muster.client.calls.methods import METADATA
from muster.client.calls.transport import Transport, now_ms
from muster.client.errors import UnknownTopic, refusal
from muster.storage.rpc.v1 import broker_service_pb2 as pb

if TYPE_CHECKING:
    from muster.client.config import ClientConfig
    from muster.client.connection import ConnectionConfig

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
