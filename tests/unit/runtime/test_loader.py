"""Replay takes what it understands, and names what it does not."""

from collections.abc import Iterator

from muster.coordinator.core.model.events import AlterSettings
from muster.coordinator.core.model.records import (
    CanaryForgotten,
    CentralStored,
    ConsumerMemberDeleted,
    DelayForgotten,
    DelayStored,
    GroupDeleted,
    HoldsEnded,
    NumbersPassed,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    RebalanceDecided,
    Record,
    SettingsUnset,
    TargetEpochDeleted,
)
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.kafka_records import decode_group, encode
from muster.coordinator.runtime.own_records import decode_ledger, ledger_key
from muster.coordinator.runtime.ports import KeyValue, LogDamage, LogFailed
from muster.coordinator.runtime.replay import MAX_COMPLAINTS, replay_shard
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import TinyShard, entry

AT_10 = OffsetStored("g", "t", 0, StoredOffset(10, -1, "", 5))


def log_of(*records: Record) -> MemoryGroupLog:
    log = MemoryGroupLog(1)
    encoded = encode(records)
    log.append(0, encoded.groups, encoded.ledger, 0)
    return log


def test_facts_are_applied_and_counted() -> None:
    core = TinyShard(Limits(), 0)
    report = replay_shard(log_of(AT_10, RebalanceDecided("g", entry(3, 0))), 0, core)
    assert core.offsets == {("g", "t", 0): 10}
    assert core.rounds == {"g": 3}
    assert (report.groups, report.ledger, report.tombstones, report.malformed) == (1, 1, 0, 0)
    assert report.records == 2


def test_only_the_newest_record_of_a_key_is_applied_in_its_place() -> None:
    applied: list[Record] = []

    class Notebook(TinyShard):
        def apply(self, record: Record) -> None:
            applied.append(record)

    at_20 = OffsetStored("g", "t", 0, StoredOffset(20, -1, "", 6))
    other = OffsetStored("g", "t", 1, StoredOffset(1, -1, "", 5))
    report = replay_shard(log_of(AT_10, other, at_20, GroupDeleted("g"), GroupDeleted("g")), 0, Notebook(Limits(), 0))
    assert applied == [OffsetsStored("g", {("t", 1): other.value, ("t", 0): at_20.value}), GroupDeleted("g")]
    assert (report.superseded, report.records) == (2, 5)


def test_a_malformed_record_is_named_and_the_others_count() -> None:
    log = log_of(AT_10)
    log.append(0, [KeyValue(b"\x00\x01\x00", b"")], [KeyValue(b"{}", b"")], 0)
    log.append(0, encode([OffsetStored("g", "t", 1, StoredOffset(20, -1, "", 5))]).groups, [], 0)
    core = TinyShard(Limits(), 0)
    report = replay_shard(log, 0, core)
    assert core.offsets == {("g", "t", 0): 10, ("g", "t", 1): 20}
    assert report.malformed == 2
    assert report.complaints == [
        "__consumer_offsets-0 offset 1: field of 2 bytes at byte 2 with 1 bytes left; the record is passed over",
        "__rebalances-0 offset 0: group: Field required; the record is passed over",
    ]


