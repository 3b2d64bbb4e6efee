"""Every metric of a node: name, kind, labels, meaning. docs/observe.md says the same, and a test compares them.

The first set is kafka_exporter's, under its names and as gauges, sums included: dashboards and alerts know them so.
What is ours is named `muster_`, in seconds and bytes, counters ending in `_total`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Level(StrEnum):
    """How fine a series is; `metrics.granularity` names the finest that is written."""

    NODE = "node"
    ALWAYS = "always"
    """Of groups and their topics; written whatever the limit of series."""
    GROUP = "group"
    TOPIC = "topic"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric. `meaning` is its HELP line, with the unit."""

    name: str
    kind: MetricKind
    level: Level
    labels: tuple[str, ...]
    meaning: str


GAUGE, COUNTER, HISTOGRAM = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM
NODE, ALWAYS, GROUP, TOPIC, PARTITION = Level.NODE, Level.ALWAYS, Level.GROUP, Level.TOPIC, Level.PARTITION

OF_PARTITION: Final = ("topic", "partition")
OF_SHARE: Final = ("consumergroup", "topic", "partition")

EXPORTER: Final = (
    MetricFamily("kafka_brokers", GAUGE, NODE, (), "Brokers that this answer speaks for: this node."),
    MetricFamily("kafka_broker_info", GAUGE, NODE, ("address", "id"), "1 for each of them."),
    MetricFamily("kafka_topic_partitions", GAUGE, TOPIC, ("topic",), "Number of partitions of the topic."),
    MetricFamily(
        "kafka_topic_partition_current_offset",
        GAUGE,
        PARTITION,
        OF_PARTITION,
        "Offset after the last record that can be read.",
    ),
    MetricFamily("kafka_topic_partition_oldest_offset", GAUGE, PARTITION, OF_PARTITION, "Offset of the first record."),
    MetricFamily(
        "kafka_topic_partition_leader", GAUGE, PARTITION, OF_PARTITION, "Id of the partition's leader: this node."
    ),
    MetricFamily(
        "kafka_topic_partition_leader_is_preferred",
        GAUGE,
        PARTITION,
        OF_PARTITION,
        "1 if the leader is the preferred one; of a node on its own it always is.",
    ),
    MetricFamily(
        "kafka_topic_partition_replicas", GAUGE, PARTITION, OF_PARTITION, "Number of replicas; 1 on a node on its own."
    ),
    MetricFamily(
        "kafka_topic_partition_in_sync_replica",
        GAUGE,
        PARTITION,
        OF_PARTITION,
        "Number of replicas in sync; 1 on a node on its own.",
    ),
    MetricFamily(
        "kafka_topic_partition_under_replicated_partition",
        GAUGE,
        PARTITION,
        OF_PARTITION,
        "1 if a replica is behind; never on a node on its own.",
    ),
    MetricFamily(
        "kafka_consumergroup_current_offset",
        GAUGE,
        PARTITION,
        OF_SHARE,
        "Committed offset of the group; -1 where nothing is committed.",
    ),
    MetricFamily(
        "kafka_consumergroup_lag",
        GAUGE,
        PARTITION,
        OF_SHARE,
        "Records between the committed offset and the end; -1 where nothing is committed.",
    ),
    MetricFamily(
        "kafka_consumergroup_current_offset_sum",
        GAUGE,
        ALWAYS,
        ("consumergroup", "topic"),
        "Sum of the committed offsets of the topic's partitions.",
    ),
    MetricFamily(
        "kafka_consumergroup_lag_sum",
        GAUGE,
        ALWAYS,
        ("consumergroup", "topic"),
        "Sum of the lags of the topic's partitions, without those where nothing is committed.",
    ),
    MetricFamily("kafka_consumergroup_members", GAUGE, ALWAYS, ("consumergroup",), "Number of members of the group."),
)
"""Set 1: kafka_exporter's names, which Strimzi and others use as well."""

