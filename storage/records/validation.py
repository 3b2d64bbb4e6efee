"""What a client's batches must be before they may enter the log.

Header checks hold length, magic, checksum, count, codec and flags without touching a record, and refuse most of what is
wrong. Then records are looked into: garbage under the flag of gzip, five records announced over two, or a few kilobytes
that unpack to gigabytes would stop every reader at that offset for good. Compressed batches are unpacked within a
bound, records are walked, and no object is made of any.

Many records are checked together where possible: one short loop finds where each begins, arrays check all that lies
between. That knows the shapes that nearly all batches have (lengths of one or two bytes, no headers, keys for all or
for none); everything else, sound or not, is left to the walk from record to record, whose verdict counts.

Batches framed like an earlier one need not be walked. Producers whose values have one length send batch after batch of
one kind. Of the first is kept which of its bits say where keys and values lie; another batch with the same bits there
is as sound as the first.
"""

import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from muster.storage.compression import CODECS, codec_name, decompress
from muster.storage.config import TopicSettings
from muster.storage.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    StorageError,
    UnsupportedCompressionType,
)
from muster.storage.files import Buffer
from muster.storage.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    SMALLEST_RECORD,
    TRANSACTIONAL_BIT,
    BatchView,
    check_prefix,
    decode_headers,
    read_unsigned,
)
from muster.storage.records.columns import Bytes, Numbers, read_varints, record_bounds
from muster.storage.settings_text import MAX_LONG
from muster.storage.types import AppendOrigin

# Headers
# -------

# What a client may set: codec, timestamp type, transactional.
_CLIENT_BITS = CODEC_MASK | 0x08 | TRANSACTIONAL_BIT
_OWN_BITS = _CLIENT_BITS | CONTROL_BIT | DELETE_HORIZON_BIT

Fields = tuple[int, ...]
# To ask an enumeration for a member takes longer than to compare.
_CLIENT = AppendOrigin.CLIENT


def split_batches(
    view: memoryview, settings: TopicSettings, origin: AppendOrigin = AppendOrigin.CLIENT
) -> list[tuple[Fields, memoryview]]:
    """The header fields and bytes of every batch in an append, each checked. A client's producer numbers its batches.

    CorruptMessage, MessageTooLarge, InvalidRecord or UnsupportedCompressionType name what is wrong.
    """
    batches: list[tuple[Fields, memoryview]] = []
    at, total = 0, len(view)
    unpack = HEADER.unpack_from
    numbered = origin is _CLIENT
    bits = _CLIENT_BITS if numbered else _OWN_BITS
    while at < total:
        if total - at < HEADER_SIZE:
            raise _cut_short(view, at)
        fields = unpack(view, at)
        size = fields[1] + LENGTH_OVERHEAD
        if fields[3] != MAGIC or size < HEADER_SIZE or size > total - at:
            raise _cut_short(view, at)
        batch = view[at : at + size]
        attributes = fields[5]
        if (
            size > settings.max_message_bytes
            or crc32c(batch[ATTRIBUTES_AT:]) != fields[4]
            or fields[12] != fields[6] + 1
            or fields[12] <= 0
            or attributes & ~bits
            or attributes & CODEC_MASK >= len(CODECS)
            or (fields[9] >= 0 and (fields[10] < 0 or (fields[11] < 0 and numbered)))
            or (fields[9] < 0 and attributes & TRANSACTIONAL_BIT)
        ):
            raise _refusal(BatchView._make((*fields, at, batch)), settings, bits)
        batches.append((fields, batch))
        at += size
    if not batches:
        raise CorruptMessage("An append of 0 bytes holds no record batch; expected one or more.")
    return batches


def _cut_short(view: memoryview, at: int) -> StorageError:
    if len(view) - at > 16 and view[at + 16] in (0, 1) and len(view) - at >= 26:
        return InvalidRecord(
            f"The bytes at {at} are a message set of magic {view[at + 16]}; this log takes record batches of "
            f"magic {MAGIC} only. Use a client of Kafka 0.11 or later."
        )
    try:
        check_prefix(view, at, at)
    except CorruptMessage as error:
        return error
    return CorruptMessage(f"The batch at byte {at} reaches past the {len(view)} bytes that were sent.")


