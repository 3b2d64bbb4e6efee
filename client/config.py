"""Properties of the clients: Kafka's names and Kafka Java's defaults, dotted in a dict or as keywords in snake_case.

An unknown name is refused with the nearest known one; only properties that have an effect are known. A property that
has no meaning under the chosen `group.protocol` is refused, as Kafka does. Security properties are Kafka's (KIP-651)
and a token; contradictions are refused, never ignored. `records.*` says how to reach records that stay in a Kafka
cluster (`muster serve --engine`). ZooKeeper-based consumers use the names and defaults of Kafka 0.8 to 0.11.
"""

import difflib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from muster.client.errors import ConfigError
from muster.client.types import ConnectionConfig, IsolationLevel, SecurityConfig, split_servers
from muster.storage.settings_text import (
    MAX_INT,
    BadReference,
    NonNegativeInt32,
    PositiveInt32,
    Resolved,
    describe_allowed,
    resolve_references,
    setting,
    to_dotted,
)

# Records in a Kafka cluster
# --------------------------


class RecordsProperties(BaseModel):
    """They mean something where the nodes keep groups in a Kafka cluster (`muster serve --engine`), else nothing."""

    records_bootstrap_servers: str = setting(
        "", "HOST:PORT of that Kafka's brokers, separated by commas, instead of those that the nodes tell."
    )
    records_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None = setting(
        None, "The security protocol of connections to that Kafka."
    )
    records_sasl_mechanism: str | None = setting(None, "The SASL mechanism, for SASL_...", min_length=1)
    records_sasl_username: str | None = setting(None, "The user name.", min_length=1)
    records_sasl_password: str | None = setting(None, "The password.", min_length=1, repr=False)
    records_ssl_ca_location: str | None = setting(None, "A file with the CAs to trust.", min_length=1)
    records_ssl_certificate_location: str | None = setting(None, "A file with this client's certificate.", min_length=1)
    records_ssl_key_location: str | None = setting(None, "A file with the certificate's key.", min_length=1)
    records_ssl_key_password: str | None = setting(None, "The password of that key.", min_length=1, repr=False)


# TLS and credentials (KIP-651)
# -----------------------------

SECRET = frozenset(
    {"ssl.keystore.key", "ssl.key.password", "token", "records.sasl.password", "records.ssl.key.password"}
)
"""Properties whose values nothing may show: no error, no repr, no plan."""

HIDDEN = "..."
MAX_TOKEN_CHARS = 16_384
NO_SASL = "expected PLAINTEXT or SSL: over gRPC a login is a token, see token and token.file"
NO_SWITCH = (
    "expected https: gRPC always checks the name; where a node's certificate has another one than its address, "
    "ssl.target.name says which"
)


def show_property(name: str, value: object) -> str:
    """A property's value for an error.

    >>> show_property("acks", "some"), show_property("token", "abc")
    ("'some'", '...')
    """
    return HIDDEN if name in SECRET else repr(value)


