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
    MetricFamily("kafka_brokers", GAUGE, NODE, (), "Brokers that this scrape covers: this node only."),
    MetricFamily("kafka_broker_info", GAUGE, NODE, ("address", "id"), "1 for each of these brokers."),
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
        "1 if the leader is the preferred replica; always on a standalone node.",
    ),
    MetricFamily(
        "kafka_topic_partition_replicas", GAUGE, PARTITION, OF_PARTITION, "Number of replicas; 1 on a standalone node."
    ),
    MetricFamily(
        "kafka_topic_partition_in_sync_replica",
        GAUGE,
        PARTITION,
        OF_PARTITION,
        "Number of in-sync replicas; 1 on a standalone node.",
    ),
    MetricFamily(
        "kafka_topic_partition_under_replicated_partition",
        GAUGE,
        PARTITION,
        OF_PARTITION,
        "1 if a replica is behind; never on a standalone node.",
    ),
    MetricFamily(
        "kafka_consumergroup_current_offset",
        GAUGE,
        PARTITION,
        OF_SHARE,
        "Committed offset of the group; -1 without a commit.",
    ),
    MetricFamily(
        "kafka_consumergroup_lag",
        GAUGE,
        PARTITION,
        OF_SHARE,
        "Records between the committed offset and the end of the log; -1 without a commit.",
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
        "Sum of the lags of the topic's partitions that have a commit.",
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
        "Rebalances of the group since the node started, by cause.",
    ),
    MetricFamily(
        "muster_group_rebalance_duration_seconds",
        HISTOGRAM,
        GROUP,
        ("group", "protocol"),
        "Seconds from the start of a rebalance until its plan was made.",
    ),
    MetricFamily(
        "muster_group_unavailable_partition_seconds_total",
        COUNTER,
        GROUP,
        ("group",),
        "Seconds without an owner because of rebalances, summed over partitions.",
    ),
    MetricFamily(
        "muster_group_partitions_moved_total",
        COUNTER,
        GROUP,
        ("group", "assignor"),
        "Partitions that moved to another member.",
    ),
    MetricFamily(
        "muster_group_unowned_partitions",
        GAUGE,
        GROUP,
        ("group",),
        "Partitions of subscribed topics that no member owns; 0 for a group without members.",
    ),
    MetricFamily("muster_group_idle_members", GAUGE, GROUP, ("group",), "Members without partitions."),
    MetricFamily(
        "muster_group_imbalance_ratio",
        GAUGE,
        GROUP,
        ("group", "by"),
        "Largest share of a member divided by the mean share, by partition count, lag, write rate or weight; 1 is "
        "even.",
    ),
    MetricFamily(
        "muster_shadow_disagreement_ratio",
        GAUGE,
        ALWAYS,
        ("assignor",),
        "Share of partitions that a shadow assignor would have given to another member, in the latest decisions.",
    ),
    MetricFamily(
        "muster_group_lag_seconds",
        GAUGE,
        TOPIC,
        ("group", "topic"),
        "How long ago the end of the topic was at the group's position, in seconds.",
    ),
    MetricFamily("muster_log_bytes", GAUGE, TOPIC, ("topic",), "Bytes of the topic's segments."),
    MetricFamily(
        "muster_member_commit_age_seconds",
        GAUGE,
        GROUP,
        ("group", "member"),
        "Seconds since the member's last commit of any of its partitions; only with metrics.member.commit.age.",
    ),
    MetricFamily(
        "muster_fenced_requests_total",
        COUNTER,
        GROUP,
        ("group", "reason"),
        "Requests refused because of a stale or unknown member id, generation or epoch.",
    ),
)

