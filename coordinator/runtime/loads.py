"""Which shards are being replayed, wait for it, or are to be tried again after a pause."""

from collections import deque
from dataclasses import dataclass, field

from muster.coordinator.runtime.loader import LoadReport, replay_shard
from muster.coordinator.runtime.ports import GroupLog
from muster.coordinator.runtime.slot import ShardCore, ShardSlot, ShardStatus
from muster.coordinator.runtime.timers import RetryPauses


@dataclass(eq=False, slots=True)
class LoadJob:
    """One shard's replay, into a core that nobody else has yet."""

    shard: int
    core: ShardCore
    log: GroupLog
    report: LoadReport = field(default_factory=LoadReport)
    given_up: bool = False
    """Nobody wants it any more: it ends soon, with LogFailed."""

    def run(self) -> None:
        """Replay, in any thread. Raises LogFailed."""
        replay_shard(self.log, self.shard, self.core, self.report, lambda: self.given_up)
        self.report.committed_to = self.core.committed_to()


class ShardLoads:
    """At most one job a shard is wanted. A shard that fell is planned by the next turn, which knows the time."""

    def __init__(self) -> None:
        self._jobs: dict[int, LoadJob] = {}
        self._queue: deque[LoadJob] = deque()  # those that the driver has not taken yet
        self._pauses = RetryPauses()
        self.fallen: list[ShardSlot] = []
        """Dropped since the last turn, reload not yet planned."""

    @property
    def running(self) -> bool:
        """Whether a shard is being replayed or waits for it."""
        return bool(self._jobs)

    @property
    def next_ms(self) -> int | None:
        """No pause ends before this time."""
        return self._pauses.next_ms

    def begin(self, job: LoadJob) -> None:
        """It takes the place of the shard's job before it, and ends a pause."""
        self.forget(job.shard)
        self._jobs[job.shard] = job

    def forget(self, shard: int) -> None:
        """Nobody wants the shard loaded any more, now or after a pause."""
        self._pauses.cancel(shard)
        job = self._jobs.pop(shard, None)
        if job is not None:
            job.given_up = True

    def queue(self, job: LoadJob) -> None:
        """The driver shall run it."""
        self._queue.append(job)

    def next_job(self) -> LoadJob | None:
        """The first in the queue that is still wanted; None when there is nothing to load."""
        while self._queue:
            job = self._queue.popleft()
            if not job.given_up:
                return job
        return None

    def ended(self, job: LoadJob) -> bool:
        """The job's `run` came to an end: whether anybody still wants what came of it."""
        if self._jobs.get(job.shard) is not job:
            return False
        del self._jobs[job.shard]
        return True

    def plan_fallen(self, now_ms: int) -> None:
        """Each shard that fell is tried again after its pause, unless it was loaded or unloaded by hand meanwhile."""
        fallen, self.fallen = self.fallen, []
        for slot in fallen:
            if slot.status is ShardStatus.FAILED:
                self._pauses.set(slot.index, now_ms + slot.pause_ms(now_ms))

    def pop_due(self, now_ms: int) -> int | None:
        """The next shard whose pause is over."""
        return self._pauses.pop_due(now_ms)