OF_GROUPS: Final = (
    MetricFamily(
        "muster_group_rebalances_total",
        COUNTER,
        GROUP,
        ("group", "cause"),
        "Rebalances of the group since the node started, by what set them off.",
    ),
    MetricFamily(
        "muster_group_rebalance_duration_seconds",
        HISTOGRAM,
        GROUP,
        ("group", "protocol"),
        "From the beginning of a rebalance until its plan stood, in seconds.",
    ),
    MetricFamily(
        "muster_group_unavailable_partition_seconds_total",
        COUNTER,
        GROUP,
        ("group",),
        "Seconds in which partitions had no owner because of rebalances, added up over partitions.",
    ),
    MetricFamily(
        "muster_group_partitions_moved_total",
        COUNTER,
        GROUP,
        ("group", "assignor"),
        "Partitions that changed hands.",
    ),
    MetricFamily(
        "muster_group_unowned_partitions",
        GAUGE,
        GROUP,
        ("group",),
        "Partitions of subscribed topics that no member has; 0 for a group without members.",
    ),
    MetricFamily("muster_group_idle_members", GAUGE, GROUP, ("group",), "Members that have no partition."),
    MetricFamily(
        "muster_group_imbalance_ratio",
        GAUGE,
        GROUP,
        ("group", "by"),
        "Largest share of a member over the mean share, by count of partitions, lag, rate of writing, or weight; 1 is "
        "even.",
    ),
    MetricFamily(
        "muster_shadow_disagreement_ratio",
        GAUGE,
        ALWAYS,
        ("assignor",),
        "Partitions that a shadow assignor would have given to somebody else, of all in the latest decisions.",
    ),
    MetricFamily(
        "muster_group_lag_seconds",
        GAUGE,
        TOPIC,
        ("group", "topic"),
        "How long ago the topic ended where the group is now, in seconds.",
    ),
    MetricFamily("muster_log_bytes", GAUGE, TOPIC, ("topic",), "Bytes of the topic's segments."),
    MetricFamily(
        "muster_member_commit_age_seconds",
        GAUGE,
        GROUP,
        ("group", "member"),
        "Seconds since the last commit of any partition that the member has; only with metrics.member.commit.age.",
    ),
    MetricFamily(
        "muster_fenced_requests_total",
        COUNTER,
        GROUP,
        ("group", "reason"),
        "Requests refused because their sender is no longer, or not yet, who it says.",
    ),
)

