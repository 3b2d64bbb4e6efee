"""The room on the node's disk. Now and then it is full; meanwhile a little comes free, and is gone again."""

from collections.abc import Sequence

from muster.coordinator.runtime.ports import KeyValue
from tests.sim.world import World

BATCH_BYTES = 70
"""What a batch takes beside its keys and values."""
LEFT = (0, 0, 0, 300, 1_000, 6_000)
"""Bytes that may come free: for one commit, for a group's record, for what is owed."""


class Room:
    def __init__(self, world: World) -> None:
        self.world = world
        self._left: int | None = None
        """None: plenty."""
        self._times = 0

    @property
    def full(self) -> bool:
        return self._left is not None

    def fill(self, for_ms: int) -> None:
        """There is none for so long, or as good as none."""
        if self.full:
            return
        self.world.census["disks full"] += 1
        self.world.trace(f"the disk is full for {for_ms}ms")
        self._times += 1
        time = self._times
        self._come_and_go(time)
        self.world.after(for_ms, lambda: self.free() if time == self._times else None)

    def free(self) -> None:
        """There is plenty from now on."""
        if self.full:
            self.world.trace("the disk has room")
        self._left = None

    def takes(self, records: Sequence[KeyValue]) -> bool:
        """Whether they find a place, as one batch; then it is theirs."""
        size = BATCH_BYTES + sum(len(record.key) + len(record.value or b"") for record in records)
        if self._left is None or not records:
            return True
        if self._left < size:
            return False
        self._left -= size
        self.world.census["batches that found a place on a full disk"] += 1
        return True

    def _come_and_go(self, time: int) -> None:
        self._left = self.world.rng.choice(LEFT)
        again = self.world.between(200, 5_000)
        self.world.after(again, lambda: self._come_and_go(time) if self.full and time == self._times else None)
