"""A node's part in its upstream, from the start checks to the last acknowledgement: built, started and stopped in
order.

`KafkaBackend` lives in the loop it was made in: `meet`, `coordinate`, then `let_go` and `close`. It composes the
modules of `coordinator/kafka_backend`: the state topic, the state log, the shards' owner, the nodes' group,
transactions, the guard and the mirror. Kafka's tools may ask any node for the settings of a group:
`GroupOwnersClient` asks the owners, at their gRPC listeners, under the name in this node's own certificate
(KB-X12).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import grpc
import structlog

from muster.coordinator.core.model.types import Limits
from muster.coordinator.edge.background_tasks import BackgroundTask
from muster.coordinator.edge.cluster_view import ClientAddresses, ClusterView, monotonic_ms, wall_ms
from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka_backend import transaction_requests
from muster.coordinator.kafka_backend.backend_settings import (
    ownership_settings_of,
    state_topic_spec_of,
    upstream_address_of,
)
from muster.coordinator.kafka_backend.nodes_group import (
    AssignedCluster,
    NodesGroup,
    NodesGroupSettings,
    check_nodes_group,
)
from muster.coordinator.kafka_backend.proxy.proxy_principal import proxy_principal_check_of
from muster.coordinator.kafka_backend.proxy.request_splitting import groups_by_name
from muster.coordinator.kafka_backend.shard_owner import OwnerCallbacks, OwnerClocks, ShardOwner
from muster.coordinator.kafka_backend.shard_ownership import lease
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.kafka_backend.state_topic import (
    StateTopicWatch,
    UnusableUpstream,
    check_state_topic,
    prepare_state_topic,
)
from muster.coordinator.kafka_backend.transaction_requests import TransactionCommits, TransactionHandlers
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError, describe_address
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamLogEnds, UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.observability.metrics.instruments import KafkaBackendFigures
from muster.coordinator.rpc.v1.cluster_service_pb2 import DESCRIPTOR as CLUSTER
from muster.coordinator.rpc.v1.coordinator_service_pb2 import ListGroupsRequest, ListGroupsResponse
from muster.coordinator.runtime.engine import Engine, EngineOptions, MakeShard
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.server.backend.node_backend import BackendContext, RunningEngine
from muster.coordinator.server.backend.upkeep import NodeIdInUse
from muster.coordinator.server.cluster_backend.peer_listeners import (
    GROUPS,
    PATIENCE_S,
    PeerChannels,
    PeerGroupClient,
    addresses_by_listener,
    peer_credentials,
)
from muster.coordinator.server.kafka_backend.gated_engine import GatedEngine
from muster.coordinator.server.kafka_backend.group_migration import GroupAdoption, NodeOffsetMirror
from muster.coordinator.server.kafka_backend.grpc_services import CALLS, DrainService, UpstreamGroups, UpstreamRecords
from muster.coordinator.server.kafka_backend.security_store import UpstreamSecurity, prepare_security
from muster.coordinator.server.kafka_backend.upstream_diagnostics import (
    ShardDiagnostics,
    UpstreamDiagnostics,
    report_optional_bug,
)
from muster.coordinator.server.kafka_backend.upstream_logs import UpstreamLog, UpstreamRequests
from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
from muster.coordinator.server.rpc_dispatch import ServiceMethod, methods_of
from muster.coordinator.server.services.group_coordinator import GroupServiceContext
from muster.storage.errors import StorageError

if TYPE_CHECKING:
    pass


# Settings that only a group's owner knows (KB-X12)
# -------------------------------------------------

LIST: Final = f"{GROUPS}ListGroups"


class GroupOwnersClient(PeerGroupClient):
    """By their gRPC doors, as what this node's own certificate says it is."""

    def __init__(self, cluster: ClusterView, channels: PeerChannels) -> None:
        super().__init__(cluster, channels, None)

    async def with_settings(self, node: int) -> tuple[ErrorCode, tuple[str, ...]]:
        channel = self._channels.to(node)
        if channel is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, ()
        call: Any = channel.unary_unary(LIST, ListGroupsRequest.SerializeToString, ListGroupsResponse.FromString)
        try:
            said: ListGroupsResponse = await call(ListGroupsRequest(with_settings=True), timeout=PATIENCE_S)
        except grpc.aio.AioRpcError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, ()
        return error_code_of(int(said.error_code)), tuple(group.group_id for group in said.groups)


