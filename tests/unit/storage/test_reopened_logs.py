"""Logs of a cluster that fail and are opened anew, and topics that come again before their former files are gone."""

import errno
import os
import threading
from pathlib import Path

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import StorageError
from muster.storage.files import File, RealFiles
from muster.storage.logs import replica
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.hosted import OTHER_ID, put, topic
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values


def broken_flush(operation: str, path: str) -> None:
    if operation == "sync" and path.endswith(".log"):
        raise OSError(errno.EIO, "Input/output error", path)


def test_a_log_whose_flush_failed_is_opened_anew_with_what_was_flushed() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"kept")
    log = broker.log("t", 0)
    replica.append_as_follower(log, batch(b"lost", base_offset=1, leader_epoch=2), T0)
    disk.fault = broken_flush
    with pytest.raises(StorageError):
        log.flush()
    assert log.failure is not None
    assert [trouble.name for trouble in broker.troubles.current()] == ["log-fenced:t-0"]
    disk.fault = None
    broker.reopen("t", 0)
    again = broker.log("t", 0)
    assert again is not log
    assert (again.failure, again.end_offset, again.high_watermark, again.following) == (None, 1, 1, True)
    assert broker.troubles.current() == ()
    put(broker, 0, b"more")
    assert values(read_all(again)) == [b"kept", b"more"]
    broker.close()
    disk.crash()
    assert values(read_all(open_broker(disk).log("t", 0))) == [b"kept", b"more"]


def test_one_that_cannot_be_opened_stays_as_it_was() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"kept")
    log = broker.log("t", 0)
    log.fence("the disk went away")
    disk.rename("/data/t-0", "/data/elsewhere")
    with pytest.raises(StorageError, match="Could not open /data/t-0: No such file"):
        broker.reopen("t", 0)
    assert broker.log("t", 0) is log
    disk.rename("/data/elsewhere", "/data/t-0")
    broker.reopen("t", 0)
    assert broker.log("t", 0).end_offset == 1
    sound = broker.log("t", 0)
    broker.reopen("t", 0)
    assert broker.log("t", 0) is sound


def test_a_directory_that_was_gone_at_the_start_and_is_back() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"kept")
    broker.checkpoint_high_watermarks()
    broker.close()
    disk.rename("/data/t-0", "/data/elsewhere")
    broker = open_broker(disk)
    with pytest.raises(StorageError, match="is gone"):
        broker.log("t", 0)
    disk.rename("/data/elsewhere", "/data/t-0")
    broker.reopen("t", 0)
    log = broker.log("t", 0)
    assert (log.end_offset, log.high_watermark) == (1, 1)
    assert broker.troubles.current() == ()


def test_a_topic_that_is_made_again_before_its_former_files_are_gone_is_held() -> None:
    """A cluster's topic that was deleted and made again could be held by no node until that started anew (cluster
    seed 0 over real logs)."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0, 1)])
    put(broker, 0, b"former")
    broker.drop("t", [0, 1])
    assert broker.host([topic(0, topic_id=OTHER_ID)]) == {}
    assert broker.log("t", 0).end_offset == 0
    assert broker.topic("t").id == OTHER_ID


class Turn:
    """A lock of which is known that somebody wants it."""

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.wanted = threading.Event()

    def __enter__(self) -> None:
        self.wanted.set()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_what_is_made_again_while_files_are_cleared_away_is_not_cleared_away() -> None:
    """Which ones are going was looked up before the turn came to clear them away."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.host([topic(0)])
    put(broker, 0, b"former")
    broker.drop("t", [0])
    turn = Turn(broker._changing)
    broker._changing = turn  # type: ignore[assignment]
    with turn.lock:
        clearing = threading.Thread(target=broker.clear_away)
        clearing.start()
        turn.wanted.wait()
        broker._finish_deletion_of("t")
        broker._save({})
        disk.make_dir("/data/t-0")
    clearing.join()
    assert disk.is_dir("/data/t-0")


def test_whether_there_is_room_is_tried_and_leaves_nothing_behind(tmp_path: Path) -> None:
    class Full(RealFiles):
        code = errno.ENOSPC

        def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
            if path.endswith("room-probe-of-copies"):
                raise OSError(self.code, os.strerror(self.code))
            return super().open(path, create=create, writable=writable)

    sound = Broker(tmp_path / "a", LogSettings())
    before = sorted(os.listdir(tmp_path / "a"))
    assert sound.no_room(4096) == ""
    assert sorted(os.listdir(tmp_path / "a")) == before
    sound.close()
    full = Broker(tmp_path / "b", LogSettings(), Full())
    assert "No space left on device" in full.no_room(4096)
    Full.code = errno.EIO
    assert full.no_room(4096) == "", "that is not for want of room"
    full.close()
