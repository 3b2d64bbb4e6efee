"""The reading task: fetches the ranges of a slot and returns them as Arrow batches.

One request asks for all unfinished ranges of the slot; the next requests are under way while its answer is decoded.
Channels are kept per Python worker, which Spark reuses for its next task. Record batches become Arrow batches of
Spark's schema without a Python object per record. A reader of committed data drops the batches of aborted
transactions (KIP-98).
"""

import asyncio
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from muster.client.calls.leaders import MAYBE_MOVED, MOVED
from muster.client.calls.methods import MULTI_FETCH_FRAMES
from muster.client.calls.topic_calls import EARLIEST, LATEST, list_offsets
from muster.client.calls.transport import CallRetry, Transport, now_ms
from muster.client.errors import RETRIABLE, ClientError, CorruptRecords, Refused, Unreachable, refusal
from muster.client.twins import shared_loop
from muster.client.types import ConnectionConfig, TopicPartition
from muster.coordinator.edge.overload import keep_freed_memory
from muster.spark.planning import FetchSettings, OffsetRange
from muster.spark.read_options import CREATE_TIME, HEADERS, LOG_APPEND_TIME, DataLoss, settle_in
from muster.storage.errors import CorruptMessage, StorageError
from muster.storage.files import Buffer
from muster.storage.records.batch import BatchView, decode_records, read_batches
from muster.storage.records.columns import RecordColumns, decode_runs
from muster.storage.records.markers import build_aborted_filter
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.fetch_frames import FetchResultFrame, MultiFetchFrames
from muster.storage.types import Headers, Record

# Arrow batches
# -------------

HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: HEADER_TYPE,
}
Numbers = npt.NDArray[np.int64]


def build_arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in columns])


def decode_batches(
    data: Buffer, views: Sequence[BatchView], wanted: OffsetRange, columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """The records of `views` within `wanted`, in Arrow batches of at most `rows`. Raises CorruptMessage."""
    runs = chain.from_iterable(decode_runs(data, group) for group in group_views(views, rows))
    for run, of_run in runs:
        appended = np.repeat([view.log_append_time for view in of_run], [view.count for view in of_run])
        first, last = np.searchsorted(run.offsets, [wanted.start, wanted.end])
        for start in range(int(first), int(last), rows):
            yield build_rows(run, appended, slice(start, min(start + rows, int(last))), wanted, columns)


def group_views(views: Sequence[BatchView], rows: int) -> Iterator[list[BatchView]]:
    """Neighbours that together have about `rows` records."""
    group: list[BatchView] = []
    held = 0
    for view in views:
        if group and held + view.count > rows:
            yield group
            group, held = [], 0
        group.append(view)
        held += view.count
    if group:
        yield group


def build_rows(
    run: RecordColumns, appended: npt.NDArray[np.bool_], part: slice, wanted: OffsetRange, columns: Sequence[str]
) -> pa.RecordBatch:
    count = part.stop - part.start
    arrays = []
    for name in columns:
        match name:
            case "key":
                arrays.append(build_binary_array(run.data, run.key_starts[part], run.key_lengths[part]))
            case "value":
                arrays.append(build_binary_array(run.data, run.value_starts[part], run.value_lengths[part]))
            case "topic" | "partition":
                arrays.append(repeat_value(getattr(wanted, name), name, round_up_size(count))[:count])
            case "offset":
                arrays.append(pa.array(run.offsets[part]))
            case "timestamp":
                arrays.append(pa.array(run.timestamps_ms[part] * 1000).view(TYPES["timestamp"]))
            case "timestampType":
                kinds = np.where(appended[part], LOG_APPEND_TIME, CREATE_TIME).astype(np.int32)
                arrays.append(pa.array(kinds))
            case _:
                arrays.append(
                    build_header_array([run.headers.get(place, ()) for place in range(part.start, part.stop)])
                )
    return pa.RecordBatch.from_arrays(arrays, schema=build_arrow_schema(columns))


def round_up_size(count: int) -> int:
    """The next power of two, so that few arrays of one value serve batches of any size."""
    return 1 << (count - 1).bit_length() if count else 0


@lru_cache(maxsize=64)
def repeat_value(value: str | int, column: str, count: int) -> pa.Array:
    """One value so many times, to be sliced: batches of a partition share it."""
    return pa.repeat(pa.scalar(value, TYPES[column]), count)


def build_binary_array(data: Buffer, starts: Numbers, lengths: Numbers) -> pa.Array:
    """The slices of `data` as one binary array.

    Seen as alternating gaps and slices, the data is an Arrow array as it lies; every second of its values is taken.
    """
    count = len(starts)
    null = lengths < 0
    if null.all():
        return pa.nulls(count, pa.binary())
    borders = np.empty(2 * count + 1, np.int32)
    borders[0] = 0
    borders[1::2] = starts
    borders[2::2] = starts + np.maximum(lengths, 0)
    seen = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(borders), pa.py_buffer(data)])
    places = np.arange(1, 2 * count, 2, dtype=np.int32)
    return seen.take(pa.array(places, mask=null) if null.any() else pa.array(places))


