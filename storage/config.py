"""The log's settings under Kafka's dotted names, one sentence each.

`LogSettings` is the node's; a topic may override what `TopicSettings` names, under the names that Kafka gives topic
configs. The properties file and the reference pages are generated from these fields.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from muster.storage.compression import MAX_DECOMPRESSED_BYTES
from muster.storage.errors import InvalidConfig
from muster.storage.settings_text import (
    MAX_INT,
    MAX_LONG,
    NonNegativeInt32,
    NonNegativeInt64,
    PositiveInt32,
    PositiveInt64,
    SettingsModel,
    describe_allowed,
    setting,
)

# What a topic may set for itself
# -------------------------------


def in_order(policy: Any) -> Any:
    """A cleanup policy as Kafka takes it, a list in any order with blanks, as it is kept here.

    >>> in_order(" delete, compact")
    'compact,delete'
    """
    return ",".join(sorted({part.strip() for part in policy.split(",")} - {""})) if isinstance(policy, str) else policy


CleanupPolicy = Annotated[Literal["delete", "compact", "compact,delete", ""], BeforeValidator(in_order)]

REPLICAS = r"^(\*|none|\d+:\d+(,\d+:\d+)*)?$"
"""What Kafka takes for throttled replicas: all, none, or partition:node pairs."""


class TopicSettings(SettingsModel):
    """What holds for one topic, under the names that Kafka gives topic configs."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    segment_bytes: Annotated[int, Field(ge=61, le=MAX_INT)] = setting(
        ..., "A segment file is closed before it grows past this many bytes."
    )
    segment_ms: Annotated[int, Field(ge=1)] = setting(
        ..., "A segment is closed when its records span more than this many milliseconds."
    )
    index_interval_bytes: NonNegativeInt32 = setting(
        ..., "An index entry is added whenever more than this many bytes were appended since the last one."
    )
    segment_index_bytes: Annotated[int, Field(ge=4, le=MAX_INT)] = setting(
        ..., "A segment is closed when one of its two indexes reaches this many bytes, but not below 48."
    )
    max_message_bytes: Annotated[int, Field(ge=61, le=MAX_INT)] = setting(
        ..., "The largest record batch that an append accepts, in bytes."
    )
    flush_messages: PositiveInt64 = setting(
        ..., "An append is acknowledged after an fsync once this many messages wait for one."
    )
    flush_ms: NonNegativeInt64 = setting(
        ..., "Records are flushed to disk at the latest this many milliseconds after they were appended."
    )
    retention_ms: Annotated[int, Field(ge=-1, le=MAX_LONG)] = setting(
        ..., "Segments whose youngest record is older than this are removed; -1 keeps them."
    )
    retention_bytes: Annotated[int, Field(ge=-1, le=MAX_LONG)] = setting(
        ..., "The oldest segments are removed while the partition is larger than this; -1 sets no bound."
    )
    file_delete_delay_ms: Annotated[int, Field(ge=0)] = setting(
        ..., "How long a removed segment's files stay on disk under their .deleted names."
    )
    cleanup_policy: CleanupPolicy = setting(
        ..., "Delete old segments, compact them to the last value per key, both, or, left empty, neither."
    )
    delete_retention_ms: Annotated[int, Field(ge=0)] = setting(
        ..., "How long a tombstone stays in a compacted log after its first cleaning."
    )
    min_cleanable_dirty_ratio: float = setting(
        ..., "The log is compacted when at least this share of it has not been compacted yet.", ge=0, le=1
    )
    min_compaction_lag_ms: Annotated[int, Field(ge=0)] = setting(..., "Records younger than this are not compacted.")
    max_compaction_lag_ms: PositiveInt64 = setting(
        ..., "A log with uncompacted records older than this is compacted whatever its ratio."
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = setting(
        ..., "Whether records keep the producer's timestamp or get the time of their arrival."
    )
    message_timestamp_before_max_ms: NonNegativeInt64 = setting(
        ..., "A record whose timestamp lies further back than this is refused."
    )
    message_timestamp_after_max_ms: NonNegativeInt64 = setting(
        ..., "A record whose timestamp lies further ahead than this is refused."
    )
    validate_records: Literal["header", "full"] = setting(
        ...,
        "How a produced batch is checked: its header and checksum only, or every record in it as well.",
        name="validate",
    )
    max_unpacked_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_DECOMPRESSED_BYTES)] = setting(
        ...,
        "With validate=full a batch whose records unpack to more than this many bytes is refused.",
        name="validate.max.unpacked.bytes",
    )
    # What scripts for Kafka set as a matter of course. Taken and shown; nothing here follows them, as each one says.
    compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = setting(
        "producer", "Has no effect here: batches stay as their producer compressed them, which all readers can read."
    )
    compression_gzip_level: Annotated[int, Field(ge=-1, le=9)] = setting(
        -1, "Has no effect here: batches stay as their producer compressed them."
    )
    compression_lz4_level: Annotated[int, Field(ge=1, le=17)] = setting(
        9, "Has no effect here: batches stay as their producer compressed them."
    )
    compression_zstd_level: Annotated[int, Field(ge=-131_072, le=22)] = setting(
        3, "Has no effect here: batches stay as their producer compressed them."
    )
    min_insync_replicas: PositiveInt32 = setting(
        1,
        "How many replicas must have a record before it is acknowledged with acks=all; never more than there are: one "
        "on a standalone node.",
    )
    unclean_leader_election_enable: bool = setting(
        False,
        "Whether a replica that may lack acknowledged records is elected if no other is left; a standalone node has "
        "no other.",
    )
    segment_jitter_ms: NonNegativeInt64 = setting(0, "Has no effect here: a segment is closed at segment.ms.")
    preallocate: bool = setting(False, "Has no effect here: a segment file grows as it is written.")
    leader_replication_throttled_replicas: str = setting(
        "",
        "The replicas that count against their leaders' leader.replication.throttled.rate while they are not in sync: "
        "pairs of partition:node, or *; none on a standalone node.",
        pattern=REPLICAS,
    )
    follower_replication_throttled_replicas: str = setting(
        "",
        "The replicas that count against their nodes' follower.replication.throttled.rate while they are not in sync: "
        "pairs of partition:node, or *; none on a standalone node.",
        pattern=REPLICAS,
    )
    remote_storage_enable: Literal["false"] = setting("false", "There is no tiered storage here.")
    remote_log_copy_disable: bool = setting(False, "Has no effect here: there is no tiered storage.")
    remote_log_delete_on_disable: bool = setting(False, "Has no effect here: there is no tiered storage.")
    local_retention_ms: Annotated[int, Field(ge=-2, le=MAX_LONG)] = setting(
        -2, "Has no effect here: there is no tiered storage, and retention.ms counts."
    )
    local_retention_bytes: Annotated[int, Field(ge=-2, le=MAX_LONG)] = setting(
        -2, "Has no effect here: there is no tiered storage, and retention.bytes counts."
    )

    @property
    def index_room(self) -> int:
        """Bytes of an index file; one that holds next to nothing would close a segment with each batch."""
        return max(self.segment_index_bytes, 48)

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy


