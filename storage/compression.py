"""Kafka's five codecs over library compressors, with a bound on what decompression may yield.

gzip has a standard-library fallback; snappy, lz4 and zstd need `cramjam`. Where `zstandard` is installed, small zstd
frames are unpacked by it. The output is what Kafka's own decoder accepts: snappy in xerial framing, lz4 frames of
independent blocks (Kafka refuses linked ones) without checksums, as its clients write them: the batch has its own.
"""

import importlib
import struct
import sys
import threading
import zlib
from contextlib import suppress
from functools import lru_cache
from typing import Any

from muster.storage.errors import CorruptMessage, UnsupportedCompressionType

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# A batch that unpacks to more than this is refused: a hundred bytes of zstd can hold megabytes of zeros.
MAX_DECOMPRESSED_BYTES = 256 << 20

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_BLOCK = 32 << 10
_SIZE = struct.Struct(">i")
_ZSTD_RLE = 2
"""Of a block's header: it is one byte, repeated."""
_ZSTD_CHECKSUM = 4
"""Of a frame's descriptor: a checksum follows the last block."""
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_BLOCK_SIZE = struct.Struct("<I")
_LZ4_PLAIN = 0x60
"""The flags of a frame of independent blocks without checksums or a content size."""
_LZ4_BLOCK_BYTES = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}
"""The most bytes that a block may unpack to, by the second byte of a frame's descriptor."""
_LZ4_WRITTEN = 0x40
_LZ4_RAW_BIT = 0x80000000
"""Of a block's size: the block is not compressed."""
_LZ4_END = bytes(4)
"""The mark behind the last block."""
_LZ4_BEST_RATIO = 256
"""No lz4 block unpacks to more bytes than so many times its own."""
_LZ4_HIGH_LEVEL = 3
"""From this level on lz4 searches longer."""
_ZSTD_SMALL = 64 << 10
"""Of larger zstd frames a decoder's making is too small a part to count."""
_SMALL = 4096
"""Of larger frames what is called around the library is too small a part to count."""
_SMALL_ROOM = 1024
"""What a small lz4 block is unpacked into first."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_BEST_RATIO = 1040
"""No deflate stream unpacks to more bytes than so many times its own (1,032, and what a header adds)."""


def codec_number(name: str) -> int:
    """Kafka's id of a codec; UnsupportedCompressionType names what is known."""
    if name not in CODECS:
        raise UnsupportedCompressionType(f"'{name}' is not a codec; known here: {', '.join(CODECS)}.")
    return CODECS.index(name)


def codec_name(number: int) -> str:
    if 0 <= number < len(CODECS):
        return CODECS[number]
    raise UnsupportedCompressionType(
        f"Compression codec {number} is unknown; known are 0 to {len(CODECS) - 1} ({', '.join(CODECS)})."
    )


def compress(codec: str, data: bytes, level: int | None = None) -> bytes:
    """The bytes as the codec's frame; `level` in the codec's own scale, None for its default."""
    match codec:
        case "none":
            return data
        case "gzip":
            packer = zlib.compressobj(6 if level is None else level, zlib.DEFLATED, 31)
            return packer.compress(data) + packer.flush()
        case "snappy":
            return _compress_snappy(data)
        case "lz4":
            return _compress_lz4(data, 1 if level is None else level)
        case "zstd":
            return bytes(_cramjam(codec).zstd.compress(data, 3 if level is None else level))
    raise UnsupportedCompressionType(f"'{codec}' is not a codec; known here: {', '.join(CODECS)}.")


