"""The checked options of one read, as plain values: they travel from the process that checks them to all others."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from muster.spark.schema import choose_columns
from muster.spark.starting import LATEST, ReadPosition, StartError, parse_offsets, parse_times

if TYPE_CHECKING:
    from muster.client.config import WorkerConfig
    from muster.client.connection import ConnectionConfig

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
