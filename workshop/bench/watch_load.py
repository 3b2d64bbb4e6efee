"""Made-up partitions of `__consumer_offsets`, of any size, and what it takes to explain their groups.

`python -m muster.workshop.bench.watch_load FOLDER --mib 5120` writes segments as a broker would have: groups of five
members that commit ten partitions each, and rebalance now and then; positions are 95 % of the bytes.
`--read --since-hours 24` reads them.
"""

import argparse
import json
import random
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path

from crc32c import crc32c

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.model.records import GroupRecord, GroupStored, MemberRecord
from muster.coordinator.core.model.types import RebalanceEntry, StoredOffset
from muster.coordinator.runtime.kafka_records import OFFSET_KEY_WRITTEN, encode
from muster.coordinator.runtime.record_fields import INT16, INT32, INT64, plain_string
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.watch.segment_files import find_segments, read_segment
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.storage.compression import codec_number, compress
from muster.storage.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    encode_written,
    read_batches,
)

PARTITIONS, MEMBERS, OWNED = 50, 5, 2
"""Of the offsets topic; members of a group; partitions that each of them owns."""
SPAN_MS = 72 * 3_600_000
SEGMENT_BYTES = 100 << 20
NO_PRODUCER = (-1, -1, -1)
PLAIN_VALUE = INT16.pack(3)
CONSUMER_SESSION_MS, CONSUMER_POLL_MS = 45_000, 300_000

Written = tuple[bytes, bytes | None, object]


# Making them
# -----------


@dataclass(frozen=True, slots=True)
class LoadShape:
    """Of one partition: how many groups it has, records in a batch of positions, generations of each group (None: as
    many as their share of the bytes has room for), and when the last record was written, in ms; span_ms: how long after
    the first."""

    groups: int
    batch: int
    generations: int | None
    until_ms: int
    span_ms: int = SPAN_MS