# What the node sets for all its logs
# -----------------------------------

__all__ = ["MAX_INT", "MAX_LONG", "LogSettings", "TopicSettings", "node_setting", "sentence"]


MAX_TOLD = 5
"""Of so many bad settings one refusal tells."""


MAX_SHOWN = 200
"""Characters of a bad value that its refusal repeats."""


class LogSettings(SettingsModel):
    """What a node promises about its logs; every value is a default that a topic may override where Kafka lets it."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    segment_bytes: Annotated[int, Field(ge=61, le=MAX_INT)] = setting(
        1 << 30,
        "A segment file is closed, and the next one started, before it grows past this many bytes.",
        name="log.segment.bytes",
    )
    roll_ms: Annotated[int, Field(ge=1)] = setting(
        7 * 86_400_000,
        "A segment is closed when its records span more than this many milliseconds.",
        name="log.roll.ms",
    )
    index_interval_bytes: NonNegativeInt32 = setting(
        4096,
        "An index entry is added whenever more than this many bytes were appended since the last one.",
        name="log.index.interval.bytes",
    )
    index_size_max_bytes: Annotated[int, Field(ge=48, le=MAX_INT)] = setting(
        10 << 20,
        "A segment is closed when one of its two indexes reaches this many bytes.",
        name="log.index.size.max.bytes",
    )
    message_max_bytes: Annotated[int, Field(ge=61, le=MAX_INT)] = setting(
        (1 << 20) + 12, "The largest record batch that an append accepts, in bytes."
    )
    flush_interval_messages: PositiveInt64 = setting(
        1,
        "An append is acknowledged after an fsync once this many messages wait for one; 1 means that every "
        "acknowledged record is on disk, a huge value leaves flushing to the operating system.",
        name="log.flush.interval.messages",
    )
    flush_interval_ms: PositiveInt64 = setting(
        MAX_LONG,
        "Records are flushed to disk at the latest this many milliseconds after they were appended.",
        name="log.flush.interval.ms",
    )
    flush_offset_checkpoint_interval_ms: Annotated[int, Field(ge=1)] = setting(
        60_000,
        "How often the recovery point of every log is written to its checkpoint file.",
        name="log.flush.offset.checkpoint.interval.ms",
    )
    retention_ms: Annotated[int, Field(ge=-1, le=MAX_LONG)] = setting(
        7 * 86_400_000,
        "Segments whose youngest record is older than this are removed; -1 keeps them whatever their age.",
        name="log.retention.ms",
    )
    retention_bytes: Annotated[int, Field(ge=-1, le=MAX_LONG)] = setting(
        -1,
        "The oldest segments are removed while a partition is larger than this; -1 sets no bound.",
        name="log.retention.bytes",
    )
    retention_check_interval_ms: Annotated[int, Field(ge=1)] = setting(
        300_000, "How often retention looks for segments to remove.", name="log.retention.check.interval.ms"
    )
    segment_delete_delay_ms: Annotated[int, Field(ge=0)] = setting(
        60_000,
        "How long a removed segment's files stay on disk under their .deleted names.",
        name="log.segment.delete.delay.ms",
    )
    cleanup_policy: CleanupPolicy = setting(
        "delete",
        "What happens to old segments: delete, compact to the last value per key, both, or neither.",
        name="log.cleanup.policy",
    )
    cleaner_delete_retention_ms: Annotated[int, Field(ge=0)] = setting(
        86_400_000,
        "How long a tombstone stays in a compacted log after its first cleaning.",
        name="log.cleaner.delete.retention.ms",
    )
    cleaner_min_cleanable_ratio: float = setting(
        0.5,
        "A log is compacted when at least this share of it has not been compacted yet.",
        name="log.cleaner.min.cleanable.ratio",
        ge=0,
        le=1,
    )
    cleaner_min_compaction_lag_ms: Annotated[int, Field(ge=0)] = setting(
        0, "Records younger than this are not compacted.", name="log.cleaner.min.compaction.lag.ms"
    )
    cleaner_max_compaction_lag_ms: PositiveInt64 = setting(
        MAX_LONG,
        "A log with uncompacted records older than this is compacted whatever its ratio.",
        name="log.cleaner.max.compaction.lag.ms",
    )
    cleaner_backoff_ms: Annotated[int, Field(ge=0)] = setting(
        15_000, "How often the cleaner looks for a log to compact.", name="log.cleaner.backoff.ms"
    )
    cleaner_dedupe_buffer_size: Annotated[int, Field(ge=1024)] = setting(
        128 << 20,
        "How much memory one compaction pass may take for the keys it remembers.",
        name="log.cleaner.dedupe.buffer.size",
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = setting(
        "CreateTime",
        "Whether records keep the producer's timestamp or get the time of their arrival.",
        name="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: NonNegativeInt64 = setting(
        MAX_LONG,
        "A record whose timestamp lies further back than this is refused.",
        name="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: NonNegativeInt64 = setting(
        3_600_000,
        "A record whose timestamp lies further ahead than this is refused.",
        name="log.message.timestamp.after.max.ms",
    )
    validate_records: Literal["header", "full"] = setting(
        "full",
        "How a produced batch is checked: its header and checksum only, or every record in it as well.",
        name="log.validate",
    )
    max_unpacked_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_DECOMPRESSED_BYTES)] = setting(
        64 << 20,
        "With validate=full a batch whose records unpack to more than this many bytes is refused.",
        name="log.validate.max.unpacked.bytes",
    )
    producer_id_expiration_ms: Annotated[int, Field(ge=1)] = setting(
        86_400_000, "An idempotent producer that is idle for this long is forgotten."
    )
    num_partitions: Annotated[int, Field(ge=1, le=100_000)] = setting(
        1, "The number of partitions of a new topic, unless its creator says otherwise."
    )
    max_partitions: Annotated[int, Field(ge=1)] = setting(
        100_000, "The most partitions that all topics of a node may have together."
    )
    max_open_files: Annotated[int, Field(ge=16)] = setting(
        512,
        "How many segment files are kept open at a time; the least recently used ones are closed.",
        name="log.max.open.files",
    )
    fetch_max_bytes: Annotated[int, Field(ge=1024, le=MAX_INT)] = setting(
        55 << 20, "The largest answer to a fetch, in bytes."
    )
    max_parked_fetches: Annotated[int, Field(ge=1)] = setting(
        10_000,
        "How many fetches may wait for new records at a time; further ones are answered after 0.1 s.",
        name="fetch.max.parked",
    )
    sink_max_staged_bytes: Annotated[int, Field(ge=1 << 20)] = setting(
        16 << 30,
        "The most bytes that exactly-once sinks may have staged, but neither committed nor aborted, on this node.",
    )
    sink_staged_retention_ms: PositiveInt64 = setting(
        86_400_000, "Staged records that are neither committed nor aborted for this long are removed."
    )
    sink_retention_ms: PositiveInt64 = setting(
        7 * 86_400_000,
        "How long the last batch of an idle sink is remembered, so that it is not written a second time.",
    )
    max_sinks: Annotated[int, Field(ge=1)] = setting(10_000, "How many exactly-once sinks a node remembers.")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Settings from dotted names and text; InvalidConfig names each bad entry."""
        try:
            return cls.model_validate(dict(properties))
        except ValidationError as error:
            raise InvalidConfig(sentence(error, cls)) from None

    def of_every_topic(self) -> Mapping[str, object]:
        """What holds for topics that say nothing of it, by their names for it, beside what fields of this one say."""
        return {}

    def check_given(self, configs: Mapping[str, str | None]) -> None:
        """Refuse what `for_topic` takes from an older version, and Kafka never: a boolean other than true or false.

        Raises InvalidConfig.
        """
        given = {name: value for name in _BOOLEANS if (value := configs.get(name)) is not None}
        bad = {name: value for name, value in given.items() if value.strip().lower() not in ("true", "false")}
        if bad:
            told = (f"'{name}' is {cut_short(bad[name])!r}; expected true or false." for name in sorted(bad))
            raise InvalidConfig(" ".join(told))

    def for_topic(self, configs: Mapping[str, str]) -> "TopicSettings":
        """The topic's settings: its own where given, else the node's. InvalidConfig names the first bad entries."""
        values: dict[str, object] = {
            name: getattr(self, node_name) for name, node_name in _FROM_NODE.items() if name not in configs
        }
        values |= {name: value for name, value in self.of_every_topic().items() if name not in configs}
        unknown = [name for name in configs if name not in _OF_TOPIC]
        # Before each of them is looked at: a request may name 100,000.
        known = configs if len(unknown) <= MAX_TOLD else {name: configs[name] for name in unknown[: MAX_TOLD + 1]}
        try:
            return TopicSettings.model_validate(values | dict(known))
        except ValidationError as error:
            raise InvalidConfig(sentence(error, TopicSettings)) from None


