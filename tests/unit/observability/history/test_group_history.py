"""What a history makes of samples that are out of the ordinary: logs made anew, resets, gaps, logs that are away."""

from math import isnan

import pytest

from muster.coordinator.observability.history.group_health import HealthStatus
from muster.coordinator.observability.history.group_history import MAX_TROUBLED, GroupHistory, Sample

SAMPLE_MS = 10_000
PLACE = ("orders", 0)


class Watched:
    """A history of one group that is looked at every 10 s."""

    def __init__(self) -> None:
        self.history = GroupHistory(SAMPLE_MS)
        self.now_ms = 960_000
        self.history.topics({"orders": b"1"})

    def look(self, end: int, committed: int, *, commit_ms: int | None = None, after_ms: int = SAMPLE_MS) -> None:
        self.now_ms += after_ms
        at_ms = self.now_ms if commit_ms is None else commit_ms
        self.history.record_sample("g", Sample([PLACE], [end], [committed], [at_ms]), self.now_ms)
        self.history.settle("g", self.now_ms)

    def rates(self) -> tuple[float, float]:
        rates = self.history.rates("g")
        assert rates is not None
        return float(rates.produced[0]), float(rates.consumed[0])

    @property
    def status(self) -> HealthStatus:
        found = self.history.health("g", self.now_ms)
        assert self.history.last_health("g") == found  # whoever asks later is told what the sample said
        return found.status


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_the_first_look_tells_a_lag_and_no_rate(watched: Watched) -> None:
    watched.look(100, 40)
    assert watched.history.lag("g") == 60
    assert all(map(isnan, watched.rates()))
    assert watched.history.trend("g") is None
    assert watched.history.eta_s("g") is None


def test_rates_trend_and_the_time_until_nothing_waits(watched: Watched) -> None:
    watched.look(1_000, 0)
    watched.look(1_100, 300)
    assert watched.rates() == (10.0, 30.0)
    assert watched.history.trend("g") == -20.0
    assert watched.history.eta_s("g") == 40.0
    watched.look(1_100, 1_100)
    assert watched.history.eta_s("g") == 0.0


def test_a_trend_that_fades_points_to_no_end(watched: Watched) -> None:
    """It is never quite 0: a page said that a group would be caught up in 7971498552305568972800 days."""
    watched.look(1_000, 0)
    watched.look(1_000, 300)
    for _ in range(400):
        watched.look(1_000, 300)
    trend = watched.history.trend("g")
    assert trend is not None
    assert -1e-6 < trend < 0
    assert watched.history.eta_s("g") is None


def test_after_five_samples_half_of_a_change_is_seen(watched: Watched) -> None:
    for at in range(10):
        watched.look(at * 100, 0)
    for at in range(1, 6):
        watched.look(900 + at * 300, 0)
    assert watched.rates()[0] == pytest.approx(20.0)


def test_a_gap_counts_as_long_as_it_was(watched: Watched) -> None:
    """A node that stood still for 50 s has seen as much of the new rate as five samples would have."""
    watched.look(0, 0)
    watched.look(100, 0)
    watched.look(100 + 1_500, 0, after_ms=5 * SAMPLE_MS)
    assert watched.rates()[0] == pytest.approx(20.0)


def test_offsets_that_are_set_back_tell_no_rate_and_rewind(watched: Watched) -> None:
    for at in range(1, 4):
        watched.look(at * 100, at * 50)
    watched.look(400, 0)
    assert watched.rates()[1] == pytest.approx(5.0)
    assert watched.history.lag("g") == 400
    assert watched.status is HealthStatus.ERR
    assert watched.history.health("g", watched.now_ms).troubled[0].status is HealthStatus.REWIND
    watched.look(500, 60)
    assert watched.rates()[1] > 5.0


def test_a_topic_made_anew_under_its_name_begins_anew(watched: Watched) -> None:
    watched.look(1_000, 900)
    watched.look(2_000, 1_900)
    watched.history.topics({"orders": b"2"})
    watched.look(5_000, 0)
    assert all(map(isnan, watched.rates()))
    assert watched.history.lag("g") == 5_000


def test_a_log_that_ends_before_its_old_end_tells_no_rate(watched: Watched) -> None:
    watched.look(1_000, 900)
    watched.look(1_100, 900)
    watched.look(50, 900)
    assert watched.rates() == (10.0, 0.0)
    assert watched.history.lag("g") == 0


def test_a_log_that_is_away_keeps_what_was_last_seen(watched: Watched) -> None:
    watched.look(100, 40)
    watched.look(200, 40)
    watched.look(-1, 40)
    assert watched.history.lag("g") == 160
    assert watched.rates() == (10.0, 0.0)
    watched.look(500, 40)
    # 300 records in the 20 s since it was last there: 15 a second, of which a quarter counts by now.
    assert 10.0 < watched.rates()[0] < 15.0


