"""Group commit: one flush at a time for all appends so far, and whether it takes so long that members fall silent."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.coordinator.runtime.ports import GroupLog
from muster.coordinator.runtime.slot import ShardSlot

SLOW_FLUSH_MS = 1_000
"""Answers that wait longer for a flush, and for the one before it, are held back so long that members who wait for
theirs fall silent: timers wait for its end, and move by what is beyond this. What is below is what a slow disk takes,
over and over."""


@dataclass(frozen=True, slots=True)
class FlushJob:
    """One group commit. `positions` maps each shard to the append it covers."""

    log: GroupLog
    positions: dict[int, int]

    def run(self) -> None:
        """Flush, in any thread. Raises LogFailed."""
        self.log.flush(list(self.positions))


class FlushQueue:
    """The job in flight, and the appends that the next one covers, each with the time of the first append."""

    def __init__(self, log: GroupLog) -> None:
        self._log = log
        self._dirty: set[int] = set()  # have appends that no flush job covers yet
        self._dirty_since_ms = 0  # when the first of those was
        self._job: FlushJob | None = None
        self._job_since_ms = 0  # when the first append that it covers was, less what deadlines have moved since

    def wrote(self, slot: ShardSlot, now_ms: int) -> None:
        """The shard has one append more, or was replayed."""
        slot.appended += 1
        if not self._dirty:
            self._dirty_since_ms = now_ms
        self._dirty.add(slot.index)

    def next_job(self, slots: Sequence[ShardSlot]) -> FlushJob | None:
        """A job for every append so far. None while one is running or nothing is to flush."""
        if self._job is not None or not self._dirty:
            return None
        self._job = FlushJob(self._log, {shard: slots[shard].appended for shard in sorted(self._dirty)})
        self._dirty.clear()
        self._job_since_ms = self._dirty_since_ms
        return self._job

    def finish(self, job: FlushJob) -> None:
        """The job has ended, well or not. Raises ValueError for one that is not in flight."""
        if job is not self._job:
            raise ValueError(f"the flush job of shards {sorted(job.positions)} is not the one in flight")
        self._job = None

    def too_slow_ms(self, now_ms: int) -> int:
        """How much longer the job that has just ended took than members can wait; at most 0 when it was in time.

        Deadlines move by that, so what waits for the next job has not waited as long either.
        """
        beyond_ms = now_ms - self._job_since_ms - SLOW_FLUSH_MS
        if beyond_ms > 0:
            self._dirty_since_ms = min(self._dirty_since_ms + beyond_ms, now_ms)
        return beyond_ms

    def silences(self, now_ms: int) -> bool:
        """Whether members fall silent because their answers wait for a slow flush."""
        return self._job is not None and now_ms - self._job_since_ms > SLOW_FLUSH_MS

    def stood_still(self, stalled_ms: int, now_ms: int) -> None:
        """A flush that seems to take long because the node stood still does not count twice."""
        self._job_since_ms += stalled_ms
        self._dirty_since_ms = min(self._dirty_since_ms + stalled_ms, now_ms)
