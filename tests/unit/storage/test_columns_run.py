"""Many batches as one run of columns: the same records as one by one, the same refusals."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.storage.errors import CorruptMessage, StorageError
from muster.storage.records.batch import HEADER_SIZE, encode_batch, read_batches
from muster.storage.records.columns import decode_runs
from muster.storage.types import Record
from tests.unit.storage.test_columns import MODERN, records_of
from tests.vectors.log.golden import files

NULLABLE = st.one_of(st.none(), st.binary(max_size=200))
HEADERS = st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=2)
RECORDS = st.lists(st.tuples(st.integers(0, 2**41), NULLABLE, NULLABLE, HEADERS), min_size=1, max_size=80)


def run_of(data: bytes) -> list[Record]:
    return records_of(data, list(read_batches(data)))


def one_by_one(data: bytes) -> list[Record]:
    return [record for view in read_batches(data) for record in view.records()]


@given(st.lists(st.tuples(RECORDS, st.sampled_from(["none", "gzip", "zstd"])), max_size=4))
def test_a_run_agrees_with_its_records(batches: list[tuple[list[tuple[int, bytes, bytes, list[object]]], str]]) -> None:
    data = b"".join(
        encode_batch(records, base_offset=100 * place, codec=codec)  # type: ignore[arg-type]
        for place, (records, codec) in enumerate(batches)
    )
    assert run_of(data) == one_by_one(data)


@pytest.mark.parametrize("size", [1, 63, 64, 200, 9_000, 70_000])
def test_equal_lengths_are_walked_in_strides(size: int) -> None:
    """Offsets need one byte more from 64 on, so that even equal values change their stride on the way."""
    same = [(5, None, bytes(size), ()) for _ in range(150)]
    mixed = [(5, b"k" * (place % 3 == 0), bytes(size), ()) for place in range(100)]
    data = encode_batch(same) + encode_batch(mixed, base_offset=150) + encode_batch(same[:17], base_offset=250)
    assert run_of(data) == one_by_one(data)


def test_batches_that_look_alike_are_told_apart_by_their_lengths() -> None:
    """As many records in as many bytes, once with the same lengths and once with others."""
    alike = [encode_batch([(5, None, bytes([n]) * 100, ())] * 70, base_offset=70 * n) for n in range(4)]
    assert run_of(b"".join(alike)) == one_by_one(b"".join(alike))
    sizes = [[3, 3, 200], [3, 3, 200], [200, 3, 3], [3, 200, 3]]
    others = [
        encode_batch([(5, None, bytes(size), ()) for size in row], base_offset=3 * n) for n, row in enumerate(sizes)
    ]
    assert len({len(data) for data in others}) == 1
    assert run_of(b"".join(others)) == one_by_one(b"".join(others))


def test_some_batches_of_the_data_will_do() -> None:
    data = b"".join(encode_batch([(1, None, b"v%d" % place, ())], base_offset=place) for place in range(5))
    views = list(read_batches(data))
    assert [record.value for record in records_of(data, views[1::2])] == [b"v1", b"v3"]
    assert records_of(data, []) == []


def test_a_stamp_of_arrival_counts_for_its_batch_alone() -> None:
    records = [(1_000 + place, None, b"v", ()) for place in range(3)]
    data = encode_batch(records, log_append_time_ms=9_000) + encode_batch(records, base_offset=3)
    assert [record.timestamp_ms for record in run_of(data)] == [9_000, 9_000, 9_000, 1_000, 1_001, 1_002]


@pytest.mark.parametrize("name", MODERN)
def test_golden_files_come_out_the_same(name: str) -> None:
    data = files()[f"{name}.bin"]
    outcomes = []
    for decode in (run_of, one_by_one):
        try:
            outcomes.append(decode(data))
        except StorageError:
            outcomes.append([Record(-1, -1, b"refused", None)])
    assert outcomes[0] == outcomes[1]


@given(st.integers(HEADER_SIZE, 400), st.integers(0, 255))
def test_damage_is_told_or_gives_records_but_never_breaks(place: int, byte: int) -> None:
    data = bytearray(encode_batch([(7, b"key", b"value" * 20, (("h", b"x"),)) for _ in range(20)]))
    data[place] = byte
    with contextlib.suppress(StorageError):
        assert len(run_of(bytes(data))) == 20


SIZES = st.sampled_from([0, 1, 20, 56, 57, 58, 63, 64, 120, 9_000, 20_000])
MANY = st.lists(st.lists(SIZES, min_size=1, max_size=12), min_size=24, max_size=40)


def many(sizes: list[list[int]]) -> bytes:
    """Batches of values of these sizes, enough of them to be walked together."""
    return b"".join(
        encode_batch([(place, None, bytes(size), ()) for size in row], base_offset=20 * place)
        for place, row in enumerate(sizes)
    )


@given(MANY)
def test_many_batches_that_are_walked_together_agree_with_their_records(sizes: list[list[int]]) -> None:
    assert run_of(many(sizes)) == one_by_one(many(sizes))


@given(st.integers(0, 3000), st.integers(0, 255))
def test_damage_in_one_of_many_batches_is_told_or_gives_records(place: int, byte: int) -> None:
    sizes = [[row % 7, 50 + row, row % 5] for row in range(30)]
    whole = many(sizes)
    views = list(read_batches(whole))
    data = bytearray(whole)
    at = HEADER_SIZE + place % (views[0].size - HEADER_SIZE) + views[place % 30].position
    data[at] = byte
    with contextlib.suppress(StorageError):
        assert len(records_of(bytes(data), views)) == 90


def test_a_record_that_claims_a_negative_length_is_told_from_any_of_many_batches() -> None:
    data = bytearray(many([[1, row] for row in range(30)]))
    views = list(read_batches(bytes(data)))
    data[views[17].position + HEADER_SIZE] = 1
    with pytest.raises(StorageError, match=f"byte {views[17].position + HEADER_SIZE} claims a negative length"):
        records_of(bytes(data), views)


def test_compressed_batches_are_not_unpacked_all_at_once() -> None:
    """A few bytes may stand for many: fifty of these have a megabyte in less than a kilobyte each."""
    data = b"".join(
        encode_batch([(5, None, bytes([n]) * 1_000, ())] * 1_000, base_offset=1_000 * n, codec="zstd")
        for n in range(50)
    )
    views = list(read_batches(data))
    most = 4 << 20
    seen = []
    for columns, batches in decode_runs(data, views, most):
        assert len(columns.data) <= most
        assert len(columns.offsets) == 1_000 * len(batches)
        seen += [columns.value(place) for place in range(0, len(columns.offsets), 1_000)]
    assert seen == [bytes([n]) * 1_000 for n in range(50)]


def test_one_batch_that_unpacks_to_more_is_a_run_of_its_own() -> None:
    large, small = [(5, None, bytes(1_000), ())] * 20, [(5, None, b"v", ())]
    data = b"".join(
        encode_batch(rows, base_offset=20 * n, codec="gzip")
        for n, rows in enumerate([large, small, small, large, large, small])
    )
    runs = [batches for _, batches in decode_runs(data, list(read_batches(data)), 1_000)]
    assert [[batch.base_offset for batch in batches] for batches in runs] == [[0], [20, 40], [60], [80], [100]]


@pytest.mark.parametrize("at", [4, 5])
@pytest.mark.parametrize("batches", [1, 2, 30])
def test_any_negative_length_stands_for_null_as_in_kafka(at: int, batches: int) -> None:
    row = (5, None, b"v", ()) if at == 4 else (5, None, None, ())
    data = bytearray(b"".join(encode_batch([row], base_offset=place) for place in range(batches)))
    views = list(read_batches(data))
    for view in views:
        data[view.position + HEADER_SIZE + at] = 3  # -2, where -1 is usual
    assert records_of(bytes(data), views) == one_by_one(bytes(data))
    assert len(one_by_one(bytes(data))) == batches


@pytest.mark.parametrize("batches", [1, 2, 30])
@pytest.mark.parametrize(
    ("headers", "at", "byte"),
    [
        pytest.param([], 7, 1, id="fewer than no headers"),
        pytest.param([("k", b"v")], 7, 0, id="no headers, and bytes of some"),
        pytest.param([("k", b"vw")], 10, 2, id="headers that end before their record"),
        pytest.param([("k", b"vw")], 10, 6, id="headers that end behind it"),
    ],
)
def test_headers_end_with_their_record(headers: list[tuple[str, bytes]], at: int, byte: int, batches: int) -> None:
    data = bytearray(b"".join(encode_batch([(5, None, b"v", headers)], base_offset=n) for n in range(batches)))
    views = list(read_batches(data))
    data[views[-1].position + HEADER_SIZE + at] = byte
    with pytest.raises(CorruptMessage):
        views[-1].records()
    with pytest.raises(CorruptMessage):
        records_of(bytes(data), views)


@pytest.mark.parametrize("count", [-1, -(2**31)])
@pytest.mark.parametrize("batches", [1, 30])
def test_a_claim_of_less_than_no_records_is_refused(count: int, batches: int) -> None:
    data = b"".join(encode_batch([(5, None, b"v", ())], base_offset=place) for place in range(batches))
    views = [view._replace(count=count) for view in read_batches(data)]
    with pytest.raises(CorruptMessage, match=f"offset 0 claims {count} records"):
        records_of(data, views)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_claim_of_more_records_than_the_bytes_can_hold_takes_no_memory(codec: str) -> None:
    """Whoever writes to the log may claim any number: room for so many would be hundreds of gigabytes."""
    data = b"".join(encode_batch([(5, None, bytes(size), ())], base_offset=size, codec=codec) for size in range(1, 31))
    views = [view._replace(count=2**31 - 1) for view in read_batches(data)]
    with pytest.raises(CorruptMessage, match="offset 1 claims 2147483647 records in 8 bytes; expected at most 1"):
        records_of(data, views)


FRAMING = st.tuples(st.sampled_from([None, 0, 1, 3]), st.integers(0, 4), st.sampled_from([0, 5, 63, 64, 9_000]))


@given(st.lists(st.tuples(FRAMING, FRAMING), min_size=2, max_size=6), st.integers(1, 2), st.booleans())
def test_batches_alike_but_for_the_bytes_between_keys_and_values(
    batches: list[tuple[tuple[int | None, int, int], ...]], step: int, appended: bool
) -> None:
    """As many bytes in each batch, however they are dealt to keys, values and time stamps."""
    data = b"".join(
        encode_batch(
            [
                (stamp, None if key is None else bytes([n + 65]) * key, bytes([n]) * (9 - (key or 0) + value), ())
                for key, value, stamp in [(None, 0, 0), *row]
            ],
            base_offset=10 * n,
            log_append_time_ms=77 if appended and n % 2 else None,
        )
        for n, row in enumerate(batches)
    )
    views = list(read_batches(data))[::step]
    assert records_of(data, views) == [record for view in views for record in view.records()]


def test_a_batch_whose_key_reaches_into_its_value_is_no_copy_of_the_one_before() -> None:
    """Records of one length each: only what the key's length says differs."""
    rows = [(b"k", b"value"), (b"k", b"other"), (b"kk", b"less"), (None, b"longer")]
    data = b"".join(encode_batch([(5, key, value, ())] * 3, base_offset=3 * n) for n, (key, value) in enumerate(rows))
    assert len({view.size for view in read_batches(data)}) == 1
    assert [(record.key, record.value) for record in run_of(data)[::3]] == rows