def test_a_partition_that_was_not_in_a_whole_sample_goes(watched: Watched) -> None:
    watched.history.record_sample("g", Sample([PLACE, ("orders", 1)], [5, 7], [0, 0], [1, 1]), 1)
    watched.history.settle("g", 1)
    watched.look(5, 0)
    rates = watched.history.rates("g")
    assert rates is not None
    assert rates.places == (PLACE,)
    assert watched.history.lag("g") == 5


def test_figures_are_of_now_for_a_few_samples_only(watched: Watched) -> None:
    watched.look(1, 0)
    assert watched.history.fresh("g", watched.now_ms + 60_000)
    assert not watched.history.fresh("g", watched.now_ms + 60_001)
    assert not watched.history.fresh("unknown", watched.now_ms)


class TestHealth:
    def test_a_group_that_keeps_up(self, watched: Watched) -> None:
        for at in range(1, 12):
            watched.look(at * 100, at * 100)
        health = watched.history.health("g", watched.now_ms)
        assert (health.status, health.total_lag, health.complete) == (HealthStatus.OK, 0, 1.0)
        assert health.reason == "it keeps up"

    def test_one_that_is_too_slow(self, watched: Watched) -> None:
        for at in range(1, 12):
            watched.look(at * 100, at * 50)
        assert watched.status is HealthStatus.WARN

    def test_one_that_is_stuck_says_where(self, watched: Watched) -> None:
        for at in range(1, 12):
            watched.look(100 + at * 10, 50)
        health = watched.history.health("g", watched.now_ms)
        assert health.status is HealthStatus.ERR
        assert health.reason == (
            "orders-0 is stuck (STALL): 160 records wait, and it commits the same offset over and over"
        )

    def test_one_that_stopped(self, watched: Watched) -> None:
        for at in range(1, 4):
            watched.look(100 + at * 10, 50 + at)
        last_ms = watched.now_ms
        for at in range(4):
            watched.look(200 + at, 53, commit_ms=last_ms)
        assert watched.history.health("g", watched.now_ms).troubled[0].status is HealthStatus.STOP

    def test_a_node_that_has_just_started_calls_nobody_stopped(self, watched: Watched) -> None:
        """Burrow would: the only commit that it knows is older than no time at all."""
        watched.look(100, 50, commit_ms=1)
        assert watched.status is HealthStatus.OK
        for _ in range(10):
            watched.look(100, 50, commit_ms=1)
        assert watched.history.health("g", watched.now_ms).troubled[0].status is HealthStatus.STOP

    def test_many_in_trouble_are_counted_and_the_worst_named(self, watched: Watched) -> None:
        places = [("orders", partition) for partition in range(100)]
        for at in range(1, 12):
            ends = [at * 100 + partition for partition in range(100)]
            watched.history.record_sample("g", Sample(places, ends, [at] * 100, [at * SAMPLE_MS] * 100), at * SAMPLE_MS)
            watched.history.settle("g", at * SAMPLE_MS)
        health = watched.history.health("g", 11 * SAMPLE_MS)
        assert (len(health.troubled), health.not_ok) == (MAX_TROUBLED, 100)
        assert health.troubled[0].partition == 99
        assert health.reason.endswith("; 99 more partitions are not well")


def test_a_peak_in_a_minute_that_the_recent_samples_begin_in_is_kept(watched: Watched) -> None:
    for at in range(370):
        watched.look(9_000 if at == 7 else 5, 0)
    times, lags = watched.history.lag_series("g")
    assert lags.max() == 9_000
    assert (times[1:] > times[:-1]).all()


def test_how_often_a_group_commits_is_told_between_two_looks(watched: Watched) -> None:
    watched.look(100, 40)
    for count in (1_000, 1_300, 1_900):
        watched.now_ms += SAMPLE_MS
        watched.history.note_commits("g", count, watched.now_ms)
    assert watched.history.commits("g") == (900, watched.now_ms - 2 * SAMPLE_MS, watched.now_ms)
    watched.history.note_commits("g", 5, watched.now_ms + SAMPLE_MS)
    assert watched.history.commits("g") is None, "its shard was loaded anew, and has counted from there"
    assert watched.history.commits("nobody") is None


def test_where_positions_stood_is_told_of_the_last_commits(watched: Watched) -> None:
    for committed in range(0, 30, 2):
        watched.look(100, committed)
    times_ms, offsets = watched.history.positions("g", PLACE)
    assert offsets == list(range(10, 30, 2))
    assert times_ms[-1] == watched.now_ms
    assert watched.history.positions("g", ("orders", 1)) == ([], [])