def decompress(codec: str, data: bytes | memoryview, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Undo `compress`; CorruptMessage when the bytes are no such frame or would exceed `limit` bytes."""
    if codec == "none":
        return bytes(data)
    if codec == "gzip":
        return _decompress_gzip(data, limit)
    library = _cramjam(codec)
    try:
        if codec == "snappy":
            return _decompress_snappy(library, data, limit)
        if codec == "lz4":
            return _decompress_lz4(library, bytes(data), limit)
        return _decompress_zstd(library, bytes(data), limit)
    except library.DecompressionError as error:
        raise CorruptMessage(f"{len(data)} bytes are no {codec} frame: {error}.") from None


def _cramjam(codec: str) -> Any:
    if (loaded := sys.modules.get("cramjam")) is not None:
        return loaded
    try:
        return importlib.import_module("cramjam")
    except ImportError:
        raise UnsupportedCompressionType(
            f"Codec '{codec}' needs the package cramjam, which is not installed. Install it, or use gzip or none."
        ) from None


def _too_large(codec: str, limit: int) -> CorruptMessage:
    return CorruptMessage(f"A {codec} batch unpacks to more than the {limit} bytes allowed.")


def _decompress_gzip(data: bytes | memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    rest: bytes = bytes(data)
    if len(rest) <= _SMALL and len(rest) * _GZIP_BEST_RATIO <= limit and rest.find(_GZIP_MAGIC, 1) < 0:
        try:
            return zlib.decompress(rest, 31, _SMALL_ROOM)
        except zlib.error:
            pass  # it is told below
    size = 0
    while rest:
        unpacker = zlib.decompressobj(31)
        try:
            part = unpacker.decompress(rest, limit - size + 1)
        except zlib.error as error:
            if parts:
                break  # Kafka's reader also ignores what follows a whole stream.
            raise CorruptMessage(f"{len(data)} bytes are no gzip stream: {error}.") from None
        size += len(part)
        if size > limit:
            raise _too_large("gzip", limit)
        if not unpacker.eof:
            raise CorruptMessage(f"A gzip stream of {len(data)} bytes ends too early.")
        parts.append(part)
        rest = unpacker.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _into_bounded(library: Any, codec: str, data: bytes | memoryview, limit: int) -> bytes:
    """Decompress a frame into a buffer that grows by fours up to the limit, never past it."""
    codec_module = getattr(library, codec)
    room = min(limit, max(4096, len(data) * 8))
    while True:
        buffer = bytearray(room)
        try:
            written = codec_module.decompress_into(bytes(data), buffer)
        except library.DecompressionError as error:
            if room < limit and _is_full(error):
                room = min(limit, room * 4)
                continue
            if _is_full(error):
                raise _too_large(codec, limit) from None
            raise
        return bytes(memoryview(buffer)[:written])


class ZstdDecoder(threading.local):
    """What unpacks, by a decoder that each thread keeps; None where `zstandard` is not installed."""

    def __init__(self) -> None:
        self.decompress: Any = None
        self.content_size: Any = None
        self.header_size: Any = None
        self.error: type[Exception] = Exception
        with suppress(ImportError):
            library = importlib.import_module("zstandard")
            self.decompress = library.ZstdDecompressor().decompress
            self.content_size, self.header_size = library.frame_content_size, library.frame_header_size
            self.error = library.ZstdError


@lru_cache(maxsize=1)
def _zstd_decoder() -> ZstdDecoder:
    return ZstdDecoder()


def _decompress_zstd(library: Any, frame: bytes, limit: int) -> bytes:
    """Frames one after the other, as Java's reader takes them.

    `cramjam` makes a decoder for each, which takes 19 us. A single small frame is unpacked by a decoder that its thread
    keeps; what that refuses is left to `cramjam`, which tells why.
    """
    if len(frame) <= _ZSTD_SMALL and (kept := _zstd_decoder()).decompress is not None:
        try:
            size = kept.content_size(frame)  # -1: the frame does not tell
            if size and size <= limit and _zstd_end(frame, kept.header_size(frame)) == len(frame):
                unpacked: bytes = kept.decompress(frame, min(limit, max(_SMALL, len(frame) * 8)))
                return unpacked
        except kept.error:
            pass  # the other library tells it
    return _into_bounded(library, "zstd", frame, limit)


def _zstd_end(frame: bytes, at: int) -> int:
    """Where the first frame ends, whose blocks begin at that byte; behind the bytes where it is cut off (RFC 8878)."""
    block = int.from_bytes(frame[at : at + 3], "little")
    if block & 1 and block & 6 != _ZSTD_RLE and not frame[4] & _ZSTD_CHECKSUM:
        return at + 3 + (block >> 3)
    last = 0
    while not last and at + 3 <= len(frame):
        block = int.from_bytes(frame[at : at + 3], "little")
        last, repeated = block & 1, block & 6 == _ZSTD_RLE
        at += 3 + (1 if repeated else block >> 3)
    return at + (4 if frame[4] & _ZSTD_CHECKSUM else 0) if last else len(frame) + 1


def _is_full(error: Exception) -> bool:
    text = str(error).lower()
    return "write whole buffer" in text or "too small" in text or "writezero" in text


def _compress_lz4(data: bytes, level: int) -> bytes:
    pack = _cramjam("lz4").lz4.compress_block
    how = {"mode": "high_compression", "compression": level} if level >= _LZ4_HIGH_LEVEL else {}
    head = bytes((_LZ4_PLAIN, _LZ4_WRITTEN))
    parts = [_LZ4_MAGIC, head, bytes((_header_checksum(head),))]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES[_LZ4_WRITTEN]):
        plain = data[start : start + _LZ4_BLOCK_BYTES[_LZ4_WRITTEN]]
        packed = bytes(pack(plain, store_size=False, **how))
        if len(packed) < len(plain):
            parts += (_BLOCK_SIZE.pack(len(packed)), packed)
        else:
            parts += (_BLOCK_SIZE.pack(len(plain) | _LZ4_RAW_BIT), plain)
    return b"".join((*parts, _BLOCK_SIZE.pack(0)))


def _decompress_lz4(library: Any, frame: bytes, limit: int) -> bytes:
    """The first frame: Kafka ignores what follows it, the library does not.

    The library takes 6 us for a frame however small it is. One without checksums of its content, as Kafka's clients
    write, is unpacked block by block, which takes less than a third of that.
    """
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        raise CorruptMessage(f"{len(frame)} bytes are no lz4 frame: expected them to start with 04 22 4d 18.")
    flags, block_bytes = frame[4], _LZ4_BLOCK_BYTES.get(frame[5])
    if flags != _LZ4_PLAIN or block_bytes is None or frame[6] != _header_checksum(frame[4:6]):
        return _into_bounded(library, "lz4", lz4_frame(frame), limit)
    total = len(frame)
    if total <= _SMALL and limit >= _SMALL_ROOM and frame.endswith(_LZ4_END):
        (block,) = _BLOCK_SIZE.unpack_from(frame, 7)
        if block == total - 15:  # it is the only one
            room = bytearray(_SMALL_ROOM)
            try:
                return bytes(room[: library.lz4.decompress_block_into(frame[11:-4], room)])
            except library.DecompressionError:
                pass  # it is told below
    parts: list[bytes | memoryview] = []
    at, size = 7, 0
    while True:
        (block,) = _BLOCK_SIZE.unpack_from(frame, at) if at + 4 <= total else (total,)
        begin, length = at + 4, block & ~_LZ4_RAW_BIT
        at = begin + length
        if at > total:
            raise CorruptMessage(f"An lz4 frame of {total} bytes ends too early.")
        if not block:
            break
        if block & _LZ4_RAW_BIT:
            part: bytes | memoryview = frame[begin:at]
        else:
            room = bytearray(min(block_bytes, length * _LZ4_BEST_RATIO))
            written = library.lz4.decompress_block_into(frame[begin:at], room)
            part = memoryview(room)[:written]
        size += len(part)
        if size > limit:
            raise _too_large("lz4", limit)
        parts.append(part)
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def lz4_frame(frame: bytes) -> bytes:
    """The first frame in these bytes, with its header's checksum put right if that is of Kafka before 0.10 (KIP-57),
    which took it over the magic as well."""
    flags = frame[4]
    checksum_at = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    at = checksum_at + 1
    while True:
        (block,) = _BLOCK_SIZE.unpack_from(frame, at) if at + 4 <= len(frame) else (-1,)
        if block < 0:
            raise CorruptMessage(f"An lz4 frame of {len(frame)} bytes ends too early.")
        at += 4
        if block == 0:
            break
        at += (block & ~_LZ4_RAW_BIT) + (4 if flags & 0x10 else 0)
    at += 4 if flags & 0x04 else 0
    right = _header_checksum(frame[4:checksum_at])
    if frame[checksum_at] != right and frame[checksum_at] == _header_checksum(frame[:checksum_at]):
        return b"".join((frame[:checksum_at], bytes((right,)), frame[checksum_at + 1 : at]))
    return frame[:at]


@lru_cache(maxsize=256)
def _header_checksum(head: bytes) -> int:
    """Few different headers are ever written."""
    return (xxh32(head) >> 8) & 0xFF


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0, of the few bytes of a frame header."""
    mask = 0xFFFFFFFF
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    total, at = len(data), 0
    value = prime5
    if total >= 16:
        lanes = [(prime1 + prime2) & mask, prime2, 0, (-prime1) & mask]
        while at + 16 <= total:
            for place in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[place] = _rotated((lanes[place] + word * prime2) & mask, 13) * prime1 & mask
                at += 4
        value = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    value = (value + total) & mask
    while at + 4 <= total:
        word = int.from_bytes(data[at : at + 4], "little")
        value = _rotated((value + word * prime3) & mask, 17) * prime4 & mask
        at += 4
    for byte in data[at:]:
        value = _rotated((value + byte * prime5) & mask, 11) * prime1 & mask
    value = (value ^ (value >> 15)) * prime2 & mask
    value = (value ^ (value >> 13)) * prime3 & mask
    return value ^ (value >> 16)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF


def _compress_snappy(data: bytes) -> bytes:
    raw = _cramjam("snappy").snappy
    parts = [_XERIAL_MAGIC, _SIZE.pack(1), _SIZE.pack(1)]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(raw.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(library: Any, data: bytes | memoryview, limit: int) -> bytes:
    """Kafka reads xerial framing of any block size, several streams in a row, and raw snappy."""
    whole = bytes(data)
    if not whole.startswith(_XERIAL_MAGIC):
        return _raw_snappy(library, whole, limit, limit)
    if len(whole) <= _SMALL and whole[16:20] == _SIZE.pack(len(whole) - 20):  # a single block
        return _raw_snappy(library, whole[20:], limit, limit)
    parts: list[bytes] = []
    at = 16
    size = 0
    while at + 4 <= len(whole):
        if whole.startswith(_XERIAL_MAGIC, at):
            at += 16
            continue
        (length,) = _SIZE.unpack_from(whole, at)
        at += 4
        if length < 0 or at + length > len(whole):
            raise CorruptMessage(f"A snappy block claims {length} bytes where {len(whole) - at} are left.")
        parts.append(_raw_snappy(library, whole[at : at + length], limit - size, limit))
        size += len(parts[-1])
        at += length
    return b"".join(parts)


def _raw_snappy(library: Any, block: bytes, room: int, limit: int) -> bytes:
    claimed = _snappy_length(block)
    if claimed > room:
        raise _too_large("snappy", limit)
    return bytes(library.snappy.decompress_raw(block))


def _snappy_length(block: bytes) -> int:
    """A raw snappy block starts with its unpacked length as an unsigned varint."""
    if block and block[0] < 0x80:
        return block[0]
    length = 0
    for place, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return length
    raise CorruptMessage(f"A snappy block of {len(block)} bytes does not start with its length.")
