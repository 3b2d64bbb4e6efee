"""The properties of clients: Kafka's names and Kafka Java's defaults, dotted in a dict or snake_case as keywords.

Unknown names are refused with the nearest known one; only properties that do something are known.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from muster.client.connection import ConnectionConfig, split_servers
from muster.client.errors import ConfigError
from muster.client.group_protocols import check_protocol, check_zookeeper
from muster.client.group_protocols import to_dotted as to_dotted
from muster.client.records_config import RecordsProperties
from muster.client.security_config import SecurityProperties, show_property
from muster.client.zookeeper_config import COMMIT_INTERVAL_MS, ZookeeperProperties
from muster.storage.references import BadReference, Resolved, resolve_references
from muster.storage.wording import describe_allowed

DEFAULT_BOOTSTRAP = "127.0.0.1:9290"
INT_MAX = 2**31 - 1
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

    bootstrap_servers: str = Field(DEFAULT_BOOTSTRAP, description="HOST:PORT of a node, or several by comma.")
    client_id: str = Field("", max_length=255, description="A name for logs and the ledger.")
    request_timeout_ms: int = Field(30_000, ge=1, le=INT_MAX, description="How long one request may take.")
    default_api_timeout_ms: int = Field(
        60_000, ge=1, le=INT_MAX, description="How long a call may take, retries included."
    )
    retry_backoff_ms: int = Field(100, ge=1, le=INT_MAX, description="The wait before the first retry.")
    retry_backoff_max_ms: int = Field(1_000, ge=1, le=INT_MAX, description="The longest wait between retries.")
    reconnect_backoff_ms: int = Field(50, ge=1, le=INT_MAX, description="The wait before the first reconnect.")
    reconnect_backoff_max_ms: int = Field(1_000, ge=1, le=INT_MAX, description="The longest wait between reconnects.")
    metadata_max_age_ms: int = Field(300_000, ge=1, le=INT_MAX, description="How old known partition counts may get.")
    receive_message_max_bytes: int = Field(
        64 << 20, ge=1 << 20, le=INT_MAX, description="The largest answer taken from a node."
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

    acks: Literal["all", "1", "0"] = Field("all", description="Whose word to wait for: all, 1, or 0 (nobody's).")
    enable_idempotence: bool | None = Field(
        None,
        description="Number batches, so that one sent again is written once; default: where nodes share a cluster.",
    )
    linger_ms: int = Field(5, ge=0, le=60_000, description="How long a record may wait for company.")
    batch_size: int = Field(16_384, ge=0, le=16 << 20, description="Bytes of one batch; 0 sends each record alone.")
    buffer_memory: int = Field(32 << 20, ge=1 << 16, description="Bytes of records not yet delivered.")
    max_block_ms: int = Field(60_000, ge=0, le=INT_MAX, description="How long produce() may wait for room or metadata.")
    max_request_size: int = Field(1 << 20, ge=1, le=64 << 20, description="The largest record, and request.")
    delivery_timeout_ms: int = Field(
        120_000, ge=1, le=INT_MAX, description="When to give a record up, retries included."
    )
    compression_type: Literal["none", "gzip"] = Field("none", description="none or gzip.")
    max_in_flight_requests_per_connection: int = Field(
        5, ge=1, le=100, description="Requests under way; a partition is in one at most, so order is kept."
    )

    @field_validator("acks", mode="before")
    @classmethod
    def _name_acks(cls, value: Any) -> Any:
        return {"-1": "all"}.get(str(value), str(value))

    @model_validator(mode="after")
    def _check_idempotence(self) -> Self:
        if self.enable_idempotence and self.acks != "all":
            raise ValueError(
                f"enable.idempotence=true needs to hear of all that is written, and acks is {self.acks}; use acks=all"
            )
        return self

    @property
    def numbers_batches(self) -> bool:
        return self.acks == "all" and self.enable_idempotence is not False


class GroupConfig(ClientConfig):
    """What every member of a group understands."""

    kind: ClassVar[str] = "worker"

    group_id: str | None = Field(None, description="The group to be a member of.")
    group_instance_id: str | None = Field(None, description="Makes the member static (KIP-345).")
    client_rack: str = Field("", description="Where this member runs, for rack-aware assignors.")
    session_timeout_ms: int = Field(
        45_000, ge=1, le=INT_MAX, description="Silence after which the group gives a member up."
    )
    heartbeat_interval_ms: int = Field(3_000, ge=1, le=INT_MAX, description="How often a member says that it lives.")
    max_poll_interval_ms: int = Field(
        300_000, ge=1, le=INT_MAX, description="The longest time between polls, and for callbacks in a rebalance."
    )
    partition_assignment_strategy: str = Field(
        "range,cooperative-sticky", description="Assignors by name, Kafka class, entry point or module:Class."
    )
    partition_assignment_options: dict[str, Any] = Field(
        default_factory=dict,
        description="What a leader tells its assignor beside the group: an object or its JSON.",
    )
    partition_assignment_deadline_ms: int = Field(
        10_000, ge=1, le=INT_MAX, description="How long the assignor of a leader may think before its plan is replaced."
    )
    partition_assignment_isolation: Literal["process", "thread"] = Field(
        "process",
        description="Where an assignor that is not built in runs: only a process can be stopped when it hangs.",
    )
    group_protocol: Literal["classic", "consumer", "central", "zookeeper"] = Field(
        "classic",
        description="classic: the members assign (JoinGroup, SyncGroup). consumer: the coordinator (KIP-848). "
        "central: the coordinator, which stops and starts everybody. zookeeper: every consumer for itself (0.8).",
    )
    group_remote_assignor: str | None = Field(
        None, description="The assignor that the coordinator shall run; classic groups need all members to ask for one."
    )

    group_membership: Literal["push", "poll"] = Field(
        "push", description="push: hear of rebalances at once, by a stream; poll: by the next heartbeat."
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

    scheduled_rebalance_max_delay_ms: int = Field(
        300_000, ge=0, le=INT_MAX, description="How long named resources wait for a worker that went; 0: not at all."
    )
    scheduled_rebalance_delay_survives_leader: bool = Field(
        True, description="Whether the wait goes on when the leader goes; false forgets it, as Kafka Connect does."
    )
    partition_assignment_strategy: str = Field(
        "cooperative-sticky", description="Assignors by name, Kafka class, entry point or module:Class."
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

    max_poll_records: int = Field(500, ge=1, le=1_000_000, description="Records handed over at once, at most.")
    auto_offset_reset: Literal["latest", "earliest", "none"] = Field(
        "latest", description="Where to begin without a committed offset: latest, earliest, none (an error)."
    )
    enable_auto_commit: bool | None = Field(None, description="Commit what was polled; default true with a group.id.")
    enable_auto_offset_store: bool = Field(
        True, description="Whether a handed-over record counts as done at the next poll."
    )
    auto_commit_interval_ms: int = Field(
        5_000, ge=1, le=INT_MAX, description="How often to commit automatically; with zookeeper once a minute."
    )
    fetch_min_bytes: int = Field(1, ge=1, le=INT_MAX, description="What a fetch waits for.")
    fetch_max_wait_ms: int = Field(500, ge=0, le=300_000, description="How long a fetch waits for it.")
    fetch_max_bytes: int = Field(
        50 << 20, ge=1, le=INT_MAX, description="Bytes of one fetch, and of what is read ahead."
    )
    max_partition_fetch_bytes: int = Field(1 << 20, ge=1, le=INT_MAX, description="Bytes of one partition in a fetch.")
    exclude_internal_topics: bool = Field(True, description="Whether a pattern leaves internal topics out.")

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
        told = describe_invalid_properties(error, model)
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
    near = difflib.get_close_matches(to_dotted(name), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(known))}"
    article = "an" if kind[0] in "aeiou" else "a"
    return f"{name!r} is not a property of {article} {kind}; {hint}"


def describe_invalid_properties(error: ValidationError, model: type[ClientConfig]) -> str:
    """What is wrong with each property, what was expected; what concerns several properties names them itself."""
    fields = {to_dotted(name): field for name, field in model.model_fields.items()}
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
    return "; ".join(told)
