"""Flushes of replicated logs, off the loop: one round at a time, for all that has come by when it begins."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from muster.coordinator.cluster.facts import TopicPartition
from muster.coordinator.cluster.replicas.ports import LogBroken
from muster.coordinator.replication.copies.logs import StoredLog
from muster.coordinator.replication.tasks import Failed, Tasks

WORKERS: Final = 4


class Flushed(NamedTuple):
    done: list[TopicPartition]
    broken: list[tuple[TopicPartition, str]]


class Flushing:
    """`told` hears of each round in the loop."""

    def __init__(
        self,
        log_of: Callable[[TopicPartition], StoredLog | None],
        told: Callable[[Flushed], None],
        failed: Failed,
    ) -> None:
        self._log_of = log_of
        self._told = told
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="replica-fsync")
        self._wanted: dict[TopicPartition, None] = {}
        self._ends: dict[TopicPartition, int] = {}
        """What the round under way flushes, and where it ended then."""
        self._tasks = Tasks(failed)
        self._round: asyncio.Task[None] | None = None

    def soon(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Flush these, as far as their settings ask for it. Who comes in this turn joins; what is being flushed as it
        is takes no other round. Returned: those that count as kept already, of which nothing is told later (D2: topics
        with `flush.messages` above 1)."""
        kept = []
        for place in places:
            log = self._log_of(place)
            if log is None:
                continue
            if log.kept >= log.end:
                kept.append(place)
            if log.waits_for_flush and self._ends.get(place) != log.end:
                self._wanted[place] = None
        if self._wanted and self._round is None:
            self._round = self._tasks.start(self._flush())
        return kept

    async def quiet(self) -> None:
        """When nothing is to be flushed any more."""
        while self._round is not None:
            await asyncio.wait([self._round])

    def abandon(self) -> None:
        """Begin no other round."""
        if self._round is not None:
            self._round.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._wanted:
                logs = [(place, log) for place in self._wanted if (log := self._log_of(place)) is not None]
                self._wanted.clear()
                self._ends = {place: log.end for place, log in logs}
                shares = [logs[number::WORKERS] for number in range(min(WORKERS, len(logs)))]
                results = await asyncio.gather(
                    *(loop.run_in_executor(self._pool, flush_all, share) for share in shares)
                )
                self._ends = {}
                for result in results:
                    self._told(result)
        finally:
            self._ends = {}
            self._round = None


def flush_all(logs: list[tuple[TopicPartition, StoredLog]]) -> Flushed:
    """In a thread."""
    flushed = Flushed([], [])
    for place, log in logs:
        try:
            log.flush()
        except LogBroken as error:
            flushed.broken.append((place, str(error)))
        else:
            flushed.done.append(place)
    return flushed