class SecurityProperties(BaseModel):
    """What every client understands of TLS and tokens. What contradicts itself is refused, never overlooked."""

    security_protocol: Literal["PLAINTEXT", "SSL"] = setting("PLAINTEXT", "SSL encrypts by TLS, PLAINTEXT does not.")
    ssl_truststore_type: Literal["PEM"] = setting("PEM", "The only format is PEM.")
    ssl_truststore_location: str | None = setting(
        None, "A file with the CAs to trust; without it and the next property, those of gRPC.", min_length=1
    )
    ssl_truststore_certificates: str | None = setting(None, "The CAs as PEM text, instead of a file.", min_length=1)
    ssl_keystore_type: Literal["PEM"] = setting("PEM", "The only format is PEM.")
    ssl_keystore_location: str | None = setting(
        None, "A file with this client's certificate, its chain, and the key (PKCS#8).", min_length=1
    )
    ssl_keystore_certificate_chain: str | None = setting(
        None, "The certificate and its chain as PEM text, instead of a file.", min_length=1
    )
    ssl_keystore_key: str | None = setting(
        None, "The certificate's key as PEM text (PKCS#8).", min_length=1, repr=False
    )
    ssl_key_password: str | None = setting(None, "The password of the key.", min_length=1, repr=False)
    ssl_endpoint_identification_algorithm: Literal["https"] = setting(
        "https", "https: the certificate must have the node's name. This cannot be switched off."
    )
    ssl_target_name: str | None = setting(
        None, "The name to expect in certificates instead of the address, for all nodes.", min_length=1, max_length=253
    )
    token: str | None = setting(
        None, "The token sent with each call: an API token (muster tokens create), or a signed JWT.", repr=False
    )
    token_file: str | None = setting(None, "A file with the token, read again when it changes.", min_length=1)
    allow_insecure_token: bool = setting(False, "Whether a token may be sent unencrypted to a node on another machine.")

    @field_validator("security_protocol", mode="before")
    @classmethod
    def _name_protocol(cls, value: Any) -> Any:
        word = str(value).strip().upper()
        if word.startswith("SASL_"):
            raise ValueError(NO_SASL)
        return word

    @field_validator("ssl_endpoint_identification_algorithm", mode="before")
    @classmethod
    def _name_algorithm(cls, value: Any) -> Any:
        if str(value).strip().lower() != "https":
            raise ValueError(NO_SWITCH)
        return "https"

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: str | None) -> str | None:
        return None if value is None else check_token(value)

    @model_validator(mode="after")
    def _check_security(self) -> Self:
        given = {name: getattr(self, name) for name in SecurityProperties.model_fields if name.startswith("ssl_")}
        said = sorted(name for name, value in given.items() if value not in (None, "PEM", "https"))
        if self.security_protocol == "PLAINTEXT" and said:
            dotted = said[0].replace("_", ".")
            raise ValueError(f"{dotted} means nothing with security.protocol=PLAINTEXT; set SSL, or leave it out")
        _check_only_one("ssl.truststore.location", self.ssl_truststore_location,
                  "ssl.truststore.certificates", self.ssl_truststore_certificates)  # fmt: skip
        _check_only_one("ssl.keystore.location", self.ssl_keystore_location,
                  "ssl.keystore.key", self.ssl_keystore_key)  # fmt: skip
        _check_only_one("token", self.token, "token.file", self.token_file)
        if (self.ssl_keystore_key is None) != (self.ssl_keystore_certificate_chain is None):
            raise ValueError("ssl.keystore.key and ssl.keystore.certificate.chain go together; set both, or neither")
        if self.ssl_key_password and not (self.ssl_keystore_key or self.ssl_keystore_location):
            raise ValueError("ssl.key.password is set without a key; set ssl.keystore.location as well")
        return self

    @property
    def security(self) -> SecurityConfig | None:
        """All of it as plain values; None where a client talks plainly and shows nothing."""
        if self.security_protocol == "PLAINTEXT" and self.token is None and self.token_file is None:
            return None
        return SecurityConfig(
            tls=self.security_protocol == "SSL",
            ca_file=self.ssl_truststore_location,
            ca_pem=self.ssl_truststore_certificates,
            own_file=self.ssl_keystore_location,
            own_pem=self.ssl_keystore_certificate_chain,
            key_pem=self.ssl_keystore_key,
            key_password=self.ssl_key_password,
            target_name=self.ssl_target_name,
            token=self.token,
            token_file=self.token_file,
            insecure_token=self.allow_insecure_token,
        )


def _check_only_one(first: str, one: object, second: str, other: object) -> None:
    if one is not None and other is not None:
        raise ValueError(f"{first} and {second} are both set; keep one")


def check_token(text: str) -> str:
    """A token as it goes into a header. Raises ValueError, which does not show it.

    >>> check_token("  abc  ")
    'abc'
    """
    token = text.strip().removeprefix("Bearer ").strip()
    if not token or len(token) > MAX_TOKEN_CHARS or not all("!" <= char <= "~" for char in token):
        raise ValueError(f"expected a token of 1 to {MAX_TOKEN_CHARS} characters, in ASCII and without spaces")
    return token


# ZooKeeper-based consumers
# -------------------------

COMMIT_INTERVAL_MS = 60_000
"""How often a consumer of that era committed by itself."""


NOT_IN_ZNODES = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff/]")
ZNODE_NAME = "without / and control characters, and neither . nor .."


def is_znode_name(name: str) -> bool:
    """Whether ZooKeeper takes it as one part of a path.

    >>> [is_znode_name(name) for name in ("orders", "a b", "", ".", "..", "a/b", "a" + chr(1))]
    [True, True, False, False, False, False, False]
    """
    return name not in ("", ".", "..") and NOT_IN_ZNODES.search(name) is None


