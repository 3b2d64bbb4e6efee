"""The data directory and its topics: whose it is, what is kept, what is refused."""

import os
from pathlib import Path

import pytest

from muster.storage import errors
from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.types import AppendOrigin
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values


def test_topics_are_kept_with_their_ids_and_settings() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    made = broker.create_topic("t", 2, {"retention.ms": "5"})
    broker.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"}, internal=True)
    broker.add_partitions("t", 3)
    disk.crash()
    again = open_broker(disk)
    assert again.cluster_id == broker.cluster_id
    assert len(again.cluster_id) == 22
    assert again.topic("t").id == made.id
    assert again.topic("t").partitions == 3
    assert again.topic_settings("t").retention_ms == 5
    assert again.topic("__consumer_offsets").internal


def test_a_deleted_topic_is_gone_for_good() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    seen: list[set[str]] = []
    broker.on_topics_changed(lambda: seen.append(set(broker.topics())))
    broker.create_topic("t", 1)
    log = broker.log("t", 0)
    broker.append("t", 0, batch(b"old"), T0)
    broker.delete_topic("t")
    assert seen == [{"t"}, set()]
    for attempt in (lambda: log.append(batch(b"x"), T0), log.flush):
        with pytest.raises(errors.UnknownTopicOrPartition):
            attempt()
    broker.create_topic("t", 1)
    assert broker.end_offset("t", 0) == 0
    disk.crash()
    assert open_broker(disk).end_offset("t", 0) == 0


def test_ends_of_many_partitions_are_what_may_be_read_and_nothing_is_raised_for_one_that_is_not_there() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("t", 2)
    broker.append("t", 1, batch(b"x"), T0)
    asked = [("t", 1), ("t", 0), ("t", 2), ("none", 0)]
    assert broker.ends(asked) == [broker.high_watermark("t", 1), 0, -1, -1]
    broker.flush()
    assert broker.ends(asked) == [1, 0, -1, -1]


def test_what_was_known_of_a_deleted_topic_says_nothing_of_a_new_one() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(*[b"old"] * 9), T0)
    broker.flush()
    broker.delete_records("t", 0, 5)
    broker.checkpoint()
    broker.delete_topic("t")
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(b"new"), T0)
    broker.flush()
    disk.crash()
    again = open_broker(disk)
    assert again.recovered() == {}
    assert values(read_all(again.log("t", 0))) == [b"new"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "x" * 250, "a b", "a\n"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(errors.InvalidTopicName, match="no topic name"):
        open_broker(MemoryFiles()).create_topic(name, 1)


def test_what_cannot_be_created_is_refused_with_the_reason() -> None:
    broker = open_broker(MemoryFiles(), max__partitions=5)
    broker.create_topic("a.b", 2)
    with pytest.raises(errors.InvalidTopicName, match=r"collides with topic 'a\.b'"):
        broker.create_topic("a_b", 1)
    with pytest.raises(errors.TopicAlreadyExists):
        broker.create_topic("a.b", 1)
    with pytest.raises(errors.InvalidPartitions, match="3 are left"):
        broker.create_topic("c", 4)
    with pytest.raises(errors.InvalidPartitions, match="expected more than 0"):
        broker.create_topic("c", 0)
    with pytest.raises(errors.InvalidPartitions, match="expected more than 2"):
        broker.add_partitions("a.b", 2)
    with pytest.raises(errors.InvalidConfig, match=r"'retention\.sm' is not a setting"):
        broker.create_topic("c", 1, {"retention.sm": "1"})
    with pytest.raises(errors.InvalidConfig, match=r"'segment\.bytes' is 'many'"):
        broker.create_topic("c", 1, {"segment.bytes": "many"})
    with pytest.raises(errors.UnknownTopicOrPartition, match="partitions are 0 to 1"):
        broker.fetch("a.b", 2, 0, 1)
    with pytest.raises(errors.UnknownTopicOrPartition, match="no topic 'zzz'"):
        broker.delete_topic("zzz")


def test_internal_topics_take_records_from_the_node_only() -> None:
    broker = open_broker(MemoryFiles())
    broker.create_topic("__rebalances", 1, internal=True)
    with pytest.raises(errors.InvalidTopicName, match="internal"):
        broker.append("__rebalances", 0, batch(b"x"), T0)
    assert broker.append("__rebalances", 0, batch(b"x"), T0, origin=AppendOrigin.COORDINATOR).base_offset == 0


def test_a_directory_in_use_names_its_holder(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data")
    with pytest.raises(errors.DataDirectoryError, match=f"process {os.getpid()}") as refusal:
        Broker(tmp_path / "data")
    assert refusal.value.holder == os.getpid()
    broker.close()
    Broker(tmp_path / "data").close()


def test_a_foreign_directory_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(errors.DataDirectoryError, match=r"thesis\.txt"):
        Broker(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    file = tmp_path / "thesis.txt"
    with pytest.raises(errors.DataDirectoryError):
        Broker(file)
    assert file.read_text() == "precious"


def test_another_nodes_directory_is_refused(tmp_path: Path) -> None:
    Broker(tmp_path / "d", node_id=1).close()
    with pytest.raises(errors.DataDirectoryError, match="belongs to node 1, this is node 2"):
        Broker(tmp_path / "d", node_id=2)
    Broker(tmp_path / "d", node_id=1).close()


@pytest.mark.parametrize("name", ["topics.json", "meta.properties"])
def test_a_damaged_catalog_or_identity_is_said(name: str) -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("t", 1)
    broker.close()
    good = disk.content(f"/data/{name}")
    for bad in (good[:-9], b"", good.replace(b"1", b"7")):
        disk.put(f"/data/{name}", bad)
        with pytest.raises(errors.DataDirectoryError):
            open_broker(disk)
    disk.put(f"/data/{name}", good)
    assert open_broker(disk).topics().keys() == {"t"}


def test_a_lost_partition_directory_is_said_and_the_others_go_on() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("t", 2)
    broker.append("t", 1, batch(b"x"), T0)
    broker.close()
    for name in disk.names("/data/t-0"):
        disk.remove(f"/data/t-0/{name}")
    disk.remove_dir("/data/t-0")
    again = open_broker(disk)
    with pytest.raises(errors.StorageError, match="is gone"):
        again.append("t", 0, batch(b"x"), T0)
    assert values(read_all(again.log("t", 1))) == [b"x"]


def test_the_same_life_on_a_real_disk(tmp_path: Path) -> None:
    settings = LogSettings.from_properties({"log.segment.bytes": "2000", "log.max.open.files": "16"})
    open_before = len(os.listdir("/proc/self/fd"))
    broker = Broker(tmp_path / "d", settings)
    broker.create_topic("t", 30)
    for number in range(600):
        broker.append("t", number % 30, batch(b"%d" % number * 30), T0)
    assert len(os.listdir("/proc/self/fd")) <= open_before + 16 + 1
    broker.close()
    again = Broker(tmp_path / "d", settings)
    assert again.recovered() == {}
    for partition in range(30):
        found = values(read_all(again.log("t", partition), most=5000))
        assert found == [b"%d" % number * 30 for number in range(partition, 600, 30)]
    again.close()


def test_flush_by_age_and_checkpoints_come_with_the_ticks() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk, log__flush__interval__messages=10**9, log__flush__interval__ms=500)
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(b"x"), T0)
    broker.tick(T0 + 499)
    assert broker.log("t", 0).unflushed == 1
    broker.tick(T0 + 500)
    assert broker.log("t", 0).unflushed == 0
    broker.tick(T0 + 60_499)
    assert b"t 0 1" in disk.content("/data/recovery-point-offset-checkpoint")
