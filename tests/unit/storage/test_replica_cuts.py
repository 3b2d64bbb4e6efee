"""Where a log of a cluster is cut, begins anew, and begins: docs/storage/log.md, "Replicated logs"."""

import contextlib
import errno
import os
import random

import pytest

from muster.storage.errors import LogFenced, StorageError
from muster.storage.logs import replica
from muster.storage.logs.retention import apply_retention, retention_policies
from muster.storage.records.batch import read_batches
from muster.storage.types import Topic
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, open_broker
from tests.unit.storage.replicas import SMALL, ends, held, sent
from tests.unit.storage.workload import Killed

# -- cuts -------------------------------------------------------------------------------------------------


def test_a_cut_takes_the_high_watermark_and_the_epochs_with_it() -> None:
    """CL-F5: what comes instead is not committed because something else once was."""
    broker = held()
    log = broker.log("t", 0)
    replica.append_as_follower(log, b"".join(sent(b"r", at=at, epoch=at // 4) for at in range(12)), T0)
    log.tell_high_watermark(10)
    assert broker.truncate("t", 0, 6) == 6
    assert (ends(log), log.epochs.entries) == ((0, 6, 6), [(0, 0), (1, 4)])
    replica.append_as_follower(log, b"".join(sent(b"s", at=at, epoch=7) for at in range(6, 12)), T0)
    assert log.high_watermark == 6


def test_a_cut_at_the_end_takes_an_epoch_in_which_nothing_was_written() -> None:
    """Else two logs would ask each other for ever where it ended."""
    broker = held()
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", at=0, epoch=1), T0)
    replica.start_leading(log, 4)
    assert broker.truncate("t", 0, 1) == 1
    assert log.epochs.entries == [(1, 0)]


def test_the_epochs_are_cut_on_disk_before_the_records() -> None:
    """CL-F5: cut behind them, a crash would leave a claim to an epoch for whatever comes instead."""
    disk = MemoryFiles()
    broker = held(disk)
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", at=0, epoch=1) + sent(b"b", at=1, epoch=2), T0)
    calls: list[str] = []
    disk.fault = lambda operation, path: calls.append(f"{operation} {path.rsplit('/', 1)[-1]}")
    broker.truncate("t", 0, 1)
    assert calls.index("rename leader-epoch-checkpoint.tmp") < calls.index("truncate 00000000000000000000.log")


def test_a_cut_that_cannot_be_prepared_cuts_nothing_and_one_that_fails_fences_the_log() -> None:
    disk = MemoryFiles()
    broker = held(disk)
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", at=0, epoch=1) + sent(b"b", at=1, epoch=2), T0)
    log.flush()

    def failing(what: str, name: str) -> None:
        def fault(operation: str, path: str) -> None:
            if operation == what and name in path:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        disk.fault = fault

    for name, says in (("recovery-point", "recovery points"), ("leader-epoch", "leader epochs")):
        failing("write", name)
        with pytest.raises(StorageError, match=f"Could not write the {says}"):
            broker.truncate("t", 0, 1)
        assert (log.end_offset, log.failure, log.epochs.latest) == (2, None, 2)
    failing("truncate", ".log")
    assert isinstance(broker.truncate_all({("t", 0): 1})["t", 0], LogFenced)


def test_what_a_flush_counts_between_the_note_and_the_cut_is_no_damage_after_a_crash() -> None:
    disk = MemoryFiles()
    broker = held(disk)
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", at=0) + sent(b"b", at=1), T0)
    log.flush()
    broker.checkpoint()
    points = "/data/recovery-point-offset-checkpoint"
    before = disk.content(points)

    def fault(operation: str, path: str) -> None:
        if operation == "rename" and "replication-offset" in path:
            # All is written down for the cut. Another thread's flush ends now, and that is written down, too.
            disk.fault = None
            log.durable_offset = 2
            disk.put(points, before)

    log.tell_high_watermark(1)
    disk.fault = fault
    broker.truncate("t", 0, 1)
    assert disk.fault is None
    disk.crash()
    again = open_broker(disk, **SMALL).log("t", 0)
    assert (again.end_offset, again.failure) == (1, None)


def test_many_are_cut_with_one_note_of_it() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk, **SMALL)
    broker.host([Topic("t", bytes(16), 9, {}, False, tuple(range(9)))])
    for number in range(9):
        replica.append_as_follower(broker.log("t", number), sent(b"a", at=0) + sent(b"b", at=1), T0)
    broker.flush()
    notes: list[str] = []
    disk.fault = lambda operation, path: notes.append(path) if operation == "rename" and "recovery" in path else None
    assert broker.truncate_all({("t", number): 1 for number in range(9)}) == {}
    assert len(notes) == 1
    assert [broker.end_offset("t", number) for number in range(9)] == [1] * 9


def test_a_cut_of_many_segments_leaves_a_beginning_of_the_log_whenever_the_power_goes() -> None:
    """CL-F5: what is removed is removed newest first, on disk too: a hole would look like a log that is further."""
    whole = b"".join(sent(b"r" * 40, at=at, epoch=at // 5) for at in range(20))
    for number in range(80):
        disk = MemoryFiles()
        broker = held(disk)
        replica.append_as_follower(broker.log("t", 0), whole, T0)
        broker.flush()
        first, rng = disk.calls + number, random.Random(number)

        def fault(operation: str, path: str, disk: MemoryFiles = disk, first: int = first) -> None:
            if disk.calls > first:
                raise Killed

        disk.fault = fault
        with contextlib.suppress(Killed):
            broker.truncate("t", 0, 1)
        disk.crash(rng.choice)
        log = open_broker(disk, **SMALL).log("t", 0)
        assert log.failure is None
        assert log.end_offset >= 1
        offset = 0
        while offset < log.end_offset:
            found = list(read_batches(replica.fetch_as_replica(log, offset, 1 << 20).records))
            assert found[0].base_offset == offset
            assert [log.epochs.at(view.base_offset) for view in found] == [view.leader_epoch for view in found]
            offset = found[-1].next_offset


@pytest.mark.parametrize("power", [True, False])
def test_beginning_anew_leaves_no_hole_whenever_it_is_cut_short(power: bool) -> None:
    """CL-F7."""
    for number in range(60):
        disk = MemoryFiles()
        broker = held(disk)
        log = broker.log("t", 0)
        replica.append_as_follower(log, b"".join(sent(b"r" * 40, at=at, epoch=at // 5) for at in range(20)), T0)
        broker.flush()
        broker.checkpoint()
        assert len(log.segments) > 3
        first = disk.calls + number

        def fault(operation: str, path: str, disk: MemoryFiles = disk, first: int = first) -> None:
            if disk.calls > first:
                raise Killed

        disk.fault = fault
        try:
            broker.begin_anew("t", 0, 50)
            done = True
        except Killed:
            done = False
        fate = "lose" if number % 2 else "keep"
        if power:
            disk.crash(lambda choices, fate=fate: fate)  # type: ignore[misc]
        else:
            disk.kill()
        again = open_broker(disk, **SMALL).log("t", 0)
        assert again.failure is None
        assert ends(again)[:2] in ([(50, 50)] if done else [(50, 50), (0, 20)])
        if done:
            assert again.epochs.entries == []


# -- the log's start, retention ---------------------------------------------------------------------------


def test_a_followers_log_begins_where_its_leaders_does_and_retention_is_not_its_work() -> None:
    """CL-F8."""
    log = held(retention__bytes="1", retention__ms="1").log("t", 0)
    replica.append_as_follower(log, b"".join(sent(b"r" * 40, at=at, epoch=2) for at in range(20)), T0)
    log.flush()
    log.tell_high_watermark(20)
    assert apply_retention(log, retention_policies(), T0 + 10**9) == 0
    replica.advance_start(log, 9)
    replica.advance_start(log, 4)
    assert apply_retention(log, retention_policies(), T0 + 10**9) > 0
    assert log.start_offset == 9
    assert log.segments[0].base_offset <= 9 < log.segments[0].next_offset
    with pytest.raises(StorageError, match="begins at offset 21, behind the end 20"):
        replica.advance_start(log, 21)
    replica.start_leading(log, 3)
    assert apply_retention(log, retention_policies(), T0 + 10**9) > 0
    assert log.start_offset > 9


def test_what_lies_below_the_leaders_start_is_committed() -> None:
    log = held().log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", b"c", at=0), T0)
    replica.advance_start(log, 2)
    assert ends(log) == (2, 3, 2)


def test_what_comes_in_place_of_committed_records_that_were_cut_is_not_taken_for_committed_by_the_next_start() -> None:
    """CL-F5 after an unclean election (seed 192): the watermark that was written last was about what is gone, and what
    had been copied since counted by it, though no leader ever committed it. Parted from, it was kept for good
    (CL-F6)."""
    disk = MemoryFiles()
    broker = held(disk)
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", b"c", at=0), T0)
    log.flush()
    log.tell_high_watermark(3)
    broker.checkpoint_high_watermarks()
    broker.truncate("t", 0, 0)
    replica.append_as_follower(log, sent(b"x", b"y", at=0, epoch=4), T0)
    log.flush()
    disk.kill()
    assert ends(open_broker(disk, **SMALL).log("t", 0)) == (0, 2, 0)


def test_high_watermarks_are_written_when_one_moved_and_bound_by_the_log_at_a_start() -> None:
    """CL-F4: every five seconds by whoever asks, and nothing is written for an idle node."""
    disk = MemoryFiles()
    broker = held(disk)
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", at=0) + sent(b"c", at=2), T0)
    log.flush()
    log.tell_high_watermark(2)
    writes: list[str] = []
    disk.fault = lambda operation, path: writes.append(path) if operation == "write" else None
    broker.checkpoint_high_watermarks()
    broker.checkpoint_high_watermarks()
    assert writes == ["/data/replication-offset-checkpoint.tmp"]
    log.tell_high_watermark(3)
    broker.checkpoint_high_watermarks()
    assert len(writes) == 2
    disk.crash()
    assert open_broker(disk, **SMALL).log("t", 0).high_watermark == 3
    disk.kill()
    path = "/data/t-0/00000000000000000000.log"
    disk.put(path, disk.content(path)[: len(sent(b"a", b"b", at=0))])
    disk.put("/data/recovery-point-offset-checkpoint", b"")
    assert ends(open_broker(disk, **SMALL).log("t", 0)) == (0, 2, 2)
