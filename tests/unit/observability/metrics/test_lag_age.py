"""How old is what a group has not read: by when its topic ended where the group is."""

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.observability.metrics.series import APART_MS, MOST, TopicEndHistory


def growing(rows: list[tuple[int, int]]) -> TopicEndHistory:
    ends = TopicEndHistory()
    for now_ms, end in rows:
        ends.note(now_ms, end)
    return ends


def test_without_lag_it_is_nothing_and_before_anything_was_seen_it_is_not_known() -> None:
    assert TopicEndHistory().seconds(0, 10, 0) == 0.0
    assert TopicEndHistory().seconds(0, 10, 1) is None


def test_between_two_times_it_is_interpolated() -> None:
    ends = growing([(0, 0), (10_000, 100), (20_000, 200)])
    assert ends.seconds(20_000, 200, 50) == 5.0
    assert ends.seconds(20_000, 200, 100) == 10.0
    assert ends.seconds(20_000, 200, 200) == 20.0


def test_a_pause_of_the_producer_counts_to_whoever_has_not_read_what_was_before_it() -> None:
    ends = growing([(0, 0), (10_000, 100), (60_000, 100)])
    assert ends.seconds(60_000, 100, 1) == 50.1
    assert ends.seconds(60_000, 100, 100) == 60.0


def test_what_waited_since_before_it_was_looked_at_is_at_least_as_old_as_that() -> None:
    ends = growing([(0, 100), (30_000, 100)])
    assert ends.seconds(30_000, 100, 10) == 30.0


def test_a_topic_that_was_made_anew_and_a_clock_that_was_set_back_begin_again() -> None:
    ends = growing([(10_000, 100), (20_000, 200), (30_000, 5)])
    assert ends.seconds(40_000, 15, 5) == 5.0
    ends = growing([(90_000, 100), (10_000, 110)])
    assert ends.seconds(20_000, 120, 10) == 10.0


@given(
    st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 1_000)), min_size=1, max_size=300), st.integers(0, 500)
)
def test_it_is_never_negative_and_grows_with_the_lag(rows: list[tuple[int, int]], lag: int) -> None:
    ends, now_ms, end = TopicEndHistory(), 0, 0
    for after_ms, grown in rows:
        now_ms, end = now_ms + after_ms, end + grown
        ends.note(now_ms, end)
    now_ms += 1
    less, more = (ends.seconds(now_ms, end, min(each, end)) for each in (lag, lag + 1))
    assert less is not None
    assert more is not None
    assert 0 <= less <= more + 1e-6
    assert len(ends._times) <= MOST
    assert all(later - earlier >= APART_MS for earlier, later in zip(ends._times, ends._times[1:], strict=False))
