"""Checks the options of `spark.read.format("muster")` and of writes to it: those of Spark's Kafka connector, and
Muster's own.

Spark hands options over as text with lower-case names. An unknown name is refused with the nearest known one, and a
Kafka option with another meaning here with the reason (`kafka_options`).
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from muster.client.config import (
    ClientConfig,
    WorkerConfig,
    describe_invalid_fields,
    load,
    show_property,
    suggest_name,
)
from muster.client.errors import ConfigError
from muster.spark.assignor_deadline import DEADLINE_MS, MAX_DEADLINE_MS
from muster.spark.kafka_options import (
    CATALOG,
    IGNORED_READING,
    IGNORED_WRITING,
    IN_A_BATCH,
    KAFKA_PREFIX,
    NO_OPTIONS,
    NO_TABLE,
    REFUSED_READING,
    STREAM_ONLY,
    IgnoredOptions,
)
from muster.spark.planning import ONE_TO_ONE, PLANNING_WAYS, check_assignor
from muster.spark.read_options import OptionError, ReadOptions, Strategy, parse_assign, read_json
from muster.storage.settings_text import setting, to_dotted

# Options of a read
# -----------------

DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000
MAX_TASKS = 10_000

BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushdown")
MEMBER_PROTOCOLS = ("classic", "consumer")
SOURCES = ("subscribe", "subscribePattern", "assign")
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNIT_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def to_camel_case(name: str) -> str:
    """
    >>> to_camel_case("max_offsets_per_trigger")
    'maxOffsetsPerTrigger'
    """
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class GivenOptions(BaseModel):
    """What may be given for a read, each by itself; `ReadOptions` is what all of it means together."""

    model_config = ConfigDict(alias_generator=to_camel_case, populate_by_name=True, extra="forbid", frozen=True)

    subscribe: str | None = setting(None, "Topics by name, separated by commas.")
    subscribe_pattern: str | None = setting(None, "A regular expression; topics whose whole names match it.")
    assign: dict[str, list[int]] | None = setting(None, 'Partitions as JSON: {"orders": [0, 1]}.')
    starting_offsets: str | None = setting(
        None, "earliest, latest, committed (with group.id), or JSON with -2 for earliest, -1 for latest."
    )
    starting_offsets_fallback: Literal["earliest", "latest", "error"] = setting(
        "earliest", "Where to begin in partitions for which the group has committed nothing."
    )
    starting_timestamp: int | None = setting(None, "Epoch milliseconds for all partitions.", ge=0)
    starting_offsets_by_timestamp: str | None = setting(None, "JSON: epoch milliseconds per partition.")
    starting_offsets_by_timestamp_strategy: Strategy = setting(
        "error", "What to do in partitions without so young a record: error, or latest."
    )
    ending_offsets: str | None = setting(None, "latest, committed (with group.id), or JSON with -1.")
    ending_timestamp: int | None = setting(None, "Epoch milliseconds for all partitions.", ge=0)
    ending_offsets_by_timestamp: str | None = setting(None, "JSON: epoch milliseconds per partition.")
    fail_on_data_loss: bool = setting(True, "Whether records that are gone before they were read fail it.")
    include_headers: bool = setting(False, "Whether rows carry the headers column.")
    columns: str | None = setting(None, "Only these columns, separated by commas.")
    pushdown: bool = setting(False, "Read only what filters on partition, topic and offset leave.")
    assignor: str = setting("split", "split, one-to-one, or any registered assignor.", min_length=1)
    assignor_options: dict[str, Any] = Field(default_factory=dict, description="JSON: what the assignor is told.")
    assignor_deadline_ms: int = setting(
        DEADLINE_MS, "How long an assignor that is a plugin may take to plan.", ge=1, le=MAX_DEADLINE_MS
    )
    tasks: Literal["cores"] | int = setting("cores", "Task slots to plan for: a number, or cores.")
    min_partitions: int | None = setting(None, "At least so many tasks.", ge=1, le=MAX_TASKS)
    max_records_per_partition: int | None = setting(None, "At most so many records in one task.", ge=1)
    max_offsets_per_trigger: int | None = setting(None, "Records of one micro-batch, at most.", ge=1)
    min_offsets_per_trigger: int | None = setting(None, "Records to wait for before a micro-batch.", ge=1)
    max_trigger_delay: int = setting(
        DEFAULT_TRIGGER_DELAY_MS, "How long to wait for minOffsetsPerTrigger: 15m, 30s, 500ms.", ge=1
    )
    max_bytes_per_trigger: int | None = setting(None, "Bytes of one micro-batch as they lie in the log, about.", ge=1)
    offsets_refresh_ms: int = setting(100, "How often the driver asks where logs end.", ge=1, le=3_600_000)
    arrow_rows: int = setting(40_000, "Rows of one Arrow batch, at most.", ge=1, le=250_000)
    commit_offsets: bool = setting(True, "Whether progress is committed to the group.")
    poll_timeout_ms: int = setting(
        120_000, "How long a task waits for records, retries included.", name="kafkaConsumer.pollTimeoutMs", ge=1
    )
    fetch_max_bytes: int = setting(4 << 20, "Bytes of one answer to a task.", name="fetch.max.bytes", ge=1, le=32 << 20)
    max_partition_fetch_bytes: int = setting(
        4 << 20, "Bytes of one partition in it.", name="max.partition.fetch.bytes", ge=1, le=32 << 20
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = setting(
        "read_uncommitted", "Whether data of open and aborted transactions counts.", name="isolation.level"
    )

    @field_validator("assign", mode="before")
    @classmethod
    def _read_assign(cls, value: Any) -> Any:
        return parse_assign(value)

    @field_validator("assignor_options", mode="before")
    @classmethod
    def _read_assignor_options(cls, value: Any) -> Any:
        return read_json(value, '{"max_moves": 2}')

    @field_validator("max_trigger_delay", mode="before")
    @classmethod
    def _read_duration(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = _DURATION.fullmatch(value.strip().lower())
        if found is None:
            raise ValueError("must be a time such as 15m, 30s or 500ms")
        return int(found[1]) * _UNIT_MS[found[2]]

    @field_validator("tasks", mode="before")
    @classmethod
    def _read_tasks(cls, value: Any) -> Any:
        if isinstance(value, str) and value.strip().lower() == "cores":
            return "cores"
        if not (str(value).strip().isdecimal() and 1 <= int(value) <= MAX_TASKS):
            raise ValueError(f"must be cores, or a whole number from 1 to {MAX_TASKS}")
        return int(value)


OF_EVERY_CLIENT = {to_dotted(name) for name in ClientConfig.model_fields}
KNOWN_CLIENT = {
    to_dotted(name).lower(): to_dotted(name)
    for name in WorkerConfig.model_fields
    if not name.startswith("scheduled_rebalance")
}
"""Names in lower case, as Spark hands them over, and as the client knows them."""

REFUSED_READING_LOWER = {name.lower(): why for name, why in REFUSED_READING.items()}

READ_FIELDS = {field.alias or to_camel_case(name): field for name, field in GivenOptions.model_fields.items()}
KNOWN = {name.lower(): name for name in READ_FIELDS}

SPELLINGS = {name.lower(): name for name in (*REFUSED_READING, *KNOWN.values(), *KNOWN_CLIENT.values())}


def spell_option(given: str) -> str:
    """The name as it is documented: Spark hands it over in lower case.

    >>> spell_option("kafka.pollTimeoutMs"), spell_option("kafka.STARTINGOFFSETS")
    ('kafka.pollTimeoutMs', 'kafka.startingOffsets')
    """
    bare = given.lower().removeprefix(KAFKA_PREFIX)
    return given[: len(given) - len(bare)] + SPELLINGS.get(bare, given[len(given) - len(bare) :])


def check_read_kinds(options: Mapping[str, str]) -> dict[bool, ReadOptions]:
    """The checked options of each kind of read that they could be meant for, by whether it is a stream.

    Spark does not say which until later. OptionError when neither could be meant.
    """
    if CATALOG in options:
        raise OptionError(NO_TABLE)
    kinds, wrong = {}, {}
    for streaming in (False, True):
        try:
            kinds[streaming] = check_read_options(options, streaming=streaming)
        except OptionError as error:
            wrong[streaming] = error
    if not kinds:
        given = {name.lower() for name in options}
        raise wrong[not given.isdisjoint(name.lower() for name in STREAM_ONLY)]
    return kinds


def check_read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The checked options; OptionError names each wrong one, what was expected, and what to do."""
    if not options:
        raise OptionError(NO_OPTIONS)
    own: dict[str, Any] = {}
    client: dict[str, str] = {}
    ignored = IgnoredOptions(IGNORED_READING)
    for given, value in options.items():
        name = given.lower()
        bare = name.removeprefix(KAFKA_PREFIX)
        _refuse(given, name, bare, streaming)
        if name in KNOWN:
            own[KNOWN[name]] = value
        elif bare in KNOWN and "." in bare:
            own[KNOWN[bare]] = value
        elif bare == "endpoints":
            _put_option(client, "bootstrap.servers", value, spell_option(given))
        elif bare in KNOWN_CLIENT:
            _put_option(client, KNOWN_CLIENT[bare], value, spell_option(given))
        elif not ignored.note_option(given, value):
            raise OptionError(_describe_unknown_option(given, {**KNOWN, **KNOWN_CLIENT}, "reading"))
    if "bootstrap.servers" not in client:
        raise OptionError("bootstrap.servers is missing; set it to HOST:PORT of a node, as in 127.0.0.1:9290")
    ignored.secured(client)
    no_triggers = [] if streaming else [f"{name} ({IN_A_BATCH})" for name in STREAM_ONLY if name in own]
    return _check_read(own, client, (*ignored.notes, *no_triggers), streaming)


