"""When a segment may go: by age, by size, by the log's start; others come from packages.

A policy is asked about the oldest segment only, and again after that one has gone: removal stops at the first
segment that everybody wants to keep. A package registers a class under the entry point `muster.retention`.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol

from muster.storage.config import TopicSettings


class SegmentFacts(NamedTuple):
    """The oldest segment. `youngest_ms` is its largest timestamp, or when it was last written without one."""

    base_offset: int
    next_offset: int
    size: int
    youngest_ms: int


class LogFacts(NamedTuple):
    """The log that it belongs to; `size` counts every segment."""

    topic: str
    partition: int
    start_offset: int
    high_watermark: int
    size: int
    settings: TopicSettings


class RetentionPolicy(Protocol):
    """Says whether the oldest segment may go. Must not touch the disk: it is asked on the appending thread."""

    name: str

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool: ...


class BelowStart:
    """All of the segment lies below the log's start, as after DeleteRecords. Holds for compacted topics too."""

    name = "start-offset"

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool:
        return segment.next_offset <= log.start_offset


class BySize:
    """Without the segment the log still has `retention.bytes`."""

    name = "size"

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool:
        bound = log.settings.retention_bytes
        return bound >= 0 and "delete" in log.settings.cleanup_policy and log.size - segment.size >= bound


class ByAge:
    """The segment's youngest record is older than `retention.ms`."""

    name = "age"

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool:
        bound = log.settings.retention_ms
        return bound >= 0 and "delete" in log.settings.cleanup_policy and now_ms - segment.youngest_ms > bound


@cache
def retention_policies() -> tuple[RetentionPolicy, ...]:
    """The built-in policies and those of installed packages, in the order in which they are asked."""
    found = [entry.load()() for entry in sorted(entry_points(group="muster.retention"), key=lambda entry: entry.name)]
    return (BelowStart(), BySize(), ByAge(), *found)
