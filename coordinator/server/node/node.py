"""The composition root: one node made of its settings, started and stopped in order.

Chooses the backend (a data directory, a cluster, a Kafka), the listeners, and what observes the node; each of them is
imported only where a setting asks for it. Limits from the settings are handed to each part in its own terms.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from muster.assignors.plugin_pool import Isolation, IsolationLimits
from muster.coordinator.config import Address, Settings
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge.background_tasks import TASK_FAILURES, RestartedTask, TaskFailures
from muster.coordinator.edge.cluster_view import ClientAddresses
from muster.coordinator.edge.listener_base import ACTING
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.kafka.handlers.departed_readers import DepartedReaders
from muster.coordinator.rpc.v1 import coordinator_service_pb2
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.limits import limits_of
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.backend import node_services
from muster.coordinator.server.backend.assignor_inputs import (
    complete_work,
    loads_now,
    make_load_meter,
    mean_lag_before,
    partition_counts,
    topic_ids,
)
from muster.coordinator.server.backend.node_backend import BackendContext, MakeEngine, NodeBackend, RunningEngine
from muster.coordinator.server.backend.node_services import HEALTH_NAMES, make_method_table
from muster.coordinator.server.backend.standalone_backend import StandaloneBackend
from muster.coordinator.server.backend.upkeep import LogFreezer, ProcessResources, report_fatal_error
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import DriverCallbacks, DriverLimits, EngineDriver, PlanInputs
from muster.coordinator.server.grpc.adapter import GrpcCall, GrpcMethods
from muster.coordinator.server.grpc.listener import GrpcListener, TransportLimits
from muster.coordinator.server.grpc.load_limits import ConnectionLoadLimits
from muster.coordinator.server.listeners.kafka_listener import KafkaListenerContext, NodeKafkaListener
from muster.coordinator.server.node_events import (
    ConditionReporter,
    RebalanceLines,
    format_optional_address,
    log_listening,
    report_bug,
    report_contained,
    report_operator_calls,
    report_plan,
    report_stall,
    report_status,
    report_task_failure,
)
from muster.coordinator.server.rpc_dispatch import ServiceMethod
from muster.coordinator.server.services.central_groups import NO_ELECTION, CentralElection
from muster.coordinator.server.services.group_control import GroupControl
from muster.coordinator.server.services.group_coordinator import (
    ClientEndpoint,
    GroupServiceContext,
    GroupWatchers,
    SimulationRules,
)
from muster.coordinator.server.services.member_session import ServerSessions
from muster.coordinator.server.services.zookeeper_registration import HEALTH as ZOOKEEPER
from muster.coordinator.server.services.zookeeper_registration import ZooKeeperRegistration
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import RecordRequests
from muster.storage.errors import MalformedRequest as MalformedStorageRequest

if TYPE_CHECKING:
    from muster.coordinator.observability.history.group_changes import GroupChanges
    from muster.coordinator.observability.history.group_history import GroupHistory
    from muster.coordinator.server.listeners.http_listener import NodeHttpListener
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
    from muster.coordinator.server.monitoring.group_sampling import GroupObservation
    from muster.coordinator.server.monitoring.metrics_scrape import NodeMetrics
    from muster.coordinator.server.monitoring.rebalance_tracing import RebalanceTracing
    from muster.coordinator.server.security.node_security import NodeSecurity


# The backend and the Kafka listener by settings
# ----------------------------------------------


def make_kafka_listener(settings: Settings) -> "NodeKafkaListener | NodeProxyListener | None":
    """What serves Kafka's protocol, if anything does."""
    if not settings.kafka_listeners:
        return None
    if not settings.upstream:
        return NodeKafkaListener(settings)
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener

    return NodeProxyListener(settings)


def make_backend(context: BackendContext) -> NodeBackend:
    """That of a node with these settings. Raises AddressTaken."""
    settings = context.settings
    if settings.watch_enable:
        from muster.coordinator.server.watch_backend.watch_backend import KafkaWatchBackend, SegmentsWatchBackend

        of_segments = bool(settings.watch_segments)
        return (SegmentsWatchBackend if of_segments else KafkaWatchBackend)(context)
    if settings.upstream:
        from muster.coordinator.server.kafka_backend.kafka_node_backend import KafkaNodeBackend

        return KafkaNodeBackend(context)
    if settings.inter_broker_listeners:
        from muster.coordinator.server.cluster_backend.replicated_backend import ReplicatedBackend

        return ReplicatedBackend(context)
    return StandaloneBackend(context)


