"""A log of a cluster: what its leader writes down first, what a follower takes, and what both show to whom.

The numbers are those of the rules in docs/storage/log.md, "Logs of a cluster".
"""

import contextlib
import errno
import os
import random

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.errors import CorruptMessage, FencedLeaderEpoch, LogFenced, StorageError, UnexpectedAppendOffset
from muster.storage.logs import replica
from muster.storage.logs.log import Log
from muster.storage.logs.retention import policies
from muster.storage.logs.upkeep import retain
from muster.storage.producers.control import encode_marker
from muster.storage.records.batch import read_batches
from muster.storage.types import Topic
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.unit.storage.workload import Killed

SMALL = {"log__segment__bytes": 350, "log__index__interval__bytes": 80, "log__segment__delete__delay__ms": 0}
EPOCHS = "/data/t-0/leader-epoch-checkpoint"


def held(disk: MemoryFiles | None = None, **configs: str) -> Broker:
    broker = open_broker(disk or MemoryFiles(), **SMALL)
    dotted = {name.replace("__", "."): value for name, value in configs.items()}
    assert broker.host([Topic("t", bytes(16), 3, dotted, False, (0,))]) == {}
    return broker


def sent(*texts: bytes, at: int, epoch: int = 0, **how: object) -> bytes:
    return batch(*texts, base_offset=at, leader_epoch=epoch, **how)


def ends(log: Log) -> tuple[int, int, int]:
    return log.start_offset, log.end_offset, log.high_watermark


# -- leading ------------------------------------------------------------------------------------------------


def test_an_epoch_is_on_disk_before_anything_is_appended_and_stays_if_nothing_ever_is() -> None:
    """L1: without it a follower that is further could not be told where the epoch before ended."""
    disk = MemoryFiles()
    log = held(disk).log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", at=0, epoch=2), T0)
    log.flush()
    replica.lead(log, 5)
    assert replica.end_offset_for_epoch(log, 4) == (2, 2)
    disk.crash()
    again = open_broker(disk, **SMALL).log("t", 0)
    assert again.epochs.entries == [(2, 0), (5, 2)]
    assert replica.last_epoch(again) == 2
    with pytest.raises(FencedLeaderEpoch):
        replica.lead(again, 4)


def test_an_epoch_that_cannot_be_written_down_is_not_led_and_changes_nothing() -> None:
    disk = MemoryFiles()
    log = held(disk).log("t", 0)
    replica.lead(log, 1)
    before = log.epochs.entries, log.leader_epoch
    disk.capacity = 0
    with pytest.raises(StorageError, match=r"Could not write the leader epochs of /data/t-0 down: No space left"):
        replica.lead(log, 2)
    assert (log.epochs.entries, log.leader_epoch) == before


def test_many_are_led_with_one_flush_and_those_that_cannot_be_harm_no_other() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    many = range(20)
    broker.host([Topic("t", bytes(16), 21, {}, False, tuple(many))])
    replica.lead(broker.log("t", 3), 9)
    flushes: list[str] = []
    disk.fault = lambda operation, path: flushes.append(path) if "sync" in operation else None
    failures = broker.lead({("t", number): 7 for number in [*many, 20]})
    assert {(tp, type(error).__name__) for tp, error in failures.items()} == {
        (("t", 3), "FencedLeaderEpoch"),
        (("t", 20), "NotLeaderOrFollower"),
    }
    assert flushes == ["/data"]
    disk.crash()
    again = open_broker(disk)
    assert [again.log("t", number).epochs.latest for number in many] == [9 if number == 3 else 7 for number in many]


def test_what_is_appended_is_of_the_epoch_that_is_led_and_no_append_writes_epochs() -> None:
    disk = MemoryFiles()
    log = held(disk).log("t", 0)
    replica.lead(log, 3)
    calls: list[tuple[str, str]] = []
    disk.fault = lambda *call: calls.append(call)
    log.append(batch(b"a"), T0)
    log.append(batch(b"b"), T0)
    assert {operation for operation, _ in calls} == {"write"}
    (first, second) = read_batches(replica.fetch_as_replica(log, 0, 1 << 20).records)
    assert (first.leader_epoch, second.leader_epoch) == (3, 3)


def test_replicas_are_given_what_is_not_committed_and_readers_are_not() -> None:
    """L6, L8."""
    log = held().log("t", 0)
    replica.lead(log, 0)
    log.append(batch(b"a"), T0)
    log.append(batch(b"b"), T0)
    log.flush()
    assert ends(log) == (0, 2, 0)
    assert log.fetch(0, 1 << 20).records == b""
    found = replica.fetch_as_replica(log, 1, 1 << 20)
    assert ([view.base_offset for view in read_batches(found.records)], found.high_watermark) == ([1], 0)
    assert replica.fetch_as_replica(log, 2, 1 << 20).records == b""
    log.tell_high_watermark(1)
    assert values(read_all(log)) == [b"a"]
    for outside in (-1, 3):
        with pytest.raises(StorageError, match="is outside 0 to 2"):
            replica.fetch_as_replica(log, outside, 100)


