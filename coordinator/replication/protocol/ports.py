"""What the replicas of a node need of the logs below them: protocols without code."""

from collections.abc import Iterable, Sized
from typing import Protocol, TypeAlias

from muster.coordinator.replication.protocol.facts import TopicPartition

Records: TypeAlias = Sized
"""Whole batches, as bytes or as a promise of them: nothing here looks inside. Its length is in bytes."""


class DamagedBatches(Exception):
    """The batches that a leader sent are not what was written (CL-F2)."""


class LogBroken(Exception):
    """The log cannot be read or written: its unit goes offline, with this as the reason (CL-F9)."""


class ReplicaLog(Protocol):
    """One partition's log. Offsets are of records; all of it may raise LogBroken."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def kept(self) -> int:
        """How far it is flushed, where its topic flushes every record; elsewhere its end."""

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 where it is empty."""

    def lead(self, epoch: int) -> None:
        """Know (epoch, end) before anything is appended in it; on disk before any of that counts as kept (CL-L1)."""

    def end_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the one given; (-1, -1) if there is none."""

    def epoch_at(self, offset: int) -> int:
        """The epoch of the batch that has the offset, -1 if none has."""

    def read(self, offset: int, max_bytes: int) -> Records:
        """Batches from `offset` on, up to the end of the log and at least one."""

    def append_as_follower(self, records: Records) -> None:
        """Append as the leader has numbered them. Raises Damaged, and then has appended nothing."""

    def cut(self, to: int) -> None:
        """Give up what is at `to` and above; durable on return."""

    def begin(self, at: int) -> None:
        """Give up everything, and begin anew at `at`; durable on return."""

    def advance_start(self, to: int) -> None:
        """Give up what is below `to` (CL-F8)."""

    def tell_high_watermark(self, offset: int) -> None:
        """Readers see what is below, and nothing else."""


class ReplicaLogs(Protocol):
    """The logs that this node has."""

    def held(self) -> Iterable[tuple[TopicPartition, bytes]]:
        """All copies on this disk, with the ids of their topics."""

    def topic_id(self, place: TopicPartition) -> bytes | None:
        """Of which topic the copy on this disk is; None where there is no copy."""

    def open(self, place: TopicPartition, topic_id: bytes) -> ReplicaLog:
        """The copy of a partition, made empty where there is none of this topic id. Raises LogBroken."""

    def reopen(self, place: TopicPartition, topic_id: bytes) -> ReplicaLog:
        """As `open`, for one that has failed: it is read anew, as at a start. What is not known to be flushed is given
        up. Raises LogBroken while it cannot be used."""

    def no_room(self, wanted: int) -> str:
        """Why so many bytes more cannot be written where the logs lie; "" while they can, or nobody can tell."""

    def delete(self, place: TopicPartition, topic_id: bytes) -> None:
        """Delete the copy if it is of this topic id."""
