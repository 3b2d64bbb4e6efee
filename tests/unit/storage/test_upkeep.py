"""Retention, compaction, the follower's side, and readers beside them."""

import threading
from typing import Any

import pytest

from muster.storage import errors
from muster.storage.broker.broker import Broker
from muster.storage.logs.log import Log
from muster.storage.logs.replica import end_offset_for_epoch, start_leading
from muster.storage.logs.retention import LogFacts, SegmentFacts, apply_retention, retention_policies, truncate_log
from muster.storage.records.batch import read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, guard_for, open_broker, read_all, values

SMALL = {"log__segment__bytes": 400, "log__segment__delete__delay__ms": 100}
DAY = 86_400_000


def made(configs: dict[str, str] | None = None, disk: MemoryFiles | None = None) -> Broker:
    disk = disk or MemoryFiles()
    disk.now_ms = T0
    broker = open_broker(disk, **SMALL)
    broker.create_topic("t", 1, configs)
    return broker


def fill(broker: Broker, count: int, *, keys: int = 0, at: int = T0) -> None:
    for number in range(count):
        key = b"k%d" % (number % keys) if keys else None
        broker.append("t", 0, batch(b"%d" % number, key=key, at=at + number), at + number)
    broker.flush()


def latest(broker: Broker) -> dict[bytes | None, bytes | None]:
    found = {record.key: record.value for record in read_all(broker.log("t", 0))}
    return {key: value for key, value in found.items() if value is not None}


# -- one piece of work that fails holds up none of the others ------------------------------------------------


class Broken:
    """A retention policy with a bug."""

    name = "broken"

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool:
        raise KeyError("a bug")


def test_a_bug_in_one_piece_of_work_is_told_and_the_rest_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFiles()
    broker = made({"flush.ms": "10"}, disk)
    broker.append("t", 0, batch(b"v"), T0)
    monkeypatch.setattr("muster.storage.topics.maintenance.retention_policies", lambda: (Broken(),))
    broker.tick(T0)
    disk.now_ms = T0 + DAY
    assert broker.tick(T0 + DAY) == ["KeyError('a bug')"]
    assert broker.log("t", 0).unflushed == 0
    assert b"t 0 1" in disk.content("/data/recovery-point-offset-checkpoint")


# -- retention ----------------------------------------------------------------------------------------------


def test_the_oldest_segments_go_while_the_log_is_too_large() -> None:
    broker = made({"retention.bytes": "800"})
    fill(broker, 40)
    log = broker.log("t", 0)
    size = log.size
    assert apply_retention(log, retention_policies(), T0) > 3
    assert 800 <= log.size < min(size, 1300)
    assert values(read_all(log))[-1] == b"39"
    assert read_all(log)[0].offset == log.start_offset


def test_segments_go_when_their_youngest_record_is_too_old() -> None:
    broker = made({"retention.ms": "1000"})
    fill(broker, 20)
    log = broker.log("t", 0)
    assert apply_retention(log, retention_policies(), T0 + 1000) == 0
    assert apply_retention(log, retention_policies(), T0 + 1010) == 2
    assert apply_retention(log, retention_policies(), T0 + DAY) == 2
    assert (log.start_offset, log.end_offset, read_all(log)) == (20, 20, [])
    assert broker.append("t", 0, batch(b"next"), T0 + DAY).base_offset == 20


def test_a_timestamp_from_the_future_keeps_nothing_for_ever() -> None:
    disk = MemoryFiles()
    broker = made({"retention.ms": "1000", "message.timestamp.after.max.ms": str(2**62)}, disk)
    fill(broker, 10, at=T0 + 1000 * DAY)
    assert apply_retention(broker.log("t", 0), retention_policies(), T0 + 500) == 0
    assert apply_retention(broker.log("t", 0), retention_policies(), T0 + 1500) == 2


