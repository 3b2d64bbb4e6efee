"""Room that gets short is told before it is none, and once, not each time a segment comes or goes."""

from pathlib import Path
from typing import NamedTuple

from muster.coordinator.server.health.disk_room import DiskRoom

DATA = Path("/data")
GIB = 1 << 30


class Usage(NamedTuple):
    total: int
    free: int


class Disk:
    """One that is filled and emptied, or does not answer."""

    def __init__(self, free: int) -> None:
        self.free: int | None = free

    def usage(self, directory: Path) -> Usage:
        assert directory == DATA
        if self.free is None:
            raise OSError("no answer")
        return Usage(10 * GIB, self.free)


def test_short_room_is_told_with_its_figures_and_what_to_do() -> None:
    disk = Disk(GIB)
    room = DiskRoom(DATA, GIB, disk.usage)
    assert room.shortage() == ""
    disk.free = GIB // 2
    assert room.shortage() == (
        "512.0 MiB of 10.0 GiB (5.0 %) are free where /data lies, less than log.dirs.free.warn.bytes (1.0 GiB): "
        "once it is full, appends and commits are refused; lower retention.ms or retention.bytes of large topics, "
        "delete topics, or give the disk more"
    )


def test_it_is_over_when_a_tenth_more_is_free() -> None:
    disk = Disk(0)
    room = DiskRoom(DATA, 1_000, disk.usage)
    assert room.shortage()
    disk.free = 1_099
    assert room.shortage()
    disk.free = 1_100
    assert not room.shortage()
    disk.free = 1_000
    assert not room.shortage()


def test_zero_means_never_and_a_disk_that_does_not_answer_says_nothing() -> None:
    disk = Disk(0)
    assert DiskRoom(DATA, 0, disk.usage).shortage() == ""
    disk.free = None
    assert DiskRoom(DATA, GIB, disk.usage).shortage() == ""
