"""One path for every failure: the shard is dropped, everyone is answered once, the log is replayed."""

from typing import get_args

import pytest

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.effects import REPLY_TYPES, CanaryReply
from muster.coordinator.core.model.events import CanaryRequest, CentralRequest, ControlRequest
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import CALM_MS, FIRST_PAUSE_MS, LONGEST_PAUSE_MS, ShardStatus
from muster.coordinator.runtime.stepper import SCRIPT_LIMIT
from muster.coordinator.runtime.transaction_shards import transaction_kind
from tests.fakes.tiny_shard import JOIN_WAIT_MS, TinyShard, break_it, commit, fetch, join
from tests.support.engine_bench import GONE, NONE, Bench, codes, elsewhere, example


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
        "shard 0 at 5ms: DeleteGroup(request_id=2, group_id='orders', elsewhere=False, operator='') -> "
        "RuntimeError('the tiny shard breaks here')"
    ]


def test_a_long_event_is_reported_in_part() -> None:
    bench = Bench()
    bench.turn(5, break_it(2, "g" * 100_000))
    assert "more characters)" in bench.bugs[0]
    assert len(bench.bugs[0]) < SCRIPT_LIMIT + 200


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
    assert (request_id, type(reply), reply.code) == (1, REPLY_TYPES[kind], elsewhere(kind, GONE))
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


SETTINGS = {events.DescribeSettings, events.AlterSettings}


def test_every_request_has_a_reply_type() -> None:
    assert set(REPLY_TYPES) == set(get_args(events.Request))
    pushed = {events.Listen, events.SessionHeartbeat}
    assert {REPLY_TYPES[request] for request in pushed} == {effects.PushReply}
    told = set(get_args(CentralRequest))
    assert {REPLY_TYPES[request] for request in told} == {effects.CentralReply}
    assert {REPLY_TYPES[request] for request in SETTINGS} == {effects.SettingsReply}
    held = set(get_args(ControlRequest))
    assert {REPLY_TYPES[request] for request in held} == {effects.HoldsReply}
    tried = set(get_args(CanaryRequest))
    assert {REPLY_TYPES[request] for request in tried} == {CanaryReply}
    apart = pushed | told | held | tried | SETTINGS
    for request, reply in ((one, reply) for one, reply in REPLY_TYPES.items() if one not in apart):
        assert reply.__name__.removesuffix("Reply") == request.__name__.removesuffix("Group").removesuffix("Groups")


def test_a_failed_shard_of_transactional_ids_does_not_speak_of_groups() -> None:
    """`muster transactions list` said that groups were not served."""
    bench = Bench(shards=1, kind=transaction_kind(2))
    ((_, reply),) = bench.turn(0, break_it(1))
    assert "the transactional ids of shard 0 are not served: a bug broke it" in str(reply)
