"""Requests about very many positions, and markers that end as many, are decided a slice in a turn: nobody sees half of
them, nothing overtakes them, and what they decided is kept as one."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count, pairwise

import pytest

from muster.coordinator.core.model.effects import Effects, OffsetFetchReply, Reply, TxnOffsetCommitReply
from muster.coordinator.core.model.events import (
    NO_PRODUCER,
    Event,
    Forget,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    TopicsChanged,
    TxnEnded,
    TxnMarkerRead,
    TxnOffsetCommit,
    TxnOffsetsWritten,
    TxnWriteOver,
    Unload,
)
from muster.coordinator.core.model.types import CommittedOffset, Limits, Protocol, StoredOffset
from muster.coordinator.core.requests.committed_offsets import COMMITTED_SLICES
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime import shards
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.replay import replay_shard
from muster.coordinator.runtime.shards import ShardStatus
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.sim.checkers.replay import what_waits

SLICE = 5
AT_ONCE = COMMITTED_SLICES * SLICE
MANY = 4 * AT_ONCE + 3
SLICES = 5
NONE = ErrorCode.NONE
ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER}


class LoadedShard:
    """One shard of an engine on a log in memory, and what was told."""

    def __init__(self, *, slice_positions: int = SLICE, inbox_limit: int = 1_000) -> None:
        self.log = MemoryGroupLog(1)
        self.bugs: list[str] = []
        self.replies: list[tuple[int, Reply]] = []
        options = EngineOptions(on_bug=lambda event, error: self.bugs.append(repr(error)), inbox_limit=inbox_limit)
        limits = Limits(slice_positions=slice_positions, initial_rebalance_delay_ms=0, max_offset_metadata=10)
        self.engine = Engine(self.log, 1, limits, options=options)
        self.engine.submit_all(TopicsChanged({"t": MANY}))
        self.engine.load(0)
        self.settle()
        self.numbers = count(1)

    def submit(self, *events: Event) -> None:
        for event in events:
            assert self.engine.submit(0, event)

    def turn(self, now_ms: int = 0) -> list[int]:
        """One turn and the flushes after it: who was answered."""
        self.engine.turn(now_ms)
        while job := self.engine.flush_job():
            job.run()
            self.engine.flushed(job)
        replies = self.engine.take_released().replies
        self.replies += replies
        return [number for number, _ in replies]

    def settle(self) -> list[int]:
        heard = []
        while self.engine.pending:
            heard += self.turn()
        return heard

    def asked(self, *events: Event) -> list[ErrorCode]:
        self.submit(*events)
        told = self.settle()
        codes = dict(self.replies)
        return [codes[number].code for number in told]

    def plain(self, positions: int = MANY, offset: int = 1, group_id: str = "g", metadata: str = "") -> OffsetCommit:
        return OffsetCommit(next(self.numbers), group_id, "", None, -1, places(positions, offset, metadata))

    def sent(self, positions: int = MANY, offset: int = 1, group_id: str = "g", producer: int = 50) -> TxnOffsetCommit:
        return TxnOffsetCommit(next(self.numbers), group_id, "", None, -1, places(positions, offset), producer, 0)

    def end(self, *, commit: bool = True, producer: int = 50) -> TxnEnded:
        return TxnEnded(next(self.numbers), producer, 0, commit, 0)

    def fetch(self, group_id: str = "g") -> OffsetFetch:
        return OffsetFetch(next(self.numbers), group_id, None, True)

    @property
    def core(self) -> Shard:
        core = self.engine.core(0)
        assert isinstance(core, Shard)
        return core

    def committed(self, group_id: str = "g") -> list[int]:
        """The different offsets that it has."""
        return sorted({value.offset for value in self.core.state.offsets.get(group_id, {}).values()})

    def fetched(self, asked: OffsetFetch) -> OffsetFetchReply:
        (reply,) = (reply for number, reply in self.replies if number == asked.request_id)
        assert isinstance(reply, OffsetFetchReply)
        return reply

    def replayed(self) -> Shard:
        again = Shard(Limits(), 0)
        replay_shard(self.log, 0, again)
        return again


def places(positions: int, offset: int, metadata: str = "") -> Mapping[tuple[str, int], CommittedOffset]:
    return {("t", number): CommittedOffset(offset, -1, metadata) for number in range(positions)}


Ask = Callable[[LoadedShard], OffsetCommit | TxnOffsetCommit | TxnEnded]


def marker(shard: LoadedShard) -> TxnEnded:
    assert shard.asked(shard.sent()) == [NONE]
    return shard.end()


LONG: list[Ask] = [LoadedShard.plain, LoadedShard.sent, marker]
parametrize_long = pytest.mark.parametrize("ask", LONG, ids=["commit", "in a transaction", "marker"])


@parametrize_long
def test_a_slice_of_it_is_done_in_a_turn(ask: Ask) -> None:
    shard = LoadedShard()
    looked: list[int] = []
    honest = shard.core.step

    class Slices(Shard):
        def step(self, event: Event, now_ms: int) -> Effects:
            before = self.kept()
            effects = honest(event, now_ms)
            looked.append(max(after - each for each, after in zip(before, self.kept(), strict=True)))
            return effects

        def kept(self) -> tuple[int, int]:
            return len(what_waits(self)), len(self.state.offsets.get("g", {}))

    request = ask(shard)
    appends = shard.log.appends
    slots = shard.engine._slots  # the core is exchanged under way
    core = Slices(Limits(), 0)
    core.state = shard.core.state
    slots[0].core = core
    shard.submit(request)
    heard = [shard.turn() for _ in range(SLICES)]
    assert heard == [[]] * SLICES, "nothing is told before all is durable"
    assert max(looked) == AT_ONCE
    assert shard.log.appends == appends
    assert shard.settle() == [request.request_id]
    assert shard.bugs == []


@parametrize_long
def test_it_comes_to_the_same_as_at_once(ask: Ask) -> None:
    results = []
    for slice_positions in (1, 3, SLICE, 1_000):
        shard = LoadedShard(slice_positions=slice_positions)
        assert shard.asked(ask(shard)) == [NONE]
        again = shard.replayed()
        assert again.state.offsets == shard.core.state.offsets
        assert what_waits(again) == what_waits(shard.core)
        results.append((dict(shard.core.state.offsets), what_waits(shard.core), list(shard.log.groups[0].read())))
    assert results[1:] == results[:-1]


@parametrize_long
def test_what_comes_meanwhile_waits_in_its_order_and_sees_all_of_it(ask: Ask) -> None:
    shard = LoadedShard()
    request = ask(shard)
    shard.submit(request)
    looks: list[OffsetFetch] = []
    while not (heard := shard.turn()):
        looks.append(shard.fetch())
        shard.submit(looks[-1])
    later = shard.plain(3, 7)
    shard.submit(later)
    heard += shard.settle()
    assert heard == [request.request_id, *(look.request_id for look in looks), later.request_id]
    assert len(looks) >= SLICES
    answers = [shard.fetched(look) for look in looks]
    assert {len(each.offsets) + len(each.refused) for each in answers} <= {0, MANY, 2 * MANY}
    assert answers.count(answers[0]) == len(looks)
    assert shard.bugs == []


def test_other_shards_go_on_meanwhile() -> None:
    log = MemoryGroupLog(2)
    engine = Engine(log, 2, Limits(slice_positions=SLICE))
    engine.load(0)
    engine.submit(0, OffsetCommit(1, "g", "", None, -1, places(MANY, 1)))
    for number in range(2, 2 + SLICES):
        engine.submit(1, OffsetFetch(number, "h", None))
        engine.turn(0)
        assert [told for told, _ in engine.take_released().replies] == [number]
    assert engine.pending


@parametrize_long
def test_a_heartbeat_takes_no_short_way_past_it(ask: Ask) -> None:
    class Alive(Shard):
        def beat(self, *_: object) -> bool:
            return True

    shard = LoadedShard()
    request = ask(shard)
    slots = shard.engine._slots  # the core is exchanged under way
    core = Alive(Limits(), 0)
    core.state = shard.core.state
    slots[0].core = core
    assert shard.engine.beat(0, "g", "m", 1, 0)
    shard.submit(request)
    shard.turn()
    assert shard.engine.defers(0)
    assert not shard.engine.beat(0, "g", "m", 1, 0)
    shard.settle()
    assert not shard.engine.defers(0)
    assert shard.engine.beat(0, "g", "m", 1, 0)


@pytest.mark.parametrize("turns", range(1, SLICES))
@parametrize_long
def test_a_shard_that_goes_in_between_has_kept_nothing_of_it(ask: Ask, turns: int) -> None:
    shard = LoadedShard()
    request = ask(shard)
    before = list(shard.log.groups[0].read())
    shard.submit(request)
    for _ in range(turns):
        shard.turn()
    behind = shard.fetch()
    shard.submit(behind, Unload())
    assert set(shard.asked()) <= ELSEWHERE
    assert len(shard.replies) >= 2
    assert list(shard.log.groups[0].read()) == before
    shard.engine.load_shard(0, 0)
    shard.settle()
    assert shard.engine.status(0) is ShardStatus.ACTIVE
    assert shard.asked(ask(shard)) == [NONE], "it takes the next one"


@parametrize_long
def test_a_bug_in_a_later_slice_drops_all_of_it(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = LoadedShard()
    request = ask(shard)
    before = list(shard.log.groups[0].read())
    shard.submit(request)
    shard.turn()
    shard.turn()
    monkeypatch.setattr(type(shard.core.state.long_work), "go_on", lambda *_: 1 // 0)
    behind = shard.fetch()
    shard.submit(behind)
    assert set(shard.asked()) <= ELSEWHERE
    assert len(shard.bugs) == 1
    assert list(shard.log.groups[0].read()) == before
    monkeypatch.undo()
    assert shard.engine.status(0) is ShardStatus.ACTIVE
    assert shard.asked(shard.plain(offset=9)) == [NONE]
    assert shard.committed() == [9]


# Over a Kafka: others write, and read the markers
# ------------------------------------------------


def allowed(shard: LoadedShard, positions: int = MANY, offset: int = 1) -> TxnOffsetsWritten:
    """What is written of a commit that was allowed."""
    request = shard.sent(positions, offset, producer=NO_PRODUCER)
    assert shard.asked(request) == [NONE]
    (reply,) = (reply for number, reply in shard.replies if number == request.request_id)
    assert isinstance(reply, TxnOffsetCommitReply)
    return TxnOffsetsWritten(50, 0, "g", reply.kept, offset * 1_000)


def looked_at(shard: LoadedShard, event: Event) -> list[int]:
    """How many positions each step of the event moved; the shard keeps no record of any."""
    moved: list[int] = []
    honest = shard.core.step

    class Slices(Shard):
        def step(self, event: Event, now_ms: int) -> Effects:
            before = self.known()
            effects = honest(event, now_ms)
            moved.append(max(abs(after - each) for each, after in zip(before, self.known(), strict=True)))
            return effects

        def known(self) -> tuple[int, int]:
            return len(what_waits(self)), len(self.state.offsets.get("g", {}))

    core = Slices(Limits(), 0)
    core.state = shard.core.state
    shard.engine._slots[0].core = core  # the core is exchanged under way
    appends = shard.log.appends
    shard.submit(event)
    shard.settle()
    assert shard.log.appends == appends
    assert shard.bugs == []
    return moved


def test_what_others_may_write_is_judged_a_slice_in_a_turn() -> None:
    shard = LoadedShard()
    request, look = shard.sent(producer=NO_PRODUCER), shard.fetch()
    shard.submit(request, look)
    assert [shard.turn() for _ in range(SLICES - 1)] == [[]] * (SLICES - 1)
    assert shard.settle() == [request.request_id, look.request_id]
    (reply,) = (reply for number, reply in shard.replies if number == request.request_id)
    assert isinstance(reply, TxnOffsetCommitReply)
    assert list(reply.kept or ()) == list(request.offsets)
    assert shard.log.appends == 0
    assert shard.core.state.pending.unstable("g") == request.offsets.keys(), "it may be in the log any moment"
    assert shard.asked(TxnWriteOver(next(shard.numbers), "g", request.request_id)) == [NONE]
    assert shard.core.state.pending.unstable("g") == set()


def test_a_part_of_it_that_may_not_be_written_is_told_with_the_rest() -> None:
    shard = LoadedShard()
    offsets = {**places(MANY, 1), ("t", AT_ONCE + 1): CommittedOffset(1, -1, "x" * 11)}
    request = TxnOffsetCommit(next(shard.numbers), "g", "", None, -1, offsets)
    assert shard.asked(request) == [NONE]
    (reply,) = (reply for number, reply in shard.replies if number == request.request_id)
    assert isinstance(reply, TxnOffsetCommitReply)
    assert reply.partitions == {("t", AT_ONCE + 1): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert len(reply.kept or ()) == MANY - 1


def test_what_others_have_written_waits_and_comes_to_count_a_slice_in_a_turn() -> None:
    shard = LoadedShard()
    written = allowed(shard)
    assert looked_at(shard, written) == [0, *[AT_ONCE] * (SLICES - 1), MANY % AT_ONCE, 0]
    (waiting,) = shard.core.state.pending.of[50].values()
    assert waiting.at == {place: written.at + number for number, place in enumerate(written.offsets)}
    assert looked_at(shard, TxnMarkerRead(50, 0, True, None, 9_000)) == [0, *[AT_ONCE] * (SLICES - 1), 3, 0]
    assert (shard.committed(), len(shard.core.state.offsets["g"]), shard.core.state.pending.of) == ([1], MANY, {})
    assert shard.core.state.commit_counts == {"g": MANY}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_a_marker_that_was_read_comes_to_the_same_as_at_once(commit: bool, seed: int) -> None:
    """With a later transaction behind the marker, plain commits between them, and keys that count no more."""
    results = []
    for slice_positions in (1, 3, 1_000):
        rng = random.Random(seed)
        shard = LoadedShard(slice_positions=slice_positions)
        for offset in (1, 2, 3):  # the third is of the producer's next transaction
            some = rng.sample(range(MANY), rng.choice((2, MANY)))
            kept = {("t", number): StoredOffset(offset, -1, "", 0) for number in some}
            shard.submit(TxnOffsetsWritten(50, 0, "gh"[rng.randrange(2)], kept, offset * 1_000))
            shard.submit(TxnOffsetsWritten(51, 0, "g", kept, offset * 1_000 + 500))
            shard.asked(shard.plain(rng.randrange(9), 90 + offset))
        counts = frozenset((group, "t", number) for group in "gh" for number in range(MANY) if rng.random() < 0.7)
        shard.submit(TxnMarkerRead(50, 0, commit, rng.choice((None, counts)), 3_000))
        shard.settle()
        pending = shard.core.state.pending
        waits = {
            (producer, group): (each.values, each.at, each.earlier)
            for producer, groups in pending.of.items()
            for group, each in groups.items()
        }
        results.append((dict(shard.core.state.offsets), waits, len(pending), dict(shard.core.state.commit_counts)))
        assert shard.bugs == []
    assert results[1:] == results[:-1]


def test_nothing_overtakes_a_marker_that_waits_for_a_draft() -> None:
    shard = LoadedShard()
    sent, end, plain, look = shard.sent(), shard.end(), shard.plain(1, 9), shard.fetch()
    shard.submit(sent, end, plain, look)
    assert shard.settle() == [sent.request_id, end.request_id, plain.request_id, look.request_id]
    assert shard.committed() == [1, 9]
    assert shard.fetched(look).refused == {}


def test_positions_that_are_refused_are_told_in_the_end() -> None:
    shard = LoadedShard()
    request = shard.plain(metadata="m" * 11)
    for number in (0, MANY - 1):
        assert isinstance(request.offsets, dict)
        request.offsets["t", number] = CommittedOffset(5, -1, "short")
    shard.submit(request)
    shard.settle()
    ((number, reply),) = shard.replies
    assert (number, reply.code) == (request.request_id, NONE)
    assert getattr(reply, "partitions") == dict.fromkeys(  # noqa: B009  # of whichever reply
        [("t", each) for each in range(1, MANY - 1)], ErrorCode.OFFSET_METADATA_TOO_LARGE
    )
    assert shard.committed() == [5]


def test_one_of_which_every_position_is_refused_writes_nothing_and_lets_others_go_on() -> None:
    shard = LoadedShard()
    assert shard.asked(shard.plain(metadata="m" * 11), shard.plain(1, 3)) == [NONE, NONE]
    assert shard.committed() == [3]
    assert not shard.engine.pending


def test_an_operator_is_told_of_in_one_entry_with_all_positions() -> None:
    told = []
    for slice_positions in (SLICE, 1_000):
        shard = LoadedShard(slice_positions=slice_positions)
        for offset, positions in ((1, 3), (2, MANY), (2, MANY - 1), (3, MANY)):
            commit = shard.plain(positions, offset)
            by_hand = replace(commit, operator="somebody", by_tool=True)
            assert shard.asked(by_hand) == [NONE]
        ledger = shard.core.state.ledgers["g"]
        told.append([(each.detail, each.positions, each.more_positions) for each in ledger.entries.values()])
    assert told[0] == told[1]
    assert len(told[0]) == 1


def test_members_whose_session_ends_meanwhile_are_heard_first() -> None:
    shard = LoadedShard()
    next(shard.numbers)
    protocols = (Protocol("range", b""),)
    join = JoinGroup(1, "members", "", None, "c", "h", 6_000, 60_000, "consumer", protocols, "f", "", False)
    shard.submit(join)
    shard.settle()
    (key,) = (key for key in shard.core.deadlines if key[0] == "session")
    due_ms = shard.core.deadlines[key]
    shard.submit(shard.plain())
    shard.turn(due_ms - 2)
    shard.turn(due_ms + 1)
    assert key in shard.core.deadlines, "it came due, and waits"
    shard.engine.stood_still(0, due_ms + 1)
    shard.engine.move_deadlines(10, due_ms + 1)
    while shard.engine.pending:
        shard.turn(due_ms + 2)
    assert shard.core.deadlines[key] == due_ms + 10
    shard.turn(due_ms + 11)
    assert key not in shard.core.deadlines


def test_who_goes_away_leaves_no_trace() -> None:
    shard = LoadedShard()
    request = shard.plain()
    shard.submit(request)
    shard.turn()
    behind = shard.fetch()
    shard.submit(behind, Forget("g", request.request_id), Forget("g", behind.request_id))
    assert shard.settle() == []
    assert shard.committed() == [1], "it was under way"


def test_what_waits_counts_against_the_limit_of_what_may() -> None:
    shard = LoadedShard(inbox_limit=5)
    shard.submit(shard.plain())
    shard.turn()
    shard.submit(*(shard.fetch() for _ in range(3)))
    shard.turn()
    shard.submit(*(shard.fetch() for _ in range(2)))
    late = shard.fetch()
    assert not shard.engine.submit(0, late)
    assert shard.engine.metrics.refused == 1
    shard.settle()
    shard.submit(shard.fetch())


# What is larger than Kafka takes
# -------------------------------


def batches(shard: LoadedShard) -> list[int]:
    return [len(getattr(batch[0], "records", batch)) for batch in shard.log.groups[0].batches]


@pytest.mark.parametrize("ask", LONG[:2], ids=["commit", "in a transaction"])
def test_a_larger_commit_than_kafka_takes_is_several_batches(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = LoadedShard()
    whole.asked(ask(whole))
    assert batches(whole) == [MANY]
    monkeypatch.setattr(shards, "WHOLE_BYTES", 1)
    shard = LoadedShard()
    request = ask(shard)
    shard.submit(request)
    seen: list[list[int]] = []
    while not shard.turn():
        seen.append(batches(shard))
    assert batches(shard) == [AT_ONCE] * (SLICES - 1) + [MANY % AT_ONCE]
    assert max(len(after) - len(before) for before, after in pairwise(seen)) == 1, "a part in a turn"
    assert [item for batch in shard.log.groups[0].batches for item in batch] != []
    assert shard.replayed().state.offsets == shard.core.state.offsets
    assert what_waits(shard.replayed()) == what_waits(shard.core)


def test_small_facts_are_never_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "WHOLE_BYTES", 1)
    shard = LoadedShard()
    commits = [shard.plain(AT_ONCE - 1, 2, f"g{number}") for number in range(4)]
    assert shard.asked(*commits) == [NONE] * 4
    assert batches(shard) == [4 * (AT_ONCE - 1)]


def test_a_part_that_fails_drops_the_shard_and_the_log_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "WHOLE_BYTES", 1)
    shard = LoadedShard()
    shard.log.failing_appends = {shard.log.appends + 2}
    assert shard.asked(shard.plain()) == [ErrorCode.NOT_COORDINATOR]
    assert shard.engine.status(0) is ShardStatus.ACTIVE
    assert len(shard.core.state.offsets["g"]) == AT_ONCE, "whole records, as they are in the log"
    assert shard.replayed().state.offsets == shard.core.state.offsets
