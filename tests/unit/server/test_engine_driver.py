"""The driver answers, parks, forgets, flushes once for many, and closes in order.

Real engine, real shard; the log is kept in memory and flushes when the test says so.
"""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import CommittedOffset, Limits, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import Entry, KeyValue, LogFailed, LogWithoutTransactions
from muster.coordinator.server.driver.clock import STALL_MS, NodeClock
from muster.coordinator.server.driver.driver import (
    MIDDLE_GENERATION,
    REPLIES_BETWEEN_COLLECTIONS,
    DriverCallbacks,
    DriverLimits,
    EngineDriver,
)
from tests.support.pace import pace

PATIENCE_S = 20


class JumpingClock(NodeClock):
    """To who reads it, a jump is what a frozen process sees: time went by, and nothing was done in it."""

    jumped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jumped_ms


class GatedLog(LogWithoutTransactions):
    """Keeps records in memory; a flush lasts until the gate is open, and fails when told to."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.flushes: list[list[int]] = []
        self.records: list[KeyValue] = []
        self.grown = asyncio.Event()

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        self.records.extend(map(KeyValue._make, groups))
        self.grown.set()

    async def holds(self, count: int) -> None:
        """Return once so many group records have been appended, durable or not."""
        while len(self.records) < count:
            self.grown.clear()
            await self.grown.wait()

    def flush(self, shards: Sequence[int]) -> None:
        assert self.gate.wait(PATIENCE_S), "the test never opened the gate"
        self.flushes.append(list(shards))
        if self.failure is not None:
            raise self.failure

    def read_groups(self, shard: int) -> Iterator[KeyValue]:
        return iter(self.records)

    def read_ledger(self, shard: int) -> Iterator[KeyValue]:
        return iter(())


@dataclass
class Bench:
    """A driver over one shard, and what it reported."""

    log: GatedLog = field(default_factory=GatedLog)
    notices: list[effects.GroupChanged] = field(default_factory=list)
    fatal: list[BaseException] = field(default_factory=list)
    limits: Limits = field(default_factory=lambda: Limits(initial_rebalance_delay_ms=0))
    max_parked: int = 10
    clock: JumpingClock = field(default_factory=JumpingClock)
    stalls: list[int] = field(default_factory=list)
    stalled: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> EngineDriver:
        self.engine = Engine(self.log, 1, self.limits, Shard)
        self.engine.load(self.clock.now_ms())
        self.driver = EngineDriver(
            self.engine,
            self.clock,
            DriverLimits(max_parked=self.max_parked),
            DriverCallbacks(on_notice=self.notices.append, on_fatal=self.fatal.append, on_stall=self.on_stall),
        )
        return self.driver

    def on_stall(self, stalled_ms: int, _computing_ms: int) -> None:
        self.stalls.append(stalled_ms)
        self.stalled.set()

    def join(self, member_id: str = "", **more: Any) -> events.JoinGroup:
        given = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000, "require_known_member_id": False}
        return events.JoinGroup(
            request_id=self.driver.next_id(),
            group_id="g",
            member_id=member_id,
            group_instance_id=None,
            client_id="c",
            client_host="h",
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            fresh_id=f"u{self.driver.next_id()}",
            **(given | more),
        )

    def commit(self, offset: int) -> events.OffsetCommit:
        return events.OffsetCommit(self.driver.next_id(), "s", "", None, -1, {("t", 0): CommittedOffset(offset)})

    def heartbeat(self) -> events.Heartbeat:
        return events.Heartbeat(self.driver.next_id(), "nobody", "m", None, 1)

    async def parked(self) -> asyncio.Task[effects.JoinReply]:
        """A member that waits alone in a join: a leader is there, and its group is stable."""
        first = await self.driver.ask_shard(0, self.join(), effects.JoinReply)
        assert first.code is ErrorCode.NONE
        task = asyncio.create_task(self.driver.ask_shard(0, self.join(), effects.JoinReply))
        await self.state_is("PreparingRebalance")
        return task

    async def state(self) -> str:
        event = events.DescribeGroup(self.driver.next_id(), "g")
        return (await self.driver.ask_shard(0, event, effects.DescribeReply)).state

    async def state_is(self, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE_S * pace()):
            while await self.state() != wanted:
                pass


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S * pace()):
            await story()

    asyncio.run(bounded())


def test_an_answer_comes_back_to_the_one_who_asked() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        replies = await asyncio.gather(
            *(driver.ask_shard(0, bench.heartbeat(), effects.HeartbeatReply) for _ in range(100))
        )
        assert {reply.code for reply in replies} == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert driver.waiting == 0
        assert bench.engine.metrics.turns == 1, "what waits together is taken in one turn"

    run(story)


def test_a_commit_is_answered_only_once_it_is_durable() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bench.log.gate.clear()
        commit = asyncio.create_task(driver.ask_shard(0, bench.commit(5), effects.OffsetCommitReply))
        await bench.log.holds(1)
        await driver.ask_all([], effects.ListReply)
        assert not commit.done()
        bench.log.gate.set()
        assert (await commit).code is ErrorCode.NONE
        assert bench.log.flushes == [[0]]

    run(story)


def test_commits_during_a_flush_share_the_next_one() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bench.log.gate.clear()
        first = asyncio.create_task(driver.ask_shard(0, bench.commit(1), effects.OffsetCommitReply))
        await bench.log.holds(1)
        others = [
            asyncio.create_task(driver.ask_shard(0, bench.commit(n), effects.OffsetCommitReply)) for n in range(2, 52)
        ]
        await bench.log.holds(51)
        bench.log.gate.set()
        replies = await asyncio.gather(first, *others)
        assert {reply.code for reply in replies} == {ErrorCode.NONE}
        assert len(bench.log.flushes) == 2

    run(story)


def test_a_failed_flush_is_told_as_not_coordinator_and_the_shard_comes_back() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bench.log.failure = LogFailed("the disk is gone")
        reply = await driver.ask_shard(0, bench.commit(1), effects.OffsetCommitReply)
        assert reply.code is ErrorCode.NOT_COORDINATOR
        bench.log.failure = None
        again = ErrorCode.NOT_COORDINATOR
        while again is ErrorCode.NOT_COORDINATOR:
            again = (await driver.ask_shard(0, bench.commit(2), effects.OffsetCommitReply)).code
        assert again is ErrorCode.NONE

    run(story)


def test_timers_fire_without_anybody_asking() -> None:
    """The initial delay of the first join ends by itself."""

    async def story() -> None:
        bench = Bench(limits=Limits(initial_rebalance_delay_ms=20))
        driver = bench.start()
        reply = await driver.ask_shard(0, bench.join(), effects.JoinReply)
        assert (reply.code, reply.generation) == (ErrorCode.NONE, 1)

    run(story)


async def stable_member(bench: Bench, session_timeout_ms: int) -> str:
    """The id of the only member of "g", which is stable."""
    joined = await bench.driver.ask_shard(0, bench.join(session_timeout_ms=session_timeout_ms), effects.JoinReply)
    shares = ((joined.member_id, b""),)
    sync = events.SyncGroup(bench.driver.next_id(), "g", joined.member_id, None, 1, None, None, shares)
    assert (await bench.driver.ask_shard(0, sync, effects.SyncReply)).code is ErrorCode.NONE
    return joined.member_id


def test_who_is_heard_of_after_a_stall_was_never_away() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        member_id = await stable_member(bench, 10_000)
        bench.clock.jumped_ms += 15_000
        assert await bench.state() == "Stable"
        beat = events.Heartbeat(driver.next_id(), "g", member_id, None, 1)
        assert (await driver.ask_shard(0, beat, effects.HeartbeatReply)).code is ErrorCode.NONE
        assert max(bench.stalls) > 14_000
        told = await driver.ask_shard(0, events.ExplainGroup(driver.next_id(), "g"), effects.ExplainReply)
        assert max(stall.stalled_ms for stall in told.stalls) == max(bench.stalls)

    run(story)


def test_a_stall_while_it_flushes_is_no_slow_flush() -> None:
    """Whose end is the first that the loop hears of: deadlines move by the stall, and not once more by the flush."""

    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bench.log.gate.clear()
        commit = asyncio.create_task(driver.ask_shard(0, bench.commit(7), effects.OffsetCommitReply))
        await bench.log.holds(1)
        bench.clock.jumped_ms += 15_000
        bench.log.gate.set()
        assert (await commit).code is ErrorCode.NONE
        assert bench.engine.metrics.slow_flushes == 0
        assert max(bench.stalls) > 14_000
        await driver.close(PATIENCE_S)

    run(story)


def test_a_stall_that_no_request_comes_after_is_found_as_well() -> None:
    async def story() -> None:
        bench = Bench()
        bench.start()
        await stable_member(bench, 10_000)
        bench.clock.jumped_ms += 15_000
        await bench.stalled.wait()
        assert bench.engine.metrics.longest_stall_ms == max(bench.stalls) > 14_000
        assert await bench.state() == "Stable"

    run(story)


def test_a_turn_that_comes_late_hears_before_it_expires_and_expires_who_is_silent() -> None:
    """Late by less than a stall: the deadline has passed, the heartbeat waits."""

    async def story() -> None:
        bench = Bench(limits=Limits(initial_rebalance_delay_ms=0, min_session_timeout_ms=1))
        driver = bench.start()
        member_id = await stable_member(bench, STALL_MS - 10)
        bench.clock.jumped_ms += STALL_MS - 5
        beat = events.Heartbeat(driver.next_id(), "g", member_id, None, 1)
        assert (await driver.ask_shard(0, beat, effects.HeartbeatReply)).code is ErrorCode.NONE
        await bench.state_is("Empty")

    run(story)


def test_sessions_of_what_was_loaded_begin_when_the_doors_open() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        member_id = await stable_member(bench, 10_000)
        await driver.close(PATIENCE_S)
        loaded_ms = bench.clock.now_ms()
        driver = bench.start()
        bench.clock.jumped_ms += 60_000
        driver.opened(loaded_ms)
        assert await bench.state() == "Stable"
        beat = events.Heartbeat(driver.next_id(), "g", member_id, None, 1)
        assert (await driver.ask_shard(0, beat, effects.HeartbeatReply)).code is ErrorCode.NONE

    run(story)


def test_a_parked_client_that_vanishes_leaves_no_trace() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        task = await bench.parked()
        assert driver.parked == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (driver.parked, driver.waiting) == (0, 0)
        assert await bench.state() == "PreparingRebalance", "the group goes on waiting for its members"

    run(story)


def test_the_group_hears_that_a_parked_client_has_vanished() -> None:
    """Of the follower's SyncGroup: else it would count as waiting for good, and its session never end."""
    long = {"session_timeout_ms": 1_800_000}  # nobody's session is what ends the wait

    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        first = await driver.ask_shard(0, bench.join(**long), effects.JoinReply)
        second = asyncio.create_task(driver.ask_shard(0, bench.join(**long), effects.JoinReply))
        await bench.state_is("PreparingRebalance")
        again = await driver.ask_shard(0, bench.join(first.member_id, **long), effects.JoinReply)
        follower = (await second).member_id
        sync = events.SyncGroup(driver.next_id(), "g", follower, None, again.generation, None, None, ())
        core = bench.engine.core(0)
        assert isinstance(core, Shard)
        member = core.groups["g"].members[follower]
        waiting = asyncio.create_task(driver.ask_shard(0, sync, effects.SyncReply))
        while not member.syncing:
            await bench.state()
        waiting.cancel()
        while member.syncing:  # bounded by `run`
            await bench.state()
        await driver.close(PATIENCE_S)

    run(story)


