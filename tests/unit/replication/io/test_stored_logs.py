"""Replicas' logs over the storage engine: what each call does there, and what of its failures means what."""

import errno

import pytest

from muster.coordinator.replication.io.replica_logs import StoredLog, StoredLogs
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterState,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.replica_fetch import DamagedBatches, LogBroken, LogCorrupt
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker

PLACE, ID, OTHER_ID = TopicPartition("orders", 1), b"i" * 16, b"j" * 16


def image_of(*replicas: int, topic_id: bytes = ID, configs: dict[str, str] | None = None) -> ClusterImage:
    image = ClusterImage()
    views = {number: PartitionView(2, 0, 0, replicas, (), replicas) for number in range(3)}
    topic = TopicView(topic_id, "orders", configs or {}, views)
    image.apply(ClusterState(epoch=1, sequence=1, full=True, topics=(topic,)))
    return image


def logs_on(disk: MemoryFiles, image: ClusterImage | None = None) -> StoredLogs:
    return StoredLogs(open_broker(disk), (image or image_of(1, 2)).topics.get, lambda: T0)


def opened(disk: MemoryFiles | None = None) -> StoredLog:
    return logs_on(disk or MemoryFiles()).open(PLACE, ID)


def sent(*texts: bytes, at: int, epoch: int = 0) -> bytes:
    return batch(*texts, base_offset=at, leader_epoch=epoch)


def test_a_copy_is_made_empty_and_found_again_with_all_that_is_flushed() -> None:
    disk = MemoryFiles()
    logs = logs_on(disk)
    assert logs.topic_id(PLACE) is None
    log = logs.open(PLACE, ID)
    assert (log.start, log.end, log.kept, log.high_watermark, log.last_epoch) == (0, 0, 0, 0, -1)
    log.append_as_follower(sent(b"a", b"b", at=0, epoch=3))
    assert (log.end, log.kept) == (2, 0)
    log.flush()
    log.tell_high_watermark(1)
    assert (log.kept, log.high_watermark, log.last_epoch) == (2, 1, 3)
    assert logs.open(PLACE, ID) is log
    disk.crash()
    again = logs_on(disk)
    assert list(again.held()) == [(PLACE, ID)]
    assert again.open(PLACE, ID).end == 2


def test_what_a_leader_reads_goes_to_the_end_and_a_follower_takes_it() -> None:
    leader, follower = opened(), opened()
    leader.lead(5)
    leader.log.append(batch(b"a"), T0)
    follower.lead(2)
    follower.append_as_follower(leader.read(0, 1 << 20))
    assert (leader.high_watermark, follower.end, follower.last_epoch) == (0, 1, 5)
    assert (leader.log.following, follower.log.following) == (False, True), "whose work retention is (F8)"
    leader.rest()
    assert leader.log.following
    assert (follower.epoch_at(0), follower.epoch_at(1), follower.end_for_epoch(5)) == (5, -1, (5, 1))


def test_what_comes_damaged_or_does_not_follow_on_is_not_appended() -> None:
    log = opened()
    flipped = bytearray(sent(b"a", at=0))
    flipped[-1] ^= 1
    for bad in (bytes(flipped), sent(b"a", at=0)[:20]):
        with pytest.raises(DamagedBatches):
            log.append_as_follower(bad)
    log.append_as_follower(sent(b"a", b"b", at=0, epoch=2))
    with pytest.raises(DamagedBatches):
        log.append_as_follower(sent(b"c", at=1, epoch=2))
    assert log.end == 2


def test_a_disk_that_fails_breaks_the_log_and_not_the_node() -> None:
    disk = MemoryFiles()
    log = opened(disk)
    disk.capacity = 0
    with pytest.raises(LogBroken, match="No space left"):
        log.append_as_follower(sent(b"a", at=0, epoch=1))
    disk.capacity = None
    log.append_as_follower(sent(b"a", at=0, epoch=1))
    log.log.fence(f"errno {errno.EIO}")
    for call in (log.flush, lambda: log.append_as_follower(sent(b"b", at=1)), lambda: log.cut(0)):
        with pytest.raises(LogBroken, match="errno"):
            call()


def test_records_that_are_not_as_they_were_written_are_told_from_a_disk_that_fails() -> None:
    """Only another copy mends them: the leader hands over (CL-F9)."""
    disk = MemoryFiles()
    log = opened(disk)
    for number in range(3):
        log.append_as_follower(sent(b"%d" % number, at=number))
    log.flush()
    path = f"/data/{PLACE}/{0:020}.log"
    written = disk.content(path)
    disk.put(path, written[:80] + bytes([written[80] ^ 1]) + written[81:])
    with pytest.raises(LogCorrupt, match="is damaged at byte") as found:
        log.read(2, 1)
    assert found.value.place == PLACE


