"""Groups and ledger on the real broker, in a real directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.core.types import Limits
from coordinator.runtime import group_log
from coordinator.runtime.engine import Engine
from coordinator.runtime.group_log import BrokerGroupLog, PartitionCountConflict
from coordinator.runtime.ports import KeyValue, LogFailed
from coordinator.runtime.slot import ShardStatus
from storage.broker import Broker
from storage.errors import StorageError
from tests.fakes.tiny_shard import TinyShard, commit

SEGMENT = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    opened = Broker(tmp_path / "data")
    yield opened
    opened.close()


def pairs(records: Iterator[KeyValue]) -> list[tuple[bytes, bytes | None]]:
    return [(record.key, record.value) for record in records]


def test_the_two_topics_are_made_compacted_and_internal(broker: Broker) -> None:
    BrokerGroupLog(broker, 3, SEGMENT)
    for name in ("__consumer_offsets", "__rebalances"):
        topic = broker.topic(name)
        assert (topic.partitions, topic.internal) == (3, True)
        assert topic.configs["cleanup.policy"] == "compact"
        assert topic.configs["segment.bytes"] == str(SEGMENT)


def test_records_come_back_with_their_offsets_by_shard_and_topic(broker: Broker) -> None:
    log = BrokerGroupLog(broker, 2, SEGMENT)
    log.append(1, [KeyValue(b"k1", b"v1"), KeyValue(b"k2", None)], [KeyValue(b"l1", b"w")], 7)
    log.append(1, [KeyValue(b"k1", b"v3")], [], 8)
    assert list(log.read_groups(1)) == [
        KeyValue(b"k1", b"v1", 0),
        KeyValue(b"k2", None, 1),
        KeyValue(b"k1", b"v3", 2),
    ]
    assert pairs(log.read_ledger(1)) == [(b"l1", b"w")]
    assert pairs(log.read_groups(0)) == []


def test_a_replay_reads_on_over_many_batches_and_segments(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "READ_BYTES", 10_000)
    log = BrokerGroupLog(broker, 1, SEGMENT)
    wanted = [(b"k%d" % number, bytes(4_000)) for number in range(600)]
    for start in range(0, len(wanted), 20):
        log.append(0, [KeyValue(key, value) for key, value in wanted[start : start + 20]], [], start)
    assert pairs(log.read_groups(0)) == wanted
    assert len(broker.log("__consumer_offsets", 0).segments) > 1


def test_a_turn_too_large_for_one_batch_is_written_in_order(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "BATCH_BYTES", 1_000)
    log = BrokerGroupLog(broker, 1, SEGMENT)
    wanted = [(b"k%d" % number, bytes(size)) for number, size in enumerate((10, 5_000, 400, 400, 400, 0, 998))]
    log.append(0, [KeyValue(key, value) for key, value in wanted], [], 0)
    assert pairs(log.read_groups(0)) == wanted


def test_another_partition_count_than_the_data_has_is_refused_and_changes_nothing(broker: Broker) -> None:
    BrokerGroupLog(broker, 3, SEGMENT)
    with pytest.raises(PartitionCountConflict, match=r"num\.partitions is 5, but .* has 3 partitions .* set it to 3"):
        BrokerGroupLog(broker, 5, SEGMENT)
    assert broker.topic("__consumer_offsets").partitions == 3
    BrokerGroupLog(broker, 3, SEGMENT)


def test_a_storage_failure_becomes_a_log_failure_that_names_the_partition(broker: Broker) -> None:
    log = BrokerGroupLog(broker, 1, SEGMENT)
    with pytest.raises(LogFailed, match=r"__consumer_offsets-0: .*\(max\.message\.bytes\)"):
        log.append(0, [KeyValue(b"k", bytes(2 * SEGMENT))], [], 0)
    with pytest.raises(LogFailed, match=r"__rebalances-4: .*no partition 4"):
        log.append(4, [], [KeyValue(b"k", b"")], 0)
    with pytest.raises(LogFailed, match="__consumer_offsets-4"):
        list(log.read_groups(4))


def test_a_failed_flush_names_the_shards_that_failed(broker: Broker) -> None:
    log = BrokerGroupLog(broker, 3, SEGMENT)
    for shard in range(3):
        log.append(shard, [KeyValue(b"k", b"v")], [], 0)
    broker.log("__consumer_offsets", 1).failure = StorageError("the disk is gone")
    with pytest.raises(LogFailed, match="the disk is gone") as caught:
        log.flush([0, 1, 2])
    assert caught.value.shards == [1]
    assert broker.high_watermark("__consumer_offsets", 2) == 1


def test_an_engine_on_it_comes_back_with_what_it_acknowledged(tmp_path: Path) -> None:
    for round_number in range(1, 4):
        broker = Broker(tmp_path / "data")
        engine = Engine(BrokerGroupLog(broker, 2, SEGMENT), 2, Limits(), TinyShard)
        engine.load(0)
        core = engine.core(0)
        assert isinstance(core, TinyShard)
        assert core.offsets == ({("g", "t", 0): round_number - 1} if round_number > 1 else {})
        engine.submit(0, commit(1, round_number))
        engine.turn(1)
        while (job := engine.flush_job()) is not None:
            job.run()
            engine.flushed(job)
        assert [request_id for request_id, _ in engine.take_released().replies] == [1]
        broker.close()


def test_a_shard_whose_log_takes_nothing_more_stays_failed_and_the_others_serve(broker: Broker) -> None:
    engine = Engine(BrokerGroupLog(broker, 2, SEGMENT), 2, Limits(), TinyShard)
    engine.load(0)
    broker.log("__consumer_offsets", 0).failure = StorageError("the disk is gone")
    engine.submit(0, commit(1, 10))
    engine.submit(1, commit(2, 20))
    for now_ms in range(0, 1_000, 100):
        engine.turn(now_ms)
    assert engine.status(0) is ShardStatus.FAILED
    assert engine.status(1) is ShardStatus.ACTIVE