def _refusal(batch: BatchView, settings: TopicSettings, bits: int) -> StorageError:
    """The reason for which `split_batches` stopped, in words."""
    where = f"The batch at byte {batch.position}"
    if batch.size > settings.max_message_bytes:
        return RecordBatchTooLarge(
            f"{where} has {batch.size} bytes, the topic takes {settings.max_message_bytes} "
            "(max.message.bytes). Send smaller batches or raise the limit."
        )
    if not batch.crc_ok:
        return CorruptMessage(f"{where} carries checksum {batch.crc}, but its bytes give another. Send it again.")
    if batch.count != batch.last_offset_delta + 1 or batch.count <= 0:
        return InvalidRecord(
            f"{where} claims {batch.count} records and last offset delta {batch.last_offset_delta}; "
            "expected one or more records numbered from 0."
        )
    if batch.attributes & CODEC_MASK >= len(CODECS):
        return UnsupportedCompressionType(
            f"{where} has compression codec {batch.attributes & CODEC_MASK}; known are 0 to 4 ({', '.join(CODECS)})."
        )
    if batch.attributes & ~bits:
        return InvalidRecord(
            f"{where} sets attribute bits {batch.attributes & ~bits:#x}, which a client may not set "
            "(control, delete horizon or reserved)."
        )
    return InvalidRecord(
        f"{where} names producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}; "
        "expected all three to be given, or none and no transaction."
    )


class TimestampRange(NamedTuple):
    """The timestamps in ms that a topic takes, both included (`message.timestamp.before.max.ms` and `after.max.ms`)."""

    oldest: int
    youngest: int

    def __str__(self) -> str:
        """In words; a side without a bound is left out."""
        if self.oldest <= 0:
            return f"{self.youngest} at most"
        return f"{self.oldest} at least" if self.youngest > MAX_LONG else f"{self.oldest} to {self.youngest}"

    def refuses(self, timestamp_ms: int) -> bool:
        return timestamp_ms > self.youngest or 0 <= timestamp_ms < self.oldest


def timestamp_range(settings: TopicSettings, now_ms: int) -> TimestampRange | None:
    """None: the topic takes any, as the log stamps records with its own time (`LogAppendTime`, as in Kafka)."""
    if settings.message_timestamp_type == "LogAppendTime":
        return None
    return TimestampRange(
        now_ms - settings.message_timestamp_before_max_ms, now_ms + settings.message_timestamp_after_max_ms
    )


def check_timestamps(batches: list[tuple[Fields, memoryview]], settings: TopicSettings, now_ms: int) -> None:
    """InvalidTimestamp when a batch lies further from the clock than the topic allows."""
    taken = timestamp_range(settings, now_ms)
    if taken is None:
        return
    for fields, _ in batches:
        base, largest = fields[7], fields[8]
        if taken.refuses(largest):
            raise InvalidTimestamp(
                f"A batch has timestamps from {base} to {largest} ms while the clock is at {now_ms} ms; the topic "
                f"takes {taken}. Correct the producer's clock, or the message.timestamp settings."
            )


# Records, many together
# ----------------------

MOST_RECORDS = 1 << 14
"""So many are looked into together: tables are kept of what their offset deltas look like."""


class WalkedRecords(NamedTuple):
    """What there is to know of a batch's records besides that they can be read."""

    farthest: int
    """A zigzag number that no timestamp's exceeds: none lies further than half of it from the base timestamp."""
    keyless: int
    """The place of the first record without a key; -1 when all have one."""


# Added to a place it leads out of every batch, so that the next access is an IndexError.
_NOWHERE = 1 << 40

# The bytes from a record's length to the next record, by the first byte of the length and by the second if it has one.
_BY_FIRST = [(byte >> 1) + 1 if byte < 0x80 else (byte - 0x80 >> 1) + 2 for byte in range(256)]
_BY_SECOND = [byte << 6 if byte < 0x80 else _NOWHERE for byte in range(256)]

_firsts = np.arange(256)
# From a record's length to its timestamp, by the first byte of the length. Odd lengths are negative.
_TO_STAMP = np.where(_firsts & 1, _NOWHERE, np.where(_firsts < 0x80, 2, 3))


