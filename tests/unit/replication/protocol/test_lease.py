"""The lease: what a leader rests on, and what a new one waits for (CL-G4, CL-G5). Timers: test_coordinator_term.py."""

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.leader import IsrAnswer
from muster.coordinator.replication.protocol.lease import (
    FOREVER,
    NEVER,
    FetchSource,
    SilencePromise,
)
from muster.coordinator.replication.protocol.lease import lease_of as lease_of_session
from tests.support.led import EPOCH, SHARD, Cluster

LEASE = 5_880
SESSION = 6_000


def test_g4_it_rests_on_the_answer_that_the_latest_fetch_came_after() -> None:
    cluster = Cluster(isr=(1, 2))
    cluster.fetch(2, 0, 100)
    assert cluster.leader.lease_until(LEASE) < 0
    cluster.fetch(2, 0, 300)
    assert cluster.leader.lease_until(LEASE) == 100 + LEASE
    cluster.fetch(2, 0, 700)
    assert cluster.leader.lease_until(LEASE) == 300 + LEASE


def test_g4_each_of_those_in_sync_has_to_prove_it() -> None:
    cluster = Cluster()
    for now_ms in (100, 300):
        cluster.fetch(2, 0, now_ms)
    assert cluster.leader.lease_until(LEASE) < 0
    for now_ms in (150, 200):
        cluster.fetch(3, 0, now_ms)
    assert cluster.leader.lease_until(LEASE) == 100 + LEASE


def test_g4_there_is_none_below_min() -> None:
    cluster = Cluster(isr=(1, 2))
    for now_ms in (100, 300):
        cluster.fetch(2, 0, now_ms)
    cluster.learns((1,), 5)
    assert cluster.leader.lease_until(LEASE) == NEVER


def test_g4_alone_with_min_1_it_holds_for_ever() -> None:
    assert Cluster(isr=(1,), min_isr=1).leader.lease_until(LEASE) == FOREVER


def test_g4_who_was_asked_to_join_has_to_prove_it_too() -> None:
    cluster = Cluster(isr=(1, 2))
    for now_ms in (100, 300):
        cluster.fetch(2, 0, now_ms)
    cluster.fetch(3, 0, 400)
    question = cluster.leader.wants(400)
    assert question is not None
    assert cluster.leader.lease_until(LEASE) < 0
    cluster.leader.altered(question, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT), 500)
    assert cluster.leader.lease_until(LEASE) < 0
    cluster.fetch(3, 0, 600)
    assert cluster.leader.lease_until(LEASE) == 100 + LEASE


def test_g4_a_new_session_proves_nothing_and_takes_nothing_away() -> None:
    cluster = Cluster(isr=(1, 2))
    two = cluster.peers[2]
    for now_ms in (100, 300):
        cluster.fetch(2, 0, now_ms)
    number = two.asks(900, anew=True)
    cluster.leader.fetched(0, two, 12, EPOCH, 0, -1, 0, cluster.end_for_epoch, 900)
    two.answered(number, 950)
    assert cluster.leader.lease_until(LEASE) == 100 + LEASE
    cluster.fetch(2, 0, 1_000)
    assert cluster.leader.lease_until(LEASE) == 950 + LEASE


def test_g4_an_answer_of_a_session_that_is_over_is_none() -> None:
    cluster = Cluster(isr=(1, 2))
    two = cluster.peers[2]
    late = two.asks(100, anew=True)
    two.asks(200, anew=True)
    two.answered(late, 300)
    two.asks(400, anew=False)
    assert two.base_ms == NEVER


def test_g4_a_unit_that_its_session_let_go_of_is_not_proved_by_the_request_that_says_so() -> None:
    """The follower does not count the answer before as one to a fetch of the unit."""
    cluster = Cluster(isr=(1, 2))
    two = cluster.peers[2]
    for now_ms in (100, 300):
        cluster.fetch(2, 0, now_ms)
    cluster.leader.forgotten(0, two)
    two.asks(800, anew=False)
    two.answered(3, 800)
    two.asks(900, anew=False)
    assert two.base_ms == 800
    assert cluster.leader.lease_until(LEASE) == 100 + LEASE


