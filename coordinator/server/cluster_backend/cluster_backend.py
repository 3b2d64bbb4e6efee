"""A node's part in its cluster, from its session at ZooKeeper to its replicas: composed, started and stopped in order.

The order is CL-M2's: the listener is bound, ZooKeeper met, the directory locked and its logs recovered; then the
node registers, and receives how the cluster stands before any client is answered.

Elections are announced to other parts when a run of writes is over: clients wait for what is decided, and nothing
waits for the log line. A node whose machine lost power while it held loosely flushed logs registers as one that may
lack records (CL-Z4), until the cluster has settled that.
"""

import asyncio
import os
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from muster.coordinator.config import Address, Settings
from muster.coordinator.config.tls import REPLICATION as DOOR
from muster.coordinator.core.model.types import Limits
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.edge.cluster_view import ClientAddresses, monotonic_ms, wall_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin.cluster_admin import ClusterAdmin, ImageWaits
from muster.coordinator.replication.io.admin.node_configs import ReplicationRates
from muster.coordinator.replication.io.admin.producer_ids import ProducerIdBlocks
from muster.coordinator.replication.io.admin.topic_admin import ClusterTopics, TopicPlanner
from muster.coordinator.replication.io.admin.topic_adoption import adopt_topics
from muster.coordinator.replication.io.controller_candidate import CandidateContext, ControllerCandidate
from muster.coordinator.replication.io.inbound_requests import ControllerSide, CurrentController
from muster.coordinator.replication.io.remote_log_ends import LogEndsClient, RemoteLogEnds
from muster.coordinator.replication.io.remote_transactions import RemoteTransactions
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.replication.io.replicated_requests import ReplicatedRequests
from muster.coordinator.replication.io.shards.lease_release import ShutdownRelease
from muster.coordinator.replication.io.shards.replicated_shards import ReplicatedGroupLog, WarmShards
from muster.coordinator.replication.io.shards.shard_coordination import ShardCoordination
from muster.coordinator.replication.io.wire.node_links import (
    REPLICATION,
    LinkCaller,
    LinkError,
    LinkSettings,
    NodeLinks,
    address_in,
)
from muster.coordinator.replication.io.wire.node_listener import NodeListener
from muster.coordinator.replication.io.wire.node_proof import NodeProofs
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    OFFSETS,
    TRANSACTIONS,
    ClusterNode,
    ImageChanges,
    NodeEndpoint,
)
from muster.coordinator.replication.protocol.controller.controller_state import is_power_loss_settled
from muster.coordinator.replication.protocol.controller.events_and_effects import ElectionNote
from muster.coordinator.runtime.engine import EngineOptions, MakeShard
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend.node_backend import RunningEngine
from muster.coordinator.server.cluster_backend.cluster_aborts import ClusterAbortLog
from muster.coordinator.server.cluster_backend.cluster_description import (
    ClusterMetricsSource,
    ControllerContact,
    LeftOutTopics,
    SessionLengths,
    report_lost_data,
)
from muster.coordinator.server.cluster_backend.cluster_service import CLUSTER_SERVICE, ClusterService
from muster.coordinator.server.cluster_backend.cluster_settings import (
    ShardCount,
    controller_settings_of,
    internal_configs,
    read_partition_count,
)
from muster.coordinator.server.cluster_backend.cluster_transactions import ClusterTransactionCoordinator
from muster.coordinator.server.cluster_backend.group_service import (
    ClusterGroupCoordinator,
    ClusterImageView,
    groups_with_settings,
)
from muster.coordinator.server.cluster_backend.metadata_service import ClusterBrokerService
from muster.coordinator.server.cluster_backend.peer_listeners import (
    PeerChannels,
    PeerGroupClient,
    client_endpoints,
    peer_credentials,
)
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.grpc.listener import AddressTaken, describe_remedy
from muster.coordinator.server.rpc_dispatch import ServiceMethod, methods_of
from muster.coordinator.server.services.group_coordinator import GroupServiceContext
from muster.coordinator.server.services.zookeeper_registration import ZooKeeperGroups
from muster.coordinator.zookeeper.cluster.cluster_layout import SECRET_BYTES, SessionLength
from muster.coordinator.zookeeper.cluster.registration import (
    ClusterRegistration,
    read_login,
    record_session_length,
    settle_node_secret,
)
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.group_observer import GroupObserver, ReportGroup
from muster.coordinator.zookeeper.lost_data import LostDataCheck
from muster.coordinator.zookeeper.node_registry import settle_cluster_id
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession
from muster.storage.broker.broker import Broker
from muster.storage.service.broker_service import RecordTransactions

