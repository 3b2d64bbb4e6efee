"""Shards that other nodes could lead: what is told, and when, and what becomes of timers (CL-G1 to CL-G7)."""

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.events import GroupObserved, Loaded, TimerFired
from muster.coordinator.core.model.records import OffsetsStored
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.shards import ShardStatus
from tests.fakes.tiny_shard import SESSION_MS, commit, fetch, heartbeat, join
from tests.support.engine_bench import GONE, NONE, codes
from tests.support.led_bench import TIMEOUT_MS, LedBench

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def fired(bench: LedBench) -> int:
    return sum(isinstance(event, TimerFired) for event in bench.core.seen)


# CL-G1


def test_g1_a_shard_is_nobodys_until_it_is_gained() -> None:
    bench = LedBench()
    assert [bench.engine.status(shard) for shard in (0, 1)] == [ShardStatus.ACTIVE, ShardStatus.UNLOADED]
    assert bench.engine.submit(1, commit(1, 10))
    assert codes(bench.told()) == [(1, GONE)]


def test_g1_whoever_waits_for_a_lost_shard_hears_so_and_no_promise_is_kept() -> None:
    """What was decided and is not committed may be cut away by whoever leads next."""
    bench = LedBench()
    bench.turn(1, commit(1, 10), join(2))
    bench.flush()
    assert bench.told() == []
    bench.engine.leave(0, "another leads", 2)
    assert codes(bench.told()) == [(1, GONE), (2, GONE)]
    bench.commit(3)
    bench.turn(60_000)
    assert bench.told() == []
    assert bench.engine.status(0) is ShardStatus.UNLOADED
    assert bench.bugs == []


def test_g1_what_was_queued_for_a_lost_shard_is_answered_once() -> None:
    bench = LedBench()
    assert bench.engine.submit(0, commit(1, 10))
    bench.engine.leave(0, "another leads", 2)
    assert codes(bench.turn(3)) == [(1, GONE)]
    assert bench.log.appends == 0


def test_g1_a_shard_that_is_gained_again_begins_with_what_is_there() -> None:
    bench = LedBench()
    bench.turn(1, commit(1, 10))
    bench.engine.leave(0, "another leads", 2)
    bench.told()
    bench.log.groups[0].batches.clear()  # whoever led in between did not have it
    bench.engine.load_shard(0, 3)
    ((_, reply),) = bench.turn(4, fetch(2))
    assert isinstance(reply, effects.OffsetFetchReply)
    assert reply.offsets == {}


def test_g1_lost_while_it_is_loaded_it_is_not_served() -> None:
    bench = LedBench(loads_elsewhere=True)
    job = bench.engine.load_job()
    assert job is not None
    job.run()
    bench.engine.leave(0, "another leads", 1)
    bench.engine.loaded(job, 2)
    assert bench.engine.status(0) is ShardStatus.UNLOADED
    assert bench.engine.core(0) is None


# CL-G2


def test_g2_what_rests_on_what_was_read_waits_until_that_is_committed() -> None:
    bench = LedBench()
    bench.turn(1, commit(1, 10))
    bench.engine.leave(0, "another leads", 2)
    bench.told()
    bench.engine.load_shard(0, 3)
    assert bench.turn(4, fetch(2)) == []
    bench.flush()
    assert bench.told() == [], "flushed here is not committed"
    assert codes(bench.commit(5)) == [(2, NONE)]


# CL-G3


def test_g3_an_answer_waits_for_the_commit_and_not_for_the_flush() -> None:
    bench = LedBench()
    assert bench.turn(1, commit(1, 10)) == []
    assert bench.flush() == []
    assert bench.authority.kept == [0]
    assert codes(bench.commit(2)) == [(1, NONE)]


def test_g3_each_append_has_a_position_of_its_own() -> None:
    bench = LedBench()
    bench.turn(1, commit(1, 10))
    bench.turn(2, commit(2, 20))
    (_, first), (_, second) = bench.authority.positions
    assert codes(bench.commit(3, first)) == [(1, NONE)]
    assert codes(bench.commit(4, second)) == [(2, NONE)]


def test_g3_held_for_too_long_it_is_not_available_and_what_was_appended_stays() -> None:
    bench = LedBench()
    bench.turn(1, commit(1, 10))
    bench.turn(1_000, commit(2, 20))
    assert not bench.engine.late(TIMEOUT_MS)
    assert bench.engine.late(TIMEOUT_MS + 1)
    assert codes(bench.told()) == [(1, AWAY)]
    assert codes(bench.commit(TIMEOUT_MS + 2)) == [(2, NONE)], "and nobody is answered twice"
    ((_, reply),) = bench.turn(TIMEOUT_MS + 3, fetch(3))
    assert isinstance(reply, effects.OffsetFetchReply)
    assert reply.offsets is not None
    assert reply.offsets["t", 0] is not None