def cluster_service_names(settings: Settings) -> tuple[str, ...]:
    """What is served beside the rest, for health and reflection."""
    if not settings.inter_broker_listeners:
        return ()
    from muster.coordinator.server.cluster_backend.cluster_service import CLUSTER_SERVICE

    return (CLUSTER_SERVICE.full_name,)


# What observes the node
# ----------------------

observation_log = structlog.get_logger("muster.http")


def make_http_listener(settings: Settings) -> "NodeHttpListener | None":
    if settings.http_address is None:
        if settings.http_listeners:
            observation_log.info("no HTTP listener", why="it needs the extra web: pip install 'muster-groups[web]'")
        return None
    from muster.coordinator.server.listeners.http_listener import NodeHttpListener

    return NodeHttpListener(settings)


def make_metrics(settings: Settings, clock: NodeClock) -> "NodeMetrics | None":
    if settings.http_address is None:
        return None
    from muster.coordinator.server.monitoring.metrics_scrape import NodeMetrics

    return NodeMetrics(settings, clock)


def make_observation(
    settings: Settings, now_ms: Callable[[], int], on_look: Callable[[str], None]
) -> "GroupObservation | None":
    if not settings.observes:
        return None
    from muster.coordinator.server.monitoring.group_sampling import GroupObservation

    return GroupObservation(settings, now_ms, on_look)


def make_tracing(settings: Settings) -> "RebalanceTracing | None":
    if settings.otel_exporter != "otlp":
        return None
    from muster.coordinator.server.monitoring.rebalance_tracing import RebalanceTracing

    return RebalanceTracing(settings)


async def close_observers(observing: "GroupObservation | None", tracing: "RebalanceTracing | None") -> None:
    """Sample no more, and hand over the traces that are left."""
    if observing is not None:
        observing.stop()
    if tracing is not None:
        await tracing.close()


def active_cores(engine: Engine) -> Iterator[Shard]:
    """The shards that are there, to be looked at."""
    for shard in range(engine.shards):
        core = engine.core(shard)
        if isinstance(core, Shard):
            yield core


# Limits by settings
# ------------------

GROUP_SERVICE: Final = coordinator_service_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"]

UNBOUNDED: Final = 1 << 30
"""More bytes than any answer has."""


ENVELOPE_BYTES: Final = 1 << 20
"""More than all names in a JoinGroup take."""


def join_limit_bytes(settings: Settings) -> dict[str, int]:
    """What a member offers has to fit into its group's record, with room for the names around it."""
    return {f"/{GROUP_SERVICE.full_name}/JoinGroup": limits_of(settings).max_group_bytes + ENVELOPE_BYTES}


def answer_room(call: object) -> int:
    """How many bytes the answer to a call should have at most. What is asked within this process is not sent."""
    return call.answer_room if isinstance(call, GrpcCall) else UNBOUNDED


def isolation_limits(settings: Settings) -> IsolationLimits:
    return IsolationLimits(
        mode=settings.group_assignor_isolation,
        max_processes=settings.group_assignor_max_processes,
        max_memory_bytes=settings.group_assignor_max_memory_bytes,
    )


def burden_limits(settings: Settings) -> ConnectionLoadLimits:
    return ConnectionLoadLimits(
        max_calls=settings.grpc_max_streams_per_connection, max_unsent_bytes=settings.grpc_max_unsent_bytes
    )


def transport_limits(settings: Settings) -> TransportLimits:
    return TransportLimits(
        max_message_bytes=settings.grpc_max_message_bytes,
        max_pending_calls=settings.grpc_max_pending_calls,
        max_streams_per_connection=settings.grpc_max_streams_per_connection,
        keepalive_time_ms=settings.grpc_keepalive_time_ms,
        keepalive_timeout_ms=settings.grpc_keepalive_timeout_ms,
        min_ping_interval_ms=settings.grpc_min_ping_interval_ms,
        setup_timeout_ms=settings.connection_setup_timeout_ms,
    )


LAST_WORDS_S = 0.5
"""How long the closing port waits for answers that are being sent."""

