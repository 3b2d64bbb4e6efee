"""Keyed absolute deadlines, cheap to push back: a heartbeat that re-arms its session costs one dict write."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")

SPARE_ENTRIES = 64
"""Heap entries without a deadline that are never worth a clean-up."""


class Timers(Generic[K]):
    """Each key has at most one deadline (ms); setting again replaces it. Keys must be hashable and comparable.

    The heap holds one entry per key that is never later than the key's deadline. A deadline pushed back leaves its
    entry where it is; when the entry comes up early it moves to the deadline of that moment. Deadlines that move
    forward or are cancelled leave dead entries, which are swept out once they outnumber the living.

    Moving all deadlines is one addition: inside, times are kept without the moves there have been so far.
    """

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._entries: dict[K, int] = {}  # key -> time of its one valid heap entry
        self._heap: list[tuple[int, K]] = []
        self._moved_ms = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def entries(self) -> int:
        """How many entries the heap holds, dead ones included: at most twice the timers, plus SPARE_ENTRIES."""
        return len(self._heap)

    def set(self, key: K, at_ms: int) -> None:
        at_ms -= self._moved_ms
        self._deadlines[key] = at_ms
        entry = self._entries.get(key)
        if entry is None or at_ms < entry:
            self._push(key, at_ms)
            self._sweep_if_littered()

    def cancel(self, key: K) -> None:
        """Forget the key's deadline; nothing happens when it has none."""
        if self._deadlines.pop(key, None) is not None:
            self._sweep_if_littered()

    def cancel_all(self, doomed: Callable[[K], bool]) -> None:
        """Forget every deadline whose key is doomed. Looks at all keys."""
        self._deadlines = {key: at for key, at in self._deadlines.items() if not doomed(key)}
        self._sweep()

    def move(self, by_ms: int, which: Callable[[K], bool] | None = None) -> None:
        """Every deadline there is, or those of some keys, come later by that much."""
        if which is None:
            self._moved_ms += by_ms
            return
        for key in [key for key in self._deadlines if which(key)]:
            self._deadlines[key] += by_ms

    def deadline(self, key: K) -> int | None:
        at_ms = self._deadlines.get(key)
        return None if at_ms is None else at_ms + self._moved_ms

    @property
    def next_ms(self) -> int | None:
        """Nothing is due before this time; None when no deadline is set.

        It may be earlier than the first deadline. Moving entries up just to look would undo the saving.
        """
        return self._heap[0][0] + self._moved_ms if self._deadlines else None

    def pop_due(self, now_ms: int) -> tuple[K, int] | None:
        """Take out the first deadline that is not after `now_ms`; ties go by key. None when nothing is due."""
        now_ms -= self._moved_ms
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, key = heappop(self._heap)
            if self._entries.get(key) != at_ms:
                continue
            del self._entries[key]
            deadline = self._deadlines.get(key)
            if deadline == at_ms:
                del self._deadlines[key]
                return key, at_ms + self._moved_ms
            if deadline is not None:
                self._push(key, deadline)
        return None

    def _push(self, key: K, at_ms: int) -> None:
        self._entries[key] = at_ms
        heappush(self._heap, (at_ms, key))

    def _sweep_if_littered(self) -> None:
        if len(self._heap) > 2 * len(self._deadlines) + SPARE_ENTRIES:
            self._sweep()

    def _sweep(self) -> None:
        self._entries = dict(self._deadlines)
        self._heap = [(at_ms, key) for key, at_ms in self._deadlines.items()]
        heapify(self._heap)
