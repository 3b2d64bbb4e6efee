"""Shards that come back, as the simulator found them not to."""

from coordinator.core.events import Unload
from coordinator.core.types import Limits
from coordinator.runtime.engine import Engine
from coordinator.runtime.slot import ShardStatus
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import TinyShard


def test_an_unloaded_shard_that_cannot_be_read_when_it_is_wanted_again_is_tried_again() -> None:
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits(), TinyShard)
    engine.load(0)
    engine.submit(0, Unload())
    engine.turn(1)
    assert engine.status(0) is ShardStatus.UNLOADED
    log.failing_reads = {log.reads + 1}
    engine.load_shard(0, 2)
    assert engine.status(0) is ShardStatus.FAILED
    engine.turn(3)
    assert engine.status(0) is ShardStatus.ACTIVE
