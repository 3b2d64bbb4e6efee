"""A Kafka on loopback whose offsets topic a node watches, and the node that does."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from muster.coordinator.config import Settings
from muster.coordinator.core.model.records import GroupStored, MemberRecord
from muster.coordinator.core.watched.watched_shard import WatchedShard
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.watch.offsets_topic_reader import OFFSETS_TOPIC
from tests.fakes.upstream_broker import UpstreamBroker
from tests.fakes.upstream_catalog import Told, UpstreamCatalog
from tests.support.watched_batches import NOW_MS, batch, committed, facts

PATIENCE_S = 20.0
OUT_OF_RANGE = 1


class WatchedKafka:
    """One broker with an offsets topic, whose partitions have these batches."""

    def __init__(self, broker: UpstreamBroker, partitions: int) -> None:
        self.broker = broker
        self.catalog = UpstreamCatalog({1: broker})
        broker.answers |= {"Fetch": self._fetch, "DescribeConfigs": lambda request: struct("DescribeConfigsResponse")()}
        broker.answers["ListGroups"] = lambda request: struct("ListGroupsResponse")()
        broker.answers["DescribeLogDirs"] = lambda request: struct("DescribeLogDirsResponse")()
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.ends: dict[int, int] = defaultdict(int)
        self.holds_back = False
        """Fetches bring nothing."""
        self.make(partitions, b"one")

    def make(self, partitions: int, topic_id: bytes) -> None:
        """The topic, with nothing in it."""
        self.topic = Told(topic_id, partitions)
        self.logs.clear()
        self.ends.clear()
        self.catalog.all_know(**{OFFSETS_TOPIC: self.topic})
        for partition in range(partitions):
            self.catalog.ends[OFFSETS_TOPIC, partition] = (0, 0)

    def truncate(self) -> None:
        """Its leader has lost all records, as one that was elected uncleanly."""
        self.logs.clear()
        for partition in self.ends:
            self.ends[partition] = 0
            self.catalog.ends[OFFSETS_TOPIC, partition] = (0, 0)

    def grow(self, partitions: int) -> None:
        for partition in range(len(self.topic.leaders), partitions):
            self.catalog.ends[OFFSETS_TOPIC, partition] = (0, 0)
        self.topic.leaders = [1] * partitions

    def write(self, group: str, generation: int = 1, at_ms: int = NOW_MS) -> None:
        """A generation of the group, whose one member is new, and a position."""
        member = MemberRecord(f"m{generation}", None, "c", "/h", 60_000, 10_000, b"", b"")
        stored = GroupStored(group, "consumer", generation, "range", member.member_id, at_ms, (member,))
        partition = partition_for(group, len(self.topic.leaders))
        records = [*facts(stored, at_ms=at_ms), committed(group, at_ms=at_ms)]
        self.logs[partition].append(batch(records, self.ends[partition]))
        self.ends[partition] += len(records)
        self.catalog.ends[OFFSETS_TOPIC, partition] = (0, self.ends[partition])

    async def _fetch(self, request: Any) -> Any:
        await asyncio.sleep(0.005)
        told = [self._portion(part) for topic in request.topics for part in topic.partitions]
        return struct("FetchResponse")(
            responses=[struct("FetchResponse.responses")(topic=OFFSETS_TOPIC, partitions=told)]
        )

    def _portion(self, part: Any) -> Any:
        end = self.ends[part.partition]
        unread = part.fetch_offset < end and not self.holds_back
        records = b"".join(self.logs[part.partition]) if unread else b""
        return struct("FetchResponse.responses.partitions")(
            partition_index=part.partition,
            error_code=OUT_OF_RANGE if part.fetch_offset > end else 0,
            high_watermark=end,
            records=records,
        )


class Watching:
    """A node, and the Kafka that it watches."""

    def __init__(self, kafka: WatchedKafka, node: CoordinatorNode) -> None:
        self.kafka, self.node = kafka, node

    def groups(self) -> set[str] | None:
        """None: not all shards answer."""
        found: set[str] = set()
        for shard in range(self.node.engine.shards):
            core = self.node.engine.core(shard)
            active = self.node.engine.status(shard) is ShardStatus.ACTIVE
            if not active or not isinstance(core, WatchedShard) or core.excuse:
                return None
            found |= core.state.groups.keys() | core.state.offsets.keys()
        return found

    def told(self, group: str) -> list[tuple[int, int]]:
        """Number and generation of each entry of the group."""
        core = self.node.engine.core(partition_for(group, self.node.engine.shards))
        ledger = None if core is None else core.ledgers.get(group)
        return [] if ledger is None else [(each.number, each.generation) for each in ledger.entries.values()]

    def said(self) -> str:
        return "; ".join(each.sentence for each in self.node.condition_reporter.conditions.current())

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not so():  # noqa: ASYNC110 - nothing tells when a shard has learnt all
                await asyncio.sleep(0.005)


@asynccontextmanager
async def watching(kafka: WatchedKafka, **settings: Any) -> AsyncIterator[Watching]:
    """A node that watches it, and does not look."""
    address = kafka.broker.address
    given = {"watch_enable": True, "watch_poll_ms": 0, "http_listeners": "", "listeners": "127.0.0.1:0", **settings}
    node = CoordinatorNode(Settings(engine=f"kafka://{address.host}:{address.port}", **given))
    await node.start()
    try:
        yield Watching(kafka, node)
    finally:
        await node.stop()