if TYPE_CHECKING:
    from ssl import SSLContext

    from muster.coordinator.replication.io.wire.node_listener import PeerIdentity
    from muster.coordinator.server.driver.driver import EngineDriver
    from muster.coordinator.server.security.listener_certificates import NodeCertificates


# Elections: when they are announced, and lines of the node's log
# ---------------------------------------------------------------

NAMED: Final = 5
"""Units that a line of many names; the ledger has all."""

SOON_S: Final = 0.05
LATE_S: Final = 0.5
MAX_HELD: Final = 2_000
"""Elections, of which to tell takes some milliseconds."""

election_log = structlog.get_logger("muster.cluster")


class ElectionNotices:
    """Elections are told of when a run of writes is over: clients wait for what is decided, nobody waits for what is
    said of it. That is SOON_S after the last write; LATE_S after the first, or when there are MOST_HELD, at the latest.

    Belongs to the loop's thread.
    """

    def __init__(self, tell: Callable[[Sequence[ElectionNote]], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._held: list[ElectionNote] = []
        self._first_s = self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def heard(self, notes: Sequence[ElectionNote]) -> None:
        """Of one write."""
        self._last_s = self._loop.time()
        self._held += notes
        if len(self._held) >= MAX_HELD:
            self.now()
        elif self._timer is None:
            self._first_s = self._last_s
            self._timer = self._loop.call_later(SOON_S, self._read_when_due)

    def now(self) -> None:
        """Tell what there is: the node is about to stop."""
        if self._timer is not None:
            self._timer.cancel()
        held, self._held, self._timer = self._held, [], None
        if held:
            self._tell(held)

    def _read_when_due(self) -> None:
        rest_s = min(self._last_s + SOON_S, self._first_s + LATE_S) - self._loop.time()
        if rest_s > 0.001:  # not so short that the clock does not see it
            self._timer = self._loop.call_later(rest_s, self._read_when_due)
        else:
            self.now()


class AlikeElections(NamedTuple):
    """What elections have in common that are told in one line."""

    before: int
    after: int
    clean: str
    cause: str


def log_elections(notes: Sequence[ElectionNote]) -> None:
    """What was decided in one write: a line for all elections that are alike. A line for each of a thousand would cost
    the controller more than to decide them."""
    found: dict[AlikeElections, list[ElectionNote]] = {}
    for note in notes:
        found.setdefault(AlikeElections(note.before, note.after, note.clean.value, note.cause), []).append(note)
    for alike, some in found.items():
        election_log.info(
            "elected" if alike.after >= 0 else "nobody leads",
            **(describe_election_line(some[0]) if len(some) == 1 else describe_elections_line(some)),
            **alike._asdict(),
        )


def describe_election_line(note: ElectionNote) -> dict[str, object]:
    return {"unit": str(note.unit), "epoch": note.epoch, "isr": list(note.isr), "took_ms": note.took_ms}


def describe_elections_line(notes: Sequence[ElectionNote]) -> dict[str, object]:
    named = [str(note.unit) for note in notes[:NAMED]]
    more = ["..."] if len(notes) > NAMED else []
    return {"count": len(notes), "units": named + more, "took_ms": max(note.took_ms for note in notes)}


# A node whose machine lost power (CL-Z4)
# ---------------------------------------

power_loss_log: Final = structlog.get_logger("muster.cluster")


class PowerLossMark:
    """node: as it registers; its epoch is not looked at. is_loose: whether a topic is flushed loosely, by what it
    sets."""

    def __init__(
        self,
        broker: Broker,
        side: ReplicaManager,
        node: Callable[[], ClusterNode],
        is_loose: Callable[[Mapping[str, str]], bool],
    ) -> None:
        self._broker = broker
        self._side = side
        self._node = node
        self._is_loose = is_loose

    def settle_power_loss(self, changes: ImageChanges) -> None:
        """The image is another. Once it shows that, it is written down, in a small file, on the loop."""
        node = replace(self._node(), epoch=self._side.replicas.node_epoch)
        if node.unclean and is_power_loss_settled(node, self._side.image, self._is_loose):
            self._broker.forget_unclean()
            power_loss_log.info(
                "replicas have copied what a power failure may have cost; this node counts as any other again"
            )


# The backend
# -----------

ID_BYTES: Final = 16
SESSIONS_TO_A_CONTROLLER: Final = 3
"""A former controller's session may have to end first, and a new one reads what there is."""

log = structlog.get_logger("muster.cluster")


class ControllerUnreachable(ZooKeeperError):
    """Nobody said how the cluster stands."""


class ClusterBackend:
    """Made in the loop it lives in; `bind`, `meet`, `enter`, then `leave` and `close`."""

    side: ReplicaManager
    view: ClusterImageView
    broker: ReplicatedLog
    """The log, for this node's doors."""
    requests: ReplicatedRequests
    group_log: ReplicatedGroupLog
    admin: ClusterAdmin

    def __init__(self, settings: Settings, certificates: "NodeCertificates | None") -> None:
        door = settings.replication_listener
        assert door is not None, "a node of a cluster has inter.broker.listeners"
        self._settings = settings
        self._certificates = certificates
        self._door = NodeListener(door.address)
        self.session = ZooKeeperSession(
            settings.zookeeper_connect,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
            login=read_login(settings.zookeeper_digest_file),
        )
        self.proofs: NodeProofs | None = None
        """By which nodes know each other that show no certificates (CL-N4)."""
        self._started = AsyncExitStack()
        """The ends of what was started."""
        self._registration: ClusterRegistration | None = None
        self._candidate: ControllerCandidate | None = None
        self._noting = ElectionNotices(self._elected)
        self._coordinating_ids: ShardCoordination | None = None
        """Of transactional ids."""
        self._entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_touch: Callable[[bool], None] = lambda in_touch: None
        self._fail: Callable[[BaseException], None] = lambda why: None
        self._session_ms = self._wait_ms = 0
        """By which this node leads, all its life long: what ZooKeeper grants later on may be another."""

    @property
    def bound(self) -> Address:
        """Where other nodes are answered; the port is known once it is bound."""
        return self._door.bound

    @property
    def is_controller(self) -> bool:
        return self._candidate is not None and self._candidate.is_controller

    def bind(self) -> None:
        """Take the port. Raises AddressTaken."""
        host, port = self._door.bound
        try:
            self._door.bind()
        except OSError as error:
            raise AddressTaken(
                f"cannot listen on {host}:{port}: {describe_remedy(error, 'inter.broker.listeners')}"
            ) from error
        self._started.callback(self._door.give_back)

    async def meet(self, own: str | None, fresh: str, seen: ReportGroup, copies: Collection[str] = ()) -> str:
        """Connect, and agree on the cluster's id: `own` is what the data directory says, `fresh` the one for a new
        cluster; copies: the cluster's topics that are in the data directory. `seen` gets what is seen of groups. Raises
        Unreachable, ExtraMissing, ClusterMismatch, ClusterForgotten."""
        self._started.push_async_callback(self.session.close)
        await self.session.open()
        self.session.on_state(self._session_changed)
        self.observer = GroupObserver(self.session, seen)
        self.groups = ZooKeeperGroups(self.observer, self.session.connection_timeout_ms)
        return await settle_cluster_id(self.session, own, fresh, copies)

    async def enter(self, broker: "Broker", clients: ClientAddresses, may: "PeerIdentity | None" = None) -> None:
        """Register, and return once it is known how the cluster stands. clients: where they are told to go. may: who
        is answered at the door between nodes; None: everybody.

        Raises MixedNodeKinds, NodeIdTaken, ForeignTopics, ControllerUnreachable, and ZooKeeper's weather.
        """
        settings = self._settings
        doors = client_endpoints(clients)
        self._registration = registration = ClusterRegistration(
            self.session,
            lambda: self._node(broker, doors),
            wall_ms=wall_ms,
            on_registered=self._registered,
            on_taken=self._failed,
        )
        candidate = self._candidate = ControllerCandidate(
            self.session, settings.node_id, controller_settings_of(settings), self._surroundings(broker)
        )
        touch = ControllerContact(self.session, monotonic_ms, lambda: candidate.seated)
        around = ControllerSide(
            controller=lambda: None if candidate.seated is None else CurrentController(*candidate.seated),
            node_epoch=lambda: registration.epoch,
            register_anew=lambda: registration.register_again(registration.epoch),
            broke=candidate.broke,
            desk=candidate,
            in_touch=lambda: self.session.state is SessionState.CONNECTED,
            session_ms=self.session.session_timeout_ms,
            heard=touch.heard,
        )
        self._touch = touch.describe_contact
        self.proofs = await self._prepare(registration, broker.cluster_id)
        calling = LinkSettings(LinkCaller(broker.cluster_id, settings.node_id, self.proofs), tls=self._calls())
        self.side = ReplicaManager.open(broker, self._door, settings, calling, around)
        self._started.push_async_callback(self.side.stop)
        self.view = ClusterImageView(settings.node_id, self.side.image, lambda: self.side.replicas.cut_off)
        self.side.on_learned(self._learned)
        self.figures = ClusterMetricsSource(
            self.side.image,
            self.side.replicas,
            self.side.elections.counted,
            lambda: self.is_controller,
            settings.min_insync_replicas,
            lambda: 0 if self.proofs is None else self.proofs.refused,
        )
        self.side.on_learned(self.figures.learned)
        if broker.unclean:
            loose = controller_settings_of(settings).loose_of
            self.side.on_learned(
                PowerLossMark(broker, self.side, lambda: self._node(broker, doors), loose).settle_power_loss
            )
        self.side.on_learned(SessionLengths(self.side.image).learned)
        tls = None if self._certificates is None or (own := self._certificates.of(DOOR)) is None else own.tls()
        await self.side.start(tls=tls, may=may)
        self._session_ms = self.session.session_timeout_ms
        mine = SessionLength(self._session_ms, broker.identity.directory_id)
        self._wait_ms = await record_session_length(self.session, settings.node_id, mine)
        await adopt_topics(self.session, broker, settings.node_id)
        await registration.register()
        registration.start()
        self._started.push_async_callback(registration.stop)
        candidate.start()
        self._started.push_async_callback(self._stand_no_longer, candidate)
        rates = settings.leader_replication_throttled_rate, settings.follower_replication_throttled_rate
        throttle = ReplicationRates(self.session, settings.node_id, rates, self.side.set_rates)
        throttle.start()
        self._started.push_async_callback(throttle.stop)
        await self._hear()
        ids = ProducerIdBlocks.of(self.session, settings.node_id)
        self._started.push_async_callback(ids.close)
        await ids.fetch_first_block()
        self.broker = ReplicatedLog(broker, self.side, ids.new_ids, ids.new_fence)
        channels = PeerChannels(self.view, peer_credentials(self._certificates))
        self._started.push_async_callback(channels.close)
        asks = LogEndsClient(self.side.image, self.side.calling)
        self._started.callback(asks.close)
        self.view.elsewhere = PeerGroupClient(self.view, channels, asks)
        self._ends = RemoteLogEnds(lambda place: self.broker.leader_of(*place)[0], asks, monotonic_ms, self._failed)
        self._ends.start()
        self._started.push_async_callback(self._ends.stop)
        self.broker.asks_elsewhere(self._ends)
        self._showing = showing = ImageWaits(self.side.image, self.side.on_learned)
        planning = TopicPlanner(self.side.image, settings, settings.default_replication_factor, random.randrange)
        topics = ClusterTopics(self.session, showing, planning, partial(os.urandom, ID_BYTES))
        self.requests = ReplicatedRequests(self.broker, self.side, topics)
        self.admin = ClusterAdmin(self.session, showing)
        count = ShardCount(self.session, settings.offsets_topic_num_partitions, self._failed)
        self.shards = await count.read_count()
        count.watch(self.side)
        self._started.callback(count.stop)
        self.group_log = ReplicatedGroupLog(broker, self.side, self.shards, settings.offsets_topic_segment_bytes)
        self._coordinating = self._make_coordination()

    def _make_coordination(self, topic: str = OFFSETS) -> ShardCoordination:
        """Of the shards that are partitions of the topic."""
        return ShardCoordination(
            self.side,
            session_ms=self._session_ms,
            on_refusal=self._settings.broker_eviction_on_refusal,
            failed=self._failed,
            wait_ms=self._wait_ms,
            topic=topic,
        )

    def engine(self, limits: Limits, make_shard: MakeShard, options: EngineOptions) -> LeasedEngine:
        """That of a node whose shards are the cluster's."""
        return LeasedEngine(
            self.group_log,
            self.shards,
            limits,
            make_shard,
            options,
            authority=self._coordinating,
            commit_timeout_ms=self._settings.offsets_commit_timeout_ms,
        )

    def coordinate(self, running: RunningEngine) -> None:
        """From now on have the groups of the shards that this node leads in the engine, which `engine` has made.
        `running.fail` hears of mistakes of the program, and that the cluster has another number of shards."""
        engine, driver = running.engine, running.driver
        assert isinstance(engine, LeasedEngine), "it was made by `engine`"
        self._fail = running.fail
        self._coordinating.on_lost(running.sessions.end_shard)
        warming = None
        if self._settings.offsets_warm_replicas:
            warming = WarmShards(self.group_log, self.shards, engine.new_core, lambda: self.side.replicas.copies)
        self._coordinating.start(engine, driver, running.clock_ms, warming)
        self._started.push_async_callback(self._coordinating.stop)
        self.side.desk.groups = partial(groups_with_settings, driver, self.view, self.shards)
        self.side.failure.add_done_callback(self._side_failed)

    def make_transactions(
        self, disk: Broker, driver: "EngineDriver", clock: NodeClock, fail: Callable[[BaseException], None]
    ) -> ClusterTransactionCoordinator:
        """Of the transactional ids of shards that this node leads. disk: this node's copies. driver: of its groups."""
        coordinating = self._coordinating_ids = self._make_coordination(TRANSACTIONS)
        self._started.push_async_callback(coordinating.stop)
        others = RemoteTransactions(self.side.calling, lambda node: address_in(self.side.image, node))
        self._started.push_async_callback(others.close)
        abort_log = ClusterAbortLog(
            disk,
            self.side,
            NodeLinks(self.side.calling, lambda node: address_in(self.side.image, node)),
            lambda: self.requests,
            self._settings.transaction_state_log_replication_factor,
            clock.now_ms,
        )
        made = ClusterTransactionCoordinator(
            self._settings,
            disk,
            self.broker,
            lambda: self.requests,
            driver,
            clock,
            fail,
            side=self.side,
            coordinating=coordinating,
            others=others,
            abort_log=abort_log,
            read_count=partial(read_partition_count, self.session, TRANSACTIONS),
        )
        self.side.desk.transactions = made
        return made

    # What its gRPC door offers.

    def group_service(self, context: GroupServiceContext) -> ClusterGroupCoordinator:
        return ClusterGroupCoordinator(self.view, context, self._ends)

    def record_service(
        self,
        advertised: Callable[[], tuple[str, int]],
        room: Callable[[Any], int],
        transactions: RecordTransactions | None = None,
    ) -> ClusterBrokerService:
        return ClusterBrokerService(
            self.requests, self.view, advertised=advertised, room=room, transactions=transactions
        )

    def table(self) -> dict[str, ServiceMethod]:
        """The calls that a node on its own has not."""
        service = ClusterService(
            self.broker.cluster_id,
            self.side.image,
            self.admin,
            self.side.elections,
            self._showing,
            min_isr=self._settings.min_insync_replicas,
            applied=lambda: {} if self._candidate is None else self._candidate.applied,
            touch=self._touch,
        )
        return methods_of(CLUSTER_SERVICE, service)

    async def let_go(self) -> None:
        """CL-A7: let the others lead what this node leads, as far as there is somebody; then it may stop."""
        settings = self._settings
        if not settings.controlled_shutdown_enable or self._candidate is None or self._registration is None:
            return
        last_word = ShutdownRelease(self.side.image)
        last_word.owes(self._coordinating.units)
        if self._coordinating_ids is not None:
            last_word.owes(self._coordinating_ids.units)
        self.side.desk.let_go = last_word.confirm_release
        for trial in range(settings.controlled_shutdown_max_retries + 1):
            if trial:
                await asyncio.sleep(settings.controlled_shutdown_retry_backoff_ms / 1000)
            try:
                answer = await self.side.ask_to_shut_down()
            except LinkError as error:
                log.info("the controller does not answer the request for a controlled shutdown", why=str(error))
                continue
            if answer.error is ErrorCode.NONE and not answer.remaining:
                await last_word.given()
                return
            log.info("the node still leads", code=answer.error.name, partitions=len(answer.remaining))

    async def close(self) -> None:
        """Be no part of it any more: what was started ends, the last first, whatever fails of it. What was copied is
        flushed; the session ends, and with it the registration. A second call does nothing."""
        self._on_touch = lambda in_touch: None
        await self._started.aclose()

    async def _stand_no_longer(self, candidate: ControllerCandidate) -> None:
        await candidate.close()
        self._noting.now()

    # As `ZooKeeperRegistration` has it.

    def start(self, on_touch: Callable[[bool], None], conditions: Conditions) -> None:
        """Watch groups of that era, and say from now on whether ZooKeeper is in reach, and whether it has lost its
        data."""
        self._on_touch = on_touch
        loss = LostDataCheck(self.session, lambda: self.broker.cluster_id, partial(report_lost_data, conditions))
        loss.start()
        self._started.push_async_callback(loss.stop)
        self.observer.start()
        self._started.push_async_callback(self.observer.stop)
        on_touch(self.session.state is SessionState.CONNECTED)

    def report_left_out(self, conditions: Conditions) -> None:
        """From now on say which topics in ZooKeeper no controller can take in."""
        left_out = LeftOutTopics(self.session, self.side.image, conditions)
        looking = RestartedTask("look at topics that are left out", left_out.look_again_and_again)
        looking.start()
        self._started.push_async_callback(looking.stop)

    def has_elsewhere(self, topic: str) -> bool:
        """All nodes know of the same topics."""
        return False

    def topics_changed(self) -> None:
        """Topics come from there."""

    # What the rest of the cluster is told.

    def _node(self, broker: "Broker", doors: tuple[NodeEndpoint, ...]) -> ClusterNode:
        settings = self._settings
        told = settings.replication_advertised_address(self._door.bound.port)
        identity = broker.identity
        return ClusterNode(
            settings.node_id,
            NO_EPOCH,
            identity.directory_id,
            identity.unclean,
            (*doors, NodeEndpoint(REPLICATION, *told)),
            settings.broker_rack or None,
            self._session_ms,
            proves=self.proofs is not None,
        )

    async def _prepare(self, registration: ClusterRegistration, cluster_id: str) -> NodeProofs | None:
        """What has to be in ZooKeeper before anything is said to other nodes; None where nodes show certificates, which
        say enough."""
        await registration.prepare()
        door = self._settings.replication_listener
        if door is None or door.encrypted:
            return None
        secret = await settle_node_secret(self.session, os.urandom(SECRET_BYTES))
        return NodeProofs(cluster_id, secret, lambda: self.side.image, asyncio.get_running_loop().time)

    def _learned(self, changes: ImageChanges) -> None:
        if not self._entered.done():
            self._entered.set_result(None)

    def _failed(self, why: BaseException) -> None:
        self._fail(why)

    def _side_failed(self, failure: "asyncio.Future[None]") -> None:
        if not failure.cancelled() and (why := failure.exception()) is not None:
            self._fail(why)

    def _registered(self, epoch: int) -> None:
        self.side.registered(epoch)

    def _surroundings(self, broker: "Broker") -> CandidateContext:
        return CandidateContext(
            image=lambda: self.side.image,
            now_ms=monotonic_ms,
            wall_ms=wall_ms,
            draw_id=partial(os.urandom, ID_BYTES),
            configs_of=partial(internal_configs, self._settings),
            copies=lambda: {name: topic.id for name, topic in broker.topics().items()},
            note=self._noting.heard,
            seen=lambda: self.side.controller_changed(),
        )

    def _elected(self, notes: Sequence[ElectionNote]) -> None:
        log_elections(notes)
        for note in notes:
            self.side.elections.note(note)

    def _calls(self) -> "Callable[[], SSLContext] | None":
        own = None if self._certificates is None else self._certificates.of(DOOR)
        return None if own is None else own.calling

    async def _hear(self) -> None:
        settings = self._settings
        patience_s = SESSIONS_TO_A_CONTROLLER * settings.zookeeper_session_timeout_ms / 1000
        try:
            async with asyncio.timeout(patience_s):
                await self._entered
        except TimeoutError as error:
            seated = self._candidate.seated if self._candidate is not None else None
            who = "no node is" if seated is None else f"node {seated[0]} at {seated[1].host}:{seated[1].port} is"
            raise ControllerUnreachable(
                f"no controller reported the state of the cluster within {patience_s:.0f} s: according to ZooKeeper at "
                f"{self.session.connect}, {who} its controller; check that node's log, and whether this node can reach "
                "it"
            ) from error

    def _session_changed(self, state: SessionState) -> None:
        self._on_touch(state is SessionState.CONNECTED)
        where = str(self.session.connect)
        match state:
            case SessionState.CONNECTED:
                log.info("connected to ZooKeeper", zookeeper=where)
            case SessionState.SUSPENDED:
                log.warning("ZooKeeper is unreachable; in-sync replicas continue", zookeeper=where)
            case SessionState.LOST:
                log.warning(
                    "the ZooKeeper session has expired; the node registers again as soon as it can", zookeeper=where
                )
