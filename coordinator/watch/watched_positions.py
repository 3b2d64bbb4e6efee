"""The positions in one partition of an offsets topic: the newest of each, and when they were committed.

There may be a million, and each is committed again every few seconds: what a reader reads mostly repeats. So a position
is a row of numbers, found by the bytes of its record's key, and what its value says is read when somebody takes it.
"""

from array import array
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from muster.assignors.api import TopicPartition
from muster.coordinator.core.model.types import NO_TOPIC_ID, StoredOffset
from muster.coordinator.core.watched.endings import CommitTimes, KnownTimes, usual_distance
from muster.coordinator.runtime.kafka_records import (
    NO_TAGS,
    OFFSET_KEY_HEADS,
    TAGS_OF_TOPIC,
    TOPIC_ID_BYTES,
    read_topic_id,
)
from muster.coordinator.runtime.record_fields import (
    INT16,
    INT32,
    INT64,
    FieldReader,
    MalformedRecord,
    UnknownVersion,
    plain_string,
)

NEVER = -1

WITH_EXPIRY, WITH_EPOCH, COMPACT = 1, 3, 4
"""Versions of a position's value: the only one with an expire timestamp, the first with a leader epoch, and the first
with compact lengths and tagged fields."""


TAIL_OF_TOPIC = len(TAGS_OF_TOPIC) + TOPIC_ID_BYTES


class WatchedPositions:
    """See the module. Who reads very many records works on `rows`, `last_ms`, `usual_ms` and `changed` itself."""

    def __init__(self) -> None:
        self.rows: dict[bytes, int] = {}
        """By the key of its record."""
        self.last_ms = array("q")
        """By row: when it was committed last."""
        self.usual_ms = array("q")
        """By row: the usual distance of two commits; NEVER: there was but one."""
        self.changed: dict[bytes, bytes | None] = {}
        """Values of positions that nobody has taken yet, by key; None: it was deleted."""
        self._free: list[int] = []
        """Rows of positions that were deleted."""

    def add(self, key: bytes) -> int:
        """The row of a position that has none yet."""
        if self._free:
            row = self._free.pop()
            self.last_ms[row] = self.usual_ms[row] = NEVER
        else:
            row = len(self.last_ms)
            self.last_ms.append(NEVER)
            self.usual_ms.append(NEVER)
        self.rows[key] = row
        return row

    def note(self, key: bytes, row: int, value: bytes, at_ms: int) -> None:
        """It was committed at that time, as its value says."""
        before_ms = self.last_ms[row]
        if at_ms > before_ms:
            if before_ms >= 0:
                self.usual_ms[row] = usual_distance(self.usual_ms[row], at_ms - before_ms)
            self.last_ms[row] = at_ms
        self.changed[key] = value

    def delete(self, key: bytes) -> None:
        row = self.rows.pop(key, None)
        if row is not None:
            self._free.append(row)
            self.changed[key] = None

    def take(self, most: int) -> list[tuple[bytes, bytes | None]]:
        """Key and value of those that changed since they were taken last. At most so many."""
        return [(key, self.changed.pop(key)) for key in list(islice(self.changed, most))]


class RowTimes(CommitTimes):
    """Of one group, from the rows of its positions."""

    def __init__(self, positions: WatchedPositions, group_id: str) -> None:
        super().__init__()
        self._positions = positions
        self._group = plain_string(group_id)

    def times_of(self, partition: TopicPartition) -> KnownTimes | None:
        place = self._group + plain_string(partition[0]) + INT32.pack(partition[1])
        for head in reversed(OFFSET_KEY_HEADS):
            row = self._positions.rows.get(head + place)
            if row is not None and (last_ms := self._positions.last_ms[row]) != NEVER:
                usual_ms = self._positions.usual_ms[row]
                return KnownTimes(last_ms, None if usual_ms == NEVER else usual_ms)
        return None


# What the records say
# --------------------


class PositionPlace(NamedTuple):
    group_id: str
    topic: str
    partition: int


class PositionText(NamedTuple):
    """What follows a value's numbers. at: where its commit time lies."""

    version: int
    metadata: bytes
    at: int
    topic_id: bytes


def read_place(key: bytes) -> PositionPlace:
    """Whose position it is, by its record's key. Raises MalformedRecord."""
    field = FieldReader(key[2:])
    place = PositionPlace(field.string(), field.string(), field.int32())
    field.end()
    return place


def read_text(value: bytes) -> PositionText:
    """Raises MalformedRecord where no known version explains the bytes; metadata may be any."""
    try:
        (version,) = INT16.unpack_from(value)
        if not 0 <= version <= COMPACT:
            raise UnknownVersion(version, COMPACT)
        begin = 14 if version >= WITH_EPOCH else 10
        if version < COMPACT:
            (size,) = INT16.unpack_from(value, begin)
            at = begin + 2 + size
            end = at + (16 if version == WITH_EXPIRY else 8)
            if size < 0 or end != len(value):
                raise MalformedRecord(f"metadata of {size} bytes in a value of {len(value)}")
            return PositionText(version, value[begin + 2 : at], at, NO_TOPIC_ID)
    except StructError as error:
        raise MalformedRecord(f"a value of {len(value)} bytes: {error}") from None
    if len(value) > begin and 0 < (size := value[begin]) < 0x80:  # nearly all are so
        at = begin + size
        tail = value[at + 8 :]
        if tail == NO_TAGS or (len(tail) == TAIL_OF_TOPIC and tail.startswith(TAGS_OF_TOPIC) and any(tail[3:])):
            return PositionText(version, value[begin + 1 : at], at, tail[3:])
    field = FieldReader(value[begin:])
    field.compact = True
    metadata = field.blob()
    at = len(value) - field.left
    field.int64()
    topic_id = read_topic_id(field)
    field.end()
    return PositionText(version, metadata, at, topic_id)


POSITION = Struct(">qi")


def read_position(value: bytes) -> StoredOffset:
    """Raises MalformedRecord. Metadata that is not UTF-8 is shown as Java shows it."""
    version, metadata, at, topic_id = read_text(value)
    offset, leader_epoch = POSITION.unpack_from(value, 2)
    (committed_ms,) = INT64.unpack_from(value, at)
    expires_ms = INT64.unpack_from(value, at + 8)[0] if version == WITH_EXPIRY else NEVER
    return StoredOffset(
        offset,
        leader_epoch if version >= WITH_EPOCH else -1,
        metadata.decode(errors="replace"),
        committed_ms,
        None if expires_ms == NEVER else expires_ms,
        topic_id,
    )
