"""The deadlines of all shards, and what holds them back: a member is late only if it could have been heard and was not.

`TimerQueue` says when to look at which deadline. The deadlines are their owner's; pushing one back costs nothing here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from muster.coordinator.core.model.events import Event, TimerFired
from muster.coordinator.core.model.types import TimerKey
from muster.coordinator.runtime.shards import ShardSlot

# Timers
# ------

K = TypeVar("K")

SPARE_ENTRIES = 64
"""Heap entries that mean nothing any more and are never worth a clean-up."""


class TimerQueue(Generic[K]):
    """A heap of keys by the time when to look at them; `deadline` says what holds then, None: nothing. Times in ms.

    No look is later than the key's deadline, so whoever moves one forward, or makes one, has to say so (`set`). A
    deadline that was pushed back leaves its look where it is: when that comes up, it moves to the deadline of that
    moment. Looks that were moved forward or cancelled leave dead entries, swept out once they outnumber the living.

    Moving all looks is one addition: inside, times are kept without the moves there have been so far. Keys must be
    hashable and comparable.
    """

    def __init__(self, deadline: Callable[[K], int | None]) -> None:
        self._deadline = deadline
        self._looks: dict[K, int] = {}  # key -> time of its one valid heap entry
        self._heap: list[tuple[int, K]] = []
        self._moved_ms = 0

    def __len__(self) -> int:
        """How many keys are to be looked at."""
        return len(self._looks)

    @property
    def entries(self) -> int:
        """How many entries the heap holds, dead ones included: at most twice the keys, plus SPARE_ENTRIES."""
        return len(self._heap)

    def set(self, key: K, at_ms: int) -> None:
        """The key's deadline is this one now."""
        at_ms -= self._moved_ms
        look = self._looks.get(key)
        if look is None or at_ms < look:
            self._push(key, at_ms)
            self._sweep_if_littered()

    def cancel(self, key: K) -> None:
        """The key has no deadline any more; nothing happens when it had none."""
        if self._looks.pop(key, None) is not None:
            self._sweep_if_littered()

    def cancel_all(self, doomed: Callable[[K], bool]) -> None:
        """No doomed key has a deadline any more. Looks at all keys."""
        self._looks = {key: at for key, at in self._looks.items() if not doomed(key)}
        self._sweep()

    def move(self, by_ms: int) -> None:
        """Every deadline there is comes later by that much."""
        self._moved_ms += by_ms

    @property
    def next_ms(self) -> int | None:
        """Nothing is due before this time; None when no deadline is set.

        It may be earlier than the first deadline. Moving entries up just to look would undo the saving.
        """
        return self._heap[0][0] + self._moved_ms if self._looks else None

    def is_due(self, now_ms: int) -> bool:
        """Whether something may be due by then: its look is."""
        return bool(self._heap) and self._heap[0][0] + self._moved_ms <= now_ms

    def pop_due(self, now_ms: int) -> tuple[K, int] | None:
        """The first deadline that is not after `now_ms`; ties go by key. It is not looked at again until set again."""
        while self._heap and self._heap[0][0] + self._moved_ms <= now_ms:
            look_ms, key = heappop(self._heap)
            if self._looks.get(key) != look_ms:
                continue
            del self._looks[key]
            deadline_ms = self._deadline(key)
            if deadline_ms is None:
                continue
            if deadline_ms <= look_ms + self._moved_ms:
                return key, deadline_ms
            self._push(key, deadline_ms - self._moved_ms)
        return None

    def _push(self, key: K, at_ms: int) -> None:
        self._looks[key] = at_ms
        heappush(self._heap, (at_ms, key))

    def _sweep_if_littered(self) -> None:
        if len(self._heap) > 2 * len(self._looks) + SPARE_ENTRIES:
            self._sweep()

    def _sweep(self) -> None:
        self._heap = [(at_ms, key) for key, at_ms in self._looks.items()]
        heapify(self._heap)


