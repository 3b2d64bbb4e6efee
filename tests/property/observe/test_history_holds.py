"""What a history tells for any samples: lags as they were, rates between those seen, bounds, nothing left over."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.observability.history.group_health import HealthStatus
from muster.coordinator.observability.history.group_history import (
    LONGEST_ETA_S,
    MINUTE_POINTS,
    RECENT_POINTS,
    FigureSeries,
    GroupHistory,
    Sample,
)

SAMPLE_MS = 10_000
steps = st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 500), st.integers(0, 500)), min_size=2, max_size=30)


@given(steps)
def test_lag_is_what_was_seen_and_rates_lie_between_the_slowest_and_the_fastest(
    drawn: list[tuple[int, int, int]],
) -> None:
    history, now_ms, end, committed = GroupHistory(SAMPLE_MS), 1, 0, 0
    seen, produced, consumed = [], [], []
    for passed_ms, written, read in drawn:
        more = min(read, end + written - committed)
        now_ms, end, committed = now_ms + passed_ms, end + written, committed + more
        history.record_sample("g", Sample([("t", 0)], [end], [committed], [now_ms]), now_ms)
        history.settle("g", now_ms)
        seen.append((now_ms, end - committed))
        produced.append(written * 1_000 / passed_ms)
        consumed.append(more * 1_000 / passed_ms)
    rates = history.rates("g")
    assert rates is not None
    assert rates.lag_now.tolist() == [end - committed]
    # The first look tells no rate.
    assert min(produced[1:]) - 1e-6 <= rates.produced[0] <= max(produced[1:]) + 1e-6
    assert min(consumed[1:]) - 1e-6 <= rates.consumed[0] <= max(consumed[1:]) + 1e-6
    trend, eta_s = history.trend("g"), history.eta_s("g")
    assert trend == rates.produced[0] - rates.consumed[0]
    assert (eta_s is None) == (end - committed >= -trend * LONGEST_ETA_S and end > committed)
    times, lags = history.lag_series("g")
    assert list(zip(times.tolist(), lags.tolist(), strict=True))[-len(seen) :] == seen


@given(st.integers(1, 4_000), st.integers(1, 90))
def test_a_series_is_bounded_in_order_and_keeps_peaks(points: int, spacing_s: int) -> None:
    series = FigureSeries()
    for at in range(points):
        series.add(at * spacing_s * 1_000, 10_000 if at == points // 2 else at % 7)
    times, values = series.points()
    assert len(times) <= RECENT_POINTS + MINUTE_POINTS
    assert (np.diff(times) > 0).all()
    assert times[-1] == (points - 1) * spacing_s * 1_000
    reach_ms = MINUTE_POINTS * 60_000 - 60_000
    if (points - points // 2) * spacing_s * 1_000 < reach_ms:
        assert values.max() == 10_000


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=8))
def test_only_what_the_last_sample_had_is_kept(rounds: list[set[int]]) -> None:
    history = GroupHistory(SAMPLE_MS)
    for number, there in enumerate(rounds):
        places = [("t", partition) for partition in sorted(there)]
        for place in places:  # in pieces of one
            history.record_sample("g", Sample([place], [10 + place[1]], [place[1]], [number]), number * SAMPLE_MS)
        history.settle("g", number * SAMPLE_MS)
        rates = history.rates("g")
        assert (rates.places if rates else ()) == () or set(rates.places if rates else ()) == set(places)
        assert len(history) == len(places)
        if places:
            assert history.lag("g") == 10 * len(places)
    history.forget(["g"])
    assert len(history) == 0
    assert history.health("g", 0).status is HealthStatus.NOTFOUND