class ZookeeperProperties(BaseModel):
    """What `group.protocol=zookeeper` understands, and what a group on its way out of ZooKeeper needs."""

    zookeeper_connect: str | None = setting(None, "The ensemble: HOST:PORT,HOST:PORT/CHROOT.")
    zookeeper_session_timeout_ms: PositiveInt32 = setting(
        6_000, "Silence after which ZooKeeper ends a consumer's session."
    )
    zookeeper_connection_timeout_ms: PositiveInt32 = setting(
        6_000, "How long the first connection to ZooKeeper may take."
    )
    zookeeper_sync_time_ms: NonNegativeInt32 = setting(
        2_000, "How far a server of the ensemble may be behind its leader."
    )
    rebalance_max_retries: Annotated[int, Field(ge=0, le=10_000)] = setting(
        4, "Further attempts of a rebalance that met claims of other consumers."
    )
    rebalance_backoff_ms: int | None = setting(
        None, "The wait between those attempts; default zookeeper.sync.time.ms.", ge=1, le=MAX_INT
    )
    consumer_id: str | None = setting(
        None, "A name to register under, instead of one made from host, time and a random number.", max_length=255
    )
    num_streams: Annotated[int, Field(ge=1, le=1_000)] = setting(
        1, "How many shares of the partitions the consumer takes, one for each stream."
    )
    zookeeper_consumer_version: str | None = setting(
        None, "The release of Kafka's own consumers in the group, such as 0.8.2: roundrobin and patterns follow it."
    )
    offsets_storage: Literal["zookeeper", "kafka"] = setting(
        "zookeeper", "Where positions are stored: zookeeper, or kafka (the group's coordinator)."
    )
    dual_commit_enabled: bool | None = setting(
        None, "Commit to both stores and start at the larger offset; default true with offsets.storage=kafka."
    )

    @field_validator("zookeeper_connect")
    @classmethod
    def _check_connect(cls, value: str | None) -> str | None:
        if value is None:
            return None
        # The settings of a node cost more to import than all else that a client needs.
        from muster.coordinator.config import parse_connect

        try:
            return str(parse_connect(value))
        except ValueError as error:
            raise ValueError(f"expected {error}") from None

    @field_validator("zookeeper_consumer_version")
    @classmethod
    def _check_version(cls, value: str | None) -> str | None:
        # Only this protocol needs the module.
        from muster.client.members.zookeeper_assignment import find_era_rules

        if value is not None:
            find_era_rules(value)
        return value

    @field_validator("consumer_id")
    @classmethod
    def _check_id(cls, value: str | None) -> str | None:
        if value is not None and not is_znode_name(value):
            raise ValueError(f"expected a name {ZNODE_NAME}, with at least one character; or leave it out")
        return value

    @property
    def backoff_ms(self) -> int:
        return self.rebalance_backoff_ms or max(1, self.zookeeper_sync_time_ms)

    @property
    def commits_twice(self) -> bool:
        return self.offsets_storage == "kafka" if self.dual_commit_enabled is None else self.dual_commit_enabled


# Which properties apply to which group.protocol
# ----------------------------------------------


COORDINATOR_ASSIGNS = "the coordinator assigns; group.remote.assignor asks for an assignor of its own"
COORDINATOR_TIMES = "the coordinator's group.consumer settings decide it"
MEMBER_ASSIGNS_ALONE = "every consumer assigns for itself, by range or roundrobin"
ZOOKEEPER_ENDS_SESSION = "zookeeper.session.timeout.ms decides when a consumer is given up"
NO_COORDINATOR = "no coordinator has a hand in such a group"

