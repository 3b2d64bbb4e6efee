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
from muster.storage.settings_text import describe_allowed

# What a topic may set for itself
# -------------------------------

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1

Milliseconds = int
Bytes = int


def in_order(policy: Any) -> Any:
    """A cleanup policy as Kafka takes it, a list in any order with blanks, as it is kept here.

    >>> in_order(" delete, compact")
    'compact,delete'
    """
    return ",".join(sorted({part.strip() for part in policy.split(",")} - {""})) if isinstance(policy, str) else policy


CleanupPolicy = Annotated[Literal["delete", "compact", "compact,delete", ""], BeforeValidator(in_order)]

REPLICAS = r"^(\*|none|\d+:\d+(,\d+:\d+)*)?$"
"""What Kafka takes for throttled replicas: all, none, or partition:node pairs."""


class TopicSettings(BaseModel):
    """What holds for one topic, under the names that Kafka gives topic configs."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    segment_bytes: Bytes = Field(
        alias="segment.bytes",
        ge=61,
        le=MAX_INT,
        description="A segment file is closed before it grows past this many bytes.",
    )
    segment_ms: Milliseconds = Field(
        alias="segment.ms",
        ge=1,
        description="A segment is closed when its records span more than this many milliseconds.",
    )
    index_interval_bytes: Bytes = Field(
        alias="index.interval.bytes",
        ge=0,
        le=MAX_INT,
        description="An index entry is added whenever more than this many bytes were appended since the last one.",
    )
    segment_index_bytes: Bytes = Field(
        alias="segment.index.bytes",
        ge=4,
        le=MAX_INT,
        description="A segment is closed when one of its two indexes reaches this many bytes, at 48 at the earliest.",
    )
    max_message_bytes: Bytes = Field(
        alias="max.message.bytes",
        ge=61,
        le=MAX_INT,
        description="The largest record batch that an append takes, in bytes.",
    )
    flush_messages: int = Field(
        alias="flush.messages",
        ge=1,
        le=MAX_LONG,
        description="An append is acknowledged after an fsync once this many messages wait for one.",
    )
    flush_ms: Milliseconds = Field(
        alias="flush.ms",
        ge=0,
        le=MAX_LONG,
        description="Records are flushed to disk at the latest this many milliseconds after they were appended.",
    )
    retention_ms: Milliseconds = Field(
        alias="retention.ms",
        ge=-1,
        le=MAX_LONG,
        description="Segments whose youngest record is older than this are removed; -1 keeps them.",
    )
    retention_bytes: Bytes = Field(
        alias="retention.bytes",
        ge=-1,
        le=MAX_LONG,
        description="The oldest segments are removed while the partition is larger than this; -1 sets no bound.",
    )
    file_delete_delay_ms: Milliseconds = Field(
        alias="file.delete.delay.ms",
        ge=0,
        description="How long a removed segment's files stay on disk under their .deleted names.",
    )
    cleanup_policy: CleanupPolicy = Field(
        alias="cleanup.policy",
        description="Delete old segments, compact them to the last value per key, both, or, left empty, neither.",
    )
    delete_retention_ms: Milliseconds = Field(
        alias="delete.retention.ms",
        ge=0,
        description="How long a tombstone stays in a compacted log after its first cleaning.",
    )
    min_cleanable_dirty_ratio: float = Field(
        alias="min.cleanable.dirty.ratio",
        ge=0,
        le=1,
        description="The log is compacted when at least this share of it has not been compacted yet.",
    )
    min_compaction_lag_ms: Milliseconds = Field(
        alias="min.compaction.lag.ms",
        ge=0,
        description="Records younger than this are not compacted.",
    )
    max_compaction_lag_ms: Milliseconds = Field(
        alias="max.compaction.lag.ms",
        ge=1,
        le=MAX_LONG,
        description="A log with uncompacted records older than this is compacted whatever its ratio.",
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = Field(
        alias="message.timestamp.type",
        description="Whether records keep the producer's timestamp or get the time of their arrival.",
    )
    message_timestamp_before_max_ms: Milliseconds = Field(
        alias="message.timestamp.before.max.ms",
        ge=0,
        le=MAX_LONG,
        description="A record whose timestamp lies further back than this is refused.",
    )
    message_timestamp_after_max_ms: Milliseconds = Field(
        alias="message.timestamp.after.max.ms",
        ge=0,
        le=MAX_LONG,
        description="A record whose timestamp lies further ahead than this is refused.",
    )
    validate_records: Literal["header", "full"] = Field(
        alias="validate",
        description="How a produced batch is checked: its header and checksum, or every record in it as well.",
    )
    max_unpacked_bytes: Bytes = Field(
        alias="validate.max.unpacked.bytes",
        ge=1 << 20,
        le=MAX_DECOMPRESSED_BYTES,
        description="With validate=full a batch whose records unpack to more than this many bytes is refused.",
    )
    # What scripts for Kafka set as a matter of course. Taken and shown; nothing here follows them, as each one says.
    compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="producer",
        alias="compression.type",
        description="Has no effect here: batches stay as their producer compressed them, which all readers can read.",
    )
    compression_gzip_level: int = Field(
        default=-1,
        alias="compression.gzip.level",
        ge=-1,
        le=9,
        description="Has no effect here: batches stay as their producer compressed them.",
    )
    compression_lz4_level: int = Field(
        default=9,
        alias="compression.lz4.level",
        ge=1,
        le=17,
        description="Has no effect here: batches stay as their producer compressed them.",
    )
    compression_zstd_level: int = Field(
        default=3,
        alias="compression.zstd.level",
        ge=-131_072,
        le=22,
        description="Has no effect here: batches stay as their producer compressed them.",
    )
    min_insync_replicas: int = Field(
        default=1,
        alias="min.insync.replicas",
        ge=1,
        le=MAX_INT,
        description="How many copies must have a record before it is acknowledged to who asks for all, but never more "
        "than there are: one, on a node alone.",
    )
    unclean_leader_election_enable: bool = Field(
        default=False,
        alias="unclean.leader.election.enable",
        description="Whether a copy that may lack acknowledged records is elected where no other is left. A node alone "
        "has no other.",
    )
    segment_jitter_ms: Milliseconds = Field(
        default=0,
        alias="segment.jitter.ms",
        ge=0,
        le=MAX_LONG,
        description="Has no effect here: a segment is closed at segment.ms.",
    )
    preallocate: bool = Field(
        default=False,
        alias="preallocate",
        description="Has no effect here: a segment file grows as it is written.",
    )
    leader_replication_throttled_replicas: str = Field(
        default="",
        alias="leader.replication.throttled.replicas",
        pattern=REPLICAS,
        description="Which copies count against their leaders' leader.replication.throttled.rate while they are not in "
        "sync: pairs of partition:node, or *. A node alone copies nothing.",
    )
    follower_replication_throttled_replicas: str = Field(
        default="",
        alias="follower.replication.throttled.replicas",
        pattern=REPLICAS,
        description="Which copies count against their nodes' follower.replication.throttled.rate while they are not in "
        "sync: pairs of partition:node, or *. A node alone copies nothing.",
    )
    remote_storage_enable: Literal["false"] = Field(
        default="false",
        alias="remote.storage.enable",
        description="There is no tiered storage here.",
    )
    remote_log_copy_disable: bool = Field(
        default=False,
        alias="remote.log.copy.disable",
        description="Has no effect here: there is no tiered storage.",
    )
    remote_log_delete_on_disable: bool = Field(
        default=False,
        alias="remote.log.delete.on.disable",
        description="Has no effect here: there is no tiered storage.",
    )
    local_retention_ms: Milliseconds = Field(
        default=-2,
        alias="local.retention.ms",
        ge=-2,
        le=MAX_LONG,
        description="Has no effect here: there is no tiered storage, and retention.ms counts.",
    )
    local_retention_bytes: Bytes = Field(
        default=-2,
        alias="local.retention.bytes",
        ge=-2,
        le=MAX_LONG,
        description="Has no effect here: there is no tiered storage, and retention.bytes counts.",
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


class LogSettings(BaseModel):
    """What a node promises about its logs; every value is a default that a topic may override where Kafka lets it."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    segment_bytes: Bytes = Field(
        default=1 << 30,
        alias="log.segment.bytes",
        ge=61,
        le=MAX_INT,
        description="A segment file is closed and the next one begun before it grows past this many bytes.",
    )
    roll_ms: Milliseconds = Field(
        default=7 * 86_400_000,
        alias="log.roll.ms",
        ge=1,
        description="A segment is closed when its records span more than this many milliseconds.",
    )
    index_interval_bytes: Bytes = Field(
        default=4096,
        alias="log.index.interval.bytes",
        ge=0,
        le=MAX_INT,
        description="An index entry is added whenever more than this many bytes were appended since the last one.",
    )
    index_size_max_bytes: Bytes = Field(
        default=10 << 20,
        alias="log.index.size.max.bytes",
        ge=48,
        le=MAX_INT,
        description="A segment is closed when one of its two indexes reaches this many bytes.",
    )
    message_max_bytes: Bytes = Field(
        default=(1 << 20) + 12,
        alias="message.max.bytes",
        ge=61,
        le=MAX_INT,
        description="The largest record batch that an append takes, in bytes.",
    )
    flush_interval_messages: int = Field(
        default=1,
        alias="log.flush.interval.messages",
        ge=1,
        le=MAX_LONG,
        description=(
            "An append is acknowledged after an fsync once this many messages wait for one; 1 means that every "
            "acknowledged record is on disk, a huge value leaves flushing to the operating system."
        ),
    )
    flush_interval_ms: Milliseconds = Field(
        default=MAX_LONG,
        alias="log.flush.interval.ms",
        ge=1,
        le=MAX_LONG,
        description="Records are flushed to disk at the latest this many milliseconds after they were appended.",
    )
    flush_offset_checkpoint_interval_ms: Milliseconds = Field(
        default=60_000,
        alias="log.flush.offset.checkpoint.interval.ms",
        ge=1,
        description="How often the recovery point of every log is written to its checkpoint file.",
    )
    retention_ms: Milliseconds = Field(
        default=7 * 86_400_000,
        alias="log.retention.ms",
        ge=-1,
        le=MAX_LONG,
        description="Segments whose youngest record is older than this are removed; -1 keeps them whatever their age.",
    )
    retention_bytes: Bytes = Field(
        default=-1,
        alias="log.retention.bytes",
        ge=-1,
        le=MAX_LONG,
        description="The oldest segments are removed while a partition is larger than this; -1 sets no bound.",
    )
    retention_check_interval_ms: Milliseconds = Field(
        default=300_000,
        alias="log.retention.check.interval.ms",
        ge=1,
        description="How often retention looks for segments to remove.",
    )
    segment_delete_delay_ms: Milliseconds = Field(
        default=60_000,
        alias="log.segment.delete.delay.ms",
        ge=0,
        description="How long a removed segment's files stay on disk under their .deleted names.",
    )
    cleanup_policy: CleanupPolicy = Field(
        default="delete",
        alias="log.cleanup.policy",
        description="What happens to old segments: delete, compact to the last value per key, both, or neither.",
    )
    cleaner_delete_retention_ms: Milliseconds = Field(
        default=86_400_000,
        alias="log.cleaner.delete.retention.ms",
        ge=0,
        description="How long a tombstone stays in a compacted log after its first cleaning.",
    )
    cleaner_min_cleanable_ratio: float = Field(
        default=0.5,
        alias="log.cleaner.min.cleanable.ratio",
        ge=0,
        le=1,
        description="A log is compacted when at least this share of it has not been compacted yet.",
    )
    cleaner_min_compaction_lag_ms: Milliseconds = Field(
        default=0,
        alias="log.cleaner.min.compaction.lag.ms",
        ge=0,
        description="Records younger than this are not compacted.",
    )
    cleaner_max_compaction_lag_ms: Milliseconds = Field(
        default=MAX_LONG,
        alias="log.cleaner.max.compaction.lag.ms",
        ge=1,
        le=MAX_LONG,
        description="A log with uncompacted records older than this is compacted whatever its ratio.",
    )
    cleaner_backoff_ms: Milliseconds = Field(
        default=15_000,
        alias="log.cleaner.backoff.ms",
        ge=0,
        description="How often the cleaner looks for a log to compact.",
    )
    cleaner_dedupe_buffer_size: Bytes = Field(
        default=128 << 20,
        alias="log.cleaner.dedupe.buffer.size",
        ge=1024,
        description="How much memory one compaction pass may take for the keys it remembers.",
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = Field(
        default="CreateTime",
        alias="log.message.timestamp.type",
        description="Whether records keep the producer's timestamp or get the time of their arrival.",
    )
    message_timestamp_before_max_ms: Milliseconds = Field(
        default=MAX_LONG,
        alias="log.message.timestamp.before.max.ms",
        ge=0,
        le=MAX_LONG,
        description="A record whose timestamp lies further back than this is refused.",
    )
    message_timestamp_after_max_ms: Milliseconds = Field(
        default=3_600_000,
        alias="log.message.timestamp.after.max.ms",
        ge=0,
        le=MAX_LONG,
        description="A record whose timestamp lies further ahead than this is refused.",
    )
    validate_records: Literal["header", "full"] = Field(
        default="full",
        alias="log.validate",
        description="How a produced batch is checked: its header and checksum, or every record in it as well.",
    )
    max_unpacked_bytes: Bytes = Field(
        default=64 << 20,
        alias="log.validate.max.unpacked.bytes",
        ge=1 << 20,
        le=MAX_DECOMPRESSED_BYTES,
        description="With validate=full a batch whose records unpack to more than this many bytes is refused.",
    )
    producer_id_expiration_ms: Milliseconds = Field(
        default=86_400_000,
        alias="producer.id.expiration.ms",
        ge=1,
        description="An idempotent producer that was idle for this long is forgotten.",
    )
    num_partitions: int = Field(
        default=1,
        alias="num.partitions",
        ge=1,
        le=100_000,
        description="How many partitions a topic gets when its creator does not say.",
    )
    max_partitions: int = Field(
        default=100_000,
        alias="max.partitions",
        ge=1,
        description="The most partitions that all topics of a node may have together.",
    )
    max_open_files: int = Field(
        default=512,
        alias="log.max.open.files",
        ge=16,
        description="How many segment files are kept open at once; the longest unused ones are closed.",
    )
    fetch_max_bytes: Bytes = Field(
        default=55 << 20,
        alias="fetch.max.bytes",
        ge=1024,
        le=MAX_INT,
        description="The most bytes that one fetch answer carries.",
    )
    max_parked_fetches: int = Field(
        default=10_000,
        alias="fetch.max.parked",
        ge=1,
        description="How many fetches may wait for new records at once; further ones are answered after 0.1 s.",
    )
    sink_max_staged_bytes: Bytes = Field(
        default=16 << 30,
        alias="sink.max.staged.bytes",
        ge=1 << 20,
        description="The most bytes that exactly-once sinks may have staged, but not decided about, on this node.",
    )
    sink_staged_retention_ms: Milliseconds = Field(
        default=86_400_000,
        alias="sink.staged.retention.ms",
        ge=1,
        le=MAX_LONG,
        description="Staged records that nobody decided about are removed after this many milliseconds.",
    )
    sink_retention_ms: Milliseconds = Field(
        default=7 * 86_400_000,
        alias="sink.retention.ms",
        ge=1,
        le=MAX_LONG,
        description="How long an idle sink's last batch is remembered, so that it is not written a second time.",
    )
    max_sinks: int = Field(
        default=10_000,
        alias="max.sinks",
        ge=1,
        description="How many exactly-once sinks a node remembers at once.",
    )

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
            parts.append(f"'{name}' is no setting of a log; {remedy}")
        else:
            parts.append(f"'{name}' is {cut_short(repr(fault['input']))}; expected {describe_allowed(fields[name])}.")
    return " ".join(parts) + (" There are more." if error.error_count() > MAX_TOLD else "")
