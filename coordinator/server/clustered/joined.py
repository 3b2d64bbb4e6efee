"""A node's part in its cluster, from its session at ZooKeeper to its copies: put together, begun and ended in order.

The order is CL-M2's: the door is bound, ZooKeeper met, the directory locked and its logs
recovered; then the node registers, and hears how the cluster stands before anybody else is answered.
"""

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from muster.coordinator.cluster.controller.effects import Note
from muster.coordinator.cluster.facts import NO_EPOCH, Endpoint, Node
from muster.coordinator.cluster.image import Changes
from muster.coordinator.config import Address, Settings
from muster.coordinator.config.security.tls import REPLICATION as DOOR
from muster.coordinator.edge.clock import monotonic_ms, wall_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.admin.adopting import adopt
from muster.coordinator.replication.admin.cluster_admin import ClusterAdmin
from muster.coordinator.replication.admin.planning import Planning
from muster.coordinator.replication.admin.producer_ids import ProducerIdBlocks
from muster.coordinator.replication.admin.showing import Showing
from muster.coordinator.replication.admin.topics import ClusterTopics
from muster.coordinator.replication.around import Around, Seated
from muster.coordinator.replication.asks_ends import AsksByDoor
from muster.coordinator.replication.controlling.seat import Seat, Surroundings
from muster.coordinator.replication.copies.rates import Rates
from muster.coordinator.replication.ends import EndsElsewhere
from muster.coordinator.replication.led_broker import LedBroker
from muster.coordinator.replication.requests import ClusterRequests
from muster.coordinator.replication.shards.coordinating import Coordinating
from muster.coordinator.replication.shards.group_log import ShardGroupLog
from muster.coordinator.replication.shards.last_word import LastWord
from muster.coordinator.replication.shards.warming import Warming
from muster.coordinator.replication.side import ClusterSide
from muster.coordinator.replication.view import ImageView
from muster.coordinator.replication.wire.door import NodeDoor
from muster.coordinator.replication.wire.link import Caller
from muster.coordinator.replication.wire.links import REPLICATION, Calling
from muster.coordinator.replication.wire.reaching import LinkError
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.led.engine import LedEngine
from muster.coordinator.server.clustered.asking import AsksElsewhere, Channels, credentials_of
from muster.coordinator.server.clustered.cluster_service import CLUSTER_SERVICE, ClusterService
from muster.coordinator.server.clustered.doors import client_doors
from muster.coordinator.server.clustered.figures import Figures
from muster.coordinator.server.clustered.groups import ClusterGroupCoordinator, groups_with_settings
from muster.coordinator.server.clustered.lost_power import LostPower
from muster.coordinator.server.clustered.metadata import ClusterBrokerService
from muster.coordinator.server.clustered.noting import Noting, tell_elections
from muster.coordinator.server.clustered.rules import internal_configs, rules_of
from muster.coordinator.server.clustered.shard_count import ShardCount
from muster.coordinator.server.clustered.touch import SessionLengths, Touch
from muster.coordinator.server.dispatch import Method, methods_of
from muster.coordinator.server.doors.told import Doors
from muster.coordinator.server.grpc.listener import AddressTaken, cure_of
from muster.coordinator.server.service.observed import ObservedGroups
from muster.coordinator.zookeeper.cluster.layout import SessionLength
from muster.coordinator.zookeeper.cluster.registration import Registration
from muster.coordinator.zookeeper.cluster.sessions import longest_session
from muster.coordinator.zookeeper.connect import Session, SessionState
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.observer import Observer, Tell
from muster.coordinator.zookeeper.registry import cluster_id_of
from muster.storage.broker.topic_requests import TopicRequests

if TYPE_CHECKING:
    from ssl import SSLContext

    from muster.coordinator.replication.wire.guard import Who
    from muster.coordinator.server.driver.drive import Driver
    from muster.coordinator.server.security.tls.listeners import Certificates
    from muster.coordinator.server.service.session import Sessions
    from muster.storage.broker.broker import Broker

ID_BYTES: Final = 16
SESSIONS_TO_A_CONTROLLER: Final = 3
"""A former controller's session may have to end first, and a new one reads what there is."""

log = structlog.get_logger("muster.cluster")


class NoController(ZooKeeperError):
    """Nobody said how the cluster stands."""


