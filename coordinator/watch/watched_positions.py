"""The positions in one partition of an offsets topic: the newest of each, and when they were committed.

There may be a million, and each is committed again every few seconds: what a reader reads mostly repeats. So a position
is a row of numbers, found by the bytes of its record's key, and what its value says is read when somebody takes it.
"""

from array import array
from collections.abc import Iterator
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

SAMPLES = 8
"""Of a position over time that are kept, at most."""

FIRST_DISTANCE_MS = 10_000
"""Between two samples, until there are too many: then every second one goes, and they are twice as far apart."""

MOST_TRAILS = 5_000
"""Positions of one partition of the topic that are sampled; 200 bytes each."""

FAR = (1 << 63) - 1
"""A time that never comes."""

WITH_EXPIRY, WITH_EPOCH, COMPACT = 1, 3, 4
"""Versions of a position's value: the only one with an expire timestamp, the first with a leader epoch, and the first
with compact lengths and tagged fields."""


TAIL_OF_TOPIC = len(TAGS_OF_TOPIC) + TOPIC_ID_BYTES


class PositionSample(NamedTuple):
    """Where a position stood at a time (epoch ms), and how often it had been committed by then."""

    at_ms: int
    offset: int
    commits: int


class SampledPosition(NamedTuple):
    """The samples of one position. numbers: of each, time, offset and number of commits."""

    numbers: bytes
    taken: int
    distance_ms: int


class PositionRow(NamedTuple):
    """A position as another process has read it. value: None if it was taken already."""

    key: bytes
    value: bytes | None
    last_ms: int
    usual_ms: int
    commits: int
    due_ms: int
    samples: SampledPosition | None