def shape_of(size: int, shape: LoadShape, share: float) -> tuple[LoadShape, int]:
    """The shape with its number of generations, and how many batches of positions come to this many bytes with them.
    share: of the bytes that positions have, where that number is not given."""
    position = len(next(made_batches(replace(shape, generations=0), range(1), 1)))
    generation = len(next(made_batches(replace(shape, generations=1), range(1), 1)))
    generations = shape.generations
    if generations is None:
        generations = round(size * (1 - share) / generation / shape.groups)
    left = size - generations * generation * shape.groups
    return replace(shape, generations=generations), max(1, left // position)


def group_name(number: int) -> str:
    return f"payments-{number}"


def group_record(number: int, generation: int, at_ms: int) -> Written:
    """Every other generation is without the last member."""
    subscription = encode_subscription(Subscription(1, (f"orders-{number}",)))
    present = range(MEMBERS - generation % 2)
    names = [f"consumer-{number}-{each}-0f8fad5b-d9cb-469f-a165-70867728950{each}" for each in present]
    members = tuple(
        MemberRecord(
            name,
            None,
            f"consumer-{number}-{each}",
            f"/10.0.{number % 250}.{each}",
            CONSUMER_POLL_MS,
            CONSUMER_SESSION_MS,
            subscription,
            encode_assignment({f"orders-{number}": [each * OWNED, each * OWNED + 1]}),
        )
        for each, name in zip(present, names, strict=True)
    )
    stored = GroupStored(group_name(number), "consumer", generation, "range", names[0], at_ms, members)
    ((key, value, _),) = encode([stored]).groups
    return key, value, ()


def position_keys(number: int) -> list[bytes]:
    head = INT16.pack(OFFSET_KEY_WRITTEN) + plain_string(group_name(number)) + plain_string(f"orders-{number}")
    return [head + INT32.pack(partition) for partition in range(MEMBERS * OWNED)]


def position_value(offset: int, at_ms: int) -> bytes:
    """As brokers of 2.1 to 4.0 write it."""
    return PLAIN_VALUE + INT64.pack(offset) + INT32.pack(0) + INT16.pack(0) + INT64.pack(at_ms)


def groups_of(partition: int, partitions: int, groups: int) -> list[int]:
    """The numbers of so many groups that this partition has."""
    numbers = (number for number in count() if partition_for(group_name(number), partitions) == partition)
    return list(islice(numbers, groups))


def made_batches(shape: LoadShape, numbers: Sequence[int], batches: int) -> Iterator[bytes]:
    """So many of positions of these groups, and those of generations between them, in the order of their times."""
    rng = random.Random(numbers[0])
    keys = {number: position_keys(number) for number in numbers}
    generations = shape.generations or 0
    rounds = ((generations * at // max(1, batches)) for at in range(batches))
    base_offset, written = 0, -1 if generations else 0
    for at, generation in enumerate(rounds):
        at_ms = shape.until_ms - shape.span_ms + shape.span_ms * at // max(1, batches)
        made: list[tuple[list[Written], int]] = []
        if generation != written:
            written = generation
            made += [([group_record(number, generation + 1, at_ms)], at_ms) for number in numbers]
        chosen, first = keys[rng.choice(numbers)], rng.randrange(MEMBERS * OWNED)
        picked = (chosen[(first + each) % len(chosen)] for each in range(shape.batch))
        made.append(([(key, position_value(at, at_ms), ()) for key in picked], at_ms))
        for records, written_ms in made:
            data = encode_written(records, written_ms, producer=NO_PRODUCER)
            yield INT64.pack(base_offset) + data[8:]
            base_offset += len(records)


def compressed_batches(data: bytes, codec: str) -> bytes:
    """The same batches, each compressed, as a broker with `offsets.topic.compression.codec` writes them."""
    made: list[bytes] = []
    for batch in read_batches(data):
        plain = bytes(batch.data)
        attributes = INT16.pack(batch.attributes | codec_number(codec))
        body = attributes + plain[ATTRIBUTES_AT + 2 : HEADER_SIZE] + compress(codec, plain[HEADER_SIZE:])
        length = INT32.pack(len(body) + ATTRIBUTES_AT - LENGTH_OVERHEAD)
        made.append(plain[:8] + length + plain[12:CRC_AT] + crc32c(body).to_bytes(4, "big") + body)
    return b"".join(made)


def write_partition(folder: Path, partition: int, shape: LoadShape, batches: int, partitions: int) -> int:
    """Its segments, as one of so many; how many bytes they have."""
    place = folder / f"__consumer_offsets-{partition}"
    place.mkdir(parents=True)
    held: list[bytes] = []
    size = total = first = 0

    def roll() -> None:
        (place / f"{first:020}.log").write_bytes(b"".join(held))

    for data in made_batches(shape, groups_of(partition, partitions, shape.groups), batches):
        if size + len(data) > SEGMENT_BYTES:
            roll()
            held, size, first = [], 0, int.from_bytes(data[:8], "big")
        held.append(data)
        size, total = size + len(data), total + len(data)
    roll()
    return total


# Reading them
# ------------


class CountedEntries:
    """A sink that keeps nothing."""

    def __init__(self) -> None:
        self.began_s = time.perf_counter()
        self.first_s = -1.0
        self.entries = self.facts = 0

    def take_fact(self, fact: GroupRecord) -> None:
        self.facts += 1

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        if not self.entries:
            self.first_s = time.perf_counter() - self.began_s
        self.entries += 1


@dataclass(frozen=True, slots=True)
class LoadReading:
    """Seconds to the first entry and to the last byte; what was read; the process's memory at its highest, in MB."""

    first_s: float
    all_s: float
    cpu_s: float
    records: int
    entries: int
    positions: int
    size: int
    resident_mb: float


def read_load(paths: Sequence[Path], since_ms: int | None = None) -> LoadReading:
    """Explain all groups of these segments, in one process."""
    sink, began_cpu_s = CountedEntries(), time.process_time()
    watched: dict[int, WatchedPartition] = {}
    size = 0
    for segment in find_segments(tuple(paths)):
        if segment.partition not in watched:
            watched[segment.partition] = WatchedPartition(sink, {}, since_ms=since_ms)
        size += sum(read_segment(segment, watched[segment.partition]))
    taken: list[tuple[str, str, int, StoredOffset | None]] = []
    for each in watched.values():
        each.tell_past()
        taken += each.take_positions(1 << 30)
    return LoadReading(
        sink.first_s,
        time.perf_counter() - sink.began_s,
        time.process_time() - began_cpu_s,
        sum(each.records for each in watched.values()),
        sink.entries,
        len(taken),
        size,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write or read made-up segments of __consumer_offsets.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=64, help="size of all partitions together")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--groups", type=int, default=10, help="of each partition")
    parser.add_argument("--batch", type=int, default=10, help="positions in a batch")
    parser.add_argument("--share", type=float, default=0.95, help="of the bytes that positions have")
    parser.add_argument("--generations", type=int, help="of each group, over three days, in place of --share")
    parser.add_argument("--read", action="store_true", help="read them instead")
    parser.add_argument("--since-hours", type=float, help="with --read: tell what happened since so long before now")
    given = parser.parse_args()
    now_ms = time.time_ns() // 1_000_000
    if given.read:
        since_ms = None if given.since_hours is None else now_ms - int(given.since_hours * 3_600_000)
        print(json.dumps(asdict(read_load([given.folder], since_ms))))
        return
    size = (given.mib << 20) // given.partitions
    shape, batches = shape_of(size, LoadShape(given.groups, given.batch, given.generations, now_ms), given.share)
    print(
        sum(
            write_partition(given.folder, number, shape, batches, given.partitions)
            for number in range(given.partitions)
        )
    )


if __name__ == "__main__":
    main()
