"""What goes wrong while one group's work is prepared is that group's trouble: the node goes on, and the group too."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any

import pytest

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import ShardWork
from muster.coordinator.server.driver import driver
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import DriverCallbacks, DriverLimits, EngineDriver, PlanInputs
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.support.pace import pace

PATIENCE_S = 20
MANY = 5_000
"""Partitions enough for a plan to be made off the loop."""


@dataclass
class Bench:
    """A driver over one shard with one large topic; `mend` is what makes the next attempt succeed."""

    complete: Callable[[ShardWork], ShardWork | Callable[[], ShardWork]] = lambda work: work
    on_notice: Callable[[effects.GroupChanged], None] = lambda notice: None
    bugs: list[tuple[str, str]] = field(default_factory=list)
    fatal: list[BaseException] = field(default_factory=list)

    def start(self) -> None:
        self.engine = Engine(MemoryGroupLog(1), 1, Limits(consumer_assignment_interval_ms=1), Shard)
        self.engine.submit_all(events.TopicsChanged({"t": MANY}, ids={"t": b"t" * 16}))
        clock = NodeClock()
        self.engine.load(clock.now_ms())
        self.driver = EngineDriver(
            self.engine,
            clock,
            DriverLimits(max_parked=10),
            DriverCallbacks(
                on_notice=self.on_notice,
                on_fatal=self.fatal.append,
                on_bug=lambda what, error: self.bugs.append((what, str(error))),
            ),
            inputs=PlanInputs(complete=self.complete),
        )

    async def join(self) -> ErrorCode:
        event = events.ConsumerHeartbeat(
            self.driver.next_id(), "g", "m", 0, rebalance_timeout_ms=60_000, topic_names=("t",), owned={}, client_id="m"
        )
        return (await self.driver.ask_shard(0, event, effects.ConsumerHeartbeatReply)).code

    async def state(self) -> str:
        event = events.DescribeConsumerGroup(self.driver.next_id(), "g")
        return (await self.driver.ask_shard(0, event, effects.DescribeConsumerReply)).state

    async def planned(self) -> None:
        """The group has its target in the end."""
        async with asyncio.timeout(PATIENCE_S * pace()):
            while await self.state() == "Assigning":
                pass


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S * pace()):
            await story()

    asyncio.run(bounded())


def test_work_that_cannot_be_prepared_fails_its_group_and_is_tried_again() -> None:
    failures: list[Exception] = [LogFailed("t-1: its directory is gone"), KeyError("a bug")]

    def complete(work: ShardWork) -> ShardWork:
        if failures:
            raise failures.pop(0)
        return work

    async def story() -> None:
        bench = Bench(complete)
        bench.start()
        assert await bench.join() is ErrorCode.NONE
        await bench.planned()
        assert failures == []
        assert bench.fatal == []
        assert bench.bugs == [("work for group 'g'", "'a bug'")], "a log that is away is no bug"

    run(story)


def test_what_a_thread_completes_is_no_less_its_groups_trouble() -> None:
    failures: list[Exception] = [LogFailed("t-1: its directory is gone"), KeyError("a bug")]
    threads: list[threading.Thread] = []

    def complete(work: ShardWork) -> Callable[[], ShardWork]:
        def rest() -> ShardWork:
            threads.append(threading.current_thread())
            if failures:
                raise failures.pop(0)
            return work

        return rest

    async def story() -> None:
        bench = Bench(complete)
        bench.start()
        assert await bench.join() is ErrorCode.NONE
        await bench.planned()
        assert len(threads) == 3
        assert threading.main_thread() not in threads
        assert bench.fatal == []
        assert bench.bugs == [("work for group 'g'", "'a bug'")]

    run(story)


def test_a_thread_that_cannot_be_started_is_a_failed_attempt_of_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = 2  # none of them keeps the only place
    left = [failures]

    class Scarce(Thread):
        def start(self) -> None:
            if self.name == "muster-worker" and left[0]:
                left[0] -= 1
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(driver, "Thread", Scarce)
    monkeypatch.setattr(driver, "AssignorWorkers", partial(driver.AssignorWorkers, max_threads=1))

    async def story() -> None:
        bench = Bench()
        bench.start()
        assert await bench.join() is ErrorCode.NONE
        await bench.planned()
        assert left == [0]
        assert [error for _, error in bench.bugs] == ["can't start new thread"] * failures

    run(story)


def test_a_watcher_that_cannot_be_told_stops_nobody() -> None:
    def broken(notice: effects.GroupChanged) -> None:
        raise ValueError("no ears")

    async def story() -> None:
        bench = Bench(on_notice=broken)
        bench.start()
        assert await bench.join() is ErrorCode.NONE
        await bench.planned()
        assert bench.fatal == []
        assert ("telling the watchers of group 'g'", "no ears") in bench.bugs

    run(story)


def test_a_look_that_fails_leaves_no_request_behind() -> None:
    def blind() -> None:
        raise LogFailed("nothing to see")

    async def story() -> None:
        bench = Bench()
        bench.start()
        event = events.OffsetFetch(bench.driver.next_id(), "g", None)
        with pytest.raises(LogFailed):
            await bench.driver.ask_and_look(0, event, effects.OffsetFetchReply, blind)
        assert bench.driver.waiting == 0

    run(story)
