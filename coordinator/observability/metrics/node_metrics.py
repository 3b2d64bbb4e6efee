"""The metrics of the node itself, by `prometheus_client`: few, and written one family at a time.

Durations of requests have many lines, and are written with the series of groups (see `scrape.py`). Belongs to the
extra `web`: a node without an HTTP listener imports nothing of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from platform import python_version
from typing import TypeAlias

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from muster.coordinator.observability.metrics.exposition import ExpositionFormat
from muster.coordinator.observability.metrics.instruments import (
    ClusterFigures,
    Instruments,
    KafkaBackendFigures,
    Timing,
    TransactionFigures,
)
from muster.coordinator.observability.metrics.series import RebalanceTotals, WaitExemplar
from muster.coordinator.observability.metrics.table import FAMILIES, Level

STATUSES = ("loading", "active", "failed", "unloaded")

CONTEXT = (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR)
"""What every Python program tells: memory, descriptors, processor time, the collector of garbage."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """A node at one moment."""

    node_id: int
    address: str
    version: str
    inbox: int = 0
    parked: Mapping[str, int] = field(default_factory=dict)
    connections: Mapping[str, int] = field(default_factory=dict)
    shards: Sequence[str] = ()
    """The status of each."""
    loop_lag_s: float = 0.0
    disk_free: int | None = None
    """None where nobody can tell."""
    disk_warn: int = 0
    conditions: Mapping[str, int] = field(default_factory=dict)
    task_failures: Mapping[str, int] = field(default_factory=dict)
    """How often background tasks ended unexpectedly, by name."""
    dropped: Mapping[Level, int] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    """Bytes of answers by door."""
    expiries: Mapping[str, float] = field(default_factory=dict)
    """When certificates end, by listener."""
    throttled: Mapping[str, float] = field(default_factory=dict)
    """Seconds by principal."""
    failed_logins: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """How many, by door and address."""
    cluster: ClusterFigures | None = None
    """None of a node on its own."""
    engine: KafkaBackendFigures | None = None
    """None of a node that is not over somebody's Kafka."""
    transactions: TransactionFigures | None = None
    """None of a node that coordinates no transactional ids."""


Values: TypeAlias = dict[tuple[str, ...], float]
"""By the values of the labels."""

BucketRow: TypeAlias = tuple[str, float] | tuple[str, float, Exemplar]

Encode: TypeAlias = Callable[[Collector], bytes]


def negotiate_format(accept: str) -> tuple[ExpositionFormat, Encode, str]:
    """What the Accept header asks for: the format, what writes it, and its content type."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # The library trips over a version that is no number: `version=x.y`.
        encode, content_type = choose_encoder("")
    return ExpositionFormat(content_type.startswith("application/openmetrics-text")), encode, content_type


class SingleFamilyCollector(Collector):
    """A collector that has what it is given."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def encode_family(metrics: Iterable[Metric], encode: Encode) -> bytes:
    """OpenMetrics ends with a line of its own, which is for the end of the whole answer."""
    return encode(SingleFamilyCollector(metrics)).removesuffix(b"# EOF\n")


def node_families(
    figures: NodeFigures, instruments: Instruments, rebalances: RebalanceTotals, code_name: Callable[[int | str], str]
) -> Iterator[Metric]:
    """One after the other; the last ones are the process's own."""
    yield gauge("kafka_brokers", {(): 1})
    yield gauge("kafka_broker_info", {(figures.address, str(figures.node_id)): 1})
    yield gauge("muster_build_info", {(figures.version, python_version()): 1})
    yield gauge("muster_inbox_events", {(): figures.inbox})
    yield gauge("muster_parked_requests", count_by_word(figures.parked))
    yield gauge("muster_connections", count_by_word(figures.connections))
    yield gauge("muster_certificate_expiry_timestamp_seconds", count_by_word(figures.expiries))
    yield counter("muster_throttled_seconds_total", count_by_word(figures.throttled))
    yield counter("muster_failed_logins_total", {(*key,): count for key, count in figures.failed_logins.items()})
    yield gauge("muster_unread_bytes", count_by_word(figures.unread))
    yield gauge("muster_shard_status", dict(status_values(figures.shards)))
    yield gauge("muster_loop_lag_seconds", {(): figures.loop_lag_s})
    yield gauge("muster_node_conditions", count_by_word(figures.conditions))
    yield counter("muster_task_failures_total", count_by_word(figures.task_failures))
    if figures.disk_free is not None:
        yield gauge("muster_disk_free_bytes", {(): figures.disk_free})
    yield gauge("muster_disk_warn_bytes", {(): figures.disk_warn})
    dropped: Values = {
        (level.value,): figures.dropped.get(level, 0) for level in (Level.PARTITION, Level.TOPIC, Level.GROUP)
    }
    yield gauge("muster_metrics_dropped_series", dropped)
    yield from counted_families(instruments, rebalances, code_name)
    if figures.cluster is not None:
        yield from cluster_families(figures.cluster)
    if figures.engine is not None:
        yield from kafka_backend_families(figures.engine)
    if figures.transactions is not None:
        yield from transaction_families(figures.transactions)
    for collector in CONTEXT:
        yield from collector.collect()


