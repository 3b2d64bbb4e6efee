"""The checked options of a read as plain values, the columns of a row, and the errors of the data source.

The values travel from the process that checks options to all others, so this module imports neither pydantic nor
gRPC. Columns have the names, order and types of Spark's Kafka source. Start and end of a read are words, offsets by
partition, or times.

Spark reuses Python processes, and collects garbage after each task and each planning step; `settle_in` excludes the
modules that are already loaded.
"""

import gc
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from muster.client.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from muster.client.config import WorkerConfig
    from muster.client.types import ConnectionConfig


# Errors of the data source
# -------------------------

REMEDY = (
    "they expired, were deleted, or the topic was made again; set failOnDataLoss=false to go on with what is left, "
    "or start over with a new checkpoint"
)

NOT_READ_REMEDY = (
    "name it again, use a new checkpoint for what is read now, or set failOnDataLoss=false to go on without it"
)


class OptionError(ConfigError):
    """An option of the data source that is unknown, malformed, or contradicts another one."""


class DataLoss(ClientError):
    """Records that were to be read are gone. `brief` says which, without what to do."""

    def __init__(self, brief: str, remedy: str = REMEDY) -> None:
        self.brief = brief
        super().__init__(f"{brief}; {remedy}")


class NoShare(ClientError):
    """A group that is waiting for nobody has given a driver no share."""

    def __init__(self, group_id: str, waited_ms: int, state: str, members: str) -> None:
        super().__init__(
            f"group {group_id!r} gave this driver no share within {waited_ms} ms, though it waits for nobody; "
            f"it is {state}, with the members {members}; see muster groups describe {group_id}"
        )


Given = ParamSpec("Given")
Result = TypeVar("Result")


