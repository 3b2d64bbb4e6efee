"""Rebalances on a line of time, their phases, and lag over time."""

import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.web.pages.pictures import (
    DAY,
    HOUR,
    MINUTE,
    TimelineMark,
    draw_chart,
    draw_phases,
    draw_sparkline,
    draw_timeline,
    thin_points,
    timeline_window,
)

NOW = 1_700_000_000_000


def mark(number: int, start_ms: int, took_ms: int = 50) -> TimelineMark:
    return TimelineMark(number, start_ms, start_ms + took_ms, "change", 0.5, f"rebalance {number}", f"/r/{number}")


def share(text: str) -> float:
    assert text.endswith("%")
    return float(text[:-1]) / 100


def test_a_rebalance_stands_where_its_time_is_and_is_as_wide_as_it_took() -> None:
    root = ElementTree.fromstring(draw_timeline([mark(1, NOW - HOUR // 2, HOUR // 10), mark(2, NOW - HOUR)], NOW))
    first = next(link for link in root.iter("a") if link.attrib["href"] == "/r/1")
    span = timeline_window([NOW - HOUR // 2, NOW - HOUR], NOW)
    body = first.find("rect")
    assert body is not None
    assert abs(share(body.attrib["x"]) - (1 - HOUR / 2 / span)) < 0.001
    assert abs(share(body.attrib["width"]) - HOUR / 10 / span) < 0.001


def test_one_old_rebalance_does_not_press_the_others_together() -> None:
    starts = [NOW - 6 * DAY, *(NOW - each * MINUTE for each in (1, 2, 3, 4))]
    assert timeline_window(starts, NOW) == 5 * MINUTE


def test_a_stall_of_the_node_is_shown_behind_the_rebalances() -> None:
    root = ElementTree.fromstring(draw_timeline([mark(1, NOW - MINUTE)], NOW, [(NOW - 2 * MINUTE, NOW - MINUTE)]))
    assert [rect.attrib["class"] for rect in root.iter("rect") if rect.attrib["class"] == "stall"] == ["stall"]


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**10)), max_size=20))
def test_whatever_the_times_everything_is_inside_the_picture(times: list[tuple[int, int]]) -> None:
    marks = [mark(number, NOW - ago, took) for number, (ago, took) in enumerate(times)]
    for rect in ElementTree.fromstring(draw_timeline(marks, NOW)).iter("rect"):
        assert 0 <= share(rect.attrib["x"]) <= 1
        assert share(rect.attrib["x"]) + share(rect.attrib["width"]) <= 1.001


def test_phases_are_to_the_scale_of_the_longest_rebalance() -> None:
    root = ElementTree.fromstring(draw_phases([("p1", 300, "join 300 ms"), ("p3", 100, "settle 100 ms")], 800))
    places = [(rect.attrib["x"], rect.attrib["width"]) for rect in root.iter("rect")]
    assert places == [("0%", "37.5%"), ("37.5%", "12.5%")]


def test_no_peak_is_lost_when_points_are_left_out() -> None:
    times, lags = list(range(10_000)), [0] * 10_000
    lags[4_321] = 99
    assert max(lag for _, lag in thin_points(times, lags, 60)) == 99
    assert "at most 99" in draw_sparkline(times, lags)


def test_a_single_point_is_no_picture() -> None:
    assert draw_sparkline([1], [1]) == ""
    assert draw_chart([], []) == ""


def test_a_group_without_lag_is_a_flat_line() -> None:
    assert "NaN" not in draw_chart([1, 2, 3], [0, 0, 0], [2])
