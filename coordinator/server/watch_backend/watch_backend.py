"""What a node that watches has in place of a log: the records that a Kafka keeps of the groups it coordinates, or
copies of their segments.

The state of groups is never stored here: it is read from that Kafka at each start. The ledger is, where a directory is
named for it, so that it outlives the Kafka's compaction.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from muster.coordinator.core.model.events import GroupSeen, GroupsVanished, RecordsWatched, TopicsChanged, WatchStood
from muster.coordinator.core.model.records import LedgerRecord, Record
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.watched.followed_evidence import FollowedEvidence
from muster.coordinator.core.watched.watched_shard import NOT_READ, WatchedShard
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.edge.cluster_view import ClusterView, wall_ms
from muster.coordinator.kafka_backend.backend_settings import upstream_address_of
from muster.coordinator.kafka_backend.upstream.group_requests import UNKNOWN_TOPIC
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError
from muster.coordinator.kafka_backend.upstream.topic_requests import describe_broker_config
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamLogEnds, UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.observability.views.formatting import part_of_size, plural
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.engine import Engine, EngineOptions, MakeShard
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.kafka_records import EncodedTurn, encode
from muster.coordinator.runtime.node_status import GROUPS, Conditions
from muster.coordinator.runtime.ports import Entry, GroupLog, KeyValue, LogDamage, LogFailed, LogWithoutTransactions
from muster.coordinator.runtime.replay import LEDGER_TOPIC
from muster.coordinator.runtime.shards import GROUPS as GROUP_SHARDS
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.backend.assignor_inputs import LogSpanOf, MeasuredSpans
from muster.coordinator.server.backend.node_backend import BackendContext, MakeGroups, NodeBackend, RunningEngine
from muster.coordinator.server.backend.node_services import FENCE_SERVICE
from muster.coordinator.server.backend.upkeep import ConditionLooks, NodeUpkeep
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.kafka_backend.backend import UpstreamRefusedNode
from muster.coordinator.server.kafka_backend.grpc_services import (
    OF_THAT_KAFKA,
    RefusedFencing,
    RefusedStaging,
    UpstreamPositions,
    UpstreamRecords,
)
from muster.coordinator.server.kafka_backend.upstream_logs import UpstreamLog, UpstreamRequests
from muster.coordinator.server.listeners.kafka_listener import KafkaListenerContext, NodeKafkaListener
from muster.coordinator.server.rpc_dispatch import RpcCall, ServiceMethod, methods_of
from muster.coordinator.server.services.group_coordinator import GroupCoordinator, GroupServiceContext
from muster.coordinator.server.transactions.transaction_rpcs import make_transaction_rpcs
from muster.coordinator.server.watch_backend.looked_kafka import LookedKafka, WatchedShards
from muster.coordinator.watch.broker_log import STDIN, NoBrokerLog, find_logs
from muster.coordinator.watch.followed_logs import FollowedLogs
from muster.coordinator.watch.offsets_topic_reader import GRANT, OFFSETS_TOPIC, OffsetsTopicReader, ReadingProgress
from muster.coordinator.watch.segment_files import NoSegments, SegmentFile, find_segments, read_segment
from muster.coordinator.watch.segment_workers import (
    SegmentNews,
    SegmentWork,
    WorkerFailed,
    read_by_worker,
    share_segments,
    usable_processors,
)
from muster.coordinator.watch.watched_commits import WatchedCommits
from muster.coordinator.watch.watched_partition import MOST_FACTS, WatchedFacts, WatchedPartition
from muster.coordinator.zookeeper.group_observer import ReportGroup
from muster.long_work import PieceSize
from muster.storage.broker.broker import Broker
from muster.storage.service.broker_service import BrokerService
from muster.storage.types import TopicPartition

if TYPE_CHECKING:
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
    from muster.coordinator.server.security.listener_certificates import NodeCertificates
    from muster.coordinator.server.security.node_security import NodeSecurity
    from muster.coordinator.server.security.security_store import SecurityStore

log = structlog.get_logger("muster.watch")

SHARDS_BY_DEFAULT: Final = 50
"""Kafka's offsets.topic.num.partitions, as long as nobody has committed anything."""

POSITIONS_S: Final = 1.0
"""How often new positions are passed on."""

TICK_S: Final = 0.25

SESSIONS_S: Final = 5.0
"""For asking after the session timeouts of groups before their past is read; looks ask after the rest."""