def raise_without_frames(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """For what Spark calls. Of an error Spark prints each frame above its sentence; a client's says by itself what is
    wrong and what to do, so one frame is left, without which Python raises nothing."""

    @wraps(method)
    def told(*given: Given.args, **named: Given.kwargs) -> Result:
        try:
            return method(*given, **named)
        except ClientError as error:
            raise error.with_traceback(None) from None

    return told


def iterate_without_frames(rows: Iterator[Result]) -> Iterator[Result]:
    """The same for what a task reads."""
    try:
        yield from rows
    except ClientError as error:
        raise error.with_traceback(None) from None


# Python processes that Spark reuses
# ----------------------------------

DAEMON = "pyspark.daemon"
"""The main module of such a process."""


@cache
def settle_in() -> None:
    """Leave what is loaded by now out of all further garbage collections.

    Spark's daemon collects garbage whenever a task has ended, and whenever a source was made or planned: 56 ms for the
    67,000 objects that this source's modules are made of, though none of them ever becomes garbage. Only the first
    call counts, and only in a process of Spark's daemon: elsewhere what is collected is not ours to decide.
    """
    if is_kept():
        gc.freeze()


def is_kept() -> bool:
    """Whether this process was started by Spark's daemon."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == DAEMON


# Columns of a row
# ----------------

HEADERS = "headers"
SQL_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
COLUMNS = tuple(name for name in SQL_TYPES if name != HEADERS)

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""The values of timestampType."""


def build_ddl(names: Sequence[str]) -> str:
    """
    >>> build_ddl(["value", "offset"])
    'value binary, offset bigint'
    """
    return ", ".join(f"{name} {SQL_TYPES[name]}" for name in names)


def choose_columns(columns: str | None, include_headers: bool) -> tuple[str, ...]:
    """The columns of a row, in order: those that are named, else all; ValueError names one that does not exist."""
    if columns is None:
        return tuple(SQL_TYPES) if include_headers else COLUMNS
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    unknown = [name for name in names if name not in SQL_TYPES]
    if unknown or not names:
        raise ValueError(f"columns={columns!r}: expected some of {', '.join(SQL_TYPES)}, separated by commas")
    if include_headers and HEADERS not in names:
        raise ValueError(
            f"includeHeaders=true, but columns={columns!r} leaves headers out; name them there, or neither"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"columns={columns!r} names a column twice; name each once")
    return names


def read_columns(schema: Any) -> tuple[str, ...]:
    """The columns of a Spark schema; ValueError names one that is unknown or of another type."""
    names = []
    for given_column in schema.fields:
        expected = SQL_TYPES.get(given_column.name)
        if expected is None:
            raise ValueError(
                f"the schema has column {given_column.name!r}; columns of this source: {build_ddl(list(SQL_TYPES))}"
            )
        if given_column.dataType.simpleString() != expected:
            raise ValueError(
                f"the schema has {given_column.name} as {given_column.dataType.simpleString()}; this source "
                f"gives {expected}: "
                "read that, and cast in the query"
            )
        names.append(given_column.name)
    return tuple(names)


# Where reading starts and ends
# -----------------------------

LATEST, EARLIEST = -1, -2

PartitionNumbers = Mapping[str, Mapping[int, int]]


class StartError(ValueError):
    """A starting or ending position that cannot be understood; the message names the option."""


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """One way to say it, and by which option. `offsets` may hold LATEST and EARLIEST.

    `strategy` is for where no record is so young.
    """

    kind: Literal["earliest", "latest", "committed", "offsets", "time", "times"]
    option: str = "startingOffsets"
    offsets: PartitionNumbers = field(default_factory=dict)
    times: PartitionNumbers = field(default_factory=dict)
    time_ms: int = -1
    strategy: str = "error"

    def among(self, partitions: Collection[tuple[str, int]]) -> "ReadPosition":
        """The same for some of the partitions alone.

        >>> ReadPosition("offsets", offsets={"t": {0: 5, 1: 7}}).among([("t", 1)]).offsets
        {'t': {1: 7}}
        """
        return replace(self, offsets=restrict_to(self.offsets, partitions), times=restrict_to(self.times, partitions))

    def names(self, partition: tuple[str, int]) -> bool:
        """Whether it says something of this partition itself.

        >>> ReadPosition("offsets", offsets={"t": {0: 5}}).names(("t", 1))
        False
        """
        topic, number = partition
        return number in self.offsets.get(topic, ()) or number in self.times.get(topic, ())


def restrict_to(numbers: PartitionNumbers, partitions: Collection[tuple[str, int]]) -> PartitionNumbers:
    rows = {
        topic: {number: value for number, value in row.items() if (topic, number) in partitions}
        for topic, row in numbers.items()
    }
    return {topic: row for topic, row in rows.items() if row}


def parse_offsets(name: str, text: str, words: Sequence[str], group_id: str | None) -> ReadPosition:
    """A word of `words`, or JSON {topic: {partition: offset}}."""
    word = text.strip().lower()
    if word in words:
        if word == "committed" and group_id is None:
            raise StartError(f"{name}=committed needs a group.id: the group whose offsets are meant")
        return ReadPosition(word, name)  # type: ignore[arg-type]  # the words are kinds
    choices = f"{', '.join(words)} or JSON such as " + '{"orders": {"0": 23, "1": -1}}'
    lowest = LATEST if "earliest" not in words else EARLIEST
    return ReadPosition("offsets", name, offsets=_numbers(name, text, choices, lowest))


def parse_times(name: str, text: str) -> PartitionNumbers:
    """JSON {topic: {partition: epoch milliseconds}}."""
    return _numbers(name, text, 'JSON such as {"orders": {"0": 1700000000000}}', 0)


def _numbers(name: str, text: str, choices: str, lowest: int) -> PartitionNumbers:
    try:
        read: Any = json.loads(text)
    except ValueError:
        raise StartError(f"{name}={text!r} is not understood; expected {choices}") from None
    if not isinstance(read, dict) or not read:
        raise StartError(f"{name}={text!r} names no partitions; expected {choices}")
    return {topic: _row(name, topic, row, choices, lowest) for topic, row in sorted(read.items())}


def _row(name: str, topic: str, row: Any, choices: str, lowest: int) -> dict[int, int]:
    if not isinstance(row, dict):
        raise StartError(f"{name}: topic {topic!r} has {row!r}; expected {choices}")
    numbers: dict[int, int] = {}
    for partition, value in row.items():
        if not partition.isdecimal():
            raise StartError(f"{name}: {topic!r} has partition {partition!r}; expected a number from 0 on")
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise StartError(f"{name}: {topic}-{partition} has {value!r}; expected a whole number, at least {lowest}")
        numbers[int(partition)] = value
    return numbers


def parse_assign(value: Any) -> dict[str, list[int]]:
    """JSON {topic: [partition]}; ValueError without the name of the option."""
    read: Any = read_json(value, '{"orders": [0, 1]}')
    if not isinstance(read, dict) or not read:
        raise ValueError('must be JSON that names topics with their partitions, as in {"orders": [0, 1]}')
    for topic, numbers in read.items():
        if not isinstance(numbers, list) or not numbers or not all(is_partition(number) for number in numbers):
            raise ValueError(f"topic {topic!r} needs partition numbers from 0 on, in a list, got {numbers!r}")
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"topic {topic!r} has a partition twice in {numbers}; name each once")
    return read


