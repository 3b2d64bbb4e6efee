"""Records of an offsets topic that look alike: where their parts lie is found out once, and the next are read by that.

Nearly all records are positions. What a record begins with says how long it, its key and its value are: its *shape*.
A batch is mostly of one commit, whose records are of one length and begin alike: a *run*, which is read in one go. So
is a *lone* position, together with the header of its batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from muster.coordinator.runtime.kafka_records import OFFSET_KEY_HEADS, TAGS_OF_TOPIC
from muster.coordinator.runtime.record_fields import INT16, INT32
from muster.storage.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, read_varint, varint

SHAPE_BYTES = 8
"""How a record begins: its length, attributes, the differences of time and offset, and its key's length."""

MAX_SHAPES = 1 << 15

PLAIN = Struct(">H12xHq")
"""A value of version 3: its version, the length of its metadata, and where there is none, the commit time."""
PLAIN_VERSION, PLAIN_BYTES = 3, PLAIN.size

OF_TOPIC = Struct(">H12xBq3s16s")
"""A value of version 4: its version, one more than the length of its metadata, and where there is none, the commit time
and the topic's id behind its tag."""
OF_TOPIC_VERSION, OF_TOPIC_BYTES = 4, OF_TOPIC.size

POSITION_HEAD = OFFSET_KEY_HEADS[-1]
"""Of the key of a position, as all but the oldest brokers write it."""

OFFSET_DELTAS = bytes(range(0, 0x80, 2))
"""How the records of a batch count, as far as one byte is enough for it."""


class RecordShape(NamedTuple):
    """Of records that begin with the same bytes. unpack: the key, the length of the value, the value, and the number of
    headers. value_size: what the length has to be. key_at: where the key begins. offset_at: where the record's number
    within its batch is."""

    unpack: Callable[[bytes, int], tuple[Any, ...]]
    size: int
    value_size: bytes
    key_at: int
    key_bytes: int
    offset_at: int

    @property
    def value_bytes(self) -> int:
        """Of its value."""
        return self.size - self.key_at - self.key_bytes - len(self.value_size) - 1


@dataclass(frozen=True, slots=True)
class PositionRun:
    """The records of a batch, all positions as long as each other, that differ in number, key and numbers of the value.

    begin: how each of them begins, the kind of its key included; `beginnings`: what that has to be. read: all fields,
    `step` of them for each record: how it begins, its key, how its value begins, the metadata's length, the commit time
    (at `time_at`), the tag and id of the topic (at `topic_at`; 0: there is none), and the number of headers. value_at:
    where the first value begins. stride: from one to the next.
    """

    size: int
    begin: Callable[[bytes, int], tuple[Any, ...]]
    beginnings: tuple[bytes, ...]
    read: Callable[[bytes, int], tuple[Any, ...]]
    step: int
    heads: tuple[bytes, ...]
    values: tuple[bytes, ...]
    metadata: tuple[int, ...]
    tags: tuple[bytes, ...]
    no_headers: tuple[int, ...]
    topic_at: int
    value_at: int
    value_bytes: int
    stride: int

    time_at = 4

    def fits(self, fields: tuple[Any, ...]) -> bool:
        """Whether these records, as `read` gives them, are such a run."""
        step = self.step
        return (
            fields[::step] == self.heads
            and fields[2::step] == self.values
            and fields[3::step] == self.metadata
            and fields[step - 1 :: step] == self.no_headers
            and (not self.topic_at or fields[5::step] == self.tags)
        )


class LonePosition(NamedTuple):
    """A batch of a single position. unpack: base offset, length, magic, checksum, attributes, last offset delta, newest
    time, the key, how the value begins, the metadata's length, the commit time, tag and id of the topic (empty where
    there are none), and the number of headers. The others: what these have to be; value_at: where the value begins.
    unpack_body: from the key on, of the records alone, as they are unpacked of a compressed batch."""

    unpack: Callable[[bytes, int], tuple[Any, ...]]
    size: int
    length: int
    begins: bytes
    metadata: int
    tags: bytes
    value_at: int
    unpack_body: Callable[[bytes], tuple[Any, ...]]


LONE_COUNT = INT32.pack(1)
LONE_AT, LONE_BYTES = HEADER_SIZE - 4, 4 + SHAPE_BYTES
"""Where the number of records is, and how long what a lone position is known by: that number, and its shape."""

SHAPES: dict[bytes, RecordShape] = {}

LONES: dict[bytes, LonePosition] = {}
"""By the number of records, which is 1, and how the record begins."""

RUNS: dict[tuple[bytes, int], PositionRun] = {}
"""By how the first record begins, and their number."""