def test_the_high_watermark_never_falls_by_being_told_and_wakes_readers_only_when_it_rises() -> None:
    """F4."""
    broker = held()
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", b"c", at=0), T0)
    woken: list[tuple[str, int]] = []
    broker.on_append(lambda *place: woken.append(place))
    for told, high in ((2, 2), (1, 2), (2, 2), (9, 3)):
        log.tell_high_watermark(told)
        assert log.high_watermark == high
    assert woken == [("t", 0)] * 2


def test_the_kept_end_is_what_is_flushed_where_every_record_is() -> None:
    for configs, kept in (({}, 0), ({"flush__messages": "1000"}, 1)):
        log = held(**configs).log("t", 0)
        replica.append_as_follower(log, sent(b"a", at=0), T0)
        assert log.kept_end == kept
        log.flush()
        assert log.kept_end == 1


# -- following ----------------------------------------------------------------------------------------------


def test_half_a_batch_at_the_end_of_an_answer_is_left_for_the_next() -> None:
    log = held().log("t", 0)
    whole = sent(b"a", at=0) + sent(b"b", b"c", at=1)
    done = replica.append_as_follower(log, whole + sent(b"d", at=3)[:-1], T0)
    assert (done.base_offset, done.last_offset, log.end_offset) == (0, 2, 3)


def test_damage_anywhere_in_an_answer_keeps_all_of_it_out() -> None:
    """F2: every byte that the checksum covers, and lengths, offsets and epochs besides."""
    first, second = sent(b"a", at=0, epoch=4), sent(b"b", at=1, epoch=4)
    whole = first + second
    for at in range(len(whole)):
        log = held().log("t", 0)
        hurt = bytearray(whole)
        hurt[at] ^= 0x80
        at_in_batch = at % len(first)
        if at >= len(first) and 8 <= at_in_batch < 12:
            continue  # a length that grew cannot be told from half a batch: the next fetch begins with it
        if 12 <= at_in_batch < 16 and not (at_in_batch == 12 and at >= len(first)):
            continue  # an epoch that grew by chance is one that may be; only the first bit makes it fall
        if at < len(first) and at_in_batch < 8:
            with pytest.raises(StorageError):
                replica.append_as_follower(log, bytes(hurt), T0)
        elif at >= len(first) and at_in_batch < 8 and at_in_batch > 0:
            continue  # offsets may be missing behind a compacting leader
        else:
            with pytest.raises(CorruptMessage, match=f"damaged at byte {at // len(first) * len(first)} of|no whole"):
                replica.append_as_follower(log, bytes(hurt), T0)
        assert (log.end_offset, log.epochs.entries, log.size) == (0, [], 0)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "of 0 bytes holds no whole record batch"),
        (sent(b"a", at=0)[:-1], "holds no whole record batch"),
        (sent(b"a", b"b", at=0) + sent(b"c", at=1), "its base offset is 1, expected 2 or more"),
        (sent(b"a", at=0, epoch=3) + sent(b"c", at=1, epoch=2), "its leader epoch 2 is below 3"),
    ],
)
def test_an_answer_that_is_no_piece_of_a_log_is_refused(answer: bytes, says: str) -> None:
    log = held().log("t", 0)
    with pytest.raises(CorruptMessage, match=says):
        replica.append_as_follower(log, answer, T0)
    assert log.end_offset == 0


def test_records_that_do_not_follow_on_are_refused() -> None:
    log = held().log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", at=0, epoch=3), T0)
    for late in (sent(b"b", at=1, epoch=3), sent(b"c", at=2, epoch=2)):
        with pytest.raises(UnexpectedAppendOffset, match="expected 2 or more, and epoch 3 or above"):
            replica.append_as_follower(log, late, T0)


def test_records_of_an_older_epoch_may_follow_one_that_was_led_and_never_written_in() -> None:
    """Who led 6 without an append follows one who has more of 5: what was of 5 before stays so."""
    log = held().log("t", 0)
    replica.append_as_follower(log, sent(b"a", at=0, epoch=5), T0)
    replica.lead(log, 6)
    replica.append_as_follower(log, sent(b"b", at=1, epoch=5), T0)
    assert log.epochs.entries == [(5, 0)]


def test_records_older_than_the_last_are_refused_even_where_that_is_not_to_be_read_any_more() -> None:
    disk = MemoryFiles()
    broker = held(disk)
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", at=0, epoch=1), T0)
    replica.advance_start(log, 1)
    broker.close()
    for each in (log, open_broker(disk, **SMALL).log("t", 0)):
        assert (ends(each), replica.last_epoch(each)) == ((1, 1, 1), 1)
    with pytest.raises(UnexpectedAppendOffset, match="expected 1 or more, and epoch 1 or above"):
        replica.append_as_follower(each, sent(b"b", at=1, epoch=0), T0)


