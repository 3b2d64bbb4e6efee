"""A single node's registration in ZooKeeper, and the groups that it watches there, where `zookeeper.connect` is set.

Without ZooKeeper at the start the node does not start. A ZooKeeper that goes away later delays nothing, since groups
and offsets lie in the node's own log. Positions of watched groups can be read, changed and deleted; each call waits
for ZooKeeper for a bounded time, off the loop, and what cannot be done becomes an error code.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

import structlog

from muster.assignors.api import TopicPartition
from muster.coordinator.config import Address, Settings
from muster.coordinator.core.model.effects import DeleteReply, OffsetCommitReply, OffsetDeleteReply
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.zookeeper.controller import PartitionController
from muster.coordinator.zookeeper.errors import ConnectionLost, ZooKeeperError
from muster.coordinator.zookeeper.group_observer import GroupHasMembers, GroupObserver, ReportGroup
from muster.coordinator.zookeeper.layout import GRPC_ENDPOINT, PLAINTEXT, BrokerZnode, format_endpoint
from muster.coordinator.zookeeper.lost_data import LOST_DATA, LostData, LostDataCheck
from muster.coordinator.zookeeper.node_registry import ZooKeeperRegistry, settle_cluster_id
from muster.coordinator.zookeeper.published_topics import OwnTopics
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

# Groups in ZooKeeper
# -------------------

Answer = TypeVar("Answer")


class ZooKeeperGroups:
    """The groups that this node watches in ZooKeeper, for the handlers."""

    def __init__(self, observer: GroupObserver, patience_ms: int) -> None:
        self._observer = observer
        self._patience_ms = patience_ms

    def knows(self, group_id: str) -> bool:
        return self._observer.knows(group_id)

    async def positions(self, group_id: str) -> Mapping[TopicPartition, int]:
        """What the group keeps in ZooKeeper; nothing when it is not there. Raises CoordinatorError: at once while
        ZooKeeper is known to be away."""
        if not self.knows(group_id):
            return {}
        try:
            if not self._observer.in_touch:
                raise ConnectionLost("ZooKeeper is out of reach; try again once it is back")
            return await self._patiently(self._observer.positions(group_id))
        except ZooKeeperError as error:
            raise CoordinatorError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the positions that {group_id!r} keeps in ZooKeeper cannot be read: {error}",
            ) from error

    async def set_positions(self, group_id: str, positions: Mapping[TopicPartition, int]) -> OffsetCommitReply:
        """Write them where the group keeps its positions in ZooKeeper; refused while it has members."""
        code, why = await self._changed(self._observer.write_positions(group_id, positions))
        return OffsetCommitReply(code, why)

    async def commit_positions(self, group_id: str, positions: Mapping[TopicPartition, int]) -> OffsetCommitReply:
        """Write them there, whoever is in the group: a member of its own time commits."""
        code, why = await self._changed(self._observer.commit_positions(group_id, positions))
        return OffsetCommitReply(code, why)

    async def delete_positions(self, group_id: str, partitions: Collection[TopicPartition]) -> OffsetDeleteReply:
        """Forget them where the group keeps them in ZooKeeper; refused while it has members."""
        code, why = await self._changed(self._observer.delete_positions(group_id, partitions))
        return OffsetDeleteReply(code, why, dict.fromkeys(partitions, ErrorCode.NONE) if not code else {})

    async def delete(self, group_id: str) -> DeleteReply:
        """Delete all that ZooKeeper has of it; refused while it has members."""
        code, why = await self._changed(self._observer.delete(group_id))
        return DeleteReply(code, why)

    async def _changed(self, change: Awaitable[None]) -> tuple[ErrorCode, str]:
        try:
            await self._patiently(change)
        except GroupHasMembers as error:
            return ErrorCode.NON_EMPTY_GROUP, str(error)
        except ZooKeeperError as error:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
        return ErrorCode.NONE, ""

    async def _patiently(self, answer: Awaitable[Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._patience_ms / 1000):
                return await answer
        except TimeoutError as error:
            raise ConnectionLost(f"ZooKeeper did not answer within {self._patience_ms} ms; try again") from error


# The registration
# ----------------

FOREIGN = "zookeeper-of-others"
"""The condition of a node whose ZooKeeper is another cluster's by now."""
LOSS_TOLD_MS = 600_000
"""How long health speaks of lost data once all that the node has is there again."""

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
        self._conditions: Conditions | None = None
        self._loss = LostDataCheck(session, lambda: registry.cluster_id, self._looked_for_loss)
        session.on_state(self._session_changed)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        clock: NodeClock,
        registration: Callable[[], BrokerZnode],
        topics: OwnTopics,
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
        """See `settle_cluster_id`. Raises NodeIdTaken and ClusterNodesRegistered, too: a node that cannot register
        should leave nothing behind."""
        await self._registry.check_id_is_free()
        self._registry.cluster_id = await settle_cluster_id(self.session, own, fresh)
        return self._registry.cluster_id

    async def register(self) -> None:
        """See `ZooKeeperRegistry.register`."""
        await self._registry.register()

    def start(self, on_touch: Callable[[bool], None], conditions: Conditions) -> None:
        """Publish the topics, stand for controller, watch groups, and tell `on_touch` whether ZooKeeper is in reach."""
        self._on_touch = on_touch
        self._conditions = conditions
        self._loss.start()
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
            await self._loss.stop()
            await self.observer.stop()
            await self._controller.stop()
            await self._registry.stop()
        await self.session.close()

    def _looked_for_loss(self, loss: LostData | None) -> None:
        """A node on its own has what it needs in its log: it writes again what it keeps in ZooKeeper."""
        if self._conditions is None:
            return
        if loss is None:
            self._conditions.clear(FOREIGN)
            return
        if loss.foreign:
            why = "this node is not registered there, but it serves; correct zookeeper.connect, or restore the data"
            self._conditions.report(FOREIGN, f"{loss.sentence}: {why}")
            return
        self._conditions.report(
            LOST_DATA,
            f"{loss.sentence}; this node writes its registration and topics there again, and nothing of its log is "
            "lost. Groups of the ZooKeeper era have lost their positions unless they keep them in the log, too "
            "(dual.commit.enabled): restore ZooKeeper's data, or set them with muster groups reset-offsets before "
            "their consumers start",
            lasting_ms=LOSS_TOLD_MS,
        )
        if loss.in_touch:
            self._registry.restore()
        else:
            self.session.forget_what_was_seen()

    def _session_changed(self, state: SessionState) -> None:
        self._on_touch(state is SessionState.CONNECTED)
        where = str(self.session.connect)
        match state:
            case SessionState.CONNECTED:
                log.info("connected to ZooKeeper again", zookeeper=where)
            case SessionState.SUSPENDED:
                log.warning("ZooKeeper is unreachable; the node continues to serve", zookeeper=where)
            case SessionState.LOST:
                log.warning(
                    "the ZooKeeper session has expired; the node registers again as soon as it can", zookeeper=where
                )


def build_registration(grpc: Address, kafka: Address | None, now_ms: int, protocol: str = PLAINTEXT) -> BrokerZnode:
    """What the node says of itself: every door it has. Clients of that era connect to Kafka's, those of 0.8 only if
    its protocol is PLAINTEXT."""
    ours = format_endpoint(GRPC_ENDPOINT, *grpc)
    if kafka is None:
        return BrokerZnode(endpoints=(ours,), timestamp_ms=now_ms)
    doors = (format_endpoint(protocol, *kafka), ours)
    if protocol != PLAINTEXT:
        return BrokerZnode(endpoints=doors, timestamp_ms=now_ms)
    return BrokerZnode(*kafka, doors, now_ms)
