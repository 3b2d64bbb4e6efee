"""The fast way of reading an offsets topic says what the plain way says."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, repeat
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerRecord,
    GroupDeleted,
    GroupEpochDeleted,
    GroupEpochStored,
    GroupRecord,
    GroupStored,
    MemberRecord,
    OffsetDeleted,
    OffsetStored,
)
from muster.coordinator.core.model.types import Cause, StoredOffset
from muster.coordinator.core.watched.endings import CommitTimes
from muster.coordinator.runtime.kafka_records import decode_group
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.watch import segment_files
from muster.coordinator.watch.record_shapes import LONES, RUNS, SHAPES
from muster.coordinator.watch.segment_files import NoSegments, find_segments, read_segment
from muster.coordinator.watch.watched_partition import (
    MAX_REASONS,
    OTHER_REASONS,
    WatchedPartition,
)
from muster.coordinator.watch.watched_positions import RowTimes
from muster.long_work import PieceSize
from muster.storage.compression import compress
from muster.storage.records.batch import HEADER_SIZE, NewRecord, read_batches
from tests.support.watched_batches import (
    NOW_MS,
    Heard,
    batch,
    committed,
    end_marker,
    facts,
    position_key,
    position_value,
)

TOPIC_ID = bytes(range(16))
MEMBER = MemberRecord("m1", None, "c", "/h", 60_000, 10_000, b"", b"")


def group(generation: int, group_id: str = "g") -> GroupStored:
    return GroupStored(group_id, "consumer", generation, "range", "m1", NOW_MS, (MEMBER,))


def read(*batches: bytes) -> tuple[WatchedPartition, Heard]:
    heard = Heard()
    watched = WatchedPartition(heard, {})
    data = b"".join(batches)
    assert watched.take_batches(data) == len(data)
    return watched, heard


def positions(watched: WatchedPartition) -> dict[tuple[str, str, int], StoredOffset | None]:
    return {(g, t, p): value for g, t, p, value in watched.take_positions(10**9)}


# Against the plain way
# ---------------------


class PlainReading:
    """Record by record, by the codec that a node reads its own log with."""

    def __init__(self, data: bytes) -> None:
        self.positions: dict[tuple[str, str, int], StoredOffset | None] = {}
        self.times: defaultdict[tuple[str, str, int], CommitTimes] = defaultdict(CommitTimes)
        self.facts: list[GroupRecord] = []
        pending: dict[int, list[GroupRecord]] = {}
        for each in read_batches(data):
            if each.control:
                for ended in pending.pop(each.producer_id, []):
                    if each.records()[0].key == b"\x00\x00\x00\x01":
                        self._take(ended)
                continue
            for record in each.records():
                assert record.key is not None
                fact = decode_group(KeyValue(record.key, record.value))
                assert not hasattr(fact, "kind")
                if each.transactional and isinstance(fact, OffsetStored | OffsetDeleted):
                    pending.setdefault(each.producer_id, []).append(fact)
                else:
                    self._take(fact)

    def _take(self, fact: object) -> None:
        if isinstance(fact, OffsetStored):
            place = fact.group_id, fact.topic, fact.partition
            self.positions[place] = fact.value
            self.times[place].note_commit(place[1:], fact.value.commit_timestamp_ms)
        elif isinstance(fact, OffsetDeleted):
            place = fact.group_id, fact.topic, fact.partition
            if self.times.pop(place, None):
                self.positions[place] = None
        else:
            self.facts.append(fact)  # type: ignore[arg-type]


def some_batches(rng: random.Random) -> Iterator[bytes]:
    """As brokers of any age write them, in any order."""
    at_ms, base_offset = NOW_MS, 0
    for _ in range(rng.randrange(1, 12)):
        records: list[NewRecord] = []
        for _ in range(rng.choice((1, 1, 3, 10, 70))):
            at_ms += rng.choice((0, 0, 1, 70, 9_000))
            name = "g" * rng.choice((1, 2, 40, 80))
            if rng.random() < 0.1:
                records += facts(group(rng.randrange(5), name), at_ms=at_ms)
                continue
            version = rng.choice((0, 1, 2, 3, 3, 3, 4, 4))
            stored = StoredOffset(
                rng.randrange(1 << 40),
                rng.randrange(9) if version >= 3 else -1,
                rng.choice(("", "", "m", "né" * 40, "x" * 200)),
                at_ms - rng.choice((0, 0, 3, 10_000)),
                at_ms + 9 if version == 1 and rng.random() < 0.5 else None,
                rng.choice((b"", TOPIC_ID, TOPIC_ID)) if version == 4 else b"",
            )
            key = position_key(name, rng.choice(("t", "topic")), rng.randrange(3))
            if rng.random() < 0.05:
                records.append((at_ms, key, None, ()))
                continue
            headers = (("h", b"v"),) if rng.random() < 0.05 else ()
            records.append((at_ms, key, position_value(stored, version), headers))
        producer = rng.choice((-1, -1, 7, 8))
        codec = rng.choice(("none", "none", "none", "gzip", "snappy", "lz4", "zstd"))
        yield batch(
            records, base_offset, codec=codec, producer_id=producer, producer_epoch=0, transactional=producer > 0
        )
        base_offset += len(records)
        if producer > 0 and rng.random() < 0.7:
            yield end_marker(producer, base_offset, commits=rng.random() < 0.7)
            base_offset += 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(50, 4_000))
def test_the_fast_way_reads_what_the_plain_way_reads(seed: int, piece: int) -> None:
    data = b"".join(some_batches(random.Random(seed)))
    plain, heard = PlainReading(data), Heard()
    watched = WatchedPartition(heard, {})
    at = 0
    while at < len(data):  # in pieces as they come from a socket or a file
        size = piece
        while not (taken := watched.take_batches(data[at : at + size])):
            size += piece
        at += taken
    for (group_id, topic, partition), times in plain.times.items():
        asked = [(topic, partition)]
        assert RowTimes(watched._positions, group_id).silence(asked, 0) == times.silence(asked, 0)
    assert len(watched._positions.rows) == len(plain.times), "what was deleted takes no room"
    assert heard.facts == plain.facts
    assert positions(watched) == plain.positions
    assert not watched.skipped


# Damage and strangers
# --------------------


def test_what_no_known_version_explains_is_passed_over_and_counted_by_kind() -> None:
    """The rest of its batch is read."""
    key = position_key("g")
    records: list[NewRecord] = [
        (NOW_MS, None, b"v", ()),
        (NOW_MS, key, b"\x00\x09" + bytes(22), ()),
        (NOW_MS, key, b"\x00\x03\x00", ()),
        (NOW_MS, b"\x00\x01\x00\x02\xff\xfe\x00\x01t\x00\x00\x00\x00", position_value(StoredOffset(1, 0, "", 1)), ()),
        (NOW_MS, b"\x00\x02\x00\x01g", b"\x00\x07", ()),
        (NOW_MS, b"\x00\x02\x00\x01g", b"\x00\x03\x7f\xff", ()),
        (NOW_MS, b"\x03\xe7abc", b"", ()),
        (NOW_MS, b"", b"", ()),
        (NOW_MS, b"s", None, ()),
        committed("g", 1, 5),
        *facts(group(1)),
    ]
    watched, heard = read(batch(records))
    assert positions(watched) == {("g", "t", 1): StoredOffset(5, 0, "", NOW_MS)}
    assert heard.facts == [group(1)]
    assert watched.records == len(records)
    assert dict(watched.skipped) == {
        "record without a key": 1,
        "position with value version 9; this node reads 0 to 4": 1,
        "position that cannot be read": 1,
        "position whose key cannot be read": 1,
        "record of key type 2 with value version 7; this node reads 0 to 4": 1,
        "record of key type 2 that cannot be read": 1,
        "record of key type 999": 1,
        "record of key type 0": 1,
        "record of key type 115": 1,
    }


def test_metadata_of_any_bytes_does_not_hide_a_position() -> None:
    value = position_value(StoredOffset(7, 2, "..", NOW_MS)).replace(b"..", b"\xff\xfe")
    watched, _ = read(batch([(NOW_MS, position_key("g"), value, ())]))
    assert positions(watched)["g", "t", 0] == StoredOffset(7, 2, "\ufffd\ufffd", NOW_MS)


def test_reasons_are_as_many_as_they_may_be() -> None:
    strange: list[NewRecord] = [(NOW_MS, number.to_bytes(2, "big") + b"x", b"", ()) for number in range(1000, 1500)]
    watched, _ = read(batch(strange))
    assert len(watched.skipped) == MAX_REASONS + 1
    assert watched.skipped[OTHER_REASONS] == 500 - MAX_REASONS


def test_a_damaged_batch_costs_no_other() -> None:
    first, second = batch([committed("g", 0)]), batch([committed("g", 1)], 1)
    broken = bytearray(batch([committed("g", 2)], 2))
    broken[-3] ^= 1
    lying = bytearray(batch([committed("g", 3)], 3))
    lying[HEADER_SIZE - 4 : HEADER_SIZE] = (2**31 - 1).to_bytes(4, "big")
    old = bytearray(batch([committed("g", 4)], 4))
    old[16] = 1
    last = batch([committed("g", 5)], 5)
    watched, _ = read(first, second, bytes(broken), resealed(lying), bytes(old), last)
    assert [partition for _, _, partition in positions(watched)] == [0, 1, 3, 5]
    assert dict(watched.skipped) == {
        "batch with a wrong checksum": 1,
        "batch whose records do not add up": 1,
        "batch of a format before version 2": 1,
    }


def resealed(data: bytearray) -> bytes:
    """With the checksum that its bytes have."""
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_unpacks_to_very_much_is_passed_over(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.coordinator.watch.watched_partition.MAX_UNPACKED_BYTES", 100_000)
    bomb = bytearray(batch([committed("g")], codec=codec))
    bomb[HEADER_SIZE:] = compress(codec, bytes(100_001))
    bomb[8:12] = (len(bomb) - 12).to_bytes(4, "big")
    watched, _ = read(resealed(bomb), batch([committed("g", 1)], 1))
    assert [partition for _, _, partition in positions(watched)] == [1]
    assert dict(watched.skipped) == {f"{codec} batch that cannot be unpacked": 1}


def test_a_batch_of_an_unknown_codec_is_passed_over() -> None:
    strange = bytearray(batch([committed("g")]))
    strange[22] |= 5
    watched, _ = read(resealed(strange), batch([committed("g", 1)], 1))
    assert [partition for _, _, partition in positions(watched)] == [1]
    assert list(watched.skipped.values()) == [1]
    assert next(iter(watched.skipped)).startswith("compressed batch: Compression codec 5 is unknown")


def test_what_was_there_before_is_not_read_twice() -> None:
    """As of a copy of the same partition from another broker."""
    some = batch([committed("g", offset=1)], 10)
    newer = batch([committed("g", offset=2)], 11)
    watched, _ = read(some, newer, some)
    assert positions(watched)["g", "t", 0] == StoredOffset(2, 0, "", NOW_MS)
    assert dict(watched.skipped) == {"batch that was there before": 1}


def test_transactions_that_never_end_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.coordinator.watch.watched_partition.MAX_PENDING_BYTES", 1_000)

    def open_batch(offset: int) -> bytes:
        return batch([committed("g", offset)], offset, producer_id=7, producer_epoch=0, transactional=True)

    watched, _ = read(*map(open_batch, range(5)))
    assert positions(watched) == {}
    assert sum(watched.skipped.values()) == 3
    data = end_marker(7, 5, commits=True) + open_batch(6) + end_marker(7, 7, commits=True)
    watched.take_batches(data)
    assert [partition for _, _, partition in positions(watched)] == [0, 1, 6]


# Segments
# --------


def write_segment(folder: Path, data: bytes, base_offset: int = 0, partition: int = 3) -> Path:
    place = folder / f"__consumer_offsets-{partition}"
    place.mkdir(exist_ok=True)
    path = place / f"{base_offset:020}.log"
    path.write_bytes(data)
    return path


def read_all(*paths: Path) -> WatchedPartition:
    watched = WatchedPartition(Heard(), {})
    for segment in find_segments(paths):
        assert sum(read_segment(segment, watched)) <= segment.size
    return watched


@pytest.mark.parametrize(("step_s", "pieces"), [(0.0, 12), (1.0, 300)])
def test_batches_that_take_long_are_taken_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float, pieces: int
) -> None:
    """256 KiB of a group of 300 members took the loop of a watching node 0.4 s."""
    data = [batch([committed(f"g-{number}")], number) for number in range(300)]
    write_segment(tmp_path, b"".join(data))
    clock = count(0.0, step_s) if step_s else repeat(0.0)
    monkeypatch.setattr(segment_files, "perf_counter", lambda: next(clock))
    watched = WatchedPartition(Heard(), {})
    (segment,) = find_segments((tmp_path,))
    taken = [size for size in read_segment(segment, watched, PieceSize(100, 10_000)) if size]
    assert len(taken) <= pieces if step_s == 0 else len(taken) == pieces
    assert sum(taken) == segment.size
    assert positions(watched) == positions(read_all(tmp_path))


def test_segments_are_read_in_their_order(tmp_path: Path) -> None:
    write_segment(tmp_path, batch([committed("g", offset=2)], 10), 10)
    write_segment(tmp_path, batch([committed("g", offset=1)]))
    assert [each.partition for each in find_segments((tmp_path,))] == [3, 3]
    assert positions(read_all(tmp_path))["g", "t", 0] == StoredOffset(2, 0, "", NOW_MS)


def test_folders_with_other_names_are_partitions_of_their_own(tmp_path: Path) -> None:
    """Files beside each other are of one partition, and are put in order by what they hold."""
    write_segment(tmp_path, batch([committed("g")]))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    names = ("a/y.log", "a/x.log", "b/00000000000000000007.log")
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(batch([committed("g", number)], number))
    found = find_segments((tmp_path, *(tmp_path / name for name in names)))
    told = [(each.partition, str(each.path.relative_to(tmp_path)), each.base_offset) for each in found]
    assert told[1:] == [(4, "a/y.log", 0), (4, "a/x.log", 1), (5, "b/00000000000000000007.log", 7)]
    assert told[0][0] == 3


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoSegments, match=r"no segment lies in .*; expected files such as"):
        find_segments((tmp_path,))
    with pytest.raises(NoSegments, match="does not exist"):
        find_segments((tmp_path / "away",))


def test_batches_larger_than_what_is_read_at_once_come_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.coordinator.watch.segment_files.CHUNK_BYTES", 100)
    data = batch([committed("g", number) for number in range(50)]) + batch([committed("g", 50)], 50)
    watched = read_all(write_segment(tmp_path, data))
    assert len(positions(watched)) == 51
    assert not watched.skipped


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (batch([committed("g", 1)], 1)[:-1], True),
        (batch([committed("g", 1)], 1)[:30], True),
        (bytes(8) + (2**31 - 1).to_bytes(4, "big") + bytes(9_000), True),
        (bytes(8) + (-5).to_bytes(4, "big", signed=True) + bytes(9_000), True),
        (bytes(10_000), False),
    ],
    ids=["half a batch", "half a header", "2 GB", "negative", "preallocated"],
)
def test_a_segment_that_ends_within_a_batch_is_read_so_far(tmp_path: Path, rest: bytes, said: bool) -> None:
    watched = read_all(write_segment(tmp_path, batch([committed("g")]) + rest))
    assert len(positions(watched)) == 1
    assert sum(watched.skipped.values()) == said


# Batches that look like one before
# ---------------------------------


def commit(count: int, at_ms: int = NOW_MS, *, version: int = 3, **how: object) -> list[NewRecord]:
    value = {"topic_id": TOPIC_ID} if version == 4 else {}
    made = [replace_offset(StoredOffset(each, 0, "", at_ms), **{**value, **how}) for each in range(count)]
    return [
        (at_ms, position_key("g", partition=each), position_value(stored, version), ())
        for each, stored in enumerate(made)
    ]


def replace_offset(stored: StoredOffset, **how: object) -> StoredOffset:
    return stored._replace(**how)


def odd_ones(version: int) -> Iterator[list[NewRecord]]:
    """Of the same length as a usual commit, or nearly."""
    usual = commit(5, NOW_MS + 9, version=version)
    yield usual
    for place in (0, 2, 4):
        time_ms, key, value, _ = usual[place]
        assert key is not None
        assert value is not None
        for odd in (
            (time_ms, key, value, [("h", b"v")]),
            (time_ms, b"\x00\x00" + key[2:], value, ()),
            (time_ms, b"\x00\x09" + key[2:], value, ()),
            (time_ms, key[:2] + b"\x7f\xff" + key[4:], value, ()),
            (time_ms, key, b"\x00\x07" + value[2:], ()),
            (time_ms, key, value[:14] + b"\x00\x09" + value[16:], ()),
            (time_ms, key, None, ()),
            (time_ms + 1, key, value, ()),
            (time_ms, key + b"x", value[:-1], ()),
        ):
            yield [*usual[:place], odd, *usual[place + 1 :]]


def forget_shapes() -> None:
    SHAPES.clear()
    RUNS.clear()
    LONES.clear()


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("since_ms", [None, NOW_MS + 10**10])
def test_a_position_alone_is_read_the_same_whether_one_like_it_came_before_or_not(
    version: int, since_ms: int | None, codec: str
) -> None:
    first = batch(commit(1, version=version), codec=codec)
    damaged = bytearray(batch(commit(1, NOW_MS + 9, version=version), 1, codec=codec))
    damaged[-9] ^= 1
    seconds = [batch(odd[:1], 1, codec=codec) for odd in odd_ones(version)]
    refused = [] if since_ms else [first, bytes(damaged)]  # what is passed over is not looked at so closely
    for second in (*seconds, *refused, batch(commit(2, version=version)[1:], 1, codec=codec)):
        read: list[object] = []
        for known in (False, True):
            forget_shapes()
            watched = WatchedPartition(Heard(), {}, since_ms=since_ms)
            if known:
                WatchedPartition(Heard(), {}).take_batches(first)
                assert LONES
                assert watched.take_batches(first + second) == len(first + second)
            else:
                for piece in (first, second):
                    forget_shapes()
                    watched.take_batches(piece)
            times = RowTimes(watched._positions, "g")
            known_times = [times.times_of(("t", each)) for each in range(2)]
            commits = watched._positions.commits
            told = () if since_ms else (positions(watched), known_times, commits, watched.skipped)
            read.append((told, watched.records, watched.next_offset))
        assert read[0] == read[1], second


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("since_ms", [None, NOW_MS + 10**10])
def test_a_batch_is_read_the_same_whether_one_like_it_came_before_or_not(version: int, since_ms: int | None) -> None:
    first = batch(commit(5, version=version))
    for odd in odd_ones(version):
        second = batch(odd, 5)
        read: list[object] = []
        for known in (False, True):
            forget_shapes()
            watched = WatchedPartition(Heard(), {}, since_ms=since_ms)
            data = b"".join([first, second])
            if known:
                WatchedPartition(Heard(), {}).take_batches(first)
                WatchedPartition(Heard(), {}).take_batches(first)
                assert RUNS
                assert watched.take_batches(data) == len(data)
            else:
                for piece in (first, second):
                    forget_shapes()
                    watched.take_batches(piece)
            times = RowTimes(watched._positions, "g")
            known_times = [times.times_of(("t", each)) for each in range(5)]
            told = () if since_ms else (positions(watched), known_times, watched.skipped)
            read.append((told, watched.records, watched.next_offset))
        assert read[0] == read[1], odd


# From a moment on
# ----------------


def test_facts_from_before_the_first_moment_count_and_positions_and_entries_do_not() -> None:
    """What changed last night shows against the generation of last month."""
    other = MemberRecord("m2", None, "c2", "/h", 60_000, 10_000, b"", b"")
    day_ms = 86_400_000
    written: list[list[NewRecord]] = [
        [committed("g", number, at_ms=NOW_MS - 3 * day_ms) for number in range(3)],
        facts(group(1), at_ms=NOW_MS - 3 * day_ms),
        [*facts(replace(group(2), members=(MEMBER, other)), at_ms=NOW_MS - 2 * day_ms)],
        [committed("g", 5, at_ms=NOW_MS - 2 * day_ms)],
        [committed("g", 6, at_ms=NOW_MS - 2 * day_ms), *facts(group(3, "old"), at_ms=NOW_MS - 2 * day_ms)],
        [committed("g", 7, at_ms=NOW_MS - 1_000)],
        facts(group(3)),
    ]
    offsets = [0, 3, 4, 5, 6, 8, 9]
    data = b"".join(batch(records, base) for records, base in zip(written, offsets, strict=True))
    heard = Heard()
    watched = WatchedPartition(heard, {}, since_ms=NOW_MS - day_ms)
    watched.take_batches(data)
    watched = WatchedPartition(heard := Heard(), {}, since_ms=NOW_MS - day_ms)  # shapes of records are known now
    assert watched.take_batches(data) == len(data)
    assert not watched.tell_past()
    assert [(fact.group_id, fact.generation) for fact in heard.facts if isinstance(fact, GroupStored)] == [
        ("g", 1), ("g", 2), ("g", 3), ("old", 3)
    ]  # fmt: skip
    assert [(group_id, entry.generation) for group_id, entry in heard.entries] == [("g", 3)]
    known = {partition for _, _, partition in positions(watched)}
    assert 7 in known
    assert not known & {0, 1, 2, 5}
    assert (watched.records, watched.next_offset) == (10, 10)
    assert not watched.skipped


def test_what_was_before_the_first_moment_is_read_as_after_compaction() -> None:
    """Of a group the last two generations; nothing of one that was deleted; so many groups at a time."""
    before_ms = NOW_MS - 2 * 86_400_000
    written = [
        *facts(*(group(each) for each in range(1, 6)), at_ms=before_ms),
        *facts(group(1, "gone"), GroupDeleted("gone"), at_ms=before_ms),
        *facts(group(7, "quiet"), at_ms=before_ms),
        *facts(*consumer_group("k8"), at_ms=before_ms),
        *facts(*consumer_group("deleted"), *deleted_group("deleted"), at_ms=before_ms),
    ]
    heard = Heard()
    watched = WatchedPartition(heard, {}, since_ms=NOW_MS - 86_400_000)
    watched.take_batches(b"".join(batch([record], at) for at, record in enumerate(written)))
    assert heard.facts == []
    assert watched.tell_past(1)
    assert [(fact.group_id, fact.generation) for fact in heard.facts if isinstance(fact, GroupStored)] == [
        ("g", 4), ("g", 5)
    ]  # fmt: skip
    assert not watched.tell_past()
    assert {getattr(fact, "group_id", "") for fact in heard.facts} == {"g", "quiet", "k8"}
    assert [fact for fact in heard.facts if getattr(fact, "group_id", "") == "k8"] == list(consumer_group("k8"))
    assert heard.entries == []
    watched.take_batches(batch(facts(replace(group(6), members=())), len(written)))
    assert [(group_id, entry.previous_generation) for group_id, entry in heard.entries] == [("g", 5)]


def consumer_group(group_id: str) -> tuple[ConsumerRecord, ...]:
    member = ConsumerMemberStored(group_id, "m1", None, None, "c", "/h", ("t",), None, 60_000, None)
    return member, GroupEpochStored(group_id, 1, 0)


def deleted_group(group_id: str) -> tuple[ConsumerRecord, ...]:
    return ConsumerMemberDeleted(group_id, "m1"), GroupEpochDeleted(group_id)


# Groups that are no consumers
# ----------------------------

CONNECT = bytes.fromhex("0002 0000 0003 772d31 0000 0000 0000 0000 0000 0000 00000000 00000000")
REGISTRY = b'{"host":"r1","port":8081,"master_eligibility":true,"version":2}'


@pytest.mark.parametrize(("kind", "blob"), [("connect", CONNECT), ("sr", REGISTRY), ("streams", b"\xff" * 40)])
def test_what_others_than_consumers_tell_each_other_is_not_guessed(kind: str, blob: bytes) -> None:
    first = MemberRecord("m1", None, "c1", "/h", 60_000, 10_000, blob, blob)
    second = replace(first, member_id="m2", client_id="c2")
    one = GroupStored("g", kind, 1, "default", "m1", NOW_MS, (first,))
    two = replace(one, generation=2, members=(first, second))
    watched, heard = read(batch(facts(one)), batch(facts(two, at_ms=NOW_MS + 9), 1))
    ((_, entry),) = heard.entries
    assert (entry.protocol_type, entry.cause, entry.culprit) == (kind, Cause.MEMBER_JOINED, "m2")
    assert (entry.moves, entry.snapshot_json) == ((), "")
    assert [member.assigned for member in entry.members] == [(), ()]
    assert not watched.skipped


def test_what_repeats_from_generation_to_generation_is_kept_once() -> None:
    """A ledger of many thousand groups would not fit otherwise."""
    blob = bytes.fromhex("0001 00000001 0001 74 00000001 00000000 00000000")
    one = replace(MEMBER, member_id="member-1", assignment=blob)
    two = replace(MEMBER, member_id="member-2", assignment=blob)
    generations = [
        GroupStored("g", "consumer", number + 1, "range", one.member_id, NOW_MS, members)
        for number, members in enumerate([(one,), (one, two), (one,), (one, two)])
    ]
    _, heard = read(*(batch(facts(each, at_ms=NOW_MS + n), n) for n, each in enumerate(generations)))
    assert heard.facts == generations
    first, *others = [entry.members[0] for _, entry in heard.entries]
    assert len(others) == 2
    assert all(each is first for each in others)
