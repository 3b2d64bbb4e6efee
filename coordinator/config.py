"""Every setting of a node: Kafka's dotted names, a default, bounds, and one sentence each.

`load_settings` reads a properties file and overrides; `render_properties` writes the file that says everything. What
concerns the log is inherited from `storage.config`, so a `Settings` can be handed to the broker as it is.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, NamedTuple, NewType, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from assignors.registry import resolve_all
from storage.config import LogSettings
from storage.wording import expected as in_words

MAX_INT = 2**31 - 1
DAY_MS = 86_400_000

AssignorNames = NewType("AssignorNames", str)
ConnectText = NewType("ConnectText", str)

ZOOKEEPER_PORT = 2181

WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})
"""Good to listen on, useless to tell a client."""

MESSAGE_ENVELOPE_BYTES = 64 << 10
"""What a gRPC message needs beside the record batches it carries."""


class SettingsError(ValueError):
    """One or more settings are wrong; one line each: where it stood, the value, what was expected."""


class Address(NamedTuple):
    host: str
    port: int


class Settings(LogSettings):
    """All settings of one node, checked as a whole. Build it with `load_settings`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    node_id: int = Field(
        default=1, alias="node.id", ge=0, le=MAX_INT, description="The number by which clients are told of this node."
    )
    listeners: str = Field(
        default="127.0.0.1:9290",
        alias="listeners",
        description="The HOST:PORT on which gRPC is served; port 0 takes a free one.",
    )
    advertised_listeners: str = Field(
        default="",
        alias="advertised.listeners",
        description="The HOST:PORT that clients are told to connect to; empty means the address of listeners.",
    )
    data_dir: Path = Field(
        default=Path("muster-data"),
        alias="log.dirs",
        description="The one directory that holds everything the node keeps; it is made when missing.",
    )
    logging_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        alias="logging.level",
        description="The least important events that the node still writes to standard error.",
    )
    logging_format: Literal["console", "json"] = Field(
        default="console",
        alias="logging.format",
        description="Whether those events are lines for people or one JSON object per line.",
    )
    shutdown_timeout_ms: int = Field(
        default=10_000,
        alias="shutdown.timeout.ms",
        ge=0,
        le=DAY_MS,
        description="How long a node that is asked to stop waits for answers and flushes under way.",
    )

    grpc_max_message_bytes: int = Field(
        default=64 << 20,
        alias="grpc.max.message.bytes",
        ge=1 << 20,
        le=MAX_INT,
        description="The largest gRPC message that is taken or sent.",
    )
    grpc_max_pending_calls: int = Field(
        default=20_000,
        alias="grpc.max.pending.calls",
        ge=1,
        le=MAX_INT // 2,
        description="How many calls may wait to be accepted before further ones are turned away.",
    )
    grpc_max_streams_per_connection: int = Field(
        default=10_000,
        alias="grpc.max.streams.per.connection",
        ge=1,
        le=MAX_INT,
        description="How many calls one connection may have under way at once.",
    )
    grpc_keepalive_time_ms: int = Field(
        default=10_000,
        alias="grpc.keepalive.time.ms",
        ge=1_000,
        le=MAX_INT,
        description="A connection that is silent for this long is asked whether its peer is still there.",
    )
    grpc_keepalive_timeout_ms: int = Field(
        default=5_000,
        alias="grpc.keepalive.timeout.ms",
        ge=100,
        le=MAX_INT,
        description="A peer that does not answer that question within this time counts as gone.",
    )
    grpc_min_ping_interval_ms: int = Field(
        default=5_000,
        alias="grpc.min.ping.interval.ms",
        ge=0,
        le=MAX_INT,
        description="A client that asks the same more often than this loses its connection.",
    )
    kafka_listeners: str = Field(
        default="",
        alias="kafka.listeners",
        description="The HOST:PORT on which Kafka's protocol is served; port 0 takes a free one, empty: not at all.",
    )
    kafka_advertised_listeners: str = Field(
        default="",
        alias="kafka.advertised.listeners",
        description="The HOST:PORT that Kafka clients are told to connect to; empty means that of kafka.listeners.",
    )
    auto_create_topics_enable: bool = Field(
        default=True,
        alias="auto.create.topics.enable",
        description="Whether a topic that a Kafka client asks for by name is made when there is none.",
    )
    socket_request_max_bytes: int = Field(
        default=100 << 20,
        alias="socket.request.max.bytes",
        ge=1 << 20,
        le=MAX_INT,
        description="The largest request that is taken from a Kafka client.",
    )
    max_connections: int = Field(
        default=20_000,
        alias="max.connections",
        ge=1,
        le=MAX_INT,
        description="How many Kafka clients may be connected at once.",
    )
    max_connections_per_ip: int = Field(
        default=MAX_INT,
        alias="max.connections.per.ip",
        ge=1,
        le=MAX_INT,
        description="How many of them may come from one address.",
    )
    connections_max_idle_ms: int = Field(
        default=600_000,
        alias="connections.max.idle.ms",
        ge=1_000,
        le=MAX_INT,
        description="A Kafka client's connection on which nothing moved for this long is closed.",
    )
    kafka_max_in_flight_requests_per_connection: int = Field(
        default=1_000,
        alias="kafka.max.in.flight.requests.per.connection",
        ge=1,
        le=MAX_INT,
        description="How many requests of one Kafka client are read before some of them have been answered.",
    )
    kafka_max_in_flight_bytes_per_connection: int = Field(
        default=64 << 20,
        alias="kafka.max.in.flight.bytes.per.connection",
        ge=1 << 20,
        le=MAX_INT,
        description="How many bytes they may have altogether; a single request of any allowed size is always read.",
    )
    kafka_max_unsent_bytes_per_connection: int = Field(
        default=1 << 20,
        alias="kafka.max.unsent.bytes.per.connection",
        ge=1 << 10,
        le=MAX_INT,
        description="A Kafka client that leaves more than this of its answers unread gets no further ones for now.",
    )
    max_parked_requests: int = Field(
        default=20_000,
        alias="max.parked.requests",
        ge=1,
        le=MAX_INT,
        description="How many JoinGroup and SyncGroup requests may wait for their group at once.",
    )
    queued_max_requests: int = Field(
        default=20_000,
        alias="queued.max.requests",
        ge=1,
        le=MAX_INT,
        description="How many requests may wait for the coordinator's next turn before further ones are refused.",
    )
    max_watchers: int = Field(
        default=1_000,
        alias="max.watchers",
        ge=0,
        le=MAX_INT,
        description="How many WatchGroup streams may be open at once.",
    )

    max_sessions: int = Field(
        default=20_000,
        alias="max.sessions",
        ge=0,
        le=MAX_INT,
        description="How many members may keep a Session stream open at once; further ones poll.",
    )
    group_reconnect_grace_ms: int = Field(
        default=MAX_INT,
        alias="group.reconnect.grace.ms",
        ge=0,
        le=MAX_INT,
        description="How long a member whose Session stream broke is waited for, if its session does not end before.",
    )

    group_min_session_timeout_ms: int = Field(
        default=6_000,
        alias="group.min.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="The shortest session timeout that a member may ask for.",
    )
    group_max_session_timeout_ms: int = Field(
        default=1_800_000,
        alias="group.max.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="The longest session timeout that a member may ask for.",
    )
    group_initial_rebalance_delay_ms: int = Field(
        default=3_000,
        alias="group.initial.rebalance.delay.ms",
        ge=0,
        le=MAX_INT,
        description="How long the first rebalance of an empty group waits for more members to join.",
    )
    group_max_size: int = Field(
        default=MAX_INT,
        alias="group.max.size",
        ge=1,
        le=MAX_INT,
        description="The most members that one group may have.",
    )
    group_ledger_max_entries: int = Field(
        default=100,
        alias="group.ledger.max.entries",
        ge=1,
        le=100_000,
        description="How many rebalances of each group are kept to be explained; the oldest go first.",
    )
    group_ledger_max_snapshot_bytes: int = Field(
        default=1 << 20,
        alias="group.ledger.max.snapshot.bytes",
        ge=0,
        le=MAX_INT,
        description="The largest assignor input that is kept with a rebalance; a larger one is left out.",
    )
    group_assignor_deadline_ms: int = Field(
        default=10_000,
        alias="group.assignor.deadline.ms",
        ge=1,
        le=MAX_INT,
        description="How long an assignor, or a topic pattern, may run on this node before it counts as failed.",
    )
    group_consumer_session_timeout_ms: int = Field(
        default=45_000,
        alias="group.consumer.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="How long a member of a consumer-protocol group may be silent before it is taken out.",
    )
    group_consumer_min_session_timeout_ms: int = Field(
        default=45_000,
        alias="group.consumer.min.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="The lower bound of group.consumer.session.timeout.ms.",
    )
    group_consumer_max_session_timeout_ms: int = Field(
        default=60_000,
        alias="group.consumer.max.session.timeout.ms",
        ge=1,
        le=MAX_INT,
        description="The upper bound of group.consumer.session.timeout.ms.",
    )
    group_consumer_heartbeat_interval_ms: int = Field(
        default=5_000,
        alias="group.consumer.heartbeat.interval.ms",
        ge=1,
        le=MAX_INT,
        description="How often members of consumer-protocol groups are told to send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int = Field(
        default=5_000,
        alias="group.consumer.min.heartbeat.interval.ms",
        ge=1,
        le=MAX_INT,
        description="The lower bound of group.consumer.heartbeat.interval.ms.",
    )
    group_consumer_max_heartbeat_interval_ms: int = Field(
        default=15_000,
        alias="group.consumer.max.heartbeat.interval.ms",
        ge=1,
        le=MAX_INT,
        description="The upper bound of group.consumer.heartbeat.interval.ms.",
    )
    group_consumer_max_size: int = Field(
        default=MAX_INT,
        alias="group.consumer.max.size",
        ge=1,
        le=MAX_INT,
        description="The most members that one consumer-protocol group may have.",
    )
    group_consumer_assignors: AssignorNames = Field(
        default=AssignorNames("uniform,range"),
        alias="group.consumer.assignors",
        description="The assignors that consumer-protocol groups may ask for; the first is for those that do not ask.",
    )
    group_consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = Field(
        default="bidirectional",
        alias="group.consumer.migration.policy",
        description="Whether groups may change to the consumer protocol (upgrade) and back (downgrade).",
    )
    group_consumer_assignment_interval_ms: int = Field(
        default=1_000,
        alias="group.consumer.assignment.interval.ms",
        ge=0,
        le=15_000,
        description="The shortest time between two new assignments of one consumer-protocol group.",
    )
    group_consumer_regex_refresh_interval_ms: int = Field(
        default=600_000,
        alias="group.consumer.regex.refresh.interval.ms",
        ge=10_000,
        le=MAX_INT,
        description="How old the list of topics that match a subscription's pattern may grow.",
    )
    group_central_rebalance_max_retries: int = Field(
        default=4,
        alias="group.central.rebalance.max.retries",
        ge=0,
        le=1_000,
        description="How often a failed attempt to rebalance a central group is repeated before it is reported.",
    )
    group_central_rebalance_backoff_ms: int = Field(
        default=2_000,
        alias="group.central.rebalance.backoff.ms",
        ge=1,
        le=MAX_INT,
        description="The pause before a failed attempt to rebalance a central group is repeated.",
    )
    group_central_max_timed_out_heartbeats: int = Field(
        default=3,
        alias="group.central.max.timed.out.heartbeats",
        ge=1,
        le=1_000,
        description="Pings in a row that a member of a central group may leave unanswered before it is given up.",
    )
    group_remote_assignors: AssignorNames = Field(
        default=AssignorNames(""),
        alias="group.remote.assignors",
        description="Assignors beyond the built-in ones and installed plugins that classic members may have run here.",
    )
    offsets_retention_minutes: int = Field(
        default=10_080,
        alias="offsets.retention.minutes",
        ge=1,
        le=MAX_INT,
        description="How long committed offsets outlive their group's last member, or their last commit.",
    )
    offsets_retention_check_interval_ms: int = Field(
        default=600_000,
        alias="offsets.retention.check.interval.ms",
        ge=1,
        le=MAX_INT,
        description="How often expired offsets are looked for.",
    )
    offset_metadata_max_bytes: int = Field(
        default=4_096,
        alias="offset.metadata.max.bytes",
        ge=0,
        le=8_191,  # in characters, as Kafka counts; four bytes each still fit a stored string
        description="The longest note that a client may commit with an offset, in characters.",
    )
    offsets_topic_num_partitions: int = Field(
        default=50,
        alias="offsets.topic.num.partitions",
        ge=1,
        le=10_000,
        description="Over how many partitions groups are spread; fixed once the data directory exists.",
    )
    offsets_topic_segment_bytes: int = Field(
        default=100 << 20,
        alias="offsets.topic.segment.bytes",
        ge=1 << 20,
        le=MAX_INT,
        description="Segment size of the internal topics, small so that compaction and loading stay quick.",
    )

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

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.group_consumer_assignors.split(","))

    @property
    def remote_assignors(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.group_remote_assignors.split(",") if word.strip())

    @property
    def listen_host(self) -> str:
        return parse_address(self.listeners).host

    @property
    def listen_port(self) -> int:
        return parse_address(self.listeners).port

    def advertised_address(self, bound_port: int) -> Address:
        """Where clients should connect, once it is known which port was bound."""
        if self.advertised_listeners:
            return parse_address(self.advertised_listeners)
        return Address(self.listen_host, bound_port)

    @property
    def kafka_address(self) -> Address | None:
        """Where Kafka's protocol is to be served, if at all."""
        return parse_address(self.kafka_listeners) if self.kafka_listeners else None

    def kafka_advertised_address(self, bound_port: int) -> Address:
        """Where Kafka clients should connect, once it is known which port was bound."""
        if self.kafka_advertised_listeners:
            return parse_address(self.kafka_advertised_listeners)
        return Address(parse_address(self.kafka_listeners).host, bound_port)

    @field_validator("listeners", "advertised_listeners", "kafka_listeners", "kafka_advertised_listeners")
    @classmethod
    def is_an_address(cls, value: str) -> str:
        if value:
            parse_address(value)
        return value

    @field_validator("zookeeper_connect")
    @classmethod
    def is_a_connect_string(cls, value: ConnectText) -> ConnectText:
        if value:
            parse_connect(value)
        return value

    @field_validator("group_consumer_assignors")
    @classmethod
    def are_assignors(cls, value: AssignorNames) -> AssignorNames:
        resolve_all(value)
        return value

    @field_validator("group_remote_assignors")
    @classmethod
    def are_known(cls, value: AssignorNames) -> AssignorNames:
        if value:
            resolve_all(value)
        return value

    @field_validator("data_dir")
    @classmethod
    def is_one_directory(cls, value: Path) -> Path:
        if "," in str(value):
            raise ValueError("this node keeps everything in one; expected no list")
        return value

    @field_validator("data_dir", mode="before")
    @classmethod
    def is_named(cls, value: object) -> object:
        if value == "":
            raise ValueError("an empty path would mean the working directory; write . if that is meant")
        return value

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        low, high = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if low > high:
            raise ValueError(
                f"group.min.session.timeout.ms is {low}, but group.max.session.timeout.ms is only {high}; "
                "lower the first or raise the second"
            )
        within(
            "session.timeout",
            self.group_consumer_session_timeout_ms,
            self.group_consumer_min_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )
        within(
            "heartbeat.interval",
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_min_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )
        if not self.listeners:
            raise ValueError("listeners is empty; expected HOST:PORT, such as 127.0.0.1:9290")
        told = self.advertised_address(0).host
        if told in WILDCARD_HOSTS:
            raise ValueError(
                f"clients would be told to connect to {told}, which is no address of any machine; set "
                "advertised.listeners to the HOST:PORT by which they reach this node"
            )
        self._kafka_fits_together()
        room = self.grpc_max_message_bytes - MESSAGE_ENVELOPE_BYTES
        for name, size in (("message.max.bytes", self.message_max_bytes), ("fetch.max.bytes", self.fetch_max_bytes)):
            if size > room:
                raise ValueError(
                    f"{name} is {size}, but grpc.max.message.bytes, which is {self.grpc_max_message_bytes}, has room "
                    f"for {room}; lower the first or raise the second"
                )
        return self

    def _kafka_fits_together(self) -> None:
        if not self.kafka_listeners:
            if self.kafka_advertised_listeners:
                raise ValueError(
                    f"kafka.advertised.listeners is {self.kafka_advertised_listeners}, but kafka.listeners is empty: "
                    "Kafka's protocol is not served; set kafka.listeners, too"
                )
            return
        told = self.kafka_advertised_address(0).host
        if told in WILDCARD_HOSTS:
            raise ValueError(
                f"Kafka clients would be told to connect to {told}, which is no address of any machine; set "
                "kafka.advertised.listeners to the HOST:PORT by which they reach this node"
            )
        largest = self.message_max_bytes + MESSAGE_ENVELOPE_BYTES
        if largest > self.socket_request_max_bytes:
            raise ValueError(
                f"message.max.bytes is {self.message_max_bytes}, but socket.request.max.bytes, which is "
                f"{self.socket_request_max_bytes}, has no room for it; lower the first or raise the second"
            )


