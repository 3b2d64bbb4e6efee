"""What a request takes of the loop's time, apart from what it waits for."""

from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from typing import Any


class LoopTime:
    """A coroutine to be awaited in its place; `spent_s` is what its steps took together."""

    __slots__ = ("_work", "spent_s")

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work
        self.spent_s = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        step: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            since_s = perf_counter()
            try:
                awaited = step(given)
            except StopIteration as done:
                return done.value
            finally:
                self.spent_s += perf_counter() - since_s
            try:
                step, given = steps.send, (yield awaited)
            except BaseException as error:
                # What is thrown in is the work's to catch: a timeout within it cancels the task.
                step, given = steps.throw, error