OF_NODE: Final = (
    MetricFamily(
        "muster_handoff_duration_seconds",
        HISTOGRAM,
        NODE,
        ("phase",),
        "Duration of the phases of rebalances, all groups together, in seconds.",
    ),
    MetricFamily(
        "muster_assignor_errors_total",
        COUNTER,
        NODE,
        ("assignor",),
        "Plans that an assignor of this node did not make.",
    ),
    MetricFamily(
        "muster_requests_total",
        COUNTER,
        NODE,
        ("door", "api", "code"),
        "Requests answered, by door (grpc, kafka, http), API and the error code of the whole answer.",
    ),
    MetricFamily(
        "muster_request_duration_seconds",
        HISTOGRAM,
        NODE,
        ("door", "api"),
        "From when a request was begun until its answer was handed on, waiting included, in seconds.",
    ),
    MetricFamily("muster_turn_duration_seconds", HISTOGRAM, NODE, (), "Duration of a turn of all shards, in seconds."),
    MetricFamily("muster_flush_duration_seconds", HISTOGRAM, NODE, (), "Duration of a group commit, in seconds."),
    MetricFamily(
        "muster_flushed_records_total", COUNTER, NODE, (), "Records of groups and ledger that were made durable."
    ),
    MetricFamily("muster_inbox_events", GAUGE, NODE, (), "Events that wait for the next turn."),
    MetricFamily(
        "muster_parked_requests",
        GAUGE,
        NODE,
        ("kind",),
        "Requests that wait on purpose: join, sync, fetch, session (streams).",
    ),
    MetricFamily(
        "muster_certificate_expiry_timestamp_seconds",
        GAUGE,
        NODE,
        ("listener",),
        "When the first certificate that a listener shows ends, in seconds since 1970; none for plaintext ones.",
    ),
    MetricFamily(
        "muster_connections",
        GAUGE,
        NODE,
        ("door",),
        "Open connections of Kafka's door and of HTTP's, open calls of gRPC's.",
    ),
    MetricFamily(
        "muster_throttled_seconds_total",
        COUNTER,
        NODE,
        ("principal",),
        "Seconds that a user was told to wait because of a quota; of more than a hundred users the rest is `others`.",
    ),
    MetricFamily(
        "muster_failed_logins_total",
        COUNTER,
        NODE,
        ("door", "address"),
        "Logins that failed, and tokens that nobody knows; of more than a hundred addresses the rest is `others`.",
    ),
    MetricFamily("muster_unread_bytes", GAUGE, NODE, ("door",), "Bytes of answers that clients have not read yet."),
    MetricFamily(
        "muster_shard_status",
        GAUGE,
        NODE,
        ("shard", "status"),
        "1 for the status that the shard has (loading, active, failed, unloaded).",
    ),
    MetricFamily("muster_disk_free_bytes", GAUGE, NODE, (), "Bytes that are free where log.dirs lies."),
    MetricFamily(
        "muster_disk_warn_bytes", GAUGE, NODE, (), "log.dirs.free.warn.bytes: with less the node's health says so."
    ),
    MetricFamily("muster_loop_lag_seconds", GAUGE, NODE, (), "How late the event loop was when it was last asked."),
    MetricFamily(
        "muster_node_conditions", GAUGE, NODE, ("kind",), "Troubles of the node that last, as `muster health` has."
    ),
    MetricFamily(
        "muster_task_failures_total",
        COUNTER,
        NODE,
        ("task",),
        "Background tasks of the node that ended unexpectedly: each is a mistake of the program.",
    ),
    MetricFamily("muster_build_info", GAUGE, NODE, ("version", "python"), "1; what runs."),
    MetricFamily(
        "muster_metrics_dropped_series",
        GAUGE,
        NODE,
        ("level",),
        "Series left out of this answer because of metrics.max.series.",
    ),
)

OF_CLUSTER: Final = (
    MetricFamily(
        "kafka_server_replicamanager_underreplicatedpartitions",
        GAUGE,
        NODE,
        (),
        "Partitions that this node leads, and of which a copy is behind or gone.",
    ),
    MetricFamily(
        "kafka_server_replicamanager_underminisrpartitioncount",
        GAUGE,
        NODE,
        (),
        "Partitions that this node leads, and that take no records with acks=all: too few copies are in sync.",
    ),
    MetricFamily(
        "kafka_server_replicamanager_isrshrinks_total",
        COUNTER,
        NODE,
        (),
        "Times that a copy fell out of sync with this node as the leader.",
    ),
    MetricFamily(
        "kafka_server_replicamanager_isrexpands_total",
        COUNTER,
        NODE,
        (),
        "Times that a copy came into sync with this node as the leader.",
    ),
    MetricFamily(
        "kafka_server_replicafetchermanager_maxlag",
        GAUGE,
        NODE,
        (),
        "Records that are committed at their leader and not here yet, of the copy on this node that is furthest "
        "behind.",
    ),
    MetricFamily(
        "kafka_controller_kafkacontroller_activecontrollercount",
        GAUGE,
        NODE,
        (),
        "1 if this node is the controller, 0 if it is not.",
    ),
    MetricFamily(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        GAUGE,
        NODE,
        (),
        "Partitions that nobody leads, as the controller tells; 0 from other nodes.",
    ),
    MetricFamily(
        "kafka_controller_controllerstats_leaderelections_total",
        COUNTER,
        NODE,
        (),
        "Elections that this node decided as controller (Kafka: LeaderElectionRateAndTimeMs, its count).",
    ),
    MetricFamily(
        "kafka_controller_controllerstats_leaderelection_seconds_total",
        COUNTER,
        NODE,
        (),
        "Seconds from what led to these elections until they were written, added up (Kafka: "
        "LeaderElectionRateAndTimeMs, its sum).",
    ),
    MetricFamily(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        NODE,
        (),
        "Of these, elections of a node that may have lacked records.",
    ),
    MetricFamily(
        "muster_unclean_undone_records_total",
        COUNTER,
        NODE,
        (),
        "Records that this node's copies gave up because of unclean elections.",
    ),
)
"""Of a node of a cluster, by the names that Kafka's JMX beans have in Prometheus; a node on its own has none."""

