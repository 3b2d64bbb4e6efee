"""The fast path of appends: nearly every one is of good batches behind a segment with room.

It checks what validation, stamping and `is_segment_full` check, with each answer that does not change from batch to
batch worked out before. Each call saved there shows in the throughput; tests hold the fast and the long path to the
same bytes.
"""

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from muster.storage.compression import CODECS
from muster.storage.errors import StorageError
from muster.storage.files import Buffer
from muster.storage.logs.log_files import open_active, undo_failed_write
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.logs.segment import SegmentList
from muster.storage.logs.stamp import OUTSIDE_CRC
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from muster.storage.records.markers import MARKER_ATTRIBUTES, MARKER_BYTES, TransactionMarker, seal_marker
from muster.storage.records.scan import BatchHead
from muster.storage.records.validation import AT_ONCE_BYTES, AT_ONCE_RECORDS, Framings
from muster.storage.types import Appended

if TYPE_CHECKING:
    from muster.storage.logs.log import Log

# Of `batch.HEADER` what is asked for: length, magic, crc, attributes, last offset delta, both timestamps, producer id,
# count.
_unpack = struct.Struct(">8xi4xbIHiqqq6xi").unpack_from
# And of a numbered batch its producer epoch and base sequence.
_unpack_numbers = struct.Struct(">51xhi").unpack_from
_pack = OUTSIDE_CRC.pack
# What a NamedTuple's own constructor does, without its argument names.
_made = tuple.__new__
MOST_AT_ONCE = 256
"""Appends in one write: two buffers each, and a system call takes no more than 1,024."""

_LAST_CODEC = len(CODECS) - 1
_NOT_TRANSACTIONAL = 0xFFFF & ~TRANSACTIONAL_BIT
NO_GUARDS: Final[Mapping[int, TransactionGuard]] = MappingProxyType({})
# All logs share what is known of how producers frame their batches: one thread appends to them.
framings = Framings()
_sound = framings.sound
_LARGEST_DELTA = 0x7FFFFFFE
_NEVER = -(1 << 63)


