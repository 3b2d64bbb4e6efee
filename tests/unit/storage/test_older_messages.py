"""What lies in the log, for readers of magic 0 and 1; the reader of those formats is the judge."""

import pytest

from muster.storage.compression import CODECS
from muster.storage.errors import CorruptMessage
from muster.storage.records.batch import LOG_APPEND_TIME_BIT, encode_batch, legacy_records, read_message
from muster.storage.records.message_conversion import convert_down, encode_message
from muster.storage.types import Record
from tests.unit.storage.logs import T0

RECORDS = [
    (T0, b"k", b"v" * 300, ()),
    (T0 + 5, None, b"", (("h", b"x"),)),
    (T0 - 9, b"", None, ()),
    (T0 + 70_000, b"key" * 100, b"v", ()),
]


def read(data: bytes) -> list[Record]:
    view, at, found = memoryview(data), 0, []
    while at < len(view):
        records, at = legacy_records(view, at)
        found += records
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_every_message_keeps_offset_key_and_value(magic: int, codec: str) -> None:
    data = b"".join(encode_batch(RECORDS, base_offset=base, codec=codec) for base in (10, 14))
    made, reached = convert_down(data, magic, 12, 1 << 20)
    wanted = [
        Record(base + place, at if magic else -1, key, value)
        for base in (10, 14)
        for place, (at, key, value, _) in enumerate(RECORDS)
    ]
    assert read(made) == wanted[2:]
    assert reached == 18
    found = read_message(memoryview(made), 0)
    assert found is not None
    assert found[2:4] == (magic, 0)


def test_it_ends_where_there_is_no_more_room_but_has_one_message_at_least() -> None:
    data = encode_batch([(T0, None, b"x" * 100, ())] * 10, base_offset=0)
    one, reached = convert_down(data, 0, 0, 1)
    assert (len(read(one)), reached) == (1, 1)
    assert convert_down(data, 0, 4, 3 * len(one))[1] == 7
    assert convert_down(data, 0, 4, 3 * len(one) + 5)[1] == 7


def test_what_has_no_messages_is_passed_by() -> None:
    """A reader who got nothing would ask for the same for ever."""
    control = encode_batch(RECORDS, base_offset=4, control=True, transactional=True, producer_id=1, producer_epoch=0)
    assert convert_down(control, 1, 2, 100) == (b"", 8)


def test_older_messages_are_older_still() -> None:
    one, two = (encode_message(Record(n, T0, b"k", b"v"), 1, stamped=False) for n in (3, 4))
    assert read(convert_down(one + two, 0, 4, 1000)[0]) == [Record(4, -1, b"k", b"v")]


def test_the_logs_own_time_is_told_as_such() -> None:
    entry = encode_message(Record(3, T0, b"k", b"v"), 1, stamped=True)
    found = read_message(memoryview(entry), 0)
    assert found is not None
    assert found[3] == LOG_APPEND_TIME_BIT


def test_damage_is_told() -> None:
    data = bytearray(encode_batch(RECORDS, base_offset=0))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage, match="checksum"):
        convert_down(bytes(data), 1, 0, 100)
