"""One partition: its segments, append, fetch and look-up by time.

One thread appends, rolls and removes; any thread may fetch or flush meanwhile. The list of segments is replaced,
never changed, and a reader keeps the files it has begun to read.

What a crash could undo is not handed out: fetches end at the high watermark, which follows the flushes where the
topic promises a flush before the answer, and the log's end where it does not.
"""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage.batch import LENGTH_OVERHEAD, BatchView, decode_batch, view_at
from storage.config import TopicSettings
from storage.errors import (
    InvalidFetchSize,
    LogDamaged,
    OffsetOutOfRange,
    RecordListTooLarge,
    StorageError,
    UnknownTopicOrPartition,
)
from storage.files import Buffer, Files
from storage.scan import Head
from storage.segment import OpenSegments, Segment
from storage.stamp import Stamped, stamp
from storage.summaries import Summary, save_summaries
from storage.types import Appended, Fetched, TopicPartition
from storage.validation import check_records, check_timestamps, split

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

logger = logging.getLogger("muster.storage")


@dataclass(slots=True)
class Recovered:
    """What opening a log found: bytes cut off its tail, or damage that makes it refuse appends."""

    truncated_bytes: int = 0
    end_offset: int = 0
    why: str = ""
    damage: LogDamaged | None = None


@dataclass(slots=True)
class LogState:
    """What `storage.loader` gives a log to start from."""

    segments: list[Segment]
    summaries: dict[int, Summary]
    start_offset: int
    leader_epoch: int = 0
    recovered: Recovered = field(default_factory=Recovered)