OF_NODE: Final = (
    MetricFamily(
        "muster_handoff_duration_seconds",
        HISTOGRAM,
        NODE,
        ("phase",),
        "Duration of the phases of rebalances of all groups, in seconds.",
    ),
    MetricFamily(
        "muster_assignor_errors_total",
        COUNTER,
        NODE,
        ("assignor",),
        "Plans that an assignor of this node failed to make.",
    ),
    MetricFamily(
        "muster_message_conversions_total",
        COUNTER,
        NODE,
        ("api",),
        "Partitions whose records were converted for clients from before Kafka 0.11, by API (Produce, Fetch).",
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
        "Seconds from the start of a request until its answer was sent, waits included.",
    ),
    MetricFamily("muster_turn_duration_seconds", HISTOGRAM, NODE, (), "Duration of a turn of all shards, in seconds."),
    MetricFamily("muster_flush_duration_seconds", HISTOGRAM, NODE, (), "Duration of a group commit, in seconds."),
    MetricFamily("muster_flushed_records_total", COUNTER, NODE, (), "Records of groups and ledger that were flushed."),
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
        "Earliest expiry of a listener's certificates, in seconds since 1970; absent for plaintext listeners.",
    ),
    MetricFamily(
        "muster_connections",
        GAUGE,
        NODE,
        ("door",),
        "Open connections of the Kafka and HTTP listeners, open calls of the gRPC listener.",
    ),
    MetricFamily(
        "muster_throttled_seconds_total",
        COUNTER,
        NODE,
        ("principal",),
        "Seconds that a user was throttled by a quota; beyond a hundred users, the rest is `others`.",
    ),
    MetricFamily(
        "muster_failed_logins_total",
        COUNTER,
        NODE,
        ("door", "address"),
        "Failed logins and unknown tokens; beyond a hundred addresses, the rest is `others`.",
    ),
    MetricFamily("muster_unread_bytes", GAUGE, NODE, ("door",), "Bytes of answers that clients have not read yet."),
    MetricFamily(
        "muster_shard_status",
        GAUGE,
        NODE,
        ("shard", "status"),
        "1 for the current status of the shard (loading, active, failed, unloaded).",
    ),
    MetricFamily("muster_disk_free_bytes", GAUGE, NODE, (), "Free bytes on the disk of log.dirs."),
    MetricFamily(
        "muster_disk_warn_bytes",
        GAUGE,
        NODE,
        (),
        "log.dirs.free.warn.bytes: with less free space, the node reports a condition.",
    ),
    MetricFamily(
        "muster_loop_lag_seconds", GAUGE, NODE, (), "Delay of the event loop at the last measurement, in seconds."
    ),
    MetricFamily(
        "muster_node_conditions",
        GAUGE,
        NODE,
        ("kind",),
        "Current conditions (problems) of the node, as `muster health` shows them.",
    ),
    MetricFamily(
        "muster_task_failures_total",
        COUNTER,
        NODE,
        ("task",),
        "Background tasks of the node that ended unexpectedly; each is a bug.",
    ),
    MetricFamily(
        "muster_build_info", GAUGE, NODE, ("version", "python"), "1; labels name the version of Muster and of Python."
    ),
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
        "Partitions led by this node that have a replica behind or gone.",
    ),
    MetricFamily(
        "kafka_server_replicamanager_underminisrpartitioncount",
        GAUGE,
        NODE,
        (),
        "Partitions led by this node that take no records with acks=all: too few replicas are in sync.",
    ),
    MetricFamily(
        "kafka_server_replicamanager_isrshrinks_total",
        COUNTER,
        NODE,
        (),
        "Times that a replica left the ISR of a partition led by this node.",
    ),
    MetricFamily(
        "kafka_server_replicamanager_isrexpands_total",
        COUNTER,
        NODE,
        (),
        "Times that a replica joined the ISR of a partition led by this node.",
    ),
    MetricFamily(
        "kafka_server_replicafetchermanager_maxlag",
        GAUGE,
        NODE,
        (),
        "Largest number of committed records that a replica on this node has not fetched yet.",
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
        "Partitions without a leader, reported by the controller; 0 on other nodes.",
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
        "Total seconds from the cause of these elections until they were written (Kafka: LeaderElectionRateAndTimeMs, "
        "its sum).",
    ),
    MetricFamily(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        NODE,
        (),
        "Unclean elections among these: the elected replica may have lacked records.",
    ),
    MetricFamily(
        "muster_unclean_undone_records_total",
        COUNTER,
        NODE,
        (),
        "Records that this node's replicas truncated because of unclean elections.",
    ),
    MetricFamily(
        "muster_unproven_nodes_total",
        COUNTER,
        NODE,
        (),
        "Connections between nodes that ended because one end did not prove that it is a node of the cluster.",
    ),
)
"""Of a node of a cluster, by the names that Kafka's JMX beans have in Prometheus; a node on its own has none."""

