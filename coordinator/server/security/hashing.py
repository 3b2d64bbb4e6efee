"""Threads for what strangers may ask for and takes long: passwords to be hashed, signatures to be checked.

They are not those in which the log is flushed, and few wait for them: a flood of logins slows logins, and nothing else.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from muster.coordinator.security.limits import MOST_HASHING, MOST_WAITING_TO_HASH

T = TypeVar("T")


class HashingQueueFull(Exception):
    """No further one is taken for now."""


class HashingThreads:
    """Some threads; `name` is theirs in a list of threads."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(MOST_HASHING, name)
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Raises TooManyWait, and what the work raises."""
        if self._waiting >= MOST_WAITING_TO_HASH:
            raise HashingQueueFull
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
