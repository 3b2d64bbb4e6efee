"""What opening a log makes of damage: at every byte, in the log and in every file beside it."""

from collections.abc import Iterator

import pytest

from muster.storage.errors import LogDamaged, StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import encode_batch, read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values
from tests.vectors.log.golden import files as golden

ACTIVE = "/data/t-0/00000000000000000000.log"
TEXTS = [b"one", b"two", b"three", b"four", b"five"]


def disk_with(texts: list[bytes], *, clean: bool, **settings: int) -> MemoryFiles:
    files = MemoryFiles()
    broker = open_broker(files, **settings)
    broker.create_topic("t", 1)
    for number, text in enumerate(texts):
        broker.append("t", 0, batch(text, at=T0 + number), T0)
    broker.flush()
    if clean:
        broker.close()
    else:
        files.kill()
    return files


def prefix_of(size: int, whole: bytes) -> int:
    """How many batches end within the first `size` bytes."""
    return sum(1 for found in read_batches(whole) if found.position + found.size <= size)


def test_a_torn_tail_is_cut_at_the_last_whole_batch_at_every_byte() -> None:
    disk = disk_with(TEXTS, clean=False)
    whole = disk.content(ACTIVE)
    for size in range(len(whole) + 1):
        torn = disk.copy()
        torn.put(ACTIVE, whole[:size])
        left = prefix_of(size, whole)
        broker = open_broker(torn)
        assert values(read_all(broker.log("t", 0))) == TEXTS[:left]
        assert broker.append("t", 0, batch(b"next"), T0).base_offset == left
        broker.flush()
        torn.kill()
        again = open_broker(torn)
        assert again.recovered() == {}
        assert values(read_all(again.log("t", 0))) == [*TEXTS[:left], b"next"]


def test_records_that_are_cut_off_though_they_can_be_read_are_counted() -> None:
    disk = disk_with(TEXTS, clean=False)
    whole = disk.content(ACTIVE)
    second = list(read_batches(whole))[1]
    hurt = disk.copy()
    changed = bytearray(whole)
    changed[second.position + second.size - 1] ^= 1
    hurt.put(ACTIVE, bytes(changed))
    broker = open_broker(hurt)
    loss = broker.recovered()["t", 0].loss
    assert loss is not None
    assert (loss.first_offset, loss.last_offset, loss.batches, loss.records) == (1, 4, 3, 3)
    (trouble,) = broker.troubles.current()
    assert (trouble.name, trouble.sentence, trouble.passing) == ("log-cut:t-0", str(loss), False)
    assert "was cut off at offset 1, where a batch cannot be read (its checksum is" in trouble.sentence
    assert "3 records in 3 intact batches came behind it, up to offset 4" in trouble.sentence


def test_a_torn_tail_is_no_loss() -> None:
    disk = disk_with(TEXTS, clean=False)
    whole = disk.content(ACTIVE)
    last = list(read_batches(whole))[-1]
    for torn in (whole[:-1], whole[: last.position + 70], whole[:-1] + b"x", whole + bytes(100)):
        hurt = disk.copy()
        hurt.put(ACTIVE, torn)
        broker = open_broker(hurt)
        assert broker.recovered()["t", 0].loss is None
        assert broker.troubles.current() == ()


def test_a_flipped_bit_above_the_recovery_point_never_yields_a_wrong_record() -> None:
    disk = disk_with(TEXTS, clean=False)
    whole = disk.content(ACTIVE)
    for at in range(len(whole)):
        for bit in (0, 5, 7):
            hurt = disk.copy()
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            hurt.put(ACTIVE, bytes(changed))
            broker = open_broker(hurt)
            found = values(read_all(broker.log("t", 0)))
            assert found == TEXTS[: len(found)]
            # A larger leader epoch contradicts nothing before it; any other bit costs its own batch.
            hit = next(b for b in read_batches(whole) if b.position <= at < b.position + b.size)
            if not hit.position + 12 <= at < hit.position + 16:
                assert len(found) == hit.base_offset


