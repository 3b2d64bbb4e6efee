"""A group without members has a health of its own, no trend and no end; and what no window mixes."""

import pytest

from muster.coordinator.observability.history.group_health import HealthStatus
from muster.coordinator.observability.history.group_history import GroupHistory, Sample
from muster.coordinator.observability.read_model.groups import GroupProgress
from muster.coordinator.observability.views.groups import idle_words, progress_words
from muster.coordinator.server.services.group_coordinator import build_progress

SAMPLE_MS = 10_000
PLACE = ("orders", 0)
START_MS = 1_700_000_000_000
"""2023-11-14 22:13:20 UTC."""


class Watched:
    """A history of one group of one partition, looked at every 10 s."""

    def __init__(self) -> None:
        self.history = GroupHistory(SAMPLE_MS)
        self.now_ms = START_MS
        self.commit = (0, START_MS)

    def look(self, end: int, committed: int, *, members: bool) -> None:
        self.now_ms += SAMPLE_MS
        if committed != self.commit[0]:
            self.commit = (committed, self.now_ms)
        self.history.record_sample("g", Sample([PLACE], [end], [committed], [self.commit[1]]), self.now_ms)
        self.history.settle("g", self.now_ms, has_members=members)

    @property
    def status(self) -> HealthStatus:
        return self.history.last_health("g").status


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_group_that_its_members_left_is_idle_and_has_no_trend(watched: Watched) -> None:
    """It was told to be caught up in 8 s, at the rate of the members that had gone."""
    for at in range(1, 13):
        watched.look(100 * at, 50 * at, members=True)
    assert watched.history.trend("g") is not None
    left_ms = watched.now_ms
    for at in range(13, 40):
        watched.look(100 * at, 600, members=False)
        assert watched.history.trend("g") is None
        assert watched.history.eta_s("g") is None
        assert watched.status is HealthStatus.IDLE
    health = watched.history.last_health("g")
    assert (health.idle_since_ms, health.total_lag, health.growth) == (left_ms, 3_300, 1_000)
    assert watched.history.health("g", watched.now_ms) == health


def test_no_window_mixes_a_time_with_members_and_one_without(watched: Watched) -> None:
    for at in range(1, 5):
        watched.look(100 * at, 0, members=False)
    watched.look(400, 300, members=True)
    assert watched.history.trend("g") is None, "what was committed in this interval began before there were members"
    watched.look(500, 500, members=True)
    assert watched.history.flow("g") == (pytest.approx(10.0, abs=2), 20.0)
    assert watched.history.trend_window_ms("g") == SAMPLE_MS


def test_the_window_of_a_trend_is_that_of_health_at_most(watched: Watched) -> None:
    for at in range(1, 30):
        watched.look(100 * at, 50 * at, members=True)
    assert watched.history.trend_window_ms("g") == 10 * SAMPLE_MS


def test_a_consumer_without_membership_is_judged_by_its_commits(watched: Watched) -> None:
    """Spark and Flink commit under a group id that no member ever joins."""
    watched.look(1_000, 10, members=False)
    assert watched.status is HealthStatus.IDLE, "its last commit may be of any time"
    for at in range(1, 5):
        watched.look(1_000, 10 + 100 * at, members=False)
        assert watched.status is HealthStatus.OK
    assert watched.history.trend("g") == pytest.approx(-10.0)
    for _ in range(11):
        watched.look(1_000, 410, members=False)
    assert watched.status is HealthStatus.IDLE
    assert watched.history.last_health("g").idle_since_ms == watched.commit[1]


def test_members_that_come_back_are_judged_again(watched: Watched) -> None:
    for at in range(1, 4):
        watched.look(100 * at, 0, members=False)
    watched.look(400, 400, members=True)
    assert watched.status is HealthStatus.OK
    assert watched.history.last_health("g").idle_since_ms is None


@pytest.mark.parametrize(
    ("lag", "growth", "now_ms", "said"),
    [
        (37_924, 800, START_MS + 60_000, "idle since 22:13 UTC, 37,924 behind, growing"),
        (37_924, 0, START_MS + 60_000, "idle since 22:13 UTC, 37,924 behind"),
        (37_924, -5, START_MS + 60_000, "idle since 22:13 UTC, 37,924 behind, shrinking"),
        (37_924, None, START_MS + 60_000, "idle since 22:13 UTC, 37,924 behind"),
        (0, 0, START_MS + 60_000, "idle since 22:13 UTC, everything is read"),
        (1, 0, START_MS + 7_200_000, "idle since 2023-11-14 22:13 UTC, 1 behind"),
    ],
)
def test_words(lag: int, growth: int | None, now_ms: int, said: str) -> None:
    assert idle_words(START_MS, lag, growth, now_ms) == said


def test_an_idle_group_says_so_to_every_caller(watched: Watched) -> None:
    watched.look(100, 40, members=True)
    watched.look(200, 40, members=False)
    watched.look(300, 40, members=False)
    found = build_progress(watched.history, "g")
    assert found is not None
    assert (found.health, found.reason) == ("IDLE", "idle since 22:13 UTC, 260 behind, growing")
    assert found.idle_since_ms == START_MS + SAMPLE_MS
    assert not found.HasField("trend")


def test_a_sentence_names_the_window_of_its_trend() -> None:
    told = GroupProgress(1, 60, -4.0, 15.0, "OK", "", trend_window_ms=100_000)
    assert progress_words(told) == (
        "60 records behind, 4.0 fewer each second over the last 100 s: caught up in about 15.00 s"
    )
    told = GroupProgress(1, 60, 2.5, None, "OK", "", trend_window_ms=30_000)
    assert progress_words(told) == (
        "60 records behind, 2.5 more each second over the last 30 s: it does not catch up at this pace"
    )
    idle = "idle since 22:13 UTC, 60 behind, growing"
    assert progress_words(GroupProgress(1, 60, None, None, "IDLE", idle, idle_since_ms=START_MS)) == idle
