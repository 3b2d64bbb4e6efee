"""What a client's batches must be before they may enter the log.

Header checks hold length, magic, checksum, count, codec and flags without touching a record, and refuse most
of what is wrong. What is in the records is for `muster.storage.records.look`.
"""

from crc32c import crc32c

from muster.storage.compression import CODECS
from muster.storage.config import TopicSettings
from muster.storage.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    StorageError,
    UnsupportedCompressionType,
)
from muster.storage.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchView,
    check_prefix,
)

# What a client may set: codec, timestamp type, transactional.
_CLIENT_BITS = CODEC_MASK | 0x08 | TRANSACTIONAL_BIT
_TRUSTED_BITS = _CLIENT_BITS | CONTROL_BIT | DELETE_HORIZON_BIT

Fields = tuple[int, ...]


def split_batches(view: memoryview, settings: TopicSettings, *, trusted: bool) -> list[tuple[Fields, memoryview]]:
    """The header fields and bytes of every batch in an append, each checked.

    CorruptMessage, MessageTooLarge, InvalidRecord or UnsupportedCompressionType name what is wrong.
    """
    batches: list[tuple[Fields, memoryview]] = []
    at, total = 0, len(view)
    unpack = HEADER.unpack_from
    bits = _TRUSTED_BITS if trusted else _CLIENT_BITS
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
            or (fields[9] >= 0 and (fields[10] < 0 or (fields[11] < 0 and not attributes & CONTROL_BIT)))
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


def check_timestamps(batches: list[tuple[Fields, memoryview]], settings: TopicSettings, now_ms: int) -> None:
    """InvalidTimestamp when a batch lies further from the clock than the topic allows."""
    oldest = now_ms - settings.message_timestamp_before_max_ms
    youngest = now_ms + settings.message_timestamp_after_max_ms
    for fields, _ in batches:
        base, largest = fields[7], fields[8]
        if largest > youngest or 0 <= largest < oldest:
            raise InvalidTimestamp(
                f"A batch has timestamps from {base} to {largest} ms while the clock is at {now_ms} ms; the topic "
                f"takes {oldest} to {youngest}. Correct the producer's clock, or the message.timestamp settings."
            )
