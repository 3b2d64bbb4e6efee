"""Shards replayed off the loop: others are served meanwhile, and what nobody wants any more comes to nothing."""

from collections.abc import Iterator

from muster.coordinator.core.model.events import Loaded, TopicsChanged, Unload
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.ports import KeyValue, LogFailed
from muster.coordinator.runtime.replay import SLICE
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.runtime.stepper import LoadJob
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import TinyShard, commit, join

SHARDS = 3


def engine_of(log: MemoryGroupLog) -> Engine:
    engine = Engine(log, SHARDS, Limits(), TinyShard, options=EngineOptions(loads_elsewhere=True))
    engine.submit_all(TopicsChanged({"t": 1}))
    engine.load(0)
    return engine


def next_job(engine: Engine) -> LoadJob:
    job = engine.load_job()
    assert job is not None
    return job


def load_next(engine: Engine, now_ms: int = 0) -> int:
    job = next_job(engine)
    job.run()
    engine.loaded(job, now_ms)
    return job.shard


def codes(engine: Engine) -> list[ErrorCode]:
    engine.turn(0)
    while job := engine.flush_job():
        job.run()
        engine.flushed(job)
    return [reply.code for _, reply in engine.take_released().replies]


def test_one_shard_serves_while_the_next_is_being_replayed() -> None:
    engine = engine_of(MemoryGroupLog(SHARDS))
    assert [engine.status(shard) for shard in range(SHARDS)] == [ShardStatus.LOADING] * SHARDS
    assert load_next(engine) == 0
    second = next_job(engine)
    engine.submit(0, commit(1, 10))
    engine.submit(1, commit(2, 10))
    assert sorted(codes(engine)) == sorted([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE])
    second.run()
    engine.loaded(second, 5)
    core = engine.core(1)
    assert isinstance(core, TinyShard)
    assert core.lifecycle() == [TopicsChanged({"t": 1}), Loaded()]
    assert engine.loading
    load_next(engine)
    assert not engine.loading
    assert engine.load_job() is None


def test_topics_that_change_during_a_replay_are_known_after_it() -> None:
    engine = engine_of(MemoryGroupLog(SHARDS))
    job = next_job(engine)
    engine.submit_all(TopicsChanged({"t": 1, "u": 2}))
    engine.turn(0)
    job.run()
    engine.loaded(job, 0)
    core = engine.core(job.shard)
    assert isinstance(core, TinyShard)
    assert core.lifecycle() == [TopicsChanged({"t": 1, "u": 2}), Loaded()]


def test_a_shard_that_is_unloaded_during_its_replay_stays_away() -> None:
    engine = engine_of(MemoryGroupLog(SHARDS))
    job = next_job(engine)
    engine.submit_all(Unload())
    engine.turn(0)
    job.run()
    engine.loaded(job, 0)
    engine.load_failed(job, LogFailed("it came too late"))
    assert [engine.status(shard) for shard in range(SHARDS)] == [ShardStatus.UNLOADED] * SHARDS
    assert engine.core(job.shard) is None
    assert not engine.loading
    assert engine.load_job() is None


class LongLog(MemoryGroupLog):
    """Counts what is read of a log that is long, and calls back half-way through its first slice."""

    def __init__(self) -> None:
        super().__init__(SHARDS)
        self.read = 0
        self.half_way = lambda: None

    def read_groups(self, shard: int) -> Iterator[KeyValue]:
        for number in range(10 * SLICE):
            self.read += 1
            if number == SLICE // 2:
                self.half_way()
            yield KeyValue(b"\x00\x63" + number.to_bytes(4, "big"), b"", number)


def test_a_replay_that_nobody_wants_any_more_ends_within_a_slice() -> None:
    log = LongLog()
    engine = engine_of(log)

    def unload() -> None:
        engine.submit_all(Unload())
        engine.turn(0)

    log.half_way = unload
    job = next_job(engine)
    try:
        job.run()
    except LogFailed as error:
        engine.load_failed(job, error)
    else:
        raise AssertionError("it went on to the end")
    assert log.read <= SLICE
    assert engine.status(job.shard) is ShardStatus.UNLOADED


def test_a_replay_that_fails_is_tried_again_as_a_job() -> None:
    log = MemoryGroupLog(SHARDS)
    log.failing_reads = {1}
    engine = engine_of(log)
    job = next_job(engine)
    try:
        job.run()
    except LogFailed as error:
        engine.load_failed(job, error)
    assert engine.status(0) is ShardStatus.FAILED
    engine.turn(1)
    assert engine.status(0) is ShardStatus.LOADING
    assert [load_next(engine) for _ in range(SHARDS)] == [1, 2, 0]
    engine.submit(0, join(1))
    assert engine.status(0) is ShardStatus.ACTIVE