class Joined:
    """Made in the loop it lives in; `bind`, `meet`, `enter`, then `leave` and `close`."""

    side: ClusterSide
    view: ImageView
    broker: LedBroker
    """The log, for this node's doors."""
    requests: ClusterRequests
    group_log: ShardGroupLog
    engine: Callable[..., Engine]
    """Makes the engine of a node whose shards are the cluster's."""
    admin: ClusterAdmin

    def __init__(self, settings: Settings, certificates: "Certificates | None") -> None:
        door = settings.replication_door
        assert door is not None, "a node of a cluster has inter.broker.listeners"
        self._settings = settings
        self._certificates = certificates
        self._door = NodeDoor(door.address)
        self.session = Session(
            settings.zookeeper_connect,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
        )
        self._registration: Registration | None = None
        self._seat: Seat | None = None
        self._noting = Noting(self._elected)
        self._entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_touch: Callable[[bool], None] = lambda in_touch: None
        self._fail: Callable[[BaseException], None] = lambda why: None
        self._rates: Rates | None = None
        self._session_ms = 0
        """By which this node leads, all its life long: what ZooKeeper grants later on may be another."""
        self._ids: ProducerIdBlocks | None = None

    @property
    def bound(self) -> Address:
        """Where other nodes are answered; the port is known once it is bound."""
        return self._door.bound

    @property
    def is_controller(self) -> bool:
        return self._seat is not None and self._seat.is_controller

    def bind(self) -> None:
        """Take the port. Raises AddressTaken."""
        host, port = self._door.bound
        try:
            self._door.bind()
        except OSError as error:
            raise AddressTaken(f"cannot listen on {host}:{port}: {cure_of(error, 'inter.broker.listeners')}") from error

    def give_back(self) -> None:
        """Free a port that was never served."""
        self._door.give_back()

    async def meet(self, own: str | None, fresh: str, seen: Tell) -> str:
        """Connect, and agree on the cluster's id: `own` is what the data directory says, `fresh` the one for a new
        cluster. `seen` gets what is seen of groups. Raises Unreachable, ExtraMissing, ClusterMismatch."""
        await self.session.open()
        self.session.on_state(self._session_changed)
        self.observer = Observer(self.session, seen)
        self.groups = ObservedGroups(self.observer, self.session.connection_timeout_ms)
        return await cluster_id_of(self.session, own, fresh)

    async def enter(self, broker: "Broker", clients: Doors, may: "Who | None" = None) -> None:
        """Register, and return once it is known how the cluster stands. clients: where they are told to go. may: who
        is answered at the door between nodes; None: everybody.

        Raises OtherKind, IdTaken, ForeignTopics, NoController, and ZooKeeper's weather.
        """
        settings = self._settings
        doors = client_doors(clients)
        self._registration = registration = Registration(
            self.session,
            lambda: self._node(broker, doors),
            first=lambda: doors[0],
            wall_ms=wall_ms,
            on_registered=self._registered,
            on_taken=self._failed,
        )
        seat = self._seat = Seat(self.session, settings.node_id, rules_of(settings), self._surroundings())
        touch = Touch(self.session, monotonic_ms, lambda: seat.seated)
        around = Around(
            controller=lambda: None if seat.seated is None else Seated(*seat.seated),
            node_epoch=lambda: registration.epoch,
            register_anew=lambda: registration.anew(registration.epoch),
            broke=seat.broke,
            desk=seat,
            in_touch=lambda: self.session.state is SessionState.CONNECTED,
            session_ms=self.session.session_timeout_ms,
            heard=touch.heard,
        )
        self._touch = touch.look
        calling = Calling(Caller(broker.cluster_id, settings.node_id), tls=self._calls())
        self.side = ClusterSide.open(broker, self._door, settings, calling, around)
        self.view = ImageView(settings.node_id, self.side.image, lambda: self.side.replicas.cut_off)
        self.side.on_learned(self._learned)
        self.figures = Figures(
            self.side.image,
            self.side.replicas,
            self.side.elections.counted,
            lambda: self.is_controller,
            settings.min_insync_replicas,
        )
        self.side.on_learned(self.figures.learned)
        if broker.unclean:
            loose = rules_of(settings).loose_of
            self.side.on_learned(LostPower(broker, self.side, lambda: self._node(broker, doors), loose).look)
        self.side.on_learned(SessionLengths(self.side.image).learned)
        tls = None if self._certificates is None or (own := self._certificates.of(DOOR)) is None else own.tls()
        await self.side.start(tls=tls, may=may)
        await registration.prepare()
        session_ms = self._session_ms = self.session.session_timeout_ms
        mine = SessionLength(session_ms, broker.identity.directory_id)
        wait_ms = await longest_session(self.session, settings.node_id, mine)
        await adopt(self.session, broker, settings.node_id)
        await registration.register()
        registration.start()
        seat.start()
        rates = settings.leader_replication_throttled_rate, settings.follower_replication_throttled_rate
        self._rates = Rates(self.session, settings.node_id, rates, self.side.set_rates)
        self._rates.start()
        await self._hear()
        self._ids = ids = ProducerIdBlocks.of(self.session, settings.node_id)
        await ids.begin()
        self.broker = LedBroker(broker, self.side, ids.new_ids, ids.new_fence)
        self._channels = channels = Channels(self.view, credentials_of(self._certificates))
        self._asks_ends = asks = AsksByDoor(self.side.image, self.side.calling)
        self.view.elsewhere = AsksElsewhere(self.view, channels, asks)
        self._ends = EndsElsewhere(lambda place: self.broker.leader_of(*place)[0], asks, monotonic_ms, self._failed)
        self._ends.start()
        self.broker.asks_elsewhere(self._ends)
        self.requests = ClusterRequests(self.broker, self.side)
        self._showing = showing = Showing(self.side.image, self.side.on_learned)
        planning = Planning(self.side.image, settings, settings.default_replication_factor, random.randrange)
        topics = ClusterTopics(self.session, showing, planning, partial(os.urandom, ID_BYTES))
        self.requests.topics = cast(TopicRequests, topics)
        self.admin = ClusterAdmin(self.session, showing)
        self._count = ShardCount(self.session, settings.offsets_topic_num_partitions, self._failed)
        self.shards = await self._count.take()
        self._count.watch(self.side)
        self.group_log = ShardGroupLog(broker, self.side, self.shards, settings.offsets_topic_segment_bytes)
        self._coordinating = Coordinating(
            self.side,
            session_ms=session_ms,
            on_refusal=settings.broker_eviction_on_refusal,
            failed=self._failed,
            wait_ms=wait_ms,
        )
        self.engine = partial(
            LedEngine, authority=self._coordinating, commit_timeout_ms=settings.offsets_commit_timeout_ms
        )

    def coordinate(
        self,
        engine: Engine,
        driver: "Driver",
        clock_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
        sessions: "Sessions",
    ) -> None:
        """From now on have the groups of the shards that this node leads in the engine, which `engine` has made. fail:
        hears of mistakes of the program, and that the cluster has another number of shards than this node. sessions:
        members of a shard that is lost are sent away."""
        assert isinstance(engine, LedEngine), "it was made by `engine`"
        self._fail = fail
        self._coordinating.on_lost(sessions.end_shard)
        warming = None
        if self._settings.offsets_warm_replicas:
            warming = Warming(self.group_log, self.shards, engine.new_core, lambda: self.side.replicas.copies)
        self._coordinating.start(engine, driver, clock_ms, warming)
        self.side.desk.groups = partial(groups_with_settings, driver, self.view, self.shards)
        self.side.failure.add_done_callback(self._side_failed)

    # What its gRPC door offers.

    def group_service(self, *args: Any, **given: Any) -> ClusterGroupCoordinator:
        """Takes what `GroupCoordinator` takes."""
        return ClusterGroupCoordinator(self.view, *args, ends=self._ends, **given)

    def record_service(
        self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]
    ) -> ClusterBrokerService:
        return ClusterBrokerService(self.requests, self.view, advertised=advertised, room=room)

    def table(self) -> dict[str, Method]:
        """The calls that a node on its own has not."""
        service = ClusterService(
            self.broker.cluster_id,
            self.side.image,
            self.admin,
            self.side.elections,
            self._showing,
            min_isr=self._settings.min_insync_replicas,
            applied=lambda: {} if self._seat is None else self._seat.applied,
            touch=self._touch,
        )
        return methods_of(CLUSTER_SERVICE, service)

    async def let_go(self) -> None:
        """CL-A7: let the others lead what this node leads, as far as there is somebody; then it may stop."""
        settings = self._settings
        if not settings.controlled_shutdown_enable or self._seat is None or self._registration is None:
            return
        last_word = LastWord(self.side.image)
        last_word.owes(self._coordinating.units)
        self.side.desk.let_go = last_word.told
        for trial in range(settings.controlled_shutdown_max_retries + 1):
            if trial:
                await asyncio.sleep(settings.controlled_shutdown_retry_backoff_ms / 1000)
            try:
                answer = await self.side.ask_to_shut_down()
            except LinkError as error:
                log.info("the controller does not answer a shutdown", why=str(error))
                continue
            if answer.error is ErrorCode.NONE and not answer.remaining:
                await last_word.given()
                return
            log.info("the node still leads", code=answer.error.name, partitions=len(answer.remaining))

    async def close(self, grace_s: float = 1.0) -> None:
        """Be no part of it any more. What was copied is flushed; the session ends, and with it the registration."""
        self._on_touch = lambda in_touch: None
        if hasattr(self, "observer"):
            await self.observer.stop()
        if self._rates is not None:
            await self._rates.stop()
        if self._ids is not None:
            await self._ids.close()
        if self._seat is not None:
            await self._seat.close()
            self._noting.now()
        if hasattr(self, "_coordinating"):
            self._count.stop()
            await self._coordinating.stop()
        if hasattr(self, "_ends"):
            await self._ends.stop()
            self._asks_ends.close()
            await self._channels.close()
        if hasattr(self, "side"):
            await self.side.stop(grace_s)
        if self._registration is not None:
            await self._registration.stop()
        await self.session.close()
        self._door.give_back()

    # As `ZooKeeperSide` has it.

    def start(self, on_touch: Callable[[bool], None]) -> None:
        """Watch groups of that era, and say from now on whether ZooKeeper is in reach."""
        self._on_touch = on_touch
        self.observer.start()
        on_touch(self.session.state is SessionState.CONNECTED)

    def has_elsewhere(self, topic: str) -> bool:
        """All nodes know of the same topics."""
        return False

    def topics_changed(self) -> None:
        """Topics come from there."""

    # What the rest of the cluster is told.

    def _node(self, broker: "Broker", doors: tuple[Endpoint, ...]) -> Node:
        settings = self._settings
        told = settings.replication_advertised_address(self._door.bound.port)
        identity = broker.identity
        return Node(
            settings.node_id,
            NO_EPOCH,
            identity.directory_id,
            identity.unclean,
            (*doors, Endpoint(REPLICATION, *told)),
            settings.broker_rack or None,
            self._session_ms,
        )

    def _learned(self, changes: Changes) -> None:
        if not self._entered.done():
            self._entered.set_result(None)

    def _failed(self, why: BaseException) -> None:
        self._fail(why)

    def _side_failed(self, failure: "asyncio.Future[None]") -> None:
        if not failure.cancelled() and (why := failure.exception()) is not None:
            self._fail(why)

    def _registered(self, epoch: int) -> None:
        self.side.registered(epoch)

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            image=lambda: self.side.image,
            now_ms=monotonic_ms,
            wall_ms=wall_ms,
            draw_id=partial(os.urandom, ID_BYTES),
            configs_of=partial(internal_configs, self._settings),
            note=self._noting.heard,
            seen=lambda: self.side.controller_changed(),
        )

    def _elected(self, notes: Sequence[Note]) -> None:
        tell_elections(notes)
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
            seated = self._seat.seated if self._seat is not None else None
            who = "no node is" if seated is None else f"node {seated[0]} at {seated[1].host}:{seated[1].port} is"
            raise NoController(
                f"nobody said within {patience_s:.0f} s how the cluster stands: as far as ZooKeeper at "
                f"{self.session.connect} says, {who} its controller; look at the log of that node, and whether this "
                "one can reach it"
            ) from error

    def _session_changed(self, state: SessionState) -> None:
        self._on_touch(state is SessionState.CONNECTED)
        where = str(self.session.connect)
        match state:
            case SessionState.CONNECTED:
                log.info("in touch with ZooKeeper", zookeeper=where)
            case SessionState.SUSPENDED:
                log.warning("ZooKeeper is out of reach; what is in sync goes on", zookeeper=where)
            case SessionState.LOST:
                log.warning("the session is over; the node registers anew once it can", zookeeper=where)
