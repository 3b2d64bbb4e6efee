"""Settings of many nodes: ZooKeeper, the listener between nodes, the number of copies, and when a copy is in sync.

Without `inter.broker.listeners` a node is alone and the replication settings have no effect; they count together with
`zookeeper.connect`. Names are Kafka's. Where a default differs from Kafka's, it is because nothing acknowledged may
be lost with one node, which Kafka's defaults do not promise.
"""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from muster.coordinator.config.values import (
    DAY_MS,
    MAX_SHORT,
    Address,
    ConnectText,
    ListenerAddress,
    advertised_address,
    check_advertised_host,
    parse_connect,
    parse_listener,
    validated_by,
)
from muster.storage.settings_text import (
    MAX_INT,
    MAX_LONG,
    NonNegativeInt32,
    NonNegativeInt64,
    PositiveInt32,
    SettingsModel,
    setting,
)

MOST_BYTES = 1 << 30
LAG_IN_WAITS = 2
"""A replica that waits for `replica.fetch.wait.max.ms` in each fetch must not be out of sync between two of them."""


class ClusterSettings(SettingsModel):
    """They count where `inter.broker.listeners` is set, together with `zookeeper.connect`."""

    inter_broker_listeners: str = setting(
        "",
        "The HOST:PORT on which this node serves the other nodes of a cluster, optionally behind PLAINTEXT:// (the "
        "default) or SSL://; port 0 takes a free one; empty means a standalone node.",
    )
    inter_broker_advertised_listeners: str = setting(
        "",
        "The HOST:PORT that other nodes are told to connect to; empty means that of inter.broker.listeners, port 0 "
        "the port that was bound.",
    )
    broker_rack: str = setting(
        "",
        "The rack of this node; replicas of a partition are spread over as many racks as possible.",
        allowed="a name, or nothing",
        max_length=255,
    )
    default_replication_factor: Annotated[int, Field(ge=1, le=MAX_SHORT)] = setting(
        3, "The number of replicas of a new topic, unless its creator says otherwise."
    )
    offsets_topic_replication_factor: Annotated[int, Field(ge=1, le=MAX_SHORT)] = setting(
        3,
        "The number of replicas of the internal topics, such as groups and offsets; they are created once there are "
        "that many nodes.",
    )
    transaction_state_log_replication_factor: Annotated[int, Field(ge=1, le=MAX_SHORT)] = setting(
        3, "The number of replicas of the log of transactional ids; it is created when the first id asks."
    )
    transaction_state_log_min_isr: PositiveInt32 = setting(
        2, "How many replicas must have what is decided of a transaction before it counts; never more than there are."
    )
    min_insync_replicas: PositiveInt32 = setting(
        2,
        "How many replicas must have a record before it is acknowledged with acks=all, unless the topic says "
        "otherwise; never more than there are.",
    )
    unclean_leader_election_enable: bool = setting(
        False,
        "Whether a replica that may lack acknowledged records is elected if no other is left, unless the topic says "
        "otherwise.",
    )
    replica_lag_time_max_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = setting(
        10_000,
        "A replica that has not reached its leader's end for this long leaves the ISR; at least twice "
        "replica.fetch.wait.max.ms.",
    )
    replica_fetch_wait_max_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = setting(
        500, "How long a leader holds a replica's fetch while there are no new records."
    )
    replica_fetch_min_bytes: Annotated[int, Field(ge=0, le=MOST_BYTES)] = setting(
        1, "A leader holds a replica's fetch while there are fewer bytes of records than this."
    )
    replica_fetch_max_bytes: Annotated[int, Field(ge=0, le=MOST_BYTES)] = setting(
        1 << 20, "How many bytes of one partition a replica fetches at a time; at least one batch, however large."
    )
    replica_fetch_response_max_bytes: Annotated[int, Field(ge=0, le=MOST_BYTES)] = setting(
        10 << 20, "How many bytes of all partitions a replica fetches at a time."
    )
    replica_fetch_backoff_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = setting(
        200, "How long a replica waits before it fetches again after a refusal, or from a node that it cannot reach."
    )
    replica_high_watermark_checkpoint_interval_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = setting(
        5_000, "How often the high watermarks of all partitions are written to disk."
    )
    auto_leader_rebalance_enable: bool = setting(True, "Whether leadership returns to preferred leaders automatically.")
    leader_imbalance_per_broker_percentage: Annotated[int, Field(ge=0, le=100)] = setting(
        10, "Leadership returns when more than this percentage of the partitions that prefer a node is led by others."
    )
    leader_imbalance_check_interval_seconds: PositiveInt32 = setting(300, "How often this imbalance is checked.")
    controlled_shutdown_enable: bool = setting(True, "Whether a stopping node first gives up its leaderships.")
    controlled_shutdown_max_retries: NonNegativeInt32 = setting(
        3, "How often a stopping node repeats this request to the controller."
    )
    controlled_shutdown_retry_backoff_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = setting(
        1_000, "How long a stopping node waits before it repeats this request."
    )
    offsets_commit_timeout_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = setting(
        5_000, "How long an answer about a group waits until enough replicas have its records."
    )
    leader_replication_throttled_rate: NonNegativeInt64 = setting(
        MAX_LONG, "Bytes per second that this node sends of a topic's leader.replication.throttled.replicas."
    )
    follower_replication_throttled_rate: NonNegativeInt64 = setting(
        MAX_LONG, "Bytes per second that this node fetches of a topic's follower.replication.throttled.replicas."
    )
    broker_eviction_on_refusal: bool = setting(
        True,
        "Whether a node whose inter.broker.listeners refuses connections is treated as dead before its session ends; "
        "false if a proxy answers for nodes.",
    )
    offsets_warm_replicas: bool = setting(
        True,
        "Whether replicas of groups, offsets and transactional ids are kept in memory, so that a takeover is quick.",
    )

    @property
    def replication_listener(self) -> ListenerAddress | None:
        """What is spoken where other nodes are answered, if they are."""
        return parse_listener(self.inter_broker_listeners) if self.inter_broker_listeners else None

    def replication_advertised_address(self, bound_port: int) -> Address:
        """Where other nodes should connect, once it is known which port was bound."""
        return advertised_address(self.inter_broker_advertised_listeners, self.inter_broker_listeners, bound_port)

    is_an_address_between_nodes = field_validator("inter_broker_listeners", "inter_broker_advertised_listeners")(
        validated_by(parse_listener)
    )

    @model_validator(mode="after")
    def other_nodes_can_reach_it(self) -> Self:
        if self.inter_broker_listeners:
            told = self.replication_advertised_address(0)
            check_advertised_host(told.host, "other nodes", "inter.broker.advertised.listeners")
        elif self.inter_broker_advertised_listeners:
            raise ValueError(
                f"inter.broker.advertised.listeners is {self.inter_broker_advertised_listeners}, but "
                "inter.broker.listeners is empty; set it, or leave inter.broker.advertised.listeners empty"
            )
        return self

    @model_validator(mode="after")
    def a_waiting_replica_is_in_sync(self) -> Self:
        least = LAG_IN_WAITS * self.replica_fetch_wait_max_ms
        if self.replica_lag_time_max_ms < least:
            raise ValueError(
                f"replica.lag.time.max.ms is {self.replica_lag_time_max_ms}, but replica.fetch.wait.max.ms is "
                f"{self.replica_fetch_wait_max_ms}: a replica that waits for records would be out of sync; expected "
                f"at least {least}, or a shorter wait"
            )
        return self


# ZooKeeper
# ---------


class ZooKeeperConnectionSettings(SettingsModel):
    zookeeper_connect: ConnectText = setting(
        ConnectText(""),
        "The ZooKeeper ensemble in which this node registers and whose groups it shows; empty means none.",
    )
    zookeeper_session_timeout_ms: Annotated[int, Field(ge=100, le=MAX_INT)] = setting(
        6_000, "How long ZooKeeper waits for a silent node before it removes the node's registration."
    )
    zookeeper_connection_timeout_ms: Annotated[int, Field(ge=100, le=MAX_INT)] = setting(
        6_000, "How long a starting node waits for ZooKeeper before it gives up."
    )

    zookeeper_digest_file: str = setting(
        "",
        "A file with USER:PASSWORD, by which a node of a cluster logs in to ZooKeeper (scheme digest): the secret that "
        "nodes share is then readable for this user alone; empty means no login.",
    )

    is_a_connect_string = field_validator("zookeeper_connect")(validated_by(parse_connect))
