"""Columns hold what records hold, and refuse what records refuse."""

import pytest

from storage.batch import BatchView, read_batches
from storage.columns import Columns, decode_columns, to_arrow
from storage.errors import CorruptMessage, StorageError
from storage.types import Record
from tests.unit.storage.logs import batch
from tests.vectors.log.golden import files, names

MODERN = [name for name in names() if not name.startswith(("legacy", "mixed"))]


def as_records(columns: Columns) -> list[Record]:
    return [
        Record(int(offset), int(stamp), columns.key(place), columns.value(place), columns.headers.get(place, ()))
        for place, (offset, stamp) in enumerate(zip(columns.offsets, columns.timestamps_ms, strict=True))
    ]


def outcome(view: BatchView, *, columnar: bool) -> list[Record] | str:
    try:
        return as_records(decode_columns(view)) if columnar else view.records()
    except StorageError:
        return "refused"


@pytest.mark.parametrize("name", MODERN)
def test_columns_agree_with_records(name: str) -> None:
    try:
        views = list(read_batches(files()[f"{name}.bin"]))
    except CorruptMessage:
        return
    for view in views:
        assert outcome(view, columnar=True) == outcome(view, columnar=False)


def test_an_arrow_table_holds_the_same() -> None:
    pytest.importorskip("pyarrow")
    for name in ("none-nulls", "none-tombstones", "zstd-varint", "none-large", "none-plain"):
        (view,) = read_batches(files()[f"{name}.bin"])
        table = to_arrow(decode_columns(view))
        records = view.records()
        assert table["offset"].to_pylist() == [record.offset for record in records]
        assert table["key"].to_pylist() == [record.key for record in records]
        assert table["value"].to_pylist() == [record.value for record in records]


def test_a_batch_without_records_has_empty_columns() -> None:
    (view,) = read_batches(files()["empty-txn.bin"])
    assert as_records(decode_columns(view)) == []
    (one,) = read_batches(batch(b"x"))
    assert as_records(decode_columns(one)) == one.records()
