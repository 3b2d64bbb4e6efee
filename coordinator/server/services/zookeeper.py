"""What a node does with ZooKeeper, where `zookeeper.connect` names one: register, publish, and stand for controller.

Without a ZooKeeper at the start the node does not start; one that goes away later holds up nobody, since groups and
offsets lie in the node's own log.
"""

from collections.abc import Callable, Mapping

import structlog

from muster.coordinator.config import Address, Settings
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.services.observed import ZooKeeperGroups
from muster.coordinator.zookeeper.controller import PartitionController
from muster.coordinator.zookeeper.layout import GRPC_ENDPOINT, PLAINTEXT, BrokerZnode, format_endpoint
from muster.coordinator.zookeeper.observer import GroupObserver, ReportGroup
from muster.coordinator.zookeeper.registry import ZooKeeperRegistry, settle_cluster_id
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

HEALTH = "zookeeper"
"""The name under which the health service says whether the node is in touch with ZooKeeper."""

log = structlog.get_logger("muster.zookeeper")


class ZooKeeperRegistration:
    """A node's session and what it keeps in ZooKeeper. Build it with `open`."""

    def __init__(
        self,
        session: ZooKeeperSession,
        registry: ZooKeeperRegistry,
        controller: PartitionController,
        observer: GroupObserver,
    ) -> None:
        self.session = session
        self.observer = observer
        self.groups = ZooKeeperGroups(observer, session.connection_timeout_ms)
        self._registry = registry
        self._controller = controller
        self._on_touch: Callable[[bool], None] = lambda in_touch: None
        self._started = False
        session.on_state(self._session_changed)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        clock: NodeClock,
        registration: Callable[[], BrokerZnode],
        topics: Callable[[], Mapping[str, int]],
        tell: ReportGroup,
    ) -> "ZooKeeperRegistration":
        """Connect. `tell` gets what is seen of groups. Raises Unreachable, or ExtraMissing without kazoo."""
        session = ZooKeeperSession(
            settings.zookeeper_connect,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
        )
        await session.open()
        registry = ZooKeeperRegistry(session, settings.node_id, registration, topics)
        return cls(
            session,
            registry,
            PartitionController(session, settings.node_id, clock.now_ms),
            GroupObserver(session, tell),
        )

    async def cluster_id(self, own: str | None, fresh: str) -> str:
        """See `settle_cluster_id`. Raises IdTaken and OfACluster, too: a node that cannot register should leave
        nothing behind."""
        await self._registry.must_be_free()
        return await settle_cluster_id(self.session, own, fresh)

    async def register(self) -> None:
        """See `ZooKeeperRegistry.register`."""
        await self._registry.register()

    def start(self, on_touch: Callable[[bool], None]) -> None:
        """Publish the topics, stand for controller, watch groups, and tell `on_touch` whether ZooKeeper is in reach."""
        self._on_touch = on_touch
        self._started = True
        self._registry.start()
        self._controller.start()
        self.observer.start()
        on_touch(self.session.state is SessionState.CONNECTED)

    def has_elsewhere(self, topic: str) -> bool:
        """See `ZooKeeperRegistry.has_elsewhere`."""
        return self._registry.has_elsewhere(topic)

    def topics_changed(self) -> None:
        self._registry.changed()

    async def close(self) -> None:
        """Leave: the registration goes, and whoever waits to be controller hears of it at once."""
        self._on_touch = lambda in_touch: None
        if self._started:
            await self.observer.stop()
            await self._controller.stop()
            await self._registry.stop()
        await self.session.close()

    def _session_changed(self, state: SessionState) -> None:
        self._on_touch(state is SessionState.CONNECTED)
        where = str(self.session.connect)
        match state:
            case SessionState.CONNECTED:
                log.info("in touch with ZooKeeper again", zookeeper=where)
            case SessionState.SUSPENDED:
                log.warning("ZooKeeper is out of reach; the node goes on serving", zookeeper=where)
            case SessionState.LOST:
                log.warning("the session is over; the node registers anew once it can", zookeeper=where)


def build_registration(grpc: Address, kafka: Address | None, now_ms: int) -> BrokerZnode:
    """What the node says of itself: every door it has."""
    doors = [format_endpoint(GRPC_ENDPOINT, *grpc)] + (
        [format_endpoint(PLAINTEXT, *kafka)] if kafka is not None else []
    )
    host, port = kafka or grpc
    return BrokerZnode(host, port, tuple(doors), now_ms)
