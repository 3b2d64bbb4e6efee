"""A turn's records are written by a way of their own; a reader must not see a difference."""

from hypothesis import given
from hypothesis import strategies as st

from muster.storage.records.batch import encode_batch, encode_turn

Pairs = list[tuple[bytes, bytes | None]]
SIZES = st.sampled_from((0, 1, 24, 63, 64, 200, 8_191, 8_192, 9_000))
PAIRS = st.lists(st.tuples(SIZES.map(bytes), st.none() | SIZES.map(bytes)), min_size=1, max_size=80)
TIMES = st.integers(0, 2**50)


def by_the_general_way(pairs: Pairs, now_ms: int) -> bytes:
    return encode_batch([(now_ms, key, value, ()) for key, value in pairs])


@given(PAIRS, TIMES)
def test_the_bytes_are_those_of_the_general_way(pairs: Pairs, now_ms: int) -> None:
    assert encode_turn([(*pair, None) for pair in pairs], now_ms) == by_the_general_way(pairs, now_ms)


def test_so_they_are_where_offsets_need_longer_numbers() -> None:
    pairs: Pairs = [(b"key", b"value"), (b"key", None)] * 5_000
    assert encode_turn([(*pair, None) for pair in pairs], 7) == by_the_general_way(pairs, 7)