def shape_at(body: bytes, at: int) -> RecordShape | None:
    """None: the record has to be read the plain way. Raises IndexError or CorruptMessage."""
    size, begin = read_varint(body, at)
    _, offset_at = read_varint(body, begin + 1, 10)
    _, key_at = read_varint(body, offset_at)
    key_size, key_at = read_varint(body, key_at)
    rest = begin + size - key_at - key_size - 1
    value_size = varint(rest - 1 if rest <= 64 else rest - 2)
    value_bytes = rest - len(value_size)
    if key_at - at > SHAPE_BYTES or key_size < 0 or value_bytes < PLAIN.size:
        return None
    layout = Struct(f">{key_at - at}x{key_size}s{len(value_size)}s{value_bytes}sB")
    if len(SHAPES) >= MAX_SHAPES:
        SHAPES.clear()
    shape = SHAPES[body[at : at + SHAPE_BYTES]] = RecordShape(
        layout.unpack_from, layout.size, value_size, key_at - at, key_size, offset_at - at
    )
    return shape


def are_positions(data: bytes, place: int, stop: int, count: int) -> bool:
    """Whether so many records, and nothing but positions, are between these places, as far as their shapes tell."""
    first = place
    for _ in range(count):
        shape = SHAPES.get(data[place : place + SHAPE_BYTES])
        if shape is None or not data.startswith(POSITION_HEAD, place + shape.key_at):
            return False
        place += shape.size
    if place == stop and count > 1:
        note_run(data, first, stop, count)
    return place == stop


def note_run(data: bytes, place: int, stop: int, count: int) -> None:
    """The next batch that looks like these positions is known at once."""
    shape = SHAPES[data[place : place + SHAPE_BYTES]]
    if shape.size * count == stop - place and count <= len(OFFSET_DELTAS):
        run = run_of(shape, data[place : place + shape.size], count)
        if run is not None and run.begin(data, place) == run.beginnings:
            if len(RUNS) >= MAX_SHAPES:
                RUNS.clear()
            RUNS[data[place : place + SHAPE_BYTES], count] = run


def note_lone(body: bytes, place: int) -> None:
    """The next batch whose record looks like the one here, which is a position of a known version, is known at once."""
    known_by = LONE_COUNT + body[place : place + SHAPE_BYTES]
    if known_by in LONES:
        return  # it was the position that was not known
    shape = SHAPES[body[place : place + SHAPE_BYTES]]
    at = shape.key_at + shape.key_bytes
    begins = body[place + at : place + at + len(shape.value_size) + 2]
    of_topic = shape.value_bytes == OF_TOPIC_BYTES
    rest = "12xBq3s16sB" if of_topic else "12xHq0s0sB"
    record = f"{shape.key_at}x{shape.key_bytes}s{len(begins)}s{rest}"
    layout = Struct(f">qi4xBIHi8xq18x{record}")
    if len(LONES) >= MAX_SHAPES:
        LONES.clear()
    LONES[known_by] = LonePosition(
        layout.unpack_from,
        layout.size,
        layout.size - LENGTH_OVERHEAD,
        begins,
        1 if of_topic else 0,
        TAGS_OF_TOPIC if of_topic else b"",
        HEADER_SIZE + at + len(shape.value_size),
        Struct(f">{record}").unpack,
    )


def run_of(shape: RecordShape, first: bytes, count: int) -> PositionRun | None:
    """Of so many records like the first; None: their values are not those that nearly all have."""
    key_at, at, kind = shape.key_at, shape.offset_at, len(POSITION_HEAD)
    value_at = key_at + shape.key_bytes + len(shape.value_size)
    version, value_bytes = first[value_at : value_at + 2], shape.value_bytes
    if (version, value_bytes) == (INT16.pack(PLAIN_VERSION), PLAIN_BYTES):
        rest, metadata, topic_at = "Hq", 0, 0
    elif (version, value_bytes) == (INT16.pack(OF_TOPIC_VERSION), OF_TOPIC_BYTES):
        rest, metadata, topic_at = "Bq3s16s", 1, 6
    else:
        return None
    heads = tuple(first[:at] + OFFSET_DELTAS[each : each + 1] + first[at + 1 : key_at] for each in range(count))
    whole = f"{key_at}s{shape.key_bytes}s{len(shape.value_size) + 2}s12x{rest}B"
    begin = Struct(">" + f"{key_at + kind}s{shape.size - key_at - kind}x" * count)
    return PositionRun(
        size=shape.size * count,
        begin=begin.unpack_from,
        beginnings=tuple(head + POSITION_HEAD for head in heads),
        read=Struct(">" + whole * count).unpack_from,
        step=8 if topic_at else 6,
        heads=heads,
        values=(shape.value_size + version,) * count,
        metadata=(metadata,) * count,
        tags=(TAGS_OF_TOPIC,) * count,
        no_headers=(0,) * count,
        topic_at=topic_at,
        value_at=value_at,
        value_bytes=value_bytes,
        stride=shape.size,
    )