def test_damage_below_the_recovery_point_is_reported_and_never_served() -> None:
    disk = disk_with(TEXTS, clean=True)
    whole = disk.content(ACTIVE)
    for at in range(len(whole)):
        hurt = disk.copy()
        changed = bytearray(whole)
        changed[at] ^= 0x20
        hurt.put(ACTIVE, bytes(changed))
        hurt.remove("/data/.kafka_cleanshutdown")
        broker = open_broker(hurt)
        log = broker.log("t", 0)
        hit = next(b for b in read_batches(whole) if b.position <= at < b.position + b.size)
        if hit.position + 12 <= at < hit.position + 16 and hit.base_offset == len(TEXTS) - 1:
            continue  # The last batch's epoch: nothing behind it contradicts.
        damage = broker.recovered()["t", 0].damage
        assert isinstance(damage, LogDamaged)
        assert damage.file == ACTIVE
        assert damage.last_offset == len(TEXTS)
        with pytest.raises(LogDamaged):
            log.append(batch(b"more"), T0)
        with pytest.raises(LogDamaged):
            log.fetch(damage.first_offset, 1000)
        assert values(read_all(log)) == TEXTS[: damage.first_offset]
        assert hurt.content(ACTIVE) == bytes(changed)


@pytest.mark.parametrize("clean", [True, False])
def test_damage_below_the_recovery_point_is_told_at_every_start_and_nothing_is_cut_off(clean: bool) -> None:
    disk = disk_with(TEXTS, clean=True)
    disk.remove("/data/.kafka_cleanshutdown")
    hurt = bytearray(disk.content(ACTIVE))
    hurt[len(hurt) // 2] ^= 1
    disk.put(ACTIVE, bytes(hurt))
    for _ in range(3):
        broker = open_broker(disk)
        damage = broker.recovered()["t", 0].damage
        assert damage is not None
        assert (damage.first_offset, damage.last_offset) == (2, len(TEXTS))
        broker.checkpoint()
        if clean:
            broker.close()
        else:
            disk.kill()
        assert disk.content(ACTIVE) == bytes(hurt)


def served(log: Log, until: int) -> tuple[list[bytes | None], StorageError | None]:
    """Record by record what the log gives away, and what it then refuses with."""
    found: list[bytes | None] = []
    for offset in range(until):
        try:
            found += values(read_all(log, offset))[:1]
        except StorageError as error:
            return found, error
    return found, None


def in_epoch(whole: bytes, at: int) -> bool:
    """No checksum covers a leader epoch; it is not part of any record, and a larger one may be true."""
    return any(found.position + 12 <= at < found.position + 16 for found in read_batches(whole))


def test_damage_after_a_clean_shutdown_is_found_when_it_is_read() -> None:
    disk = disk_with(TEXTS, clean=True)
    whole = disk.content(ACTIVE)
    for at in range(len(whole)):
        hurt = disk.copy()
        changed = bytearray(whole)
        changed[at] ^= 0x01
        hurt.put(ACTIVE, bytes(changed))
        found, error = served(open_broker(hurt).log("t", 0), len(TEXTS))
        assert found == TEXTS[: len(found)]
        assert isinstance(error, LogDamaged) or in_epoch(whole, at)


@pytest.mark.parametrize("clean", [True, False])
def test_damage_in_a_sealed_segment_is_never_a_clean_end(clean: bool) -> None:
    disk = disk_with(TEXTS * 4, clean=clean, log__segment__bytes=400)
    name = "/data/t-0/00000000000000000005.log"
    whole = disk.content(name)
    for at in range(len(whole)):
        for changed in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]):
            hurt = disk.copy()
            hurt.put(name, changed)
            found, error = served(open_broker(hurt, log__segment__bytes=400).log("t", 0), 20)
            assert found == (TEXTS * 4)[: len(found)]
            assert isinstance(error, LogDamaged) or (in_epoch(whole, at) and changed != whole[:at]), at


