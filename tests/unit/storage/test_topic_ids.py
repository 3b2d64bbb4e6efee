"""What is kept beside a log belongs to a topic's id: one that is made anew under the same name inherits nothing."""

import errno
import itertools
import threading
from hashlib import md5
from typing import Any

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import StorageError
from muster.storage.files import read_checkpoint, read_file, write_offsets
from muster.storage.topics import maintenance
from muster.storage.topics.data_dir import CLEANER_POINTS, LOG_STARTS, RECOVERY_POINTS
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, read_all, values

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0"}


def opened(disk: MemoryFiles) -> Broker:
    """Topics get ids that differ, as with real randomness."""
    numbers = itertools.count(len(disk.names("/data")) if disk.is_dir("/data") else 0)
    return Broker("/data", LogSettings(), disk, clock_ms=lambda: T0, random_bytes=lambda n: bytes([next(numbers)]) * n)


def filled(broker: Broker, topic: str, count: int, **how: Any) -> None:
    for number in range(count):
        broker.append(topic, 0, batch(b"v%d" % number, **how), T0)
    broker.flush()


def test_a_long_key_and_its_digest_are_two_keys() -> None:
    broker = opened(MemoryFiles())
    broker.create_topic("t", 1, COMPACT)
    long = b"a key of more than sixteen bytes"
    broker.append("t", 0, batch(b"long", key=long), T0)
    broker.append("t", 0, batch(b"digest", key=md5(long).digest()), T0)
    broker.log("t", 0).roll(T0)
    filled(broker, "t", 1, key=b"other")
    assert broker.compact(T0) == ("t", 0)
    assert values(read_all(broker.log("t", 0))) == [b"long", b"digest", b"v0"]


def test_a_topic_is_not_made_anew_before_its_removal_is_done() -> None:
    disk = MemoryFiles()
    broker = opened(disk)
    broker.create_topic("t", 2)
    filled(broker, "t", 100)
    broker.checkpoint()

    def stuck(operation: str, path: str) -> None:
        if operation == "remove_dir" and path.endswith("t-1"):
            raise OSError(errno.EIO, "I/O error", path)

    disk.fault = stuck
    with pytest.raises(StorageError, match="could not be removed"):
        broker.delete_topic("t")
    with pytest.raises(StorageError, match="'t' is still being removed from disk, which fails: I/O error"):
        broker.create_topic("t", 1)
    broker.create_topic("other", 1)
    disk.fault = None
    broker.create_topic("t", 1)
    filled(broker, "t", 1)
    assert not disk.exists("/data/t-1")
    disk.kill()
    again = opened(disk)
    assert again.recovered() == {}
    assert values(read_all(again.log("t", 0))) == [b"v0"]


@pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_STARTS, CLEANER_POINTS])
def test_points_of_a_former_topic_are_not_those_of_the_new_one(name: str) -> None:
    disk = MemoryFiles()
    broker = opened(disk)
    former = broker.create_topic("t", 1, COMPACT)
    filled(broker, "t", 5, key=b"k")
    broker.log("t", 0).start_offset = 3
    broker.log("t", 0).cleaned_to = 4
    broker.log("t", 0).roll(T0)
    broker.append("t", 0, batch(b"last", key=b"k"), T0)
    broker.flush()
    broker.compact(T0)
    broker.checkpoint()
    left_over = read_file(disk, f"/data/{name}")
    assert read_checkpoint(disk, f"/data/{name}")[0][("t", 0)] > 0
    broker.delete_topic("t")
    assert broker.create_topic("t", 1, COMPACT).id != former.id
    filled(broker, "t", 1, key=b"k")
    disk.put(f"/data/{name}", left_over)
    disk.kill()
    log = opened(disk).log("t", 0)
    assert (log.failure, log.start_offset, log.end_offset, log.cleaned_to) == (None, 0, 1, 0)


def test_checkpoints_without_ids_are_read_by_name() -> None:
    disk = MemoryFiles()
    broker = opened(disk)
    broker.create_topic("t", 1)
    filled(broker, "t", 5)
    broker.close()
    write_offsets(disk, f"/data/{LOG_STARTS}", {("t", 0): 3}, {})
    again = opened(disk)
    assert again.start_offset("t", 0) == 3
    again.checkpoint()
    offsets, owners = read_checkpoint(disk, f"/data/{LOG_STARTS}")
    assert offsets == {("t", 0): 3}
    assert list(owners) == ["t"]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_compaction_that_chose_a_log_before_it_went_leaves_no_point_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryFiles()
    broker = opened(disk)
    broker.create_topic("t", 1, COMPACT)
    filled(broker, "t", 30, key=b"k")
    assert broker.compact(T0) == ("t", 0)
    filled(broker, "t", 30, key=b"k")
    chosen, go_on = threading.Event(), threading.Event()
    real = maintenance.find_dirty_segments

    def slow(*arguments: Any) -> Any:
        part = real(*arguments)
        chosen.set()
        assert go_on.wait(30)
        return part

    monkeypatch.setattr(maintenance, "find_dirty_segments", slow)
    compaction = threading.Thread(target=broker.compact, args=(T0,), daemon=True)
    compaction.start()
    assert chosen.wait(30)
    monkeypatch.setattr(maintenance, "find_dirty_segments", real)
    broker.delete_topic("t")
    broker.create_topic("t", 1, COMPACT)
    go_on.set()
    compaction.join(30)
    filled(broker, "t", 30, key=b"k")
    assert broker.log("t", 0).cleaned_to == 0
    assert ("t", 0) not in read_checkpoint(disk, f"/data/{CLEANER_POINTS}")[0]
    assert broker.compact(T0) == ("t", 0)
    assert len(read_all(broker.log("t", 0))) < 30


def test_a_directory_of_another_topic_is_not_served() -> None:
    disk = MemoryFiles()
    broker = opened(disk)
    broker.create_topic("t", 1)
    broker.create_topic("u", 1)
    filled(broker, "t", 5)
    broker.close()
    disk.put("/data/u-0/partition.metadata", read_file(disk, "/data/t-0/partition.metadata"))
    again = opened(disk)
    with pytest.raises(StorageError, match="these are not its records"):
        again.append("u", 0, batch(b"x"), T0)
    assert values(read_all(again.log("t", 0))) == [b"v0", b"v1", b"v2", b"v3", b"v4"]
