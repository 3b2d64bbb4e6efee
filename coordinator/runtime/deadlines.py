"""The deadlines of all shards, and what holds them back: only who could be heard and was not, is late."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from muster.coordinator.core.model.core_events import Event, TimerFired
from muster.coordinator.core.model.types import TimerKey
from muster.coordinator.runtime.slot import ShardSlot
from muster.coordinator.runtime.timers import TimerQueue

LONGEST_READING_MS = 5_000
"""After a stall, half of it, or this long, is for reading what came meanwhile: a node that has twice the power its load
takes has read it all by then. As a share of the stall, so that a node that often stands still expires members yet."""

TIMERS_PER_TURN = 10_000
"""Timers that one turn fires; the rest are due in the next. A timer re-armed to the past cannot stop the node."""


class Deadlines:
    """When to look at the deadlines of all slots: each slot's core keeps its own, and is asked when a look is due.

    Timers that came due too early to be fired are kept by their slot (`patient`).
    """

    def __init__(self, slots: Sequence[ShardSlot]) -> None:
        self._slots = slots
        self._timers: TimerQueue[tuple[int, TimerKey]] = TimerQueue(self._deadline)
        self._unheard_ms = 0  # then answers went out behind which something may have waited that nobody has heard yet

    @property
    def next_ms(self) -> int | None:
        return self._timers.next_ms

    def update(self, shard: int, timers: Mapping[TimerKey, int | None]) -> None:
        """A step has set these; None cancels."""
        for key, at_ms in timers.items():
            if at_ms is None:
                self._timers.cancel((shard, key))
            else:
                self._timers.set((shard, key), at_ms)

    def look_again(self, slot: ShardSlot, keys: Iterable[TimerKey]) -> None:
        """These were due and not fired: fire those that still are."""
        for key in keys:
            at_ms = self._deadline((slot.index, key))
            if at_ms is not None:
                self._timers.set((slot.index, key), at_ms)

    def fire(self, heard_ms: int, now_ms: int, step: Callable[[ShardSlot, Event, int], None]) -> int:
        """Step what is due, as far as everything has been heard until `heard_ms`; how many came due.

        Those of members whose answers are held back for a flush wait for its end.
        """
        if heard_ms < self._unheard_ms:
            return 0
        held_back: dict[int, set[tuple[str, ...]]] = {}
        for fired in range(TIMERS_PER_TURN):
            due = self._timers.pop_due(heard_ms)
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
        self._timers.move(by_ms)

    def forget(self, slot: ShardSlot) -> None:
        slot.patient.clear()
        self._timers.cancel_all(lambda key: key[0] == slot.index)

    def _deadline(self, key: tuple[int, TimerKey]) -> int | None:
        core = self._slots[key[0]].core
        return None if core is None else core.deadlines.get(key[1])


def deadline_shift_ms(stalled_ms: int) -> int:
    """How much later every deadline comes for a stall.

    >>> deadline_shift_ms(1_000), deadline_shift_ms(60_000)
    (1500, 65000)
    """
    return stalled_ms + min(stalled_ms // 2, LONGEST_READING_MS)
