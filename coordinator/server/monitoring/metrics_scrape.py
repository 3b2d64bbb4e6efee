"""A node's metrics: what is counted, and how the answer to a scrape is made on the node's own loop.

Every other call waits for one slice of it at most, and what several scrapers ask for at the same time is made once.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from muster.coordinator.config import Settings
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.history.group_history import GroupHistory, PartitionRates
from muster.coordinator.observability.metrics.instruments import (
    ClusterFiguresSource,
    Instruments,
    KafkaBackendFigures,
    TransactionFigures,
)
from muster.coordinator.observability.metrics.scrape import ScrapeCounts, ScrapePage, Scraper, SeriesGranularity
from muster.coordinator.observability.metrics.series import RebalanceTotals
from muster.coordinator.rpc.v1 import errors_pb2
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.grpc.adapter import GrpcMethods
from muster.coordinator.server.services.member_session import ServerSessions
from muster.coordinator.web.http.node_port import Exposition
from muster.long_work import LoopSlice, run_in_answer_thread
from muster.storage.rpc.v1 import broker_service_pb2

if TYPE_CHECKING:
    from muster.coordinator.observability.metrics.node_metrics import NodeFigures

NAMES = {
    number: name.removeprefix("ERROR_CODE_")
    for name, number in (*broker_service_pb2.ErrorCode.items(), *errors_pb2.ErrorCode.items())
}


class ParkedFetches(Protocol):
    """Fetches that wait for records."""

    @property
    def parked(self) -> int: ...


class LogPositions(Protocol):
    """What is looked at of the log."""

    def ends(self, places: Iterable[tuple[str, int]], /) -> list[int]: ...

    def starts(self, places: Iterable[tuple[str, int]], /) -> list[int]: ...

    def sizes(self, places: Iterable[tuple[str, int]], /) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class NodeMetricsView:
    """`muster.coordinator.observability.metrics.series.SeriesSource` of a running node."""

    engine: Engine
    log: LogPositions
    catalog: Callable[[], Mapping[str, int]]
    history: GroupHistory | None

    def cores(self) -> Iterable[Shard]:
        for shard in range(self.engine.shards):
            core = self.engine.core(shard) if self.engine.status(shard) is ShardStatus.ACTIVE else None
            if isinstance(core, Shard):
                yield core

    def whole(self) -> bool:
        return all(self.engine.status(shard) is ShardStatus.ACTIVE for shard in range(self.engine.shards))

    def partitions(self) -> Mapping[str, int]:
        return self.catalog()

    def rates(self, group_id: str) -> PartitionRates | None:
        return None if self.history is None else self.history.rates(group_id)

    def ends(self, topic: str, partitions: range) -> list[int]:
        return self.log.ends((topic, partition) for partition in partitions)

    def starts(self, topic: str, partitions: range) -> list[int]:
        return self.log.starts((topic, partition) for partition in partitions)

    def sizes(self, topic: str, partitions: range) -> int:
        return sum(self.log.sizes((topic, partition) for partition in partitions))


class ConnectionCount(Protocol):
    """A door beside gRPC's, as far as it is counted."""

    @property
    def connections(self) -> int: ...


class KafkaListenerCounts(ConnectionCount, Protocol):
    """Kafka's."""

    @property
    def unread(self) -> int:
        """Bytes of answers that have not left."""


@dataclass(frozen=True, slots=True)
class NodeGauges:
    """What of a node is read at the moment of an answer, beside its groups and topics."""

    driver: EngineDriver
    engine: Engine
    conditions: Conditions
    address: Callable[[], str]
    kafka: KafkaListenerCounts | None
    http: ConnectionCount | None
    methods: GrpcMethods
    fetches: ParkedFetches
    sessions: ServerSessions
    expiries: Callable[[], Mapping[str, float]]
    """When certificates end, by listener."""
    throttled: Callable[[], Mapping[str, float]]
    """For how many seconds principals were told to wait, because of a quota."""
    failed_logins: Callable[[], Mapping[tuple[str, str], float]]
    """How many, by door and address."""
    task_failures: Mapping[str, int]
    """How often background tasks ended unexpectedly, by name."""
    cluster: ClusterFiguresSource | None = None
    """None of a node on its own."""
    upstream: Callable[[], KafkaBackendFigures] | None = None
    transactions: Callable[[], TransactionFigures | None] | None = None
    """None of a node that is not over somebody's Kafka."""

    def connections(self) -> dict[str, int]:
        """What is open, by door."""
        calls = {"grpc": self.methods.in_flight}
        others: dict[str, ConnectionCount | None] = {"kafka": self.kafka, "http": self.http}
        return calls | {name: door.connections for name, door in others.items() if door is not None}

    def unread(self) -> dict[str, int]:
        """Bytes of answers that have not left, by door."""
        answers = {"grpc": self.methods.burden.unsent}
        return answers if self.kafka is None else answers | {"kafka": self.kafka.unread}

    def parked(self) -> dict[str, int]:
        """What waits on purpose, by kind."""
        groups = self.driver.parked_by_kind()
        at_groups = {"join": groups["JoinGroup"], "sync": groups["SyncGroup"]}
        return at_groups | {"fetch": self.fetches.parked, "session": len(self.sessions)}


