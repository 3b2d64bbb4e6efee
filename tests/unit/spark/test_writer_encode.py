"""What the sink encodes column by column is what the log's own encoder makes of the same records."""

import random

import numpy as np
import pyarrow as pa
import pytest

from muster.client.records.accumulator import choose_partition, murmur2
from muster.spark.row_encoding import choose_partitions, encode_columns, encode_varints, find_value_bounds, hash_keys
from muster.storage.records.batch import encode_batch, read_unsigned

STAMP_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def binary(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("seed", range(4))
def test_columns_become_the_same_bytes_as_records(codec: str, seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([1, 2, 63, 64, 1000])
    keys = [rng.choice([None, b"", rng.randbytes(rng.randrange(1, 200))]) for _ in range(count)]
    values = [rng.choice([None, b"", rng.randbytes(rng.randrange(1, 20_000))]) for _ in range(count)]
    headers = [
        rng.choice([None, [], [{"key": "trace", "value": None}, {"key": "ä", "value": b"x"}]]) for _ in range(count)
    ]
    got = encode_columns(binary(keys), binary(values), pa.array(headers, HEADERS), STAMP_MS, codec)
    pairs = [tuple((pair["key"], pair["value"]) for pair in some or ()) for some in headers]
    assert got == encode_batch(
        [(STAMP_MS, key, value, more) for key, value, more in zip(keys, values, pairs, strict=True)], codec=codec
    )


def test_without_keys_and_headers_and_from_the_middle_of_an_array() -> None:
    values = binary([b"%d" % number for number in range(100)])[40:60]
    got = encode_columns(None, values, None, STAMP_MS, "none")
    assert got == encode_batch([(STAMP_MS, None, b"%d" % number, ()) for number in range(40, 60)])


def test_varints_of_every_length() -> None:
    numbers = sorted({edge + by for power in range(0, 35, 7) for edge in [2**power] for by in (-1, 0, 1)})
    rows, sizes = encode_varints(np.array(numbers))
    for number, row, size in zip(numbers, rows, sizes, strict=True):
        assert read_unsigned(row[:size].tobytes(), 0) == (number, size)


@pytest.mark.parametrize("seed", range(3))
def test_keys_go_where_the_client_would_send_them(seed: int) -> None:
    rng = random.Random(seed)
    keys = [rng.randbytes(rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 40, 1024, 1025, 5000])) for _ in range(500)]
    data, ends = find_value_bounds(binary(keys))
    assert hash_keys(data, ends[:-1], np.diff(ends)).tolist() == [murmur2(key) for key in keys]
    assert choose_partitions(data, ends[:-1], np.diff(ends), 7).tolist() == [choose_partition(key, 7) for key in keys]
