"""Room that gets short is told before it is none, and once, not each time a segment comes or goes."""

import errno
import os
from pathlib import Path
from typing import NamedTuple

from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend.upkeep import TRIED_BELOW, TRIED_BYTES, DiskRoom, WriteProbe, allocate_bytes
from muster.coordinator.server.node_events import PASSING_MS, update_write_condition

DATA = Path("/data")
GIB = 1 << 30


class Usage(NamedTuple):
    total: int
    free: int


class Disk:
    """One that is filled and emptied, or does not answer."""

    def __init__(self, free: int) -> None:
        self.free: int | None = free
        self.error = 0
        self.tried = self.wanted = 0

    def usage(self, directory: Path) -> Usage:
        assert directory == DATA
        if self.free is None:
            raise OSError("no answer")
        return Usage(10 * GIB, self.free)

    def take(self, directory: Path, wanted: int) -> None:
        assert directory == DATA
        self.tried += 1
        self.wanted = wanted
        if self.error:
            raise OSError(self.error, os.strerror(self.error))


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


def test_nobody_tries_to_write_while_there_is_room() -> None:
    disk = Disk(TRIED_BELOW)
    disk.error = errno.ENOSPC
    room = WriteProbe(DATA, disk.usage, disk.take)
    assert (room.refusal(), disk.tried) == ("", 0)
    disk.free = None
    assert (room.refusal(), disk.tried) == ("", 0)


def test_what_the_system_refuses_is_told_and_not_what_the_figures_make_of_it() -> None:
    disk = Disk(0)
    room = WriteProbe(DATA, disk.usage, disk.take)
    assert (room.refusal(), disk.tried) == ("", 1)
    disk.error = errno.EIO
    assert room.refusal() == ""
    for disk.error in (errno.ENOSPC, errno.EDQUOT):
        told = room.refusal()
        assert told.startswith(
            f"nothing more can be written where /data lies: {os.strerror(disk.error)} (0 B of 10.0 GiB"
        )


def test_what_was_tried_is_taken_away_again(tmp_path: Path) -> None:
    allocate_bytes(tmp_path, 1 << 20)
    assert list(tmp_path.iterdir()) == []


def test_as_much_as_a_log_was_refused_is_tried_whatever_the_figures_say() -> None:
    disk = Disk(GIB)
    room = WriteProbe(DATA, disk.usage, disk.take)
    assert (room.refusal(900_000), disk.tried, disk.wanted) == ("", 1, 900_000)
    disk.error = errno.EDQUOT
    assert room.refusal(900_000).startswith("878.9 KiB more cannot be written where /data lies: ")
    assert room.refusal(1).startswith("nothing more can be written where /data lies: ")
    assert disk.wanted == TRIED_BYTES, "a file costs a block or two, however little is in it"


def test_a_full_disk_is_a_condition_until_something_can_be_written_and_the_logs_word_stays() -> None:
    clock = [0]
    conditions = Conditions(lambda: clock[0])
    update_write_condition(conditions, "", "")
    assert conditions.current() == ()
    update_write_condition(conditions, "nothing can be written", "")
    clock[0] = 10 * PASSING_MS
    assert conditions.sentence("disk-full") == "nothing can be written"
    update_write_condition(conditions, "", "nothing can be written")
    assert conditions.current() == ()
    conditions.report("disk-full", "8 MiB were refused", lasting_ms=PASSING_MS)
    update_write_condition(conditions, "", "")
    assert conditions.sentence("disk-full") == "8 MiB were refused"
