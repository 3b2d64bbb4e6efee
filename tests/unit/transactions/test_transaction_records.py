"""Records of `__transaction_state`, byte for byte: vectors of a Kafka 4.1.1 broker, both versions, unknown ones."""

import pytest

from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord
from muster.coordinator.runtime.transaction_records import (
    TransactionReadReport,
    decode_transaction,
    encode_transaction,
)
from muster.coordinator.transactions.records import TransactionExpired, TransactionState, TransactionStored

KEY = bytes.fromhex("0000000141")

EMPTY = TransactionStored("A", 0, 0, 60_000, TransactionState.EMPTY, updated_ms=0x1A20397D3A5)
EMPTY_BYTES = "0001 0000000000000000 0000 0000ea60 00 00 000001a20397d3a5 ffffffffffffffff 00"

PREPARED = TransactionStored(
    "A",
    0,
    1,
    60_000,
    TransactionState.PREPARE_COMMIT,
    {"t": (0, 1)},
    updated_ms=0x1A20397E253,
    started_ms=0x1A20397DCAF,
    client_level=2,
)
PREPARED_BYTES = (
    "0001 0000000000000000 0001 0000ea60 02 02 0274 03 00000000 00000001 00 "
    "000001a20397e253 000001a20397dcaf 01 02 02 0002"
)


@pytest.mark.parametrize(("record", "said"), [(EMPTY, EMPTY_BYTES), (PREPARED, PREPARED_BYTES)])
def test_the_bytes_are_those_of_a_kafka_broker(record: TransactionStored, said: str) -> None:
    stored = KeyValue(KEY, bytes.fromhex(said))
    assert encode_transaction(record) == stored
    assert decode_transaction(stored) == record


def test_a_complete_transaction_has_an_empty_array_where_an_empty_id_has_none() -> None:
    complete = TransactionStored("A", 0, 1, 60_000, TransactionState.COMPLETE_COMMIT)
    value = encode_transaction(complete).value
    assert value is not None
    assert value[17:18].hex() == "01"
    assert bytes.fromhex(EMPTY_BYTES)[17:18].hex() == "00"


def test_the_previous_and_the_next_producer_id_are_tags_0_and_1() -> None:
    rotating = TransactionStored(
        "A", 4, 32_767, 1, TransactionState.PREPARE_ABORT, {}, 1, 1, previous_producer_id=4, next_producer_id=5
    )
    stored = encode_transaction(rotating)
    assert stored.value is not None
    assert stored.value[-21:].hex(" ", 1) == "02 00 08 00 00 00 00 00 00 00 04 01 08 00 00 00 00 00 00 00 05"
    assert decode_transaction(stored) == rotating


def test_version_0_has_plain_lengths_and_no_tags() -> None:
    stored = encode_transaction(PREPARED, version=0)
    assert stored.value is not None
    assert stored.value.hex() == (
        "0000" "0000000000000000" "0001" "0000ea60" "02"
        "00000001" "000174" "00000002" "00000000" "00000001"
        "000001a20397e253" "000001a20397dcaf"
    )  # fmt: skip
    known = decode_transaction(stored)
    assert isinstance(known, TransactionStored)
    assert (known.partitions, known.client_level) == ({"t": (0, 1)}, 0)
    empty = encode_transaction(EMPTY, version=0)
    assert empty.value is not None
    assert empty.value[17:21].hex() == "ffffffff"
    assert decode_transaction(empty) == EMPTY


def test_a_tombstone_has_a_key_only() -> None:
    assert encode_transaction(TransactionExpired("A")) == KeyValue(KEY, None)
    assert decode_transaction(KeyValue(KEY, None)) == TransactionExpired("A")


def test_tags_of_a_newer_kafka_are_passed_over() -> None:
    newer = bytes.fromhex(PREPARED_BYTES.rsplit("01 02 02", 1)[0] + "02 02 02 0002 03 02 0001")
    assert decode_transaction(KeyValue(KEY, newer)) == PREPARED


def test_unknown_versions_are_counted_and_passed_over() -> None:
    report = TransactionReadReport()
    assert report.read(KeyValue(KEY, bytes.fromhex("0002")), "__transaction_state-7") is None
    assert report.read(KeyValue(KEY, bytes.fromhex("0002")), "__transaction_state-7") is None
    assert report.read(KeyValue(bytes.fromhex("0009"), b""), "__transaction_state-7") is None
    assert report.read(KeyValue(KEY, bytes.fromhex(EMPTY_BYTES)), "__transaction_state-7") == EMPTY
    assert report.skipped == {"value version 2": 2, "key version 9": 1}
    assert (report.facts, report.malformed) == (1, 0)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (EMPTY_BYTES.replace("ea60 00", "ea60 09"), "state 9; expected 0 to 7"),
        (EMPTY_BYTES + "00", "1 bytes after the last field at byte 35"),
        (PREPARED_BYTES[:44], "bytes left"),
        (PREPARED_BYTES.replace("0274 03", "0274 60"), "array of 95 elements"),
    ],
)
def test_damage_is_reported_with_its_place(said: str, sentence: str) -> None:
    with pytest.raises(MalformedRecord):
        decode_transaction(KeyValue(KEY, bytes.fromhex(said)))
    report = TransactionReadReport()
    assert report.read(KeyValue(KEY, bytes.fromhex(said), offset=12), "__transaction_state-7") is None
    assert report.malformed == 1
    assert report.complaints[0].startswith("__transaction_state-7 offset 12: ")
    assert sentence in report.complaints[0]


def test_a_transactional_id_that_no_key_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="32767"):
        encode_transaction(TransactionExpired("x" * 32_768))
