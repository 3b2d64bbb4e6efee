"""A thread that flushes, or loads, for everybody: jobs go in by a queue and come back to the event loop."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, Protocol, TypeVar


class ThreadJob(Protocol):
    def run(self) -> None: ...


AnyJob = TypeVar("AnyJob", bound=ThreadJob)


class JobThread(Generic[AnyJob]):
    """Runs one job after the other. `done` is called on the loop with the job and what it raised, if it did.

    A pool would make two futures and two rounds of the loop of each hand-over, which costs as much as the flush.
    """

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, done: Callable[[AnyJob, BaseException | None], None]
    ) -> None:
        self._loop = loop
        self._done = done
        self._jobs: SimpleQueue[AnyJob | None] = SimpleQueue()
        # A daemon: nobody has been promised what a flush under way at the end of the process makes durable.
        Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, job: AnyJob) -> None:
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