def test_records_without_a_timestamp_are_as_old_as_their_file() -> None:
    disk = MemoryFiles()
    broker = made({"retention.ms": "1000"}, disk)
    for number in range(20):
        disk.now_ms = T0 + 100 * number
        broker.append("t", 0, batch(b"%d" % number, at=-1), disk.now_ms)
    broker.flush()
    log = broker.log("t", 0)
    written_last = [log.files.modified_ms(segment.path()) for segment in log.segments]
    assert len(written_last) > 3
    assert apply_retention(log, retention_policies(), written_last[1] + 1001) == 2
    assert [log.files.modified_ms(segment.path()) for segment in log.segments] == written_last[2:]


def test_a_clock_that_goes_back_takes_nothing_before_its_time() -> None:
    broker = made({"retention.ms": "1000"})
    for number in range(20):
        broker.append("t", 0, batch(b"%d" % number, at=T0 - 400 * number), T0)
    broker.flush()
    log = broker.log("t", 0)
    youngest = [segment.max_timestamp for segment in log.segments]
    assert youngest == sorted(youngest, reverse=True)
    # The oldest segment has the youngest records: while it stays, all stay.
    assert apply_retention(log, retention_policies(), youngest[0] + 1000) == 0
    assert apply_retention(log, retention_policies(), youngest[0] + 1001) == len(youngest)


def test_deleted_records_take_their_segments_along_even_where_all_is_kept() -> None:
    broker = made({"cleanup.policy": ""})
    fill(broker, 20, keys=20)
    assert broker.delete_records("t", 0, 12) == 12
    log = broker.log("t", 0)
    assert apply_retention(log, retention_policies(), T0) == 3 - 1
    assert values(read_all(log))[0] == b"12"
    with pytest.raises(errors.OffsetOutsideLog):
        broker.delete_records("t", 0, 21)
    assert broker.delete_records("t", 0, -1) == 20


def test_a_policy_of_a_package_is_asked_like_our_own() -> None:
    class EveryOther:
        name = "every-other"

        def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool:
            return log.topic == "t" and segment.base_offset < 8

    broker = made()
    fill(broker, 20)
    assert apply_retention(broker.log("t", 0), [EveryOther()], T0) == 2


def test_files_of_removed_segments_go_after_the_delay() -> None:
    disk = MemoryFiles()
    broker = made({"retention.bytes": "0"}, disk)
    fill(broker, 20)
    apply_retention(broker.log("t", 0), retention_policies(), T0)
    assert any(name.endswith(".deleted") for name in disk.names("/data/t-0"))
    broker.tick(T0 + 99)
    assert any(name.endswith(".deleted") for name in disk.names("/data/t-0"))
    broker.tick(T0 + 100)
    assert not any(name.endswith(".deleted") for name in disk.names("/data/t-0"))


# -- compaction ---------------------------------------------------------------------------------------------

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "1000"}


def test_compaction_keeps_the_last_value_of_each_key_and_every_offset() -> None:
    disk = MemoryFiles()
    broker = made(COMPACT, disk)
    fill(broker, 60, keys=7)
    log = broker.log("t", 0)
    before, size = latest(broker), log.size
    assert broker.compact(T0) == ("t", 0)
    assert latest(broker) == before
    assert log.size < size / 2
    assert log.end_offset == 60
    offsets = [record.offset for record in read_all(log)]
    assert offsets == sorted(set(offsets))
    assert [b"%d" % offset for offset in offsets] == values(read_all(log))
    for clean in (True, False):
        if clean:
            broker.close()
        else:
            disk.kill()
        broker = open_broker(disk, **SMALL)
        assert broker.recovered() == {}
        assert latest(broker) == before


def test_tombstones_stay_for_a_while_and_then_go() -> None:
    broker = made(COMPACT)
    fill(broker, 20, keys=4)
    broker.append("t", 0, batch(None, key=b"k1", at=T0), T0)
    fill(broker, 20, keys=1)
    assert broker.compact(T0) is not None
    assert b"k1" in {record.key for record in read_all(broker.log("t", 0))}
    assert b"k1" not in latest(broker)
    fill(broker, 20, keys=1)
    broker.compact(T0 + 900)
    assert b"k1" in {record.key for record in read_all(broker.log("t", 0))}
    fill(broker, 20, keys=1)
    broker.compact(T0 + 1001)
    assert b"k1" not in {record.key for record in read_all(broker.log("t", 0))}