class Log:
    """The records of one partition."""

    def __init__(
        self,
        files: Files,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        opened: OpenSegments,
        state: LogState,
    ) -> None:
        self.files = files
        self.directory = directory
        self.partition = partition
        self.settings = settings
        self.opened = opened
        self.recovered = state.recovered
        self.summaries = state.summaries
        self.start_offset = state.start_offset
        self.leader_epoch = state.leader_epoch
        self._segments: tuple[Segment, ...] = tuple(state.segments)
        self._bases = [segment.base_offset for segment in self._segments]
        self._active = self._segments[-1]
        self.end_offset = self._active.next_offset
        # Opening flushes what it found, so all of it is durable.
        self.durable_offset = self.end_offset
        self.unflushed_since_ms: int | None = None
        self.failure: StorageError | None = state.recovered.damage
        self._lock = threading.Lock()
        self._listeners: list[Callable[[str, int], None]] = []

    # -- what a reader may know ---------------------------------------------------------------------------

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def unflushed(self) -> int:
        """Records that a power cut could still take."""
        return self.end_offset - self.durable_offset

    @property
    def waits_for_flush(self) -> bool:
        """Whether an append must not be acknowledged before the next flush."""
        return self.end_offset - self.durable_offset >= self.settings.flush_messages

    @property
    def high_watermark(self) -> int:
        if self.settings.flush_messages == 1:
            return self.durable_offset
        return self.end_offset

    def on_readable(self, listener: Callable[[str, int], None]) -> None:
        """Call when more can be read; possibly from the thread that flushes."""
        self._listeners.append(listener)

    # -- append -------------------------------------------------------------------------------------------

    def append(self, batches: Buffer, now_ms: int, *, trusted: bool = False) -> Appended:
        """Give offsets to one or more whole batches and write them with one call, all or none.

        Refuses by raising; nothing is written then. Durable after the next `flush`.
        """
        if self.failure:
            raise self.failure
        settings = self.settings
        split_up = split(memoryview(batches), settings, trusted=trusted)
        if not trusted:
            check_timestamps(split_up, settings, now_ms)
            if settings.validate_records == "full" or settings.compacted:
                check_records(split_up, settings, now_ms)
        stamped = stamp(split_up, self.end_offset, self.leader_epoch, self._append_time(now_ms))
        self._write(stamped, now_ms)
        return Appended(
            stamped.heads[0].base_offset, stamped.next_offset - 1, self._append_time(now_ms), self.start_offset
        )

    def _append_time(self, now_ms: int) -> int:
        return now_ms if self.settings.message_timestamp_type == "LogAppendTime" else -1

    def _write(self, stamped: Stamped, now_ms: int) -> None:
        active = self._active
        if stamped.size > self.settings.segment_bytes:
            raise RecordListTooLarge(
                f"An append of {stamped.size} bytes does not fit into a segment of {self.settings.segment_bytes} "
                "(segment.bytes). Send less at once."
            )
        if self._full(active, stamped, now_ms):
            self.roll(now_ms)
            active = self._active
        try:
            active.file().write(stamped.buffers, stamped.size, active.size)
        except OSError as error:
            raise self._write_failed(active, error) from error
        for head in stamped.heads:
            active.note(head.last_offset, head.max_timestamp, head.size)
            active.producers |= head.producer_id >= 0
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms
        self.end_offset = stamped.next_offset
        if self.settings.flush_messages != 1:
            self._tell()

    def _full(self, active: Segment, stamped: Stamped, now_ms: int) -> bool:
        if not active.size:
            return False
        if active.size + stamped.size > self.settings.segment_bytes:
            return True
        if stamped.next_offset - active.base_offset > 0x7FFFFFFF:
            return True
        since = active.first_timestamp
        age = stamped.heads[0].max_timestamp - since if since >= 0 else now_ms - active.created_ms
        if age > self.settings.segment_ms:
            return True
        # Room for one entry per batch of this append, so that none is lost half-way.
        entries = 8 * len(stamped.heads)
        return not active.index_room(self.settings.segment_index_bytes - entries + 8)

    def _write_failed(self, active: Segment, error: OSError) -> StorageError:
        """Cut off what may have been written in part; if even that fails, take no more appends."""
        refusal = StorageError(
            f"Could not write to {active.path()}: {error.strerror or error}. The records are not in the log; "
            "free some space or mend the disk, then send them again."
        )
        try:
            active.file().truncate(active.size)
        except OSError:
            self.failure = refusal
        return refusal

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin the next; everything so far is durable then."""
        self.flush()
        sealed = self._active
        fresh = Segment(self.files, self.directory, self.end_offset, self.opened, self.settings.index_interval_bytes)
        try:
            self.summaries[sealed.base_offset] = sealed.seal()
            self._save_summaries()
            fresh.start(now_ms)
            self.files.sync_dir(self.directory)
        except OSError as error:
            raise StorageError(
                f"Could not begin a new segment in {self.directory}: {error.strerror or error}. The records are not "
                "in the log; free some space or mend the disk, then send them again."
            ) from error
        self._replace((*self._segments, fresh))
        sealed.active = False
        self._active = fresh

    def _replace(self, segments: tuple[Segment, ...]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

    # -- durability ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything appended before this call survive a power cut. From any thread.

        After a failed fsync the system may drop what it could not write and call the rest clean, so nothing
        more is believed: the log takes no appends until it is opened again.
        """
        if self.failure:
            raise self.failure
        end = self.end_offset
        if end <= self.durable_offset:
            return
        # Read after `end`: a roll in between has flushed the segment before.
        active = self._active
        try:
            active.file().sync()
        except OSError as error:
            raise self._fail(f"Could not flush {active.path()}", error) from error
        self._became_durable(end)

    def _became_durable(self, end: int) -> None:
        with self._lock:
            grew = end > self.durable_offset
            if grew:
                self.durable_offset = end
                self.unflushed_since_ms = None if end >= self.end_offset else self.unflushed_since_ms
        if grew and self.settings.flush_messages == 1:
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener(*self.partition)

    def _fail(self, doing: str, error: OSError) -> StorageError:
        self.failure = StorageError(
            f"{doing}: {error.strerror or error}. The log takes no appends until the node is restarted and has "
            "checked it."
        )
        logger.error("%s", self.failure)
        return self.failure

    def _save_summaries(self) -> None:
        save_summaries(self.files, self.directory, self.summaries.values())

    def close(self) -> None:
        """Flush and write down what makes the next start quick. Safe to call on a failed log."""
        if self.failure is None:
            self.flush()
            if self._active.size:
                self.summaries[self._active.base_offset] = self._active.seal()
                self._save_summaries()
        for segment in self._segments:
            segment.close()

    def retire(self) -> None:
        """The partition is being removed: refuse everything from now on."""
        topic, partition = self.partition
        self.failure = UnknownTopicOrPartition(f"Partition {topic}-{partition} has been removed.")
        for segment in self._segments:
            self.opened.forget(segment)

    # -- fetch --------------------------------------------------------------------------------------------

    def fetch(self, offset: int, max_bytes: int, *, min_one: bool = True, committed: bool = False) -> Fetched:
        """Batches from the one that holds `offset`, at most `max_bytes` of them, up to the high watermark.

        The last one may be cut off. With `min_one` the first comes whole even if it is larger. Records before
        `offset` in the first batch come too. OffsetOutOfRange outside [start, end].
        """
        if max_bytes < 0:
            raise InvalidFetchSize(f"A fetch asked for {max_bytes} bytes; expected 0 or more.")
        until = self.high_watermark
        start = self.start_offset
        if not start <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"Offset {offset} of {self.partition[0]}-{self.partition[1]} is outside {start} to "
                f"{self.end_offset}. Start again from the earliest or the latest offset."
            )
        data = b""
        if offset < until:
            data = self._read(offset, until, max_bytes, min_one)
        elif (damage := self.recovered.damage) and offset >= damage.first_offset:
            raise damage
        return Fetched(data, until, start, until)

    def _read(self, offset: int, until: int, max_bytes: int, min_one: bool) -> bytes:
        for segment in self._from(offset):
            head = segment.locate(offset)
            if head is None:
                continue  # Compaction left nothing from `offset` on in here.
            end = segment.size
            if until < segment.next_offset and (beyond := segment.locate(until)):
                end = beyond.position
            size = min(max_bytes, end - head.position)
            if size < head.size:
                size = min(head.size, end - head.position) if min_one else size
            return segment.read(head.position, size)
        return b""

    def _from(self, offset: int) -> Sequence[Segment]:
        """The segment that holds `offset` and those after it. LogDamaged where a file is missing between."""
        segments, bases = self._segments, self._bases
        first = max(bisect_right(bases, offset) - 1, 0)
        chosen = segments[first:]
        floor = chosen[0]
        if offset >= floor.next_offset and len(chosen) > 1 and not floor.gaps:
            raise LogDamaged(
                floor.path(), floor.size, 0, floor.next_offset, chosen[1].base_offset, "the records after it are gone"
            )
        return chosen

    # -- look-up ------------------------------------------------------------------------------------------

    def list_offset(self, timestamp: int, *, committed: bool = False) -> tuple[int, int]:
        """(offset, timestamp) of the first record at least as young; (-1, -1) when there is none.

        -1 asks for the high watermark, -2 for the log's start, -3 for the record with the largest timestamp.
        """
        if timestamp == LATEST:
            return self.high_watermark, -1
        if timestamp == EARLIEST:
            return self.start_offset, -1
        if timestamp == MAX_TIMESTAMP:
            return self._largest_timestamp()
        if timestamp < 0:
            raise OffsetOutOfRange(f"Timestamp {timestamp} asks for nothing; expected -3 to -1, or 0 and more.")
        for segment in self._segments:
            if segment.max_timestamp >= timestamp and segment.next_offset > self.start_offset:
                found = self._search(segment, timestamp)
                if found:
                    return found if found[0] < self.high_watermark else (-1, -1)
        return -1, -1

    def _largest_timestamp(self) -> tuple[int, int]:
        until = self.high_watermark
        readable = [segment for segment in self._segments if segment.base_offset < until and segment.size]
        if not readable:
            return -1, -1
        youngest = max(readable, key=lambda segment: segment.max_timestamp)
        if youngest.max_timestamp < 0:
            return -1, -1
        return self._search(youngest, youngest.max_timestamp) or (-1, -1)

    def _search(self, segment: Segment, timestamp: int) -> tuple[int, int] | None:
        entry = segment.times().floor(timestamp)
        # The entry names the last offset of the earliest batch that has its timestamp.
        offset = max(segment.base_offset + entry[1] if entry else segment.base_offset, self.start_offset)
        head = segment.locate(offset)
        while head is not None:
            if head.max_timestamp >= timestamp:
                for record in decode_batch(self._whole(segment, head)):
                    if record.timestamp_ms >= timestamp and record.offset >= self.start_offset:
                        return record.offset, record.timestamp_ms
            head = segment.locate(head.last_offset + 1)
        return None

    def _whole(self, segment: Segment, head: Head) -> BatchView:
        data = segment.read(head.position, head.size)
        batch = view_at(memoryview(data), 0, head.position)
        assert batch is not None
        assert batch.length + LENGTH_OVERHEAD == head.size
        return batch