def _put_option(into: dict[str, Any], name: str, value: str, given: str) -> None:
    if into.setdefault(name, value) != value:
        both = f"{show_property(name, into[name])} and {show_property(name, value)}"
        raise OptionError(f"{given} is given twice: {both}; keep one")


def _describe_unknown_option(given: str, known: Mapping[str, str], purpose: str) -> str:
    hint = suggest_name(given.lower().removeprefix(KAFKA_PREFIX), known)
    return f"{given!r} is not an option for {purpose}; {hint}"


def _refuse(given: str, name: str, bare: str, streaming: bool) -> None:
    if (why := REFUSED_READING_LOWER.get(name) or REFUSED_READING_LOWER.get(bare)) is not None:
        raise OptionError(f"{spell_option(given)} cannot be set here: {why}")
    for other in BATCH_ONLY if streaming else ():
        if name == other.lower():
            raise OptionError(f"{other} means nothing in a streaming query; leave it out")


def _check_read(own: dict[str, Any], client: dict[str, str], ignored: tuple[str, ...], streaming: bool) -> ReadOptions:
    try:
        given = GivenOptions.model_validate(own)
        of_client = {name: value for name, value in client.items() if name in OF_EVERY_CLIENT}
        options = ReadOptions(
            **{name: getattr(given, name) for name in GivenOptions.model_fields},
            client=client,
            connection=load(ClientConfig, of_client, {}).connection,
            ignored=ignored,
            streaming=streaming,
        )
        _check(options, given.model_fields_set)
        _check_group(options)
    except ValidationError as error:
        raise OptionError(describe_invalid_fields(error, READ_FIELDS)) from None
    except ValueError as error:
        raise OptionError(str(error)) from None
    if "group.instance.id" in client and options.group_id is None:
        raise OptionError("group.instance.id is set but group.id is not; a static member needs a group")
    return options