def build_header_array(headers: Sequence[Headers]) -> pa.Array:
    """As Spark's Kafka source has it: null for a record without headers."""
    if not any(headers):
        return pa.nulls(len(headers), HEADER_TYPE)
    return pa.array(
        [[{"key": key, "value": value} for key, value in row] if row else None for row in headers], HEADER_TYPE
    )


def decode_records_to_arrow(records: Sequence[Record], wanted: OffsetRange, columns: Sequence[str]) -> pa.RecordBatch:
    """The same from decoded records: for message sets of before record batches, which have no columns."""
    count = len(records)
    made = {
        "key": lambda: pa.array([record.key for record in records], pa.binary()),
        "value": lambda: pa.array([record.value for record in records], pa.binary()),
        "topic": lambda: pa.repeat(pa.scalar(wanted.topic, pa.string()), count),
        "partition": lambda: pa.array([wanted.partition] * count, pa.int32()),
        "offset": lambda: pa.array([record.offset for record in records], pa.int64()),
        "timestamp": lambda: pa.array([record.timestamp_ms * 1000 for record in records], pa.int64()).view(
            TYPES["timestamp"]
        ),
        "timestampType": lambda: pa.array([CREATE_TIME] * count, pa.int32()),
        HEADERS: lambda: build_header_array([record.headers for record in records]),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in columns], schema=build_arrow_schema(columns))