def within(name: str, value: int, low: int, high: int) -> None:
    """Raises ValueError when a group.consumer setting is outside its bounds."""
    if not low <= value <= high:
        raise ValueError(
            f"group.consumer.{name}.ms is {value}, outside {low}..{high} (group.consumer.min.{name}.ms, "
            f"group.consumer.max.{name}.ms); change it or its bounds"
        )


class Given(NamedTuple):
    """A value and where it was written."""

    text: str
    place: str


def load_settings(file: Path | None = None, overrides: Mapping[str, str] | None = None) -> Settings:
    """Settings from a properties file (optional) and overrides, which win. Raises SettingsError naming every fault."""
    given = {} if file is None else dict(read_properties(file))
    for key, text in (overrides or {}).items():
        given[key] = Given(text, "--set")
    known = known_settings()
    unknown = [unknown_setting(key, value.place, known) for key, value in given.items() if key not in known]
    if unknown:
        raise SettingsError("\n".join(unknown))
    try:
        return Settings.model_validate({key: value.text for key, value in given.items()})
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise SettingsError("\n".join(explain(fault, given, known) for fault in faults)) from None


def known_settings() -> dict[str, FieldInfo]:
    """Dotted name -> field; the node's own first, then the log's."""
    fields = Settings.model_fields
    own = [name for name in fields if name not in LogSettings.model_fields]
    return {fields[name].alias or name: fields[name] for name in (*own, *LogSettings.model_fields)}


