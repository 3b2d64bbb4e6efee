"""Dump, verify and recover: they see all damage, change nothing unless told to, and what they cut is good."""

import json
from dataclasses import replace

import pytest
from crc32c import crc32c

from muster.storage.errors import DataDirectoryError
from muster.storage.records.batch import encode_batch
from muster.storage.tools.dump import dump_file, is_damaged
from muster.storage.tools.repair import recover_dir, verify_dir
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.vectors.log.golden import files as golden
from tests.vectors.log.golden import names, sidecar

SMALL = {"log__segment__bytes": 400}
FIRST = "/data/t-0/00000000000000000000.log"
SECOND = "/data/t-0/00000000000000000005.log"


def disk_with(count: int) -> MemoryFiles:
    files = MemoryFiles()
    broker = open_broker(files, **SMALL)
    broker.create_topic("t", 2)
    for number in range(count):
        broker.append("t", 0, batch(b"%d" % number), T0)
    broker.close()
    return files


def flip(files: MemoryFiles, path: str, at: int) -> None:
    changed = bytearray(files.content(path))
    changed[at] ^= 0x40
    files.put(path, bytes(changed))


@pytest.mark.parametrize("name", [name for name in names() if not name.startswith(("legacy", "mixed"))])
def test_a_dump_says_what_kafka_says(name: str) -> None:
    disk = MemoryFiles()
    disk.put(f"/{name}.log", golden()[f"{name}.bin"])
    rows = list(dump_file(f"/{name}.log", records=True, files=disk))
    told = sidecar(name)
    assert any("error" in row for row in rows) == ("error" in told)
    rows = [row for row in rows if "error" not in row]
    assert len(rows) == len(told["batches"])
    for row, expected in zip(rows, told["batches"], strict=True):
        # Kafka's own words for what is wrong are not ours; what it reads before a fault is tested below.
        apart = {"records", "records_error", "compression_error"}
        assert set(row) == {*expected, "file"}
        assert {key: row[key] for key in expected.keys() - apart} == {
            key: expected[key] for key in expected.keys() - apart
        }
        assert ("records_error" in row) == ("records_error" in expected)
        assert ("compression_error" in row) == ("compression_error" in expected)
        assert is_damaged(row) == ("records_error" in expected or not expected["crc_ok"])
        if "records_error" not in expected:
            assert row["records"] == expected["records"]
        json.dumps(row)


def test_the_records_before_one_that_cannot_be_read_are_shown() -> None:
    disk = MemoryFiles()
    good = batch(*(b"value %d" % number for number in range(9)))
    at = good.index(b"value 6") - 6
    # The record claims to be larger than it is; the checksum is made right again.
    disk.put("/x.log", sealed(good[:at] + bytes([good[at] + 2]) + good[at + 1 :]))
    (row,) = dump_file("/x.log", records=True, files=disk)
    assert "length is off" in row["records_error"]
    assert [bytes.fromhex(record["value"]) for record in row["records"]] == [b"value %d" % n for n in range(6)]


def sealed(data: bytes) -> bytes:
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


@pytest.mark.parametrize("name", names("legacy"))
def test_message_sets_are_dumped_too(name: str) -> None:
    disk = MemoryFiles()
    disk.put("/x.log", golden()[f"{name}.bin"])
    rows = list(dump_file("/x.log", records=True, files=disk))
    assert rows == [{"file": "/x.log", **expected} for expected in sidecar(name)["batches"]]
    assert not any(map(is_damaged, rows))


def test_a_dump_goes_on_to_the_damage_and_names_it() -> None:
    disk = disk_with(4)
    disk.put(FIRST, disk.content(FIRST)[:-3])
    rows = list(dump_file(FIRST, files=disk))
    assert [is_damaged(row) for row in rows] == [False, False, False, True]
    assert "claims" in rows[-1]["error"]


def test_verify_finds_nothing_in_a_good_directory_and_tells_how_far_it_is() -> None:
    disk = disk_with(20)
    told: list[tuple[int, int, str]] = []
    report = verify_dir("/data", lambda *progress: told.append(progress), disk)
    assert report.ok
    assert report.batches == 20
    assert told[-1][0] == told[-1][1] == report.bytes


def test_verify_finds_a_flipped_bit_a_missing_file_and_a_bad_checkpoint() -> None:
    disk = disk_with(20)
    flip(disk, SECOND, 100)
    disk.put("/data/recovery-point-offset-checkpoint", b"nonsense")
    disk.remove("/data/t-0/00000000000000000010.log")
    found = {finding.file: finding for finding in verify_dir("/data", files=disk).findings}
    assert found[SECOND].first_offset == 6
    assert "/data/recovery-point-offset-checkpoint" in found
    assert "begin at offset 15" in found["/data/t-0/00000000000000000015.log"].why