class Diary(MemoryGroupLog):
    """A log whose diary cannot be read to the end."""

    def read_ledger(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        yield LogDamage(0, "its checksum is wrong", 40)
        yield from super().read_ledger(shard)
        raise LogFailed("__rebalances-0: the disk is gone")


def test_a_damaged_diary_costs_explanations_and_is_said() -> None:
    log = Diary(1)
    encoded = encode([AT_10, RebalanceDecided("g", entry(3, 0))])
    log.append(0, encoded.groups, encoded.ledger, 0)
    core = TinyShard(Limits(), 0)
    report = replay_shard(log, 0, core)
    assert core.offsets == {("g", "t", 0): 10}
    assert core.rounds == {"g": 3}
    assert report.moved == [NumbersPassed(40)]
    assert report.complaints == [
        "__rebalances-0 offset 0: its checksum is wrong; explanations there are passed over",
        "__rebalances-0: the disk is gone; the rest of the explanations is passed over",
    ]


def test_numbers_of_rebalances_that_nobody_can_read_are_not_given_again() -> None:
    def next_numbers(log: MemoryGroupLog) -> list[int]:
        engine = Engine(log, 1, Limits())
        engine.load(0)
        for at, group in enumerate(("g", "h")):
            options = {"member.capacity": {"a": 1.0 + log.appends}}
            engine.submit(0, AlterSettings(at + 1, group, {"assignor.options": options}, (), None, False, "ops"))
        engine.turn(1)
        core = engine.core(0)
        assert isinstance(core, Shard)
        return [max(core.ledgers[group].entries) for group in ("g", "h")]

    log = Diary(1)
    assert next_numbers(log) == [41, 41]
    # What was damaged may be gone by the next start, with what was told since: how far numbers had come is on record.
    sound = MemoryGroupLog(1)
    sound.append(0, [], [stored for stored in log.ledger[0].read() if decode_ledger(stored) == NumbersPassed(40)], 0)
    assert next_numbers(sound) == [41, 41]
    assert next_numbers(sound) == [42, 42]


OWNED = CentralStored("g", 3, "range", 100)
DELAY = DelayStored("d", "1,2", 500)


def in_the_diary(*facts: CentralStored | DelayStored) -> list[KeyValue]:
    """Facts of our own as an older version wrote them."""
    kinds = {CentralStored: "central", DelayStored: "delay"}
    return [KeyValue(ledger_key(fact.group_id, 0, kinds[type(fact)]), encode([fact]).groups[0].value) for fact in facts]


def test_facts_that_an_older_version_kept_in_the_diary_are_read_and_moved() -> None:
    log = MemoryGroupLog(1)
    log.append(0, [], in_the_diary(OWNED, DELAY), 0)
    for life in range(2):
        engine = Engine(log, 1, Limits())
        engine.load(life)
        core = engine.core(0)
        assert isinstance(core, Shard)
        assert core.central_groups["g"].stored == OWNED
        assert core.ledgers["d"].delay == DELAY
        assert [decode_group(stored) for stored in log.read_groups(0)] == [OWNED, DELAY]
        assert len(engine.report(0).moved) == (2 if life == 0 else 0)


def test_a_fact_that_has_been_moved_counts_where_it_is_now() -> None:
    newer, gone = CentralStored("g", 4, "range", 200), DelayForgotten("d")
    log = MemoryGroupLog(1)
    log.append(0, encode([newer, gone]).groups, in_the_diary(OWNED, DELAY), 0)
    shard = Shard(Limits(), 0)
    assert replay_shard(log, 0, shard).moved == []
    assert shard.central_groups["g"].stored == newer
    assert "d" not in shard.ledgers


def test_kinds_of_records_that_are_not_kept_are_counted_by_kind() -> None:
    log = log_of(AT_10)
    log.append(0, [KeyValue(b"\x00\x04g", b""), KeyValue(b"\x00\x04h", b""), KeyValue(b"\x00\x09", None)], [], 0)
    report = replay_shard(log, 0, TinyShard(Limits(), 0))
    assert report.skipped == {"__consumer_offsets key type 4": 2, "__consumer_offsets key type 9": 1}


def test_a_log_full_of_damage_gives_a_short_report() -> None:
    log = MemoryGroupLog(1)
    log.append(
        0, [KeyValue(b"\x00\x02" + bytes([0, 9, number % 256, number // 256]), b"") for number in range(1_000)], [], 0
    )
    report = replay_shard(log, 0, TinyShard(Limits(), 0))
    assert report.malformed == 1_000
    assert len(report.complaints) == MAX_COMPLAINTS


def test_of_a_damaged_record_that_others_do_not_fit_without_the_tombstone_is_told_of_others_nothing() -> None:
    log = log_of(AT_10)
    of_operators = [SettingsUnset("g"), CanaryForgotten("g"), HoldsEnded("g")]
    several = [ConsumerMemberDeleted("g", "m"), TargetEpochDeleted("g"), *of_operators]
    whole = [*several, OffsetDeleted("g", "t", 1), GroupDeleted("c")]
    log.append(0, [record._replace(value=b"\x7f") for record in encode(whole).groups], [], 0)
    log.append(0, [KeyValue(b"\x00\x05\x00", b"\x7f")], [], 0)
    core = TinyShard(Limits(), 0)
    report = replay_shard(log, 0, core)
    assert report.malformed == 8
    assert report.damaged == several
    assert core.offsets == {("g", "t", 0): 10}
