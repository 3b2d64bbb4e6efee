"""Fetch 0 to 3 and ListOffsets 0, for consumers from before Kafka 0.11."""

from typing import Any

import pytest

from muster.storage.records.batch import decode_records, read_message
from tests.support.kafka.door import Door, made, play
from tests.unit.storage.logs import T0, batch

FETCH = range(4)


async def fetch(door: Door, version: int, *parts: tuple[int, int], most: int = 1 << 20, **more: Any) -> list[Any]:
    """From (partition, offset) on."""
    path = "FetchRequest.topics"
    asked = [
        made(f"{path}.partitions", partition=number, fetch_offset=offset, partition_max_bytes=most)
        for number, offset in parts
    ]
    topic = made(path, topic="t", partitions=asked)
    (told,) = (await door.ask("Fetch", version, **({"topics": [topic], "min_bytes": 1} | more))).responses
    return list(told.partitions)


def wrote(door: Door, data: bytes) -> None:
    door.broker.log("t", 0).append(data, T0)
    door.broker.flush()


def values(part: Any) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in decode_records(part.records)]


@pytest.mark.parametrize("version", FETCH)
def test_messages_come_in_the_format_of_the_time(version: int) -> None:
    async def story(door: Door) -> None:
        wrote(door, batch(b"a", b"b", codec="gzip"))
        wrote(door, batch(b"c", None, codec="zstd"))
        full, empty, gone, beyond = await fetch(door, version, (0, 1), (1, 0), (9, 0), (0, 77))
        assert values(full) == [(1, b"b"), (2, b"c"), (3, None)]
        found = read_message(memoryview(full.records), 0)
        assert found is not None
        assert (found[2], found[4]) == ((1, T0) if version >= 2 else (0, -1))
        assert (full.error_code, full.high_watermark) == (0, 4)
        assert (empty.error_code, bytes(empty.records)) == (0, b"")
        assert (gone.error_code, beyond.error_code) == (3, 1)

    play(story)


@pytest.mark.parametrize("version", FETCH)
def test_a_packed_batch_unpacks_to_as_much_as_was_asked_for(version: int) -> None:
    """A small batch may hold 64 MB; a small request gets no more than it has room for."""

    async def story(door: Door) -> None:
        wrote(door, batch(*[b"x" * 1000] * 2000, codec="gzip"))
        read = 0
        while read < 2000:
            (part,) = await fetch(door, version, (0, read), most=500_000)
            assert 0 < len(part.records) <= 500_000
            read = values(part)[-1][0] + 1
        assert len(values((await fetch(door, version, (0, 5), most=1))[0])) == 1
        more = [(0, 0)] * 4
        bounded = {"max_bytes": 600_000} if version == 3 else {}
        parts = await fetch(door, version, *more, most=500_000, **bounded)
        assert sum(len(part.records) for part in parts) <= (601_100 if bounded else 2_000_000)

    play(story)


@pytest.mark.parametrize("version", FETCH)
def test_emptied_batches_are_passed_by(version: int) -> None:
    """A reader who got nothing for them would ask for the same for ever."""

    async def story(door: Door) -> None:
        log = door.broker.log("t", 0)
        wrote(door, batch(b"old", key=b"k"))
        wrote(door, batch(b"new", key=b"k"))
        log.roll(T0)
        wrote(door, batch(b"last", key=b"other"))
        door.broker.compact(T0 + 10**9)
        (part,) = await fetch(door, version, (0, 0), most=80)
        assert values(part)[0] == (1, b"new")

    play(story, log__cleanup__policy="compact", log__cleaner__min__cleanable__ratio=0)


def test_offsets_in_the_words_of_version_0() -> None:
    async def offsets(door: Door, timestamp: int, most: int) -> tuple[int, list[int]]:
        path = "ListOffsetsRequest.topics"
        asked = made(f"{path}.partitions", partition_index=0, timestamp=timestamp, max_num_offsets=most)
        topic = made(path, name="t", partitions=[asked])
        (told,) = (await door.ask("ListOffsets", 0, replica_id=-1, topics=[topic])).topics
        (part,) = told.partitions
        return part.error_code, [each.offset for each in part.old_style_offsets]

    async def story(door: Door) -> None:
        log = door.broker.log("t", 0)
        assert await offsets(door, -1, 1) == (0, [0])
        for number in range(3):
            wrote(door, batch(b"a", b"b", at=T0 + number))
            log.roll(T0)
        wrote(door, batch(b"c", at=T0 + 3))
        assert await offsets(door, -1, 1) == (0, [7])
        assert await offsets(door, -1, 3) == (0, [7, 6, 4])
        assert await offsets(door, -1, 1 << 30) == (0, [7, 6, 4, 2, 0])
        assert await offsets(door, -2, 5) == (0, [0])
        assert await offsets(door, T0 + 1, 5) == (0, [2, 0])
        assert await offsets(door, T0 - 1, 5) == (0, [])
        assert await offsets(door, -1, -5) == (0, [])
        door.broker.delete_records("t", 0, 3)
        assert await offsets(door, -2, 1) == (0, [3])

    play(story)
