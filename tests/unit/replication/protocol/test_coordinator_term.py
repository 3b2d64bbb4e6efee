"""A node's term as a shard's coordinator: what it may say, and when its timers run (CL-G3 to CL-G6)."""

from muster.coordinator.replication.protocol.coordinator_term import CoordinatorTerm
from muster.coordinator.replication.protocol.lease import (
    HOLD,
    LOAD,
    RUN,
    UNLOAD,
    FetchSource,
    LeaseGap,
    SilencePromise,
    TimerVerdict,
)
from tests.support.led import EPOCH, SHARD, Cluster

SESSION = 6_000
LEASE = 5_880


def shard(promise: SilencePromise | None = None, *, end: int = 0, now_ms: int = 0) -> tuple[Cluster, CoordinatorTerm]:
    """In a later epoch than the first. Without a promise: nobody can believe to lead."""
    cluster = Cluster(isr=(1, 2), unit=SHARD, halves=2, end=end)
    return cluster, CoordinatorTerm(cluster.leader, promise or SilencePromise(-SESSION), SESSION, now_ms)


def fetch(cluster: Cluster, offset: int, now_ms: int, ledger: int = 0) -> None:
    """Of both halves, twice: the second proves that the answer to the first was received."""
    for at_ms in (now_ms - 1, now_ms):
        cluster.fetch(2, offset, at_ms, half=0)
        cluster.fetch(2, ledger, at_ms, half=1)


def heard(at_ms: int, node: int = 3) -> SilencePromise:
    """Of a follower that received its leader's last answer then."""
    promise, source = SilencePromise(-SESSION), FetchSource(node)
    promise.follow(source)
    source.received_ms = at_ms
    promise.follow(None)
    return promise


def test_g3_an_append_is_committed_once_both_halves_of_it_are() -> None:
    cluster, term = shard()
    fetch(cluster, 0, 100)
    cluster.write(5, 200, half=0)
    cluster.write(2, 200, half=1)
    assert not term.wrote(1)
    assert term.committed() is None
    cluster.fetch(2, 5, 300, half=0)
    assert term.committed() is None
    cluster.fetch(2, 2, 300, half=1)
    assert term.committed() == 1
    assert term.committed() is None


def test_g3_what_is_written_later_waits_for_itself() -> None:
    cluster, term = shard()
    fetch(cluster, 0, 100)
    for position, end in ((1, 5), (2, 8), (3, 9)):
        cluster.write(end, 200)
        term.wrote(position)
    cluster.fetch(2, 8, 300)
    assert term.committed() == 2
    cluster.fetch(2, 9, 400)
    assert term.committed() == 3


def test_g2_what_a_load_has_read_beyond_the_high_watermark_waits_for_it() -> None:
    cluster, term = shard(end=7)
    assert not term.wrote(1)
    fetch(cluster, 7, 100, ledger=7)
    assert term.committed() == 1


def test_g2_what_was_committed_before_waits_for_nothing() -> None:
    cluster, term = shard(end=7)
    fetch(cluster, 7, 100, ledger=7)
    assert term.wrote(1)
    assert term.committed() == 1


def test_g4_nothing_may_leave_without_the_lease() -> None:
    cluster, term = shard()
    assert not term.may_answer(0)
    fetch(cluster, 0, 100)
    assert term.may_answer(100)
    assert term.may_answer(100 + LEASE - 1)
    assert not term.may_answer(100 + LEASE)


def test_g4_it_counts_from_the_answer_that_the_fetch_came_after() -> None:
    cluster, term = shard()
    fetch(cluster, 0, 100)
    for half in (0, 1):
        cluster.fetch(2, 0, 3_000, half=half)
    cluster.fetch(2, 0, 5_000)
    assert not term.may_answer(3_000 + LEASE)


def test_g5_a_new_leader_waits_for_a_session_after_the_last_answer_it_received() -> None:
    cluster, term = shard(heard(1_000), now_ms=1_200)
    for now_ms in range(1_300, 7_000, 100):
        fetch(cluster, 0, now_ms)
        assert not term.may_answer(now_ms)
    fetch(cluster, 0, 7_000)
    assert term.may_answer(7_000)


def test_g5_its_own_start_counts_as_an_answer() -> None:
    cluster, term = shard(SilencePromise(1_000), now_ms=1_200)
    fetch(cluster, 0, 6_999)
    assert not term.may_answer(6_999)
    assert term.may_answer(7_000)


def test_g5a_sooner_once_the_node_has_let_go() -> None:
    cluster, term = shard(heard(1_000), now_ms=1_200)
    fetch(cluster, 0, 1_300)
    assert term.waits_for(1_300) == [3]
    term.let_go(3)
    assert term.waits_for(1_300) == []
    assert term.may_answer(1_300)


