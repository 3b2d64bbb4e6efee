"""A watching node goes on by itself when the offsets topic is made anew or given more partitions, and says so as long
as that lasts."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.core.model.records import GroupStored, MemberRecord
from muster.coordinator.core.watched.watched_shard import WatchedShard
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.watch import offsets_topic_reader
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

    def grow(self, partitions: int) -> None:
        for partition in range(len(self.topic.leaders), partitions):
            self.catalog.ends[OFFSETS_TOPIC, partition] = (0, 0)
        self.topic.leaders = [1] * partitions

    def write(self, group: str) -> None:
        """A generation of the group, and a position."""
        member = MemberRecord("m1", None, "c", "/h", 60_000, 10_000, b"", b"")
        stored = GroupStored(group, "consumer", 1, "range", "m1", NOW_MS, (member,))
        partition = partition_for(group, len(self.topic.leaders))
        records = [*facts(stored), committed(group)]
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

    def said(self) -> str:
        return "; ".join(each.sentence for each in self.node.condition_reporter.conditions.current())

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not so():  # noqa: ASYNC110 - nothing tells when a shard has learnt all
                await asyncio.sleep(0.005)


def run(
    story: Callable[[Watching], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> None:
    monkeypatch.setattr(offsets_topic_reader, "PAUSE_S", 0.001)
    monkeypatch.setattr(offsets_topic_reader, "LONG_PAUSE_S", 0.01)

    async def whole() -> None:
        async with UpstreamBroker() as broker:
            kafka = WatchedKafka(broker, 2)
            for group in ("orders", "pay", "mail", "audit"):
                kafka.write(group)
            engine = f"kafka://{broker.address.host}:{broker.address.port}"
            given = {"engine": engine, "watch_enable": True, "watch_poll_ms": 0, "http_listeners": "", **settings}
            node = CoordinatorNode(Settings(listeners="127.0.0.1:0", **given))
            await node.start()
            try:
                watching = Watching(kafka, node)
                await watching.until(lambda: watching.groups() == {"orders", "pay", "mail", "audit"})
                await story(watching)
            finally:
                await node.stop()

    asyncio.run(whole())


def test_groups_that_went_with_a_topic_that_was_made_anew_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(watching: Watching) -> None:
        watching.kafka.make(2, b"two")
        watching.kafka.write("pay")
        await watching.until(lambda: watching.groups() == {"pay"})
        await watching.until(lambda: not watching.said())

    run(story, monkeypatch)


def test_a_topic_with_more_partitions_is_told_until_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(watching: Watching) -> None:
        watching.kafka.holds_back = True
        watching.kafka.grow(5)
        for group in ("new", "newer", "newest"):
            watching.kafka.write(group)
        await watching.until(lambda: "has 5 partitions now, and had 2 before" in watching.said())
        watching.kafka.holds_back = False
        await watching.until(lambda: {"new", "newer", "newest", "orders", "pay"} <= (watching.groups() or set()))
        await watching.until(lambda: not watching.said())

    run(story, monkeypatch)


def test_a_ledger_s_directory_outlives_more_partitions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def nothing(watching: Watching) -> None:
        assert watching.node.engine.shards in (2, 3)

    run(nothing, monkeypatch, watch_ledger_dir=str(tmp_path / "ledger"))
    grown = WatchedKafka.__init__

    def three(self: WatchedKafka, broker: UpstreamBroker, partitions: int) -> None:
        grown(self, broker, 3)

    monkeypatch.setattr(WatchedKafka, "__init__", three)

    async def kept(watching: Watching) -> None:
        assert watching.node.engine.shards == 2

    run(kept, monkeypatch, watch_ledger_dir=str(tmp_path / "ledger"))
