"""A node's groups and log in memory, and Kafka's handlers over them: made in a millisecond, without socket or disk."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Self

from muster.coordinator.config import Settings, load_settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge.cluster_view import ClusterView
from muster.coordinator.kafka.authorization.guard import HandlerGuard
from muster.coordinator.kafka.authorization.judge import NodeTopics
from muster.coordinator.kafka.connections.quota_enforcement import RequestQuotas
from muster.coordinator.kafka.dispatch import Dispatcher, next_connection_number
from muster.coordinator.kafka.handlers.configs import ConfigHandlers, GroupConfigs
from muster.coordinator.kafka.handlers.departed_readers import DepartedReaders
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.handlers import GroupHandlers, LogHandlers
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint
from muster.coordinator.kafka.handlers.partition_tools import SoleNodeHandlers
from muster.coordinator.kafka.handlers.quotas_and_users import DisabledAclHandlers, QuotaHandlers, ScramHandlers
from muster.coordinator.kafka.protocol import APIS, transactional_apis
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.limits import limits_of
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.security.authorizer import Authorizer
from muster.coordinator.security.quota_usage import NodeQuotas, UserCounts
from muster.coordinator.server.backend.node_services import member_exists
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import DriverCallbacks, DriverLimits, EngineDriver
from muster.coordinator.server.node.node import partition_counts, topic_ids
from muster.coordinator.server.transactions.transaction_coordinator import TransactionCoordinator
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests
from tests.fakes.memory_files import MemoryFiles
from tests.support.pace import pace

SHARDS = 2
QUIET_TURNS = 10
PATIENCE_S = 20.0


class Steady:
    """A clock for quotas that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class MemoryNode:
    """Use it in an `async with`. `bugs` has every event that broke a shard, and what broke the engine.

    With an `authorizer` its handlers have judges before them, with a `cluster` it is one of many nodes. A node that is
    `transactional` coordinates transactional ids.
    """

    def __init__(
        self,
        topics: dict[str, int],
        authorizer: Authorizer | None = None,
        quotas: NodeQuotas | None = None,
        cluster: ClusterView | None = None,
        *,
        transactional: bool = False,
        **settings: str,
    ) -> None:
        given = {"log.dirs": "/data", "listeners": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
        given["transaction.state.log.num.partitions"] = str(SHARDS)
        self._transactional = transactional
        self._settings: Settings = load_settings(None, given | settings)
        self._topics = topics
        self._authorizer = authorizer
        self._cluster = cluster
        self.acls: Callable[[Broker], object] = lambda broker: DisabledAclHandlers()
        """Makes who answers what is asked of access control lists."""
        self.quotas = quotas or NodeQuotas()
        self.bugs: list[str] = []

    async def __aenter__(self) -> Self:
        settings, clock = self._settings, NodeClock()
        self.broker = Broker("/data", settings, MemoryFiles(), clock_ms=clock.now_ms)
        for name, partitions in self._topics.items():
            self.broker.create_topic(name, partitions)
        engine = Engine(
            BrokerGroupLog(self.broker, SHARDS, settings.offsets_topic_segment_bytes),
            SHARDS,
            limits_of(settings),
            Shard,
            options=EngineOptions(on_bug=lambda event, error: self.bugs.append(f"{event}: {error!r}")),
        )
        engine.submit_all(TopicsChanged(partition_counts(self.broker), ids=topic_ids(self.broker)))
        engine.load(clock.now_ms())
        self.departed = DepartedReaders(
            clock.now_ms, lambda found: self.driver.submit_event(partition_for(found.group_id, SHARDS), found)
        )
        self.driver = EngineDriver(
            engine,
            clock,
            DriverLimits(max_parked=settings.max_parked_requests),
            DriverCallbacks(on_notice=self.departed.noticed, on_fatal=lambda error: self.bugs.append(repr(error))),
        )
        self.broker.on_topics_changed(self._topics_changed)
        self.requests = LogRequests.standalone(self.broker)
        endpoint = AdvertisedEndpoint(1, "127.0.0.1", 9092)
        self.transactions = (
            TransactionCoordinator(
                settings,
                self.broker,
                lambda: self.requests,
                self.driver,
                clock,
                next_connection_number,
                lambda error: self.bugs.append(repr(error)),
            )
            if self._transactional
            else None
        )
        records = LogHandlers(
            self.requests,
            lambda: endpoint,
            node_id=1,
            auto_create=True,
            directory=self.broker.data_dir,
            cluster=self._cluster,
            departed=self.departed,
            transactions=self.transactions,
        )
        groups = GroupHandlers(
            self.driver,
            shards=SHARDS,
            endpoint=lambda: endpoint,
            partitions=lambda: partition_counts(self.broker),
            log_span=lambda *place: (self.broker.start_offset(*place), self.broker.high_watermark(*place)),
            cluster=self._cluster,
            departed=self.departed,
            transactions=self.transactions,
            records=records,
        )
        configs = ConfigHandlers(
            self.requests, 1, GroupConfigs(GroupRequests(self.driver, SHARDS), self._cluster), self._cluster
        )
        guard = None
        if self._authorizer is not None:
            guard = HandlerGuard(self._authorizer, NodeTopics(self.broker.topics, auto_create=True))
        counts = UserCounts(self.quotas, partial(member_exists, engine))
        self.limiting_clock = Steady()
        limiting = RequestQuotas(self.quotas, lambda: partition_counts(self.broker), 1, counts, self.limiting_clock)
        handlers = (
            groups,
            records,
            configs,
            self.acls(self.broker),
            QuotaHandlers(None),
            ScramHandlers(None),
            SoleNodeHandlers(self.broker, 1),
        )
        apis = transactional_apis(2) if self._transactional else APIS
        self.dispatch = Dispatcher(handlers, guard=guard, limiting=limiting, apis=apis)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.transactions is not None:
            await self.transactions.close(PATIENCE_S)
        await self.requests.close()
        await self.driver.close(PATIENCE_S)
        self.broker.close()

    async def quiet(self) -> None:
        """Wait until all that does not wait for somebody else is done."""
        await turns()
        await until(lambda: self.driver.waiting == self.driver.parked or bool(self.bugs))
        await turns()

    def _topics_changed(self) -> None:
        self.driver.tell_all(TopicsChanged(partition_counts(self.broker), ids=topic_ids(self.broker)))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S * pace()):
        while not condition():
            await turns()


async def turns() -> None:
    """Let everything that is ready have its turn."""
    for _ in range(QUIET_TURNS):
        await asyncio.sleep(0)
