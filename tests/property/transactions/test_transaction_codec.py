"""The codec of `__transaction_state` against a second one, written as the table of Kafka's message definition."""

from dataclasses import replace
from struct import pack
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord
from muster.coordinator.runtime.transaction_records import decode_transaction, encode_transaction, version_for
from muster.coordinator.transactions.records import TransactionExpired, TransactionState, TransactionStored

INT64 = st.integers(-1, 2**63 - 1)
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
PARTITIONS = st.dictionaries(
    NAME, st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=5).map(lambda numbers: tuple(sorted(numbers)))
)


@st.composite
def stored(draw: st.DrawFn) -> TransactionStored:
    state = draw(st.sampled_from([each for each in TransactionState if each < TransactionState.DEAD]))
    return TransactionStored(
        draw(NAME),
        draw(INT64),
        draw(st.integers(-1, 32_767)),
        draw(st.integers(0, 2**31 - 1)),
        state,
        {} if state is TransactionState.EMPTY else draw(PARTITIONS),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(st.sampled_from([0, 1, 2])),
    )


FORMATS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}
PARTITION_FIELDS = [("topic", "string"), ("numbers", "[]int32")]
VALUE_FIELDS = [
    ("producer_id", "int64"),
    ("epoch", "int16"),
    ("timeout_ms", "int32"),
    ("state", "int8"),
    ("partitions", PARTITION_FIELDS),
    ("updated_ms", "int64"),
    ("started_ms", "int64"),
]
TAGS = [("previous_producer_id", "int64", -1), ("next_producer_id", "int64", -1), ("client_level", "int16", 0)]


def unsigned(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + unsigned(number // 128)


def length(count: int, flexible: bool, layout: str) -> bytes:
    return unsigned(count + 1) if flexible else pack(layout, count)


def by_table(table: Any, value: Any, flexible: bool) -> bytes:
    if table == "string":
        return length(len(value.encode()), flexible, ">h") + value.encode()
    if isinstance(table, str) and table.startswith("[]"):
        return length(len(value), flexible, ">i") + b"".join(by_table(table[2:], each, flexible) for each in value)
    if isinstance(table, list):
        if value is None:
            return length(-1, flexible, ">i")
        written = length(len(value), flexible, ">i")
        for each in value:
            written += b"".join(by_table(kind, part, flexible) for (_, kind), part in zip(table, each, strict=True))
            written += b"\0" if flexible else b""
        return written
    return pack(FORMATS[table], value)


def value_by_table(record: TransactionStored, version: int) -> bytes:
    written = pack(">h", version)
    for name, table in VALUE_FIELDS:
        value = getattr(record, name)
        if name == "partitions":
            value = None if record.state is TransactionState.EMPTY else list(value.items())
        written += by_table(table, value, version > 0)
    if version == 0:
        return written
    tags = [
        unsigned(tag) + unsigned(len(data)) + data
        for tag, (name, kind, default) in enumerate(TAGS)
        if getattr(record, name) != default
        for data in [by_table(kind, getattr(record, name), True)]
    ]
    return written + unsigned(len(tags)) + b"".join(tags)


@given(stored(), st.sampled_from([0, 1]))
def test_both_codecs_write_the_same_bytes(record: TransactionStored, version: int) -> None:
    key = pack(">hh", 0, len(record.transactional_id.encode())) + record.transactional_id.encode()
    assert encode_transaction(record, version) == KeyValue(key, value_by_table(record, version))


@given(stored() | NAME.map(TransactionExpired))
def test_a_record_is_read_as_it_was_written(record: TransactionStored | TransactionExpired) -> None:
    written = encode_transaction(record)
    read = decode_transaction(written)
    assert read == record
    assert not isinstance(read, TransactionStored) or encode_transaction(read) == written


def is_same_fact(read: object, record: TransactionStored) -> bool:
    """Version 0 has no place for the producer id before the move, where that is the present one."""
    if not isinstance(read, TransactionStored):
        return False
    before = record.previous_producer_id
    same_before = read.previous_producer_id in (before, -1) and before in (read.previous_producer_id, read.producer_id)
    return same_before and replace(read, previous_producer_id=before) == record


@given(stored(), st.sampled_from([0, 1, 2]))
def test_no_level_loses_a_fact(record: TransactionStored, level: int) -> None:
    version = version_for(record, level)
    written = encode_transaction(record, version)
    assert written.value is not None
    assert written.value[:2] == pack(">h", version)
    assert is_same_fact(decode_transaction(written), record)


@given(stored())
def test_level_0_writes_version_0_wherever_it_has_no_level_and_no_other_producer_id(record: TransactionStored) -> None:
    old = replace(record, client_level=0, next_producer_id=-1, previous_producer_id=record.producer_id)
    assert version_for(old, 0) == 0
    assert version_for(replace(old, client_level=2), 0) == 1
    assert version_for(replace(old, next_producer_id=5), 0) == 1
    assert version_for(old, 1) == 1


@given(stored(), st.data())
def test_a_record_that_was_cut_is_malformed(record: TransactionStored, data: st.DataObject) -> None:
    key, value, _ = encode_transaction(record)
    assert value is not None
    cut = data.draw(st.integers(2, len(value) - 1))
    try:
        decode_transaction(KeyValue(key, value[:cut]))
    except MalformedRecord:
        return
    raise AssertionError(f"{cut} of {len(value)} bytes were read as a whole record")