OF_ENGINE: Final = (
    MetricFamily(
        "muster_engine_append_seconds",
        HISTOGRAM,
        NODE,
        (),
        "Seconds until Kafka acknowledged a write of this node's shards, by request.",
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
        "Times that another node's producer fenced a shard of this node.",
    ),
    MetricFamily(
        "muster_engine_void_records_total",
        COUNTER,
        NODE,
        (),
        "Records skipped while shards were read: a former owner had written them.",
    ),
    MetricFamily(
        "muster_engine_upstream_errors_total",
        COUNTER,
        NODE,
        ("api", "code"),
        "Requests to that Kafka that got no answer (UNREACHED) or an error code.",
    ),
    MetricFamily(
        "muster_engine_proxy_bytes_total",
        COUNTER,
        NODE,
        ("direction",),
        "Bytes that this node proxied for Kafka clients, to that Kafka (up) and from it (down).",
    ),
    MetricFamily(
        "muster_engine_proxy_connections", GAUGE, NODE, (), "Connections of Kafka clients that this node proxies."
    ),
    MetricFamily(
        "muster_engine_foreign_members",
        GAUGE,
        NODE,
        ("group",),
        "Members that a group of Muster has in that Kafka itself: the group is split.",
    ),
    MetricFamily(
        "muster_engine_topics_unseen",
        GAUGE,
        NODE,
        (),
        "Topics that groups read and that Kafka's answers omit, without a report that they are deleted.",
    ),
    MetricFamily("muster_engine_pending_positions", GAUGE, NODE, (), "Positions in open transactions of clients."),
    MetricFamily(
        "muster_engine_oldest_transaction_seconds",
        GAUGE,
        NODE,
        (),
        "Age of the oldest of these transactions, in seconds.",
    ),
)
"""Of a node over somebody's Kafka; no other node has them."""

OF_TRANSACTIONS: Final = (
    MetricFamily("muster_transactions", GAUGE, NODE, ("state",), "Transactional ids that this node coordinates."),
    MetricFamily(
        "muster_transaction_ends_total",
        COUNTER,
        NODE,
        ("result", "cause"),
        "Transactions that were committed or aborted, by cause.",
    ),
    MetricFamily(
        "muster_transaction_seconds",
        HISTOGRAM,
        NODE,
        (),
        "Seconds from the start of a transaction until its markers were durable.",
    ),
    MetricFamily(
        "muster_log_stable_lag",
        GAUGE,
        NODE,
        OF_PARTITION,
        "Records that readers of committed records cannot reach, of up to 1,000 partitions with an open transaction.",
    ),
    MetricFamily(
        "muster_abort_entries_lost_total",
        COUNTER,
        NODE,
        (),
        "Aborts by the coordinator that could not be noted in `__aborts`.",
    ),
    MetricFamily(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        GAUGE,
        NODE,
        (),
        "Partitions where a transaction holds readers of committed records back for longer than "
        "transaction.max.timeout.ms and 5 minutes.",
    ),
    MetricFamily(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        GAUGE,
        NODE,
        (),
        "Markers that wait because nobody leads their partition; always 0 on a standalone node.",
    ),
    MetricFamily(
        "kafka_server_addpartitionstotxnmanager_verificationfailures_total",
        COUNTER,
        NODE,
        (),
        "Partitions whose first records were refused because they are not in the transaction (Kafka: "
        "VerificationFailureRate, its count).",
    ),
)
"""Of a node that coordinates transactional ids, once there is one."""

FAMILIES: Final[dict[str, MetricFamily]] = {
    family.name: family for family in (*EXPORTER, *OF_GROUPS, *OF_NODE, *OF_CLUSTER, *OF_ENGINE, *OF_TRANSACTIONS)
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
