"""What a topic may set for itself, under the names that Kafka gives topic configs, one sentence each."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from muster.storage.compression import MAX_DECOMPRESSED_BYTES

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