NOT_WITH: Mapping[str, Mapping[str, str]] = {
    "consumer": {
        "partition_assignment_strategy": COORDINATOR_ASSIGNS,
        "partition_assignment_options": COORDINATOR_ASSIGNS,
        "partition_assignment_deadline_ms": COORDINATOR_ASSIGNS,
        "partition_assignment_isolation": COORDINATOR_ASSIGNS,
        "session_timeout_ms": COORDINATOR_TIMES,
        "heartbeat_interval_ms": COORDINATOR_TIMES,
    },
    "central": {
        "partition_assignment_options": COORDINATOR_ASSIGNS,
        "partition_assignment_deadline_ms": COORDINATOR_ASSIGNS,
        "partition_assignment_isolation": COORDINATOR_ASSIGNS,
        "heartbeat_interval_ms": "the coordinator pings, every third of session.timeout.ms",
        "auto_commit_interval_ms": "the coordinator commits, with every ping",
        "group_instance_id": "a lost stream is waited for until the session is over, whoever the member is",
        "group_membership": "the stream is the membership",
    },
    "zookeeper": {
        "partition_assignment_options": MEMBER_ASSIGNS_ALONE,
        "partition_assignment_deadline_ms": MEMBER_ASSIGNS_ALONE,
        "partition_assignment_isolation": MEMBER_ASSIGNS_ALONE,
        "session_timeout_ms": ZOOKEEPER_ENDS_SESSION,
        "heartbeat_interval_ms": ZOOKEEPER_ENDS_SESSION,
        "group_instance_id": "an ephemeral node cannot outlive its process; consumer.id gives it a name",
        "group_remote_assignor": NO_COORDINATOR,
        "group_membership": NO_COORDINATOR,
    },
}
ZOOKEEPER_ONLY = frozenset(ZookeeperProperties.model_fields)
STRATEGIES = ("range", "roundrobin")


def check_protocol(protocol: str, given: Collection[str]) -> None:
    """Raise ValueError for the first property, by name, that means nothing under this protocol."""
    for name in sorted(set(NOT_WITH.get(protocol, ())) & set(given)):
        raise ValueError(f"{to_dotted(name)} cannot be set with group.protocol={protocol}: {NOT_WITH[protocol][name]}")
    if protocol != "zookeeper":
        for name in sorted(ZOOKEEPER_ONLY & set(given)):
            raise ValueError(f"{to_dotted(name)} belongs to group.protocol=zookeeper, not {protocol}; leave it out")


def check_zookeeper(connect: str | None, group_id: str | None, strategy: str) -> None:
    """What that protocol cannot do without. Raises ValueError."""
    if connect is None:
        raise ValueError("group.protocol=zookeeper needs zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT")
    if group_id is None or not is_znode_name(group_id):
        raise ValueError(
            f"group.protocol=zookeeper needs a group.id that can be the name of a znode, {ZNODE_NAME}; got {group_id!r}"
        )
    if strategy not in STRATEGIES:
        raise ValueError(
            f"partition.assignment.strategy={strategy}: the ZooKeeper era knows {' and '.join(STRATEGIES)}; choose one"
        )


# The clients' properties
# -----------------------

MAX_TRANSACTIONAL_ID_BYTES = 32_767
DEFAULT_BOOTSTRAP = "127.0.0.1:9290"
Model = TypeVar("Model", bound="ClientConfig")


class ClientConfig(SecurityProperties):
    """What every client understands."""

    model_config = ConfigDict(
        alias_generator=to_dotted,
        populate_by_name=False,
        extra="forbid",
        frozen=True,
        validate_default=False,
        # Built when first used: a short process needs one kind of client, not all.
        defer_build=True,
    )
    kind: ClassVar[str] = "client"

    bootstrap_servers: str = setting(DEFAULT_BOOTSTRAP, "HOST:PORT of a node, or of several, separated by commas.")
    client_id: str = setting("", "The client's name in logs and in the ledger.", max_length=255)
    request_timeout_ms: PositiveInt32 = setting(30_000, "How long one request may take.")
    default_api_timeout_ms: PositiveInt32 = setting(60_000, "How long a call may take, retries included.")
    retry_backoff_ms: PositiveInt32 = setting(100, "The wait before the first retry.")
    retry_backoff_max_ms: PositiveInt32 = setting(1_000, "The longest wait between retries.")
    reconnect_backoff_ms: PositiveInt32 = setting(50, "The wait before the first reconnect.")
    reconnect_backoff_max_ms: PositiveInt32 = setting(1_000, "The longest wait between reconnects.")
    metadata_max_age_ms: PositiveInt32 = setting(300_000, "How old known partition counts may be.")
    receive_message_max_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_INT)] = setting(
        64 << 20, "The largest answer accepted from a node."
    )

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _join_servers(cls, value: Any) -> Any:
        return ",".join(value) if isinstance(value, list | tuple) else value

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_servers(cls, value: str) -> str:
        for server in value.split(","):
            host, colon, port = server.strip().rpartition(":")
            if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
                raise ValueError(f"{server.strip()!r} is not HOST:PORT with a port from 1 to 65535")
        return value

    @property
    def servers(self) -> list[str]:
        return split_servers(self.bootstrap_servers)

    @property
    def connection(self) -> ConnectionConfig:
        """The same as plain values, without what a particular client understands beyond that."""
        return ConnectionConfig(**{field.name: getattr(self, field.name) for field in fields(ConnectionConfig)})


class ProducerConfig(RecordsProperties, ClientConfig):
    """What a producer understands beyond that."""

    kind: ClassVar[str] = "producer"

    acks: Literal["all", "1", "0"] = setting(
        "all",
        "The acknowledgement to wait for: all (all in-sync replicas), 1 (the leader) or 0 (none).",
    )
    enable_idempotence: bool = setting(
        True,
        "Number batches, so that a retried one is written once (KIP-98); needs acks=all, so another value of acks "
        "switches the default off.",
    )
    transactional_id: str | None = setting(
        None,
        "Write in transactions under this name, which one running process has (KIP-98); default: no transactions.",
        min_length=1,
    )
    transaction_timeout_ms: PositiveInt32 = setting(
        60_000,
        "How long a transaction may be open before its coordinator aborts it; at most transaction.max.timeout.ms of "
        "the node.",
    )
    linger_ms: Annotated[int, Field(ge=0, le=60_000)] = setting(
        5, "How long a record may wait for others to fill its batch."
    )
    batch_size: Annotated[int, Field(ge=0, le=16 << 20)] = setting(
        16_384, "Bytes of one batch; 0 sends each record alone."
    )
    buffer_memory: Annotated[int, Field(ge=1 << 16)] = setting(32 << 20, "Bytes of records that are not delivered yet.")
    max_block_ms: NonNegativeInt32 = setting(60_000, "How long produce() may wait for room or metadata.")
    max_request_size: Annotated[int, Field(ge=1, le=64 << 20)] = setting(
        1 << 20, "The largest record, and the largest request."
    )
    delivery_timeout_ms: PositiveInt32 = setting(120_000, "How long to try to deliver a record, retries included.")
    compression_type: Literal["none", "gzip"] = setting("none", "none or gzip.")
    max_in_flight_requests_per_connection: Annotated[int, Field(ge=1, le=100)] = setting(
        5, "Requests under way; one per partition at most, so order is kept."
    )

    @field_validator("acks", mode="before")
    @classmethod
    def _name_acks(cls, value: Any) -> Any:
        return {"-1": "all"}.get(str(value), str(value))

    @field_validator("transactional_id")
    @classmethod
    def _check_transactional_id(cls, value: str | None) -> str | None:
        if value is not None and len(value.encode(errors="replace")) > MAX_TRANSACTIONAL_ID_BYTES:
            raise ValueError(f"expected 1 to {MAX_TRANSACTIONAL_ID_BYTES} bytes of UTF-8")
        return value

    @model_validator(mode="after")
    def _check_idempotence(self) -> Self:
        if self.transactional_id is not None and not self.numbers_batches:
            raise ValueError(
                f"transactional.id needs an idempotent producer, and acks is {self.acks}, enable.idempotence is "
                f"{str(self.enable_idempotence).lower()}; use acks=all and leave enable.idempotence out"
            )
        if "enable_idempotence" in self.model_fields_set and self.enable_idempotence and self.acks != "all":
            raise ValueError(
                f"enable.idempotence=true needs to hear of all that is written, and acks is {self.acks}; use acks=all"
            )
        return self

    @property
    def numbers_batches(self) -> bool:
        """Whether the producer is idempotent. As in Kafka (KIP-679), acks other than all switch the default off."""
        return self.acks == "all" and self.enable_idempotence


