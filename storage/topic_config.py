"""What a topic may set for itself, under the names that Kafka gives topic configs, one sentence each."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from storage.compression import MAX_DECOMPRESSED_BYTES

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1

Milliseconds = int
Bytes = int


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
        ge=48,
        le=MAX_INT,
        description="A segment is closed when one of its two indexes reaches this many bytes.",
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
        ge=1,
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
    cleanup_policy: Literal["delete", "compact", "compact,delete"] = Field(
        alias="cleanup.policy",
        description="Delete old segments, compact them to the last value per key, or both.",
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
    # What tools set as a matter of course, with the one value that is true here.
    compression_type: Literal["producer"] = Field(
        default="producer",
        alias="compression.type",
        description="Batches stay as their producer compressed them.",
    )
    min_insync_replicas: Literal["1"] = Field(
        default="1",
        alias="min.insync.replicas",
        description="How many copies must have a record before it is acknowledged: there is one.",
    )

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy
