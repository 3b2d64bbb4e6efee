"""Every codec both ways, what Kafka's own readers demand of us, and bounds on what may come out."""

import struct
import zlib
from types import SimpleNamespace

import cramjam
import pytest

from muster.storage import compression
from muster.storage.compression import CODECS, compress, decompress, xxh32
from muster.storage.errors import CorruptMessage, UnsupportedCompressionType
from muster.storage.records.batch import encode_batch, read_batches

DATA = b"".join(b'{"user": %d, "page": "/home"}' % number for number in range(5000))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", DATA, bytes(300_000)])
def test_what_goes_in_comes_out(codec: str, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused_before_it_goes_off(codec: str) -> None:
    bomb = compress(codec, bytes(3_000_000))
    assert decompress(codec, bomb, 3_000_000) == bytes(3_000_000)
    with pytest.raises(CorruptMessage, match="more than the 2999999 bytes"):
        decompress(codec, bomb, 2_999_999)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_nonsense_and_cut_frames_are_refused(codec: str) -> None:
    whole = compress(codec, DATA)
    for bad in (b"nonsense that is no frame at all", whole[: len(whole) // 2], b"\xff" + whole[1:]):
        with pytest.raises(CorruptMessage):
            decompress(codec, bad)


def test_snappy_is_framed_as_kafka_frames_it_and_read_raw_and_repeated_too() -> None:
    framed = compress("snappy", DATA)
    assert framed.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    (length,) = struct.unpack_from(">i", framed, 16)
    assert decompress("snappy", framed[20 : 20 + length]) == DATA[: 32 << 10]
    assert decompress("snappy", framed + framed) == DATA + DATA


def test_lz4_blocks_are_independent() -> None:
    # Kafka refuses linked blocks, which only show past the first 64 KiB.
    frame = compress("lz4", DATA)
    assert len(DATA) > 1 << 17
    assert frame[4] & 0x20


@pytest.mark.parametrize("data", [b"", b"x", DATA, bytes(300_000), bytes(range(256)) * 300])
@pytest.mark.parametrize("checked", [True, False])
def test_lz4_frames_of_other_writers_are_read(data: bytes, checked: bool) -> None:
    packer = cramjam.lz4.Compressor(5, checked, False)
    packer.compress(data)
    frame = bytes(packer.finish())
    assert decompress("lz4", frame) == data
    assert decompress("lz4", frame + b"rubbish") == data


@pytest.mark.parametrize("level", [None, 1, 9])
def test_lz4_frames_are_read_by_the_library(level: int | None) -> None:
    noise = b"".join(zlib.crc32(bytes([each & 0xFF, each >> 8])).to_bytes(4, "big") for each in range(30_000))
    frame = compress("lz4", DATA + noise, level)
    assert bytes(cramjam.lz4.decompress(frame)) == DATA + noise
    assert decompress("lz4", frame) == DATA + noise


def test_an_lz4_frame_with_a_wrong_header_or_block_is_refused() -> None:
    frame = compress("lz4", DATA)
    wrong_checksum = frame[:6] + bytes((frame[6] ^ 1,)) + frame[7:]
    wrong_block = frame[:11] + b"\xff" * 40 + frame[51:]
    without_end = frame[:-4]
    for bad in (wrong_checksum, wrong_block, without_end):
        with pytest.raises(CorruptMessage):
            decompress("lz4", bad)


def test_the_header_checksum_of_old_kafka_is_put_right() -> None:
    """KIP-57: it was taken over the magic as well."""
    frame = bytearray(compress("lz4", DATA))
    frame[6] = (xxh32(bytes(frame[:6])) >> 8) & 0xFF
    assert decompress("lz4", bytes(frame)) == DATA


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("data", [b"", b"x", DATA[:300], DATA, bytes(300_000), bytes(60_000) + DATA[:40_000]])
def test_zstd_frames_of_other_writers_are_read(
    monkeypatch: pytest.MonkeyPatch, installed: bool, told: bool, data: bytes
) -> None:
    """Java writes frames that do not tell their size; with and without the package that is quicker with small ones."""
    zstandard = pytest.importorskip("zstandard")
    if not installed:
        monkeypatch.setattr(compression, "_zstd_decoder", lambda: SimpleNamespace(decompress=None))
    frame = zstandard.ZstdCompressor(write_content_size=told).compress(data)
    assert decompress("zstd", frame, max(1, len(data))) == data
    assert decompress("zstd", frame + frame) == data + data
    for bad in (frame[:-1], frame + b"rubbish", b"\xff" + frame[1:]):
        with pytest.raises(CorruptMessage, match="no zstd frame"):
            decompress("zstd", bad)
    if data:
        with pytest.raises(CorruptMessage, match="unpacks to more than"):
            decompress("zstd", frame, len(data) - 1)


def test_a_small_zstd_frame_that_claims_much_takes_no_memory_for_it() -> None:
    zstandard = pytest.importorskip("zstandard")
    honest = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    with pytest.raises(CorruptMessage, match="unpacks to more than the 1000 bytes"):
        decompress("zstd", honest, 1000)


def test_two_gzip_members_are_one_stream() -> None:
    assert decompress("gzip", compress("gzip", b"a") + compress("gzip", b"b")) == b"ab"
    assert decompress("gzip", compress("gzip", b"a") + b"rubbish") == b"a"
    raw = zlib.compress(b"a")
    with pytest.raises(CorruptMessage, match="no gzip stream"):
        decompress("gzip", raw)


def test_unknown_codecs_are_named_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedCompressionType, match="'brotli' is not a codec; known here: none, gzip"):
        encode_batch([(0, None, b"x", ())], codec="brotli")


@pytest.mark.parametrize("codec", CODECS)
def test_large_batches_of_every_codec_carry_many_headers(codec: str) -> None:
    headers = [(f"name {number}", b"v" * (number % 50)) for number in range(1500)]
    (view,) = read_batches(encode_batch([(5, b"k", DATA, headers)] * 3, codec=codec))
    assert [record.headers for record in view.records()] == [tuple(headers)] * 3