def test_producers_survive_compaction() -> None:
    disk = MemoryFiles()
    broker = made(COMPACT, disk)
    for number in range(12):
        data = batch(b"x", key=b"same", producer_id=5, producer_epoch=1, base_sequence=number)
        broker.append("t", 0, data, T0)
    for _ in range(12):
        broker.append("t", 0, batch(b"newer", key=b"same"), T0)
    broker.flush()
    assert broker.compact(T0) is not None
    disk.kill()
    for name in disk.names("/data/t-0"):
        if name.endswith(".snapshot") or name == "segments-checkpoint":
            disk.remove(f"/data/t-0/{name}")
    again = open_broker(disk, **SMALL)
    repeated = batch(b"x", key=b"same", producer_id=5, producer_epoch=1, base_sequence=11)
    assert again.append("t", 0, repeated, T0).base_offset == 11
    bare = [
        view
        for segment in again.log("t", 0).segments
        for view in read_batches(segment.read(0, segment.size))
        if view.count == 0
    ]
    assert [view.last_sequence for view in bare if view.producer_id == 5] == [11]


def test_records_too_young_or_in_an_open_transaction_are_not_compacted() -> None:
    young = made({**COMPACT, "min.compaction.lag.ms": "1000"})
    fill(young, 40, keys=2)
    assert young.compact(T0 + 500) is None
    assert young.compact(T0 + 5000) is not None
    held = made(COMPACT)
    data = batch(b"x", key=b"k", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    held.append("t", 0, data, T0, guard=guard_for(held.log("t", 0), data))
    fill(held, 40, keys=2)
    assert held.compact(T0) is None


def test_a_damaged_log_is_left_as_it_is_and_does_not_hold_up_the_others() -> None:
    disk = MemoryFiles()
    broker = made(COMPACT, disk)
    broker.create_topic("other", 1, COMPACT)
    fill(broker, 40, keys=2)
    for number in range(40):
        broker.append("other", 0, batch(b"%d" % number, key=b"k"), T0)
    broker.close()
    path = "/data/t-0/00000000000000000005.log"
    changed = bytearray(disk.content(path))
    changed[150] ^= 1
    disk.put(path, bytes(changed))
    broker = open_broker(disk, **SMALL)
    outcomes: list[Any] = []
    for _ in range(3):
        try:
            outcomes.append(broker.compact(T0))
        except errors.LogDamaged as error:
            outcomes.append(error.file)
    assert sorted(map(str, outcomes)) == sorted([path, str(("other", 0)), "None"])
    assert disk.content(path) == bytes(changed)


class Door:
    """In place of the lock that a compaction holds; tells when a second one stands before it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked = 0
        self.second = threading.Event()

    def __enter__(self) -> None:
        self.asked += 1
        if self.asked == 2:
            self.second.set()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("ending", ["close", "delete"])
def test_a_compaction_under_way_lets_go_of_a_log_that_goes(ending: str) -> None:
    disk = MemoryFiles()
    broker = made(COMPACT, disk)
    fill(broker, 60, keys=7)
    before = latest(broker)
    segments = [segment.path() for segment in broker.log("t", 0).segments]
    door = Door()
    broker._upkeep._compacting = door  # type: ignore[assignment]
    begun = threading.Event()

    def at_cleaned(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log.cleaned"):
            begun.set()
            assert door.second.wait(30)

    disk.fault = at_cleaned
    compaction = threading.Thread(target=broker.compact, args=(T0,), daemon=True)
    compaction.start()
    assert begun.wait(30)
    if ending == "close":
        broker.close()
    else:
        broker.delete_topic("t")
    compaction.join(30)
    assert not compaction.is_alive()
    disk.fault = None
    if ending == "delete":
        assert not disk.exists("/data/t-0")
        broker.create_topic("t", 1, COMPACT)
        assert broker.end_offset("t", 0) == 0
        return
    again = open_broker(disk, **SMALL)
    assert again.recovered() == {}
    assert [segment.path() for segment in again.log("t", 0).segments] == segments
    assert latest(again) == before
    assert not any(name.endswith(".cleaned") for name in disk.names("/data/t-0"))


def test_nobody_waits_for_the_compaction_of_another_log() -> None:
    disk = MemoryFiles()
    broker = made(COMPACT, disk)
    broker.create_topic("other", 1)
    fill(broker, 60, keys=7)
    size = broker.log("t", 0).size

    def at_cleaned(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log.cleaned"):
            disk.fault = None
            broker.delete_topic("other")

    disk.fault = at_cleaned
    assert broker.compact(T0) == ("t", 0)
    assert "other" not in broker.topics()
    assert broker.log("t", 0).size < size / 2


# -- replicas -----------------------------------------------------------------------------------------------


def test_a_follower_cuts_off_what_its_leader_never_had() -> None:
    disk = MemoryFiles()
    broker = made(disk=disk)
    log = broker.log("t", 0)
    for epoch in (0, 2, 4):
        start_leading(log, epoch)
        fill(broker, 10)
    assert end_offset_for_epoch(log, 0) == (0, 10)
    assert end_offset_for_epoch(log, 3) == (2, 20)
    assert end_offset_for_epoch(log, 4) == (4, 30)
    assert end_offset_for_epoch(log, 7) == (-1, -1)
    truncate_log(log, 17)
    assert (log.end_offset, log.epochs.entries) == (17, [(0, 0), (2, 10)])
    assert broker.append("t", 0, batch(b"new"), T0).base_offset == 17
    for clean in (True, False):
        if clean:
            broker.close()
        else:
            disk.kill()
        broker = open_broker(disk, **SMALL)
        log = broker.log("t", 0)
        assert log.end_offset == 18
        assert log.epochs.entries == [(0, 0), (2, 10), (4, 17)]
    with pytest.raises(errors.OffsetOutsideLog):
        truncate_log(log, -1)


def test_epochs_are_read_from_the_log_when_their_file_is_lost_or_damaged() -> None:
    disk = MemoryFiles()
    broker = made(disk=disk)
    for epoch in (1, 2):
        start_leading(broker.log("t", 0), epoch)
        fill(broker, 10)
    broker.close()
    path = "/data/t-0/leader-epoch-checkpoint"
    for content in (None, b"", b"0\n1\n9 9\n"):
        hurt = disk.copy()
        if content is None:
            hurt.remove(path)
        else:
            hurt.put(path, content)
        assert open_broker(hurt, **SMALL).log("t", 0).epochs.entries == [(1, 0), (2, 10)]


def test_another_thread_leaves_the_segment_that_is_written_to_the_appending_one() -> None:
    files = MemoryFiles()
    broker = open_broker(files, log__retention__check__interval__ms=5_000, log__segment__delete__delay__ms=0)
    broker.create_topic("t", 1, {"retention.ms": "1000"})
    broker.append("t", 0, batch(b"old"), T0)
    broker.flush()
    log = broker.log("t", 0)
    written = log.segments[0]
    aged: list[Log] = []
    broker.tick(T0, aged=aged)
    broker.tick(T0 + 10_000, aged=aged)
    assert aged == [log]
    assert log.segments == (written,)
    broker.roll_aged(log, T0 + 10_000)
    assert len(log.segments) == 2
    broker.tick(T0 + 10_001, aged=aged)
    assert [segment.base_offset for segment in log.segments] == [1]
    assert log.start_offset == 1
    assert aged == [log]


def test_what_ails_a_log_that_was_removed_meanwhile_is_no_complaint() -> None:
    files = MemoryFiles()
    broker = open_broker(files, log__flush__interval__messages=1000, log__flush__interval__ms=1)
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(b"never flushed"), T0)

    def fault(operation: str, path: str) -> None:
        if operation == "sync" and path.startswith("/data/t-0"):
            files.fault = None
            broker.delete_topic("t")
            raise OSError(2, "No such file or directory")

    files.fault = fault
    assert broker.tick(T0 + 10) == []