def test_long_polls_are_bounded_and_heartbeats_still_pass() -> None:
    async def story() -> None:
        bench = Bench(max_parked=1)
        driver = bench.start()
        task = await bench.parked()
        with pytest.raises(Overloaded, match="1 JoinGroup and SyncGroup requests wait already"):
            await driver.ask_shard(0, bench.join(), effects.JoinReply)
        assert (
            await driver.ask_shard(0, bench.heartbeat(), effects.HeartbeatReply)
        ).code is ErrorCode.UNKNOWN_MEMBER_ID
        task.cancel()

    run(story)


def test_closing_answers_the_parked_and_makes_promises_durable() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        parked = await bench.parked()
        bench.log.gate.clear()
        commit = asyncio.create_task(driver.ask_shard(0, bench.commit(9), effects.OffsetCommitReply))
        await bench.log.holds(len(bench.log.records) + 1)
        closing = asyncio.create_task(driver.close(PATIENCE_S))
        await asyncio.sleep(0)
        assert not commit.done()
        bench.log.gate.set()
        await closing
        assert (await commit).code is ErrorCode.NONE
        assert (await parked).code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(NodeShuttingDown):
            await driver.ask_shard(0, bench.heartbeat(), effects.HeartbeatReply)
        assert driver.waiting == 0

    run(story)