def cluster_families(figures: ClusterFigures) -> Iterator[Metric]:
    manager, controller = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
    stats = "kafka_controller_controllerstats_"
    yield gauge(manager + "underreplicatedpartitions", {(): figures.under_replicated})
    yield gauge(manager + "underminisrpartitioncount", {(): figures.under_min_isr})
    yield counter(manager + "isrshrinks_total", {(): figures.isr_shrinks})
    yield counter(manager + "isrexpands_total", {(): figures.isr_expands})
    yield gauge("kafka_server_replicafetchermanager_maxlag", {(): figures.max_lag})
    yield gauge(controller + "activecontrollercount", {(): figures.controllers})
    yield gauge(controller + "offlinepartitionscount", {(): figures.offline})
    yield counter(stats + "leaderelections_total", {(): figures.elections})
    yield counter(stats + "leaderelection_seconds_total", {(): figures.elections_s})
    yield counter(stats + "uncleanleaderelections_total", {(): figures.unclean})
    yield counter("muster_unclean_undone_records_total", {(): figures.undone})
    yield counter("muster_unproven_nodes_total", {(): figures.unproven})


def kafka_backend_families(figures: KafkaBackendFigures) -> Iterator[Metric]:
    yield histogram("muster_engine_append_seconds", {(): figures.appends})
    unacked: Values = {(str(shard),): size for shard, size in sorted(figures.unacked.items())}
    yield gauge("muster_engine_unacked_bytes", unacked)
    yield gauge("muster_engine_owned_shards", {(): figures.owned})
    yield counter("muster_engine_fenced_total", {(): figures.fenced})
    yield counter("muster_engine_void_records_total", {(): figures.fenced_records})
    yield counter("muster_engine_upstream_errors_total", {(*key,): count for key, count in figures.errors.items()})
    yield counter("muster_engine_proxy_bytes_total", count_by_word(figures.proxied))
    yield gauge("muster_engine_proxy_connections", {(): figures.proxy_connections})
    yield gauge("muster_engine_foreign_members", count_by_word(figures.foreign_members))
    yield gauge("muster_engine_topics_unseen", {(): figures.topics_unseen})
    yield gauge("muster_engine_pending_positions", {(): figures.pending_positions})
    yield gauge("muster_engine_oldest_transaction_seconds", {(): figures.oldest_pending_ms / 1_000})


def transaction_families(figures: TransactionFigures) -> Iterator[Metric]:
    yield gauge("muster_transactions", count_by_word(figures.states))
    yield counter("muster_transaction_ends_total", {(*key,): count for key, count in sorted(figures.ends.items())})
    yield histogram("muster_transaction_seconds", {(): figures.seconds})
    lags: Values = {(topic, str(number)): lag for (topic, number), lag in sorted(figures.stable_lags.items())}
    yield gauge("muster_log_stable_lag", lags)
    yield counter("muster_abort_entries_lost_total", {(): figures.aborts_lost})
    server, coordinator = "kafka_server_", "kafka_coordinator_transaction_"
    yield gauge(server + "replicamanager_partitionswithlatetransactionscount", {(): figures.late_partitions})
    waiting = coordinator + "transactionmarkerchannelmanager_unknowndestinationqueuesize"
    yield gauge(waiting, {(): figures.unknown_destinations})
    yield counter(server + "addpartitionstotxnmanager_verificationfailures_total", {(): figures.verification_failures})


def counted_families(
    instruments: Instruments, rebalances: RebalanceTotals, code_name: Callable[[int | str], str]
) -> Iterator[Metric]:
    meters = {key: meter for key, meter in sorted(instruments.meters.items()) if meter.count or meter.untimed}
    codes: Values = {
        (*key, code_name(code)): count
        for key, meter in meters.items()
        for code, count in meter.by_code().items()
        if count
    }
    yield counter("muster_requests_total", codes)
    yield histogram("muster_turn_duration_seconds", {(): instruments.turns})
    yield histogram("muster_flush_duration_seconds", {(): instruments.flushes})
    yield counter("muster_flushed_records_total", {(): instruments.flushed_records})
    yield counter("muster_assignor_errors_total", count_by_word(instruments.assignor_errors))
    yield counter("muster_message_conversions_total", count_by_word(instruments.conversions))
    yield histogram(
        "muster_handoff_duration_seconds",
        {(name,): timing for name, timing in rebalances.phases.items()},
        {(name,): examples for name, examples in rebalances.exemplars.items()},
    )


def count_by_word(counts: Mapping[str, float]) -> Values:
    return {(word,): count for word, count in sorted(counts.items())}


def status_values(shards: Sequence[str]) -> Iterator[tuple[tuple[str, ...], float]]:
    for number, status in enumerate(shards):
        yield (str(number), status), 1


def gauge(name: str, values: Values) -> Metric:
    metric = GaugeMetricFamily(name, FAMILIES[name].meaning, labels=FAMILIES[name].labels)
    for labels, value in values.items():
        metric.add_metric(labels, value)
    return metric


def counter(name: str, values: Values) -> Metric:
    metric = CounterMetricFamily(name.removesuffix("_total"), FAMILIES[name].meaning, labels=FAMILIES[name].labels)
    for labels, value in values.items():
        metric.add_metric(labels, value)
    return metric


def histogram(
    name: str,
    values: Mapping[tuple[str, ...], Timing],
    exemplars: Mapping[tuple[str, ...], Mapping[int, WaitExemplar]] | None = None,
) -> Metric:
    """exemplars: by labels and number of the bucket; OpenMetrics alone has a place for them."""
    metric = HistogramMetricFamily(name, FAMILIES[name].meaning, labels=FAMILIES[name].labels)
    for labels, timing in values.items():
        examples = (exemplars or {}).get(labels, {})
        rows: list[BucketRow] = []
        for place, (bound, count) in enumerate(timing.cumulative()):
            example = examples.get(place)
            plain = bound, float(count)
            rows.append(plain if example is None else (*plain, Exemplar(dict(example.labels), example.seconds)))
        metric.add_metric(labels, rows, timing.seconds)
    return metric