class NodeMetrics:
    """Made with the node, so that all count from the start; `sees` tells it what there is to be looked at."""

    def __init__(self, settings: Settings, clock: NodeClock) -> None:
        self._settings = settings
        self._clock = clock
        self.instruments = Instruments()
        self._rebalances = RebalanceTotals()
        self._under_way: dict[str, asyncio.Task[Exposition]] = {}

    def sees(
        self,
        engine: Engine,
        log: LogPositions,
        catalog: Callable[[], Mapping[str, int]],
        history: GroupHistory | None,
        gauges: NodeGauges,
    ) -> None:
        settings = self._settings
        self._engine, self._gauges = engine, gauges
        counts = ScrapeCounts(self.instruments, self._rebalances, engine.metrics.fenced)
        fineness = SeriesGranularity(
            settings.metrics_granularity, settings.metrics_max_series, settings.metrics_member_commit_age
        )
        self._scraper = Scraper(
            NodeMetricsView(engine, log, catalog, history), counts, settings.node_id, fineness, gauges.cluster
        )

    def noticed(self, notice: GroupChanged) -> None:
        """A rebalance of the ledger is durable, or has settled."""
        if notice.entry is None:
            return
        core = self._engine.core(partition_for(notice.group_id, self._engine.shards))
        group = core.state.groups.get(notice.group_id) if isinstance(core, Shard) else None
        listed = [] if group is None else list(KINDS[type(group)].listed(group))
        self._rebalances.count_rebalance(notice.group_id, listed[0].group_type if listed else "", notice.entry)

    async def scrape(self, accept: str) -> Exposition:
        """The answer in the format that the Accept header asks for; while one is being made, others wait for it."""
        from muster.coordinator.observability.metrics.node_metrics import negotiate_format

        _, _, content_type = negotiate_format(accept)
        task = self._under_way.get(content_type)
        if task is None:
            task = self._under_way[content_type] = asyncio.create_task(self._made(accept))
            task.add_done_callback(lambda _: self._under_way.pop(content_type, None))
        # Whoever goes away does not take the answer from those who wait with him.
        return await asyncio.shield(task)

    async def _made(self, accept: str) -> Exposition:
        from muster.coordinator.observability.metrics.node_metrics import encode_family, negotiate_format, node_families

        form, encode, content_type = negotiate_format(accept)
        page = self._scraper.page(form)
        disk_free = await asyncio.to_thread(free_disk_bytes, self._settings)
        breath = LoopSlice()
        for _ in self._scraper.measure(page):
            await breath.yield_if_used()
        await run_in_answer_thread(partial(self._scraper.fit, page))
        for _ in self._scraper.write(page, self._clock.now_ms()):
            await breath.yield_if_used()
        pieces = list(page.sheet.pieces())
        for family in node_families(self._figures(page, disk_free), self.instruments, self._rebalances, name_code):
            pieces.append(encode_family([family], encode))
            await breath.yield_if_used()
        if form.openmetrics:
            pieces.append(b"# EOF\n")
        return Exposition(content_type, pieces)

    def _figures(self, page: ScrapePage, disk_free: int | None) -> "NodeFigures":
        from muster.coordinator.observability.metrics.node_metrics import NodeFigures

        gauges, engine = self._gauges, self._engine
        kinds = Counter(condition.name.partition(":")[0] for condition in gauges.conditions.current())
        return NodeFigures(
            node_id=self._settings.node_id,
            address=gauges.address(),
            version=version("muster-groups"),
            inbox=engine.waiting,
            parked=gauges.parked(),
            connections=gauges.connections(),
            unread=gauges.unread(),
            shards=[engine.status(shard).value for shard in range(engine.shards)],
            loop_lag_s=gauges.driver.lag_ms / 1000,
            disk_free=disk_free,
            disk_warn=self._settings.log_dirs_free_warn_bytes,
            conditions=kinds,
            task_failures=gauges.task_failures,
            expiries=gauges.expiries(),
            throttled=gauges.throttled(),
            failed_logins=gauges.failed_logins(),
            dropped=page.budget.dropped,
            cluster=None if gauges.cluster is None else gauges.cluster.figures(),
            engine=None if gauges.upstream is None else gauges.upstream(),
            transactions=None if gauges.transactions is None else gauges.transactions(),
        )


def free_disk_bytes(settings: Settings) -> int | None:
    """What this process may still take where the log lies; None where nobody can tell."""
    if settings.directory is None:
        return None
    try:
        return shutil.disk_usage(settings.directory).free
    except OSError:
        return None


def name_code(code: int | str) -> str:
    """Kafka's name of an error's number; a gRPC status has its own.

    >>> name_code(0), name_code(27), name_code(-7), name_code("UNAVAILABLE")
    ('NONE', 'REBALANCE_IN_PROGRESS', '-7', 'UNAVAILABLE')
    """
    return code if isinstance(code, str) else NAMES.get(code, str(code))
