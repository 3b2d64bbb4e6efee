"""The engine's promises: order, durability before replies, timers, limits, and what a turn costs."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any, TypeAlias

import pytest

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import REPLY_TYPES, JoinReply
from muster.coordinator.core.model.events import Forget, Heartbeat, StoodStill, TimerFired
from muster.coordinator.core.model.types import Cause, CommittedOffset
from muster.coordinator.runtime import deadlines, engine, stepper
from muster.coordinator.runtime.shards import not_served_sentence
from muster.coordinator.runtime.stepper import SLOW_FLUSH_MS
from tests.fakes.tiny_shard import JOIN_WAIT_MS, SESSION_MS, break_it, commit, fetch, heartbeat, join
from tests.support.engine_bench import GONE, NONE, Bench, codes

TraceFunction: TypeAlias = Callable[..., Any]


# -- durability ---------------------------------------------------------------------------------------------------


def test_a_read_of_an_unflushed_fact_waits_too_and_keeps_its_place() -> None:
    bench = Bench()
    assert codes(bench.turn(0, heartbeat(1), commit(2, 10), fetch(3), heartbeat(4))) == [(1, NONE)]
    assert codes(bench.flush()) == [(2, NONE), (3, NONE), (4, NONE)]


def test_another_shard_does_not_wait() -> None:
    bench = Bench()
    bench.engine.submit(1, heartbeat(2))
    assert codes(bench.turn(0, commit(1, 10))) == [(2, NONE)]


def test_one_append_and_one_flush_serve_a_whole_turn() -> None:
    bench = Bench()
    flushes = bench.log.flushes
    bench.engine.submit(1, commit(99, 1))
    bench.turn(0, *(commit(number, number) for number in range(1, 51)))
    assert bench.log.appends == 2  # one for each shard
    assert len(bench.flush()) == 51
    assert bench.log.flushes == flushes + 1
    assert bench.engine.flush_job() is None


def test_turns_go_on_while_a_flush_runs_and_the_next_job_covers_them() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    job = bench.job()
    assert bench.turn(1, commit(2, 11)) == []
    assert bench.engine.flush_job() is None  # one at a time
    job.run()
    bench.engine.flushed(job)
    assert codes(bench.told()) == [(1, NONE)]
    assert codes(bench.flush()) == [(2, NONE)]


def test_thousands_that_speak_at_once_have_several_turns_and_no_timer_fires_before_the_last() -> None:
    bench = Bench(inbox_limit=3 * engine.MAX_EVENTS_IN_TURN)
    bench.turn(0, heartbeat(1))
    told = bench.turn(SESSION_MS, *(heartbeat(number) for number in range(2, 2 * engine.MAX_EVENTS_IN_TURN + 3)))
    assert len(told) == engine.MAX_EVENTS_IN_TURN
    assert bench.engine.pending
    assert len(bench.turn(SESSION_MS)) == engine.MAX_EVENTS_IN_TURN
    assert ("session", "g", "m") in bench.core().deadlines, "what it said last waits"
    assert len(bench.turn(SESSION_MS)) == 1
    assert not bench.engine.pending


def test_a_long_reply_ends_a_turn_and_the_next_question_has_the_next_one() -> None:
    """Fifty who ask for thousands of positions each would be one turn of a tenth of a second."""
    bench = Bench()
    bench.core().rows_of_a_fetch = stepper.MAX_ROWS_IN_TURN
    assert codes(bench.turn(0, *(fetch(number) for number in range(1, 4)), heartbeat(4))) == [(1, NONE)]
    assert bench.engine.pending
    assert codes(bench.turn(0)) == [(2, NONE)]
    assert codes(bench.turn(0)) == [(3, NONE)]
    assert codes(bench.turn(0)) == [(4, NONE)]
    assert not bench.engine.pending


def test_replies_that_are_not_long_share_a_turn() -> None:
    bench = Bench()
    bench.core().rows_of_a_fetch = stepper.MAX_ROWS_IN_TURN // 3
    assert codes(bench.turn(0, *(fetch(number) for number in range(1, 3)))) == [(1, NONE), (2, NONE)]
    assert codes(bench.turn(0, *(fetch(number) for number in range(3, 5)))) == [(3, NONE), (4, NONE)]


def test_a_timer_waits_for_those_that_were_queued_before_and_not_for_all_that_come_after() -> None:
    bench = Bench(inbox_limit=3 * engine.MAX_EVENTS_IN_TURN)
    bench.turn(0, heartbeat(1))
    others = [heartbeat(number, member_id="n") for number in range(2, engine.MAX_EVENTS_IN_TURN + 3)]
    bench.turn(SESSION_MS, *others)
    assert ("session", "g", "m") in bench.core().deadlines
    bench.turn(SESSION_MS, *others[:-1])
    assert ("session", "g", "m") not in bench.core().deadlines
    assert bench.engine.pending


def test_what_a_replay_read_is_not_told_before_it_is_flushed_again() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))  # appended, not flushed; then the process dies but not the machine
    bench.loaded = False
    bench.start()
    bench.engine.load(0)
    assert bench.core().offsets == {("g", "t", 0): 10}
    assert bench.turn(1, fetch(2)) == []
    assert codes(bench.flush()) == [(2, NONE)]


def test_notices_are_held_like_replies() -> None:
    bench = Bench()
    bench.turn(0, join(1))
    bench.turn(JOIN_WAIT_MS)
    assert bench.engine.take_released().notices == []
    bench.engine.flushed(bench.job())
    released = bench.engine.take_released()
    assert [notice.group_id for notice in released.notices] == ["g"]
    assert released.replies == [(1, JoinReply(generation=1))]


def test_a_notice_of_what_was_never_durable_is_dropped_with_its_shard() -> None:
    bench = Bench()
    bench.turn(0, join(1))
    bench.turn(JOIN_WAIT_MS)
    bench.turn(JOIN_WAIT_MS, break_it(2))
    bench.turn(JOIN_WAIT_MS)
    bench.engine.flushed(bench.job())
    assert bench.engine.take_released().notices == []


def test_a_job_that_is_not_in_flight_is_refused() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    job = bench.job()
    bench.engine.flushed(job)
    with pytest.raises(ValueError, match=r"flush job of shards \[0\] is not the one in flight"):
        bench.engine.flushed(job)


# -- timers -------------------------------------------------------------------------------------------------------


def test_what_is_queued_is_heard_before_timers_fire() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1))
    bench.turn(SESSION_MS, heartbeat(2))
    assert [type(event) for event in bench.core().seen[-2:]] == [Heartbeat, Heartbeat]
    assert bench.engine.next_deadline_ms == 2 * SESSION_MS


def test_a_deadline_waits_until_all_that_came_before_it_has_been_queued() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1))
    bench.engine.turn(SESSION_MS + 5, SESSION_MS - 1)
    assert not any(isinstance(event, TimerFired) for event in bench.core().seen)
    bench.engine.turn(SESSION_MS + 6, SESSION_MS)
    assert isinstance(bench.core().seen[-1], TimerFired)


def test_a_stall_moves_every_deadline_by_itself_and_by_the_time_that_reading_takes() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1), join(2))
    bench.engine.submit(1, heartbeat(3, "other"))
    bench.turn(0)
    bench.engine.stood_still(4_000, 60_000)
    for shard in range(2):
        assert bench.core(shard).seen[-1] == StoodStill(4_000, 6_000)
    assert bench.engine.next_deadline_ms == min(SESSION_MS, JOIN_WAIT_MS) + 6_000
    assert (bench.engine.metrics.stalls, bench.engine.metrics.stalled_ms) == (1, 4_000)
    bench.engine.stood_still(60_000, 180_000)
    assert bench.core().seen[-1] == StoodStill(60_000, 65_000)


def test_while_a_slow_flush_holds_answers_back_nobody_is_expired() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1), commit(2, 10))
    job = bench.job()
    bench.turn(SESSION_MS)
    assert not any(isinstance(event, TimerFired) for event in bench.core().seen)
    assert bench.engine.next_deadline_ms is None  # until the flush has ended there is nothing to wake up for
    job.run()
    bench.engine.flushed(job, SESSION_MS + 2_000)
    assert bench.engine.metrics.slow_flushes == 1
    assert bench.engine.next_deadline_ms == SESSION_MS + (SESSION_MS + 2_000 - SLOW_FLUSH_MS)
    bench.turn(bench.engine.next_deadline_ms)
    assert isinstance(bench.core().seen[-1], TimerFired)


def test_a_flush_as_slow_as_disks_are_moves_nothing() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1), commit(2, 10))
    job = bench.job()
    bench.turn(SLOW_FLUSH_MS)
    job.run()
    bench.engine.flushed(job, SLOW_FLUSH_MS)
    assert bench.engine.next_deadline_ms == SESSION_MS


def test_what_waited_for_two_flushes_waited_for_both_and_moves_deadlines_once() -> None:
    """No turn lies between the two: what deadlines have moved by does not count again."""
    bench = Bench()
    bench.turn(0, heartbeat(1), commit(2, 10))
    first = bench.job()
    bench.turn(100, commit(3, 11))
    first.run()
    bench.engine.flushed(first, 5_000)
    second = bench.job()
    second.run()
    bench.engine.flushed(second, 5_500)
    waited_ms = 5_500 - 100
    assert bench.engine.next_deadline_ms == SESSION_MS + waited_ms - SLOW_FLUSH_MS


def test_answers_that_wait_for_two_flushes_hold_timers_back_though_neither_is_slow() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1), commit(2, 10))
    first = bench.job()
    bench.turn(100, commit(3, 11))
    first.run()
    bench.engine.flushed(first, 900)
    second = bench.job()
    bench.turn(1_101)
    assert bench.engine.next_deadline_ms is None
    second.run()
    bench.engine.flushed(second, 1_700)
    assert bench.engine.next_deadline_ms == SESSION_MS + 1_600 - SLOW_FLUSH_MS


def expired_members(bench: Bench) -> list[str]:
    return [event.key[2] for event in bench.core().seen if isinstance(event, TimerFired)]


def test_nobody_is_expired_while_his_answer_is_held_back_and_what_waits_behind_it_is_heard_first() -> None:
    """Both flushes are as short as disks are: what the member says next waits, unheard, for the first one's answer."""
    bench = Bench()
    bench.turn(0, heartbeat(1), heartbeat(2, member_id="other"))
    bench.turn(SESSION_MS - 50, commit(3, 10, member_id="m"))
    job = bench.job()
    bench.turn(SESSION_MS)
    assert expired_members(bench) == ["other"]
    assert bench.engine.next_deadline_ms is None
    job.run()
    bench.engine.flushed(job, SESSION_MS + 500)
    assert bench.engine.next_deadline_ms == SESSION_MS
    bench.engine.turn(SESSION_MS + 501, SESSION_MS)  # the sockets have not been read since
    assert expired_members(bench) == ["other"], "the next request waits behind the answer, unread"
    bench.turn(SESSION_MS + 502, heartbeat(4))
    assert isinstance(bench.core().seen[-1], Heartbeat)
    bench.turn(2 * SESSION_MS + 502)
    assert bench.core().seen[-1] == TimerFired(("session", "g", "m"), 2 * SESSION_MS + 502)