def test_g3_who_asked_for_positions_for_too_long_looks_for_the_coordinator_anew() -> None:
    """Consumers of Kafka's libraries fail for good on 15 there; on 16 they look elsewhere and ask again."""
    bench = LedBench()
    bench.turn(1, commit(1, 10), fetch(2))
    assert bench.engine.late(TIMEOUT_MS + 1)
    assert codes(bench.told()) == [(1, AWAY), (2, GONE)]


def test_g3_a_heartbeat_that_changes_nothing_does_not_wait_for_a_commit() -> None:
    """Held: a commit that waited for a frozen follower kept the answers to heartbeats of its whole shard for five
    seconds, and members with sessions of six gave up."""
    bench = LedBench()
    assert bench.turn(1, commit(1, 10)) == []
    assert codes(bench.turn(2, heartbeat(2))) == [(2, NONE)]
    assert bench.turn(3, fetch(3)) == [], "positions rest on the commit"
    assert codes(bench.commit(4)) == [(1, NONE), (3, NONE)]


def test_g3_a_heartbeat_whose_own_step_is_on_record_waits_for_it() -> None:
    """Such as one by which a member of a KIP-848 group gives partitions back."""
    bench = LedBench()
    step = bench.core.step

    def writes(event: events.Event, now_ms: int) -> effects.Effects:
        made = step(event, now_ms)
        if isinstance(event, events.Heartbeat):
            bench.core.keep(OffsetsStored("g", {}), made)
        return made

    bench.core.step = writes  # type: ignore[method-assign]
    assert bench.turn(1, heartbeat(1)) == []
    assert codes(bench.commit(2)) == [(1, NONE)]


def test_g3_a_heartbeat_that_is_refused_waits_for_what_it_rests_on() -> None:
    bench = LedBench()
    step = bench.core.step

    def refuses(event: events.Event, now_ms: int) -> effects.Effects:
        made = step(event, now_ms)
        if isinstance(event, events.Heartbeat):
            made.replies[:] = [(event.request_id, effects.HeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID))]
        return made

    bench.core.step = refuses  # type: ignore[method-assign]
    bench.turn(1, commit(1, 10))
    assert bench.turn(2, heartbeat(2)) == []
    assert codes(bench.commit(3)) == [(1, NONE), (2, ErrorCode.UNKNOWN_MEMBER_ID)]


def test_g3_with_too_few_in_sync_nothing_is_appended_and_timers_stand_still() -> None:
    bench = LedBench()
    bench.turn(1, heartbeat(1))
    bench.engine.starve(0, "1 in sync, fewer than 2", 2)
    appends = bench.log.appends
    ((asked, reply),) = bench.turn(3, commit(2, 20))
    assert (asked, reply.code) == (2, AWAY)
    assert "1 in sync" in reply.message
    assert bench.log.appends == appends
    bench.turn(10 * SESSION_MS)
    assert fired(bench) == 0
    assert bench.engine.starved == {}, "its disk has room"
    bench.engine.feed(0, 10 * SESSION_MS)
    bench.flush()
    bench.commit(10 * SESSION_MS)
    bench.turn(11 * SESSION_MS - 2)
    assert fired(bench) == 0, "it has all that was left of its session"
    bench.turn(12 * SESSION_MS)
    assert fired(bench) == 1


# CL-G4


def test_g4_without_the_lease_nothing_is_told_and_then_all_in_order() -> None:
    bench = LedBench()
    bench.authority.answers = False
    assert bench.turn(1, heartbeat(1), fetch(2), commit(3, 10), fetch(4)) == []
    bench.flush()
    bench.commit(2)
    assert bench.told() == []
    bench.authority.answers = True
    assert bench.engine.opened(0, 3)
    assert codes(bench.told()) == [(1, NONE), (2, NONE), (3, NONE), (4, NONE)]


def test_g4_the_lease_counts_when_the_answer_leaves_not_when_it_was_decided() -> None:
    bench = LedBench()
    bench.turn(1, commit(1, 10))
    bench.authority.answers = False
    bench.flush()
    assert bench.commit(2) == []


def test_g4_nobody_overtakes_what_is_held() -> None:
    bench = LedBench()
    bench.authority.answers = False
    bench.turn(1, fetch(1))
    bench.authority.answers = True
    assert bench.turn(2, fetch(2)) == []
    bench.engine.opened(0, 3)
    assert codes(bench.told()) == [(1, NONE), (2, NONE)]


