"""No batch enters the log that nobody can read: it would stop every reader at its offset for ever."""

import asyncio
import gzip
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from muster.storage.broker import group_commit
from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import GroupCommit, append_each
from muster.storage.broker.requests import LogRequests
from muster.storage.compression import codec_number, compress
from muster.storage.config import TopicSettings
from muster.storage.errors import InvalidRecord, InvalidTimestamp, StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import HEADER, HEADER_SIZE, NewRecord, encode_batch, seal_batch, view_at
from muster.storage.records.validation import (
    AT_ONCE_BYTES,
    MOST_RECORDS,
    Framings,
    check_each_record,
    check_records_together,
    needs_thread,
)
from muster.storage.types import Appended
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all, values


def made(configs: dict[str, str] | None = None, **settings: Any) -> Broker:
    broker = open_broker(MemoryFiles(), **settings)
    broker.create_topic("t", 1, configs)
    # The first append to a segment takes another way in than those after it.
    broker.append("t", 0, batch(b"first", key=b"k"), T0)
    return broker


def records(count: int, size: int = 20) -> list[NewRecord]:
    return [(T0 + n % 7, None, bytes([n % 251]) * (size + n % 3), ()) for n in range(count)]


def sealed(body: bytes, count: int, codec: str = "none") -> bytes:
    """A batch with a right header and checksum around any bytes."""
    return bytes(seal_batch((0, 0, codec_number(codec), count - 1, T0, T0 + 9), (-1, -1, -1), count, body))


def body_of(data: bytes) -> bytes:
    return data[HEADER_SIZE:]