class BatchGatherer:
    """Joins what comes in small pieces, so that Spark gets batches worth their cost."""

    def __init__(self, rows: int, most_bytes: int) -> None:
        self._rows = rows
        self._most_bytes = most_bytes
        self._pieces: list[pa.RecordBatch] = []
        self._held = 0
        self._bytes = 0

    def add(self, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields what is ready; a piece that is large enough by itself is handed on as it is."""
        if self._held + piece.num_rows > self._rows:
            yield from self.rest()
        self._pieces.append(piece)
        self._held += piece.num_rows
        self._bytes += piece.nbytes
        if self._held >= self._rows or self._bytes >= self._most_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        pieces, self._pieces, self._held, self._bytes = self._pieces, [], 0, 0
        if len(pieces) == 1:
            yield pieces[0]
        elif pieces:
            yield from pa.Table.from_batches(pieces).combine_chunks().to_batches()


# The fetches of a task
# ---------------------

log = logging.getLogger("muster.spark")

OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3
READ_COMMITTED = 1
MAX_RANGES_AT_ONCE = 500
MAX_TRANSPORTS = 16
WAIT_MS = 500
AHEAD = 3
"""Answers that wait to be decoded, each of fetch.max.bytes at most, or of one batch that is larger."""

KEPT_BYTES = 64 << 20
"""Freed memory that a worker keeps for its next batches: what the answers on the way and their columns take."""

_transports: dict[tuple[int, ConnectionConfig], Transport] = {}
_lock = threading.Lock()


def share_transport(connection: ConnectionConfig) -> Transport:
    """The transport of this process for these properties; the one that was made first goes when there are too many."""
    key = (os.getpid(), connection)
    with _lock:
        if key not in _transports:
            keep_freed_memory(KEPT_BYTES)
            while len(_transports) >= MAX_TRANSPORTS:
                pid, other = next(iter(_transports))
                gone = _transports.pop((pid, other))
                if pid == os.getpid():
                    shared_loop().run(gone.close())
            _transports[key] = Transport(connection)
            settle_in()
        return _transports[key]


@dataclass(slots=True)
class RangeCursor:
    """A range and how far it has been fetched."""

    wanted: OffsetRange
    position: int

    @property
    def done(self) -> bool:
        return self.position >= self.wanted.end


@dataclass(frozen=True, slots=True)
class FetchedPiece:
    """Fetched bytes of one range: batches, or records where the bytes are of before there were batches."""

    wanted: OffsetRange
    data: Buffer
    views: Sequence[BatchView]
    records: Sequence[Record] = ()


def read_ranges(settings: FetchSettings, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """All records of the ranges, in order within each of them.

    Raises DataLoss when records are gone and that is to fail, Unreachable, naming the node and how long it was
    silent, Refused and CorruptRecords.
    """
    gathered = BatchGatherer(settings.rows, settings.max_bytes)
    for pieces in SlotFetch(settings, ranges).run():
        for piece in pieces:
            for batch in decode_piece(piece, settings):
                yield from gathered.add(batch)
    yield from gathered.rest()


def decode_piece(piece: FetchedPiece, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    try:
        if piece.records:
            for start in range(0, len(piece.records), settings.rows):
                yield decode_records_to_arrow(
                    piece.records[start : start + settings.rows], piece.wanted, settings.columns
                )
        yield from decode_batches(piece.data, piece.views, piece.wanted, settings.columns, settings.rows)
    except StorageError as error:
        topic, partition = piece.wanted.tp
        raise CorruptRecords(f"{topic}-{partition} cannot be read: {error}") from None


class SlotFetch:
    """The fetches of one task, up to AHEAD answers before what is being decoded.

    They run on the client's loop by themselves: to wait for the decoding thread between an answer and the next request
    would leave the node idle.
    """

    def __init__(self, settings: FetchSettings, ranges: Sequence[OffsetRange]) -> None:
        self._settings = settings
        self._cursors = [RangeCursor(wanted, wanted.start) for wanted in ranges if wanted.size > 0]
        self._transport = share_transport(settings.connection)
        self._loop = shared_loop()
        self._progress_ms = now_ms()
        self._turn = 0
        self._at_once = MAX_RANGES_AT_ONCE
        self._bytes_per_offset = 0.0
        self._room = asyncio.Semaphore(AHEAD)
        self._ready: SimpleQueue[list[FetchedPiece] | None] = SimpleQueue()

    def run(self) -> Iterator[list[FetchedPiece]]:
        if not self._cursors:
            return
        future = self._loop.submit(self._fetch_slots())
        # However it ends, whoever waits for pieces has to wake up.
        future.add_done_callback(lambda _: self._ready.put(None))
        try:
            while (pieces := self._ready.get()) is not None:
                yield pieces
                self._loop.loop.call_soon_threadsafe(self._room.release)
            future.result()
        finally:
            future.cancel()

    async def _fetch_slots(self) -> None:
        while self._cursors:
            await self._room.acquire()
            asked = self._next_asked()
            self._ready.put(await self._take_in(asked, await self._fetch(asked)))

    def _next_asked(self) -> list[RangeCursor]:
        """As many ranges as an answer has room for, so that each comes in large pieces.

        How many bytes an offset stands for is taken from what came; the first request asks for all.
        """
        # Another range first each time, so that a byte limit does not starve the last ones.
        start = self._turn % len(self._cursors)
        asked: dict[tuple[str, int], RangeCursor] = {}
        expected_bytes = 0.0
        for cursor in self._cursors[start:] + self._cursors[:start]:
            if len(asked) == self._at_once or expected_bytes >= self._settings.max_bytes:
                break
            # A node takes each partition once; of several ranges of one the next waits its turn.
            if cursor.wanted.tp not in asked:
                asked[cursor.wanted.tp] = cursor
                expected_bytes += (cursor.wanted.end - cursor.position) * self._bytes_per_offset
        self._turn += len(asked)
        return list(asked.values())

    async def _fetch(self, asked: list[RangeCursor]) -> list[FetchResultFrame]:
        """One answer for each, of whoever leads it; again for what goes away by itself: a leader that moves, too."""
        leaders = self._transport.leaders
        patience = CallRetry(self._transport, self._settings.patience_ms)
        found: dict[TopicPartition, FetchResultFrame] = {}
        left = {TopicPartition(*cursor.wanted.tp): cursor for cursor in asked}
        while True:
            by_leader, unknown = leaders.routed(left)
            leaders.refresh_leaders(unknown)
            error: ClientError | None = leaders.why_not(unknown[0]) if unknown else None
            share = self._settings.max_bytes // max(1, len(by_leader))
            lots = [(address, [left[tp] for tp in led]) for address, led in by_leader.items()]
            answers = await asyncio.gather(
                *(self._request_records(address, lot, max(1, share), patience.attempt_ms) for address, lot in lots),
                return_exceptions=True,
            )
            for (_, lot), answer in zip(lots, answers, strict=True):
                if isinstance(answer, Unreachable):
                    error = answer
                    if leaders.shared:
                        leaders.doubt([TopicPartition(*cursor.wanted.tp) for cursor in lot])
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    error = self._sorted_out(lot, answer, found) or error
            left = {tp: cursor for tp, cursor in left.items() if tp not in found}
            if not left:
                return [found[TopicPartition(*cursor.wanted.tp)] for cursor in asked]
            assert error is not None, "what is left was refused, or not answered"
            if not await patience.another_try(error):
                raise error.after(patience.waited_ms) if isinstance(error, Unreachable) else error from None
            await leaders.settled(left)

    async def _request_records(
        self, address: str, lot: list[RangeCursor], max_bytes: int, timeout_ms: int
    ) -> MultiFetchFrames:
        settings = self._settings
        request = pb.MultiFetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=READ_COMMITTED if settings.committed else 0,
        )
        for cursor in lot:
            request.fetches.add(
                topic=cursor.wanted.topic,
                partition=cursor.wanted.partition,
                fetch_offset=cursor.position,
                partition_max_bytes=settings.max_partition_bytes,
            )
        return await self._transport.leaders.ask_leader(
            MULTI_FETCH_FRAMES,
            request,
            doing="fetching records",
            address=address,
            places=[TopicPartition(*cursor.wanted.tp) for cursor in lot],
            timeout_ms=timeout_ms,
            parked_ms=WAIT_MS,
        )

    def _sorted_out(
        self, lot: list[RangeCursor], answer: MultiFetchFrames, found: dict[TopicPartition, FetchResultFrame]
    ) -> Refused | None:
        """Put what counts into `found`; why something is to be asked for again."""
        leaders = self._transport.leaders
        why: Refused | None = None
        for cursor, part in zip(lot, answer.parts, strict=True):
            tp, code = TopicPartition(*cursor.wanted.tp), part.result.error_code
            # A node of a cluster may not know of a topic yet.
            gone = code == UNKNOWN_TOPIC and (not leaders.shared or leaders.is_missing(tp.topic))
            if code not in RETRIABLE or gone:
                found[tp] = part
                continue
            name = pb.ErrorCode.Name(code)
            why = refusal(code, name, part.result.error_message, f"{tp.topic}-{tp.partition}")
            if code in MOVED or (leaders.shared and code in MAYBE_MOVED):
                led = part.result.current_leader if part.result.HasField("current_leader") else None
                leaders.doubt([tp], led)
        return why

    async def _take_in(self, asked: list[RangeCursor], answers: list[FetchResultFrame]) -> list[FetchedPiece]:
        pieces = []
        cut = False
        taken_bytes = taken_offsets = 0
        for cursor, found in zip(asked, answers, strict=True):
            before = cursor.position
            if (piece := await self._take_range(cursor, found)) is not None:
                pieces.append(piece)
            if cursor.position > before:
                self._progress_ms = now_ms()
                taken_bytes += len(found.records)
                taken_offsets += cursor.position - before
            elif piece is not None:
                cut = True
        if taken_offsets:
            self._bytes_per_offset = taken_bytes / taken_offsets
        if cut:
            # Batches are larger than a range's share of an answer and came in part, for nothing: ask for fewer at once.
            self._at_once = max(1, len(asked) // 2)
        waited_ms = now_ms() - self._progress_ms
        if waited_ms >= self._settings.patience_ms:
            topic, partition = asked[0].wanted.tp
            raise ClientError(
                f"{self._transport.bootstrap} gave no records of {topic}-{partition} from offset {asked[0].position} "
                f"for {waited_ms} ms, though its log went to {asked[0].wanted.end} when the task was planned; "
                "look at the node, or raise kafkaConsumer.pollTimeoutMs"
            )
        self._cursors = [cursor for cursor in self._cursors if not cursor.done]
        return pieces

    async def _take_range(self, cursor: RangeCursor, found: FetchResultFrame) -> FetchedPiece | None:
        topic, partition = cursor.wanted.tp
        result = found.result
        if result.error_code in (OUT_OF_RANGE, UNKNOWN_TOPIC):
            await self._lost(cursor, result)
            return None
        if result.error_code:
            name = pb.ErrorCode.Name(result.error_code)
            raise refusal(result.error_code, name, result.error_message, f"{topic}-{partition}")
        wanted = cursor.wanted._replace(start=cursor.position)
        if data := memoryview(found.records):
            return self._take_records(cursor, wanted, data, result)
        if result.high_watermark < cursor.wanted.end and await self._ends_before(cursor.wanted):
            await self._lost(cursor, result)
        return None

    async def _ends_before(self, wanted: OffsetRange) -> bool:
        """Whether the log ends before what was planned. A leader that is new knows a little later how far it counts."""
        if not self._transport.leaders.shared:
            return True
        tp = TopicPartition(*wanted.tp)
        found = await list_offsets(self._transport, {tp: LATEST}, self._settings.patience_ms)
        return found[tp].offset < wanted.end

    def _take_records(
        self, cursor: RangeCursor, wanted: OffsetRange, data: memoryview, result: pb.FetchPartitionResult
    ) -> FetchedPiece:
        try:
            views = [view for view in read_batches(data) if view.base_offset < wanted.end]
            broken = next((view for view in views if not view.crc_ok), None)
        except CorruptMessage:
            return self._take_old(cursor, wanted, data)
        if broken is not None:
            topic, partition = wanted.tp
            raise CorruptRecords(
                f"{topic}-{partition}: the batch at offset {broken.base_offset} came with a wrong checksum; "
                "check the log with muster log verify"
            )
        if views:
            cursor.position = max(cursor.position, views[-1].next_offset)
        drops = build_aborted_filter(result.aborted_transactions)
        kept = views if drops is None else [view for view in views if not drops(view)]
        return FetchedPiece(wanted, data, [view for view in kept if not view.control])

    def _take_old(self, cursor: RangeCursor, wanted: OffsetRange, data: memoryview) -> FetchedPiece:
        """Message sets of before record batches, or bytes that are neither: then this says which."""
        try:
            records = list(decode_records(data, wanted.start))
        except CorruptMessage as error:
            topic, partition = wanted.tp
            raise CorruptRecords(f"{topic}-{partition} cannot be read at offset {wanted.start}: {error}") from None
        if records:
            cursor.position = max(cursor.position, records[-1].offset + 1)
        return FetchedPiece(wanted, b"", (), [record for record in records if record.offset < wanted.end])

    async def _lost(self, cursor: RangeCursor, result: pb.FetchPartitionResult) -> None:
        """Records went away between planning and reading: fail, or go on behind them."""
        wanted = cursor.wanted
        start = await self._log_start(wanted) if result.error_code == OUT_OF_RANGE else wanted.end
        # A log that begins before this offset and does not hold it was cut off at its end: nothing is left to read.
        resume = min(start, wanted.end) if start > cursor.position else wanted.end
        loss = DataLoss(
            f"{wanted.topic}-{wanted.partition}: offsets {cursor.position} to {resume - 1} were to be read, "
            + ("but the topic is gone" if result.error_code == UNKNOWN_TOPIC else "but the log no longer holds them")
        )
        if self._settings.fail_on_data_loss:
            raise loss
        log.warning("%s", loss.brief)
        cursor.position = resume

    async def _log_start(self, wanted: OffsetRange) -> int:
        tp = TopicPartition(*wanted.tp)
        found = await list_offsets(self._transport, {tp: EARLIEST}, self._settings.patience_ms)
        return found[tp].offset
