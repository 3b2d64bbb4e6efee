"""What concerns many positions goes a slice in a turn, over all shards: others are answered in between."""

from typing import Any

from muster.coordinator.core.model.effects import OffsetFetchReply
from muster.coordinator.core.model.events import (
    DeleteGroup,
    ExpireOffsets,
    Loaded,
    OffsetCommit,
    OffsetFetch,
    TopicsChanged,
    Unload,
)
from muster.coordinator.core.model.records import OffsetsStored
from muster.coordinator.core.model.types import CommittedOffset, Limits, StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.kafka_records import encode
from tests.fakes.memory_group_log import MemoryGroupLog

SLICE, POSITIONS, SHARDS = 10, 95, 3
LIMITS = Limits(slice_positions=SLICE, offsets_retention_ms=1_000, offsets_retention_check_ms=5_000)


def engine_with_positions() -> Engine:
    engine = Engine(MemoryGroupLog(SHARDS), SHARDS, LIMITS)
    engine.submit_all(TopicsChanged({"t": POSITIONS}))
    engine.load(0)
    for shard in range(SHARDS):
        positions = {("t", number): CommittedOffset(1, -1) for number in range(POSITIONS)}
        engine.submit(shard, OffsetCommit(shard, f"g{shard}", "", None, -1, positions))
    answers = told(engine, 0)
    while engine.pending:  # what it decided is made bytes a portion in a turn, too
        answers += told(engine, 0)
    assert len(answers) == SHARDS
    return engine


def told(engine: Engine, now_ms: int) -> list[tuple[int, ErrorCode]]:
    """One turn, and the flush after it."""
    engine.turn(now_ms)
    while job := engine.flush_job():
        job.run()
        engine.flushed(job)
    return [(number, reply.code) for number, reply in engine.take_released().replies]


def kept(engine: Engine) -> int:
    total = 0
    for number in range(SHARDS):
        core = engine.core(number)
        assert isinstance(core, Shard)
        total += sum(len(positions) for positions in core.state.offsets.values())
    return total


def slices(engine: Engine, now_ms: int) -> list[int]:
    """How many positions each turn let go of, to the end; somebody asks in each, and is answered."""
    gone = []
    while engine.pending:
        before = kept(engine)
        number = 1_000 + len(gone)
        engine.submit(0, OffsetFetch(number, "nobody", (("t", 0),)))
        assert (number, ErrorCode.NONE) in told(engine, now_ms)
        gone.append(before - kept(engine))
    return gone


def test_expiry_lets_go_of_so_many_in_a_turn() -> None:
    engine = engine_with_positions()
    told(engine, 5_000)
    gone = slices(engine, 5_000)
    assert max(gone) <= SLICE
    assert kept(engine) == 0


def test_a_deleted_topic_is_forgotten_so_many_in_a_turn() -> None:
    engine = engine_with_positions()
    engine.submit_all(TopicsChanged({}, ("t",)))
    gone = slices(engine, 1)
    assert max(gone) <= SLICE
    assert kept(engine) == 0


def test_a_large_group_is_deleted_so_many_in_a_turn() -> None:
    engine = engine_with_positions()
    engine.submit(1, DeleteGroup(7, "g1"))
    before = kept(engine)
    assert told(engine, 1) == []
    assert before - kept(engine) <= 2 * SLICE  # the request's own step, and one more slice
    assert max(slices(engine, 1)) <= SLICE
    assert kept(engine) == before - POSITIONS