def tails() -> Iterator[bytes]:
    for count in (1, 17, 18, 61, 100, 4096, 8192):
        yield bytes(count)
    yield batch(b"from elsewhere", base_offset=77)
    yield batch(b"old", base_offset=0)
    yield batch(b"half a header")[:40]
    good = batch(b"lengths", base_offset=5)
    for length in (0, -1, 2**31 - 1, 48):
        yield good[:8] + length.to_bytes(4, "big", signed=True) + good[12:]
    yield bytes(range(256)) * 3
    # Offsets that a segment cannot hold.
    yield encode_batch([], base_offset=5, last_offset_delta=2**31 - 1)


@pytest.mark.parametrize("tail", list(tails()))
def test_nonsense_behind_the_end_is_cut_off(tail: bytes) -> None:
    disk = disk_with(TEXTS, clean=False)
    disk.put(ACTIVE, disk.content(ACTIVE) + tail)
    broker = open_broker(disk)
    state = broker.recovered()["t", 0]
    assert state.truncated_bytes == len(tail)
    assert state.end_offset == 5
    assert values(read_all(broker.log("t", 0))) == TEXTS


def test_a_batch_whose_checksum_is_zero_is_a_batch() -> None:
    # A checksum may be any number, so zero must not read as "nothing here".
    disk = disk_with([], clean=False)
    (found,) = read_batches(golden()["crc-zero.bin"])
    renumbered = bytes(8) + bytes(found.data[8:])
    disk.put(ACTIVE, renumbered)
    assert open_broker(disk).end_offset("t", 0) == found.last_offset_delta + 1


SIDE_FILES = [
    "t-0/00000000000000000000.index",
    "t-0/00000000000000000000.timeindex",
    "t-0/00000000000000000005.index",
    "t-0/segments-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    ".kafka_cleanshutdown",
]


def answers(files: MemoryFiles) -> list[object]:
    log = open_broker(files, log__segment__bytes=400, log__index__interval__bytes=0).log("t", 0)
    by_time = [log.list_offset(T0 + number) for number in range(-1, 22)]
    by_offset = [values(read_all(log, offset)) for offset in range(log.start_offset, log.end_offset)]
    return [log.start_offset, log.end_offset, by_time, log.list_offset(-3), by_offset]


@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_damaged_side_file_changes_no_answer(name: str) -> None:
    texts = [b"%d" % number for number in range(20)]
    disk = disk_with(texts, clean=True, log__segment__bytes=400, log__index__interval__bytes=0)
    path = f"/data/{name}"
    good = disk.content(path)
    expected = answers(disk.copy())
    variants: list[bytes | None] = [None, b"", good + b"\x00", good + good, good[::-1]]
    variants += [good[:size] for size in range(0, len(good), 5)]
    variants += [good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :] for at in range(0, len(good), 3)]
    variants.append(disk.content("/data/t-0/00000000000000000010.index"))
    for variant in variants:
        hurt = disk.copy()
        if variant is None:
            hurt.remove(path)
        else:
            hurt.put(path, variant)
        assert answers(hurt) == expected


def test_an_append_behind_damage_that_was_cut_gets_the_next_offset_only() -> None:
    disk = disk_with(TEXTS, clean=False)
    disk.put(ACTIVE, disk.content(ACTIVE)[:-1])
    broker = open_broker(disk)
    assert broker.append("t", 0, batch(b"again"), T0).base_offset == 4


def test_records_lost_below_the_log_start_do_not_bring_old_offsets_back() -> None:
    disk = disk_with(TEXTS, clean=False)
    broker = open_broker(disk)
    broker.delete_records("t", 0, 4)
    disk.kill()
    disk.put(ACTIVE, b"")
    disk.remove("/data/recovery-point-offset-checkpoint")
    reopened = open_broker(disk)
    assert reopened.start_offset("t", 0) == 4
    assert reopened.append("t", 0, batch(b"x"), T0).base_offset == 4
