"""The thread that flushes: in order, off the loop, and what went wrong comes back with the job."""

import asyncio
import threading
from collections.abc import Iterator

from muster.coordinator.runtime.ports import KeyValue, LogFailed, LogWithoutTransactions
from muster.coordinator.runtime.stepper import FlushJob
from muster.coordinator.server.driver.driver import JobThread


class SickLog(LogWithoutTransactions):
    """Notes who flushes what; shard 7 cannot be flushed."""

    def __init__(self) -> None:
        self.flushed: list[tuple[list[int], str]] = []

    def draft(self) -> list[KeyValue]:
        return []

    def append(self, shard: int, groups: object, ledger: object, now_ms: int) -> None: ...

    def flush(self, shards: object) -> None:
        assert isinstance(shards, list)
        self.flushed.append((shards, threading.current_thread().name))
        if 7 in shards:
            raise LogFailed("the disk is full", [7])

    def read_groups(self, shard: int) -> Iterator[KeyValue]:
        return iter(())

    def read_ledger(self, shard: int) -> Iterator[KeyValue]:
        return iter(())


def test_jobs_are_done_in_order_by_one_thread_and_come_back_with_what_they_raised() -> None:
    log = SickLog()
    jobs = [FlushJob(log, {shard: 1}) for shard in (3, 7, 4)]
    came: list[tuple[FlushJob, str]] = []

    async def story() -> None:
        all_back = asyncio.Event()

        def done(job: FlushJob, error: BaseException | None) -> None:
            came.append((job, str(error or "")))
            if len(came) == len(jobs):
                all_back.set()

        flusher = JobThread("muster-flush", asyncio.get_running_loop(), done)
        for job in jobs:
            flusher.submit(job)
        await all_back.wait()
        flusher.close()

    asyncio.run(story())
    assert log.flushed == [([3], "muster-flush"), ([7], "muster-flush"), ([4], "muster-flush")]
    assert came == [(jobs[0], ""), (jobs[1], "the disk is full"), (jobs[2], "")]


def test_a_loop_that_is_gone_lets_the_thread_go() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class SlowLog(SickLog):
        def flush(self, shards: object) -> None:
            entered.set()
            assert go_on.wait(60)

    def done(job: FlushJob, error: BaseException | None) -> None:
        raise AssertionError("nobody is left to hear of it")

    async def story() -> None:
        JobThread("muster-flush", asyncio.get_running_loop(), done).submit(FlushJob(SlowLog(), {1: 1}))
        assert await asyncio.to_thread(entered.wait, 10)

    before = set(threading.enumerate())
    asyncio.run(story())
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "muster-flush")
    go_on.set()
    thread.join(10)
    assert not thread.is_alive()
