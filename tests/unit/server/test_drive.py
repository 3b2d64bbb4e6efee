"""The driver answers, parks, forgets, flushes once for many, and closes in order.

Real engine, real shard; the log is kept in memory and flushes when the test says so.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from coordinator.core import effects, events
from coordinator.core.shard import Shard
from coordinator.core.types import CommittedOffset, Limits, Protocol
from coordinator.errors import Draining, ErrorCode, Overloaded
from coordinator.runtime.engine import Engine
from coordinator.runtime.ports import KeyValue, LogFailed
from coordinator.server.clock import Clock
from coordinator.server.drive import Driver

PATIENCE_S = 20


class GatedLog:
    """Keeps records in memory; a flush lasts until the gate is open, and fails when told to."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.flushes: list[list[int]] = []
        self.records: list[KeyValue] = []
        self.grown = asyncio.Event()

    def append(self, shard: int, groups: Sequence[KeyValue], ledger: Sequence[KeyValue], now_ms: int) -> None:
        self.records.extend(groups)
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

    def start(self) -> Driver:
        self.engine = Engine(self.log, 1, self.limits, Shard)
        clock = Clock()
        self.engine.load(clock.now_ms())
        self.driver = Driver(
            self.engine,
            clock,
            max_parked=self.max_parked,
            on_notice=self.notices.append,
            on_fatal=self.fatal.append,
        )
        return self.driver

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
        first = await self.driver.ask(0, self.join(), effects.JoinReply)
        assert first.code is ErrorCode.NONE
        task = asyncio.create_task(self.driver.ask(0, self.join(), effects.JoinReply))
        await self.state_is("PreparingRebalance")
        return task

    async def state(self) -> str:
        event = events.DescribeGroup(self.driver.next_id(), "g")
        return (await self.driver.ask(0, event, effects.DescribeReply)).state

    async def state_is(self, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.state() != wanted:
                pass


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


def test_an_answer_comes_back_to_the_one_who_asked() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        replies = await asyncio.gather(*(driver.ask(0, bench.heartbeat(), effects.HeartbeatReply) for _ in range(100)))
        assert {reply.code for reply in replies} == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert driver.waiting == 0
        assert bench.engine.metrics.turns == 1, "what waits together is taken in one turn"

    run(story)


def test_a_commit_is_answered_only_once_it_is_durable() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bench.log.gate.clear()
        commit = asyncio.create_task(driver.ask(0, bench.commit(5), effects.OffsetCommitReply))
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
        first = asyncio.create_task(driver.ask(0, bench.commit(1), effects.OffsetCommitReply))
        await bench.log.holds(1)
        others = [asyncio.create_task(driver.ask(0, bench.commit(n), effects.OffsetCommitReply)) for n in range(2, 52)]
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
        reply = await driver.ask(0, bench.commit(1), effects.OffsetCommitReply)
        assert reply.code is ErrorCode.NOT_COORDINATOR
        bench.log.failure = None
        again = ErrorCode.NOT_COORDINATOR
        while again is ErrorCode.NOT_COORDINATOR:
            again = (await driver.ask(0, bench.commit(2), effects.OffsetCommitReply)).code
        assert again is ErrorCode.NONE

    run(story)


def test_timers_fire_without_anybody_asking() -> None:
    """The initial delay of the first join ends by itself."""

    async def story() -> None:
        bench = Bench(limits=Limits(initial_rebalance_delay_ms=20))
        driver = bench.start()
        reply = await driver.ask(0, bench.join(), effects.JoinReply)
        assert (reply.code, reply.generation) == (ErrorCode.NONE, 1)

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


def test_long_polls_are_bounded_and_heartbeats_still_pass() -> None:
    async def story() -> None:
        bench = Bench(max_parked=1)
        driver = bench.start()
        task = await bench.parked()
        with pytest.raises(Overloaded, match="1 JoinGroup and SyncGroup requests wait already"):
            await driver.ask(0, bench.join(), effects.JoinReply)
        assert (await driver.ask(0, bench.heartbeat(), effects.HeartbeatReply)).code is ErrorCode.UNKNOWN_MEMBER_ID
        task.cancel()

    run(story)


def test_closing_answers_the_parked_and_makes_promises_durable() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        parked = await bench.parked()
        bench.log.gate.clear()
        commit = asyncio.create_task(driver.ask(0, bench.commit(9), effects.OffsetCommitReply))
        await bench.log.holds(len(bench.log.records) + 1)
        closing = asyncio.create_task(driver.close(PATIENCE_S))
        await asyncio.sleep(0)
        assert not commit.done()
        bench.log.gate.set()
        await closing
        assert (await commit).code is ErrorCode.NONE
        assert (await parked).code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(Draining):
            await driver.ask(0, bench.heartbeat(), effects.HeartbeatReply)
        assert driver.waiting == 0

    run(story)


def test_a_flush_that_never_ends_does_not_hold_the_shutdown() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bench.log.gate.clear()
        commit = asyncio.create_task(driver.ask(0, bench.commit(9), effects.OffsetCommitReply))
        await bench.log.holds(1)
        with pytest.raises(TimeoutError):
            await driver.close(0.01)
        with pytest.raises(Draining):
            await commit
        bench.log.gate.set()

    run(story)


def test_a_bug_of_the_engine_is_told_to_everyone_at_once() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        bug = ZeroDivisionError("a bug")

        def broken(now_ms: int) -> None:
            raise bug

        bench.engine.turn = broken  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            await driver.ask(0, bench.heartbeat(), effects.HeartbeatReply)
        assert bench.fatal == [bug]
        with pytest.raises(Draining):
            await driver.ask(0, bench.heartbeat(), effects.HeartbeatReply)

    run(story)


def test_notices_reach_the_watchers_side() -> None:
    async def story() -> None:
        bench = Bench()
        driver = bench.start()
        await driver.ask(0, bench.join(), effects.JoinReply)
        assert {notice.group_id for notice in bench.notices} == {"g"}

    run(story)