def _by_pair() -> tuple[Numbers, Numbers, Numbers]:
    """By two bytes, the first one the lower, of the varint that they begin, if it has no more than two of them:

    its bits; its bytes; its bytes with those whose number it says, as before keys and values. Odd ones say of these
    that there are none.
    """
    pair = np.arange(1 << 16)
    two = pair & 0x80 != 0
    short = ~two | (pair & 0x8000 == 0)
    zigzag = pair & 0x7F | np.where(two, pair >> 8 << 7, 0)
    wide = 1 + two
    field = np.where(short & (zigzag & 1 == 0), wide + (zigzag >> 1), _NOWHERE)
    return wide << 3, np.where(short, wide, _NOWHERE), field


_STAMP_BITS, _STAMP_BYTES, _FIELD_BYTES = _by_pair()

_FARTHEST = (1 << 14) - 1
_PADDING = bytes(16)
_WORD = np.dtype("<i8")
# As arrays, which numpy takes in half the time that it takes plain numbers in.
_ONE = np.array(1)
_PAIR = np.array(0xFFFF)


class _Deltas(NamedTuple):
    """The offset deltas of records 0, 1, 2 and so on, as they stand in a word of 64 bits."""

    word: Numbers
    mask: Numbers
    bits: Numbers
    bytes: Numbers

    @classmethod
    def alone(cls) -> "_Deltas":
        zigzag = np.arange(MOST_RECORDS) << 1
        two, three = zigzag >= 0x80, zigzag >= 0x4000
        word = zigzag & 0x7F | two << 7 | (zigzag >> 7 & 0x7F | three << 7) << 8 | zigzag >> 14 << 16
        wide = 1 + two + three
        return cls(word, (1 << 8 * wide) - 1, 8 * wide, wide)

    def without_key(self) -> "_Deltas":
        """With the byte behind them that says that there is no key."""
        return _Deltas(self.word | 1 << self.bits, self.mask << 8 | 0xFF, self.bits + 8, self.bytes + 1)


_BEFORE_KEY = _Deltas.alone()
_NO_KEY = _BEFORE_KEY.without_key()


def check_records_together(body: bytes, count: int) -> WalkedRecords | None:
    """Whether `body` is `count` records, up to MOST_RECORDS; None for whatever takes a closer look.

    A fast path; the general way looks at one record after the other. tests/property/storage/test_looks_agree.py holds
    both together.
    """
    # With headers the last byte is hardly ever 0: that is seen before all is walked for nothing.
    heads = None if body[-1] else _heads(body, count)
    if heads is None:
        return None
    padded = b"".join((body, _PADDING))
    raw = np.frombuffer(padded, np.uint8)
    words: npt.NDArray[np.int64] = np.ndarray((len(body) + 8,), _WORD, padded, 0, (1,))
    bounds = np.fromiter(heads, np.int64, count + 1)
    try:
        # Each record's place that is looked at next: it begins with the timestamps, and ends with the header counts.
        at = bounds[:-1] + _TO_STAMP[raw[bounds[:-1]]]
        word = words[at]
        stamp = word & _PAIR
        word >>= _STAMP_BITS[stamp]
        at += _STAMP_BYTES[stamp]
        keyless = int(word[0]) & 0xFFFF == _NO_KEY.word[0]
        deltas = _NO_KEY if keyless else _BEFORE_KEY
        wrong = (word ^ deltas.word[:count]) & deltas.mask[:count]
        word >>= deltas.bits[:count]
        at += deltas.bytes[:count]
        if not keyless:
            at += _FIELD_BYTES[word & _PAIR]
            word = words[at]
        at += _FIELD_BYTES[word & _PAIR]
        wrong |= raw[at]
    except IndexError:
        return None
    at += _ONE
    wrong |= at ^ bounds[1:]
    return None if np.count_nonzero(wrong) else WalkedRecords(_FARTHEST, 0 if keyless else -1)


def _heads(body: bytes, count: int) -> list[int] | None:
    """Where each record's length lies, and the end; None where they do not end with the body."""
    at = 0
    heads: list[int] = []
    add = heads.append
    try:
        for _ in range(count):
            add(at)
            first = body[at]
            at += _BY_FIRST[first] if first < 0x80 else _BY_FIRST[first] + _BY_SECOND[body[at + 1]]
    except IndexError:
        return None
    add(at)
    return heads if at == len(body) else None


# Records, one by one
# -------------------

AT_ONCE_BYTES = 64 << 10
AT_ONCE_RECORDS = 512
"""What is larger, or compressed, is looked into in a thread, where there is a loop to be held up."""