def test_g4_a_unit_that_comes_to_a_session_late_has_its_own_beginning() -> None:
    cluster = Cluster(isr=(1, 2))
    two = cluster.peers[2]
    number = two.asks(100, anew=True)
    two.answered(number, 100)
    cluster.fetch(2, 0, 200)
    assert two.base_ms == 100
    assert cluster.leader.lease_until(LEASE) < 0
    cluster.fetch(2, 0, 300)
    assert cluster.leader.lease_until(LEASE) == 200 + LEASE


def test_g4_both_halves_of_a_shard_have_to_be_in_the_session() -> None:
    cluster = Cluster(isr=(1, 2), unit=SHARD, halves=2)
    for now_ms in (100, 300):
        cluster.fetch(2, 0, now_ms)
    assert cluster.leader.lease_until(LEASE) < 0
    for now_ms in (400, 500):
        cluster.fetch(2, 0, now_ms, half=1)
    assert cluster.leader.lease_until(LEASE) == 400 + LEASE


def test_l9_it_ends_with_a_later_epoch() -> None:
    cluster = Cluster(isr=(1, 2))
    for now_ms in (100, 300):
        cluster.fetch(2, 0, now_ms)
    cluster.leader.shown(EPOCH + 1)
    assert cluster.leader.lease_until(LEASE) == NEVER


def test_the_lease_is_shorter_than_what_is_waited_for_whatever_the_clocks_do() -> None:
    assert all(lease_of_session(ms) / 0.99 <= ms / 1.01 for ms in (1_000, 6_000, 6_049, 30_000))


def test_g5_a_new_leader_waits_a_session_from_what_it_last_received() -> None:
    promise, source = SilencePromise(started_ms=-50_000), FetchSource(1)
    promise.follow(source)
    source.received_ms = 1_000
    promise.follow(None)
    assert promise.answers_from(SESSION) == 7_000
    assert promise.waits_for(SESSION, 2_000) == [1]
    assert promise.waits_for(SESSION, 7_000) == []


def test_g5_a_leader_with_a_longer_session_is_waited_for_as_long_as_it_leads_by_it() -> None:
    promise, longer, other = SilencePromise(started_ms=-50_000), FetchSource(1), FetchSource(2)
    longer.session_ms = 2 * SESSION
    promise.follow(longer)
    longer.received_ms = 1_000
    promise.follow(other)
    other.received_ms = 3_000
    promise.follow(None)
    assert promise.answers_from(SESSION) == 13_000
    assert promise.waits_for(SESSION, 9_000) == [1]
    promise.let_go(1)
    assert promise.answers_from(SESSION) == 9_000
    assert promise.answers_from(3 * SESSION) == 21_000, "the longest that is known of any node"


def test_g5_or_from_its_own_start() -> None:
    promise = SilencePromise(started_ms=5_000)
    assert promise.answers_from(SESSION) == 11_000
    assert promise.waits_for(SESSION, 5_000) == []


def test_g5_one_that_led_before_goes_on() -> None:
    promise = SilencePromise(started_ms=0)
    promise.follow(None)
    assert promise.answers_from(SESSION) == 6_000


def test_g5_who_has_let_go_is_not_waited_for() -> None:
    promise, source = SilencePromise(started_ms=-50_000), FetchSource(1)
    promise.follow(source)
    source.received_ms = 1_000
    promise.follow(None)
    promise.let_go(1)
    assert promise.answers_from(SESSION) < 0


def test_g5_the_leader_before_the_last_is_waited_for_as_well() -> None:
    promise, one, two = SilencePromise(started_ms=-50_000), FetchSource(1), FetchSource(2)
    promise.follow(one)
    one.received_ms = 1_000
    promise.follow(two)
    two.received_ms = 2_000
    promise.follow(None)
    promise.let_go(2)
    assert promise.answers_from(SESSION) == 7_000
    assert promise.waits_for(SESSION, 2_000) == [1]


def test_g5_what_comes_after_the_unit_left_the_fetches_is_not_counted() -> None:
    promise, one = SilencePromise(started_ms=-50_000), FetchSource(1)
    promise.follow(one)
    one.received_ms = 1_000
    promise.follow(None)
    one.received_ms = 3_000
    assert promise.answers_from(SESSION) == 7_000
