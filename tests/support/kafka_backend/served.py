"""`muster serve --engine kafka://...` in a process of its own, and topics in that Kafka."""

import asyncio
from collections.abc import Mapping

from muster.coordinator.config import parse_address
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.topic_requests import create_topic
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

SHARDS = 4


def over(kafka: str, cluster: str, **more: str) -> dict[str, str]:
    """Settings of a node over this broker; others by their names with underscores."""
    return {
        "engine": f"kafka://{kafka}",
        "engine.kafka.cluster": cluster,
        "engine.kafka.state.replication.factor": "1",
        "offsets.topic.num.partitions": str(SHARDS),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def make_topics(kafka: str, partitions: Mapping[str, int]) -> None:
    """In the upstream, by nobody's tools but the engine's own."""

    async def make() -> None:
        upstream = Upstream(UpstreamAddress((parse_address(kafka),)))
        try:
            await upstream.refresh([])
            for name, count in partitions.items():
                await create_topic(upstream, name, count, 1, {})
        finally:
            upstream.close()

    asyncio.run(make())