TOPICS_MS: Final = 30_000
"""Between two questions about all topics where nothing is read of groups: their members have not noticed any change."""

LOGS_S: Final = 1.0
"""How often it is looked whether the brokers' logs have grown."""

CHANGED_S: Final = 600.0
"""How long health tells that the topic lost what had been read of it: reading it again may take a moment only."""

SENTENCES_AT_ONCE: Final = 10
"""That are taken in one piece: each may explain a few rebalances."""

WATCHED_KAFKA: Final = "watched-kafka"

LOOKING: Final = "the groups are being looked at"
WATCHED_READING: Final = "watched-reading"


# The ledger's log
# ----------------


class LedgerLog(LogWithoutTransactions):
    """A group log that keeps the ledger alone, or nothing at all."""

    def __init__(self, kept: BrokerGroupLog | None) -> None:
        self._kept = kept

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        if self._kept is not None:
            self._kept.append(shard, (), ledger, now_ms)

    def flush(self, shards: Sequence[int]) -> None:
        if self._kept is not None:
            self._kept.flush(shards)

    def read_groups(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        return iter(())

    def read_ledger(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        return iter(()) if self._kept is None else self._kept.read_ledger(shard)


UNWRITTEN: Final = KeyValue(b"", None)


def count_ledger(records: Sequence[Record]) -> EncodedTurn:
    """Nothing is kept, so no bytes are made of anything: as many entries as there would be, for the metrics."""
    return EncodedTurn(ledger=[UNWRITTEN for each in records if isinstance(each, LedgerRecord)])


def encode_ledger_alone(records: Sequence[Record]) -> EncodedTurn:
    return encode(each for each in records if isinstance(each, LedgerRecord))


# The groups service
# ------------------


class WatchedDescriptions(GroupCoordinator):
    """As its base; a group's description says who coordinates it. watched: in words. commits: of what was read.

    Where a log ends is not known of copies of segments, nor of a topic that is gone or that this user may not describe:
    what is committed there is told without it.
    """

    def __init__(self, context: GroupServiceContext, watched: str, commits: WatchedCommits) -> None:
        super().__init__(context)
        self._watched = watched
        self._commits = commits

    async def describe_groups(self, request: pb.DescribeGroupsRequest, call: RpcCall) -> pb.DescribeGroupsResponse:
        answer = await super().describe_groups(request, call)
        for group in answer.groups:
            group.watched = self._watched
            for member in group.members:
                member.ClearField("last_heard_ms")  # heartbeats go to the brokers, who record none
        return answer

    async def offset_fetch(self, request: pb.OffsetFetchRequest, call: RpcCall) -> pb.OffsetFetchResponse:
        answer = await super().offset_fetch(request, call)
        if request.include_log_offsets:
            for topic in answer.topics:
                for row in topic.partitions:
                    row.log_offsets_unknown = not row.HasField("log_end_offset")
        return answer

    async def add_commits(self, answer: pb.OffsetFetchResponse, group_id: str) -> None:
        await self._commits.add_to(answer, group_id)


# The backend
# -----------


class WatchBackend:
    """What both kinds share: the groups, their ledger, and what a node that coordinates nothing refuses.

    Made in the loop it lives in; `open`ed, `join`ed, `coordinate`d, then `close`d.
    """

    zookeeper = figures = cluster = engine_figures = transaction_figures = None
    requests: UpstreamRequests
    record_log: UpstreamLog
    measured: MeasuredSpans | None = None
    shards = SHARDS_BY_DEFAULT
    _count = 0
    """Partitions of the topic; 0: nobody knows."""

    def __init__(self, context: BackendContext) -> None:
        self._settings = settings = context.settings
        self._clock = context.clock
        self._certificates = context.certificates
        self._started = AsyncExitStack()
        self.disk: Broker | None = None
        self._kept: BrokerGroupLog | None = None
        """The ledger's log, where a directory is named for it."""
        self._log_names = tuple(filter(None, settings.watch_broker_log.split(",")))
        self._logs = FollowedLogs(self._log_names)
        self._evidence = FollowedEvidence()
        self._reads = False
        self._commits = WatchedCommits(lambda: self._facts.partitions, lambda: self._count)
        self._standing: dict[int, str] = {}
        """By shard, why it cannot answer; empty: it can."""

    async def rights_store(self) -> "SecurityStore | None":
        """Raises UpstreamRefusedNode for a broker's log that is not there."""
        try:
            for path in self._log_names:
                if path != STDIN:
                    find_logs(Path(path))
        except NoBrokerLog as error:
            raise UpstreamRefusedNode(str(error)) from error
        return None

    async def join(self, security: "NodeSecurity | None", make_groups: MakeGroups) -> None:
        if self._settings.watch_ledger_dir:
            settings, cluster_id = self._settings, self.record_log.cluster_id or None
            directory = Path(settings.watch_ledger_dir)
            self.disk = await asyncio.to_thread(
                Broker, directory, settings, node_id=settings.node_id, cluster_id=cluster_id
            )
            self._fit_to_ledger(self.disk)
            size = settings.offsets_topic_segment_bytes
            self._kept = await asyncio.to_thread(BrokerGroupLog, self.disk, self.shards, size)
        make_groups(self._make_engine, load=True)

    def _fit_to_ledger(self, disk: Broker) -> None:
        """Before the ledger's log is opened: it keeps its shards, however many partitions the topic has by now."""
        ledger = disk.topics().get(LEDGER_TOPIC)
        if ledger is not None:
            self.shards = ledger.partitions

    def _make_engine(self, limits: Limits, make_shard: MakeShard, options: EngineOptions) -> Engine:
        def told(shard: int, status: ShardStatus, why: str) -> None:
            options.on_status(shard, status, why)
            if status is ShardStatus.ACTIVE and self._reads:
                self.read_again(shard)

        log_of_ledger: GroupLog = LedgerLog(self._kept)
        kind = replace(GROUP_SHARDS, encode=encode_ledger_alone)
        if self._kept is None:
            kind = replace(GROUP_SHARDS, encode=count_ledger, encode_in_portions=None)
        return Engine(log_of_ledger, self.shards, limits, WatchedShard, replace(options, on_status=told, kind=kind))

    def coordinate(self, running: RunningEngine) -> None:
        """From now on read, and let the shards know."""
        self._engine, self._driver = running.engine, running.driver
        ago_ms = self._settings.watch_since_ms
        self._facts = WatchedFacts(running.driver.submit_event, wall_ms() - ago_ms if ago_ms else None)
        for shard in range(self.shards):
            self.stand(shard, NOT_READ)
        self._reading = RestartedTask("watching groups", self._begin_reading, returns=True)
        self._reading.start()
        self._started.push_async_callback(lambda: self._reading.stop())

    async def _begin_reading(self) -> None:
        if self._log_names:
            self._logs.close()
            self._logs, self._evidence = FollowedLogs(self._log_names), FollowedEvidence()
            await asyncio.to_thread(lambda: self._evidence.take_lines(self._logs.lines()))
            self._facts.evidence = self._evidence
        await self._driver.all_loaded()
        for shard, excuse in self._standing.items():
            self._driver.submit_event(shard, WatchStood(excuse))
        self._reads = True
        await self.read()

    async def read(self) -> None:
        """Begin to read, or read all there is."""
        raise NotImplementedError

    def read_again(self, shard: int) -> None:
        """A shard was loaded anew, and has only the ledger: what it knew of groups has to be read once more."""
        raise NotImplementedError

    def stand(self, shard: int, excuse: str) -> None:
        """Why a shard cannot answer yet; empty: it can."""
        if self._standing.get(shard) != excuse:
            self._standing[shard] = excuse
            self._driver.submit_event(shard, WatchStood(excuse))

    async def pass_positions(self, partition: int, shard: int) -> None:
        more = True
        while more:
            more = self._facts.pass_positions(partition, shard)
            await asyncio.sleep(0)

    def trouble(self) -> str:
        """What keeps this node from seeing, as a sentence; empty: nothing."""
        return ""

    def unread(self) -> str:
        """Which groups are missing because their records are still being read, as a sentence; empty: none."""
        return next(filter(None, self._standing.values()), "")

    async def hand_over(self) -> None:
        """There is nobody to take over."""

    async def leave(self) -> None:
        await self._started.aclose()

    async def close(self) -> None:
        await self._started.aclose()
        self._logs.close()
        if self.disk is not None:
            await asyncio.to_thread(self.disk.close)

    # -- services -----------------------------------------------------------------------------------------------------

    @property
    def log_span(self) -> LogSpanOf:
        return self.record_log.span

    def add_topic_news(self, change: TopicsChanged) -> TopicsChanged:
        return change

    async def resume_transactions(self, conditions: Conditions) -> None:
        """There are none here that this node would coordinate."""

    def group_service(self, context: GroupServiceContext) -> GroupCoordinator:
        return WatchedDescriptions(context, self._settings.watched, self._commits)

    def record_service(self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]) -> BrokerService:
        return BrokerService(self.requests, node_id=self._settings.node_id, advertised=advertised, room=room)

    def table(self) -> dict[str, ServiceMethod]:
        return {}

    def staging(self) -> RefusedStaging:
        return RefusedStaging()

    def fences(self, driver: EngineDriver, engine: Engine) -> dict[str, ServiceMethod]:
        return methods_of(FENCE_SERVICE, RefusedFencing())

    def transactions(self) -> dict[str, ServiceMethod]:
        return make_transaction_rpcs(None, node_id=self._settings.node_id, remedy=OF_THAT_KAFKA)

    async def serve_kafka(self, door: "NodeKafkaListener | NodeProxyListener", context: KafkaListenerContext) -> None:
        raise AssertionError("settings refuse a Kafka listener beside watch.enable")

    def upkeep(self, conditions: Conditions, engine: Engine, fail: Callable[[BaseException], None]) -> "WatchUpkeep":
        return WatchUpkeep(self, conditions, self._certificates, self._disk_upkeep(conditions, engine, fail))

    def _disk_upkeep(
        self, conditions: Conditions, engine: Engine, fail: Callable[[BaseException], None]
    ) -> NodeUpkeep | None:
        """Of the ledger's directory: as of any node's."""
        if self.disk is None or self._kept is None:
            return None
        settings = self._settings.model_copy(update={"data_dir": Path(self._settings.watch_ledger_dir)})
        return NodeUpkeep(settings, self._clock, conditions, self.disk, self._kept, engine, fail)


# A Kafka's groups
# ----------------


class LoneView:
    """Of a node that has no others."""

    controller = -1

    def nodes(self, listener: str) -> list[Any]:
        return []


class WatchedGroupCoordinator(WatchedDescriptions, UpstreamPositions):
    def __init__(
        self, context: GroupServiceContext, watched: str, commits: WatchedCommits, ends: UpstreamLogEnds
    ) -> None:
        super().__init__(context, watched, commits)
        self.ends = ends


def describe_progress(progress: ReadingProgress) -> str:
    """Of one partition: how many bytes of how many have been read, or how many records where nobody tells its size.

    >>> describe_progress(ReadingProgress(90, 810, 1 << 20, 8 << 20)), describe_progress(ReadingProgress(90, 810))
    ('1 of 8 MiB', '10% of 900 records')
    """
    if progress.size_bytes:
        return part_of_size(progress.read_bytes, progress.size_bytes)
    whole = progress.records + progress.behind
    return f"{progress.records / whole:.0%} of {whole} records"


class KafkaWatchBackend(WatchBackend):
    """Reads a Kafka. Each partition of its offsets topic is a shard."""

    topics: UpstreamTopics
    ends: UpstreamLogEnds

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self.upstream = Upstream(upstream_address_of(context.settings))
        self._started.callback(self.upstream.close)
        self._troubles: dict[int, str] = {}
        """Partitions of the topic that cannot be read now, and why."""
        self._excuses: dict[int, str] = {}
        """By partition, why its groups cannot be answered for; empty: they can."""
        self._progress: dict[int, ReadingProgress] = {}
        """By partition, how far it has been read."""
        self._count = SHARDS_BY_DEFAULT
        """Partitions of the topic."""
        self._changed = ""
        """What the topic does not have any more, as a sentence, until it has been read again and `CHANGED_S` after."""
        self._changed_s = 0.0
        """When that was seen, by the loop's time."""
        self._topics_trouble = ""
        self._read: set[int] = set()
        """Partitions that have been read to where they ended, and are not answered for yet."""
        self._has_read = asyncio.Event()

    async def open(self, seen: ReportGroup) -> None:
        """Look at the Kafka. Raises UpstreamRefusedNode."""
        settings = self._settings
        self.topics = UpstreamTopics(
            self.upstream,
            now_ms=self._clock.now_ms,
            refresh_ms=max(settings.engine_kafka_metadata_refresh_ms, TOPICS_MS),
            gone_after_ms=settings.engine_kafka_topic_gone_after_ms,
            on_trouble=self._topics_troubled,
        )
        try:
            await self.topics.refresh_topics()
            view = await self.upstream.refresh([OFFSETS_TOPIC])
        except UpstreamError as error:
            raise UpstreamRefusedNode(f"engine is {settings.engine}, but {error}") from error
        self._started.push_async_callback(self.topics.stop)
        topic = view.topics.get(OFFSETS_TOPIC)
        self._found = topic is not None and bool(topic.parts)
        if topic is not None and topic.parts:
            self.shards = self._count = len(topic.parts)
        self._looks = LookedKafka(settings, self.upstream, self.topics, self._clock.now_ms, self)
        self.ends = UpstreamLogEnds(
            self.upstream, self.topics, now_ms=self._clock.now_ms, patience_ms=settings.group_assignor_deadline_ms
        )
        self.measured = self.ends.measured
        self.record_log = UpstreamLog(settings, view.cluster_id, self.topics, self.ends)
        self.requests = UpstreamRequests(self.record_log)

    async def read(self) -> None:
        settings, wanted = self._settings, self._wanted()
        if self.shards != self._count:
            self._facts.shard_of = lambda group_id: partition_for(group_id, self.shards)
        if self._log_names:
            following = RestartedTask("logs of the watched brokers", self._follow_logs)
            following.start()
            self._started.push_async_callback(following.stop)
        with suppress(UpstreamError, ValueError):  # one who may not ask concludes less
            told = await describe_broker_config(self.upstream, "group.consumer.session.timeout.ms")
            self._facts.session_ms = None if told is None else int(told)
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(SESSIONS_S):
                await self._looks.ask_all_sessions(settings.watch_group)
        self.topics.on_change(self._learn_names)
        self._learn_names(self.topics.event())
        self.topics.start()
        self._reader = OffsetsTopicReader(self.upstream, wanted, self)
        self._reader.start()
        self._started.push_async_callback(self._reader.stop)
        if settings.watch_poll_ms:
            self._looks.start()
            self._started.push_async_callback(self._looks.stop)
        passing = RestartedTask("positions of watched groups", self._pass_positions)
        passing.start()
        self._started.push_async_callback(passing.stop)

    def read_again(self, shard: int) -> None:
        """All partitions, where each may have groups of the shard."""
        if self._looks.hidden:
            self._looks.hide(True)
        for partition in self._wanted():
            if self._facts.shard_of is not None or partition == shard:
                self._reader.read_again(partition)

    def _wanted(self) -> range:
        """The partitions that are read."""
        if group := self._settings.watch_group:
            return range(place := partition_for(group, self._count), place + 1)
        return range(self._count)

    def unread(self) -> str:
        wanted = self._wanted()
        unread = [partition for partition in wanted if self._excuses.get(partition)]
        excuses = [self._excuses[partition] for partition in unread if partition not in self._troubles]
        if not excuses:
            return ""  # what cannot be read is said by `trouble`
        being_read = next((excuse for excuse in excuses if "is being read" in excuse), excuses[0])
        missing = f"{len(wanted) - len(unread)} of {plural(len(wanted), 'partition')} of {OFFSETS_TOPIC}"
        return f"{missing} read{self._bytes_read(wanted)}, groups of the others are missing: {being_read}"

    def _bytes_read(self, wanted: Iterable[int]) -> str:
        """Of all partitions together; "": not all leaders have told how large they are."""
        found = [self._progress.get(partition) for partition in wanted]
        known = [each for each in found if each is not None and (each.size_bytes or not each.behind)]
        if len(known) < len(found) or not any(each.size_bytes for each in known):
            return ""
        return f" ({part_of_size(sum(each.read_bytes for each in known), sum(each.size_bytes for each in known))})"

    def _learn_names(self, change: TopicsChanged) -> None:
        self._facts.learn_names(change.ids)

    # -- what the reader says -----------------------------------------------------------------------------------------

    def found_partitions(self, count: int) -> range:
        if count != self._count or not self._found:
            if self._found:
                self.changed(
                    f"{OFFSETS_TOPIC} has {plural(count, 'partition')} now, and had {self._count} before: what is "
                    "told of a group begins with what its new partition has"
                )
            self._found, self._count = True, count
            self._excuses.clear()
            self._facts.shard_of = lambda group_id: partition_for(group_id, self.shards)
        return self._wanted()

    def may_read(self, allowed: bool) -> None:
        self._looks.hide(not allowed)
        instead = (
            LOOKING if self._settings.watch_poll_ms else f"watch.poll.ms is 0, so nothing is looked at, and {GRANT}"
        )
        for partition in self._wanted():
            self._excuse(partition, f"{OFFSETS_TOPIC}-{partition} has not been read yet" if allowed else instead)

    def made_partition(self, partition: int, again: bool = False) -> WatchedPartition:
        if again:
            self._facts.heard[partition] = set()
        self._progress.pop(partition, None)
        self._excuse(partition, f"{OFFSETS_TOPIC}-{partition} has not been read yet")
        return self._facts.made_partition(partition)

    def took_batches(self, partition: int) -> None:
        if self._facts.pass_facts(partition, partition) and not self._excuses.get(partition):
            self._looks.stir()
            self._reader.stir()
            self.topics.look_soon()

    def progressed(self, partition: int, progress: ReadingProgress) -> None:
        self._progress[partition] = progress
        if self._looks.hidden:
            return
        if progress.behind:
            share = describe_progress(progress)
            self._excuse(partition, f"{OFFSETS_TOPIC}-{partition} is being read: {share}")
        elif self._excuses.get(partition):
            self._read.add(partition)
            self._has_read.set()

    def troubled(self, partition: int, why: str) -> None:
        if why:
            self._troubles[partition] = why
        else:
            self._troubles.pop(partition, None)
        if self._excuses.get(partition) and not self._looks.hidden:
            self._excuse(partition, f"{OFFSETS_TOPIC}-{partition} cannot be read: {why}" if why else "reading goes on")

    def changed(self, what: str) -> None:
        self._changed, self._changed_s = what, asyncio.get_running_loop().time()
        log.warning("the watched topic changed", what=what)

    def _excuse(self, partition: int, excuse: str) -> None:
        """Of a partition; those of all partitions are of all shards where the topic has another number of them."""
        self._excuses[partition] = excuse
        if self._facts.shard_of is None:
            self.stand(partition, excuse)
            return
        first = next((each for other in self._wanted() if (each := self._excuses.get(other))), "")
        for shard in range(self.shards):
            self.stand(shard, first)

    # -- what looks say -----------------------------------------------------------------------------------------------

    def tell_group(self, group_id: str, event: RecordsWatched | GroupSeen) -> None:
        self._driver.submit_event(partition_for(group_id, self.shards), event)
        if isinstance(event, GroupSeen):
            self._reader.hurry()

    def learn_sessions(self, sessions: Mapping[str, int]) -> None:
        self._facts.learn_sessions(sessions)

    def looked(self) -> None:
        """Where nothing can be read, and where there is nothing to be read yet, this is all that is known."""
        view = self.upstream.view.topics.get(OFFSETS_TOPIC)
        if not self._looks.hidden and self._looks.groups and (view is None or not view.parts):
            self.may_read(False)
        elif self._looks.hidden or (view is not None and view.code == UNKNOWN_TOPIC and not view.parts):
            for partition in self._wanted():
                self._excuse(partition, "")

    def live_groups(self) -> set[str]:
        return {
            name
            for partition in self._facts.partitions.values()
            for name, group in partition.groups.items()
            if group.classic.stored is not None and group.classic.stored.members
        }

    async def _pass_positions(self) -> None:
        """Every now and then; of a partition that has just been read, at once: its groups are answered for then."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POSITIONS_S):
                    await self._has_read.wait()
            self._has_read.clear()
            for partition in list(self._facts.partitions):
                if self._excuses.get(partition) and partition not in self._read:
                    continue
                await self.pass_positions(partition, partition)
                if partition in self._read and not self._looks.hidden:
                    await self._forget_vanished(partition)
                    self._excuse(partition, "")
                self._read.discard(partition)
            told_s = asyncio.get_running_loop().time() - self._changed_s
            if self._changed and not any(self._excuses.values()) and told_s >= CHANGED_S:
                self._changed = ""

    async def _forget_vanished(self, partition: int) -> None:
        """A partition has been read anew: groups that it should have, and of which it says nothing, are gone."""
        heard = self._facts.heard.pop(partition, None)
        if heard is None:
            return
        for shard in range(self.shards) if self._facts.shard_of is not None else (partition,):
            core = self._engine.core(shard) if self._engine.status(shard) is ShardStatus.ACTIVE else None
            if not isinstance(core, WatchedShard):
                continue
            state = core.state
            known = state.groups.keys() | state.offsets.keys()
            gone = sorted(each for each in known - heard if partition_for(each, self._count) == partition)
            for begin in range(0, len(gone), MOST_FACTS):
                self._driver.submit_event(shard, GroupsVanished(tuple(gone[begin : begin + MOST_FACTS])))
            await asyncio.sleep(0)

    async def _follow_logs(self) -> None:
        """What the brokers write after a rebalance's record explains it later."""
        while True:
            sentences, more = await asyncio.to_thread(self._logs.more)
            for begin in range(0, len(sentences), SENTENCES_AT_ONCE):
                for amended in self._evidence.take_sentences(sentences[begin : begin + SENTENCES_AT_ONCE]):
                    self.tell_group(amended.group_id, RecordsWatched((amended,)))
                await asyncio.sleep(0)
            await asyncio.sleep(0 if more else LOGS_S)

    def trouble(self) -> str:
        if self._looks.hidden:
            return self._looks.trouble()
        if self._troubles:
            partition, why = next(iter(self._troubles.items()))
            more = f" (and {len(self._troubles) - 1} more partitions)" if len(self._troubles) > 1 else ""
            seen = "so its groups are missing, or as they were last seen"
            return f"{OFFSETS_TOPIC}-{partition}{more} cannot be read, {seen}: {why}"
        return self._changed or self._topics_trouble or self._looks.trouble() or self._logs.trouble

    def _topics_troubled(self, sentence: str) -> None:
        self._topics_trouble = sentence

    # -- services -----------------------------------------------------------------------------------------------------

    def group_service(self, context: GroupServiceContext) -> GroupCoordinator:
        return WatchedGroupCoordinator(context, self._settings.watched, self._commits, self.ends)

    def record_service(self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]) -> BrokerService:
        async def met() -> None:
            """There are no others."""

        return UpstreamRecords(
            self.requests,
            self.upstream,
            cast(ClusterView, LoneView()),
            node_id=self._settings.node_id,
            bootstrap="",  # who produces by a node that watches is refused, not sent to the Kafka
            advertised=advertised,
            met=met,
            room=room,
        )


