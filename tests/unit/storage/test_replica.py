"""A log of a cluster: what its leader writes down first, what a follower takes, and what both show to whom.

The numbers are those of the rules in docs/storage/log.md, "Logs of a cluster".
"""

import pytest

from muster.storage.errors import CorruptMessage, FencedLeaderEpoch, StorageError, UnexpectedAppendOffset
from muster.storage.logs import replica
from muster.storage.records.batch import read_batches
from muster.storage.records.markers import encode_marker
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.unit.storage.replicas import SMALL, ends, held, sent

# -- leading ----------------------------------------------------------------------------------------------


def test_an_epoch_is_known_before_anything_is_appended_and_led_without_a_write() -> None:
    """CL-L1: without it a follower that is further could not be told where the epoch before ended."""
    disk = MemoryFiles()
    log = held(disk).log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", at=0, epoch=2), T0)
    log.flush()
    calls: list[tuple[str, str]] = []
    disk.fault = lambda *call: calls.append(call)
    replica.start_leading(log, 5)
    assert (replica.end_offset_for_epoch(log, 4), calls) == ((2, 2), [])
    with pytest.raises(FencedLeaderEpoch):
        replica.start_leading(log, 4)


def test_an_epoch_is_on_disk_before_its_first_record_counts_as_flushed() -> None:
    """CL-L1, for who leads and for who follows."""
    disk = MemoryFiles()
    log = held(disk).log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", at=0, epoch=2), T0)
    log.flush()
    replica.start_leading(log, 5)
    log.append(batch(b"c"), T0)
    synced: list[str] = []
    disk.fault = lambda operation, path: synced.append(path.rsplit("/", 1)[-1]) if operation == "sync" else None
    log.flush()
    assert synced == ["leader-epoch-checkpoint.tmp", "00000000000000000000.log"]
    log.append(batch(b"d"), T0)
    log.flush()
    assert synced[2:] == ["00000000000000000000.log"], "it is written down once"
    disk.crash()
    again = open_broker(disk, **SMALL).log("t", 0)
    assert (again.epochs.entries, replica.last_leader_epoch(again)) == ([(2, 0), (5, 2)], 5)


def test_an_epoch_of_which_no_record_was_flushed_may_be_gone_after_a_crash_and_then_the_next_begins_there() -> None:
    disk = MemoryFiles()
    log = held(disk).log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", at=0, epoch=2), T0)
    log.flush()
    replica.start_leading(log, 5)
    disk.crash()
    again = open_broker(disk, **SMALL).log("t", 0)
    replica.start_leading(again, 6)
    assert (again.epochs.entries, replica.end_offset_for_epoch(again, 5)) == ([(2, 0), (6, 2)], (2, 2))


def test_records_that_a_kill_left_say_themselves_of_which_epochs_they_are() -> None:
    """They were not flushed, so their epochs are not written down."""
    disk = MemoryFiles()
    log = held(disk, segment__bytes="200").log("t", 0)
    replica.append_as_follower(log, b"".join(sent(b"x" * 50, at=at, epoch=2) for at in range(5)), T0)
    replica.append_as_follower(log, sent(b"a", at=5, epoch=4) + sent(b"b", at=6, epoch=7), T0)
    assert len(log.segments) > 1
    disk.kill()
    again = open_broker(disk, **SMALL).log("t", 0)
    assert again.epochs.entries == log.epochs.entries == [(2, 0), (4, 5), (7, 6)]


def test_what_is_of_an_epoch_that_cannot_be_written_down_does_not_count_as_flushed() -> None:
    disk = MemoryFiles()
    log = held(disk).log("t", 0)
    replica.start_leading(log, 1)
    log.append(batch(b"a"), T0)
    disk.capacity = 0
    with pytest.raises(StorageError, match=r"Could not write the leader epochs of /data/t-0 down: No space left"):
        log.flush()
    assert (log.durable_offset, log.failure) == (0, None)
    disk.capacity = None
    log.flush()
    assert log.durable_offset == 1


def test_what_is_appended_is_of_the_epoch_that_is_led_and_no_append_writes_epochs() -> None:
    disk = MemoryFiles()
    log = held(disk).log("t", 0)
    replica.start_leading(log, 3)
    calls: list[tuple[str, str]] = []
    disk.fault = lambda *call: calls.append(call)
    log.append(batch(b"a"), T0)
    log.append(batch(b"b"), T0)
    assert {operation for operation, _ in calls} == {"write"}
    (first, second) = read_batches(replica.fetch_as_replica(log, 0, 1 << 20).records)
    assert (first.leader_epoch, second.leader_epoch) == (3, 3)


def test_replicas_are_given_what_is_not_committed_and_readers_are_not() -> None:
    """CL-L6, CL-L8."""
    log = held().log("t", 0)
    replica.start_leading(log, 0)
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
    """CL-F4."""
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


# -- following --------------------------------------------------------------------------------------------


def test_half_a_batch_at_the_end_of_an_answer_is_left_for_the_next() -> None:
    log = held().log("t", 0)
    whole = sent(b"a", at=0) + sent(b"b", b"c", at=1)
    done = replica.append_as_follower(log, whole + sent(b"d", at=3)[:-1], T0)
    assert (done.base_offset, done.last_offset, log.end_offset) == (0, 2, 3)


def test_damage_anywhere_in_an_answer_keeps_all_of_it_out() -> None:
    """CL-F2: every byte that the checksum covers, and lengths, offsets and epochs besides."""
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
    replica.start_leading(log, 6)
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
        assert (ends(each), replica.last_leader_epoch(each)) == ((1, 1, 1), 1)
    with pytest.raises(UnexpectedAppendOffset, match="expected 1 or more, and epoch 1 or above"):
        replica.append_as_follower(each, sent(b"b", at=1, epoch=0), T0)


def test_a_batch_larger_than_the_topics_limits_is_taken_as_the_leader_took_it() -> None:
    log = held(max__message__bytes="100").log("t", 0)
    replica.append_as_follower(log, sent(b"a", at=0) + sent(b"x" * 900, at=1) + sent(b"b", at=2), T0)
    log.flush()
    log.tell_high_watermark(3)
    assert values(read_all(log, most=2000)) == [b"a", b"x" * 900, b"b"]


def test_holes_of_a_compacted_leader_come_as_they_are_and_outlive_a_crash() -> None:
    """CL-F8: a segment of its own for each hole would be thousands."""
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
    """CL-F7: the leader's log start is 3, its first batch begins at 0."""
    broker = held()
    broker.begin_anew("t", 0, 3)
    log = broker.log("t", 0)
    replica.append_as_follower(log, sent(b"a", b"b", b"c", b"d", b"e", at=0, epoch=2), T0)
    assert (ends(log), replica.last_leader_epoch(log)) == ((3, 5, 3), 2)
    log.flush()
    broker.checkpoint()
    log.tell_high_watermark(5)
    assert values(read_all(log)) == [b"d", b"e"]
    with pytest.raises(UnexpectedAppendOffset):
        replica.append_as_follower(log, sent(b"d", b"e", b"f", at=3, epoch=2), T0)


def test_producers_are_known_from_what_was_replicated_and_again_after_a_cut() -> None:
    """CL-F10: who sends a batch again after a failover is answered with its old offset."""
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
    replica.start_leading(log, 1)
    again = batch(b"p", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append(again, T0).base_offset == 0
    assert log.end_offset == 1