class GroupConfig(ClientConfig):
    """What every member of a group understands."""

    kind: ClassVar[str] = "worker"

    group_id: str | None = setting(None, "The group to be a member of.")
    group_instance_id: str | None = setting(None, "Makes the member static (KIP-345).")
    client_rack: str = setting("", "Where this member runs, for rack-aware assignors.")
    session_timeout_ms: PositiveInt32 = setting(45_000, "Silence after which the group removes a member.")
    heartbeat_interval_ms: PositiveInt32 = setting(3_000, "How often a member sends a heartbeat.")
    max_poll_interval_ms: PositiveInt32 = setting(
        300_000, "The longest time between polls, and for callbacks in a rebalance."
    )
    partition_assignment_strategy: str = setting(
        "range,cooperative-sticky", "Assignors by name, Kafka class, entry point or module:Class."
    )
    partition_assignment_options: dict[str, Any] = Field(
        default_factory=dict, description="What a leader tells its assignor beside the group: an object or its JSON."
    )
    partition_assignment_deadline_ms: PositiveInt32 = setting(
        10_000, "How long the assignor of a leader may run before its plan is replaced."
    )
    partition_assignment_isolation: Literal["process", "thread"] = setting(
        "process", "Where an assignor that is not built in runs: only a process can be stopped when it hangs."
    )
    group_protocol: Literal["classic", "consumer", "central", "zookeeper"] = setting(
        "classic",
        "classic: the members assign (JoinGroup, SyncGroup). consumer: the coordinator (KIP-848). central: the "
        "coordinator, which stops and starts everybody. zookeeper: every consumer for itself (0.8).",
    )
    group_remote_assignor: str | None = setting(
        None, "The assignor that the coordinator runs; in classic groups, all members must ask for one."
    )

    group_membership: Literal["push", "poll"] = setting(
        "push", "push: receive rebalances immediately, by a stream; poll: by the next heartbeat."
    )

    @field_validator("group_id", "group_instance_id", "group_remote_assignor")
    @classmethod
    def _not_empty(cls, value: str | None) -> str | None:
        if value == "":
            raise ValueError("must not be empty; leave it out instead")
        return value

    @field_validator("partition_assignment_strategy", mode="before")
    @classmethod
    def _join_words(cls, value: Any) -> Any:
        return ",".join(value) if isinstance(value, list | tuple) else value

    @field_validator("partition_assignment_options", mode="before")
    @classmethod
    def _read_options(cls, value: Any) -> Any:
        try:
            return json.loads(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError('must be an object or its JSON, as in {"max.partitions.per.member": 10}') from None

    @model_validator(mode="after")
    def _check_heartbeat(self) -> Self:
        if self.group_protocol != "central" and self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be less than "
                f"session.timeout.ms={self.session_timeout_ms}; a third of it is usual"
            )
        if self.group_instance_id is not None and self.group_id is None:
            raise ValueError("group.instance.id is set but group.id is not; a static member needs a group")
        return self

    @model_validator(mode="after")
    def _check_protocol(self) -> Self:
        """What belongs to one protocol means nothing in the other (as Kafka has it)."""
        check_protocol(self.group_protocol, self.model_fields_set)
        return self


class WorkerConfig(GroupConfig):
    """A worker owns partitions or named resources and reads no log."""

    scheduled_rebalance_max_delay_ms: NonNegativeInt32 = setting(
        300_000, "How long named resources wait for a worker that left; 0: not at all."
    )
    scheduled_rebalance_delay_survives_leader: bool = setting(
        True, "Whether the delay continues when the leader leaves; false forgets it, as Kafka Connect does."
    )
    partition_assignment_strategy: str = setting(
        "cooperative-sticky", "Assignors by name, Kafka class, entry point or module:Class."
    )

    @model_validator(mode="after")
    def _check_worker(self) -> Self:
        if self.group_protocol == "zookeeper":
            raise ValueError("a worker reads no log, and group.protocol=zookeeper is for consumers; use classic")
        if self.group_protocol == "central":
            raise ValueError(
                "a worker has no fetchers to be stopped by group.protocol=central; use classic or consumer"
            )
        return self


