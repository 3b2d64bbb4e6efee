"""Flushes of replicated logs, off the loop: one round at a time, for all that has come by when it begins."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

from muster.coordinator.replication.io.background_tasks import TaskFailed
from muster.coordinator.replication.io.logs import StoredLog
from muster.coordinator.replication.protocol.facts import TopicPartition
from muster.coordinator.replication.protocol.ports import LogBroken

WORKERS: Final = 4


class FlushRound(NamedTuple):
    done: list[TopicPartition]
    broken: list[tuple[TopicPartition, str]]


class ReplicaFlusher:
    """`told` hears of each round in the loop."""

    def __init__(
        self,
        log_of: Callable[[TopicPartition], StoredLog | None],
        told: Callable[[FlushRound], None],
        failed: TaskFailed,
    ) -> None:
        self._log_of = log_of
        self._told = told
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="replica-fsync")
        self._wanted: dict[TopicPartition, None] = {}
        self._ends: dict[TopicPartition, int] = {}
        """What the round under way flushes, and where it ended then."""
        self._failed = failed
        self._begins: asyncio.Handle | None = None
        """The next round, where the loop is to begin it."""
        self._under_way = 0
        """Shares of the round that are not back yet."""
        self._results: list[FlushRound] = []
        self._abandoned = False
        self._quiet: asyncio.Future[None] | None = None

    def soon(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Flush these, as far as their settings ask for it. Who comes in this turn joins; what is being flushed as it
        is takes no other round. Returned: those that count as kept already, of which nothing is told later (CL-D2:
        topics with `flush.messages` above 1)."""
        kept = []
        for place in places:
            log = self._log_of(place)
            if log is None:
                continue
            if log.kept >= log.end:
                kept.append(place)
            if log.waits_for_flush and self._ends.get(place) != log.end:
                self._wanted[place] = None
        self._begin_soon()
        return kept

    async def quiet(self) -> None:
        """When nothing is to be flushed any more."""
        while (self._under_way or self._begins) and not self._abandoned:
            self._quiet = self._quiet or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._quiet)

    def abandon(self) -> None:
        """Begin no other round, and tell nobody of this one."""
        self._abandoned = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._grow_quiet()

    def _begin_soon(self) -> None:
        """Whoever is ready to run now comes first, and joins."""
        if self._wanted and not self._under_way and self._begins is None:
            self._begins = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Each round is one call of a thread and one of the loop: a task, and futures that wait for each other, cost as
        much as all else that is done for a batch that is copied."""
        self._begins = None
        logs = [(place, log) for place in self._wanted if (log := self._log_of(place)) is not None]
        self._wanted.clear()
        if not logs or self._abandoned:
            self._grow_quiet()
            return
        self._ends = {place: log.end for place, log in logs}
        self._under_way = min(WORKERS, len(logs))
        loop = asyncio.get_running_loop()
        for number in range(self._under_way):
            self._pool.submit(self._flush, loop, logs[number::WORKERS])

    def _flush(self, loop: asyncio.AbstractEventLoop, share: list[tuple[TopicPartition, StoredLog]]) -> None:
        """In a thread."""
        try:
            result: FlushRound | Exception = flush_logs(share)
        except Exception as error:
            result = error
        with suppress(RuntimeError):  # the loop is closed: this node has stopped
            loop.call_soon_threadsafe(self._came_back, result)

    def _came_back(self, result: FlushRound | Exception) -> None:
        """All of a round are told together, once the last is back."""
        if self._abandoned:
            return
        if isinstance(result, Exception):
            self._failed(result)
        else:
            self._results.append(result)
        self._under_way -= 1
        if self._under_way:
            return
        self._ends = {}
        results, self._results = self._results, []
        try:
            for each in results:
                self._told(each)
        except Exception as error:
            self._failed(error)
        self._begin_soon()
        if self._begins is None:
            self._grow_quiet()

    def _grow_quiet(self) -> None:
        quiet, self._quiet = self._quiet, None
        if quiet is not None and not quiet.done():
            quiet.set_result(None)


def flush_logs(logs: list[tuple[TopicPartition, StoredLog]]) -> FlushRound:
    """In a thread."""
    flushed = FlushRound([], [])
    for place, log in logs:
        try:
            log.flush()
        except LogBroken as error:
            flushed.broken.append((place, str(error)))
        else:
            flushed.done.append(place)
    return flushed
