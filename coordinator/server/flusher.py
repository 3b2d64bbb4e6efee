"""The thread that flushes for everybody: jobs go in by a queue and come back to the event loop."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from coordinator.runtime.engine import FlushJob


class Flusher:
    """Runs one job after the other. `done` is called on the loop with the job and what it raised, if it did.

    A pool would make two futures and two rounds of the loop of each hand-over, which costs as much as the flush.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, done: Callable[[FlushJob, BaseException | None], None]) -> None:
        self._loop = loop
        self._done = done
        self._jobs: SimpleQueue[FlushJob | None] = SimpleQueue()
        # A daemon: nobody has been promised what a flush under way at the end of the process makes durable.
        Thread(target=self._run, name="muster-flush", daemon=True).start()

    def submit(self, job: FlushJob) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        """Let the thread go once it has done what was submitted."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: BaseException | None = None
            try:
                job.run()
            except BaseException as caught:
                error = caught
            try:
                self._loop.call_soon_threadsafe(self._done, job, error)
            except RuntimeError:
                return  # The loop was closed meanwhile: nobody is left to hear of it.