def test_who_says_nothing_after_his_answer_went_out_is_expired_with_the_deadline_he_had() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1), commit(2, 10, member_id="m"))
    job = bench.job()
    bench.engine.stood_still(SESSION_MS, SESSION_MS)
    moved_ms = SESSION_MS + SESSION_MS // 2
    bench.turn(SESSION_MS + moved_ms)
    bench.engine.move_deadlines(7, SESSION_MS + moved_ms)
    job.run()
    bench.engine.flushed(job)
    bench.turn(SESSION_MS + moved_ms + 7)
    assert bench.core().seen[-1] == TimerFired(("session", "g", "m"), SESSION_MS + moved_ms + 7)


def test_what_a_replay_leaves_is_flushed_from_then_on_and_not_since_the_last_turn() -> None:
    """The node had nothing to do for an hour, or takes no turn before it has loaded: nobody fell silent by that."""
    bench = Bench()
    bench.turn(0, commit(1, 10))
    bench.flush()
    bench.turn(1, events.Unload())
    bench.engine.load_shard(0, 3_600_000)
    job = bench.job()
    bench.turn(3_600_000, heartbeat(2))
    job.run()
    bench.engine.flushed(job, 3_600_005)
    assert bench.engine.metrics.slow_flushes == 0
    assert bench.engine.next_deadline_ms == 3_600_000 + SESSION_MS


