"""KB-T4 over a restart: positions of a topic that the first answers leave out stay, and it is planned with."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

from muster.coordinator.core.model.events import OffsetCommit, TopicsChanged
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import CatalogBeyondOrphans, LeasedEngine
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.upstream_broker import UpstreamBroker
from tests.fakes.upstream_catalog import Told, UpstreamCatalog
from tests.support.led_bench import HeldAuthority

GONE_AFTER = 60_000
ORDERS = Told(b"orders", 4)


class Node:
    """A life of a node with one shard."""

    def __init__(
        self, log: MemoryGroupLog, catalog: TopicsChanged, on_orphans: CatalogBeyondOrphans | None = None
    ) -> None:
        self.bugs: list[object] = []
        self.log = log
        self.engine = LeasedEngine(
            log,
            1,
            Limits(),
            Shard,
            options=EngineOptions(on_bug=lambda *bug: self.bugs.append(bug)),
            authority=HeldAuthority(),
            on_orphans=on_orphans,
        )
        self.engine.submit_all(catalog)
        self.engine.load_shard(0, 0)
        self.turn()

    def turn(self) -> None:
        for _ in range(3):  # what a step hands back to itself comes in a turn of its own
            self.engine.turn(1)
        self.log.flush([0])
        assert self.bugs == []

    def positions(self) -> list[tuple[str, int]]:
        core = self.engine.core(0)
        assert isinstance(core, Shard)
        return sorted(core.state.offsets.get("g", {}))

    def planned_with(self) -> dict[str, int]:
        core = self.engine.core(0)
        assert isinstance(core, Shard)
        return dict(core.state.partitions)


@contextmanager
def committed() -> Iterator[MemoryGroupLog]:
    log = MemoryGroupLog(1)
    node = Node(log, TopicsChanged({"orders": 4}, ids={"orders": ORDERS.id}))
    positions = {("orders", 0): CommittedOffset(7), ("orders", 2): CommittedOffset(9)}
    node.engine.submit(0, OffsetCommit(1, "g", "", None, -1, positions))
    node.turn()
    assert node.positions() == [("orders", 0), ("orders", 2)]
    yield log


def test_what_a_log_of_ones_own_does_not_have_is_gone() -> None:
    """The rule for all other engines, and what would be lost here without `on_orphans`."""
    with committed() as log:
        assert Node(log, TopicsChanged({})).positions() == []


def test_positions_stay_until_two_brokers_say_that_the_topic_is_gone() -> None:
    async def story(log: MemoryGroupLog) -> None:
        async with AsyncExitStack() as stack:
            brokers = {number: await stack.enter_async_context(UpstreamBroker()) for number in (1, 2)}
            told = UpstreamCatalog(brokers)
            told.all_know(orders=ORDERS)
            told.hidden.add("orders")  # rights were taken away before the node began
            upstream = Upstream(UpstreamAddress((brokers[1].address,), connect_s=5, answer_s=5))
            clock = [1_000]
            topics = UpstreamTopics(upstream, now_ms=lambda: clock[0], gone_after_ms=GONE_AFTER)
            await topics.refresh_topics()
            node = Node(log, topics.event(), topics.recalled)
            topics.on_change(node.engine.submit_all)
            assert (node.positions(), node.planned_with()) == ([("orders", 0), ("orders", 2)], {"orders": 3})
            assert topics.unseen() == {"orders": 0}
            for _ in range(3):
                clock[0] += GONE_AFTER
                await topics.refresh_topics()
            node.turn()
            assert node.positions() == [("orders", 0), ("orders", 2)]
            told.hidden.clear()
            await topics.refresh_topics()
            node.turn()
            assert (node.planned_with(), topics.unseen()) == ({"orders": 4}, {})
            told.all_forget("orders")
            for _ in range(2):
                await topics.refresh_topics()
                clock[0] += GONE_AFTER
            await topics.refresh_topics()
            node.turn()
            assert (node.positions(), node.planned_with()) == ([], {})
            await topics.stop()
            upstream.close()

    with committed() as log:
        asyncio.run(story(log))
