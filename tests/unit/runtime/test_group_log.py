"""Groups and ledger on the real broker, in a real directory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.runtime import group_log
from muster.coordinator.runtime.group_log import BrokerGroupLog, PartitionCountConflict
from muster.coordinator.runtime.ports import KeyValue, LogDamage, LogFailed
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError

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
    with pytest.raises(LogFailed, match=r"__consumer_offsets-4: .*no partition 4"):
        log.append(4, [KeyValue(b"k", b"")], [], 0)
    with pytest.raises(LogFailed, match="__consumer_offsets-4"):
        list(log.read_groups(4))


def test_a_diary_that_takes_nothing_costs_explanations_and_no_facts(broker: Broker) -> None:
    log = BrokerGroupLog(broker, 2, SEGMENT)
    broker.log("__rebalances", 1).failure = StorageError("the diary is damaged")
    log.append(1, [KeyValue(b"k", b"v")], [KeyValue(b"l", b"w")], 0)
    log.append(0, [], [KeyValue(b"l", bytes(2 * SEGMENT))], 0)
    log.flush([0, 1])
    assert pairs(log.read_groups(1)) == [(b"k", b"v")]
    losses = log.take_losses()
    assert [loss for loss in losses if "could not be written: __rebalances-1: the diary is damaged" in loss]
    assert [loss for loss in losses if "could not be written: __rebalances-0" in loss]
    assert [loss for loss in losses if "could not be flushed: __rebalances-1: the diary is damaged" in loss]
    assert log.take_losses() == []


def test_a_flipped_bit_in_the_diary_is_passed_over_and_said(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data")
    log = BrokerGroupLog(broker, 1, SEGMENT)
    for number in range(3):
        log.append(0, [KeyValue(b"k%d" % number, b"v")], [KeyValue(b"l%d" % number, b"w" * 50)], 0)
    log.flush([0])
    flip_a_bit(broker, "__rebalances")
    assert [item if isinstance(item, LogDamage) else item.key for item in log.read_ledger(0)] == [
        b"l0",
        LogDamage(1, next(item.sentence for item in log.read_ledger(0) if isinstance(item, LogDamage)), 2),
        b"l2",
    ]
    flip_a_bit(broker, "__consumer_offsets")
    with pytest.raises(LogFailed, match=r"__consumer_offsets-0: .*offsets 1 to 1"):
        list(log.read_groups(0))
    broker.close()


def flip_a_bit(broker: Broker, topic: str) -> None:
    """In the second of three batches of equal length."""
    path = Path(broker.log(topic, 0).segments[0].path())
    content = bytearray(path.read_bytes())
    size = broker.log(topic, 0).size
    content[size // 2 + 5] ^= 1
    path.write_bytes(content)


def test_a_failed_flush_names_the_shards_that_failed(broker: Broker) -> None:
    log = BrokerGroupLog(broker, 3, SEGMENT)
    for shard in range(3):
        log.append(shard, [KeyValue(b"k", b"v")], [], 0)
    broker.log("__consumer_offsets", 1).failure = StorageError("the disk is gone")
    with pytest.raises(LogFailed, match="the disk is gone") as caught:
        log.flush([0, 1, 2])
    assert caught.value.shards == [1]
    assert broker.high_watermark("__consumer_offsets", 2) == 1


def test_an_explanation_is_appended_before_its_generation(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the two leaves an entry for a generation that never came to be; the reverse would be a gap."""
    log = BrokerGroupLog(broker, 1, SEGMENT)
    whole, appended = broker.append, []

    def dies_at_the_second(topic: str, *rest: Any, **more: Any) -> Any:
        appended.append(topic)
        if len(appended) > 1:
            raise OSError("the process died here")
        return whole(topic, *rest, **more)

    monkeypatch.setattr(broker, "append", dies_at_the_second)
    with pytest.raises(LogFailed):
        log.append(0, [KeyValue(b"group", b"v")], [KeyValue(b"entry", b"w")], 7)
    assert appended == ["__rebalances", "__consumer_offsets"]
    assert pairs(log.read_groups(0)) == []
    assert pairs(item for item in log.read_ledger(0) if isinstance(item, KeyValue)) == [(b"entry", b"w")]