class RetryPauses(dict[int, int]):
    """When to try again, ms, for each of a few shards: they are all looked at each time. Mostly there are none."""

    @property
    def next_ms(self) -> int | None:
        """When the first pause ends; None: there is none."""
        return min(self.values(), default=None)

    def set(self, shard: int, at_ms: int) -> None:
        self[shard] = at_ms

    def cancel(self, shard: int) -> None:
        self.pop(shard, None)

    def pop_due(self, now_ms: int) -> int | None:
        """The shard whose pause ended first, if one has; ties go by number."""
        end_ms, shard = min(((at_ms, shard) for shard, at_ms in self.items()), default=(now_ms + 1, -1))
        if end_ms > now_ms:
            return None
        del self[shard]
        return shard


LONGEST_READING_MS = 5_000
"""After a stall, half of it, or this long, is for reading what came meanwhile: a node that has twice the power its load
takes has read it all by then. As a share of the stall, so that a node that often stands still expires members yet."""

TIMERS_PER_TURN = 250
"""Timers that one turn fires; the rest are due in the next, and what was queued meanwhile goes first. Thousands of
members may be due for a ping at once. A timer re-armed to the past cannot stop the node."""


class Deadlines:
    """When to look at the deadlines of all slots: each slot's core keeps its own, and is asked when a look is due.

    Timers that came due too early to be fired are kept by their slot (`patient`).
    """

    def __init__(self, slots: Sequence[ShardSlot]) -> None:
        self._slots = slots
        self.timers: TimerQueue[tuple[int, TimerKey]] = TimerQueue(self._deadline)
        self._unheard_ms = 0  # then answers went out behind which something may have waited that nobody has heard yet

    def update(self, shard: int, timers: Mapping[TimerKey, int | None]) -> None:
        """A step has set these; None cancels."""
        for key, at_ms in timers.items():
            if at_ms is None:
                self.timers.cancel((shard, key))
            else:
                self.timers.set((shard, key), at_ms)

    def look_again(self, slot: ShardSlot, keys: Iterable[TimerKey]) -> None:
        """These were due and not fired: fire those that still are."""
        for key in keys:
            at_ms = self._deadline((slot.index, key))
            if at_ms is not None:
                self.timers.set((slot.index, key), at_ms)

    def fire(
        self, heard_ms: int, now_ms: int, step: Callable[[ShardSlot, Event, int], None], is_full: Callable[[], bool]
    ) -> int:
        """Step what is due, as far as everything has been heard until `heard_ms`, and until the turn `is_full`; how
        many came due.

        Those of members whose answers are held back for a flush wait for its end.
        """
        if heard_ms < self._unheard_ms:
            return 0
        held_back: dict[int, set[tuple[str, ...]]] = {}
        for fired in range(TIMERS_PER_TURN):
            due = self.timers.pop_due(heard_ms)
            if due is None:
                return fired
            (shard, key), deadline_ms = due
            slot = self._slots[shard]
            if slot.held and shard not in held_back:
                held_back[shard] = slot.held_back()
            if slot.held and key[1:] in held_back[shard]:
                slot.patient.add(key)
            else:
                step(slot, TimerFired(key, deadline_ms), now_ms)
                if is_full():
                    return fired + 1
        return TIMERS_PER_TURN

    def answered(self, slot: ShardSlot, at_ms: int) -> None:
        """Answers have gone out: patience with those who waited ends when what came until then has been heard."""
        if not slot.patient:
            return
        self._unheard_ms = at_ms
        patient, slot.patient = slot.patient, set()
        self.look_again(slot, patient)

    def move(self, by_ms: int) -> None:
        """All come later by that much. Each core is told by itself."""
        self.timers.move(by_ms)

    def forget(self, slot: ShardSlot) -> None:
        slot.patient.clear()
        self.timers.cancel_all(lambda key: key[0] == slot.index)

    def _deadline(self, key: tuple[int, TimerKey]) -> int | None:
        core = self._slots[key[0]].core
        return None if core is None else core.deadlines.get(key[1])


def deadline_shift_ms(stalled_ms: int) -> int:
    """How much later every deadline comes for a stall.

    >>> deadline_shift_ms(1_000), deadline_shift_ms(60_000)
    (1500, 65000)
    """
    return stalled_ms + min(stalled_ms // 2, LONGEST_READING_MS)