def _check(options: ReadOptions, given: Collection[str]) -> None:
    """What options say together. Raises ValueError."""
    _check_source(options)
    if options.subscribe_pattern is not None:
        try:
            re.compile(options.subscribe_pattern)
        except re.error as error:
            raise ValueError(
                f"subscribePattern={options.subscribe_pattern!r} is not a regular expression: {error}"
            ) from None
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise ValueError(f"minOffsetsPerTrigger={low} is more than maxOffsetsPerTrigger={high}; lower the first")
    _check_assignor(options, given)
    _ = options.starting, options.ending, options.column_names


def _check_assignor(options: ReadOptions, given: Collection[str]) -> None:
    assignor = options.assignor
    check_assignor(assignor)
    if assignor in PLANNING_WAYS and options.assignor_options:
        raise ValueError(f"assignorOptions mean nothing with assignor={assignor}; leave them out")
    if assignor in PLANNING_WAYS and "assignor_deadline_ms" in given:
        raise ValueError(f"assignorDeadlineMs means nothing with assignor={assignor}; leave it out")
    if assignor == ONE_TO_ONE and "tasks" in given:
        raise ValueError(
            "tasks means nothing with assignor=one-to-one, which gives each partition a task of its own; leave it "
            "out, or set minPartitions"
        )


