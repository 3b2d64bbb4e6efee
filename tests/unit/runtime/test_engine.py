"""The engine's promises: order, durability before replies, one path for every failure, one answer for each request."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeAlias, get_args

import pytest

from coordinator.core import effects, events
from coordinator.core.central import events as central
from coordinator.core.central.events import CentralRequest
from coordinator.core.effects import HeartbeatReply, JoinReply, OffsetCommitReply, Reply
from coordinator.core.events import Event, Forget, Heartbeat, Loaded, TimerFired, TopicsChanged, Unload
from coordinator.core.refusals import REPLY_TYPES
from coordinator.core.types import Cause, Limits
from coordinator.errors import ErrorCode
from coordinator.runtime import engine as engine_module
from coordinator.runtime.engine import Engine, FlushJob
from coordinator.runtime.ports import LogFailed
from coordinator.runtime.slot import CALM_MS, FIRST_PAUSE_MS, LONGEST_PAUSE_MS, ShardStatus
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import JOIN_WAIT_MS, SESSION_MS, TinyShard, break_it, commit, fetch, heartbeat, join

TraceFunction: TypeAlias = Callable[..., Any]

NONE, GONE = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR


@dataclass
class Bench:
    """An engine over a memory log, and everything that it told."""

    shards: int = 2
    inbox_limit: int = 1_000
    loaded: bool = True
    bugs: list[str] = field(default_factory=list)
    changes: list[tuple[int, ShardStatus, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = MemoryGroupLog(self.shards)
        self.start()

    def start(self) -> None:
        self.engine = Engine(
            self.log,
            self.shards,
            Limits(),
            TinyShard,
            on_bug=lambda script, error: self.bugs.append(f"{script} -> {error!r}"),
            on_status=lambda *change: self.changes.append(change),
            inbox_limit=self.inbox_limit,
        )
        if self.loaded:
            self.engine.load(0)
            self.flush()

    def crash(self) -> None:
        self.log.crash()
        self.start()

    def core(self, shard: int = 0) -> TinyShard:
        core = self.engine.core(shard)
        assert isinstance(core, TinyShard)
        return core

    def turn(self, now_ms: int, *asked: Event) -> list[tuple[int, Reply]]:
        """Submit to shard 0, take a turn, return what was released."""
        for event in asked:
            assert self.engine.submit(0, event)
        self.engine.turn(now_ms)
        return self.told()

    def told(self) -> list[tuple[int, Reply]]:
        return self.engine.take_released().replies

    def flush(self) -> list[tuple[int, Reply]]:
        """Run one flush job to its end, whatever it is, and return what was released."""
        job = self.engine.flush_job()
        if job is not None:
            try:
                job.run()
            except LogFailed as error:
                self.engine.flush_failed(job, error)
            else:
                self.engine.flushed(job)
        return self.told()

    def job(self) -> FlushJob:
        job = self.engine.flush_job()
        assert job is not None
        return job


def codes(replies: list[tuple[int, Reply]]) -> list[tuple[int, ErrorCode]]:
    return [(request_id, reply.code) for request_id, reply in replies]


# -- durability ---------------------------------------------------------------------------------------------------


def test_a_reply_without_records_is_released_in_its_turn() -> None:
    bench = Bench()
    assert bench.turn(0, heartbeat(1)) == [(1, HeartbeatReply())]
    assert bench.engine.flush_job() is None


def test_a_reply_with_records_waits_for_the_flush() -> None:
    bench = Bench()
    assert bench.turn(0, commit(1, 10)) == []
    assert bench.engine.metrics.held == 1
    assert bench.flush() == [(1, OffsetCommitReply())]
    assert bench.engine.metrics.held == 0


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


def test_an_acknowledged_commit_survives_a_crash_and_an_unflushed_one_was_never_acknowledged() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    bench.flush()
    assert bench.turn(1, commit(2, 20)) == []
    bench.crash()
    assert bench.core().offsets == {("g", "t", 0): 10}


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


def test_a_timer_fires_as_an_event_with_its_deadline() -> None:
    bench = Bench()
    bench.turn(0, join(1))
    assert bench.engine.next_deadline_ms == JOIN_WAIT_MS
    bench.turn(JOIN_WAIT_MS - 1)
    assert bench.core().parked == {"g": [1]}
    bench.turn(JOIN_WAIT_MS + 7)
    assert bench.core().seen[-1] == TimerFired(("join", "g"), JOIN_WAIT_MS)
    assert bench.engine.next_deadline_ms is None


def test_timers_fire_before_what_is_queued() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1))
    bench.turn(SESSION_MS, heartbeat(2))
    assert [type(event) for event in bench.core().seen[-2:]] == [TimerFired, Heartbeat]


def test_a_heartbeat_pushes_its_timer_back() -> None:
    bench = Bench()
    bench.turn(0, heartbeat(1))
    bench.turn(3_000, heartbeat(2))
    bench.turn(SESSION_MS)
    assert not any(isinstance(event, TimerFired) for event in bench.core().seen)
    assert bench.engine.next_deadline_ms == 3_000 + SESSION_MS


def test_a_turn_fires_a_bounded_number_of_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "TIMERS_PER_TURN", 3)
    bench = Bench()
    bench.turn(0, *(heartbeat(number, member_id=f"m{number}") for number in range(5)))
    bench.turn(SESSION_MS)
    fired = [event for event in bench.core().seen if isinstance(event, TimerFired)]
    assert len(fired) == 3
    assert bench.engine.next_deadline_ms == SESSION_MS
    bench.turn(SESSION_MS)
    assert len([event for event in bench.core().seen if isinstance(event, TimerFired)]) == 5


# -- loading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REPLY_TYPES)
def test_before_the_load_everything_but_a_heartbeat_is_told_to_wait(kind: type[events.Request]) -> None:
    bench = Bench(loaded=False)
    assert bench.engine.submit(0, example(kind))
    ((request_id, reply),) = bench.told()
    assert request_id == 1
    assert type(reply) is REPLY_TYPES[kind]
    assert reply.code == (NONE if kind is Heartbeat else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def test_a_shard_hears_of_the_topics_and_then_that_it_is_loaded() -> None:
    bench = Bench(loaded=False)
    bench.engine.submit_all(TopicsChanged({"t": 3}, deleted=("old",)))
    bench.engine.load(0)
    bench.engine.turn(0)
    assert bench.core(1).lifecycle() == [TopicsChanged({"t": 3}), Loaded()]


def test_topics_changed_reaches_every_active_shard() -> None:
    bench = Bench()
    bench.engine.submit_all(TopicsChanged({"t": 4}, deleted=("u",)))
    bench.engine.turn(0)
    for shard in range(bench.shards):
        assert bench.core(shard).seen[-1] == TopicsChanged({"t": 4}, deleted=("u",))


def test_an_active_shard_is_not_loaded_over() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="shard 1 is active; unload it"):
        bench.engine.load_shard(1, 0)


def test_the_load_report_is_told() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    bench.flush()
    bench.crash()
    assert bench.engine.report(0).groups == 1
    assert (0, ShardStatus.ACTIVE, "replayed 1 group records and 0 ledger records") in bench.changes


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_failed_append_answers_everyone_and_replays_the_log() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    bench.flush()
    bench.turn(1, join(2))
    bench.log.failing_appends = {bench.log.appends + 1}
    assert codes(bench.turn(2, commit(3, 30))) == [(2, GONE), (3, GONE)]
    assert bench.engine.status(0) is ShardStatus.FAILED
    assert bench.engine.pending
    bench.turn(3)
    assert bench.engine.status(0) is ShardStatus.ACTIVE
    assert bench.core().offsets == {("g", "t", 0): 10}
    assert bench.core().parked == {}


def test_a_failed_append_leaves_other_shards_alone() -> None:
    bench = Bench()
    bench.log.failing_appends = {bench.log.appends + 1}
    bench.engine.submit(1, commit(2, 20))  # appended first, as it came first
    assert codes(bench.turn(0, commit(1, 10))) == [(2, GONE)]
    assert codes(bench.flush()) == [(1, NONE)]


def test_a_dropped_shards_timers_are_gone_and_other_shards_keep_theirs() -> None:
    bench = Bench()
    bench.engine.submit(1, join(9))
    bench.turn(0, join(1))
    assert codes(bench.turn(1, break_it(2))) == [(1, GONE), (2, GONE)]
    bench.turn(JOIN_WAIT_MS)
    assert codes(bench.flush()) == [(9, NONE)]
    assert bench.core().rounds == {}


def test_a_failed_flush_drops_what_it_covered() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    bench.log.failing_flushes = {bench.log.flushes + 1}
    assert codes(bench.flush()) == [(1, GONE)]
    bench.turn(1)
    # The record is in the log all the same: a refused commit may have happened, an acknowledged one must have.
    assert bench.core().offsets == {("g", "t", 0): 10}
    assert bench.turn(2, fetch(2)) == []
    assert codes(bench.flush()) == [(2, NONE)]


def test_a_shard_that_cannot_be_flushed_does_not_take_the_others_along() -> None:
    bench = Bench()
    bench.log.broken_shards = {0}
    bench.engine.submit(1, commit(2, 20))
    bench.turn(0, commit(1, 10))
    assert codes(bench.flush()) == [(1, GONE), (2, NONE)]
    assert bench.engine.status(1) is ShardStatus.ACTIVE


def test_requests_queued_behind_a_bug_are_answered_once() -> None:
    bench = Bench()
    assert codes(bench.turn(0, commit(1, 10), break_it(2), commit(3, 30))) == [(1, GONE), (2, GONE), (3, GONE)]
    bench.turn(1)
    assert bench.told() == []
    assert bench.core().offsets == {}


def test_what_was_queued_before_a_flush_failed_is_not_stepped_after_the_reload() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    job = bench.job()
    bench.engine.submit(0, commit(2, 20))
    bench.engine.flush_failed(job, LogFailed("the disk is gone"))
    assert codes(bench.told()) == [(1, GONE), (2, GONE)]
    bench.turn(1)
    assert bench.core().offsets == {("g", "t", 0): 10}


def test_a_bug_is_reported_with_the_event_that_did_it() -> None:
    bench = Bench()
    bench.turn(5, break_it(2, "orders"))
    assert bench.bugs == [
        "shard 0 at 5ms: DeleteGroup(request_id=2, group_id='orders', elsewhere=False) -> "
        "RuntimeError('the tiny shard breaks here')"
    ]


def test_a_long_event_is_reported_in_part() -> None:
    bench = Bench()
    bench.turn(5, break_it(2, "g" * 100_000))
    assert "more characters)" in bench.bugs[0]
    assert len(bench.bugs[0]) < engine_module.SCRIPT_LIMIT + 200


def test_a_record_that_cannot_be_encoded_drops_the_shard_and_is_reported() -> None:
    bench = Bench()
    assert codes(bench.turn(0, commit(1, 10, "g" * 40_000))) == [(1, GONE)]
    assert "cannot be stored" in bench.bugs[0]
    bench.turn(1)
    assert bench.engine.status(0) is ShardStatus.ACTIVE


@pytest.mark.parametrize("kind", REPLY_TYPES)
def test_a_failed_shard_refuses_with_the_right_reply(kind: type[events.Request]) -> None:
    bench = Bench()
    bench.turn(0, break_it(9))
    bench.told()
    assert bench.engine.submit(0, example(kind))
    ((request_id, reply),) = bench.told()
    assert (request_id, type(reply), reply.code) == (1, REPLY_TYPES[kind], GONE)
    assert reply.message


def test_a_shard_that_keeps_failing_waits_longer_each_time_up_to_a_limit() -> None:
    bench = Bench()
    bench.log.failing_reads = set(range(1, 1_000))
    bench.turn(0, break_it(1))
    now_ms, pauses = 0, []
    for _ in range(12):
        bench.engine.turn(now_ms)
        bench.engine.turn(now_ms)  # the failed load plans the next one
        wake_ms = bench.engine.next_deadline_ms
        assert wake_ms is not None
        pauses.append(wake_ms - now_ms)
        now_ms = wake_ms
    assert pauses[:4] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS, 8 * FIRST_PAUSE_MS]
    assert max(pauses) == pauses[-1] == LONGEST_PAUSE_MS
    bench.log.failing_reads = set()
    bench.engine.turn(now_ms)
    assert bench.engine.status(0) is ShardStatus.ACTIVE


def test_after_a_calm_time_a_failure_counts_as_the_first() -> None:
    bench = Bench()
    bench.turn(0, break_it(1))
    bench.turn(1)
    bench.turn(2, break_it(2))
    bench.turn(3)
    assert bench.engine.status(0) is ShardStatus.FAILED
    bench.turn(3 + FIRST_PAUSE_MS)
    assert bench.engine.status(0) is ShardStatus.ACTIVE
    late_ms = 3 + CALM_MS + 1
    bench.turn(late_ms, break_it(3))
    bench.turn(late_ms)
    assert bench.engine.status(0) is ShardStatus.ACTIVE


def test_a_record_that_cannot_be_applied_fails_the_shard_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    bench.flush()

    def broken_apply(core: TinyShard, record: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(TinyShard, "apply", broken_apply)
    bench.start()
    assert bench.engine.status(0) is ShardStatus.FAILED
    assert bench.engine.status(1) is ShardStatus.ACTIVE
    assert bench.bugs == ["shard 0 replay -> KeyError('no such thing')"]


# -- limits, forgetting, leaving ----------------------------------------------------------------------------------


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
    assert bench.turn(2, break_it(3)) == [(3, REPLY_TYPES[events.DeleteGroup](GONE, GONE.meaning))]


def test_an_unloaded_shard_keeps_its_promises_and_refuses_the_rest() -> None:
    bench = Bench()
    bench.turn(0, join(1), commit(2, 10))
    bench.engine.submit(0, heartbeat(3))
    bench.engine.submit_all(Unload())
    bench.engine.submit(0, heartbeat(4))
    assert codes(bench.turn(1)) == [(1, GONE), (4, GONE)]
    assert bench.engine.submit(0, heartbeat(5))
    assert codes(bench.told()) == [(5, GONE)]
    assert codes(bench.flush()) == [(2, NONE), (3, NONE)]
    assert bench.engine.next_deadline_ms is None
    assert not bench.engine.pending


def test_an_unloaded_shard_whose_last_flush_fails_is_not_reloaded() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    bench.turn(1, Unload())
    bench.log.failing_flushes = {bench.log.flushes + 1}
    assert codes(bench.flush()) == [(1, GONE)]
    bench.turn(100_000)
    assert bench.engine.status(0) is ShardStatus.UNLOADED


def test_a_failed_shard_can_be_unloaded_and_loaded_again() -> None:
    bench = Bench()
    bench.log.failing_reads = {bench.log.reads + 1}
    bench.turn(0, break_it(1))
    bench.turn(1)
    bench.turn(2, Unload())
    assert bench.engine.status(0) is ShardStatus.UNLOADED
    assert bench.engine.next_deadline_ms is None
    bench.engine.load_shard(0, 3)
    assert codes(bench.turn(4, heartbeat(2))) == [(2, NONE)]


def test_a_heartbeat_costs_the_same_however_many_shards_and_members_there_are() -> None:
    small, large = Bench(shards=2), Bench(shards=500)
    for shard in range(500):
        large.engine.submit(shard, heartbeat(1))
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
    bench.turn(0, heartbeat(1), heartbeat(2), commit(3, 10), join(4))
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
    assert (metrics.appends, metrics.records, metrics.flushes) == (2, 2, 1)
    assert (metrics.loads, metrics.failures, metrics.held) == (2, 1, 0)


def test_an_idle_turn_counts_for_nothing() -> None:
    bench = Bench()
    bench.turn(0)
    assert bench.engine.metrics.turns == 0


def example(kind: type[events.Request]) -> events.Request:
    examples: dict[type[events.Request], events.Request] = {
        events.JoinGroup: join(1),
        events.SyncGroup: events.SyncGroup(1, "g", "m", None, 1, None, None, ()),
        events.Heartbeat: heartbeat(1),
        events.Listen: events.Listen(1, "g", "a", None, 1),
        events.SessionHeartbeat: events.SessionHeartbeat(1, events.ConsumerHeartbeat(2, "g", "a", 1)),
        events.LeaveGroup: events.LeaveGroup(1, "g", ()),
        events.OffsetCommit: commit(1, 10),
        events.OffsetFetch: fetch(1),
        events.OffsetDelete: events.OffsetDelete(1, "g", ()),
        events.DescribeGroup: events.DescribeGroup(1, "g"),
        events.ListGroups: events.ListGroups(1),
        events.DeleteGroup: events.DeleteGroup(1, "g"),
        events.ExplainGroup: events.ExplainGroup(1, "g"),
        events.ConsumerHeartbeat: events.ConsumerHeartbeat(1, "g", "m", 1),
        events.DescribeConsumerGroup: events.DescribeConsumerGroup(1, "g"),
        central.RegisterConsumer: central.RegisterConsumer(1, "g", "m", "c", "h", 6_000, ("t",), "", "range"),
        central.AwaitOrders: central.AwaitOrders(1, "g", "m", 1),
        central.PingAnswered: central.PingAnswered(1, "g", "m", 1, 1),
        central.FetcherStopped: central.FetcherStopped(1, "g", "m", 1, 1),
        central.FetcherStarted: central.FetcherStarted(1, "g", "m", 1, 1),
        central.Deregister: central.Deregister(1, "g", "m", 1),
    }
    return examples[kind]


def test_every_request_has_a_reply_type() -> None:
    assert set(REPLY_TYPES) == set(get_args(events.Request))
    pushed = {events.Listen, events.SessionHeartbeat}
    assert {REPLY_TYPES[request] for request in pushed} == {effects.PushReply}
    told = set(get_args(CentralRequest))
    assert {REPLY_TYPES[request] for request in told} == {effects.CentralReply}
    for request, reply in ((one, reply) for one, reply in REPLY_TYPES.items() if one not in pushed | told):
        assert reply.__name__.removesuffix("Reply") == request.__name__.removesuffix("Group").removesuffix("Groups")


def test_a_fallen_shard_that_is_loaded_by_hand_is_not_loaded_again_by_plan() -> None:
    bench = Bench()
    bench.turn(0, break_it(1))
    bench.engine.load_shard(0, 0)
    loads = bench.engine.metrics.loads
    bench.turn(1)
    assert bench.engine.status(0) is ShardStatus.ACTIVE
    assert bench.engine.metrics.loads == loads


def test_an_unload_is_not_lost_when_its_shard_falls_first() -> None:
    bench = Bench()
    bench.turn(0, commit(1, 10))
    job = bench.job()
    bench.engine.submit_all(Unload())
    bench.engine.flush_failed(job, LogFailed("the disk is gone"))
    bench.turn(1)
    bench.turn(100_000)
    assert [bench.engine.status(shard) for shard in range(2)] == [ShardStatus.UNLOADED] * 2
    assert not bench.engine.pending


def test_an_unload_behind_a_bug_in_the_same_turn_still_counts() -> None:
    bench = Bench()
    bench.turn(0, break_it(1), Unload())
    bench.turn(100_000)
    assert bench.engine.status(0) is ShardStatus.UNLOADED
