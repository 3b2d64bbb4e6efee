"""What `spark.read.format("muster")` understands: the option names of Spark's Kafka source, and what it lacks.

Spark hands options over as text, with their names in lower case. Unknown names are refused with the nearest known one,
names of Kafka that mean something else here with the reason (`kafka_options`).
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from coordinator.client.config import ClientConfig, WorkerConfig, load
from coordinator.client.errors import ConfigError
from coordinator.client.group_protocols import dotted
from coordinator.spark.errors import OptionError
from coordinator.spark.foreign import DEADLINE_MS, MAX_DEADLINE_MS
from coordinator.spark.kafka_options import (
    CATALOG,
    IGNORED_READING,
    IN_A_BATCH,
    KAFKA_PREFIX,
    NO_OPTIONS,
    NO_TABLE,
    REFUSED_READING,
    STREAM_ONLY,
    Ignored,
)
from coordinator.spark.planning import ONE_TO_ONE, WAYS, check_assignor
from coordinator.spark.schema import chosen_columns
from coordinator.spark.starting import LATEST, StartError, Where, parse_assign, parse_offsets, parse_times, read_json
from storage.wording import expected

DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000
MAX_TASKS = 10_000

MEMBER_DEFAULTS = {
    # Topics that grow should be shared out soon, not after five minutes.
    "metadata.max.age.ms": "10000",
    "client.id": "spark",
}
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushdown")
MEMBER_PROTOCOLS = ("classic", "consumer")
SOURCES = ("subscribe", "subscribePattern", "assign")
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNIT_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

Strategy = Literal["error", "latest"]


def camel(name: str) -> str:
    """
    >>> camel("max_offsets_per_trigger")
    'maxOffsetsPerTrigger'
    """
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class ReadOptions(BaseModel):
    """The checked options of one read. Properties of the client, such as bootstrap.servers, are in `client`."""

    model_config = ConfigDict(alias_generator=camel, populate_by_name=True, extra="forbid", frozen=True)

    subscribe: str | None = Field(None, description="Topics by name, separated by commas.")
    subscribe_pattern: str | None = Field(None, description="A regular expression; topics whose whole names match it.")
    assign: dict[str, list[int]] | None = Field(None, description='Partitions as JSON: {"orders": [0, 1]}.')
    starting_offsets: str | None = Field(
        None, description="earliest, latest, committed (with group.id), or JSON with -2 for earliest, -1 for latest."
    )
    starting_offsets_fallback: Literal["earliest", "latest", "error"] = Field(
        "earliest", description="Where to begin in partitions for which the group has committed nothing."
    )
    starting_timestamp: int | None = Field(None, ge=0, description="Epoch milliseconds for all partitions.")
    starting_offsets_by_timestamp: str | None = Field(None, description="JSON: epoch milliseconds per partition.")
    starting_offsets_by_timestamp_strategy: Strategy = Field(
        "error", description="What to do in partitions without so young a record: error, or latest."
    )
    ending_offsets: str | None = Field(None, description="latest, committed (with group.id), or JSON with -1.")
    ending_timestamp: int | None = Field(None, ge=0, description="Epoch milliseconds for all partitions.")
    ending_offsets_by_timestamp: str | None = Field(None, description="JSON: epoch milliseconds per partition.")
    fail_on_data_loss: bool = Field(True, description="Whether records that are gone before they were read fail it.")
    include_headers: bool = Field(False, description="Whether rows carry the headers column.")
    columns: str | None = Field(None, description="Only these columns, separated by commas.")
    pushdown: bool = Field(False, description="Read only what filters on partition, topic and offset leave.")
    assignor: str = Field("split", min_length=1, description="split, one-to-one, or any registered assignor.")
    assignor_options: dict[str, Any] = Field(default_factory=dict, description="JSON: what the assignor is told.")
    assignor_deadline_ms: int = Field(
        DEADLINE_MS, ge=1, le=MAX_DEADLINE_MS, description="How long an assignor that is a plugin may take to plan."
    )
    tasks: Literal["cores"] | int = Field("cores", description="Task slots to plan for: a number, or cores.")
    min_partitions: int | None = Field(None, ge=1, le=MAX_TASKS, description="At least so many tasks.")
    max_records_per_partition: int | None = Field(None, ge=1, description="At most so many records in one task.")
    max_offsets_per_trigger: int | None = Field(None, ge=1, description="Records of one micro-batch, at most.")
    min_offsets_per_trigger: int | None = Field(None, ge=1, description="Records to wait for before a micro-batch.")
    max_trigger_delay: int = Field(
        DEFAULT_TRIGGER_DELAY_MS, ge=1, description="How long to wait for minOffsetsPerTrigger: 15m, 30s, 500ms."
    )
    max_bytes_per_trigger: int | None = Field(
        None, ge=1, description="Bytes of one micro-batch as they lie in the log, about."
    )
    offsets_refresh_ms: int = Field(100, ge=1, le=3_600_000, description="How often the driver asks where logs end.")
    arrow_rows: int = Field(40_000, ge=1, le=250_000, description="Rows of one Arrow batch, at most.")
    commit_offsets: bool = Field(True, description="Whether progress is committed to the group.")
    poll_timeout_ms: int = Field(
        120_000,
        ge=1,
        alias="kafkaConsumer.pollTimeoutMs",
        description="How long a task waits for records, retries included.",
    )
    fetch_max_bytes: int = Field(
        4 << 20, ge=1, le=32 << 20, alias="fetch.max.bytes", description="Bytes of one answer to a task."
    )
    max_partition_fetch_bytes: int = Field(
        4 << 20, ge=1, le=32 << 20, alias="max.partition.fetch.bytes", description="Bytes of one partition in it."
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = Field(
        "read_uncommitted", alias="isolation.level", description="Whether data of open and aborted transactions counts."
    )
    client: dict[str, str] = Field(default_factory=dict, description="Properties of the client and the group.")
    ignored: tuple[str, ...] = Field((), description="What was taken and means nothing here, with the reason.")
    streaming: bool = Field(False, description="Which kind of read this is.")

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

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_source()
        if self.subscribe_pattern is not None:
            try:
                re.compile(self.subscribe_pattern)
            except re.error as error:
                raise ValueError(
                    f"subscribePattern={self.subscribe_pattern!r} is no regular expression: {error}"
                ) from None
        low, high = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise ValueError(f"minOffsetsPerTrigger={low} is more than maxOffsetsPerTrigger={high}; lower the first")
        self._check_assignor()
        _ = self.starting, self.ending, self.column_names
        return self

    def _check_assignor(self) -> None:
        check_assignor(self.assignor)
        if self.assignor in WAYS and self.assignor_options:
            raise ValueError(f"assignorOptions mean nothing with assignor={self.assignor}; leave them out")
        if self.assignor in WAYS and "assignor_deadline_ms" in self.model_fields_set:
            raise ValueError(f"assignorDeadlineMs means nothing with assignor={self.assignor}; leave it out")
        if self.assignor == ONE_TO_ONE and "tasks" in self.model_fields_set:
            raise ValueError(
                "tasks means nothing with assignor=one-to-one, which gives each partition a task of its own; leave it "
                "out, or set minPartitions"
            )

    def _check_source(self) -> None:
        given = [name for name in SOURCES if self._given(name)]
        if len(given) != 1:
            told = "none of them is given" if not given else f"{' and '.join(given)} are given"
            raise ValueError(f"exactly one of subscribe, subscribePattern and assign says what to read; {told}")
        if self.subscribe is not None and not self.topics:
            raise ValueError(f"subscribe={self.subscribe!r} names no topic; expected names separated by commas")

    def _given(self, name: str) -> bool:
        return getattr(self, {"subscribePattern": "subscribe_pattern"}.get(name, name)) is not None

    # What they mean

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of `subscribe`, sorted."""
        return tuple(sorted({name.strip() for name in (self.subscribe or "").split(",") if name.strip()}))

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of a row, in order."""
        return chosen_columns(self.columns, self.include_headers)

    @property
    def group_id(self) -> str | None:
        return self.client.get("group.id")

    @property
    def joins_group(self) -> bool:
        """Whether the driver of a stream is a member; partitions named by `assign` need no membership."""
        return self.streaming and self.group_id is not None and self.assign is None

    @property
    def starting(self) -> Where:
        """Where to begin, in Spark's order: one time for all, times per partition, offsets."""
        strategy = self.starting_offsets_by_timestamp_strategy
        if self.starting_timestamp is not None:
            return Where("time", "startingTimestamp", time_ms=self.starting_timestamp, strategy=strategy)
        if self.starting_offsets_by_timestamp is not None:
            option = "startingOffsetsByTimestamp"
            times = parse_times(option, self.starting_offsets_by_timestamp)
            return Where("times", option, times=times, strategy=strategy)
        word = self.starting_offsets
        if word is None:
            word = "committed" if self.group_id is not None else "latest" if self.streaming else "earliest"
        where = parse_offsets("startingOffsets", word, ("earliest", "latest", "committed"), self.group_id)
        if where.kind == "latest" and not self.streaming:
            raise StartError("startingOffsets=latest leaves a batch query nothing to read; use earliest, or offsets")
        return where

    @property
    def begins_with_the_moment(self) -> bool:
        """Whether a query that is started again without having read anything would begin further on."""
        starting = self.starting
        if starting.kind == "committed":
            return self.starting_offsets_fallback == "latest"
        if starting.kind in ("time", "times"):
            return starting.strategy == "latest"
        return starting.kind == "latest" or any(LATEST in row.values() for row in starting.offsets.values())

    @property
    def ending(self) -> Where:
        if self.ending_timestamp is not None:
            return Where("time", "endingTimestamp", time_ms=self.ending_timestamp, strategy="latest")
        if self.ending_offsets_by_timestamp is not None:
            option = "endingOffsetsByTimestamp"
            times = parse_times(option, self.ending_offsets_by_timestamp)
            return Where("times", option, times=times, strategy="latest")
        return parse_offsets("endingOffsets", self.ending_offsets or "latest", ("latest", "committed"), self.group_id)

    def client_config(self) -> ClientConfig:
        """What looks up and fetches; the properties of the group are left to `member_config`."""
        return load(ClientConfig, {name: value for name, value in self.client.items() if name in OF_EVERY_CLIENT}, {})

    def member_config(self) -> WorkerConfig:
        """What the driver joins its group with."""
        return load(WorkerConfig, {**MEMBER_DEFAULTS, **self.client}, {})