def _check_source(options: ReadOptions) -> None:
    sources = (options.subscribe, options.subscribe_pattern, options.assign)
    given = [name for name, value in zip(SOURCES, sources, strict=True) if value is not None]
    if len(given) != 1:
        told = "none of them is given" if not given else f"{' and '.join(given)} are given"
        raise ValueError(f"exactly one of subscribe, subscribePattern and assign says what to read; {told}")
    if options.subscribe is not None and not options.topics:
        raise ValueError(f"subscribe={options.subscribe!r} names no topic; expected names separated by commas")


def _check_group(options: ReadOptions) -> None:
    """The properties of a group, also for reads that join none: a wrong one is wrong there, too."""
    if options.group_id is not None and not options.group_id.strip():
        raise OptionError(f"group.id={options.group_id!r} is not a name; name the group, or leave it out")
    protocol = options.client.get("group.protocol", "classic")
    if protocol not in MEMBER_PROTOCOLS:
        raise OptionError(f"group.protocol={protocol!r}: a query takes part in its group by classic or consumer")
    if options.client.keys() <= OF_EVERY_CLIENT:
        return  # Nothing is said of a group: the registry of assignors need not be loaded.
    from muster.assignors.registry import resolve_all

    try:
        resolve_all(options.member_config().partition_assignment_strategy)
    except ConfigError:
        raise
    except ValueError as error:
        raise OptionError(f"partition.assignment.strategy: {error}") from None


# Options of a write
# ------------------