class AppendFastPath:
    """Appends what needs no closer look, and leaves the rest to `Log.append`, which is the general way.

    tests/property/storage/test_append_fast_path.py holds the two together.
    """

    # fmt: off
    __slots__ = (
        "_ahead_ms", "_behind_ms", "_last_offset", "_log", "_looks", "_max_bytes", "_room", "_segments", "_youngest",
    )
    # fmt: on

    def __init__(self, log: "Log") -> None:
        settings = log.settings
        self._log = log
        self._looks = log.looks
        self._max_bytes = min(settings.max_message_bytes, settings.segment_bytes)
        self._ahead_ms = settings.message_timestamp_after_max_ms
        self._behind_ms = settings.message_timestamp_before_max_ms
        self._segments: SegmentList | None = None
        # Of the active segment: bytes that it may hold, the last offset and the youngest timestamp that fit into it.
        self._room = 0
        self._last_offset = 0
        self._youngest = _NEVER

    def append(
        self, batches: Buffer, now_ms: int, looked: bool = False, guard: TransactionGuard | None = None
    ) -> Appended | None:
        """What the append came to; None, with nothing done, for all that has to be looked at more closely."""
        log = self._log
        segments = log.segment_list
        if segments is not self._segments:
            self._meet(segments)
        active = segments.active
        position = active.size
        size = len(batches)
        if size < HEADER_SIZE or size > self._max_bytes or position + size > self._room or not position:
            return None
        view = memoryview(batches)
        length, magic, crc, attributes, delta, base, timestamp, producer, count = _unpack(view)
        first = log.end_offset
        last = first + delta
        epoch = log.leader_epoch
        looks = self._looks and not looked
        if (
            length != size - LENGTH_OVERHEAD
            or magic != MAGIC
            or attributes & _NOT_TRANSACTIONAL > _LAST_CODEC
            or count != delta + 1
            or count <= 0
            or timestamp > self._youngest
            or timestamp > now_ms + self._ahead_ms
            or timestamp < now_ms - self._behind_ms
            or last > self._last_offset
            or log.epochs.latest != epoch
            or active.entries >= log.most_entries
            or crc32c(view[ATTRIBUTES_AT:]) != crc
            or (
                looks
                and (
                    attributes & CODEC_MASK  # Unpacking takes a closer look.
                    or not _sound(view, count, base - now_ms + self._behind_ms, now_ms + self._ahead_ms - base)
                )
            )
        ):
            return None
        head = None
        if producer >= 0:
            own, sequence = _unpack_numbers(view)
            head = BatchHead(position, size, first, last, timestamp, epoch, producer, own, sequence, count, attributes)
            if not self._follows(head, guard):
                return None
        elif attributes & TRANSACTIONAL_BIT:
            return None
        file = active._file or open_active(active)
        try:
            file.write((_pack(first, length, epoch), view[MAGIC_AT:]), size, position)
        except OSError as error:
            raise undo_failed_write(log, active, error, size) from error
        marks = ((last, position),) if position > active.index_due else ()
        active.note_row(last, timestamp, last, size, marks)
        if head is not None:
            log.note_producer(active, head)
        log.note_end(last + 1, now_ms)
        return _made(Appended, (first, last, -1, log.start_offset))

    def _follows(self, head: BatchHead, guard: TransactionGuard | None) -> bool:
        """Whether a producer's batch is what comes next of it. What is not is known already, or refused."""
        producers, log = self._log.producers, self._log
        if head.attributes & TRANSACTIONAL_BIT:
            if head.producer_epoch < 0 or head.base_sequence < 0:
                return False
            try:
                with log.lock:
                    return producers.check((head,), guard) is None
            except StorageError:
                return False
        producer = producers.producers.get(head.producer_id)
        if producer is None or not producer.batches or producer.txn_first_offset >= 0 or producers.guards.count:
            return False
        sequence, last = head.base_sequence, producer.batches[-1].last_sequence
        most = MAX_SEQUENCE - head.last_offset + head.base_offset
        return bool(head.producer_epoch == producer.epoch and sequence == last + 1 > 0 and sequence <= most)

    def append_each(
        self,
        arrived: Sequence[Buffer],
        now_ms: int,
        looked: bool = False,
        guards: Mapping[int, TransactionGuard] = NO_GUARDS,
    ) -> list[Appended]:
        """What the first of these came to, each with offsets of its own, all written with one call.

        Ends before the one that has to be looked at more closely, takes time to look into, or is the second of its
        producer; nothing is done for it and those after it. guards: by their place.
        """
        log = self._log
        segments = log.segment_list
        if segments is not self._segments:
            self._meet(segments)
        active = segments.active
        start = end = active.size
        epoch, first, log_start = log.leader_epoch, log.end_offset, log.start_offset
        if not start or log.epochs.latest != epoch or active.entries >= log.most_entries:
            return []
        latest, earliest = min(self._youngest, now_ms + self._ahead_ms), now_ms - self._behind_ms
        top, top_offset = _NEVER, first
        looks = self._looks and not looked
        most_bytes, most_records = self._max_bytes, _LARGEST_DELTA
        if looks:
            most_bytes, most_records = min(most_bytes, AT_ONCE_BYTES), AT_ONCE_RECORDS
        buffers: list[Buffer] = []
        done: list[Appended] = []
        produced: dict[int, BatchHead] = {}
        marks: list[tuple[int, int]] = []
        due, interval, most_marks = active.index_due, active.interval, log.most_entries - active.entries
        for batches in arrived[:MOST_AT_ONCE]:
            size = len(batches)
            if size < HEADER_SIZE or size > most_bytes or end + size > self._room:
                break
            view = memoryview(batches)
            length, magic, crc, attributes, delta, base, timestamp, producer, count = _unpack(view)
            last = first + delta
            if (
                length != size - LENGTH_OVERHEAD
                or magic != MAGIC
                or attributes & _NOT_TRANSACTIONAL > _LAST_CODEC
                or producer in produced
                or count != delta + 1
                or not 0 < count <= most_records
                or not earliest <= timestamp <= latest
                or last > self._last_offset
                or crc32c(view[ATTRIBUTES_AT:]) != crc
                or (
                    looks
                    and (
                        attributes & CODEC_MASK  # Unpacking takes a closer look.
                        or not _sound(view, count, base - now_ms + self._behind_ms, now_ms + self._ahead_ms - base)
                    )
                )
            ):
                break
            if producer >= 0:
                own, sequence = _unpack_numbers(view)
                head = BatchHead(end, size, first, last, timestamp, epoch, producer, own, sequence, count, attributes)
                if not self._follows(head, guards.get(len(done))):
                    break
                produced[producer] = head
            elif attributes & TRANSACTIONAL_BIT:
                break
            buffers += (_pack(first, length, epoch), view[MAGIC_AT:])
            done.append(_made(Appended, (first, last, -1, log_start)))
            if timestamp > top:
                top, top_offset = timestamp, last
            if end > due and len(marks) < most_marks:
                marks.append((last, end))
                due = end + interval
            end += size
            first = last + 1
        if done:
            file = open_active(active)
            try:
                file.write(buffers, end - start, start)
            except OSError as error:
                raise undo_failed_write(log, active, error, end - start) from error
            active.note_row(first - 1, top, top_offset, end - start, marks)
            for head in produced.values():
                log.note_producer(active, head)
            log.note_end(first, now_ms)
        return done

    def append_markers(self, markers: Sequence[MarkerToWrite], now_ms: int) -> list[Appended]:
        """The same for markers that end transactions (see `Log.append_markers`)."""
        log = self._log
        segments = log.segment_list
        if segments is not self._segments:
            self._meet(segments)
        active = segments.active
        start = end = active.size
        epoch, first, producers = log.leader_epoch, log.end_offset, log.producers
        if (
            not start
            or log.epochs.latest != epoch
            or active.entries >= log.most_entries
            or now_ms > self._youngest
            or self._max_bytes < MARKER_BYTES
        ):
            return []
        buffers: list[Buffer] = []
        ended: dict[int, tuple[BatchHead, TransactionMarker, int]] = {}
        marks: list[tuple[int, int]] = []
        due, interval, most_marks = active.index_due, active.interval, log.most_entries - active.entries
        for marker in markers[:MOST_AT_ONCE]:
            number = marker.producer_id
            if end + MARKER_BYTES > self._room or first > self._last_offset or number in ended:
                break
            head = BatchHead(end, MARKER_BYTES, first, first, now_ms, epoch, *marker[:2], -1, 1, MARKER_ATTRIBUTES)
            content = TransactionMarker(not marker.commit, marker.coordinator_epoch)
            try:
                with log.lock:
                    producers.check_marker(head, content, marker.level)
            except StorageError:
                break
            buffers.append(seal_marker(content, number, marker.epoch, now_ms, first, epoch))
            ended[number] = head, content, marker.level
            if end > due and len(marks) < most_marks:
                marks.append((first, end))
                due = end + interval
            end += MARKER_BYTES
            first += 1
        if not buffers:
            return []
        file = active._file or open_active(active)
        try:
            file.write(buffers, end - start, start)
        except OSError as error:
            raise undo_failed_write(log, active, error, end - start) from error
        active.note_row(first - 1, now_ms, first - len(buffers), end - start, marks)
        for told in ended.values():
            log.note_producer(active, *told)
        log.note_end(first, now_ms)
        return [
            _made(Appended, (head.base_offset, head.base_offset, -1, log.start_offset)) for head, _, _ in ended.values()
        ]

    def _meet(self, segments: SegmentList) -> None:
        """Work out the limits of an active segment that has not been seen; none while it is empty."""
        active = segments.active
        if not active.size:
            return
        settings = self._log.settings
        since = active.first_timestamp
        self._segments = segments
        self._room = settings.segment_bytes
        self._last_offset = active.base_offset + _LARGEST_DELTA
        # Without a first timestamp the clock decides about the next roll, which is for the long way.
        self._youngest = since + settings.segment_ms if since >= 0 else _NEVER
