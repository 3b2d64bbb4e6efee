"""What is promised for any bytes in a Kafka's `__consumer_offsets`."""

import random
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from muster.coordinator.core.model.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentDeleted,
    CurrentStored,
    GroupDeleted,
    GroupEpochDeleted,
    GroupEpochStored,
    GroupStored,
    MemberRecord,
    Record,
    TargetEpochStored,
    TargetStored,
)
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.watch.watched_partition import MAX_REASONS, WatchedPartition
from muster.storage.compression import CODECS
from muster.storage.records.batch import ATTRIBUTES_AT, NewRecord
from tests.fuzz.targets import Bytes
from tests.support.watched_batches import (
    NOW_MS,
    Heard,
    batch,
    end_marker,
    facts,
    position_key,
    position_value,
)

PROTOCOL_TYPES: Final = ("consumer", "connect", "sr", "", "streams")
BLOBS: Final = (
    b"",
    bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000"),
    bytes.fromhex("0001 00000001 0001 74 00000002 00000000 00000001"),
    bytes.fromhex("0003 00000001 0001 74 ffffffff 00000001 0001 74 00000001 00000000 00000004 ffff"),
)
TOPIC_ID: Final = bytes(range(16))


def watched(data: bytes) -> None:
    """Any batches are read: no exception, every record counted, and no more kept than what they hold."""
    given, heard = Bytes(data), Heard()
    partition = WatchedPartition(heard, {}, since_ms=NOW_MS if given.number() % 4 == 0 else None)
    size = 0
    for each in batches(given):
        size += len(each)
        at = 0
        while at < len(each) and (taken := partition.take_batches(each[at:], 1)):
            at += taken
    assert not partition.tell_past()
    taken_positions = partition.take_positions(1 << 30)
    assert len(taken_positions) + len(heard.facts) + len(heard.entries) <= 2 * partition.records + 1
    assert len(partition.skipped) <= MAX_REASONS + 1
    assert not partition.take_positions(1)


def batches(given: Bytes) -> Iterator[bytes]:
    """As brokers write them, with one thing or another changed, or no batches at all."""
    offset = 0
    while given:
        how, count = given.number(), 1 + given.number() % 4
        if how % 8 == 0:
            yield given.piece(given.number())
            continue
        if how % 8 == 1:
            yield end_marker(how % 3, offset, commits=how > 100)
            continue
        records = [record(given) for _ in range(count)]
        transactional = how % 8 == 2
        made = batch(
            records,
            offset,
            codec=CODECS[given.number() % 5] if how % 8 == 3 else "none",
            producer_id=how % 3 if transactional else -1,
            producer_epoch=0,
            transactional=transactional,
            leader_epoch=how % 5,
        )
        offset += count
        yield changed(made, given) if how % 8 == 4 else made


def changed(made: bytes, given: Bytes) -> bytes:
    """One byte is another one, and mostly the checksum is right again."""
    data = bytearray(made)
    data[given.number(2) % len(data)] = given.number()
    if given.number() % 4:
        data[17:ATTRIBUTES_AT] = crc32c(bytes(data[ATTRIBUTES_AT:])).to_bytes(4, "big")
    return bytes(data)


def record(given: Bytes) -> NewRecord:
    how = given.number()
    at_ms = NOW_MS + given.number() * 1_000
    if how % 8 == 0:
        return at_ms, given.piece(given.number() % 40), given.piece(given.number() % 60) if how > 8 else None, ()
    if how % 8 < 4:
        version = how // 8 % 5
        stored = StoredOffset(given.number(2), 0, "m" * (given.number() % 3), at_ms, None, TOPIC_ID)
        if version < 4:
            stored = stored._replace(topic_id=b"")
        key = position_key("g" * (how % 3), "t", given.number() % 3, how // 40 % 2)
        return at_ms, key, None if how > 250 else position_value(stored, version), ()
    _, own_key, value, _ = facts(fact(given, random.Random(given.number(2))), at_ms=at_ms)[0]
    assert own_key is not None
    if value and how % 8 == 4:
        cut = bytearray(value)
        cut[given.number(2) % len(cut)] = given.number()
        value = bytes(cut[: len(cut) - given.number() % 2])
    return at_ms, own_key, value, ()


def fact(given: Bytes, rng: random.Random) -> Record:
    """Of one of two groups."""
    group, member, epoch = rng.choice("gh"), rng.choice("abc"), rng.randrange(6)
    share = {TOPIC_ID: frozenset(rng.sample(range(3), rng.randrange(3)))}
    epochs = {TOPIC_ID: dict.fromkeys(share[TOPIC_ID], epoch)}
    members = tuple(
        MemberRecord(
            name,
            rng.choice((None, name)),
            rng.choice("xy"),
            "/h",
            rng.randrange(9_000),
            rng.randrange(9_000),
            rng.choice(BLOBS) if rng.random() < 0.8 else given.piece(given.number() % 30),
            rng.choice(BLOBS) if rng.random() < 0.8 else given.piece(given.number() % 30),
        )
        for name in rng.sample("abc", rng.randrange(4))
    )
    protocol = rng.choice((None, "range", "cooperative-sticky"))
    choices: tuple[Record, ...] = (
        GroupStored(group, rng.choice(PROTOCOL_TYPES), epoch, protocol, rng.choice((None, member)), NOW_MS, members),
        GroupDeleted(group),
        GroupEpochStored(group, epoch, rng.randrange(2)),
        ConsumerMemberStored(
            group, member, None, None, rng.choice("xy"), "/h", ("t",), rng.choice((None, "t.*")), 9, None, None
        ),
        TargetEpochStored(group, epoch, NOW_MS),
        TargetStored(group, member, share),
        CurrentStored(group, member, epoch, epoch, 0, epochs, {}),
        CurrentDeleted(group, member),
        ConsumerMemberDeleted(group, member),
        GroupEpochDeleted(group),
    )
    return choices[given.number() % len(choices)]


TARGETS: Final = {"watched": watched}
"""Beside those of `targets`."""