OF_EVERY_CLIENT = {dotted(name) for name in ClientConfig.model_fields}
KNOWN_CLIENT = {
    dotted(name).lower(): dotted(name)
    for name in WorkerConfig.model_fields
    if not name.startswith("scheduled_rebalance")
}
"""Names in lower case, as Spark hands them over, and as the client knows them."""

REFUSED = {name.lower(): why for name, why in REFUSED_READING.items()}

NOT_OPTIONS = ("client", "ignored", "streaming")
KNOWN = {
    (field.alias or camel(name)).lower(): field.alias or camel(name)
    for name, field in ReadOptions.model_fields.items()
    if name not in NOT_OPTIONS
}

SPELLINGS = {name.lower(): name for name in (*REFUSED_READING, *KNOWN.values(), *KNOWN_CLIENT.values())}


def spelled(given: str) -> str:
    """The name as it is documented: Spark hands it over in lower case.

    >>> spelled("kafka.pollTimeoutMs"), spelled("kafka.STARTINGOFFSETS")
    ('kafka.pollTimeoutMs', 'kafka.startingOffsets')
    """
    bare = given.lower().removeprefix(KAFKA_PREFIX)
    return given[: len(given) - len(bare)] + SPELLINGS.get(bare, given[len(given) - len(bare) :])


