"""What a node does with ZooKeeper, where `zookeeper.connect` names one: register, publish, and stand for controller.

Without a ZooKeeper at the start the node does not start; one that goes away later holds up nobody, since groups and
offsets lie in the node's own log.
"""

from collections.abc import Callable, Mapping

import structlog

from muster.coordinator.config import Address, Settings
from muster.coordinator.server.driver.clock import Clock
from muster.coordinator.server.service.observed import ObservedGroups
from muster.coordinator.zookeeper.connect import Session, SessionState
from muster.coordinator.zookeeper.controller import Controller
from muster.coordinator.zookeeper.observer import Observer, Tell
from muster.coordinator.zookeeper.paths import GRPC, PLAINTEXT, BrokerRegistration, endpoint
from muster.coordinator.zookeeper.registry import Registry, cluster_id_of

HEALTH = "zookeeper"
"""The name under which the health service says whether the node is in touch with ZooKeeper."""

log = structlog.get_logger("muster.zookeeper")


class ZooKeeperSide:
    """A node's session and what it keeps in ZooKeeper. Build it with `open`."""

    def __init__(self, session: Session, registry: Registry, controller: Controller, observer: Observer) -> None:
        self.session = session
        self.observer = observer
        self.groups = ObservedGroups(observer, session.connection_timeout_ms)
        self._registry = registry
        self._controller = controller
        self._on_touch: Callable[[bool], None] = lambda in_touch: None
        self._started = False
        session.on_state(self._session_changed)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        clock: Clock,
        registration: Callable[[], BrokerRegistration],
        topics: Callable[[], Mapping[str, int]],
        tell: Tell,
    ) -> "ZooKeeperSide":
        """Connect. `tell` gets what is seen of groups. Raises Unreachable, or ExtraMissing without kazoo."""
        session = Session(
            settings.zookeeper_connect,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
        )
        await session.open()
        registry = Registry(session, settings.node_id, registration, topics)
        return cls(session, registry, Controller(session, settings.node_id, clock.now_ms), Observer(session, tell))

    async def cluster_id(self, own: str | None, fresh: str) -> str:
        """See `cluster_id_of`. Raises IdTaken and OfACluster, too: a node that cannot register should leave
        nothing behind."""
        await self._registry.must_be_free()
        return await cluster_id_of(self.session, own, fresh)

    async def register(self) -> None:
        """See `Registry.register`."""
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
        """See `Registry.has_elsewhere`."""
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


def registration_of(grpc: Address, kafka: Address | None, now_ms: int) -> BrokerRegistration:
    """What the node says of itself: every door it has."""
    doors = [endpoint(GRPC, *grpc)] + ([endpoint(PLAINTEXT, *kafka)] if kafka is not None else [])
    host, port = kafka or grpc
    return BrokerRegistration(host, port, tuple(doors), now_ms)