def test_what_a_load_drops_goes_so_many_in_a_turn_and_is_told_nobody() -> None:
    """Of topic t, which went while nobody listened; positions of u stay."""
    log = MemoryGroupLog(1)
    position = StoredOffset(5, -1, "", 0, None, b"1" * 16)
    places = {(topic, number): position for number in range(POSITIONS) for topic in ("t", "u")}
    log.append(0, encode([OffsetsStored("g", places)]).groups, [], 0)
    engine = Engine(log, 1, LIMITS)
    engine.submit_all(TopicsChanged({"u": POSITIONS}, ids={"u": b"1" * 16}))
    engine.load(0)
    core = engine.core(0)
    assert isinstance(core, Shard)
    kept = core.state.offsets["g"]
    assert len(kept) == 2 * POSITIONS
    assert engine.report(0).orphans.endswith(f"t ({POSITIONS})")
    gone, turns = [], 0
    while engine.pending:
        before, turns = len(kept), turns + 1
        engine.submit(0, OffsetFetch(turns, "g", None))
        engine.turn(turns)
        job = engine.flush_job()
        assert job is not None
        job.run()
        engine.flushed(job)
        ((_, told),) = engine.take_released().replies
        assert isinstance(told, OffsetFetchReply)
        assert {topic for topic, _ in told.offsets} == {"u"}
        gone.append(before - len(kept))
    assert sum(gone) == POSITIONS
    assert max(gone) <= SLICE
    assert turns == 2 * POSITIONS // SLICE  # it looks at so many, too


class Hidden(dict[Any, Any]):
    """Nobody may look at all of it."""

    def items(self) -> Any:
        raise AssertionError("somebody looks at every position")

    keys = values = __iter__ = items


def test_a_load_looks_at_no_position_in_the_loop() -> None:
    shard = Shard(LIMITS, 0)
    shard.step(TopicsChanged({"t": POSITIONS}), 0)
    shard.step(OffsetCommit(1, "g", "", None, -1, {("t", 0): CommittedOffset(1, -1)}), 0)
    topics = frozenset(shard.committed_to())
    shard.state.offsets["g"] = Hidden(shard.state.offsets["g"])
    assert shard.step(Loaded(topics=topics), 0).chores == []


def test_what_is_left_goes_with_the_shard() -> None:
    engine = engine_with_positions()
    engine.submit(1, DeleteGroup(7, "g1"))
    assert told(engine, 1) == []
    engine.submit(1, Unload())
    assert told(engine, 2) == [(7, ErrorCode.NOT_COORDINATOR)]
    engine.load_shard(1, 3)
    left = kept(engine)
    assert left > (SHARDS - 1) * POSITIONS
    while engine.pending:
        told(engine, 3)
    assert kept(engine) == left
    engine.submit(1, DeleteGroup(8, "g1"))
    answers = told(engine, 4)
    while engine.pending:
        answers += told(engine, 4)
    assert answers == [(8, ErrorCode.NONE)]


class Weighed(tuple[str, ...]):
    """Counts what is copied out of it."""

    copied = 0

    def __getitem__(self, at: Any) -> Any:
        part = super().__getitem__(at)
        Weighed.copied += len(part) if isinstance(at, slice) else 1
        return part


def test_a_slice_copies_no_list_for_each_of_its_groups() -> None:
    """Shards with tens of thousands of small groups: their ids were copied once for each that was looked at."""
    shard = Shard(LIMITS, 0)
    groups = Weighed(f"g{number}" for number in range(1_000))
    for group_id in groups:
        shard.step(OffsetCommit(1, group_id, "", None, -1, {("t", 0): CommittedOffset(1, -1)}), 0)
    Weighed.copied = 0
    (rest,) = shard.step(ExpireOffsets(groups), 0).chores
    assert isinstance(rest, ExpireOffsets)
    assert rest.groups == groups[SLICE // 2 :]
    assert Weighed.copied <= 2 * len(groups) + SLICE


def test_what_is_left_of_a_large_group_is_not_copied_for_each_slice() -> None:
    shard = Shard(LIMITS, 0)
    for number in range(POSITIONS):
        shard.step(OffsetCommit(1, "g", "", None, -1, {("t", number): CommittedOffset(1, -1)}), 0)
    (rest,) = shard.step(ExpireOffsets(("g",)), 0).chores
    assert isinstance(rest, ExpireOffsets)
    (next_rest,) = shard.step(rest, 0).chores
    assert isinstance(next_rest, ExpireOffsets)
    assert next_rest.places is rest.places
    assert (rest.begin, next_rest.begin) == (SLICE, 2 * SLICE)
