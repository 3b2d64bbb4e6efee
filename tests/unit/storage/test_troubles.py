"""A log in trouble says so, in one sentence for producers, readers and whoever asks after the node's health."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import LogDamaged, LogFenced, StorageError
from muster.storage.files import RealFiles
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values

LOG = "/data/t-0/00000000000000000000.log"


def made(disk: MemoryFiles, **settings: object) -> Broker:
    broker = open_broker(disk, **settings)
    broker.create_topic("t", 1)
    broker.create_topic("sound", 1)
    broker.append("t", 0, batch(b"kept"), T0)
    broker.flush()
    return broker


def failing(wanted: str, ending: str, number: int = errno.EIO) -> Callable[[str, str], None]:
    def fault(operation: str, path: str) -> None:
        if operation == wanted and path.endswith(ending):
            raise OSError(number, os.strerror(number), path)

    return fault


def told(broker: Broker) -> dict[str, str]:
    return {trouble.name: trouble.sentence for trouble in broker.troubles.current()}


def check_fenced(broker: Broker, says: str) -> None:
    """It takes nothing more, whatever the disk says now; the one sentence is told everywhere; others go on."""
    with pytest.raises(LogFenced) as refusal:
        broker.append("t", 0, batch(b"refused"), T0)
    with pytest.raises(LogFenced) as again:
        broker.flush([("t", 0)])
    assert says in str(refusal.value)
    assert str(again.value) == str(refusal.value) == told(broker)["log-fenced:t-0"]
    assert list(told(broker)) == ["log-fenced:t-0"]
    broker.append("sound", 0, batch(b"x"), T0)
    broker.flush([("sound", 0)])


def test_a_failed_fsync_fences_the_log_until_it_is_opened_again() -> None:
    disk = MemoryFiles()
    broker = made(disk)
    broker.append("t", 0, batch(b"lost"), T0)
    disk.fault = failing("sync", "t-0/00000000000000000000.log")
    with pytest.raises(LogFenced, match=r"Could not flush .*Input/output error"):
        broker.flush([("t", 0)])
    disk.fault = None
    check_fenced(broker, "Input/output error. The log takes no appends until the node is restarted and has checked it.")
    assert values(read_all(broker.log("t", 0))) == [b"kept"], "what could not be flushed is not shown"
    disk.crash()
    again = open_broker(disk)
    assert told(again) == {}
    again.append("t", 0, batch(b"more"), T0)
    again.flush()
    assert values(read_all(again.log("t", 0))) == [b"kept", b"more"]


def test_a_directory_that_cannot_be_flushed_fences_the_log_that_rolls() -> None:
    disk = MemoryFiles()
    broker = made(disk)
    real, calls = disk.sync_dir, 0

    def once(path: str) -> None:
        nonlocal calls
        calls += path.endswith("t-0") and any(name.endswith("1.log") for name in disk.names(path))
        if calls == 1:
            raise OSError(errno.EIO, "Input/output error", path)
        real(path)

    disk.sync_dir = once  # type: ignore[method-assign]
    broker.log("t", 0).roll(T0)
    broker.append("t", 0, batch(b"in a file whose name may be lost"), T0)
    with pytest.raises(LogFenced, match="Could not flush /data/t-0: Input/output error"):
        broker.flush([("t", 0)])
    check_fenced(broker, "Could not flush /data/t-0")


def test_what_cannot_be_cut_off_again_fences_the_log() -> None:
    disk = MemoryFiles()
    broker = made(disk)

    def fault(operation: str, path: str) -> None:
        if operation in ("write", "truncate") and path == LOG:
            raise OSError(errno.EIO, "Input/output error", path)

    disk.fault, disk.partial = fault, 5
    with pytest.raises(StorageError, match="Could not write to"):
        broker.append("t", 0, batch(b"torn"), T0)
    disk.fault = None
    with pytest.raises(LogFenced, match="Could not cut what was written in part off"):
        broker.append("t", 0, batch(b"refused"), T0)
    assert set(told(broker)) == {"log-io:t-0", "log-fenced:t-0"}


@pytest.mark.parametrize("short", [True, False])
def test_a_full_disk_is_told_and_passes(short: bool) -> None:
    disk = MemoryFiles()
    broker = made(disk)
    log = broker.log("t", 0)
    data = batch(b"x") if short else batch(b"x") + batch(b"y")
    disk.capacity = disk.used()
    for _ in range(3):
        with pytest.raises(StorageError, match="No space left on device"):
            log.append(data, T0)
    (trouble,) = broker.troubles.current()
    assert (trouble.name, trouble.times, trouble.passing) == ("disk-full", 3, True)
    assert "No space left on device. The records are not in the log" in trouble.sentence
    disk.capacity = None
    log.append(data, T0)
    assert broker.troubles.current()[0].times == 3


def test_damage_that_readers_meet_is_told() -> None:
    disk = MemoryFiles()
    made(disk).close()
    whole = disk.content(LOG)
    disk.put(LOG, whole[:-1] + bytes((whole[-1] ^ 1,)))
    broker = open_broker(disk)
    assert told(broker) == {}
    for _ in range(2):
        with pytest.raises(LogDamaged) as refusal:
            broker.fetch("t", 0, 0, 1000)
    (trouble,) = broker.troubles.current()
    assert (trouble.name, trouble.sentence, trouble.times) == ("log-damaged:t-0", str(refusal.value), 2)
    broker.delete_topic("t")
    assert told(broker) == {}, "what is gone is no trouble"


def test_damage_and_loss_that_opening_finds_are_told() -> None:
    disk = MemoryFiles()
    broker = made(disk)
    broker.checkpoint()
    disk.kill()
    disk.put(LOG, b"")
    for name in disk.names("/data/sound-0"):
        disk.remove(f"/data/sound-0/{name}")
    disk.remove_dir("/data/sound-0")
    again = open_broker(disk)
    with pytest.raises(LogDamaged) as damage:
        again.append("t", 0, batch(b"x"), T0)
    with pytest.raises(StorageError) as gone:
        again.append("sound", 0, batch(b"x"), T0)
    assert told(again) == {"log-damaged:t-0": str(damage.value), "log-gone:sound-0": str(gone.value)}


# -- files that go away under the node ------------------------------------------------------------------------


def remove_file(path: Path) -> None:
    path.unlink()


def replace_file(path: Path) -> None:
    copy = path.read_bytes()
    path.unlink()
    path.write_bytes(copy)


def remove_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


def move_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("how", [remove_file, replace_file, remove_directory, move_directory])
def test_nothing_is_acknowledged_that_is_not_in_the_directory(tmp_path: Path, how: Callable[[Path], None]) -> None:
    broker = Broker(tmp_path, LogSettings())
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(b"kept"), T0)
    broker.flush()
    how(tmp_path / "t-0" / "00000000000000000000.log")
    broker.append("t", 0, batch(b"lost"), T0)
    with pytest.raises(LogFenced) as refusal:
        broker.flush([("t", 0)])
    assert "has been removed or replaced while the node uses it" in str(refusal.value)
    assert broker.high_watermark("t", 0) == 1
    assert told(broker) == {"log-fenced:t-0": str(refusal.value)}
    broker.close()


def test_where_no_flush_is_promised_the_next_checkpoint_notices(tmp_path: Path) -> None:
    broker = Broker(tmp_path, LogSettings.from_properties({"log.flush.interval.messages": "1000"}))
    broker.create_topic("t", 1)
    broker.tick(T0)
    broker.append("t", 0, batch(b"x"), T0)
    (tmp_path / "t-0" / "00000000000000000000.log").unlink()
    broker.tick(T0 + 61_000)
    assert list(told(broker)) == ["log-fenced:t-0"]
    with pytest.raises(LogFenced):
        broker.append("t", 0, batch(b"x"), T0)


def test_a_roll_notices_too(tmp_path: Path) -> None:
    broker = Broker(tmp_path, LogSettings())
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(b"x"), T0)
    broker.flush()
    (tmp_path / "t-0" / "00000000000000000000.log").unlink()
    with pytest.raises(LogFenced):
        broker.log("t", 0).roll(T0)


def test_a_system_that_does_not_say_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().open(str(tmp_path / "x"), create=True)

    def refused(path: str) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    assert file.is_at(str(tmp_path / "x"))
    assert not file.is_at(str(tmp_path / "y"))
    monkeypatch.setattr(os, "stat", refused)
    assert file.is_at(str(tmp_path / "x"))
    monkeypatch.undo()