def test_a_stall_during_a_flush_does_not_count_twice() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1), commit(2, 10))
    job = bench.job()
    bench.engine.stood_still(15_000, 15_100)
    job.run()
    bench.engine.flushed(job, 15_100)
    assert bench.engine.metrics.slow_flushes == 0
    assert bench.engine.next_deadline_ms == SESSION_MS + 15_000 + 5_000


def test_a_turn_fires_a_bounded_number_of_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "TIMERS_PER_TURN", 3)
    bench = Bench()
    bench.turn(0, *(heartbeat(number, member_id=f"m{number}") for number in range(5)))
    bench.turn(SESSION_MS)
    fired = [event for event in bench.core().seen if isinstance(event, TimerFired)]
    assert len(fired) == 3
    assert bench.engine.next_deadline_ms == SESSION_MS
    bench.turn(SESSION_MS)
    assert len([event for event in bench.core().seen if isinstance(event, TimerFired)]) == 5


def test_timers_that_look_at_many_rows_have_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepper, "MAX_ROWS_IN_TURN", 2)
    bench = Bench()
    bench.turn(0, *(heartbeat(number, member_id=f"m{number}") for number in range(5)))
    bench.core().rows_of_a_timer = 1
    bench.turn(SESSION_MS)
    assert len([event for event in bench.core().seen if isinstance(event, TimerFired)]) == 2
    assert bench.engine.next_deadline_ms == SESSION_MS
    bench.turn(SESSION_MS)
    bench.turn(SESSION_MS)
    assert len([event for event in bench.core().seen if isinstance(event, TimerFired)]) == 5