# The backend
# -----------

log = structlog.get_logger("muster.engine")


class UpstreamRefusedNode(StorageError):
    """A node cannot be started over this upstream; the text says why, and what to do."""


class KafkaBackend:
    """Made in the loop it lives in; `meet`, `coordinate`, then `let_go` and `close`."""

    broker: UpstreamLog
    """What there is of topics, for this node's doors."""
    requests: UpstreamRequests
    group_log: StateLog
    owning: ShardOwner
    topics: UpstreamTopics
    ends: UpstreamLogEnds
    state_topic: StateTopicWatch
    upstream_diagnostics: UpstreamDiagnostics
    mirroring: NodeOffsetMirror | None = None
    newcomers: GroupAdoption | None = None
    rights: UpstreamSecurity | None = None
    """Where anybody is asked what they may."""
    view: AssignedCluster
    """Which node has which shard."""
    admin: None = None

    def __init__(self, context: BackendContext) -> None:
        self._settings = settings = context.settings
        self._clock = context.clock
        self._doors = context.doors
        self._certificates = context.certificates
        self._started = AsyncExitStack()
        """The ends of what was started."""
        self.shards = settings.offsets_topic_num_partitions
        self.upstream = Upstream(upstream_address_of(settings))
        self._started.callback(self.upstream.close)
        self.shard_diagnostics = ShardDiagnostics(settings)
        self._principal = proxy_principal_check_of(settings, report_optional_bug("looking what clients may"))
        self.traffic: NodeProxyListener | None = None
        """Where Kafka's clients pass, once they do."""
        self._nodes: NodesGroup | None = None
        self._engine: Engine | None = None
        self._entering = BackgroundTask(self._failed)
        self._waits_until_s: float | None = None
        self._fail: Callable[[BaseException], None] = lambda why: None
        self._end_shard: Callable[[int], None] = lambda shard: None
        self._instance = uuid4().hex
        self._ended_by: BaseException | None = None
        """Why the node may not go on, where that is known before it is under way."""

    async def meet(self) -> None:
        """Look whether this upstream will do, and which topics there are. Raises UpstreamRefusedNode."""
        settings = self._settings
        batch_bytes = await self._check_upstream()
        self.ends = UpstreamLogEnds(
            self.upstream, self.topics, now_ms=self._clock.now_ms, patience_ms=settings.group_assignor_deadline_ms
        )
        self.broker = UpstreamLog(settings, self.upstream.view.cluster_id, self.topics, self.ends)
        self.requests = UpstreamRequests(self.broker)
        self.group_log = StateLog(batch_bytes)
        doors = self._doors()
        kafka = "" if doors.kafka is None else describe_address(doors.kafka)
        began_ms = wall_ms() - monotonic_ms()
        rules = ownership_settings_of(
            settings, self._instance, batch_bytes, began_ms, address=describe_address(doors.grpc), kafka=kafka
        )
        self.owning = self._owning_by(rules)
        self._nodes = self._nodes_by(rules, doors)
        self.view = self._nodes.view
        self.state_topic = self._made_state_topic()
        channels = PeerChannels(self.view, peer_credentials(self._certificates))
        self._started.push_async_callback(channels.close)
        self.view.elsewhere = GroupOwnersClient(self.view, channels)
        self.upstream_diagnostics = self._make_upstream_diagnostics()
        if settings.authorizer != "none":
            self.rights = UpstreamSecurity(settings, self.upstream, self._instance, self._stop_over)
            self._started.callback(self.rights.stop)

    async def _check_upstream(self) -> int:
        """How many bytes a batch of the state topic has room for. Nothing is written before all that can refuse this
        node has been asked (KB-N2). Raises UpstreamRefusedNode."""
        settings, wanted = self._settings, state_topic_spec_of(self._settings)
        try:
            is_new = await check_state_topic(self.upstream, wanted) is None
            self._has_ports_for_all()
            if self._principal is not None:
                await self._principal.check()
            if is_new:
                await check_nodes_group(
                    self.upstream, settings.engine_kafka_cluster, settings.engine_kafka_session_timeout_ms
                )
            await prepare_security(settings, self.upstream)
            batch_bytes = await prepare_state_topic(self.upstream, wanted)
            if is_new and self._principal is not None:  # some brokers tell no rights to a topic that is not there
                await self._principal.check()
            self.topics = UpstreamTopics(
                self.upstream,
                now_ms=self._clock.now_ms,
                refresh_ms=settings.engine_kafka_metadata_refresh_ms,
                gone_after_ms=settings.engine_kafka_topic_gone_after_ms,
                private=(settings.state_topic, settings.security_topic),
                on_trouble=self.shard_diagnostics.topics_troubled,
            )
            self._started.push_async_callback(self.topics.stop)
            await self.topics.refresh_topics()
        except (UnusableUpstream, UpstreamError) as error:
            raise UpstreamRefusedNode(f"engine is {settings.engine}, but {error}") from error
        return batch_bytes

    def _owning_by(self, rules: lease.OwnershipSettings) -> ShardOwner:
        return ShardOwner(
            self.upstream,
            self.group_log,
            self._settings.state_topic,
            self._settings.engine_kafka_cluster,
            rules,
            OwnerClocks(now_ms=monotonic_ms, wall_ms=wall_ms, engine_ms=self._clock.now_ms),
            OwnerCallbacks(
                on_served=self.shard_diagnostics.served,
                on_fenced=self._fenced,
                on_lost=self._lost,
                on_acked=self.shard_diagnostics.appends.took,
                on_stop=self._stop_for,
                on_bug=self._failed,
            ),
        )

    def _nodes_by(self, rules: lease.OwnershipSettings, doors: ClientAddresses) -> NodesGroup:
        return NodesGroup(
            self.upstream,
            self.owning,
            rules,
            NodesGroupSettings(
                cluster=self._settings.engine_kafka_cluster,
                shards=self.shards,
                heartbeat_ms=self._settings.engine_kafka_heartbeat_interval_ms,
                addresses=addresses_by_listener(doors),
            ),
            on_assigned=self.shard_diagnostics.log_assignment,
            on_trouble=self.shard_diagnostics.group_troubled,
            on_bug=self._failed,
        )

    def _made_state_topic(self) -> StateTopicWatch:
        settings = self._settings
        return StateTopicWatch(
            self.upstream,
            self.topics,
            state_topic_spec_of(settings),
            tell=self.owning.step,
            now_ms=monotonic_ms,
            refresh_ms=settings.engine_kafka_metadata_refresh_ms,
            mark_ms=settings.engine_kafka_owner_refresh_ms,
            on_bug=self._failed,
        )

    def _make_upstream_diagnostics(self) -> UpstreamDiagnostics:
        settings = self._settings
        return UpstreamDiagnostics(
            self.upstream,
            self.topics,
            shards=self.shards,
            mine=lambda shard: shard in self.owning.shards.stages(),
            ours=groups_by_name(
                settings.engine_kafka_groups, settings.engine_kafka_groups_except, settings.engine_kafka_cluster
            ),
            gone_after_ms=settings.engine_kafka_topic_gone_after_ms,
            principal=self._principal,
        )

    def _has_ports_for_all(self) -> None:
        """Raises UnusableUpstream for a broker that Kafka's clients could not be led to."""
        settings, first = self._settings, self._settings.engine_kafka_broker_id_first
        ids = range(first, first + len(settings.broker_ports))
        told_apart = settings.kafka_listeners and not settings.engine_kafka_broker_hosts
        for broker in sorted(self.upstream.view.brokers) if told_apart else ():
            if broker not in ids:
                raise UnusableUpstream(
                    f"the upstream has a broker of id {broker}, and engine.kafka.broker.ports "
                    f"({settings.engine_kafka_broker_ports}) has ports for the ids {ids[0]} to {ids[-1]} only; widen "
                    "it, or set engine.kafka.broker.id.first to the lowest id"
                )

    def engine(self, limits: Limits, make_shard: MakeShard, options: EngineOptions) -> GatedEngine:
        """That of a node whose shards the nodes' group assigns."""

        def told(shard: int, status: ShardStatus, why: str) -> None:
            self.owning.on_status(shard, status, why)
            options.on_status(shard, status, why)

        return GatedEngine(
            self.group_log,
            self.shards,
            limits_of_topic(limits, self.group_log.batch_bytes, self._settings.state_topic),
            make_shard,
            replace(options, on_status=told),
            authority=self.owning,
            commit_timeout_ms=self._settings.offsets_commit_timeout_ms,
            on_orphans=self.topics.recalled,
            on_read=self.topics.wanted,
            on_rejoin=self.topics.look_soon,
        )

    def coordinate(self, running: RunningEngine) -> None:
        """From now on have the groups of the shards that are this node's in the engine, which `engine` has made."""
        engine, driver, clock_ms = running.engine, running.driver, running.clock_ms
        assert isinstance(engine, GatedEngine), "it was made by `engine`"
        assert self._nodes is not None, "`meet` comes first"
        self._fail, self._end_shard = running.fail, running.sessions.end_shard
        if self.rights is not None:
            self.rights.judge(engine)
        if self._ended_by is not None:
            self._fail(self._ended_by)
        self._engine = engine
        self.owning.start(engine, driver.wake, driver.advance)
        self._started.push_async_callback(self.owning.stop)
        self._nodes.start()
        self._started.push_async_callback(self._nodes.stop)
        self.topics.start()
        self.state_topic.start()
        self._started.push_async_callback(self.state_topic.stop)
        self.upstream_diagnostics.start()
        self._started.push_async_callback(self.upstream_diagnostics.stop)
        self.newcomers = engine.newcomers = GroupAdoption(
            self.upstream, self.topics.partitions, self.group_log, engine, driver, clock_ms
        )
        self._started.push_async_callback(self.newcomers.stop)
        if self._settings.engine_kafka_offsets_mirror:
            given = self._settings, self.upstream, self.group_log, driver, self.shards, clock_ms
            self.mirroring = NodeOffsetMirror(*given)
            self.mirroring.start()
            self._started.push_async_callback(self.mirroring.stop)
        self._entering.start(self._enter(self._nodes), "entry to the nodes' group")
        self._started.callback(self._entering.cancel)

    async def met(self) -> None:
        """Return once this node knows the others, or was kept waiting, from when it was asked first, for as long as two
        rounds of their group take. Who answers earlier tells clients that there are none, and those give up the
        connections to them."""
        assert self._nodes is not None, "`coordinate` comes first"
        if self._waits_until_s is None:
            waits_s = 2 * self._settings.engine_kafka_session_timeout_ms / 1000
            self._waits_until_s = asyncio.get_running_loop().time() + waits_s
        with suppress(TimeoutError, UnusableUpstream):
            async with asyncio.timeout_at(self._waits_until_s):
                await self._nodes.entered()

    async def _enter(self, nodes: NodesGroup) -> None:
        """A node that the group refuses for good cannot go on."""
        try:
            await nodes.entered()
        except UnusableUpstream as error:
            self._fail(UpstreamRefusedNode(str(error)))

    def transactions_of(self, partitions: Callable[[], Mapping[str, int]]) -> Callable[[GroupRequests], object] | None:
        """What makes handlers of clients' transactions with positions of groups of these; None: they are refused
        (KB-E8). partitions: of the topics that positions may be in."""
        settings = self._settings
        if not settings.engine_kafka_transactions:
            return None

        def made(groups: GroupRequests) -> TransactionHandlers:
            committing = TransactionCommits(groups, self.owning.transactions)
            return TransactionHandlers(groups, committing, self.upstream, settings.state_topic, partitions)

        return made

    def waiting(self) -> list[transaction_requests.PendingTransaction]:
        """Positions in clients' transactions that have not ended, the oldest first."""
        return (
            []
            if self._engine is None
            else transaction_requests.pending_transactions_of(self._engine, self.owning.shards.served())
        )

    def look_at_transactions(self, conditions: Conditions) -> None:
        """Tell of those that do not end."""
        transaction_requests.report_open_transactions(conditions, self.waiting(), self._clock.now_ms())

    def figures(self) -> KafkaBackendFigures:
        """Of this moment."""
        shards, shard_diagnostics, waiting = self.owning.shards, self.shard_diagnostics, self.waiting()
        return KafkaBackendFigures(
            appends=shard_diagnostics.appends,
            unacked={shard: shards.unacked(shard) for shard in shards.stages()},
            owned=len(shards.served()),
            fenced=shard_diagnostics.fenced_total,
            fenced_records=shard_diagnostics.fenced_records_total,
            errors=self.upstream.errors,
            proxied={} if self.traffic is None else {"up": self.traffic.traffic.up, "down": self.traffic.traffic.down},
            proxy_connections=0 if self.traffic is None else self.traffic.connections,
            foreign_members={group: each.members for group, each in self.upstream_diagnostics.foreign.items()},
            topics_unseen=len(self.upstream_diagnostics.unseen),
            pending_positions=sum(each.positions for each in waiting),
            oldest_pending_ms=max(self._clock.now_ms() - waiting[0].since_ms, 0) if waiting else 0,
        )

    # -- what its gRPC door offers ------------------------------------------------------------------------------------

    def group_service(self, context: GroupServiceContext) -> UpstreamGroups:
        return UpstreamGroups(self.view, context, ends=self.ends, met=self.met)

    def record_service(self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]) -> UpstreamRecords:
        settings = self._settings
        return UpstreamRecords(
            self.requests,
            self.upstream,
            self.view,
            node_id=settings.node_id,
            bootstrap=",".join(map(describe_address, settings.upstream)),
            advertised=advertised,
            met=self.met,
            room=room,
        )

    def table(self) -> dict[str, ServiceMethod]:
        assert self._nodes is not None, "`meet` comes first"
        service = CLUSTER.services_by_name["Cluster"]
        return methods_of(service, DrainService(self._nodes, self.view, self._settings.state_topic), CALLS)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def let_go(self) -> None:
        """KB-F8: have the others take this node's shards, and leave their group; return once they have, or it takes too
        long."""
        if self._nodes is not None and not await self._nodes.leave(self._settings.shutdown_timeout_ms / 1_000):
            log.warning("the node stops with shards that no other node has taken yet", shards=len(self._nodes.mine))

    async def close(self) -> None:
        """Ask nobody any more: what was started ends, the last first, whatever fails of it. A second call does
        nothing."""
        await self._started.aclose()

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _fenced(self, shard: int) -> None:
        """Whether it is dealt to this node the group says; it is not taken anew before that."""
        self.shard_diagnostics.fenced(shard)

    def _lost(self, shard: int, why: str) -> None:
        self.shard_diagnostics.lost(shard, why)
        if self.mirroring is not None:
            self.mirroring.lost(shard)
        self._end_shard(shard)

    def _stop_over(self, why: BaseException) -> None:
        self._ended_by = why
        self._fail(why)

    def _stop_for(self, sentence: str) -> None:
        self._fail(NodeIdInUse(sentence))

    def _failed(self, why: BaseException) -> None:
        self._fail(why)


def limits_of_topic(limits: Limits, batch_bytes: int, topic: str) -> Limits:
    """KB-S3: what no record of the state topic has room for is refused before anything is changed: found out only when
    it is to be written, it would cost all groups of its shard what is not on record yet. A half, for a member that
    comes back may bring as much again."""
    return replace(
        limits,
        max_group_bytes=min(limits.max_group_bytes, batch_bytes // 2),
        group_bytes_of=f"max.message.bytes of the topic {topic}, of which nearly a half is for one group",
        too_large=ErrorCode.GROUP_MAX_SIZE_REACHED,
    )