def render_properties() -> str:
    """The properties file that sets everything to its default: each sentence, what is allowed, then the line itself."""
    lines = ["# Every setting of a Muster node, at its default. This file is generated from coordinator/config.py."]
    for name, field in known_settings().items():
        lines += ["", *(f"# {line}" for line in wrap(f"{field.description} Allowed: {expected(field)}.", width=98))]
        lines.append(f"{name}={field.default}")
    return "\n".join(lines) + "\n"


def read_properties(file: Path) -> Iterator[tuple[str, Given]]:
    """The key-value pairs of a Java properties file, without escapes and continued lines. Raises SettingsError."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the settings in {file}: {error}; expected a readable UTF-8 file") from error
    seen: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text, place = line.strip(), f"{file}:{number}"
        if not text or text[0] in "#!":
            continue
        if "\\" in text:
            raise SettingsError(f"{place}: {text!r} has a backslash; write the value plainly and on one line")
        ends = [at for at in (text.find("="), text.find(":")) if at >= 0]
        if not ends or min(ends) == 0:
            raise SettingsError(f"{place}: {text!r} is no setting; expected key=value")
        key, value = text[: min(ends)].rstrip(), text[min(ends) + 1 :].lstrip()
        if key in seen:
            raise SettingsError(f"{place}: {key} was set before, at {seen[key]}; keep one of the two lines")
        seen[key] = place
        yield key, Given(value, place)


def parse_address(text: str) -> Address:
    """HOST:PORT, an IPv6 host in brackets. Raises ValueError.

    >>> parse_address("[::1]:9290")
    Address(host='::1', port=9290)
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not colon or not bare or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("a host, a colon and a port from 0 to 65535, such as 127.0.0.1:9290")
    if not bracketed and (":" in bare or "/" in bare):
        raise ValueError("without a scheme; an IPv6 host in brackets, such as [::1]:9290")
    return Address(bare, int(port))