MOST_TOLD = 100
"""So many records of a batch are told of one by one when they are refused."""

# Of fewer records arrays cost more than they save.
_ARRAYS_FROM = 48

# After so many records a thread that walks lets others have their turn.
_STRETCH = 1000

# A batch may unpack to this much, or to so many times its size where that is more, and never to more than the setting.
_ALWAYS_BYTES = 16 << 20
_RATIO = 100


# Of `batch.HEADER`: length, attributes and count.
_glance = struct.Struct(">8xi9xh34xi").unpack_from


def needs_thread(batches: Buffer, settings: TopicSettings) -> bool:
    """Whether the look at an append takes so long that a loop should leave it to a thread."""
    if not validates_records(settings):
        return False
    size = len(batches)
    if size > AT_ONCE_BYTES:
        return True
    if size < HEADER_SIZE:
        return False  # Refused by its header.
    length, attributes, count = _glance(batches)
    return bool(attributes & CODEC_MASK) or count > AT_ONCE_RECORDS or length + LENGTH_OVERHEAD < size


def validates_records(settings: TopicSettings) -> bool:
    """Whether batches for the topic are looked into at all. A compacted log has to know that each record has a key."""
    return settings.validate_records == "full" or settings.compacted


def check_records(batches: list[tuple[Fields, memoryview]], settings: TopicSettings, now_ms: int) -> None:
    """InvalidRecord for a batch whose records cannot be read or lack a key they need; InvalidTimestamp."""
    taken = timestamp_range(settings, now_ms)
    for fields, data in batches:
        body = unpack_records(fields, data, settings)
        seen = check_body(body, fields[12])
        if seen.keyless >= 0 and settings.compacted:
            _refuse_keyless(fields, data)
        reach = (seen.farthest + 1) >> 1
        if taken and (fields[7] + reach > taken.youngest or (taken.oldest > 0 and fields[7] - reach < taken.oldest)):
            _check_each_timestamp(fields, data, taken)


def unpack_records(fields: Fields, data: memoryview, settings: TopicSettings) -> bytes:
    """The records of a batch; InvalidRecord where the codec cannot make sense of them, or makes too many."""
    codec, packed = codec_name(fields[5] & CODEC_MASK), data[HEADER_SIZE:]
    if codec == "none":
        return bytes(packed)
    limit = min(settings.max_unpacked_bytes, max(_ALWAYS_BYTES, _RATIO * len(packed)))
    try:
        return decompress(codec, packed, limit)
    except CorruptMessage as error:
        raise InvalidRecord(f"The records of a batch cannot be unpacked: {error}") from None


def check_body(body: bytes, count: int) -> WalkedRecords:
    """Whether `body` is `count` records, numbered from 0, and nothing else; InvalidRecord where it is not."""
    if not 0 <= count <= len(body) // SMALLEST_RECORD:
        raise InvalidRecord(
            f"A batch claims {count} records in {len(body)} bytes; each takes {SMALLEST_RECORD} at least."
        )
    seen = check_records_together(body, count) if _ARRAYS_FROM <= count <= MOST_RECORDS else None
    return seen or check_each_record(body, count)


def check_each_record(body: bytes, count: int) -> WalkedRecords:
    """`check_body`, one record after the other: what it says of a batch is what counts."""
    at = farthest = place = 0
    keyless = -1
    try:
        while place < count:
            until = min(place + _STRETCH, count)
            at, farther, without = walk_records(body, at, place, until)
            farthest = max(farthest, farther)
            keyless = without if keyless < 0 else keyless
            place = until
            if place < count:
                time.sleep(0)
    except IndexError:
        raise InvalidRecord("A batch ends in the middle of a record.") from None
    except CorruptMessage as error:
        raise InvalidRecord(str(error)) from None
    if at != len(body):
        raise InvalidRecord(f"A batch has {len(body) - at} bytes behind its {count} records.")
    return WalkedRecords(farthest, keyless)