def test_a_follower_cuts_begins_anew_and_takes_its_leader_s_start_over() -> None:
    log = opened()
    log.append_as_follower(sent(b"a", b"b", at=0, epoch=1))
    log.append_as_follower(sent(b"c", at=2, epoch=2))
    log.cut(2)
    assert (log.end, log.kept, log.last_epoch) == (2, 2, 1)
    log.advance_start(1)
    assert (log.start, log.high_watermark) == (1, 1)
    log.restart_at(40)
    assert (log.start, log.end, log.kept, log.high_watermark, log.last_epoch) == (40, 40, 40, 40, -1)


def test_a_copy_of_a_former_topic_of_the_name_is_set_aside_and_never_mixed() -> None:
    disk = MemoryFiles()
    logs = logs_on(disk)
    log = logs.open(PLACE, ID)
    log.append_as_follower(sent(b"a", at=0))
    log.flush()
    fresh = logs.open(PLACE, OTHER_ID)
    assert (fresh.end, logs.topic_id(PLACE)) == (0, OTHER_ID)
    assert [name for name in disk.names("/data") if name.endswith("-stray")]
    logs.delete(PLACE, ID)
    assert logs.topic_id(PLACE) == OTHER_ID, "what is deleted is the former one"
    logs.delete(PLACE, OTHER_ID)
    assert (logs.topic_id(PLACE), logs.get(PLACE)) == (None, None)
    assert (logs.left_files, logs.left_files) == (True, False)
    assert "orders-1" in disk.names("/data")
    logs.clear_away()
    assert "orders-1" not in disk.names("/data")
    assert logs.open(PLACE, b"k" * 16).end == 0


def test_all_that_is_newly_assigned_is_taken_in_at_once_with_the_settings_a_log_goes_by() -> None:
    configs = {"retention.ms": "5000", "min.insync.replicas": "2", "of.the.cluster.alone": "*"}
    image = image_of(1, 2, configs=configs)
    broker = open_broker(MemoryFiles())
    logs = StoredLogs(broker, image.topics.get, lambda: T0)
    changes = ClusterImage().apply(ClusterState(epoch=1, sequence=1, full=True, topics=tuple(image.topics.values())))
    assert changes is not None
    logs.prepare(3, image, changes)
    assert list(logs.held()) == []
    logs.prepare(1, image, changes)
    assert [place.partition for place, _ in logs.held()] == [0, 1, 2]
    assert broker.topic("orders").configs.get("of.the.cluster.alone") is None
    assert broker.topic("orders").configs["retention.ms"] == "5000"


def test_what_is_set_for_a_topic_holds_for_its_logs_from_then_on_and_after_a_start() -> None:
    disk = MemoryFiles()
    logs = logs_on(disk, image_of(1, 2, configs={"retention.ms": "5000", "cleanup.policy": "delete"}))
    log = logs.open(PLACE, ID)
    changed = image_of(1, 2, configs={"retention.ms": "7000", "min.insync.replicas": "1", "segment.bytes": "no"})
    logs.use_settings(changed, ["orders"])
    assert log.log.settings.retention_ms == 5000, "a word that is not understood changes nothing"
    logs.use_settings(image_of(1, 2, configs={"retention.ms": "7000"}), ["orders"])
    assert log.log.settings.retention_ms == 7000
    logs.use_settings(image_of(1, 2, topic_id=OTHER_ID, configs={"retention.ms": "9000"}), ["orders"])
    log.flush()
    disk.crash()
    again = logs_on(disk)
    assert again.open(PLACE, ID).log.settings.retention_ms == 7000
    assert list(again.held()) == [(PLACE, ID)]


def test_who_is_to_lead_what_is_held_here_writes_nothing() -> None:
    """Of a thousand that change hands at once each would make a file."""
    disk = MemoryFiles()
    image = ClusterImage()
    views = {number: PartitionView(2, 6, 0, (1, 2), (), (1, 2)) for number in range(3)}
    first = image.apply(ClusterState(epoch=1, sequence=1, full=True, topics=(TopicView(ID, "orders", {}, views),)))
    assert first is not None
    logs = logs_on(disk, image)
    logs.prepare(1, image, first)
    calls: list[tuple[str, str]] = []
    disk.fault = lambda *call: calls.append(call)
    views = {number: view._replace(leader=1, leader_epoch=7) for number, view in views.items()}
    changes = image.apply(ClusterState(epoch=1, sequence=2, topics=(TopicView(ID, "orders", {}, views),)))
    assert changes is not None
    logs.prepare(1, image, changes)
    for place in views:
        log = logs.open(TopicPartition("orders", place), ID)
        log.lead(7)
        assert log.log.epochs.entries == [(7, 0)]
    assert calls == []