def test_a_flush_that_never_ends_does_not_hold_the_shutdown() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bench.log.gate.clear()
        commit = asyncio.create_task(driver.ask_shard(0, bench.commit(9), effects.OffsetCommitReply))
        await bench.log.holds(1)
        with pytest.raises(TimeoutError):
            await driver.close(0.01)
        with pytest.raises(NodeShuttingDown):
            await commit
        bench.log.gate.set()

    run(story)


def test_a_bug_of_the_engine_is_told_to_everyone_at_once() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bug = ZeroDivisionError("a bug")

        def broken(now_ms: int, heard_ms: int) -> None:
            raise bug

        bench.engine.turn = broken  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            await driver.ask_shard(0, bench.heartbeat(), effects.HeartbeatReply)
        assert bench.fatal == [bug]
        with pytest.raises(NodeShuttingDown):
            await driver.ask_shard(0, bench.heartbeat(), effects.HeartbeatReply)

    run(story)


def test_notices_reach_the_watchers_side() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        await driver.ask_shard(0, bench.join(), effects.JoinReply)
        assert {notice.group_id for notice in bench.notices} == {"g"}

    run(story)


def test_the_collector_looks_at_what_is_young_once_in_so_many_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself it would come when more was made than went: hundreds of thousands of objects later, where each message
    of thousands of members replaces what the one before has left."""
    looks = list[int]()
    monkeypatch.setattr(gc, "collect", lambda generation: looks.append(generation) or 0)

    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        answered = 0
        for batch in (REPLIES_BETWEEN_COLLECTIONS - 1, 1, 2 * REPLIES_BETWEEN_COLLECTIONS):
            for left in range(batch, 0, -50):
                asked = (driver.ask_shard(0, bench.heartbeat(), effects.HeartbeatReply) for _ in range(min(50, left)))
                await asyncio.gather(*asked)
            answered += batch
            assert len(looks) == answered // REPLIES_BETWEEN_COLLECTIONS
        assert set(looks) == {MIDDLE_GENERATION}

    run(story)
