"""Shards that come, go and come back: loading, leaving, and what is said to whoever asks meanwhile."""

import pytest

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import REPLY_TYPES
from muster.coordinator.core.model.events import Heartbeat, TopicsChanged, Unload
from muster.coordinator.core.model.records import OffsetsStored
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.kafka_records import encode
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import ShardStatus
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import break_it, commit, heartbeat, join
from tests.support.engine_bench import GONE, NONE, Bench, codes, elsewhere, example


@pytest.mark.parametrize("kind", REPLY_TYPES)
def test_before_the_load_everything_but_a_heartbeat_is_told_to_wait(kind: type[events.Request]) -> None:
    bench = Bench(loaded=False)
    assert bench.engine.submit(0, example(kind))
    ((request_id, reply),) = bench.told()
    assert request_id == 1
    assert type(reply) is REPLY_TYPES[kind]
    assert reply.code == (NONE if kind is Heartbeat else elsewhere(kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


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


def test_a_fallen_shard_that_is_loaded_by_hand_is_not_loaded_again_by_plan() -> None:
    bench = Bench()
    bench.turn(0, break_it(1))
    bench.engine.load_shard(0, 0)
    loads = bench.engine.metrics.loads
    bench.turn(1)
    assert bench.engine.status(0) is ShardStatus.ACTIVE
    assert bench.engine.metrics.loads == loads


def test_what_a_load_drops_of_topics_that_are_gone_is_said() -> None:
    said: list[str] = []
    log = MemoryGroupLog(1)
    position = StoredOffset(5, -1, "", 0, None, b"1" * 16)
    places = {(f"t{number}", partition): position for number in range(7) for partition in range(number + 1)}
    log.append(0, encode([OffsetsStored("g", places)]).groups, [], 0)
    engine = Engine(log, 1, Limits(), options=EngineOptions(on_status=lambda _shard, _status, why: said.append(why)))
    engine.submit_all(TopicsChanged({"t0": 1, "t6": 7}, ids={"t0": b"1" * 16, "t6": b"2" * 16}))
    engine.load(0)
    words = "positions were dropped, whose topics are gone or were made anew since they were committed: "
    assert said[1:] == [words + "t6 (7), t5 (6), t4 (5), t3 (4), t2 (3) and of 1 more"]
    assert engine.report(0).orphans == said[1]