class Beating(LedBench):
    """Its core takes every heartbeat at once."""

    def __init__(self) -> None:
        super().__init__()
        self.core.beat = lambda *said: True  # type: ignore[method-assign]


def test_g4_a_heartbeat_takes_no_short_way_without_the_lease() -> None:
    bench = Beating()
    assert bench.engine.beat(0, "g", "m", 1, 1)
    bench.authority.answers = False
    assert not bench.engine.beat(0, "g", "m", 1, 2)
    bench.turn(3, heartbeat(1))
    bench.authority.answers = True
    assert not bench.engine.beat(0, "g", "m", 1, 4), "nor before those that wait"


def test_g4_without_the_lease_for_too_long_whoever_asked_hears_so() -> None:
    bench = LedBench()
    bench.authority.answers = False
    bench.turn(1, heartbeat(1))
    bench.engine.late(TIMEOUT_MS + 1)
    assert codes(bench.told()) == [(1, AWAY)]


# CL-G5


def test_g5_while_it_is_loaded_nobody_hears_that_all_is_well() -> None:
    bench = LedBench(loads_elsewhere=True)
    for event in (heartbeat(1), commit(2, 10)):
        assert bench.engine.submit(0, event)
    assert codes(bench.told()) == [(1, AWAY), (2, LOADING)]


# CL-G6


def test_g6_no_timer_fires_without_the_lease_and_deadlines_move_by_the_gap() -> None:
    bench = LedBench()
    bench.turn(1, heartbeat(1))
    bench.authority.fires = False
    bench.turn(1 + SESSION_MS)
    assert fired(bench) == 0
    bench.authority.fires = True
    bench.engine.moved(0, 1_500, 1_500 + SESSION_MS)
    assert bench.engine.opened(0, 1_500 + SESSION_MS)
    bench.turn(1_500 + SESSION_MS)
    assert fired(bench) == 0
    bench.turn(1_501 + SESSION_MS)
    assert fired(bench) == 1


def test_g6_what_waits_for_the_lease_is_no_reason_to_take_turns() -> None:
    bench = LedBench()
    bench.turn(1, heartbeat(1))
    bench.authority.fires = False
    bench.turn(1 + SESSION_MS)
    assert bench.engine.next_deadline_ms is None


def test_g6_let_go_for_want_of_a_lease_it_is_not_available_but_still_this_nodes() -> None:
    bench = LedBench()
    bench.engine.leave(0, "no lease", 1)
    assert bench.engine.submit(0, heartbeat(1))
    assert codes(bench.told()) == [(1, AWAY)]
    bench.authority.led = set()
    assert bench.engine.submit(0, heartbeat(2))
    assert codes(bench.told()) == [(2, GONE)]


# CL-G7


def test_g7_after_a_load_the_core_is_told_so_by_the_time_it_is_served() -> None:
    """It gives each member a whole session then (`Loaded`)."""
    bench = LedBench()
    bench.engine.leave(0, "another leads", 1)
    bench.engine.load_shard(0, 77_000)
    assert [type(event) for event in bench.core.seen] == [Loaded]


# CL-G10


def test_g10_what_is_seen_in_zookeeper_is_for_who_leads_the_shard() -> None:
    """Each node sees all groups of that era; one of them takes it in, and who leads next is told anew."""
    bench = LedBench()
    seen = GroupObserved("g", ())
    assert bench.engine.submit(1, seen)
    bench.turn(1)
    assert bench.core.seen.count(seen) == 0
    assert bench.engine.submit(0, seen)
    bench.turn(2)
    assert bench.core.seen.count(seen) == 1
    bench.engine.leave(0, "another leads", 3)
    assert bench.engine.submit(0, seen)
    bench.turn(4)
    assert (bench.log.appends, bench.bugs) == (0, [])
    assert bench.engine.core(1) is None


# What fails.


def test_a_log_that_cannot_be_flushed_is_told_of() -> None:
    bench = LedBench()
    bench.turn(1, commit(1, 10))
    bench.log.broken_shards = {0}
    assert codes(bench.flush(2)) == [(1, GONE)]
    assert bench.authority.broken == [0]
    assert bench.engine.status(0) is ShardStatus.FAILED


def test_a_log_that_was_lost_meanwhile_and_cannot_be_flushed_is_no_failure_of_the_shard() -> None:
    bench = LedBench()
    bench.turn(1, commit(1, 10))
    bench.log.broken_shards = {0}
    bench.engine.leave(0, "another leads", 2)
    bench.flush(3)
    bench.turn(60_000)
    assert bench.engine.status(0) is ShardStatus.UNLOADED
