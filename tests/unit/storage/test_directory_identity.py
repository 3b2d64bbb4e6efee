"""Whose disk a directory is, and what may have gone with the power of its machine (CL-Z4)."""

import contextlib
from pathlib import Path

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import StorageError
from muster.storage.topics.catalog import format_id
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.hosted import META, open_with
from tests.unit.storage.workload import Killed


def test_a_directory_has_an_id_of_its_own_for_ever() -> None:
    disk = MemoryFiles()
    broker = open_with(disk, 7)
    made = broker.identity.directory_id
    assert made == format_id(bytes([7]) * 16)
    assert len(made) == 22
    assert f"directory.id={made}\n".encode() in disk.content(META)
    broker.close()
    disk.crash()
    assert open_with(disk, 8).identity.directory_id == made


def test_a_directory_of_an_older_version_gets_an_id_and_that_version_still_reads_it() -> None:
    disk = MemoryFiles()
    open_with(disk, 7).close()
    disk.put(META, b"version=1\ncluster.id=abc\nnode.id=1\n")
    broker = open_with(disk, 8)
    assert (broker.cluster_id, broker.identity.directory_id) == ("abc", format_id(bytes([8]) * 16))
    broker.close()
    lines = disk.content(META).decode().splitlines()
    assert {"version=1", "cluster.id=abc", "node.id=1"} <= set(lines)
    assert all("=" in line for line in lines)
    assert open_with(disk, 9).identity.directory_id == format_id(bytes([8]) * 16)


def test_an_id_that_is_cut_short_is_said_and_not_taken_for_another_disk() -> None:
    disk = MemoryFiles()
    open_with(disk, 7).close()
    disk.put(META, disk.content(META).replace(b"directory.id=BwcH", b"directory.id="))
    with pytest.raises(StorageError, match=r"meta.properties cannot be read: its directory.id=\w+ has not the 22"):
        open_with(disk, 8)


def test_a_full_disk_keeps_no_node_from_starting_and_gives_no_id_that_the_next_start_would_not_have() -> None:
    disk = MemoryFiles()
    broker = open_with(disk, 7)
    broker.create_topic("t", 1)
    broker.close()
    disk.put(META, b"version=1\ncluster.id=abc\nnode.id=1\n")
    disk.capacity = 0
    assert open_with(disk, 8).identity.directory_id == ""


def test_a_directory_whose_node_asks_for_logins_is_refused_by_versions_that_ask_for_none() -> None:
    """They know version 1 only, and would serve everybody."""
    disk = MemoryFiles()
    broker = open_with(disk, 7)
    assert disk.content(META).startswith(b"version=1\n")
    broker.set_guarded(True)
    broker.close()
    assert disk.content(META).startswith(b"version=2\n")
    broker = open_with(disk, 7)
    assert broker.identity.guarded, "whoever opens it for another reason leaves that as it is"
    broker.set_guarded(False)
    broker.close()
    assert disk.content(META).startswith(b"version=1\n"), "the way back"


LOOSE = LogSettings.from_properties({"log.flush.interval.messages": "1000"})


@pytest.mark.parametrize(
    ("end", "settings", "unclean"),
    [
        ("stop", LOOSE, False),
        ("kill", LOOSE, False),
        ("crash", LOOSE, True),
        ("stop, crash", LOOSE, False),
        ("crash", LogSettings(), False),
    ],
)
def test_unclean_is_who_lost_power_with_records_that_nobody_flushes(
    end: str, settings: LogSettings, unclean: bool
) -> None:
    """CL-Z4: who is killed leaves his writes with the system; where each record is flushed nothing is lost."""
    disk = MemoryFiles()
    broker = open_with(disk, 7, settings)
    broker.create_topic("t", 1)
    if "stop" in end:
        broker.close()
    if "crash" in end:
        disk.crash()
    disk.kill()
    assert open_with(disk, 7, settings).unclean is unclean


def test_unclean_stays_until_somebody_reckons_with_it_however_often_the_node_starts_meanwhile() -> None:
    disk = MemoryFiles()
    open_with(disk, 7, LOOSE).create_topic("t", 1)
    disk.crash()
    open_with(disk, 7, LOOSE)
    disk.kill()
    broker = open_with(disk, 7, LOOSE)
    assert broker.unclean
    broker.close()
    broker = open_with(disk, 7, LOOSE)
    assert broker.unclean
    broker.forget_unclean()
    assert not broker.unclean
    disk.kill()
    assert not open_with(disk, 7, LOOSE).unclean


def test_unclean_is_known_whenever_the_start_is_cut_short() -> None:
    for number in range(12):
        disk = MemoryFiles()
        open_with(disk, 7, LOOSE).create_topic("t", 1)
        disk.crash()
        first = disk.calls + number

        def fault(operation: str, path: str, disk: MemoryFiles = disk, first: int = first) -> None:
            if disk.calls > first:
                raise Killed

        disk.fault = fault
        with contextlib.suppress(Killed):
            open_with(disk, 7, LOOSE)
        disk.kill()
        assert open_with(disk, 7, LOOSE).unclean


def test_a_start_on_the_same_boot_writes_nothing_about_it(tmp_path: Path) -> None:
    Broker(tmp_path / "d").close()
    before = (tmp_path / "d" / "meta.properties").stat().st_mtime_ns
    broker = Broker(tmp_path / "d")
    broker.close()
    assert broker.identity.boot_id
    assert (tmp_path / "d" / "meta.properties").stat().st_mtime_ns == before
