"""Readers beside somebody who cuts the log's end off: whatever they read meanwhile is read again."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from muster.storage.errors import StorageError

T = TypeVar("T")


class TruncationGuard:
    """Counts the cuts of one log. Readers are not held up unless a cut is under way."""

    __slots__ = ("_lock", "_reshaping", "seen")

    def __init__(self, lock: threading.Lock, reshaping: "threading.RLock") -> None:
        self._lock = lock
        self._reshaping = reshaping
        # Odd while a cut is under way.
        self.seen = 0

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """Cut within; nothing that was read or flushed meanwhile counts."""
        with self._reshaping:
            if self.seen & 1:  # It is us: part of a larger cut.
                yield
                return
            with self._lock:
                self.seen += 1
            try:
                yield
            finally:
                with self._lock:
                    self.seen += 1

    def none_since(self, seen: int) -> bool:
        """Whether the log's end is where it was when `seen` was asked for, or further on."""
        return seen == self.seen and not seen & 1

    def outside(self, read: Callable[[], T]) -> T:
        """What `read` finds or raises while no cut is under way."""
        while True:
            seen = self.seen
            try:
                found = read()
            except StorageError:
                if self.none_since(seen):
                    raise
            else:
                if self.none_since(seen):
                    return found
            with self._reshaping:
                pass  # Whoever cuts holds it until the log is whole again.
