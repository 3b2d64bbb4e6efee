"""Settings of many nodes: ZooKeeper, the listener between nodes, the number of copies, and when a copy is in sync.

Without `inter.broker.listeners` a node is alone and the replication settings have no effect; they count together with
`zookeeper.connect`. Names are Kafka's. Where a default differs from Kafka's, it is because nothing acknowledged may
be lost with one node, which Kafka's defaults do not promise.
"""

from typing import Self

from pydantic import BaseModel, Field, field_validator, model_validator

from muster.coordinator.config.values import (
    DAY_MS,
    MAX_INT,
    MAX_LONG,
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

MOST_BYTES = 1 << 30
LAG_IN_WAITS = 2
"""A replica that waits for `replica.fetch.wait.max.ms` in each fetch must not be out of sync between two of them."""


class ClusterSettings(BaseModel):
    """They count where `inter.broker.listeners` is set, together with `zookeeper.connect`."""

    inter_broker_listeners: str = Field(
        default="",
        alias="inter.broker.listeners",
        description="The HOST:PORT on which the other nodes of a cluster are answered, behind PLAINTEXT:// (as without "
        "a word) or SSL://; port 0 takes a free one, empty: the node is alone.",
    )
    inter_broker_advertised_listeners: str = Field(
        default="",
        alias="inter.broker.advertised.listeners",
        description="The HOST:PORT that other nodes are told to connect to; empty means that of "
        "inter.broker.listeners, port 0 the port that is listened on.",
    )
    broker_rack: str = Field(
        default="",
        alias="broker.rack",
        max_length=255,
        description="Where the node stands: copies of a partition go to as many racks as there are.",
        json_schema_extra={"allowed": "a name, or nothing"},
    )
    default_replication_factor: int = Field(
        default=3,
        alias="default.replication.factor",
        ge=1,
        le=MAX_SHORT,
        description="How many copies the partitions of a new topic have where nobody says.",
    )
    offsets_topic_replication_factor: int = Field(
        default=3,
        alias="offsets.topic.replication.factor",
        ge=1,
        le=MAX_SHORT,
        description="How many copies groups, offsets and the other internal topics have; they are made once there are "
        "so many nodes.",
    )
    min_insync_replicas: int = Field(
        default=2,
        alias="min.insync.replicas",
        ge=1,
        le=MAX_INT,
        description="How many copies must have a record before it is acknowledged to who asks for all, unless the "
        "topic says otherwise; never more than there are.",
    )
    unclean_leader_election_enable: bool = Field(
        default=False,
        alias="unclean.leader.election.enable",
        description="Whether a copy that may lack acknowledged records is elected where no other is left, unless the "
        "topic says otherwise.",
    )
    replica_lag_time_max_ms: int = Field(
        default=10_000,
        alias="replica.lag.time.max.ms",
        ge=1,
        le=DAY_MS,
        description="A copy that has not been at its leader's end for this long is out of sync; at least twice "
        "replica.fetch.wait.max.ms.",
    )
    replica_fetch_wait_max_ms: int = Field(
        default=500,
        alias="replica.fetch.wait.max.ms",
        ge=1,
        le=DAY_MS,
        description="How long a leader holds a copy's fetch until there are records.",
    )
    replica_fetch_min_bytes: int = Field(
        default=1,
        alias="replica.fetch.min.bytes",
        ge=0,
        le=MOST_BYTES,
        description="With fewer bytes of records than this it is held for that long.",
    )
    replica_fetch_max_bytes: int = Field(
        default=1 << 20,
        alias="replica.fetch.max.bytes",
        ge=0,
        le=MOST_BYTES,
        description="How many bytes of one partition are fetched at once; a single batch always is, however large.",
    )
    replica_fetch_response_max_bytes: int = Field(
        default=10 << 20,
        alias="replica.fetch.response.max.bytes",
        ge=0,
        le=MOST_BYTES,
        description="How many bytes of all partitions together.",
    )
    replica_fetch_backoff_ms: int = Field(
        default=200,
        alias="replica.fetch.backoff.ms",
        ge=0,
        le=DAY_MS,
        description="How long a partition whose fetch was refused is left alone, and a node that cannot be reached.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = Field(
        default=5_000,
        alias="replica.high.watermark.checkpoint.interval.ms",
        ge=1,
        le=DAY_MS,
        description="How often it is written down how far all partitions are committed.",
    )
    auto_leader_rebalance_enable: bool = Field(
        default=True,
        alias="auto.leader.rebalance.enable",
        description="Whether partitions go back by themselves to the leader they prefer.",
    )
    leader_imbalance_per_broker_percentage: int = Field(
        default=10,
        alias="leader.imbalance.per.broker.percentage",
        ge=0,
        le=100,
        description="They do where more than this share of those that prefer a node is led elsewhere.",
    )
    leader_imbalance_check_interval_seconds: int = Field(
        default=300,
        alias="leader.imbalance.check.interval.seconds",
        ge=1,
        le=MAX_INT,
        description="How often that is looked at.",
    )
    controlled_shutdown_enable: bool = Field(
        default=True,
        alias="controlled.shutdown.enable",
        description="Whether a node that is asked to stop first lets go of what it leads.",
    )
    controlled_shutdown_max_retries: int = Field(
        default=3,
        alias="controlled.shutdown.max.retries",
        ge=0,
        le=MAX_INT,
        description="How often it asks the controller for that again.",
    )
    controlled_shutdown_retry_backoff_ms: int = Field(
        default=1_000,
        alias="controlled.shutdown.retry.backoff.ms",
        ge=0,
        le=DAY_MS,
        description="How long it waits before.",
    )
    offsets_commit_timeout_ms: int = Field(
        default=5_000,
        alias="offsets.commit.timeout.ms",
        ge=1,
        le=DAY_MS,
        description="How long an answer about a group waits until enough copies have what it says.",
    )
    leader_replication_throttled_rate: int = Field(
        default=MAX_LONG,
        alias="leader.replication.throttled.rate",
        ge=0,
        le=MAX_LONG,
        description="Bytes a second that this node sends of a topic's leader.replication.throttled.replicas.",
    )
    follower_replication_throttled_rate: int = Field(
        default=MAX_LONG,
        alias="follower.replication.throttled.rate",
        ge=0,
        le=MAX_LONG,
        description="Bytes a second that it fetches of a topic's follower.replication.throttled.replicas.",
    )
    broker_eviction_on_refusal: bool = Field(
        default=True,
        alias="broker.eviction.on.refusal",
        description="Whether a node whose inter.broker.listeners refuses connections counts as dead before its session "
        "ends; false where a proxy answers for nodes.",
    )
    offsets_warm_replicas: bool = Field(
        default=True,
        alias="offsets.warm.replicas",
        description="Whether copies of groups and offsets are kept ready in memory, so that taking over is quick.",
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
                "inter.broker.listeners is empty; set it, or leave the first empty, too"
            )
        return self

    @model_validator(mode="after")
    def a_waiting_replica_is_in_sync(self) -> Self:
        least = LAG_IN_WAITS * self.replica_fetch_wait_max_ms
        if self.replica_lag_time_max_ms < least:
            raise ValueError(
                f"replica.lag.time.max.ms is {self.replica_lag_time_max_ms}, but replica.fetch.wait.max.ms is "
                f"{self.replica_fetch_wait_max_ms}: a copy that waits for records would be out of sync; expected at "
                f"least {least}, or a shorter wait"
            )
        return self


# ZooKeeper
# ---------


class ZooKeeperConnectionSettings(BaseModel):
    zookeeper_connect: ConnectText = Field(
        default=ConnectText(""),
        alias="zookeeper.connect",
        description="The ZooKeeper in which this node registers, and whose groups it shows; empty means none.",
    )
    zookeeper_session_timeout_ms: int = Field(
        default=6_000,
        alias="zookeeper.session.timeout.ms",
        ge=100,
        le=MAX_INT,
        description="How long ZooKeeper waits for a silent node before its registration goes.",
    )
    zookeeper_connection_timeout_ms: int = Field(
        default=6_000,
        alias="zookeeper.connection.timeout.ms",
        ge=100,
        le=MAX_INT,
        description="How long a starting node waits for ZooKeeper to answer before it gives up.",
    )

    is_a_connect_string = field_validator("zookeeper_connect")(validated_by(parse_connect))