def either_kind(options: Mapping[str, str]) -> ReadOptions:
    """The checked options of a read where Spark does not say of which kind; OptionError when neither could be meant."""
    if CATALOG in options:
        raise OptionError(NO_TABLE)
    try:
        return read_options(options, streaming=False)
    except OptionError as batch:
        try:
            return read_options(options, streaming=True)
        except OptionError as stream:
            given = {name.lower() for name in options}
            raise (stream if given & {name.lower() for name in STREAM_ONLY} else batch) from None


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The checked options; OptionError names each wrong one, what was expected, and what to do."""
    if not options:
        raise OptionError(NO_OPTIONS)
    own: dict[str, Any] = {}
    client: dict[str, str] = {}
    ignored = Ignored(IGNORED_READING)
    for given, value in options.items():
        name = given.lower()
        bare = name.removeprefix(KAFKA_PREFIX)
        _refuse(given, name, bare, streaming)
        if name in KNOWN:
            own[KNOWN[name]] = value
        elif bare in KNOWN and "." in bare:
            own[KNOWN[bare]] = value
        elif bare == "endpoints":
            _put(client, "bootstrap.servers", value, given)
        elif bare in KNOWN_CLIENT:
            _put(client, KNOWN_CLIENT[bare], value, given)
        elif not ignored.take(given, value):
            raise OptionError(_unknown(given))
    if "bootstrap.servers" not in client:
        raise OptionError("bootstrap.servers is missing; set it to HOST:PORT of a node, as in 127.0.0.1:9290")
    no_triggers = [] if streaming else [f"{name} ({IN_A_BATCH})" for name in STREAM_ONLY if name in own]
    return _checked(own, client, (*ignored.notes, *no_triggers), streaming)


def _put(client: dict[str, str], name: str, value: str, given: str) -> None:
    if client.setdefault(name, value) != value:
        raise OptionError(f"{spelled(given)} is given twice: {client[name]!r} and {value!r}; keep one")


def _refuse(given: str, name: str, bare: str, streaming: bool) -> None:
    if (why := REFUSED.get(name) or REFUSED.get(bare)) is not None:
        raise OptionError(f"{spelled(given)} cannot be set here: {why}")
    for other in BATCH_ONLY if streaming else ():
        if name == other.lower():
            raise OptionError(f"{other} means nothing in a streaming query; leave it out")


def _checked(own: dict[str, Any], client: dict[str, str], ignored: tuple[str, ...], streaming: bool) -> ReadOptions:
    try:
        options = ReadOptions.model_validate({**own, "client": client, "ignored": ignored, "streaming": streaming})
        options.client_config()
        _check_group(options)
    except ValidationError as error:
        raise OptionError(_explained(error)) from None
    except ConfigError as error:
        raise OptionError(str(error)) from None
    if "group.instance.id" in client and options.group_id is None:
        raise OptionError("group.instance.id is set but group.id is not; a static member needs a group")
    return options


def _check_group(options: ReadOptions) -> None:
    """The properties of a group, also for reads that join none: a wrong one is wrong there, too."""
    if options.group_id is not None and not options.group_id.strip():
        raise OptionError(f"group.id={options.group_id!r} is no name; name the group, or leave it out")
    protocol = options.client.get("group.protocol", "classic")
    if protocol not in MEMBER_PROTOCOLS:
        raise OptionError(f"group.protocol={protocol!r}: a query takes part in its group by classic or consumer")
    if options.client.keys() <= OF_EVERY_CLIENT:
        return  # Nothing is said of a group: the registry of assignors need not be loaded.
    from assignors.registry import resolve_all

    try:
        resolve_all(options.member_config().partition_assignment_strategy)
    except ConfigError:
        raise
    except ValueError as error:
        raise OptionError(f"partition.assignment.strategy: {error}") from None


def _unknown(given: str) -> str:
    names = {**KNOWN, **KNOWN_CLIENT}
    near = difflib.get_close_matches(given.lower().removeprefix(KAFKA_PREFIX), names, n=1, cutoff=0.6)
    hint = f"did you mean {names[near[0]]!r}?" if near else f"known here: {', '.join(sorted(names.values()))}"
    return f"{given!r} is not an option for reading; {hint}"


def _explained(error: ValidationError) -> str:
    fields = {field.alias or camel(name): field for name, field in ReadOptions.model_fields.items()}
    told = []
    for problem in error.errors(include_url=False):
        what = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            told.append(what)
            continue
        name = str(problem["loc"][0])
        wanted = what if problem["type"] == "value_error" else f"expected {expected(fields[name])}"
        told.append(f"{name}={problem['input']!r}: {wanted}")
    return "; ".join(dict.fromkeys(told))
