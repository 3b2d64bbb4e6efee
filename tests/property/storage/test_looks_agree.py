"""Two ways to look into a batch: what many records together are taken for, the walk takes each of them for."""

from hypothesis import given
from hypothesis import strategies as st

from muster.storage.records.batch import HEADER_SIZE, NewRecord, encode_batch, seal_batch, view_at
from muster.storage.records.validation import check_each_record, check_records_together

T0 = 1_700_000_000_000

lengths = st.one_of(st.integers(0, 3), st.integers(50, 80), st.just(8190))
stamps = st.sampled_from([0, 1, 63, 64, 8191, -64, -65])


@st.composite
def records(draw: st.DrawFn) -> list[NewRecord]:
    key = draw(st.sampled_from([None, b"", b"key", b"k" * 100]))
    parts = draw(st.lists(st.tuples(stamps, lengths), min_size=1, max_size=12))
    times = draw(st.sampled_from([1, 1, 8]))
    return [(T0 + stamp, key, bytes(length), ()) for stamp, length in parts * times]


# What bytes of a record's head have near them, and what moves the records that follow.
changes = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.one_of(st.sampled_from([0, 1, 2, 0x80, 0x81, 0xFF]), st.none())),
    max_size=3,
)


@given(records(), changes, st.sampled_from([0, 0, 0, 1, -1]))
def test_what_is_taken_together_is_taken_one_by_one(
    made: list[NewRecord], spoiled: list[tuple[float, int | None]], more: int
) -> None:
    body = bytearray(encode_batch(made)[HEADER_SIZE:])
    for where, byte in spoiled:
        # Heads lie at the front of records: half of the changes go there.
        at = int(where * 2 % 1 * (12 if where < 0.5 else len(body)))
        at = min(at, len(body) - 1)
        if byte is None:
            del body[at]
        else:
            body[at] = byte
    data, count = bytes(body), max(1, len(made) + more)
    together = check_records_together(data, count) if data else None
    if together is None:
        return
    each = check_each_record(data, count)
    assert together.keyless == each.keyless
    assert together.farthest >= each.farthest
    batch = view_at(memoryview(bytes(seal_batch((0, 0, 0, count - 1, T0, T0), (-1, -1, -1), count, data))), 0)
    assert batch is not None
    assert [record.offset for record in batch.records()] == list(range(count))