def test_a_batch_larger_than_the_topics_limits_is_taken_as_the_leader_took_it() -> None:
    log = held(max__message__bytes="100").log("t", 0)
    replica.append_as_follower(log, sent(b"a", at=0) + sent(b"x" * 900, at=1) + sent(b"b", at=2), T0)
    log.flush()
    log.tell_high_watermark(3)
    assert values(read_all(log, most=2000)) == [b"a", b"x" * 900, b"b"]


def test_holes_of_a_compacted_leader_come_as_they_are_and_outlive_a_crash() -> None:
    """F8: a segment of its own for each hole would be thousands."""
    disk = MemoryFiles()
    log = held(disk, cleanup__policy="compact", segment__bytes="100000").log("t", 0)
    answer = b"".join(sent(b"v%d" % at, at=at, epoch=at // 20, key=b"k") for at in range(0, 100, 7))
    replica.append_as_follower(log, answer, T0)
    log.flush()
    assert len(log.segments) == 1
    disk.crash()
    again = open_broker(disk, **SMALL).log("t", 0)
    assert (again.end_offset, again.failure) == (99, None)
    data = replica.fetch_as_replica(again, 0, 1 << 20).records
    assert [view.base_offset for view in read_batches(data)] == list(range(0, 100, 7))
    assert next(read_batches(replica.fetch_as_replica(again, 50, 200).records)).base_offset == 56
    replica.append_as_follower(again, sent(b"x", at=120, epoch=5, key=b"k"), T0)
    assert again.end_offset == 121


def test_a_log_that_begins_within_a_batch_takes_it_whole() -> None:
    """F7: the leader's log start is 3, its first batch begins at 0."""
    broker = held()
    broker.begin_anew("t", 0, 3)
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", b"c", b"d", b"e", at=0, epoch=2), T0)
    assert (ends(log), replica.last_epoch(log)) == ((3, 5, 3), 2)
    log.flush()
    broker.checkpoint()
    log.tell_high_watermark(5)
    assert values(read_all(log)) == [b"d", b"e"]
    with pytest.raises(UnexpectedAppendOffset):
        replica.append_as_follower(log, sent(b"d", b"e", b"f", at=3, epoch=2), T0)


def test_producers_are_known_from_what_was_replicated_and_again_after_a_cut() -> None:
    """F10: who sends a batch again after a failover is answered with its old offset."""
    broker = held()
    log = broker.log("t", 0)

    def produced(sequence: int) -> bytes:
        return sent(b"p", at=sequence, producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)

    marker = encode_marker(commit=False, producer_id=5, producer_epoch=0, coordinator_epoch=1, timestamp_ms=T0)
    numbered = (2).to_bytes(8, "big") + marker[8:12] + bytes(4) + marker[16:]
    replica.append_as_follower(log, produced(0) + produced(1) + numbered, T0)
    assert log.producers.producers[5].txn_first_offset == -1
    assert [entry.first_offset for segment in log.segments for entry in segment.aborted] == [0]
    broker.truncate("t", 0, 1)
    assert log.producers.producers[5].txn_first_offset == 0
    replica.lead(log, 1)
    again = batch(b"p", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append(again, T0).base_offset == 0
    assert log.end_offset == 1


# -- cuts ---------------------------------------------------------------------------------------------------


def test_a_cut_takes_the_high_watermark_and_the_epochs_with_it() -> None:
    """F5: what comes instead is not committed because something else once was."""
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
    replica.lead(log, 4)
    assert broker.truncate("t", 0, 1) == 1
    assert log.epochs.entries == [(1, 0)]


def test_the_epochs_are_cut_on_disk_before_the_records() -> None:
    """F5: cut behind them, a crash would leave a claim to an epoch for whatever comes instead."""
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
    """F5: what is removed is removed newest first, on disk too: a hole would look like a log that is further."""
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
    """F7."""
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


# -- the log's start, retention -----------------------------------------------------------------------------


def test_a_followers_log_begins_where_its_leaders_does_and_retention_is_not_its_work() -> None:
    """F8."""
    log = held(retention__bytes="1", retention__ms="1").log("t", 0)
    replica.append_as_follower(log, b"".join(sent(b"r" * 40, at=at, epoch=2) for at in range(20)), T0)
    log.flush()
    log.tell_high_watermark(20)
    assert retain(log, policies(), T0 + 10**9) == 0
    replica.advance_start(log, 9)
    replica.advance_start(log, 4)
    assert retain(log, policies(), T0 + 10**9) > 0
    assert log.start_offset == 9
    assert log.segments[0].base_offset <= 9 < log.segments[0].next_offset
    with pytest.raises(StorageError, match="begins at offset 21, behind the end 20"):
        replica.advance_start(log, 21)
    replica.lead(log, 3)
    assert retain(log, policies(), T0 + 10**9) > 0
    assert log.start_offset > 9


def test_what_lies_below_the_leaders_start_is_committed() -> None:
    log = held().log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", b"c", at=0), T0)
    replica.advance_start(log, 2)
    assert ends(log) == (2, 3, 2)


def test_high_watermarks_are_written_when_one_moved_and_bound_by_the_log_at_a_start() -> None:
    """F4: every five seconds by whoever asks, and nothing is written for an idle node."""
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
