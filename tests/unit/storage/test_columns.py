"""Columns hold what records hold, and refuse what records refuse."""

import pytest

from muster.storage.errors import CorruptMessage, StorageError
from muster.storage.records.batch import BatchView, read_batches
from muster.storage.records.columns import RecordColumns, decode_runs, to_arrow
from muster.storage.types import Record
from tests.vectors.log.golden import files, names

MODERN = [name for name in names() if not name.startswith(("legacy", "mixed"))]


def as_records(columns: RecordColumns) -> list[Record]:
    return [
        Record(int(offset), int(stamp), columns.key(place), columns.value(place), columns.headers.get(place, ()))
        for place, (offset, stamp) in enumerate(zip(columns.offsets, columns.timestamps_ms, strict=True))
    ]


def records_of(data: bytes, views: list[BatchView]) -> list[Record]:
    return [record for columns, _ in decode_runs(data, views) for record in as_records(columns)]


@pytest.mark.parametrize("name", MODERN)
def test_columns_agree_with_records(name: str) -> None:
    data = files()[f"{name}.bin"]
    try:
        views = list(read_batches(data))
    except CorruptMessage:
        return
    for view in views:
        outcomes: list[list[Record] | str] = []
        for decode in (lambda view=view: records_of(data, [view]), view.records):
            try:
                outcomes.append(decode())
            except StorageError:
                outcomes.append("refused")
        assert outcomes[0] == outcomes[1]


def test_an_arrow_table_holds_the_same() -> None:
    pytest.importorskip("pyarrow")
    for name in ("none-nulls", "none-tombstones", "zstd-varint", "none-large", "none-plain"):
        data = files()[f"{name}.bin"]
        (view,) = read_batches(data)
        ((columns, _),) = decode_runs(data, [view])
        table = to_arrow(columns)
        records = view.records()
        assert table["offset"].to_pylist() == [record.offset for record in records]
        assert table["key"].to_pylist() == [record.key for record in records]
        assert table["value"].to_pylist() == [record.value for record in records]


def test_a_batch_without_records_has_empty_columns() -> None:
    data = files()["empty-txn.bin"]
    assert records_of(data, list(read_batches(data))) == []