# topic config -> the node's field that gives its default
_FROM_NODE = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "roll_ms",
    "index.interval.bytes": "index_interval_bytes",
    "segment.index.bytes": "index_size_max_bytes",
    "max.message.bytes": "message_max_bytes",
    "flush.messages": "flush_interval_messages",
    "flush.ms": "flush_interval_ms",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "file.delete.delay.ms": "segment_delete_delay_ms",
    "cleanup.policy": "cleanup_policy",
    "delete.retention.ms": "cleaner_delete_retention_ms",
    "min.cleanable.dirty.ratio": "cleaner_min_cleanable_ratio",
    "min.compaction.lag.ms": "cleaner_min_compaction_lag_ms",
    "max.compaction.lag.ms": "cleaner_max_compaction_lag_ms",
    "message.timestamp.type": "message_timestamp_type",
    "message.timestamp.before.max.ms": "message_timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "message_timestamp_after_max_ms",
    "validate": "validate_records",
    "validate.max.unpacked.bytes": "max_unpacked_bytes",
}


_BOOLEANS = frozenset(
    field.alias or name for name, field in TopicSettings.model_fields.items() if field.annotation is bool
)
_OF_TOPIC = frozenset(field.alias or name for name, field in TopicSettings.model_fields.items())


def node_setting(config: str) -> str | None:
    """The field of `LogSettings` that a topic config overrides, if it does.

    >>> node_setting("retention.ms")
    'retention_ms'
    """
    return _FROM_NODE.get(config)


def cut_short(text: str) -> str:
    """What a refusal repeats of a value.

    >>> cut_short("a" * 201)[-4:]
    'a...'
    """
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with the first few settings, as one sentence each."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    parts = []
    for fault in error.errors()[:MAX_TOLD]:
        name = cut_short(".".join(str(part) for part in fault["loc"]))
        if fault["type"] == "extra_forbidden":
            near = get_close_matches(name, fields, n=1, cutoff=0.6)
            remedy = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(fields))}."
            parts.append(f"'{name}' is not a setting of a log; {remedy}")
        else:
            parts.append(f"'{name}' is {cut_short(repr(fault['input']))}; expected {describe_allowed(fields[name])}.")
    return " ".join(parts) + (" There are more." if error.error_count() > MAX_TOLD else "")