def test_recover_takes_out_one_unreadable_batch_and_keeps_what_follows() -> None:
    disk = disk_with(20)
    flip(disk, SECOND, 100)
    before = disk.content(SECOND)
    (planned,) = recover_dir("/data", dry_run=True, files=disk)
    assert (planned.file, planned.first_offset, planned.next_offset, planned.later_segments) == (SECOND, 6, 7, ())
    assert before[planned.position :][: planned.size] == before[len(before) // 5 :][: len(before) // 5]
    assert disk.content(SECOND) == before
    assert recover_dir("/data", dry_run=False, files=disk) == [planned]
    assert left_after_recovery(disk, ends_at=20) == [b"%d" % number for number in range(20) if number != 6]


def test_recover_finds_the_next_batch_where_the_damaged_header_does_not_say() -> None:
    disk = disk_with(20)
    content = disk.content(SECOND)
    one = len(content) // 5
    for at in range(one, one + 30):
        flip(disk, SECOND, at)
    (cut,) = recover_dir("/data", dry_run=False, files=disk)
    assert (cut.position, cut.size, cut.first_offset, cut.next_offset) == (one, one, 6, 7)
    assert left_after_recovery(disk, ends_at=20) == [b"%d" % number for number in range(20) if number != 6]


def test_recover_takes_no_batch_that_a_value_holds_for_one_of_the_log() -> None:
    held = encode_batch([(T0, b"k", b"not of this log", ())], base_offset=2)
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("t", 1)
    for value in (b"0", held, b"2"):
        broker.append("t", 0, batch(value), T0)
    broker.close()
    flip(disk, FIRST, disk.content(FIRST).index(held) - 62)  # the length of the batch with that value
    (cut,) = recover_dir("/data", dry_run=False, files=disk)
    assert (cut.first_offset, cut.next_offset) == (1, 2)
    assert left_after_recovery(disk, ends_at=3) == [b"0", b"2"]


def test_recover_goes_on_with_the_next_segment_where_the_rest_of_one_is_damaged() -> None:
    disk = disk_with(20)
    content = disk.content(SECOND)
    disk.put(SECOND, content[: 2 * len(content) // 5] + bytes(300))
    (cut,) = recover_dir("/data", dry_run=False, files=disk)
    assert (cut.file, cut.size, cut.first_offset, cut.next_offset) == (SECOND, 300, 7, 10)
    assert left_after_recovery(disk, ends_at=20) == [b"%d" % number for number in range(20) if number not in (7, 8, 9)]


def test_recover_goes_on_behind_a_segment_that_is_gone() -> None:
    disk = disk_with(20)
    disk.remove("/data/t-0/00000000000000000010.log")
    (cut,) = recover_dir("/data", dry_run=False, files=disk)
    assert (cut.file, cut.size, cut.first_offset, cut.next_offset) == (SECOND, 0, 10, 15)
    assert left_after_recovery(disk, ends_at=20) == [b"%d" % number for number in (*range(10), *range(15, 20))]


def test_recover_ends_a_log_behind_whose_damage_nothing_is_intact() -> None:
    disk = disk_with(20)
    last = "/data/t-0/00000000000000000015.log"
    flip(disk, last, len(disk.content(last)) - 1)
    flip(disk, SECOND, 100)
    middle, end = recover_dir("/data", dry_run=False, files=disk)
    assert (middle.first_offset, middle.next_offset) == (6, 7)
    assert (end.file, end.first_offset, end.next_offset) == (last, 19, None)
    assert left_after_recovery(disk, ends_at=19) == [b"%d" % number for number in range(19) if number != 6]


def test_recover_believes_that_a_file_ends_early() -> None:
    disk = disk_with(20)
    last = "/data/t-0/00000000000000000015.log"
    content = disk.content(last)
    disk.put(last, content[: 2 * len(content) // 5])
    disk.remove("/data/.kafka_cleanshutdown")
    broker = open_broker(disk, **SMALL)
    assert "the file ends early" in str(broker.recovered()["t", 0].damage)
    broker.close()
    (cut,) = recover_dir("/data", dry_run=False, files=disk)
    assert (cut.file, cut.size, cut.first_offset, cut.next_offset) == (last, 0, 17, None)
    assert left_after_recovery(disk, ends_at=17) == [b"%d" % number for number in range(17)]


def left_after_recovery(disk: MemoryFiles, ends_at: int) -> list[bytes]:
    """What the log has, once it has taken a record at its end, is open a second time and was looked at by `verify`."""
    assert verify_dir("/data", files=disk).ok
    broker = open_broker(disk, **SMALL)
    assert broker.recovered() == {}
    left = values(read_all(broker.log("t", 0)))
    assert broker.append("t", 0, batch(b"new"), T0).base_offset == ends_at
    broker.close()
    assert verify_dir("/data", files=disk).ok
    assert recover_dir("/data", dry_run=True, files=disk) == []
    broker = open_broker(disk, **SMALL)
    assert values(read_all(broker.log("t", 0))) == [*left, b"new"]
    broker.close()
    return left


@pytest.mark.parametrize("shared", [True, False])
def test_a_copy_of_a_cluster_that_recover_took_something_from_is_another_disk_s(shared: bool) -> None:
    """What is gone may have been acknowledged: such a copy is in sync with nobody before it has that again (CL-C3)."""
    disk = disk_with(8)
    broker = open_broker(disk, **SMALL)
    if shared:
        broker.host([replace(broker.topic("t"), held=(0, 1))])
    broker.close()
    flip(disk, FIRST, 100)
    for dry_run in (True, False):
        assert b"directory.id=" in disk.content("/data/meta.properties")
        assert recover_dir("/data", dry_run=dry_run, files=disk)
    assert (b"directory.id=" not in disk.content("/data/meta.properties")) is shared
    open_broker(disk, **SMALL).close()
    assert b"directory.id=" in disk.content("/data/meta.properties")


def test_recover_leaves_a_directory_in_use_alone() -> None:
    disk = disk_with(3)
    broker = open_broker(disk, **SMALL)
    with pytest.raises(DataDirectoryError, match="in use"):
        recover_dir("/data", dry_run=True, files=disk)
    broker.close()
    assert recover_dir("/data", dry_run=True, files=disk) == []
