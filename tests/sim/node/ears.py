"""The node's sockets. While it stands still everything lies there, and afterwards it takes a while to be read."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from muster.coordinator.runtime.deadlines import deadline_shift_ms
from tests.sim.world import World

PACE_MS = 50
STALL_MS = 250
"""As `coordinator.server.driver.clock` has them: a stall is known to within the one, and is none below the other."""

Action = Callable[[], None]


class Hearer(Protocol):
    """A node with ears."""

    life: int

    @property
    def up(self) -> bool: ...

    def stood_still(self, stalled_ms: int) -> None:
        """It has just found out."""

    def wake(self) -> None:
        """A turn is due soon."""


class Ears:
    """Who stands still notices nothing, not even that; only the clock tells, when it goes on."""

    def __init__(self, world: World, node: Hearer) -> None:
        self.world = world
        self.node = node
        self.deaf_until_ms = 0
        self._deaf_since_ms: int | None = None
        self._unread: deque[Action] = deque()
        self._read_by_ms = 0
        """What comes now is read after what came before."""

    @property
    def deaf(self) -> bool:
        return self.world.now_ms < self.deaf_until_ms

    def stall(self, for_ms: int) -> None:
        """The node stands still from now on."""
        if self.deaf or not self.node.up:
            return
        self.world.census["node stalls"] += 1
        self.world.census["node stalls beyond every session"] += for_ms > 30_000
        self.world.trace(f"node stands still for {for_ms}ms")
        self.check()
        self._deaf_since_ms, self.deaf_until_ms = self.world.now_ms, self.world.now_ms + for_ms
        life = self.node.life
        self.world.at(self.deaf_until_ms, lambda: self.check() if life == self.node.life else None)

    def hear(self, action: Action) -> None:
        """Something comes to the node."""
        if self.deaf or self._deaf_since_ms is not None:
            self._unread.append(action)
        elif self.world.now_ms < self._read_by_ms:
            self.world.at(self._read_by_ms, action)
        else:
            action()

    def check(self) -> None:
        """Find out that the node stood still, as its driver does before anything else; read on."""
        if self._deaf_since_ms is None or self.deaf:
            return
        now_ms = self.world.now_ms
        stalled_ms = now_ms - self._deaf_since_ms - self.world.between(0, PACE_MS)
        self._deaf_since_ms = None
        unread, self._unread = self._unread, deque()
        self.world.census["requests that waited for a node that stood still"] += len(unread)
        if stalled_ms < STALL_MS:
            for action in unread:
                action()
            return
        self.node.stood_still(stalled_ms)
        self.node.wake()
        reading_ms = deadline_shift_ms(stalled_ms) - stalled_ms
        times = sorted(now_ms + self.world.between(0, reading_ms) for _ in unread)
        for at_ms, action in zip(times, unread, strict=True):
            self._read_by_ms = at_ms
            self.world.at(at_ms, action)

    def crashed(self) -> None:
        """What lay in the sockets finds nobody any more."""
        unread, self._unread = self._unread, deque()
        self._deaf_since_ms, self.deaf_until_ms, self._read_by_ms = None, 0, 0
        for action in unread:
            action()