class ConnectString(NamedTuple):
    """Where a ZooKeeper ensemble is: HOST:PORT of its servers, and the directory that all paths are relative to."""

    servers: tuple[Address, ...]
    chroot: str
    """Empty, or a path such as /kafka."""

    @property
    def hosts(self) -> str:
        """The servers alone, as HOST:PORT,HOST:PORT."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    def __str__(self) -> str:
        return self.hosts + self.chroot


def parse_connect(text: str) -> ConnectString:
    """What `zookeeper.connect` says; a server without a port listens on 2181. Raises ValueError.

    >>> str(parse_connect("zk1:2181, zk2/kafka"))
    'zk1:2181,zk2:2181/kafka'
    """
    servers, slash, path = text.partition("/")
    parts = [part for part in path.split("/") if part]
    if slash and (path.endswith("/") or "//" in path) and path:
        raise ValueError(f"a chroot like /kafka, without empty parts, not /{path}")
    if any(part in (".", "..") for part in parts):
        raise ValueError(f"a chroot without . and .., not /{path}")
    try:
        addresses = tuple(parse_address(server_with_port(server.strip())) for server in servers.split(","))
    except ValueError as error:
        raise ValueError("HOST:PORT,HOST:PORT/CHROOT, such as 127.0.0.1:2181/kafka") from error
    return ConnectString(addresses, "/" + "/".join(parts) if parts else "")


def server_with_port(server: str) -> str:
    has_port = ":" in (server.rpartition("]")[2] if server.startswith("[") else server)
    return server if has_port else f"{server}:{ZOOKEEPER_PORT}"


def unknown_setting(key: str, place: str, known: Mapping[str, FieldInfo]) -> str:
    near = get_close_matches(key, known, n=1, cutoff=0.6)
    remedy = f"did you mean {near[0]}?" if near else "the file deploy/coordinator.properties lists all there are"
    return f"{place}: {key} is no setting of this node; {remedy}"


def explain(fault: Any, given: Mapping[str, Given], known: Mapping[str, FieldInfo]) -> str:
    """One of pydantic's complaints as a sentence. One without a place is about several settings and names them."""
    reason = str(fault["msg"]).removeprefix("Value error, ")
    if not fault["loc"]:
        return reason
    key = str(fault["loc"][0])
    text, place = given.get(key, Given("", "default"))
    detail = f" ({reason})" if fault["type"] == "value_error" else ""
    return f"{place}: {key} is {text!r}, expected {expected(known[key])}{detail}"


def expected(field: FieldInfo) -> str:
    """What the field allows, in words."""
    if field.annotation is AssignorNames:
        return "names of assignors, separated by commas"
    if field.annotation is ConnectText:
        return "HOST:PORT,HOST:PORT/CHROOT or nothing"
    if field.annotation is str:
        return "HOST:PORT" if field.default else "HOST:PORT or nothing"
    if field.annotation is Path:
        return "a directory"
    return in_words(field)