def read_json(value: Any, example: str) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"must be JSON, as in {example}") from None


def is_partition(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


# Checked options of a read
# -------------------------

MEMBER_DEFAULTS = {
    # Topics that grow should be shared out soon, not after five minutes.
    "metadata.max.age.ms": "10000",
    "client.id": "spark",
}
Strategy = Literal["error", "latest"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """What `options.GivenOptions` makes of the options that it checks and describes.

    Spark starts a Python process for each query and waits for it, and makes others for its session. Checking takes
    pydantic, a fifth of a second of processor time in each of them; to be handed these takes none.
    """

    subscribe: str | None
    subscribe_pattern: str | None
    assign: dict[str, list[int]] | None
    starting_offsets: str | None
    starting_offsets_fallback: Literal["earliest", "latest", "error"]
    starting_timestamp: int | None
    starting_offsets_by_timestamp: str | None
    starting_offsets_by_timestamp_strategy: Strategy
    ending_offsets: str | None
    ending_timestamp: int | None
    ending_offsets_by_timestamp: str | None
    fail_on_data_loss: bool
    include_headers: bool
    columns: str | None
    pushdown: bool
    assignor: str
    assignor_options: dict[str, Any]
    assignor_deadline_ms: int
    tasks: Literal["cores"] | int
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: int
    max_bytes_per_trigger: int | None
    offsets_refresh_ms: int
    arrow_rows: int
    commit_offsets: bool
    poll_timeout_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    client: dict[str, str] = field(repr=False)
    ignored: tuple[str, ...]
    streaming: bool
    connection: "ConnectionConfig"

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of `subscribe`, sorted."""
        return tuple(sorted({name.strip() for name in (self.subscribe or "").split(",") if name.strip()}))

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of a row, in order."""
        return choose_columns(self.columns, self.include_headers)

    @property
    def group_id(self) -> str | None:
        return self.client.get("group.id")

    @property
    def joins_group(self) -> bool:
        """Whether the driver of a stream is a member; partitions named by `assign` need no membership."""
        return self.streaming and self.group_id is not None and self.assign is None

    @property
    def starting(self) -> ReadPosition:
        """Where to begin, in Spark's order: one time for all, times per partition, offsets."""
        strategy = self.starting_offsets_by_timestamp_strategy
        if self.starting_timestamp is not None:
            return ReadPosition("time", "startingTimestamp", time_ms=self.starting_timestamp, strategy=strategy)
        if self.starting_offsets_by_timestamp is not None:
            option = "startingOffsetsByTimestamp"
            times = parse_times(option, self.starting_offsets_by_timestamp)
            return ReadPosition("times", option, times=times, strategy=strategy)
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
    def ending(self) -> ReadPosition:
        if self.ending_timestamp is not None:
            return ReadPosition("time", "endingTimestamp", time_ms=self.ending_timestamp, strategy="latest")
        if self.ending_offsets_by_timestamp is not None:
            option = "endingOffsetsByTimestamp"
            times = parse_times(option, self.ending_offsets_by_timestamp)
            return ReadPosition("times", option, times=times, strategy="latest")
        return parse_offsets("endingOffsets", self.ending_offsets or "latest", ("latest", "committed"), self.group_id)

    def member_config(self) -> "WorkerConfig":
        """What the driver joins its group with."""
        from muster.client.config import WorkerConfig, load

        return load(WorkerConfig, {**MEMBER_DEFAULTS, **self.client}, {})
