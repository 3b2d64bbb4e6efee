"""The filter of readers of committed records: what it drops of a fetch, and what it need not look at."""

import pytest

from muster.storage.errors import CorruptMessage
from muster.storage.records.batch import CONTROL_BIT, decode_records, encode_batch, read_batches
from muster.storage.records.markers import AbortedTransactionFilter, encode_marker


def data(producer: int, offset: int, *values: bytes, transactional: bool = True) -> bytes:
    records = [(0, None, value, ()) for value in values]
    return encode_batch(
        records, base_offset=offset, producer_id=producer, producer_epoch=0, transactional=transactional
    )


def marker(producer: int, offset: int, *, commit: bool) -> bytes:
    made = bytearray(
        encode_marker(commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
    )
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


def values_of(log: bytes, *aborted: tuple[int, int], start: int = 0) -> list[bytes | None]:
    return [record.value for record in decode_records(log, start, AbortedTransactionFilter(aborted).drops)]


def test_a_producer_is_dropped_from_the_first_offset_of_its_transaction_to_its_abort_marker() -> None:
    log = (
        data(1, 0, b"gone", b"gone")
        + data(2, 2, b"kept")
        + marker(1, 3, commit=False)
        + data(1, 4, b"later")
        + marker(2, 5, commit=True)
        + marker(1, 6, commit=True)
        + data(1, 7, b"gone too")
        + marker(1, 8, commit=False)
        + encode_batch([(0, None, b"plain", ())], base_offset=9)
    )
    assert values_of(log, (1, 7), (1, 0)) == [b"kept", b"later", b"plain"]
    assert values_of(log) == [b"gone", b"gone", b"kept", b"later", b"gone too", b"plain"]


def test_a_transaction_that_began_before_the_fetch_is_dropped_from_its_first_batch_on() -> None:
    log = data(1, 100, b"gone") + marker(1, 101, commit=False) + data(1, 102, b"kept")
    assert values_of(log, (1, 3)) == [b"kept"]


def test_a_fetch_that_is_cut_before_the_marker_drops_to_its_end() -> None:
    log = data(1, 0, b"gone") + data(2, 1, b"kept") + data(1, 2, b"gone")
    assert values_of(log, (1, 0)) == [b"kept"]


def test_a_transaction_that_begins_behind_the_fetch_drops_nothing_of_it() -> None:
    log = data(1, 0, b"kept") + marker(1, 1, commit=True)
    assert values_of(log, (1, 2)) == [b"kept"]


def test_what_the_producer_wrote_outside_a_transaction_stays() -> None:
    log = data(1, 0, b"gone") + data(1, 1, b"kept", transactional=False) + marker(1, 2, commit=False)
    assert values_of(log, (1, 0)) == [b"kept"]


def test_a_commit_marker_ends_no_dropping() -> None:
    """It cannot stand there; a log in which it does is not believed to have committed anything."""
    log = data(1, 0, b"gone") + marker(1, 1, commit=True) + data(1, 2, b"gone") + marker(1, 3, commit=False)
    assert values_of(log, (1, 0)) == []


def test_a_batch_that_is_begun_in_the_middle_is_filtered_as_a_whole() -> None:
    log = data(1, 0, b"gone", b"gone") + data(2, 2, b"kept", b"kept")
    assert values_of(log, (1, 0), start=1) == [b"kept", b"kept"]
    assert values_of(log, (2, 2), start=1) == [b"gone"]


def test_markers_of_others_and_dropped_batches_are_not_read() -> None:
    """A wrong checksum in what no reader of committed records needs stops none."""
    spoilt = bytearray(data(1, 0, b"gone"))
    spoilt[-1] ^= 1
    other = bytearray(marker(2, 1, commit=False))
    other[-1] ^= 1
    assert values_of(bytes(spoilt) + bytes(other) + data(2, 2, b"kept"), (1, 0)) == [b"kept"]


def test_a_damaged_marker_of_a_dropped_producer_is_an_error() -> None:
    spoilt = bytearray(marker(1, 1, commit=False))
    spoilt[-1] ^= 1
    with pytest.raises(CorruptMessage, match=r"offsets 1 to 1\) carries checksum"):
        values_of(data(1, 0, b"gone") + bytes(spoilt), (1, 0))


def test_a_control_batch_that_the_cleaner_emptied_ends_nothing() -> None:
    bare = encode_batch([], base_offset=1, producer_id=1, transactional=True, control=True, last_offset_delta=0)
    assert next(read_batches(bare)).attributes & CONTROL_BIT
    assert values_of(data(1, 0, b"gone") + bare + data(1, 2, b"gone"), (1, 0)) == []
