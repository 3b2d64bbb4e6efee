"""`group.protocol=zookeeper` on the ordinary consumer: a session, the nodes found through it, a store, a membership."""

import asyncio
import logging

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig
from muster.client.errors import IllegalState, ZookeeperAway, ZookeeperRefused
from muster.client.members.zookeeper_types import ZookeeperMemberSettings, build_registration, check_retry_time
from muster.client.membership.leaders import TopicLeaderSearch
from muster.client.membership.seam import Interest, Wake
from muster.client.membership.zookeeper_driver import ZookeeperDriver
from muster.client.membership.zookeeper_store import ConsumerClaims, ZookeeperStore
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer import RegisteredConsumer
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError, ZooKeeperUnreachable
from muster.coordinator.zookeeper.session import ZooKeeperSession

log = logging.getLogger("muster.client")


class ZookeeperJoining:
    """One session per consumer: its claims live and die with it."""

    resolves_patterns = True
    reports_positions = False

    def __init__(self, config: ConsumerConfig, transport: Transport) -> None:
        assert config.group_id is not None, "the properties were checked"
        self.settings = build_zookeeper_settings(config, config.group_id)
        self.store = ZookeeperStore(config, GroupCalls(transport, config.group_id), self._holding)
        self._config = config
        self._transport = transport
        self._session: ZooKeeperSession | None = None
        self._leaders: TopicLeaderSearch | None = None
        self._driver: ZookeeperDriver | None = None
        self._search: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect to ZooKeeper and find the nodes there, unless bootstrap.servers names them."""
        if self._session is not None:
            return
        config = self._config
        assert config.zookeeper_connect is not None, "the properties were checked"
        try:
            session = ZooKeeperSession(
                config.zookeeper_connect,
                session_timeout_ms=config.zookeeper_session_timeout_ms,
                connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            )
            await session.open()
        except ZooKeeperUnreachable as error:
            raise ZookeeperAway(str(error)) from error
        except ZooKeeperError as error:
            raise ZookeeperRefused(str(error)) from error
        try:
            await self._begin(session)
        except BaseException:
            await session.close()
            raise
        self._session = session
        self.store.attach(session)

    def membership(self, interest: Interest, wake: Wake) -> ZookeeperDriver:
        if self._session is None or self._leaders is None:
            raise IllegalState("not connected to ZooKeeper yet: open() comes first")
        if said := check_retry_time(self.settings):
            log.warning("%s", said)
        registration = build_registration(interest.topics, interest.regex, interest.black_list, self.settings.streams)
        self._driver = ZookeeperDriver(
            self._session,
            self.settings,
            registration,
            wake,
            self._brokers_changed,
            self._leaders.look,
            name=self._config.consumer_id,
            offsets=self.store.places,
        )
        return self._driver

    async def close(self) -> None:
        if self._search is not None:
            self._search.cancel()
            await asyncio.gather(self._search, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _begin(self, session: ZooKeeperSession) -> None:
        try:
            await RegisteredConsumer(session, self.settings.group_id, lambda what: None).prepare()
            self._leaders = TopicLeaderSearch(
                session, self._transport.use, self._config.servers if self._names_nodes else ()
            )
            if self._names_nodes or await self._leaders.search():
                return
        except (ZooKeeperError, MalformedZnode) as error:
            raise ZookeeperRefused(str(error)) from error
        raise ZookeeperAway(
            f"no node is registered in {layout.BROKER_IDS} of {session.connect} with a GRPC endpoint; start one "
            "with zookeeper.connect set, or give bootstrap.servers"
        )

    @property
    def _names_nodes(self) -> bool:
        return "bootstrap_servers" in self._config.model_fields_set

    def _holding(self) -> ConsumerClaims:
        if self._driver is None:
            return ConsumerClaims()
        machine = self._driver.machine
        return ConsumerClaims(machine.consumer_id, machine.generation, frozenset(machine.nodes))

    def _brokers_changed(self) -> None:
        if self._names_nodes or (self._search is not None and not self._search.done()):
            return
        self._search = asyncio.create_task(self._search_nodes())

    async def _search_nodes(self) -> None:
        session, leaders = self._session, self._leaders
        if session is None or leaders is None:
            return
        try:
            await session.connected()
            await leaders.search()
        except (ZooKeeperError, MalformedZnode) as error:
            log.warning("the nodes registered in ZooKeeper could not be read: %s", error)


def build_zookeeper_settings(config: ConsumerConfig, group_id: str) -> ZookeeperMemberSettings:
    return ZookeeperMemberSettings(
        group_id=group_id,
        strategy=config.partition_assignment_strategy,
        rebalance_retries=config.rebalance_max_retries,
        rebalance_backoff_ms=config.backoff_ms,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        exclude_internal_topics=config.exclude_internal_topics,
        streams=config.num_streams,
    )