# One flat loop: a call per field would double the time that a record takes.
def walk_records(body: bytes, at: int, first: int, until: int) -> tuple[int, int, int]:  # noqa: PLR0912, PLR0915
    """Walk records `first` to `until`: where they end, the farthest timestamp, the first without a key (or -1)."""
    farthest, keyless = 0, -1
    total = len(body)
    for number in range(first << 1, until << 1, 2):
        size = body[at]
        at += 1
        if size >= 0x80:
            byte = body[at]
            if byte < 0x80:
                size = size & 0x7F | byte << 7
                at += 1
            else:
                size, at = read_unsigned(body, at - 1)
        end = at + (size >> 1)
        if size & 1 or end > total:
            raise CorruptMessage(
                f"Record {number >> 1} of a batch claims more bytes than the {total - at} that are left."
            )
        at += 2  # attributes, which are unused, and the first byte of the timestamp
        stamp = body[at - 1]
        if stamp >= 0x80:
            byte = body[at]
            if byte < 0x80:
                stamp = stamp & 0x7F | byte << 7
                at += 1
            else:
                stamp, at = read_unsigned(body, at - 1, 10)
        if stamp > farthest:
            farthest = stamp
        delta = body[at]
        at += 1
        if delta >= 0x80:
            byte = body[at]
            if byte < 0x80:
                delta = delta & 0x7F | byte << 7
                at += 1
            else:
                delta, at = read_unsigned(body, at - 1)
        if delta != number:
            raise _misnumbered(number >> 1, (delta >> 1) ^ -(delta & 1))
        size = body[at]
        at += 1
        if size >= 0x80:
            size, at = read_unsigned(body, at - 1)
        if not size & 1:
            at += size >> 1
        elif keyless < 0:
            keyless = number >> 1
        size = body[at]
        at += 1
        if size >= 0x80:
            byte = body[at]
            if byte < 0x80:
                size = size & 0x7F | byte << 7
                at += 1
            else:
                size, at = read_unsigned(body, at - 1)
        if not size & 1:
            at += size >> 1
        if body[at]:
            _, at = decode_headers(body, at, end)
        else:
            at += 1
        if at != end:
            raise CorruptMessage(f"Record {number >> 1} of a batch has a length that is off by {end - at} bytes.")
    return at, farthest, keyless


def _misnumbered(place: int, delta: int) -> InvalidRecord:
    why = f"Record {place} of a batch has offset delta {delta}; expected {place}."
    return InvalidRecord(why, record_errors=((place, why),))


# -- refusals in words: only what is refused is decoded ------------------------------------------------------


def _refuse_keyless(fields: Fields, data: memoryview) -> None:
    batch = BatchView._make((*fields, 0, data))
    why = "has no key; a compacted topic needs one."
    told = [
        (place, f"Record {place} of a batch {why}") for place, found in enumerate(batch.records()) if found.key is None
    ]
    raise InvalidRecord(told[0][1], record_errors=tuple(told[:MOST_TOLD]))


def _check_each_timestamp(fields: Fields, data: memoryview, taken: TimestampRange) -> None:
    batch = BatchView._make((*fields, 0, data))
    told = [
        (place, f"Record {place} of a batch has timestamp {found.timestamp_ms}; expected {taken}.")
        for place, found in enumerate(batch.records())
        if taken.refuses(found.timestamp_ms)
    ]
    if told:
        raise InvalidTimestamp(told[0][1], record_errors=tuple(told[:MOST_TOLD]))


# Batches framed like an earlier one
# ----------------------------------

_FEWEST = 8
"""Records that are walked as quickly as they are compared."""

MOST_KNOWN = 64
MOST_KINDS = 8
"""So many sizes and kinds of batches are kept: of 64 KB at most, and once or twice that in memory."""

_MOST_MISSED = 1024
_CONTINUES = 0x80
_BYTE = np.dtype(np.uint8)
_from = np.frombuffer
_and = np.bitwise_and


class Framing(NamedTuple):
    """What the bodies of one size, with so many records, must have in common: their bits under a mask.

    All of a body goes through the mask: in one sweep that is cheaper than to pick the few bytes that count.
    """

    mask: Bytes
    expected: bytearray
    reach_ms: int
    """No timestamp written in so many bytes lies further from the base timestamp."""
    room: Bytes
    """Where the masked bytes go."""


class FramingKind(NamedTuple):
    """Bodies framed alike, from the one that was met: the bits of it that say where its records' fields lie."""

    records: int
    mask: Bytes
    expected: Bytes
    ends: Sequence[int]
    """Where each record ends."""
    reach_ms: int

    def framing(self, count: int, room: Bytes) -> Framing:
        """That of a body with the first `count` of its records."""
        size = self.ends[count - 1]
        return Framing(self.mask[:size], bytearray(self.expected[:size]), self.reach_ms, room[:size])