def test_questions_about_many_rows_delay_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepper, "MAX_ROWS_IN_TURN", 2)
    bench = Bench()
    bench.turn(0, *(heartbeat(number, member_id=f"m{number}") for number in range(3)))
    bench.core().rows_of_a_fetch = 2
    bench.turn(SESSION_MS, fetch(9))
    assert len([event for event in bench.core().seen if isinstance(event, TimerFired)]) == 3


# -- limits -------------------------------------------------------------------------------------------------------


def test_a_full_inbox_refuses_requests_and_takes_a_forget() -> None:
    bench = Bench(inbox_limit=2)
    assert bench.engine.submit(0, join(1))
    assert bench.engine.submit(0, heartbeat(2))
    assert not bench.engine.submit(0, heartbeat(3))
    assert bench.engine.submit(0, Forget("g", 1))
    assert codes(bench.turn(0)) == [(2, NONE)]
    assert bench.engine.metrics.refused == 1
    assert bench.engine.submit(0, heartbeat(3))


def test_a_forgotten_request_is_never_answered() -> None:
    bench = Bench()
    bench.turn(0, join(1), commit(2, 10))
    bench.turn(1, Forget("g", 1), Forget("g", 2))
    assert bench.flush() == []
    (told,) = bench.turn(2, break_it(3))
    why = "a bug broke it: RuntimeError('the tiny shard breaks here')"
    assert told == (3, REPLY_TYPES[events.DeleteGroup](GONE, not_served_sentence(0, why)))


def test_a_heartbeat_costs_the_same_however_many_shards_and_members_there_are() -> None:
    small, large = Bench(shards=2), Bench(shards=500)
    for shard in range(500):
        large.engine.submit(shard, heartbeat(1))
    while large.engine.pending:
        large.turn(0)
    small.turn(0, heartbeat(1))
    assert steps_of_a_heartbeat(large) == steps_of_a_heartbeat(small)


def steps_of_a_heartbeat(bench: Bench) -> int:
    """How many lines of our own code one heartbeat runs through."""
    lines = 0

    def count(frame: FrameType, event: str, _: object) -> TraceFunction:
        nonlocal lines
        lines += event == "line" and frame.f_globals["__name__"].startswith("coordinator.")
        return count

    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        bench.engine.submit(0, heartbeat(2))
        bench.engine.turn(1)
        told = bench.engine.take_released()
        idle = (bench.engine.pending, bench.engine.flush_job(), bench.engine.next_deadline_ms)
    finally:
        sys.settrace(tracer)
    assert codes(told.replies) == [(2, NONE)]
    assert idle == (False, None, SESSION_MS)
    return lines


# -- figures ------------------------------------------------------------------------------------------------------


def test_the_figures_say_what_happened() -> None:
    bench = Bench()
    two = {("t", 0): CommittedOffset(10), ("t", 1): CommittedOffset(11)}
    bench.turn(0, heartbeat(1), heartbeat(2), replace(commit(3, 10), offsets=two), join(4))
    bench.turn(JOIN_WAIT_MS)
    bench.flush()
    bench.turn(JOIN_WAIT_MS + 1, break_it(5))
    metrics = bench.engine.metrics
    assert metrics.requests == {
        ("Heartbeat", NONE): 2,
        ("OffsetCommit", NONE): 1,
        ("JoinGroup", NONE): 1,
        ("DeleteGroup", GONE): 1,
    }
    assert metrics.rebalances == {Cause.MEMBER_JOINED: 1}
    assert (metrics.turns, metrics.events, metrics.largest_turn) == (3, 6, 4)
    assert (metrics.appends, metrics.records, metrics.flushes) == (2, 3, 1)
    assert (metrics.loads, metrics.failures, metrics.held) == (2, 1, 0)


def test_an_idle_turn_counts_for_nothing() -> None:
    bench = Bench()
    bench.turn(0)
    assert bench.engine.metrics.turns == 0
