"""What a turn decides is made bytes so many entries at a time: others have their turns in between, in one append."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event, OffsetCommit, OffsetFetch, Request, TopicsChanged, Unload
from muster.coordinator.core.model.records import (
    CentralOwner,
    CentralStored,
    GroupDeleted,
    OffsetDeleted,
    OffsetsStored,
    RebalanceDecided,
    RebalanceSettled,
    Record,
)
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import (
    Cause,
    CommittedOffset,
    Limits,
    MemberPlan,
    Outcome,
    PartitionMove,
    RebalanceEntry,
    Settlement,
    StoredOffset,
)
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime import group_log, shards
from muster.coordinator.runtime.engine import NO_OPTIONS, WRITTEN_SLICES, Engine, EngineOptions
from muster.coordinator.runtime.kafka_records import EncodedTurn, encode
from muster.coordinator.runtime.shards import GROUPS, AppendDraft, ShardStatus, split_into_portions
from muster.storage.records.batch import encode_turn
from tests.fakes.memory_group_log import MemoryGroupLog

SHARDS, SLICE = 2, 5
AT_ONCE = WRITTEN_SLICES * SLICE
MANY = 4 * AT_ONCE + 3
TURNS = 5
"""Portions of so many."""


def engine_of(log: MemoryGroupLog, options: EngineOptions = NO_OPTIONS) -> Engine:
    engine = Engine(log, SHARDS, Limits(slice_positions=SLICE), options=options)
    engine.submit_all(TopicsChanged({"t": MANY}))
    engine.load(0)
    return engine


def commit(number: int, group_id: str, positions: int, offset: int = 1) -> OffsetCommit:
    found = {("t", partition): CommittedOffset(offset, -1) for partition in range(positions)}
    return OffsetCommit(number, group_id, "", None, -1, found)


def told(engine: Engine, now_ms: int = 0) -> list[tuple[int, ErrorCode]]:
    """One turn, and the flushes after it."""
    engine.turn(now_ms)
    while job := engine.flush_job():
        job.run()
        engine.flushed(job)
    return [(number, reply.code) for number, reply in engine.take_released().replies]


def decide(engine: Engine) -> None:
    """All slices of a long commit; it is still to be written then."""
    for _ in range(TURNS):
        assert told(engine) == []


def written(log: MemoryGroupLog, shard: int) -> list[int]:
    """How many records each append of the shard brought."""
    return [len(batch) for batch in log.groups[shard].batches]


def test_a_long_commit_is_written_a_portion_in_a_turn_and_appended_as_one() -> None:
    encoded: list[int] = []

    def counting(records: Sequence[Record]) -> EncodedTurn:
        found = encode(records)
        encoded.append(len(found.groups))
        return found

    log = MemoryGroupLog(SHARDS)
    engine = engine_of(log, EngineOptions(kind=replace(GROUPS, encode=counting)))
    engine.submit(0, commit(1, "g", MANY))
    others = 0
    while not (answers := told(engine)) or (1, ErrorCode.NONE) not in answers:
        assert engine.pending
        assert written(log, 0) == []
        others += 1
        engine.submit(1, OffsetFetch(100 + others, "nobody", (("t", 0),)))
    assert encoded == [AT_ONCE] * (TURNS - 1) + [MANY % AT_ONCE]
    assert others == TURNS + TURNS  # what it decides it decides in slices as large; the append has a turn of its own
    assert written(log, 0) == [MANY]
    assert not engine.pending


def test_what_comes_behind_a_long_commit_is_in_the_log_and_answered_behind_it() -> None:
    log = MemoryGroupLog(SHARDS)
    engine = engine_of(log)
    engine.submit(0, commit(1, "g", MANY, 1))
    assert told(engine) == []
    later: list[Request] = [
        commit(2, "g", 3, 2),
        OffsetFetch(3, "g", (("t", 0),)),
        commit(4, "h", 2),
        commit(5, "g", MANY, 3),
    ]
    for event in later:
        engine.submit(0, event)
        assert told(engine) == []
    answers = []
    while engine.pending:
        answers += told(engine)
    assert [number for number, _ in answers] == [1, 2, 3, 4, 5]
    assert written(log, 0) == [MANY, 3 + 2 + MANY]


def test_nobody_is_told_of_what_is_still_to_be_written() -> None:
    log = MemoryGroupLog(SHARDS)
    engine = engine_of(log)
    engine.submit(0, commit(1, "g", MANY))
    assert told(engine) == []
    engine.submit(0, OffsetFetch(2, "g", (("t", 0),)))
    assert told(engine) == []  # it would tell a position that a crash could undo
    engine.submit(0, commit(3, "h", MANY))
    answers: list[tuple[int, ErrorCode]] = []
    while not written(log, 0):
        assert answers == []
        answers += told(engine)
    assert [number for number, _ in answers] == [1, 2]
    while engine.pending:
        answers += told(engine)
    assert [number for number, _ in answers] == [1, 2, 3]


def test_long_commits_of_two_shards_go_on_by_turns() -> None:
    log = MemoryGroupLog(SHARDS)
    engine = engine_of(log)
    for shard in range(SHARDS):
        engine.submit(shard, commit(shard, f"g{shard}", MANY))
    turns = 0
    while engine.pending:
        turns += 1
        told(engine)
    assert [written(log, shard) for shard in range(SHARDS)] == [[MANY]] * SHARDS
    assert turns == SHARDS * TURNS - 1 + SHARDS * (TURNS + 1)


class Alive(Shard):
    """All is well with whoever beats."""

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        return True


def test_a_heartbeat_takes_no_short_way_past_a_draft() -> None:
    engine = Engine(MemoryGroupLog(SHARDS), SHARDS, Limits(slice_positions=SLICE), Alive)
    engine.load(0)
    engine.submit(0, commit(1, "g", MANY))
    assert told(engine) == []
    assert not engine.beat(0, "g", "m", 1, 0)
    while engine.pending:
        told(engine)
    assert engine.beat(0, "g", "m", 1, 0)


def test_an_append_that_fails_in_the_end_takes_all_along_that_was_decided_since() -> None:
    log = MemoryGroupLog(SHARDS)
    engine = engine_of(log)
    engine.submit(0, commit(1, "g", MANY))
    decide(engine)
    engine.submit(0, commit(2, "h", 1))
    log.failing_appends = {1}
    answers = []
    while engine.pending:
        answers += told(engine)
    assert sorted(answers) == [(1, ErrorCode.NOT_COORDINATOR), (2, ErrorCode.NOT_COORDINATOR)]
    assert engine.status(0) is ShardStatus.ACTIVE  # it was loaded again
    core = engine.core(0)
    assert isinstance(core, Shard)
    assert core.state.offsets == {}
    assert written(log, 0) == []


def test_a_record_without_bytes_ends_a_draft_and_its_shard_falls() -> None:
    bugs: list[str] = []
    log = MemoryGroupLog(SHARDS)
    engine = Engine(
        log,
        SHARDS,
        Limits(slice_positions=SLICE),
        options=EngineOptions(on_bug=lambda event, error: bugs.append(str(error))),
    )
    engine.load(0)
    lone = {("t", MANY): CommittedOffset(1, -1, "\ud800")}
    event = commit(1, "g", MANY)
    engine.submit(0, OffsetCommit(1, "g", "", None, -1, {**event.offsets, **lone}))
    answers = []
    while engine.pending:
        answers += told(engine)
    assert answers == [(1, ErrorCode.NOT_COORDINATOR)]
    assert len(bugs) == 1
    assert written(log, 0) == []


def test_what_was_decided_before_a_shard_went_is_kept_and_told() -> None:
    log = MemoryGroupLog(SHARDS)
    engine = engine_of(log)
    engine.submit(0, commit(1, "g", MANY))
    decide(engine)
    engine.submit(0, Unload())
    answers = []
    while engine.pending:
        answers += told(engine)
    assert answers == [(1, ErrorCode.NONE)]
    assert written(log, 0) == [MANY]


def test_a_shard_that_is_loaded_again_reads_what_it_had_still_to_write() -> None:
    log = MemoryGroupLog(SHARDS)
    engine = engine_of(log)
    engine.submit(0, commit(1, "g", MANY))
    decide(engine)
    engine.submit(0, commit(2, "h", 3))
    assert told(engine) == []
    engine.submit(0, Unload())
    told(engine)
    engine.load_shard(0, 0)
    core = engine.core(0)
    assert isinstance(core, Shard)
    assert {group: len(kept) for group, kept in core.state.offsets.items()} == {"g": MANY, "h": 3}
    assert told(engine) == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]


def test_portions_are_all_there_is_in_its_order() -> None:
    value = StoredOffset(1, -1, "", 0)

    def stored(group_id: str, places: range) -> OffsetsStored:
        return OffsetsStored(group_id, {("t", place): value for place in places})

    records: list[Record] = [
        stored("a", range(3)),
        OffsetDeleted("a", "t", 0),
        stored("b", range(12)),
        GroupDeleted("c"),
        *(OffsetDeleted("d", "t", place) for place in range(7)),
    ]
    found = list(split_into_portions(records, 5))
    assert [encode(portion).groups for portion in found] == [
        encode(some).groups
        for some in (
            records[:2],
            [stored("b", range(5))],
            [stored("b", range(5, 10))],
            [stored("b", range(10, 12)), *records[3:6]],
            records[6:],
        )
    ]


def test_a_draft_is_the_batch_that_would_have_been_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = Shard(Limits(), 0).step(commit(1, "g", 300), 7).records
    draft = AppendDraft([record], 64, group_log.FramedEntries)
    while draft.write_on():
        pass
    whole = encode([record]).groups
    ((writer, groups),) = draft.parts
    assert (writer, groups) == (None, whole)
    at_once = encode_turn(whole, 7)
    several = list(group_log.encode_batches(whole, 7, len(at_once) - 1))
    assert list(group_log.encode_batches(groups, 7, len(at_once) - 1)) == several
    monkeypatch.setattr(group_log, "encode_turn", None)  # nothing is made twice
    assert list(group_log.encode_batches(groups, 7)) == [at_once]


def long_records(rows: int) -> list[Record]:
    """A rebalance of a central group, its ownership and its end, each with so many rows."""
    members = tuple(MemberPlan(f"m{n}", "c", "h", None, (("t", (n,)),)) for n in range(rows // 2))
    moves = tuple(PartitionMove("t", n, "", f"m{n}", -1, "it joined") for n in range(rows - len(members)))
    entry = RebalanceEntry(
        1, 0, 1, "consumer", "range", Cause.MEMBER_JOINED, "m", "c", "h", "m joined", "", Outcome.COMPLETED, 5, 9,
        members=members, moves=moves, snapshot_json="{}",
    )  # fmt: skip
    synced = tuple((f"m{n}", 8) for n in range(rows // 2))
    unowned = tuple(("t", n, 3) for n in range(rows - len(synced)))
    return [
        RebalanceDecided("g", entry),
        CentralStored(
            "g", 1, "range", 9, tuple(CentralOwner(f"m{n}", "c", "h", 9, ("t",), "", ()) for n in range(rows))
        ),
        RebalanceSettled("g", Settlement(1, 9, ("m",), unowned, 3, synced)),
    ]


class Rows(tuple[object, ...]):
    """Rows of a record; each part that is taken of them is noted."""

    taken: ClassVar[list[int]] = []

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            self.taken.append(len(found))
        return found


def with_noted_rows(record: Record) -> Record:
    if isinstance(record, RebalanceDecided):
        entry = record.entry
        return replace(record, entry=replace(entry, members=Rows(entry.members), moves=Rows(entry.moves)))
    if isinstance(record, RebalanceSettled):
        found = record.settlement
        return replace(record, settlement=replace(found, unowned=Rows(found.unowned), synced=Rows(found.synced)))
    assert isinstance(record, CentralStored)
    return replace(record, owners=Rows(record.owners))


@pytest.mark.parametrize("number", range(3))
def test_a_record_of_very_many_rows_is_made_so_many_rows_at_a_time(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are those of one piece."""
    monkeypatch.setattr(shards, "ROWS_AT_ONCE", AT_ONCE)
    record = long_records(MANY)[number]
    draft = AppendDraft([with_noted_rows(record)], AT_ONCE, group_log.FramedEntries)
    Rows.taken.clear()
    rows_in_turn = []
    while draft.write_on():
        rows_in_turn.append(sum(Rows.taken))
        Rows.taken.clear()
    assert max(rows_in_turn) == AT_ONCE
    assert sum(rows_in_turn) == MANY
    whole = encode([record])
    assert ([*draft.parts[0].groups], draft.ledger) == (whole.groups, whole.ledger)
    assert list(group_log.encode_batches(draft.ledger, 7)) == [encode_turn(some, 7) for some in (whole.ledger,) if some]