log = structlog.get_logger("muster.node")


class CoordinatorNode:
    """One node: log, shards, and the gRPC services over them. It lives on the event loop that makes it.

    `failed` is done when the node can keep its promises no longer: stop it then. Its log holds all that was promised.
    """

    driver: EngineDriver
    engine: Engine
    broker: RecordLog
    log_requests: RecordRequests
    methods: GrpcMethods

    def __init__(self, settings: Settings) -> None:
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._settings = settings
        self._clock = NodeClock()
        self._watchers = GroupWatchers(settings.max_watchers)
        self._lines = RebalanceLines(asyncio.get_running_loop().call_later)
        self._partitions: Mapping[str, int] = {}
        self._bound = Address(settings.listen_host, settings.listen_port)
        self.measuring = make_metrics(settings, self._clock)
        self._instruments = self.measuring.instruments if self.measuring else None
        self._kafka = make_kafka_listener(settings)
        # Over a Kafka clients fetch from that; in a cluster members of other groups join at other nodes.
        self._departed = DepartedReaders(
            self._clock.now_ms,
            lambda found: self.driver.submit_event(partition_for(found.group_id, self.engine.shards), found),
            all_members_here=not settings.inter_broker_listeners,
        )
        self._observing = make_observation(settings, self._clock.now_ms, self._watchers.looked_at)
        self._tracing = make_tracing(settings)
        self._http = make_http_listener(settings)
        self._central: CentralElection | None = None
        self.condition_reporter = ConditionReporter(
            self._clock, lambda: self._observing.changes.note("") if self._observing else None
        )
        self._task_failures = TaskFailures(partial(report_task_failure, self.condition_reporter.conditions))
        self._isolation = Isolation(isolation_limits(settings))
        # A simulation takes no place from a group that waits for its plan.
        self._isolated_simulations = self._isolation.apart(max_processes=1)
        self._security: NodeSecurity | None = None
        self._serving = self._stopping = False
        self.has_engine = False
        """Whether there are groups. From then on somebody may have been answered."""

    @property
    def bound(self) -> Address:
        """Where the node listens; the port is known once it has started."""
        return self._bound

    @property
    def advertised(self) -> Address:
        """Where clients are told to connect."""
        return self._settings.advertised_address(self._bound.port)

    @property
    def kafka_bound(self) -> Address | None:
        """Where Kafka's protocol is served, if it is."""
        return self._kafka.bound if self._kafka else None

    @property
    def http_bound(self) -> Address | None:
        """Where HTTP is served, if it is."""
        return self._http.bound if self._http else None

    @property
    def changes(self) -> "GroupChanges | None":
        """Which groups change, as they do, if there is anybody to hear of it."""
        return self._observing.changes if self._observing else None

    @property
    def history(self) -> "GroupHistory | None":
        """What a sampler sees of the groups, if there is anybody to look at it."""
        return self._observing.history if self._observing else None

    async def start(self) -> Address:
        """Take the port, open the data directory, answer, and return where once the groups are replayed.

        A group is served as soon as its shard is loaded; until then its members hear COORDINATOR_LOAD_IN_PROGRESS.

        Raises BadCertificate and AddressTaken before anything on disk is touched, and the log's own errors (a data
        directory that is in use, foreign or unreadable) and ZooKeeper's (out of reach, node id taken, another cluster),
        the port given back. A directory is locked before ZooKeeper hears of it, a new one made after it has agreed.
        """
        TASK_FAILURES.set(self._task_failures)
        async with AsyncExitStack() as started:
            await self._start(started)
            log_listening(self._bound, self.kafka_bound, self.http_bound, self._settings.node_id)
            self._started = started.pop_all()
        return self._bound

    async def _start(self, started: AsyncExitStack) -> None:
        """started: receives the end of each part, once the part is there."""
        self._certificates = await node_services.load_certificates(self._settings)
        # The last lines of the log, and of the audit, come after everything else has ended.
        started.push_async_callback(lambda: node_services.stop_security(self._security))
        started.callback(self._lines.close)
        services = (
            HEALTH_NAMES + node_services.security_service_names(self._settings) + cluster_service_names(self._settings)
        )
        services += self._observing.services if self._observing else ()
        self._listener = GrpcListener(transport_limits(self._settings), services)
        self._bound = self._bound._replace(
            port=self._listener.bind(*self._bound, node_services.make_grpc_credentials(self._certificates))
        )
        started.push_async_callback(self._close_port)
        started.callback(self._isolation.close)
        if self._kafka is not None:
            self._kafka.bind()
            started.callback(self._kafka.give_back)
        if self._http is not None and not self._http.bind():
            self._http = self.measuring = self._instruments = None  # nobody will look: nothing is counted
            self._observing = self._observing if self._settings.scaler_enable else None
        if self._http is not None:
            started.callback(self._http.give_back)
        await self._open_backend(started)
        self._start_driver(started)
        table = report_operator_calls(self._table(started), tell := node_services.action_reporter(self._security))
        malformed: tuple[type[Exception], ...] = (MalformedGroupRequest, MalformedStorageRequest)
        if self._observing is not None:
            asked = partial(topic_ids, self.broker), lambda: self._partitions, self.driver.submit_event
            table |= self._observing.start(self.engine, self.broker, *asked, cluster=self._backend.cluster)
            malformed += self._observing.malformed
        if self._tracing is not None:
            table = self._tracing.listening(table)
        table = node_services.guard_methods(
            self._security, table, self._staging, lambda: self._partitions, self.engine, self.driver, self.history
        )
        gate = node_services.authenticator_of(self._security)
        limits = join_limit_bytes(self._settings), self._instruments, burden_limits(self._settings)
        self.methods = GrpcMethods(table, malformed, *limits, gate)
        conditions = self.condition_reporter.conditions
        started.callback(self._backend.upkeep(conditions, self.engine, self._fail).stop)
        await self._backend.resume_transactions(conditions)
        await self._listener.start(self.methods, **node_services.probe_authenticators(self._settings, gate))
        self._serving = True
        self.condition_reporter.start(self._listener.report)
        if self._kafka is not None:
            context = KafkaListenerContext(
                driver=self.driver,
                partitions=lambda: self._partitions,
                tell=tell,
                instruments=self._instruments,
                tls=node_services.listener_tls(self._certificates, "kafka"),
                security=self._security,
                departed=self._departed,
            )
            await self._backend.serve_kafka(self._kafka, context)
            started.push_async_callback(self._kafka.close, LAST_WORDS_S)
        if self._http is not None:
            from muster.coordinator.server.listeners.http_listener import NodeAccess

            self._measure()
            inside = NodeAccess(
                self,
                self._settings,
                table,
                malformed,
                conditions,
                self._clock,
                node_services.visibility_of(self._security),
                self._backend.cluster,
            )
            await self._http.start(inside, gate, node_services.listener_tls(self._certificates, "http"))
            started.push_async_callback(self._http.close, LAST_WORDS_S)
        if self._backend.zookeeper is not None:
            self._backend.zookeeper.start(
                lambda in_touch: self.condition_reporter.report_health(ZOOKEEPER, serving=in_touch), conditions
            )
        if self._central is not None:
            self._central.start()
            started.push_async_callback(self._central.stop)
        self.driver.opened(self._loaded_ms)
        await self.driver.all_loaded()

    async def _open_backend(self, started: AsyncExitStack) -> None:
        """The log, the place among others, and the groups."""
        self._backend = make_backend(BackendContext(self._settings, self._clock, self._certificates, self._doors))
        started.push_async_callback(self._backend.close)
        started.push_async_callback(self._backend.leave)
        started.push_async_callback(close_observers, self._observing, self._tracing)
        await self._backend.open(
            lambda seen: self.driver.submit_event(partition_for(seen.group_id, self.engine.shards), seen)
        )
        self.broker = self._backend.record_log
        self._security = await node_services.make_security(
            self._settings,
            self.broker.topics,
            self._backend.disk,
            self._certificates,
            await self._backend.rights_store(),
        )
        await self._backend.join(self._security, self._have_groups)

    async def stop(self) -> None:
        """Drain: refuse new calls, answer parked ones, flush and close the log, then close the port.

        One of many first lets others lead what it leads, as far as they can: its clients hear where to go while it
        answers them yet.
        """
        self._stopping = True
        log.info("draining", parked=self.driver.parked, in_flight=self.methods.in_flight)
        if self._central is not None:
            await self._central.stop()
        await self._backend.hand_over()
        await self._listener.announce_shutdown()
        self.methods.drain()
        for door in (self._kafka, self._http):
            if door is not None:
                door.drain()
        self._watchers.close()
        if self._observing is not None:
            self._observing.drain()
        self._sessions.close()
        await asyncio.sleep(0)  # handlers that had begun take their place in a flush
        await self._answer_everyone()
        await self._started.aclose()
        log.info("stopped")

    def _have_groups(self, make: MakeEngine, *, load: bool = False) -> None:
        """See `MakeGroups`. A node that is one of many is told again and again which groups are coordinated here."""
        settings = self._settings
        self.broker = self._backend.record_log
        options = EngineOptions(
            on_bug=report_bug,
            on_status=self._report_status,
            inbox_limit=settings.queued_max_requests,
            loads_elsewhere=True,
        )
        self.engine = make(limits_of(settings), Shard, options)
        self._partitions = partition_counts(self.broker)
        self._log_span = self._backend.log_span
        self.engine.submit_all(TopicsChanged(self._partitions, ids=topic_ids(self.broker)))
        self._loaded_ms = self._clock.now_ms()
        if load:
            self.engine.load(self._loaded_ms)

    def _report_status(self, shard: int, status: ShardStatus, why: str) -> None:
        report_status(self.condition_reporter.conditions, shard, status, why, self.engine.report(shard))
        if status is ShardStatus.ACTIVE and (zookeeper := self._backend.zookeeper) is not None:
            # What was seen of groups in ZooKeeper is no record: the shard has to be told again.
            zookeeper.observer.tell_again(lambda group_id: partition_for(group_id, self.engine.shards) == shard)

    def _start_driver(self, started: AsyncExitStack) -> None:
        self.has_engine = True
        self.driver = EngineDriver(
            self.engine,
            self._clock,
            DriverLimits(
                max_parked=self._settings.max_parked_requests,
                work_deadline_ms=self._settings.group_assignor_deadline_ms,
            ),
            DriverCallbacks(
                on_plan=partial(report_plan, self.condition_reporter.conditions),
                on_notice=self._noticed,
                on_fatal=self._fail,
                on_bug=report_contained,
                on_stall=partial(report_stall, self.condition_reporter.conditions),
            ),
            inputs=PlanInputs(
                complete=lambda work: complete_work(
                    work, self.engine, self._log_span, self._observing, self._backend.measured
                ),
                measure=make_load_meter(self.engine, self.broker, self._clock.now_ms),
            ),
            isolation=self._isolation,
            instruments=self._instruments,
        )
        started.push_async_callback(self._close_driver)
        self._sessions = ServerSessions(
            self.driver,
            shards=self.engine.shards,
            limit=self._settings.max_sessions,
            grace_ms=self._settings.group_reconnect_grace_ms,
            rights_of=node_services.topic_rights_of(self._security),
            central_epoch=lambda: NO_ELECTION if self._central is None else self._central.epoch,
        )
        zookeeper = self._backend.zookeeper
        if isinstance(zookeeper, ZooKeeperRegistration):  # in a cluster the shard's leader coordinates central groups
            self._central = CentralElection(
                zookeeper.session,
                self._settings.node_id,
                lambda: self.advertised,
                partial(active_cores, self.engine),
                self._sessions.end_central,
                self.condition_reporter.conditions,
            )
        self.broker.on_topics_changed(self._topics_changed)
        self._backend.coordinate(
            RunningEngine(self.engine, self.driver, self._clock.now_ms, self._fail, self._sessions)
        )
        if (disk := self._backend.disk) is not None:
            disk.on_logs_changed(LogFreezer().changed)

    def _measure(self) -> None:
        """Show what is counted what there is to be looked at."""
        from muster.coordinator.server.monitoring.metrics_scrape import NodeGauges

        assert self.measuring is not None, "a node with a listener counts"
        gauges = NodeGauges(
            *(
                self.driver,
                self.engine,
                self.condition_reporter.conditions,
                lambda: format_optional_address(self.advertised),
            ),
            kafka=self._kafka,
            http=self._http,
            methods=self.methods,
            fetches=self.log_requests,
            sessions=self._sessions,
            task_failures=self._task_failures.counts,
            cluster=self._backend.figures,
            upstream=self._backend.engine_figures,
            transactions=self._backend.transaction_figures,
            **node_services.security_gauges(self._certificates, self._security),
        )
        self.measuring.sees(self.engine, self.broker, lambda: self._partitions, self.history, gauges)

    def _noticed(self, notice: GroupChanged) -> None:
        if self._watchers.by_group:
            self._watchers.publish(notice)
        if self._kafka is not None and notice.entry is not None and notice.entry.moves:
            self._departed.noticed(notice)
        if self._http is not None and self._observing is not None:
            self._observing.noticed(notice)
        if self.measuring is not None:
            self.measuring.noticed(notice)
        if self._tracing is not None:
            self._tracing.noticed(notice)
        if self._central is not None:
            self._central.noticed(notice)
        if notice.entry is not None:
            self._lines.noticed(notice)

    def _table(self, started: AsyncExitStack) -> dict[str, ServiceMethod]:
        zookeeper = self._backend.zookeeper
        context = GroupServiceContext(
            driver=self.driver,
            watchers=self._watchers,
            sessions=self._sessions,
            shards=self.engine.shards,
            endpoint=lambda: ClientEndpoint(self._settings.node_id, *self.advertised),
            partitions=lambda: self._partitions,
            log_span=self._log_span,
            simulations=SimulationRules(
                isolation=self._isolated_simulations,
                deadline_ms=self._settings.group_assignor_deadline_ms,
                plugins=dict(limits_of(self._settings).plugins),
            ),
            snapshot_bytes=self._settings.grpc_max_message_bytes // 2,
            conditions=self.condition_reporter.conditions,
            resources=ProcessResources(
                self._settings.directory,
                self._loaded_ms,
                self.driver,
                self.engine.metrics,
                failed_logins=list if self._security is None else self._security.failures.recent,
            ).measure_resources,
            observed=zookeeper.groups if zookeeper is not None else None,
            central=self._central,
            history=self.history,
            rights_of=node_services.topic_rights_of(self._security),
        )
        groups = self._backend.group_service(context)
        self.log_requests = self._backend.requests
        records = self._backend.record_service(lambda: self.advertised, answer_room)
        self._staging = self._backend.staging()
        started.push_async_callback(self._close_requests)
        self._staging_upkeep = RestartedTask("staged records", self._staging.keep_up, returns=True)
        self._staging_upkeep.start()
        apart = self._backend.fences(self.driver, self.engine) | self._backend.transactions()
        before = partial(mean_lag_before, self.history, self._clock.now_ms)
        carried = partial(loads_now, self.history, self._clock.now_ms)
        control = GroupControl(self.driver, self.engine.shards, before, carried)
        return make_method_table(groups, control, records, self._staging) | apart | self._backend.table()

    def _topics_changed(self) -> None:
        before, self._partitions = self._partitions, partition_counts(self.broker)
        gone = tuple(sorted(before.keys() - self._partitions.keys()))
        change = TopicsChanged(self._partitions, gone, topic_ids(self.broker), by=ACTING.get())
        self.driver.tell_all(self._backend.add_topic_news(change))
        if self._backend.zookeeper is not None:
            self._backend.zookeeper.topics_changed()

    async def _answer_everyone(self) -> None:
        timeout_s = self._settings.shutdown_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._staging_upkeep.stop()
                await self._staging.close()
                await self.log_requests.close()
                await self.driver.close(timeout_s)
                await self.methods.quiet()
        except TimeoutError:
            log.warning("some requests were not answered in time", in_flight=self.methods.in_flight)

    async def _close_port(self) -> None:
        if self._serving:
            await self._listener.stop(LAST_WORDS_S)
        else:
            await self._listener.give_back()

    async def _close_driver(self) -> None:
        """That of a start that failed; a node that stops has had it answer everyone."""
        if not self._stopping:
            with suppress(TimeoutError):
                await self.driver.close(LAST_WORDS_S)

    async def _close_requests(self) -> None:
        """Those of a start that failed; a node that stops has answered them."""
        if not self._stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._staging.close()
                    await self.log_requests.close()

    def _doors(self) -> ClientAddresses:
        return ClientAddresses(self.advertised, self._kafka.advertised if self._kafka else None, self.http_bound)

    def _fail(self, bug: BaseException) -> None:
        report_fatal_error(bug)
        if not self.failed.done():
            self.failed.set_result(bug)
