"""What one micro-batch takes."""

from hypothesis import given
from hypothesis import strategies as st

from muster.spark.planning import OffsetRange
from muster.spark.stream_offsets import must_wait, share_bytes, share_records

BACKLOG = st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 10_000)), max_size=20).map(
    lambda rows: [OffsetRange("t", number, start, start + size) for number, (start, size) in enumerate(rows)]
)


@given(BACKLOG, st.integers(1, 50_000))
def test_a_share_is_exact_and_in_proportion(backlog: list[OffsetRange], most: int) -> None:
    total = sum(wanted.size for wanted in backlog)
    shares = share_records(backlog, most)
    assert sum(share.size for share in shares) == min(most, total)
    for wanted, share in zip(backlog, shares, strict=True):
        assert (share.tp, share.start) == (wanted.tp, wanted.start)
        assert 0 <= share.size <= wanted.size
        if total > most:
            assert abs(share.size - wanted.size * most / total) < 1 + 1e-6


@given(BACKLOG, st.integers(1, 10**7), st.floats(1, 1_000))
def test_bytes_are_kept_to_and_a_query_gets_on(backlog: list[OffsetRange], most: int, length: float) -> None:
    sizes = {wanted.tp: length for wanted in backlog}
    taken = sum(share.size for share in share_bytes(backlog, most, sizes))
    assert taken * length <= max(most, length)
    assert taken > 0 or not sum(wanted.size for wanted in backlog)


def test_what_could_not_be_measured_is_taken_to_be_like_the_others() -> None:
    backlog = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 100)]
    shares = share_bytes(backlog, 1_000, {("t", 0): 100.0})
    assert [share.size for share in shares] == [5, 5]


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    assert must_wait(9, 10, 500, last_trigger_ms=1_000, now_ms=1_499)
    assert not must_wait(10, 10, 500, last_trigger_ms=1_000, now_ms=1_499)
    assert not must_wait(9, 10, 500, last_trigger_ms=1_000, now_ms=1_500)
    assert not must_wait(9, None, 500, last_trigger_ms=1_000, now_ms=1_001)