class Framings:
    """Those met lately, by the size of the body and the number of records. Used by the appending thread alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Framing] = {}
        self._kinds: list[FramingKind] = []
        self._room = np.empty(AT_ONCE_BYTES, np.uint8)
        # By size, count and the length of the first record: where values differ in length that seldom comes twice.
        self._missed: dict[tuple[int, int, bytes], int] = {}
        self.walked = 0
        """Records that had to be walked, so far."""

    def sound(self, view: memoryview, count: int, past_ms: int, future_ms: int) -> bool:
        """Whether all records of an uncompressed batch can be read and none is further than this from its base time.

        False also where only a closer look can tell.
        """
        if count < _FEWEST:
            return self._few_sound(bytes(view[HEADER_SIZE:]), count, past_ms, future_ms)
        size = len(view) - HEADER_SIZE
        known = self._known.get((size, count)) or self._begun(size, count)
        if known is not None:
            mask, expected, reach_ms, room = known
            # In this order: the comparison is the bytearray's, in one go and without another copy.
            if expected == _and(_from(view, _BYTE, -1, HEADER_SIZE), mask, room):
                return past_ms >= reach_ms <= future_ms
        body = bytes(view[HEADER_SIZE:])
        self.walked += count
        try:
            reach_ms = (check_body(body, count).farthest + 1) >> 1
        except InvalidRecord:
            return False
        if size <= AT_ONCE_BYTES:
            self._note_miss(body, count)
        return reach_ms <= past_ms and reach_ms <= future_ms

    def _few_sound(self, body: bytes, count: int, past_ms: int, future_ms: int) -> bool:
        """As `sound`, without what only pays for many records."""
        self.walked += count
        try:
            end, farthest, _ = walk_records(body, 0, 0, count)
        except (IndexError, CorruptMessage, InvalidRecord):
            return False
        return end == len(body) and past_ms >= (farthest + 1) >> 1 <= future_ms

    def _begun(self, size: int, count: int) -> Framing | None:
        for kind in self._kinds:
            if kind.records > count > 0 and kind.ends[count - 1] == size:
                return self._keep(size, count, kind)
        return None

    def _note_miss(self, body: bytes, count: int) -> None:
        """Learn a kind when it comes a second time, and more and more seldom if it turns out to be many kinds."""
        place = len(body), count, body[:2]
        if len(self._missed) >= _MOST_MISSED:
            self._missed.clear()
        misses = self._missed[place] = self._missed.get(place, 0) + 1
        if misses == 1 or misses & (misses - 1):
            return
        kind = kind_of(body, count)
        if kind is not None:
            self._keep(len(body), count, kind)
            self._kinds = [kind, *self._kinds][:MOST_KINDS]

    def _keep(self, size: int, count: int, kind: FramingKind) -> Framing:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        framing = self._known[size, count] = kind.framing(count, self._room)
        return framing


def kind_of(body: bytes, count: int) -> FramingKind | None:
    """The kind of a sound body; None where there are headers, whose places differ in more than that."""
    raw = np.frombuffer(body, np.uint8)
    batch = BatchView(0, 0, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count, 0, memoryview(b""))
    starts, ends = record_bounds(body, raw, (batch,), ((0, len(body)),))
    deltas_at = read_varints(raw, starts + 1)[1]
    key_lengths, keys_at = read_varints(raw, read_varints(raw, deltas_at)[1])
    value_lengths, values_at = read_varints(raw, keys_at + np.maximum(key_lengths, 0))
    if (values_at + np.maximum(value_lengths, 0) + 1 != ends).any():
        return None
    mask = np.full(len(body), 0xFF, np.uint8)
    mask[starts] = 0  # Attributes are unused.
    for start, end in zip((starts + 1).tolist(), deltas_at.tolist(), strict=True):
        mask[start:end] = _CONTINUES
    for at, lengths in ((keys_at, key_lengths), (values_at, value_lengths)):
        for start, length in zip(at.tolist(), lengths.tolist(), strict=True):
            mask[start : start + max(length, 0)] = 0
    widest = int((deltas_at - starts).max()) - 1
    return FramingKind(count, mask, raw & mask, ends.tolist(), 1 << (7 * widest - 1))