GOOD = body_of(encode_batch(records(5)))
UNREADABLE = {
    "garbage for gzip": (sealed(b"\x00garbage" * 9, 5, "gzip"), "cannot be unpacked"),
    "half a gzip stream": (sealed(gzip.compress(GOOD * 40)[:-20], 5, "gzip"), "ends too early"),
    "garbage for snappy": (sealed(b"\x00garbage" * 9, 5, "snappy"), "cannot be unpacked"),
    "garbage for lz4": (sealed(b"\x00garbage" * 9, 5, "lz4"), "no lz4 frame"),
    "garbage for zstd": (sealed(b"\x00garbage" * 9, 5, "zstd"), "no zstd frame"),
    "fewer records than it says": (sealed(GOOD, 6), "middle of a record"),
    "more records than it says": (sealed(GOOD, 4), "bytes behind its 4 records"),
    "more records than there are bytes": (sealed(GOOD, 1000), "claims 1000 records"),
    "a record cut short": (sealed(GOOD[:-3], 5), "claims more bytes"),
    "a record that is too short": (sealed(bytes((GOOD[0] - 2,)) + GOOD[1:], 5), "off by -1 bytes"),
    "no bytes": (sealed(b"", 5), "claims 5 records in 0 bytes"),
    "records in the wrong order": (sealed(GOOD[len(GOOD) // 5 * 2 :] + GOOD[: len(GOOD) // 5 * 2], 5), "."),
    "a bomb": (sealed(compress("zstd", bytes(100 << 20)), 5, "zstd"), "unpacks to more than the 16777216 bytes"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_batch_that_nobody_can_read_is_refused(what: str) -> None:
    data, says = UNREADABLE[what]
    broker = made()
    end = broker.end_offset("t", 0)
    with pytest.raises(InvalidRecord) as refusal:
        broker.append("t", 0, data, T0)
    assert says in str(refusal.value)
    assert refusal.value.code == 87
    assert broker.end_offset("t", 0) == end
    broker.append("t", 0, batch(b"next"), T0)
    broker.flush()
    assert values(read_all(broker.log("t", 0))) == [b"first", b"next"]


def test_who_wants_only_headers_checked_says_so() -> None:
    broker = made({"validate": "header"})
    broker.append("t", 0, UNREADABLE["garbage for gzip"][0], T0)
    assert broker.end_offset("t", 0) == 6


def test_a_batch_may_unpack_to_what_the_topic_says() -> None:
    broker = made({"validate.max.unpacked.bytes": str(1 << 20)})
    broker.append("t", 0, encode_batch(records(5, size=100_000), codec="gzip"), T0)
    with pytest.raises(InvalidRecord, match="more than the 1048576 bytes"):
        broker.append("t", 0, encode_batch(records(5, size=300_000), codec="gzip"), T0)


def test_records_at_fault_are_named() -> None:
    broker = made({"cleanup.policy": "compact"})
    mixed = [(T0, key, b"v", ()) for key in (b"a", None, b"b", None)]
    with pytest.raises(InvalidRecord, match="Record 1 of a batch has no key") as refusal:
        broker.append("t", 0, encode_batch(mixed), T0)
    assert [place for place, _ in refusal.value.record_errors] == [1, 3]
    broker = made({"message.timestamp.before.max.ms": "1000"})
    late = [(at, b"k", b"v", ()) for at in (T0, T0 - 5000, T0)]
    with pytest.raises(InvalidTimestamp, match="Record 1 of a batch has timestamp") as untimely:
        broker.append("t", 0, encode_batch(late), T0)
    assert [place for place, _ in untimely.value.record_errors] == [1]


# -- three ways to look, one answer ---------------------------------------------------------------------------


def view(data: bytes) -> memoryview:
    return memoryview(data)


def sound(framings: Framings, body: bytes, count: int) -> bool:
    return framings.sound(view(sealed(body, count)), count, 1 << 60, 1 << 60)


def fine(look: Callable[[bytes, int], object], body: bytes, count: int) -> bool:
    try:
        return look(body, count) is not None
    except InvalidRecord:
        return False


@pytest.mark.parametrize("keys", [None, b"key"])
@pytest.mark.parametrize("count", [12, 70])
def test_no_way_of_looking_takes_what_another_refuses(count: int, keys: bytes | None) -> None:
    """Every byte of a batch, changed to every neighbour that matters: what is taken can be read."""
    body = body_of(encode_batch([(T0 + n, keys, b"value %03d" % n, ()) for n in range(count)]))
    framings = Framings()
    for _ in range(3):
        assert sound(framings, body, count)
    walked = framings.walked
    assert sound(framings, body, count)
    assert framings.walked == walked, "the third of a kind is not walked"
    taken = refused = 0
    for at in range(len(body)):
        for bit in (0, 1, 7):
            spoiled = bytearray(body)
            spoiled[at] ^= 1 << bit
            right = fine(check_each_record, bytes(spoiled), count)
            assert sound(framings, bytes(spoiled), count) == right, (at, bit)
            assert not fine(check_records_together, bytes(spoiled), count) or right, (at, bit)
            view_of = view_at(view(sealed(bytes(spoiled), count)), 0)
            assert view_of is not None
            if right:
                assert [record.offset for record in view_of.records()] == list(range(count))
                taken += 1
            else:
                refused += 1
    assert taken > count
    assert refused > count


@pytest.mark.parametrize("keys", [None, b"", b"k" * 70])
@pytest.mark.parametrize("count", [1, 64, 65, 130, 8200, MOST_RECORDS])
def test_values_of_any_length_are_looked_into_together(count: int, keys: bytes | None) -> None:
    """Lengths, timestamps and offsets of one byte and of more, next to each other."""
    mixed = [(T0 + n * 7 % 8192, keys, b"v" * (n * n % 150), ()) for n in range(count)]
    body = body_of(encode_batch(mixed))
    together, each = check_records_together(body, count), check_each_record(body, count)
    assert together is not None
    assert together.keyless == each.keyless
    assert together.farthest >= each.farthest


def test_what_is_rare_is_left_to_the_walk() -> None:
    common: NewRecord = (T0, None, b"value", ())
    for rare in (
        (T0, b"key", b"value", ()),
        (T0, None, None, ()),
        (T0, None, b"value", (("header", b""),)),
        (T0 + 8192, None, b"value", ()),
        (T0 - 8193, None, b"value", ()),
        (T0, None, b"v" * 9000, ()),
    ):
        body = body_of(encode_batch([common] * 50 + [rare] + [common] * 50))
        assert check_records_together(body, 101) is None
        check_each_record(body, 101)


ONLY_SEEM_TO_FIT = {
    "a value shorter than its record, zeros behind it": bytes((20, 0, 0, 0, 1, 4, *bytes(5))),
    "two bytes of a length that has three": bytes((0xB0, 0x9C, 0, 0, 0, 0x90, 0x4E, *bytes(5000), 0x90, 0x4E))
    + bytes(5001),
    "a timestamp of three bytes, one of them missing": bytes((16, 0, 0x80, 0x80, 0, 1, 2, 5, 0)),
}


@pytest.mark.parametrize("what", ONLY_SEEM_TO_FIT)
def test_what_only_seems_to_fit_is_not_taken_together(what: str) -> None:
    body = ONLY_SEEM_TO_FIT[what]
    assert check_records_together(body, 1) is None
    with pytest.raises(InvalidRecord):
        check_each_record(body, 1)


def test_shorter_batches_of_a_kind_are_known_at_once() -> None:
    framings = Framings()
    body = body_of(encode_batch([(T0, b"k", b"v" * 50, ()) for _ in range(100)]))
    for _ in range(2):
        assert sound(framings, body, 100)
    walked = framings.walked
    for count in (8, 9, 63, 64, 65, 99):
        assert sound(framings, body_of(encode_batch([(T0, b"x", b"w" * 50, ()) for _ in range(count)])), count)
    assert framings.walked == walked


def test_a_framing_does_not_vouch_for_timestamps_that_it_allows() -> None:
    """Written in as many bytes they may lie anywhere within their reach: then the records are asked."""
    framings = Framings()
    body = body_of(encode_batch([(T0 + 9 * n, None, b"v" * 50, ()) for n in range(10)]))
    for _ in range(3):
        assert framings.sound(view(sealed(body, 10)), 10, 1 << 60, 1 << 60)
    assert not framings.sound(view(sealed(body, 10)), 10, 1 << 60, 100)
    assert not framings.sound(view(sealed(body, 10)), 10, 100, 1 << 60)


def test_what_was_met_once_only_is_not_kept() -> None:
    framings = Framings()
    for count in range(8, 300):
        sound(framings, body_of(encode_batch([(T0, None, b"v" * count, ()) for _ in range(count)])), count)
    assert not framings._kinds
    for size, _ in itertools.product(range(200), range(2)):
        sound(framings, body_of(encode_batch([(T0, None, b"v" * size, ()) for _ in range(10)])), 10)
    assert len(framings._kinds) <= 8
    assert len(framings._known) <= 64


# -- off the loop ---------------------------------------------------------------------------------------------


def test_what_takes_time_is_known_by_its_header() -> None:
    settings = made().log("t", 0).settings
    assert not needs_thread(batch(b"small"), settings)
    assert needs_thread(batch(b"small", codec="gzip"), settings)
    assert needs_thread(batch(b"x" * (AT_ONCE_BYTES + 1)), settings)
    assert needs_thread(encode_batch(records(600, size=1)), settings)
    assert needs_thread(batch(b"one") + batch(b"two", codec="gzip"), settings)
    assert not needs_thread(batch(b"x", codec="gzip"), made({"validate": "header"}).log("t", 0).settings)
    assert not needs_thread(b"too short", settings)


@pytest.mark.parametrize(
    "long",
    [
        batch(b"small", codec="gzip"),
        batch(b"x" * (AT_ONCE_BYTES + 1)),
        encode_batch(records(600, size=1)),
        batch(b"one") + batch(b"two", codec="gzip"),
    ],
    ids=["compressed", "large", "many records", "two batches"],
)
def test_an_append_on_the_loop_ends_before_what_takes_time(long: bytes) -> None:
    lot = [batch(b"1"), batch(b"2"), long, batch(b"3")]
    broker = made()
    assert len(append_each(broker, "t", 0, lot, T0, at_once=True)) == 2
    assert not append_each(broker, "t", 0, lot[2:], T0, at_once=True)
    assert len(append_each(broker, "t", 0, lot[2:], T0, looked=True)) == 2
    assert len(append_each(made({"validate": "header"}), "t", 0, lot, T0, at_once=True)) == 4


def test_a_look_in_a_thread_holds_up_neither_the_loop_nor_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        broker = made()
        broker.create_topic("other", 1)
        requests = LogRequests.standalone(broker, clock_ms=lambda: T0)
        begun, go_on = threading.Event(), threading.Event()
        real = Log.look_into

        def slow(log: Log, batches: Any, now_ms: int) -> None:
            begun.set()
            assert go_on.wait(30)
            assert threading.current_thread() is not threading.main_thread()
            real(log, batches, now_ms)

        monkeypatch.setattr(Log, "look_into", slow)
        produced = [("t", 0, data) for data in produced_in_order()]
        begin = requests.begin_produce
        parts = [begin([part], -1, 0)[0] for part in produced]
        (beside,) = begin([("other", 0, batch(b"beside"))], -1, 0)
        assert (await beside).base_offset == 0
        assert begun.wait(30)
        assert not any(part.done() for part in parts[1:]), "those behind a batch that is looked into wait for it"
        later = batch(b"5", base_sequence=4, producer_id=7, producer_epoch=0)
        parts += begin([("t", 0, later)], -1, 0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not parts[-1].done()
        go_on.set()
        results = await asyncio.gather(*parts, return_exceptions=True)
        offsets = [done.base_offset for done in results if isinstance(done, Appended)]
        assert offsets == [1, 2, 3, 4, 5]
        (refused,) = [done for done in results if not isinstance(done, Appended)]
        assert isinstance(refused, InvalidRecord)
        assert values(read_all(broker.log("t", 0)))[1:] == [b"0", b"1", b"3", b"4", b"5"]
        await requests.close()

    asyncio.run(story())


def produced_in_order() -> list[bytes]:
    """Of one idempotent producer, whose sequence allows no other order; the third cannot be read."""
    how = {"producer_id": 7, "producer_epoch": 0}
    batches = [
        batch(b"%d" % n, codec="gzip" if n % 2 else "none", base_sequence=sequence, **how)
        for n, sequence in ((0, 0), (1, 1), (3, 2), (4, 3))
    ]
    return [*batches[:2], UNREADABLE["half a gzip stream"][0], *batches[2:]]


def test_closing_waits_for_looks_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        broker = made()
        commit = GroupCommit(broker, lambda: T0)
        begun, go_on = threading.Event(), threading.Event()
        real = Log.look_into

        def slow(log: Log, batches: Any, now_ms: int) -> None:
            begun.set()
            assert go_on.wait(30)
            real(log, batches, now_ms)

        monkeypatch.setattr(Log, "look_into", slow)
        done = commit.append(("t", 0), batch(b"x", codec="gzip"))
        closing = asyncio.ensure_future(commit.close())
        await asyncio.to_thread(begun.wait, 30)
        assert not closing.done()
        go_on.set()
        await closing
        assert (await done).base_offset == 1

    asyncio.run(story())


def test_a_log_that_was_made_anew_meanwhile_looks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        broker = made()
        commit = GroupCommit(broker, lambda: T0)
        looked: list[Log] = []
        real = Log.look_into

        def meanwhile(log: Log, batches: Any, now_ms: int) -> None:
            if not looked:
                broker.delete_topic("t")
                broker.create_topic("t", 1, {"cleanup.policy": "compact"})
            looked.append(log)
            real(log, batches, now_ms)

        monkeypatch.setattr(Log, "look_into", meanwhile)
        with pytest.raises(InvalidRecord, match="no key"):
            await commit.append(("t", 0), batch(b"x", codec="gzip"))
        assert len(looked) == 2
        await commit.close()

    asyncio.run(story())


def test_settings_that_changed_meanwhile_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        broker = made()
        commit = GroupCommit(broker, lambda: T0)
        loop = asyncio.get_running_loop()
        looked: list[TopicSettings] = []
        real = Log.look_into

        def meanwhile(log: Log, batches: Any, now_ms: int) -> None:
            real(log, batches, now_ms)
            looked.append(log.settings)
            if len(looked) == 1:
                compacted = broker.settings.for_topic({"cleanup.policy": "compact"})
                loop.call_soon_threadsafe(log.use, compacted)

        monkeypatch.setattr(Log, "look_into", meanwhile)
        with pytest.raises(InvalidRecord, match="no key"):
            await commit.append(("t", 0), batch(b"x", codec="gzip"))
        await commit.close()

    asyncio.run(story())


def test_the_loop_walks_only_so_many_records_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(group_commit, "WALKED_PER_TURN", 1000)
        broker = made()
        commit = GroupCommit(broker, lambda: T0)
        in_threads = 0
        real = Log.look_into

        def counted(log: Log, batches: Any, now_ms: int) -> None:
            nonlocal in_threads
            in_threads += 1
            real(log, batches, now_ms)

        monkeypatch.setattr(Log, "look_into", counted)
        lots = [encode_batch([(T0, None, b"v" * (n + m % 5), ()) for m in range(100)]) for n in range(64)]
        results = await asyncio.gather(*(commit.append(("t", 0), lot) for lot in lots))
        assert [done.base_offset for done in results] == list(range(1, 6401, 100))
        assert in_threads == 32
        await commit.close()

    asyncio.run(story())


def test_headers_and_long_fields_are_walked_right() -> None:
    odd: list[NewRecord] = [
        (T0, b"k" * 9000, b"v" * 9000, (("h", b"x"), ("n", None))),
        (T0 + (1 << 33), None, None, ()),
        (T0 - (1 << 33), b"", b"", (("", b""),)),
    ]
    data = encode_batch(odd)
    seen = check_each_record(body_of(data), 3)
    assert (seen.farthest + 1) >> 1 == 1 << 33
    assert seen.keyless == 1
    header = HEADER.unpack_from(data)
    assert header[12] == 3
    with pytest.raises(StorageError):
        made().append("t", 0, data, T0)  # too far in the future