class ConsumerConfig(RecordsProperties, ZookeeperProperties, GroupConfig):
    """What a consumer understands beyond that."""

    kind: ClassVar[str] = "consumer"

    max_poll_records: Annotated[int, Field(ge=1, le=1_000_000)] = setting(500, "Most records that one poll returns.")
    auto_offset_reset: Literal["latest", "earliest", "none"] = setting(
        "latest", "Where to start without a committed offset: latest, earliest, none (an error)."
    )
    enable_auto_commit: bool | None = setting(None, "Commit what was polled; default true with a group.id.")
    enable_auto_offset_store: bool = setting(True, "Whether a returned record counts as processed at the next poll.")
    auto_commit_interval_ms: PositiveInt32 = setting(
        5_000, "How often to commit automatically; with zookeeper once a minute."
    )
    fetch_min_bytes: PositiveInt32 = setting(1, "How many bytes a fetch waits for.")
    fetch_max_wait_ms: Annotated[int, Field(ge=0, le=300_000)] = setting(500, "How long a fetch waits for them.")
    fetch_max_bytes: PositiveInt32 = setting(50 << 20, "Bytes of one fetch, and of what is read ahead.")
    max_partition_fetch_bytes: PositiveInt32 = setting(1 << 20, "Bytes of one partition in a fetch.")
    exclude_internal_topics: bool = setting(True, "Whether a pattern excludes internal topics.")
    isolation_level: IsolationLevel = setting(
        "read_uncommitted",
        "read_committed: return no record of an open or aborted transaction, and end at the last stable offset.",
    )

    @field_validator("auto_offset_reset", mode="before")
    @classmethod
    def _rename_reset(cls, value: Any) -> Any:
        return {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest"}.get(value, value)

    @model_validator(mode="before")
    @classmethod
    def _fill_in_for_zookeeper(cls, given: Any) -> Any:
        """Two defaults were others in that era."""
        if isinstance(given, dict) and given.get("group.protocol") == "zookeeper":
            era = {"auto.commit.interval.ms": COMMIT_INTERVAL_MS, "partition.assignment.strategy": "range"}
            return era | given
        return given

    @model_validator(mode="after")
    def _check_era(self) -> Self:
        if self.group_protocol == "zookeeper":
            check_zookeeper(self.zookeeper_connect, self.group_id, self.partition_assignment_strategy)
        if self.group_protocol == "central" and self.group_id is None:
            raise ValueError("group.protocol=central needs a group.id to register for; set one or leave it out")
        return self

    @model_validator(mode="after")
    def _check_commit(self) -> Self:
        if self.enable_auto_commit and self.group_id is None:
            raise ValueError("enable.auto.commit=true needs a group.id to commit for; set one or leave it out")
        return self

    @property
    def reads_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def auto_commits(self) -> bool:
        return self.group_id is not None and self.enable_auto_commit is not False


def load(model: type[Model], properties: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Model:
    """Properties by dotted name or keyword, checked. ConfigError names each wrong one and what was expected."""
    known = {to_dotted(name): name for name in model.model_fields}
    given: dict[str, Any] = {}
    for name, value in [*(properties or {}).items(), *((to_dotted(word), value) for word, value in keywords.items())]:
        if name not in known:
            raise ConfigError(describe_unknown_property(name, known, model.kind))
        if name in given:
            raise ConfigError(f"{name} is given twice: as a property and as a keyword")
        given[name] = resolve_reference(name, value)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        told = describe_invalid_fields(error, {to_dotted(name): field for name, field in model.model_fields.items()})
        for value in given.values():
            if isinstance(value, Resolved) and value:
                told = told.replace(value, value.reference)
        raise ConfigError(told) from None


def resolve_reference(name: str, value: Any) -> Any:
    """The value, with what `${env:NAME}` and the like in it stand for. Raises ConfigError, which shows none."""
    try:
        return resolve_references(value) if isinstance(value, str) else value
    except BadReference as error:
        raise ConfigError(f"{name}: {error}") from None


def describe_unknown_property(name: str, known: Mapping[str, str], kind: str) -> str:
    hint = suggest_name(to_dotted(name), {each: each for each in known})
    article = "an" if kind[0] in "aeiou" else "a"
    return f"{name!r} is not a property of {article} {kind}; {hint}"


def suggest_name(unknown: str, known: Mapping[str, str]) -> str:
    """The nearest known name, or all if none is near. known: each name as it is compared, and as it is documented."""
    near = difflib.get_close_matches(unknown, known, n=1, cutoff=0.6)
    return f"did you mean {known[near[0]]!r}?" if near else f"known here: {', '.join(sorted(known.values()))}"


def describe_invalid_fields(error: ValidationError, fields: Mapping[str, FieldInfo]) -> str:
    """What is wrong with each field, what was expected; what concerns several fields names them itself."""
    told = []
    for problem in error.errors(include_url=False):
        what = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            told.append(what)
            continue
        name = str(problem["loc"][0])
        # Our validators have words of their own; pydantic's are about Python.
        wanted = what if problem["type"] == "value_error" else f"expected {describe_allowed(fields[name])}"
        told.append(f"{name}={show_property(name, problem['input'])}: {wanted}")
    return "; ".join(dict.fromkeys(told))