OF_ENGINE: Final = (
    MetricFamily(
        "muster_engine_append_seconds",
        HISTOGRAM,
        NODE,
        (),
        "Seconds until Kafka acknowledged what this node's shards wrote, a request each.",
    ),
    MetricFamily(
        "muster_engine_unacked_bytes",
        GAUGE,
        NODE,
        ("shard",),
        "Bytes that a shard of this node wrote and that are not acknowledged yet.",
    ),
    MetricFamily("muster_engine_owned_shards", GAUGE, NODE, (), "Shards of groups that this node serves."),
    MetricFamily(
        "muster_engine_fenced_total",
        COUNTER,
        NODE,
        (),
        "Times that another node's producer has fenced a shard of this one.",
    ),
    MetricFamily(
        "muster_engine_void_records_total",
        COUNTER,
        NODE,
        (),
        "Records passed over as shards were read: somebody who owned them no more had written them.",
    ),
    MetricFamily(
        "muster_engine_upstream_errors_total",
        COUNTER,
        NODE,
        ("api", "code"),
        "Questions to that Kafka that got no answer (UNREACHED), or a code.",
    ),
    MetricFamily(
        "muster_engine_proxy_bytes_total",
        COUNTER,
        NODE,
        ("direction",),
        "Bytes of Kafka clients that passed this node, to that Kafka (up) and from it (down).",
    ),
    MetricFamily("muster_engine_proxy_connections", GAUGE, NODE, (), "Kafka clients' connections that pass this node."),
    MetricFamily(
        "muster_engine_foreign_members",
        GAUGE,
        NODE,
        ("group",),
        "Members that a group of Muster's has in that Kafka itself: it is in two halves.",
    ),
    MetricFamily(
        "muster_engine_topics_unseen",
        GAUGE,
        NODE,
        (),
        "Topics that groups read and that Kafka's answers leave out, though nobody said that they are gone.",
    ),
    MetricFamily(
        "muster_engine_pending_positions", GAUGE, NODE, (), "Positions in clients' transactions that are open."
    ),
    MetricFamily(
        "muster_engine_oldest_transaction_seconds", GAUGE, NODE, (), "For how long the oldest of those waits."
    ),
)
"""Of a node over somebody's Kafka; no other node has them."""

FAMILIES: Final[dict[str, MetricFamily]] = {
    family.name: family for family in (*EXPORTER, *OF_GROUPS, *OF_NODE, *OF_CLUSTER, *OF_ENGINE)
}

FINENESS: Final = (Level.GROUP, Level.TOPIC, Level.PARTITION)


def levels_of(granularity: str) -> frozenset[Level]:
    """What is written of groups and topics under this `metrics.granularity`.

    >>> sorted(levels_of("topic"))
    [<Level.ALWAYS: 'always'>, <Level.GROUP: 'group'>, <Level.TOPIC: 'topic'>]
    """
    finest = FINENESS.index(Level(granularity))
    return frozenset((Level.ALWAYS, *FINENESS[: finest + 1]))


def bulk_families(families: Iterable[MetricFamily] = FAMILIES.values()) -> tuple[MetricFamily, ...]:
    """Those of groups, topics and partitions, in the order in which they are written."""
    return tuple(family for family in families if family.level is not Level.NODE)