# Copies of segments
# ------------------


class NoTopics:
    """Of segments nobody knows which topics there are, or where their logs end."""

    internal: frozenset[str] = frozenset()

    def partitions(self) -> Mapping[str, int]:
        return {}

    def ids(self) -> Mapping[str, bytes]:
        return {}

    def on_change(self, listener: Callable[[TopicsChanged], None]) -> None:
        """Nothing changes."""

    def leader(self, topic: str, partition: int) -> int:
        return -1

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        raise LogFailed(f"where {topic}-{partition} ends is not known: copies of segments do not tell")

    def ends(self, places: Iterable[TopicPartition]) -> list[int]:
        return [-1 for _ in places]

    starts = ends

    async def ahead(self, places: Sequence[TopicPartition]) -> None:
        """There is nobody to ask."""

    def forget(self, topics: Iterable[str]) -> None:
        """Nothing is known."""


class SegmentsWatchBackend(WatchBackend):
    """Reads copies of segments once.

    Where all partitions of the topic seem to be there, each is a shard that answers as soon as it has been read. Where
    some are missing, which the place of a group tells, shards answer once all has been read.
    """

    async def open(self, seen: ReportGroup) -> None:
        """Find the files. Raises UpstreamRefusedNode."""
        try:
            self._segments = find_segments(tuple(map(Path, self._settings.watch_segments.split(","))))
        except NoSegments as error:
            raise UpstreamRefusedNode(str(error)) from error
        self._partitions = sorted({segment.partition for segment in self._segments})
        self.shards = len(self._partitions) if self._partitions[-1] + 1 == len(self._partitions) else 1
        nothing = NoTopics()
        self.record_log = UpstreamLog(self._settings, "", nothing, nothing)
        self.requests = UpstreamRequests(self.record_log)

    async def read(self) -> None:
        self._read_bytes = 0
        self._unanswered = set(range(self.shards))
        self._facts.shard_of = lambda group_id: partition_for(group_id, self.shards)
        self._facts.strays = self._partitions != list(range(self.shards))
        try:
            if not await self._read_of_one_group():
                await self._read_all()
        except (OSError, WorkerFailed) as error:  # to be tried again, which may not help
            self.stand(min(self._unanswered, default=0), f"the segments cannot be read: {error}")
            raise
        self._unanswered.clear()
        for shard in range(self.shards):
            self.stand(shard, "")

    async def _read_all(self) -> None:
        if shares := share_segments(self._segments, usable_processors()):
            await self._read_by_workers(shares)
        else:
            await self._read_alone(self._segments)

    async def _read_of_one_group(self) -> bool:
        """Where one group alone matters: read the partition that has it, if all partitions are here. Whether it has."""
        count = 1 + max(segment.partition for segment in self._segments)
        group = self._settings.watch_group
        place = partition_for(group, count)
        found = [segment for segment in self._segments if segment.partition == place]
        if not group or not found:
            return False
        self._facts.strays = True  # if it is elsewhere, others are, too
        await self._read_alone(found)
        if self._facts.partitions[place].has_group(group):
            return True
        self._facts.partitions.clear()
        self._read_bytes = 0
        return False

    async def _read_by_workers(self, shares: list[list[SegmentFile]]) -> None:
        most, since_ms = self._settings.group_ledger_max_entries, self._facts.since_ms
        works = [SegmentWork(tuple(share), since_ms, most) for share in shares]
        ended = await asyncio.gather(*(read_by_worker(work, self._take_news) for work in works), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _take_news(self, news: SegmentNews) -> None:
        self._progress(news.read)
        self._facts.pass_settled(news.partition, news.facts, self._shard_of(news.partition))
        watched = self._facts.partitions.get(news.partition) or self._facts.made_partition(news.partition)
        for position in news.positions:
            watched.positions.adopt(position)
        if news.records is not None:
            watched.records = news.records
            await self._read_whole(news.partition)

    async def _read_alone(self, segments: list[SegmentFile]) -> None:
        for partition, of_partition in groupby(segments, key=lambda each: each.partition):
            watched, piece = self._facts.made_partition(partition), PieceSize()
            for segment in of_partition:
                for read in read_segment(segment, watched, piece):
                    self._facts.pass_facts(partition, self._shard_of(partition))
                    self._progress(read)
                    await asyncio.sleep(0)
            await self._read_whole(partition)

    def _shard_of(self, partition: int) -> int:
        return partition if partition < self.shards else 0

    async def _read_whole(self, partition: int) -> None:
        """All of it: its groups are answered for, unless there may be more of them elsewhere."""
        await self.pass_positions(partition, self._shard_of(partition))
        if self._facts.strays:
            self._unanswered = set(range(self.shards))
        else:
            self._unanswered.discard(partition)
            self.stand(partition, "")
        self._progress(0)

    def _progress(self, read: int) -> None:
        """Said of one shard, which is asked with all others."""
        self._read_bytes += read
        if self._unanswered:
            whole = sum(segment.size for segment in self._segments)
            sentence = f"the segments are being read: {part_of_size(self._read_bytes, whole)}"
            self.stand(min(self._unanswered), sentence)

    def read_again(self, shard: int) -> None:
        self._facts.partitions.clear()
        for each in range(self.shards):
            self.stand(each, NOT_READ)
        self._reading.cancel()
        self._reading = RestartedTask("reading segments again", self.read, returns=True)
        self._reading.start()


# Upkeep
# ------


class WatchUpkeep(ConditionLooks):
    """What the node cannot see of its Kafka, or has not read yet; and the disk of its ledger, if that has one."""

    def __init__(
        self,
        backend: WatchBackend,
        conditions: Conditions,
        certificates: "NodeCertificates | None",
        disk: NodeUpkeep | None,
    ) -> None:
        self._backend = backend
        self._disk = disk
        super().__init__("conditions of the watched Kafka", conditions, certificates, pause_s=TICK_S)

    def stop(self) -> None:
        super().stop()
        if self._disk is not None:
            self._disk.stop()

    def looks(self) -> Iterator[Callable[[], object]]:
        yield lambda: self._tell(WATCHED_KAFKA, self._backend.trouble())
        yield lambda: self._tell(WATCHED_READING, self._backend.unread())

    def _tell(self, name: str, sentence: str) -> None:
        if sentence:
            self._conditions.report(name, sentence, impairs=GROUPS)
        else:
            self._conditions.clear(name)


if TYPE_CHECKING:
    _KAFKA: type[NodeBackend] = KafkaWatchBackend
    _SHARDS: type[WatchedShards] = KafkaWatchBackend
    _SEGMENTS: type[NodeBackend] = SegmentsWatchBackend
