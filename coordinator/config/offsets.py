"""Committed offsets: how long they stay, and the internal topics that hold groups and ledger."""

from pydantic import BaseModel, Field

from muster.coordinator.config.values import MAX_INT


class OffsetsSettings(BaseModel):
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
        description="Segment size of the internal topics, small for quick compaction; one group may keep a quarter.",
    )
