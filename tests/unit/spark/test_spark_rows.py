"""Batches of the log become Arrow rows of Spark's schema; filters take rows away."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import datasource as ds

from muster.spark.batch_reader import PushedFilters, narrow_ranges, push_filters
from muster.spark.fetch import (
    BatchGatherer,
    build_arrow_schema,
    build_header_array,
    decode_batches,
    decode_records_to_arrow,
)
from muster.spark.planning import OffsetRange
from muster.spark.read_options import SQL_TYPES
from muster.storage.records.batch import decode_records, encode_batch, read_batches

ALL = tuple(SQL_TYPES)
RECORDS = [(1_700_000_000_000 + i, b"k%d" % i if i % 3 else None, b"v" * i if i % 4 else None, ()) for i in range(40)]
LOG = (
    encode_batch(RECORDS[:10], base_offset=0)
    + encode_batch(RECORDS[10:25], base_offset=10, codec="zstd")
    + encode_batch(RECORDS[25:], base_offset=25, log_append_time_ms=1_800_000_000_000)
)


def rows(wanted: OffsetRange, columns: Sequence[str] = ALL, size: int = 7) -> list[dict[str, object]]:
    batches = list(decode_batches(LOG, list(read_batches(LOG)), wanted, columns, size))
    assert all(batch.schema == build_arrow_schema(columns) and 0 < batch.num_rows <= size for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_rows_hold_what_records_hold() -> None:
    found = rows(OffsetRange("t", 3, 0, 40))
    assert [row["key"] for row in found] == [record[1] for record in RECORDS]
    assert [row["value"] for row in found] == [record[2] for record in RECORDS]
    assert [row["offset"] for row in found] == list(range(40))
    assert {(row["topic"], row["partition"], row["headers"]) for row in found} == {("t", 3, None)}
    assert [row["timestampType"] for row in found] == [0] * 25 + [1] * 15
    assert found[3]["timestamp"].timestamp() * 1000 == RECORDS[3][0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("start", "end"), [(0, 40), (5, 6), (9, 26), (39, 40), (12, 12), (3, 100)])
def test_only_the_range_is_given(start: int, end: int) -> None:
    assert [row["offset"] for row in rows(OffsetRange("t", 0, start, end))] == list(range(start, min(end, 40)))


def test_columns_come_in_the_order_asked_for() -> None:
    found = rows(OffsetRange("t", 0, 4, 6), ("offset", "value"))
    assert found == [{"offset": 4, "value": None}, {"offset": 5, "value": b"v" * 5}]


def test_headers_are_null_for_a_record_without_any() -> None:
    found = build_header_array([(("a", b"1"), ("a", None)), (), (("b", b""),)]).to_pylist()
    assert found == [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, [{"key": "b", "value": b""}]]


def test_records_of_old_message_sets_give_the_same_rows() -> None:
    plain = encode_batch(RECORDS, base_offset=0)
    wanted = OffsetRange("t", 0, 0, 40)
    (columnar,) = decode_batches(plain, list(read_batches(plain)), wanted, ALL, 100)
    assert decode_records_to_arrow(list(decode_records(plain)), wanted, ALL).equals(columnar)


def test_small_pieces_are_joined_and_large_ones_are_left() -> None:
    def piece(count: int) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array(range(count), pa.int64())})

    gathered = BatchGatherer(rows=10, most_bytes=1 << 20)
    out = [batch for size in (3, 4, 5, 12, 1) for batch in gathered.add(piece(size))]
    assert [batch.num_rows for batch in [*out, *gathered.rest()]] == [7, 5, 12, 1]
    by_bytes = BatchGatherer(rows=1_000, most_bytes=64)
    assert [batch.num_rows for batch in by_bytes.add(piece(9))] == [9]


def test_filters_are_taken_over_where_a_read_can_do_them_exactly() -> None:
    filters = [
        ds.IsNotNull(("partition",)),
        ds.In(("partition",), (1, 2, 3)),
        ds.EqualTo(("topic",), "t"),
        ds.GreaterThan(("offset",), 4),
        ds.GreaterThanOrEqual(("offset",), 3),
        ds.LessThanOrEqual(("offset",), 8),
        ds.LessThan(("offset",), 20),
        ds.GreaterThan(("timestamp",), 5),
        ds.Not(ds.EqualTo(("partition",), 1)),
    ]
    pushed, left = push_filters(filters)
    assert left == filters[-2:]
    ranges = [OffsetRange("t", 1, 0, 50), OffsetRange("t", 9, 0, 50), OffsetRange("u", 1, 0, 50)]
    assert narrow_ranges(ranges, pushed) == [OffsetRange("t", 1, 5, 9)]


def test_filters_that_exclude_each_other_leave_nothing() -> None:
    pushed, left = push_filters([ds.EqualTo(("topic",), "t"), ds.EqualTo(("topic",), "u")])
    assert (pushed.topics, left) == (frozenset(), [])
    assert narrow_ranges([OffsetRange("t", 0, 0, 5)], pushed) == []
    one, _ = push_filters([ds.EqualTo(("offset",), 7)])
    assert narrow_ranges([OffsetRange("t", 0, 0, 50)], one) == [OffsetRange("t", 0, 7, 8)]
    assert narrow_ranges([OffsetRange("t", 0, 0, 5)], PushedFilters()) == [OffsetRange("t", 0, 0, 5)]
