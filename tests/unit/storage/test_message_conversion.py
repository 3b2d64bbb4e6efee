"""Messages of producers from before Kafka 0.11, as a batch of today: Kafka 1.1.1's own conversion is the judge."""

import gzip
import json
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.storage.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, StorageError
from muster.storage.records.batch import HEADER_SIZE, decode_records, read_batches
from muster.storage.records.message_conversion import convert_down, convert_up, encode_message, is_message_set
from muster.storage.types import Record

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "vectors/era/up_conversion.jsonl").read_text().splitlines()
]


def message(magic: int, value: bytes, *, attributes: int = 0, offset: int = 0, time_ms: int = 5) -> bytes:
    stamp = struct.pack(">q", time_ms) if magic else b""
    body = bytes([magic, attributes]) + stamp + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: f"{each['magic']}-{each['codec']}-{each['messages']}")
def test_a_set_becomes_what_kafka_made_of_it(vector: dict[str, str]) -> None:
    said, wanted = bytes.fromhex(vector["set"]), bytes.fromhex(vector["batch"])
    assert is_message_set(said)
    ours, _ = convert_up(said)
    if vector["codec"] == "none":
        # Kafka writes who leads while it converts, as -1 here; the rest is byte for byte the same.
        assert ours == wanted
    (mine,), (theirs,) = read_batches(ours), read_batches(wanted)
    assert list(mine.records()) == list(theirs.records())
    assert mine.codec == theirs.codec
    assert (mine.base_timestamp, mine.max_timestamp) == (theirs.base_timestamp, theirs.max_timestamp)


def test_what_is_left_of_a_message_at_the_end_is_not_looked_at() -> None:
    whole, _ = convert_up(message(1, b"a") + message(1, b"b")[:-1])
    assert [record.value for record in decode_records(whole)] == [b"a"]


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        (message(0, b"a") + message(1, b"b"), InvalidRecord, "magic 1, those before it have 0"),
        (message(1, b"a", attributes=8), InvalidTimestamp, "a log has stamped it"),
        (message(1, b"a")[:-1], CorruptMessage, "no whole message"),
        (message(1, b"a", attributes=4), CorruptMessage, "codec 4"),
        (message(1, gzip.compress(b"x", mtime=0), attributes=1), CorruptMessage, "no whole messages"),
        (message(0, b"a")[:-1] + b"b", CorruptMessage, "wrong checksum"),
    ],
    ids=["two magics", "stamped", "cut", "codec", "nothing within", "checksum"],
)
def test_what_is_wrong_is_said(said: bytes, error: type[StorageError], why: str) -> None:
    with pytest.raises(error, match=why):
        convert_up(said)


def test_a_set_that_unpacks_to_very_much_is_refused_before_it_is_unpacked() -> None:
    inner = b"".join(message(1, bytes(10_000), offset=n) for n in range(100))
    said = message(1, gzip.compress(inner), attributes=1, offset=99)
    assert len(said) < 20_000
    assert len(list(decode_records(convert_up(said)[0]))) == 100
    with pytest.raises(CorruptMessage, match="more than the 500000 bytes allowed"):
        convert_up(said, 500_000)
    # Many small messages take more memory than bytes.
    with pytest.raises(CorruptMessage, match="once it is unpacked"):
        convert_up(b"".join(message(0, b"") for _ in range(100)), 10_000)


@given(
    st.integers(0, 1),
    st.lists(
        st.tuples(st.integers(0, 1 << 40), st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=300)),
        min_size=1,
        max_size=20,
    ),
)
def test_down_and_up_again_is_the_same(magic: int, rows: list[tuple[int, bytes | None, bytes | None]]) -> None:
    records = [Record(n, time_ms if magic else -1, key, value) for n, (time_ms, key, value) in enumerate(rows)]
    said = b"".join(encode_message(record, magic, stamped=False) for record in records)
    batch, taken = convert_up(said)
    assert list(decode_records(batch)) == records
    assert taken >= sum(len(key or b"") + len(value or b"") for _, key, value in rows)
    assert convert_down(batch, magic, 0, 1 << 20)[0] == said
    assert len(batch) > HEADER_SIZE


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(garbage: bytes) -> None:
    for said in (garbage, message(0, b"a") + garbage, message(1, b"a")[:17] + garbage):
        if is_message_set(said):
            try:
                batch, _ = convert_up(said)
            except StorageError:
                continue
            assert list(decode_records(batch))