ALWAYS = "the sink decides it: see exactlyOnce, txnAppId and txnVersion"
READS_NOTHING = "a write reads nothing; say where rows go by the option topic or a topic column"
AS_COLUMNS = "keys and values come as string or binary columns"
REFUSED_WRITING = {
    "key.serializer": AS_COLUMNS,
    "value.serializer": AS_COLUMNS,
    "interceptor.classes": "records are written as columns, no interceptor would see them",
    "partitioner.class": "a partition column says where a row goes; without one the key does, as in Kafka",
    "enable.idempotence": ALWAYS,
    "transactional.id": ALWAYS,
    "transaction.timeout.ms": ALWAYS,
    "group.id": "a write joins no group; exactly-once uses the query's id, or txnAppId and txnVersion",
    "subscribe": READS_NOTHING,
    "subscribepattern": READS_NOTHING,
    "assign": READS_NOTHING,
    "startingoffsets": READS_NOTHING,
    "includeheaders": "a headers column is written when there is one",
    "path": "topics are no files; name one by the option topic, or rows by a topic column",
}
ACCEPTED_WRITING = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""What Spark passes on, though it is for Spark itself."""


FIRST_ANSWER_MS = 10_000
"""How long a write waits for a node that has not answered yet, unless max.block.ms says."""


class WriteOptions(BaseModel):
    """The checked options of one write. Properties of the client, such as bootstrap.servers, are in `client`."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    topic: str | None = setting(None, "Where all rows go; wins over a topic column.", min_length=1)
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = setting(
        "none", "none, gzip, snappy, lz4 or zstd.", name="compression.type"
    )
    batch_size: int = setting(
        512 << 10, "Bytes of one record batch, before compression.", name="batch.size", ge=1024, le=16 << 20
    )
    max_request_size: int = setting(
        4 << 20, "Bytes of one request, about.", name="max.request.size", ge=1024, le=32 << 20
    )
    delivery_timeout_ms: int = setting(
        120_000, "When to give a request up, retries included.", name="delivery.timeout.ms", ge=1
    )
    max_block_ms: int | None = setting(
        None,
        "How long a task waits for the partitions of a topic, that is for a node to answer at all. Without it 10 s for "
        "a node that has not answered this process yet, and delivery.timeout.ms for one that has.",
        name="max.block.ms",
        ge=1,
    )
    acks: Literal["all", "-1"] = setting("all", "all: a task counts as done when its records are on disk.")
    exactly_once: bool = setting(
        True, "Whether a stream's batches are staged and committed; false appends.", name="exactlyOnce"
    )
    delivery: Literal["exactly-once", "at-least-once"] | None = setting(
        None, "Of a stream: exactly-once, the default, or at-least-once, which is exactlyOnce=false."
    )
    txn_app_id: str | None = setting(
        None,
        "Makes a batch write exactly-once: who writes. Letters, digits, '.', '_' and '-'.",
        name="txnAppId",
        pattern=r"^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,180}$",
    )
    txn_version: int | None = setting(
        None, "Which of its writes this is; each once, upwards.", name="txnVersion", ge=0, le=2**62
    )
    client: dict[str, str] = Field(default_factory=dict, repr=False, description="Properties of the client.")
    ignored: tuple[str, ...] = setting((), "What was taken and means nothing here, with the reason.")
    streaming: bool = setting(False, "Which kind of write this is.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.batch_size > self.max_request_size:
            raise ValueError(
                f"batch.size={self.batch_size} is above max.request.size={self.max_request_size}, so that a full batch "
                "would fit into no request; expected at most as much: lower batch.size or raise max.request.size"
            )
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise ValueError("txnAppId and txnVersion go together: who writes, and which of its writes this is")
        if self.streaming and self.txn_app_id is not None:
            raise ValueError("txnAppId and txnVersion are for batch writes; a stream has its query's id and batch ids")
        for name, alias in (("exactly_once", "exactlyOnce"), ("delivery", "delivery")):
            if not self.streaming and name in self.model_fields_set:
                raise ValueError(
                    f"{alias} is for streams; a batch write becomes exactly-once by txnAppId and txnVersion"
                )
        if self.delivery is not None and "exactly_once" in self.model_fields_set and self.stages != self.exactly_once:
            raise ValueError(
                f"delivery={self.delivery} and exactlyOnce={self.exactly_once} contradict each other; keep one"
            )
        return self

    @property
    def stages(self) -> bool:
        """Whether a stream's batches are staged and committed."""
        return self.exactly_once if self.delivery is None else self.delivery == "exactly-once"

    def lookup_timeout_ms(self, *, answered: bool) -> int:
        """How long to wait for the partitions of a topic from a node that has `answered` this process before, or not.

        A batch of a running query waits for its node to come back; a write that begins does not wait for a port at
        which nothing listens.
        """
        patience_ms = self.delivery_timeout_ms if answered else FIRST_ANSWER_MS
        return min(self.max_block_ms or patience_ms, self.delivery_timeout_ms)

    def client_config(self) -> ClientConfig:
        return load(ClientConfig, self.client, {"default_api_timeout_ms": self.delivery_timeout_ms})


WRITE_FIELDS = {field.alias or name: field for name, field in WriteOptions.model_fields.items()}
KNOWN_WRITING = {name.lower(): name for name in WRITE_FIELDS if name not in ("client", "ignored", "streaming")}
KNOWN_WRITING_CLIENT = {
    to_dotted(name): to_dotted(name) for name in ClientConfig.model_fields if name != "default_api_timeout_ms"
}


def check_write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Check the options of a write; OptionError names the first wrong one, what was expected, and what to do."""
    if not options:
        raise OptionError(NO_OPTIONS)
    own: dict[str, Any] = {}
    client: dict[str, str] = {}
    ignored = IgnoredOptions(IGNORED_WRITING)
    for given, value in options.items():
        name = given.lower()
        bare = name.removeprefix(KAFKA_PREFIX)
        if (why := REFUSED_WRITING.get(bare)) is not None:
            raise OptionError(f"{given} cannot be set here: {why}")
        if name in ACCEPTED_WRITING:
            continue
        if bare in KNOWN_WRITING and (name == bare or "." in bare or bare == "acks"):
            _put_option(own, KNOWN_WRITING[bare], value, given)
        elif bare in ("endpoints", "bootstrap.servers"):
            _put_option(client, "bootstrap.servers", value, given)
        elif bare in KNOWN_WRITING_CLIENT:
            _put_option(client, KNOWN_WRITING_CLIENT[bare], value, given)
        elif not ignored.note_option(given, value):
            raise OptionError(_describe_unknown_option(given, {**KNOWN_WRITING, **KNOWN_WRITING_CLIENT}, "writing"))
    if "bootstrap.servers" not in client:
        raise OptionError("bootstrap.servers is missing; set it to HOST:PORT of a node, as in 127.0.0.1:9290")
    ignored.secured(client)
    return _check_write(own, client, tuple(ignored.notes), streaming)


def _check_write(
    own: dict[str, Any], client: dict[str, str], ignored: tuple[str, ...], streaming: bool
) -> WriteOptions:
    try:
        options = WriteOptions.model_validate({**own, "client": client, "ignored": ignored, "streaming": streaming})
        options.client_config()
    except ValidationError as error:
        raise OptionError(describe_invalid_fields(error, WRITE_FIELDS)) from None
    except ConfigError as error:
        raise OptionError(str(error)) from None
    return options