class PositionSamples:
    """A few samples of each of some positions, however long they are committed: their distances grow with time."""

    def __init__(self, most: int = MOST_TRAILS) -> None:
        self._most = most
        self._numbers = array("q")
        """Of each position SAMPLES times three: time, offset and number of commits."""
        self._taken = array("b")
        self._distance_ms = array("q")
        self._free: list[int] = []

    def begin(self) -> int:
        """Where the samples of another position are kept; NEVER: there is no room."""
        if self._free:
            place = self._free.pop()
            self._taken[place], self._distance_ms[place] = 0, FIRST_DISTANCE_MS
            return place
        place = len(self._taken)
        if place == self._most:
            return NEVER
        self._numbers.frombytes(bytes(8 * 3 * SAMPLES))
        self._taken.append(0)
        self._distance_ms.append(FIRST_DISTANCE_MS)
        return place

    def end(self, place: int) -> None:
        self._free.append(place)

    def take(self, place: int, at_ms: int, offset: int, commits: int) -> int:
        """When the next one is due."""
        numbers, begin, taken = self._numbers, place * 3 * SAMPLES, self._taken[place]
        if taken == SAMPLES:
            for each in range(1, SAMPLES // 2):
                kept, source = begin + 3 * each, begin + 6 * each
                numbers[kept : kept + 3] = numbers[source : source + 3]
            taken = SAMPLES // 2
            self._taken[place] = taken
            self._distance_ms[place] *= 2
            due_ms = numbers[begin + 3 * (taken - 1)] + self._distance_ms[place]
            if at_ms < due_ms:
                return due_ms
        at = begin + 3 * taken
        numbers[at], numbers[at + 1], numbers[at + 2] = at_ms, offset, commits
        self._taken[place] = taken + 1
        return at_ms + self._distance_ms[place]

    def copy_of(self, place: int) -> SampledPosition:
        begin, end = place * 3 * SAMPLES, (place + 1) * 3 * SAMPLES
        return SampledPosition(self._numbers[begin:end].tobytes(), self._taken[place], self._distance_ms[place])

    def put(self, place: int, copy: SampledPosition) -> None:
        begin, end = place * 3 * SAMPLES, (place + 1) * 3 * SAMPLES
        self._numbers[begin:end] = array("q", copy.numbers)
        self._taken[place], self._distance_ms[place] = copy.taken, copy.distance_ms

    def samples_of(self, place: int) -> list[PositionSample]:
        """Oldest first."""
        begin = place * 3 * SAMPLES
        return [PositionSample(*self._numbers[at : at + 3]) for at in range(begin, begin + 3 * self._taken[place], 3)]


class WatchedPositions:
    """See the module. Who reads very many records works on the columns by row, and on `changed`, itself."""

    def __init__(self) -> None:
        self.rows: dict[bytes, int] = {}
        """By the key of its record."""
        self.last_ms = array("q")
        """By row: when it was committed last."""
        self.usual_ms = array("q")
        """By row: the usual distance of two commits; NEVER: there was but one."""
        self.commits: list[int] = []
        """By row: how often it was committed."""
        self.due_ms: list[int] = []
        """By row: a commit of that time or later is sampled."""
        self.changed: dict[bytes, bytes | None] = {}
        """Values of positions that nobody has taken yet, by key; None: it was deleted."""
        self._free: list[int] = []
        """Rows of positions that were deleted."""
        self._samples = PositionSamples()
        self._places = array("i")
        """By row: where its samples are kept; NEVER: nowhere."""

    def add(self, key: bytes) -> int:
        """The row of a position that has none yet."""
        if self._free:
            row = self._free.pop()
            self.last_ms[row] = self.usual_ms[row] = NEVER
            self.commits[row] = self.due_ms[row] = 0
        else:
            row = len(self.last_ms)
            self.last_ms.append(NEVER)
            self.usual_ms.append(NEVER)
            self.commits.append(0)
            self.due_ms.append(0)
            self._places.append(NEVER)
        self.rows[key] = row
        return row

    def note(self, key: bytes, row: int, value: bytes, at_ms: int) -> None:
        """It was committed at that time, as its value says."""
        before_ms = self.last_ms[row]
        if at_ms > before_ms:
            if before_ms >= 0:
                self.usual_ms[row] = usual_distance(self.usual_ms[row], at_ms - before_ms)
            self.last_ms[row] = at_ms
        self.commits[row] += 1
        if at_ms >= self.due_ms[row]:
            self.sample(row, at_ms, value)
        self.changed[key] = value

    def sample(self, row: int, at_ms: int, value: bytes) -> None:
        """Keep where it stands now; the commit has been counted."""
        place = self._places[row]
        if place == NEVER:
            place = self._samples.begin()
            if place == NEVER:
                self.due_ms[row] = FAR
                return
            self._places[row] = place
        (offset,) = INT64.unpack_from(value, 2)
        self.due_ms[row] = self._samples.take(place, at_ms, offset, self.commits[row])

    def trail_of(self, row: int) -> tuple[int, list[PositionSample]]:
        """How often a position was committed, and samples of it, oldest first."""
        place = self._places[row]
        return self.commits[row], [] if place == NEVER else self._samples.samples_of(place)

    def copies(self) -> Iterator[PositionRow]:
        """Each position, for another process."""
        for key, row in self.rows.items():
            place = self._places[row]
            yield PositionRow(
                key,
                self.changed.get(key),
                self.last_ms[row],
                self.usual_ms[row],
                self.commits[row],
                self.due_ms[row],
                None if place == NEVER else self._samples.copy_of(place),
            )

    def adopt(self, copy: PositionRow) -> None:
        """Take over a position that was read elsewhere."""
        row = self.rows.get(copy.key, NEVER)
        if row == NEVER:
            row = self.add(copy.key)
        self.last_ms[row], self.usual_ms[row] = copy.last_ms, copy.usual_ms
        self.commits[row], self.due_ms[row] = copy.commits, copy.due_ms
        if copy.value is not None:
            self.changed[copy.key] = copy.value
        if copy.samples is not None:
            if self._places[row] == NEVER:
                self._places[row] = self._samples.begin()
            if (place := self._places[row]) != NEVER:
                self._samples.put(place, copy.samples)

    def delete(self, key: bytes) -> None:
        row = self.rows.pop(key, None)
        if row is not None:
            self._free.append(row)
            if (place := self._places[row]) != NEVER:
                self._samples.end(place)
                self._places[row] = NEVER
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
        row = row_of(self._positions, self._group, partition)
        if row == NEVER or (last_ms := self._positions.last_ms[row]) == NEVER:
            return None
        usual_ms = self._positions.usual_ms[row]
        return KnownTimes(last_ms, None if usual_ms == NEVER else usual_ms)


def row_of(positions: WatchedPositions, group: bytes, partition: TopicPartition) -> int:
    """NEVER: nothing is committed there. group: its id, as a key has it."""
    place = group + plain_string(partition[0]) + INT32.pack(partition[1])
    for head in reversed(OFFSET_KEY_HEADS):
        if (row := positions.rows.get(head + place, NEVER)) != NEVER:
            return row
    return NEVER


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