def test_g5_nobody_joins_while_a_former_leader_may_answer() -> None:
    """Found by the simulated cluster's seed 5000275. Whoever joins may lead next, and hears from this node that it has
    let go: the former leader still rested on what this one had proved, and both answered."""
    cluster, term = shard(heard(1_000), now_ms=1_200)
    for at_ms in (1_300, 1_400):
        for half in (0, 1):
            cluster.fetch(3, 0, at_ms, half=half)
    assert not term.may_answer(1_400)
    assert cluster.leader.wants(1_400) is None
    term.let_go(3)
    assert not term.may_answer(1_500), "no follower has proved anything; but nobody is waited for any more"
    question = cluster.leader.wants(1_500)
    assert question is not None
    assert question.nodes == (1, 2, 3)


def test_g5_who_led_the_epoch_before_goes_on_as_far_as_it_could_answer_then() -> None:
    cluster, term = shard(heard(1_000), now_ms=1_200)
    fetch(cluster, 0, 7_000)
    assert term.may_answer(7_000)
    cluster.write(5, 7_000)
    term.wrote(1)
    again = Cluster(isr=(1, 2), unit=SHARD, halves=2, end=5)
    again.leader.epoch = EPOCH + 1
    assert term.goes_on(again.leader)
    assert term.waits_for(7_100) == []
    assert not term.may_answer(7_100), "its followers have to prove it anew"
    for at_ms in (7_200, 7_300):
        for half in (0, 1):
            again.fetch(2, 5, at_ms, half=half, epoch=EPOCH + 1)
    assert term.may_answer(7_300)
    assert term.committed() == 1


def test_g5_who_led_longer_ago_does_not_go_on() -> None:
    cluster, term = shard()
    cluster.leader.epoch = EPOCH
    later = Cluster(isr=(1, 2), unit=SHARD, halves=2)
    later.leader.epoch = EPOCH + 2
    assert not term.goes_on(later.leader)


def test_g5_where_nobody_led_before_nobody_is_waited_for() -> None:
    cluster = Cluster(isr=(1, 2), unit=SHARD, halves=2)
    cluster.leader.epoch = 0
    term = CoordinatorTerm(cluster.leader, SilencePromise(0), SESSION, 0)
    for half in (0, 1):
        for at_ms in (100, 200):
            cluster.fetch(2, 0, at_ms, half=half, epoch=0)
    assert term.may_answer(200)


def test_g6_before_the_first_lease_no_timer_fires_and_deadlines_move_by_all_of_it() -> None:
    cluster, term = shard(heard(1_000), now_ms=1_200)
    for now_ms in range(1_300, 7_000, 100):
        fetch(cluster, 0, now_ms)
        assert term.judge_timers(now_ms) == HOLD
    fetch(cluster, 0, 7_000)
    assert term.judge_timers(7_000) == TimerVerdict(LeaseGap.MOVE, 5_800)
    assert term.judge_timers(7_001) == RUN


def opened() -> tuple[Cluster, CoordinatorTerm]:
    cluster, term = shard()
    fetch(cluster, 0, 100)
    assert term.judge_timers(100).gap is LeaseGap.MOVE
    return cluster, term


def test_g6_timers_wait_for_the_lease_and_move_by_a_short_gap() -> None:
    cluster, term = opened()
    over = 100 + LEASE
    assert term.judge_timers(over - 1) == RUN
    assert term.judge_timers(over + 500) == HOLD
    fetch(cluster, 0, over + 1_000)
    assert term.judge_timers(over + 1_000) == TimerVerdict(LeaseGap.MOVE, 1_000)
    assert term.judge_timers(over + 1_001) == RUN


def test_g6_a_gap_that_nobody_looked_at_counts_as_one() -> None:
    """The node stood still: its followers are heard before anything else."""
    cluster, term = opened()
    over = 100 + LEASE
    fetch(cluster, 0, over + 1_000)
    assert term.judge_timers(over + 1_000) == TimerVerdict(LeaseGap.MOVE, 1_000)
    again = over + 1_000 + LEASE
    fetch(cluster, 0, again + 9_000)
    assert term.judge_timers(again + 9_000) == UNLOAD
    assert term.judge_timers(again + 9_001) == LOAD


def test_g6_after_a_long_gap_the_shard_is_loaded_anew() -> None:
    cluster, term = opened()
    over = 100 + LEASE
    assert term.judge_timers(over + 2_000) == UNLOAD
    assert term.judge_timers(over + 3_000) == HOLD
    fetch(cluster, 0, over + 4_000)
    assert term.judge_timers(over + 4_000) == LOAD
    assert term.judge_timers(over + 4_001) == RUN


def test_l9_a_leader_that_is_over_says_nothing() -> None:
    cluster, term = opened()
    cluster.leader.shown(EPOCH + 1)
    assert not term.may_answer(200)
    assert not term.enough
