"""Settings of where a node keeps its state: the log in its own directory, or a Kafka cluster (`engine`).

`check_backend_settings` refuses settings that have no place in Kafka-backed mode; `check_node_id` holds node ids to the
32 bits that Kafka's clients know a node by.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from muster.coordinator.config.kafka_proxy import ProxyPrincipalSettings, ProxySettings, check_proxy_principal
from muster.coordinator.config.values import DAY_MS, MAX_SHORT, SASL_MECHANISMS, Address, parse_address
from muster.storage.settings_text import MAX_INT, PositiveInt32, setting, setting_as_text

BUNDLED: Final = "bundled"
SCHEME: Final = "kafka://"
LEAST_BEATS: Final = 3
"""In a session."""
LONGEST_NAME: Final = 200
"""Of the names that are made of the cluster's; a topic's may have 249 letters."""


def parse_engine(text: str) -> tuple[Address, ...]:
    """The brokers that `kafka://HOST:PORT,HOST:PORT` names; none for `bundled`. Raises ValueError.

    >>> parse_engine("kafka://b1:9092,b2:9092")[1], parse_engine("bundled")
    (Address(host='b2', port=9092), ())
    """
    if text == BUNDLED:
        return ()
    if not text.startswith(SCHEME):
        raise ValueError(f"{BUNDLED}, or {SCHEME}HOST:PORT,HOST:PORT")
    return tuple(parse_address(each.strip()) for each in text.removeprefix(SCHEME).split(","))


class KafkaBackendSettings(ProxyPrincipalSettings, ProxySettings):
    engine: str = setting(
        BUNDLED,
        "Where the node keeps its state: in the log of its own directory, or in a Kafka cluster.",
        allowed=f"{BUNDLED}, or {SCHEME}HOST:PORT,HOST:PORT",
    )
    engine_kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = setting(
        "PLAINTEXT", "The security protocol of connections to the brokers."
    )
    engine_kafka_sasl_mechanism: str = setting(
        "",
        "The SASL mechanism with which this node logs in to the brokers, if the protocol begins with SASL.",
        allowed=f"one of {', '.join(SASL_MECHANISMS)}, or nothing",
    )
    engine_kafka_sasl_username: str = setting(
        "", "The user name of this node at the brokers, unless it uses a token.", allowed="a name, or nothing"
    )
    engine_kafka_sasl_password: SecretStr = setting(SecretStr(""), "The password of this node at the brokers.")
    engine_kafka_sasl_oauthbearer_token_file: str = setting(
        "", "The file with the OAUTHBEARER token, read again for each connection.", allowed="a file, or nothing"
    )
    engine_kafka_ssl_truststore_location: str = setting(
        "",
        "The authorities that may sign the brokers' certificates; empty means those of the system.",
        allowed="a PEM file, or nothing",
    )
    engine_kafka_ssl_keystore_location: str = setting(
        "", "The certificate and key that this node shows the brokers.", allowed="a PEM file, or nothing"
    )
    engine_kafka_ssl_key_password: SecretStr = setting(SecretStr(""), "The password of that key, if it is encrypted.")
    engine_kafka_cluster: str = setting(
        "muster",
        "The prefix of Muster's names in that Kafka: the nodes' group, the state topic, transactional ids.",
        allowed=f"up to {LONGEST_NAME} letters, digits, dots, dashes and underscores",
        pattern=r"^[A-Za-z0-9._-]+$",
        max_length=LONGEST_NAME,
    )
    engine_kafka_state_topic: str = setting(
        "",
        "The topic with groups, offsets and ledger; empty means the cluster's name and .state.",
        allowed="a topic (up to 249 letters, digits, dots, dashes, underscores), or nothing",
        pattern=r"^[A-Za-z0-9._-]*$",
        max_length=249,
    )
    engine_kafka_state_replication_factor: Annotated[int, Field(ge=1, le=MAX_SHORT)] = setting(
        3, "The number of replicas of that topic when it is created."
    )
    engine_kafka_node_id_base: PositiveInt32 = setting(
        1_000_000, "Kafka clients see this plus node.id as the id of a Muster node; choose it above all broker ids."
    )
    engine_kafka_session_timeout_ms: Annotated[int, Field(ge=1_000, le=DAY_MS)] = setting(
        10_000, "A node that is silent for this long loses its shards to other nodes."
    )
    engine_kafka_heartbeat_interval_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = setting(
        2_000, "How often a node sends a heartbeat to the nodes' group."
    )
    engine_kafka_delivery_timeout_ms: Annotated[int, Field(ge=1_000, le=DAY_MS)] = setting(
        30_000, "How long a shard's write is retried before the shard is loaded again."
    )
    engine_kafka_max_unacked_bytes_per_shard: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = setting(
        8 << 20, "A shard with more unacknowledged bytes than this refuses requests for now."
    )
    engine_kafka_owner_refresh_ms: Annotated[int, Field(ge=1_000, le=7 * DAY_MS)] = setting(
        21_600_000, "How often a shard writes a record even if it is idle, so that brokers do not forget its producer."
    )

    engine_kafka_metadata_refresh_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = setting(
        5_000, "How often the topics of that Kafka are looked up."
    )
    engine_kafka_topic_gone_after_ms: Annotated[int, Field(ge=1_000, le=DAY_MS)] = setting(
        60_000,
        "A topic is treated as deleted once two brokers, this far apart in time, have not known it; committed offsets "
        "of the topic are then deleted.",
    )
    watch_enable: bool = setting(
        False,
        "Whether the node only watches the groups that the Kafka of engine coordinates: it reads their records, "
        "answers and explains, and writes nothing there.",
    )
    watch_segments: str = setting(
        "",
        "Copies of a broker's __consumer_offsets folders or segment files, which a watching node reads in place of a "
        "Kafka, separated by commas.",
        allowed="paths, or nothing",
    )
    watch_group: str = setting(
        "",
        "The only group that matters to a watching node: it reads the partition that the group is in and no other; "
        "empty means all.",
        allowed="a group, or nothing",
    )
    watch_broker_log: str = setting(
        "",
        "Server logs of the brokers, or folders of them, separated by commas: a watching node reads and follows them, "
        "and what they say of a group settles what its records leave open.",
        allowed="paths, or nothing",
    )
    watch_ledger_dir: str = setting(
        "",
        "The directory in which a watching node keeps its ledger; empty means in memory: after a restart it is read "
        "anew from the Kafka, as far as that still has it.",
        allowed="a directory, or nothing",
    )
    watch_since_ms: Annotated[int, Field(ge=0, le=365 * DAY_MS)] = setting(
        0, "How far back a watching node tells of rebalances; 0 means as far as the Kafka still has records of them."
    )
    watch_poll_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = setting(
        500,
        "How often a watching node asks each broker which groups rebalance, or less often where a broker takes long; "
        "0 means never.",
    )
    watch_describe_ms: Annotated[int, Field(ge=1_000, le=DAY_MS)] = setting(
        60_000,
        "How often a watching node asks each broker for all its groups, and about those that records do not tell.",
    )

    engine_kafka_offsets_mirror: bool = setting(
        False, "Whether committed offsets are also committed to that Kafka's own coordinator."
    )
    engine_kafka_offsets_mirror_interval_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = setting(
        5_000, "The shortest time between two such commits of one group."
    )

    @property
    def upstream(self) -> tuple[Address, ...]:
        """Where to begin; nobody on the bundled engine."""
        return parse_engine(self.engine)

    @property
    def watched(self) -> str:
        """What coordinates the groups that this node only watches, in words; empty: it does not watch."""
        if not self.watch_enable:
            return ""
        if self.watch_segments:
            return "the Kafka of these segments"
        return f"the Kafka at {self.engine.removeprefix(SCHEME)}"

    @property
    def state_topic(self) -> str:
        return self.engine_kafka_state_topic or f"{self.engine_kafka_cluster}.state"

    @property
    def security_topic(self) -> str:
        """Where lists of rights, tokens and quotas are."""
        return f"{self.engine_kafka_cluster}.security"

    @field_validator("engine")
    @classmethod
    def is_an_engine(cls, value: str) -> str:
        parse_engine(value)
        return value

    @field_validator("engine_kafka_sasl_mechanism")
    @classmethod
    def is_a_mechanism(cls, value: str) -> str:
        if value and value not in SASL_MECHANISMS:
            raise ValueError(f"{value!r} is not supported here")
        return value

    @model_validator(mode="after")
    def is_of_a_kafka(self) -> Self:
        """What is set for a Kafka wants one."""
        if self.upstream:
            return self
        for name, field in KafkaBackendSettings.model_fields.items():
            of_watching = name.startswith("watch_") and self.watch_segments
            if name != "engine" and not of_watching and getattr(self, name) != field.default:
                told = "set" if field.annotation is SecretStr else setting_as_text(getattr(self, name))
                raise ValueError(
                    f"{field.alias} is {told}, but engine is {BUNDLED}: there is no Kafka to use it for; set engine "
                    f"to {SCHEME}HOST:PORT, or leave {field.alias} out"
                )
        return self

    @model_validator(mode="after")
    def says_a_word_often_enough(self) -> Self:
        beat, session = self.engine_kafka_heartbeat_interval_ms, self.engine_kafka_session_timeout_ms
        if self.upstream and beat * LEAST_BEATS > session:
            raise ValueError(
                f"engine.kafka.heartbeat.interval.ms is {beat}, but engine.kafka.session.timeout.ms is {session}: with "
                f"fewer than {LEAST_BEATS} heartbeats in a session, one late heartbeat costs a node its shards; "
                f"expected at most {session // LEAST_BEATS}"
            )
        return self

    @model_validator(mode="after")
    def shows_who_it_is(self) -> Self:
        protocol, mechanism = self.engine_kafka_security_protocol, self.engine_kafka_sasl_mechanism
        if protocol.startswith("SASL") != bool(mechanism):
            raise ValueError(
                f"engine.kafka.security.protocol is {protocol}, but engine.kafka.sasl.mechanism is "
                f"{mechanism or 'empty'}; set both, or neither"
            )
        if mechanism == "OAUTHBEARER" and not self.engine_kafka_sasl_oauthbearer_token_file:
            raise ValueError(
                "engine.kafka.sasl.mechanism is OAUTHBEARER, but engine.kafka.sasl.oauthbearer.token.file is empty; "
                "name the file with the token"
            )
        if mechanism not in ("", "OAUTHBEARER") and not self.engine_kafka_sasl_username:
            raise ValueError(
                f"engine.kafka.sasl.mechanism is {mechanism}, but engine.kafka.sasl.username is empty; set it, and "
                "engine.kafka.sasl.password"
            )
        check_proxy_principal(self)
        return self


MEETS_THERE: Final = "its nodes find each other in that Kafka"
NO_PLACE: Final[Mapping[str, str]] = {
    "zookeeper.connect": f"{MEETS_THERE}, and groups of the ZooKeeper era need engine={BUNDLED}",
    "inter.broker.listeners": MEETS_THERE,
}
"""What a node over a Kafka does not take, and why."""


def check_backend_settings(
    engine: KafkaBackendSettings, *, given: Collection[str], log_dirs: object, others: Mapping[str, str]
) -> None:
    """What has no place beside a Kafka (KB-N1). given: names of fields that were set.
    others: settings that are listed in `NO_PLACE`, "" where they are as they should be. Raises ValueError, which names
    both."""
    if not engine.upstream:
        return
    if engine.watch_enable:
        check_watch_settings(others)
        return
    if "data_dir" in given:
        raise ValueError(
            f"log.dirs is {log_dirs}, but engine is {engine.engine}: such a node has no data directory; leave log.dirs "
            "(--data) out"
        )
    for name, value in others.items():
        if value:
            raise ValueError(f"{name} is {value}, but engine is {engine.engine}: {NO_PLACE[name]}; leave {name} out")


def check_watch_settings(others: Mapping[str, str]) -> None:
    """A watching node reads, and is part of nothing. Raises ValueError."""
    for name, value in others.items():
        if value:
            raise ValueError(
                f"{name} is {value}, but watch.enable is true: a node that watches is on its own; leave it out"
            )


def check_node_id(engine: KafkaBackendSettings, node_id: int) -> None:
    """Kafka's clients know a node by a number of 32 bits. Raises ValueError."""
    base = engine.engine_kafka_node_id_base
    if engine.upstream and base + node_id > MAX_INT:
        raise ValueError(
            f"engine.kafka.node.id.base is {base}, but node.id is {node_id}: Kafka's clients know a node by their sum, "
            f"which may be {MAX_INT} at most; lower one of them"
        )