def test_what_a_rebalance_of_thousands_decides_is_one_append_of_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other shards have turns in between, and nobody is told before all is in the log."""
    monkeypatch.setattr(shards, "ROWS_AT_ONCE", AT_ONCE)
    records = long_records(MANY)

    class Decider(Shard):
        def step(self, event: Event, now_ms: int) -> Effects:
            effects = super().step(event, now_ms)
            if isinstance(event, OffsetFetch) and event.request_id == 1:
                effects.records += records
            return effects

    log = MemoryGroupLog(SHARDS)
    engine = Engine(log, SHARDS, Limits(slice_positions=SLICE), Decider)
    engine.submit_all(TopicsChanged({"t": MANY}))
    engine.load(0)
    appends = log.appends
    engine.submit(0, OffsetFetch(1, "g", (("t", 0),)))
    turns = 0
    while not (answers := told(engine)):
        turns += 1
        assert log.appends == appends
        assert engine.pending
    assert answers == [(1, ErrorCode.NONE)]
    assert log.appends == appends + 1
    assert turns > 3 * MANY // AT_ONCE
    whole = encode(records)
    assert [(each.key, each.value) for each in log.read_groups(0)] == [(each.key, each.value) for each in whole.groups]
    assert [(each.key, each.value) for each in log.read_ledger(0)] == [(each.key, each.value) for each in whole.ledger]
