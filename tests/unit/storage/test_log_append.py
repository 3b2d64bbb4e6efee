"""Appending: what gets in, and what is refused. That both ways in write the same bytes is a property."""

import errno
import os
from typing import Any

import pytest

from muster.storage import errors
from muster.storage.broker.group_commit import append_each
from muster.storage.records.batch import encode_batch, read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.vectors.log.golden import files as golden
from tests.vectors.log.golden import names

LOG = "/data/t-0/00000000000000000000.log"


def made(files: MemoryFiles | None = None, configs: dict[str, str] | None = None, **settings: Any) -> Any:
    broker = open_broker(files or MemoryFiles(), **settings)
    broker.create_topic("t", 1, configs)
    return broker


def spoiled(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


def test_batches_get_the_next_offsets_and_keep_their_checksum() -> None:
    broker = made()
    first = broker.append("t", 0, batch(b"a", b"b"), T0)
    second = broker.append("t", 0, batch(b"c") + batch(b"d", b"e"), T0)
    assert (first.base_offset, first.last_offset) == (0, 1)
    assert (second.base_offset, second.last_offset) == (2, 4)
    broker.flush()
    assert values(read_all(broker.log("t", 0))) == [b"a", b"b", b"c", b"d", b"e"]


def test_what_is_not_flushed_is_not_readable() -> None:
    broker = made()
    broker.append("t", 0, batch(b"a"), T0)
    assert broker.fetch("t", 0, 0, 100).records == b""
    assert (broker.high_watermark("t", 0), broker.end_offset("t", 0)) == (0, 1)
    broker.flush([("t", 0)])
    assert broker.high_watermark("t", 0) == 1


def test_without_a_promise_to_flush_all_is_readable_at_once() -> None:
    broker = made(log__flush__interval__messages=1000)
    broker.append("t", 0, batch(b"a"), T0)
    assert values(read_all(broker.log("t", 0))) == [b"a"]


GOOD = batch(b"value")
REFUSED = [
    (b"", errors.CorruptMessage, "0 bytes"),
    (GOOD[:60], errors.CorruptMessage, "reaches past"),
    (GOOD[:-1], errors.CorruptMessage, "reaches past"),
    (GOOD + b"x", errors.CorruptMessage, "reaches past"),
    (spoiled(GOOD, 17, 0), errors.CorruptMessage, "checksum"),
    (spoiled(GOOD, 16, 3), errors.CorruptMessage, "magic 3"),
    (spoiled(GOOD, 16, 1), errors.InvalidRecord, "magic 1"),
    (batch(b"x", control=True, producer_id=1, producer_epoch=0), errors.InvalidRecord, "attribute bits 0x20"),
    (batch(b"x", transactional=True), errors.InvalidRecord, "producer -1"),
    (batch(b"x", producer_id=3, producer_epoch=0), errors.InvalidRecord, "sequence -1"),
    (batch(b"x", delete_horizon_ms=1), errors.InvalidRecord, "0x40"),
    (encode_batch([], last_offset_delta=0), errors.InvalidRecord, "claims 0 records"),
    (batch(b"x", last_offset_delta=4), errors.InvalidRecord, "last offset delta 4"),
    (batch(b"x" * 2000), errors.RecordBatchTooLarge, "max.message.bytes"),
    (batch(b"x", at=T0 + 4_000_000), errors.InvalidTimestamp, "timestamps"),
]


@pytest.mark.parametrize(("data", "kind", "words"), REFUSED)
def test_a_bad_batch_is_refused_with_the_reason_and_nothing_is_written(
    data: bytes, kind: type[Exception], words: str
) -> None:
    disk = MemoryFiles()
    broker = made(disk, message__max__bytes=1000)
    with pytest.raises(kind, match=words):
        broker.append("t", 0, data, T0)
    broker.append("t", 0, GOOD, T0)
    before = disk.content(LOG)
    with pytest.raises(kind, match=words):
        broker.append("t", 0, data, T0)
    assert disk.content(LOG) == before


def test_header_checks_refuse_most_of_kafkas_bad_batches_and_full_checks_the_rest() -> None:
    reference = {}
    for how in ("header", "full"):
        refused = 0
        for name in names("bad-"):
            broker = made(configs={"validate": how, "message.timestamp.after.max.ms": str(2**62)})
            try:
                broker.append("t", 0, golden()[f"{name}.bin"], T0)
            except errors.StorageError:
                refused += 1
        reference[how] = refused
    assert reference["header"] >= 40
    assert reference["full"] > reference["header"]


def test_a_compacted_topic_wants_keys() -> None:
    broker = made(configs={"cleanup.policy": "compact"})
    with pytest.raises(errors.InvalidRecord, match="no key"):
        broker.append("t", 0, batch(b"x"), T0)


def test_arrival_times_are_stamped_where_the_topic_says_so() -> None:
    broker = made(configs={"message.timestamp.type": "LogAppendTime"})
    done = broker.append("t", 0, batch(b"x", b"y", at=5), T0)
    broker.flush()
    assert done.log_append_time_ms == T0
    assert [record.timestamp_ms for record in read_all(broker.log("t", 0))] == [T0, T0]
    (found,) = read_batches(broker.fetch("t", 0, 0, 1000).records)
    assert found.crc_ok


FAR = {"two days ahead": T0 + 172_800_000, "in microseconds": T0 * 1000, "a day ago": T0 - 86_400_000}


@pytest.mark.parametrize("at", FAR.values(), ids=FAR)
@pytest.mark.parametrize("more", [{}, {"message.timestamp.before.max.ms": "1000"}, {"cleanup.policy": "compact"}])
def test_a_topic_that_stamps_arrival_times_takes_any_clock_of_a_producer(more: dict[str, str], at: int) -> None:
    """Kafka documents `message.timestamp.before.max.ms` and `after.max.ms` as ignored there."""
    broker = made(configs={"message.timestamp.type": "LogAppendTime", **more})
    for _ in range(2):
        assert broker.append("t", 0, batch(b"x", b"y", key=b"k", at=at), T0).log_append_time_ms == T0
    broker.flush()
    assert {record.timestamp_ms for record in read_all(broker.log("t", 0))} == {T0}


BOUNDS = [
    ({}, T0 + 3_600_001, f"{T0 + 3_600_000} at most"),
    (
        {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": "5"},
        9,
        f"{T0 - 5} at least",
    ),
    ({"message.timestamp.before.max.ms": "5"}, T0 - 6, f"{T0 - 5} to {T0 + 3_600_000}"),
]


@pytest.mark.parametrize(("configs", "at", "words"), BOUNDS)
def test_a_side_without_a_bound_is_no_number_in_a_sentence(configs: dict[str, str], at: int, words: str) -> None:
    broker = made(configs=configs)
    with pytest.raises(errors.InvalidTimestamp, match=f"the topic takes {words}\\."):
        broker.append("t", 0, batch(b"x", at=at), T0)
    mixed = [(T0, b"k", b"v", ()), (at, b"k", b"v", ()), (T0, b"k", b"v", ())]
    with pytest.raises(errors.InvalidTimestamp, match=words):
        broker.append("t", 0, encode_batch(mixed), T0)


def test_segments_roll_by_size_by_age_and_by_a_full_index() -> None:
    by_size = made(log__segment__bytes=200)
    by_age = made(configs={"segment.ms": "1000"})
    by_index = made(configs={"segment.index.bytes": "48", "index.interval.bytes": "0"})
    for number in range(9):
        for broker in (by_size, by_age, by_index):
            broker.append("t", 0, batch(b"x" * 20, at=T0 + 400 * number), T0)
    assert [len(broker.log("t", 0).segments) for broker in (by_size, by_age, by_index)] == [5, 3, 3]
    for broker in (by_size, by_age, by_index):
        broker.flush()
        assert len(read_all(broker.log("t", 0))) == 9


def test_an_append_larger_than_a_segment_is_refused() -> None:
    broker = made(log__segment__bytes=200)
    with pytest.raises(errors.RecordListTooLarge, match=r"segment\.bytes"):
        broker.append("t", 0, batch(b"x" * 300), T0)


def test_a_full_disk_refuses_and_the_log_goes_on_once_there_is_room() -> None:
    disk = MemoryFiles()
    broker = made(disk)
    broker.append("t", 0, batch(b"before"), T0)
    size = len(disk.content(LOG))
    disk.capacity = disk.used() + 30
    with pytest.raises(errors.StorageError, match="free some space"):
        broker.append("t", 0, batch(b"too much"), T0)
    assert len(disk.content(LOG)) == size
    disk.capacity = None
    assert broker.append("t", 0, batch(b"after"), T0).base_offset == 1
    broker.flush()
    assert values(read_all(broker.log("t", 0))) == [b"before", b"after"]


def test_a_disk_that_cannot_be_read_is_said_and_the_log_goes_on() -> None:
    disk = MemoryFiles()
    broker = made(disk, log__flush__interval__messages=1000)
    broker.append("t", 0, batch(b"a"), T0)

    def fault(operation: str, path: str) -> None:
        if operation == "read":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    disk.fault = fault
    with pytest.raises(errors.StorageError, match=r"000\.log: Input/output error.*fetch again"):
        broker.fetch("t", 0, 0, 100)
    with pytest.raises(errors.StorageError, match="Input/output error"):
        broker.list_offset("t", 0, T0)
    disk.fault = None
    broker.append("t", 0, batch(b"b"), T0)
    assert values(read_all(broker.log("t", 0))) == [b"a", b"b"]


def test_lookup_by_time_finds_the_first_record_young_enough() -> None:
    broker = made(log__segment__bytes=400, log__index__interval__bytes=0)
    stamps = [10, 20, 15, 40, 40, 5, 90, 60, 100, 100, 95, 120]
    for stamp in stamps:
        broker.append("t", 0, batch(b"x", at=stamp), T0)
    broker.flush()
    for wanted in range(130):
        expected = next(((n, stamp) for n, stamp in enumerate(stamps) if stamp >= wanted), (-1, -1))
        assert broker.list_offset("t", 0, wanted) == expected
    assert broker.list_offset("t", 0, -1) == (12, -1)
    assert broker.list_offset("t", 0, -2) == (0, -1)
    assert broker.list_offset("t", 0, -3) == (11, 120)
    assert broker.list_offset("t", 0, -4) == (0, -1)
    with pytest.raises(errors.OffsetOutsideLog, match="-5 to -1"):
        broker.list_offset("t", 0, -6)


def test_fetches_keep_to_their_limits_and_always_make_progress() -> None:
    broker = made(log__segment__bytes=2000)
    for number in range(30):
        broker.append("t", 0, batch(b"x" * (10 * number + 1)), T0)
    broker.flush()
    for start in range(30):
        for most in (0, 1, 100, 500, 5000):
            data = broker.fetch("t", 0, start, most).records
            first = next(read_batches(data))
            assert first.base_offset == start
            assert len(data) <= max(most, first.size)
            assert (
                broker.fetch("t", 0, start, most, min_one=False).records == data[: most if most < first.size else None]
            )
    assert broker.fetch("t", 0, 30, 100).records == b""
    for outside in (-1, 31):
        with pytest.raises(errors.OffsetOutsideLog, match="outside 0 to 30"):
            broker.fetch("t", 0, outside, 100)
    with pytest.raises(errors.InvalidFetchSize):
        broker.fetch("t", 0, 0, -1)


def test_one_read_in_place_of_two_gives_the_same() -> None:
    disk = MemoryFiles()
    broker = made(disk, log__flush__interval__messages=1000, log__segment__bytes=100_000)
    # Alone between two index entries or not, larger than a fetch or not, over several segments.
    for number in range(60):
        broker.append("t", 0, batch(b"x" * (300, 5000, 9000, 9000, 2000)[number % 5], at=T0 + number), T0)
    log = broker.log("t", 0)
    shortened = 0
    for offset in range(60):
        for most in (0, 61, 500, 6000, 20_000, 1 << 20):
            for min_one in (True, False):
                answers, reads = [], []
                for at_once in (True, False):
                    for segment in log.segments:
                        segment.one_each = at_once
                    before = disk.calls
                    answers.append(log.fetch(offset, most, min_one=min_one))
                    reads.append(disk.calls - before)
                assert answers[0] == answers[1]
                shortened += reads[0] < reads[1]
    assert shortened > 100


def test_one_read_in_place_of_two_looks_at_what_it_got() -> None:
    broker = made(log__flush__interval__messages=1000)
    for number in range(4):
        broker.append("t", 0, batch(b"x" * 9000, at=T0 + number), T0)
    log = broker.log("t", 0)
    assert values(read_all(log, 2, 10_000)) == [b"x" * 9000] * 2
    active = log.segment_list.active
    assert active.one_each
    index = active.index()
    index.positions[1] += 1
    with pytest.raises(errors.LogDamaged, match="though the index says so"):
        log.fetch(2, 100_000)
    assert not active.one_each


def test_readers_keep_what_they_began_to_read() -> None:
    broker = made(configs={"retention.bytes": "0"}, log__segment__bytes=300, log__retention__check__interval__ms=1)
    for number in range(20):
        broker.append("t", 0, batch(b"%d" % number), T0)
    broker.flush()
    log = broker.log("t", 0)
    held = log.segment_list
    broker.tick(T0)
    broker.tick(T0 + 10)
    broker.tick(T0 + 10_000_000)
    assert log.start_offset == 20
    assert values(_all(held)) == [b"%d" % number for number in range(20)]
    with pytest.raises(errors.OffsetOutsideLog):
        log.fetch(0, 100)


def _all(held: Any) -> list[Any]:
    found = []
    for segment in held.all:
        for view in read_batches(segment.read(0, segment.size)):
            found += view.records()
    return found


@pytest.mark.parametrize("many", [False, True])
def test_a_moment_without_descriptors_costs_an_append_and_not_the_log(many: bool) -> None:
    files = MemoryFiles()
    broker = open_broker(files, log__max__open__files=16)
    broker.create_topic("t", 20)

    def put(partition: int) -> None:
        if many:
            (done,) = append_each(broker, "t", partition, [batch(b"v")], T0)
            if isinstance(done, errors.StorageError):
                raise done
        else:
            broker.append("t", partition, batch(b"v"), T0)

    for partition in range(20):  # the last are open, the first have been let go
        put(partition)
    broker.flush()

    def none_left(operation: str, path: str) -> None:
        if operation == "open":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    files.fault = none_left
    with pytest.raises(errors.StorageError, match=r"Could not open /data/t-0/.*Too many open files.*ulimit -n"):
        put(0)
    files.fault = None
    put(0)
    broker.flush()
    assert values(read_all(broker.log("t", 0))) == [b"v", b"v"]


def test_a_moment_without_descriptors_at_a_flush_costs_the_flush_and_not_the_log() -> None:
    files = MemoryFiles()
    broker = open_broker(files, log__max__open__files=16)
    broker.create_topic("t", 20)
    for partition in range(20):
        broker.append("t", partition, batch(b"v"), T0)

    def none_left(operation: str, path: str) -> None:
        if operation == "open":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    files.fault = none_left
    with pytest.raises(errors.StorageError, match="Nothing was written or flushed"):
        broker.flush([("t", 0)])
    files.fault = None
    broker.flush([("t", 0)])
    assert values(read_all(broker.log("t", 0))) == [b"v"]
